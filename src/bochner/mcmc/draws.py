"""Keyed sources of randomness and draws that NumPy lacks.

A key is (seed, purpose, counters such as chain and sweep). A chain that was stopped and resumed
therefore draws the same numbers as one that was not: no generator's state is stored.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from bochner import random
from bochner.data.arrays import Float64Array


def source(seed: int, purpose: str, *counters: int) -> Generator:
    """Return a generator that depends on the key alone.

    Parameters
    ----------
    seed : int
    purpose : str
        The block that draws.
    *counters : int
        Chain, sweep, view.

    Returns
    -------
    numpy.random.Generator
    """
    key = random.key(seed, f"mcmc/{purpose}", *counters)
    return np.random.Generator(np.random.Philox(key))


def categorical(log_weights: Float64Array, rng: Generator) -> int:
    """Draw an index with probability proportional to exp(log_weights), shape (C,)."""
    weights = np.exp(log_weights - log_weights.max())
    steps = np.cumsum(weights)
    index = np.searchsorted(steps, rng.random() * steps[-1], side="right")
    return min(int(index), len(steps) - 1)


def inverse_gamma(shape: float, rate: float, rng: Generator) -> float:
    """Draw from the inverse gamma distribution, density proportional to
    x^(-shape - 1) exp(-rate / x).
    """
    return float(rate / rng.gamma(shape))


def inverse_wishart(scale: Float64Array, degrees: float, rng: Generator) -> Float64Array:
    """Draw a covariance from the inverse Wishart distribution by Bartlett's decomposition.

    Parameters
    ----------
    scale : ndarray of shape (D, D)
        Positive definite; the mean is scale / (degrees - D - 1).
    degrees : float
        More than D - 1.
    rng : Generator

    Returns
    -------
    ndarray of shape (D, D)
    """
    size = scale.shape[0]
    bartlett = np.zeros((size, size))
    below = np.tril_indices(size, -1)
    bartlett[below] = rng.standard_normal(len(below[0]))
    chi_squares = rng.chisquare(degrees - np.arange(size))
    np.fill_diagonal(bartlett, np.sqrt(chi_squares))
    root = np.linalg.cholesky(scale)
    factor = np.linalg.solve(bartlett, root.T).T
    return np.asarray(factor @ factor.T)
