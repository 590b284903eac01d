"""Rows for a fitted model: views that the data lack become NaN, names must agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from bochner.cli.data import Reading, column_names
from bochner.cli.mixed_tables.whole import rows_to_use
from bochner.data.arrays import FloatArray
from bochner.data.columns import listing
from bochner.data.row_sources import RowSource, SomeColumns
from bochner.errors import InputError, message
from bochner.estimators.settings import likelihoods
from bochner.estimators.tables import Mixed
from bochner.io.extensions import LAYERED, extension_of, in_zarr
from bochner.io.on_disk import StoredTable
from bochner.io.parquet.parts import parquet_parts
from bochner.io.readers import read_source
from bochner.io.stored import open_rows, parquet_columns
from bochner.io.table import Table

if TYPE_CHECKING:
    from bochner.estimators.base import LatentVariableEstimator

Columns = dict[str, NDArray[np.intp]]


def read_rows(
    model: LatentVariableEstimator,
    path: Path,
    index: str | None,
    layer: Sequence[str] = (),
    reading: Reading | None = None,
) -> Table:
    """Read rows and lay them out as the model's training data were.

    Parameters
    ----------
    model : LatentVariableEstimator
        Fitted.
    path : Path
        As for fitting; named columns in any order. Views may be absent: files of a folder, arrays
        of an npz, or all named columns of a view.
    index : str or None
        Column of csv and parquet files that names the rows.
    layer : sequence of str
        As typed: of h5ad and h5mu files.
    reading : Reading, optional

    Returns
    -------
    Table
        X of shape (n, M) with the model's columns; column_names those of the model, or of the data
        where it knows none.

    Raises
    ------
    InputError
        Unreadable data, unknown views, or columns that are not those of the fit.
    """
    reading = reading or Reading()
    reading = reading.without(path, model._covariate_coding.names)
    if isinstance(model._coding, Mixed):
        return rows_to_use(model, path, index, reading)
    known = column_names(model)
    request = reading.request(index, layer, known)
    try:
        table = read_source(path, request)
    except InputError:
        # a column that lacks is why others, which are none of the model's, were read
        _check_whole(request.selection.seen, known or [], model.views_ if known else {})
        raise
    views = table.views or _only_array(path, table)
    names = known
    if views is not None and set(views) & set(model.views_):
        X = _by_view(table, views, model.views_, known)
    elif table.column_names is not None and known is not None:
        X = _by_name(table.X, table.column_names, known, model.views_)
    else:
        X = _by_number(table.X, model, views)
        names = known or table.column_names
    if not layer and extension_of(path) in LAYERED:
        _check_layer(model, X, path)
    return replace(table, X=X, column_names=names)


def _check_layer(model: LatentVariableEstimator, X: object, path: Path) -> None:
    """Say how a layer is read where X of a file is not what the model's data were like."""
    chosen = {view.name: view.likelihood for view in model._fit.posterior}
    try:
        likelihoods.check(cast("FloatArray", X), chosen, model.views_, column_names(model))
    except InputError as error:
        do = f"X of {path} was read: if the fit read a layer, add its --layer."
        raise InputError(f"{error} {do}") from error


def rows_on_disk(model: LatentVariableEstimator, path: Path) -> RowSource | None:
    """Open rows that a model takes as they are, to be read block by block; None: they have to be
    read as a table.

    Parameters
    ----------
    model : LatentVariableEstimator
        Fitted.
    path : Path
        A ``.npy`` file, a ``.zarr`` array, or parquet with the columns of training and no others:
        a file, or a folder of them.
    """
    if isinstance(model._coding, Mixed) or model._covariate_coding.names:
        return None
    kind = path.suffix.lower()
    known = column_names(model)
    if (kind == ".npy" and path.exists()) or (in_zarr(path) and path.is_dir()):
        source = open_rows(path)
        if source.columns is not None:
            return None  # columns are compared by name
        _check_width(source.n_columns, model, None)
        return source
    files = parquet_parts(path)
    has_known = files and known and sorted(parquet_columns(files[0])) == sorted(known)
    return open_rows(files, known) if has_known else None


def open_rows_of(
    model: LatentVariableEstimator,
    path: Path,
    index: str | None,
    layer: Sequence[str],
    reading: Reading,
) -> StoredTable | None:
    """Open rows that are read block by block, in the columns of a model; None: they have to be read
    as a table.

    Parameters
    ----------
    model, path, index, layer, reading
        As `read_rows` takes them.
    """
    if not (index or layer or reading.columns or reading.drop or reading.beside):
        source = rows_on_disk(model, path)
        if source is not None:
            return StoredTable.of(source)
    if isinstance(model._coding, Mixed):
        return None
    known = column_names(model)
    reading = reading.without(path, model._covariate_coding.names)
    table = reading.open(path, index, layer, known)
    table = table or reading.open_text(path, index, layer, known)
    if table is not None and known is None:
        if path.suffix.lower() == ".npz" and not _has_views(table, model):
            return None
        _check_width(table.rows.n_columns, model, None)
        return table
    names = [] if table is None else table.rows.columns or []
    if table is None or known is None or sorted(names) != sorted(known):
        return None
    rows = table.rows
    if names != known:
        place = {name: j for j, name in enumerate(names)}
        order = np.array([place[name] for name in known], dtype=np.int64)
        rows = SomeColumns(rows, order, known)
    if not layer and extension_of(path) in LAYERED:
        _check_layer(model, rows, path)
    return StoredTable.of(rows, table.row_names, index_name=table.index_name)


