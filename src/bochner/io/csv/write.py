"""Matrices as csv files."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TextIO

import numpy as np

from bochner.data.arrays import BoolArray, FloatArray
from bochner.errors import InputError, message
from bochner.io.outputs import replacing
from bochner.memory import chunks

# Rows whose digits are written together: as text they are ten times as large.
_ROWS = 8192
# What a spreadsheet would run: a formula begins so, or with a sign before a call.
_FORMULA = re.compile(r"'*(?:[=@\t\r]|[+-].*[(|!])", re.DOTALL)


def guarded(name: str) -> str:
    """Return a name as a spreadsheet shows it: one that it would run gets an apostrophe before it.

    `unguarded` takes it away again.
    """
    return f"'{name}" if _FORMULA.match(name) else name


def unguarded(cell: str) -> str:
    """Return the name that `guarded` wrote."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def write_csv(
    path: str | os.PathLike[str],
    matrix: FloatArray,
    row_names: Sequence[str] | None = None,
    column_names: Sequence[str] | None = None,
    index_name: str = "",
    typed: FloatArray | None = None,
) -> None:
    """Write a matrix as csv; the file appears complete or not at all.

    Parameters
    ----------
    path : path-like
    matrix : ndarray of float, shape (N, M)
        Written with the digits its type needs to come back unchanged, whole numbers of columns of
        whole numbers without a point; NaN becomes an empty cell.
    row_names : sequence of str, shape (N,), optional
        Names that a spreadsheet would run as formulas get an apostrophe, as those of columns do;
        `read` takes it away.
    column_names : sequence of str, shape (M,), optional
        Counted (``x0``, ``x1``, ...) when only rows are named, so that `read` knows the names for
        what they are.
    index_name : str, optional
        Above the row names. Under a name that is none for names (``id``) numbers are read as row
        names only when `index` says so.
    typed : ndarray of float, shape (N, M), optional
        What `matrix` was before it was completed: columns of whole numbers there are such columns.

    Raises
    ------
    InputError
        When the folder does not exist.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise InputError(
            message("an existing folder to write to", str(target.parent), "create it first")
        )
    whole = whole_columns(matrix if typed is None else typed)
    with replacing(target) as part, part.open("w", newline="", encoding="utf-8") as file:
        CsvRows(file, matrix.shape[1], column_names, whole, row_names, index_name).write(
            matrix
        )


class CsvRows:
    """Consecutive rows of a csv file, block by block, below the names of its columns.

    Parameters
    ----------
    file : text file
    width : int
        Columns of numbers.
    column_names : sequence of str, shape (width,), optional
    whole : ndarray of bool, shape (width,)
        Columns of whole numbers, written without points.
    row_names, index_name : optional
        As in `write_csv`; of all rows.
    """

    def __init__(
        self,
        file: TextIO,
        width: int,
        column_names: Sequence[str] | None,
        whole: BoolArray,
        row_names: Sequence[str] | None = None,
        index_name: str = "",
    ) -> None:
        self._rows = csv.writer(file, lineterminator="\n")
        self._whole = whole
        self._names = row_names
        self._done = 0
        if row_names is not None and column_names is None:
            column_names = [f"x{j}" for j in range(width)]
        self._named = column_names is not None
        if column_names is not None:
            corner = [] if row_names is None else [guarded(index_name)]
            self._rows.writerow([*corner, *map(guarded, column_names)])

    def write(self, block: FloatArray) -> None:
        """Write rows, (n, width)."""
        lines = cells(block, self._whole, self._named)
        if self._names is None:
            self._rows.writerows(lines)
        else:
            names = map(guarded, self._names[self._done : self._done + len(block)])
            self._rows.writerows(
                [name, *line] for name, line in zip(names, lines, strict=True)
            )
        self._done += len(block)


def cells(matrix: FloatArray, whole: BoolArray, named: bool) -> Iterator[list[object]]:
    """Yield rows of numbers as they are written, whole ones of some columns without a point, below
    a line of names or without one.
    """
    if not named and matrix.size and np.isnan(matrix[0, 0]):
        # a first line such as ",0,1" would be read as names
        whole = np.zeros_like(whole)
    for rows in chunks(len(matrix), _ROWS):
        part = matrix[rows]
        missing = np.isnan(part)
        # The csv module writes the shortest digits of float64; NumPy knows those of the other
        # types.
        cells = part if part.dtype == np.float64 else part.astype(str)
        plain = whole & _exact(part)
        for i, row in enumerate(cells):
            yield [
                "" if missing[i, j] else int(part[i, j]) if plain[i, j] else value
                for j, value in enumerate(row.tolist())
            ]


def whole_columns(matrix: FloatArray) -> BoolArray:
    """Return which columns hold whole numbers, and some, (M,): counts that other programs should
    read as such.
    """
    return whole_columns_of([matrix])


def whole_columns_of(blocks: Iterable[FloatArray]) -> BoolArray:
    """Return which columns of rows that come in blocks hold whole numbers, and some, (M,)."""
    whole = np.ones(1, dtype=bool)
    some = np.zeros(1, dtype=bool)
    for block in blocks:
        missing = np.isnan(block)
        whole = whole & (_exact(block) | missing).all(axis=0)
        some = some | ~missing.all(axis=0)
        if not whole.any():
            break
    return np.asarray(whole & some)


def _exact(matrix: FloatArray) -> BoolArray:
    """Return which numbers are whole, and are the same without a point."""
    minus_zero = (matrix == 0) & np.signbit(matrix)
    whole = (np.abs(matrix) < 2**53) & (matrix == np.floor(matrix))
    return np.asarray(whole & ~minus_zero)
