"""Gaussian views: weights and noise variance are integrated out where that is possible."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.random import Generator
from scipy.linalg import lapack

from bochner.data.arrays import Float64Array, IntArray
from bochner.data.missing import blocks
from bochner.mcmc.conditionals.frequencies import (
    FrequencyKernel,
    WeightsIntegrated,
    update_frequencies,
)
from bochner.mcmc.conditionals.slices import slice_sample
from bochner.mcmc.conditionals.views import (
    EVERY,
    Rows,
    ViewData,
    ViewModel,
    ViewState,
    WeightMoments,
)
from bochner.mcmc.conditionals.weights import GaussianForm
from bochner.mcmc.draws import inverse_gamma
from bochner.mcmc.features import pull_back

# With more patterns of missing entries, blocks that integrate the weights out draw these entries
# first: each pattern would take a factorisation of its own per gradient.
_FEW_PATTERNS = 4


@dataclass(frozen=True)
class _Spectral:
    """One pattern's regression in the eigenvectors of its Gram matrix, for a kernel of variance
    1.
    """

    columns: IntArray
    values: Float64Array
    vectors: Float64Array
    projected: Float64Array

    @classmethod
    def of(cls, phi: Float64Array, Y: Float64Array, columns: IntArray) -> _Spectral:
        values, vectors = np.linalg.eigh(phi.T @ phi)
        projected = vectors.T @ (phi.T @ Y)
        return cls(columns, np.maximum(values, 0.0), vectors, projected)

    def shrunk(self, ratio: float) -> Float64Array:
        """Return 1 / (1 + ratio values), shape (K,)."""
        return np.asarray(1.0 / (1.0 + ratio * self.values))

    def mean(self, ratio: float, variance: float) -> Float64Array:
        """Return the posterior mean of the weights, shape (K, columns)."""
        factor = ratio / np.sqrt(variance) * self.shrunk(ratio)
        return np.asarray(self.vectors @ (factor[:, None] * self.projected))


class GaussianView(ViewModel):
    """y = psi + N(0, noise variance); log(variance / noise variance) has a normal prior, the noise
    variance an inverse gamma one.
    """

    has_intercept = False
    parameter_name = "noise_variance"

    def _variance(self, parameter: Float64Array) -> float:
        return float(parameter[0])

    def log_prob(self, psi: Float64Array, parameter: Float64Array, rows: Rows) -> Float64Array:
        """Return log N(y; psi, noise variance), 0 where missing."""
        noise = self._variance(parameter)
        square = np.square(self.data.values[rows] - psi) / noise
        return np.asarray(
            -0.5 * self.data.observed[rows] * (np.log(2.0 * np.pi * noise) + square)
        )

    def row_objective(self, state: ViewState, x: Float64Array, rows: IntArray) -> Float64Array:
        """Return the log likelihood of some rows up to constants, given the weights."""
        left = self.data.values[rows]
        left -= self.phi(state, x) @ state.weights
        if not self._complete:
            left *= self.data.observed[rows]
        square = np.einsum("nm,nm->n", left, left)
        return np.asarray(-0.5 / self._variance(state.parameter) * square)

    @functools.cached_property
    def _complete(self) -> bool:
        return bool(self.data.observed.all())

    def score(self, psi: Float64Array, parameter: Float64Array) -> Float64Array:
        """Return (y - psi) / noise variance."""
        return np.asarray(
            self.data.observed * (self.data.values - psi) / self._variance(parameter)
        )

    def form(self, psi: Float64Array, parameter: Float64Array, rng: Generator) -> GaussianForm:  # noqa: ARG002
        """Return y / noise variance and 1 / noise variance: nothing is drawn."""
        precision = self.data.observed / self._variance(parameter)
        return GaussianForm(precision * self.data.values, precision)

    def draw_parameter(self, rng: Generator) -> Float64Array:
        """Draw the noise variance."""
        return np.array([inverse_gamma(*self.priors.noise, rng)])

    def draw_variance(self, parameter: Float64Array, rng: Generator) -> float:
        """Draw the variance: that of the noise times the ratio."""
        mean, std = self.priors.ratio
        return float(self._variance(parameter) * np.exp(rng.normal(mean, std)))

    def draw_data(
        self, psi: Float64Array, parameter: Float64Array, rng: Generator
    ) -> Float64Array:
        """Draw psi plus noise."""
        std = np.sqrt(self._variance(parameter))
        return np.asarray(psi + std * rng.standard_normal(psi.shape))

    def log_prior(self, state: ViewState) -> float:
        """Return the log density of log noise variance and log ratio, up to constants."""
        shape, rate = self.priors.noise
        mean, std = self.priors.ratio
        noise = self._variance(state.parameter)
        ratio = (np.log(state.variance / noise) - mean) / std
        return float(-shape * np.log(noise) - rate / noise - 0.5 * ratio**2)

    # -- blocks

    @functools.cached_property
    def _patterns(self) -> list[tuple[Rows, IntArray, Float64Array]]:
        """Rows, columns and values of each pattern of missing entries."""
        values = self.data.values
        found = blocks(self.data.observed)
        return [
            # rows of features and values are copied where some are missing alone
            (EVERY, columns, values[:, columns])
            if len(rows) == len(values)
            else (rows, columns, values[np.ix_(rows, columns)])
            for rows, columns in found
        ]

    def _spectra(self, state: ViewState, x: Float64Array) -> list[_Spectral]:
        phi = self.phi(replace(state, variance=1.0), x)
        return [_Spectral.of(phi[rows], Y, columns) for rows, columns, Y in self._patterns]

    def update_weights(self, state: ViewState, x: Float64Array, rng: Generator) -> ViewState:
        """Draw the ratio with weights and noise integrated out, then the noise, then the
        weights.
        """
        spectra = self._spectra(state, x)
        present = np.log(state.variance / self._variance(state.parameter))
        density = _RatioDensity(self, spectra)
        drawn = slice_sample(np.array([present]), density, rng)
        ratio = float(np.exp(drawn[0]))
        noise = inverse_gamma(density.shape, density.rate(ratio), rng)
        weights = self._draw_weights(spectra, ratio, noise * ratio, state.weights.shape, rng)
        parameter = np.array([noise])
        return replace(state, variance=noise * ratio, parameter=parameter, weights=weights)

    def _draw_weights(
        self,
        spectra: Sequence[_Spectral],
        ratio: float,
        variance: float,
        shape: tuple[int, ...],
        rng: Generator,
    ) -> Float64Array:
        # columns without any entry keep their prior
        weights = rng.standard_normal(shape)
        for spectrum in spectra:
            root = np.sqrt(spectrum.shrunk(ratio))[:, None]
            noise = spectrum.vectors @ (root * weights[:, spectrum.columns])
            weights[:, spectrum.columns] = spectrum.mean(ratio, variance) + noise
        return weights

    def update_frequencies(
        self, state: ViewState, x: Float64Array, kernel: FrequencyKernel, rng: Generator
    ) -> tuple[ViewState, float]:
        """Update every frequency with all weights integrated out, and draw the weights."""
        if not self._integrates:
            return self.completed(state, x, rng).update_frequencies(state, x, kernel, rng)
        patterns = [(rows, Y) for rows, _, Y in self._patterns]
        points, amplitude = self.spectrum(state)
        noise = self._variance(state.parameter)
        regression = WeightsIntegrated.of(self.see(x), points, amplitude, patterns, noise)
        points, moved = update_frequencies(
            points, state.labels, state.components, regression, kernel, rng
        )
        return self.redraw_weights(replace(state, points=points), x, rng), moved

    def completed(self, state: ViewState, x: Float64Array, rng: Generator) -> Self:
        """Return this view with its missing entries drawn, where their patterns are many.

        Notes
        -----
        Data augmentation (Tanner and Wong 1987): given all entries the weights are integrated out
        of one pattern, where the density given observed entries has a pattern for each column.
        """
        if self._integrates:
            return self
        drawn = self.draw_data(self.psi(state, x), state.parameter, rng)
        values = np.where(self.data.observed, self.data.values, drawn)
        return self.with_data(
            ViewData(values, np.ones_like(self.data.observed), self.data.offset)
        )

    def redraw_weights(self, state: ViewState, x: Float64Array, rng: Generator) -> ViewState:
        """Draw the weights given variances: the latents moved with them integrated out."""
        if not self._integrates:
            return state
        spectra = self._spectra(state, x)
        ratio = state.variance / self._variance(state.parameter)
        shape = state.weights.shape
        weights = self._draw_weights(spectra, ratio, state.variance, shape, rng)
        return replace(state, weights=weights)

    def weight_moments(
        self,
        state: ViewState,
        x: Float64Array,
        rng: Generator,  # noqa: ARG002
    ) -> WeightMoments:
        """Return mean and covariance of the weights, one group per pattern of missing entries."""
        spectra = self._spectra(state, x)
        ratio = state.variance / self._variance(state.parameter)
        size, n_columns = state.weights.shape
        mean = np.zeros((size, n_columns))
        group_of = np.full(n_columns, len(spectra))
        covariances = []
        for g, spectrum in enumerate(spectra):
            mean[:, spectrum.columns] = spectrum.mean(ratio, state.variance)
            group_of[spectrum.columns] = g
            covariances.append(
                (spectrum.vectors * spectrum.shrunk(ratio)) @ spectrum.vectors.T
            )
        if (group_of == len(spectra)).any():
            covariances.append(np.eye(size))
        return WeightMoments(mean, np.stack(covariances), group_of)

    # -- latents

    @property
    def _integrates(self) -> bool:
        return len(self._patterns) <= _FEW_PATTERNS

    def latent_objective(
        self, state: ViewState, x: Float64Array
    ) -> tuple[float, Float64Array]:
        """Return log likelihood and gradient with the weights integrated out, where patterns of
        missing entries are few.
        """
        if not self._integrates:
            return super().latent_objective(state, x)
        points, _ = self.spectrum(state)
        phi = self.phi(state, x)
        noise = self._variance(state.parameter)
        value = 0.0
        upstream = np.zeros_like(phi)
        for rows, _, Y in self._patterns:
            of_part, slope = _marginal(phi[rows], Y, noise)
            value += of_part
            upstream[rows] += slope
        return value, self.widen(pull_back(phi, points, upstream), x.shape[1])


class _RatioDensity:
    """Log density of log(variance / noise variance), weights and noise variance integrated out."""

    def __init__(self, view: GaussianView, spectra: Sequence[_Spectral]) -> None:
        self.spectra = spectra
        self.prior = view.priors.ratio
        shape, self._rate = view.priors.noise
        self.shape = shape + 0.5 * float(view.data.observed.sum())
        self._square = float(np.square(view.data.values).sum())

    def rate(self, ratio: float) -> float:
        """Return the rate of the noise variance's inverse gamma distribution."""
        explained = 0.0
        for spectrum in self.spectra:
            energy = np.square(spectrum.projected).sum(1)
            explained += ratio * float(energy @ spectrum.shrunk(ratio))
        return self._rate + 0.5 * (self._square - explained)

    def __call__(self, logs: Float64Array) -> Float64Array:
        ratio = float(np.exp(logs[0]))
        mean, std = self.prior
        logdet = -sum(
            len(spectrum.columns) * np.log1p(ratio * spectrum.values).sum()
            for spectrum in self.spectra
        )
        prior = ((logs[0] - mean) / std) ** 2
        return np.array([0.5 * logdet - self.shape * np.log(self.rate(ratio)) - 0.5 * prior])


