"""Entries too far from all others: faults upstream, or codes for missing values, that would ruin a fit."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import numpy as np
import scipy.sparse as sp

from bochner.data.columns import ColumnNames, FloatArray, IntArray, columns_of, describe_column
from bochner.data.scaling import Scaling
from bochner.data.sparse import extremes
from bochner.errors import DataWarning, InputError, message

# Beyond this squares overflow, in sums over a view.
_LARGEST = 1e100
# A view's extreme value that many deviations of the other entries away from their mean, in few entries, is said.
_DEVIATIONS, _FEW = 300.0, 0.05
# Scaled entries beyond this cannot be placed: their squares leave nothing of the other entries.
_FARTHEST = 1e8


def check_magnitudes(X: FloatArray, columns: Mapping[str, IntArray], column_names: ColumnNames = None) -> None:
    """Refuse entries that cannot be squared; name those so far from the rest of their view that they are all it is.

    Parameters
    ----------
    X : ndarray of float or scipy sparse array, shape (N, M)
        NaN = missing; finite otherwise, with an observed entry in every column.
    columns : mapping of str to ndarray of int
    column_names : sequence of str, shape (M,), optional

    Raises
    ------
    InputError
        Naming view, row, column and value.
    """
    low, high = _extremes(X)
    for view, own in columns.items():
        for ends, pick in ((low, np.argmin), (high, np.argmax)):
            column = int(own[pick(ends[own])])
            value = float(ends[column])
            if abs(value) > _LARGEST:
                do = "correct the value, write NaN if it is missing, or change the unit"
                got = f"{value:g} in {_place(X, view, column, value, column_names)}"
                raise InputError(message(f"numbers of at most {_LARGEST:g} in size", got, do))
            if not sp.issparse(X):
                _warn_of_codes(columns_of(X, own), value, _place(X, view, column, value, column_names))


def check_reach(
    X: FloatArray, scaling: Scaling, columns: Mapping[str, IntArray], column_names: ColumnNames = None
) -> None:
    """Refuse entries of new rows that lie so far from the training data that nothing else of the row would count.

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
    for ends in _extremes(X):
        far = np.abs(ends.astype(np.float64) / scaling.scale - scaling.centre / scaling.scale)
        for view, own in columns.items():
            if not (far[own] > _FARTHEST).any():
                continue
            column = int(own[np.nanargmax(far[own])])
            got = f"{ends[column]:g} in {_place(X, view, column, float(ends[column]), column_names)}"
            want = f"entries within {_FARTHEST:g} deviations of the training data"
            raise InputError(message(want, got, "correct the value, or write NaN if it is missing"))


def _extremes(X: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the least and the largest value of every column; NaN where nothing is observed."""
    return extremes(X) if sp.issparse(X) else (np.fmin.reduce(X, axis=0), np.fmax.reduce(X, axis=0))


def _place(X: FloatArray, view: str, column: int, value: float, column_names: ColumnNames) -> str:
    (rows,) = (X[:, [column]] == value).nonzero()[:1] if sp.issparse(X) else np.nonzero(X[:, column] == value)
    row = int(rows[0])
    return f"view {view!r}, row {row}, {describe_column(column, column_names)}"


def _warn_of_codes(values: FloatArray, value: float, place: str) -> None:
    own = values == value
    rest = values[~own & ~np.isnan(values)].astype(np.float64)
    count, deviation = int(own.sum()), float(rest.std()) if rest.size else 0.0
    if deviation == 0.0 or count > _FEW * (count + rest.size):
        return
    far = abs(value - float(rest.mean())) / deviation
    if far > _DEVIATIONS:
        entries = "1 entry" if count == 1 else f"{count:,} entries"
        warnings.warn(
            f"{entries} of {value:g} ({place}): {far:.2g} deviations from the rest of the view, which hardly counts "
            "beside it. If that is a code for a missing value, write NaN; if not, clip it or take logarithms.",
            DataWarning,
            stacklevel=3,
        )
