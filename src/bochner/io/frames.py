"""DataFrames and parquet files: numbers with names of rows and columns."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bochner.data.columns import describe_column
from bochner.errors import InputError, message
from bochner.extras import require
from bochner.io.csv.headers import distinct_whole, is_key_name
from bochner.io.join import check_unique
from bochner.io.request import Request
from bochner.io.table import Table, unreadable

if TYPE_CHECKING:
    import pandas as pd


def from_frame(frame: pd.DataFrame, place: str, row_names: bool = True) -> Table:
    """Turn a DataFrame into a table.

    Parameters
    ----------
    frame : DataFrame
        Numbers, booleans or nullable numbers; NA is missing.
    place : str
        Its source, for messages.
    row_names : bool
        Whether its index names the rows.

    Raises
    ------
    InputError
        For a column of text, dates or categories (named, with its first value), repeated names, or
        nothing at all.
    """
    names = [str(name) for name in frame.columns]
    check_unique(names, "column", place)
    if not frame.shape[0] or not frame.shape[1]:
        raise InputError(
            message(
                "data", f"a table of shape {frame.shape} in {place}", "check where it was made"
            )
        )
    if all(isinstance(dtype, np.dtype) and dtype.kind in "biuf" for dtype in frame.dtypes):
        X = frame.to_numpy(dtype=np.float64)
    else:
        X = np.column_stack(
            [_numbers(frame.iloc[:, j], j, names, place) for j in range(len(names))]
        )
    rows = None
    if row_names:
        rows = [str(name) for name in frame.index]
        check_unique(rows, "row", place)
    return Table(X, rows, names, index_name=str(frame.index.name or "") if row_names else "")


def _numbers(column: pd.Series, j: int, names: list[str], place: str) -> NDArray[np.float64]:
    try:
        if column.dtype.kind in "Mm" or str(column.dtype) == "category":
            raise TypeError(f"of type {column.dtype}")
        values: NDArray[np.float64] = column.to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError) as error:
        text = [(i, value) for i, value in enumerate(column) if isinstance(value, str)]
        got = (
            f"the text {text[0][1]!r} in row {text[0][0]}"
            if text
            else f"the type {column.dtype}"
        )
        where = f"{describe_column(j, names)} of {place}"
        do = (
            f"convert the column to numbers or leave it out; on the command line --drop {names[j]} "
            f"leaves it out, and --index {names[j]} takes it for the names of rows"
        )
        raise InputError(message("numbers", f"{got}, {where}", do)) from error
    return values


# What pandas and pyarrow raise of damaged files: pyarrow's own errors are ValueErrors, and metadata
# that are not as expected end in errors of any lookup.
DAMAGED = (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError)


def _damaged(path: Path, error: Exception) -> InputError:
    words = str(error).splitlines() or [type(error).__name__]
    return unreadable(path, "parquet", words[0])


def read_parquet(path: Path, request: Request | None = None) -> Table:
    """Read a parquet file.

    Row names are the column or index level `index`, or an index that was stored with the file, or a
    first column of text, or one that is called ``id`` or the like and holds whole numbers that
    differ.

    Raises
    ------
    InputError
        For an unreadable file, no such column, a cell that is no number, or more than the memory
        allowed.
    """
    require("pyarrow", "reads parquet files")
    pandas = require("pandas", "reads parquet files")
    request = request or Request()
    try:
        _check_size(path, request)
        frame = pandas.read_parquet(path)
    except InputError:
        raise
    except DAMAGED as error:
        raise _damaged(path, error) from error
    index = request.index
    named = not isinstance(frame.index, pandas.RangeIndex)
    if index is not None and index != frame.index.name:
        if index not in frame.columns:
            got = f"columns {', '.join(map(repr, map(str, frame.columns[:5])))}"
            raise InputError(
                message(f"an index column {index!r} in {path}", got, "choose one of them")
            )
        frame = frame.set_index(index)
        named = True
    elif not named and frame.shape[1] > 1 and _names_rows(frame.iloc[:, 0]):
        frame = frame.set_index(frame.columns[0])
        named = True
    kept = request.selection.kept([str(name) for name in frame.columns])
    return from_frame(frame.iloc[:, kept], str(path), row_names=named or index is not None)


def _check_size(path: Path, request: Request) -> None:
    """Look at the sizes that the file states before they are read."""
    metadata = require("pyarrow.parquet", "reads parquet files").read_metadata(path)
    count = metadata.num_rows * metadata.num_columns
    request.memory.check(
        8 * count, f"{metadata.num_rows:,} × {metadata.num_columns:,} in {path}"
    )


def _names_rows(column: pd.Series) -> bool:
    if all(isinstance(value, str) for value in column):
        return True
    return is_key_name(str(column.name)) and distinct_whole([str(value) for value in column])


def schema_of(path: Path) -> Any:
    """Return the schema of a parquet file."""
    try:
        return require("pyarrow.parquet", "reads parquet files").read_schema(path)
    except DAMAGED as error:
        raise _damaged(path, error) from error


def parts_of(path: Path) -> list[Path]:
    """Return the files of a folder, in the order of their names, or the file."""
    return sorted(path.glob("*.parquet"), key=_order) if path.is_dir() else [path]


def _order(path: Path) -> tuple[str, ...]:
    """Return what sorts files by their names, numbers by their size: 2 before 10."""
    return tuple(
        word.zfill(20) if word.isdigit() else word for word in re.split(r"(\d+)", path.name)
    )


def parquet_parts(path: Path) -> list[Path]:
    """Return the files of one table: a parquet file, or a folder of parts; none where it is
    something else.

    A folder holds parts where its name ends in ``.parquet``, or where all of its files have the
    same columns and are called as parts are: ``part-0.parquet``, ``part.1.parquet``, ``2.parquet``.
    Other folders have a file per view.
    """
    if path.suffix.lower() == ".parquet":
        return parts_of(path)
    visible = [child for child in path.iterdir() if _is_shown(child)] if path.is_dir() else []
    if not visible or not all(_PART.fullmatch(child.name.lower()) for child in visible):
        return []
    parts = parts_of(path)
    alike = all(schema_of(part).names == schema_of(parts[0]).names for part in parts[1:])
    return parts if alike else []


_PART = re.compile(
    r"(part|chunk|shard|block|rows|data|file|batch)?[-_.]?\d[-_.0-9a-z]*\.parquet"
)


def _is_shown(path: Path) -> bool:
    return not path.name.startswith((".", "_"))
