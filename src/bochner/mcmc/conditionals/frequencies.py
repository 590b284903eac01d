"""Updates of the frequencies, one after the other, with weights integrated out.

A proposed frequency is then not tied to weights that were drawn for the present one. Where the
likelihood is Gaussian and few patterns of entries are missing, all weights are integrated out
(`WeightsIntegrated`). Elsewhere it is the two weights of the frequency given those of the others
(`GivenOtherWeights`): the likelihood of a proposal costs products with two features only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol, Self, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.random import Generator
from scipy.linalg import lapack

from bochner.data.arrays import Float64Array, IntArray
from bochner.mcmc.conditionals.mixture import Components
from bochner.mcmc.conditionals.slices import shrinking_angles
from bochner.mcmc.conditionals.weights import GaussianForm, Pair, pairs
from bochner.mcmc.features import features


class Marginal(Protocol):
    """What a frequency is worth."""

    @property
    def log_marginal(self) -> float:
        """Log likelihood with weights integrated out, up to what no frequency changes."""


Value = TypeVar("Value", bound=Marginal)
# Frequencies, shape (k, D), to what each of them is worth.
Likelihoods: TypeAlias = Callable[[Float64Array], Sequence[Value]]
# Angles of an ellipse that are looked at together: a pass over the other features costs little
# more for some frequencies than for one, and a move takes some ten of them where data are many.
_TOGETHER = 4


class FrequencyKernel(Protocol):
    """A Markov kernel of one frequency."""

    def __call__(
        self,
        point: Float64Array,
        mean: Float64Array,
        root: Float64Array,
        likelihoods: Likelihoods[Value],
        rng: Generator,
        /,
    ) -> tuple[Float64Array, Value, bool]:
        """Return the next frequency, its likelihood, and whether it moved.

        ``mean`` and ``root``, the Cholesky factor of the covariance, are those of its component.
        """


def metropolis(
    point: Float64Array,
    mean: Float64Array,
    root: Float64Array,
    likelihoods: Likelihoods[Value],
    rng: Generator,
) -> tuple[Float64Array, Value, bool]:
    """Propose from the component: the ratio is that of the likelihoods."""
    proposal = mean + root @ rng.standard_normal(mean.shape[0])
    here, there = likelihoods(np.stack([point, proposal]))
    if np.log(rng.random()) < there.log_marginal - here.log_marginal:
        return proposal, there, True
    return point, here, False


def elliptical_slice(
    point: Float64Array,
    mean: Float64Array,
    root: Float64Array,
    likelihoods: Likelihoods[Value],
    rng: Generator,
) -> tuple[Float64Array, Value, bool]:
    """Move on an ellipse through the present point and a draw of the component: always moves.

    Notes
    -----
    Murray, Adams and MacKay (2010). The angles that follow if all are refused do not depend on
    likelihoods: some are looked at together, and the first that is accepted is taken.
    """
    noise = root @ rng.standard_normal(mean.shape[0])

    def at(angles: Sequence[float]) -> Float64Array:
        turn = np.array(angles)[:, None]
        return np.asarray(mean + (point - mean) * np.cos(turn) + noise * np.sin(turn))

    angles = shrinking_angles(rng)
    tried = list(islice(angles, _TOGETHER - 1))
    here, *values = likelihoods(at([0.0, *tried]))
    level = here.log_marginal - rng.standard_exponential()
    while True:
        for angle, value in zip(tried, values, strict=True):
            if value.log_marginal >= level:
                return at([angle])[0], value, True
        tried = list(islice(angles, _TOGETHER))
        if not tried:
            return point, here, True
        values = list(likelihoods(at(tried)))


KERNELS: dict[str, FrequencyKernel] = {"slice": elliptical_slice, "metropolis": metropolis}


class Regression(Protocol[Value]):
    """The other frequencies of a view, one left out at a time; changed in place."""

    def without(self, h: int, point: Float64Array) -> Likelihoods[Value]:
        """Leave frequency h out, and return the likelihoods of what may stand there."""

    def put(self, h: int, value: Value) -> None:
        """Put a frequency there, by its likelihood."""


def update_frequencies(
    points: Float64Array,
    labels: IntArray,
    components: Components,
    regression: Regression[Value],
    kernel: FrequencyKernel,
    rng: Generator,
) -> tuple[Float64Array, float]:
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
        likelihoods = regression.without(h, points[h])
        mean = components.means[k]
        root = components.roots[k]
        points[h], value, moved = kernel(points[h], mean, root, likelihoods, rng)
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
        x: Float64Array,
        amplitude: Float64Array,
        weights: Float64Array,
        psi: Float64Array,
        form: GaussianForm,
        rng: Generator,
    ) -> None:
        self.x = x
        self.amplitude = amplitude
        self.weights = weights.copy()
        self.precision = form.precision
        self.rng = rng
        self.score = form.linear - form.precision * psi

    def without(self, h: int, point: Float64Array) -> Likelihoods[Pair]:
        """Take the pair out of psi."""
        amplitude = self.amplitude[h]
        phi = features(self.x, point[None], np.array([amplitude]))
        self.score += self.precision * (phi @ self.weights[self._pair(h)])

        def likelihoods(proposed: Float64Array) -> list[Pair]:
            phi = features(self.x, proposed, np.full(len(proposed), amplitude))
            return pairs(phi.T.reshape(2, len(proposed), -1), self.score, self.precision)

        return likelihoods

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
    inside : ndarray of shape (K, 2)
        Coefficients of the projection of cosine and sine onto the others.
    rest : ndarray of shape (2, n + K)
        What is orthogonal to the others.
    """

    log_marginal: float
    inside: Float64Array
    rest: Float64Array


