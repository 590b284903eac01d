"""One noise variance per column: both forms against the normal density, the posterior, placement,
the estimators.
"""

import logging
import math
import warnings

import numpy as np
import pytest
import torch
from torch.distributions import MultivariateNormal

import bochner as bo
from bochner import NGMVLVM, SRFLVM, AdvisedRFLVM
from bochner.errors import DataWarning, InputError
from bochner.features.fourier import fourier_features
from bochner.fitting import plan
from bochner.fitting.svd_compression import rotate
from bochner.kernels.spectral_mixture import NextGenSpectralMixture, SpectralMixture
from bochner.latent_inference.candidates import candidate_scores, scores_at
from bochner.latent_inference.row_bound import target_for
from bochner.likelihoods.likelihood import Gaussian
from bochner.models.lvm import GaussianLatents, LatentVariableModel, View
from bochner.prediction.decoding import decode
from bochner.random import generator
from bochner.regression.evidence import view_evidence
from bochner.regression.noise import Noise, NoisePerColumn, statistics
from bochner.regression.observations import CompleteBlock
from bochner.weight_posterior.conditioning import SharedDraw, SpectralDraw
from bochner.weight_posterior.posterior import ViewPosterior, weights_posterior

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::bochner.errors.CollapseWarning"),
]
QUICK = {"n_frequencies": 6, "n_mixtures": 1, "max_iter": 12, "init": "pca", "random_state": 0}


@pytest.fixture(autouse=True)
def _few_draws(monkeypatch):
    monkeypatch.setattr(plan, "EVALUATION_DRAWS", 4)


def _problem(dim, paired=True, n=23, m=5, n_frequencies=3):
    source = generator(0, "test", dim)
    kernel = (NextGenSpectralMixture if paired else SpectralMixture)().initial(2, dim, source)
    f = kernel.frequencies(kernel.noise(n_frequencies, dim, source, "iid")).detach()
    x = torch.randn(n, dim, generator=source, dtype=torch.float64)
    Y = torch.randn(n, m, generator=source, dtype=torch.float64)
    return x, f, Y, 0.1 + torch.rand(m, generator=source, dtype=torch.float64)


def _naive(x, f, Y, noise):
    phi = fourier_features(x, f)
    total = torch.zeros((), dtype=torch.float64)
    for m in range(Y.shape[1]):
        covariance = phi.T @ phi + noise[m] * torch.eye(len(x), dtype=x.dtype)
        total = total + MultivariateNormal(
            torch.zeros(len(x), dtype=x.dtype), covariance
        ).log_prob(Y[:, m])
    return total


# -- the bound
# ---------------------------------------------------------------------------


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_both_forms_are_the_normal_density(dim, paired):
    x, f, Y, noise = _problem(dim, paired)
    phi, expected, block = fourier_features(x, f), _naive(x, f, Y, noise), CompleteBlock.of(Y)
    of_columns = Noise.of(noise)
    assert isinstance(of_columns, NoisePerColumn)
    fast = of_columns.evidence(statistics(phi, Y, block.squares))
    torch.testing.assert_close(fast.value, expected, rtol=1e-12, atol=1e-10)
    dense = of_columns.dense_evidence(phi, block)
    torch.testing.assert_close(dense.value, expected, rtol=1e-12, atol=1e-10)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_equal_noises_are_the_noise_of_a_view(dim):
    x, f, Y, _ = _problem(dim)
    variance = torch.tensor(0.3, dtype=torch.float64)
    one, each = Noise.of(variance), Noise.of(variance.expand(5))
    phi, block = fourier_features(x, f), CompleteBlock.of(Y)
    single = one.evidence(statistics(phi, Y, one.square(block)))
    many = each.evidence(statistics(phi, Y, each.square(block)))
    torch.testing.assert_close(many.value, single.value)
    torch.testing.assert_close(many.d_gram, single.d_gram)
    torch.testing.assert_close(many.d_cross, single.d_cross)
    torch.testing.assert_close(many.d_noise.sum(), single.d_noise)
    single_dense, many_dense = one.dense_evidence(phi, block), each.dense_evidence(phi, block)
    torch.testing.assert_close(many_dense.value, single_dense.value)
    torch.testing.assert_close(many_dense.twice_d_gram, single_dense.twice_d_gram)
    torch.testing.assert_close(many_dense.d_noise.sum(), single_dense.d_noise)


