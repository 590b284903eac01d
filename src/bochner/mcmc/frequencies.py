"""Updates of the frequencies, one after the other, with their own pair of weights integrated
out.

A frequency and its weights are drawn together given the weights of the others: the likelihood of
a proposed frequency then costs products with two features only, and the proposal is not tied to
weights that were drawn for the present frequency.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.random import Generator

from bochner.mcmc.draws import FloatArray, IntArray
from bochner.mcmc.mixture import Components
from bochner.mcmc.slices import elliptical
from bochner.mcmc.weights import GaussianForm, Pair


class PairLikelihood(Protocol):
    """The marginal likelihood of one frequency, its weights integrated out."""

    def __call__(self, point: FloatArray, /) -> Pair:
        """Return the pair at a frequency of shape (D,)."""


class FrequencyKernel(Protocol):
    """A Markov kernel of one frequency."""

    def __call__(
        self,
        point: FloatArray,
        mean: FloatArray,
        root: FloatArray,
        likelihood: PairLikelihood,
        rng: Generator,
        /,
    ) -> tuple[FloatArray, Pair, bool]:
        """Return the next frequency, its pair, and whether it moved.

        ``mean`` and ``root``, the Cholesky factor of the covariance, are those of its component.
        """


def metropolis(
    point: FloatArray,
    mean: FloatArray,
    root: FloatArray,
    likelihood: PairLikelihood,
    rng: Generator,
) -> tuple[FloatArray, Pair, bool]:
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
    likelihood: PairLikelihood,
    rng: Generator,
) -> tuple[FloatArray, Pair, bool]:
    """Move on an ellipse through the present point and a draw of the component: always moves."""
    last: list[Pair] = []

    def log_likelihood(shifted: FloatArray, rows: IntArray) -> FloatArray:  # noqa: ARG001
        last[:] = [likelihood(mean + shifted[0])]
        return np.array([last[0].log_marginal])

    noise = root @ rng.standard_normal(mean.shape[0])
    moved, _ = elliptical((point - mean)[None], noise[None], log_likelihood, rng)
    return mean + moved[0], last[0], True


KERNELS: dict[str, FrequencyKernel] = {"slice": elliptical_slice, "metropolis": metropolis}


@dataclass(frozen=True)
class Sweep:
    """What an update of all frequencies returns.

    Attributes
    ----------
    points : ndarray of shape (H, D)
    weights : ndarray of shape (K, M)
    acceptance : float
        Share of the frequencies that moved.
    """

    points: FloatArray
    weights: FloatArray
    acceptance: float


@dataclass(frozen=True)
class _OnePoint:
    """The likelihood of one frequency; ``score`` is changed in place."""

    x: FloatArray
    amplitude: float
    score: FloatArray
    precision: FloatArray

    def features(self, point: FloatArray) -> FloatArray:
        phase = self.x @ point
        return np.asarray(self.amplitude * np.stack([np.cos(phase), np.sin(phase)]))

    def add(self, point: FloatArray, weights: FloatArray) -> None:
        """Add to the score what psi loses without these weights."""
        step = self.features(point).T @ weights
        self.score[:] += self.precision * step

    def __call__(self, point: FloatArray) -> Pair:
        return Pair.of(self.features(point), self.score, self.precision)


def update_frequencies(
    x: FloatArray,
    points: FloatArray,
    amplitude: FloatArray,
    weights: FloatArray,
    psi: FloatArray,
    form: GaussianForm,
    labels: IntArray,
    components: Components,
    kernel: FrequencyKernel,
    rng: Generator,
) -> Sweep:
    """Update every frequency that has a label, and its weights.

    Parameters
    ----------
    x : ndarray of shape (N, D)
    points : ndarray of shape (P, D)
        The first H have labels; further ones stay as they are.
    amplitude : ndarray of shape (P,)
    weights : ndarray of shape (2 P, M)
    psi : ndarray of shape (N, M)
        At these weights, offsets included.
    form : GaussianForm
    labels : ndarray of shape (H,)
    components : Components
    kernel : FrequencyKernel
    rng : Generator

    Returns
    -------
    Sweep
    """
    points, weights = points.copy(), weights.copy()
    size, moves = points.shape[0], 0
    score = form.linear - form.precision * psi

    for h, k in enumerate(labels):
        own = [h, size + h]
        likelihood = _OnePoint(x, amplitude[h], score, form.precision)
        likelihood.add(points[h], weights[own])
        mean, root = components.means[k], components.roots[k]
        points[h], pair, moved = kernel(points[h], mean, root, likelihood, rng)
        weights[own] = pair.draw(rng)
        likelihood.add(points[h], -weights[own])
        moves += moved
    return Sweep(points, weights, moves / len(labels))
