"""The arrays of numpy by what they hold, and what stands for a missing value in them."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Of either precision: a function that takes it keeps that of what it is given.
FloatArray = NDArray[np.floating[Any]]
Float64Array = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.intp]


def is_na(value: object) -> bool:
    """Return whether an object is pandas.NA."""
    return type(value).__name__ == "NAType"


def is_missing(value: object) -> bool:
    """Return whether an object stands for a missing value: None, NaN, NaT or pandas.NA."""
    if value is None or is_na(value):
        return True
    return bool(value != value)  # noqa: PLR0124 - NaN alone differs from itself


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
