"""Files whose rows are read block by block: npy, zarr, parquet and h5ad."""

from __future__ import annotations

import bisect
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bochner.data.arrays import FloatArray
from bochner.data.columns import describe_column
from bochner.data.row_sources import ArraySource, IntArray, RowSource, floating, is_stored
from bochner.errors import InputError, message
from bochner.extras import require
from bochner.io.frames import parts_of, schema_of
from bochner.io.outputs import exists
from bochner.io.table import dense, unreadable

STORED = (".npy", ".zarr", ".parquet", ".h5ad")


def open_rows(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    columns: Sequence[str] | None = None,
) -> RowSource:
    """Open rows that need not fit into memory: what an estimator's ``fit`` and ``transform`` take.

    Parameters
    ----------
    path : path-like, or sequence of them
        A ``.npy`` file, a ``.zarr`` array or sparse matrix of anndata, the ``X`` of a ``.h5ad``
        file, or parquet: a file, a folder of files with the same columns, or several such files, in
        this order. Sparse matrices are compressed by rows; zeros are observed values.
    columns : sequence of str, optional
        Columns of parquet files; by default all.

    Returns
    -------
    RowSource
        float32 where the file is, else float64; null is NaN.

    Raises
    ------
    InputError
        There is no such file, it is of another kind or unreadable, or its columns are no numbers.
    """
    many = [path] if isinstance(path, str | os.PathLike) else path
    is_sequence = isinstance(many, Sequence)
    if not is_sequence or not all(isinstance(file, str | os.PathLike) for file in many):
        do = 'write open_rows("table.parquet")'
        raise InputError(message("a path, or a sequence of paths", f"{path!r:.60}", do))
    paths = [Path(file) for file in many]
    if not paths:
        do = "name a file"
        raise InputError(message("a path, or a sequence of paths", "none", do))
    for file in paths:
        if not exists(file):
            got = f"{file}, which does not exist"
            raise InputError(message("a file", got, "check the path"))
    first = paths[0]
    kind = first.suffix.lower()
    if len(paths) == 1 and kind in (".npy", ".zarr", ".h5ad"):
        if columns is not None:
            do = "leave columns out, or choose columns of the array"
            raise InputError(message("columns only for parquet files", f"{first}", do))
        return _annotated(first) if kind == ".h5ad" else _array(first)
    parts = [part for file in paths for part in parts_of(file)]
    if not parts or any(file.suffix.lower() != ".parquet" for file in parts):
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        got = f"{first}{more}"
        do = "convert it, or read it whole: bochner.io.readers.read"
        raise InputError(message(f"rows in {', '.join(STORED)}", got, do))
    return ParquetSource(parts, columns)


def parquet_columns(path: Path) -> list[str]:
    """Return the names of the columns of a parquet file."""
    return list(schema_of(path).names)


def _array(path: Path) -> RowSource:
    try:
        if path.suffix.lower() == ".npy":
            array: Any = np.load(path, mmap_mode="r", allow_pickle=False)
        else:
            array = require("zarr", "reads zarr arrays").open(str(path), mode="r")
    except InputError:
        raise
    except Exception as error:  # whatever the library raises: it is the file
        raise unreadable(path, path.suffix[1:], error) from error
    if path.suffix.lower() != ".npy" and _encoding(array):
        return _sparse(path, array)
    is_stored(array)  # refuses a group
    return ArraySource(array)


def _encoding(array: object) -> str:
    attributes = dict(getattr(array, "attrs", {}))
    return str(attributes.get("encoding-type", ""))


def _sparse(path: Path, group: object) -> RowSource:
    """Open a sparse matrix as anndata writes it."""
    encoding = _encoding(group)
    if not encoding.startswith("csr"):
        got = f"{encoding} in {path}"
        do = "write it compressed by rows: X.tocsr()"
        raise InputError(message("a sparse matrix by rows", got, do))
    return SparseRows(group)


def _annotated(path: Path) -> RowSource:
    """Open the X of an h5ad file."""
    h5py = require("h5py", "reads h5ad files")
    elements = require("anndata.io", "reads h5ad files")
    try:
        file = h5py.File(path, "r")
        variables = file["var"]
        index = variables.attrs["_index"]
        names = [str(name) for name in elements.read_elem(variables[index])]
        matrix = file["X"]
    except Exception as error:  # whatever the library raises: it is the file
        raise unreadable(path, "h5ad", error) from error
    source = ArraySource(matrix) if isinstance(matrix, h5py.Dataset) else _sparse(path, matrix)
    source.columns = names
    return source


