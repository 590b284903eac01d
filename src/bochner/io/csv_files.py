"""Comma- or tab-separated text, compressed or not: reading with exact places in the errors, writing
in one step.
"""

from __future__ import annotations

import csv
import difflib
import gzip
import os
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import numpy as np

from bochner.data.columns import BoolArray, FloatArray, listing
from bochner.errors import InputError, message
from bochner.io.table import Table, unreadable

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none"})
_WORDS = {**dict.fromkeys(MISSING, float("nan")), "true": 1.0, "false": 0.0}
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")
Line = tuple[int, list[str]]  # line number in the file, cells


def read_csv(path: Path, index: str | None = None) -> Table:
    """Read one csv file.

    The first line is a header when a cell beyond the first is no number. Row names are the column
    `index`, or a first column without a name, or a first column in which no cell is a number. Empty
    cells, NA and NaN are missing, True and False are 1 and 0. Files whose name ends in .gz are
    decompressed. Separators: comma, semicolon or tab, whichever the first line has most of.

    Parameters
    ----------
    path : Path
    index : str, optional
        Name of the column that names the rows; the file then has a header.

    Returns
    -------
    Table
        With row and column names where the file has them.

    Raises
    ------
    InputError
        For an empty or unreadable file, lines of unequal length, repeated names, or a cell that is
        no number.
    """
    lines = _lines(path)
    header = lines[0][1] if index is not None or _is_header(lines[0][1]) else None
    body = lines if header is None else lines[1:]
    if not body:
        raise InputError(
            message("rows of data", f"a header alone in {path}", "add rows below the header")
        )
    key = _index_column(path, header, body, index)
    names = None if header is None else _column_names(path, header, key)
    X = np.array([_numbers(path, line, key, header) for line in body], dtype=np.float64)
    if X.shape[1] == 0:
        raise InputError(message("columns of numbers", f"row names alone in {path}", "add columns"))
    if key is None:
        return Table(X, None, names)
    return Table(
        X, _row_names(path, body, key), names, index_name="" if header is None else header[key]
    )


def _lines(path: Path) -> list[Line]:
    try:
        with _open(path) as file:
            first = file.readline()
            file.seek(0)
            reader = csv.reader(file, delimiter=max(",;\t", key=first.count), strict=True)
            lines = [
                (reader.line_num, [cell.strip() for cell in cells]) for cells in reader if cells
            ]
    except UnicodeError as error:
        raise InputError(
            message("text in UTF-8", f"{path} ({error})", "save it as csv UTF-8")
        ) from error
    except (OSError, EOFError, zlib.error, csv.Error) as error:
        raise unreadable(path, "csv", error) from error
    if not lines:
        raise InputError(
            message(
                "a file with data", f"the empty file {path}", "check that it was written to its end"
            )
        )
    width = len(lines[0][1])
    for number, cells in lines:
        if len(cells) != width:
            got = f"{len(cells)} in line {number} of {path}"
            raise InputError(
                message(f"{width} cells in every line, as in the first", got, "repair that line")
            )
    return lines


def _open(path: Path) -> TextIO:
    if path.suffix.lower() == ".gz":
        return gzip.open(path, "rt", newline="", encoding="utf-8-sig")
    return path.open(newline="", encoding="utf-8-sig")


def _number(cell: str) -> float | None:
    word = _WORDS.get(cell.lower())
    if word is not None:
        return word
    try:
        return (
            None if "_" in cell else float(cell)
        )  # Python reads 1_000 as a number, no other program does
    except ValueError:
        return None


def _is_header(cells: list[str]) -> bool:
    if len(cells) == 1:
        return _number(cells[0]) is None
    # ",0,1,2" is what pandas writes above columns without names
    counted = cells[0] == "" and cells[1:] == [str(j) for j in range(len(cells) - 1)]
    return counted or any(_number(cell) is None for cell in cells[1:])


