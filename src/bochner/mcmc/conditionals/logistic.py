"""Logistic views by Polya-gamma augmentation: binary, binomial, categorical, and counts."""

from __future__ import annotations

import functools
from abc import abstractmethod
from dataclasses import replace
from typing import Self

import numpy as np
from numpy.random import Generator
from scipy.special import digamma, expit, gammaln

from bochner.data.arrays import Float64Array
from bochner.extras import require
from bochner.mcmc.conditionals.slices import slice_sample
from bochner.mcmc.conditionals.views import (
    EVERY,
    Rows,
    ViewData,
    ViewModel,
    ViewState,
    WeightMoments,
)
from bochner.mcmc.conditionals.weights import GaussianForm, weight_posterior
from bochner.mcmc.priors import Priors

# Terms of tables that are not drawn as one, times the dispersion, and of which parts have the same
# chance: from so many on, a thousandth of their number.
_ONE_BY_ONE = 10_000
_PARTS = 1000
# Shape up to which the library of Polya-gamma variables draws none.
_SMALL_SHAPE = 1e-4
# Gamma variables that such a one is the sum of; the others have 0.8% of its mean at the most, or
# its mean is of no weight.
_TERMS = 24


def softplus(psi: Float64Array) -> Float64Array:
    """Return log(1 + e^psi)."""
    # a third of the time of logaddexp
    rest = np.log1p(np.exp(-np.abs(psi)))
    return np.asarray(np.maximum(psi, 0.0) + rest)


class LogisticView(ViewModel):
    """log p(y | psi) = log c(y) + a psi - b log(1 + e^psi), psi = intercept + offset + phi^T a.

    Notes
    -----
    Polson, Scott and Windle (2013). The Polya-gamma variables are drawn anew by each block that
    needs them and are no part of the state: blocks may take turns in any order.
    """

    @abstractmethod
    def exponents(
        self,
        parameter: Float64Array,
        rows: Rows,
    ) -> tuple[Float64Array, Float64Array]:
        """Return a and b of the entries of some rows, 0 where missing, both (n, M)."""

    @abstractmethod
    def log_constant(self, parameter: Float64Array, rows: Rows) -> Float64Array:
        """Return log c(y) of the entries of some rows, 0 where missing, (n, M)."""

    def log_prob_of_psi(
        self, psi: Float64Array, parameter: Float64Array, rows: Rows
    ) -> Float64Array:
        """Return a psi - b log(1 + e^psi), 0 where missing."""
        a, b = self.exponents(parameter, rows)
        return np.asarray(a * psi - b * softplus(psi))

    def log_prob(self, psi: Float64Array, parameter: Float64Array, rows: Rows) -> Float64Array:
        """Return log p of the entries of some rows, 0 where missing."""
        constant = self.log_constant(parameter, rows)
        return self.log_prob_of_psi(psi, parameter, rows) + constant

    def score(self, psi: Float64Array, parameter: Float64Array) -> Float64Array:
        """Return a - b logistic(psi), 0 where missing."""
        a, b = self.exponents(parameter, EVERY)
        return np.asarray(a - b * expit(psi))

    def form(self, psi: Float64Array, parameter: Float64Array, rng: Generator) -> GaussianForm:
        """Draw the Polya-gamma variables: precision omega, linear a - b / 2."""
        a, b = self.exponents(parameter, EVERY)
        observed = self.data.observed
        precision = np.zeros(psi.shape)
        precision[observed] = draw_polya_gamma(b[observed], psi[observed], rng)
        return GaussianForm(a - 0.5 * b, precision)

    def draw_variance(self, parameter: Float64Array, rng: Generator) -> float:  # noqa: ARG002
        """Draw the variance of the kernel."""
        return float(np.exp(rng.normal(*self.priors.ratio)))

    def log_prior(self, state: ViewState) -> float:
        """Return the log density of the logarithm of the variance, up to a constant."""
        return float(self.priors.log_ratio(np.log(state.variance)))

    # -- blocks

    def _centred(self, form: GaussianForm) -> GaussianForm:
        """Return the form of psi less the offset."""
        offset = self.data.offset[:, None]
        return GaussianForm(form.linear - form.precision * offset, form.precision)

    def update_weights(self, state: ViewState, x: Float64Array, rng: Generator) -> ViewState:
        """Draw the weights given Polya-gamma variables, then the variance twice: given the scaled
        weights and given the standard ones (Yu and Meng 2011), then the likelihood's parameter.
        """
        form = self.form(self.psi(state, x), state.parameter, rng)
        posterior = weight_posterior(self.phi(state, x), self._centred(form))
        state = replace(state, weights=posterior.draw(rng))
        state = self._scale_variance(state, rng)
        state = self._likelihood_variance(state, x, rng)
        return self.update_parameter(state, x, rng)

    def _scale_variance(self, state: ViewState, rng: Generator) -> ViewState:
        """Draw the variance with variance times squared weights fixed."""
        rows = self.kernel_rows()
        drawn = state.weights[rows]
        square = state.variance * np.square(drawn).sum()
        count = drawn.size

        def log_density(logs: Float64Array) -> Float64Array:
            prior = self.priors.log_ratio(logs)
            return np.asarray(prior - 0.5 * count * logs - 0.5 * square * np.exp(-logs))

        present = np.array([np.log(state.variance)])
        log_variance = slice_sample(present, log_density, rng, 0.2)
        variance = float(np.exp(log_variance[0]))
        weights = state.weights.copy()
        weights[rows] *= np.sqrt(state.variance / variance)
        return replace(state, variance=variance, weights=weights)

    def _likelihood_variance(
        self, state: ViewState, x: Float64Array, rng: Generator
    ) -> ViewState:
        """Draw the variance with the standard weights fixed."""
        rows = self.kernel_rows()
        phi = self.phi(state, x)
        psi = self.psi(state, x)
        slope = phi[:, rows] @ state.weights[rows]
        present = np.log(state.variance)

        def log_density(logs: Float64Array) -> Float64Array:
            factor = np.exp(0.5 * (logs[0] - present)) - 1.0
            moved = psi + factor * slope
            value = self.log_prob_of_psi(moved, state.parameter, EVERY).sum()
            return np.asarray(value + self.priors.log_ratio(logs))

        drawn = slice_sample(np.array([present]), log_density, rng, 0.5)
        return replace(state, variance=float(np.exp(drawn[0])))

    def update_parameter(
        self,
        state: ViewState,
        x: Float64Array,  # noqa: ARG002
        rng: Generator,  # noqa: ARG002
    ) -> ViewState:
        """Draw the likelihood's parameter; most have none."""
        return state

    def weight_moments(
        self, state: ViewState, x: Float64Array, rng: Generator
    ) -> WeightMoments:
        """Return mean and covariance of the weights given Polya-gamma variables."""
        form = self.form(self.psi(state, x), state.parameter, rng)
        posterior = weight_posterior(self.phi(state, x), self._centred(form))
        columns = np.arange(posterior.mean.shape[1])
        return WeightMoments(posterior.mean, posterior.covariances(), columns)


