"""What callers hand over: types of arguments, and which containers and entries can be rows of
numbers; all others are refused by name before another library converts them, or fails to.
"""

from __future__ import annotations

import datetime
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from numbers import Integral, Number
from typing import Any, ParamSpec, TypeGuard, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils._param_validation import Interval, validate_parameter_constraints

from bochner.data.arrays import frame_without_na, is_na
from bochner.data.columns import ColumnNames, describe_column
from bochner.data.file_arrays import check_places, computable
from bochner.errors import InputError, message, shown

P = ParamSpec("P")
R = TypeVar("R")

COUNT = Interval(Integral, 1, None, closed="left")
COUNT_OR_NONE = Interval(Integral, 0, None, closed="left")
FLAG = "boolean"
# Constraints that True and False meet.
_FLAGS = (FLAG, "verbose")

_ROWS = "rows as an array, DataFrame or sparse matrix"
_DATES = (datetime.date, datetime.time, datetime.timedelta, np.datetime64, np.timedelta64)
_CONVERT = "convert the column to numbers (NaN where a value is missing) or drop it"
_MIXED = "fit the mixed table with likelihood='auto'"


def as_rows(X: object) -> Any:
    """Return rows as an estimator takes them: masked entries of an array become NaN, pandas.NA
    among objects too, frames of sparse columns that are not 0 elsewhere dense, and sparse matrices
    have a type that scipy computes with.

    Parameters
    ----------
    X : array, masked array, DataFrame, sparse matrix, tensor or nested list

    Returns
    -------
    The same, or an ndarray of float where X is masked.

    Raises
    ------
    InputError
        X is nothing that has rows of numbers, two of its columns have one name, entries of a sparse
        matrix stand outside it, or it is an AnnData or a MuData: the message names the functions
        that take a layer and variables.
    """
    if isinstance(X, np.ma.MaskedArray) and X.dtype.names is None:
        # whole numbers have no NaN
        whole = X.dtype.kind in "iub"
        values = np.array(X.data, dtype=np.float64 if whole else X.dtype)
        if X.dtype.kind in "fcOiub":
            values[np.ma.getmaskarray(X)] = np.nan
        return values
    _check_container(X)
    _check_names(X)
    check_places(X, "X")
    X = computable(X)
    if hasattr(X, "iloc"):
        types = getattr(X, "dtypes", ())
        if any(getattr(kind, "fill_value", 0) != 0 for kind in types) and hasattr(X, "sparse"):
            return X.sparse.to_dense()
        return frame_without_na(X)
    return _without_na(X) if isinstance(X, list | tuple | np.ndarray) else X


def _without_na(X: list[Any] | tuple[Any, ...] | NDArray[Any]) -> Any:
    """Return nested lists, or an array of objects, with NaN for pandas.NA, which numpy cannot
    convert; the same without any.
    """
    _check_lengths(X)
    try:
        values = np.asarray(X)
    except ValueError:
        # ragged: scikit-learn says so
        return X
    if values.dtype != object:
        return X
    missing = np.vectorize(is_na, otypes=[bool])
    hidden = missing(values) if values.size else np.zeros(0, dtype=bool)
    if not hidden.any():
        return X
    values = values.copy()
    values[hidden] = np.nan
    return values


def _check_lengths(X: object) -> None:
    """Refuse nested lists of rows of several lengths."""
    if isinstance(X, np.ndarray) or not isinstance(X, Sequence):
        return
    lengths = [len(row) if isinstance(row, list | tuple) else -1 for row in X]
    if len(set(lengths)) > 1 and min(lengths) >= 0:
        other = next(i for i, length in enumerate(lengths) if length != lengths[0])
        got = f"{lengths[0]} entries in row 0 and {lengths[other]} in row {other}"
        do = "write NaN where a value is missing"
        raise InputError(message("rows of one length", got, do), row=other)


