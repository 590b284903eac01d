"""What is known of rows beside their data: how covariates of the caller (batches, donors, ages)
become numbers beside the latents.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bochner.data.accepted import in_order_of
from bochner.data.arrays import (
    Float64Array,
    as_numbers,
    check_kind,
    first_no_number,
    is_label,
    is_missing,
    label_of,
)
from bochner.data.columns import listing
from bochner.data.validation import LARGEST, as_array
from bochner.data.views import ExactSum
from bochner.errors import DataWarning, InputError, message, shown, warn_user
from bochner.processes import ALONE, Processes

AVERAGE = "average"

# So many labels may differ from row to row, as of texts in tables: a number, or a share of rows.
_FEW_LABELS = 20
_NEARLY_ALL = 0.9


class Covariate(ABC):
    """One thing that is known of every row.

    Attributes
    ----------
    name : str
    """

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    @abstractmethod
    def width(self) -> int:
        """Columns of numbers."""

    @property
    @abstractmethod
    def varies(self) -> bool:
        """Whether rows of training differ in it."""

    @abstractmethod
    def encode(self, values: NDArray[np.generic]) -> Float64Array:
        """Return numbers whose mean over rows of training is 0, (n,) -> (n, width); 0 where a value
        is missing.
        """

    @abstractmethod
    def to_json(self) -> dict[str, object]:
        """Return plain values from which `CovariateCoding.from_json` builds this anew."""


class Continuous(Covariate):
    """A number, in standard deviations from its mean over rows of training."""

    def __init__(self, name: str, mean: float, std: float) -> None:
        super().__init__(name)
        self.mean = mean
        self.std = std

    @classmethod
    def fit(
        cls, name: str, values: NDArray[np.generic], processes: Processes = ALONE
    ) -> Continuous:
        """Measure mean and standard deviation, to the last digit, however rows are divided."""
        numbers = processes.together(lambda: _numbers(name, values))
        known = numbers[~np.isnan(numbers)]
        count = processes.total(known.size)
        ends = np.array([-known.min(initial=np.inf), known.max(initial=-np.inf)])
        below, high = processes.largest(torch.from_numpy(ends)).tolist()
        low = -below
        mean = min(max(_exact_sum(known, processes) / max(1, count), low), high)
        square = _exact_sum(((known - mean) / ((high - low) or 1.0)) ** 2, processes)
        # that of equal numbers is rounding
        std = (high - low) * math.sqrt(square / max(1, count)) if high > low else 0.0
        return cls(name, mean if count else 0.0, std)

    @property
    def width(self) -> int:
        """One column."""
        return 1

    @property
    def varies(self) -> bool:
        """Whether there is more than one number."""
        return self.std > 0.0

    def encode(self, values: NDArray[np.generic]) -> Float64Array:
        """Return the number in standard deviations."""
        scaled = (_numbers(self.name, values) - self.mean) / (self.std or 1.0)
        return np.nan_to_num(scaled)[:, None]

    def to_json(self) -> dict[str, object]:
        """Return name, mean and standard deviation."""
        return {"name": self.name, "mean": self.mean, "std": self.std}


class Categorical(Covariate):
    """A label: a column for each of those of training, 1 or 0 less the label's share of rows."""

    def __init__(self, name: str, labels: Sequence[str], shares: Sequence[float]) -> None:
        super().__init__(name)
        self.labels = list(labels)
        self.shares = list(shares)

    @classmethod
    def fit(
        cls, name: str, values: NDArray[np.generic], processes: Processes = ALONE
    ) -> Categorical:
        """Count the labels of all processes."""
        here = Counter(label_of(value) for value in values if not is_missing(value))
        counts: Counter[str] = sum(processes.gathered(here), Counter())
        n_known = counts.total()
        if len(counts) > max(_FEW_LABELS, _NEARLY_ALL * n_known):
            got = f"{len(counts)} labels in {n_known} rows"
            do = "pass numbers, or coarser labels"
            raise InputError(message(f"labels of {name!r} that rows share", got, do))
        labels = sorted(counts)
        return cls(name, labels, [counts[label] / n_known for label in labels])

    @property
    def width(self) -> int:
        """As many columns as labels."""
        return len(self.labels)

    @property
    def varies(self) -> bool:
        """Whether there is more than one label."""
        return self.width > 1

    def encode(self, values: NDArray[np.generic]) -> Float64Array:
        """Return the columns; the average of the labels where a value is missing."""
        out = np.zeros((len(values), self.width))
        position = {label: j for j, label in enumerate(self.labels)}
        for row, value in enumerate(values):
            if is_missing(value):
                continue
            label = label_of(value)
            if label not in position:
                raise self._unseen(row, label)
            out[row] -= self.shares
            out[row, position[label]] += 1.0
        return out

    def _unseen(self, row: int, unseen: str) -> InputError:
        known = listing([repr(label) for label in self.labels])
        wanted = f"{self.name!r} among {known}, as in training"
        got = f"{unseen!r} in row {row}"
        do = "fit with rows of it, or leave it missing there: the average of those of training"
        return InputError(message(wanted, got, do), row=row)

    def to_json(self) -> dict[str, object]:
        """Return name, labels and shares."""
        return {"name": self.name, "labels": self.labels, "shares": self.shares}


