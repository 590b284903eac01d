"""Rows of parquet files, read block by block."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bochner.data.arrays import FloatArray
from bochner.data.columns import describe_column
from bochner.data.file_arrays import changed
from bochner.data.row_sources import RowSource
from bochner.errors import InputError, message
from bochner.extras import require
from bochner.io.parquet.columns import NUMBERS, check_same, data_columns, schema_of
from bochner.io.table import large, unreadable, warn_of_rounding

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq


class ParquetSource(RowSource):
    """Columns of numbers in one or several parquet files with the same columns.

    Parameters
    ----------
    paths : sequence of Path
        Their rows follow each other.
    columns : sequence of str, optional
        None: all.

    Raises
    ------
    InputError
        A file is unreadable, lacks a column, or a column holds no numbers.
    """

    def __init__(self, paths: Sequence[Path], columns: Sequence[str] | None = None) -> None:
        self._parquet = require("pyarrow.parquet", "reads parquet files")
        self._paths = list(paths)
        first = schema_of(self._paths[0])
        self.columns = data_columns(first) if columns is None else list(columns)
        kinds = set()
        self._states = [_state(path) for path in self._paths]
        self._counts: list[list[int]] = []
        self._groups: list[tuple[int, int]] = []
        ends = [0]
        for number, path in enumerate(self._paths):
            kinds |= self._kinds(path)
            if columns is None:
                do = "write the files with the same columns, or name those of all: columns=[...]"
                check_same(self._paths[0], self.columns, path, do)
            counts = _group_rows(self._parquet.read_metadata(path))
            self._counts.append(counts)
            self._groups += [(number, group) for group in range(len(counts))]
            ends += list(itertools.accumulate(counts, initial=ends[-1]))[1:]
        self._ends = ends[1:]
        self.n_rows = ends[-1]
        self.n_columns = len(self.columns)
        self.dtype = np.dtype(np.float32 if kinds == {"float"} else np.float64)
        self._last: tuple[int, tuple[int, int], pa.Table | None] = (-1, (0, 0), None)
        nothing = np.empty((0, self.n_columns), self.dtype)
        self._held: tuple[int, NDArray[np.generic]] = (-1, nothing)

    def read(self, start: int, stop: int) -> FloatArray:
        """Return the rows from ``start`` to before ``stop``; the last row group is still there."""
        parts = [np.empty((0, self.n_columns), self.dtype)]
        number = bisect.bisect_right(self._ends, start)
        while start < stop:
            end = self._ends[number]
            rows = self._group(number)
            first = end - len(rows)
            last = min(stop, end)
            parts.append(rows[start - first : last - first])
            start = last
            number += 1
        return np.concatenate(parts)

    def _group(self, number: int) -> NDArray[np.generic]:
        if self._held[0] != number:
            file, group = self._groups[number]
            table = self._read_group(file, group)
            out = np.empty((table.num_rows, self.n_columns), self.dtype)
            for j, name in enumerate(self.columns or []):
                values = table.column(name).to_numpy()
                if values.dtype.kind in "iu":
                    place = str(self._paths[file])
                    warn_of_rounding(map(int, large(values)), f"The column {name!r}", place)
                out[:, j] = values
            self._held = (number, out)
        return self._held[1]

    def _read_group(self, file: int, group: int) -> pa.Table:
        """Return the columns of a row group."""
        path = self._paths[file]
        try:
            footer = self._footer(file)
            with self._parquet.ParquetFile(path, metadata=footer) as opened:
                # a column that is gone is passed over by the one, and refused by the other
                return opened.read_row_group(group, columns=self.columns).select(self.columns)
        except InputError:
            raise
        except Exception as error:  # whatever the library raises: it is the file
            if _state(path) != self._states[file]:
                got = f"{path}, which is another file than when it was opened"
                raise changed(got) from error
            raise unreadable(path, "parquet", error) from error

    def _footer(self, file: int) -> pq.FileMetaData:
        """Return what a file says of its row groups: long where columns are many, and the same for
        all groups of the file while nobody writes to it.

        Raises
        ------
        InputError
            The file is gone, or has other rows than when it was opened.
        """
        path = self._paths[file]
        state = _state(path)
        if state is None:
            raise changed(f"{path}, which is gone")
        if self._last[:2] != (file, state):
            footer = self._parquet.read_metadata(path)
            counts = _group_rows(footer)
            if counts != self._counts[file]:
                rows, before = sum(counts), sum(self._counts[file])
                got = f"{rows} rows in {path}, which had {before}"
                if rows == before:
                    got = f"row groups of other sizes in {path}"
                raise changed(got)
            self._last = (file, state, footer)
        return self._last[2]

    def _kinds(self, path: Path) -> set[str]:
        """Return the types of the columns of a file, and refuse what cannot be used."""
        schema = schema_of(path)
        kinds = set()
        for j, name in enumerate(self.columns or []):
            if name not in schema.names:
                got = f"none in {path}"
                do = "choose columns of all files"
                raise InputError(message(f"a column {name!r}", got, do))
            kind = str(schema.field(name).type)
            # of nothing but null, which is NaN
            if kind == "null":
                continue
            if not kind.startswith(NUMBERS):
                got = f"the type {kind}, {describe_column(j, self.columns)} of {path}"
                do = "name the columns of numbers: columns=[...], or --columns and --drop"
                raise InputError(message("numbers", got, do))
            kinds.add(kind)
        return kinds


def _group_rows(metadata: pq.FileMetaData) -> list[int]:
    """Return the number of rows of each row group."""
    return [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]


def _state(path: Path) -> tuple[int, int] | None:
    """Return what changes when a file is written again: its size and time; None: it is gone."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns
