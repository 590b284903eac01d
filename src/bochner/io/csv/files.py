"""Tables as comma- or tab-separated text: numbers by pandas where it is installed and the text is
plain, cell by cell otherwise and to place an error.
"""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Sequence
from pathlib import Path

from bochner.data.columns import listing
from bochner.errors import InputError, message
from bochner.io.csv.headers import (
    MISSING,
    is_header,
    is_key_name,
    is_written_number,
    key_column,
    pointed,
)
from bochner.io.csv.text import Lines, PlainLines, contents, sample
from bochner.io.csv.write import unguarded
from bochner.io.request import Request
from bochner.io.table import Table

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
    first = [pointed(cells, request.decimal) for cells in first]
    header = request.header
    if header is None:
        header = request.index is not None or (bool(first) and is_header(first[0], first[1:]))
    plain = PlainLines.of(text, delimiter, request.decimal) if len(text) >= _LARGE else None
    if plain is not None:
        with contextlib.suppress(ValueError):
            return _table(path, plain, header, request)
    request.memory.check(_PER_CHARACTER * len(text), f"the cells of {path}")
    lines = Lines(path, text, delimiter, request.decimal)
    return _table(path, lines, header, request)


def _table(path: Path, lines: Lines | PlainLines, has_header: bool, request: Request) -> Table:
    skip = 1 if has_header else 0
    header = [unguarded(name) for name in lines.first] if has_header else None
    filled = lines.filled(skip)
    first = filled.column(0, skip)
    key = _key(path, header, first, request.index) if first else None
    lines = lines if key is None else filled
    if not lines.column(0, skip):
        raise InputError(
            message("rows of data", f"a header alone in {path}", "add rows below the header")
        )
    columns, names = _columns(path, lines, header, key, request)
    X = lines.numbers(columns, skip, header)
    if key is None:
        return Table(X, None, names)
    rows = _row_names(path, lines, first if key == 0 else lines.column(key, skip), skip)
    return Table(X, rows, names, index_name="" if header is None else header[key])


def _key(
    path: Path, header: list[str] | None, first: Sequence[str], index: str | None
) -> int | None:
    if index is None:
        if not key_column(header, first):
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


def _refuse_written_numbers(
    path: Path, header: list[str] | None, first: Sequence[str]
) -> None:
    """Refuse a first column of numbers that are not written plainly: they would name rows."""
    words = [cell for cell in first if cell.lower() not in MISSING]
    if not words or not all(map(is_written_number, words)):
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
    lines: Lines | PlainLines,
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
        names = [every[j] for j in kept]
        places = [places[j] for j in kept]
        _refuse_repeats(path, "column", names)
    if not places:
        raise InputError(
            message("columns of numbers", f"row names alone in {path}", "add columns")
        )
    return places, names


def _row_names(
    path: Path, lines: Lines | PlainLines, cells: list[str], skip: int
) -> list[str]:
    names = [unguarded(name) for name in cells]
    if "" in names:
        line = lines.line_number(names.index(""), skip)
        got = f"none in line {line} of {path}"
        raise InputError(message("a name for every row", got, "name the row"))
    _refuse_repeats(path, "row", names)
    return names


def _refuse_repeats(path: Path, what: str, names: list[str]) -> None:
    known: set[str] = set()
    for name in names:
        if name in known:
            got = f"{name!r} twice in {path}"
            raise InputError(
                message(f"{what} names that differ", got, f"rename or drop one of the {what}s")
            )
        known.add(name)
