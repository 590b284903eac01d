"""Columns of tables by kind: numbers, whole numbers, two labels, ordered labels, categories.

Each kind says how its values become the numbers of a view, and how predicted numbers become values
again. Columns of numbers may be counts, in steps, or in different units: what one normal
distribution and one scale for all of them hide.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from numbers import Number as AnyNumber
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bochner.data.arrays import Float64Array, FloatArray, IntArray
from bochner.data.columns import (
    ColumnNames,
    are_row_names,
    dense_rows,
    describe_column,
    evenly_spread,
    listing,
)
from bochner.errors import DataWarning, InputError, message, shown, warn_user

Objects = NDArray[np.object_]

# Rows and numbers that are looked at, at the most, and rows at the least.
_ROWS = 4096
_NUMBERS = 2**20
_LEAST_ROWS = 64
# Share of a view's variance, and of its columns if more than one, from which the others hardly
# count.
_DOMINATES = 0.99
_FEW_COLUMNS = 0.1
# Share of it below which half of the columns are in other units than the rest.
_HARDLY = 0.01
# Share of a table's columns that may be counts, and nats by which a normal distribution has to
# describe a column better: its variance is free, and fits that of Poisson counts by chance.
_NEARLY_ALL = 0.9
_CLEARLY = 6.0
# Share of a column's largest value that its standard deviation exceeds if it varies at all.
_ROUNDED = 1e-12
# Values nearer than this share of their range are one value, written in different ways.
_SAME = 1e-9
# Labels that a message lists.
_LISTED = 20


class Column(ABC):
    """A column of a table.

    Attributes
    ----------
    view : str
        Of the columns of this kind.
    likelihood : str
        Of that view.
    reason : str
        Why, for people.
    name : str
    dtype : str
        What pandas calls the type of the training values.
    """

    view: ClassVar[str]
    likelihood: ClassVar[str]
    reason: ClassVar[str]

    def __init__(self, name: str, dtype: str) -> None:
        self.name = name
        self.dtype = dtype

    @abstractmethod
    def encode(self, values: object) -> Float64Array:
        """Return the numbers that the view holds, (n,); NaN where a value is missing.

        Parameters
        ----------
        values : Series of shape (n,)

        Raises
        ------
        InputError
            A value that the column cannot hold, with its row.
        """

    @abstractmethod
    def decode(self, numbers: FloatArray) -> Objects:
        """Return the values that predicted numbers stand for, (n,)."""

    def to_json(self) -> dict[str, object]:
        """Return plain values from which `from_json` builds the column anew."""
        return {"kind": type(self).__name__, "name": self.name, "dtype": self.dtype}


class Number(Column):
    """Fractions."""

    view = "numbers"
    likelihood = "gaussian"
    reason = "numbers, each column in units of its own"

    def encode(self, values: Any) -> Float64Array:
        """Return the numbers."""
        if getattr(values.dtype, "kind", "O") not in "biuf":
            # numpy reads texts, and dates as nanoseconds
            for row in np.flatnonzero(values.notna().to_numpy()):
                if not _is_real(value := values.iloc[row]):
                    want = f"numbers in column {self.name!r}"
                    do = "correct the value, or convert the column by pandas.to_numeric"
                    got = f"{shown(value)} in row {row}"
                    raise InputError(message(want, got, do), row=int(row))
        numbers: Float64Array = values.to_numpy(dtype=np.float64, na_value=np.nan)
        return numbers

    def decode(self, numbers: FloatArray) -> Objects:
        """Return the numbers themselves."""
        return numbers.astype(object)


class Whole(Number):
    """Whole numbers: predictions are rounded."""

    def decode(self, numbers: FloatArray) -> Objects:
        """Return the nearest whole numbers."""
        return np.array([int(value) for value in np.rint(numbers)], dtype=object)


class Labelled(Column):
    """A few values that differ.

    Parameters
    ----------
    name, dtype : str
    labels : sequence of str, bool, int or float
        In the order of their numbers 0, 1, ...
    """

    def __init__(self, name: str, dtype: str, labels: Sequence[object]) -> None:
        super().__init__(name, dtype)
        self.labels = [_plain(label, name) for label in labels]

    def encode(self, values: Any) -> Float64Array:
        """Return the positions of the values among the labels."""
        position = {label: float(k) for k, label in enumerate(self.labels)}
        missing = values.isna().to_numpy()
        numbers = np.full(len(missing), np.nan)
        for row, value in enumerate(values):
            if missing[row]:
                continue
            if value not in position:
                known = ", ".join(repr(label) for label in self.labels[:_LISTED])
                want = f"values of training in column {self.name!r} ({known})"
                do = "make it missing, or fit again with such rows"
                raise InputError(message(want, f"{shown(value)} in row {row}", do), row=row)
            numbers[row] = position[value]
        return numbers

    def decode(self, numbers: FloatArray) -> Objects:
        """Return the label of the nearest position."""
        last = len(self.labels) - 1
        index = np.clip(np.rint(numbers), 0, last).astype(int)
        values = np.empty(len(index), dtype=object)
        values[:] = [self.labels[k] for k in index]
        return values

    def to_json(self) -> dict[str, object]:
        """Return plain values."""
        return super().to_json() | {"labels": self.labels}


class Binary(Labelled):
    """Two labels, or booleans."""

    view = "binary"
    likelihood = "bernoulli"
    reason = "columns of two values"


class Ordered(Labelled):
    """Labels in an order, such as grades."""

    view = "ordered"
    likelihood = "binomial"
    reason = "ordered categories: steps up a scale"


class Categories(Labelled):
    """Labels without an order."""

    view = "categories"
    likelihood = "categorical"
    reason = "categories and texts"


KINDS: dict[str, type[Column]] = {
    cls.__name__: cls for cls in (Number, Whole, Binary, Ordered, Categories)
}
# In this order the views of a table come.
VIEWS = tuple(dict.fromkeys(cls.view for cls in KINDS.values()))


def column_of(values: Any, name: str) -> Column:
    """Return the kind of a column.

    Parameters
    ----------
    values : Series of shape (n,)
    name : str

    Raises
    ------
    InputError
        Dates, objects, or texts that name the rows.
    """
    kind = getattr(values.dtype, "kind", "O")
    dtype = str(values.dtype)
    if dtype.startswith("dictionary"):
        # Arrow's categories; pandas does not read this name of their type
        dtype = "category"
    if hasattr(values.dtype, "categories"):
        return _of_categories(values, name)
    if kind == "b":
        return Binary(name, dtype, [False, True])
    observed = values[values.notna()]
    if kind in "iu":
        two = len(observed) and observed.isin([0, 1]).all()
        return Binary(name, dtype, [0, 1]) if two else Whole(name, dtype)
    if kind == "f":
        return _of_fractions(observed.unique(), name, dtype)
    return _of_objects(observed, name, dtype)


def _of_objects(observed: Any, name: str, dtype: str) -> Column:
    """Return the kind of a column of Python's own objects."""
    try:
        distinct = list(dict.fromkeys(observed))
    except TypeError:
        # lists are no keys
        distinct = list(observed)
    if distinct and all(isinstance(value, bool | np.bool_) for value in distinct):
        return Binary(name, dtype, [False, True])
    if distinct and all(isinstance(value, str) for value in distinct):
        return _of_texts(sorted(distinct), len(observed), name, dtype)
    if distinct and all(map(_is_real, distinct)):
        return _of_fractions(distinct, name, dtype)
    do = "convert it to numbers or categories, or drop it"
    types = dict.fromkeys(type(value).__name__ for value in distinct)
    values = f"values of type {listing(list(types))}" if distinct else "no value"
    wanted = f"numbers, categories, booleans or text in {name!r}"
    raise InputError(message(wanted, f"{values} ({dtype})", do))