class CovariateCoding:
    """How the covariates of a fit become numbers.

    Parameters
    ----------
    covariates : sequence of Covariate
        Empty: the fit had none.
    """

    def __init__(self, covariates: Sequence[Covariate] = ()) -> None:
        self.covariates = list(covariates)

    @classmethod
    def fit(
        cls,
        given: object,
        n_rows: int,
        index: object = None,
        processes: Processes = ALONE,
    ) -> CovariateCoding:
        """Learn labels, means and standard deviations.

        Parameters
        ----------
        given : DataFrame, Series, mapping of name to values, or array of shape (N,) or (N, L)
            Numbers are continuous; categories, texts and booleans are labels.
        n_rows : int
        index : pandas Index, optional
            Of X, which that of a DataFrame or Series must equal where it names rows.
        processes : Processes
            The rows are those of this one, which all others call with theirs.

        Raises
        ------
        InputError
            They are of the wrong length or kind, or one has no value in any row; processes have
            others.

        Warns
        -----
        DataWarning
            One has the same value in all rows.
        """
        if isinstance(given, str):
            do = "pass a DataFrame, a dict of name to values, or an array"
            raise InputError(message("covariates of the rows", repr(given), do))
        columns = processes.together(lambda: _checked_columns(given, n_rows, index))
        _check_alike(columns, processes)
        fitted: list[Covariate] = []
        for name, values in columns.items():
            _check_known(name, values, processes)
            kind = Categorical if is_label(values) else Continuous
            fitted.append(kind.fit(name, values, processes))
        constant = [repr(covariate.name) for covariate in fitted if not covariate.varies]
        if constant and processes.rank == 0:
            text = f"Constant covariates are kept, they explain nothing: {listing(constant)}."
            warn_user(text, DataWarning)
        return cls(fitted)

    @property
    def names(self) -> list[str]:
        """Of the covariates."""
        return [covariate.name for covariate in self.covariates]

    @property
    def groups(self) -> tuple[int, ...]:
        """The covariate that each column of numbers belongs to."""
        widths = [covariate.width for covariate in self.covariates]
        return tuple(g for g, width in enumerate(widths) for _ in range(width))

    def encode(self, given: object, n_rows: int, index: object = None) -> Tensor:
        """Return the numbers of rows, (n, L); no columns where the fit had no covariates.

        Parameters
        ----------
        given
            As in `fit`; "average" stands for the average of the rows of training.
        n_rows : int
        index : pandas Index, optional

        Raises
        ------
        InputError
            Covariates are missing, unknown or of the wrong length, or a label was not in training.
        """
        if not self.covariates:
            if given is None:
                return torch.zeros(n_rows, 0, dtype=torch.float64)
            wanted = "no covariates: the model was fitted without"
            do = "fit(X, covariates=...) first, or leave them out"
            raise InputError(message(wanted, "some", do))
        known = listing([repr(name) for name in self.names])
        if isinstance(given, str) and given == AVERAGE:
            return torch.zeros(n_rows, len(self.groups), dtype=torch.float64)
        if given is None or isinstance(given, str):
            got = "none" if given is None else repr(given)
            do = f"pass covariates= with {known}, or covariates='average'"
            raise InputError(message(f"the covariates {known} of the rows", got, do))
        columns = self._by_name(given, n_rows, index)
        lacking = [repr(name) for name in self.names if name not in columns]
        if lacking:
            present = listing([repr(name) for name in columns])
            got = f"{present}, without {listing(lacking)}"
            do = "name the columns so"
            raise InputError(message(f"the covariates {known}", got, do))
        for name in self.names:
            check_kind(name, columns[name])
        parts = [covariate.encode(columns[covariate.name]) for covariate in self.covariates]
        return torch.from_numpy(np.hstack(parts))

    def _by_name(
        self, given: object, n_rows: int, index: object
    ) -> dict[str, NDArray[np.generic]]:
        """Return the values of every covariate; columns without names are those of the fit."""
        columns = _columns(given, n_rows, index)
        unnamed = isinstance(given, np.ndarray | list | tuple)
        if unnamed and len(columns) == len(self.names):
            columns = dict(zip(self.names, columns.values(), strict=True))
        return columns

    def without_unknown(self, given: object, n_rows: int) -> object:
        """Return covariates of rows by name, labels that training did not see missing."""
        if given is None or isinstance(given, str):
            return given
        columns = self._by_name(given, n_rows, None)
        for covariate in self.covariates:
            if isinstance(covariate, Categorical) and covariate.name in columns:
                known = set(covariate.labels)
                values = columns[covariate.name].astype(object)
                unknown = [label_of(value) not in known for value in values]
                values[unknown] = None
                columns[covariate.name] = values
        return columns

    def standard_deviations(self, factors: Tensor) -> dict[str, float]:
        """Return the prior standard deviation of each covariate's effects, from the factors of
        their columns (L,): 0 where the rows of training do not differ, which show none.
        """
        columns = list(enumerate(self.groups))
        first = {group: j for j, group in reversed(columns)}
        return {
            covariate.name: float(factors[first[g]]) * covariate.varies
            for g, covariate in enumerate(self.covariates)
        }

    def to_json(self) -> list[dict[str, object]]:
        """Return plain values."""
        return [covariate.to_json() for covariate in self.covariates]

    @classmethod
    def from_json(cls, plain: Sequence[Mapping[str, Any]]) -> CovariateCoding:
        """Rebuild what `to_json` wrote."""
        return cls(
            [
                Categorical(**fields) if "labels" in fields else Continuous(**fields)
                for fields in plain
            ]
        )


