"""Updates of the latents: sampled, or set to the mode of their conditional density."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.random import Generator
from scipy.optimize import fmin_l_bfgs_b

from bochner.data.arrays import Float64Array, IntArray
from bochner.mcmc.conditionals.slices import elliptical

Objective = Callable[[Float64Array], tuple[float, Float64Array]]

# Steps of L-BFGS per sweep; the mode moves with everything else, so that more would be wasted.
_MODE_STEPS = 20
_LEAPFROG = (5, 15)


def sample_rows(
    x: Float64Array,
    log_likelihood: Callable[[Float64Array, IntArray], Float64Array],
    rng: Generator,
    n_steps: int,
) -> Float64Array:
    """Update every row by elliptical slice sampling given the weights: rows are independent then.

    Parameters
    ----------
    x : ndarray of shape (N, D)
    log_likelihood : callable
        Rows (n, D) and their numbers (n,) -> (n,).
    rng : Generator
    n_steps : int
        Updates of every row.

    Returns
    -------
    ndarray of shape (N, D)
    """
    value = None
    for _ in range(n_steps):
        x, value = elliptical(x, rng.standard_normal(x.shape), log_likelihood, rng, value)
    return x


def hamiltonian(
    x: Float64Array, objective: Objective, step: float, rng: Generator
) -> tuple[Float64Array, float]:
    """Update all rows jointly by a Hamiltonian trajectory; the prior is standard normal.

    Parameters
    ----------
    x : ndarray of shape (N, D)
    objective : callable
        Latents -> log likelihood and its gradient.
    step : float
        Of the leapfrog integrator.
    rng : Generator

    Returns
    -------
    x : ndarray of shape (N, D)
    acceptance : float
        Probability with which the end of the trajectory was accepted.

    Notes
    -----
    Neal (2011).
    """
    momentum = rng.standard_normal(x.shape)
    n_steps = int(rng.integers(*_LEAPFROG, endpoint=True))
    value, slope = _with_prior(objective, x)
    start = value - 0.5 * np.square(momentum).sum()
    end = x
    momentum = momentum + 0.5 * step * slope
    for i in range(n_steps):
        end = end + step * momentum
        value, slope = _with_prior(objective, end)
        momentum = momentum + (step if i < n_steps - 1 else 0.5 * step) * slope
    change = value - 0.5 * np.square(momentum).sum() - start
    # a diverged trajectory has a change of minus infinity, or none that is a number
    acceptance = float(np.exp(min(change, 0.0))) if np.isfinite(change) else 0.0
    return (end if rng.random() < acceptance else x), acceptance


def mode(x: Float64Array, objective: Objective) -> Float64Array:
    """Return latents of a higher conditional density, by L-BFGS from the present ones."""

    def negative(flat: Float64Array) -> tuple[float, Float64Array]:
        value, slope = _with_prior(objective, flat.reshape(x.shape))
        return -value, -slope.ravel()

    optimum, _, _ = fmin_l_bfgs_b(negative, x.ravel(), maxiter=_MODE_STEPS)
    return np.asarray(optimum).reshape(x.shape)


def _with_prior(objective: Objective, x: Float64Array) -> tuple[float, Float64Array]:
    value, slope = objective(x)
    return value - 0.5 * float(np.square(x).sum()), slope - x


def align(x: Float64Array, reference: Float64Array) -> Float64Array:
    """Return the rotation or reflection R, (D, D), that brings x R nearest to the reference.

    The origin stays where it is: prior and kernels do not change under R, but do under shifts.
    """
    left, _, right = np.linalg.svd(x.T @ reference)
    return np.asarray(left @ right)
