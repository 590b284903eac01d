"""Files whose rows are read block by block: npy, zarr, parquet and h5ad."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bochner.data.arrays import IntArray
from bochner.data.columns import listing
from bochner.data.file_arrays import readable
from bochner.data.row_sources import ArraySource, RowSource, SomeColumns
from bochner.errors import InputError, message, shown
from bochner.extras import require
from bochner.io.array_files import check_no_objects
from bochner.io.extensions import in_zarr
from bochner.io.outputs import exists
from bochner.io.parquet.columns import schema_of
from bochner.io.parquet.parts import parts_of
from bochner.io.parquet.source import ParquetSource
from bochner.io.sparse.rows import SparseRows
from bochner.io.sparse.turned import Turned
from bochner.io.table import unreadable

if TYPE_CHECKING:
    import zarr

STORED = (".npy", ".zarr", ".parquet", ".h5ad")


def open_rows(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    columns: Sequence[str] | NDArray[np.generic] | None = None,
) -> RowSource:
    """Open rows that need not fit into memory: what an estimator's ``fit`` and ``transform`` take.

    Parameters
    ----------
    path : path-like, or sequence of them
        A ``.npy`` file, a ``.zarr`` array, the ``X`` of a ``.h5ad`` file or of a ``.zarr`` store
        that AnnData wrote, a path inside a store (``A.zarr/layers/counts``), or parquet: a file, a
        folder of files with the same columns, or several such files, in this order. Sparse matrices
        that are compressed by columns are turned over in a temporary file; zeros are observed
        values. The index of pandas and Dask is left out of the columns of parquet files, and so are
        files of a folder whose names begin with a dot or an underscore.
    columns : sequence or array of str, optional
        Columns of parquet files, such as a model's ``feature_names_in_``; by default all.

    Returns
    -------
    RowSource
        float32 where the file holds real numbers of that precision or less, else float64; null is
        NaN.

    Raises
    ------
    InputError
        There is no such file, it is of another kind or unreadable, its columns are no numbers, or
        files differ in their columns.
    """
    many = [path] if isinstance(path, str | os.PathLike) else path
    is_sequence = isinstance(many, Sequence)
    if not is_sequence or not all(isinstance(file, str | os.PathLike) for file in many):
        do = 'write open_rows("table.parquet")'
        raise InputError(message("a path, or a sequence of paths", shown(path), do))
    paths = [Path(file) for file in many]
    if not paths:
        do = "name a file"
        raise InputError(message("a path, or a sequence of paths", "none", do))
    for file in paths:
        if not exists(file):
            got = f"{file}, which does not exist"
            raise InputError(message("a file", got, "check the path"))
    names = None if columns is None else _names(columns)
    first = paths[0]
    kind = first.suffix.lower()
    if len(paths) == 1 and (kind in (".npy", ".h5ad") or in_zarr(first)):
        if names is not None:
            do = "leave columns out, or choose columns of the array"
            raise InputError(message("columns only for parquet files", f"{first}", do))
        if kind == ".npy":
            return _array(first)
        return _annotated(first) if kind == ".h5ad" else _zarr(first)
    parts = [part for file in paths for part in parts_of(file)]
    if not parts or any(file.suffix.lower() != ".parquet" for file in parts):
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        got = f"{first}{more}"
        do = "convert it, or read it whole: bochner.io.readers.read"
        if kind in (".npz", ".h5mu"):
            do = (
                "open a file per view and lay them side by side: bochner.stack; bochner fit takes "
                "it as it is"
            )
        raise InputError(message(f"rows in {', '.join(STORED)}", got, do))
    return ParquetSource(parts, names)


def _names(columns: object) -> list[str]:
    """Return the names of columns, all different, or refuse what are none."""
    # a model's feature_names_in_, or the columns of a DataFrame
    given = columns.tolist() if hasattr(columns, "tolist") else columns
    many = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else []
    names = [name for name in many if isinstance(name, str)]
    if not names or len(names) < len(many):
        do = 'write columns=["height", "weight"], or leave it out for all'
        raise InputError(message("names of columns", shown(columns), do))
    if repeated := [name for name, times in Counter(names).items() if times > 1]:
        got = f"{repeated[0]!r} more than once"
        raise InputError(message("columns that differ", got, "name it once"))
    return names


def parquet_columns(path: Path) -> list[str]:
    """Return the names of the columns of a parquet file."""
    return list(schema_of(path).names)


def _array(path: Path) -> RowSource:
    try:
        array: Any = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # whatever NumPy raises: it is the file
        check_no_objects(path)
        raise unreadable(path, "npy", error) from error
    return ArraySource(array)


def _annotated(path: Path) -> RowSource:
    """Open the X of an h5ad file."""
    h5py = require("h5py", "reads h5ad files")
    try:
        file = h5py.File(path, "r")
        names = labels(file["var"])
        matrix = file["X"]
    except Exception as error:  # whatever the library raises: it is the file
        raise unreadable(path, "h5ad", error) from error
    source = matrix_rows(matrix, path)
    source.columns = names
    return source


def _zarr(path: Path) -> RowSource:
    matrix, store = zarr_matrix(path)
    source = matrix_rows(matrix, path)
    if store is not None:
        source.columns = zarr_labels(store, "var", path)
    return source


def labels(table: Any) -> list[str]:
    """Return the names in ``obs`` or ``var`` of a file that AnnData wrote."""
    elements = require("anndata.io", "reads files of AnnData")
    return [str(name) for name in elements.read_elem(table[table.attrs["_index"]])]


def zarr_labels(store: zarr.Group, table: str, path: Path) -> list[str]:
    """Return the names in ``obs`` or ``var`` of a zarr store that AnnData wrote."""
    try:
        return labels(store[table])
    except InputError:
        raise
    except Exception as error:  # whatever the library raises: it is the file
        raise unreadable(path, "zarr", error) from error


def zarr_matrix(path: Path, layer: str | None = None) -> tuple[Any, zarr.Group | None]:
    """Open a matrix of a zarr store.

    Parameters
    ----------
    path : Path
        The store, or an array or group inside it.
    layer : str, optional
        Of a store that AnnData wrote, in place of its X.

    Returns
    -------
    matrix : array or group of zarr
    store : group of zarr, or None
        Where AnnData wrote the matrix as X or a layer: ``obs`` and ``var`` are there.
    """
    opened = _open_zarr(path)
    if _encoding(opened) == "anndata":
        element = "X" if layer is None else f"layers/{layer}"
        # anndata 0.12.0 writes that there is no X
        if element not in opened or _encoding(opened[element]) == "null":
            held = [f"layers/{name}" for name in opened.get("layers", ())]
            got = listing(held) if held else "no layers"
            do = "choose one of them with --layer, or by its path: store.zarr/layers/NAME"
            raise InputError(message(f"{element} in {path}", got, do))
        return opened[element], opened
    if layer is not None:
        do = "leave it out, or name the store"
        got = f"layer={layer!r} for {path}"
        raise InputError(message("layer only for stores that AnnData wrote", got, do))
    store = path.parents[path.parent.name == "layers"]
    if not (in_zarr(store) and (path.name == "X" or path.parent.name == "layers")):
        return opened, None
    group = _open_zarr(store)
    return opened, group if _encoding(group) == "anndata" else None


def _open_zarr(path: Path) -> Any:
    try:
        return require("zarr", "reads zarr arrays").open(str(path), mode="r")
    except InputError:
        raise
    except Exception as error:  # whatever the library raises: it is the file
        raise unreadable(path, "zarr", error) from error


def matrix_rows(
    matrix: Any, path: Path, columns: list[str] | None = None, index: IntArray | None = None
) -> RowSource:
    """Return the rows of a matrix in zarr or HDF5, dense or sparse as anndata writes it.

    Parameters
    ----------
    matrix : array or group
    path : Path
        Of its file, for messages.
    columns, index : optional
        As in `SparseRows`.

    Raises
    ------
    InputError
        It is a group of something else, or damaged.
    """
    if hasattr(matrix, "dtype") and hasattr(matrix, "shape"):
        rows = ArraySource(matrix)
        return rows if index is None else SomeColumns(rows, index, columns)
    encoding = _encoding(matrix)
    if encoding.startswith("csr"):
        return SparseRows(matrix, str(path), columns, index)
    if encoding.startswith("csc"):
        with readable(str(path)):
            matrix = Turned(matrix, str(path))
        return SparseRows(matrix, str(path), columns, index)
    # arrays first, of which it names one: the order is that in which a store lists its files
    names = sorted(
        map(str, matrix), key=lambda name: (not hasattr(matrix[name], "dtype"), name)
    )
    held = f" that holds {listing(names)}" if names else " that holds nothing"
    do = f"name one of its arrays: {path / (names[0] if names else 'NAME')}"
    raise InputError(message("an array of rows", f"the group {path}{held}", do))


def _encoding(array: object) -> str:
    attributes = dict(getattr(array, "attrs", {}))
    return str(attributes.get("encoding-type", ""))
