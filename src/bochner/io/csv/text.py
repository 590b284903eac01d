"""Comma- or tab-separated text, compressed or not: its separator, its lines and its columns."""

from __future__ import annotations

import codecs
import csv
import gzip
import importlib.util
import io
import re
import shlex
import zlib
from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bochner.errors import InputError, message
from bochner.io.csv.headers import MISSING, is_written_number, number, pointed
from bochner.io.table import unreadable
from bochner.memory import Memory

# line number in the file, cells
Line = tuple[int, list[str]]

# What spreadsheets begin a file with that they call Unicode text.
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
# Encodings by which of the first bytes are 0, where text begins with what ASCII has.
_WIDE = {"x0x0": "UTF-16LE", "0x0x": "UTF-16BE", "x000": "UTF-32LE", "000x": "UTF-32BE"}
# A line that Excel alone reads, and writes nowhere else.
_SEPARATOR = re.compile(r'"?sep=.?"?[\s,;]*', re.IGNORECASE)
# What files begin with that gzip wrote.
_GZIP = b"\x1f\x8b"
# What other files begin with that are called .csv: what they are, and what is to be done.
_SAVE = "open it in the program that wrote it and save it as csv UTF-8"
_FOREIGN = {
    b"PK\x03\x04": ("a workbook (.xlsx, .ods) or another zip archive", _SAVE),
    b"\xd0\xcf\x11\xe0": ("an Excel workbook (.xls)", _SAVE),
    b"%PDF": ("a PDF document", "export the table as csv UTF-8"),
    b"PAR1": ("a parquet file", "rename it to .parquet"),
    b"\x89HDF": ("an HDF5 file", "rename it to .h5ad or .h5mu if anndata or mudata wrote it"),
    b"\x93NUMPY": ("a NumPy array", "rename it to .npy"),
    b"<!DOCTYPE": ("a web page", "download the file itself"),
    b"<html": ("a web page", "download the file itself"),
}
# Lines that decide about separator and header.
_SAMPLE = 20
_SPELLINGS = (str.lower, str.upper, str.title)
_ABSENT = sorted({spell(word) for word in MISSING for spell in _SPELLINGS} | {"NaN"})


def contents(path: Path, memory: Memory) -> str:
    """Read a text file, decompressed when its name ends in .gz.

    Raises
    ------
    InputError
        The file is no Unicode, cannot be read, or is too large when decompressed.
    """
    try:
        raw = _inflated(path, memory) if path.suffix.lower() == ".gz" else path.read_bytes()
        if raw.startswith(_GZIP):
            got = f"{path}, which gzip has compressed"
            raise InputError(message("text", got, f"rename it to {path.name}.gz"))
        _refuse_foreign(path, raw)
        _refuse_wide(path, raw)
        return raw.decode("utf-16" if raw.startswith(_UTF_16) else "utf-8-sig")
    except UnicodeError as error:
        if b"\0" in raw and not raw.startswith(_UTF_16):
            do = "name the file that holds the table, or export it as csv UTF-8"
            raise InputError(
                message("a table as text", f"binary data in {path}", do)
            ) from error
        do = "save it as csv UTF-8"
        if path.suffix.lower() != ".gz":
            do += f", or: iconv -f WINDOWS-1252 -t UTF-8 {shlex.quote(str(path))} > new.csv"
        raise InputError(message("text in UTF-8", f"{path} ({error})", do)) from error
    except (OSError, EOFError, zlib.error) as error:
        raise unreadable(path, "csv", error) from error


def _refuse_foreign(path: Path, raw: bytes) -> None:
    """Refuse a file of another kind by what it begins with: recoded, it would be noise."""
    for start, (what, do) in _FOREIGN.items():
        if raw[: len(start)].lower() == start.lower():
            raise InputError(message("a table as text", f"{what} in {path}", do))


def _refuse_wide(path: Path, raw: bytes) -> None:
    """Refuse UTF-16 without a byte order mark, and UTF-32: every other byte of numbers is 0."""
    zeros = "".join("x" if byte else "0" for byte in raw[:4])
    name = _WIDE.get(zeros)
    if raw.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        name = "UTF-32"
    if name is None:
        return
    do = "save it as csv UTF-8"
    if path.suffix.lower() != ".gz":
        do += f", or: iconv -f {name} -t UTF-8 {shlex.quote(str(path))} > new.csv"
    got = f"{path} in {name}{'' if name == 'UTF-32' else ' without a byte order mark'}"
    raise InputError(message("text in UTF-8", got, do))


def _inflated(path: Path, memory: Memory) -> bytes:
    most = memory.expanded(path.stat().st_size)
    with gzip.open(path) as file:
        raw = file.read(most + 1)
    if len(raw) > most:
        raise memory.too_large(str(path), most)
    return raw


