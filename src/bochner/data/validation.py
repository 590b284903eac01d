"""Every check of the input: what can be fitted, and messages that name view, row, column and value.

Entries too far from all others are faults upstream, or codes for missing values, that would ruin a
fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from bochner.data.accepted import annotated_kind, as_rows
from bochner.data.arrays import Float64Array, FloatArray, IntArray, array_of
from bochner.data.columns import (
    ColumnNames,
    columns_of,
    counts_of,
    describe_column,
    ends_and_sample,
    extremes,
    listing,
    widened,
)
from bochner.data.sparse import check_stored
from bochner.errors import DataWarning, InputError, message, warn_user
from bochner.memory import passes

_CONSTANT = "Constant columns are kept, they tell nothing about the rows: {}."
_ONCE = (
    "Columns with one observed entry are kept, but how far others lie from it nobody can know, "
    "and standard deviations of what is predicted there are too small: {}. Drop them, or pass "
    "more rows."
)

T = TypeVar("T")


class Together(Protocol):
    """Does a check where all rows are, and refuses everywhere what is refused in one place."""

    def __call__(self, work: Callable[[], T], /) -> T:
        """Return what the check returns."""


def _here(work: Callable[[], T], /) -> T:
    return work()


def check_finite(
    X: FloatArray, columns: Mapping[str, IntArray], column_names: ColumnNames = None
) -> None:
    """Refuse infinite entries: NaN means missing, inf means a fault upstream.

    Parameters
    ----------
    X : ndarray of float or scipy sparse array, shape (N, M)
        A sparse one must not hold NaN either: its zeros are observed values.
    columns : mapping of str to ndarray of int
        As `resolve_views` returns it.
    column_names : sequence of str, shape (M,), optional

    Raises
    ------
    InputError
        Naming view, row, column and value of the first infinite entry.
    """
    if sp.issparse(X):
        check_stored(X, columns, column_names)
        return
    for rows in passes(X.shape):
        _check_finite_part(X[rows], rows.start, columns, column_names)


def check_new(
    X: Any, columns: Mapping[str, IntArray], column_names: ColumnNames = None
) -> tuple[FloatArray, FloatArray]:
    """Check new rows as `check_finite` does; return the least and the largest value of every
    column, of the same pass over rows.
    """
    if sp.issparse(X):
        check_stored(X, columns, column_names)
        return extremes(X)
    ends: tuple[FloatArray, FloatArray] | None = None
    for rows in passes(X.shape):
        part = X[rows]
        _check_finite_part(part, rows.start, columns, column_names)
        ends = widened((part[0], part[0]) if ends is None else ends, part)
    return extremes(X) if ends is None else ends


def _check_finite_part(
    part: FloatArray,
    start: int,
    columns: Mapping[str, IntArray],
    column_names: ColumnNames,
) -> None:
    """Refuse infinite entries of rows from a first one on."""
    infinite = np.isinf(part)
    if not infinite.any():
        return
    row, column = (int(i) for i in np.argwhere(infinite)[0])
    where = describe_column(column, column_names)
    do = "correct the value, or write NaN if it is missing"
    got = f"{part[row, column]} in view {_view_of(column, columns)!r}, row {start + row}, {where}"
    raise InputError(message("finite numbers or NaN (missing)", got, do), row=start + row)


def check_fit(
    X: FloatArray,
    columns: Mapping[str, IntArray],
    column_names: ColumnNames = None,
    together: Together = _here,
    largest: Callable[[FloatArray], FloatArray] = lambda values: values,
    total: Callable[[FloatArray], FloatArray] = lambda values: values,
    n_rows: int | None = None,
) -> None:
    """Check that X can be fitted; constant columns are kept and named in one warning.

    Parameters
    ----------
    X : ndarray of float or scipy sparse array, shape (N, M)
        NaN = missing.
    columns : mapping of str to ndarray of int
        As `resolve_views` returns it.
    column_names : sequence of str, shape (M,), optional
    together, largest, total : callable
        Where rows are divided among processes: does a check in all of them, and refuses in all
        what one refuses; returns the maximum, and the sum, over all.
    n_rows : int, optional
        Of all processes.

    Raises
    ------
    InputError
        For fewer than two rows, an infinite or huge entry, a view or column with nothing observed,
        or views that no shared row ties to the others.
    """
    _check_count(X.shape[0] if n_rows is None else n_rows)
    low, high, some = together(lambda: _looked_through(X, columns, column_names))
    if not sp.issparse(X):
        every = largest((~np.isnan(low)).astype(np.float64))
        _check_columns(every > 0, columns, column_names)
        check_shared_rows(X, columns, largest=largest)
    # NaN where others have all entries of a column
    ends = np.nan_to_num(low), np.nan_to_num(high)
    together(lambda: check_magnitudes(X, some, ends, columns, column_names))
    least, most = (np.nan_to_num(end, nan=-np.inf) for end in (-low, high))
    constant = np.flatnonzero(largest(most) == -largest(least))
    if not constant.size:
        return
    once = constant[total(counts_of(X, constant)) < 2]
    for those, text in ((np.setdiff1d(constant, once), _CONSTANT), (once, _ONCE)):
        if those.size:
            places = [
                f"{describe_column(int(j), column_names)} of view {_view_of(int(j), columns)!r}"
                for j in those
            ]
            warn_user(text.format(listing(places)), DataWarning)


def _check_count(n_rows: int) -> None:
    if n_rows < 2:
        samples = "1 sample" if n_rows == 1 else "0 samples"
        got = f"{samples} (n_samples={n_rows})"
        raise InputError(message("at least 2 samples to fit", got, "pass more rows"))


def _looked_through(
    X: FloatArray, columns: Mapping[str, IntArray], column_names: ColumnNames
) -> tuple[Float64Array, Float64Array, FloatArray]:
    """Return the least and the largest value of every column, NaN of one without an entry: they
    are finite; and rows that stand for all. One pass over the rows.
    """
    if sp.issparse(X):
        check_finite(X, columns, column_names)
        least, most = extremes(X)
        return least.astype(np.float64), most.astype(np.float64), X
    low, high, some = ends_and_sample(X, _SAMPLED)
    if np.isinf([low, high]).any():
        check_finite(X, columns, column_names)
    return low.astype(np.float64), high.astype(np.float64), some


def _check_columns(
    in_column: NDArray[np.bool_],
    columns: Mapping[str, IntArray],
    column_names: ColumnNames,
) -> None:
    for view, positions in columns.items():
        if not in_column[positions].any():
            raise InputError(
                message(f"data in view {view!r}", "NaN in every entry", "drop the view")
            )
    if not in_column.all():
        column = int(np.argmin(in_column))
        place = (
            f"{describe_column(column, column_names)} of view {_view_of(column, columns)!r}"
        )
        raise InputError(
            message(
                "an observed entry in every column", f"only NaN in {place}", "drop the column"
            )
        )


def check_shared_rows(
    X: FloatArray,
    columns: Mapping[str, IntArray | slice],
    row_names: Sequence[str] | None = None,
    largest: Callable[[FloatArray], FloatArray] = lambda values: values,
) -> None:
    """Refuse views that no shared row ties to the others, be it through further views: their
    latents would have nothing to do with each other.

    Parameters
    ----------
    X : ndarray of float, shape (N, M)
        NaN = missing.
    columns : mapping of str to ndarray of int or slice
        Of every view.
    row_names : sequence of str, shape (N,), optional
        For the message; rows without are counted.
    largest : callable
        As `check_fit` takes it.

    Raises
    ------
    InputError
        Naming views on both sides and a row of each.
    """
    views = list(columns)
    if len(views) < 2:
        return
    shared = np.eye(len(views), dtype=bool)
    for rows in passes(X.shape):
        there = _rows_of_views(X[rows], columns).astype(np.float64)
        shared |= there @ there.T > 0
        # most data are tied by their first rows
        if _tied(shared).all():
            break
    tied = _tied(largest(shared.astype(np.float64)) > 0)
    if tied.all():
        return
    others = [view for view, is_tied in zip(views, tied, strict=True) if not is_tied]
    sides = ([view for view in views if view not in others], others)
    places = [_first_row(X, {view: columns[view] for view in side}) for side in sides]
    first = [
        f"row {place}" if row_names is None else repr(row_names[place]) for place in places
    ]
    one, other = (listing([repr(view) for view in side]) for side in sides)
    got = f"none between view {one} (first {first[0]}) and view {other} (first {first[1]})"
    do = "give the same sample the same row, by its name or place, in every view"
    raise InputError(message("rows that views share", got, do))


def _rows_of_views(
    rows: FloatArray, columns: Mapping[str, IntArray | slice]
) -> NDArray[np.bool_]:
    """Return which views have an entry in which rows, (V, n)."""
    observed = ~np.isnan(rows)
    return np.array([observed[:, positions].any(axis=1) for positions in columns.values()])


def _tied(shared: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which views are tied to the first one, of which two share a row, (V, V)."""
    tied = np.asarray(shared[0])
    for _ in shared:
        tied = np.asarray(shared[tied].any(axis=0))
    return tied


