"""Shared and private latents: laws in D = 1, 2, 3, the start, the estimators' face, files,
messages.
"""

import math

import numpy as np
import pytest
import torch

import bochner as bo
from bochner import NGMVLVM, SRFLVM, AdvisedRFLVM, RandomFeatureLVM
from bochner.errors import DataWarning, InputError
from bochner.estimators.settings import view_options
from bochner.features.fourier import fourier_features
from bochner.fitting import plan
from bochner.initialization.shared_private import (
    common_parts,
    split_start,
    unexplained,
    wide_start,
)
from bochner.kernels.spectral_mixture import NextGenSpectralMixture, SpectralMixture
from bochner.latent_inference.infer import place
from bochner.models.lvm import Layout
from bochner.objectives.elbo import draw, elbo
from bochner.prediction import diagnostics
from bochner.random import generator, row_noise
from bochner.regression.observations import CompleteBlock
from bochner.weight_posterior.posterior import weights_posterior
from helpers.models import build

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::bochner.errors.CollapseWarning"),
]
VIEWS = {"a": slice(0, 5), "b": slice(5, 9)}
LATENT = {"shared": 1, "private": {"a": 1, "b": 2}}
QUICK = {"n_frequencies": 5, "n_mixtures": 1, "max_iter": 12, "init": "pca", "random_state": 0}


@pytest.fixture(autouse=True)
def _few_draws(monkeypatch):
    monkeypatch.setattr(plan, "EVALUATION_DRAWS", 4)