def _marginal(phi: Float64Array, Y: Float64Array, noise: float) -> tuple[float, Float64Array]:
    """Return log N(Y; 0, phi phi^T + noise I) over all columns, and its gradient in phi."""
    n_rows, n_columns = Y.shape
    precision = phi.T @ phi / noise
    precision.ravel()[:: len(precision) + 1] += 1.0
    inverse, logdet = _inverted(precision)
    cross = phi.T @ Y / noise
    mean = inverse @ cross
    logdet += n_rows * np.log(2.0 * np.pi * noise)
    square = np.square(Y).sum() / noise - (cross * mean).sum()
    both = mean @ mean.T + n_columns * inverse
    slope = (mean @ Y.T - both @ phi.T).T / noise
    return float(-0.5 * (n_columns * logdet + square)), slope


def _inverted(precision: Float64Array) -> tuple[Float64Array, float]:
    """Return the inverse of a symmetric positive definite matrix and its log determinant."""
    root, failed = lapack.dpotrf(precision, lower=1)
    if failed:
        raise np.linalg.LinAlgError("the precision of the weights is not positive definite")
    logdet = 2.0 * float(np.log(root.diagonal()).sum())
    # a third of the operations of a general inverse; the lower triangle alone
    lower, _ = lapack.dpotri(root, lower=1)
    inverse = np.tril(lower)
    inverse += np.tril(lower, -1).T
    return inverse, logdet
