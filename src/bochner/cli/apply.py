"""``bochner transform``, ``impute`` and ``calibrate``: a fitted model on rows from a file."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from bochner.cli.align import open_rows_of, read_rows
from bochner.cli.data import (
    FrameTable,
    Reading,
    column_names,
    frame,
    latent_names,
    load_model,
    write_embedding,
    write_matrices,
)
from bochner.cli.mixed_tables.blocks import MixedTable, open_mixed
from bochner.cli.mixed_tables.whole import (
    covariates_at,
    covariates_of,
    size_factors_in,
    write_frame,
    writing_frames,
)
from bochner.cli.parse import COLUMNAR, OUTPUTS, check_output
from bochner.cli.session import one_thread_if_small
from bochner.data.arrays import FloatArray
from bochner.data.covariates import of_rows
from bochner.data.row_sources import PartSource, RowSource
from bochner.errors import InputError, message
from bochner.io.columnar import STREAMED, writing
from bochner.io.csv.write import whole_columns_of
from bochner.io.on_disk import StoredTable
from bochner.memory import chunks
from bochner.model_selection.calibrate import calibration
from bochner.prediction.calibration import CalibrationReport
from bochner.progress import overall, say

if TYPE_CHECKING:
    from bochner.estimators.base import LatentVariableEstimator


# Rows that are placed, and written, together.
PLACED_ROWS = 2**17


@dataclass(frozen=True)
class Rows:
    """Where rows come from and where results go; see the help of ``bochner transform``."""

    model: Path
    data: Path
    out: Path
    index: str | None = None
    layer: Sequence[str] = ()
    force: bool = False
    reading: Reading = field(default_factory=Reading)
    size_factors: str | None = None
    interval: float | None = None

    @property
    def beside(self) -> Reading:
        """How the data are read: the column of size factors is none of theirs."""
        return self.reading.without(self.data, [self.size_factors])


@dataclass(frozen=True)
class Beside:
    """What a file knows of rows beside their data.

    Attributes
    ----------
    size_factors, covariates
        As a model takes them; None: nothing.
    """

    size_factors: FloatArray | None
    covariates: object

    @classmethod
    def read(cls, model: LatentVariableEstimator, rows: Rows | CalibrateOptions) -> Beside:
        """Read the columns that the rows' options and the model name."""
        how = (rows.index, rows.reading)
        factors = size_factors_in(rows.data, rows.size_factors, *how)
        return cls(factors, covariates_of(model, rows.data, *how))

    def of(self, rows: slice) -> Beside:
        """Return what is known of consecutive rows."""
        here = np.arange(rows.start, rows.stop)
        factors = None if self.size_factors is None else self.size_factors[rows]
        return Beside(factors, of_rows(self.covariates, here))

    def check(self, model: LatentVariableEstimator, source: RowSource) -> None:
        """Refuse a bad value of the rows, or beside them, and place it, before any work."""
        model._validate(source, reset=False)
        # no array, and as good: its rows are read where they are needed
        values = cast("FloatArray", source)
        model._beside_all(source, values, self.covariates, self.size_factors)


def transform(rows: Rows) -> int:
    """Write latents and their standard deviations; return the number of rows."""
    check_output(rows.out, rows.force, (*OUTPUTS, *COLUMNAR))
    model = load_model(rows.model)
    stored = _on_disk(model, rows) or _mixed_on_disk(model, rows)
    beside = Beside.read(model, rows)
    if stored is not None and rows.out.suffix.lower() in STREAMED:
        return _from_disk_to_disk(model, stored, beside, rows)
    table = stored or read_rows(model, rows.data, rows.index, rows.layer, rows.beside)
    X = table.X if stored is None else stored.rows
    with working_on(X.shape):
        placed = model.transform(
            X,
            return_std=True,
            interval=rows.interval,
            size_factors=beside.size_factors,
            covariates=beside.covariates,
        )
    write_embedding(rows.out, placed, table)
    return len(placed[0])


def _on_disk(
    model: LatentVariableEstimator, rows: Rows | CalibrateOptions
) -> StoredTable | None:
    """Open rows that are read block by block; None: they have to be read as a table."""
    reading = rows.reading.without(rows.data, [rows.size_factors])
    return open_rows_of(model, rows.data, rows.index, rows.layer, reading)


