"""The bound is a bound, symmetric in its views, keyed, and its gradient is right, in D = 1, 2,
3.
"""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from bochner.kernels.base import SpectralKernel
from bochner.kernels.spectral_mixture import NextGenSpectralMixture, SpectralMixture
from bochner.models.lvm import GaussianLatents, LatentVariableModel
from bochner.objectives.elbo import Draws, Evaluation, draw, elbo
from bochner.random import ROWS_PER_BLOCK, generator, row_noise
from bochner.regression.evidence import view_evidence
from bochner.regression.observations import CompleteBlock
from helpers.dense import features_of_draws
from helpers.models import build

KERNELS = {"ng-sm": NextGenSpectralMixture, "sm": SpectralMixture}


def _model(
    dim: int, n: int, names=("a",), kernel: str = "ng-sm", seed: int = 0, std: float = 0.3
):
    start = row_noise(n, dim, seed, "test", 0, dtype=torch.float64).numpy()
    kernels: list[SpectralKernel] = [KERNELS[kernel]() for _ in names]
    model = build(start, kernels, names, seed=seed)
    with torch.no_grad():
        model.latents.log_std.fill_(math.log(std))
    return model


def _data(n: int, m: int, seed: int = 1) -> Tensor:
    return torch.randn(n, m, generator=generator(seed, "data"), dtype=torch.float64)


# -- a lower bound of the evidence
# ---------------------------------------------------------------------------


def _log_density(features: Tensor, Y: Tensor, s2: float) -> Tensor:
    """log N(Y; 0, Phi Phi^T + s2 I) for a batch of features (S, N, K): independent of the code
    under test.
    """
    covariance = features @ features.transpose(1, 2) + s2 * torch.eye(
        Y.shape[0], dtype=Y.dtype
    )
    normal = torch.distributions.MultivariateNormal(
        torch.zeros(Y.shape[0], dtype=Y.dtype), covariance
    )
    return sum(normal.log_prob(Y[:, j]) for j in range(Y.shape[1]))  # type: ignore[return-value]


def _evidence(
    model: LatentVariableModel, Y: Tensor, n_frequencies: int, n_samples: int
) -> tuple[float, float]:
    """log E[p(Y | X, W)] over X ~ N(0, I) and W ~ p(W), and its standard error, by plain
    sampling.
    """
    source, view = generator(9, "evidence"), model.views[0]
    n, dim = model.latents.mean.shape
    x = torch.randn(n_samples, n, dim, generator=source, dtype=torch.float64)
    with torch.no_grad():
        # H spectral points of each of S samples, drawn as S H points at once: Q, S H -> S, Q H
        noise = view.kernel.noise(n_frequencies * n_samples, dim, source, "iid")
        f = view.kernel.frequencies(noise)
        q = view.kernel.n_mixtures

        def split(w: Tensor) -> Tensor:
            return (
                w.reshape(q, n_samples, n_frequencies, -1)
                .transpose(0, 1)
                .reshape(n_samples, q * n_frequencies, -1)
            )

        amplitude = split(f.amplitude[:, None])[:, :, 0] * math.sqrt(n_samples)
        w2 = None if f.second is None else split(f.second)
        phi = features_of_draws(x, split(f.first), w2, amplitude[:, None, :])
        log_p = _log_density(phi, Y, float(view.likelihood.noise_variance))
    peak = log_p.max()
    ratios = (log_p - peak).exp()
    mean = ratios.mean()
    return float(peak + mean.log()), float(ratios.std() / mean / math.sqrt(n_samples))


@pytest.mark.parametrize("kernel", ["ng-sm", "sm"])
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_the_mean_bound_lies_below_the_log_evidence(dim, kernel):
    n, m, n_frequencies = 5, 2, 2
    model, Y = _model(dim, n, kernel=kernel, std=0.9), 0.7 * _data(n, m)
    with torch.no_grad():
        # close to the prior, where the bound is close to the evidence
        model.latents.mean.mul_(0.3)
    evidence, error = _evidence(model, Y, n_frequencies, 30_000)
    assert error < 0.1
    with torch.no_grad():
        values = torch.stack(
            [
                elbo(
                    model,
                    ((CompleteBlock.of(Y),),),
                    draw(model, n_frequencies, "iid", 0, "law", i),
                ).total
                for i in range(700)
            ]
        )
    mean, se = float(values.mean()), float(values.std()) / math.sqrt(len(values))
    assert mean < evidence + 3 * math.hypot(se, error)
    assert mean > evidence - 6.0  # and not so far below that the test could not fail


