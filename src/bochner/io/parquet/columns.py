"""Columns of parquet files: which hold data, and which an index."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bochner.data.columns import listing
from bochner.errors import InputError, message
from bochner.extras import require
from bochner.io.join import check_unique
from bochner.io.table import unreadable

if TYPE_CHECKING:
    import pyarrow as pa

# What pandas and pyarrow raise of damaged files: pyarrow's own errors are ValueErrors, and metadata
# that are not as expected end in errors of any lookup.
DAMAGED = (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError)
# How types of numbers begin.
NUMBERS = ("int", "uint", "float", "double", "half", "bool", "decimal")
# Dask's name of an index that has none.
_DASK_INDEX = "__null_dask_index__"
# pandas' names of such indices begin so.
_PANDAS_INDEX = "__index_level_"


def damaged(path: Path, error: Exception) -> InputError:
    """Build the error for a parquet file that cannot be read."""
    words = str(error).splitlines() or [type(error).__name__]
    return unreadable(path, "parquet", words[0])


def schema_of(path: Path) -> pa.Schema:
    """Return the schema of a parquet file, whose columns have different names."""
    # outside: that it lacks is no fault of the file
    parquet = require("pyarrow.parquet", "reads parquet files")
    try:
        schema = parquet.read_schema(path)
        index_columns(schema)
    except DAMAGED as error:
        raise damaged(path, error) from error
    check_unique(schema.names, "column", str(path))
    return schema


def index_columns(schema: pa.Schema) -> list[str]:
    """Return the columns in which pandas and Dask keep the index: they are no data."""
    stored = (schema.pandas_metadata or {}).get("index_columns", [])
    levels = [name for name in [*stored, _DASK_INDEX] if isinstance(name, str)]
    return [name for name in dict.fromkeys(levels) if name in schema.names]


def name_columns(schema: pa.Schema) -> list[str]:
    """Return the columns of the index that name rows: whole numbers of Dask, which begin again in
    each of its partitions, do not.
    """
    levels = index_columns(schema)
    kinds = {name: str(schema.field(name).type) for name in levels}
    return [n for n in levels if n != _DASK_INDEX or not kinds[n].startswith(("int", "uint"))]


def is_nameless(index: str) -> bool:
    """Tell whether the name of an index is one that pandas or Dask made up."""
    return index == _DASK_INDEX or index.startswith(_PANDAS_INDEX)


def data_columns(schema: pa.Schema) -> list[str]:
    """Return the columns that are no index."""
    index = index_columns(schema)
    return [name for name in schema.names if name not in index]


def check_same(first: Path, columns: Sequence[str], other: Path, do: str) -> None:
    """Refuse a file with other columns than a first one, by their names."""
    theirs = data_columns(schema_of(other))
    for more, fewer, missing, here in (
        (columns, set(theirs), other, first),
        (theirs, set(columns), first, other),
    ):
        lacking = [repr(name) for name in more if name not in fewer]
        if lacking:
            got = f"{listing(lacking)} in {here} and not in {missing}"
            raise InputError(message("the same columns in every file", got, do))
