"""The reference that densities of rows are compared with in benchmarks finds integrals that are
known.
"""

import math
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from annealed import integrals

ROWS, DIM = 3, 6


def _agree(result, expected):
    assert (result.error < 0.05).all()
    assert (np.abs(result.value - expected) < 4.0 * result.error).all()


def test_linear_gaussian_rows_have_their_density():
    source = np.random.default_rng(0)
    weights, noise = source.normal(size=(8, DIM)), 0.05
    x = source.normal(size=(ROWS, DIM))
    y = x @ weights.T + noise * source.normal(size=(ROWS, 8))

    def log_likelihood(rows, at):
        away = (y[rows, None] - at @ weights.T) / noise
        return -0.5 * (away**2).sum(-1) - 8 * math.log(noise * math.sqrt(2 * math.pi))

    covariance = weights @ weights.T + noise**2 * np.eye(8)
    expected = multivariate_normal(np.zeros(8), covariance).logpdf(y)
    _agree(integrals(log_likelihood, ROWS, DIM, 1), expected)


@pytest.mark.parametrize("known", [None, np.full((ROWS, DIM), 0.6)])
def test_modes_far_apart_have_their_shares(known):
    """Two modes twenty standard deviations apart, one three times as probable."""
    centres, width = np.stack([np.full(DIM, 0.6), np.full(DIM, -0.6)]), 0.15

    def log_likelihood(rows, at):
        away = (at[..., None, :] - centres) / width
        parts = -0.5 * (away**2).sum(-1) - DIM * math.log(width * math.sqrt(2 * math.pi))
        return logsumexp(parts + np.log([0.25, 0.75]), axis=-1)

    covariance = (1.0 + width**2) * np.eye(DIM)
    expected = multivariate_normal(np.zeros(DIM), covariance).logpdf(centres[0])
    _agree(integrals(log_likelihood, ROWS, DIM, 2, known), expected)
