"""Sparse matrices that are compressed by columns, turned over to rows in a temporary file."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bochner.data.arrays import IntArray
from bochner.data.file_arrays import places_outside, release
from bochner.errors import InputError, message
from bochner.memory import chunks, size_text

# Entries that are turned over together.
_ENTRIES = 2**22
# Bytes that are free on a disk, over those of the file.
_ROOM = 2


class Turned:
    """A matrix by rows, as files hold one: ``data``, ``indices``, ``indptr`` and its ``shape``.

    Numbers and their columns are in a file without a name, which is gone with the process.

    Parameters
    ----------
    group : group of HDF5 or zarr
        Of a matrix by columns, as anndata writes it.
    place : str
        Of the matrix, for messages.

    Raises
    ------
    InputError
        Entries stand outside the matrix, or the disk has no room.
    """

    def __init__(self, group: Any, place: str) -> None:
        shape = tuple(int(n) for n in group.attrs["shape"])
        self.attrs = {"shape": shape}
        self._group = group
        self._ends = np.asarray(group["indptr"][:], dtype=np.int64)
        self._n_entries = int(group["data"].shape[0])
        try:
            self._check_columns(shape[1])
            self._counts = self._rows_of_entries(shape[0])
        except ValueError as error:
            raise places_outside((shape[0], shape[1]), place, error) from error
        starts = np.concatenate([[0], np.cumsum(self._counts)])
        kinds = np.dtype(group["data"].dtype), np.dtype(np.int64)
        size = self._n_entries * sum(kind.itemsize for kind in kinds)
        folder = tempfile.gettempdir()
        free = shutil.disk_usage(folder).free
        if free < _ROOM * size:
            want = f"{size_text(_ROOM * size)} free in {folder} (TMPDIR), to turn over {place}"
            do = "write the matrix compressed by rows: X.tocsr()"
            raise InputError(message(want, size_text(free), do))
        data, columns = (_InFile(kind, self._n_entries) for kind in kinds)
        self._parts: dict[str, Any] = {"data": data, "indices": columns, "indptr": starts}
        self._turn(data, columns, starts[:-1].copy())

    def __getitem__(self, part: str) -> Any:
        """Return one of the three parts."""
        return self._parts[part]

    def _check_columns(self, n_columns: int) -> None:
        ends = self._ends
        whole = len(ends) == n_columns + 1 and ends[0] == 0 and ends[-1] == self._n_entries
        if not whole or (np.diff(ends) < 0).any():
            raise ValueError("index pointer values must form a non-decreasing sequence")

    def _rows_of_entries(self, n_rows: int) -> IntArray:
        """Return how many entries every row has."""
        counts = np.zeros(n_rows, dtype=np.int64)
        for _, rows in self._entries():
            if rows.size and (rows.min() < 0 or rows.max() >= n_rows):
                raise ValueError(f"indices must be < {n_rows}")
            counts += np.bincount(rows, minlength=n_rows)
        return counts

    def _entries(self) -> Iterator[tuple[slice, IntArray]]:
        """Yield the rows of consecutive entries."""
        for part in chunks(self._n_entries, _ENTRIES):
            yield part, np.asarray(self._group["indices"][part], dtype=np.int64)

    def _turn(self, data: _InFile, columns: _InFile, free: IntArray) -> None:
        """Write every entry to the first free place of its row."""
        for part, rows in self._entries():
            cuts = np.clip(self._ends, part.start, part.stop)
            column = np.repeat(np.arange(len(cuts) - 1), np.diff(cuts))
            order = np.argsort(rows, kind="stable")
            ordered = rows[order]
            before = np.arange(len(rows)) - np.searchsorted(ordered, ordered)
            places = free[ordered] + before
            data.put(places, np.asarray(self._group["data"][part])[order])
            columns.put(places, column[order])
            free += np.bincount(rows, minlength=len(free))


class _InFile:
    """Numbers in a temporary file."""

    def __init__(self, dtype: np.dtype[np.generic], size: int) -> None:
        self.dtype = dtype
        self.shape = (size,)
        # a map of no bytes is refused
        with tempfile.TemporaryFile() as file:
            self._array = np.memmap(file, dtype, "w+", shape=max(size, 1))

    def put(self, places: IntArray, values: NDArray[np.generic]) -> None:
        """Write numbers to their places."""
        self._array[places] = values
        release(self._array)

    def __getitem__(self, part: slice) -> NDArray[np.generic]:
        """Return consecutive numbers."""
        values = np.array(self._array[: self.shape[0]][part])
        release(self._array)
        return values