class BinomialView(LogisticView):
    """y successes of n trials.

    Parameters
    ----------
    trials : ndarray of shape (M,), optional
        n; None: 1, and sticks of categories.
    """

    def __init__(
        self,
        name: str,
        data: ViewData,
        dims: tuple[int, ...],
        n_points: int,
        priors: Priors,
        trials: Float64Array | None = None,
    ) -> None:
        super().__init__(name, data, dims, n_points, priors)
        self.trials = np.ones(data.values.shape[1]) if trials is None else trials

    def with_data(self, data: ViewData) -> Self:
        """Return this view with other data."""
        return type(self)(self.name, data, self.dims, self.n_points, self.priors, self.trials)

    @functools.cached_property
    def _observed_trials(self) -> Float64Array:
        return np.asarray(self.data.observed * self.trials)

    def exponents(
        self,
        parameter: Float64Array,  # noqa: ARG002
        rows: Rows,
    ) -> tuple[Float64Array, Float64Array]:
        """Return y and n."""
        return self.data.values[rows], self._observed_trials[rows]

    def log_constant(self, parameter: Float64Array, rows: Rows) -> Float64Array:  # noqa: ARG002
        """Return log of n over y."""
        y = self.data.values[rows]
        n = self._observed_trials[rows]
        return np.asarray(gammaln(n + 1.0) - gammaln(y + 1.0) - gammaln(n - y + 1.0))

    def draw_parameter(self, rng: Generator) -> Float64Array:  # noqa: ARG002
        """There is none."""
        return np.zeros(0)

    def draw_data(
        self,
        psi: Float64Array,
        parameter: Float64Array,  # noqa: ARG002
        rng: Generator,
    ) -> Float64Array:
        """Draw numbers of successes."""
        n = np.broadcast_to(self.trials, psi.shape).astype(np.int64)
        return np.asarray(rng.binomial(n, expit(psi)), dtype=np.float64)


