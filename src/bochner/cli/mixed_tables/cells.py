"""Columns of text as numbers, truth values or labels."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bochner.data.kinds import Column, Labelled, Number, Whole
from bochner.extras import require
from bochner.io.csv.headers import MISSING, number

if TYPE_CHECKING:
    import pandas as pd

_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")
_CODE = re.compile(r"0[0-9]+")
_CODES = re.compile(r'(?:^|[,;\t|"]) *0[0-9]+ *(?:$|[,;\t|"\r])', re.MULTILINE)


def may_hold_codes(text: str) -> bool:
    """Tell whether a table of text may hold numbers with zeros in front: of labels, or of rows."""
    return _CODES.search(text) is not None


_TRUTH = {"true": True, "false": False}


def series_of(cells: Sequence[str], known: Column | None) -> pd.Series[Any]:
    """Return cells as numbers, truth values or texts; missing where they are."""
    pandas = require("pandas", "holds mixed tables")
    codes, distinct = pandas.factorize(np.array(cells, dtype=object))
    values, dtype = _typed([str(cell) for cell in distinct], known)
    column = np.empty(len(values), dtype=object)
    column[:] = values
    series: pd.Series[Any] = pandas.Series(column[codes]).astype(dtype)
    return series


def _typed(distinct: Sequence[str], known: Column | None) -> tuple[list[object], str]:
    """Return the values of different cells, None where they are missing, and what pandas calls
    their type.
    """
    cells = [cell for cell in distinct if cell.lower() not in MISSING]
    dtype = _dtype_of(cells, known)
    values = dict(zip(cells, map(_READERS[dtype], cells), strict=True))
    return [values.get(cell) for cell in distinct], dtype


def _dtype_of(cells: Sequence[str], known: Column | None) -> str:
    """Return what pandas calls the type of cells that are not missing."""
    if isinstance(known, Labelled) and any(isinstance(label, str) for label in known.labels):
        return "string"
    codes = known is None and any(map(is_code, cells))
    if codes or any(number(cell) is None for cell in cells):
        return "string"
    if not cells:
        return "Float64" if known is None else _holding(known)
    if all(cell.lower() in _TRUTH for cell in cells):
        return "boolean"
    if type(known) is not Number and all(map(_is_whole, cells)):
        return "Int64"
    return "Float64"


def _holding(column: Column) -> str:
    """Return a type for the values of a column, of which none has a value."""
    if isinstance(column, Labelled):
        return "boolean" if isinstance(column.labels[0], bool) else "Int64"
    return "Int64" if isinstance(column, Whole) else "Float64"


def is_code(cell: str) -> bool:
    """Tell whether a cell is a whole number with zeros in front, which no number keeps: 01234."""
    return _CODE.fullmatch(cell) is not None


def _is_whole(cell: str) -> bool:
    if _WHOLE.fullmatch(cell):
        return abs(int(cell)) < 2**63
    value = number(cell)
    # pandas writes whole numbers of a column with holes as 3.0
    return value is not None and value.is_integer() and abs(value) < 2**53


def _whole(cell: str) -> int:
    return int(cell) if _WHOLE.fullmatch(cell) else int(number(cell) or 0.0)


# How the cells of a type are read.
_READERS: Mapping[str, Callable[[str], object]] = {
    "string": str,
    "boolean": lambda cell: _TRUTH[cell.lower()],
    "Int64": _whole,
    "Float64": number,
}
