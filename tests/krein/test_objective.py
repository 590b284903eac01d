"""Fitting signed frequencies: closed-form expectations, pair sums without pairs, decomposition, the
inferences.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import j0
from torch import Tensor

from bochner import random
from bochner.errors import InputError
from bochner.features.spherical import direction_mean, directions
from bochner.kernels.function import FunctionKernel
from bochner.kernels.indefinite import TL1, GeodesicGaussian, Hellinger, Polynomial, Tanh
from bochner.krein.frequencies import fit_gradient, whitening
from bochner.krein.objective import (
    curvature,
    expected_squared_error,
    gaussian_entropy,
    residuals,
    squared_error,
)
from bochner.krein.positive_spectrum import n_radii, positive_spectrum
from bochner.krein.radial import cosine_series, radial_frequencies, search_start, spectral
from bochner.krein.signed_frequencies import (
    GaussianFrequencies,
    RadialFrequencies,
    SignedFrequencies,
    WithConstant,
)
from bochner.krein.sketch import Sketch, decompose
from bochner.krein.span import SpanFrequencies
from bochner.krein.taylor import fit_taylor, scatter_matrix
from helpers.subclasses import concrete


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(
        *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )


def uniform(n: int, d: int, seed: int = 0) -> Tensor:
    return torch.rand(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def rbf(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    return np.exp(-0.5 * ((A[:, None] - B[None]) ** 2).sum(-1))


@pytest.mark.parametrize("d", [1, 2, 3])
def test_expected_squared_error_is_that_of_draws(d):
    mean, variance, factor = normal(5, d), 0.3 * uniform(5, d), normal(5, seed=1)
    delta, target = normal(4, d, seed=2), normal(4, seed=3)
    source, n = torch.Generator().manual_seed(0), 100_000
    w = mean + variance.sqrt() * torch.randn(n, 5, d, generator=source, dtype=torch.float64)
    draws = (target - torch.einsum("nhd,pd->nph", w, delta).cos() @ factor).square()
    expected = expected_squared_error(mean, variance, factor, delta, target)
    assert ((draws.mean(0) - expected).abs() < 5 * draws.std(0) / n**0.5).all()
    certain = expected_squared_error(mean, 0 * variance, factor, delta, target)
    torch.testing.assert_close(certain, (target - (delta @ mean.T).cos() @ factor).square())


@pytest.mark.parametrize("d", [1, 2, 3])
def test_expected_squared_error_is_differentiable(d):
    values = [normal(3, d), 0.3 * uniform(3, d) + 0.05, normal(3, seed=1)]
    delta, target = normal(4, d, seed=2), normal(4, seed=3)
    inputs = [value.requires_grad_() for value in values]
    assert torch.autograd.gradcheck(
        lambda *v: expected_squared_error(*v, delta, target), inputs
    )


@pytest.mark.parametrize("d", [1, 2, 3])
def test_sums_over_rows_are_sums_over_pairs(d):
    x, w = normal(7, d), normal(4, d, seed=1)
    first, second = torch.triu_indices(7, 7, 1)
    delta = x[first] - x[second]
    by_pairs = torch.einsum("ph,pd->hd", (delta @ w.T).sin().square(), delta.square())
    torch.testing.assert_close(curvature(x, w), by_pairs)
    target = normal(7, 7, seed=2)
    by_pairs = sum(
        (1 - target[i, j]) * torch.outer(x[i] - x[j], x[i] - x[j])
        for i in range(7)
        for j in range(7)
        if i != j
    )
    symmetric = 0.5 * (target + target.T)
    torch.testing.assert_close(scatter_matrix(x, symmetric), by_pairs)


def test_residuals_leave_the_diagonal_out():
    x, w, factor = normal(6, 2), normal(3, 2, seed=1), normal(3, seed=2)
    target = torch.zeros(6, 6, dtype=torch.float64)
    result = residuals(x, target, w, factor)
    expected = (torch.einsum("hd,ijd->ijh", w, x[:, None] - x[None])).cos() @ factor
    torch.testing.assert_close(result + torch.diag(torch.diagonal(expected)), expected)
    assert float(torch.diagonal(result).abs().max()) == 0.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [2, 6, 300])
@pytest.mark.parametrize("d", [1, 2, 3])
def test_half_of_the_pairs_gives_the_error_of_all_and_its_gradients(d, n, dtype):
    """The blocked sums equal the plain matrix of residuals and what differentiates it: 300 rows are
    two blocks.
    """
    x, root = normal(n, d).to(dtype), normal(n, n, seed=3)
    target = (root + root.T).to(dtype)
    w, factor = (
        normal(5, d, seed=1).to(dtype).requires_grad_(),
        normal(5, seed=2).to(dtype).requires_grad_(),
    )
    plain = residuals(x, target, w, factor).square().sum()
    gradients = torch.autograd.grad(plain, (w, factor))
    total, *result = squared_error(x, target, w.detach(), factor.detach())
    precision = 1e-5 if dtype == torch.float32 else 1e-11
    assert total == pytest.approx(float(plain.detach()), rel=precision)
    for mine, exact in zip(result, gradients, strict=True):
        assert mine.dtype == dtype
        torch.testing.assert_close(
            mine, exact, rtol=precision, atol=precision * float(exact.abs().max())
        )


@pytest.mark.parametrize("d", [1, 2, 3])
def test_whitened_steps_change_all_phases_alike(d):
    x = normal(4000, d) * 10.0 ** torch.arange(d, dtype=torch.float64)
    phases = torch.cov((x @ whitening(x).T).T).reshape(d, d)
    size = x.var(0)
    torch.testing.assert_close(
        torch.diagonal(phases).sort().values,
        (size / (size + 0.01 * size.mean())).sort().values,
        atol=1e-3,
        rtol=0,
    )
    assert float((phases - torch.diag(torch.diagonal(phases))).abs().max()) < 1e-9
    assert bool(torch.isfinite(whitening(torch.ones(5, d, dtype=torch.float64))).all()), (
        "equal rows"
    )


def test_entropy():
    variance = uniform(3, 2) + 0.1
    expected = (
        torch.distributions.Normal(torch.zeros(3, 2).double(), variance.sqrt()).entropy().sum()
    )
    torch.testing.assert_close(gaussian_entropy(variance), expected)


# The decomposition


def test_decomposition_returns_the_matrix():
    root = normal(12, 12)
    matrix = root + root.T
    parts = decompose(matrix)
    torch.testing.assert_close(parts.positive - parts.negative, matrix)
    assert float(torch.linalg.eigvalsh(parts.positive)[0]) > 0
    assert float(torch.linalg.eigvalsh(parts.negative)[0]) > 0
    assert parts.shift == pytest.approx(-1.1 * float(torch.linalg.eigvalsh(matrix)[0]))
    known = Sketch.of(
        FunctionKernel(lambda A, B: A @ np.diag([1.0, -0.5]) @ B.T),
        normal(12, 2),
        normal(2, 2),
    )
    assert known.negative_mass == pytest.approx(
        float(-known.eigenvalues[known.eigenvalues < 0].sum() / known.eigenvalues.abs().sum())
    )


def test_a_definite_matrix_has_no_negative_part():
    root = normal(12, 5)
    parts = decompose(root @ root.T)
    assert parts.negative is None
    definite = Sketch.of(FunctionKernel(lambda A, B: A @ B.T), normal(12, 2), normal(2, 2))
    assert definite.negative_mass == 0.0
    assert parts.shift == 0.0
    torch.testing.assert_close(parts.positive, root @ root.T)


def sketch(kernel, n: int = 120, d: int = 3, seed: int = 0) -> Sketch:
    x = kernel.normalise(uniform(n, d, seed))
    return Sketch.of(kernel, x[: n - 30], x[n - 30 :])


def test_asymmetric_functions_are_named():
    kernel = FunctionKernel(lambda A, B: A @ B.T + np.arange(len(A))[:, None])
    with pytest.raises(
        InputError,
        match=r"a symmetric kernel, got k\(x_\d+, x_\d+\) = .* Give a symmetric function",
    ):
        sketch(kernel)


# Distributions of frequencies: features are unbiased for the fitted kernel

DISTRIBUTIONS = {
    "gaussian": lambda d: GaussianFrequencies(
        torch.tensor([0.7, 0.4]).double(),
        torch.tensor([1.0, -1.0]).double(),
        normal(2, d),
        uniform(2, d),
    ),
    "full": lambda d: GaussianFrequencies(
        torch.tensor([0.7, 0.4]).double(),
        torch.tensor([1.0, -1.0]).double(),
        normal(2, d),
        normal(2, d, d).tril(),
    ),
    "radial": lambda d: RadialFrequencies(
        torch.tensor([0.7, 0.4]).double(),
        torch.tensor([1.0, -1.0]).double(),
        torch.tensor([1.0, 3.0]).double(),
        d,
    ),
}


DISTRIBUTIONS["span"] = lambda d: SpanFrequencies.of(
    GaussianFrequencies(
        torch.tensor([0.7, 0.4]).double(),
        torch.tensor([1.0, -1.0]).double(),
        normal(2, 1),
        uniform(2, 1),
    ),
    torch.linalg.qr(normal(d, 1, seed=3))[0],
)

for _name in ("full", "radial", "span"):
    for _constant in (0.5, -0.5):
        DISTRIBUTIONS[f"{_name} and {_constant}"] = lambda d, name=_name, constant=_constant: (
            WithConstant.of(DISTRIBUTIONS[name](d), constant)
        )


def test_every_distribution_is_covered():
    assert set(concrete(SignedFrequencies)) == {
        GaussianFrequencies,
        RadialFrequencies,
        SpanFrequencies,
        WithConstant,
    }


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize("d", [1, 3])
def test_expected_cosines_add_up_to_the_kernel(name, d):
    result, x = DISTRIBUTIONS[name](d), normal(5, d)
    assert bool((result.sign.diff() <= 0).all())
    torch.testing.assert_close(result.kernel(x, x), SignedFrequencies.kernel(result, x, x))


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize("d", [1, 2, 3])
def test_draws_are_unbiased_for_the_kernel(name, d):
    result, x = DISTRIBUTIONS[name](d), normal(4, d, seed=5)
    source = random.generator(0, "law")
    factor, delta = result.weight * result.sign, x[:, None] - x[None]
    draws = torch.stack(
        [
            torch.einsum("hd,ijd->ijh", result.draw(source), delta).cos() @ factor
            for _ in range(3000)
        ]
    )
    error = (draws.mean(0) - result.kernel(x, x)).abs()
    assert (error <= 5 * draws.std(0) / len(draws) ** 0.5 + 1e-12).all()


@pytest.mark.parametrize("d", [1, 2, 3, 10])
def test_mean_over_directions(d):
    known = {
        1: torch.cos,
        2: lambda s: torch.from_numpy(j0(s.numpy())),
        3: lambda s: torch.sinc(s / math.pi),
    }
    s = torch.linspace(0.01, 40.0, 50, dtype=torch.float64)
    if d in known:
        torch.testing.assert_close(direction_mean(s, d), known[d](s), atol=1e-10, rtol=0)
    u = directions(40_000, d, random.generator(0, "directions"))
    torch.testing.assert_close(u.norm(dim=1), torch.ones(len(u), dtype=torch.float64))
    empirical = (s[:, None] * u[:, 0]).cos().mean(1)
    assert ((empirical - direction_mean(s, d)).abs() < 5 / 40_000**0.5).all()


def test_positive_spectrum_finds_a_gaussian():
    distances = torch.linspace(0, 2, 81, dtype=torch.float64)
    values = (-2.0 * distances.square()).exp()
    radii, mass = positive_spectrum(values, distances, 5)
    assert bool((mass >= 0).all())
    torch.testing.assert_close(
        direction_mean(distances[:, None] * radii, 5) @ mass, values, atol=2e-3, rtol=0
    )


@pytest.mark.parametrize("d", [3, 32, 500, 2000])
def test_positive_spectra_reach_as_far_as_many_dimensions_ask(d):
    """The grid ended where the spectra of many dimensions begin: from 1,500 on all were 0."""
    distances = torch.linspace(0, 2, 81, dtype=torch.float64)
    values = (-2.0 * distances.square()).exp()
    radii, mass = positive_spectrum(values, distances, d)
    assert len(radii) == n_radii(d)
    torch.testing.assert_close(
        direction_mean(distances[:, None] * radii, d) @ mass, values, atol=5e-3, rtol=0
    )


# The inferences


def error_of(result: SignedFrequencies, check: Sketch) -> float:
    x = check.held_out
    off = ~torch.eye(len(x), dtype=torch.bool)
    return float(
        (
            (result.kernel(x, x) - check.held_target)[off].square().sum()
            / check.held_target[off].square().sum()
        ).sqrt()
    )


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize(
    "kernel",
    [Hellinger(), TL1(), GeodesicGaussian(2.0), FunctionKernel(rbf)],
    ids=lambda k: type(k).__name__,
)
def test_gradient_inference_approximates_and_climbs(kernel, d):
    known, source = sketch(kernel, d=d), random.generator(0, "fit")
    fit = fit_gradient(known, search_start(known, 12, source), 3, 60, source)
    assert error_of(fit.frequencies, known) < 0.06
    assert fit.history[-1]["elbo"] > fit.history[0]["elbo"]
    assert fit.history[-1]["error"] < max(fit.history[0]["error"], 1.1e-6), (
        "down to the floor of the noise"
    )
    assert fit.noise_variance > 0
    assert len(fit.mixtures) == (2 if known.negative_mass > 0 else 1)


def test_gradient_inference_stops_when_rows_held_out_no_longer_gain():
    """One plane wave is soon as good as it gets for raw products; a hard kernel takes every
    iteration.
    """
    source, known = (
        random.generator(0, "fit"),
        sketch(FunctionKernel(lambda A, B: A @ B.T), d=1),
    )
    assert fit_gradient(known, search_start(known, 1, source), 1, 100, source).n_iter < 100
    known = sketch(FunctionKernel(rbf), d=3)
    fit = fit_gradient(known, search_start(known, 12, source), 1, 100, source)
    assert fit.n_iter == 100
    assert len(fit.history) == 1 + fit.n_iter // 20


def test_gradient_inference_finds_kernels_that_hardly_vary():
    """Their error is small against their standard deviation too: the first noise is a share of the
    variance.
    """
    known, source = sketch(Tanh(0.01), d=3), random.generator(0, "fit")
    result = fit_gradient(known, search_start(known, 12, source), 3, 100, source).frequencies
    held = known.held_target[~torch.eye(len(known.held_out), dtype=torch.bool)]
    assert error_of(result, known) * float(held.square().mean().sqrt() / held.std()) < 0.2


def test_gradient_inference_finds_what_a_mixture_made():
    """A kernel that is two plane waves is found by two frequencies."""
    w = np.array([[2.0, -1.0], [0.5, 1.5]])

    def waves(A, B):
        delta = A[:, None] - B[None]
        return 1.5 * np.cos(delta @ w[0]) + 0.5 * np.cos(delta @ w[1])

    known, source = sketch(FunctionKernel(waves), d=2), random.generator(0, "fit")
    result = fit_gradient(known, search_start(known, 2, source), 2, 200, source).frequencies
    order = result.weight.argsort(descending=True)
    torch.testing.assert_close(
        result.weight[order], torch.tensor([1.5, 0.5]).double(), atol=0.01, rtol=0
    )
    mean = result.mean[order] * torch.sign(
        (result.mean[order] * torch.tensor(w)).sum(1, keepdim=True)
    )
    torch.testing.assert_close(mean, torch.tensor(w), atol=0.02, rtol=0)


@pytest.mark.parametrize("d", [2, 3])
@pytest.mark.parametrize(
    "kernel",
    [Polynomial(4), GeodesicGaussian(2.0), Hellinger()],
    ids=lambda k: type(k).__name__,
)
def test_spectral_inference_uses_the_radial_spectrum(kernel, d):
    known = sketch(kernel, d=d)
    result = spectral(kernel, known, 500)
    assert isinstance(result, RadialFrequencies)
    one_by_one = SignedFrequencies.kernel(result, known.x[:5], known.x[:5])
    torch.testing.assert_close(result.kernel(known.x[:5], known.x[:5]), one_by_one)
    assert error_of(result, known) < 0.1
    assert bool((result.sign.diff() <= 0).all()), "the positive part comes first"


def test_cosine_series_is_the_tl1_kernel():
    x = uniform(40, 2)
    known = sketched_tl1(x, 2.0)
    result = cosine_series(known, 400)
    off = ~torch.eye(40, dtype=torch.bool)
    exact = 2.0 - torch.cdist(x, x, p=1.0)
    torch.testing.assert_close(result.kernel(x, x)[off], exact[off], atol=5e-3, rtol=0)
    lowered = replace(known, target=known.target - 1.5)
    negative = cosine_series(lowered, 400)
    assert negative.sign.tolist() == [1.0] * 399 + [-1.0]
    torch.testing.assert_close(negative.kernel(x, x)[off], exact[off] - 1.5, atol=5e-3, rtol=0)


def sketched_tl1(x, tau):
    return Sketch.of(TL1(tau), x, x[:0])


@pytest.mark.parametrize("n_frequencies", [1, 2, 8, 64])
def test_few_terms_of_tl1_are_those_that_vary_and_keep_the_mean(n_frequencies):
    """Terms left out were taken for 1: a kernel of 40 columns was 1.4 to 2 times as large."""
    x = uniform(80, 40)
    # columns that do not vary need no terms
    x[:, 5:] = 0.5 + 0.05 * (x[:, 5:] - 0.5)
    known = sketched_tl1(x, 28.0)
    result = cosine_series(known, n_frequencies)
    off = ~torch.eye(80, dtype=torch.bool)
    error = (result.kernel(x, x) - known.target)[off]
    assert abs(float(error.mean())) < 1e-9
    assert (
        float(error.std() / known.target[off].std())
        < {1: 1.01, 2: 0.95, 8: 0.4, 64: 0.3}[n_frequencies]
    )
    varying = result.mean.abs().sum(0).nonzero().flatten()
    assert n_frequencies > 8 or bool((varying < 5).all())


def test_spectral_inference_refuses_unknown_spectra():
    kernel = FunctionKernel(rbf)
    with pytest.raises(
        InputError,
        match=r"known spectrum for inference='spectral', got FunctionKernel\. Use 'gradient'",
    ):
        spectral(kernel, sketch(kernel), 4)


def test_published_inference_pulls_the_wrong_way():
    """docs/math.md, section 5: on a one-dimensional RBF kernel its frequencies end near 0 and its
    error is large.
    """
    x = 6 * uniform(150, 1) - 3
    kernel = FunctionKernel(rbf)
    known, source = Sketch.of(kernel, x[:120], x[120:]), random.generator(0, "fit")
    published, sweeps = fit_taylor(known, 20, 5, 50, source)
    assert 1 <= sweeps <= 50
    ours = fit_gradient(known, search_start(known, 20, source), 5, 100, source).frequencies
    assert error_of(published, known) > 0.9
    assert error_of(ours, known) < 0.02
    true_deviation = 1.0  # of the spectral density of exp(-delta^2 / 2)
    assert float(published.draw(source).square().mean().sqrt()) < 0.2 * true_deviation


def test_published_inference_fits_both_parts():
    known, source = sketch(Hellinger()), random.generator(0, "fit")
    result, _ = fit_taylor(known, 9, 3, 10, source)
    assert result.sign.tolist() == [1.0] * 5 + [-1.0] * 4
    negative = decompose(known.target).negative
    torch.testing.assert_close(result.weight[5:].sum(), torch.diagonal(negative).mean())


@pytest.mark.parametrize("n_frequencies", [1, 2, 7])
def test_starts_have_the_asked_number(n_frequencies):
    known, source = sketch(Hellinger()), random.generator(0, "fit")
    for result in (
        search_start(known, n_frequencies, source),
        radial_frequencies(known, n_frequencies),
    ):
        assert result.draw(source).shape == (n_frequencies, 3)
        assert bool((result.weight > 0).all())
        assert int((result.sign > 0).sum()) >= 1


def test_equal_rows_are_fitted():
    same = torch.full((8, 2), 0.5, dtype=torch.float64)
    known, source = Sketch.of(TL1(), same, same[:0]), random.generator(0, "fit")
    fit = fit_gradient(known, search_start(known, 3, source), 2, 20, source)
    assert bool(torch.isfinite(fit.frequencies.kernel(same, same)).all())
    assert bool(torch.isfinite(radial_frequencies(known, 3).kernel(same, same)).all())
