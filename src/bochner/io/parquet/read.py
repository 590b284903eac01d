"""Parquet files to tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bochner.data.columns import listing
from bochner.errors import InputError, message
from bochner.extras import require
from bochner.io.csv.headers import distinct_whole, is_key_name
from bochner.io.frames import from_frame
from bochner.io.parquet.columns import DAMAGED, damaged, is_nameless, name_columns, schema_of
from bochner.io.request import Request
from bochner.io.table import Table

if TYPE_CHECKING:
    import pandas as pd


def read_parquet(path: Path, request: Request | None = None) -> Table:
    """Read a parquet file.

    Row names are the column or index level `index`, or an index that was stored with the file, or a
    first column of text, or one that is called ``id`` or the like and holds whole numbers that
    differ.

    Raises
    ------
    InputError
        For an unreadable file, no such column, a cell that is no number, a row without a name, or
        more than the memory allowed.
    """
    return read_parts(path, [path], request)


def read_parts(place: Path, parts: Sequence[Path], request: Request | None = None) -> Table:
    """Read parquet files with the same columns whose rows follow each other, as one file.

    Parameters
    ----------
    place : Path
        The file or folder, for messages.
    parts : sequence of Path
        Their columns are those of the first, in any order.
    request : Request, optional
    """
    require("pyarrow", "reads parquet files")
    pandas = require("pandas", "reads parquet files")
    request = request or Request()
    schema = schema_of(parts[0])
    _check_size(place, parts, request)
    frames = [_frame(part) for part in parts]
    # columns are matched by name
    frame = pandas.concat(frames) if len(frames) > 1 else frames[0]
    index = request.index
    named = bool(name_columns(schema))
    if not named:
        frame = frame.reset_index(drop=True)
    elif frame.index.nlevels == 1 and is_nameless(str(frame.index.name)):
        frame.index.name = None
    if index is not None and index != frame.index.name:
        if index not in frame.columns:
            got = f"columns {', '.join(map(repr, map(str, frame.columns[:5])))}"
            raise InputError(
                message(f"an index column {index!r} in {place}", got, "choose one of them")
            )
        frame = frame.set_index(index)
        named = True
    elif not named and frame.shape[1] > 1 and _names_rows(frame.iloc[:, 0]):
        frame = frame.set_index(frame.columns[0])
        named = True
    if named and frame.index.nlevels == 1:
        check_names(np.asarray(frame.index.isna(), dtype=np.bool_), str(place))
    kept = request.selection.kept([str(name) for name in frame.columns])
    return from_frame(frame.iloc[:, kept], str(place), row_names=named)


def check_names(absent: NDArray[np.bool_], place: str) -> None:
    """Refuse rows whose name is null.

    Parameters
    ----------
    absent : ndarray of bool, shape (N,)
        Whether a name is null.
    place : str
        For the message.
    """
    rows = np.flatnonzero(absent)
    if rows.size:
        got = f"null in row {listing([str(row) for row in rows])} of {place}"
        do = "name these rows, or leave them out"
        raise InputError(message("a name for every row", got, do))


def _frame(path: Path) -> pd.DataFrame:
    pandas = require("pandas", "reads parquet files")
    try:
        frame: pd.DataFrame = pandas.read_parquet(path)
    except DAMAGED as error:
        raise damaged(path, error) from error
    return frame


def _check_size(place: Path, parts: Sequence[Path], request: Request) -> None:
    """Look at the sizes that the files state before they are read."""
    parquet = require("pyarrow.parquet", "reads parquet files")
    n_rows = 0
    for part in parts:
        try:
            metadata = parquet.read_metadata(part)
        except DAMAGED as error:
            raise damaged(part, error) from error
        n_rows += metadata.num_rows
    count = n_rows * metadata.num_columns
    request.memory.check(8 * count, f"{n_rows:,} × {metadata.num_columns:,} in {place}")


def _names_rows(column: pd.Series) -> bool:
    if all(isinstance(value, str) for value in column):
        return True
    return is_key_name(str(column.name)) and distinct_whole([str(value) for value in column])
