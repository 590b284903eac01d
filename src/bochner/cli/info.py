"""``bochner info``: what is in a model or in data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bochner.cli.data import MODEL_FILE, load_model
from bochner.cli.fit import FitOptions, estimator_of
from bochner.data.columns import describe_column, extremes
from bochner.data.views import check_fit, resolve_views
from bochner.errors import InputError
from bochner.io.readers import EXTENSIONS, extension_of
from bochner.io.table import Table
from bochner.summary import describe_model

if TYPE_CHECKING:
    from bochner.estimators.base import LatentVariableEstimator


def describe(options: FitOptions) -> dict[str, object]:
    """Describe a model file, the folder of a fit, or data and what a fit with these options would
    take.
    """
    path = options.data
    is_model = (path / MODEL_FILE).is_file() if path.is_dir() else path.suffix.lower() == ".bochner"
    if is_model or (path.is_file() and extension_of(path) not in EXTENSIONS):
        return describe_model(load_model(path))
    table = options.read()
    estimator = estimator_of(options, table)
    return {**describe_data(table), "estimate": _estimate(estimator, table)}


def _estimate(estimator: LatentVariableEstimator, table: Table) -> dict[str, object]:
    """Estimate a fit; what a fit would refuse is said in place of figures."""
    from bochner.model_selection.cost import estimate

    try:
        columns = resolve_views(estimator.views, table.X.shape[1], table.column_names)
        check_fit(table.X, columns, table.column_names)
        estimator.set_params(views=columns)
        return estimate(estimator, table.X, columns)
    except (InputError, ValueError) as error:
        return {"refused": str(error)}


def describe_data(table: Table) -> dict[str, object]:
    """Summarise data before they are fitted."""
    X, names = table.X, table.column_names
    missing, infinite = np.isnan(X), np.isinf(X)
    low, high = extremes(X)
    views = table.views or {"x": slice(0, X.shape[1])}
    return {
        "rows": X.shape[0],
        "columns": X.shape[1],
        "row_names": table.row_names is not None,
        "column_names": names is not None,
        "labels": table.labels is not None,
        "missing_share": float(missing.mean()),
        "infinite_entries": int(infinite.sum()),
        "constant_columns": [describe_column(int(j), names) for j in np.flatnonzero(low == high)],
        "empty_columns": [
            describe_column(int(j), names) for j in np.flatnonzero(missing.all(axis=0))
        ],
        "empty_rows": int(missing.all(axis=1).sum()),
        "views": {view: _describe_view(missing[:, own]) for view, own in views.items()},
        "matrix_bytes": int(X.nbytes),
    }


def _describe_view(missing: NDArray[np.bool_]) -> dict[str, object]:
    return {
        "columns": missing.shape[1],
        "missing_share": float(missing.mean()),
        "rows_without": int(missing.all(axis=1).sum()),
    }