# Of fits without covariates.
NOTHING_KNOWN = CovariateCoding()


def of_rows(given: object, rows: NDArray[np.intp]) -> object:
    """Return the covariates of some rows, (n,), as they were given."""
    if given is None or isinstance(given, str):
        return given
    if isinstance(given, Mapping):
        return {name: of_rows(value, rows) for name, value in given.items()}
    if hasattr(given, "iloc"):
        return given.iloc[rows]
    values = as_array("what is known of each row", given)
    if not values.ndim or len(values) <= rows.max(initial=-1):
        do = "give one value per row, in their order"
        raise InputError(message("what is known of each row", shown(given), do))
    return values[rows]


def stacked(parts: Sequence[object]) -> object:
    """Return what is known of rows, given for parts of them in their order."""
    first = parts[0]
    if isinstance(first, Mapping):
        every = [part for part in parts if isinstance(part, Mapping)]
        return {name: stacked([part[name] for part in every]) for name in first}
    return np.concatenate([as_array("what is known of each row", part) for part in parts])


def _columns(given: Any, n_rows: int, index: object) -> dict[str, NDArray[np.generic]]:
    """Return the values of every covariate by name, (n,)."""
    given = in_order_of(index, "covariates", given)
    _check_names(given)
    if isinstance(given, Mapping):
        columns = {str(name): _values(value) for name, value in given.items()}
    elif hasattr(given, "column_names"):
        columns = {
            name: _values(given.column(j).to_pandas())
            for j, name in enumerate(given.column_names)
        }
    elif hasattr(given, "columns"):
        columns = {str(name): _values(given[name]) for name in given.columns}
    elif hasattr(given, "iloc"):
        columns = {str(given.name or "covariate"): _values(given)}
    else:
        table = _values(given)
        if table.ndim not in (1, 2):
            do = "give one value per row, in their order"
            raise InputError(message(f"covariates of {n_rows} rows", shown(given), do))
        table = table[:, None] if table.ndim == 1 else table
        columns = {f"covariate {j}": as_numbers(table[:, j]) for j in range(table.shape[1])}
    for name, values in columns.items():
        if values.shape != (n_rows,):
            got = f"shape {values.shape} for {name!r}"
            do = "give one value per row, in their order"
            raise InputError(message(f"covariates of shape ({n_rows},)", got, do))
    if not columns:
        do = "leave covariates out"
        raise InputError(message("at least one covariate", "none", do))
    return columns