def _check_container(X: object) -> None:
    """Refuse what has no rows of numbers."""
    got = f"an object of type {type(X).__name__}"
    do = "pass an array of numbers"
    if kind := annotated_kind(X):
        rows = (
            "adata.to_df(), of counts in a layer adata.to_df(layer='counts')"
            if kind == "AnnData"
            else "bochner.stack(mdata)[0], of layers "
            "bochner.stack({'rna': mdata['rna'].to_df(layer='counts'), ...})[0]"
        )
        do = f"to fit it write bochner.fit_{kind.lower()}(...), rows for other methods are {rows}"
        raise InputError(message(_ROWS, f"an object of type {kind}", do))
    if hasattr(X, "to_memory") and hasattr(X, "group"):
        got = "a sparse matrix of an AnnData that is backed by its file"
        read = "pass bochner.open_rows(path), which reads it block by block, or X.to_memory()"
        raise InputError(message(_ROWS, got, read))
    _refuse_single(X)
    if X is None:
        raise InputError(message(_ROWS, "None", do))
    if hasattr(X, "iloc") and not np.size(getattr(X, "columns", 0)):
        do = "read it again"
        raise InputError(message("a table of columns", "one without any", do))
    if _is_mapping(X):
        do = "stack views by name with bochner.stack(views)"
        raise InputError(message(_ROWS, got, do))
    if isinstance(X, str | bytes | Set | Iterator):
        raise InputError(message(_ROWS, got, do))
    names = getattr(getattr(X, "dtype", None), "names", None)
    if names:
        do = "pass pandas.DataFrame(X), or its fields side by side"
        raise InputError(message(_ROWS, f"records with the fields {shown(names)}", do))
    if callable(getattr(X, "collect", None)) and not hasattr(X, "__array__"):
        raise InputError(message(_ROWS, got, "read it first: X.collect()"))


def _is_mapping(X: object) -> TypeGuard[Mapping[Any, Any]]:
    return isinstance(X, Mapping) and not sp.issparse(X)


def _refuse_single(X: object) -> None:
    """Refuse one row as pandas or a program holds it: names of columns belong to tables."""
    # one format of sparse matrices is a dict of its entries
    one = _is_mapping(X) and not any(np.ndim(x) for x in X.values())
    if one or (isinstance(X, list) and any(isinstance(x, Mapping) for x in X)):
        given = "[record]" if one else "records"
        do = f"write pandas.DataFrame({given})[model.feature_names_in_]"
        raise InputError(message(_ROWS, "a dict" if one else "a list of dicts", do))
    if hasattr(X, "to_frame") and getattr(X, "ndim", 0) == 1:
        do = "for the row i write X.iloc[[i]], for a single column X.to_frame()"
        raise InputError(message(_ROWS, f"a {type(X).__name__} of one dimension", do))


def index_of(X: object) -> Any:
    """Return the index of a DataFrame or Series; None of whatever else."""
    return getattr(X, "index", None) if hasattr(X, "iloc") else None


def in_order_of(index: Any, what: str, given: Any, rows: str = "X.index") -> Any:
    """Return what is given of every row, with the index of the rows.

    Parameters
    ----------
    index : pandas Index or None
        Of the rows; None: they have no names, and nothing is looked at.
    what : str
        Its name in messages.
    given : DataFrame, Series, mapping of name to one, or whatever has no index
    rows : str
        What the index is called in messages.

    Raises
    ------
    InputError
        Its rows have other names, or are in another order. An index that counts rows from 0 on
        names none of them.
    """
    if index is None:
        return given
    if isinstance(given, Mapping):
        return {
            name: in_order_of(index, f"{what}[{name!r}]", one, rows)
            for name, one in given.items()
        }
    own = index_of(given)
    # lengths that differ are refused where they are looked at
    if own is None or len(own) != len(index):
        return given
    if not own.equals(index):
        _check_order([str(name) for name in own], [str(name) for name in index], what, rows)
    return given.set_axis(index, axis=0)


def _check_order(own: list[str], index: list[str], what: str, rows: str) -> None:
    """Refuse names of rows that are not those of the index, row by row."""
    counted = [str(row) for row in range(len(index))]
    positions = counted in (own, index) and set(own) != set(index)
    if own == index or positions:
        return
    row = next(i for i, name in enumerate(own) if name != index[i])
    got = f"{own[row]!r} in row {row}, where {index[row]!r} is"
    do = f"write {what}.loc[{rows}], or {what}.to_numpy() if the order is right"
    want = f"{what} with the rows of {rows}, in their order"
    raise InputError(message(want, got, do), row=row)


