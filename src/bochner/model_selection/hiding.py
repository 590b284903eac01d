"""Hiding observed entries on purpose, to see how well they are predicted."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from bochner.data.arrays import BoolArray, FloatArray
from bochner.errors import InputError, message

# Of so few columns four patterns would hide next to nothing: every row has its own.
_FEW_COLUMNS = 16


def hide_some(
    values: FloatArray,
    columns: Mapping[str, NDArray[np.intp]],
    hide: str,
    fraction: float,
    source: np.random.Generator,
    n_patterns: int | None = None,
) -> BoolArray:
    """Choose observed entries to hide; every row keeps at least one.

    Parameters
    ----------
    values : ndarray of shape (n, M)
        NaN = missing.
    columns : mapping of view to ndarray of int
    hide : "entries", "view" or the name of a view
        Single entries at random; of every row that has several views one of them at random; or
        always that view.
    fraction : float
        Of the observed entries, in (0, 1); for "entries".
    source : numpy.random.Generator
    n_patterns : int, optional
        Hide entries by so many patterns of columns that rows share, which is cheaper to place than
        one of each row's own; in tables of more than 16 columns.

    Returns
    -------
    ndarray of bool, shape (n, M)

    Raises
    ------
    InputError
        An unknown ``hide``, a fraction out of range, or nothing that could be hidden.
    """
    observed = ~np.isnan(values)
    if hide == "entries":
        if not 0.0 < fraction < 1.0:
            raise InputError(
                message("fraction between 0 and 1", repr(fraction), "give a share such as 0.1")
            )
        hidden = _entries(observed, fraction, source, n_patterns)
    elif hide == "view" or hide in columns:
        hidden = _views(observed, columns, hide, source)
    else:
        raise InputError(
            message(
                f"hide= 'entries', 'view' or one of {list(columns)}", repr(hide), "correct it"
            )
        )
    if not hidden.any():
        if hide == "view" and len(columns) == 1:
            want = "a model of several views (hide='view')"
            raise InputError(message(want, "one of one view", "use hide='entries'"))
        got = "rows of which nothing can be hidden"
        raise InputError(
            message(
                f"rows with several entries (hide={hide!r}: views)", got, "pass fuller rows"
            )
        )
    return hidden


def _entries(
    observed: BoolArray,
    fraction: float,
    source: np.random.Generator,
    n_patterns: int | None,
) -> BoolArray:
    n, m = observed.shape
    n_patterns = n_patterns if n_patterns and m > _FEW_COLUMNS else n
    drawn = source.random((n_patterns, m))[np.arange(n) % n_patterns]
    hidden = observed & (drawn < fraction)
    # a handful of rows: one entry of each
    if not hidden.any():
        hidden |= observed & (
            drawn == np.where(observed, drawn, np.inf).min(axis=1, keepdims=True)
        )
    lost = np.flatnonzero(~(observed & ~hidden).any(axis=1))
    # the entry that was the last to be hidden is shown after all
    hidden[lost, np.where(observed[lost], drawn[lost], -1.0).argmax(axis=1)] = False
    return hidden


def _views(
    observed: BoolArray,
    columns: Mapping[str, NDArray[np.intp]],
    hide: str,
    source: np.random.Generator,
) -> BoolArray:
    present = np.column_stack(
        [observed[:, positions].any(axis=1) for positions in columns.values()]
    )
    allowed = present & (present.sum(axis=1, keepdims=True) > 1)
    if hide != "view":
        allowed &= np.array([view == hide for view in columns])
    choice = np.where(allowed, source.random(allowed.shape), -1.0).argmax(axis=1)
    hidden = np.zeros_like(observed)
    for v, positions in enumerate(columns.values()):
        rows = np.flatnonzero(allowed[:, v] & (choice == v))
        hidden[np.ix_(rows, positions)] = observed[np.ix_(rows, positions)]
    return hidden
