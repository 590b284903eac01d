"""Sparse matrices: zeros are observed values, and nothing of the size of the whole is ever made
dense.

What needs a dense block asks for it by rows or by columns; centring stays a rank-one correction of
that block.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from torch import Tensor

from bochner.data.arrays import FloatArray, IntArray
from bochner.data.columns import ColumnNames, describe_column, extremes
from bochner.errors import InputError, message
from bochner.memory import chunks

Index = slice | Tensor
# Rows that are dense at once.
ROWS = 1024
# One column of so many, or fewer, are read from a copy that is sorted by columns.
_FEW_COLUMNS = 4
# Leading principal components that starts see of a sparse view.
_COMPONENTS = 50


@dataclass(frozen=True)
class SparseMatrix:
    """A sparse matrix less one number per column, of which dense blocks are cut.

    Attributes
    ----------
    row_starts : Tensor of shape (n + 1,), int64
        Where the stored entries of every row begin.
    positions : Tensor of shape (entries,), int64
        Column of every stored entry.
    values : Tensor of shape (entries,)
    centre : Tensor of shape (m,)
        Subtracted from every entry, stored or not.
    """

    row_starts: Tensor
    positions: Tensor
    values: Tensor
    centre: Tensor

    @classmethod
    def of(
        cls,
        matrix: Any,
        centre: NDArray[np.generic] | None,
        dtype: torch.dtype,
        device: torch.device | None = None,
    ) -> SparseMatrix:
        """Take over a scipy matrix, compressed by rows."""
        zeros = np.zeros(matrix.shape[1])
        arrays = (matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data)
        starts, positions, values = (
            torch.from_numpy(np.require(part, requirements=["C", "W"])) for part in arrays
        )
        middle = torch.from_numpy(
            np.asarray(zeros if centre is None else centre, dtype=np.float64)
        )
        return cls(
            starts.to(device),
            positions.to(device),
            values.to(device, dtype),
            middle.to(device, dtype),
        )

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return int(self.row_starts.shape[0]) - 1, int(self.centre.shape[0])

    @property
    def dtype(self) -> torch.dtype:
        """Of the values and of every dense block."""
        return self.values.dtype

    @property
    def device(self) -> torch.device:
        """Where all parts are."""
        return self.values.device

    @property
    def parts(self) -> tuple[Tensor, ...]:
        """Everything that tells two matrices apart."""
        return self.row_starts, self.positions, self.values, self.centre

    def numel(self) -> int:
        """Entries, zeros included."""
        return self.shape[0] * self.shape[1]

    def rows(self, index: Index) -> SparseMatrix:
        """Return some rows, sparse; a tensor of row numbers or a slice of step 1."""
        if isinstance(index, slice):
            start, stop, _ = index.indices(self.shape[0])
            first = int(self.row_starts[start])
            last = int(self.row_starts[stop])
            starts = self.row_starts[start : stop + 1] - first
            return replace(
                self,
                row_starts=starts,
                positions=self.positions[first:last],
                values=self.values[first:last],
            )
        counts = self.row_starts[index + 1] - self.row_starts[index]
        starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        shift = torch.repeat_interleave(self.row_starts[index] - starts[:-1], counts)
        taken = shift + torch.arange(int(starts[-1]), device=self.device)
        return replace(
            self, row_starts=starts, positions=self.positions[taken], values=self.values[taken]
        )

    def __getitem__(self, index: Index) -> Tensor:
        """Return some rows, dense, (n', m)."""
        rows = self.rows(index)
        out = (-self.centre).expand(rows.shape).contiguous()
        out.view(-1).index_add_(
            0, rows._row_numbers() * self.shape[1] + rows.positions, rows.values
        )
        return out

    def index_select(self, dim: int, index: Tensor) -> Tensor:
        """Return some columns (dim = 1) of all rows, dense, (n, m')."""
        if dim != 1:
            return self[index]
        n = self.shape[0]
        width = index.shape[0]
        if _FEW_COLUMNS * width <= self.shape[1]:
            return self._few_columns(index)
        where = torch.full((self.shape[1],), -1, dtype=torch.int64, device=self.device)
        where[index] = torch.arange(width, device=self.device)
        place = where[self.positions]
        kept = (place >= 0).nonzero()[:, 0]
        out = (-self.centre[index]).expand(n, width).contiguous()
        out.view(-1).index_add_(
            0, self._row_numbers()[kept] * width + place[kept], self.values[kept]
        )
        return out

    def _few_columns(self, index: Tensor) -> Tensor:
        """Return some columns without a look at the entries of the others."""
        ends, rows, values = self._by_column
        first = ends[index]
        counts = ends[index + 1] - first
        column = torch.repeat_interleave(torch.arange(len(index), device=self.device), counts)
        skipped = first - (counts.cumsum(0) - counts)
        entry = torch.arange(len(column), device=self.device) + skipped[column]
        out = (-self.centre[index]).expand(self.shape[0], len(index)).contiguous()
        out.view(-1).index_add_(0, rows[entry].long() * len(index) + column, values[entry])
        return out

    @functools.cached_property
    def _by_column(self) -> tuple[Tensor, Tensor, Tensor]:
        """Where the entries of every column begin, (m + 1,), and their rows and values, column
        after column: made once, as whoever reads some columns reads the others next.
        """
        counts = torch.bincount(self.positions, minlength=self.shape[1])
        ends = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        order = self.positions.argsort(stable=True)
        few = self.shape[0] < 2**31
        rows = self._row_numbers().to(torch.int32 if few else torch.int64)
        return ends, rows[order], self.values[order]

    def double(self) -> Tensor:
        """Return all of it, dense, float64: for few rows."""
        return self[:].double()

    def square(self) -> float:
        """Return the sum of squares, in float64: that of the stored entries, corrected for the
        centre.
        """
        middle = self.centre.double()
        values = self.values.double()
        mixed = torch.dot(values, middle[self.positions])
        return float(
            values.square().sum() - 2.0 * mixed + self.shape[0] * middle.square().sum()
        )

    def _row_numbers(self) -> Tensor:
        counts = self.row_starts[1:] - self.row_starts[:-1]
        return torch.repeat_interleave(torch.arange(self.shape[0], device=self.device), counts)


def check_stored(
    X: Any, columns: Mapping[str, IntArray], column_names: ColumnNames = None
) -> None:
    """Refuse what a sparse matrix stores that is no finite number.

    Raises
    ------
    InputError
        Naming view, row, column and value of the first such entry. NaN is refused as well: zeros
        are observed values, and data with missing entries are dense.
    """
    bad = ~np.isfinite(X.data)
    if not bad.any():
        return
    entry = int(bad.argmax())
    row = int(np.searchsorted(X.indptr, entry, side="right")) - 1
    column = int(X.indices[entry])
    view = next(name for name, positions in columns.items() if column in positions)
    place = f"view {view!r}, row {row}, {describe_column(column, column_names)}"
    do = "correct the value; where entries are missing, pass a dense X with NaN"
    got = f"{X.data[entry]} in {place}"
    raise InputError(message("finite numbers in a sparse X", got, do), row=row)


def moments(X: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mean and sum of squares about it of every column, in float64."""
    n = X.shape[0]
    wide = X.astype(np.float64)
    mean = np.asarray(wide.sum(axis=0)).ravel() / n
    square = np.asarray(wide.multiply(wide).sum(axis=0)).ravel() - n * mean**2
    return mean, np.maximum(square, 0.0)


def mapped(X: Any, function: Callable[[FloatArray, slice], FloatArray]) -> Any:
    """Apply a function of (dense rows, their slice) that keeps zeros at 0, rows by rows; compressed
    by rows.
    """
    parts = [
        sp.csr_matrix(function(X[rows].toarray(), rows)) for rows in chunks(X.shape[0], ROWS)
    ]
    return sp.vstack(parts, format="csr")


def leading(X: Any, seed: int) -> NDArray[np.float64]:
    """Return the scores of the leading principal components, in proportion: what starts see of a
    sparse view.
    """
    count = min(_COMPONENTS, min(X.shape) - 1)
    if count < 1:
        return np.asarray(X.toarray(), dtype=np.float64)
    low, high = extremes(X)
    if bool((low == high).all()):
        # ARPACK needs a direction
        return np.zeros((X.shape[0], 1))
    if min(X.shape) <= 2 * _COMPONENTS:
        # where ARPACK has seen all directions it goes on from one of its own, another every time
        dense = np.asarray(X.toarray(), dtype=np.float64)
        left, values, _ = np.linalg.svd(dense - dense.mean(axis=0), full_matrices=False)
        return np.asarray(left[:, :count] * values[:count], dtype=np.float64)
    with warnings.catch_warnings():
        # columns without variance
        warnings.simplefilter("ignore")
        scores = PCA(count, svd_solver="arpack", random_state=seed % 2**32).fit_transform(
            X.astype(np.float64)
        )
    return np.asarray(scores, dtype=np.float64)


def canonical(X: Any) -> Any:
    """Return a matrix that is compressed by rows with every entry once, in order; the caller's is
    left as it is.
    """
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    return X
