"""Entries too far from all others: faults upstream, or codes for missing values, that would ruin a
fit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import scipy.sparse as sp

from bochner.data.arrays import FloatArray, IntArray
from bochner.data.columns import ColumnNames, columns_of, describe_column
from bochner.data.scaling import Scaling
from bochner.data.sparse import extremes
from bochner.errors import DataWarning, InputError, message, warn_user
from bochner.memory import passes

# Beyond this squares overflow, in sums over a view.
_LARGEST = 1e100
# A view's extreme value that many standard deviations of the other entries away from their mean, in
# few entries, is said.
_DEVIATIONS, _FEW = 300.0, 0.05
# Rows in which a view is looked at first.
_SAMPLED = 1000
# Scaled entries beyond this cannot be placed: their squares leave nothing of the other entries.
_FARTHEST = 1e8


def check_magnitudes(
    X: FloatArray,
    ends: tuple[FloatArray, FloatArray],
    columns: Mapping[str, IntArray],
    column_names: ColumnNames = None,
) -> None:
    """Refuse entries that cannot be squared; name those so far from the rest of their view that
    they are all it is.

    Parameters
    ----------
    X : ndarray of float or scipy sparse array, shape (N, M)
        NaN = missing; finite otherwise, with an observed entry in every column.
    ends : pair of ndarray, shape (M,)
        The least and the largest value of every column.
    columns : mapping of str to ndarray of int
    column_names : sequence of str, shape (M,), optional

    Raises
    ------
    InputError
        Naming view, row, column and value.
    """
    for view, own in columns.items():
        for end, pick in zip(ends, (np.argmin, np.argmax), strict=True):
            column = int(own[pick(end[own])])
            value = float(end[column])
            if abs(value) > _LARGEST:
                do = "correct the value, write NaN if it is missing, or change the unit"
                got = f"{value:g} in {_place(X, view, column, value, column_names)}"
                raise InputError(message(f"numbers of at most {_LARGEST:g} in size", got, do))
            if not sp.issparse(X) and (said := _code(X, own, value)):
                _warn(said, value, _place(X, view, column, value, column_names))


def check_reach(
    X: FloatArray,
    scaling: Scaling,
    columns: Mapping[str, IntArray],
    column_names: ColumnNames = None,
) -> None:
    """Refuse entries of new rows that lie so far from the training data that nothing else of the
    row would count.

    Parameters
    ----------
    X : ndarray of float or scipy sparse array, shape (n, M)
    scaling : Scaling
        Of the fit.
    columns : mapping of str to ndarray of int
        Of the views that are scaled.
    column_names : sequence of str, shape (M,), optional

    Raises
    ------
    InputError
        Naming view, row, column and value.
    """
    for ends in extremes(X):
        far = np.abs(scaling.apply(ends.astype(np.float64)[None])[0])
        for view, own in columns.items():
            if not (far[own] > _FARTHEST).any():
                continue
            column = int(own[np.nanargmax(far[own])])
            got = (
                f"{ends[column]:g} in {_place(X, view, column, float(ends[column]), column_names)}"
            )
            want = f"entries within {_FARTHEST:g} standard deviations of the training data"
            raise InputError(message(want, got, "correct the value, or write NaN if it is missing"))


def _place(X: FloatArray, view: str, column: int, value: float, column_names: ColumnNames) -> str:
    return f"view {view!r}, row {_row(X, column, value)}, {describe_column(column, column_names)}"


def _row(X: FloatArray, column: int, value: float) -> int:
    """Return the first row with that value."""
    if sp.issparse(X):
        return int((X[:, [column]] == value).nonzero()[0][0])
    for rows in passes(X.shape):
        (found,) = np.nonzero(X[rows][:, column] == value)
        if found.size:
            return int(rows.start + found[0])
    raise ValueError(f"no entry of {value}")


def _code(X: FloatArray, own: IntArray, value: float) -> tuple[int, float] | None:
    """Return how many entries of a view have that value and how far it lies from the others, if few
    do and too far.
    """
    step = max(1, X.shape[0] // _SAMPLED)
    *_, deviations = _away(X[::step], own, value)
    if deviations <= 0.5 * _DEVIATIONS:
        return None  # a sample tells, as it does of almost every view
    same, count, deviations = _away(X, own, value)
    return (
        (same, deviations) if deviations > _DEVIATIONS and same <= _FEW * (same + count) else None
    )


def _away(X: FloatArray, own: IntArray, value: float) -> tuple[int, int, float]:
    """Count the entries of a view with that value and the others; return how many standard
    deviations these are away from it.

    NaN where all others are equal, or there are none.
    """
    same = count = 0
    total = square = pivot = 0.0
    for rows in passes(X.shape):
        values = columns_of(X[rows], own)
        seen = values[~np.isnan(values)]
        rest = seen[seen != value].astype(np.float64)
        same, pivot = (
            same + seen.size - rest.size,
            pivot if count or not rest.size else float(rest.mean()),
        )
        rest -= pivot  # squares of what all have in common would cancel
        count, total, square = (
            count + rest.size,
            total + float(rest.sum()),
            square + float(rest @ rest),
        )
    if not count:
        return same, 0, math.nan
    deviation = math.sqrt(max(square / count - (total / count) ** 2, 0.0))
    return (
        same,
        count,
        abs(value - pivot - total / count) / deviation if deviation > 0.0 else math.nan,
    )


def _warn(said: tuple[int, float], value: float, place: str) -> None:
    count, far = said
    entries = "1 entry" if count == 1 else f"{count:,} entries"
    warn_user(
        f"{entries} of {value:g} ({place}): {far:.2g} standard deviations from the rest of the "
        "view, which "
        "hardly counts "
        "beside it. If that is a code for a missing value, write NaN; if not, clip it or take "
        "logarithms.",
        DataWarning,
    )
