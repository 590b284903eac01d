"""Folders of parquet files: which of them are parts of one table."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path

from bochner.errors import InputError, message
from bochner.io.extensions import EXTENSIONS, extension_of
from bochner.io.parquet.columns import check_same, data_columns, index_columns, schema_of

_PART = re.compile(r"(part|chunk|shard|block|rows|data|file|batch)?[-_.]?\d[-_.0-9a-z]*")


def parts_of(path: Path) -> list[Path]:
    """Return the parquet files of a folder, in the order of their names, or the file.

    Raises
    ------
    InputError
        The folder is partitioned, or holds data of other kinds too.
    """
    if not path.is_dir():
        return [path]
    parts = [child for child in _shown(path) if child.suffix.lower() == ".parquet"]
    _check_partitions(path)
    others = [c for c in _shown(path) if extension_of(c) in EXTENSIONS and c not in parts]
    if parts and others:
        raise _mixed(path, parts[0], others[0])
    return parts


def parquet_parts(path: Path) -> list[Path]:
    """Return the files of one table: a parquet file, or a folder of parts; none where it is
    something else.

    A folder holds parts where its name ends in ``.parquet``, or where its files have the same
    columns, in any order, and are called as parts are: ``part-0.parquet``, ``part.1.parquet``,
    ``2.parquet``. Other folders have a file per view. Names that begin with a dot or an underscore
    are passed over.

    Raises
    ------
    InputError
        Files that look like parts have some columns in common but not all, or stand beside data of
        other kinds; the folder is partitioned.
    """
    if path.suffix.lower() == ".parquet":
        parts = parts_of(path)
        if _column_sets(parts)[1:]:
            raise _unlike(parts)
        return parts
    if not path.is_dir():
        return []
    _check_partitions(path)
    files = [child for child in _shown(path) if extension_of(child) in EXTENSIONS]
    named = [file for file in files if _PART.fullmatch(_stem(file))]
    parts = [file for file in named if file.suffix.lower() == ".parquet"]
    if not parts:
        return []
    if len(named) > len(parts):
        raise _mixed(path, parts[0], next(file for file in named if file not in parts))
    different = _column_sets(parts)
    is_table = len(different) == 1
    others = [file for file in files if file not in parts]
    if others:
        if is_table and len(parts) > 1:
            raise _mixed(path, parts[0], others[0])
        return []
    if is_table:
        return parts
    columns = [names for names, _ in different]
    are_parts = any(_alike(*pair) for pair in itertools.combinations(columns, 2))
    if are_parts or len(different) < len(parts):
        raise _unlike(parts)
    return []


def _unlike(parts: Sequence[Path]) -> InputError:
    """Build the error for parts with different columns."""
    do = (
        "write all files with the same columns; name files that are views after them, such as "
        "rna.parquet"
    )
    columns = data_columns(schema_of(parts[0]))
    try:
        for part in parts[1:]:
            check_same(parts[0], columns, part, do)
    except InputError as error:
        return error
    got = f"an index in some files of {parts[0].parent} and none, or another, in others"
    do = "write all with the same index, or without one: index=False"
    return InputError(message("the same index in every file", got, do))


def _column_sets(parts: Sequence[Path]) -> list[tuple[frozenset[str], frozenset[str]]]:
    """Return the sets of columns, and of columns of the index, that differ among files."""
    schemas = map(schema_of, parts)
    sets = [(frozenset(data_columns(s)), frozenset(index_columns(s))) for s in schemas]
    return list(dict.fromkeys(sets))


def _alike(one: frozenset[str], other: frozenset[str]) -> bool:
    """Tell whether files share more than a key: most of the columns of the smaller one."""
    return 2 * len(one & other) > min(len(one), len(other))


def _mixed(folder: Path, part: Path, other: Path) -> InputError:
    got = f"{part.name} and {other.name} in {folder}"
    do = (
        "write all parts as parquet, and move other files elsewhere; name files that are views "
        "after them, such as rna.parquet"
    )
    return InputError(message("parts of one table in files of one kind", got, do))


def _check_partitions(folder: Path) -> None:
    partitions = [child for child in _shown(folder) if "=" in child.name and child.is_dir()]
    if partitions:
        got = f"{folder} with a folder for each value of a column: {partitions[0].name}"
        do = f"name one of them ({partitions[0]}), or write the table without partitions"
        raise InputError(message("parquet files in one folder", got, do))


def _shown(folder: Path) -> list[Path]:
    """Return what is in a folder, but what Spark and Arrow pass over, too: ``_SUCCESS``, ``._x``.
    The order is that of numbers in the names: 2 before 10.
    """
    shown = (child for child in folder.iterdir() if not child.name.startswith((".", "_")))
    return sorted(shown, key=_order)


def _order(path: Path) -> tuple[str, ...]:
    return tuple(
        word.zfill(20) if word.isdigit() else word for word in re.split(r"(\d+)", path.name)
    )


def _stem(path: Path) -> str:
    return path.name[: -len(extension_of(path))].lower()