@pytest.mark.parametrize("n_frequencies", [3, 20])  # K = 12 < N = 23 < K = 80: both forms
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_closed_form_gradient_is_that_of_plain_autograd(dim, n_frequencies):
    x, f, Y, noise = _problem(dim, n_frequencies=n_frequencies)
    leaves = [t.requires_grad_() for t in (x, f.first, f.second, f.amplitude, noise)]
    slow = torch.autograd.grad(_naive(x, f, Y, noise), leaves)
    for chunk in (7, 100):
        fast = torch.autograd.grad(
            view_evidence(x, f, noise, (CompleteBlock.of(Y),), chunk_rows=chunk), leaves
        )
        for a, b in zip(fast, slow, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-8)


def test_columns_that_miss_different_rows_have_their_own_noise_and_gradient():
    x, f, Y, noise = _problem(2, n=40)
    noise.requires_grad_()
    parts = [
        ([0, 3], torch.arange(30)),
        ([1], torch.arange(5, 40)),
        ([2, 4], torch.arange(0, 40, 2)),
    ]
    blocks = tuple(
        CompleteBlock.of(Y[rows][:, columns], rows, torch.tensor(columns))
        for columns, rows in parts
    )
    expected = sum(
        _naive(x[rows], f, Y[rows][:, columns], noise[columns]) for columns, rows in parts
    )
    value = view_evidence(x, f, noise, blocks)
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=1e-9)
    slow, fast = (torch.autograd.grad(bound, noise)[0] for bound in (expected, value))
    torch.testing.assert_close(fast, slow, rtol=1e-8, atol=1e-9)


def test_statistics_of_processes_add_with_the_squares_of_columns():
    x, f, Y, noise = _problem(2)
    phi, block = fourier_features(x, f), CompleteBlock.of(Y)
    parts = [
        statistics(phi[:, rows], Y[rows], Y[rows].square().sum(0))
        for rows in (slice(0, 9), slice(9, None))
    ]
    both = Noise.of(noise).value(parts[0] + parts[1])
    torch.testing.assert_close(both, Noise.of(noise).value(statistics(phi, Y, block.squares)))


def test_single_precision_agrees():
    x, f, Y, noise = _problem(2, n=400, n_frequencies=10)
    exact = view_evidence(x, f, noise, (CompleteBlock.of(Y),))
    single = view_evidence(x.float(), f, noise, (CompleteBlock.of(Y.float()),))
    assert abs(float(single - exact)) < 1e-5 * abs(float(exact))


# -- after the fit
# ---------------------------------------------------------------------------


