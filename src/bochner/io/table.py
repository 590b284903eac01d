"""What a file holds: numbers, names of rows and columns, and views."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bochner.data.arrays import FloatArray
from bochner.data.file_arrays import check_places, computable
from bochner.errors import DataWarning, InputError, message, warn_user
from bochner.memory import chunks

# Bytes of a dense matrix that a sparse one may become: never silently the whole memory of a
# machine.
DENSE_LIMIT = 8 * 2**30
DENSE_ROWS = 2048


@dataclass(frozen=True)
class Table:
    """One table read from a file or joined from several.

    Attributes
    ----------
    X : ndarray of float64, shape (N, M)
        NaN = missing.
    row_names : list of str, shape (N,), or None
    column_names : list of str, shape (M,), or None
    views : dict of str to slice, or None
        Columns of every view where the source has several; None for a single table.
    labels : ndarray, shape (N,), or None
        Labels found beside the data (an array ``y`` or ``labels``); never part of X.
    index_name : str
        What the file calls its column of row names; empty when it has no name.
    """

    X: NDArray[np.float64]
    row_names: list[str] | None = None
    column_names: list[str] | None = None
    views: dict[str, slice] | None = None
    labels: NDArray[np.generic] | None = None
    index_name: str = ""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.X.shape[0], self.X.shape[1]

    def first_column(self) -> FloatArray:
        """Return the first column, (N,)."""
        return self.X[:, 0]

    def __post_init__(self) -> None:
        for what, names in (("row", self.row_names), ("column", self.column_names)):
            bad = next((name for name in names or () if "\0" in name), None)
            if bad is not None:
                expected = f"{what} names without the character NUL"
                raise InputError(message(expected, repr(bad), f"rename the {what}"))


def as_matrix(array: NDArray[np.generic], place: str) -> NDArray[np.float64]:
    """Convert an array read from a file to float64, shape (N, M); `place` names its source in the
    error.
    """
    if array.ndim != 2:
        got = f"{array.ndim} dimensions, shape {array.shape}, in {place}"
        raise InputError(
            message(
                "a two-dimensional array (rows × columns)", got, "reshape it before saving"
            )
        )
    if array.dtype.kind not in "biuf":
        do = (
            "split complex numbers into two views"
            if array.dtype.kind == "c"
            else "save an array of numbers"
        )
        raise InputError(message("real numbers", f"the type {array.dtype} in {place}", do))
    check_not_empty(array.shape, place)
    if array.dtype.kind in "iu":
        whole: NDArray[Any] = array
        beyond = ((whole > EXACT) | (whole < -EXACT)).any(axis=0)
        for j in np.flatnonzero(beyond):
            warn_of_rounding(map(int, large(whole[:, j])), f"Column {j}", place)
    return array.astype(np.float64)


def check_not_empty(shape: tuple[int, ...], place: str) -> None:
    """Refuse an array read from a file that has no rows or no columns."""
    if 0 in shape:
        got = f"an array of shape {shape} in {place}"
        raise InputError(message("data", got, "save at least one row and one column"))


def unreadable(path: Path, kind: str, reason: object) -> InputError:
    """Build the error for a file that cannot be read as what its extension says."""
    return InputError(
        message(
            f"a readable {kind} file",
            f"{path} ({reason})",
            f"check that it is {kind} and complete",
        )
    )


def dense(X: Any, place: str, dtype: Any = np.float64) -> NDArray[Any]:
    """Write a sparse matrix out; a dense one is returned as it is.

    Parameters
    ----------
    X : scipy sparse matrix or array, or ndarray, shape (N, M)
    place : str
        Its source, for the message.
    dtype : dtype
        Of the result, which is filled at once: there is no second dense copy.

    Raises
    ------
    InputError
        The result would take more than `DENSE_LIMIT` bytes, or entries stand outside the matrix.
    """
    if isinstance(X, np.ndarray):
        return X
    check_places(X, place)
    size = int(X.shape[0]) * int(X.shape[1]) * np.dtype(dtype).itemsize
    if size > DENSE_LIMIT:
        got = f"{X.shape[0]:,} × {X.shape[1]:,} entries ({size / 2**30:.1f} GiB) in {place}"
        do = "choose fewer columns, such as the most variable ones, or fewer rows"
        raise InputError(
            message(
                f"at most {DENSE_LIMIT / 2**30:.0f} GiB when a sparse matrix is written out",
                got,
                do,
            )
        )
    out = np.empty(X.shape, dtype=dtype)
    rows = computable(X).tocsr()
    for cut in chunks(X.shape[0], DENSE_ROWS):
        # entries of one place are added: narrow types of whole numbers have no room for sums
        out[cut] = rows[cut].astype(dtype, copy=False).toarray()
    return out


# Whole numbers up to here are held by double precision.
EXACT = 2**53


def warn_of_rounding(values: Iterable[int], name: str, place: str) -> None:
    """Warn of a column of whole numbers that double precision rounds: identifiers, mostly."""
    if any(int(float(value)) != value for value in values):
        warn_user(
            f"{name} of {place} holds whole numbers beyond 2^53, of which digits are lost: leave "
            "it out if it names rows (--drop).",
            DataWarning,
        )


def large(values: NDArray[Any]) -> NDArray[Any]:
    """Return the numbers beyond those that double precision holds all of."""
    return values[(values > EXACT) | (values < -EXACT)]
