"""What rows are called: labels from arrays and files, in the order of the rows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bochner.data.accepted import in_order_of
from bochner.data.arrays import BoolArray, are_numbers, as_float, is_missing, text_of
from bochner.data.validation import as_array
from bochner.errors import DataWarning, InputError, message, warn_user
from bochner.io.array_files import LABELS, load_arrays
from bochner.io.csv.headers import MISSING, is_key_name, number, pointed
from bochner.io.csv.text import Lines, contents, sample
from bochner.io.extensions import TEXT
from bochner.io.join import check_unique
from bochner.memory import Memory
from bochner.page.dates import as_dates

# Whole numbers with more values than this are numbers, not names of classes.
MOST_CLASSES = 50
# Whole numbers up to it are exact in double precision.
_EXACT = 2.0**53
_MISSING = ""
_DIGITS = re.compile(r"([0-9]{1,18})")
# First lines that are no labels.
_HEADERS = frozenset(
    {"class", "classes", "cluster", "group", "label", "labels", "target", "type", "y"}
)


@dataclass(frozen=True)
class Labels:
    """One labelling of the rows.

    Attributes
    ----------
    name : str
    values : ndarray of shape (N,)
        Numbers (NaN = missing), or codes of classes (-1 = missing).
    classes : list of str, or None
        Names of the classes; None for numbers.
    dates : {"date", "time"} or None
        What numbers are that count milliseconds since 1970.
    """

    name: str
    values: NDArray[np.generic]
    classes: list[str] | None
    dates: str | None = None

    @property
    def known(self) -> BoolArray:
        """Which rows have a label: a finite number, or a class."""
        if self.classes is None:
            return np.isfinite(self.values.astype(np.float64))
        return np.asarray(self.values.astype(np.int64) >= 0)


def as_labels(
    given: Any, n_rows: int, *, read_dates: bool = False, index: object = None
) -> list[Labels]:
    """Turn labels in any form into labellings.

    Parameters
    ----------
    given : array-like of shape (N,), or mapping of name to one (a DataFrame is one), or None
    n_rows : int
        N.
    read_dates : bool, default=False
        Whether text that is a date, in every row that has a label, becomes one.
    index : pandas Index, optional
        Of the rows, which that of a DataFrame or Series must equal where it names rows.

    Raises
    ------
    InputError
        A labelling has another length, or is of rows in another order.
    """
    given = in_order_of(index, "labels", given)
    if given is None:
        return []
    named = (
        {str(name): given[name] for name in given}
        if _is_mapping(given)
        else {_name(given): given}
    )
    return [_one(name, values, n_rows, read_dates) for name, values in named.items()]


def _is_mapping(given: object) -> bool:
    return isinstance(given, Mapping) or (hasattr(given, "columns") and hasattr(given, "iloc"))


def _name(given: object) -> str:
    return str(getattr(given, "name", None) or "label")


def _one(name: str, given: Any, n_rows: int, read_dates: bool) -> Labels:
    values = as_array("labels", given)
    if values.shape != (n_rows,):
        got = (
            f"{len(values)} in {name!r}"
            if values.ndim == 1
            else f"an array of shape {values.shape} in {name!r}"
        )
        raise InputError(
            message(
                f"one label for each of the {n_rows} rows",
                got,
                "give one per row, in their order",
            )
        )
    categories = _of_categories(name, given)
    if categories is not None:
        return categories
    days = as_dates(values, read_dates)
    if days is not None:
        return _dates(name, days)
    if values.dtype.kind == "m":
        return _numbers(
            f"{name} (days)", values.astype("timedelta64[ns]") / np.timedelta64(1, "D")
        )
    if values.dtype.kind in "fiu" or are_numbers(values):
        numbers = as_float(values)
        if values.dtype.kind not in "iuO" or _are_exact(numbers):
            return _numbers(name, numbers)
    texts = np.array(
        [_MISSING if is_missing(value) else text_of(value) for value in values.tolist()],
        dtype=object,
    )
    used = set(texts.tolist()) - {_MISSING}
    return _classes(name, texts, sorted(used, key=_natural))


def _of_categories(name: str, given: object) -> Labels | None:
    """Return the classes of pandas' categories, None of anything else: in their order where they
    have one, else sorted as text is. Those that no row has are left out.
    """
    # a Series has its codes in cat, a Categorical in itself
    given = getattr(given, "cat", given)
    categories, codes = getattr(given, "categories", None), getattr(given, "codes", None)
    if categories is None or codes is None:
        return None
    texts = [str(category) for category in categories]
    used = sorted(set(np.asarray(codes).tolist()) - {-1})
    if not getattr(given, "ordered", False):
        used.sort(key=lambda k: _natural(texts[k]))
    # the last place is that of the code -1
    place = np.full(len(texts) + 1, -1, dtype=np.int32)
    place[used] = np.arange(len(used))
    return Labels(name, place[np.asarray(codes)], [texts[k] for k in used])


def _are_exact(numbers: NDArray[np.float64]) -> bool:
    """Tell whether whole numbers are small enough to differ in double precision."""
    return bool(np.nanmax(np.abs(numbers), initial=0.0) <= _EXACT)


def _numbers(name: str, numbers: NDArray[np.float64]) -> Labels:
    # of zeros with a sign the texts would differ
    numbers = numbers + 0.0
    known = np.unique(numbers[~np.isnan(numbers)])
    if len(known) > MOST_CLASSES or not np.array_equal(known, np.rint(known)):
        return Labels(name, numbers, None)
    texts = np.array([_MISSING if np.isnan(v) else f"{v:.0f}" for v in numbers], dtype=object)
    return _classes(name, texts, [f"{v:.0f}" for v in known])


def _dates(name: str, days: NDArray[np.datetime64]) -> Labels:
    known = ~np.isnat(days)
    kind = "date" if np.all(days[known] == days[known].astype("datetime64[D]")) else "time"
    if len(np.unique(days[known])) > MOST_CLASSES:
        since = days.astype(np.int64).astype(np.float64)
        return Labels(name, np.where(known, since, np.nan), None, kind)
    units: tuple[Literal["D", "m", "s"], ...] = ("D", "m", "s")
    alike = (u for u in units if np.all(days[known] == days[known].astype(f"datetime64[{u}]")))
    whole = np.datetime_as_string(days, unit=next(alike, "ms"))
    texts = np.where(known, np.char.replace(whole, "T", " "), _MISSING).astype(object)
    return _classes(name, texts, sorted(set(texts.tolist()) - {_MISSING}))


def _natural(text: str) -> list[tuple[int, str]]:
    """Order numbers inside of text by their value: "type 2" before "type 10"."""
    return [
        (int(part), "") if i % 2 else (-1, part) for i, part in enumerate(_DIGITS.split(text))
    ]


def _classes(name: str, texts: NDArray[np.generic], classes: list[str]) -> Labels:
    code = {text: i for i, text in enumerate(classes)}
    return Labels(
        name,
        np.array([code.get(text, -1) for text in texts.tolist()], dtype=np.int32),
        classes,
    )


def read_labels(
    path: Path, row_names: Sequence[str] | None, n_rows: int, decimal: str = "."
) -> dict[str, NDArray[np.generic]]:
    """Read labels of rows from a file.

    Parameters
    ----------
    path : Path
        ``.csv``: with a header, every column is a labelling; a first column that holds exactly the
        row names joins by them. One column may go without a header. ``.npy``: one array; ``.npz``:
        the array ``y`` or ``labels``.
    row_names : sequence of str or None
    n_rows : int
    decimal : str
        What may stand before the fraction of numbers in text, besides a point.

    Returns
    -------
    dict of str to ndarray of shape (N,)

    Raises
    ------
    InputError
        Not such a file, no labels in it, or not one for every row.
    """
    check_file(path, "labels")
    kind = path.suffix.lower()
    if kind in (".npy", ".npz"):
        labels = _arrays(path)
    elif kind in TEXT:
        labels = _text(path, row_names, n_rows, decimal)
    else:
        raise InputError(
            message("labels in a .csv, .npy or .npz file", str(path), "convert the file")
        )
    for values in labels.values():
        if values.shape != (n_rows,):
            got = (
                f"{len(values)} in {path}"
                if values.ndim == 1
                else f"shape {values.shape} in {path}"
            )
            raise InputError(
                message(
                    f"one label for each of the {n_rows} rows",
                    got,
                    "give one per row, in order",
                )
            )
    return labels


def check_file(path: Path, what: str) -> None:
    """Refuse what is no file.

    Raises
    ------
    InputError
        A folder, or nothing at all.
    """
    if path.is_file():
        return
    got, do = f"{path}, which does not exist", "check the path"
    if path.is_dir():
        got, do = f"{path}, which is a folder", "name the file in it"
    raise InputError(message(f"a file of {what}", got, do))


def read_lines(path: Path, decimal: str) -> Lines:
    """Cut a file of text into cells, numbers in them with decimal points.

    Labels and layouts come from other programs than the data: a point is taken, too.
    """
    text = contents(path, Memory())
    cut = Lines(path, text, sample(path, text)[0])
    cut.lines = [(line, pointed(cells, decimal)) for line, cells in cut.lines]
    return cut


def _arrays(path: Path) -> dict[str, NDArray[np.generic]]:
    loaded = load_arrays(path, path.suffix.lower().removeprefix("."), Memory())
    if isinstance(loaded, np.ndarray):
        return {"label": loaded}
    key = next((key for key in LABELS if key in loaded), None)
    if key is not None:
        return {key: loaded[key]}
    got = f"{', '.join(loaded) or 'no array'} in {path}"
    raise InputError(
        message(f"an array {' or '.join(LABELS)}", got, "name the array of labels so")
    )


def _text(
    path: Path, row_names: Sequence[str] | None, n_rows: int, decimal: str
) -> dict[str, NDArray[np.generic]]:
    lines = [cells for _, cells in read_lines(path, decimal).lines]
    header = None if _without_header(path, lines, n_rows) else lines[0]
    columns = [
        list(column) for column in zip(*(lines if header is None else lines[1:]), strict=True)
    ]
    names = header or ["label"]
    if not columns:
        raise InputError(
            message(
                f"one label for each of the {n_rows} rows",
                f"a header alone in {path}",
                "add them",
            )
        )
    if row_names is None and len(columns) > 1:
        _warn_of_order(path, names[0], columns[0])
    if row_names is not None and len(columns) > 1:
        columns[0] = _spelled(row_names, columns[0])
        is_key = is_key_name(names[0]) or not names[0]
        if is_key or not any(map(_is_number, columns[0])):
            _check_join(path, row_names, columns[0], is_key)
    if row_names is not None and len(columns) > 1 and set(row_names) <= set(columns[0]):
        known = set(row_names)
        check_unique([name for name in columns[0] if name in known], "row", str(path))
        place = {name: i for i, name in enumerate(columns[0])}
        columns = [[column[place[name]] for name in row_names] for column in columns[1:]]
        names = names[1:]
    elif (
        len(columns) > 1
        and len(set(columns[0])) == len(columns[0])
        and names[0].lower() in ("", "row", "id", "index")
    ):
        columns = columns[1:]
        names = names[1:]
    return {
        name or f"label {j}": _typed(column)
        for j, (name, column) in enumerate(zip(names, columns, strict=True))
    }


def _is_number(cell: str) -> bool:
    return number(cell) is not None


def _spelled(row_names: Sequence[str], first: list[str]) -> list[str]:
    """Return names as the rows have them: 01 is 1 where no row is called 01."""
    spelled = {name.lstrip("0"): name for name in row_names if name.isdecimal()}
    known = set(row_names)
    return [
        cell if cell in known or not cell.isdecimal() else spelled.get(cell.lstrip("0"), cell)
        for cell in first
    ]


def _check_join(
    path: Path, row_names: Sequence[str], first: Sequence[str], is_key: bool
) -> None:
    """Refuse a first column that is one of row names, as most of them are in it or its header says
    so, but not all: labels by position would belong to other rows.
    """
    known = set(first)
    lacking = [name for name in row_names if name not in known]
    differ = len(known) == len(first)
    # a name that comes twice makes no label of a column that has most of the others
    most = 2 * len(lacking) <= len(row_names) - (not differ)
    joins = most or (is_key and differ)
    if lacking and joins and not _counts_rows(first):
        got = f"none for {lacking[0]!r} in {path}"
        do = "add it, or correct its name: lines are joined by the first column"
        if len(lacking) == len(row_names):
            got = f"none for {lacking[0]!r}, or any other, in {path}, but {first[0]!r}"
            do = "correct the names in its first column, or remove it if the order is right"
        raise InputError(message("a line for every row", got, do))


def _warn_of_order(path: Path, name: str, first: Sequence[str]) -> None:
    """Warn of names of rows by which nothing can be joined: the order may be another."""
    is_key = is_key_name(name) or not name
    if is_key and len(set(first)) == len(first) and not _counts_rows(first):
        warn_user(
            f"The rows have no names to join by: the lines of {path} are taken in their order, "
            f"from {first[0]!r} on. Give rows with names, or the folder of the fit, where the "
            "order may be another.",
            DataWarning,
        )


def _counts_rows(first: Sequence[str]) -> bool:
    """Tell whether a column counts rows, from 0 or 1 on, and names none of them."""
    return any(
        list(first) == [str(row) for row in range(start, start + len(first))]
        for start in (0, 1)
    )


def _without_header(path: Path, lines: list[list[str]], n_rows: int) -> bool:
    """Tell whether a file holds one label in every line, and nothing above them.

    Raises
    ------
    InputError
        There are as many lines as rows, but the first does not look like a label: a header above
        one label too few would shift all of them.
    """
    if len(lines) != n_rows or len(lines[0]) > 1:
        return False
    first = lines[0][0]
    rest = [cells[0] for cells in lines[1:]]
    numbers = bool(rest) and all(number(cell) is not None for cell in rest)
    # classes come up more than twice on average; some of them may come up once, or be missing
    known = [cell for cell in rest if cell.lower() not in MISSING]
    classes = set(known)
    others_repeat = n_rows > 3 and first not in classes and 0 < 2 * len(classes) <= len(known)
    if number(first) is None and (numbers or first.lower() in _HEADERS or others_repeat):
        got = f"{n_rows - 1} below {first!r} in {path}, or {n_rows} without a header"
        do = "add the label that lacks, or a header in the first line"
        raise InputError(message(f"one label for each of the {n_rows} rows", got, do))
    return True


def _typed(cells: list[str]) -> NDArray[np.generic]:
    """Numbers where every cell is one or empty, text otherwise."""
    stripped = [cell.strip() for cell in cells]
    try:
        numbers = np.array([float(cell) if cell else np.nan for cell in stripped])
    except ValueError:
        return np.array(stripped, dtype=object)
    digits = all(cell.isdecimal() for cell in stripped if cell)
    return np.array(stripped, dtype=object) if digits and not _are_exact(numbers) else numbers