def sample(path: Path, text: str) -> tuple[str, list[list[str]]]:
    """Return the separator and the cells of the first lines.

    The separator is a tab in files called .tsv; else the first of tab, semicolon, comma and
    vertical bar that cuts the first lines into equally many cells, or, where none does, the one
    that the first line has most of.

    Raises
    ------
    InputError
        An empty file, a .tsv file without a tab but with commas, or a comment, or what Excel calls
        a separator, above the table.
    """
    names = path.name.lower().removesuffix(".gz")
    start = _start(text)
    first = next((line for line in start.splitlines() if line.strip()), "")
    if not first:
        do = "check that it was written to its end"
        raise InputError(message("a file with data", f"the empty file {path}", do))
    _refuse_separator(path, first)
    _refuse_comment(path, start)
    if names.endswith(".tsv"):
        if "\t" not in first and "," in first:
            do = "rename it to .csv, or separate its cells by tabs"
            raise InputError(message("tabs between cells", f"commas in {path}", do))
        return "\t", _first_lines(start, "\t")
    for delimiter in "\t;,|":
        cells = _first_lines(start, delimiter)
        widths = {len(line) for line in cells}
        if len(widths) == 1 and max(widths) > 1:
            return delimiter, cells
    delimiter = max(",;\t|", key=first.count)
    return delimiter, _first_lines(start, delimiter)


def _refuse_separator(path: Path, first: str) -> None:
    """Refuse a first line that names the separator: other programs take it for names."""
    if _SEPARATOR.fullmatch(first):
        got = f"{first.strip()!r} in line 1 of {path}"
        do = f"delete that line, which Excel reads alone: tail -n +2 {shlex.quote(str(path))}"
        want = "names of columns, or numbers, in the first line"
        raise InputError(message(want, got, f"{do} > new.csv"))


def _refuse_comment(path: Path, start: str) -> None:
    """Refuse a first line that begins with # and is no header: it has other cells than the rest."""
    lines = [line for line in start.splitlines() if line.strip()]
    body = [line for line in lines if not line.startswith("#")]
    if not (lines[0].startswith("#") and body):
        return
    delimiter = max("\t;,", key=body[0].count)
    first, rest = (_first_lines(line, delimiter) for line in (lines[0], body[0]))
    if first and rest and len(first[0]) != len(rest[0]):
        got = f"the comment {lines[0].strip()[:40]!r} in line 1 of {path}"
        do = f"delete the lines that begin with #: grep -v '^#' {shlex.quote(str(path))} > new.csv"
        raise InputError(message("names of columns, or numbers, in the first line", got, do))


def _start(text: str) -> str:
    """Return the first lines, without blank lines above them."""
    begin = len(text) - len(text.lstrip())
    begin = text.rfind("\n", 0, begin) + 1
    end = begin
    for _ in range(_SAMPLE):
        end = text.find("\n", end) + 1
        if not end:
            return text[begin:]
    return text[begin:end]


def _first_lines(start: str, delimiter: str) -> list[list[str]]:
    lines = csv.reader(io.StringIO(start, newline=""), delimiter=delimiter)
    try:
        return [[cell.strip() for cell in cells] for cells in lines if cells]
    except csv.Error:
        return []


class Lines:
    """Every line cut into cells; knows where each stands.

    Parameters
    ----------
    path : Path
        For messages.
    text : str
    delimiter : str
    decimal : str
        What stands before the fraction of a number.

    Raises
    ------
    InputError
        Quotes that do not close, no line, lines of unequal length, or decimal points where numbers
        have commas.
    """

    def __init__(self, path: Path, text: str, delimiter: str, decimal: str = ".") -> None:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        try:
            self.lines = [
                (reader.line_num, [cell.strip() for cell in cells])
                for cells in reader
                if cells
            ]
        except csv.Error as error:
            raise unreadable(path, "csv", error) from error
        self._path = path
        width = len(self.lines[0][1])
        for line, cells in self.lines:
            if len(cells) != width:
                got = f"{len(cells)} in line {line} of {path}"
                do = "repair that line"
                if {len(others) for _, others in self.lines[1:]} == {width + 1}:
                    # as R's write.table has it
                    do = "name the first column in the first line, too (write.csv in R does)"
                want = f"{width} cells in every line, as in the first"
                raise InputError(message(want, got, do))
        if decimal == ",":
            self.lines = [(line, self._pointed(line, cells)) for line, cells in self.lines]

    def _pointed(self, line: int, cells: list[str]) -> list[str]:
        wrong = [cell for cell in cells if "." in cell and number(cell) is not None]
        if wrong:
            got = f"{wrong[0]!r} in {self._path}, line {line}"
            do = "write commas in all numbers, and thousands without points"
            raise InputError(message("numbers with decimal commas", got, do))
        return pointed(cells, ",")

    @property
    def first(self) -> list[str]:
        """Cells of the first line."""
        return self.lines[0][1]

    def column(self, j: int, skip: int) -> list[str]:
        """Return the cells of a column, without those of the first `skip` lines."""
        return [cells[j] for _, cells in self.lines[skip:]]

    def filled(self, skip: int) -> Lines:
        """Return the lines without those of which every cell is empty."""
        kept = [*self.lines[:skip], *(line for line in self.lines[skip:] if any(line[1]))]
        if len(kept) == len(self.lines):
            return self
        lines = copy(self)
        lines.lines = kept
        return lines

    def line_number(self, i: int, skip: int) -> int:
        """Return where the i-th line after the first `skip` stands in the file, from 1."""
        return self.lines[skip + i][0]

    def numbers(
        self, columns: Sequence[int], skip: int, header: list[str] | None
    ) -> NDArray[np.float64]:
        """Return columns as numbers, without the first `skip` lines.

        Raises
        ------
        InputError
            A cell is no number: file, line and cell are named.
        """
        rows = [self._row(line, columns, header) for line in self.lines[skip:]]
        return np.array(rows, dtype=np.float64).reshape(len(rows), len(columns))

    def _row(
        self, line: Line, columns: Sequence[int], header: list[str] | None
    ) -> list[float]:
        cells = [line[1][j] for j in columns]
        values = [number(cell) for cell in cells]
        for j, cell, value in zip(columns, cells, values, strict=True):
            if value is None:
                raise InputError(_no_number(self._path, line[0], j, cell, header))
        return [value for value in values if value is not None]


