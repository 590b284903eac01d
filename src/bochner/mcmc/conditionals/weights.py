"""The weights given latents, frequencies and a Gaussian form of the likelihood.

Every likelihood here is Gaussian in psi once its auxiliary variables are given: up to a constant
log p = linear * psi - precision * psi^2 / 2 at each entry, both 0 where the entry is missing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from scipy.linalg import solve_triangular

from bochner.data.arrays import Float64Array


@dataclass(frozen=True)
class GaussianForm:
    """The likelihood as a quadratic function of psi.

    Attributes
    ----------
    linear, precision : ndarray of shape (N, M)
    """

    linear: Float64Array
    precision: Float64Array


@dataclass(frozen=True)
class WeightPosterior:
    """Normal distribution of the weights of every column.

    Attributes
    ----------
    mean : ndarray of shape (K, M)
    root : ndarray of shape (M, K, K)
        Lower Cholesky factors of the precisions.
    """

    mean: Float64Array
    root: Float64Array

    def draw(self, rng: Generator) -> Float64Array:
        """Draw the weights, shape (K, M)."""
        noise = rng.standard_normal(self.mean.T.shape)
        steps = [
            solve_triangular(root, normal, lower=True, trans="T", check_finite=False)
            for root, normal in zip(self.root, noise, strict=True)
        ]
        return np.asarray(self.mean + np.stack(steps, axis=1))

    def covariances(self) -> Float64Array:
        """Return the covariance of every column's weights, shape (M, K, K)."""
        eye = np.eye(self.mean.shape[0])
        inverses = [solve_triangular(root, eye, lower=True) for root in self.root]
        return np.stack([inverse.T @ inverse for inverse in inverses])


def weight_posterior(phi: Float64Array, form: GaussianForm) -> WeightPosterior:
    """Return the posterior of the weights, whose prior is standard normal.

    Parameters
    ----------
    phi : ndarray of shape (N, K)
    form : GaussianForm

    Returns
    -------
    WeightPosterior
    """
    eye = np.eye(phi.shape[1])
    # column by column: (M, N, K) at once would be large
    gram = [phi.T @ (precision[:, None] * phi) + eye for precision in form.precision.T]
    root = np.linalg.cholesky(np.stack(gram))
    linear = phi.T @ form.linear
    mean = [_solve(factor, shift) for factor, shift in zip(root, linear.T, strict=True)]
    return WeightPosterior(np.stack(mean, axis=1), root)


def _solve(root: Float64Array, right: Float64Array) -> Float64Array:
    half = solve_triangular(root, right, lower=True, check_finite=False)
    return np.asarray(solve_triangular(root, half, lower=True, trans="T", check_finite=False))


@dataclass(frozen=True)
class Pair:
    """The two weights (cosine and sine) that one frequency has in every column, given the others.

    Attributes
    ----------
    log_marginal : float
        Log likelihood with the pair integrated out, up to what no frequency changes.
    first, cross, second : ndarray of shape (M,)
        Entries of the 2 x 2 posterior precision.
    linear : ndarray of shape (2, M)
    phi : ndarray of shape (2, N)
        Features of the frequency.
    """

    log_marginal: float
    first: Float64Array
    cross: Float64Array
    second: Float64Array
    linear: Float64Array
    phi: Float64Array

    def draw(self, rng: Generator) -> Float64Array:
        """Draw the pair, shape (2, M)."""
        noise = rng.standard_normal(self.linear.shape)
        # Cholesky factor of the precision: [[a, 0], [b, c]]
        a = np.sqrt(self.first)
        b = self.cross / a
        c = np.sqrt(self.second - b * b)
        low = (self.linear[1] - b * self.linear[0] / a) / c
        two = (low + noise[1]) / c
        one = (self.linear[0] / a + noise[0] - b * two) / a
        return np.stack([one, two])


def pairs(phi: Float64Array, score: Float64Array, precision: Float64Array) -> list[Pair]:
    """Integrate the weights of frequencies out, each beside the same others.

    Parameters
    ----------
    phi : ndarray of shape (2, k, N)
        Features of k frequencies: cosines, sines.
    score : ndarray of shape (N, M)
        linear - precision * psi, psi without the pair.
    precision : ndarray of shape (N, M)

    Returns
    -------
    list of Pair
    """
    cosine, sine = phi
    products = np.stack([cosine * cosine, cosine * sine, sine * sine])
    # one pass over the entries for all
    first, cross, second = np.tensordot(products, precision, axes=1)
    first += 1.0
    second += 1.0
    linear = np.tensordot(phi, score, axes=1)
    det = first * second - cross * cross
    square = second * linear[0] ** 2 - 2.0 * cross * linear[0] * linear[1]
    square = (square + first * linear[1] ** 2) / det
    values = 0.5 * (square - np.log(det)).sum(1)
    return [
        Pair(float(value), first[i], cross[i], second[i], linear[:, i], phi[:, i])
        for i, value in enumerate(values)
    ]
