"""Labels that are dates or times, from arrays, objects and text."""

from __future__ import annotations

import datetime
import re

import numpy as np
from numpy.typing import NDArray

from bochner.data.arrays import is_missing

# The clock time without an offset: a label says what the clock showed.
_WRITTEN = re.compile(
    r"(\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?)?)(Z|[+-]\d\d:?\d\d)?"
)


def as_dates(values: NDArray[np.generic], of_text: bool) -> NDArray[np.datetime64] | None:
    """Return labels as dates, None where they are something else.

    Parameters
    ----------
    values : ndarray of shape (N,)
        datetime64, objects of `datetime`, or text such as 2026-01-31 or 2026-01-31 12:30.
    of_text : bool
        Whether text may be a date.

    Returns
    -------
    ndarray of datetime64[ms], shape (N,), or None
        NaT = missing. What the clock showed, without offsets from UTC.
    """
    if values.dtype.kind == "M":
        return values.astype("datetime64[ms]")
    if values.dtype.kind not in "OU":
        return None
    texts = [_text(value, of_text) for value in values.tolist()]
    if None in texts or not any(texts):
        return None
    try:
        return np.array([text or "NaT" for text in texts], dtype="datetime64[ms]")
    except ValueError:
        return None


def _text(value: object, of_text: bool) -> str | None:
    """Return a date as text, empty where it is missing, None where a value is no date."""
    if is_missing(value) or value == "":
        return ""
    if isinstance(value, datetime.date):
        value = value.isoformat()
    elif not isinstance(value, str) or not of_text:
        return None
    match = _WRITTEN.fullmatch(value)
    return match[1] if match else None
