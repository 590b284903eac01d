"""What rows look like to the caller: plain numbers, or the columns of a mixed table."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeGuard

import numpy as np

from bochner.data.arrays import BoolArray, FloatArray
from bochner.data.columns import describe_column, listing, named_columns
from bochner.data.kinds import (
    VIEWS,
    Binary,
    Categories,
    Column,
    Labelled,
    Number,
    Ordered,
    Whole,
    are_counts,
    column_of,
    differ_in_units,
    from_json,
)
from bochner.data.support import COUNTS, guess, vary_too_little
from bochner.data.views import Views
from bochner.errors import InputError, message
from bochner.estimators.column_types import cast, holding, is_categorical, nullable, type_named
from bochner.extras import require
from bochner.likelihoods import Binomial, Categorical

if TYPE_CHECKING:
    import pandas as pd

# Share of columns of zeros and ones that are labels, whatever the others are.
MATERIAL = 0.1


class Coding(ABC):
    """How rows of the caller become numbers, and numbers rows of the caller.

    Attributes
    ----------
    of_frames : bool
        Whether only a DataFrame holds rows as the caller knows them.
    """

    of_frames: ClassVar[bool] = False

    @abstractmethod
    def encode(self, X: object) -> object:
        """Return rows as numbers."""

    @abstractmethod
    def complete(self, X: object, values: FloatArray, missing: BoolArray) -> object:
        """Return X with what is missing replaced.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n, M)
        values : ndarray of shape (n, M)
            Numbers, complete.
        missing : ndarray of bool, shape (n, M)
        """

    def complete_draws(self, X: object, values: FloatArray, missing: BoolArray) -> object:
        """Return X completed several times, from numbers of shape (n_draws, n, M): of a DataFrame
        a list of DataFrames, else an array.
        """
        if not _is_frame(X):
            return values
        return [self.complete(X, drawn, missing) for drawn in values]

    @abstractmethod
    def hide(self, X: object, hidden: BoolArray, values: FloatArray) -> object:
        """Return X without the entries that are hidden."""

    def without_unknown(self, X: object) -> object:
        """Return X with labels missing that training did not see."""
        return X

    @abstractmethod
    def rows(self, values: FloatArray) -> object:
        """Return new rows as the caller knows them."""

    @abstractmethod
    def views(self, asked: object) -> object:
        """Return the columns of every view."""

    @abstractmethod
    def scaled(self, data: Views) -> Views:
        """Return data in the units of the fit."""

    @abstractmethod
    def likelihood(self, asked: object, data: Views) -> object:
        """Return the likelihood of every view."""

    @abstractmethod
    def labels(self) -> dict[int, list[str]]:
        """Return the labels of training by column, in the order of their numbers."""

    @abstractmethod
    def reasons(self) -> list[str]:
        """Say which likelihoods were chosen and why."""

    @abstractmethod
    def noise(self, asked: str, per_column: bool) -> str:
        """Return whether noise is per view or per column, which not all kernels take."""

    @abstractmethod
    def to_json(self) -> object:
        """Return plain values from which `coding_from_json` builds this anew."""


class Plain(Coding):
    """Numbers as they are."""

    def encode(self, X: object) -> object:
        """Return X."""
        if _is_frame(X):
            _refuse_categories(X)
        return X

    def complete(self, X: object, values: FloatArray, missing: BoolArray) -> object:
        """Return an array, or a DataFrame with the types of X."""
        if not _is_frame(X):
            return values
        if set(X.dtypes) == {values.dtype}:
            return type(X)(values, columns=X.columns, index=X.index)
        columns = [_number_of(X.iloc[:, j], str(name)) for j, name in enumerate(X.columns)]
        return _filled(columns, X, values, missing)

    def hide(self, X: object, hidden: BoolArray, values: FloatArray) -> object:
        """Return numbers with NaN where they are hidden."""
        shown = np.where(hidden, np.nan, values)
        return type(X)(shown, columns=X.columns, index=X.index) if _is_frame(X) else shown

    def rows(self, values: FloatArray) -> object:
        """Return the numbers."""
        return values

    def views(self, asked: object) -> object:
        """Return the views as asked for."""
        return asked

    def scaled(self, data: Views) -> Views:
        """Return the data: their scale is one per view."""
        return data

    def likelihood(self, asked: object, data: Views) -> object:
        """Return the likelihood as asked for."""
        del data
        return asked

    def labels(self) -> dict[int, list[str]]:
        """Return none: numbers are numbers."""
        return {}

    def reasons(self) -> list[str]:
        """Return nothing: values decide, view by view."""
        return []

    def noise(self, asked: str, per_column: bool) -> str:
        """Return what is asked for."""
        del per_column
        return asked

    def to_json(self) -> object:
        """Return None."""
        return None


class Mixed(Coding):
    """Columns of a DataFrame by kind: each kind is a view with a likelihood of its own.

    Numbers stay as they are, labels become their positions among the labels of training. Numbers
    are fitted in units of their columns' standard deviations, with a noise variance for each.

    Parameters
    ----------
    columns : sequence of Column
    names : sequence
        Of the columns, as X has them.
    """

    of_frames = True

    def __init__(self, columns: Sequence[Column], names: Sequence[object]) -> None:
        self.columns = list(columns)
        self.names = list(names)

    def encode(self, X: object) -> object:
        """Return a DataFrame of numbers; arrays hold such numbers already."""
        if not _is_frame(X):
            return X
        # files hold names as texts
        if [str(name) for name in X.columns] != [str(name) for name in self.names]:
            raise self._refusal({str(name): name for name in X.columns})
        values = [column.encode(X.iloc[:, j]) for j, column in enumerate(self.columns)]
        return type(X)(np.column_stack(values), columns=X.columns, index=X.index)

    def _refusal(self, given: Mapping[str, object]) -> InputError:
        """Return the error that names the first column at the wrong place."""
        known = [str(name) for name in self.names]
        texts = all(isinstance(name, str) for name in self.names)
        # scikit-learn keeps names where all are texts
        names = "model.feature_names_in_" if texts else _written(self.names)
        lacking = [repr(name) for name in known if name not in given]
        extra = [repr(name) for name in given if name not in known]
        got = f"without {listing(lacking)}" if lacking else f"with {listing(extra)}"
        if not (lacking or extra):
            got = "in another order"
        if lacking:
            do = (
                "add them, empty where nothing is known: "
                f"X = X.reindex(columns={names}), in a file empty columns"
            )
        else:
            # which texts may stand for
            names = names if texts else _written([given[name] for name in known])
            do = f"take those of training in their order: X = X[{names}]"
        return InputError(message(f"the {len(known)} columns of training", got, do))

    def complete(self, X: object, values: FloatArray, missing: BoolArray) -> object:
        """Return a DataFrame with the types of X; of an array of numbers an array."""
        if not _is_frame(X):
            return values
        return _filled(self.columns, X, values, missing)

    def hide(self, X: object, hidden: BoolArray, values: FloatArray) -> object:
        """Return X with what is hidden missing; whole numbers stay whole, and are fitted so."""
        if not _is_frame(X):
            return np.where(hidden, np.nan, values)
        types = {name: nullable(dtype) for name, dtype in X.dtypes.items()}
        return X.astype(types).mask(hidden)

    def without_unknown(self, X: object) -> object:
        """Return a DataFrame with labels missing that training did not see; an array as it is."""
        if not _is_frame(X):
            return X
        out: Any = X.copy()
        for j, column in enumerate(self.columns):
            if isinstance(column, Labelled):
                values = X.iloc[:, j]
                out.isetitem(j, values.where(values.isin(column.labels)))
        return out

    def rows(self, values: FloatArray) -> object:
        """Return a DataFrame with the types of training."""
        pandas = require("pandas", "holds tables")
        types = [type_named(column.dtype) for column in self.columns]
        series = [
            cast(pandas.Series(holding(column.decode(drawn), dtype)), column, dtype)
            for drawn, column, dtype in zip(values.T, self.columns, types, strict=True)
        ]
        return pandas.concat(series, axis=1, keys=self.names)

    def views(self, asked: object) -> object:
        """Return the columns of each kind."""
        if asked is not None:
            do = (
                "leave views out, or convert the columns to numbers and name their likelihoods"
            )
            raise InputError(message("no views for a mixed table", "views", do))
        places = {view: self._of(view) for view in VIEWS}
        return {view: positions for view, positions in places.items() if positions}

    def _of(self, view: str) -> list[int]:
        return [j for j, column in enumerate(self.columns) if column.view == view]

    def scaled(self, data: Views) -> Views:
        """Return the data with one scale per column of numbers."""
        return data.scaled_by_column(Number.view) if self._of(Number.view) else data

    def likelihood(self, asked: object, data: Views) -> object:
        """Return the likelihood of each kind."""
        del asked
        kinds = {column.view: column.likelihood for column in self.columns}
        chosen: dict[str, object] = {view: kinds[view] for view in data.names}
        grades = [column for column in self.columns if isinstance(column, Ordered)]
        if grades:
            chosen[Ordered.view] = Binomial([len(column.labels) - 1 for column in grades])
        named = [column for column in self.columns if isinstance(column, Categories)]
        if named:
            # what is declared a category may differ from row to row
            codes = [[float(k) for k in range(len(column.labels))] for column in named]
            chosen[Categories.view] = Categorical(codes)
        return chosen

    def labels(self) -> dict[int, list[str]]:
        """Return those of categories, of ordered ones and of truth values."""
        return {
            j: [str(label) for label in column.labels]
            for j, column in enumerate(self.columns)
            if isinstance(column, Labelled)
        }

    def reasons(self) -> list[str]:
        """Return a line per view."""
        return [
            f"view {column.view!r}: likelihood {column.likelihood!r}, because of {column.reason}"
            for column in {column.view: column for column in self.columns}.values()
        ]

    def noise(self, asked: str, per_column: bool) -> str:
        """Return noise per column: columns of a table were measured in different ways."""
        return "column" if per_column else asked

    def to_json(self) -> object:
        """Return the columns."""
        names = [name if isinstance(name, str | int) else str(name) for name in self.names]
        return {"columns": [column.to_json() for column in self.columns], "names": names}


def coding_of(X: object, likelihood: object, views: object) -> Coding:
    """Return how X is to be coded.

    Parameters
    ----------
    X : array-like, sparse matrix or DataFrame
    likelihood, views : parameters of an estimator
        A DataFrame with columns of several kinds, or in different units, is a mixed table where the
        likelihood is "auto"; with ``views`` only if some of its columns are no numbers.
    """
    if not _is_frame(X):
        return Plain()
    if not (isinstance(likelihood, str) and likelihood == "auto"):
        _check_numbers(X)
        return Plain()
    if not len(X):
        return Plain()
    columns = [column_of(X.iloc[:, j], str(name)) for j, name in enumerate(X.columns)]
    only_numbers = all(_is_number(X.iloc[:, j].dtype) for j in range(X.shape[1]))
    if only_numbers and (views is not None or _alike(X, columns)):
        return Plain()
    _check_names(X)
    return Mixed(columns, list(X.columns))


def _alike(X: pd.DataFrame, columns: Sequence[Column]) -> bool:
    """Return whether one likelihood and one scale are right for all columns of a table of
    numbers.
    """
    kinds = {type(column) for column in columns}
    if len(kinds & {Number, Whole}) > 1:
        return False
    if kinds == {Binary}:
        return True
    values = X.to_numpy(dtype=np.float64, na_value=np.nan)
    # what is infinite, or far too large, is refused later, by its place
    with np.errstate(all="ignore"):
        if guess(values)[0] in COUNTS:
            return are_counts(values)
        labels = np.array([isinstance(column, Binary) for column in columns])
        if labels.any() and _set_apart(values, labels):
            return False
        return not (vary_too_little(values) or differ_in_units(values))


def _set_apart(values: FloatArray, labels: BoolArray) -> bool:
    """Return whether columns of zeros and ones, where `labels` is True, are labels beside others
    that are measured. Images have pixels of two values, too: few, whole as all are or within what
    all others are.
    """
    if not (np.nan_to_num(values) % 1.0 != 0.0).any():
        return False
    measured = values[:, ~labels]
    beyond = bool(((measured < 0.0) | (measured > 1.0)).any())
    return beyond or labels.mean() >= MATERIAL


def _number_of(values: Any, name: str) -> Column:
    """Return the kind of a column of numbers by its type alone: what new rows hold says nothing."""
    kind = values.dtype.kind
    if kind == "b":
        return column_of(values, name)
    return (Whole if kind in "iu" else Number)(name, str(values.dtype))


def as_frame(X: Any, likelihood: object) -> Any:
    """Return a table of Arrow or Polars as a DataFrame where it may be a mixed one: where the
    likelihood is "auto". Whatever else as it is.
    """
    other = hasattr(X, "schema") and hasattr(X, "to_pandas") and not _is_frame(X)
    if not (other and isinstance(likelihood, str) and likelihood == "auto"):
        return X
    for library in ("pandas", "pyarrow"):
        require(library, "holds mixed tables of Arrow and Polars")
    return X.to_pandas()


def of_views(X: object, views: object) -> Any:
    """Return the columns of a DataFrame that views name: others stay out. X itself where it is none
    or views select otherwise.
    """
    if not _is_frame(X):
        return X
    chosen = named_columns(views, [str(name) for name in X.columns])
    return X if chosen is None or len(chosen) == X.shape[1] else X.iloc[:, chosen]


def coding_from_json(plain: Mapping[str, Any] | None) -> Coding:
    """Rebuild what `Coding.to_json` wrote."""
    if plain is None:
        return Plain()
    return Mixed([from_json(column) for column in plain["columns"]], plain["names"])


def _check_numbers(X: pd.DataFrame) -> None:
    """Refuse a column of text, and say how tables with such columns are fitted."""
    for j, name in enumerate(X.columns):
        values = X.iloc[:, j]
        if getattr(values.dtype, "kind", "O") not in "OU":
            continue
        for row, value in enumerate(values):
            if isinstance(value, str):
                where = describe_column(j, [str(name)] * (j + 1))
                got = f"the text {value!r} in row {row}, {where}"
                do = "drop the column, or fit the mixed table with likelihood='auto'"
                raise InputError(message("numbers", got, do), row=row)


def _refuse_categories(X: pd.DataFrame) -> None:
    """Refuse a column of categories that are numbers: as numbers they are completed by others."""
    for j, dtype in enumerate(X.dtypes):
        labels = getattr(dtype, "categories", ())
        # texts are refused by their place
        if is_categorical(dtype) and not any(isinstance(label, str) for label in labels):
            where = describe_column(j, [str(name) for name in X.columns])
            do = (
                "fit the mixed table with likelihood='auto', or convert the column to numbers by "
                "astype(float)"
            )
            raise InputError(message("numbers", f"categories in {where}", do))


def _is_number(dtype: object) -> bool:
    return getattr(dtype, "kind", "O") in "iuf" and not is_categorical(dtype)


def _written(names: Sequence[object]) -> str:
    """Return what to type for names of columns."""
    counted = list(names) == list(range(len(names)))
    return f"range({len(names)})" if counted else repr(list(names))


def _check_names(X: pd.DataFrame) -> None:
    names = [str(name) for name in X.columns]
    for j, name in enumerate(names):
        if name in names[:j]:
            got = f"{name!r} again at {describe_column(j)}"
            raise InputError(message("column names that differ", got, "rename one of them"))


def _is_frame(X: object) -> TypeGuard[pd.DataFrame]:
    """Whether X is a DataFrame of pandas."""
    return hasattr(X, "iloc") and hasattr(X, "dtypes") and hasattr(X, "columns")


def _filled(
    columns: Sequence[Column], X: pd.DataFrame, values: FloatArray, missing: BoolArray
) -> object:
    """Return X with predictions in place of what is missing; other entries are left alone."""
    out = X.copy()
    for j, column in enumerate(columns):
        rows = np.flatnonzero(missing[:, j])
        if not rows.size:
            continue
        before = X.iloc[:, j]
        dtype = _dtype(before, column)
        if type(column) is Number and isinstance(dtype, np.dtype) and dtype.kind == "f":
            # objects take a hundred times as long
            ends = np.finfo(dtype)
            cells = before.to_numpy(copy=True)
            cells[rows] = np.clip(values[rows, j], ends.min, ends.max)
            out.isetitem(j, cells)
            continue
        cells = before.to_numpy(dtype=object, copy=True)
        cells[rows] = holding(column.decode(values[rows, j]), dtype)
        full = type(before)(cells, index=before.index, dtype=object)
        out.isetitem(j, cast(full, column, dtype))
    return out


def _dtype(before: Any, column: Column) -> object:
    """Return the type of a completed column: its own, but for an empty column of numbers, which
    cannot hold labels, or of nothing.
    """
    dtype = before.dtype
    narrow = isinstance(column, Labelled) and getattr(dtype, "kind", "O") in "biufmM"
    if (narrow or str(dtype) == "null[pyarrow]") and before.isna().all():
        return type_named(column.dtype)
    return dtype
