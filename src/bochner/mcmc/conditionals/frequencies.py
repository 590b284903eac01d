"""Updates of the frequencies, one after the other, with weights integrated out.

A proposed frequency is then not tied to weights that were drawn for the present one. Where the
likelihood is Gaussian and few patterns of entries are missing, all weights are integrated out
(`WeightsIntegrated`). Elsewhere it is the two weights of the frequency given those of the others
(`GivenOtherWeights`): the likelihood of a proposal costs products with two features only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, Self, TypeVar

import numpy as np
from numpy.random import Generator

from bochner.data.arrays import IntArray
from bochner.mcmc.conditionals.mixture import Components
from bochner.mcmc.conditionals.slices import elliptical
from bochner.mcmc.conditionals.weights import GaussianForm, Pair
from bochner.mcmc.draws import FloatArray
from bochner.mcmc.features import features


class Marginal(Protocol):
    """What a frequency is worth."""

    @property
    def log_marginal(self) -> float:
        """Log likelihood with weights integrated out, up to what no frequency changes."""


Value = TypeVar("Value", bound=Marginal)


class FrequencyKernel(Protocol):
    """A Markov kernel of one frequency."""

    def __call__(
        self,
        point: FloatArray,
        mean: FloatArray,
        root: FloatArray,
        likelihood: Callable[[FloatArray], Value],
        rng: Generator,
        /,
    ) -> tuple[FloatArray, Value, bool]:
        """Return the next frequency, its likelihood, and whether it moved.

        ``mean`` and ``root``, the Cholesky factor of the covariance, are those of its component.
        """


def metropolis(
    point: FloatArray,
    mean: FloatArray,
    root: FloatArray,
    likelihood: Callable[[FloatArray], Value],
    rng: Generator,
) -> tuple[FloatArray, Value, bool]:
    """Propose from the component: the ratio is that of the likelihoods."""
    proposal = mean + root @ rng.standard_normal(mean.shape[0])
    here = likelihood(point)
    there = likelihood(proposal)
    if np.log(rng.random()) < there.log_marginal - here.log_marginal:
        return proposal, there, True
    return point, here, False


def elliptical_slice(
    point: FloatArray,
    mean: FloatArray,
    root: FloatArray,
    likelihood: Callable[[FloatArray], Value],
    rng: Generator,
) -> tuple[FloatArray, Value, bool]:
    """Move on an ellipse through the present point and a draw of the component: always moves."""
    last: list[Value] = []

    def log_likelihood(shifted: FloatArray, rows: IntArray) -> FloatArray:  # noqa: ARG001
        last[:] = [likelihood(mean + shifted[0])]
        return np.array([last[0].log_marginal])

    noise = root @ rng.standard_normal(mean.shape[0])
    moved, _ = elliptical((point - mean)[None], noise[None], log_likelihood, rng)
    return mean + moved[0], last[0], True


KERNELS: dict[str, FrequencyKernel] = {"slice": elliptical_slice, "metropolis": metropolis}


class Regression(Protocol[Value]):
    """The other frequencies of a view, one left out at a time; changed in place."""

    def without(self, h: int, point: FloatArray) -> Callable[[FloatArray], Value]:
        """Leave frequency h out, and return the likelihood of what may stand there."""

    def put(self, h: int, value: Value) -> None:
        """Put a frequency there, by its likelihood."""


def update_frequencies(
    points: FloatArray,
    labels: IntArray,
    components: Components,
    regression: Regression[Value],
    kernel: FrequencyKernel,
    rng: Generator,
) -> tuple[FloatArray, float]:
    """Update every frequency that has a label.

    Parameters
    ----------
    points : ndarray of shape (H, D)
    labels : ndarray of shape (H,)
    components : Components
    regression : Regression
        Of these frequencies.
    kernel : FrequencyKernel
    rng : Generator

    Returns
    -------
    ndarray of shape (H, D), float
        The frequencies, and the share of them that moved.
    """
    points = points.copy()
    moves = 0
    for h, k in enumerate(labels):
        likelihood = regression.without(h, points[h])
        mean = components.means[k]
        root = components.roots[k]
        points[h], value, moved = kernel(points[h], mean, root, likelihood, rng)
        regression.put(h, value)
        moves += moved
    return points, moves / len(labels)


class GivenOtherWeights:
    """One frequency and its pair of weights, given the weights of the others.

    Parameters
    ----------
    x : ndarray of shape (N, D)
    amplitude : ndarray of shape (P,)
    weights : ndarray of shape (2 P, M)
    psi : ndarray of shape (N, M)
        At these weights, offsets included.
    form : GaussianForm
    rng : Generator
        Draws the pairs.
    """

    def __init__(
        self,
        x: FloatArray,
        amplitude: FloatArray,
        weights: FloatArray,
        psi: FloatArray,
        form: GaussianForm,
        rng: Generator,
    ) -> None:
        self.x = x
        self.amplitude = amplitude
        self.weights = weights.copy()
        self.precision = form.precision
        self.rng = rng
        self.score = form.linear - form.precision * psi

    def without(self, h: int, point: FloatArray) -> Callable[[FloatArray], Pair]:
        """Take the pair out of psi."""
        amplitude = self.amplitude[h : h + 1]
        phi = features(self.x, point[None], amplitude)
        self.score += self.precision * (phi @ self.weights[self._pair(h)])

        def likelihood(proposed: FloatArray) -> Pair:
            phi = features(self.x, proposed[None], amplitude)
            return Pair.of(phi.T, self.score, self.precision)

        return likelihood

    def put(self, h: int, value: Pair) -> None:
        """Draw the pair of weights and put it into psi."""
        drawn = value.draw(self.rng)
        self.weights[self._pair(h)] = drawn
        self.score -= self.precision * (value.phi.T @ drawn)

    def _pair(self, h: int) -> list[int]:
        return [h, len(self.amplitude) + h]


@dataclass(frozen=True)
class _Proposal:
    """A frequency beside the others of one regression.

    Attributes
    ----------
    log_marginal : float
    phi : ndarray of shape (n, 2)
    solved : ndarray of shape (K, 2)
        A' Phi^T phi, with A' the inverse of sigma^2 I + Phi^T Phi without this frequency; (0, 2)
        where no inverse is kept.
    inverse : ndarray of shape (2, 2)
        Of sigma^2 I + phi^T phi - phi^T Phi A' Phi^T phi.
    left : ndarray of shape (2, M)
        phi^T y that the others do not explain.
    """

    log_marginal: float
    phi: FloatArray
    solved: FloatArray
    inverse: FloatArray
    left: FloatArray


# Squares of all features over the noise variance from which changes of the inverse by rank two lose
# to rounding. Of long waves, which are nearly the same feature, log densities were off by a factor
# of 1e-4 at 1e5, of 1 at 1e6, and determinants negative at 6e7.
_STEEP = 1e5


class _OneRegression:
    """Columns that are observed in the same rows, weights integrated out: the inverse of their
    precision times sigma^2 changes by matrices of rank two.
    """

    def __init__(self, phi: FloatArray, Y: FloatArray, noise: float) -> None:
        self.phi = phi
        self.Y = Y
        self.noise = noise
        gram = phi.T @ phi
        gram[np.diag_indices_from(gram)] += noise
        self.inverse = np.linalg.inv(gram)
        self.mean = self.inverse @ (phi.T @ Y)

    def without(self, pair: list[int]) -> None:
        """Leave two features out: their rows and columns of the inverse become 0."""
        columns = self.inverse[:, pair]
        root = np.linalg.solve(columns[pair], columns.T)
        self.mean -= root.T @ self.mean[pair]
        self.inverse -= columns @ root
        self.inverse[pair] = 0.0
        self.inverse[:, pair] = 0.0
        self.mean[pair] = 0.0

    def propose(self, phi: FloatArray) -> _Proposal:
        """Return what two features are worth."""
        cross = self.phi.T @ phi
        solved = self.inverse @ cross
        left = phi.T @ self.Y - cross.T @ self.mean
        precision = phi.T @ phi - cross.T @ solved
        first = precision[0, 0] + self.noise
        off = precision[0, 1]
        second = precision[1, 1] + self.noise
        det = first * second - off * off
        inverse = np.array([[second, -off], [-off, first]]) / det
        logdet = np.log(det / self.noise**2)
        square = (left * (inverse @ left)).sum() / self.noise
        value = 0.5 * (square - self.Y.shape[1] * logdet)
        return _Proposal(float(value), phi, solved, inverse, left)

    def put(self, pair: list[int], value: _Proposal) -> None:
        """Put two features in."""
        side = value.solved.copy()
        side[pair] = -np.eye(2)
        self.phi[:, pair] = value.phi
        self.inverse += side @ value.inverse @ side.T
        self.mean -= side @ (value.inverse @ value.left)


class _SteepRegression:
    """The same where the noise is so small that the inverse is rounding: what the others leave of
    two features is what is orthogonal to them, by a QR decomposition for every frequency.
    """

    def __init__(self, phi: FloatArray, Y: FloatArray, noise: float) -> None:
        self.phi = phi
        self.Y = Y
        self.noise = noise
        self.basis = np.zeros((0, 0))

    def without(self, pair: list[int]) -> None:
        """Leave two features out."""
        others = np.delete(self.phi, pair, axis=1)
        prior = np.sqrt(self.noise) * np.eye(others.shape[1])
        self.basis = np.linalg.qr(np.vstack([others, prior]))[0]

    def propose(self, phi: FloatArray) -> _Proposal:
        """Return what two features are worth."""
        n = len(phi)
        left_over = -self.basis @ (self.basis[:n].T @ phi)
        left_over[:n] += phi
        precision = left_over.T @ left_over + self.noise * np.eye(2)
        left = left_over[:n].T @ self.Y
        inverse: FloatArray = np.asarray(np.linalg.inv(precision), dtype=np.float64)
        logdet = np.linalg.slogdet(precision / self.noise)[1]
        square = (left * (inverse @ left)).sum() / self.noise
        value = 0.5 * (square - self.Y.shape[1] * logdet)
        return _Proposal(float(value), phi, np.zeros((0, 2)), inverse, left)

    def put(self, pair: list[int], value: _Proposal) -> None:
        """Put two features in."""
        self.phi[:, pair] = value.phi


def _regression(
    phi: FloatArray, Y: FloatArray, noise: float
) -> _OneRegression | _SteepRegression:
    steep = np.square(phi).sum() > _STEEP * noise
    return _SteepRegression(phi, Y, noise) if steep else _OneRegression(phi, Y, noise)


@dataclass(frozen=True)
class _Joint:
    """Proposals of one frequency in all regressions of a view."""

    parts: list[_Proposal]

    @property
    def log_marginal(self) -> float:
        return sum(part.log_marginal for part in self.parts)


class WeightsIntegrated:
    """The frequencies of a Gaussian view with all weights integrated out, given the noise variance.

    Parameters
    ----------
    x : ndarray of shape (N, D)
    amplitude : ndarray of shape (H,)
    parts : sequence of (rows, regression)
        Rows that each regression observes.
    """

    def __init__(
        self,
        x: FloatArray,
        amplitude: FloatArray,
        parts: Sequence[tuple[IntArray, _OneRegression | _SteepRegression]],
    ) -> None:
        self.x = x
        self.amplitude = amplitude
        self.parts = parts

    @classmethod
    def of(
        cls,
        x: FloatArray,
        points: FloatArray,
        amplitude: FloatArray,
        patterns: Sequence[tuple[IntArray, FloatArray]],
        noise: float,
    ) -> Self:
        """Build the regressions.

        Parameters
        ----------
        x : ndarray of shape (N, D)
        points : ndarray of shape (H, D)
        amplitude : ndarray of shape (H,)
        patterns : sequence of (rows of shape (n,), values of shape (n, m))
            Columns that are observed in the same rows.
        noise : float
            Noise variance.
        """
        phi = features(x, points, amplitude)
        parts = [(rows, _regression(phi[rows], Y, noise)) for rows, Y in patterns]
        return cls(x, amplitude, parts)

    def without(self, h: int, point: FloatArray) -> Callable[[FloatArray], _Joint]:  # noqa: ARG002
        """Leave a frequency out of every regression."""
        for _, regression in self.parts:
            regression.without(self._pair(h))

        def likelihood(proposed: FloatArray) -> _Joint:
            phi = features(self.x, proposed[None], self.amplitude[h : h + 1])
            return _Joint([regression.propose(phi[rows]) for rows, regression in self.parts])

        return likelihood

    def put(self, h: int, value: _Joint) -> None:
        """Put a frequency into every regression."""
        for (_, regression), proposal in zip(self.parts, value.parts, strict=True):
            regression.put(self._pair(h), proposal)

    def _pair(self, h: int) -> list[int]:
        return [h, len(self.amplitude) + h]