def _by_hand(dim, n=60):
    """A view with noise per column beside its columns as views of their own, which need no new
    mathematics.
    """
    x, f, Y, noise = _problem(dim, n=n)
    phi = fourier_features(x, f)
    values, vectors = torch.linalg.eigh(phi @ phi.T)
    scales = 1.0 / (values + noise[:, None])
    mean = vectors @ (scales.T * (vectors.T @ (phi @ Y)))
    group, likelihood = torch.zeros(5, dtype=torch.int64), Gaussian(noise.tolist())
    with torch.no_grad():
        likelihood.log_noise_variance.copy_((noise - 1e-4).log())
    view = ViewPosterior.of(
        "a", (SpectralDraw(f, mean, vectors[None], scales),), group, likelihood
    )
    columns = []
    for m in range(5):
        inverse = torch.linalg.inv(
            phi @ phi.T + noise[m] * torch.eye(phi.shape[0], dtype=phi.dtype)
        )
        draw = SharedDraw(f, inverse @ phi @ Y[:, [m]], inverse[None])
        columns.append(
            ViewPosterior.of(f"c{m}", (draw,), group[:1], Gaussian(float(noise[m])))
        )
    return view, columns, x, Y


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_prediction_and_placement_are_those_of_one_view_per_column(dim):
    view, columns, x, Y = _by_hand(dim)
    y = Y[:4].clone()
    y[:, 3] = math.nan
    split = [y[:, [m]] for m in range(5)]
    for together, other in zip(decode([view], x[:7]), decode(columns, x[:7]), strict=True):
        torch.testing.assert_close(together, other)
    rows, point = (
        torch.arange(4),
        torch.randn(4, dim, generator=generator(5, "x"), dtype=torch.float64),
    )
    for shared in (True, False):
        one, many = (
            target_for([view], [y], dim, shared),
            target_for(columns, split, dim, shared),
        )
        for together, other in zip(
            one.evaluate(point, rows), many.evaluate(point, rows), strict=True
        ):
            torch.testing.assert_close(together, other)
    one = candidate_scores(scores_at([view], x), [torch.nan_to_num(Y[:4])], [None])
    whole = [Y[:4, [m]] for m in range(5)]
    many = candidate_scores(scores_at(columns, x), whole, [None] * 5)
    torch.testing.assert_close(one, many)


def test_the_posterior_of_the_weights_is_that_of_each_column():
    view, _, x, Y = _by_hand(2)
    latents = GaussianLatents(x, torch.full_like(x, -20.0))
    kernel = NextGenSpectralMixture().initial(2, 2, generator(0, "k"))
    model = LatentVariableModel(latents, [View("a", kernel, view.likelihood)])
    options = {
        "n_frequencies": 3,
        "n_draws": 1,
        "n_latent_draws": 1,
        "sampling": "iid",
        "seed": 0,
    }
    (result,) = weights_posterior(model, ((CompleteBlock.of(Y),),), **options)
    phi, noise = result.draws[0].features(x), view.likelihood.noise_variance
    new = result.draws[0].features(
        torch.randn(6, 2, generator=generator(3, "new"), dtype=torch.float64)
    )
    for m in range(5):
        inverse = torch.linalg.inv(
            phi.T @ phi + noise[m] * torch.eye(phi.shape[1], dtype=phi.dtype)
        )
        torch.testing.assert_close(
            result.draws[0].mean[:, m], inverse @ phi.T @ Y[:, m], rtol=1e-6, atol=1e-8
        )
        spread = torch.einsum("nk,kl,nl->n", new, inverse, new)
        of_column = result.draws[0].spread(new, result.group_of)[:, m]
        torch.testing.assert_close(of_column, spread, rtol=1e-6, atol=1e-8)


def _data(n=200, seed=0):
    rng = np.random.default_rng(seed)
    true = np.array([0.05, 0.05, 0.4, 0.4, 0.1, 0.1, 0.8, 0.05])
    return (
        np.sin(rng.normal(size=(n, 2)) @ np.random.default_rng(7).normal(size=(2, 8))),
        true,
        rng,
    )


