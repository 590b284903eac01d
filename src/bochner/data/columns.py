"""Which columns of the stacked matrix belong to which view, and rows and columns of one that is
dense or sparse.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bochner.data.arrays import BoolArray, FloatArray, IntArray
from bochner.errors import InputError, message
from bochner.memory import passes

KINDS = "a slice, a list of column names, a list of column numbers or a boolean mask"

ColumnNames = Sequence[str] | NDArray[np.generic] | None

DEFAULT_VIEW = "x"
# a message lists this many offenders and counts the rest
SHOWN = 5
# So many different values of a column may be categories in any case.
_FEW_LABELS = 20


def describe_column(column: int, column_names: ColumnNames = None) -> str:
    """Write a column for a message: its number, and its name where there is one."""
    return (
        f"column {column}"
        if column_names is None
        else f"column {column} ({str(column_names[column])!r})"
    )


def listing(items: Sequence[str]) -> str:
    """Join the first few items with commas and count the rest."""
    more = f" and {len(items) - SHOWN} more" if len(items) > SHOWN else ""
    return ", ".join(items[:SHOWN]) + more


def resolve_views(
    views: object, n_columns: int, column_names: ColumnNames = None
) -> dict[str, IntArray]:
    """Turn the `views` parameter of an estimator into column numbers.

    Parameters
    ----------
    views : None or mapping of str to selection
        None makes one view ``"x"`` of all columns. A selection is a slice, a list of column names,
        a list or array of column numbers, or a boolean mask of length M.
    n_columns : int
        M, the number of columns of X.
    column_names : sequence of str, shape (M,), optional
        Names of the columns of X; needed when a selection uses names.

    Returns
    -------
    dict of str to ndarray of int, shape (M_v,)
        Column numbers of every view, in the order given. Every column of X is in exactly one view.

    Raises
    ------
    InputError
        When the views are no mapping, are empty, overlap, leave a column out, or name a column X
        does not have.
    """
    if views is None:
        return {DEFAULT_VIEW: np.arange(n_columns, dtype=np.intp)}
    if not isinstance(views, Mapping):
        got = f"views of type {type(views).__name__}"
        raise InputError(
            message(
                "views to be None or a dict of view name to columns",
                got,
                'write {"name": slice}',
            )
        )
    if not views:
        do = "name at least one view, or leave views=None for a single view of all columns"
        raise InputError(message("at least one view", "an empty dict", do))
    columns = {
        _checked_name(name): _select(name, s, n_columns, column_names)
        for name, s in views.items()
    }
    _check_partition(columns, n_columns, column_names)
    return columns


def named_columns(views: object, column_names: Sequence[str]) -> list[int] | None:
    """Return the numbers of the columns that views name, ascending; None where any view selects
    otherwise than by names.

    Raises
    ------
    InputError
        A name that no column has.
    """
    if not isinstance(views, Mapping) or not views:
        return None
    for selection in views.values():
        if isinstance(selection, str | slice) or not hasattr(selection, "__len__"):
            return None
        if not (len(selection) and all(isinstance(item, str) for item in selection)):
            return None
    positions = [
        _from_names(str(view), list(names), column_names) for view, names in views.items()
    ]
    chosen: list[int] = np.unique(np.concatenate(positions)).tolist()
    return chosen


def _checked_name(name: object) -> str:
    if isinstance(name, str) and name:
        return name
    raise InputError(
        message(
            "view names to be non-empty strings",
            f"the name {name!r}",
            'write {"name": columns}',
        )
    )


def _select(
    view: str, selection: object, n_columns: int, column_names: ColumnNames
) -> IntArray:
    if isinstance(selection, slice):
        columns = _from_slice(view, selection, n_columns)
    else:
        columns = _from_sequence(view, selection, n_columns, column_names)
    if columns.size == 0:
        got = f"none from the selection {selection!r}"
        raise InputError(
            message(
                f"view {view!r} to have at least one column",
                got,
                "give it columns, or leave it out",
            )
        )
    values, counts = np.unique(columns, return_counts=True)
    if values.size < columns.size:
        got = f"{describe_column(int(values[counts > 1][0]), column_names)} more than once"
        raise InputError(message(f"every column once in view {view!r}", got, "list it once"))
    return columns


def _is_whole(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _from_slice(view: str, selection: slice, n_columns: int) -> IntArray:
    ends = (selection.start, selection.stop, selection.step)
    if not all(end is None or _is_whole(end) for end in ends) or selection.step == 0:
        do = "write the numbers of columns, such as slice(0, 10), or a list of names"
        raise InputError(
            message(f"a slice of whole numbers for view {view!r}", str(selection), do)
        )
    for bound in (selection.start, selection.stop):
        # Python would cut a slice that runs over the end; here it means that the view is not the
        # one intended.
        if bound is not None and not -n_columns <= bound <= n_columns:
            got = f"slice({selection.start}, {selection.stop}), which reaches column {bound}"
            do = f"X has columns 0 to {n_columns - 1}; correct the slice"
            raise InputError(
                message(f"view {view!r} to stay within the {n_columns} columns of X", got, do)
            )
    return np.arange(n_columns, dtype=np.intp)[selection]


def _from_sequence(
    view: str, selection: object, n_columns: int, column_names: ColumnNames
) -> IntArray:
    if isinstance(selection, str) or not hasattr(selection, "__len__"):
        got = f"{selection!r} of type {type(selection).__name__}"
        do = f"write [{selection!r}] for a single column"
        raise InputError(message(f"the columns of view {view!r} as {KINDS}", got, do))
    items = list(selection)  # type: ignore[call-overload]
    if items and all(isinstance(item, str) for item in items):
        return _from_names(view, items, column_names)
    if items and all(isinstance(item, bool | np.bool_) for item in items):
        return _from_mask(view, np.array(items, dtype=np.bool_), n_columns)
    for item in items:
        if not _is_whole(item):
            got = f"{item!r} of type {type(item).__name__} in it"
            raise InputError(
                message(
                    f"the columns of view {view!r} as {KINDS}", got, "use one kind throughout"
                )
            )
        if not 0 <= item < n_columns:
            do = f"X has columns 0 to {n_columns - 1}; correct the number"
            raise InputError(message(f"view {view!r} to stay within X", f"column {item}", do))
    return np.array(items, dtype=np.intp)


def _from_mask(view: str, mask: BoolArray, n_columns: int) -> IntArray:
    if mask.size != n_columns:
        got = f"{mask.size} entries"
        do = "give one True or False per column of X"
        raise InputError(
            message(f"the mask of view {view!r} to have {n_columns} entries", got, do)
        )
    return np.flatnonzero(mask)


def _from_names(view: str, items: list[str], column_names: ColumnNames) -> IntArray:
    if column_names is None:
        got = f"the name {items[0]!r} for an X without column names"
        raise InputError(
            message(
                f"column numbers for view {view!r}",
                got,
                "pass a DataFrame, or use column numbers",
            )
        )
    position = {str(name): j for j, name in enumerate(column_names)}
    unknown = [item for item in items if item not in position]
    if unknown:
        close = difflib.get_close_matches(unknown[0], list(position), n=3)
        hint = (
            f"did you mean {', '.join(map(repr, close))}?"
            if close
            else f"X has {listing(list(position))}"
        )
        got = f"unknown {listing([repr(str(item)) for item in unknown])}"
        raise InputError(
            message(f"view {view!r} to name columns of X", got, f"check the spelling: {hint}")
        )
    return np.array([position[item] for item in items], dtype=np.intp)


def _check_partition(
    columns: Mapping[str, IntArray], n_columns: int, column_names: ColumnNames
) -> None:
    owner: dict[int, str] = {}
    for view, positions in columns.items():
        for column in positions.tolist():
            if column in owner:
                got = (
                    f"{describe_column(column, column_names)} in both {owner[column]!r} and "
                    f"{view!r}"
                )
                raise InputError(
                    message("views that do not overlap", got, "keep it in one of them")
                )
            owner[column] = view
    left = [describe_column(j, column_names) for j in range(n_columns) if j not in owner]
    if left:
        got = f"{listing(left)} in no view"
        do = "add them to a view or drop them from X (--drop)"
        raise InputError(message("every column of X in a view", got, do))


def columns_of(X: FloatArray, positions: IntArray) -> FloatArray:
    """Return columns of X, shape (N, M_v): without a copy where they are neighbours."""
    if positions.size and (np.diff(positions) == 1).all():
        return X[:, positions[0] : positions[-1] + 1]
    return np.take(X, positions, axis=1)


def extremes(X: Any) -> tuple[FloatArray, FloatArray]:
    """Return the least and the largest value of every column; zeros that are not stored count, NaN
    do not.
    """
    matrix: Any = X
    if sp.issparse(X):
        return matrix.min(axis=0).toarray().ravel(), matrix.max(axis=0).toarray().ravel()
    low, high, _ = ends_and_sample(X, 1)
    return low, high


def ends_and_sample(X: FloatArray, most: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return what `extremes` does of a dense X, shape (N, M), and about so many of its rows, spread
    evenly over all, or all: one pass over rows that need not be in memory.
    """
    step = max(1, X.shape[0] // most)
    low = high = X[:1][0]
    some = []
    for rows in passes(X.shape):
        part = X[rows]
        low, high = widened((low, high), part)
        some.append(part[-rows.start % step :: step].copy())
    return low, high, np.concatenate(some)


def counts_of(X: Any, positions: IntArray) -> FloatArray:
    """Return how many observed entries columns of X have, (c,): of a sparse X all."""
    matrix: Any = X
    counts: FloatArray = np.zeros(positions.size)
    if sp.issparse(X):
        counts += matrix.shape[0]
        return counts
    for rows in passes(X.shape):
        counts += (~np.isnan(columns_of(X[rows], positions))).sum(0)
    return counts


def widened(
    ends: tuple[FloatArray, FloatArray], rows: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the least and the largest value of every column, those of more rows beside; NaN do not
    count.
    """
    low, high = ends
    return (
        np.fmin(low, np.fmin.reduce(rows, axis=0)),
        np.fmax(high, np.fmax.reduce(rows, axis=0)),
    )


def observed_rows(X: Any) -> NDArray[np.bool_]:
    """Return which rows have any observed entry, (N,): every row of a sparse matrix, whose zeros
    are observed.
    """
    n_rows = X.shape[0]
    if sp.issparse(X):
        return np.ones(n_rows, dtype=np.bool_)
    parts = [~np.isnan(X[rows]).all(axis=1) for rows in passes(X.shape)]
    return np.concatenate(parts) if parts else np.ones(0, dtype=np.bool_)


def dense_rows(X: Any, rows: NDArray[np.generic] | slice | None = None) -> FloatArray:
    """Return rows of a matrix, dense whether it was sparse or not; None: all."""
    part: Any = X if rows is None else X[rows]
    dense: FloatArray = part if isinstance(part, np.ndarray) else part.toarray()
    return dense


def evenly_spread(n_rows: int, most: int) -> NDArray[np.intp]:
    """Return at most so many row numbers, ascending, spread evenly over all."""
    return np.unique(np.linspace(0, n_rows - 1, min(most, n_rows)).round().astype(np.intp))


def are_row_names(n_labels: int, n_observed: int) -> bool:
    """Return whether labels differ nearly from row to row: these are no categories."""
    return n_labels > max(_FEW_LABELS, n_observed / 2)
