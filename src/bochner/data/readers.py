"""Files to tables: npz, npy, csv, or a folder with one file per view."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bochner.data.array_files import consecutive, read_npy, read_npz
from bochner.data.columns import listing
from bochner.data.csv_files import read_csv, write_csv
from bochner.data.table import Table
from bochner.errors import InputError, message

__all__ = ["Table", "read", "write_csv"]

_ARRAYS: dict[str, Callable[[Path], Table]] = {".npz": read_npz, ".npy": read_npy}
EXTENSIONS = (".csv", *_ARRAYS)


def read(path: str | os.PathLike[str], index: str | None = None) -> Table:
    """Read data from a file, or from a folder with one file per view.

    Parameters
    ----------
    path : path-like
        ``.csv``, ``.npy``, ``.npz``, or a folder of such files: the name of a file without extension is the name of
        its view. Views are joined by row name where all files have them (rows absent from a file become NaN, in
        order of first appearance); otherwise all files must have the same number of rows.
    index : str, optional
        Column of the csv files that names the rows.

    Returns
    -------
    Table

    Raises
    ------
    InputError
        When the source is missing, empty, unreadable, of unknown kind, or holds anything but numbers.
    """
    source = Path(path)
    if source.is_dir():
        return _read_folder(source, index)
    if not source.exists():
        raise InputError(message("a file or folder", f"{source}, which does not exist", "check the path"))
    return _read_file(source, index)


def _read_file(path: Path, index: str | None) -> Table:
    extension = path.suffix.lower()
    if extension not in EXTENSIONS:
        got = f"{path} with extension {extension!r}" if extension else f"{path} without extension"
        raise InputError(message(f"one of {', '.join(EXTENSIONS)} or a folder of them", got, "convert the file"))
    if not path.stat().st_size:
        raise InputError(message("a file with data", f"the empty file {path}", "check that it was written to its end"))
    if extension == ".csv":
        return read_csv(path, index)
    if index is not None:
        got = f"index={index!r} for {path}"
        raise InputError(message("index only for csv files", got, "leave it out: arrays name no columns"))
    return _ARRAYS[extension](path)


def _read_folder(folder: Path, index: str | None) -> Table:
    paths = [p for p in sorted(folder.iterdir()) if p.suffix.lower() in EXTENSIONS and not p.name.startswith(".")]
    if not paths:
        raise InputError(message(f"files {', '.join(EXTENSIONS)} in {folder}", "none", "put one file per view there"))
    tables: dict[str, Table] = {}
    for path in paths:
        if path.stem in tables:
            got = f"two files for view {path.stem!r} in {folder}"
            raise InputError(message("one file per view", got, "rename or remove one of them"))
        table = _read_file(path, index if path.suffix.lower() == ".csv" else None)
        if table.views is not None:
            got = f"{len(table.views)} arrays in {path}"
            raise InputError(message("one array per file of a folder", got, "save each view to its own file"))
        tables[path.stem] = table
    X, row_names = _join(folder, tables)
    labels = next((t.labels for t in tables.values() if t.labels is not None), None) if row_names is None else None
    views = consecutive({view: table.X.shape[1] for view, table in tables.items()})
    return Table(X, row_names, _column_names(tables), views, labels)


def _join(folder: Path, tables: dict[str, Table]) -> tuple[NDArray[np.float64], list[str] | None]:
    nameless = [view for view, table in tables.items() if table.row_names is None]
    if not nameless:
        # An ordered union: a dict keeps the order of first appearance.
        position = {name: 0 for table in tables.values() for name in table.row_names or ()}
        position = {name: i for i, name in enumerate(position)}
        return np.hstack([_placed(table, position) for table in tables.values()]), list(position)
    if len(nameless) < len(tables):
        got = f"none for {listing([repr(view) for view in nameless])}"
        do = "name the rows in all files, or in none"
        raise InputError(message(f"row names in every file of {folder}, as in some", got, do))
    counts = {view: table.X.shape[0] for view, table in tables.items()}
    if len(set(counts.values())) > 1:
        got = listing([f"{view!r}: {count}" for view, count in counts.items()])
        do = "name the rows in every file so that they can be joined"
        raise InputError(message(f"the same number of rows in every file of {folder}", got, do))
    return np.hstack([table.X for table in tables.values()]), None


def _placed(table: Table, position: dict[str, int]) -> NDArray[np.float64]:
    X = np.full((len(position), table.X.shape[1]), np.nan)
    X[[position[name] for name in table.row_names or ()]] = table.X
    return X


def _column_names(tables: dict[str, Table]) -> list[str] | None:
    if all(table.column_names is None for table in tables.values()):
        return None
    names = {v: t.column_names or [f"{v}_{j}" for j in range(t.X.shape[1])] for v, t in tables.items()}
    flat = [name for own in names.values() for name in own]
    # Names that occur in two views are told apart by the view: X has one name per column.
    return flat if len(set(flat)) == len(flat) else [f"{view}:{name}" for view, own in names.items() for name in own]
