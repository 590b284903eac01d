"""Layouts that the caller supplies: two coordinates for every row, from arrays and files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bochner.data.accepted import in_order_of
from bochner.data.arrays import FloatArray
from bochner.errors import InputError, message
from bochner.io.csv.headers import is_key_name, number
from bochner.io.extensions import TEXT
from bochner.page.labels import check_file, read_labels, read_lines

# Coordinates of a page are in single precision, and so are their differences.
_LARGEST = 1e38


@dataclass(frozen=True)
class Layout:
    """Places of the rows, such as a UMAP of many latent dimensions.

    Attributes
    ----------
    name : str
    places : ndarray of shape (N, 2)
    """

    name: str
    places: FloatArray


def as_layouts(given: object, n_rows: int, index: object = None) -> list[Layout]:
    """Turn coordinates into layouts.

    Parameters
    ----------
    given : array-like of shape (N, 2), or mapping of name to one, or None
    n_rows : int
        N.
    index : pandas Index, optional
        Of the rows, which that of a DataFrame must equal where it names rows.

    Raises
    ------
    InputError
        An array of another shape, of rows in another order, or with entries that are not finite
        numbers.
    """
    given = in_order_of(index, "embedding", given)
    if given is None:
        return []
    named = given if isinstance(given, Mapping) else {"embedding": given}
    return [_one(str(name), values, n_rows) for name, values in named.items()]


def _one(name: str, values: Any, n_rows: int) -> Layout:
    want = f"an embedding of shape ({n_rows}, 2)"
    do = "give two coordinates per row, in their order"
    if np.iscomplexobj(values):
        do = "give real and imaginary parts as two columns"
        raise InputError(message(want, f"complex numbers in {name!r}", do))
    try:
        places = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(message(want, f"{name!r}, which is not numeric", do)) from error
    if places.shape != (n_rows, 2):
        raise InputError(message(want, f"shape {places.shape} in {name!r}", do))
    if not np.isfinite(places).all():
        row, column = np.argwhere(~np.isfinite(places))[0]
        got = f"{places[row, column]} in row {row}, column {column} of {name!r}"
        raise InputError(
            message("finite coordinates", got, "place every row, or leave the row out")
        )
    if np.abs(places).max(initial=0.0) > _LARGEST:
        got = f"{np.abs(places).max():.3g} in {name!r}"
        raise InputError(message(f"coordinates up to {_LARGEST:.0e}", got, "divide them"))
    return Layout(name, places)


def read_layout(
    path: Path, row_names: Sequence[str] | None, n_rows: int, decimal: str = "."
) -> dict[str, FloatArray]:
    """Read a layout from a file.

    Parameters
    ----------
    path : Path
        ``.npy``: an array of shape (N, 2). ``.csv``, ``.tsv`` or ``.txt``: a header and two columns
        of numbers; a first column that holds the row names joins by them.
    row_names : sequence of str or None
    n_rows : int
    decimal : str
        What may stand before the fraction of numbers in text, besides a point.

    Returns
    -------
    dict of str to ndarray of shape (N, 2)
        One layout, named after the file.

    Raises
    ------
    InputError
        Not such a file, or not two numbers for every row.
    """
    if path.suffix.lower() == ".npy" and path.is_file():
        return {path.stem: _array(path)}
    if (places := _without_header(path, n_rows, decimal)) is not None:
        return {path.stem: places}
    columns = read_labels(path, row_names, n_rows, decimal)
    first = next(iter(columns))
    if row_names is None and len(columns) == 3 and is_key_name(first):
        # names of rows by which nothing is joined: said by who read them
        del columns[first]
    if len(columns) != 2:
        got = f"{len(columns)} ({', '.join(columns)}) in {path}"
        raise InputError(
            message("two columns of coordinates", got, "keep two, and the row names")
        )
    for name, values in columns.items():
        if values.dtype.kind not in "fiu":
            got = f"the text {values[0]!r} in column {name!r} of {path}"
            raise InputError(
                message("coordinates that are numbers", got, "correct the column")
            )
    return {path.stem: np.column_stack(list(columns.values()))}


def _without_header(path: Path, n_rows: int, decimal: str) -> FloatArray | None:
    """Return two columns of numbers with nothing above them, as long as the rows are; None: the
    first line names the columns.

    Raises
    ------
    InputError
        Not a file of text, or not one line for every row.
    """
    check_file(path, "coordinates")
    if path.suffix.lower() not in TEXT:
        do = "convert the file"
        raise InputError(message("coordinates in a .csv or .npy file", str(path), do))
    lines = read_lines(path, decimal)
    first = lines.first
    # a first column of names joins: other rows may be there
    if len(first) != 2:
        return None
    header = any(number(cell) is None for cell in first)
    count = len(lines.lines) - header
    if not header and count == n_rows:
        return lines.numbers((0, 1), 0, None)
    # pandas calls columns by numbers, too
    if count != (n_rows if header else n_rows + 1):
        got = f"{count} in {path}"
        do = "give one line per row, in order"
        raise InputError(message(f"two coordinates for each of the {n_rows} rows", got, do))
    return None


def _array(path: Path) -> FloatArray:
    try:
        values: FloatArray = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(
            message("a readable file of coordinates", f"{path} ({error})", "save it again")
        ) from error
    return values