def _check_names(X: object) -> None:
    """Refuse a table of which two columns have one name, names are of several types, or a column
    is an index.
    """
    _check_index(X)
    names = getattr(X, "columns" if hasattr(X, "iloc") else "column_names", None)
    if not isinstance(names, Sequence) and not hasattr(X, "iloc"):
        return
    if names is None:
        return
    texts = [name for name in names if isinstance(name, str)]
    others = [name for name in names if not isinstance(name, str)]
    if texts and others:
        got = f"{texts[0]!r} and {others[0]!r}"
        do = "type X.columns = X.columns.astype(str)"
        raise InputError(message("column names that are all texts, or none", got, do))
    if getattr(names, "is_unique", False):
        return
    earlier = set()
    for name in names:
        if name in earlier:
            got = f"{name!r} more than once"
            do = "rename them"
            raise InputError(message("columns with names of their own", got, do))
        earlier.add(name)


def _check_index(X: object) -> None:
    """Refuse a table of Arrow that holds the index of a DataFrame as a column."""
    of_pandas = getattr(getattr(X, "schema", None), "pandas_metadata", None) or {}
    index = [name for name in of_pandas.get("index_columns", ()) if isinstance(name, str)]
    held = [name for name in index if name in getattr(X, "column_names", ())]
    if held:
        got = f"the index of a pandas.DataFrame in column {held[0]!r}"
        do = f"write X.to_pandas(), or without its index X.drop_columns({held})"
        raise InputError(message("columns of data", got, do))


def annotated_kind(values: object) -> str | None:
    """Return "AnnData" or "MuData" for one of these: numpy takes minutes to find that they are no
    arrays, or never does.
    """
    if hasattr(values, "mod") and hasattr(values, "obsm"):
        return "MuData"
    return "AnnData" if hasattr(values, "obs_names") else None


def check_kind(
    X: object,
    tables: bool = False,
    frames: bool = False,
) -> None:
    """Refuse complex numbers, dates, text and other objects before scikit-learn converts X, with
    the place of the first one.

    Parameters
    ----------
    X : array, DataFrame, sparse matrix or nested list
        Whatever the caller passed. What is neither is left to scikit-learn's own checks.
    tables : bool, default=False
        Whether tables of several kinds of columns could be fitted.
    frames : bool, default=False
        Whether such a table was fitted: DataFrames are rows of it, and other tables are not.

    Raises
    ------
    InputError
    """
    if isinstance(X, list | tuple):
        try:
            X = np.asarray(X)
        except ValueError:
            # ragged: scikit-learn says so
            X = np.asarray(X, dtype=object)
    of_columns = [_kind(of_column) for of_column in _types(X)]
    kinds = set(of_columns)
    names = getattr(X, "column_names", getattr(X, "columns", None))
    if "c" in kinds:
        # The first words are scikit-learn's: its check suite asks for them.
        raise InputError(
            "Complex data not supported. Pass real and imaginary parts as columns of two views."
        )
    if kinds & set("mM"):
        first = next(j for j, kind in enumerate(of_columns) if kind in "mM")
        where = "" if names is None else f" in {describe_column(first, names)}"
        do = "convert them to numbers first"
        raise InputError(message("numbers", f"dates or time differences{where}", do))
    if kinds & set("OSTU") and (hasattr(X, "columns") or isinstance(X, np.ndarray)):
        frame = "pandas.DataFrame(X, columns=model.feature_names_in_)"
        frame = frame if frames else "pandas.DataFrame(X)"
        # tables of Arrow and Polars become such frames where they may be mixed ones
        if not isinstance(X, np.ndarray):
            frame = ""
        how = f"{_MIXED}: {frame}" if frame else _MIXED
        do = f"{_CONVERT}, or {how}" if tables else _CONVERT
        do = f"write {frame}, as at the fit" if frames and frame else do
        _refuse_objects(np.asarray(X, dtype=object), names, do)


def _types(X: object) -> list[object]:
    """Return the types of the columns of a table, or that of an array."""
    types = getattr(X, "dtypes", None)
    if types is not None:
        return list(types)
    schema = getattr(X, "schema", None)
    if schema is None:
        return [getattr(X, "dtype", None)]
    return list(schema.types if hasattr(schema, "types") else schema.values())


