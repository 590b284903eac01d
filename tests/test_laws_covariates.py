"""Covariates beside the latents: the bound is that of a Gaussian process with the kernel K + C S^2
C^T, whatever the holes and the likelihood; placement and decoding know them; D = 1, 2, 3.
"""

from dataclasses import replace

import pytest
import torch
from torch.distributions import MultivariateNormal

from bochner.features.fourier import expected_features, fourier_features, jet, with_covariates
from bochner.fitting.data import linear_effects
from bochner.kernels.spectral_mixture import NextGenSpectralMixture, SpectralMixture
from bochner.latent_inference.predictive_modes import predictive_target
from bochner.latent_inference.row_bound import Target, target_for
from bochner.likelihoods import Bernoulli, Gaussian, Poisson
from bochner.models.lvm import Covariates
from bochner.models.sites import Sites
from bochner.prediction.decoding import decode
from bochner.random import generator
from bochner.regression.evidence import view_evidence
from bochner.regression.incomplete import masked_evidence
from bochner.regression.nonconjugate import nonconjugate_evidence
from bochner.regression.observations import CompleteBlock, EncodedBlock, IncompleteBlock
from bochner.weight_posterior.conditioning import SharedDraw
from bochner.weight_posterior.posterior import ViewPosterior
from helpers.tensor_sizes import LargestTensor

N, M, L = 23, 4, 3


def _problem(dim, paired=True, n_frequencies=3, n=N):
    """Latents, covariates, frequencies with factors of the covariates, data."""
    source = generator(0, "covariates", dim)
    kernel = (NextGenSpectralMixture if paired else SpectralMixture)().initial(2, dim, source)
    f = kernel.frequencies(kernel.noise(n_frequencies, dim, source, "iid")).detach()
    x = torch.randn(n, dim, generator=source, dtype=torch.float64)
    beside = torch.randn(n, L, generator=source, dtype=torch.float64)
    Y = torch.randn(n, M, generator=source, dtype=torch.float64)
    factors = torch.tensor([0.5, 0.5, 2.0], dtype=torch.float64)
    return x, beside, f, replace(f, linear=factors), Y


def _log_density(x, beside, f, factors, y, s2):
    """log N(y; 0, K + C S^2 C^T + s2 I), from the waves alone."""
    waves = fourier_features(x, f)
    scaled = beside * factors
    covariance = waves.T @ waves + scaled @ scaled.T + s2 * torch.eye(len(x), dtype=x.dtype)
    return MultivariateNormal(torch.zeros_like(y), covariance).log_prob(y)


@pytest.mark.parametrize("n_frequencies", [3, 20])  # fewer features than rows, and more
@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_the_evidence_is_that_of_the_kernel_with_covariates(dim, paired, n_frequencies):
    x, beside, plain, f, Y = _problem(dim, paired, n_frequencies)
    s2, factors = torch.tensor(0.3, dtype=torch.float64), f.linear.clone()
    leaves = [x, plain.first, plain.amplitude, factors, s2]
    for leaf in leaves:
        leaf.requires_grad_()
    expected = sum(_log_density(x, beside, plain, factors, y, s2) for y in Y.T)
    widened = replace(plain, linear=factors)
    inputs = with_covariates(x, beside)
    got = view_evidence(inputs, widened, s2, (CompleteBlock.of(Y),), chunk_rows=7)
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-9)
    slow, fast = torch.autograd.grad(expected, leaves), torch.autograd.grad(got, leaves)
    for one, other in zip(fast, slow, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-9)


