"""Quadratic forms phi^T Q phi of rows, Q = sum of m m^T / sigma^2 + B_m^-1 over a row's observed
columns.

Rows that share their columns share one Q, view by view: narrow views have few patterns of holes,
and rows lack a wide one or have it. Where patterns are many, and features too beside the points at
which a row is evaluated, there is no matrix at all: two products with all columns' means cost less
than forming it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from bochner.weight_posterior.posterior import ViewPosterior

# So many points for each pattern of observed columns are worth a product of each; so many rows for
# each are worth a matrix of it.
_OWN_PRODUCT = 8
_FEW_PATTERNS = 4


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
class ByPattern:
    """A matrix for every pattern of observed columns.

    Attributes
    ----------
    matrices : Tensor of shape (P, K, K)
    pattern_of : Tensor of shape (n,), int64
        Of every row.
    """

    matrices: Tensor
    pattern_of: Tensor

    def push(self, j: Tensor, rows: Tensor) -> Tensor:
        """Return j Q of each point's row: the points of one pattern share its matrix, which is
        large, in one product.
        """
        patterns = self.pattern_of[rows]
        counts = torch.bincount(patterns, minlength=len(self.matrices))
        if len(j) >= _OWN_PRODUCT * len(self.matrices):
            order = patterns.argsort(stable=True)
            out = torch.empty_like(j)
            pairs = zip(self.matrices, torch.split(order, counts.tolist()), strict=True)
            for matrix, points in pairs:
                if len(points):
                    out[points] = j[points] @ matrix
            return out
        present, inverse = torch.unique(patterns, return_inverse=True)
        counts = counts[present]
        order = patterns.argsort(stable=True)
        slot = torch.empty_like(order)
        slot[order] = torch.arange(len(order)) - (counts.cumsum(0) - counts)[inverse[order]]
        padded = j.new_zeros(present.shape[0], int(counts.max()), *j.shape[1:])
        padded[inverse, slot] = j
        # indexing would copy them
        every = len(present) == len(self.matrices)
        matrices = self.matrices if every else self.matrices[present]
        return (padded.flatten(1, 2) @ matrices).reshape(padded.shape)[inverse, slot]

    def to(self, dtype: torch.dtype) -> ByPattern:
        """Return the same in another precision."""
        return ByPattern(self.matrices.to(dtype), self.pattern_of)


@dataclass(frozen=True)
class Factored:
    """The matrix of every row as its factors, m diag(weights_n) m^T + sum_g L_g diag(scales_ng)
    R_g.

    Attributes
    ----------
    mean : Tensor of shape (K, M)
    weights : Tensor of shape (n, M)
        1 / sigma^2 where observed, else 0.
    left : Tensor of shape (G, K, K)
    scales : Tensor of shape (n, G, 1) or (n, G, K)
        Of the observed columns of every group.
    right : Tensor of shape (G, K, K) or None
        None is the identity.
    """

    mean: Tensor
    weights: Tensor
    left: Tensor
    scales: Tensor
    right: Tensor | None

    def push(self, j: Tensor, rows: Tensor) -> Tensor:
        """Return j Q of each point's row."""
        out = ((j @ self.mean) * self.weights[rows][:, None]) @ self.mean.T
        for g, left in enumerate(self.left):
            part = (j @ left) * self.scales[rows, g][:, None]
            out += part if self.right is None else part @ self.right[g]
        return out

    def to(self, dtype: torch.dtype) -> Factored:
        """Return the same in another precision."""
        right = None if self.right is None else self.right.to(dtype)
        mean, weights = self.mean.to(dtype), self.weights.to(dtype)
        return Factored(mean, weights, self.left.to(dtype), self.scales.to(dtype), right)


def quadratic_of(
    view: ViewPosterior, s: int, s2: Tensor, observed: Tensor, dim: int, shared: bool
) -> Quadratic:
    """Build the quadratic form of some rows under one draw.

    Parameters
    ----------
    view : ViewPosterior
    s : int
        Number of the draw.
    s2 : Tensor, scalar or of shape (M,)
    observed : Tensor of shape (n, M), bool
    dim : int
        D.
    shared : bool
        Whether all these rows observe the same columns.
    """
    draw = view.draws[s]
    pattern_of = torch.zeros(len(observed), dtype=torch.int64)
    patterns = observed[:1]
    if not shared:
        patterns, pattern_of = patterns_of(observed)
    few = _FEW_PATTERNS * len(patterns) <= len(observed)
    if not (shared or few) and view.stays_factored(dim):
        weights = observed.to(draw.mean.dtype)
        left, scales, right = draw.factors(weights, view.group_of)
        return Factored(draw.mean, weights / s2, left, scales, right)
    weights = patterns.to(draw.mean.dtype)
    outer = (
        (draw.mean[None] * (weights / s2)[:, None, :]) @ draw.mean.T
        if shared
        else _outer(draw.mean, s2, patterns)
    )
    quadratic = outer.add_(draw.summed(weights, view.group_of))
    return Shared(quadratic[0]) if shared else ByPattern(quadratic, pattern_of)


def patterns_of(observed: Tensor) -> tuple[Tensor, Tensor]:
    """Return the patterns of rows (n, M), bool, each once, and which one each row has, (n,)."""
    bits = np.packbits(observed.numpy(), axis=1)
    _, first, inverse = np.unique(
        bits.view(f"V{bits.shape[1]}")[:, 0], return_index=True, return_inverse=True
    )
    return observed[torch.from_numpy(first)], torch.from_numpy(inverse)


def _outer(mean: Tensor, s2: Tensor, observed: Tensor) -> Tensor:
    """Sum m m^T / s^2 over each row's observed columns, (K, M), (n, M) -> (n, K, K); through the
    holes if rarer.
    """
    scaled = mean / s2.sqrt()
    flip = observed.sum(1) > observed.shape[1] // 2
    chosen = observed ^ flip[:, None]
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
