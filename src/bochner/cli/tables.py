"""Mixed tables in files: csv and parquet with columns of text, for ``--likelihood auto``."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bochner.cli.data import FrameTable, Reading, column_names
from bochner.errors import InputError, message
from bochner.io.csv_write import unguarded
from bochner.io.extras import require
from bochner.io.headers import MISSING, key_column
from bochner.io.outputs import replacing
from bochner.io.request import Request
from bochner.io.table import Table, unreadable
from bochner.io.text import contents, sample

_TEXT = (".csv", ".tsv", ".txt")


def table_to_fit(
    path: Path,
    index: str | None,
    layer: Sequence[str],
    reading: Reading,
    known: Sequence[str] | None,
    auto: bool,
) -> Table:
    """Read a table of numbers, or a mixed one where the likelihood is to be chosen.

    Parameters
    ----------
    path, index, layer, known
        As `Reading.read` takes them.
    reading : Reading
    auto : bool
        Whether ``--likelihood auto`` was given and no views.
    """
    try:
        return reading.read(path, index, layer, known)
    except InputError:
        if not (auto and path.is_file() and _kind(path) in (*_TEXT, ".parquet")):
            raise
    from bochner.estimators.tables import Mixed, coding_of

    frame = read_frame(path, index, reading)
    coding = coding_of(frame, "auto", None)
    if not isinstance(coding, Mixed):
        return reading.read(path, index, layer, known)  # says what is wrong with it
    return _table(frame, coding, index)


def rows_to_use(model: Any, path: Path, index: str | None, reading: Reading) -> FrameTable:
    """Read rows for a model of a mixed table.

    Raises
    ------
    InputError
        Not its columns, or labels that it does not know.
    """
    names = column_names(model) or []
    if _kind(path) not in (*_TEXT, ".parquet"):
        raise InputError(message("a csv or parquet file", str(path), "save the table as one"))
    frame = read_frame(path, index, reading)
    if set(names) <= set(frame.columns):
        frame = frame[names]
    return _table(frame, model._coding, index)


def read_frame(path: Path, index: str | None, reading: Reading) -> Any:
    """Read a DataFrame with the narrowest types that hold its columns."""
    request = reading.request(index)
    if _kind(path) == ".parquet":
        return _named(_read_parquet(path), index, path, request)
    pandas = require("pandas", "holds mixed tables")
    text = contents(path, request.memory)
    delimiter, first = sample(path, text)
    missing = sorted({*MISSING, *(word.upper() for word in MISSING), "NaN", "Na", "None"})
    try:
        frame = pandas.read_csv(
            io.StringIO(text), sep=delimiter, keep_default_na=False, na_values=missing
        )
    except ValueError as error:
        raise unreadable(path, "csv", str(error).splitlines()[0]) from error
    frame.columns = [unguarded(cell) for cell in first[0]]
    return _named(frame.convert_dtypes(), index, path, request)


def _read_parquet(path: Path) -> Any:
    require("pyarrow", "reads parquet files")
    try:
        return require("pandas", "reads parquet files").read_parquet(path)
    except (OSError, ValueError) as error:
        raise unreadable(path, "parquet", str(error).splitlines()[0]) from error


def _named(frame: Any, index: str | None, path: Path, request: Request) -> Any:
    """Return the columns asked for, rows named by the index or by a first column of names."""
    if index is not None and index not in frame.columns:
        got = f"columns {', '.join(map(repr, map(str, frame.columns[:5])))}"
        raise InputError(message(f"an index column {index!r} in {path}", got, "choose one of them"))
    if index is None and _names_rows(frame):
        index = frame.columns[0]
    frame = frame if index is None else frame.set_index(index)
    kept = request.selection.kept([str(name) for name in frame.columns])
    request.selection.check(str(path))
    return frame.iloc[:, kept]


def _names_rows(frame: Any) -> bool:
    """Tell whether the first column names the rows: names differ from row to row."""
    cells = [str(cell) for cell in frame.iloc[:, 0]]
    distinct = len(set(cells)) == len(cells)
    return distinct and key_column([str(name) for name in frame.columns], cells)


def _table(frame: Any, coding: Any, index: str | None) -> FrameTable:
    X: NDArray[np.float64] = coding.encode(frame).to_numpy(dtype=np.float64)
    named = index is not None or frame.index.dtype.kind not in "iu"
    return FrameTable(
        X,
        [str(name) for name in frame.index] if named else None,
        [str(name) for name in frame.columns],
        index_name=str(frame.index.name or "") if named else "",
        frame=frame,
    )


def write_frame(path: Path, frame: Any, table: FrameTable) -> None:
    """Write a completed table as csv; whole or not at all."""
    if path.suffix.lower() != ".csv":
        do = "rename it: labels need a file of text"
        raise InputError(message("an output file .csv for a mixed table", str(path), do))
    with replacing(path) as part:
        frame.to_csv(part, index=table.row_names is not None)


def _kind(path: Path) -> str:
    return Path(path.name.lower().removesuffix(".gz")).suffix
