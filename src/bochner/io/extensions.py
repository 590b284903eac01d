"""Which files are read, by their names alone: nothing heavy is imported to refuse a wrong path."""

from __future__ import annotations

import os
from pathlib import Path

from bochner.errors import InputError, message

NAMED = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet")
ARRAYS = (".npz", ".npy")
LAYERED = (".h5ad", ".h5mu")
EXTENSIONS = (*NAMED, *ARRAYS, *LAYERED)


def extension_of(path: Path) -> str:
    """Return what the name of a file ends in: one of `EXTENSIONS` where it is one, in lower
    case.
    """
    name = path.name.lower()
    return next((known for known in EXTENSIONS if name.endswith(known)), path.suffix.lower())


def check_source(path: str | os.PathLike[str]) -> Path:
    """Refuse a path that cannot be read.

    Raises
    ------
    InputError
        There is no such file or folder, or its kind is unknown.
    """
    source = Path(path)
    if not source.exists():
        raise InputError(
            message("a file or folder", f"{source}, which does not exist", "check the path")
        )
    if not source.is_dir():
        check_extension(source)
    return source


def check_extension(path: Path) -> str:
    """Return the extension of a file that can be read, and refuse any other."""
    extension = extension_of(path)
    if extension not in EXTENSIONS:
        got = (
            f"{path} with extension {extension!r}"
            if extension
            else f"{path} without extension"
        )
        raise InputError(
            message(
                f"one of {', '.join(EXTENSIONS)} or a folder of them", got, "convert the file"
            )
        )
    return extension