def _no_number(path: Path, line: int, j: int, cell: str, header: list[str] | None) -> str:
    name = header[j] if header else ""
    got = f"{cell!r} in {path}, line {line}, cell {j + 1}" + (f" ({name!r})" if name else "")
    do = "write a number or leave the cell empty if it is missing"
    if is_written_number(cell):
        do = "write 1234.5, without separators, signs or units"
    if header is None and line == 1:
        do += "; where the first line names the columns, add --header"
    elif name:
        do += f"; for a column of row names add --index {name}, to leave it out --drop {name}"
        do += ", to fit categories --likelihood auto"
    if cell.count(",") == 1 and number(cell.replace(",", ".")) is not None:
        do = "for decimal commas add --decimal ,; thousands are written without commas"
    return message("a number", got, do)


class PlainLines:
    """Lines without quotes and of equal length: pandas reads their numbers.

    What is unusual (a word, a fault) ends in a ValueError: `Lines` places it.
    """

    def __init__(self, text: str, lines: list[str], delimiter: str, decimal: str) -> None:
        self._text = text
        self._lines = lines
        self._delimiter = delimiter
        self._decimal = decimal

    @classmethod
    def of(cls, text: str, delimiter: str, decimal: str = ".") -> PlainLines | None:
        """Return the lines of a text that is plain; None for any other, or without pandas."""
        if not importlib.util.find_spec("pandas") or '"' in text or "\0" in text:
            return None
        unix = text.replace("\r\n", "\n").replace("\r", "\n").strip("\n")
        lines = [line for line in unix.split("\n") if line]
        separators = lines[0].count(delimiter)
        if not all(line.count(delimiter) == separators and line.strip() for line in lines):
            return None
        return cls(unix, lines, delimiter, decimal)

    @property
    def first(self) -> list[str]:
        """Cells of the first line."""
        return [cell.strip() for cell in self._lines[0].split(self._delimiter)]

    def column(self, j: int, skip: int) -> list[str]:
        """Return the cells of a column, without those of the first `skip` lines."""
        lines = self._lines[skip:]
        if j == 0 and self._lines[0].count(self._delimiter):
            cells = [line[: line.index(self._delimiter)].strip() for line in lines]
        else:
            cells = [line.split(self._delimiter, j + 1)[j].strip() for line in lines]
        return pointed(cells, self._decimal)

    def filled(self, skip: int) -> PlainLines:
        """Return the lines: `Lines` leaves empty ones out."""
        if any(not line.strip(self._delimiter + " ") for line in self._lines[skip:]):
            raise ValueError("a line of empty cells")
        return self

    def line_number(self, i: int, skip: int) -> int:
        """Not known: `Lines` says it."""
        raise ValueError(f"line {skip + i}")

    def numbers(
        self, columns: Sequence[int], skip: int, header: list[str] | None
    ) -> NDArray[np.float64]:
        """Return columns as numbers, without the first `skip` lines."""
        del header
        import pandas as pd

        exact: dict[str, Any] = (
            {} if _exact(pd.__version__) else {"float_precision": "round_trip"}
        )
        frame = pd.read_csv(
            io.BytesIO(self._text[len(self._lines[0]) if skip else 0 :].encode()),
            header=None,
            sep=self._delimiter,
            decimal=self._decimal,
            usecols=list(columns),
            dtype=np.float64,
            na_values=_ABSENT,
            keep_default_na=False,
            skipinitialspace=True,
            quoting=csv.QUOTE_NONE,
            index_col=False,
            engine="c",
            **exact,
        )
        # pandas returns columns in the order of the file
        values: NDArray[np.float64] = frame[list(columns)].to_numpy(dtype=np.float64)
        return values


def _exact(version: str) -> bool:
    """Tell whether pandas reads every digit without being told to."""
    major, minor = (int(part) for part in version.split(".")[:2])
    return (major, minor) >= (3, 1)
