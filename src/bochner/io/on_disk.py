"""Tables of so many rows that they are read block by block."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bochner.data.arrays import FloatArray, IntArray
from bochner.data.file_arrays import readable
from bochner.data.row_sources import ArraySource, JoinedSource, RowSource
from bochner.data.stored import unpacked
from bochner.errors import InputError, message
from bochner.extras import require
from bochner.io.annotated import by_modality, check_survives, mask_of
from bochner.io.array_files import beside_arrays, map_arrays
from bochner.io.csv.source import open_csv
from bochner.io.extensions import extension_of, in_zarr
from bochner.io.join import beside_numbers, check_unique, joined_rows
from bochner.io.parquet.columns import schema_of
from bochner.io.parquet.parts import parquet_parts
from bochner.io.parquet.read import Chosen
from bochner.io.parquet.source import ParquetSource
from bochner.io.request import NamedColumns, Request, Selection
from bochner.io.stored import labels, matrix_rows, open_rows, zarr_labels, zarr_matrix
from bochner.io.table import Table, check_not_empty
from bochner.memory import EXPANSION

# Numbers of a table that is not small.
MANY = 2**22


@dataclass(frozen=True)
class StoredTable(Table):
    """A table that is not in memory: X has its columns and no rows.

    Attributes
    ----------
    source : RowSource, optional
        The rows.
    """

    source: RowSource | None = None

    @classmethod
    def of(
        cls, source: RowSource, row_names: list[str] | None = None, **beside: Any
    ) -> StoredTable:
        """Wrap rows, their names, and what else a table has beside its numbers."""
        beside.setdefault("column_names", source.columns)
        return cls(np.empty((0, source.n_columns)), row_names, source=source, **beside)

    @property
    def rows(self) -> RowSource:
        """The rows."""
        assert self.source is not None
        return self.source

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.rows.shape

    def first_column(self) -> FloatArray:
        """Return the first column, read block by block."""
        return np.concatenate([block[:, 0] for block in self.rows.blocks()])

    def sampled(self, most: int) -> Table:
        """Return some rows in memory, spread evenly."""
        some = evenly(self.rows.n_rows, most)
        names = None if self.row_names is None else [self.row_names[i] for i in some]
        values = self.rows.take(some).astype(np.float64)
        labels = None if self.labels is None else self.labels[some]
        return Table(values, names, self.column_names, self.views, labels, self.index_name)


def join_stored(
    tables: Mapping[str, Table], place: str, order: Sequence[str] | None = None
) -> StoredTable:
    """Lay tables side by side as views, as `bochner.io.join.join` does, of which any is not in
    memory: nor is what they make together.
    """
    index, names = joined_rows(tables, place, order)
    beside = beside_numbers(tables, names)
    sources = [
        table.rows if isinstance(table, StoredTable) else ArraySource(table.X)
        for table in tables.values()
    ]
    return StoredTable.of(JoinedSource(sources, beside["column_names"], index), **beside)


def evenly(n_rows: int, most: int) -> IntArray:
    """Return at most so many row numbers, spread evenly."""
    return np.linspace(0, n_rows - 1, min(most, n_rows)).astype(np.int64)


def open_table(path: Path, request: Request) -> StoredTable | None:
    """Open a table that is read block by block; None: it is small, or of a kind that is not.

    Parameters
    ----------
    path : Path
        A ``.npy`` or ``.npz`` file, a ``.zarr`` array or a path inside a store, a parquet file or
        a folder of parts of one, a ``.h5ad`` or ``.h5mu`` file.
    request : Request

    Raises
    ------
    InputError
        A column holds no numbers, or is not there.
    """
    kind = path.suffix.lower()
    if kind == ".npy":
        return _array(path, request)
    if in_zarr(path) and path.is_dir():
        return open_zarr(path, request)
    if files := parquet_parts(path):
        return _parquet(path, files, request)
    opens = {".npz": _archive, ".h5ad": _annotated, ".h5mu": _modalities}
    return opens[kind](path, request) if kind in opens and path.is_file() else None


def open_text(path: Path, request: Request, whole: Callable[[], object]) -> StoredTable | None:
    """Open a csv file whose rows are read block by block; None: it is small, or not plain.

    Parameters
    ----------
    path : Path
    request : Request
    whole : callable
        Reads all of the file, and says where a cell is no number.
    """
    kind = extension_of(path)
    if not kind.startswith((".csv", ".tsv")) or not path.is_file():
        return None
    # a number takes two characters, compressed ones few bits
    most = path.stat().st_size * (EXPANSION if kind.endswith(".gz") else 1)
    if most <= 2 * MANY:
        return None
    opened = open_csv(path, request, whole)
    if opened is None or not _is_large(opened[0].shape):
        return None
    request.selection.check(str(path))
    source, row_names, index_name = opened
    # numbers are read from their cells once
    return StoredTable.of(unpacked(source), row_names, index_name=index_name)


def _array(path: Path, request: Request) -> StoredTable | None:
    if not _is_plain(request):
        return None  # refused by who reads it whole
    try:
        source = open_rows(path)
    except InputError:
        return None
    return StoredTable.of(source) if _is_large(source.shape) else None


def _is_plain(request: Request) -> bool:
    """Tell whether nothing is asked for that arrays without names do not have."""
    named = request.index is not None or request.layer is not None
    return not named and request.mask_var is None and type(request.selection) is Selection


def _archive(path: Path, request: Request) -> StoredTable | None:
    """Open the arrays of an npz file: views, where there are several."""
    if not _is_plain(request):
        return None
    try:
        arrays = map_arrays(path, request.memory, MANY)
    except InputError:
        return None  # said by who reads it whole
    if arrays is None:
        return None
    beside = beside_arrays(arrays, path)
    sources = [ArraySource(array) for array in arrays.values() if array.ndim == 2]
    return StoredTable.of(JoinedSource(sources, beside["column_names"]), **beside)


def open_zarr(path: Path, request: Request) -> StoredTable:
    """Open a zarr array, or a matrix that AnnData wrote with the names of its rows and columns.

    Raises
    ------
    InputError
        What is asked for is not there, or the store holds no such matrix.
    """
    if request.index is not None:
        got = f"index={request.index!r} for {path}"
        do = "leave it out: arrays name no columns, and AnnData name their rows"
        raise InputError(message("index only for csv and parquet files", got, do))
    if request.layer is not None and not isinstance(request.layer, str):
        do = "name one: --layer counts"
        raise InputError(message(f"one layer of {path}", f"{request.layer!r}", do))
    matrix, store = zarr_matrix(path, request.layer)
    if store is not None:
        names = [zarr_labels(store, part, path) for part in ("obs", "var")]
        table = _named(path, request, matrix, store, names)
        check_not_empty(table.shape, str(path))
        return table
    if request.mask_var is not None:
        got = f"mask_var={request.mask_var!r} for {path}"
        raise InputError(
            message("mask_var only for stores that AnnData wrote", got, "leave it out")
        )
    request.selection.nameless(str(path))
    rows = matrix_rows(matrix, path)
    check_not_empty(rows.shape, str(path))
    return StoredTable.of(rows)


def _is_large(shape: tuple[int, int]) -> bool:
    return shape[0] * shape[1] > MANY


def _parquet(place: Path, files: Sequence[Path], request: Request) -> StoredTable | None:
    parquet = require("pyarrow.parquet", "reads parquet files")
    schema = schema_of(files[0])
    n_rows = sum(parquet.read_metadata(path).num_rows for path in files)
    layered = request.layer is not None or request.mask_var is not None
    if layered or not _is_large((n_rows, len(schema.names))):
        return None
    chosen = Chosen.of(place, files, request)
    rows = ParquetSource(files, chosen.columns)
    return StoredTable.of(rows, chosen.row_names, index_name=chosen.index_name)


def _annotated(path: Path, request: Request) -> StoredTable | None:
    """Open the matrix of an AnnData file, or a layer of it."""
    h5py = require("h5py", "reads h5ad files")
    check_survives(path)
    try:
        file = h5py.File(path, "r")
        matrix = _matrix_of(file, request.layer)
    except (OSError, KeyError, TypeError):
        return None  # refused by who reads it whole
    if not _is_large(_sizes(matrix)):
        file.close()
        return None
    with readable(str(path)):
        names = [labels(file[part]) for part in ("obs", "var")]
    return _named(path, request, matrix, file, names)


def _modalities(path: Path, request: Request) -> StoredTable | None:
    """Open the matrices of a MuData file, or layers of them: modalities are views."""
    if request.index is not None or type(request.selection) is NamedColumns:
        return None  # refused by who reads it whole
    h5py = require("h5py", "reads h5mu files")
    check_survives(path)
    try:
        file = h5py.File(path, "r")
        names = [str(name) for name in file["mod"].attrs["mod-order"]]
        layers = by_modality(request.layer, names, "layer")
        masks = by_modality(request.mask_var, names, "mask_var")
        matrices = {name: _matrix_of(file["mod"][name], layers[name]) for name in names}
        sizes = [_sizes(matrix) for matrix in matrices.values()]
        order = labels(file["obs"])
    except (OSError, KeyError, TypeError, InputError):
        return None
    whole = all(map(all, sizes)) and int(file.attrs.get("axis", 0)) == 0
    # a name asks for a mask of the modalities that have it
    if isinstance(request.mask_var, str) or not whole or sum(map(math.prod, sizes)) <= MANY:
        file.close()
        return None
    tables: dict[str, Table] = {}
    for name, matrix in matrices.items():
        group = file["mod"][name]
        with readable(str(path)):
            named = [labels(group[part]) for part in ("obs", "var")]
        asked = replace(request, mask_var=masks[name])
        tables[name] = _named(path, asked, matrix, group, named)
    there = {row for table in tables.values() for row in table.row_names or ()}
    return join_stored(tables, f"modality of {path}", [row for row in order if row in there])


def _matrix_of(group: Any, layer: str | None) -> Any:
    """Return the X of what AnnData wrote, or a layer.

    Raises
    ------
    KeyError
        There is none, or it is stored in a way that is not read by rows.
    """
    matrix = group["X"] if layer is None else group["layers"][layer]
    is_dense = hasattr(matrix, "dtype")
    if not is_dense and not str(matrix.attrs["encoding-type"]).startswith(("csr", "csc")):
        raise KeyError(matrix.name)
    return matrix


def _sizes(matrix: Any) -> tuple[int, int]:
    """Return the rows and columns of a matrix in a file; none of what is no matrix."""
    sizes = matrix.attrs.get("shape", getattr(matrix, "shape", ()))
    return (int(sizes[0]), int(sizes[1])) if len(sizes) == 2 else (0, 0)


def _named(
    path: Path, request: Request, matrix: Any, store: Any, names: Sequence[list[str]]
) -> StoredTable:
    """Return a matrix that AnnData wrote with the names of its rows and columns."""
    rows, columns = names
    check_unique(rows, "row", f"{path.name}.obs_names")
    check_unique(columns, "column", f"{path.name}.var_names")
    kept = np.array(request.selection.kept(columns), dtype=np.int64)
    request.selection.check(str(path))
    if request.mask_var is not None:
        elements = require("anndata.io", "reads files of AnnData")
        with readable(str(path)):
            variables = elements.read_elem(store["var"])
        mask = mask_of(variables, len(columns), request.mask_var, path.name)
        kept = kept[mask[kept]]
    named = [columns[j] for j in kept]
    return StoredTable.of(matrix_rows(matrix, path, named, kept), rows)