def _kind(of_column: object) -> str:
    """Return numpy's letter for the type of a column, of Arrow's and Polars' by their names."""
    kind = getattr(of_column, "kind", None)
    if kind is not None:
        return str(kind)
    name = str(of_column).lower()
    if name.startswith(("date", "time", "duration")):
        return "M"
    numeric = name.startswith(("int", "uint", "float", "double", "bool", "half"))
    return "f" if numeric else "O"


def _refuse_objects(X: NDArray[np.object_], column_names: ColumnNames, do: str) -> None:
    """Refuse the first entry that is no number."""
    if X.ndim != 2 or not X.size:
        return
    wrong = np.vectorize(_is_no_number, otypes=[bool])(X)
    if not wrong.any():
        return
    row, column = (int(i) for i in np.argwhere(wrong)[0])
    value = X[row, column]
    if isinstance(value, str | bytes):
        what = f"the text {shown(value)}"
    elif isinstance(value, _DATES):
        what = f"the date or time difference {value}"
    elif isinstance(value, Number):
        what = f"the number {_shown(value)}, which no float holds,"
    else:
        what = f"an object of type {type(value).__name__}"
    got = f"{what} in row {row}, {describe_column(column, column_names)}"
    raise InputError(message("numbers", got, do), row=row)


def _shown(value: object) -> str:
    try:
        text = str(value)
    except ValueError:  # more digits than Python writes
        return f"of {value.bit_length() if isinstance(value, int) else 'many'} bits"
    return text if len(text) <= 30 else f"{text[:12]}... of {len(text)} digits"


def _is_no_number(value: object) -> bool:
    """Whether float cannot read an entry, or would read what is none: texts, dates, lists."""
    if isinstance(value, float | bool | np.floating | np.integer | np.bool_) or value is None:
        return False
    if isinstance(value, Number):
        try:
            return not isinstance(float(value), float)  # type: ignore[arg-type]
        except (OverflowError, TypeError, ValueError):
            return True
    # scikit-learn's check suite asks for numpy's words about one
    if isinstance(value, dict):
        return False
    # pandas' missing entries are numbers
    return type(value).__name__ not in ("NAType", "NaTType") or isinstance(value, _DATES)


class _Truth:
    """True or False where a number is wanted: Python takes them for 1 and 0."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __repr__(self) -> str:
        return repr(self._value)


def check(
    constraints: Mapping[str, list[object]], given: Mapping[str, object], caller: str
) -> None:
    """Refuse arguments that are not what a function takes.

    Parameters
    ----------
    constraints : mapping of str to list
        Types, and constraints of scikit-learn, by argument; those without any are not looked at.
    given : mapping of str to object
    caller : str
        The function's name.

    Raises
    ------
    InvalidParameterError
        A ValueError and a TypeError, that names the argument, what it may be, and what came.
    """
    chosen = {name: value for name, value in given.items() if name in constraints}
    for name, value in chosen.items():
        allowed = any(isinstance(one, str) and one in _FLAGS for one in constraints[name])
        if isinstance(value, bool | np.bool_) and not allowed:
            chosen[name] = _Truth(value)
    validate_parameter_constraints(constraints, chosen, caller_name=caller)


def checked(**constraints: list[object]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Have a function refuse arguments of other types than these.

    Parameters
    ----------
    **constraints : list
        As in `check`.

    Returns
    -------
    callable
        A decorator.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                given = signature.bind(*args, **kwargs).arguments
            except TypeError:
                # Python says what is wrong with the call itself
                given = {}
            check(constraints, given, function.__name__)
            return function(*args, **kwargs)

        return call

    return decorate


def pair(name: str, value: object) -> tuple[int, int]:
    """Return two whole numbers.

    Raises
    ------
    InputError
        They are something else.
    """
    numbers = list(value) if isinstance(value, tuple | list | np.ndarray) else []
    whole = all(isinstance(number, Integral) for number in numbers)
    if len(numbers) != 2 or not whole:
        do = "write (0, 1)" if name == "dims" else "write (height, width)"
        raise InputError(message(f"{name} of two whole numbers", repr(value), do))
    return int(numbers[0]), int(numbers[1])
