"""Types of the columns of a DataFrame: by their names, and with predicted values in them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from decimal import Context, Decimal
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bochner.data.kinds import Column, Ordered
from bochner.extras import require

_SPARSE = re.compile(r"Sparse\[(\w+), (.+)\]")
_DECIMAL = re.compile(r"(decimal\d+)\((\d+), (-?\d+)\)\[pyarrow\]")
_ARROW = "[pyarrow]"
# decimal256 has 76 digits
_DIGITS = Context(prec=100)


def is_categorical(dtype: object) -> bool:
    """Return whether a type is that of categories, of pandas or of Arrow."""
    return hasattr(dtype, "categories") or str(dtype).startswith("dictionary")


def type_named(name: str) -> Any:
    """Return the type of pandas that has a name.

    Parameters
    ----------
    name : str
        What ``str`` makes of a type. Of some of these pandas does not read their names.

    Returns
    -------
    dtype or ExtensionDtype
        That of objects where nothing has the name: a type of another package, say.
    """
    pandas = require("pandas", "holds tables")
    try:
        if found := _SPARSE.fullmatch(name):
            plain, text = found.groups()
            fill = np.nan if text == "nan" else ast.literal_eval(text)
            return pandas.SparseDtype(plain, fill)
        if name.endswith(_ARROW):
            return pandas.ArrowDtype(_arrow(name))
        return pandas.api.types.pandas_dtype(name)
    except (TypeError, ValueError, NotImplementedError):
        return np.dtype(object)


def _arrow(name: str) -> Any:
    arrow = require("pyarrow", "holds columns of Arrow")
    if found := _DECIMAL.fullmatch(name):
        kind, precision, scale = found.groups()
        return getattr(arrow, kind)(int(precision), int(scale))
    return arrow.type_for_alias(name.removesuffix(_ARROW))


def holding(values: Iterable[object], dtype: Any) -> NDArray[np.object_]:
    """Return predicted values as a type holds them: whole where it is one of whole numbers, and
    the nearest of its range beyond that.

    Parameters
    ----------
    values : iterable
        Numbers of Python or labels; these stay what they are.
    dtype : dtype or ExtensionDtype
    """
    given = list(values)
    out = np.empty(len(given), dtype=object)
    convert = _converter(dtype) if all(isinstance(value, Real) for value in given) else None
    out[:] = given if convert is None else [convert(value) for value in given]
    return out


def _converter(dtype: Any) -> Any:
    """Return what makes a number one of a type; None where the type holds all."""
    if found := _DECIMAL.fullmatch(str(dtype)):
        precision, scale = map(int, found.groups()[1:])
        step = Decimal(1).scaleb(-scale)
        most = step * (10**precision - 1)
        return lambda value: _within(_DIGITS.quantize(Decimal(value), step), -most, most)
    plain = _numpy_type(dtype)
    if plain.kind == "b":
        return lambda value: bool(_within(round(value), 0, 1))
    if plain.kind in "iu":
        whole = np.iinfo(plain)
        return lambda value: _within(round(value), int(whole.min), int(whole.max))
    if plain.kind == "f":
        real = np.finfo(plain)
        return lambda value: _within(value, float(real.min), float(real.max))
    return None


def _within(value: Any, least: Any, most: Any) -> Any:
    return min(max(value, least), most)


def _numpy_type(dtype: Any) -> np.dtype[Any]:
    """Return numpy's type for what a column of pandas holds, without what is missing."""
    plain = getattr(dtype, "numpy_dtype", getattr(dtype, "subtype", dtype))
    return plain if isinstance(plain, np.dtype) else np.dtype(object)


def nullable(dtype: Any) -> Any:
    """Return the type with the same values, and missing ones."""
    if not isinstance(dtype, np.dtype) or dtype.kind not in "iub":
        return dtype
    if dtype.kind == "b":
        return "boolean"
    return f"{'UInt' if dtype.kind == 'u' else 'Int'}{8 * dtype.itemsize}"


def cast(values: Any, column: Column, dtype: Any) -> Any:
    """Return values of a column as a type; new labels join the categories.

    Parameters
    ----------
    values : Series of objects
    column : Column
    dtype : dtype or ExtensionDtype
    """
    if hasattr(dtype, "categories"):
        return values.astype(_categories(values, column, dtype))
    if hasattr(dtype, "subtype") and hasattr(dtype, "fill_value"):
        # sparse columns are made from numbers, not from objects
        return values.astype(dtype.subtype).astype(dtype)
    return values.astype(dtype)


def _categories(values: Any, column: Any, dtype: Any) -> object:
    """Return the categories of X, or those of training where X lacks a predicted one."""
    if dtype.categories is not None and set(values.dropna()) <= set(dtype.categories):
        return dtype
    pandas = require("pandas", "holds tables")
    return pandas.CategoricalDtype(column.labels, ordered=isinstance(column, Ordered))