def _of_fractions(distinct: Iterable[object], name: str, dtype: str) -> Column:
    """Return the kind of a column of fractions, which zeros and ones become where some are
    missing.
    """
    return Binary(name, dtype, [0, 1]) if set(distinct) == {0, 1} else Number(name, dtype)


def _of_categories(values: Any, name: str) -> Column:
    declared = list(values.dtype.categories)
    if values.dtype.ordered and len(declared) > 2:
        return Ordered(name, "category", declared)
    present = set(values[values.notna()])
    labels = [label for label in declared if label in present]
    if not labels:
        got = "a category that no row has"
        do = "drop the column"
        raise InputError(message(f"a value in column {name!r}", got, do))
    kind = Binary if len(labels) < 3 else Categories
    return kind(name, "category", labels)


def _of_texts(labels: list[str], n_observed: int, name: str, dtype: str) -> Column:
    if are_row_names(len(labels), n_observed):
        got = f"{len(labels)} different texts in {n_observed} rows of column {name!r}"
        do = "drop the column, make it the index, or convert it to 'category'"
        raise InputError(message("texts that are categories", got, do))
    kind = Binary if len(labels) < 3 else Categories
    return kind(name, dtype, labels)


def from_json(plain: dict[str, Any]) -> Column:
    """Rebuild what `Column.to_json` wrote."""
    kind = KINDS[plain["kind"]]
    arguments = {key: value for key, value in plain.items() if key != "kind"}
    return kind(**arguments)


