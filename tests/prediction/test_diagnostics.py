"""Collapse: the report on constructed posteriors, and the linear kernel's exact answers against
optimisation.
"""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from bochner.kernels.base import Frequencies
from bochner.likelihoods.likelihood import Gaussian
from bochner.prediction import diagnostics
from bochner.prediction.diagnostics import collapse, relevance
from bochner.weight_posterior.conditioning import SharedDraw
from bochner.weight_posterior.posterior import ViewPosterior
from helpers.posteriors import conditioned_view

N = 9


# -- the linear GPLVM: log p(Y | X) = -M/2 (log|XX' + s2 I| + tr (XX' + s2 I)^-1 YY'/M)
# -----------------------------


def linear_latent_variances(eigenvalues, noise_variance, n_components, n_columns=None):
    """Squared singular values of the optimal latents, descending: at the maximum of the likelihood,
    or, of M columns, of the posterior under the prior N(0, I). Zeros are collapsed directions.

    Li et al. (2024a), section 3; docs/math.md, section 6.
    """
    top = np.sort(eigenvalues)[::-1][:n_components]
    if n_columns is not None:
        m = float(n_columns)
        top = (np.sqrt(m * m + 4.0 * m * top) - m) / 2.0
    return np.maximum(top - noise_variance, 0.0)


def linear_noise_variance(eigenvalues, n_components):
    """The maximum likelihood noise variance: the mean of the N - D smallest eigenvalues."""
    return float(np.sort(eigenvalues)[: len(eigenvalues) - n_components].mean())


def _problem(dim: int, m: int = 30, seed: int = 0):
    rng = np.random.default_rng(seed)
    strengths = np.array([2.0, 1.2, 0.7])[:dim]
    Y = (rng.normal(size=(N, dim)) * strengths) @ rng.normal(size=(dim, m)) + 0.5 * rng.normal(
        size=(N, m)
    )
    S = Y @ Y.T / m
    values, vectors = np.linalg.eigh(S)
    return S, values[::-1], vectors[:, ::-1]


def _optimum(S, dim: int, s2: float | None, m: int | None = None, seed: int = 0):
    """Maximise the log likelihood per column (m given: the log posterior over m) in X, and in s2
    when it is None.
    """

    def negative(theta):
        theta = torch.tensor(theta, requires_grad=True)
        X = theta[: N * dim].reshape(N, dim)
        noise = theta[-1].exp() if s2 is None else torch.tensor(s2, dtype=torch.float64)
        C = X @ X.T + noise * torch.eye(N, dtype=torch.float64)
        value = 0.5 * (
            torch.logdet(C) + torch.trace(torch.linalg.solve(C, torch.tensor(S.copy())))
        )
        if m is not None:
            value = value + 0.5 * X.square().sum() / m
        (gradient,) = torch.autograd.grad(value, theta)
        return float(value.detach()), gradient.numpy()

    best, rng = None, np.random.default_rng(seed)
    for _ in range(3):
        start = np.append(rng.normal(size=N * dim), -1.0)
        result = minimize(
            negative,
            start,
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": 3000, "ftol": 1e-15, "gtol": 1e-9},
        )
        best = result if best is None or result.fun < best.fun else best
    X = best.x[: N * dim].reshape(N, dim)
    return X @ X.T, float(np.exp(best.x[-1])), float(best.fun)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_maximum_likelihood_latents_are_those_of_the_optimiser(dim):
    S, values, vectors = _problem(dim)
    s2 = 0.3
    assert values[dim - 1] > s2
    XX, _, _ = _optimum(S, dim, s2)
    variances = linear_latent_variances(values, s2, dim)
    np.testing.assert_allclose(
        XX, (vectors[:, :dim] * variances) @ vectors[:, :dim].T, atol=2e-4
    )


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_maximum_likelihood_noise_is_the_mean_of_the_discarded_eigenvalues(dim):
    S, values, vectors = _problem(dim)
    XX, s2, _ = _optimum(S, dim, None)
    assert linear_noise_variance(values, dim) == pytest.approx(s2, rel=1e-3)
    assert linear_noise_variance(values, dim) == pytest.approx(float(np.mean(values[dim:])))
    variances = linear_latent_variances(values, s2, dim)
    np.testing.assert_allclose(
        XX, (vectors[:, :dim] * variances) @ vectors[:, :dim].T, atol=2e-3
    )