def _first_row(X: FloatArray, columns: Mapping[str, IntArray | slice]) -> int:
    """Return the first row in which any of these views has an entry."""
    for rows in passes(X.shape):
        there = _rows_of_views(X[rows], columns).any(axis=0)
        if there.any():
            return int(rows.start + there.argmax())
    return 0


def _view_of(column: int, columns: Mapping[str, IntArray]) -> str:
    return next(view for view, positions in columns.items() if column in positions)


def matrix(name: str, values: ArrayLike) -> Float64Array:
    """Return a finite matrix with entries, float64; the name is for messages."""
    array = numbers(name, values)
    if array.ndim != 2 or array.size == 0:
        got = f"shape {array.shape}"
        raise InputError(
            message(
                f"{name} with shape (rows, columns)", got, "reshape it to one row per sample"
            )
        )
    finite({name: array})
    return array


def numbers(name: str, values: object) -> Float64Array:
    """Return numbers as an array of float64; the name is for messages.

    Raises
    ------
    InputError
        They are no numbers, or complex ones.
    """
    array = as_array(name, as_rows(values))
    if array.dtype.kind not in "cSMm":
        with suppress(TypeError, ValueError):
            return np.asarray(array, dtype=np.float64)
    got = f"{array.dtype} of shape {array.shape}"
    raise InputError(message(f"{name} of real numbers", got, "pass an array of numbers"))