def _is_real(value: object) -> bool:
    """Return whether a float holds a value: numbers of databases (decimal.Decimal), too."""
    no_float = complex | np.complexfloating
    return isinstance(value, AnyNumber | np.bool_) and not isinstance(value, no_float)


def _plain(label: object, name: str) -> object:
    """Return a label as JSON knows it."""
    label = label.item() if isinstance(label, np.generic) else label
    infinite = isinstance(label, float) and not math.isfinite(label)
    if isinstance(label, bool | int | float | str) and not infinite:
        return label
    got = f"{label!r} of type {type(label).__name__}"
    do = "convert the categories to text"
    want = f"categories of {name!r} that are texts or finite numbers"
    raise InputError(message(want, got, do))


def least_noise(values: FloatArray) -> float:
    """Return the noise variance at which a column of discrete values tells all that it can.

    Seen through normal noise of variance s, a column of variance v tells at most log(v / s) / 2
    nats of what its values are (Cover and Thomas 2006, 9.1), and values of entropy H no more than
    H: that is s = v exp(-2 H), h^2 / 12 of many levels in steps of h, as of rounding. Below it the
    likelihood of normal noise rises without end.

    Parameters
    ----------
    values : ndarray of shape (N,)
        NaN = missing.

    Returns
    -------
    float
        0 where more than half of the observed values differ.
    """
    observed = np.asarray(values[~np.isnan(values)], dtype=np.float64)
    if not observed.size or (spread := float(np.ptp(observed))) == 0.0:
        return 0.0
    levels, counts = np.unique(observed, return_counts=True)
    same = np.diff(levels, prepend=-np.inf) > _SAME * spread
    shares = np.bincount(same.cumsum() - 1, counts) / observed.size
    if 2 * shares.size > observed.size:
        return 0.0
    entropy = -float((shares * np.log(shares)).sum())
    return float(spread**2 * np.var(observed / spread) * np.exp(-2.0 * entropy))


def warn_of_units(
    X: NDArray[np.float64], positions: IntArray, view: str, column_names: ColumnNames
) -> None:
    """Warn where one column of a Gaussian view, or a tenth of them, has nearly all of its variance.

    Parameters
    ----------
    X : ndarray of shape (n, M)
        Rows spread over all, as `sampled` returns them.
    positions : ndarray of shape (M_v,)
        Of the view's columns.
    view : str
    column_names : sequence of str, optional

    Warns
    -----
    DataWarning
        The view has one scale, so that the other columns hardly count.
    """
    variances = _variances(X[:, positions])
    varying = np.count_nonzero(variances)
    order = np.argsort(variances)[::-1]
    shares = variances[order].cumsum() / max(float(variances.sum()), np.finfo(float).tiny)
    n_large = 1 + int(np.searchsorted(shares, _DOMINATES))
    if varying < 2 or n_large > max(1.0, _FEW_COLUMNS * varying):
        return
    large = sorted(int(column) for column in positions[order[:n_large]])
    places = listing([describe_column(column, column_names) for column in large])
    place, have, beside = (
        (places, "has", "it the other columns")
        if n_large == 1
        else (
            f"columns {places.replace('column ', '')}",
            "have",
            f"them the other {varying - n_large}",
        )
    )
    warn_user(
        f"{place[0].upper()}{place[1:]} {have} {_percent(float(shares[n_large - 1]))} % of the "
        f"variance of view {view!r}: beside {beside} hardly count. Columns in different units ask "
        "for a scale each: divide them by their standard deviations (scikit-learn's "
        "StandardScaler), or fit a pandas.DataFrame with likelihood='auto' (--likelihood auto) and "
        "without views.",
        DataWarning,
    )


