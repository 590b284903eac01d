"""The Dirichlet process mixture of the frequencies: assignments, components, concentration."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.random import Generator
from scipy.special import gammaln

from bochner.data.arrays import Float64Array, IntArray
from bochner.mcmc.draws import categorical, inverse_wishart


@dataclass(frozen=True)
class Components:
    """Means and covariances of the components in use.

    Attributes
    ----------
    means : ndarray of shape (C, D)
    covariances : ndarray of shape (C, D, D)
    """

    means: Float64Array
    covariances: Float64Array

    @functools.cached_property
    def roots(self) -> Float64Array:
        """Cholesky factors of the covariances, shape (C, D, D)."""
        return np.asarray(np.linalg.cholesky(self.covariances))


@dataclass(frozen=True)
class NormalInverseWishart:
    """Prior of a component: covariance ~ IW(scale, degrees), mean ~ N(0, covariance / kappa).

    Centre 0 and a scale proportional to the identity: the prior does not change when the latents
    are rotated or reflected.

    Attributes
    ----------
    dim : int
        D.
    kappa : float
        Points that the prior of the mean counts for.
    degrees : float
        More than D - 1; finite second moments of the frequencies need more than D + 1.
    scale : float
        Factor of the identity.
    """

    dim: int
    kappa: float
    degrees: float
    scale: float

    def log_marginal(
        self, count: Float64Array, total: Float64Array, squares: Float64Array
    ) -> Float64Array:
        """Return the log marginal likelihood of the points of each component.

        Parameters
        ----------
        count : ndarray of shape (C,)
        total : ndarray of shape (C, D)
            Sums of the points.
        squares : ndarray of shape (C, D, D)
            Sums of their outer products.

        Returns
        -------
        ndarray of shape (C,)

        Notes
        -----
        Murphy (2007), section 9.
        """
        dim = self.dim
        kappa = self.kappa + count
        degrees = self.degrees + count
        logdet = np.linalg.slogdet(self._scale(total, squares, kappa))[1]
        prior = 0.5 * self.degrees * dim * np.log(self.scale)
        # of the multivariate gamma functions; their pi cancels
        halves = 0.5 * np.arange(dim)
        gammas = gammaln(0.5 * degrees[..., None] - halves) - gammaln(
            0.5 * self.degrees - halves
        )
        shrink = 0.5 * dim * np.log(self.kappa / kappa)
        constant = -0.5 * count * dim * np.log(np.pi)
        return np.asarray(constant + gammas.sum(-1) + prior - 0.5 * degrees * logdet + shrink)

    def _scale(
        self, total: Float64Array, squares: Float64Array, kappa: Float64Array
    ) -> Float64Array:
        outer = total[..., :, None] * total[..., None, :]
        return self.scale * np.eye(self.dim) + squares - outer / kappa[..., None, None]

    def draw(self, points: Float64Array, rng: Generator) -> tuple[Float64Array, Float64Array]:
        """Draw mean and covariance of a component given its points, (n, D) -> (D,), (D, D)."""
        total = points.sum(0)
        squares = points.T @ points
        kappa = np.array(self.kappa + len(points))
        scale = self._scale(total, squares, kappa)
        covariance = inverse_wishart(scale, self.degrees + len(points), rng)
        root = np.linalg.cholesky(covariance)
        noise = root @ rng.standard_normal(self.dim)
        return (total + np.sqrt(kappa) * noise) / kappa, covariance


def draw_components(
    points: Float64Array, labels: IntArray, prior: NormalInverseWishart, rng: Generator
) -> Components:
    """Draw the components in use given their points.

    Parameters
    ----------
    points : ndarray of shape (H, D)
    labels : ndarray of shape (H,)
        0 .. C - 1, each in use.
    prior : NormalInverseWishart
    rng : Generator

    Returns
    -------
    Components
    """
    drawn = [prior.draw(points[labels == k], rng) for k in range(int(labels.max()) + 1)]
    means = np.stack([mean for mean, _ in drawn])
    return Components(means, np.stack([covariance for _, covariance in drawn]))


def _sums(
    points: Float64Array, outer: Float64Array, labels: IntArray
) -> tuple[Float64Array, Float64Array, Float64Array]:
    """Return number, sum and sum of outer products of the points of each component."""
    size = int(labels.max()) + 1
    member = (labels[None, :] == np.arange(size)[:, None]).astype(np.float64)
    squares = (member @ outer.reshape(len(points), -1)).reshape(size, *outer.shape[1:])
    return member.sum(1), member @ points, squares


class _Clusters:
    """Sufficient statistics of the components while points change their labels."""

    def __init__(
        self, points: Float64Array, labels: IntArray, prior: NormalInverseWishart
    ) -> None:
        self.points = points
        self.labels = labels.copy()
        self.prior = prior
        self.outer = points[:, :, None] * points[:, None, :]
        self.count, self.total, self.squares = _sums(points, self.outer, labels)
        self.value = prior.log_marginal(self.count, self.total, self.squares)
        self.alone = prior.log_marginal(np.ones(len(points)), points, self.outer)

    def remove(self, h: int) -> None:
        """Take the point out of its component, which vanishes when it was the last one."""
        k = self.labels[h]
        self.count[k] -= 1.0
        if self.count[k] == 0.0:
            kept = np.arange(len(self.count)) != k
            self.count = self.count[kept]
            self.total = self.total[kept]
            self.squares = self.squares[kept]
            self.value = self.value[kept]
            self.labels[self.labels > k] -= 1
            return
        self.total[k] -= self.points[h]
        self.squares[k] -= self.outer[h]
        cluster = slice(k, k + 1)
        self.value[cluster] = self.prior.log_marginal(
            self.count[cluster], self.total[cluster], self.squares[cluster]
        )

    def place(self, h: int, concentration: float, rng: Generator) -> None:
        """Draw the label of a point that is in no component."""
        total = self.total + self.points[h]
        squares = self.squares + self.outer[h]
        grown = self.prior.log_marginal(self.count + 1.0, total, squares)
        old = np.log(self.count) + grown - self.value
        k = categorical(np.append(old, np.log(concentration) + self.alone[h]), rng)
        self.labels[h] = k
        if k < len(self.count):
            self.count[k] += 1.0
            self.total[k] = total[k]
            self.squares[k] = squares[k]
            self.value[k] = grown[k]
            return
        self.count = np.append(self.count, 1.0)
        self.total = np.concatenate([self.total, self.points[h : h + 1]])
        self.squares = np.concatenate([self.squares, self.outer[h : h + 1]])
        self.value = np.append(self.value, self.alone[h])


def draw_assignments(
    points: Float64Array,
    labels: IntArray,
    concentration: float,
    prior: NormalInverseWishart,
    rng: Generator,
) -> IntArray:
    """Draw the labels one after the other, the components integrated out.

    Parameters
    ----------
    points : ndarray of shape (H, D)
    labels : ndarray of shape (H,)
        Present labels, 0 .. C - 1, each in use.
    concentration : float
    prior : NormalInverseWishart
    rng : Generator

    Returns
    -------
    ndarray of shape (H,)
        0 .. C' - 1, the largest component first.

    Notes
    -----
    Neal (2000), algorithm 3: the Chinese restaurant process times the components' marginal
    likelihoods.
    """
    clusters = _Clusters(points, labels, prior)
    for h in range(len(points)):
        clusters.remove(h)
        clusters.labels[h] = -1
        clusters.place(h, concentration, rng)
    return by_size(clusters.labels)


def by_size(labels: IntArray) -> IntArray:
    """Renumber labels so that the largest component comes first; ties by first appearance."""
    _, first, inverse, counts = np.unique(
        labels, return_index=True, return_inverse=True, return_counts=True
    )
    rank = np.empty(len(counts), dtype=np.int64)
    rank[np.lexsort((first, -counts))] = np.arange(len(counts))
    return np.asarray(rank[inverse])


def log_partition(labels: IntArray, concentration: float) -> float:
    """Return the log probability of a partition under the Chinese restaurant process."""
    counts = np.bincount(labels)
    size = len(labels)
    ways = gammaln(counts).sum() + len(counts) * np.log(concentration)
    return float(ways + gammaln(concentration) - gammaln(concentration + size))


def log_points(points: Float64Array, labels: IntArray, prior: NormalInverseWishart) -> float:
    """Return the log density of frequencies given their labels, the components integrated out."""
    outer = points[:, :, None] * points[:, None, :]
    return float(prior.log_marginal(*_sums(points, outer, labels)).sum())


@dataclass(frozen=True)
class Scatter:
    """What the density of frequencies given their labels depends on when a linear map moves them
    all, the components integrated out.

    Attributes
    ----------
    matrices : ndarray of shape (C, D, D)
        Sums of outer products of each component's points, less that of their shrunk mean.
    degrees : ndarray of shape (C,)
        Posterior degrees of freedom.
    scale : float
        Of the prior.
    """

    matrices: Float64Array
    degrees: Float64Array
    scale: float

    @classmethod
    def of(cls, points: Float64Array, labels: IntArray, prior: NormalInverseWishart) -> Self:
        """Sum over the points (H, D) of each label, shape (H,)."""
        count, total, squares = _sums(points, points[:, :, None] * points[:, None, :], labels)
        outer = total[:, :, None] * total[:, None, :]
        matrices = squares - outer / (prior.kappa + count)[:, None, None]
        return cls(matrices, prior.degrees + count, prior.scale)

    @property
    def dim(self) -> int:
        """D."""
        return int(self.matrices.shape[-1])

    def log_density(self, linear: Float64Array) -> float:
        """Return the log density of points @ linear^T, (D, D), up to a constant."""
        moved = linear @ self.matrices @ linear.T + self.scale * np.eye(self.dim)
        return float(-0.5 * self.degrees @ np.linalg.slogdet(moved)[1])


def draw_concentration(
    concentration: float,
    n_points: int,
    n_components: int,
    shape: float,
    rate: float,
    rng: Generator,
) -> float:
    """Draw the concentration given the number of components.

    Parameters
    ----------
    concentration : float
        Present value.
    n_points, n_components : int
        H and C.
    shape, rate : float
        Of its gamma prior.
    rng : Generator

    Returns
    -------
    float

    Notes
    -----
    Escobar and West (1995), section 6.
    """
    log_eta = np.log(rng.beta(concentration + 1.0, n_points))
    rate = rate - log_eta
    odds = (shape + n_components - 1.0) / (n_points * rate)
    more = rng.random() * (1.0 + odds) < odds
    shape = shape + n_components - (0.0 if more else 1.0)
    return float(rng.gamma(shape) / rate)


def draw_partition(n_points: int, concentration: float, rng: Generator) -> IntArray:
    """Draw labels from the Chinese restaurant process, shape (H,), the largest component first."""
    labels = np.zeros(n_points, dtype=np.int64)
    counts = np.array([1.0])
    for h in range(1, n_points):
        k = categorical(np.log(np.append(counts, concentration)), rng)
        labels[h] = k
        if k == len(counts):
            counts = np.append(counts, 0.0)
        counts[k] += 1.0
    return by_size(labels)