@pytest.mark.parametrize(("dim", "q"), [(1, 1), (2, 1), (2, 2), (3, 1), (3, 2), (3, 3)])
def test_noise_between_eigenvalues_leaves_that_many_directions(dim, q):
    S, values, _ = _problem(dim)
    # lambda_{D-q+1} < s2 < lambda_{D-q}; for q = D the noise is above the largest: nothing is left
    below, above = values[dim - q], values[dim - q - 1] if q < dim else 2.0 * values[0]
    s2 = 0.5 * (below + above)
    variances = linear_latent_variances(values, s2, dim)
    assert int((variances > 0).sum()) == dim - q
    XX, _, _ = _optimum(S, dim, s2)
    spectrum = np.linalg.eigvalsh(XX)[::-1]
    np.testing.assert_allclose(spectrum[:dim], variances, atol=2e-3)
    if q == dim:
        assert (variances == 0).all()
        np.testing.assert_allclose(XX, 0.0, atol=2e-3)


@pytest.mark.parametrize("m", [5, 30])
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_maximum_a_posteriori_latents_are_those_of_the_optimiser(dim, m):
    S, values, vectors = _problem(dim, m=m)
    s2 = 0.3
    XX, _, _ = _optimum(S, dim, s2, m=m)
    variances = linear_latent_variances(values, s2, dim, n_columns=m)
    assert (
        variances < linear_latent_variances(values, s2, dim) + 1e-12
    ).all()  # the prior only shrinks
    np.testing.assert_allclose(
        XX, (vectors[:, :dim] * variances) @ vectors[:, :dim].T, atol=5e-4
    )


@pytest.mark.parametrize("m", [1, 5, 200])
@pytest.mark.parametrize("s2", [0.05, 0.4, 2.0])
def test_the_prior_collapses_directions_up_to_its_threshold_and_no_further(s2, m):
    threshold = s2 * (1.0 + s2 / m)
    at, above = linear_latent_variances(
        np.array([threshold * (1 - 1e-9), threshold * (1 + 1e-6)]), s2, 2, m
    )[::-1]
    assert at == 0.0
    assert above > 0.0


def test_eigenvalues_may_come_in_any_order():
    values = np.array([0.1, 3.0, 0.2, 1.5])
    np.testing.assert_allclose(linear_latent_variances(values, 0.5, 2), [2.5, 1.0])
    assert linear_noise_variance(values, 2) == pytest.approx(0.15)


# -- the report
# --------------------------------------------------------------------------------------------------


def _posterior(dim: int, dead: tuple[int, ...], n: int = 300):
    rng = np.random.default_rng(dim)
    mean, std = rng.normal(size=(n, dim)), np.full((n, dim), 0.1)
    mean[:, list(dead)] *= 0.05
    std[:, list(dead)] = 0.99
    return mean, std


