"""Slice sampling: updates that leave a density invariant without a step size that must be tuned."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.random import Generator

from bochner.data.arrays import Float64Array, IntArray

# Steps out on each side at the most. Neal (2003): a limit keeps the update valid as long as it is
# divided at random between the sides.
_MOST_STEPS = 16
# Halvings of an interval or a bracket of angles: far beyond what float64 tells apart.
_MOST_SHRINKS = 200


def slice_sample(
    x: Float64Array,
    log_density: Callable[[Float64Array], Float64Array],
    rng: Generator,
    width: float = 1.0,
) -> Float64Array:
    """Update independent scalars by slice sampling with stepping out.

    Parameters
    ----------
    x : ndarray of shape (n,)
        Present values, each with a density of its own.
    log_density : callable
        (n,) -> (n,), up to constants; the i-th value depends on the i-th argument alone.
    rng : Generator
    width : float
        Of a step; affects speed only.

    Returns
    -------
    ndarray of shape (n,)

    Notes
    -----
    Neal (2003), figures 3 and 5.
    """
    level = log_density(x) - rng.standard_exponential(x.shape)
    low = x - width * rng.random(x.shape)
    high = low + width
    left = rng.integers(0, _MOST_STEPS, size=x.shape)
    low = _step_out(low, -width, left, level, log_density)
    high = _step_out(high, width, _MOST_STEPS - 1 - left, level, log_density)
    pending = np.ones(x.shape, dtype=bool)
    out = x.copy()
    for _ in range(_MOST_SHRINKS):
        proposal = np.where(pending, low + (high - low) * rng.random(x.shape), out)
        inside = pending & (log_density(proposal) >= level)
        out = np.where(inside, proposal, out)
        pending = pending & ~inside
        if not pending.any():
            break
        below = proposal < x
        low = np.where(pending & below, proposal, low)
        high = np.where(pending & ~below, proposal, high)
    return out


def _step_out(
    end: Float64Array,
    step: float,
    allowed: IntArray,
    level: Float64Array,
    log_density: Callable[[Float64Array], Float64Array],
) -> Float64Array:
    """Move ends of intervals outwards while they are inside the slice."""
    allowed = allowed.copy()
    while True:
        move = (allowed > 0) & (log_density(end) > level)
        if not move.any():
            return end
        end = np.where(move, end + step, end)
        allowed = allowed - move


def elliptical(
    x: Float64Array,
    noise: Float64Array,
    log_likelihood: Callable[[Float64Array, IntArray], Float64Array],
    rng: Generator,
    current: Float64Array | None = None,
) -> tuple[Float64Array, Float64Array]:
    """Update independent rows by elliptical slice sampling.

    Parameters
    ----------
    x, noise : ndarray of shape (n, D)
        Present rows less the mean of their normal prior, and a fresh draw of that prior less its
        mean.
    log_likelihood : callable
        Rows (k, D) and their numbers (k,) -> (k,).
    rng : Generator
    current : ndarray of shape (n,), optional
        The log likelihood at ``x``, where it is known.

    Returns
    -------
    x : ndarray of shape (n, D)
    value : ndarray of shape (n,)
        Its log likelihood.

    Notes
    -----
    Murray, Adams and MacKay (2010). Rows that are accepted drop out of the later evaluations.
    """
    every = np.arange(x.shape[0])
    value = log_likelihood(x, every) if current is None else current
    level = value - rng.standard_exponential(x.shape[0])
    angle = 2.0 * np.pi * rng.random(x.shape)[:, 0]
    low = angle - 2.0 * np.pi
    high = angle.copy()
    out = x.copy()
    values = value.copy()
    pending = every
    for _ in range(_MOST_SHRINKS):
        turn = angle[pending, None]
        proposal = x[pending] * np.cos(turn) + noise[pending] * np.sin(turn)
        at = log_likelihood(proposal, pending)
        inside = at >= level[pending]
        accepted = pending[inside]
        out[accepted] = proposal[inside]
        values[accepted] = at[inside]
        pending = pending[~inside]
        if not pending.size:
            break
        below = angle[pending] < 0.0
        low[pending] = np.where(below, angle[pending], low[pending])
        high[pending] = np.where(below, high[pending], angle[pending])
        spread = high[pending] - low[pending]
        angle[pending] = low[pending] + spread * rng.random(pending.size)
    return out, values


def shrinking_angles(rng: Generator) -> Iterator[float]:
    """Yield the angles of an elliptical slice, each as if the one before was refused."""
    angle = 2.0 * np.pi * rng.random()
    low, high = angle - 2.0 * np.pi, angle
    for _ in range(_MOST_SHRINKS):
        yield angle
        low, high = (angle, high) if angle < 0.0 else (low, angle)
        angle = low + (high - low) * rng.random()
