"""Rows of sparse matrices in files, read block by block."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from bochner.data.arrays import FloatArray, IntArray
from bochner.data.file_arrays import check_places, places_outside, readable
from bochner.data.row_sources import RowSource, floating
from bochner.io.table import dense


class SparseRows(RowSource):
    """A sparse matrix in a file, compressed by rows: its blocks are dense, zeros are observed.

    Parameters
    ----------
    group : group of HDF5 or zarr
        With ``data``, ``indices``, ``indptr`` and the attribute ``shape``, as anndata writes it.
    place : str
        Of the matrix, for messages.
    columns : list of str, optional
        Names.
    index : ndarray of int, shape (n_columns,), optional
        Which columns of the matrix these are; None: all.
    """

    def __init__(
        self,
        group: Any,
        place: str,
        columns: list[str] | None = None,
        index: IntArray | None = None,
    ) -> None:
        self._group = group
        self._place = place
        self._index = slice(None) if index is None else index
        self._shape = tuple(int(n) for n in group.attrs["shape"])
        self.n_rows = self._shape[0]
        self.n_columns = self._shape[1] if index is None else len(index)
        self.columns = columns
        self.dtype = floating(np.dtype(group["data"].dtype))

    def _rows(self, start: int, stop: int) -> Any:
        with readable(self._place):
            ends = np.asarray(self._group["indptr"][start : stop + 1], dtype=np.int64)
            entries = slice(int(ends[0]), int(ends[-1]))
            values = np.asarray(self._group["data"][entries], dtype=self.dtype)
            places = self._group["indices"][entries]
        shape = (stop - start, self._shape[1])
        try:
            rows: Any = sp.csr_array((values, places, ends - ends[0]), shape=shape)
        except ValueError as error:
            raise places_outside(shape, self._place, error) from error
        check_places(rows, self._place)
        return rows[:, self._index]

    def read(self, start: int, stop: int) -> FloatArray:
        """Return the rows from ``start`` to before ``stop``."""
        return dense(self._rows(start, stop), self._place, self.dtype)

    def whole(self) -> Any:
        """Return all rows, sparse."""
        return self._rows(0, self.n_rows)

    @property
    def held_bytes(self) -> int:
        """Bytes of the numbers and of their places."""
        return int(self._group["data"].shape[0]) * (self.dtype.itemsize + 8)
