"""What is asked of a reader: which column names the rows, which columns are read, how much memory
that may take.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

from bochner.data.columns import listing
from bochner.errors import InputError, message
from bochner.memory import Memory


class Selection:
    """All columns.

    A selection sees the names of every file of a source, and `check` says at the end which of its
    names none of them has.
    """

    # False for a file of a folder, where a column that names the rows has to be there
    _alone = True

    @property
    def seen(self) -> list[str]:
        """Names of the columns of the files, where any are asked for by name."""
        return []

    def kept(self, names: Sequence[str]) -> list[int]:
        """Return the positions of the columns to read, among those of one file."""
        return list(range(len(names)))

    def nameless(self, place: str) -> None:
        """Refuse a file without column names, where names were asked for."""

    def asks_for(self, name: str) -> bool:
        """Tell whether a column is chosen, or left out, by its name: it names no rows then."""
        del name
        return False

    def leaves_out(self, name: str) -> bool:
        """Tell whether a column is not read, because others are named."""
        del name
        return False

    def of_view(self, view: str) -> Selection:
        """Return the selection for a file of a folder, whose rows are joined by their names."""
        del view
        selection = copy(self)
        selection._alone = False
        return selection

    def check(self, place: str) -> None:
        """Refuse names that no file has."""


class NamedColumns(Selection):
    """Columns by name.

    Parameters
    ----------
    columns : sequence of str or None
        To read; None: all.
    drop : sequence of str
        To leave out.
    """

    def __init__(self, columns: Sequence[str] | None, drop: Sequence[str]) -> None:
        self._columns = None if columns is None else set(columns)
        self._drop = set(drop)
        self._names: dict[str, None] = {}

    @property
    def seen(self) -> list[str]:
        """Names of the columns of the files."""
        return list(self._names)

    def kept(self, names: Sequence[str]) -> list[int]:
        """Return the positions of the columns to read, among those of one file."""
        self._names.update(dict.fromkeys(names))
        wanted = set(names) if self._columns is None else self._columns
        return [j for j, name in enumerate(names) if name in wanted and name not in self._drop]

    def asks_for(self, name: str) -> bool:
        """Tell whether a column is chosen, or left out, by its name."""
        return self._alone and (name in self._drop or name in (self._columns or ()))

    def leaves_out(self, name: str) -> bool:
        """Tell whether a column is not read."""
        return self._alone and self._columns is not None and name not in self._columns

    def nameless(self, place: str) -> None:
        """Refuse a file without column names."""
        do = "name the columns in its first line, or leave out --columns and --drop"
        raise InputError(message("column names to choose from", f"none in {place}", do))

    def check(self, place: str) -> None:
        """Refuse names that no file has: of a folder its own selection knows when all are read."""
        if not self._alone:
            return
        asked = [*sorted(self._columns or ()), *sorted(self._drop)]
        unknown = [name for name in asked if name not in self._names]
        if not (unknown and self._names):
            return
        close = difflib.get_close_matches(unknown[0], list(self._names), n=3)
        known = listing([repr(name) for name in close or self._names])
        do = f"did you mean {known}?" if close else f"choose from {known}"
        got = f"no {listing([repr(name) for name in unknown])}"
        raise InputError(f"Expected columns of {place}, got {got}: {do}")


class KnownColumns(Selection):
    """The columns that a model or views name, of files that have all of them; else all columns.

    Parameters
    ----------
    known : sequence of str
    beside : sequence of str
        Columns to leave out of all others.
    """

    def __init__(self, known: Sequence[str], beside: Sequence[str] = ()) -> None:
        self._known = set(known)
        self._beside = set(beside)
        self._names: dict[str, None] = {}

    @property
    def seen(self) -> list[str]:
        """Names of the columns of the files."""
        return list(self._names)

    def asks_for(self, name: str) -> bool:
        """Tell whether a column is one of them."""
        return self._alone and (name in self._known or name in self._beside)

    def kept(self, names: Sequence[str]) -> list[int]:
        """Return the positions of the columns to read, among those of one file."""
        self._names.update(dict.fromkeys(names))
        if not self._known <= set(names):
            return [j for j, name in enumerate(names) if name not in self._beside]
        return [j for j, name in enumerate(names) if name in self._known]


def selection_of(columns: Sequence[str] | None, drop: Sequence[str]) -> Selection:
    """Return all columns, or those with the names given."""
    return NamedColumns(columns, drop) if columns is not None or drop else Selection()


@dataclass(frozen=True)
class Request:
    """How a source is to be read.

    Attributes
    ----------
    index : str, optional
        Column of csv and parquet files that names the rows.
    layer : str, or dict of modality to str, optional
        Of h5ad and h5mu files.
    mask_var : str, or dict of modality to str, optional
        Column of var that says which variables of h5ad and h5mu files are read.
    header : bool, optional
        Whether the first line of csv files names the columns; None: to be told by its cells.
    decimal : str
        What stands before the fraction of numbers in csv files: "." or ",".
    selection : Selection
    memory : Memory
    """

    index: str | None = None
    layer: Any = None
    mask_var: object = None
    header: bool | None = None
    decimal: str = "."
    selection: Selection = field(default_factory=Selection)
    memory: Memory = field(default_factory=Memory)