class NegativeBinomialView(LogisticView):
    """Counts of dispersion r and success probability logistic(psi): mean r e^psi.

    Parameters
    ----------
    per_column : bool
        One r per column, or one for the view.
    """

    parameter_name = "dispersion"

    def __init__(
        self,
        name: str,
        data: ViewData,
        dims: tuple[int, ...],
        n_points: int,
        priors: Priors,
        per_column: bool = False,
    ) -> None:
        super().__init__(name, data, dims, n_points, priors)
        self.per_column = per_column

    def with_data(self, data: ViewData) -> Self:
        """Return this view with other data."""
        return type(self)(
            self.name, data, self.dims, self.n_points, self.priors, self.per_column
        )

    def exponents(
        self,
        parameter: Float64Array,
        rows: Rows,
    ) -> tuple[Float64Array, Float64Array]:
        """Return y and y + r."""
        y = self.data.values[rows]
        return y, y + self.data.observed[rows] * parameter

    @functools.cached_property
    def _log_factorials(self) -> Float64Array:
        return np.asarray(gammaln(self.data.values + 1.0))

    def log_constant(self, parameter: Float64Array, rows: Rows) -> Float64Array:
        """Return log of Gamma(y + r) / (y! Gamma(r))."""
        y = self.data.values[rows]
        # missing entries have y = 0: no term but rounding
        value = gammaln(y + parameter) - gammaln(parameter) - self._log_factorials[rows]
        return np.asarray(self.data.observed[rows] * value)

    def draw_parameter(self, rng: Generator) -> Float64Array:
        """Draw the dispersion."""
        shape, rate = self.priors.dispersion
        size = self.data.values.shape[1] if self.per_column else 1
        return np.asarray(rng.gamma(shape, size=size) / rate)

    def draw_data(
        self, psi: Float64Array, parameter: Float64Array, rng: Generator
    ) -> Float64Array:
        """Draw counts: a Poisson of a gamma rate."""
        r = np.broadcast_to(parameter, psi.shape)
        rate = rng.gamma(r) * np.exp(psi)
        return np.asarray(rng.poisson(rate), dtype=np.float64)

    def log_prior(self, state: ViewState) -> float:
        """Return the log density of log variance and log dispersion, up to constants."""
        shape, rate = self.priors.dispersion
        of_parameter = shape * np.log(state.parameter) - rate * state.parameter
        return super().log_prior(state) + float(of_parameter.sum())

    def update_parameter(self, state: ViewState, x: Float64Array, rng: Generator) -> ViewState:
        """Draw the dispersion twice: with psi fixed, by numbers of tables, and with the means
        r e^psi fixed.
        """
        psi = self.psi(state, x)
        shape, rate = self.priors.dispersion
        tables = self._by_parameter(draw_tables(self.data, state.parameter, rng))
        failures = self._by_parameter((self.data.observed * softplus(psi)).sum(0))
        r = rng.gamma(shape + tables) / (rate + failures)
        return self._shift(replace(state, parameter=r), psi, rng)

    def _by_parameter(self, columns: Float64Array) -> Float64Array:
        """Sum over the columns that share a dispersion, (M,) -> (1,) or (M,)."""
        return columns if self.per_column else columns.sum(keepdims=True)

    def _shift(self, state: ViewState, psi: Float64Array, rng: Generator) -> ViewState:
        """Draw the dispersion with the means fixed: the intercepts move against it."""
        shape, rate = self.priors.dispersion
        present = np.log(state.parameter)
        intercepts = state.weights[self.n_points]

        def log_density(logs: Float64Array) -> Float64Array:
            by = present - logs
            r = np.exp(logs)
            entries = self.log_prob(psi + by, r, EVERY).sum(0)
            prior = -0.5 * np.square(intercepts + by / self.priors.intercept)
            return self._by_parameter(entries + prior) + shape * logs - rate * r

        drawn = slice_sample(present, log_density, rng, 0.5)
        weights = state.weights.copy()
        weights[self.n_points] += (present - drawn) / self.priors.intercept
        return replace(state, weights=weights, parameter=np.exp(drawn))


