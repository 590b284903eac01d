"""Rows of csv files, read block by block: of large files, plain ones."""

from __future__ import annotations

import gzip
import os
import tempfile
import zlib
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

import numpy as np
from numpy.typing import NDArray

from bochner.data.arrays import FloatArray
from bochner.data.file_arrays import changed
from bochner.data.row_sources import RowSource
from bochner.errors import InputError
from bochner.io.csv.files import Columns, has_header
from bochner.io.csv.headers import pointed
from bochner.io.csv.text import Lines, PlainLines, sample
from bochner.io.request import Request
from bochner.memory import Memory

# Bytes that hold the lines by which separator and header are told.
_BEGINNING = 2**20
# What stands in no plain line; what other encodings begin with.
_UNUSUAL = (b'"', b"\0")
_NOT_UTF_8 = (b"\xff\xfe", b"\xfe\xff", b"\x1f\x8b")
_UTF_8_MARK = b"\xef\xbb\xbf"


class Opener(Protocol):
    """Bytes that are read several times."""

    def open(self) -> IO[bytes]:
        """Return them, from the beginning."""


class Inflated:
    """What a file becomes when it is decompressed, in a temporary one without a name: it is gone
    with the process, however that ends.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    @classmethod
    def of(cls, path: Path, memory: Memory) -> Inflated | None:
        """Decompress a file block by block; None: it is damaged, or the disk has no room.

        Raises
        ------
        InputError
            It becomes larger than a compressed table does.
        """
        most = memory.expanded(path.stat().st_size)
        file = tempfile.TemporaryFile()  # noqa: SIM115 - closed with its owner
        try:
            with gzip.open(path) as packed:
                while block := packed.read(_BEGINNING):
                    file.write(block)
                    if file.tell() > most:
                        raise memory.too_large(str(path), most)
            file.flush()
        except (OSError, EOFError, zlib.error):
            return None
        return cls(file)

    def open(self) -> IO[bytes]:
        """Return the bytes, from the beginning."""
        file = os.fdopen(os.dup(self._file.fileno()), "rb")
        file.seek(0)
        return file


def _opener(path: Path, memory: Memory) -> Opener | None:
    return Inflated.of(path, memory) if path.suffix.lower() == ".gz" else _Named(path)


@dataclass(frozen=True)
class _Named:
    """A file with a name."""

    path: Path

    def open(self) -> IO[bytes]:
        """Return its bytes."""
        return self.path.open("rb")


@dataclass(frozen=True)
class PlainFile:
    """Where the rows of a plain csv file stand: every line is one, all have as many cells.

    Attributes
    ----------
    path : Path
        For messages.
    content : Opener
    delimiter, decimal : str
    first : list of str
        Cells of the first line.
    skip : int
        Lines above the rows: 1, or 0 without names.
    starts : ndarray of int, shape (n_lines + 1,)
        Where lines begin, in bytes; the last one is the size.
    keys : list of str, shape (n_lines,)
        Their first cells.
    """

    path: Path
    content: Opener
    delimiter: str
    decimal: str
    first: list[str]
    skip: int
    starts: NDArray[np.int64]
    keys: list[str]

    @classmethod
    def of(cls, path: Path, request: Request, is_header: _IsHeader) -> PlainFile | None:
        """Look through a file; None: it is not plain, and read whole.

        Parameters
        ----------
        path : Path
        request : Request
        is_header : callable
            Cells of the first lines -> whether the first one names the columns.
        """
        content = _opener(path, request.memory)
        if content is None:
            return None
        with content.open() as file:
            beginning = file.read(_BEGINNING)
        if beginning.startswith(_NOT_UTF_8) or b"\n" not in beginning:
            return None
        try:
            text = beginning[: beginning.rindex(b"\n") + 1].decode("utf-8-sig")
            delimiter, cells = sample(path, text)
            found = _starts(content, delimiter.encode())
        except UnicodeError:
            return None
        if found is None or not cells:
            return None
        skip = 1 if is_header(cells) else 0
        return cls(path, content, delimiter, request.decimal, cells[0], skip, *found)

    @property
    def n_rows(self) -> int:
        """Rows of data."""
        return len(self.keys) - self.skip

    def text(self, start: int, stop: int) -> str:
        """Return the first line, and rows from ``start`` to before ``stop``.

        Raises
        ------
        InputError
            The file has another size than before.
        """
        lines = slice(start + self.skip, stop + self.skip)
        begin, end = int(self.starts[lines.start]), int(self.starts[lines.stop])
        with self.content.open() as file:
            size = os.fstat(file.fileno()).st_size
            if size != self.starts[-1]:
                raise changed(f"{size:,} bytes in {self.path}, which had {self.starts[-1]:,}")
            above = file.read(int(self.starts[self.skip]))
            file.seek(begin)
            return (above + file.read(end - begin)).decode("utf-8-sig")

    # -- as `Columns` looks at lines

    def column(self, j: int, skip: int) -> list[str]:
        """Return the first cells of rows; others are looked at by who reads the file whole."""
        if j:
            raise ValueError(f"column {j}")
        return pointed(self.keys[skip:], self.decimal)

    def filled(self, skip: int) -> PlainFile:  # noqa: ARG002 - no line is empty
        """Return the lines."""
        return self

    def line_number(self, i: int, skip: int) -> int:
        """Return where a row stands in the file, from 1."""
        return i + skip + 1

    def numbers(self, columns: object, skip: int, header: object) -> NDArray[np.float64]:
        """Read no numbers: rows are, in blocks."""
        raise ValueError(f"{columns}, {skip}, {header}")


_IsHeader = Callable[[list[list[str]]], bool]


def _starts(content: Opener, delimiter: bytes) -> tuple[NDArray[np.int64], list[str]] | None:
    """Return where lines begin, and their first cells; None: a line is not plain."""
    starts = array("q", [0])
    keys = []
    separators = -1
    place = 0
    nothing = delimiter + b" \r\n"
    with content.open() as file:
        for line in file:
            place += len(line)
            plain = line.removeprefix(_UTF_8_MARK) if len(starts) == 1 else line
            plain = plain.removesuffix(b"\n").removesuffix(b"\r")
            count = plain.count(delimiter)
            separators = count if separators < 0 else separators
            unusual = any(mark in plain for mark in _UNUSUAL) or b"\r" in plain
            if unusual or count != separators or not plain.strip(nothing):
                return None
            starts.append(place)
            keys.append(plain.split(delimiter, 1)[0].decode().strip())
    return np.array(starts, dtype=np.int64), keys


class CsvSource(RowSource):
    """Columns of numbers of a plain csv file.

    Parameters
    ----------
    file : PlainFile
    chosen : Columns
        Of the file.
    whole : callable
        Reads all of the file, and says where a cell is no number.
    """

    dtype = np.dtype(np.float64)

    def __init__(self, file: PlainFile, chosen: Columns, whole: Callable[[], object]) -> None:
        self._file = file
        self._chosen = chosen
        self._whole = whole
        self.columns = chosen.names
        self.n_rows = file.n_rows
        self.n_columns = len(chosen.places)

    def read(self, start: int, stop: int) -> FloatArray:
        """Return the rows from ``start`` to before ``stop``."""
        if start == stop:
            return np.empty((0, self.n_columns))
        text = self._file.text(start, stop)
        how = (self._file.delimiter, self._file.decimal)
        given = (self._chosen.places, self._file.skip, self._chosen.header)
        try:
            plain = PlainLines.of(text, *how)
            if plain is not None:
                X = plain.numbers(*given)
                self._chosen.warn_of_rounding(X, plain)
                return X
        except ValueError:
            pass
        try:
            lines = Lines(self._file.path, text, *how)
            X = lines.numbers(*given)
        except InputError:
            # whoever reads all of it knows in which line
            self._whole()
            raise
        self._chosen.warn_of_rounding(X, lines)
        return X


def open_csv(
    path: Path, request: Request, whole: Callable[[], object]
) -> tuple[CsvSource, list[str] | None, str] | None:
    """Open a csv file whose rows are read block by block; None: it has to be read whole.

    Parameters
    ----------
    path : Path
    request : Request
    whole : callable
        As in `CsvSource`.

    Returns
    -------
    source : CsvSource
    row_names : list of str or None
    index_name : str
    """
    file = PlainFile.of(path, request, lambda first: has_header(path, first, request))
    if file is None or file.n_rows < 1:
        return None
    try:
        chosen = Columns.of(path, file, bool(file.skip), request)
        return CsvSource(file, chosen, whole), chosen.row_names(), chosen.index_name
    except InputError:
        raise
    except ValueError:
        return None
