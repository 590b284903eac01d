"""DataFrames: numbers with names of rows and columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bochner.data.columns import describe_column
from bochner.errors import InputError, message
from bochner.io.join import check_unique
from bochner.io.table import Table, large, warn_of_rounding

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
    for j, dtype in enumerate(frame.dtypes):
        if getattr(dtype, "kind", "O") in "iu":
            whole = large(frame.iloc[:, j].dropna().to_numpy())
            warn_of_rounding(map(int, whole), f"The column {names[j]!r}", place)
    rows = None
    if row_names:
        rows = [str(name) for name in frame.index]
        check_unique(rows, "row", place)
    return Table(X, rows, names, index_name=str(frame.index.name or "") if row_names else "")


def _numbers(column: pd.Series, j: int, names: list[str], place: str) -> NDArray[np.float64]:
    # of numbers there is no need to look
    texts = enumerate(column) if getattr(column.dtype, "kind", "O") == "O" else ()
    text = [(i, value) for i, value in texts if isinstance(value, str)]
    try:
        if text or column.dtype.kind in "Mm" or str(column.dtype) == "category":
            # numpy reads texts, and dates as nanoseconds
            raise TypeError(f"of type {column.dtype}")
        values: NDArray[np.float64] = column.to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError) as error:
        got = (
            f"the text {text[0][1]!r} in row {text[0][0]}"
            if text
            else f"the type {column.dtype}"
        )
        where = f"{describe_column(j, names)} of {place}"
        options = [
            f"--drop {names[j]} leaves it out",
            f"--index {names[j]} takes it for the names of rows",
        ]
        # dates, durations and lists are no categories
        if text or str(column.dtype) == "category":
            options.append("--likelihood auto fits categories")
        do = (
            "convert the column to numbers or leave it out; on the command line "
            + f"{', '.join(options[:-1])}, and {options[-1]}"
        )
        raise InputError(message("numbers", f"{got}, {where}", do)) from error
    return values
