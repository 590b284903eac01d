"""Tables with columns of text: mixed ones, for ``--likelihood auto``, and what is known of rows,
for ``--batch`` and ``--covariate``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from bochner.cli.data import FrameTable, Reading, column_names, frame
from bochner.cli.mixed_tables.cells import is_code, may_hold_codes, series_of
from bochner.cli.parse import quoted
from bochner.data.columns import listing
from bochner.data.covariates import Categorical
from bochner.data.file_arrays import readable
from bochner.data.kinds import Column, column_of
from bochner.errors import DataWarning, InputError, message, warn_user
from bochner.extras import require
from bochner.io.annotated import check_survives
from bochner.io.csv.files import read_cells
from bochner.io.csv.headers import is_written_number, key_column, number
from bochner.io.csv.text import contents
from bochner.io.csv.write import guarded
from bochner.io.extensions import TEXT
from bochner.io.outputs import replacing
from bochner.io.parquet.columns import DAMAGED, damaged, is_nameless
from bochner.io.parquet.parts import parquet_parts
from bochner.io.request import Request
from bochner.io.stored import parquet_columns
from bochner.io.table import Table

if TYPE_CHECKING:
    import pandas as pd

    from bochner.estimators.base import LatentVariableEstimator
    from bochner.estimators.tables import Coding

_DECIMAL_COMMA = re.compile(r"[+-]?\d+(,\d+)?")
# Types of numbers that may be missing, by kind.
_NULLABLE = {"i": "Int64", "u": "UInt64", "b": "boolean", "f": "float64"}
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})*")


def table_to_fit(
    path: Path,
    index: str | None,
    layer: Sequence[str],
    reading: Reading,
    known: Sequence[str] | None,
    auto: bool,
) -> Table:
    """Read a table of numbers, or a mixed one where the likelihood is to be chosen.

    Parameters
    ----------
    path, index, layer, known
        As `Reading.read` takes them.
    reading : Reading
    auto : bool
        Whether ``--likelihood auto`` was given and no views.
    """
    mixed = auto and _may_be_mixed(path)
    try:
        table = reading.read(path, index, layer, known)
        if not mixed:
            return table
        text = kind_of(path) in TEXT
        if not (text and may_hold_codes(contents(path, reading.request(index).memory))):
            return _of_numbers(table)
    except InputError:
        if not mixed:
            raise
    from bochner.estimators.tables import Mixed, coding_of

    frame = read_frame(path, index, reading)
    _check_texts(frame, path)
    coding = coding_of(frame, "auto", None)
    if not isinstance(coding, Mixed):
        # says what is wrong with it
        return reading.read(path, index, layer, known)
    return _table(frame, coding)


def _of_numbers(table: Table) -> Table:
    """Return a table of numbers as a mixed one where its columns ask for that: kinds or units
    differ. Without pandas it stays what it is.
    """
    made = frame(table)
    if table.views or made is table.X or not made.columns.is_unique:
        return table
    from bochner.estimators.tables import Mixed, coding_of

    if table.row_names is not None:
        made.index = table.row_names
    # of infinite numbers and huge ones
    with np.errstate(invalid="ignore"):
        made = made.rename_axis(table.index_name or None).convert_dtypes()
    coding = coding_of(made, "auto", None)
    return _table(made, coding) if isinstance(coding, Mixed) else table


def _check_texts(frame: pd.DataFrame, path: Path) -> None:
    """Refuse columns of text that are no categories, with the option that helps."""
    refused: dict[str, str] = {}
    codes = False
    for name in map(str, frame.columns):
        texts = [cell for cell in frame[name].dropna() if isinstance(cell, str)]
        got = f"{texts[0]!r} in the column {name!r} of {path}" if texts else ""
        commas = any("," in cell for cell in texts)
        if commas and all(_THOUSANDS.fullmatch(cell) for cell in texts):
            do = "write 1234.5, without separators; for decimal commas add --decimal ,"
            raise InputError(message("numbers", got, do))
        if commas and all(_DECIMAL_COMMA.fullmatch(cell) for cell in texts):
            do = "add --decimal , (and write thousands without commas)"
            raise InputError(message("numbers with decimal points", got, do))
        _warn_of_words(texts, name)
        try:
            column_of(frame[name], name)
        except InputError as error:
            refused[name] = str(error).split(". ")[0]
            codes = codes or any(map(is_code, texts))
    if not refused:
        return
    first, *others = refused
    said = f"{refused[first]} ({path})"
    do = f"--drop {first} leaves it out, --index {first} takes it for the names of rows"
    if others:
        said += f", and the like in {listing([repr(name) for name in others])}"
        do = f"--drop {','.join(refused)} leaves them out, --index takes one for the names of rows"
    if codes:
        do += "; cells without zeros in front are numbers"
    raise InputError(f"{said}. {do}.")


def _warn_of_words(texts: Sequence[str], name: str) -> None:
    """Warn of a column of numbers that a few words make a column of labels."""
    words = [cell for cell in texts if number(cell) is None and not is_written_number(cell)]
    if not words or 2 * len(words) >= len(texts):
        return
    distinct = [repr(word) for word in dict.fromkeys(words)]
    shown = listing(distinct[:3])
    warn_user(
        f"The column {name!r} holds categories, because {shown} in it are no numbers, where "
        f"{len(texts) - len(words)} of {len(texts)} cells are: leave such cells empty if they are "
        "missing.",
        DataWarning,
    )


def _may_be_mixed(path: Path) -> bool:
    """Tell whether a mixed table may stand in a file, or in a folder of parts."""
    return (path.is_file() and kind_of(path) in TEXT) or bool(parquet_parts(path))


def rows_to_use(
    model: LatentVariableEstimator, path: Path, index: str | None, reading: Reading
) -> FrameTable:
    """Read rows for a model of a mixed table.

    Raises
    ------
    InputError
        Not its columns, or labels that it does not know.
    """
    names = column_names(model) or []
    if not _may_be_mixed(path):
        do = "save the table as one"
        raise InputError(message("a csv or parquet file", str(path), do))
    coding = model._coding
    frame = read_frame(path, index, reading, getattr(coding, "columns", ()))
    if set(names) <= set(frame.columns):
        frame = frame[names]
    return _table(frame, coding)


def read_frame(
    path: Path, index: str | None, reading: Reading, known: Sequence[Column] = ()
) -> pd.DataFrame:
    """Read a DataFrame with the narrowest types that hold its columns; those that a model knows
    with the types of training.
    """
    of_training = [column.name for column in known]
    request = reading.request(index, known=of_training or None)
    if parquet_parts(path):
        return _named(_read_parquet(path), index, path, request)
    pandas = require("pandas", "holds mixed tables")
    cells = read_cells(path, request, of_training)
    request.selection.check(str(path))
    names = cells.column_names
    if names is None:
        names = [f"x{j}" for j in range(len(cells.columns))]
    kinds = {column.name: column for column in known}
    named = zip(names, cells.columns, strict=True)
    series = [series_of(column, kinds.get(name)) for name, column in named]
    frame: pd.DataFrame = pandas.concat(series, axis=1, keys=names)
    if cells.row_names is not None:
        index_name = cells.index_name or None
        frame.index = pandas.Index(cells.row_names, dtype=object, name=index_name)
    return frame


def _read_parquet(path: Path, columns: Sequence[str] | None = None) -> pd.DataFrame:
    """Read a parquet file, or parts of one table, with the types that pandas gave its columns."""
    parquet = require("pyarrow.parquet", "reads parquet files")
    pandas = require("pandas", "reads parquet files")
    wanted = None if columns is None else list(columns)
    frames: list[pd.DataFrame] = []
    for part in parquet_parts(path):
        try:
            with parquet.ParquetFile(part) as file:
                table = file.read(columns=wanted, use_pandas_metadata=True)
                frame = table.to_pandas()
        except DAMAGED as error:
            raise damaged(part, error) from error
        nameless = is_nameless(str(frame.index.name))
        frames.append(frame.rename_axis(None) if nameless else frame)
    # pandas takes types from those without rows, too
    frames = [frame for frame in frames if len(frame)] or frames[:1]
    if len(frames) == 1:
        return frames[0]
    # rows that each part counts for itself have no names
    counted = all(f.index.name is None and f.index.dtype.kind in "iu" for f in frames)
    typed = _with_types([frame[frames[0].columns] for frame in frames])
    joined: pd.DataFrame = pandas.concat(typed, ignore_index=counted)
    return joined


def _with_types(frames: Sequence[pd.DataFrame]) -> list[pd.DataFrame]:
    """Return parts of a table of which columns of nothing but null have the type that those of
    others have.
    """
    types: dict[str, str] = {}
    for part in frames:
        kinds = {name: getattr(dtype, "kind", "O") for name, dtype in part.dtypes.items()}
        types |= {str(name): _NULLABLE[k] for name, k in kinds.items() if k in _NULLABLE}
    return [
        part.astype({n: types[n] for n in part if n in types and _is_null(part[n])})
        for part in frames
    ]


def _is_null(column: pd.Series) -> bool:
    return getattr(column.dtype, "kind", "O") == "O" and bool(column.isna().all())


def _named(
    frame: pd.DataFrame, index: str | None, path: Path, request: Request
) -> pd.DataFrame:
    """Return the columns asked for, rows named by the index or by a first column of names."""
    if not len(frame.columns):
        do = "add columns, or save the table again"
        raise InputError(message("columns of data", f"none in {path}", do))
    if index is not None and index not in frame.columns:
        first = ", ".join(repr(str(name)) for name in frame.columns[:5])
        got = f"columns {first}"
        do = "choose one of them"
        raise InputError(message(f"an index column {index!r} in {path}", got, do))
    # spreadsheets write separators below the last row
    filled = frame.dropna(how="all")
    asked = request.selection.asks_for(str(frame.columns[0]))
    if index is None and not asked and _names_rows(filled):
        index = frame.columns[0]
    if index is not None:
        frame = filled.set_index(index)
        _refuse_missing_names(frame, path)
        if not frame.index.is_unique:
            repeated = frame.index[frame.index.duplicated()]
            got = f"{str(repeated[0])!r} twice in {path}"
            do = "drop one of the rows"
            raise InputError(message("row names that differ", got, do))
    kept = request.selection.kept([str(name) for name in frame.columns])
    request.selection.check(str(path))
    return frame.iloc[:, kept]


def _refuse_missing_names(frame: pd.DataFrame, path: Path) -> None:
    missing = np.flatnonzero(frame.index.isna())
    if missing.size:
        got = f"none in row {missing[0]} of {path}"
        raise InputError(message("a name for every row", got, "name the row"))


def _names_rows(frame: pd.DataFrame) -> bool:
    """Tell whether the first column names the rows: names differ from row to row."""
    cells = [str(cell) for cell in frame.iloc[:, 0]]
    distinct = len(set(cells)) == len(cells)
    return distinct and key_column([str(name) for name in frame.columns], cells)


def _table(frame: pd.DataFrame, coding: Coding) -> FrameTable:
    encoded = cast("pd.DataFrame", coding.encode(frame))
    X: NDArray[np.float64] = encoded.to_numpy(dtype=np.float64)
    named = frame.index.name is not None or frame.index.dtype.kind not in "iu"
    return FrameTable(
        X,
        [str(name) for name in frame.index] if named else None,
        [str(name) for name in frame.columns],
        index_name=str(frame.index.name or "") if named else "",
        frame=frame,
    )


def write_frame(path: Path, frame: pd.DataFrame, table: FrameTable | None) -> None:
    """Write a completed table, or one that was drawn, as csv; whole or not at all. Names that a
    spreadsheet would run as formulas get an apostrophe, as in `write_csv`.
    """
    with writing_frames(path, table is not None and table.row_names is not None) as write:
        write(frame)


@contextmanager
def writing_frames(path: Path, named: bool) -> Iterator[Callable[[pd.DataFrame], None]]:
    """Yield a function that writes consecutive rows of a table as csv; the file appears whole or
    not at all.

    Parameters
    ----------
    path : Path
    named : bool
        Whether the index names rows.
    """
    if path.suffix.lower() != ".csv":
        do = "rename it: labels need a file of text"
        raise InputError(message("an output file .csv for a mixed table", str(path), do))
    with replacing(path) as part, part.open("w", newline="", encoding="utf-8") as file:

        def write(frame: pd.DataFrame) -> None:
            _guarded(frame, named).to_csv(file, index=named, header=file.tell() == 0)

        yield write


def _guarded(frame: pd.DataFrame, named: bool) -> pd.DataFrame:
    out = frame.set_axis([guarded(str(name)) for name in frame.columns], axis=1)
    if not named:
        return out
    names = [guarded(str(name)) for name in frame.index]
    index_name = guarded(str(frame.index.name or ""))
    return out.set_axis(names, axis=0).rename_axis(index_name)


def kind_of(path: Path) -> str:
    """Return the ending of a file, that of compression left out."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


