"""The additive statistics of a Gaussian view.

A collapsed bound knows the data only through G = Phi Phi^T, C = Phi Y, ||Y||^2 and the number of
rows: sums over rows, so chunks, processes and machines add them (docs/math.md, section 2.2).
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from bochner.linalg import symmetric_product
from bochner.processes import Processes


@dataclass(frozen=True)
class Statistics:
    """What one block says about the weights.

    Attributes
    ----------
    gram : Tensor of shape (K, K), float64
    cross : Tensor of shape (K, m), float64
    square : float, or Tensor of shape (m,)
        ||Y||^2, or that of every column where each has a noise variance of its own.
    n_rows, n_columns : int
    """

    gram: Tensor
    cross: Tensor
    square: float | Tensor
    n_rows: int
    n_columns: int

    def __add__(self, other: Statistics) -> Statistics:
        """Add the statistics of other rows of the same columns."""
        return Statistics(
            self.gram + other.gram,
            self.cross + other.cross,
            self.square + other.square,
            self.n_rows + other.n_rows,
            self.n_columns,
        )

    def over(self, processes: Processes) -> Statistics:
        """Add the statistics of other processes."""
        if processes.size == 1:
            return self
        square = torch.as_tensor(self.square, dtype=torch.float64, device=self.gram.device)
        count = self.gram.new_tensor(float(self.n_rows))
        gram, cross, square, count = processes.sums([self.gram, self.cross, square, count])
        return Statistics(
            gram,
            cross,
            square if isinstance(self.square, Tensor) else float(square),
            int(count),
            self.n_columns,
        )


def statistics(
    features: Tensor,
    Y: Tensor,
    square: float | Tensor | None = None,
    n_columns: int | None = None,
    products: torch.dtype | None = None,
) -> Statistics:
    """Return the statistics of some rows, kept in float64.

    Parameters
    ----------
    features : Tensor of shape (K, n)
    Y : Tensor of shape (n, m)
    square : float or Tensor of shape (m,), optional
        ||Y||^2 when it is known, or that of every column.
    n_columns : int, optional
        M, when Y was rotated to fewer columns.
    products : torch.dtype, optional
        Precision of the products; None: the features'.
    """
    features = features.to(products or features.dtype)
    Y = Y.to(products or Y.dtype)
    n_columns = Y.shape[1] if n_columns is None else n_columns
    square = float(Y.double().square().sum()) if square is None else square
    return Statistics(
        symmetric_product(features, features).double(),
        (features @ Y).double(),
        square,
        Y.shape[0],
        n_columns,
    )


def total(parts: Iterable[Statistics]) -> Statistics:
    """Add statistics up as they come: only two are ever held."""
    return functools.reduce(operator.add, parts)