def draw_polya_gamma(shape: Float64Array, tilt: Float64Array, rng: Generator) -> Float64Array:
    """Draw Polya-gamma variables of any positive shape, as zeros have under a small dispersion.

    Parameters
    ----------
    shape, tilt : ndarray of shape (n,)
    rng : Generator

    Returns
    -------
    ndarray of shape (n,)

    Notes
    -----
    Polson, Scott and Windle (2013), equation 2, for small shapes: the first terms of the sum, and
    the mean of the rest.
    """
    draw = require("polyagamma", "non-conjugate views").random_polyagamma
    small = shape <= _SMALL_SHAPE
    out = np.asarray(draw(np.where(small, 1.0, shape), tilt, random_state=rng))
    if small.any():
        out[small] = _sum_of_gammas(shape[small], np.abs(tilt[small]), rng)
    return out


def _sum_of_gammas(shape: Float64Array, tilt: Float64Array, rng: Generator) -> Float64Array:
    total = np.zeros(len(shape))
    half = np.maximum(0.5 * tilt, 1e-8)
    rest = 0.25 * np.tanh(half) / half
    for k in range(_TERMS):
        # 2 pi^2 ((k + 1/2)^2 + (z / 2 pi)^2)
        rate = 2.0 * np.square(np.pi * (k + 0.5)) + 0.5 * np.square(tilt)
        total += rng.gamma(shape) / rate
        rest -= 1.0 / rate
    return total + shape * rest


def draw_tables(data: ViewData, r: Float64Array, rng: Generator) -> Float64Array:
    """Draw the total number of tables of every column's counts, shape (M,).

    The tables of a count y are sums over j < y of Bernoulli(r / (r + j)); their total needs only
    how many counts exceed each j.

    Notes
    -----
    Zhou and Carin (2015). Terms j of which a thousandth is more than one are drawn together with
    their neighbours, those from j = 10,000 max(r, 1) on as one Poisson variable; both are within
    1e-4 of them in total variation (Ehm 1991, Barbour and Hall 1984): time and memory grow with
    the logarithm of the largest count and dispersion alone.
    """
    counts = np.where(data.observed, data.values, 0.0)
    totals = []
    for m, column in enumerate(counts.T):
        dispersion = float(r[m % len(r)])
        totals.append(_tables(column, dispersion, rng))
    return np.array(totals)


def _tables(counts: Float64Array, r: float, rng: Generator) -> float:
    """Draw the total number of tables of the counts of one column, (N,)."""
    counts = np.sort(counts[counts > 0.0])
    if not counts.size:
        return 0.0
    limit = np.floor(_ONE_BY_ONE * max(r, 1.0))
    edges = _edges(min(counts[-1], limit))
    trials, places = _below(counts, edges)
    # the mean of j in a part is as good as all of its j
    size = np.diff(trials)
    place = np.diff(places) / size
    # the first customer of every count opens a table
    total = len(counts) + rng.binomial(size.astype(np.int64), r / (r + place)).sum()
    more = counts[counts > limit]
    if more.size:
        beyond = digamma(r + more) - digamma(r + limit)
        total += rng.poisson(r * beyond.sum())
    return float(total)


def _edges(most: float) -> Float64Array:
    """Return the ends of parts of 1, 2, .. most - 1: single numbers, and longer parts from where
    1 / 1,000 of a number is more than one.
    """
    if most <= _PARTS:
        return np.arange(1.0, most + 1.0)
    ratio = 1.0 + 1.0 / _PARTS
    count = int(np.log(most / _PARTS) / np.log(ratio))
    longer = np.ceil(_PARTS * ratio ** np.arange(1.0, count + 1.0))
    single = np.arange(1.0, _PARTS + 1.0)
    return np.concatenate([single, longer[longer < most], [most]])


def _below(counts: Float64Array, edges: Float64Array) -> tuple[Float64Array, Float64Array]:
    """Return how many terms j < y of ascending counts y lie below every edge, and their sum."""
    smaller = np.searchsorted(counts, edges)
    larger = len(counts) - smaller
    terms = np.stack([counts, 0.5 * counts * (counts - 1.0)])
    of_smaller = np.pad(terms.cumsum(1), ((0, 0), (1, 0)))[:, smaller]
    of_larger = np.stack([edges, 0.5 * edges * (edges - 1.0)]) * larger
    total: Float64Array = of_smaller + of_larger
    return total[0], total[1]