def test_the_evidence_with_noise_per_column():
    x, beside, plain, f, Y = _problem(2)
    s2 = torch.tensor([0.1, 0.3, 0.5, 1.0], dtype=torch.float64)
    expected = sum(
        _log_density(x, beside, plain, f.linear, y, variance)
        for y, variance in zip(Y.T, s2, strict=True)
    )
    got = view_evidence(with_covariates(x, beside), f, s2, (CompleteBlock.of(Y),))
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_the_evidence_with_scattered_holes(dim):
    x, beside, plain, f, Y = _problem(dim)
    s2, factors = torch.tensor(0.3, dtype=torch.float64), f.linear.clone().requires_grad_()
    holes = torch.rand(Y.shape, generator=generator(1, "holes"), dtype=torch.float64) < 0.3
    Y = Y.masked_fill(holes, torch.nan)
    expected = sum(
        _log_density(x[~gone], beside[~gone], plain, factors, y[~gone], s2)
        for y, gone in zip(Y.T, holes.T, strict=True)
    )
    block = IncompleteBlock.of(Y, None, torch.arange(M), (M,))
    widened = replace(plain, linear=factors)
    got = masked_evidence(with_covariates(x, beside), widened, s2, block, tol=1e-14)
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-8)
    slow, fast = torch.autograd.grad(expected, factors), torch.autograd.grad(got, factors)
    torch.testing.assert_close(fast, slow, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("likelihood", [Bernoulli, Poisson])
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_bounds_of_labels_and_counts_lie_below_the_sampled_evidence(likelihood, dim):
    x, beside, plain, f, _ = _problem(dim, n=6)
    law = likelihood()
    source = generator(2, "counts")
    covariance = (w := fourier_features(x, plain)).T @ w
    covariance += (beside * f.linear) @ (beside * f.linear).T
    psi = MultivariateNormal(torch.zeros(6, dtype=x.dtype), covariance + 1e-9 * torch.eye(6))
    y = law.draw(torch.zeros(6, 1, dtype=x.dtype) + beside[:, -1:], source)
    block = EncodedBlock.of(law.encode(y))
    sites = Sites(law, block.Y, block.mask, block.offset, None)
    inputs = with_covariates(x, beside)
    with torch.no_grad():
        result = nonconjugate_evidence(inputs, f, law, sites, block, n_sweeps=60, tol=1e-13)
    bound = float(result.value - sites.log_prior(torch.arange(1)).sum())
    torch.manual_seed(0)
    drawn = psi.sample((200_000,)) + sites.intercept
    log_p = law.log_prob(block.Y[:, 0].expand_as(drawn), drawn).sum(1).detach()
    ratio = (log_p - log_p.max()).exp()
    evidence = float(log_p.max() + ratio.mean().log())
    error = float(ratio.std() / ratio.mean()) / len(ratio) ** 0.5
    assert bound <= evidence + 4 * error
    assert bound > evidence - 1.0


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_features_beside_covariates(dim):
    x, beside, plain, f, _ = _problem(dim)
    inputs = with_covariates(x, beside)
    whole = jet(inputs, f)
    torch.testing.assert_close(whole.value, fourier_features(inputs, f).T)
    torch.testing.assert_close(whole.value[:, -L:], beside * f.linear)
    torch.testing.assert_close(whole.jacobian[..., :-L], jet(x, plain).jacobian)
    assert not whole.jacobian[..., -L:].any()
    weights = torch.randn(whole.value.shape, generator=generator(3, "w"), dtype=torch.float64)
    of_waves = weights[:, :-L]
    torch.testing.assert_close(whole.slope(weights), jet(x, plain).slope(of_waves))
    torch.testing.assert_close(whole.curvature(weights), jet(x, plain).curvature(of_waves))
    at = torch.zeros(N, dim, dim, dtype=torch.float64)
    torch.testing.assert_close(expected_features(inputs, at, f), whole.value)
    without = fourier_features(x, f)  # 0 where they are left out: their average
    torch.testing.assert_close(without[:-L], fourier_features(x, plain))
    assert not without[-L:].any()


def _view(dim, likelihood=None):
    """A view whose weights were conditioned on data, and those data."""
    x, beside, _, f, _ = _problem(dim, n=60)
    phi = fourier_features(with_covariates(x, beside), f)
    source = generator(4, "view", dim)
    s2 = 0.05
    Y = phi.T @ torch.randn(len(phi), M, generator=source, dtype=torch.float64)
    inverse = torch.linalg.inv(phi @ phi.T + s2 * torch.eye(len(phi), dtype=torch.float64))
    draw = SharedDraw(f, inverse @ phi @ Y, inverse[None])
    chosen = likelihood or Gaussian(s2)
    intercept = None if likelihood is None else torch.zeros(M, dtype=torch.float64)
    groups = torch.zeros(M, dtype=torch.int64)
    return ViewPosterior.of("a", (draw, draw), groups, chosen, intercept), x, beside, Y


def _check_derivatives(target: Target, x, rows, curved=True):
    value, gradient, hessian = target.evaluate(x, rows)
    step = 1e-5
    for d in range(x.shape[1]):
        away = torch.zeros_like(x)
        away[:, d] = step
        up, down = (target.evaluate(x + sign * away, rows) for sign in (1.0, -1.0))
        torch.testing.assert_close(
            gradient[:, d], (up[0] - down[0]) / (2 * step), rtol=1e-5, atol=1e-5
        )
        if curved:
            torch.testing.assert_close(
                hessian[:, d], (up[1] - down[1]) / (2 * step), rtol=1e-4, atol=1e-4
            )
    return value


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_a_rows_target_is_that_of_data_without_its_effects(dim, shared):
    """With B the effects, E log p(y | x, c, A) differs from that of y - c B, x by what B is
    uncertain: where it is certain, by nothing.
    """
    view, x, beside, Y = _view(dim)
    rows = torch.arange(5)
    draws = []
    for draw in view.draws:
        certain = draw.covariance.clone()
        certain[:, -L:], certain[:, :, -L:] = 0.0, 0.0
        draws.append(replace(draw, covariance=certain))
    sure = replace(view, draws=tuple(draws))
    effects = (beside * draws[0].frequencies.linear) @ draws[0].mean[-L:]
    with_them = target_for([sure], [Y[:5]], dim, shared, covariates=beside[:5])
    without = target_for([sure], [(Y - effects)[:5]], dim, shared)
    for one, other in zip(
        with_them.evaluate(x[:5], rows), without.evaluate(x[:5], rows), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-7)
    uncertain = target_for([view], [Y[:5]], dim, shared, covariates=beside[:5])
    value = _check_derivatives(uncertain, x[:5], rows)
    if shared:
        torch.testing.assert_close(uncertain.table(x[:5]).diagonal(), value)


@pytest.mark.parametrize("likelihood", [None, Poisson()])
def test_predictive_targets_know_covariates(likelihood):
    view, x, beside, Y = _view(2, likelihood)
    y = Y if likelihood is None else likelihood.encode(Y.clamp(0.0).round())
    target = predictive_target([view], [y[:5]], 2, [None], beside[:5])
    plain = predictive_target([view], [y[:5]], 2, [None])
    rows = torch.arange(5)
    # curvatures of Laplace's approximation are approximate themselves
    _check_derivatives(target, x[:5], rows, curved=likelihood is None)
    assert not torch.allclose(target.evaluate(x[:5], rows)[0], plain.evaluate(x[:5], rows)[0])


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_covariates_shift_what_a_place_decodes_to(dim):
    view, x, beside, _ = _view(dim)
    covariance = 0.01 * torch.eye(dim, dtype=torch.float64).expand(len(x), dim, dim)
    effects = (beside * view.draws[0].frequencies.linear) @ view.draws[0].mean[-L:]
    for spread in (None, covariance):
        at, _ = decode([view], with_covariates(x, beside), spread)
        average, _ = decode([view], x, spread)
        torch.testing.assert_close(at, average + effects)


def test_effects_are_those_of_ridge_regression_on_what_is_observed():
    _, beside, _, _, Y = _problem(2)
    Y[3, 1], Y[5:9, 2] = torch.nan, torch.nan
    with LargestTensor() as largest:
        got = linear_effects(Covariates(beside, (0, 0, 1)), Y)
    # not rows x columns x covariates
    assert largest.numel <= max(Y.numel(), Y.shape[1] * L * L, len(Y) * L * L)
    for y, column in zip(Y.T, got.T, strict=True):
        observed = ~y.isnan()
        design = beside[observed]
        ridge = torch.linalg.solve(
            design.T @ design + torch.eye(L, dtype=torch.float64), design.T @ y[observed]
        )
        torch.testing.assert_close(column, beside @ ridge)
