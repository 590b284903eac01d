"""Rows of parquet files, read block by block."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bochner.data.arrays import FloatArray
from bochner.data.columns import describe_column
from bochner.data.row_sources import RowSource
from bochner.errors import InputError, message
from bochner.extras import require
from bochner.io.parquet.columns import check_same, data_columns, schema_of
from bochner.io.table import unreadable


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
        self._groups: list[tuple[int, int]] = []
        ends = [0]
        for number, path in enumerate(self._paths):
            kinds |= self._kinds(path)
            if columns is None:
                do = "write the files with the same columns, or name those of all: columns=[...]"
                check_same(self._paths[0], self.columns, path, do)
            metadata = self._parquet.read_metadata(path)
            for group in range(metadata.num_row_groups):
                self._groups.append((number, group))
                ends.append(ends[-1] + metadata.row_group(group).num_rows)
        self._ends = ends[1:]
        self.n_rows = ends[-1]
        self.n_columns = len(self.columns)
        self.dtype = np.dtype(np.float32 if kinds == {"float"} else np.float64)
        self._last: tuple[int, Any] = (-1, None)
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
            path = self._paths[file]
            try:
                footer = self._footer(file)
                with self._parquet.ParquetFile(path, metadata=footer) as opened:
                    table = opened.read_row_group(group, columns=self.columns)
            except Exception as error:  # whatever the library raises: it is the file
                raise unreadable(path, "parquet", error) from error
            out = np.empty((table.num_rows, self.n_columns), self.dtype)
            for j, name in enumerate(self.columns or []):
                out[:, j] = table.column(name).to_numpy()
            self._held = (number, out)
        return self._held[1]

    def _footer(self, file: int) -> Any:
        """Return what a file says of its row groups: long where columns are many, and the same for
        all groups of the file.
        """
        if self._last[0] != file:
            self._last = (file, self._parquet.read_metadata(self._paths[file]))
        return self._last[1]

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
            if not kind.startswith(("int", "uint", "float", "double", "half", "bool")):
                got = f"the type {kind}, {describe_column(j, self.columns)} of {path}"
                do = "name the columns of numbers: columns=[...], or --columns and --drop"
                raise InputError(message("numbers", got, do))
            kinds.add(kind)
        return kinds
