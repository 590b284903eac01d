"""Files to tables: csv and tsv, parquet, npz, npy, h5ad, h5mu, or a folder with one file per
view.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bochner.errors import InputError, message
from bochner.io.annotated import read_h5ad, read_h5mu
from bochner.io.array_files import read_npy, read_npz
from bochner.io.csv_files import read_csv, write_csv
from bochner.io.frames import read_parquet
from bochner.io.join import join
from bochner.io.table import Table

__all__ = ["Table", "read", "write_csv"]

_ARRAYS: dict[str, Callable[[Path], Table]] = {".npz": read_npz, ".npy": read_npy}
_NAMED: dict[str, Callable[[Path, str | None], Table]] = {
    **dict.fromkeys((".csv", ".tsv", ".csv.gz", ".tsv.gz"), read_csv),
    ".parquet": read_parquet,
}
_LAYERED: dict[str, Callable[[Path, Any], Table]] = {".h5ad": read_h5ad, ".h5mu": read_h5mu}
EXTENSIONS = (*_NAMED, *_ARRAYS, *_LAYERED)


def extension_of(path: Path) -> str:
    """Return what the name of a file ends in: one of `EXTENSIONS` where it is one, in lower
    case.
    """
    name = path.name.lower()
    return next((known for known in EXTENSIONS if name.endswith(known)), path.suffix.lower())


def read(path: str | os.PathLike[str], index: str | None = None, layer: Any = None) -> Table:
    """Read data from a file, or from a folder with one file per view.

    Parameters
    ----------
    path : path-like
        ``.csv`` or ``.tsv``, also with ``.gz``, ``.parquet``, ``.npy``, ``.npz``, ``.h5ad``,
        ``.h5mu`` (modalities are views), or a folder of such files: the name of a file without
        extension is the name of its view. Views are joined by row name where all files have them
        (rows absent from a file become NaN, in order of first appearance); otherwise all files must
        have the same number of rows.
    index : str, optional
        Column of the csv and parquet files that names the rows.
    layer : str, or dict of modality to str, optional
        Layer of h5ad and h5mu files to take instead of X.

    Returns
    -------
    Table

    Raises
    ------
    InputError
        When the source is missing, empty, unreadable, of unknown kind, or holds anything but
        numbers.
    """
    source = Path(path)
    if source.is_dir():
        return _read_folder(source, index, layer)
    if not source.exists():
        raise InputError(
            message("a file or folder", f"{source}, which does not exist", "check the path")
        )
    return _read_file(source, index, layer)


def _read_file(path: Path, index: str | None, layer: Any) -> Table:
    extension = extension_of(path)
    if extension not in EXTENSIONS:
        got = f"{path} with extension {extension!r}" if extension else f"{path} without extension"
        raise InputError(
            message(f"one of {', '.join(EXTENSIONS)} or a folder of them", got, "convert the file")
        )
    if not path.stat().st_size:
        raise InputError(
            message(
                "a file with data", f"the empty file {path}", "check that it was written to its end"
            )
        )
    if layer is not None and extension not in _LAYERED:
        got = f"layer={layer!r} for {path}"
        raise InputError(message("layer only for h5ad and h5mu files", got, "leave it out"))
    if extension in _NAMED:
        return _NAMED[extension](path, index)
    if index is not None:
        got = f"index={index!r} for {path}"
        do = "leave it out: arrays name no columns, and AnnData name their rows"
        raise InputError(message("index only for csv and parquet files", got, do))
    return _LAYERED[extension](path, layer) if extension in _LAYERED else _ARRAYS[extension](path)


def _read_folder(folder: Path, index: str | None, layer: Any) -> Table:
    paths = [
        p
        for p in sorted(folder.iterdir())
        if extension_of(p) in EXTENSIONS and not p.name.startswith(".")
    ]
    if not paths:
        raise InputError(
            message(
                f"files {', '.join(EXTENSIONS)} in {folder}", "none", "put one file per view there"
            )
        )
    tables: dict[str, Table] = {}
    for path in paths:
        extension = extension_of(path)
        view = path.name[: -len(extension)]
        if view in tables:
            got = f"two files for view {view!r} in {folder}"
            raise InputError(message("one file per view", got, "rename or remove one of them"))
        named, layered = extension in _NAMED, extension in _LAYERED
        own = layer.get(view) if isinstance(layer, dict) else layer
        table = _read_file(path, index if named else None, own if layered else None)
        if table.views is not None:
            got = f"{len(table.views)} arrays in {path}"
            raise InputError(
                message("one array per file of a folder", got, "save each view to its own file")
            )
        tables[view] = table
    return join(tables, f"file of {folder}")
