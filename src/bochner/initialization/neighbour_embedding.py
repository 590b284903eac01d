"""t-SNE of some thousand rows by its exact gradient, as a start.

The Barnes-Hut trees of scikit-learn win where rows are many. Up to some thousand the N x N kernel,
taken block by block while it is in a core's cache, costs half to two thirds of that a step; and a
start needs fewer steps: with a learning rate of N / 3 (that of Belkina et al. 2019 with the
gradient's factor of 4), 70 exaggerated and 180 others end where scikit-learn's 400 end: 4 % above
on 150 rows of iris, 0 to 13 % below on five larger tables (``benchmarks/starts.py``).
"""

from __future__ import annotations

import math

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

FloatArray = NDArray[np.float64]

# Rows up to which blocks of N x N are faster than trees; their affinities are 72 MB there.
MOST_ROWS = 6000
_EXAGGERATION = 12.0
_EXAGGERATED, _STEPS = 70, 250
# The learning rate over N.
_RATE = 1.0 / 3.0
# Steps of the search for a row's bandwidth, which halve its interval.
_HALVINGS = 40
# Rows of a block: with some thousand columns it stays in a cache.
_BLOCK = 256


def conditionals(squares: FloatArray, perplexity: float) -> FloatArray:
    """Return a row's probabilities of its neighbours, whose entropy is that of so many equal ones.

    Parameters
    ----------
    squares : ndarray of shape (N, k)
        Squared distances.
    perplexity : float
        At most k.

    Returns
    -------
    ndarray of shape (N, k)
        Rows sum to 1. Neighbours at one distance are all equal, more than the perplexity or not.
    """
    squares = squares - squares.min(axis=1, keepdims=True)
    squares = squares / np.maximum(squares.mean(axis=1, keepdims=True), 1e-300)
    low = np.zeros_like(squares[:, :1])
    high = np.full_like(squares[:, :1], np.inf)
    precision = np.ones_like(low)
    for _ in range(_HALVINGS):
        weights = np.exp(-precision * squares)
        total = weights.sum(axis=1, keepdims=True)
        entropy = (
            np.log(total) + precision * (weights * squares).sum(axis=1, keepdims=True) / total
        )
        wide = entropy > math.log(perplexity)
        low = np.where(wide, precision, low)
        high = np.where(wide, high, precision)
        precision = np.where(np.isinf(high), 2.0 * precision, 0.5 * (low + high))
    probabilities: FloatArray = weights / total
    return probabilities


def affinities(values: FloatArray, perplexity: float) -> sp.csr_matrix:
    """Return the joint probabilities of neighbours (van der Maaten and Hinton 2008).

    Parameters
    ----------
    values : ndarray of shape (N, M)
    perplexity : float
        At most (N - 1) / 3; three times as many neighbours count.

    Returns
    -------
    csr_matrix of shape (N, N)
        Symmetric, of sum 1, 0 on the diagonal.
    """
    n = values.shape[0]
    k = min(n - 1, int(3.0 * perplexity + 1.0))
    distances, index = NearestNeighbors(n_neighbors=k).fit(values).kneighbors()
    each = conditionals(distances**2, perplexity)
    rows = np.arange(0, n * k + 1, k)
    directed = sp.csr_matrix((each.ravel(), index.ravel(), rows), shape=(n, n))
    joint: sp.csr_matrix = (directed + directed.T) / (2.0 * n)
    return joint


class Forces:
    """The gradient of t-SNE's divergence, by blocks of the N x N kernel on and above its diagonal.

    Parameters
    ----------
    joint : csr_matrix of shape (N, N)
        Of ``affinities``.
    """

    def __init__(self, joint: sp.csr_matrix) -> None:
        self.n_rows = joint.shape[0]
        self._joint = [
            torch.from_numpy(joint[i : i + _BLOCK, i:].toarray()).float()
            for i in range(0, self.n_rows, _BLOCK)
        ]
        self._memory = torch.empty(2, min(_BLOCK, self.n_rows) * self.n_rows)

    def __call__(self, y: Tensor, exaggeration: float, total: float) -> tuple[Tensor, float]:
        """Return a quarter of the gradient, and the kernel's sum over all pairs.

        Parameters
        ----------
        y : Tensor of shape (D, N), float32
        exaggeration : float
            What affinities are multiplied by.
        total : float
            The kernel's sum over all pairs, of these points or of those a step before.

        Returns
        -------
        Tensor of shape (D, N), float
            The sum is that of these points.
        """
        one = torch.ones_like(y[:1])
        square = y.square().sum(0, keepdim=True)
        left = torch.cat([-2.0 * y, 1.0 + square, one])
        right = torch.cat([y, one, square])
        charges = torch.cat([y, one])
        sums = torch.zeros_like(charges)
        normaliser = 0.0
        for number, joint in enumerate(self._joint):
            begin = number * _BLOCK
            end = begin + joint.shape[0]
            # 1 / (1 + |y_i - y_j|^2)
            kernel = self._memory[0, : joint.numel()].view_as(joint)
            torch.mm(left[:, begin:end].T, right[:, begin:], out=kernel).reciprocal_()
            later = kernel[:, end - begin :]
            normaliser += float(kernel.sum()) + float(later.sum())
            # q (q - exaggeration p total): what pushes rows apart, less what pulls them together
            push = self._memory[1, : joint.numel()].view_as(joint)
            torch.add(kernel, joint, alpha=-exaggeration * total, out=push).mul_(kernel)
            sums[:, begin:].addmm_(charges[:, begin:end], push)
            sums[:, begin:end].addmm_(charges[:, end:], push[:, end - begin :].T)
        return (sums[:-1] - y * sums[-1]) / total, normaliser - self.n_rows


def embed(values: FloatArray, first: FloatArray, perplexity: float) -> FloatArray:
    """Return a t-SNE embedding.

    Parameters
    ----------
    values : ndarray of shape (N, M)
    first : ndarray of shape (N, D)
        Where it begins: small, of standard deviation 1e-4.
    perplexity : float

    Returns
    -------
    ndarray of shape (N, D)
    """
    forces = Forces(affinities(values, perplexity))
    y = torch.tensor(first.T, dtype=torch.float32)
    velocity = torch.zeros_like(y)
    gains = torch.ones_like(y)
    rate = _RATE * y.shape[1]
    # all points are at one place: the kernel is 1
    total = float(y.shape[1] * (y.shape[1] - 1))
    for step in range(_STEPS):
        early = step < _EXAGGERATED
        # the sum of the step before is close, and saves a pass
        gradient, total = forces(y, _EXAGGERATION if early else 1.0, total)
        gains = torch.where(velocity * gradient < 0.0, gains + 0.2, 0.8 * gains).clamp_(
            min=0.01
        )
        velocity.mul_(0.5 if early else 0.8).addcmul_(gains, gradient, value=-rate)
        y += velocity
    embedded: FloatArray = y.T.double().numpy()
    return embedded
