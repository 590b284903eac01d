"""Moves of latents, frequencies and weights together that leave every psi as it is.

Latents and frequencies see each other through w^T x only. X B with W B^-T has the same psi for any
invertible B, and so has x + t with each pair of weights rotated by the angle w^T t: along these
directions nothing but the priors holds a state, and updates of one given the other are slow there.

The moves are those of Liu and Sabatti (2000): along a group of transformations, a draw from the
density times the Jacobian leaves the posterior invariant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator
from scipy.linalg import expm

from bochner.data.arrays import Float64Array
from bochner.mcmc.conditionals.mixture import Scatter
from bochner.mcmc.conditionals.slices import slice_sample
from bochner.mcmc.conditionals.views import ViewModel, ViewState

Views = tuple[ViewState, ...]

# Directions per sweep and block of dimensions: a move costs no likelihood.
_DIRECTIONS = 3


def translated(
    x: Float64Array, states: Views, models: Sequence[ViewModel], rng: Generator
) -> tuple[Float64Array, Views]:
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


def _rotated(view: ViewModel, state: ViewState, step: Float64Array) -> ViewState:
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
    """X exp(u G) in a block of dimensions, and the frequencies against it.

    Sums over rows and over frequencies hold all that their densities depend on: the cost of a
    value of u does not grow with either number.

    Attributes
    ----------
    gram : ndarray of shape (B, B)
        X^T X of the block.
    scatters : list of Scatter
        Of each view that sees the block.
    columns : list of list of int
        Where the block is among the dimensions of each of these views.
    before : ndarray of shape (B, B)
        Map by which earlier directions moved the block.
    direction : ndarray of shape (B, B)
        G.
    size : int
        Rows less frequencies: exponent of the Jacobian.
    """

    gram: Float64Array
    scatters: list[Scatter]
    columns: list[list[int]]
    before: Float64Array
    direction: Float64Array
    size: int

    def at(self, u: float) -> Float64Array:
        """Return the map of the block's latents."""
        return np.asarray(self.before @ expm(u * self.direction))

    def log_density(self, logs: Float64Array) -> Float64Array:
        """Return the log density of priors and Jacobian up to a constant, (1,) -> (1,)."""
        u = float(logs[0])
        forward = self.at(u)
        back: Float64Array = np.asarray(np.linalg.inv(forward), dtype=np.float64)
        value = self.size * u * np.trace(self.direction)
        value -= 0.5 * (forward * (self.gram @ forward)).sum()
        for scatter, columns in zip(self.scatters, self.columns, strict=True):
            value += scatter.log_density(_embedded(back, columns, scatter.dim))
        return np.array([value])


def _embedded(part: Float64Array, columns: list[int], dim: int) -> Float64Array:
    """Return the map of all dimensions of a view that moves a block of them."""
    whole = np.eye(dim)
    whole[np.ix_(columns, columns)] = part
    return whole


def stretched(
    x: Float64Array,
    states: Views,
    models: Sequence[ViewModel],
    block: Sequence[int],
    rng: Generator,
) -> tuple[Float64Array, Views]:
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
    seeing = [v for v, view in enumerate(models) if index[0] in view.dims]
    scatters = [
        Scatter.of(states[v].points, states[v].labels, models[v].component_prior)
        for v in seeing
    ]
    columns = [[models[v].dims.index(d) for d in index] for v in seeing]
    size = len(x) - sum(len(states[v].points) for v in seeing)
    gram = x[:, index].T @ x[:, index]
    width = 1.0 / np.sqrt(len(x))
    forward = np.eye(len(index))
    for _ in range(_DIRECTIONS):
        direction = rng.standard_normal(forward.shape)
        stretch = _Stretch(gram, scatters, columns, forward, direction, size)
        u = slice_sample(np.zeros(1), stretch.log_density, rng, width)
        forward = stretch.at(float(u[0]))
    back = np.linalg.inv(forward)
    x = x.copy()
    x[:, index] = x[:, index] @ forward
    moved = list(states)
    for v, of_view in zip(seeing, columns, strict=True):
        points = states[v].points.copy()
        points[:, of_view] = points[:, of_view] @ back.T
        moved[v] = models[v].update_components(replace(states[v], points=points), rng)
    return x, tuple(moved)
