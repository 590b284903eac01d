"""NumPy files: one array (npy) or several by name (npz); never pickles."""

from __future__ import annotations

import pickle
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bochner.errors import InputError, message
from bochner.io.table import Table, as_matrix, unreadable

LABELS = ("y", "labels")
_FAULTS = (
    OSError,
    ValueError,
    EOFError,
    KeyError,
    SyntaxError,
    zipfile.BadZipFile,
    zlib.error,
    pickle.UnpicklingError,
)


def read_npy(path: Path) -> Table:
    """Read a file with one two-dimensional array of numbers."""
    loaded = _load(path, "npy")
    if not isinstance(loaded, np.ndarray):
        raise unreadable(path, "npy", "it holds several arrays: rename it to .npz")
    return Table(as_matrix(loaded, str(path)))


def read_npz(path: Path) -> Table:
    """Read a file with one or several named arrays.

    Two-dimensional arrays are data: one array is a single table, several are views of the same
    rows, in the order of the file. ``row_names``, ``column_names`` (single table only) and the
    labels ``y`` or ``labels`` are kept; other arrays of fewer dimensions are ignored.

    Raises
    ------
    InputError
        For an unreadable file, arrays of objects, no array of data, or views of unequal length.
    """
    arrays = _load(path, "npz")
    if isinstance(arrays, np.ndarray):
        raise unreadable(path, "npz", "it holds a single array: rename it to .npy")
    data = {
        name: as_matrix(a, f"array {name!r} of {path}") for name, a in arrays.items() if a.ndim >= 2
    }
    if not data:
        found = ", ".join(f"{name!r} {a.shape}" for name, a in arrays.items()) or "no array"
        raise InputError(
            message(
                f"a two-dimensional array in {path}", found, "save X with shape (rows, columns)"
            )
        )
    counts = {name: X.shape[0] for name, X in data.items()}
    if len(set(counts.values())) > 1:
        got = ", ".join(f"{name!r}: {count}" for name, count in counts.items())
        raise InputError(
            message(
                f"views with the same rows in {path}", got, "save one row per sample in every view"
            )
        )
    n_rows, n_columns = next(iter(counts.values())), sum(X.shape[1] for X in data.values())
    return Table(
        np.hstack(list(data.values())),
        _names(arrays, "row_names", n_rows),
        _names(arrays, "column_names", n_columns),
        None if len(data) == 1 else consecutive({name: X.shape[1] for name, X in data.items()}),
        next(
            (arrays[key] for key in LABELS if key in arrays and arrays[key].shape == (n_rows,)),
            None,
        ),
    )


def consecutive(widths: dict[str, int]) -> dict[str, slice]:
    """Lay views of the given widths side by side: name to slice of columns."""
    stops = np.cumsum(list(widths.values())).tolist()
    return {
        name: slice(stop - width, stop)
        for (name, width), stop in zip(widths.items(), stops, strict=True)
    }


def _names(arrays: dict[str, NDArray[Any]], key: str, count: int) -> list[str] | None:
    found = arrays.get(key)
    return (
        None if found is None or found.shape != (count,) else [str(name) for name in found.tolist()]
    )


def _load(path: Path, kind: str) -> NDArray[Any] | dict[str, NDArray[Any]]:
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return loaded
        with loaded:
            return {name: loaded[name] for name in loaded.files}
    except _FAULTS as error:
        if "Object arrays" in str(error):
            do = "save an array of numbers with dtype=float"
            raise InputError(message("numbers", f"Python objects in {path}", do)) from error
        # NumPy takes anything it does not know for a pickle and advises to load it unsafely: not
        # our advice.
        reason = "it is no NumPy file" if "pickle" in str(error) else error
        raise unreadable(path, kind, reason) from error
