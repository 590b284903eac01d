"""benchmarks/thinning.py: what is said of held-out molecules is what thinning makes of counts."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

import numpy as np
import pytest
from scipy import integrate, stats

from helpers.benchmarks import BENCHMARKS


@pytest.fixture(scope="module")
def thinning() -> ModuleType:
    sys.path.append(str(BENCHMARKS))
    try:
        return importlib.import_module("thinning")
    finally:
        sys.path.remove(str(BENCHMARKS))


def held(thinning, x, y):
    return thinning.Split(np.array([x], dtype=float), np.array([y], dtype=float))


@pytest.mark.parametrize(("r", "mean"), [(0.5, 2.0), (3.0, 0.4), (20.0, 7.0)])
def test_conditional_is_the_joint_over_the_marginal(thinning, r, mean):
    """Over the gamma variable that both parts share: p(x, y) / p(x), by quadrature."""
    x, y = (part.ravel() for part in np.meshgrid(np.arange(5), np.arange(5)))

    def joint(g, k):
        parts = stats.poisson.pmf(x[k], mean * g) * stats.poisson.pmf(
            y[k], thinning.ODDS * mean * g
        )
        return parts * stats.gamma.pdf(g, r, scale=1.0 / r)

    wanted = [
        np.log(integrate.quad(joint, 0.0, np.inf, args=(k,), epsabs=0.0, epsrel=1e-9)[0])
        for k in range(len(x))
    ] - stats.nbinom.logpmf(x, r, r / (r + mean))
    got = thinning.log_density(np.array(mean), r, held(thinning, x, y))[0]
    assert np.allclose(got, wanted, atol=1e-6)


def test_conditional_is_what_thinned_draws_show(thinning):
    """Whole counts are drawn and thinned: nothing of the derivation is used."""
    rng, r, whole = np.random.default_rng(0), 1.5, 4.0
    counts = rng.negative_binomial(r, r / (r + whole), 400_000).astype(float)
    train, test = thinning.thin(counts, rng)
    for x in (0, 2, 6):
        shown = test[train == x]
        shares = np.array([(shown == y).mean() for y in range(4)])
        split = held(thinning, np.full(4, x), np.arange(4))
        said = np.exp(thinning.log_density(np.array(thinning.TRAINED * whole), r, split)[0])
        assert np.all(np.abs(shares - said) < 5.0 * np.sqrt(said / len(shown)))


def test_poisson_is_the_limit_of_a_large_dispersion(thinning):
    split = held(thinning, [0, 3, 5], [0, 1, 2])
    mean = np.array([0.3, 2.0, 6.0])
    exact = stats.poisson.logpmf(split.test, thinning.ODDS * mean)
    assert np.allclose(thinning.log_density(mean, None, split), exact)
    assert np.allclose(thinning.log_density(mean, 1e7, split), exact, atol=1e-5)


def test_score_is_the_log_of_the_mean_density_and_no_rate_is_zero(thinning):
    split = held(thinning, [0, 4], [1, 0])
    rates = thinning.Rates(np.array([[[0.0, 3.0]], [[2.0, 5.0]]]))
    about = thinning.totals(split.train)
    mixed = 0.9 * rates.mean + 0.1 * about
    density = stats.poisson.pmf(split.test, thinning.ODDS * mixed).mean(0)
    assert thinning.score(rates, 0.1, split) == pytest.approx(np.log(density).mean())
    zero = thinning.Rates(np.zeros((1, 1, 2)))
    assert np.isfinite(thinning.score(zero, thinning.SHARES[0], split))


def test_choice_sees_nothing_of_what_is_held_out(thinning):
    thinning.DATA["made"] = lambda seed: thinning.Counts(np.full((6, 5), 40.0 + seed))
    try:
        outer, inner = thinning.split("made", 100), thinning.split("made", 100, inner=True)
    finally:
        del thinning.DATA["made"]
    assert np.array_equal(outer.train + outer.test, np.full((6, 5), 140.0))
    assert np.array_equal(inner.train + inner.test, outer.train)
