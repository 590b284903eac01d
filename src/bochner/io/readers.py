"""Files to tables: csv and tsv, parquet, npz, npy, h5ad, h5mu, or a folder with one file per
view.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bochner.data.columns import listing
from bochner.errors import DataWarning, InputError, message, warn_user
from bochner.io.annotated import read_h5ad, read_h5mu
from bochner.io.array_files import read_npy, read_npz
from bochner.io.csv.files import read_csv
from bochner.io.csv.headers import distinct_whole
from bochner.io.csv.write import write_csv
from bochner.io.extensions import (
    EXTENSIONS,
    LAYERED,
    NAMED,
    check_extension,
    check_source,
    extension_of,
    in_zarr,
)
from bochner.io.join import join
from bochner.io.parquet.parts import parquet_parts
from bochner.io.parquet.read import read_parquet, read_parts
from bochner.io.request import Request, Selection, selection_of
from bochner.io.table import Table, as_matrix, dense
from bochner.memory import Memory

if TYPE_CHECKING:
    from bochner.io.on_disk import StoredTable

__all__ = ["EXTENSIONS", "Table", "extension_of", "read", "write_csv"]

Reader = Callable[[Path, Request], Table]
# What files of parts of one table are called, and views hardly.
_PART = re.compile(r"(part|chunk|shard|block|batch|rows)[-_.]?\d[-_.0-9a-z]*")

_READERS: dict[str, Reader] = {
    **dict.fromkeys((".csv", ".tsv", ".csv.gz", ".tsv.gz"), read_csv),
    ".parquet": read_parquet,
    ".npz": read_npz,
    ".npy": read_npy,
    ".h5ad": read_h5ad,
    ".h5mu": read_h5mu,
}


def read(
    path: str | os.PathLike[str],
    index: str | None = None,
    layer: object = None,
    *,
    header: bool | None = None,
    columns: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    memory: Memory | None = None,
) -> Table:
    """Read data from a file, or from a folder with one file per view.

    Parameters
    ----------
    path : path-like
        ``.csv`` or ``.tsv``, also with ``.gz``, ``.parquet``, ``.npy``, ``.npz``, ``.h5ad``,
        ``.h5mu`` (modalities are views), ``.zarr`` (an array, or what AnnData
        wrote; ``A.zarr/layers/counts`` names a matrix inside), a folder of parquet files that are
        parts of one table (see `bochner.io.parquet.parts.parquet_parts`), or a folder of such
        files: the name of a file without extension is the name of its view. Views are joined by row
        name where all files have them (rows absent from a file become NaN, in order of first
        appearance); otherwise all files must have the same number of rows.
    index : str, optional
        Column of the csv and parquet files that names the rows.
    layer : str, or dict of modality to str, optional
        Layer of h5ad and h5mu files to take instead of X.
    header : bool, optional
        Whether the first line of csv files names the columns; by default its cells tell.
    columns : sequence of str, optional
        Names of the columns to read from csv and parquet files; by default all.
    drop : sequence of str
        Names of columns to leave out.
    memory : Memory, optional
        Limits; see `bochner.memory`.

    Returns
    -------
    Table

    Raises
    ------
    InputError
        When the source is missing, empty, unreadable, of unknown kind, larger than the memory
        allowed, or holds anything but numbers; when files of a folder seem to name their rows in a
        column that was not named as their index.
    """
    selection = selection_of(columns, drop)
    return read_source(
        path,
        Request(index, layer, header=header, selection=selection, memory=memory or Memory()),
    )


def read_source(path: str | os.PathLike[str], request: Request) -> Table:
    """Read data as `read` does."""
    source = check_source(path)
    folder = source.is_dir()
    try:
        if in_zarr(source) and folder:
            return _read_zarr(source, request)
        if folder and (parts := parquet_parts(source)):
            for part in parts:
                _check_file(part, request)
            table = read_parts(source, parts, request)
        else:
            table = _read_folder(source, request) if folder else _read_file(source, request)
    except InputError:
        # a name that was misspelled is the cause of what came after it
        if not folder:
            request.selection.check(str(source))
        raise
    request.selection.check(str(source))
    return table


def open_source(path: Path, request: Request) -> StoredTable | None:
    """Open data that are read block by block: see `bochner.io.on_disk.open_table`; and a folder
    with one file per view, where any of them is large.

    Parameters
    ----------
    path : Path
    request : Request

    Returns
    -------
    StoredTable, or None
        None: they are small, or of a kind that is not.

    Raises
    ------
    InputError
        As `read_source`.
    """
    # torch comes with it
    from bochner.io.on_disk import StoredTable, join_stored, open_table, open_text

    if not path.is_dir() or in_zarr(path) or parquet_parts(path):
        return open_table(path, request)
    tables: dict[str, Table] = {}
    for view, file in _views_in(path).items():
        asked = _for_file(request, view, extension_of(file))
        _check_file(file, asked)
        stored = open_table(file, asked) or open_text(
            file, asked, partial(_read_file, file, asked)
        )
        tables[view] = stored or _read_file(file, asked)
    if not any(isinstance(table, StoredTable) for table in tables.values()):
        return None
    _check_single(tables, path)
    _check_parts(tables, path)
    _check_keys(tables, path)
    request.selection.check(str(path))
    return join_stored(tables, f"file of {path}")


def _read_zarr(path: Path, request: Request) -> Table:
    # torch comes with it
    from bochner.io.on_disk import open_zarr

    table = open_zarr(path, request)
    rows = table.rows
    size = f"{rows.n_rows:,} × {rows.n_columns:,} in {path}"
    request.memory.check(8 * rows.n_rows * rows.n_columns, size)
    return Table(
        as_matrix(dense(rows.whole(), str(path)), str(path)), table.row_names, rows.columns
    )


def _read_file(path: Path, request: Request) -> Table:
    return _READERS[_check_file(path, request)](path, request)


def _check_file(path: Path, request: Request) -> str:
    """Return the extension of a file, and refuse what its kind does not have."""
    extension = check_extension(path)
    # of links that lead to themselves it says so
    size = path.stat().st_size
    if path.is_dir():
        do = "move it elsewhere, or name it by its path"
        raise InputError(message(f"a {extension} file", f"the folder {path}", do))
    if not os.access(path, os.R_OK):
        do = f"allow it: chmod u+r {shlex.quote(str(path))}"
        raise InputError(message("a file to read", f"{path} without permission", do))
    if not size:
        raise InputError(
            message(
                "a file with data",
                f"the empty file {path}",
                "check that it was written to its end",
            )
        )
    if request.layer is not None and extension not in LAYERED:
        got = f"layer={request.layer!r} for {path}"
        raise InputError(message("layer only for h5ad and h5mu files", got, "leave it out"))
    if request.mask_var is not None and extension not in LAYERED:
        got = f"mask_var={request.mask_var!r} for {path}"
        do = "leave it out, or name columns of csv and parquet files with --columns"
        raise InputError(message("mask_var only for h5ad and h5mu files", got, do))
    if extension not in NAMED:
        if request.index is not None:
            got = f"index={request.index!r} for {path}"
            do = "leave it out: arrays name no columns, and AnnData name their rows"
            raise InputError(message("index only for csv and parquet files", got, do))
        if extension != ".h5ad":
            request.selection.nameless(str(path))
    return extension


def _read_folder(folder: Path, request: Request) -> Table:
    tables = {
        view: _read_file(path, _for_file(request, view, extension_of(path)))
        for view, path in _views_in(folder).items()
    }
    _check_single(tables, folder)
    _check_parts(tables, folder)
    _check_keys(tables, folder)
    return join(tables, f"file of {folder}")


def _views_in(folder: Path) -> dict[str, Path]:
    """Return the files of a folder by their views."""
    shown = [p for p in sorted(folder.iterdir()) if not p.name.startswith(".")]
    stores = [p for p in shown if p.suffix.lower() == ".zarr"]
    if stores:
        do = "save its array as .npy or .h5ad, or name it alone by its path"
        got = f"the store {stores[0]}"
        raise InputError(message(f"one file per view in {folder}", got, do))
    paths = [p for p in shown if extension_of(p) in EXTENSIONS]
    if not paths:
        raise InputError(
            message(
                f"files {', '.join(EXTENSIONS)} in {folder}",
                "none",
                "put one file per view there",
            )
        )
    views: dict[str, Path] = {}
    for path in paths:
        view = path.name[: -len(extension_of(path))]
        if view in views:
            got = f"two files for view {view!r} in {folder}"
            raise InputError(message("one file per view", got, "rename or remove one of them"))
        views[view] = path
    return views


def _check_single(tables: Mapping[str, Table], folder: Path) -> None:
    """Refuse a file of several views in a folder."""
    for view, table in tables.items():
        if table.views is not None:
            got = f"{len(table.views)} arrays in {_views_in(folder)[view]}"
            raise InputError(
                message(
                    "one array per file of a folder", got, "save each view to its own file"
                )
            )


def _check_parts(tables: Mapping[str, Table], folder: Path) -> None:
    """Refuse files of other lengths that are called as parts of one table are, and have the same
    columns; warn of those of one length, which may be views.

    Warns
    -----
    DataWarning
    """
    called_so = all(_PART.fullmatch(view.lower()) for view in tables)
    columns = {(t.shape[1], tuple(t.column_names or ())) for t in tables.values()}
    names = [name for table in tables.values() for name in table.row_names or ()]
    if len(tables) < 2 or not called_so or len(columns) > 1 or len({*names}) < len(names):
        return
    do = (
        "write rows that follow each other into one file, or as parts of parquet; name files that "
        "are views after them, such as rna.csv"
    )
    lengths = {view: table.shape[0] for view, table in tables.items()}
    if len({*lengths.values()}) > 1 and not names:
        got = listing([f"{length:,} rows in {view!r}" for view, length in lengths.items()])
        raise InputError(
            message(f"files of {folder} that are views of the same rows", got, do)
        )
    warn_user(
        f"{listing([repr(view) for view in tables])} of {folder} are read as views, each with "
        f"columns of its own. If they are parts of one table: {do}.",
        DataWarning,
    )


def _for_file(request: Request, view: str, extension: str) -> Request:
    """Return what is asked of one file of a folder."""
    layer, mask_var = (
        choice.get(view) if isinstance(choice, dict) else choice
        for choice in (request.layer, request.mask_var)
    )
    named = extension in NAMED
    return replace(
        request,
        index=request.index if named else None,
        layer=layer if extension in LAYERED else None,
        mask_var=mask_var if extension in LAYERED else None,
        selection=request.selection.of_view(view) if named else Selection(),
    )


def _check_keys(tables: dict[str, Table], folder: Path) -> None:
    """Refuse files that would be joined by position though their first columns look like names."""
    if len(tables) < 2 or any(table.row_names is not None for table in tables.values()):
        return
    first = [table.first_column() for table in tables.values()]
    texts = [[f"{value:.0f}" for value in keys] for keys in first]
    whole = all(np.array_equal(keys, np.rint(keys)) for keys in first)
    if not (whole and all(map(distinct_whole, texts))):
        return
    names = {None if t.column_names is None else t.column_names[0] for t in tables.values()}
    name = names.pop()
    if not names and name is not None:
        got = f"the column {name!r} first in each, whole numbers that differ"
        do = (
            f"add --index {name} to join rows by it, or rename it in one of the files if it is "
            "data"
        )
        raise InputError(message(f"files of {folder} without a column of row names", got, do))
    same = len({frozenset(keys) for keys in texts}) == 1
    if same and any(keys != texts[0] for keys in texts[1:]):
        got = "the same whole numbers in another order in their first columns"
        do = "write a header in each and name the column of row names: --index NAME"
        raise InputError(message(f"rows in one order in the files of {folder}", got, do))