_KINDS = (*TEXT, ".parquet", ".h5ad")


def covariates_to_fit(
    path: Path,
    batch: Sequence[str],
    others: Sequence[str],
    index: str | None,
    reading: Reading,
) -> object:
    """Read the columns that a fit is to take for covariates; None where there are none.

    Parameters
    ----------
    path : Path
    batch : sequence of str
        Columns of labels, even if they are numbers.
    others : sequence of str
        Numbers are continuous, texts are labels.
    index : str or None
    reading : Reading
    """
    if not (batch or others):
        return None
    frame = _read(path, [*batch, *others], index, reading)
    return _by_name(frame.astype(dict.fromkeys(batch, "category")))


def covariates_of(
    model: LatentVariableEstimator, path: Path, index: str | None, reading: Reading
) -> object:
    """Read the covariates of rows for a fitted model; None if it has none."""
    names = model._covariate_coding.names
    return _by_name(_read(path, names, index, reading)) if names else None


def size_factors_in(
    path: Path, column: str | None, index: str | None, reading: Reading
) -> NDArray[np.float64] | None:
    """Read the size factors of rows from a column, (n,); None where none is named.

    Raises
    ------
    InputError
        No such column, or one that does not hold numbers.
    """
    if column is None:
        return None
    values = _read(path, [column], index, reading)[column]
    pandas = require("pandas", "reads columns of size factors")
    numbers = pandas.to_numeric(values, errors="coerce")
    wrong = np.flatnonzero(numbers.isna() & ~values.isna())
    if wrong.size:
        row = wrong[0]
        got = f"{values.iloc[row]!r} in row {row}"
        do = "name a column of positive numbers"
        raise InputError(message(f"numbers in the column {column!r}", got, do))
    factors: NDArray[np.float64] = numbers.to_numpy(dtype=np.float64, na_value=np.nan)
    return factors