def test_noise_per_column_finds_the_noisy_columns_and_its_file_keeps_them(tmp_path, caplog):
    clean, true, rng = _data()
    X = 3.0 * (clean + true * rng.normal(size=clean.shape))
    X[5, 2] = np.nan
    with caplog.at_level(logging.INFO, logger="bochner"):
        model = AdvisedRFLVM(
            **{**QUICK, "n_frequencies": 16, "max_iter": 400}, noise="column"
        ).fit(X)
    assert (
        "view 'x': noise per column, so that training sees all columns and rotates none away"
        in caplog.text
    )
    result = np.sqrt(model.noise_variance_["x"]) / 3.0
    assert result.shape == (8,)
    assert np.corrcoef(np.log(result), np.log(true))[0, 1] > 0.9
    np.testing.assert_allclose(result[[2, 3, 6]], true[[2, 3, 6]], rtol=0.25)
    assert model.dropped_ == {"x": 0.0}
    model.save(tmp_path / "m.bochner")
    again = bo.load(tmp_path / "m.bochner")
    np.testing.assert_array_equal(again.noise_variance_["x"], model.noise_variance_["x"])
    np.testing.assert_array_equal(again.transform(X), model.embedding_)
    _, std = again.inverse_transform(model.embedding_[:5], return_std=True)
    assert (std[:, 6] > 4 * std[:, 0]).all()
    assert np.isfinite(again.score(X))
    assert again.sample(4, random_state=0).shape == (4, 8)


def test_rotation_leaves_views_with_noise_per_column_alone():
    Y = torch.randn(200, 2, dtype=torch.float64, generator=generator(0, "y")) @ torch.ones(
        2, 50, dtype=torch.float64
    )
    data = ((CompleteBlock.of(Y),),)
    assert rotate(data, 0.0, 0, [Gaussian()])[0][0][0].Y.shape[1] < 50
    assert rotate(data, 0.0, 0, [Gaussian([0.3] * 50)])[0][0][0] is data[0][0]


def test_a_constant_column_has_the_least_noise_and_no_more():
    X = np.random.default_rng(0).normal(size=(60, 5))
    X[:, 2] = 4.0
    with pytest.warns(DataWarning, match="Constant columns are kept"):
        model = NGMVLVM(**{**QUICK, "max_iter": 300}, noise="column", landmarks=40).fit(X)
    assert np.isfinite(model.elbo_)
    assert model.noise_variance_["x"].min() >= 1e-4 * np.square(X - X.mean(0)).mean() * 0.99
    assert model.noise_variance_["x"].argmin() == 2


def test_columns_of_few_rows_do_not_make_a_view_noise_alone():
    # two rows learn any noise: the share had been 2.2, of columns that were explained all along
    source = np.random.default_rng(11)
    Z = source.normal(size=(100, 2))
    X = Z @ source.normal(size=(2, 6)) + 0.1 * source.normal(size=(100, 6))
    X[:2, 4:], X[2:, 4:] = [[6.0, -6.0], [-6.0, 6.0]], np.nan
    model = NGMVLVM(**{**QUICK, "max_iter": 60}, noise="column").fit(X)
    noise = model.noise_variance_["x"]
    assert (noise[:4] < 0.2 * X[:, :4].var(0)).all()
    assert noise.mean() > 0.98 * np.nanmean(np.square(X - np.nanmean(X, 0)))
    assert model.collapse_.noise_share["x"] < 0.5
    assert not model.collapse_.collapsed


def test_dirichlet_process_kernels_have_one_noise_per_view():
    text = (
        r"Expected noise='view' with Dirichlet process kernels, got noise='column'\. Leave "
        r"noise='view', or fit Adv"
    )
    with pytest.raises(InputError, match=text):
        SRFLVM(**QUICK, noise="column").fit(np.random.default_rng(0).normal(size=(20, 4)))


def test_wide_views_of_own_noise_stand_beside_counts():
    source = np.random.default_rng(0)
    psi = np.sin(source.normal(size=(8, 2)) @ source.normal(size=(2, 14)))
    # more columns than rows: surrogates would rotate
    X = np.hstack([psi[:, :12], source.poisson(np.exp(psi[:, 12:]))])
    views = {"real": slice(0, 12), "counts": slice(12, 14)}
    options = {"init": "pca", "max_iter": 3, "n_frequencies": 5, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = bo.NGMVLVM(
            1, views=views, likelihood={"counts": "poisson"}, noise="column", **options
        ).fit(X)
    assert model.noise_variance_["real"].shape == (12,)
    assert np.isfinite(model.embedding_).all()
