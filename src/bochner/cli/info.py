"""``bochner info``: what is in a model or in data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bochner.cli.data import load_model
from bochner.cli.fit import FitOptions, estimator_of
from bochner.data.columns import describe_column, widened
from bochner.data.views import check_fit, resolve_views
from bochner.errors import InputError, ModelFileError
from bochner.io.extensions import EXTENSIONS, MODEL_FILE, check_extension, extension_of
from bochner.io.on_disk import StoredTable
from bochner.io.table import Table
from bochner.memory import passes
from bochner.summary import describe_model

if TYPE_CHECKING:
    from bochner.estimators.base import LatentVariableEstimator


def describe(options: FitOptions) -> dict[str, object]:
    """Describe a model file, the folder of a fit, or data and what a fit with these options would
    take.
    """
    path = options.data
    is_model = (
        (path / MODEL_FILE).is_file() if path.is_dir() else path.suffix.lower() == ".bochner"
    )
    if is_model or (path.is_file() and extension_of(path) not in EXTENSIONS):
        try:
            return describe_model(load_model(path))
        except ModelFileError:
            # models may be called anything
            if is_model or not path.suffix:
                raise
            check_extension(path)
    table = options.read()
    # what a fit refuses
    options.read_beside()
    estimator = estimator_of(options, table)
    read = {"read": how_read(estimator, table)}
    return {**describe_data(table), **read, "estimate": _estimate(estimator, table)}


def how_read(estimator: LatentVariableEstimator, table: Table) -> str:
    """Say whether a fit holds the rows, and why where it need not be."""
    if not isinstance(table, StoredTable):
        return "as a whole"
    reason = estimator._held_because(table.rows, reset=True)
    return f"as a whole, because of {reason}" if reason else "block by block"


def _estimate(estimator: LatentVariableEstimator, table: Table) -> dict[str, object]:
    """Estimate a fit; the reason stands in place of figures where a fit would refuse."""
    from bochner.model_selection.cost import estimate

    try:
        X: Any = table.rows if isinstance(table, StoredTable) else table.X
        columns = resolve_views(estimator.views, X.shape[1], table.column_names)
        check_fit(X, columns, table.column_names)
        estimator.set_params(views=columns)
        return estimate(estimator, X, columns)
    except (InputError, ValueError) as error:
        return {"refused": str(error)}


def describe_data(table: Table) -> dict[str, object]:
    """Summarise data before they are fitted, block by block where they are not in memory."""
    X: Any = table.rows if isinstance(table, StoredTable) else table.X
    names = table.column_names
    missing = np.zeros(X.shape[1], dtype=np.int64)
    infinite = 0
    empty_rows = 0
    views = table.views or {"x": slice(0, X.shape[1])}
    without = dict.fromkeys(views, 0)
    ends = (X[:1][0], X[:1][0])
    for rows in passes(X.shape):
        part = X[rows]
        holes = np.isnan(part)
        missing += holes.sum(axis=0)
        infinite += int(np.isinf(part).sum())
        empty_rows += int(holes.all(axis=1).sum())
        for view, positions in views.items():
            without[view] += int(holes[:, positions].all(axis=1).sum())
        ends = widened(ends, part)
    low, high = ends
    shares = missing / X.shape[0]
    return {
        "rows": X.shape[0],
        "columns": X.shape[1],
        "row_names": table.row_names is not None,
        "column_names": names is not None,
        "labels": table.labels is not None,
        "missing_share": float(shares.mean()),
        "infinite_entries": infinite,
        "constant_columns": [
            describe_column(int(j), names) for j in np.flatnonzero(low == high)
        ],
        "empty_columns": [
            describe_column(int(j), names) for j in np.flatnonzero(shares == 1.0)
        ],
        "empty_rows": empty_rows,
        "views": {
            view: {
                "columns": int(shares[positions].size),
                "missing_share": float(shares[positions].mean()),
                "rows_without": without[view],
            }
            for view, positions in views.items()
        },
        "matrix_bytes": X.dtype.itemsize * X.shape[0] * X.shape[1],
    }
