"""Parquet files to tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from bochner.data.columns import listing
from bochner.errors import InputError, message
from bochner.extras import require
from bochner.io.csv.headers import distinct_whole, is_key_name
from bochner.io.frames import from_frame
from bochner.io.join import check_unique
from bochner.io.parquet.columns import (
    DAMAGED,
    NUMBERS,
    damaged,
    data_columns,
    is_nameless,
    name_columns,
    schema_of,
)
from bochner.io.request import Request
from bochner.io.table import Table

if TYPE_CHECKING:
    import pyarrow as pa


def read_parquet(path: Path, request: Request | None = None) -> Table:
    """Read a parquet file.

    Row names are the column or index level `index`, or an index that was stored with the file, or a
    first column of text, or one that is called ``id`` or the like and holds whole numbers that
    differ.

    Raises
    ------
    InputError
        For an unreadable file, no such column, a cell that is no number, a row without a name, or
        more than the memory allowed.
    """
    return read_parts(path, [path], request)


def read_parts(place: Path, parts: Sequence[Path], request: Request | None = None) -> Table:
    """Read parquet files with the same columns whose rows follow each other, as one file.

    Parameters
    ----------
    place : Path
        The file or folder, for messages.
    parts : sequence of Path
        Their columns are those of the first, in any order.
    request : Request, optional
    """
    pandas = require("pandas", "reads parquet files")
    request = request or Request()
    _check_size(place, parts, request)
    chosen = Chosen.of(place, parts, request)
    tables = [_table(part, chosen.columns) for part in parts]
    # pandas takes types from those, too
    tables = [table for table in tables if table.num_rows] or tables[:1]
    frames = [table.to_pandas(ignore_metadata=True) for table in _with_types(tables)]
    frame = pandas.concat(frames, ignore_index=True) if len(frames) > 1 else frames[0]
    table = from_frame(frame, str(place), row_names=False)
    return replace(table, row_names=chosen.row_names, index_name=chosen.index_name)


@dataclass(frozen=True)
class Chosen:
    """Which columns of parquet files are read, and what their rows are called.

    Attributes
    ----------
    columns : list of str
        Of data.
    row_names : list of str, or None
    index_name : str
        The name of their column; empty where there is none, or pandas or Dask made it up.
    """

    columns: list[str]
    row_names: list[str] | None = None
    index_name: str = ""

    @classmethod
    def of(cls, place: Path, parts: Sequence[Path], request: Request) -> Chosen:
        """Choose them; of the rows only the names are read.

        Raises
        ------
        InputError
            No such column, a row without a name, or names that repeat.
        """
        schema = schema_of(parts[0])
        selection = request.selection
        if not schema.names:
            got = f"none in {place}"
            do = "add columns, or save the table again"
            raise InputError(message("columns of data", got, do))
        index = [request.index] if request.index is not None else name_columns(schema)
        if request.index is None:
            index = [name for name in index if not selection.asks_for(name)]
        elif request.index not in schema.names:
            first = listing([repr(name) for name in data_columns(schema)])
            want = f"an index column {request.index!r} in {place}"
            raise InputError(message(want, f"columns {first}", "choose one of them"))
        data = data_columns(schema)
        columns = [
            name
            for name in schema.names
            if name not in index and (name in data or selection.asks_for(name))
        ]
        if not index and len(columns) > 1 and not selection.asks_for(columns[0]):
            index = columns[:1] if _names_rows(parts, schema.field(columns[0])) else []
            columns = columns[len(index) :]
        names = _names(parts, index) if index else None
        if names is not None and len({*names}) < len(names) and selection.leaves_out(index[0]):
            names = None
        kept = [columns[j] for j in selection.kept(columns)]
        selection.check(str(place))
        if not kept:
            got = f"none in {place}, but {listing([repr(name) for name in schema.names])}"
            raise InputError(message("columns of data", got, "add columns, or choose others"))
        if names is None:
            return cls(kept)
        only = "" if len(index) > 1 or is_nameless(index[0]) else index[0]
        return cls(kept, _checked(names, only, str(place)), only)


def _checked(names: Sequence[str | None], column: str, place: str) -> list[str]:
    """Return the names of rows, or refuse rows without one, and names that repeat."""
    do = f"; if {column!r} names none, add --drop {column}, or --likelihood auto"
    do = do if column else ""
    absent = [str(row) for row, name in enumerate(names) if name is None]
    if absent:
        got = f"null in row {listing(absent)} of {place}"
        do = f"name these rows, or leave them out{do}"
        raise InputError(message("a name for every row", got, do))
    found = [name for name in names if name is not None]
    check_unique(found, "row", place, do)
    return found


def _names(parts: Sequence[Path], columns: Sequence[str]) -> list[str | None]:
    """Return the names of the rows: those of one column, or of levels as pandas writes them."""
    names: list[str | None] = []
    for part in parts:
        table = _table(part, columns)
        levels = [table.column(name).to_pylist() for name in columns]
        rows = levels[0] if len(levels) == 1 else zip(*levels, strict=True)
        # NaN is not what it is
        names += [None if name is None or name != name else str(name) for name in rows]  # noqa: PLR0124
    return names


def _names_rows(parts: Sequence[Path], field: pa.Field) -> bool:
    """Tell whether a first column names the rows: one of text, or whole numbers that differ under
    the name of such a column.
    """
    kind = str(field.type)
    if kind.startswith("dictionary<values="):
        kind = kind.removeprefix("dictionary<values=").partition(",")[0]
    is_text = kind in ("string", "large_string", "string_view")
    if not is_text and not (kind.startswith(("int", "uint")) and is_key_name(field.name)):
        return False
    found = _names(parts, [field.name])
    if is_text:
        return any(name is not None for name in found)
    return distinct_whole([str(name) for name in found])


def _table(path: Path, columns: Sequence[str]) -> pa.Table:
    parquet = require("pyarrow.parquet", "reads parquet files")
    try:
        with parquet.ParquetFile(path) as file:
            return file.read(columns=list(columns)).select(list(columns))
    except DAMAGED as error:
        raise damaged(path, error) from error


def _with_types(tables: Sequence[pa.Table]) -> list[pa.Table]:
    """Return tables in which columns of nothing but null are numbers where those of others are:
    pandas writes them without a type.
    """
    arrow = require("pyarrow", "reads parquet files")
    kinds = [{field.name: str(field.type) for field in table.schema} for table in tables]
    numbers = {
        name for table in kinds for name, kind in table.items() if kind.startswith(NUMBERS)
    }

    def typed(field: pa.Field) -> pa.Field:
        is_empty = str(field.type) == "null" and field.name in numbers
        return field.with_type(arrow.float64()) if is_empty else field

    return [table.cast(arrow.schema([typed(f) for f in table.schema])) for table in tables]


def _check_size(place: Path, parts: Sequence[Path], request: Request) -> None:
    """Look at the sizes that the files state before they are read."""
    parquet = require("pyarrow.parquet", "reads parquet files")
    n_rows = 0
    for part in parts:
        try:
            metadata = parquet.read_metadata(part)
        except DAMAGED as error:
            raise damaged(part, error) from error
        n_rows += metadata.num_rows
    count = n_rows * metadata.num_columns
    request.memory.check(8 * count, f"{n_rows:,} × {metadata.num_columns:,} in {place}")