def _mixed_on_disk(model: LatentVariableEstimator, rows: Rows) -> MixedTable | None:
    """The same of a mixed table."""
    return open_mixed(model, rows.data, rows.index, rows.layer, rows.beside)


def _parts(source: RowSource) -> Iterator[slice]:
    """Cut rows into parts that are worked on, and written, together: whole blocks."""
    size = max(1, PLACED_ROWS // source.block_rows) * source.block_rows
    return chunks(source.n_rows, size)


def _completed_on_disk(
    model: LatentVariableEstimator, table: StoredTable, beside: Beside, outs: Sequence[Path]
) -> int:
    """Complete rows part by part, and write them, and their standard deviations where a second
    file is named.
    """
    source = table.rows
    # of arrays, which have none
    names = source.columns or [""] * source.n_columns
    with working_on(source.shape), overall("reading rows", shown=True), ExitStack() as files:
        beside.check(model, source)
        given = (source.n_rows, names, source.dtype)
        # standard deviations are none
        whole = whole_columns_of(source.blocks()) if outs[0].suffix.lower() == ".csv" else None
        write = [
            files.enter_context(
                writing(out, *given, None if i else whole, table.row_names, table.index_name)
            )
            for i, out in enumerate(outs)
        ]
        for rows in _parts(source):
            say(f"completing rows {rows.start + 1:,} to {rows.stop:,} of {source.n_rows:,}")
            part = PartSource(source, rows, is_checked=True)
            known = beside.of(rows)
            completed = model.impute(
                part,
                return_std=True,
                size_factors=known.size_factors,
                covariates=known.covariates,
            )
            for out, values in zip(write, completed, strict=False):
                out(values)
    return source.n_rows


def _completed_tables(
    model: LatentVariableEstimator, table: MixedTable, beside: Beside, outs: Sequence[Path]
) -> int:
    """Complete rows of a mixed table block by block, as `_completed_on_disk` does."""
    source = table.rows
    given = (source.n_rows, source.columns or [], source.dtype)
    named = (table.row_names, table.index_name)
    with working_on(source.shape), overall("reading rows", shown=True), ExitStack() as files:
        beside.check(model, source)
        write = files.enter_context(writing_frames(outs[0], table.row_names is not None))
        others = [files.enter_context(writing(out, *given, None, *named)) for out in outs[1:]]
        for rows in chunks(source.n_rows, source.block_rows):
            say(f"completing rows {rows.start + 1:,} to {rows.stop:,} of {source.n_rows:,}")
            known = beside.of(rows)
            full, std = model.impute(
                table.frame(rows),
                return_std=True,
                size_factors=known.size_factors,
                covariates=known.covariates,
            )
            write(full)
            for write_std in others:
                write_std(std)
    return source.n_rows


def _from_disk_to_disk(
    model: LatentVariableEstimator, table: StoredTable, beside: Beside, asked: Rows
) -> int:
    """Place rows part by part; neither they nor their latents are ever held."""
    source = table.rows
    n_rows = source.n_rows
    interval = asked.interval
    names = latent_names(model._n_latents, 2 if interval is None else 4)
    with working_on(source.shape), overall("reading rows", shown=True):
        beside.check(model, source)
        given = (n_rows, names, source.dtype, None, table.row_names, table.index_name)
        with writing(asked.out, *given) as write:
            for rows in _parts(source):
                say(f"placing rows {rows.start + 1:,} to {rows.stop:,} of {n_rows:,}")
                part = PartSource(source, rows, is_checked=True)
                known = beside.of(rows)
                placed = model.transform(
                    part,
                    return_std=True,
                    interval=interval,
                    size_factors=known.size_factors,
                    covariates=known.covariates,
                )
                write(np.hstack(placed))
    return n_rows


def impute(rows: Rows, std_out: Path | None) -> int:
    """Write the completed matrix, and the standard deviations where asked for; return the
    number of rows.
    """
    check_output(rows.out, rows.force)
    if std_out is not None:
        check_output(std_out, rows.force)
        if std_out.resolve() == rows.out.resolve():
            raise InputError(
                message("two files", f"{rows.out} for both --out and --std", "rename one")
            )
    model = load_model(rows.model)
    outs = [rows.out] if std_out is None else [rows.out, std_out]
    streams = all(out.suffix.lower() in STREAMED for out in outs)
    stored = _on_disk(model, rows) if streams else None
    beside = Beside.read(model, rows)
    if stored is not None and (
        stored.column_names or all(o.suffix in (".npy", ".zarr") for o in outs)
    ):
        return _completed_on_disk(model, stored, beside, outs)
    mixed = _mixed_on_disk(model, rows) if streams and rows.out.suffix == ".csv" else None
    if mixed is not None:
        return _completed_tables(model, mixed, beside, outs)
    table = read_rows(model, rows.data, rows.index, rows.layer, rows.beside)
    with working_on(table.X.shape):
        X = frame(table) if isinstance(table, FrameTable) else table.X
        full, std = model.impute(
            X,
            return_std=True,
            size_factors=beside.size_factors,
            covariates=beside.covariates,
        )
    if isinstance(table, FrameTable):
        write_frame(rows.out, full, table)
    else:
        write_matrices(rows.out, {"X": full}, table.column_names, table, table.X)
    if std_out is not None:
        write_matrices(std_out, {"std": std}, table.column_names, table)
    return len(full)


def sample(
    model_file: Path,
    n_samples: int,
    out: Path,
    seed: int | None,
    force: bool,
    at: Sequence[str] = (),
) -> int:
    """Write rows drawn from the model, in the columns of its data; return their number."""
    check_output(out, force)
    model = load_model(model_file)
    beside = covariates_at(model, at, n_samples)
    drawn = model.sample(n_samples, random_state=seed, covariates=beside)
    if isinstance(drawn, np.ndarray):
        write_matrices(out, {"X": drawn}, column_names(model), None)
    else:
        write_frame(out, drawn, None)
    return len(drawn)


@dataclass(frozen=True, kw_only=True)
class CalibrateOptions:
    """The options of ``bochner calibrate``; see its help."""

    model: Path
    data: Path
    hide: str = "entries"
    fraction: float = 0.1
    n_draws: int = 200
    seed: int | None = None
    out: Path | None = None
    index: str | None = None
    layer: Sequence[str] = ()
    force: bool = False
    reading: Reading = field(default_factory=Reading)
    size_factors: str | None = None
    max_rows: int = 2000


def calibrate(options: CalibrateOptions) -> CalibrationReport:
    """Hide entries of rows, predict them and compare; draw the comparison where asked for."""
    out = options.out
    if out is not None:
        check_output(out, options.force, (".png",))
    model = load_model(options.model)
    reading = options.reading.without(options.data, [options.size_factors])
    X = rows_to_compare(model, options.data, options.index, options.layer, reading)
    with working_on(X.shape), overall("reading rows", shown=True):
        beside = Beside.read(model, options)
        report = calibration(
            model,
            X,
            hide=options.hide,
            fraction=options.fraction,
            n_draws=options.n_draws,
            max_rows=options.max_rows,
            size_factors=beside.size_factors,
            covariates=beside.covariates,
            random_state=options.seed,
        )
    if out is not None:
        from bochner import plots

        plots.save(plots.calibration(report)[0], out)
    return report


def rows_to_compare(
    model: LatentVariableEstimator,
    path: Path,
    index: str | None,
    layer: Sequence[str],
    reading: Reading,
) -> FloatArray | RowSource:
    """Return rows of which a sample is compared: those of large files are read block by block."""
    how = (index, layer, reading)
    stored = open_rows_of(model, path, *how) or open_mixed(model, path, *how)
    return read_rows(model, path, *how).X if stored is None else stored.rows


@contextmanager
def working_on(shape: tuple[int, ...]) -> Iterator[None]:
    """Use one thread for few entries, and keep scikit-learn from warning about names that either
    the rows or the model lacks: they were compared when the rows were read.
    """
    with warnings.catch_warnings(), one_thread_if_small(math.prod(shape)):
        warnings.filterwarnings(
            "ignore", message="X (does not have valid|has) feature names", category=UserWarning
        )
        yield
