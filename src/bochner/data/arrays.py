"""The arrays of numpy by what they hold, and what stands for a missing value in them."""

from __future__ import annotations

import datetime
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bochner.errors import InputError, message

# Of either precision: a function that takes it keeps that of what it is given.
FloatArray = NDArray[np.floating[Any]]
Float64Array = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.intp]
# What may be known of a row.
_KNOWN = (str, bytes, bool, int, float, np.bool_, np.integer, np.floating)
_TIMES = (np.datetime64, np.timedelta64, datetime.date, datetime.timedelta)


def is_na(value: object) -> bool:
    """Return whether an object is pandas.NA."""
    return type(value).__name__ == "NAType"


def is_missing(value: object) -> bool:
    """Return whether an object stands for a missing value: None, NaN, NaT or pandas.NA."""
    if value is None or is_na(value):
        return True
    return bool(value != value)  # noqa: PLR0124 - NaN alone differs from itself


def text_of(value: object) -> str:
    """Return an object as text; bytes, as files hold texts, are those texts."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return str(value)


def are_numbers(values: NDArray[np.generic]) -> bool:
    """Return whether objects, (n,), are real numbers or missing, and not all missing."""
    known = [value for value in values.tolist() if not is_missing(value)]
    return bool(known) and all(
        isinstance(value, Real) and not isinstance(value, bool | np.bool_) for value in known
    )


def as_float(values: NDArray[np.generic]) -> NDArray[np.float64]:
    """Return numbers, (n,), NaN where they are missing."""
    known = [np.nan if is_missing(value) else value for value in values.tolist()]
    return np.array(known, dtype=np.float64)


def first_no_number(values: NDArray[np.generic]) -> int | None:
    """Return the first row of values, (n,), that neither is missing nor reads as a number; None:
    there is none, or they have another shape.
    """
    for row, value in enumerate(values.tolist() if values.ndim == 1 else ()):
        try:
            float("nan" if is_missing(value) else value)
        except (TypeError, ValueError):
            return row
    return None


def is_masked(values: object) -> bool:
    """Return whether entries are masked, of an array of numpy: nullable arrays of pandas have masks
    that numpy would take for its own.
    """
    return isinstance(values, np.ma.MaskedArray) and bool(np.ma.is_masked(values))


def unmasked(values: Any) -> NDArray[Any]:
    """Return a masked array's values, NaN where they are masked, None beside what is no number."""
    numbers = values.dtype.kind in "fiu"
    held = np.array(values.data, dtype=np.float64 if numbers else object)
    held[np.ma.getmaskarray(values)] = np.nan if numbers else None
    return held


def frame_without_na(X: Any) -> Any:
    """Return a DataFrame with NaN for pandas.NA among objects; the same without any."""
    if X.ndim != 2:
        return X
    objects = [
        j for j, kind in enumerate(X.dtypes) if isinstance(kind, np.dtype) and kind.kind == "O"
    ]
    hidden = {j: X.iloc[:, j].map(is_na).to_numpy(dtype=np.bool_) for j in objects}
    hidden = {j: where for j, where in hidden.items() if where.any()}
    if hidden:
        X = X.copy(deep=False)
    for j, where in hidden.items():
        X.isetitem(j, X.iloc[:, j].mask(where, np.nan))
    return X


def array_of(values: object) -> NDArray[Any]:
    """Return an array, without mask; a list of texts and others becomes one of objects: numpy would
    write out the others, NaN, too.
    """
    if is_masked(values):
        return unmasked(values)
    array = np.asarray(values)
    if array.dtype.kind not in "SU" or not isinstance(values, list | tuple):
        return array
    objects = np.array(values, dtype=object)
    texts = all(isinstance(value, str | bytes) for value in objects.flat)
    return array if texts else objects


def as_numbers(values: NDArray[np.generic]) -> NDArray[np.generic]:
    """Return objects that are all numbers or missing as numbers; others as they are."""
    if values.dtype != object or values.ndim != 1 or not are_numbers(values):
        return values
    return as_float(values)


def is_label(values: NDArray[np.generic]) -> bool:
    """Return whether values are labels: none of them is a number."""
    return values.dtype.kind not in "iuf"


def label_of(value: Any) -> str:
    """Return what a label is called: 3.0 is 3, whatever type the column has."""
    whole = isinstance(value, float | np.floating) and float(value).is_integer()
    return str(int(value)) if whole else text_of(value)


def check_kind(name: str, values: NDArray[np.generic]) -> None:
    """Refuse values that are neither numbers nor labels: their texts would be labels that no other
    row has.
    """
    if values.dtype.kind not in "OmMc":
        return
    for row, value in enumerate(values):
        known = isinstance(value, _KNOWN) and not isinstance(value, np.timedelta64)
        if is_missing(value) or known:
            continue
        got = f"{value} of type {type(value).__name__} in row {row}"
        do = "convert it to numbers, or to texts that rows share"
        if isinstance(value, _TIMES):
            do = "convert it to numbers: (day - day.min()) / numpy.timedelta64(1, 'D')"
        expected = f"numbers, categories, texts or booleans for {name!r}"
        raise InputError(message(expected, got, do), row=row)