class SparseRows(RowSource):
    """A sparse matrix in a file, compressed by rows: its blocks are dense, zeros are observed.

    Parameters
    ----------
    group : group of HDF5 or zarr
        With ``data``, ``indices``, ``indptr`` and the attribute ``shape``, as anndata writes it.
    columns : list of str, optional
        Names.
    index : ndarray of int, shape (n_columns,), optional
        Which columns of the matrix these are; None: all.
    """

    def __init__(
        self, group: Any, columns: list[str] | None = None, index: IntArray | None = None
    ) -> None:
        self._group = group
        self._index = slice(None) if index is None else index
        self._shape = tuple(int(n) for n in group.attrs["shape"])
        self.n_rows = self._shape[0]
        self.n_columns = self._shape[1] if index is None else len(index)
        self.columns = columns
        self.dtype = floating(np.dtype(group["data"].dtype))

    def _rows(self, start: int, stop: int) -> Any:
        ends = np.asarray(self._group["indptr"][start : stop + 1], dtype=np.int64)
        entries = slice(int(ends[0]), int(ends[-1]))
        values = self._group["data"][entries]
        places = self._group["indices"][entries]
        parts = (values, places, ends - ends[0])
        rows: Any = sp.csr_array(parts, shape=(stop - start, self._shape[1]))
        return rows[:, self._index].astype(self.dtype)

    def read(self, start: int, stop: int) -> FloatArray:
        """Return the rows from ``start`` to before ``stop``."""
        return dense(self._rows(start, stop), "the file", self.dtype)

    def whole(self) -> Any:
        """Return all rows, sparse."""
        return self._rows(0, self.n_rows)

    @property
    def held_bytes(self) -> int:
        """Bytes of the numbers and of their places."""
        return int(self._group["data"].shape[0]) * (self.dtype.itemsize + 8)


class ParquetSource(RowSource):
    """Columns of numbers in one or several parquet files with the same columns.

    Parameters
    ----------
    paths : sequence of Path
        Their rows follow each other.
    columns : sequence of str, optional
        None: all.

    Raises
    ------
    InputError
        A file is unreadable, lacks a column, or a column holds no numbers.
    """

    def __init__(self, paths: Sequence[Path], columns: Sequence[str] | None = None) -> None:
        self._parquet = require("pyarrow.parquet", "reads parquet files")
        self._paths = list(paths)
        first = schema_of(self._paths[0])
        self.columns = list(first.names if columns is None else columns)
        kinds = set()
        self._groups: list[tuple[int, int]] = []
        ends = [0]
        for number, path in enumerate(self._paths):
            kinds |= self._kinds(path)
            metadata = self._parquet.read_metadata(path)
            for group in range(metadata.num_row_groups):
                self._groups.append((number, group))
                ends.append(ends[-1] + metadata.row_group(group).num_rows)
        self._ends = ends[1:]
        self.n_rows = ends[-1]
        self.n_columns = len(self.columns)
        self.dtype = np.dtype(np.float32 if kinds == {"float"} else np.float64)
        self._last: tuple[int, Any] = (-1, None)
        nothing = np.empty((0, self.n_columns), self.dtype)
        self._held: tuple[int, NDArray[np.generic]] = (-1, nothing)

    def read(self, start: int, stop: int) -> FloatArray:
        """Return the rows from ``start`` to before ``stop``; the last row group is still there."""
        parts = [np.empty((0, self.n_columns), self.dtype)]
        number = bisect.bisect_right(self._ends, start)
        while start < stop:
            end = self._ends[number]
            rows = self._group(number)
            first = end - len(rows)
            last = min(stop, end)
            parts.append(rows[start - first : last - first])
            start = last
            number += 1
        return np.concatenate(parts)

    def _group(self, number: int) -> NDArray[np.generic]:
        if self._held[0] != number:
            file, group = self._groups[number]
            path = self._paths[file]
            try:
                footer = self._footer(file)
                with self._parquet.ParquetFile(path, metadata=footer) as opened:
                    table = opened.read_row_group(group, columns=self.columns)
            except Exception as error:  # whatever the library raises: it is the file
                raise unreadable(path, "parquet", error) from error
            out = np.empty((table.num_rows, self.n_columns), self.dtype)
            for j, name in enumerate(self.columns or []):
                out[:, j] = table.column(name).to_numpy()
            self._held = (number, out)
        return self._held[1]

    def _footer(self, file: int) -> Any:
        """Return what a file says of its row groups: long where columns are many, and the same for
        all groups of the file.
        """
        if self._last[0] != file:
            self._last = (file, self._parquet.read_metadata(self._paths[file]))
        return self._last[1]

    def _kinds(self, path: Path) -> set[str]:
        """Return the types of the columns of a file, and refuse what cannot be used."""
        schema = schema_of(path)
        kinds = set()
        for j, name in enumerate(self.columns or []):
            if name not in schema.names:
                got = f"none in {path}"
                do = "choose columns of all files"
                raise InputError(message(f"a column {name!r}", got, do))
            kind = str(schema.field(name).type)
            if not kind.startswith(("int", "uint", "float", "double", "half", "bool")):
                got = f"the type {kind}, {describe_column(j, self.columns)} of {path}"
                do = "name the columns of numbers: columns=[...], or --columns and --drop"
                raise InputError(message("numbers", got, do))
            kinds.add(kind)
        return kinds