def differ_in_units(X: FloatArray) -> bool:
    """Return whether half of the columns that vary have next to nothing of the variance, X of shape
    (N, M).
    """
    variances = np.sort(_variances(sampled(X)))
    varying = variances[variances > 0.0]
    lower = varying[: varying.size // 2]
    return bool(lower.size and lower.sum() < _HARDLY * varying.sum())


def are_counts(X: FloatArray) -> bool:
    """Return whether nearly all columns of whole numbers of at least 0, (N, M), may be counts: a
    negative binomial distribution (a Poisson where they vary less) describes them not clearly worse
    than a normal one, each with the column's mean and variance. Years, codes and numbers of rows
    are none. Columns of zeros and ones say neither; beside more of these, numbers far from 0 for
    their spread are no counts.
    """
    columns = [x[~np.isnan(x)] for x in sampled(X).T]
    varying = [x for x in columns if x.size and np.ptp(x) > 0.0]
    informative = [x for x in varying if x.max() > 1.0]
    # years pass where they are many; beside zeros and ones they are far from these
    far = all(x.min() > 2.0 * np.ptp(x) for x in informative)
    if 2 * len(informative) <= len(varying) and far:
        return not informative
    may_be = sum(_gain_of_counts(x) > -max(_CLEARLY, math.log(x.size)) for x in informative)
    return bool(may_be >= _NEARLY_ALL * len(informative))


def _gain_of_counts(y: NDArray[np.float64]) -> float:
    """Return the log likelihood as counts less that as rounded normal numbers, (n,)."""
    # files are read without it
    from scipy.special import gammaln, log_ndtr

    mean = y.mean()
    variance = y.var()
    factorials = gammaln(y + 1.0)
    if variance > mean:
        r = mean * mean / (variance - mean)
        counts = gammaln(y + r) - gammaln(r) - factorials - r * np.log1p(mean / r)
        counts += y * np.log(mean / (r + mean))
    else:
        counts = y * np.log(mean) - mean - factorials
    # to the side of the mean where probabilities keep their digits
    away = -np.abs(y - mean)
    std = np.sqrt(variance)
    upper, lower = log_ndtr((away + 0.5) / std), log_ndtr((away - 0.5) / std)
    normal = upper + np.log1p(-np.exp(lower - upper))
    return float(counts.sum() - normal.sum())


def sampled(X: FloatArray, n_rows: int | None = None, start: int = 0) -> NDArray[np.float64]:
    """Return rows spread over all, (n, M), dense and in double precision.

    Parameters
    ----------
    X : array, scipy sparse matrix or row source of shape (N, M)
        All rows, or those of one process.
    n_rows : int, optional
        Of all processes.
    start : int
        Which of these is the first one here.
    """
    most = max(_LEAST_ROWS, min(_ROWS, _NUMBERS // max(1, X.shape[1])))
    index = evenly_spread(n_rows or X.shape[0], most) - start
    here = index[(index >= 0) & (index < X.shape[0])]
    return dense_rows(X, here).astype(np.float64)


def _variances(X: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the columns' variances over the largest square, which cannot overflow; 0 where they
    are rounding.
    """
    observed = ~np.isnan(X)
    count = np.maximum(observed.sum(axis=0), 1)
    peaks = np.abs(np.where(observed, X, 0.0)).max(axis=0, initial=0.0)
    values = np.where(observed, X, 0.0) / max(float(peaks.max(initial=0.0)), 1e-300)
    away = np.where(observed, values - values.sum(axis=0) / count, 0.0)
    squares: NDArray[np.float64] = (away**2).sum(axis=0) / count
    rounded = squares <= (_ROUNDED * np.abs(values).max(axis=0, initial=0.0)) ** 2
    return np.where(rounded, 0.0, squares)


def _percent(share: float) -> str:
    """Return a share as percent, never 100 where there is a rest."""
    return f"{min(100.0 * share, 99.9):.1f}"
