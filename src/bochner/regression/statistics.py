"""The additive statistics of a Gaussian view.

A collapsed bound knows the data only through G = Phi Phi^T, C = Phi Y, ||Y||^2 and the number of
rows: sums over rows, so chunks, processes and machines add them (docs/math.md, section 2.2).
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bochner.data.sparse import SparseMatrix
from bochner.memory import chunks

_ROWS = 8192


@dataclass(frozen=True)
class Block:
    """Columns of a view that are observed in the same rows.

    Attributes
    ----------
    Y : Tensor or SparseMatrix of shape (n, m), or (n, r) when it was rotated to fewer columns
        Observed, scaled values. A sparse one gives dense rows or columns when asked, never all at
        once.
    rows : Tensor of shape (n,), int64, or None
        The global rows; None means all, in order.
    columns : Tensor of shape (m,), int64
        Positions within the view.
    square : float
        ||Y||^2 of all m columns, summed in float64.
    seen : Tensor of shape (n, m), optional
        1 where observed, 0 where missing (Y is 0 there); None when all are observed.
    offset : Tensor of shape (n,), optional
        Of views that are not Gaussian: added to psi of every entry of a row, the logarithm of its
        size factor.
    sizes : tuple of int
        Of Gaussian views with scattered holes: the columns stand group after group, columns of
        similar holes together.
    """

    Y: Tensor | SparseMatrix
    rows: Tensor | None
    columns: Tensor
    square: float
    seen: Tensor | None = None
    offset: Tensor | None = None
    sizes: tuple[int, ...] = ()

    @classmethod
    def encoded(
        cls, Y: Tensor | SparseMatrix, rows: Tensor | None = None, offset: Tensor | None = None
    ) -> Block:
        """Build the block of a view that is not Gaussian from what its likelihood encoded, NaN =
        missing.
        """
        if isinstance(Y, SparseMatrix):
            return cls(Y, rows, torch.arange(Y.shape[1]), 0.0, None, offset)
        missing = Y.isnan()
        seen = (~missing).to(Y.dtype) if bool(missing.any()) else None
        return cls(torch.nan_to_num(Y), rows, torch.arange(Y.shape[1]), 0.0, seen, offset)

    @functools.cached_property
    def squares(self) -> Tensor:
        """||y_m||^2 of every column, (m,), float64; of a block that was not rotated."""
        return self.Y.double().square().sum(0)

    @property
    def n_columns(self) -> int:
        """M: what multiplies every row of the bound, whatever Y was rotated to."""
        return int(self.columns.shape[0])

    @property
    def n_entries(self) -> int:
        """Observed entries; of views that are not Gaussian, all of them."""
        if self.seen is not None and self.sizes:
            return int(self.seen.sum(dtype=torch.float64))
        return int(self.Y.shape[0]) * self.n_columns

    def values(self) -> Tensor:
        """Return Y with NaN where missing, dense, (n, m)."""
        Y = self.Y[:] if isinstance(self.Y, SparseMatrix) else self.Y
        return Y if self.seen is None else Y.masked_fill(self.seen == 0, torch.nan)

    @classmethod
    def of(
        cls, Y: Tensor | SparseMatrix, rows: Tensor | None = None, columns: Tensor | None = None
    ) -> Block:
        """Build a block and its square."""
        columns = torch.arange(Y.shape[1]) if columns is None else columns
        if isinstance(Y, SparseMatrix):
            return cls(Y, rows, columns, Y.square())
        # in parts: a whole copy in float64 is twice the data
        square = sum(
            (float(Y[part].double().square().sum()) for part in chunks(Y.shape[0], _ROWS)), 0.0
        )
        return cls(Y, rows, columns, square)

    def take(self, index: Tensor, rows: Tensor | None = None) -> Block:
        """Return some of its own rows, which have the given numbers among all; None: they are all,
        in order.
        """
        Y = self.Y.rows(index) if isinstance(self.Y, SparseMatrix) else self.Y[index]
        own = self.of(Y, rows, self.columns)
        seen = None if self.seen is None else self.seen[index]
        offset = None if self.offset is None else self.offset[index]
        return replace(own, seen=seen, offset=offset, sizes=self.sizes)

    @classmethod
    def holed(
        cls, Y: Tensor, rows: Tensor | None, columns: Tensor, sizes: tuple[int, ...]
    ) -> Block:
        """Build the block of Gaussian columns with scattered holes, NaN = missing, which stand
        group after group.
        """
        filled = torch.nan_to_num(Y)
        return cls(
            filled,
            rows,
            columns,
            float(filled.double().square().sum()),
            (~Y.isnan()).to(Y.dtype),
            None,
            sizes,
        )


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
    features, Y = features.to(products or features.dtype), Y.to(products or Y.dtype)
    n_columns = Y.shape[1] if n_columns is None else n_columns
    square = float(Y.double().square().sum()) if square is None else square
    return Statistics(
        (features @ features.T).double(), (features @ Y).double(), square, Y.shape[0], n_columns
    )


def total(parts: Iterable[Statistics]) -> Statistics:
    """Add statistics up as they come: only two are ever held."""
    return functools.reduce(operator.add, parts)
