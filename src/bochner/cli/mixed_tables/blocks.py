"""Large mixed tables for a fitted model: rows that are read block by block."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from bochner.cli.data import Reading
from bochner.cli.mixed_tables.cells import series_of
from bochner.cli.mixed_tables.whole import rows_to_use
from bochner.data.row_sources import RowSource
from bochner.data.stored import unpacked
from bochner.errors import InputError
from bochner.estimators.tables import Mixed
from bochner.extras import require
from bochner.io import on_disk
from bochner.io.csv.files import Columns, has_header_of_labels
from bochner.io.csv.headers import distinct_whole
from bochner.io.csv.source import PlainFile
from bochner.io.csv.text import Lines
from bochner.io.extensions import NAMED, extension_of
from bochner.io.on_disk import StoredTable
from bochner.io.parquet.columns import DAMAGED, damaged, data_columns
from bochner.io.parquet.parts import parquet_parts
from bochner.io.parquet.read import Chosen
from bochner.io.request import Request
from bochner.memory import EXPANSION, chunks

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow.parquet as pq

    from bochner.estimators.base import LatentVariableEstimator


@dataclass(frozen=True)
class MixedTable(StoredTable):
    """A mixed table that is not in memory: its rows are numbers, with labels as positions.

    Attributes
    ----------
    cells : MixedRows, optional
        With the types of their columns.
    """

    cells: MixedRows | None = None

    def frame(self, rows: slice) -> pd.DataFrame:
        """Return some rows with their names, and the types that their columns have in all rows."""
        assert self.cells is not None
        frame = self.cells.frame(rows.start, rows.stop)
        if self.row_names is not None:
            frame.index = self.row_names[rows]
            frame = frame.rename_axis(self.index_name or None)
        return frame


def open_mixed(
    model: LatentVariableEstimator,
    path: Path,
    index: str | None,
    layer: Sequence[str],
    reading: Reading,
) -> MixedTable | None:
    """Open rows of a large file for a model of a mixed table; None: they have to be read as a
    table.

    Parameters
    ----------
    model, path, index, layer, reading
        As `bochner.cli.align.read_rows` takes them.
    """
    coding = model._coding
    kind = extension_of(path)
    parts = [] if layer else parquet_parts(path)
    readable = parts or (kind in NAMED and path.is_file() and not layer)
    if not (readable and isinstance(coding, Mixed)):
        return None
    reading = reading.without(path, model._covariate_coding.names)
    request = reading.request(index, known=[column.name for column in coding.columns])
    most = path.stat().st_size * (EXPANSION if kind.endswith(".gz") else 1)
    frames: Frames | None = None
    if parts:
        frames = _ParquetFrames.of(path, parts, request, coding)
    elif most > 2 * on_disk.MANY:
        frames = _CsvFrames.of(path, request, coding)
    if frames is None or frames.n_rows * len(coding.columns) <= on_disk.MANY:
        return None
    cells = MixedRows(frames, coding, lambda: rows_to_use(model, path, index, reading))
    # labels are looked up once: checks take several passes
    rows = unpacked(cells)
    nothing = np.empty((0, rows.n_columns))
    named = (frames.row_names, rows.columns)
    return MixedTable(nothing, *named, index_name=frames.index_name, source=rows, cells=cells)


class Frames(Protocol):
    """Rows of a mixed table as DataFrames."""

    n_rows: int
    row_names: list[str] | None
    index_name: str

    def read(self, start: int, stop: int) -> pd.DataFrame:
        """Return the columns of the model of some rows."""


class MixedRows(RowSource):
    """Rows of a mixed table as numbers: labels are their positions among those of training.

    Parameters
    ----------
    frames : Frames
    coding : Mixed
    whole : callable
        Reads all of the file, and says where a cell is none of training's kind.
    """

    dtype = np.dtype(np.float64)

    def __init__(self, frames: Frames, coding: Mixed, whole: Callable[[], object]) -> None:
        self._frames = frames
        self._coding = coding
        self._whole = whole
        self.columns = [column.name for column in coding.columns]
        self.n_rows = frames.n_rows
        self.n_columns = len(self.columns)
        # types of the columns of the blocks that were read, by their first row
        self._types: dict[int, list[Any]] = {}

    def read(self, start: int, stop: int) -> NDArray[np.float64]:
        """Return the rows from ``start`` to before ``stop``."""
        frame = self._frames.read(start, stop)
        self._types[start] = list(frame.dtypes)
        try:
            encoded = cast("pd.DataFrame", self._coding.encode(frame))
        except InputError:
            # whoever reads all of it knows in which row
            self._whole()
            raise
        return encoded.to_numpy(dtype=np.float64)

    def frame(self, start: int, stop: int) -> pd.DataFrame:
        """Return some rows with the types that their columns have in all rows: one row with a
        fraction makes a column of whole numbers one of fractions.
        """
        for block in chunks(self.n_rows, self.block_rows):
            if block.start not in self._types:
                self.read(block.start, block.stop)
        names = self.columns or []
        kinds = zip(*self._types.values(), strict=True)
        types = {name: _widest(given) for name, given in zip(names, kinds, strict=True)}
        return self._frames.read(start, stop).astype(types)


def _widest(types: Sequence[Any]) -> Any:
    """Return the type of a column whose parts have these."""
    distinct = list(dict.fromkeys(types))
    ranks = [_RANKS.get(getattr(kind, "kind", "O"), len(_RANKS)) for kind in distinct]
    last = max(ranks)
    return object if len(distinct) > 1 and last == len(_RANKS) else distinct[ranks.index(last)]


# Kinds of numbers, each of which holds those before it.
_RANKS = {kind: rank for rank, kind in enumerate("buif")}


class _CsvFrames:
    """Of a plain csv file."""

    def __init__(self, file: PlainFile, chosen: Columns, coding: Mixed) -> None:
        self._file = file
        self._coding = coding
        self._places = dict(zip(chosen.names or (), chosen.places, strict=True))
        self.n_rows = file.n_rows
        self.row_names = chosen.row_names()
        self.index_name = chosen.index_name

    @classmethod
    def of(cls, path: Path, request: Request, coding: Mixed) -> _CsvFrames | None:
        """Open it; None: it is not plain, or lacks columns."""
        known = [column.name for column in coding.columns]

        def is_header(first: list[list[str]]) -> bool:
            return has_header_of_labels(path, first, request, known)

        file = PlainFile.of(path, request, is_header)
        if file is None or not file.skip or file.n_rows < 1:
            return None
        try:
            chosen = Columns.of(path, file, True, request, labels=True)
        except InputError:
            raise
        except ValueError:
            return None
        return cls(file, chosen, coding) if {*known} <= {*(chosen.names or ())} else None

    def read(self, start: int, stop: int) -> pd.DataFrame:
        """Return the columns of the model of some rows."""
        pandas = require("pandas", "holds mixed tables")
        file = self._file
        lines = Lines(file.path, file.text(start, stop), file.delimiter, file.decimal)
        columns = self._coding.columns
        series = [
            series_of(lines.column(self._places[column.name], 1), column) for column in columns
        ]
        frame: pd.DataFrame = pandas.concat(
            series, axis=1, keys=[column.name for column in columns]
        )
        return frame


class _ParquetFrames:
    """Of a parquet file, or of parts of one table; the last row group is still there."""

    def __init__(
        self, files: Mapping[Path, pq.ParquetFile], chosen: Chosen, known: list[str]
    ) -> None:
        self._files = files
        self._known = known
        self._groups = [(path, g) for path in files for g in range(files[path].num_row_groups)]
        counts = [files[path].metadata.row_group(g).num_rows for path, g in self._groups]
        self._ends = np.cumsum([0, *counts])
        self.n_rows = int(self._ends[-1])
        self.index_name = chosen.index_name
        self.row_names = chosen.row_names
        # numbers that pandas counted rows by are no names
        if not self.index_name and distinct_whole(self.row_names or ()):
            self.row_names = None
        self._held: tuple[int, pd.DataFrame | None] = (-1, None)

    @classmethod
    def of(
        cls, path: Path, parts: Sequence[Path], request: Request, coding: Mixed
    ) -> _ParquetFrames | None:
        """Open it; None: it is unreadable, or lacks columns."""
        known = [column.name for column in coding.columns]
        parquet = require("pyarrow.parquet", "reads parquet files")
        try:
            files = {part: parquet.ParquetFile(part) for part in parts}
            if any(not {*known} <= {*data_columns(f.schema_arrow)} for f in files.values()):
                return None
        except DAMAGED:
            return None  # refused by who reads it whole
        if not any(file.metadata.num_rows for file in files.values()):
            return None
        return cls(files, Chosen.of(path, parts, request), known)

    def read(self, start: int, stop: int) -> pd.DataFrame:
        """Return the columns of the model of some rows."""
        pandas = require("pandas", "holds mixed tables")
        parts = []
        for group in range(len(self._groups)):
            first, end = int(self._ends[group]), int(self._ends[group + 1])
            if start < end and first < stop:
                parts.append(self._group(group).iloc[max(start - first, 0) : stop - first])
        frame: pd.DataFrame = pandas.concat(parts, ignore_index=True)
        return frame

    def _group(self, number: int) -> pd.DataFrame:
        if self._held[0] != number or self._held[1] is None:
            path, group = self._groups[number]
            try:
                table = self._files[path].read_row_group(group, columns=self._known)
                frame = table.to_pandas().reset_index(drop=True)[self._known]
            except DAMAGED as error:
                raise damaged(path, error) from error
            self._held = (number, frame)
        assert self._held[1] is not None
        return self._held[1]
