"""Checks of arrays that are compared with one another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bochner.errors import InputError, message

Array = NDArray[np.float64]


def matrix(name: str, values: ArrayLike) -> Array:
    """Return a finite matrix with entries, float64; the name is for messages."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 2 or array.size == 0:
        got = f"shape {array.shape}"
        raise InputError(
            message(f"{name} with shape (rows, columns)", got, "reshape it to one row per sample")
        )
    finite({name: array})
    return array


def same_rows(arrays: Mapping[str, NDArray[Any]]) -> None:
    """Refuse arrays with different numbers of rows."""
    if len({len(array) for array in arrays.values()}) > 1:
        got = ", ".join(f"{name}: {len(array)}" for name, array in arrays.items())
        raise InputError(message("the same number of rows", got, "pass arrays of the same samples"))


def same_shape(arrays: Mapping[str, NDArray[Any]]) -> None:
    """Refuse arrays of different shapes."""
    if len({array.shape for array in arrays.values()}) > 1:
        got = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise InputError(message("arrays of one shape", got, "pass matching arrays"))


def finite(arrays: Mapping[str, Array]) -> None:
    """Refuse NaN and inf."""
    for name, array in arrays.items():
        bad = ~np.isfinite(array)
        if bad.any():
            place = tuple(int(i) for i in np.argwhere(bad)[0])
            got = f"{array[place]} at {place}"
            raise InputError(
                message(f"finite values in {name}", got, "leave out or mask missing entries")
            )
