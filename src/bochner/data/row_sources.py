"""Rows that need not fit into memory: one contract for arrays on disk, and what refuses the rest.

A source knows its size and gives blocks of rows; whoever reads it holds one block at a time.
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bochner.data.arrays import FloatArray, IntArray
from bochner.data.file_arrays import (
    changed,
    check_there,
    mapped_file,
    place_of,
    readable,
    release,
)
from bochner.errors import InputError, message
from bochner.memory import chunks, passes
from bochner.processes import local_part

# Numbers of a block.
_NUMBERS = 2**20
_NO_ROWS = np.empty(0, dtype=np.int64)


class RowSource(ABC):
    """Rows of numbers that are read block by block, as often as somebody asks.

    Attributes
    ----------
    n_rows : int
    n_columns : int
    columns : list of str, shape (n_columns,), or None
        Names of the columns.
    dtype : dtype
        float32 or float64: that of every block.
    is_checked : bool
        Whether a model has looked at the values before it places rows of the source.
    """

    n_rows: int
    n_columns: int
    columns: list[str] | None
    dtype: np.dtype[np.generic]
    is_checked: bool = False

    @abstractmethod
    def read(self, start: int, stop: int) -> FloatArray:
        """Return the rows from ``start`` to before ``stop``, (stop - start, n_columns)."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.n_rows, self.n_columns

    @property
    def block_rows(self) -> int:
        """Rows of a block."""
        return max(1, _NUMBERS // max(1, self.n_columns))

    @property
    def decodes(self) -> bool:
        """Whether rows are unpacked every time they are read: those of compressed files."""
        return True

    def blocks(self, start: int = 0, stop: int | None = None) -> Iterator[FloatArray]:
        """Yield the rows from ``start`` to before ``stop`` in consecutive blocks.

        Parameters
        ----------
        start : int, default=0
        stop : int, optional
            None: the number of rows.

        Yields
        ------
        ndarray of shape (at most block_rows, n_columns)
        """
        end = self.n_rows if stop is None else stop
        for part in chunks(end - start, self.block_rows):
            yield self.read(start + part.start, start + part.stop)

    def __getitem__(self, rows: slice | IntArray | NDArray[np.bool_]) -> FloatArray:
        """Return rows, as an array in memory does."""
        if not isinstance(rows, slice):
            return self.take(self._numbers_of(np.asarray(rows)))
        start, stop, step = rows.indices(self.n_rows)
        if step == 1:
            parts = list(self.blocks(start, stop))
            return (
                parts[0] if len(parts) == 1 else np.concatenate([self.take(_NO_ROWS), *parts])
            )
        return self.take(np.arange(start, stop, step))

    def _numbers_of(self, rows: NDArray[np.generic]) -> IntArray:
        """Return the numbers of rows that a mask marks, or that are counted from the end."""
        if rows.shape == (0,) and rows.dtype.kind == "f":
            # to NumPy an empty list is one of real numbers
            return np.empty(0, dtype=np.int64)
        if rows.ndim != 1 or rows.dtype.kind not in "iub":
            got = f"{rows.dtype} of shape {rows.shape}"
            want = "rows as a slice, a list of their numbers or a mask"
            raise InputError(message(want, got, "write rows[[3]] for row 3"))
        if rows.dtype.kind == "b" and len(rows) == self.n_rows:
            return np.flatnonzero(rows)
        if rows.dtype.kind == "b":
            got = f"{len(rows):,}"
            raise InputError(message(f"a mask of {self.n_rows:,} rows", got, "correct it"))
        index: IntArray = rows.astype(np.int64, copy=False)
        outside = (index < -self.n_rows) | (index >= self.n_rows)
        if outside.any():
            got = f"row {int(index[outside][0])}"
            raise InputError(message(f"rows of {self.n_rows:,}", got, "correct its number"))
        return np.where(index < 0, index + self.n_rows, index)

    def take(self, index: IntArray) -> FloatArray:
        """Return rows by their numbers, (l,), in that order: blocks without one are not read."""
        out = np.empty((len(index), self.n_columns), self.dtype)
        block = index // self.block_rows
        for number in np.unique(block):
            places = np.flatnonzero(block == number)
            first = int(number) * self.block_rows
            rows = self.read(first, min(first + self.block_rows, self.n_rows))
            out[places] = rows[index[places] - first]
        return out

    def whole(self) -> Any:
        """Return all rows, in memory: an array, or a sparse matrix where the file has one."""
        return self.read(0, self.n_rows)

    @property
    def held_bytes(self) -> int:
        """Bytes of what `whole` returns."""
        return self.n_rows * self.n_columns * self.dtype.itemsize

    def is_complete(self) -> bool:
        """Return whether no entry is missing: one pass over the rows."""
        return not any(bool(np.isnan(block).any()) for block in self.blocks())

    def checksum(self) -> int:
        """Return a number that another content has not, but by chance: one pass over all rows."""
        value = 0
        for block in self.blocks():
            value = zlib.crc32(np.ascontiguousarray(block).data, value)
        return value


class ArraySource(RowSource):
    """An array that gives rows by slices: NumPy's, memory maps, zarr, HDF5 and Dask arrays.

    Parameters
    ----------
    array : array-like of shape (N, M)
        With ``shape``, ``dtype`` and slices of rows.

    Raises
    ------
    InputError
        It does not have two dimensions of real numbers.
    """

    columns = None

    def __init__(self, array: Any) -> None:
        shape = tuple(array.shape)
        if len(shape) != 2:
            got = f"{len(shape)} dimensions, shape {shape}"
            raise InputError(
                message("a two-dimensional array (rows × columns)", got, "reshape it")
            )
        self.array = array
        self.n_rows = int(shape[0])
        self.n_columns = int(shape[1])
        self.dtype = floating(np.dtype(array.dtype))
        pieces = getattr(array, "chunks", None)
        self._piece = int(pieces[0]) if pieces and isinstance(pieces[0], int) else 1

    @property
    def block_rows(self) -> int:
        """Rows of a block: whole pieces of a file that is compressed piece by piece."""
        return max(1, super().block_rows // self._piece) * self._piece

    @property
    def decodes(self) -> bool:
        """Whether rows are unpacked every time they are read: those of memory maps are not."""
        return not isinstance(self.array, np.ndarray)

    # what has no finite number of that precision is refused by name
    @np.errstate(over="ignore", invalid="ignore")
    def read(self, start: int, stop: int) -> FloatArray:
        """Return the rows from ``start`` to before ``stop``."""
        check_there(self.array)
        with readable(place_of(self.array)):
            part = np.asarray(self.array[start:stop])
        if part.shape != (stop - start, self.n_columns):
            place = f"rows {start} to {stop - 1}"
            wanted = (stop - start, self.n_columns)
            raise changed(f"shape {part.shape} for {place}, which had {wanted}")
        rows = part.astype(self.dtype, copy=mapped_file(self.array) is not None)
        release(self.array)
        return rows


class _OfAnother(RowSource):
    """Rows that are cut from those of a source, whose blocks they share."""

    source: RowSource

    @property
    def block_rows(self) -> int:
        """Rows of a block."""
        return self.source.block_rows

    @property
    def decodes(self) -> bool:
        """Whether rows are unpacked every time they are read."""
        return self.source.decodes


class PartSource(_OfAnother):
    """Consecutive rows of a source.

    Parameters
    ----------
    source : RowSource
    part : slice
    is_checked : bool
    """

    def __init__(self, source: RowSource, part: slice, is_checked: bool = False) -> None:
        self.source = source
        self.is_checked = is_checked
        self._start = part.start
        self.n_rows = part.stop - part.start
        self.n_columns = source.n_columns
        self.columns = source.columns
        self.dtype = source.dtype

    def read(self, start: int, stop: int) -> FloatArray:
        """Return the rows from ``start`` to before ``stop``."""
        return self.source.read(self._start + start, self._start + stop)


def additive_checksum(X: Any, start: int) -> int:
    """Return a number, below 2^64, that another content has not, but by chance; those of
    consecutive parts of rows add up to that of all, modulo 2^64.

    Parameters
    ----------
    X : ndarray or RowSource of shape (n, M)
    start : int
        Number of the first row among all.
    """
    words = {4: np.uint32, 8: np.uint64}
    odd = np.random.Generator(np.random.PCG64(0)).integers(
        2**63, size=X.shape[1], dtype=np.uint64
    )
    total = 0
    for rows in passes(X.shape):
        part = np.ascontiguousarray(X[rows])
        mixed = (part.view(words[part.itemsize]) * (2 * odd + 1)).sum(axis=1, dtype=np.uint64)
        mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(0x9E3779B97F4A7C15)
        place = np.arange(start + rows.start, start + rows.stop, dtype=np.uint64)
        mixed = (mixed ^ (mixed >> np.uint64(29))) * (2 * place + 1)
        total += int(mixed.sum(dtype=np.uint64))
    return total % 2**64


class SomeColumns(_OfAnother):
    """Columns of a source.

    Parameters
    ----------
    source : RowSource
    index : ndarray of int, shape (n_columns,)
    columns : list of str, optional
        Their names.
    """

    def __init__(self, source: RowSource, index: IntArray, columns: list[str] | None) -> None:
        self.source = source
        self._index = index
        self.n_rows = source.n_rows
        self.n_columns = len(index)
        self.columns = columns
        self.dtype = source.dtype

    def read(self, start: int, stop: int) -> FloatArray:
        """Return the rows from ``start`` to before ``stop``."""
        # in the layout of rows in memory: products of another round in another way
        return np.ascontiguousarray(self.source.read(start, stop)[:, self._index])

    def whole(self) -> Any:
        """Return all rows, in memory."""
        return self.source.whole()[:, self._index]


class JoinedSource(RowSource):
    """Views of the same rows from several sources, side by side; or some rows of one.

    Parameters
    ----------
    sources : sequence of RowSource
    columns : list of str, optional
        Names of all columns.
    index : sequence of (ndarray of int, shape (n_rows,), or None), optional
        Which row of each source a row is; -1: it has none there, and NaN in its place. None: the
        rows of the source as they are.

    Raises
    ------
    InputError
        Sources without an index differ in their number of rows.
    """

    def __init__(
        self,
        sources: Sequence[RowSource],
        columns: list[str] | None = None,
        index: Sequence[IntArray | None] | None = None,
    ) -> None:
        self._parts = list(zip(sources, index or [None] * len(sources), strict=True))
        counts = [s.n_rows if rows is None else len(rows) for s, rows in self._parts]
        if len(set(counts)) > 1:
            got = ", ".join(f"{count:,}" for count in counts)
            raise InputError(
                message("views of the same rows", f"{got} rows", "give each view all rows")
            )
        self.n_rows = counts[0]
        self.n_columns = sum(source.n_columns for source in sources)
        self.columns = columns
        self.dtype = np.result_type(*(source.dtype for source in sources))

    @property
    def decodes(self) -> bool:
        """Whether rows of any source are unpacked every time they are read."""
        return any(source.decodes for source, _ in self._parts)

    def read(self, start: int, stop: int) -> FloatArray:
        """Return the rows from ``start`` to before ``stop``."""
        out = np.empty((stop - start, self.n_columns), self.dtype)
        first = 0
        for source, index in self._parts:
            view = out[:, first : first + source.n_columns]
            first += source.n_columns
            if index is None:
                view[:] = source.read(start, stop)
                continue
            rows = index[start:stop]
            there = rows >= 0
            view[~there] = np.nan
            if there.any():
                view[there] = _taken(source, rows[there])
        return out


def _taken(source: RowSource, rows: IntArray) -> FloatArray:
    """Return rows by their numbers; consecutive ones are read at once, whatever the blocks."""
    first, last = int(rows[0]), int(rows[-1])
    if last - first == len(rows) - 1 and bool((np.diff(rows) == 1).all()):
        return source.read(first, last + 1)
    return source.take(rows)


def share(X: Any) -> Any:
    """Return the part of rows that this process fits, within `distributed`: consecutive ones, which
    are not read yet where X is not in memory. Outside it all rows.

    Parameters
    ----------
    X : ndarray, DataFrame, row source, or array of zarr or HDF5
        All rows, the same in every process.

    Returns
    -------
    ndarray, DataFrame or RowSource
    """
    source = source_of(X)
    # sparse matrices have no length
    shape = getattr(X, "shape", None)
    n_rows = len(X) if shape is None else shape[0]
    part = local_part(n_rows if source is None else source.n_rows)
    if source is not None:
        return PartSource(source, part)
    return X.iloc[part] if hasattr(X, "iloc") else X[part]


def source_of(X: object) -> RowSource | None:
    """Return the rows of X as a source where X is not in memory: a source, a memory map, an array
    of zarr or HDF5; else None.

    Raises
    ------
    InputError
        X is a group in place of one of its arrays, has no two dimensions of real numbers, or is a
        Dask array.
    """
    if isinstance(X, np.memmap):
        plain = X.ndim == 2 and X.dtype.kind in "biuf" and X.size > 0
        return ArraySource(X) if plain else None
    if type(X).__module__.partition(".")[0] == "dask" and is_stored(X):
        do = (
            "write bochner.dask.fit(estimator, X), bochner.dask.transform(model, X), or "
            "X.compute()"
        )
        raise InputError(message("rows in memory or in a file", "a Dask array", do))
    return read_by_parts(X)


def read_by_parts(X: object) -> RowSource | None:
    """Return the rows of X as a source where X is one already, or gives rows by slices and is no
    array in memory; else None.

    Raises
    ------
    InputError
        As `is_stored`.
    """
    if isinstance(X, RowSource):
        return X
    return ArraySource(X) if is_stored(X) else None


def floating(dtype: np.dtype[np.generic]) -> np.dtype[np.generic]:
    """Return the precision in which numbers of a type are computed: float32 stays, whole numbers
    and all others become float64.

    Raises
    ------
    InputError
        The type is none of real numbers.
    """
    if dtype.kind not in "biuf":
        raise InputError(
            message("real numbers", f"the type {dtype}", "convert them to numbers")
        )
    small = dtype.kind == "f" and dtype.itemsize <= 4
    return np.dtype(np.float32 if small else np.float64)


DASK_TABLE = "DataFrame of Dask"


def is_dask_table(X: object) -> bool:
    """Return whether X is a DataFrame or a Series of Dask, which has no rows to count yet."""
    return type(X).__module__.startswith("dask") and hasattr(X, "to_dask_array")


def is_stored(X: object) -> bool:
    """Return whether rows of X are read from it by slices, and X is no array in memory: zarr, HDF5
    and Dask arrays.

    Raises
    ------
    InputError
        X is a zarr or HDF5 group in place of one of its arrays, a DataFrame of Dask, or a Dask
        array of unknown size.
    """
    kind = type(X).__module__.partition(".")[0]
    if kind not in ("zarr", "h5py", "dask"):
        return False
    check_there(X)
    if is_dask_table(X):
        do = "make it an array: X.to_dask_array(lengths=True)"
        raise InputError(message("an array of rows", f"a {DASK_TABLE}", do))
    if not hasattr(X, "dtype") or not hasattr(X, "shape"):
        names = [str(name) for name in X] if hasattr(X, "__iter__") else []
        group: Any = X
        first = next((repr(n) for n in names if hasattr(group[n], "dtype")), "NAME")
        held = f" that holds {', '.join(map(repr, names[:5]))}" if names else ""
        do = f"choose one of its arrays: group[{first}]"
        if {"data", "indices", "indptr"} <= {*names}:
            do = "open the sparse matrix by its file: bochner.open_rows(path)"
        raise InputError(message("an array of rows", f"a {kind} group{held}", do))
    if any(size != size for size in X.shape):  # noqa: PLR0124 - Dask writes NaN where unknown
        got = f"a Dask array of shape {X.shape}"
        do = "count its rows first: X.compute_chunk_sizes()"
        raise InputError(message("an array with a known number of rows", got, do))
    return True
