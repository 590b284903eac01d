"""The quadratic form phi^T Q phi of a row's target, Q = sum over its observed columns of m m^T /
sigma^2 + B_m^-1.

Rows that share their columns share one Q. Others have a matrix each, or, where features are many
beside the points at which a row is evaluated, none at all: two products with all columns' means
cost less than forming it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from bochner.weight_posterior.posterior import ViewPosterior

# Features per point and slope from which on forming a row's matrix, once, costs more than the two
# products with all columns' means, at every evaluation of a climb.
_PRODUCTS = 16


class Quadratic(Protocol):
    """Multiplies points by the matrix of their row."""

    def push(self, j: Tensor, rows: Tensor) -> Tensor:
        """Return j Q of each point's row, (P, 1 + D, K), (P,) -> (P, 1 + D, K)."""

    def to(self, dtype: torch.dtype) -> Quadratic:
        """Return the same in another precision."""


@dataclass(frozen=True)
class Shared:
    """One matrix, (K, K), for all rows."""

    matrix: Tensor

    def push(self, j: Tensor, rows: Tensor) -> Tensor:  # noqa: ARG002 - all rows are alike
        """Return j Q."""
        return j @ self.matrix

    def table(self, phi: Tensor) -> Tensor:
        """Return phi^T Q phi of every point, (K, C) -> (C,)."""
        return ((self.matrix @ phi) * phi).sum(0)

    def to(self, dtype: torch.dtype) -> Shared:
        """Return the same in another precision."""
        return Shared(self.matrix.to(dtype))


@dataclass(frozen=True)
class Own:
    """A matrix for every row, (n, K, K)."""

    matrices: Tensor

    def push(self, j: Tensor, rows: Tensor) -> Tensor:
        """Return j Q of each point's row: the points of one row share its matrix, which is large,
        in one product.
        """
        own, inverse, counts = torch.unique_consecutive(
            rows, return_inverse=True, return_counts=True
        )
        slot = torch.arange(rows.shape[0]) - (counts.cumsum(0) - counts)[inverse]
        padded = j.new_zeros(own.shape[0], int(counts.max()), *j.shape[1:])
        padded[inverse, slot] = j
        every = torch.equal(own, torch.arange(self.matrices.shape[0]))  # indexing would copy them
        matrices = self.matrices if every else self.matrices[own]
        return (padded.flatten(1, 2) @ matrices).reshape(padded.shape)[inverse, slot]

    def to(self, dtype: torch.dtype) -> Own:
        """Return the same in another precision."""
        return Own(self.matrices.to(dtype))


@dataclass(frozen=True)
class Factored:
    """The matrix of every row as its factors: m diag(weights_n) m^T + sum_g counts_ng B_g^-1.

    Attributes
    ----------
    mean : Tensor of shape (K, M)
    weights : Tensor of shape (n, M)
        1 / sigma^2 where observed, else 0.
    inverses : Tensor of shape (G, K, K)
    counts : Tensor of shape (n, G)
        Observed columns of every group.
    """

    mean: Tensor
    weights: Tensor
    inverses: Tensor
    counts: Tensor

    def push(self, j: Tensor, rows: Tensor) -> Tensor:
        """Return j Q of each point's row."""
        out = ((j @ self.mean) * self.weights[rows][:, None]) @ self.mean.T
        for inverse, count in zip(self.inverses, self.counts.T, strict=True):
            out += (j @ inverse) * count[rows][:, None, None]
        return out

    def to(self, dtype: torch.dtype) -> Factored:
        """Return the same in another precision."""
        return Factored(
            *(t.to(dtype) for t in (self.mean, self.weights, self.inverses, self.counts))
        )


def stays_factored(view: ViewPosterior, dim: int) -> bool:
    """Return whether rows with columns of their own are better left without matrices, in so many
    dimensions.
    """
    draw = view.draws[0]
    few_groups = (
        draw.scales is None
        and draw.covariance.shape[0] * draw.mean.shape[0] <= 4 * draw.mean.shape[1]
    )
    return few_groups and _PRODUCTS * (1 + dim) < draw.mean.shape[0]


def quadratic_of(
    view: ViewPosterior, s: int, s2: Tensor, seen: Tensor, dim: int, shared: bool
) -> Quadratic:
    """Build the quadratic form of some rows under one draw.

    Parameters
    ----------
    view : ViewPosterior
    s : int
        Number of the draw.
    s2 : Tensor, scalar or of shape (M,)
    seen : Tensor of shape (n, M), bool
    dim : int
        D.
    shared : bool
        Whether all these rows observe the same columns.
    """
    draw = view.draws[s]
    weights = (seen[:1] if shared else seen).to(draw.mean.dtype)
    if not shared and stays_factored(view, dim):
        counts = weights.new_zeros(weights.shape[0], draw.covariance.shape[0])
        counts.index_add_(1, view.group_of, weights)
        return Factored(draw.mean, weights / s2, draw.covariance, counts)
    outer = (
        (draw.mean[None] * (weights / s2)[:, None, :]) @ draw.mean.T
        if shared
        else _outer(draw.mean, s2, seen)
    )
    quadratic = outer.add_(draw.summed(weights, view.group_of))
    return Shared(quadratic[0]) if shared else Own(quadratic)


def _outer(mean: Tensor, s2: Tensor, seen: Tensor) -> Tensor:
    """Sum m m^T / s^2 over each row's observed columns, (K, M), (n, M) -> (n, K, K); through the
    holes if rarer.
    """
    scaled = mean / s2.sqrt()
    flip = seen.sum(1) > seen.shape[1] // 2
    chosen = seen ^ flip[:, None]
    count = max(1, int(chosen.sum(1).max()))
    index = chosen.byte().argsort(dim=1, descending=True, stable=True)[:, :count]
    part = scaled.T[index] * chosen.gather(1, index)[..., None]
    product = part.mT @ part
    # in place: matrices of all rows of a chunk are large
    product *= torch.where(flip, -1.0, 1.0)[:, None, None]
    if bool(flip.any()):
        every = scaled @ scaled.T
        for row in flip.nonzero()[:, 0].tolist():
            product[row] += every
    return product