class _Regression:
    """Columns that are observed in the same rows, weights integrated out.

    Features with the square roots of their prior below them, (n + K, K), have an orthonormal
    basis. What a frequency is worth depends on what is orthogonal to those of the others, which no
    difference of large numbers has to yield: it is as exact where the noise is small and where
    long waves make features nearly the same.
    """

    def __init__(self, phi: Float64Array, Y: Float64Array, noise: float) -> None:
        self.Y = Y
        self.noise = noise
        self.root = np.sqrt(noise)
        self.n_rows, size = phi.shape
        prior = self.root * np.eye(size)
        self.basis, self.coefficients = np.linalg.qr(np.vstack([phi, prior]))
        self.own = np.zeros((size, 0))

    def without(self, pair: list[int]) -> None:
        """Leave two features out: their own directions of the basis are orthogonal to all
        others.
        """
        # the rows of the priors are the inverse of the coefficients times their square root
        inverse = self.basis[self.n_rows :]
        own, _ = _orthonormal(inverse[pair].T)
        left = self.coefficients.T @ own
        left[pair] = 0.0
        self.own, _ = _orthonormal(own - inverse.T @ left / self.root)

    def _on_others(self, columns: Float64Array) -> Float64Array:
        """Return coefficients of the projection onto the features that are left."""
        inside = self.basis[: len(columns)].T @ columns
        return np.asarray(inside - self.own @ (self.own.T @ inside))

    def propose(self, phi: Float64Array) -> list[_Proposal]:
        """Return what frequencies are worth; all cosines, (n, k), then all sines."""
        n, k = len(phi), phi.shape[1] // 2
        inside = self._on_others(phi)
        rest = -inside.T @ self.basis.T
        rest[:, :n] += phi.T
        cosine, sine = rest[:k], rest[k:]
        first = np.einsum("kn,kn->k", cosine, cosine) / self.noise + 1.0
        second = np.einsum("kn,kn->k", sine, sine) / self.noise + 1.0
        off = np.einsum("kn,kn->k", cosine, sine) / self.noise
        left = rest[:, :n] @ self.Y / self.noise
        # the Cholesky factor of [[first, off], [off, second]]
        slope = off / first
        remainder = second - slope * off
        square = np.square(left[:k]).sum(1) / first
        square += np.square(left[k:] - slope[:, None] * left[:k]).sum(1) / remainder
        values = 0.5 * (square - self.Y.shape[1] * np.log(first * remainder))
        return [
            _Proposal(float(value), inside[:, [i, k + i]], rest[[i, k + i]])
            for i, value in enumerate(values)
        ]

    def put(self, pair: list[int], value: _Proposal) -> None:
        """Put two features in: what is orthogonal to the others replaces the own directions."""
        rest = value.rest.copy()
        # the priors are orthogonal to the others: these have none there
        rest[[0, 1], [self.n_rows + at for at in pair]] += self.root
        # twice is enough (Giraud, Langou and Rozložník 2005), of unit vectors: where what is left
        # of cosine and sine is nearly the same, the first basis is not orthogonal to the others
        new, root = _orthonormal(rest.T)
        more = self._on_others(new)
        new, turn = _orthonormal(new - self.basis @ more)
        change = torch.from_numpy(new - self.basis @ self.own)
        torch.from_numpy(self.basis).addmm_(change, torch.from_numpy(self.own).T)
        self.coefficients[:, pair] = value.inside + (more + self.own @ turn) @ root


def _orthonormal(columns: Float64Array) -> tuple[Float64Array, Float64Array]:
    """Return an orthonormal basis of two columns, (n, 2), and the columns in it, (2, 2)."""
    # a fifth of the time of numpy.linalg.qr
    reflections, scales, _, _ = lapack.dgeqrf(columns)
    basis, _, _ = lapack.dorgqr(reflections, scales)
    root = reflections[:2].copy()
    root[1, 0] = 0.0
    return basis, root


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
        x: Float64Array,
        amplitude: Float64Array,
        parts: Sequence[tuple[IntArray | slice, _Regression]],
    ) -> None:
        self.x = x
        self.amplitude = amplitude
        self.parts = parts

    @classmethod
    def of(
        cls,
        x: Float64Array,
        points: Float64Array,
        amplitude: Float64Array,
        patterns: Sequence[tuple[IntArray | slice, Float64Array]],
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
        parts = [(rows, _Regression(phi[rows], Y, noise)) for rows, Y in patterns]
        return cls(x, amplitude, parts)

    def without(self, h: int, point: Float64Array) -> Likelihoods[_Joint]:  # noqa: ARG002
        """Leave a frequency out of every regression."""
        for _, regression in self.parts:
            regression.without(self._pair(h))

        def likelihoods(proposed: Float64Array) -> list[_Joint]:
            phi = features(self.x, proposed, np.full(len(proposed), self.amplitude[h]))
            parts = [regression.propose(phi[rows]) for rows, regression in self.parts]
            return [_Joint(list(of_point)) for of_point in zip(*parts, strict=True)]

        return likelihoods

    def put(self, h: int, value: _Joint) -> None:
        """Put a frequency into every regression."""
        for (_, regression), proposal in zip(self.parts, value.parts, strict=True):
            regression.put(self._pair(h), proposal)

    def _pair(self, h: int) -> list[int]:
        return [h, len(self.amplitude) + h]
