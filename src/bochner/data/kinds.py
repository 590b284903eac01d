"""Columns of tables by kind: numbers, whole numbers, two labels, ordered labels, categories.

Each kind says how its values become the numbers of a view, and how predicted numbers become values
again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from numbers import Number as AnyNumber
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bochner.data.arrays import FloatArray
from bochner.data.columns import are_row_names, listing
from bochner.errors import InputError, message, shown

Array = NDArray[np.float64]
Objects = NDArray[np.object_]

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
    def encode(self, values: object) -> Array:
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

    def encode(self, values: Any) -> Array:
        """Return the numbers."""
        if getattr(values.dtype, "kind", "O") not in "biuf":
            # numpy reads texts, and dates as nanoseconds
            for row in np.flatnonzero(values.notna().to_numpy()):
                if not _is_real(value := values.iloc[row]):
                    want = f"numbers in column {self.name!r}"
                    do = "correct the value, or convert the column by pandas.to_numeric"
                    raise InputError(message(want, f"{shown(value)} in row {row}", do))
        numbers: Array = values.to_numpy(dtype=np.float64, na_value=np.nan)
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

    def encode(self, values: Any) -> Array:
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
                raise InputError(message(want, f"{shown(value)} in row {row}", do))
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
    if isinstance(label, bool | int | float | str):
        return label
    got = f"{label!r} of type {type(label).__name__}"
    do = "convert the categories to text"
    raise InputError(message(f"categories of {name!r} that are texts or numbers", got, do))
