"""Views as users keep them (DataFrames, arrays, AnnData, MuData) to one matrix, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bochner.data.accepted import as_rows
from bochner.data.columns import listing
from bochner.data.row_sources import ArraySource, JoinedSource, RowSource, source_of
from bochner.data.validation import as_array, check_shared_rows
from bochner.errors import DataWarning, InputError, message, shown, warn_user
from bochner.extras import require
from bochner.io.annotated import from_anndata, from_mudata
from bochner.io.frames import from_frame
from bochner.io.join import beside_numbers, check_unique, join
from bochner.io.table import Table, as_matrix, dense

if TYPE_CHECKING:
    import pandas as pd

REAL = ".real"
IMAG = ".imag"


def stack(views: object) -> tuple[object, dict[str, slice]]:
    """Lay views side by side: what an estimator takes.

    Parameters
    ----------
    views : dict of str to DataFrame, array (N, M_v), sparse matrix or AnnData; or a MuData
        With an index, rows are joined by its names: a row that a view lacks is NaN there, and rows
        stand in the order of first appearance. Without, all views have the same rows. A complex
        view ``h`` becomes two views, ``h.real`` and ``h.imag``; `unstack` makes it whole again.
        Rows on disk, as `bochner.open_rows` returns them, memory maps and arrays of zarr or HDF5
        stay there; with them, all views are rows on disk or arrays, of the same rows.

    Returns
    -------
    X : DataFrame, ndarray or RowSource, shape (N, M)
        A DataFrame where the views have an index, a source where any view is on disk. float32 when
        all views are, else float64. Columns that have the same name in two views are called
        ``view:name``.
    views : dict of str to slice
        The columns of every view, for the parameter of this name.

    Raises
    ------
    InputError
        Labels that repeat (named), text (with its place), views without an index beside views with
        one, or views without an index of unequal length.

    Warns
    -----
    DataWarning
        No row ties two views: their names are often written in two ways. Rows to be placed may
        lack a view each; ``fit`` refuses such data.

    Examples
    --------
    >>> import numpy as np
    >>> X, views = stack({"a": np.zeros((3, 2)), "h": np.ones((3, 4)) * 1j})
    >>> X.shape, views
    ((3, 10), {'a': slice(0, 2, None), 'h.real': slice(2, 6, None), 'h.imag': slice(6, 10, None)})
    """
    if hasattr(views, "mod") and not isinstance(views, Mapping):
        table = from_mudata(views)
        types = [
            getattr(modality.X, "dtype", np.dtype(np.float64))
            for modality in views.mod.values()
        ]
        _warn_unshared(table)
        return _out(table, types), dict(table.views or {})
    if not isinstance(views, Mapping) or not views:
        got = f"{type(views).__name__}" if not isinstance(views, Mapping) else "an empty dict"
        raise InputError(
            message(
                'a dict such as {"rna": A, "protein": B}, or a MuData', got, "name the views"
            )
        )
    sources = {str(view): source_of(value) for view, value in views.items()}
    if any(source is not None for source in sources.values()):
        return _joined_sources(views, sources)
    halves = [
        pair for view, value in views.items() for pair in _split(str(view), value).items()
    ]
    check_unique([name for name, _ in halves], "view", "the views")
    parts = dict(halves)
    table = join({name: _table(name, part) for name, part in parts.items()}, "view")
    _warn_unshared(table)
    return _out(table, [_dtype(part) for part in parts.values()], _labels(parts)), dict(
        table.views or {}
    )


def _joined_sources(
    views: Mapping[str, Any], sources: Mapping[str, RowSource | None]
) -> tuple[RowSource, dict[str, slice]]:
    """Lay rows on disk side by side, and arrays in memory beside them."""
    rows: dict[str, RowSource] = {}
    for (name, source), value in zip(sources.items(), views.values(), strict=True):
        if source is None and not isinstance(value, np.ndarray):
            got = f"{type(value).__name__} for view {name!r}"
            do = "pass its values, rows in the order of those on disk"
            raise InputError(message("rows on disk or arrays in all views", got, do))
        rows[name] = ArraySource(value) if source is None else source
    counts = {name: source.n_rows for name, source in rows.items()}
    if len(set(counts.values())) > 1:
        got = listing([f"{name!r}: {count:,}" for name, count in counts.items()])
        do = "give each view all rows, NaN where it has none"
        raise InputError(message("the same number of rows in every view", got, do))
    tables = {
        name: Table(np.empty((0, source.n_columns)), None, source.columns)
        for name, source in rows.items()
    }
    beside = beside_numbers(tables, None)
    return JoinedSource(list(rows.values()), beside["column_names"]), beside["views"]


def _warn_unshared(table: Table) -> None:
    """Say where no row has two views: the same sample may have two names."""
    if table.row_names is None:
        return
    views = {
        view: place
        for view, place in (table.views or {}).items()
        if not np.isnan(table.X[:, place]).all()
    }
    try:
        check_shared_rows(table.X, views, table.row_names)
    except InputError as error:
        warn_user(f"{error} Rows to be placed may be so, a fit refuses them.", DataWarning)


def unstack(X: Any, views: Mapping[str, slice]) -> dict[str, object]:
    """Take a matrix of `stack` apart: one array or DataFrame per view, complex ones whole again.

    Parameters
    ----------
    X : DataFrame or ndarray, shape (n, M)
        As `stack` returned it, completed or predicted.
    views : dict of str to slice
        As `stack` returned them.

    Returns
    -------
    dict of str to DataFrame or ndarray, shape (n, M_v)
    """
    if not isinstance(views, Mapping) or not all(
        isinstance(place, slice) for place in views.values()
    ):
        got = f"{type(views).__name__}: {shown(views)}"
        raise InputError(
            message("the slices that stack returned", got, "pass its second value")
        )
    if not hasattr(X, "iloc") and np.ndim(X := as_array("X", X)) != 2:
        raise InputError(
            message("X of shape (rows, columns)", f"shape {X.shape}", "reshape it")
        )
    for name, place in views.items():
        if place.stop is not None and place.stop > X.shape[1]:
            got = f"{X.shape[1]} columns, where view {name!r} ends at {place.stop}"
            do = "pass a matrix with all columns that stack returned"
            raise InputError(message("the columns of all views", got, do))
    parts = {
        name: X.iloc[:, place] if hasattr(X, "iloc") else X[:, place]
        for name, place in views.items()
    }
    out: dict[str, Any] = {}
    for name, part in parts.items():
        whole = name.removesuffix(REAL)
        if name.endswith(REAL) and whole + IMAG in parts:
            other = np.asarray(parts[whole + IMAG])
            out[whole] = part + 1j * other
            if hasattr(part, "columns"):
                out[whole].columns = [
                    str(c).removeprefix(f"{name}:").removesuffix(REAL) for c in part.columns
                ]
        elif not (name.endswith(IMAG) and name.removesuffix(IMAG) + REAL in parts):
            out[name] = part
    return out


def _split(name: str, value: Any) -> dict[str, object]:
    """Return a view, or the two views of a complex one."""
    if hasattr(value, "iloc") and value.ndim == 1:
        value = value.to_frame()
    value = as_array(f"view {name!r}", value) if isinstance(value, list | tuple) else value
    value = as_rows(value) if isinstance(value, np.ma.MaskedArray) else value
    kinds = [
        getattr(d, "kind", "O")
        for d in getattr(value, "dtypes", [getattr(value, "dtype", None)])
    ]
    if "c" not in kinds:
        return {name: value}
    if not hasattr(value, "iloc"):
        return {name + REAL: value.real, name + IMAG: value.imag}
    halves = {}
    for suffix, half in ((REAL, np.real), (IMAG, np.imag)):
        part = value.apply(half)
        part.columns = [f"{column}{suffix}" for column in value.columns]
        halves[name + suffix] = part
    return halves


def _table(name: str, value: object) -> Table:
    place = f"view {name!r}"
    if hasattr(value, "iloc"):
        return from_frame(cast("pd.DataFrame", value), place)
    if hasattr(value, "obs_names"):
        return from_anndata(value, place=place)
    if sp.issparse(value):
        return Table(dense(value, place))
    array = as_array(place, value)
    if array.dtype.kind == "O":
        array = _numeric(array, place)
    return Table(as_matrix(array, place))


def _numeric(array: NDArray[np.generic], place: str) -> NDArray[np.float64]:
    """Objects that are numbers are numbers; text is named with its place."""
    try:
        return array.astype(np.float64)
    except (TypeError, ValueError) as error:
        bad = next(
            (tuple(map(int, i)) for i in np.ndindex(array.shape) if isinstance(array[i], str)),
            None,
        )
        got = (
            f"the text {array[bad]!r} in row {bad[0]}, column {bad[-1]} of {place}"
            if bad
            else f"objects in {place}"
        )
        raise InputError(
            message("numbers", got, "convert them to numbers (NaN where missing)")
        ) from error


def _dtype(value: Any) -> np.dtype[np.generic]:
    if hasattr(value, "obs_names"):
        value = value.X
    kinds = {
        getattr(d, "name", "")
        for d in getattr(value, "dtypes", [getattr(value, "dtype", None)])
    }
    return np.dtype(np.float32) if kinds == {"float32"} else np.dtype(np.float64)


def _labels(parts: Mapping[str, object]) -> dict[str, object]:
    """Return row labels by their text: numbers stay numbers in the index of the result."""
    labels: dict[str, object] = {}
    for part in parts.values():
        index: Any = (
            part.obs_names if hasattr(part, "obs_names") else getattr(part, "index", ())
        )
        # lists have a method of this name
        if not callable(index):
            labels = {**{str(label): label for label in index}, **labels}
    return labels


def _out(
    table: Table,
    types: list[np.dtype[np.generic]],
    labels: Mapping[str, object] | None = None,
) -> Any:
    X = table.X.astype(np.float32) if all(dtype == np.float32 for dtype in types) else table.X
    if table.row_names is None:
        return X
    pandas = require("pandas", "joins rows by name")
    index = [name if labels is None else labels[name] for name in table.row_names]
    return pandas.DataFrame(X, index=index, columns=table.column_names)