def covariates_at(model: LatentVariableEstimator, asked: Sequence[str], n_rows: int) -> object:
    """Return the covariates of rows to come, from ``--at NAME=VALUE``.

    Covariates that are not named are at the average of the rows of training.
    """
    coding = model._covariate_coding
    given: dict[str, list[object]] = {name: [None] * n_rows for name in coding.names}
    labels = {
        covariate.name for covariate in coding.covariates if isinstance(covariate, Categorical)
    }
    named: set[str] = set()
    for word in asked:
        name, equals, value = word.partition("=")
        if not equals or name not in given:
            known = listing([f"{label}=VALUE" for label in coding.names])
            do = f"choose from {known}" if known else "leave it out: the model has none"
            raise InputError(message("--at with a covariate of the model", repr(word), do))
        if name in named:
            got = f"--at {name}=... twice"
            raise InputError(message("every covariate once", got, "write one value"))
        named.add(name)
        given[name] = [value] * n_rows
    for name in given.keys() - labels:
        given[name] = [float("nan") if value is None else value for value in given[name]]
    return given if given else "average"


def _by_name(beside: pd.DataFrame) -> Mapping[str, object]:
    """Return covariates by name, without names of rows: their rows are in the order of the data."""
    return {str(name): beside[name].reset_index(drop=True) for name in beside}


