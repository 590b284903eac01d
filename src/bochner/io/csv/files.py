"""Tables as comma- or tab-separated text: numbers by pandas where it is installed and the text is
plain, cell by cell otherwise and to place an error.
"""

from __future__ import annotations

import contextlib
import difflib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from bochner.data.columns import listing
from bochner.errors import DataWarning, InputError, message, warn_user
from bochner.io.csv.headers import (
    MISSING,
    are_written_numbers,
    is_header,
    is_header_of_labels,
    is_key_name,
    is_whole,
    key_column,
    may_be_header,
    pointed,
)
from bochner.io.csv.text import Lines, PlainLines, contents, sample
from bochner.io.csv.write import unguarded
from bochner.io.request import Request
from bochner.io.table import EXACT, Table, warn_of_rounding

# Characters from which it pays to import pandas.
_LARGE = 2**19
# Bytes per character of text that is cut into cells.
_PER_CHARACTER = 12


def read_csv(path: Path, request: Request | None = None) -> Table:
    """Read one csv file.

    The first line is a header as `bochner.io.csv.headers.is_header` says. Row names are the column
    `index`, or a first column without a name, or one in which no cell is a number, or one that is
    called ``id`` or the like and holds whole numbers that differ. Empty cells, NA and NaN are
    missing, True and False are 1 and 0. Files whose name ends in .gz are decompressed. Separators:
    comma, semicolon, tab or vertical bar. Where rows have names, lines of empty cells are none, nor
    are columns without a name and without an entry: spreadsheets write both.

    Parameters
    ----------
    path : Path
    request : Request, optional

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
    request = request or Request()
    text = contents(path, request.memory)
    delimiter, first = sample(path, text)
    header = has_header(path, first, request)
    plain = PlainLines.of(text, delimiter, request.decimal) if len(text) >= _LARGE else None
    if plain is not None:
        with contextlib.suppress(ValueError):
            return Columns.of(path, plain, header, request).table()
    return _cut(path, text, delimiter, header, request).table()


@dataclass(frozen=True)
class Cells:
    """Columns of a csv file as they are written.

    Attributes
    ----------
    columns : list of list of str
        Without spaces around them, numbers with decimal points.
    column_names : list of str or None
    row_names : list of str or None
    index_name : str
    """

    columns: list[list[str]]
    column_names: list[str] | None
    row_names: list[str] | None
    index_name: str


def read_cells(path: Path, request: Request, known: Sequence[str] = ()) -> Cells:
    """Read one csv file as `read_csv` does, whatever its cells hold. A first line that has the
    names which are known to a model is its header.

    Raises
    ------
    InputError
        For an empty or unreadable file, lines of unequal length, or repeated names.
    """
    text = contents(path, request.memory)
    delimiter, first = sample(path, text)
    header = has_header_of_labels(path, first, request, known)
    return _cut(path, text, delimiter, header, request, labels=True).cells()


def has_header_of_labels(
    path: Path, first: Sequence[Sequence[str]], request: Request, known: Sequence[str] = ()
) -> bool:
    """Return whether the first of some lines names columns whose cells may be of any kind; those
    that are known to a model do.
    """
    header = _told(first, request)
    if not header and request.header is None:
        names = [unguarded(cell) for cell in first[0]] if first else []
        header = bool(known) and set(known) <= set(names)
        header = header or is_header_of_labels(names, first[1:])
        if not header:
            _warn_of_numbers(path)
    return header


def _warn_of_numbers(path: Path) -> None:
    warn_user(
        f"The first line of {path} is read as data, because it holds numbers: where it "
        "names the columns, add --header, and else --no-header.",
        DataWarning,
    )


class Text(Protocol):
    """Lines of a file, cut into cells."""

    @property
    def first(self) -> list[str]:
        """Cells of the first line."""

    def column(self, j: int, skip: int) -> list[str]:
        """Return the cells of a column, without those of the first `skip` lines."""

    def filled(self, skip: int) -> Self:
        """Return the lines without those of which every cell is empty."""

    def line_number(self, i: int, skip: int) -> int:
        """Return where the i-th line after the first `skip` stands in the file, from 1."""

    def numbers(
        self, columns: Sequence[int], skip: int, header: list[str] | None
    ) -> NDArray[np.float64]:
        """Return columns as numbers, without the first `skip` lines."""


def has_header(path: Path, first: Sequence[Sequence[str]], request: Request) -> bool:
    """Return whether the first of some lines names the columns; warn where numbers may do so."""
    header = _told(first, request)
    if not header and request.header is None and first:
        lines = [pointed(cells, request.decimal) for cells in first]
        if may_be_header(lines[0], lines[1:]):
            _warn_of_numbers(path)
    return header


def _told(first: Sequence[Sequence[str]], request: Request) -> bool:
    """Return what was asked for, or what the cells of the first lines tell."""
    if request.header is not None:
        return request.header
    lines = [pointed(cells, request.decimal) for cells in first]
    return request.index is not None or (bool(lines) and is_header(lines[0], lines[1:]))


def _cut(
    path: Path,
    text: str,
    delimiter: str,
    header: bool,
    request: Request,
    labels: bool = False,
) -> Columns:
    request.memory.check(_PER_CHARACTER * len(text), f"the cells of {path}")
    lines = Lines(path, text, delimiter, request.decimal)
    return Columns.of(path, lines, header, request, labels)


@dataclass(frozen=True)
class Columns:
    """Which columns of a file are read, and which one names its rows."""

    path: Path
    lines: Text
    header: list[str] | None
    key: int | None
    places: list[int]
    names: list[str] | None

    @classmethod
    def of(
        cls,
        path: Path,
        lines: Text,
        has_header: bool,
        request: Request,
        labels: bool = False,
    ) -> Columns:
        """Choose them; columns may hold labels, or only numbers."""
        skip = 1 if has_header else 0
        header = [unguarded(name) for name in lines.first] if has_header else None
        filled = lines.filled(skip)
        first = filled.column(0, skip)
        key = _key(path, header, first, request, labels) if first else None
        lines = lines if key is None else filled
        if not lines.column(0, skip):
            got = f"a header alone in {path}"
            raise InputError(message("rows of data", got, "add rows below the header"))
        places, names = _columns(path, lines, header, key, request)
        return cls(path, lines, header, key, places, names)

    @property
    def skip(self) -> int:
        """Lines above the data."""
        return 0 if self.header is None else 1

    def table(self) -> Table:
        """Return them as numbers."""
        X = self.lines.numbers(self.places, self.skip, self.header)
        self.warn_of_rounding(X, self.lines)
        return Table(X, self.row_names(), self.names, index_name=self.index_name)

    def warn_of_rounding(self, X: NDArray[np.float64], lines: Text) -> None:
        """Warn of columns whose whole numbers, as they are written, have too many digits."""
        beyond = ((X >= EXACT) | (X <= -EXACT)) & np.isfinite(X)
        for j in np.flatnonzero(beyond.any(axis=0)):
            cells = lines.column(self.places[j], self.skip)
            whole = [int(cells[i]) for i in np.flatnonzero(beyond[:, j]) if is_whole(cells[i])]
            name = f"The column {self.names[j]!r}" if self.names else f"Column {j}"
            warn_of_rounding(whole, name, str(self.path))

    def cells(self) -> Cells:
        """Return them as they are written."""
        columns = [self.lines.column(j, self.skip) for j in self.places]
        return Cells(columns, self.names, self.row_names(), self.index_name)

    @property
    def index_name(self) -> str:
        """What stands above the names of rows."""
        return "" if self.key is None or self.header is None else self.header[self.key]

    def row_names(self) -> list[str] | None:
        """Return the names of the rows, which differ."""
        if self.key is None:
            return None
        cells = self.lines.column(self.key, self.skip)
        return _row_names(self.path, self.lines, cells, self.skip, self.index_name)


def _key(
    path: Path,
    header: list[str] | None,
    first: Sequence[str],
    request: Request,
    labels: bool,
) -> int | None:
    index = request.index
    if index is None:
        name = "" if header is None else header[0]
        if name and request.selection.asks_for(name):
            return None
        repeated = len(set(first)) < len(first)
        if repeated and request.selection.leaves_out(name):
            return None
        if repeated and labels:
            _warn_of_repeats(header, first)
            return None
        if not key_column(header, first):
            _warn_of_repeats(header, first)
            return None
        _refuse_written_numbers(path, header, first)
        return 0
    if header is None:
        do = "leave out --no-header, or --index"
        raise InputError(message(f"a header with {index!r}", f"none in {path}", do))
    if index in header:
        return header.index(index)
    close = difflib.get_close_matches(index, header, n=3) or header
    do = f"choose one of {listing([repr(name) for name in close])}"
    raise InputError(
        message(f"an index column {index!r} in {path}", "a header without it", do)
    )


def _warn_of_repeats(header: list[str] | None, first: Sequence[str]) -> None:
    """Warn of a first column that is called a column of names, but has one twice."""
    if header is None or len(header) < 2 or not is_key_name(header[0]):
        return
    repeated = next((name for name, n in Counter(first).items() if n > 1 and name), None)
    if repeated is not None and len(set(first)) > len(first) / 2:
        name = header[0]
        warn_user(
            f"The column {name!r} is read as data, because {repeated!r} is in it more than once: "
            f"--drop {name} leaves it out; as names of rows they have to differ.",
            DataWarning,
        )


def _refuse_written_numbers(
    path: Path, header: list[str] | None, first: Sequence[str]
) -> None:
    """Refuse a first column of numbers that are not written plainly: they would name rows."""
    words = [cell for cell in first if cell.lower() not in MISSING]
    if not are_written_numbers(words):
        return
    name = "" if header is None else header[0]
    if header is not None and (not name or is_key_name(name)):
        return
    got = f"{words[0]!r} in the first column of {path}"
    do = "write 1234.5, without separators, signs or units"
    if any(cell.count(",") == 1 for cell in words):
        do += "; for decimal commas add --decimal ,"
    if name:
        do += f"; for a column of row names add --index {name}, to leave it out --drop {name}"
    raise InputError(message("a number", got, do))


def _columns(
    path: Path,
    lines: Text,
    header: list[str] | None,
    key: int | None,
    request: Request,
) -> tuple[list[int], list[str] | None]:
    """Return the positions of the columns of numbers, and their names."""
    places = [j for j in range(len(lines.first)) if j != key]
    if header is None:
        request.selection.nameless(str(path))
        names = None
    else:
        places = [j for j in places if header[j] or any(lines.column(j, 1))]
        every = [header[j] or f"column_{j}" for j in places]
        kept = request.selection.kept(every)
        if every and not kept:
            request.selection.check(str(path))
            got = f"none that is asked for of the {len(every)} in {path}"
            raise InputError(message("columns to read", got, "ask for others"))
        names = [every[j] for j in kept]
        places = [places[j] for j in kept]
        _refuse_repeats(path, "column", names, "rename or drop one of the columns")
    if not places:
        do = "add columns"
        if len(lines.first) == 1 and len(lines.first[0].split()) > 1:
            do += "; if spaces are between cells, write commas or tabs"
        got = f"row names alone in {path}"
        raise InputError(message("columns of numbers", got, do))
    return places, names


def _row_names(path: Path, lines: Text, cells: list[str], skip: int, column: str) -> list[str]:
    names = [unguarded(name) for name in cells]
    if "" in names:
        line = lines.line_number(names.index(""), skip)
        got = f"none in line {line} of {path}"
        raise InputError(message("a name for every row", got, "name the row"))
    do = "rename or drop one of the rows"
    if column:
        do += f"; if {column!r} names none, add --drop {column}, or --likelihood auto"
    _refuse_repeats(path, "row", names, do)
    return names


def _refuse_repeats(path: Path, what: str, names: list[str], do: str) -> None:
    known: set[str] = set()
    for name in names:
        if name in known:
            got = f"{name!r} twice in {path}"
            raise InputError(message(f"{what} names that differ", got, do))
        known.add(name)
