"""Views of the same samples from several tables: one matrix, rows joined by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bochner.data.arrays import IntArray
from bochner.data.columns import listing
from bochner.errors import InputError, message
from bochner.io.array_files import consecutive
from bochner.io.table import Table


def join(tables: Mapping[str, Table], place: str, order: Sequence[str] | None = None) -> Table:
    """Lay tables side by side as views; rows that a table lacks become NaN.

    Parameters
    ----------
    tables : mapping of view name to Table
        Rows are joined by name where all tables have names; without names all have the same number
        of rows.
    place : str
        Where the tables come from, for messages.
    order : sequence of str, optional
        Row names in the order wanted, all of them; by default that of first appearance.

    Returns
    -------
    Table
        Column names that occur in two views are told apart as ``view:name``.

    Raises
    ------
    InputError
        Names for some tables only, tables without names of unequal length, or a name twice in one
        table.
    """
    rows = joined_rows(tables, place, order)
    X = np.hstack([_placed(t.X, i) for t, i in zip(tables.values(), rows.places, strict=True)])
    return Table(X, **beside_numbers(tables, rows.names))


def beside_numbers(tables: Mapping[str, Table], row_names: list[str] | None) -> dict[str, Any]:
    """Return what a table of joined tables has beside its numbers: names, views and labels."""
    labels = next((t.labels for t in tables.values() if t.labels is not None), None)
    index_names = {table.index_name for table in tables.values()}
    return {
        "row_names": row_names,
        "column_names": _column_names(tables),
        "views": consecutive({view: table.shape[1] for view, table in tables.items()}),
        "labels": labels if row_names is None else None,
        "index_name": index_names.pop() if len(index_names) == 1 else "",
    }


def check_unique(names: Sequence[str], what: str, place: str, more: str = "") -> None:
    """Refuse names that occur twice, and list them; `more` follows what is to be done."""
    twice = [repr(name) for name, count in Counter(names).items() if count > 1]
    if twice:
        do = f"rename or drop one of the {what}s{more}"
        raise InputError(
            message(
                f"{what} names that differ in {place}", f"{listing(twice)} more than once", do
            )
        )


class JoinedRows(NamedTuple):
    """Rows of several tables that are one.

    Attributes
    ----------
    places : list of (ndarray of int, shape (N,), or None)
        Which row of each table a row is, -1: none; None: the table's rows as they are.
    names : list of str, shape (N,), or None
    """

    places: list[IntArray | None]
    names: list[str] | None


def joined_rows(
    tables: Mapping[str, Table], place: str, order: Sequence[str] | None = None
) -> JoinedRows:
    """Join rows of tables, as `join` does and with its errors."""
    nameless = [view for view, table in tables.items() if table.row_names is None]
    if not nameless:
        for view, table in tables.items():
            check_unique(table.row_names or (), "row", f"view {view!r}")
        # An ordered union: a dict keeps the order of first appearance.
        names = (
            order
            if order is not None
            else (name for table in tables.values() for name in table.row_names or ())
        )
        position = {name: i for i, name in enumerate(dict.fromkeys(names))}
        return JoinedRows(
            [_index(t.row_names, position) for t in tables.values()], [*position]
        )
    if len(nameless) < len(tables):
        got = f"none for {listing([repr(view) for view in nameless])}"
        raise InputError(
            message(
                f"row names in every {place}, as in some",
                got,
                "name the rows in all, or in none",
            )
        )
    counts = {view: table.shape[0] for view, table in tables.items()}
    if len(set(counts.values())) > 1:
        got = listing([f"{view!r}: {count}" for view, count in counts.items()])
        do = "name the rows in each so that they can be joined"
        raise InputError(message(f"the same number of rows in every {place}", got, do))
    return JoinedRows([None] * len(tables), None)


def _index(names: list[str] | None, position: Mapping[str, int]) -> IntArray | None:
    """Return which row each position is, -1 where none has its name; None: all, in this order."""
    places = np.array([position[name] for name in names or ()], dtype=np.int64)
    if len(places) == len(position) and bool((places == np.arange(len(places))).all()):
        return None
    index = np.full(len(position), -1, dtype=np.int64)
    index[places] = np.arange(len(places))
    return index


def _placed(X: NDArray[np.float64], index: IntArray | None) -> NDArray[np.float64]:
    return X if index is None else np.where((index < 0)[:, None], np.nan, X[index])


def _column_names(tables: Mapping[str, Table]) -> list[str] | None:
    if all(table.column_names is None for table in tables.values()):
        return None
    names = {
        v: t.column_names or [f"{v}_{j}" for j in range(t.shape[1])] for v, t in tables.items()
    }
    flat = [name for columns in names.values() for name in columns]
    # Names that occur in two views are told apart by the view: X has one name per column.
    return (
        flat
        if len(set(flat)) == len(flat)
        else [f"{view}:{name}" for view, columns in names.items() for name in columns]
    )
