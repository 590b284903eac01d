"""``bochner report``: from a model, and data where they are given, to one page."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bochner.cli.align import open_rows_of, read_rows
from bochner.cli.apply import rows_to_compare, working_on
from bochner.cli.data import Reading, frame, latent_names, load_model
from bochner.cli.mixed_tables.blocks import open_mixed
from bochner.cli.mixed_tables.whole import covariates_of, size_factors_in
from bochner.cli.parse import EMBEDDING, PAGE
from bochner.errors import InputError, message
from bochner.io.csv.files import read_csv
from bochner.io.extensions import MODEL_FILE
from bochner.io.on_disk import StoredTable
from bochner.io.request import NamedColumns, Request
from bochner.io.table import Table
from bochner.model_selection.calibrate import calibration
from bochner.page.labels import read_labels
from bochner.page.layouts import read_layout
from bochner.page.report import check_page, report
from bochner.page.shapes import parse_shapes
from bochner.prediction.calibration import CalibrationReport

if TYPE_CHECKING:
    from bochner.estimators.base import LatentVariableEstimator


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """The options of ``bochner report``; see its help."""

    model: Path
    data: Path | None = None
    labels: Path | None = None
    shapes: Sequence[str] = ()
    index: str | None = None
    layer: Sequence[str] = ()
    held_out: Path | None = None
    embedding: Path | None = None
    out: Path | None = None
    force: bool = False
    reading: Reading = field(default_factory=Reading)
    size_factors: str | None = None


def run(options: ReportOptions) -> dict[str, object]:
    """Write the page.

    Returns
    -------
    dict
        rows, seconds, file, bytes.

    Raises
    ------
    InputError
        The model, the data, the labels or the place of the page cannot be used; nothing is written
        then.
    """
    started = time.perf_counter()
    if options.size_factors is not None and options.data is None and options.held_out is None:
        got = "--size-factors without DATA or --held-out"
        do = "write DATA after MODEL, or leave --size-factors out"
        raise InputError(
            message(
                "rows that size factors are of",
                got,
                do,
            )
        )
    shapes = parse_shapes(options.shapes)
    out = check_page(
        _default_place(options.model) if options.out is None else options.out, options.force
    )
    model = load_model(options.model)
    table = None if options.data is None else _read(model, options.data, options)
    names = _fitted_names(options.model, model) if table is None else table.row_names
    X = None if table is None else _values(table, model.embedding_.dtype)
    n_rows = len(model.embedding_) if X is None else X.shape[0]
    labels: Any = None if table is None else table.labels
    if options.labels is not None:
        labels = read_labels(options.labels, names, n_rows, options.reading.decimal)
    layout = None
    if options.embedding is not None:
        layout = read_layout(options.embedding, names, n_rows, options.reading.decimal)
    calibrated = _calibration(model, options)
    title = options.model.resolve().name if options.model.is_dir() else options.model.stem
    with working_on(model.embedding_.shape if X is None else X.shape):
        common: dict[str, Any] = {
            "path": out,
            "shapes": shapes,
            "row_names": names,
            "title": title,
        }
        common |= {"calibration": calibrated, "embedding": layout, "overwrite": options.force}
        report(model, X, labels, **common, **_beside(model, options.data, options))
    seconds = round(time.perf_counter() - started, 3)
    return {"rows": n_rows, "seconds": seconds, "file": str(out), "bytes": out.stat().st_size}


def _read(model: LatentVariableEstimator, path: Path, options: ReportOptions) -> Table:
    """Read the rows; those of large files are opened, to be read block by block."""
    reading = options.reading.without(path, [options.size_factors])
    how = (options.index, options.layer, reading)
    stored = open_rows_of(model, path, *how) or open_mixed(model, path, *how)
    return stored or read_rows(model, path, *how)


def _values(table: Table, dtype: np.dtype[np.generic]) -> Any:
    if isinstance(table, StoredTable):
        return table.rows
    return frame(replace(table, X=table.X.astype(dtype)))


def _calibration(
    model: LatentVariableEstimator, options: ReportOptions
) -> CalibrationReport | None:
    if options.held_out is None:
        return None
    reading = options.reading.without(options.held_out, [options.size_factors])
    X = rows_to_compare(model, options.held_out, options.index, options.layer, reading)
    with working_on(X.shape):
        beside = _beside(model, options.held_out, options)
        return calibration(model, X, **beside, random_state=0)


def _beside(
    model: LatentVariableEstimator, path: Path | None, options: ReportOptions
) -> dict[str, Any]:
    """Read what is known of rows beside their data."""
    if path is None:
        return {}
    how = (options.index, options.reading)
    return {
        "size_factors": size_factors_in(path, options.size_factors, *how),
        "covariates": covariates_of(model, path, *how),
    }


def _default_place(model: Path) -> Path:
    """Beside the model's other files, or in the current folder."""
    return model / PAGE if model.is_dir() else Path(PAGE)


def _fitted_names(path: Path, model: LatentVariableEstimator) -> list[str] | None:
    """Read the names of the rows from the embedding that was written beside the model."""
    if path.is_dir():
        return _names_in(path / EMBEDDING, len(model.embedding_))
    beside = path.parent / EMBEDDING
    # beside a file it may be that of another model
    with suppress(InputError):
        if path.name == MODEL_FILE and _holds(beside, model.embedding_):
            return _names_in(beside, len(model.embedding_))
    return None


def _holds(path: Path, embedding: NDArray[np.generic]) -> bool:
    """Tell whether a file holds these latents."""
    if not path.is_file():
        return False
    columns = NamedColumns(latent_names(embedding.shape[1], 1), [])
    X = read_csv(path, Request(selection=columns)).X
    return X.shape == embedding.shape and np.allclose(X, embedding, atol=1e-4)


def _names_in(path: Path, n_rows: int) -> list[str] | None:
    if not path.is_file():
        return None
    table = read_csv(path)
    first = (table.column_names or [""])[0]
    # numbers under a name are row names only where they are declared
    names = (
        table.row_names
        if first in ("", "z0")
        else read_csv(path, Request(index=first)).row_names
    )
    if names is not None and len(names) != n_rows:
        got = f"{len(names)} in {path}"
        raise InputError(
            message(
                f"{n_rows} rows, as the model has",
                got,
                "write the embedding again: bochner transform",
            )
        )
    return names
