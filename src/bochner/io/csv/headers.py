"""What the cells of a table of text are: numbers, missing, names of columns or of rows."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "#n/a", "<na>"})
_WORDS = {**dict.fromkeys(MISSING, float("nan")), "true": 1.0, "false": 0.0}
# What names a column of names; also anything that ends in "_id", " id" or "ID".
_KEYS = frozenset(
    """
    barcode cell id ids idx index key name names patient row rowid rowname rownames row_name
    row_names sample sampleid subject uid uuid
    """.split()  # noqa: SIM905 - a list of words
) | {"unnamed: 0"}  # what pandas calls names of rows that it wrote and read again
_KEY_ENDING = re.compile(r".+(?:[_ .-](?:id|ID|Id)|[a-z0-9](?:ID|Id))")
# Words for "missing" that are no names of columns.
_PLACEHOLDERS = frozenset(
    "missing unknown undefined nd n.d. n.a. ? - -- . .. * ** #".split()  # noqa: SIM905
)
_WHOLE = re.compile(r"[+-]?\d+")
# Numbers as people write them: 1,234.5, 1.234,5, 12,5, 10 %, $10 and 1.5 mm.
_WRITTEN = re.compile(
    r"[+-]?[$€£¥]?\s?(?:\d{1,3}(?:[,' ]\d{3})+(?:\.\d+)?|\d{1,3}(?:\.\d{3})+,\d+|\d+(?:[.,]\d+)?)"
    r"\s?[%$€£¥]?|[+-]?\d+[.,]\d+\s?[A-Za-zµ°]{1,5}"
)

# A number and its unit.
_MEASURED = re.compile(r"[+-]?\d+(?:[.,]\d+)?\s?([A-Za-zµ°]{1,5})")


def number(cell: str) -> float | None:
    """Return the number that a cell holds, NaN where it is missing; None where it is neither."""
    word = _WORDS.get(cell.lower())
    if word is not None:
        return word
    try:
        # Python reads 1_000 as a number, no other program does
        return None if "_" in cell else float(cell)
    except ValueError:
        return None


def pointed(cells: Sequence[str], decimal: str) -> list[str]:
    """Return cells whose numbers have decimal points; words stay what they are."""
    if decimal == ".":
        return [*cells]
    return [
        cell.replace(decimal, ".") if number(cell.replace(decimal, ".")) is not None else cell
        for cell in cells
    ]


def is_written_number(cell: str) -> bool:
    """Tell whether a cell is a number with separators, a percent sign, a currency or a unit."""
    if number(cell) is not None:
        return False
    is_comma = cell.count(",") == 1 and number(cell.replace(",", ".")) is not None
    return is_comma or _WRITTEN.fullmatch(cell) is not None


def are_written_numbers(cells: Sequence[str]) -> bool:
    """Tell whether all cells are such numbers; beside 1.5 mm 2 mm is one, and else a name."""
    units = {_unit(cell) for cell in cells if is_written_number(cell)}
    known = units - {None}
    return bool(units) and all(is_written_number(c) or _unit(c) in known for c in cells)


def _unit(cell: str) -> str | None:
    found = _MEASURED.fullmatch(cell)
    return found and found[1]


def is_whole(cell: str) -> bool:
    """Tell whether a cell is a whole number, written as such."""
    return _WHOLE.fullmatch(cell) is not None


def is_key_name(name: str) -> bool:
    """Tell whether a column of this name is likely to name rows."""
    return name.lower() in _KEYS or _KEY_ENDING.fullmatch(name) is not None


def distinct_whole(cells: Sequence[str]) -> bool:
    """Tell whether cells are whole numbers that differ."""
    return len(set(cells)) == len(cells) and all(map(_WHOLE.fullmatch, cells))


def is_header(first: Sequence[str], body: Sequence[Sequence[str]]) -> bool:
    """Tell whether the first line names the columns.

    Parameters
    ----------
    first : sequence of str
        Its cells.
    body : sequence of sequence of str
        Some lines below it.

    Returns
    -------
    bool
        True when every cell beyond the first is a word, or some are words and the others whole
        numbers that differ (``a,2001``); when the cells are numbers below a first cell that is
        empty or the name of a column of names (``id,2001,2002``, ``,0,1``), or below a word above
        numbers, or consecutive below a word and above numbers with fractions. ``1,2,?`` is a line
        of data with a fault.
    """
    rest = first[1:] if len(first) > 1 else first
    words = [cell for cell in rest if number(cell) is None]
    if words:
        return _names(first, words)
    if len(first) == 1:
        return False
    return _numbers_as_names(first[0], rest, body)


def may_be_header(first: Sequence[str], body: Sequence[Sequence[str]]) -> bool:
    """Tell whether a first line of numbers may name columns, beside a first cell of any kind: whole
    numbers that rise by one step, as no line below does (``2019,2020,2021``), or that differ, above
    fractions alone.
    """
    begin = 0 if is_whole(first[0]) else 1
    names = first[begin:]
    if len(names) < 2 or not body or not distinct_whole(names):
        return False
    below = [cells[begin:] for cells in body]
    if _rises(names) and not any(map(_rises, below)):
        return True
    return all("." in cell or cell.lower() in MISSING for cells in below for cell in cells)


def _rises(cells: Sequence[str]) -> bool:
    """Tell whether cells are three or more whole numbers, each as much above the one before."""
    if len(cells) < 3 or not all(map(is_whole, cells)):
        return False
    values = [int(cell) for cell in cells]
    steps = {after - before for before, after in itertools.pairwise(values)}
    return len(steps) == 1 and min(steps) > 0


def is_header_of_labels(first: Sequence[str], body: Sequence[Sequence[str]]) -> bool:
    """Tell whether a first line with whole numbers that differ names columns of which some hold
    labels: its words are none of the labels below them, which repeat (``species,450,500``).
    """
    numbers = [cell for cell in first if number(cell) is not None]
    if not distinct_whole(numbers):
        return False
    for j, name in enumerate(first):
        below = [cells[j] for cells in body if j < len(cells)]
        if number(name) is None and name not in below and len(set(below)) < len(below):
            return True
    return False


def _names(first: Sequence[str], words: Sequence[str]) -> bool:
    named = [cell for cell in words if cell.lower() not in _PLACEHOLDERS]
    numbers = [cell for cell in first if cell and number(cell) is not None]
    if not numbers:
        return bool(named)
    lettered = [cell for cell in named if any(map(str.isalpha, cell))]
    return len(lettered) == len(words) and distinct_whole(numbers)


def _numbers_as_names(corner: str, rest: Sequence[str], body: Sequence[Sequence[str]]) -> bool:
    if corner == "":
        # ",0,1,2" is what pandas writes above columns without names
        return list(rest) == [str(j) for j in range(len(rest))]
    if number(corner) is not None or not distinct_whole(rest):
        return False
    if is_key_name(corner) or (body and all(number(cells[0]) is not None for cells in body)):
        return True
    values = [int(cell) for cell in rest]
    consecutive = len(values) > 1 and values == list(range(values[0], values[0] + len(values)))
    fractions = any("." in cell for cells in body for cell in cells[1:])
    return consecutive and fractions


def key_column(header: Sequence[str] | None, first: Sequence[str]) -> bool:
    """Tell whether the first column names the rows.

    Parameters
    ----------
    header : sequence of str or None
    first : sequence of str
        Cells of the first column below the header.

    Returns
    -------
    bool
        True when the column has no name, when none of its cells is a number, or when its name says
        so (``id``, ``sample_id``) and its cells are whole numbers that differ.
    """
    if header is not None and header[0] == "":
        return True
    words = [cell for cell in first if cell.lower() not in MISSING]
    if words and all(number(cell) is None for cell in words):
        return True
    named = header is not None and len(header) > 1 and is_key_name(header[0])
    return named and distinct_whole(first)