def as_array(name: str, values: object) -> NDArray[np.generic]:
    """Return an array of whatever type; NaN, or None of what is no number, where it is masked.

    Raises
    ------
    InputError
        Its rows have different lengths, or it is an AnnData or a MuData.
    """
    if kind := annotated_kind(values):
        do = "pass an array, such as a column of its obs"
        raise InputError(message(f"{name} as an array", f"an object of type {kind}", do))
    try:
        values = values.detach().cpu() if hasattr(values, "detach") else values
        return array_of(values)
    except (TypeError, ValueError) as error:
        do = "pass an array, or rows of one length"
        raise InputError(message(f"{name} as an array", str(error), do)) from error


def same_rows(arrays: Mapping[str, NDArray[np.generic]]) -> None:
    """Refuse arrays with different numbers of rows."""
    if len({len(array) for array in arrays.values()}) > 1:
        got = ", ".join(f"{name}: {len(array)}" for name, array in arrays.items())
        raise InputError(
            message("the same number of rows", got, "pass arrays of the same samples")
        )


def same_shape(arrays: Mapping[str, NDArray[np.generic]]) -> None:
    """Refuse arrays of different shapes."""
    if len({array.shape for array in arrays.values()}) > 1:
        got = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise InputError(message("arrays of one shape", got, "pass matching arrays"))


