"""Moves of latents, frequencies and weights together that leave every psi as it is.

Latents and frequencies see each other through w^T x only. X B with W B^-T has the same psi for any
invertible B, and so has x + t with each pair of weights rotated by the angle w^T t: along these
directions nothing but the priors holds a state, and updates of one given the other are slow there.

The moves are those of Liu and Sabatti (2000): along a group of transformations, a draw from the
density times the Jacobian leaves the posterior invariant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator
from scipy.linalg import expm

from bochner.mcmc.conditionals import mixture
from bochner.mcmc.conditionals.slices import slice_sample
from bochner.mcmc.conditionals.views import ViewModel, ViewState
from bochner.mcmc.draws import FloatArray

Views = tuple[ViewState, ...]

# Directions per sweep and block of dimensions: a move costs no likelihood.
_DIRECTIONS = 3


def translated(
    x: FloatArray, states: Views, models: Sequence[ViewModel], rng: Generator
) -> tuple[FloatArray, Views]:
    """Draw the mean of all latents from its prior, the weights rotated so that no psi changes.

    Parameters
    ----------
    x : ndarray of shape (N, D)
    states : tuple of ViewState
    models : sequence of ViewModel
    rng : Generator

    Returns
    -------
    x : ndarray of shape (N, D)
    states : tuple of ViewState
    """
    step = rng.standard_normal(x.shape[1]) / np.sqrt(len(x)) - x.mean(0)
    pairs = zip(models, states, strict=True)
    return x + step, tuple(_rotated(view, of_view, step) for view, of_view in pairs)


def _rotated(view: ViewModel, state: ViewState, step: FloatArray) -> ViewState:
    """Rotate every pair of weights by the phase that a step of the latents adds."""
    points, _ = view.spectrum(state)
    phase = (points @ step[list(view.dims)])[:, None]
    first, second = np.split(state.weights, 2)
    weights = [
        np.cos(phase) * first - np.sin(phase) * second,
        np.sin(phase) * first + np.cos(phase) * second,
    ]
    return replace(state, weights=np.concatenate(weights))


@dataclass(frozen=True)
class _Stretch:
    """X exp(u G) in a block of dimensions, and the frequencies against it."""

    x: FloatArray
    points: list[FloatArray]
    direction: FloatArray
    log_points: list[Callable[[FloatArray], float]]
    columns: list[list[int]]

    def at(self, u: float) -> tuple[FloatArray, list[FloatArray]]:
        """Return the block's latents and every view's frequencies."""
        forward = expm(u * self.direction)
        back = np.linalg.inv(forward)
        moved = []
        for points, columns in zip(self.points, self.columns, strict=True):
            out = points.copy()
            out[:, columns] = points[:, columns] @ back.T
            moved.append(out)
        return self.x @ forward, moved

    def log_density(self, logs: FloatArray) -> FloatArray:
        """Return the log density of priors and Jacobian, (1,) -> (1,)."""
        x, moved = self.at(float(logs[0]))
        size = len(x) - sum(len(points) for points in moved)
        value = size * logs[0] * np.trace(self.direction) - 0.5 * np.square(x).sum()
        pairs = zip(self.log_points, moved, strict=True)
        return np.array([value + sum(density(points) for density, points in pairs)])


def stretched(
    x: FloatArray,
    states: Views,
    models: Sequence[ViewModel],
    block: Sequence[int],
    rng: Generator,
) -> tuple[FloatArray, Views]:
    """Move latents and frequencies along random linear maps of a block of dimensions, the
    components integrated out; they are drawn again at the end.

    Parameters
    ----------
    x : ndarray of shape (N, D)
    states : tuple of ViewState
    models : sequence of ViewModel
    block : sequence of int
        Dimensions that the same views see.
    rng : Generator

    Returns
    -------
    x : ndarray of shape (N, D)
    states : tuple of ViewState
    """
    index = list(block)
    x = x.copy()
    moved = list(states)
    seeing = [v for v, view in enumerate(models) if index[0] in view.dims]
    columns = [[models[v].dims.index(d) for d in index] for v in seeing]
    densities = [_density(models[v], states[v]) for v in seeing]
    width = 1.0 / np.sqrt(len(x))
    for _ in range(_DIRECTIONS):
        direction = rng.standard_normal((len(index), len(index)))
        points = [moved[v].points for v in seeing]
        stretch = _Stretch(x[:, index], points, direction, densities, columns)
        u = slice_sample(np.zeros(1), stretch.log_density, rng, width)
        x[:, index], points = stretch.at(float(u[0]))
        for v, of_view in zip(seeing, points, strict=True):
            moved[v] = replace(moved[v], points=of_view)
    for v in seeing:
        moved[v] = models[v].update_components(moved[v], rng)
    return x, tuple(moved)


def _density(view: ViewModel, state: ViewState) -> Callable[[FloatArray], float]:
    return lambda points: mixture.log_points(points, state.labels, view.component_prior)