@pytest.mark.parametrize("dim", [1, 2])
def test_at_the_prior_the_bound_is_the_mean_log_density_and_jensens_gap_is_its_distance_to_the_evidence(  # noqa: E501
    dim,
):
    n, n_frequencies = 4, 2
    model, Y = _model(dim, n, std=1.0), _data(n, 2)
    with torch.no_grad():
        model.latents.mean.zero_()
        assert float(model.latents.kl()) == pytest.approx(0.0, abs=1e-12)
        values = torch.stack(
            [
                elbo(
                    model,
                    ((CompleteBlock.of(Y),),),
                    draw(model, n_frequencies, "iid", 0, "law", i),
                ).total
                for i in range(1500)
            ]
        )
    # the draws of the bound are then draws from the prior: their log mean exp is the evidence
    # itself
    log_mean = float(values.logsumexp(0)) - math.log(len(values))
    ratios = (values - values.max()).exp()
    se = float(ratios.std() / ratios.mean()) / math.sqrt(len(values))
    evidence, error = _evidence(model, Y, n_frequencies, 30_000)
    assert abs(log_mean - evidence) < 5 * math.hypot(se, error)
    assert float(values.mean()) < log_mean


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_the_divergence_is_that_of_torch(dim):
    latents = GaussianLatents(_data(7, dim), 0.3 * _data(7, dim, seed=2))
    q = torch.distributions.Normal(latents.mean, latents.log_std.exp())
    expected = torch.distributions.kl_divergence(q, torch.distributions.Normal(0.0, 1.0)).sum()
    torch.testing.assert_close(latents.kl(), expected)


# -- views
# ---------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_the_bound_is_the_sum_over_views_minus_the_divergence(dim):
    model, Ya, Yb = _model(dim, 9, ("a", "b")), _data(9, 3), _data(9, 4, seed=2)
    draws = draw(model, 4, "sobol", 0, "train", 3)
    bound = elbo(model, ((CompleteBlock.of(Ya),), (CompleteBlock.of(Yb),)), draws)
    x = model.latents.mean + model.latents.log_std.exp() * draws.latents
    parts = [
        view_evidence(
            x,
            view.kernel.frequencies(noise),
            view.likelihood.noise_variance,
            (CompleteBlock.of(Y),),
        )
        for view, noise, Y in zip(model.views, draws.spectra, (Ya, Yb), strict=True)
    ]
    torch.testing.assert_close(bound.total, parts[0] + parts[1] - model.latents.kl())
    torch.testing.assert_close(torch.stack(bound.views), torch.stack(parts))