def _data(n=50, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    a = np.sin(x[:, :2] @ rng.normal(size=(2, 5)) + rng.normal(size=5))
    b = np.sin(x[:, [0, 2]] @ rng.normal(size=(2, 4)) + rng.normal(size=4))
    return np.hstack([a, b]) + 0.1 * rng.normal(size=(n, 9))


# -- the layout
# ---------------------------------------------------------------------------


def test_shared_dimensions_come_first_then_every_views_own():
    layout = Layout(2, (1, 0, 2))
    assert layout.n_components == 5
    assert [layout.dims(v) for v in range(3)] == [(0, 1, 2), (0, 1), (0, 1, 3, 4)]
    assert [layout.private_dims(v) for v in range(3)] == [(2,), (), (3, 4)]
    assert Layout(2, (0, 0)).dims(1) is None


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("kernel", [SpectralMixture, NextGenSpectralMixture])
def test_widened_frequencies_give_the_features_of_the_dimensions_that_a_view_sees(kernel, dim):
    source = generator(0, "wide", dim)
    mixture = kernel().initial(2, dim, source)
    f = mixture.frequencies(mixture.noise(3, dim, source, "iid"))
    x = torch.randn(7, dim + 2, generator=source, dtype=torch.float64)
    dims = tuple(range(1, dim + 1))
    torch.testing.assert_close(
        fourier_features(x, f.widened(dims, dim + 2)), fourier_features(x[:, dims], f)
    )
    assert f.widened(None, dim) is f


# -- laws of the model
# ---------------------------------------------------------------------------


def _model(layout, kernel=NextGenSpectralMixture, n=20, seed=0):
    start = row_noise(n, layout.n_components, seed, "test", 0, dtype=torch.float64).numpy()
    kernels = [kernel() for _ in layout.private]
    names = [f"v{i}" for i in range(len(kernels))]
    return build(start, kernels, names, seed=seed, layout=layout)


def _blocks(n=20, widths=(4, 3), seed=1):
    parts = [
        torch.randn(n, m, generator=generator(seed, "y", i), dtype=torch.float64)
        for i, m in enumerate(widths)
    ]
    return tuple((CompleteBlock.of(part),) for part in parts)


@pytest.mark.parametrize("shared", [1, 2, 3])
def test_a_views_bound_does_not_depend_on_the_private_dimensions_of_others(shared):
    layout, data = Layout(shared, (1, 2)), _blocks()
    model = _model(layout)
    draws = draw(model, 3, "iid", 0, "train", 0)
    before = elbo(model, data, draws)
    gradient = torch.autograd.grad(before.views[0], model.latents.mean, retain_graph=True)[0]
    assert (gradient[:, list(layout.private_dims(1))] == 0).all()
    assert (gradient[:, list(layout.dims(0))] != 0).any(0).all()
    with torch.no_grad():
        model.latents.mean[:, list(layout.private_dims(1))] += 1.0
    after = elbo(model, data, draws)
    assert after.views[0].item() == before.views[0].item()
    assert after.views[1].item() != before.views[1].item()


@pytest.mark.parametrize("shared", [1, 2, 3])
def test_private_dimensions_of_views_without_data_cost_nothing_and_stay_at_the_prior(shared):
    """The bound of a model whose second view is empty is that of the model without the private
    dimension.
    """
    with_private, without = _model(Layout(shared, (0, 1))), _model(Layout(shared, (0, 0)))
    with torch.no_grad():
        without.latents.mean.copy_(with_private.latents.mean[:, :shared])
        with_private.latents.mean[:, shared:], with_private.latents.log_std[:, shared:] = (
            0.0,
            0.0,
        )
        without.views[0].kernel.load_state_dict(with_private.views[0].kernel.state_dict())
    data = (_blocks()[0], ())
    noise = draw(with_private, 3, "iid", 0, "train", 0)
    draws = draw(without, 3, "iid", 0, "train", 0)
    draws = type(draws)(noise.latents[:, :shared], (noise.spectra[0], draws.spectra[1]))
    torch.testing.assert_close(
        elbo(with_private, data, noise).total, elbo(without, data, draws).total
    )


@pytest.mark.parametrize("shared", [1, 2, 3])
def test_rows_that_lack_a_view_leave_its_private_dimensions_at_the_prior(shared):
    layout, data = Layout(shared, (1, 1)), _blocks()
    model = _model(layout)
    posterior = weights_posterior(
        model, data, n_frequencies=4, n_draws=2, n_latent_draws=1, sampling="iid", seed=0
    )
    rows = [data[0][0].Y[:6], torch.full((6, 3), math.nan, dtype=torch.float64)]
    placed = place(posterior, model.latents.mean.detach(), rows)
    private = list(layout.private_dims(1))
    assert placed.mean[:, private].abs().max() < 1e-6
    torch.testing.assert_close(
        placed.covariances[:, 0][:, private, private], torch.ones(6, 1, dtype=torch.float64)
    )
    assert placed.mean[:, list(layout.private_dims(0))].abs().max() > 1e-3


# -- the start
# ---------------------------------------------------------------------------


def test_the_common_parts_keep_what_views_share_and_drop_the_rest():
    rng = np.random.default_rng(0)
    shared, private = rng.normal(size=(300, 2)), [rng.normal(size=(300, 1)) for _ in range(2)]
    views = [
        shared @ rng.normal(size=(2, 12))
        + 3.0 * p @ rng.normal(size=(1, 12))
        + 0.05 * rng.normal(size=(300, 12))
        for p in private
    ]
    for part, view, p in zip(common_parts(views, 0), views, private, strict=True):
        assert bo.metrics.aligned_r2(shared, np.linalg.svd(part)[0][:, :2]).min() > 0.98
        assert np.square(p.T @ part).sum() < 0.02 * np.square(p.T @ view).sum()
    start = split_start("pca", views, Layout(2, (1, 1)), 0)
    assert start.shape == (300, 4)
    assert bo.metrics.aligned_r2(shared, start[:, :2]).min() > 0.95
    assert bo.metrics.aligned_r2(private[0], start[:, [2]])[0] > 0.8
    assert bo.metrics.aligned_r2(private[1], start[:, [3]])[0] > 0.8


def test_folding_starts_wide_and_keeps_the_first_of_every_kind():
    narrow, X = Layout(1, (1, 2)), _data()
    first, wide = wide_start([X[:, :5], X[:, 5:]], narrow, 2, 0)
    assert wide == Layout(3, (3, 4))
    assert first.shape == (50, 10)
    assert wide.narrowed(narrow) == [0, 3, 6, 7]
    model = NGMVLVM(**{**QUICK, "init": "fold"}, views=VIEWS, latent=LATENT).fit(X)
    assert model.starts_[0]["init"] == "fold"
    assert model.embedding_.shape == (50, 4)


def test_what_is_unexplained_of_a_row_without_the_view_is_nothing():
    rng = np.random.default_rng(0)
    view = rng.normal(size=(40, 3))
    view[5] = 0.0
    left = unexplained(view, rng.normal(size=(40, 2)))
    assert (left[5] == 0).all()
    assert (left[4] != 0).all()


# -- the estimators
# ---------------------------------------------------------------------------


@pytest.mark.usefixtures("few_draws", "two_folds")
@pytest.mark.parametrize("cls", [NGMVLVM, AdvisedRFLVM, RandomFeatureLVM, SRFLVM])
def test_every_model_takes_private_latents_and_its_files_keep_them(cls, tmp_path):
    X = _data(30)
    X[4, :5] = np.nan
    model = cls(**{**QUICK, "n_mixtures": 2}, views=VIEWS, latent=LATENT).fit(X)
    assert model.embedding_.shape == (30, 4)
    assert model.latent_dims_ == {"a": (0, 1), "b": (0, 2, 3)}
    hidden = np.array([[False, False, True, True], [False, True, False, False]])
    assert (model.relevance_[hidden] == 0).all()
    assert (model.variance_explained_[hidden] == 0).all()
    np.testing.assert_allclose(model.relevance_.sum(1), 1.0)
    assert model.embedding_std_[4, 1] == pytest.approx(1.0)
    assert model.embedding_[4, 1] == pytest.approx(0.0, abs=1e-6)
    model.save(tmp_path / "m.bochner")
    again = bo.load(tmp_path / "m.bochner")
    assert again.latent_dims_ == model.latent_dims_
    assert again.get_params()["latent"] == LATENT
    np.testing.assert_array_equal(again.transform(X), model.embedding_)
    np.testing.assert_array_equal(again.variance_explained_, model.variance_explained_)
    np.testing.assert_array_equal(again.impute(X), model.impute(X))
    assert again.sample(3, random_state=0).shape == (3, 9)
    for exact in (True, False):
        K = again.kernel_matrix(model.embedding_, view="b", exact=exact)
        # along a dimension that b does not see
        moved = model.embedding_ + np.array([0.0, 1.0, 0.0, 0.0])
        np.testing.assert_allclose(again.kernel_matrix(moved, view="b", exact=exact), K)
    assert math.isfinite(again.score(X[:5]))


def test_no_private_latents_are_shared_latents():
    X = _data()
    plain = NGMVLVM(2, **QUICK, views=VIEWS).fit(X)
    for latent in ({"shared": 2}, {"private": {}}, {"shared": 2, "private": {"a": 0}}):
        same = NGMVLVM(**QUICK, views=VIEWS, latent=latent).fit(X)
        assert same.elbo_ == plain.elbo_
        np.testing.assert_array_equal(same.embedding_, plain.embedding_)


def test_stopped_and_continued_equals_never_stopped_with_private_latents(
    tmp_path, monkeypatch
):
    from bochner.training.checkpoint import Checkpoint

    X, path = _data(), tmp_path / "c"
    options = {**QUICK, "views": VIEWS, "latent": LATENT}
    whole = NGMVLVM(**options).fit(X)

    def stop(self, trainer, extra):
        self.write(trainer, extra)
        if trainer.state.step == 6:
            raise RuntimeError("power cut")

    with monkeypatch.context() as patched:
        patched.setattr(Checkpoint, "maybe", stop)
        with pytest.raises(RuntimeError, match="power cut"):
            NGMVLVM(**options, checkpoint=path).fit(X)
    assert path.exists()
    resumed = NGMVLVM(**options, checkpoint=path).fit(X)
    assert resumed.elbo_ == whole.elbo_


def test_variance_explained_is_what_a_prediction_without_the_dimension_loses():
    X = _data(80)
    model = AdvisedRFLVM(**{**QUICK, "max_iter": 60}, views=VIEWS, latent=LATENT).fit(X)
    x, rng = torch.tensor(model.embedding_), np.random.default_rng(0)
    fitted = model.inverse_transform(model.embedding_)
    for v, columns in enumerate(VIEWS.values()):
        y = X[:, columns]
        for d in model.latent_dims_["ab"[v]]:
            predictions = []
            for value in rng.normal(size=60):
                moved = x.numpy().copy()
                moved[:, d] = value
                predictions.append(model.inverse_transform(moved)[:, columns])
            lost = (
                np.square(y - np.mean(predictions, axis=0)).sum()
                - np.square(y - fitted[:, columns]).sum()
            )
            share = lost / np.square(y - y.mean(0)).sum()
            assert model.variance_explained_[v, d] == pytest.approx(share, abs=0.05)
    assert model.variance_explained_[0, 0] > 0.2


def test_variance_explained_of_counts_is_that_of_psi():
    X = np.random.default_rng(0).poisson(np.exp(0.8 * _data(60))).astype(float)
    model = AdvisedRFLVM(**QUICK, views=VIEWS, latent=LATENT, likelihood="poisson").fit(X)
    # the counts play no part
    rows = [torch.full((60, m), math.nan, dtype=torch.float64) for m in (5, 4)]
    again = diagnostics.variance_explained(
        model._fit.posterior, torch.tensor(model.embedding_), rows
    )
    np.testing.assert_allclose(again, model.variance_explained_, atol=1e-12)
    assert (model.variance_explained_ >= 0).all()
    assert model.variance_explained_[0, :2].sum() > 0.5


# -- messages
# ---------------------------------------------------------------------------

WRONG = [
    ({"common": 1}, 2, "Expected latent with the keys 'shared' and 'private', got 'common'."),
    ({"shared": 0}, 2, r"Expected latent\['shared'\] as a whole number of at least 1, got 0."),
    (
        {"shared": 1.5},
        2,
        r"Expected latent\['shared'\] as a whole number of at least 1, got 1.5.",
    ),
    (
        {"private": 3},
        2,
        r"Expected latent\['private'\] as a dict of view to dimensions, got 3.",
    ),
    (
        {"private": {"c": 1}},
        2,
        r"Expected private latents for views \['a', 'b'\], got 'c'. Correct the name.",
    ),
    (
        {"private": {"a": -1}},
        2,
        r"Expected latent\['private'\]\['a'\] as a whole number of at least 0, got -1.",
    ),
    (
        {"shared": 3, "private": {"a": 1}},
        7,
        "Expected n_components=4, the dimensions of latent together, got n_comp",
    ),
]


@pytest.mark.parametrize(("latent", "n_components", "text"), WRONG)
def test_wrong_latents_are_named(latent, n_components, text):
    with pytest.raises(InputError, match=text):
        NGMVLVM(n_components, **QUICK, views=VIEWS, latent=latent).fit(_data())


def test_one_view_has_nothing_private_and_given_starts_have_all_dimensions():
    with pytest.raises(
        InputError, match=r"Expected several views for private latents, got one view, 'x'\."
    ):
        NGMVLVM(**QUICK, latent={"private": {"x": 1}}).fit(_data())
    with pytest.raises(
        InputError, match=r"Expected init of shape \(50, 4\), got shape \(50, 2\)"
    ):
        NGMVLVM(**{**QUICK, "init": np.zeros((50, 2))}, views=VIEWS, latent=LATENT).fit(
            _data()
        )


def test_n_components_counts_the_shared_dimensions_that_the_dict_leaves_out():
    assert view_options.layout({"private": {"b": 1}}, 3, ("a", "b")) == Layout(3, (0, 1))
    assert view_options.layout({"shared": 3, "private": {"b": 1}}, 4, ("a", "b")) == Layout(
        3, (0, 1)
    )


def test_a_view_without_variance_has_none_to_explain():
    # rows that are all at one place: 0/0 had been 1e287
    X = np.tile([3.0, 2e27, 0.0, 5.0], (5, 1))
    options = {
        "views": {"a": [0, 1], "b": [2, 3]},
        "likelihood": {"a": "gaussian", "b": "poisson"},
    }
    with pytest.warns(DataWarning, match="Constant columns"):
        model = AdvisedRFLVM(**{**QUICK, **options, "max_iter": 30}).fit(X)
    np.testing.assert_array_equal(model.variance_explained_, 0.0)
    np.testing.assert_allclose(model.inverse_transform(model.embedding_)[:, 1], 2e27)