def _has_views(table: Table, model: LatentVariableEstimator) -> bool:
    """Tell whether arrays are the views of a model, all of them and where they were."""
    views = table.views or {next(iter(model.views_)): slice(0, table.shape[1])}
    return list(views) == list(model.views_) and all(
        np.array_equal(np.arange(place.start, place.stop), model.views_[view])
        for view, place in views.items()
    )


def _only_array(path: Path, table: Table) -> dict[str, slice] | None:
    """Name of the single array of an npz: it may be one view of several."""
    if path.suffix.lower() != ".npz":
        return None
    with np.load(path, allow_pickle=False) as arrays:
        names = [name for name in arrays.files if arrays[name].ndim == 2]
    return {name: slice(0, table.X.shape[1]) for name in names[:1]}


def _by_view(
    table: Table, views: dict[str, slice], columns: Columns, known: list[str] | None
) -> NDArray[np.float64]:
    unknown = [repr(view) for view in views if view not in columns]
    if unknown:
        do = "remove it, or name it as at the fit"
        raise InputError(
            message(f"views from {list(columns)}", f"a view {listing(unknown)}", do)
        )
    X = np.full(
        (table.X.shape[0], sum(positions.size for positions in columns.values())), np.nan
    )
    for view, place in views.items():
        positions = columns[view]
        part = table.X[:, place]
        if known is not None and table.column_names is not None:
            names = [known[j] for j in positions]
            part = part[:, _order(table.column_names[place], names, view)]
        if part.shape[1] != positions.size:
            want = f"{positions.size} columns in view {view!r}"
            do = "pass the columns of the fit"
            raise InputError(
                message(
                    want,
                    f"{part.shape[1]}",
                    do,
                )
            )
        X[:, positions] = part
    return X


def _order(given: Sequence[str], fitted: Sequence[str], view: str) -> list[int]:
    """Return where the columns of a view stand among those that are given."""
    # The reader puts the view before names that occur in two views: only one of both sides may have
    # met the other view.
    prefix = f"{view}:"
    place = {name.removeprefix(prefix): j for j, name in enumerate(given)}
    names = [name.removeprefix(prefix) for name in fitted]
    lacking = [repr(name) for name in names if name not in place]
    if lacking:
        other = [repr(name) for name in place if name not in set(names)]
        got = f"none named {listing(lacking)}"
        do = "add them (empty cells where missing), or leave out the whole view"
        if other:
            got = f"{listing(other)} in place of {listing(lacking)}"
            do = "rename the columns"
        raise InputError(
            message(
                f"the columns of view {view!r} as at the fit",
                got,
                do,
            )
        )
    return [place[name] for name in names]


def _by_name(
    X: NDArray[np.float64], given: list[str], known: list[str], columns: Columns
) -> NDArray[np.float64]:
    unknown = [repr(name) for name in given if name not in set(known)]
    if unknown:
        got = f"unknown {listing(unknown)}"
        raise InputError(
            message("the columns of the fit", got, "drop or rename them, or give --index")
        )
    _check_whole(given, known, columns)
    place = {name: j for j, name in enumerate(known)}
    full = np.full((X.shape[0], len(known)), np.nan)
    full[:, [place[name] for name in given]] = X
    return full


def _check_whole(given: Sequence[str], known: Sequence[str], columns: Columns) -> None:
    """Refuse names of columns that are part of a view, and not all of it."""
    present = set(given)
    for view, positions in columns.items():
        lacking = [repr(known[j]) for j in positions if known[j] not in present]
        if lacking and len(lacking) < positions.size:
            do = "add them (empty cells where missing), or leave out the whole view"
            raise InputError(
                message(f"all columns of view {view!r}", f"none named {listing(lacking)}", do)
            )


def _by_number(
    X: NDArray[np.float64],
    model: LatentVariableEstimator,
    views: dict[str, slice] | None,
) -> NDArray[np.float64]:
    _check_width(X.shape[1], model, views)
    return X


def _check_width(
    width: int, model: LatentVariableEstimator, views: dict[str, slice] | None
) -> None:
    if width != model.n_features_in_:
        where = "" if not views else f" in {listing([repr(view) for view in views])}"
        do = (
            f"pass the columns of the fit, or its views {list(model.views_)} as files or arrays "
            "of these names"
        )
        raise InputError(
            message(f"{model.n_features_in_} columns, as at the fit", f"{width}{where}", do)
        )