def test_where_samples_begin_is_keyed_by_view_and_step():
    one, two = (
        dict(
            zip(
                names,
                draw(_model(1, 9, names), 4, "iid", 0, "train", step).starts,
                strict=True,
            )
        )
        for names, step in ((("a", "b"), 3), (("b", "a"), 3))
    )
    assert one == two
    assert one["a"] != one["b"]
    assert draw(_model(1, 9, ("a",)), 4, "iid", 0, "train", 4).starts != (one["a"],)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_the_order_of_views_does_not_matter(dim):
    Y = {"a": _data(9, 3), "b": _data(9, 4, seed=2), "c": _data(9, 1, seed=3)}
    values = []
    for names in ("abc", "cab", "bca"):
        model = _model(dim, 9, tuple(names))
        bound = elbo(
            model,
            tuple((CompleteBlock.of(Y[v]),) for v in names),
            draw(model, 4, "sobol", 0, "train", 3),
        )
        (bound.total).backward()
        values.append((bound.total.detach(), model.latents.mean.grad))
    for value, gradient in values[1:]:
        torch.testing.assert_close(value, values[0][0], rtol=1e-13, atol=1e-11)
        torch.testing.assert_close(gradient, values[0][1], rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_the_order_of_rows_with_their_draws_does_not_matter(dim):
    model, Y, order = (
        _model(dim, 9),
        _data(9, 3),
        torch.randperm(9, generator=generator(0, "order")),
    )
    draws = draw(model, 4, "iid", 0, "train", 0)
    before = elbo(model, ((CompleteBlock.of(Y),),), draws).total
    with torch.no_grad():
        model.latents.mean.copy_(model.latents.mean[order].clone())
    after = elbo(
        model, ((CompleteBlock.of(Y[order]),),), Draws(draws.latents[order], draws.spectra)
    ).total
    torch.testing.assert_close(after, before, rtol=1e-12, atol=1e-10)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_a_fully_masked_view_changes_nothing(dim):
    Y, one, two = _data(9, 3), _model(dim, 9, ("a",)), _model(dim, 9, ("a", "hidden"))
    alone = elbo(one, ((CompleteBlock.of(Y),),), draw(one, 4, "iid", 0, "train", 0))
    beside = elbo(two, ((CompleteBlock.of(Y),), ()), draw(two, 4, "iid", 0, "train", 0))
    alone.total.backward()
    beside.total.backward()
    assert torch.equal(alone.total, beside.total)
    assert float(beside.views[1].detach()) == 0.0
    assert torch.equal(one.latents.mean.grad, two.latents.mean.grad)
    assert torch.equal(one.latents.log_std.grad, two.latents.log_std.grad)
    hidden = [p.grad for p in two.views[1].parameters()]
    assert all(g is None or float(g.abs().max()) == 0.0 for g in hidden)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_a_row_whose_view_is_masked_is_dropped_from_that_view_only(dim):
    model, Ya, Yb = _model(dim, 9, ("a", "b")), _data(9, 3), _data(9, 4, seed=2)
    rows, draws = torch.tensor([0, 2, 3, 7]), draw(model, 4, "iid", 0, "train", 0)
    bound = elbo(model, ((CompleteBlock.of(Ya),), (CompleteBlock.of(Yb[rows], rows),)), draws)
    x = model.latents.sample(draws.latents)
    f, s2 = (
        model.views[1].kernel.frequencies(draws.spectra[1]),
        model.views[1].likelihood.noise_variance,
    )
    torch.testing.assert_close(
        bound.views[1], view_evidence(x[rows], f, s2, (CompleteBlock.of(Yb[rows]),))
    )
    full = elbo(model, ((CompleteBlock.of(Ya),), (CompleteBlock.of(Yb),)), draws)
    assert torch.equal(bound.views[0], full.views[0])


# -- draws
# ---------------------------------------------------------------------------


@pytest.mark.parametrize("sampling", ["iid", "orthogonal", "sobol"])
def test_draws_are_a_function_of_their_key(sampling):
    model = _model(2, 6, ("a", "b"))
    torch.manual_seed(0)
    state = torch.random.get_rng_state()
    first, again = (draw(model, 4, sampling, 5, "train", 7) for _ in range(2))
    assert torch.equal(state, torch.random.get_rng_state())
    assert torch.equal(first.latents, again.latents)
    assert all(torch.equal(a, b) for a, b in zip(first.spectra, again.spectra, strict=True))
    assert not torch.equal(first.spectra[0], first.spectra[1])  # views have keys of their own
    for seed, purpose, step in ((6, "train", 7), (5, "race", 7), (5, "train", 8)):
        other = draw(model, 4, sampling, seed, purpose, step)
        assert not torch.equal(first.latents, other.latents)
        assert not torch.equal(first.spectra[0], other.spectra[0])


def test_noise_of_a_row_does_not_depend_on_how_rows_are_cut_nor_on_how_many_there_are():
    n = 2 * ROWS_PER_BLOCK + 37
    whole = row_noise(n, 2, 3, "train/latents", 4)
    for cut in (
        1,
        100,
        ROWS_PER_BLOCK - 1,
        ROWS_PER_BLOCK,
        ROWS_PER_BLOCK + 1,
        2 * ROWS_PER_BLOCK,
        n - 1,
    ):
        head = row_noise(cut, 2, 3, "train/latents", 4)
        tail = row_noise(n - cut, 2, 3, "train/latents", 4, start=cut)
        assert torch.equal(torch.cat([head, tail]), whole)
    few, many = _model(2, 5), _model(2, 50)
    assert torch.equal(
        draw(few, 4, "iid", 0, "train", 0).latents,
        draw(many, 4, "iid", 0, "train", 0).latents[:5],
    )


@pytest.mark.parametrize("chunk_rows", [1, 4, 9, 100])
def test_the_bound_does_not_depend_on_chunks(chunk_rows):
    model, Y = _model(2, 40), _data(40, 3)
    draws = draw(model, 3, "iid", 0, "train", 0)  # K = 12 < N: the chunked form
    whole = elbo(model, ((CompleteBlock.of(Y),),), draws).total
    cut = elbo(
        model, ((CompleteBlock.of(Y),),), draws, Evaluation(chunk_rows=chunk_rows)
    ).total
    torch.testing.assert_close(cut, whole, rtol=1e-12, atol=1e-10)


# -- gradient
# ---------------------------------------------------------------------------


@pytest.mark.parametrize("n_frequencies", [2, 8])  # K = 8 < N = 11 < K = 32: both forms
@pytest.mark.parametrize("kernel", ["ng-sm", "sm"])
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_the_gradient_is_that_of_finite_differences(dim, kernel, n_frequencies):
    model = _model(dim, 11, ("a", "b"), kernel)
    rows = torch.tensor([0, 1, 4, 5, 6, 8, 9, 10])
    data = ((CompleteBlock.of(_data(11, 3)),), (CompleteBlock.of(_data(8, 2, seed=2), rows),))
    draws = draw(model, n_frequencies, "iid", 0, "train", 0)
    elbo(model, data, draws).total.backward()
    source = generator(4, "directions")
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        direction = torch.randn(parameter.shape, generator=source, dtype=torch.float64)
        slope, step = float((parameter.grad * direction).sum()), 1e-5
        with torch.no_grad():
            sides = []
            for sign in (1.0, -1.0):
                parameter.add_(sign * step * direction)
                sides.append(float(elbo(model, data, draws).total))
                parameter.sub_(sign * step * direction)
        np.testing.assert_allclose(
            (sides[0] - sides[1]) / (2 * step), slope, rtol=1e-5, atol=1e-5, err_msg=name
        )