def _index_column(
    path: Path, header: list[str] | None, body: list[Line], index: str | None
) -> int | None:
    if index is not None and header is not None:
        if index in header:
            return header.index(index)
        close = difflib.get_close_matches(index, header, n=3) or header
        do = f"choose one of {listing([repr(name) for name in close])}"
        raise InputError(message(f"an index column {index!r} in {path}", "a header without it", do))
    first = [cells[0] for _, cells in body]
    unnamed = header is not None and header[0] == ""
    words = [cell for cell in first if cell.lower() not in MISSING]
    return 0 if unnamed or (words and all(_number(cell) is None for cell in words)) else None


def _column_names(path: Path, header: list[str], key: int | None) -> list[str]:
    names = [name or f"column_{j}" for j, name in enumerate(header) if j != key]
    _refuse_repeats(path, "column", names)
    return names


def _row_names(path: Path, body: list[Line], key: int) -> list[str]:
    for number, cells in body:
        if not cells[key]:
            raise InputError(
                message("a name for every row", f"none in line {number} of {path}", "name the row")
            )
    names = [cells[key] for _, cells in body]
    _refuse_repeats(path, "row", names)
    return names


def _refuse_repeats(path: Path, what: str, names: list[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            got = f"{name!r} twice in {path}"
            raise InputError(
                message(f"{what} names that differ", got, f"rename or drop one of the {what}s")
            )
        seen.add(name)


def _numbers(path: Path, line: Line, key: int | None, header: list[str] | None) -> list[float]:
    number, cells = line
    values = []
    for column, cell in enumerate(cells):
        if column == key:
            continue
        value = _number(cell)
        if value is None:
            name = f" ({header[column]!r})" if header else ""
            got = f"{cell!r} in {path}, line {number}, column {column}{name}"
            do = (
                "write a number, leave the cell empty if it is missing, or name a column of row "
                "names with index"
            )
            if _DECIMAL_COMMA.fullmatch(cell):
                do = "write decimal points, and thousands without commas"
            raise InputError(message("a number", got, do))
        values.append(value)
    return values


def write_csv(
    path: str | os.PathLike[str],
    matrix: FloatArray,
    row_names: Sequence[str] | None = None,
    column_names: Sequence[str] | None = None,
    index_name: str = "",
) -> None:
    """Write a matrix as csv; the file appears complete or not at all.

    Parameters
    ----------
    path : path-like
    matrix : ndarray of float, shape (N, M)
        Written with the digits its type needs to come back unchanged, columns of whole numbers
        under a name without a point; NaN becomes an empty cell.
    row_names : sequence of str, shape (N,), optional
    column_names : sequence of str, shape (M,), optional
        Counted (``x0``, ``x1``, ...) when only rows are named, so that `read` knows the names for
        what they are.
    index_name : str, optional
        Above the row names. Under a name numbers are read as row names only when `index` says so.

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
    # The csv module writes the shortest digits of float64; NumPy knows those of the other types.
    cells = matrix if matrix.dtype == np.float64 else matrix.astype(str)
    if row_names is not None and column_names is None:
        column_names = [f"x{j}" for j in range(matrix.shape[1])]
    missing = np.isnan(matrix)
    # a first line of numbers such as ",0,1" would be read as a header
    whole = (
        np.zeros(matrix.shape[1], dtype=bool) if column_names is None else _whole(matrix, missing)
    )
    # Same folder, so that the final rename is one atomic step on one file system.
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with part.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            if column_names is not None:
                writer.writerow([*([index_name] if row_names is not None else []), *column_names])
            for i, row in enumerate(cells):
                values = [
                    "" if missing[i, j] else int(matrix[i, j]) if whole[j] else value
                    for j, value in enumerate(row.tolist())
                ]
                writer.writerow([*([row_names[i]] if row_names is not None else []), *values])
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def _whole(matrix: FloatArray, missing: BoolArray) -> BoolArray:
    """Return which columns hold whole numbers, and some, (M,): counts that other programs should
    read as such.
    """
    minus_zero = (matrix == 0) & np.signbit(matrix)
    exact = (np.abs(matrix) < 2**53) & (matrix == np.floor(matrix)) & ~minus_zero
    found: BoolArray = (exact | missing).all(axis=0) & ~missing.all(axis=0)
    return found