@pytest.mark.parametrize(
    ("dim", "dead"),
    [(1, ()), (2, ()), (2, (1,)), (3, (0,)), (3, (0, 2)), (1, (0,)), (2, (0, 1))],
)
def test_dead_dimensions_are_found_and_the_advice_names_them(dim, dead):
    mean, std = _posterior(dim, dead)
    report = collapse(mean, std, {"a": 0.2})
    assert report.dead == dead
    assert report.collapsed is bool(dead)
    if len(dead) < dim or dim == 1:
        wanted = max(dim - len(dead), 1)
        assert report.effective_dimensions == pytest.approx(wanted, abs=0.05)
    np.testing.assert_allclose(report.variance_ratio, (std**2).mean(axis=0))
    if len(dead) == dim:
        assert report.advice() == (
            "No latent dimension carries anything: one mean per column explains the rows as well. "
            "Check the columns, or try another init."
        )
    elif dead:
        fewer = f"fit with n_components={dim - len(dead)}, or "
        expected = f"Latent dimensions {list(dead)} carry nothing: {fewer}try another init."
        assert report.advice() == expected
    else:
        assert report.advice().startswith(
            "No collapse: every dimension and every view carries"
        )
        assert "Dimensions that the data do not need may do so too" in report.advice()
    assert report.advice() in str(report)
    assert f"of {dim}" in str(report)


def test_where_nothing_is_carried_no_number_of_dimensions_is_advised():
    advice = collapse(*_posterior(2, (0, 1)), {"x": 0.999}).advice()
    assert advice.startswith("No latent dimension carries anything")
    assert "n_components" not in advice


def test_a_view_of_noise_alone_is_named():
    report = collapse(*_posterior(2, ()), {"good": 0.5, "bad": 0.995})
    assert report.collapsed
    assert report.dead == ()
    assert report.advice() == (
        "View 'bad' is explained as noise alone: check its columns, or raise n_components or "
        "max_iter."
    )


def test_unsure_but_spread_and_still_but_sure_dimensions_are_alive():
    rng = np.random.default_rng(0)
    mean, std = rng.normal(size=(200, 2)) * [1.0, 0.05], np.full((200, 2), [0.95, 0.1])
    assert collapse(mean, std, {}).dead == ()


def test_latents_at_one_point_have_no_dimension():
    report = collapse(np.zeros((5, 2)), np.ones((5, 2)), {})
    assert report.effective_dimensions == 0.0
    assert report.dead == (0, 1)


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("m", [3, 12])  # fewer and more columns than features
def test_relevance_is_that_of_finite_differences(dim, m):
    source = torch.Generator().manual_seed(dim)

    def normal(*shape):
        return torch.randn(*shape, generator=source, dtype=torch.float64)

    f = Frequencies(normal(4, dim), normal(4, dim), normal(4).abs())
    draws = tuple(
        SharedDraw(f, normal(8, m), torch.eye(8, dtype=torch.float64)[None]) for _ in range(2)
    )
    view = ViewPosterior.of("a", draws, torch.zeros(m, dtype=torch.int64), Gaussian(0.1))
    x, step = normal(30, dim) * torch.arange(1, dim + 1), 1e-6

    def mean(at, weights):
        first, second = at @ f.first.T, at @ f.second.T
        waves = [first.cos() + second.cos(), first.sin() + second.sin()]
        return torch.cat([f.amplitude * wave for wave in waves], dim=1) @ weights

    expected = np.zeros(dim)
    for d in range(dim):
        shift = step * torch.eye(dim, dtype=torch.float64)[d]
        slopes = [
            (mean(x + shift, w.mean) - mean(x - shift, w.mean)) / (2 * step) for w in draws
        ]
        expected[d] = sum(float(s.square().sum()) for s in slopes) * float(
            x[:, d].var(unbiased=False)
        )
    result = relevance([view], x)
    assert result.shape == (1, dim)
    np.testing.assert_allclose(result[0], expected / expected.sum(), rtol=1e-6)


def test_relevance_of_many_rows_is_that_of_all_to_a_hundredth(monkeypatch):
    view, x, _ = conditioned_view(2, 6)
    every = relevance([view], x)
    monkeypatch.setattr(diagnostics, "_RELEVANT", len(x) // 3)
    some = relevance([view], x)
    assert not np.array_equal(some, every)
    np.testing.assert_allclose(some, every, atol=0.01)
    assert some.sum() == pytest.approx(1.0)