def _check_names(given: Any) -> None:
    """Refuse two covariates that are called the same: one of them would be lost."""
    columns = getattr(given, "column_names", getattr(given, "columns", ()))
    names = Counter(map(str, given if isinstance(given, Mapping) else columns))
    twice = [repr(name) for name, count in names.items() if count > 1]
    if twice:
        want = "covariates with different names"
        raise InputError(message(want, f"{twice[0]} twice", "rename one"))


def _checked_columns(given: Any, n_rows: int, index: object) -> dict[str, NDArray[np.generic]]:
    """Return what `_columns` does, of numbers and labels alone."""
    columns = _columns(given, n_rows, index)
    for name, values in columns.items():
        check_kind(name, values)
    return columns


def _check_alike(columns: Mapping[str, NDArray[np.generic]], processes: Processes) -> None:
    """Refuse covariates that are called, or of a kind, as in no other process."""
    kinds = {name: "labels" if is_label(v) else "numbers" for name, v in columns.items()}
    said = [
        listing([f"{kind} {name!r}" for name, kind in of_process.items()])
        for of_process in processes.gathered(kinds)
    ]
    for rank, covariates in enumerate(said):
        if covariates != said[0]:
            want = f"the covariates {said[0]}, as in process 0"
            do = "give all processes the same"
            raise InputError(message(want, f"{covariates} in process {rank}", do))


def _exact_sum(values: Float64Array, processes: Processes) -> float:
    total = ExactSum(1)
    total.add(values[:, None])
    return float(total.over(processes)[0])


def _check_known(name: str, values: NDArray[np.generic], processes: Processes) -> None:
    """Refuse a covariate without any value."""
    n_rows = processes.total(len(values))
    if n_rows and processes.total(not all(map(is_missing, values))) == 0:
        got = f"none in {n_rows} rows"
        raise InputError(message(f"a value of {name!r} in some row", got, "leave it out"))


def _values(given: Any) -> NDArray[np.generic]:
    """Return an array; categories, nullable types and texts as objects."""
    dtype = getattr(given, "dtype", None)
    plain = isinstance(dtype, np.dtype) and dtype.kind in "biuf"
    # those of Polars are texts as an array
    categorical = hasattr(dtype, "categories") and hasattr(given, "astype")
    if plain or not (hasattr(given, "iloc") or categorical):
        return as_numbers(as_array("covariates", given))
    if getattr(dtype, "kind", "O") in "iuf" and not categorical:
        numbers: NDArray[np.generic] = given.to_numpy(dtype=np.float64, na_value=np.nan)
        return numbers
    objects: NDArray[np.object_] = np.array(given.astype(object), dtype=object)
    if categorical:
        # labels by declaration, whatever they are
        for row, value in enumerate(objects):
            objects[row] = None if is_missing(value) else label_of(value)
        return objects
    return as_numbers(objects)


def _numbers(name: str, values: NDArray[np.generic]) -> Float64Array:
    """Return numbers in double precision, NaN where they are missing.

    Raises
    ------
    InputError
        One is no number, or larger than those of X may be; the message names row and value.
    """
    try:
        numbers: Float64Array = values.astype(np.float64)
    except (TypeError, ValueError) as error:
        row = first_no_number(values)
        got = str(error) if row is None else f"{str(values[row])!r} in row {row}"
        do = "pass numbers, as in training, with NaN where they are missing"
        raise InputError(message(f"numbers for {name!r}", got, do), row=row) from error
    if np.isinf(numbers).any():
        row = int(np.flatnonzero(np.isinf(numbers))[0])
        got = f"inf in row {row}"
        do = "write NaN there"
        raise InputError(message(f"finite numbers for {name!r}", got, do), row=row)
    far = np.abs(numbers) > LARGEST
    if far.any():
        row = int(np.flatnonzero(far)[0])
        got = f"{numbers[row]:g} in row {row}"
        do = "correct the value, write NaN if it is missing, or change the unit"
        want = f"numbers of at most {LARGEST:g} in size for {name!r}"
        raise InputError(message(want, got, do), row=row)
    return numbers