def _read(
    path: Path, names: Sequence[str], index: str | None, reading: Reading
) -> pd.DataFrame:
    kind = kind_of(path)
    if not path.is_file() or kind not in _KINDS:
        do = "save the rows as one, with the covariates among its columns"
        raise InputError(message("a csv, parquet or h5ad file with covariates", str(path), do))
    if kind == ".h5ad":
        return _of_cells(path, names)
    if kind == ".parquet" and {*names} <= {*parquet_columns(path)}:
        # of many columns these alone
        return _read_parquet(path, names)[list(names)]
    named = Reading(
        [quoted(name) for name in names],
        (),
        reading.header,
        reading.memory,
        decimal=reading.decimal,
    )
    return read_frame(path, index, named)[list(names)]


def _of_cells(path: Path, names: Sequence[str]) -> pd.DataFrame:
    check_survives(path)
    anndata = require("anndata", "reads h5ad files")
    with readable(str(path)):
        obs: pd.DataFrame = anndata.read_h5ad(path, backed="r").obs
    lacking = [repr(name) for name in names if name not in obs]
    if lacking:
        known = listing([repr(str(name)) for name in obs.columns]) or "it has no columns"
        got = f"no {listing(lacking)}"
        do = f"choose from {known}"
        raise InputError(message(f"columns of obs in {path}", got, do))
    return obs[list(names)].reset_index(drop=True)