def finite(arrays: Mapping[str, Float64Array]) -> None:
    """Refuse NaN and inf."""
    for name, array in arrays.items():
        bad = ~np.isfinite(array)
        if bad.any():
            place = tuple(int(i) for i in np.argwhere(bad)[0])
            got = f"{array[place]} at {place}"
            raise InputError(
                message(f"finite values in {name}", got, "leave out or mask missing entries")
            )


# Beyond this squares overflow, in sums over a view.
LARGEST = 1e100
# A view's extreme value that many standard deviations of the other entries away from their mean, in
# few entries, is reported.
_DEVIATIONS = 300.0
_FEW = 0.05
# Rows in which a view is looked at first.
_SAMPLED = 1000


def check_magnitudes(
    X: FloatArray,
    some: FloatArray,
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
    some : ndarray of float of shape (n, M), or X where that is sparse
        Rows spread over all.
    ends : pair of ndarray, shape (M,)
        The least and the largest value of every column.
    columns : mapping of str to ndarray of int
    column_names : sequence of str, shape (M,), optional

    Raises
    ------
    InputError
        Naming view, row, column and value.
    """
    for view, positions in columns.items():
        for end, pick in zip(ends, (np.argmin, np.argmax), strict=True):
            column = int(positions[pick(end[positions])])
            value = float(end[column])
            if abs(value) > LARGEST:
                do = "correct the value, write NaN if it is missing, or change the unit"
                got = f"{value:g} in {place_of(X, view, column, value, column_names)}"
                want = f"numbers of at most {LARGEST:g} in size"
                raise InputError(message(want, got, do), row=_row(X, column, value))
            if not sp.issparse(X) and (said := _code(X, some, positions, value)):
                _warn(said, value, place_of(X, view, column, value, column_names))


def place_of(
    X: FloatArray, view: str, column: int, value: float, column_names: ColumnNames
) -> str:
    """Name view, row and column of the first such value."""
    return (
        f"view {view!r}, row {_row(X, column, value)}, {describe_column(column, column_names)}"
    )


def _row(X: FloatArray, column: int, value: float) -> int:
    """Return the first row with that value."""
    if sp.issparse(X):
        return int((X[:, [column]] == value).nonzero()[0][0])
    for rows in passes(X.shape):
        (index,) = np.nonzero(X[rows][:, column] == value)
        if index.size:
            return int(rows.start + index[0])
    raise ValueError(f"no entry of {value}")


def _code(
    X: FloatArray, some: FloatArray, positions: IntArray, value: float
) -> tuple[int, float] | None:
    """Return how many entries of a view have that value and how far it lies from the others, if few
    do and too far; ``some`` are rows spread over all.
    """
    *_, deviations = _away(some, positions, value)
    if deviations <= 0.5 * _DEVIATIONS:
        # a sample tells, as it does of almost every view
        return None
    same, count, deviations = _away(X, positions, value)
    return (
        (same, deviations)
        if deviations > _DEVIATIONS and same <= _FEW * (same + count)
        else None
    )


def _squares(values: FloatArray) -> float:
    """Return the sum of squares; inf where it overflows."""
    with np.errstate(over="ignore"):
        return float(values @ values)


def _away(X: FloatArray, positions: IntArray, value: float) -> tuple[int, int, float]:
    """Count the entries of a view with that value and the others; return how many standard
    deviations these are away from it.

    NaN where all others are equal, or there are none.
    """
    same = count = 0
    total = square = pivot = 0.0
    for rows in passes(X.shape):
        values = columns_of(X[rows], positions)
        observed = values[~np.isnan(values)]
        rest = observed[observed != value].astype(np.float64)
        same = same + observed.size - rest.size
        pivot = pivot if count or not rest.size else float(rest.mean())
        # squares of what all have in common would cancel
        rest -= pivot
        count = count + rest.size
        total = total + float(rest.sum())
        square = square + _squares(rest)
    if not count:
        return same, 0, math.nan
    mean = total / count
    # a product is inf where it overflows, a power an error
    std = math.sqrt(max(square / count - mean * mean, 0.0))
    return same, count, abs(value - pivot - mean) / std if std > 0.0 else math.nan


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
