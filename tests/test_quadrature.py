"""log p(y | mean, variance) of every likelihood against fine quadrature over its whole range."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import integrate, optimize, special, stats

from bochner import quadrature
from bochner.likelihoods import Bernoulli, Binomial, Categorical, NegativeBinomial, Poisson
from bochner.likelihoods.nonconjugate import NonConjugateLikelihood
from bochner.quadrature import normal_mean, normal_nodes
from exponential_likelihood import Exponential

Array = NDArray[np.float64]
LogDensity = Callable[[float, Array], Array]
VARIANCES = (1e-4, 1e-2, 0.1, 0.5, 1.0, 3.0, 10.0)
AWAY = (-4.0, -1.0, 0.0, 1.0, 4.0)


def _log_reference(log_p: Callable[[Array], Array], mean: float, variance: float) -> float:
    """Return log of the integral of p N(mean, variance) over where it is within e^-50 of its
    maximum.
    """

    def log_f(psi: Array) -> Array:
        normal = stats.norm.logpdf(psi, mean, math.sqrt(variance))
        return np.asarray(log_p(psi) + normal, dtype=np.float64)

    grid = np.linspace(mean - 40.0, mean + 40.0, 4001)
    start = float(grid[np.argmax(log_f(grid))])
    low, high = start - 0.05, start + 0.05
    result = optimize.minimize_scalar(
        lambda p: -float(log_f(np.array(p))), bounds=(low, high), options={"xatol": 1e-12}
    )
    top, best = float(result.x), -float(result.fun)
    edges = []
    for side in (-1.0, 1.0):
        reach = 1e-4
        while float(log_f(np.array(top + side * reach))) > best - 50.0:
            reach *= 1.3
        edges.append(top + side * reach)
    pieces = np.linspace(edges[0], edges[1], 21)
    total = 0.0
    for a, b in itertools.pairwise(pieces):
        total += integrate.fixed_quad(lambda p: np.exp(log_f(p) - best), a, b, n=30)[0]
    return best + math.log(total)


def _poisson(y: float, psi: Array) -> Array:
    return y * psi - np.exp(psi) - special.gammaln(y + 1.0)


def _binomial(n: float) -> LogDensity:
    def log_p(y: float, psi: Array) -> Array:
        choose = special.gammaln(n + 1) - special.gammaln(y + 1) - special.gammaln(n - y + 1)
        return choose + y * psi - n * np.logaddexp(0.0, psi)

    return log_p


def _negative_binomial(r: float) -> LogDensity:
    def log_p(y: float, psi: Array) -> Array:
        constant = special.gammaln(y + r) - special.gammaln(y + 1) - special.gammaln(r)
        z = psi - math.log(r)
        return constant + y * z - (y + r) * np.logaddexp(0.0, z)

    return log_p


def _exponential(y: float, psi: Array) -> Array:
    return -psi - y * np.exp(-psi)


# likelihood, log p, values of y, and where psi has its maximum likelihood, about
CASES = [
    pytest.param(Poisson(), _poisson, (0.0, 1.0, 1e3, 1e6), id="poisson"),
    pytest.param(Bernoulli(), _binomial(1), (0.0, 1.0), id="bernoulli"),
    pytest.param(Categorical([[0.0, 1.0]]), _binomial(1), (0.0, 1.0), id="categorical"),
    pytest.param(Binomial(1000), _binomial(1000), (0.0, 3.0, 500.0, 1e3), id="binomial"),
    pytest.param(
        Binomial(200_000), _binomial(200_000), (0.0, 40.0, 1e5, 2e5), id="many-trials"
    ),
    pytest.param(
        NegativeBinomial(0.7), _negative_binomial(0.7), (0.0, 5.0, 1e6), id="negative-binomial"
    ),
    pytest.param(
        NegativeBinomial(30.0, bound="tilted"),
        _negative_binomial(30.0),
        (0.0, 1e3),
        id="tilted",
    ),
    pytest.param(Exponential(), _exponential, (1e-3, 1.0, 1e3), id="of-one's-own"),
]


def _peak(likelihood: NonConjugateLikelihood, y: float) -> float:
    if isinstance(likelihood, Exponential):
        return math.log(y)
    if isinstance(likelihood, Poisson | NegativeBinomial):
        return math.log(y + 0.5)
    n = float(likelihood.n_trials) if isinstance(likelihood, Binomial) else 1.0
    return math.log((y + 0.5) / (n - y + 0.5))


def _grid(
    likelihood: NonConjugateLikelihood, values: tuple[float, ...]
) -> list[tuple[float, ...]]:
    result = []
    for y in values:
        for variance in VARIANCES:
            for away in AWAY:
                mean = _peak(likelihood, y) + away * max(1.0, math.sqrt(variance))
                result.append((y, mean, variance))
    return result


@pytest.mark.parametrize(("likelihood", "log_p", "values"), CASES)
def test_predictive_densities_are_the_integrals(likelihood, log_p, values):
    points = _grid(likelihood, values)
    y, mean, variance = torch.tensor(points, dtype=torch.float64).T[..., None]
    result = likelihood.log_predictive(y, mean, variance).detach()[:, 0]
    expected = [_log_reference(lambda psi, y=y: log_p(y, psi), m, v) for y, m, v in points]
    reference = torch.tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(result, reference, rtol=1e-9, atol=1e-4)


@pytest.mark.parametrize(("likelihood", "log_p", "values"), CASES)
def test_an_entry_does_not_depend_on_its_batch(likelihood, log_p, values):
    points = torch.tensor(_grid(likelihood, values), dtype=torch.float64)
    y, mean, variance = points.T[..., None]
    together = likelihood.log_predictive(y, mean, variance).detach()
    for i in range(0, len(points), 7):
        alone = likelihood.log_predictive(y[i : i + 1], mean[i : i + 1], variance[i : i + 1])
        torch.testing.assert_close(together[i : i + 1], alone.detach(), rtol=1e-13, atol=1e-9)


@pytest.mark.parametrize(("likelihood", "log_p", "values"), CASES)
def test_missing_entries_have_no_density_and_change_no_other(likelihood, log_p, values):
    del log_p
    points = torch.tensor(_grid(likelihood, values), dtype=torch.float64)
    y, mean, variance = points.T[..., None]
    whole = likelihood.log_predictive(y, mean, variance).detach()
    missing = torch.arange(len(points))[:, None] % 3 == 1
    result = likelihood.log_predictive(y.masked_fill(missing, torch.nan), mean, variance)
    expected = whole.masked_fill(missing, torch.nan)
    torch.testing.assert_close(
        result.detach(), expected, rtol=1e-13, atol=1e-9, equal_nan=True
    )


def test_parameters_by_column_go_with_their_entries():
    r = [0.5, 4.0, 60.0]
    likelihood = NegativeBinomial(r, bound="tilted")
    y = torch.tensor([[0.0, 7.0, 300.0], [90.0, 1.0, 0.0]], dtype=torch.float64)
    mean = torch.tensor([[1.0, 0.2, 5.0], [-1.0, 3.0, 0.0]], dtype=torch.float64)
    variance = torch.tensor([[1e-3, 9.0, 0.4], [2.0, 0.05, 0.8]], dtype=torch.float64)
    result = likelihood.log_predictive(y, mean, variance).detach()
    for i in range(2):
        for j in range(3):
            exact = _log_reference(
                lambda psi, i=i, j=j: _negative_binomial(r[j])(float(y[i, j]), psi),
                float(mean[i, j]),
                float(variance[i, j]),
            )
            assert float(result[i, j]) == pytest.approx(exact, abs=1e-4)


@pytest.mark.parametrize("likelihood", [Poisson(), Binomial(50), NegativeBinomial(2.0)])
def test_entries_that_are_certain_have_their_own_density(likelihood):
    y = torch.tensor([[0.0], [3.0], [40.0]], dtype=torch.float64)
    mean = torch.tensor([[-2.0], [1.0], [4.0]], dtype=torch.float64)
    result = likelihood.log_predictive(y, mean, torch.zeros_like(mean)).detach()
    torch.testing.assert_close(
        result, likelihood.log_prob(y, mean).detach(), rtol=1e-9, atol=1e-9
    )


def test_means_far_above_the_entry_stay_finite():
    y = torch.zeros(3, 1, dtype=torch.float64)
    mean = torch.tensor([[50.0], [300.0], [600.0]], dtype=torch.float64)
    for likelihood in (Poisson(), Binomial(200_000), NegativeBinomial(1.0)):
        result = likelihood.log_predictive(y, mean, torch.full_like(mean, 0.5))
        assert bool(torch.isfinite(result).all())


@pytest.mark.parametrize("variance", VARIANCES)
def test_chances_of_wide_psi_are_integrals(variance):
    mean = torch.linspace(-8.0, 8.0, 17, dtype=torch.float64)[:, None]
    result, _ = Bernoulli().predict(mean, torch.full_like(mean, variance))
    deviation = math.sqrt(variance)
    exact = [
        integrate.quad(
            lambda t, m=m: stats.norm.pdf(t) * special.expit(m + deviation * t),
            -12.0,
            12.0,
            epsabs=1e-12,
            limit=200,
        )[0]
        for m in mean[:, 0].tolist()
    ]
    reference = torch.tensor(exact, dtype=torch.float64)
    torch.testing.assert_close(result[:, 0], reference, rtol=0, atol=1e-5)


def test_the_smallest_weights_have_correct_digits():
    """The outermost weight of 45 nodes is about 1e-33."""
    nodes, weights = normal_nodes(45)
    exact_nodes, exact = np.polynomial.hermite_e.hermegauss(45)
    reference = torch.from_numpy(exact / math.sqrt(2.0 * math.pi))
    torch.testing.assert_close(nodes, torch.from_numpy(exact_nodes), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(weights, reference, rtol=1e-10, atol=0)


def test_means_of_wide_and_narrow_entries_mix():
    mean = torch.zeros(2, 1, dtype=torch.float64) + 1.5
    variance = torch.tensor([[0.2], [6.0]], dtype=torch.float64)
    together = normal_mean(torch.sigmoid, mean, variance)
    for i in range(2):
        alone = normal_mean(torch.sigmoid, mean[i : i + 1], variance[i : i + 1])
        assert float(together[i]) == float(alone)


@pytest.mark.parametrize(
    ("y", "mean", "variance"),
    [(0.0, 400.0, 1.0), (0.0, 260.0, 0.27), (7.0, 400.0, 1e-4), (1e5, 690.0, 3.0)],
)
def test_modes_far_below_the_mean_of_a_count_are_found(y, mean, variance):
    """Newton's steps on e^psi are 1 long: 200 of them ended far above, at densities of e^-1e27."""

    def log_f(psi):
        away = np.square(psi - mean) / variance + np.log(2.0 * np.pi * variance)
        return y * psi - np.exp(psi) - special.gammaln(y + 1.0) - 0.5 * away

    mode = optimize.brentq(lambda s: y - np.exp(s) - (s - mean) / variance, -20.0, mean)
    width = (np.exp(mode) + 1.0 / variance) ** -0.5
    psi = mode + width * np.linspace(-12.0, 12.0, 200_001)
    exact = special.logsumexp(log_f(psi)) + np.log(psi[1] - psi[0])
    entry = [torch.full((1, 1), value, dtype=torch.float64) for value in (y, mean, variance)]
    assert float(Poisson().log_predictive(*entry)) == pytest.approx(exact, rel=1e-12, abs=1e-3)


@pytest.mark.parametrize("y", [1e7, 1e8, 1e10])
def test_large_counts_end_the_search_in_single_precision(monkeypatch, y):
    """The slope was rounded by more than what was asked of it: 200 steps more than it took."""
    steps = []
    step = quadrature._Search.step
    monkeypatch.setattr(
        quadrature._Search, "step", lambda *given: steps.append(1) or step(*given)
    )
    entry = (torch.full((1, 1), value) for value in (y, math.log(y) + 0.3, 0.01))
    assert bool(Poisson().log_predictive(*entry).isfinite())
    assert len(steps) < 10
