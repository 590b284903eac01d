"""Views: one stacked matrix, named column groups, the mask of what is observed, and its scaling: a
centre per column, one scalar per view, or per column of tables whose columns have different units.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from bochner.data.arrays import BoolArray, Float64Array, FloatArray, IntArray
from bochner.data.columns import (
    DEFAULT_VIEW,
    ColumnNames,
    columns_of,
    extremes,
    resolve_views,
    widened,
)
from bochner.data.missing import Block, split_rows
from bochner.data.sparse import moments
from bochner.data.validation import check_finite, check_fit, place_of
from bochner.errors import InputError, message
from bochner.memory import chunks, passes
from bochner.processes import ALONE, Processes

# Scaled entries beyond this cannot be placed: their squares leave nothing of the other entries.
_FARTHEST = 1e8
# Rows from which on sums are exact: of fewer, training sees the whole of them in one process.
_MANY_ROWS = 10_000
# Numbers that are added at once.
_NUMBERS = 2**16
# What columns may differ by, as a share of their largest entry, and count as constant.
_ROUNDING = 8 * float(np.finfo(np.float64).eps)
# What they have to differ by at the least: numbers below 2.2e-308 have few digits, and the
# reciprocal of such a scale is infinite.
_LEAST = 1e-300


@dataclass(frozen=True)
class Scaling:
    """The affine map z = (x − centre) / scale and its inverse; NaN (missing) stays NaN.

    Attributes
    ----------
    centre : ndarray of float64, shape (M,)
        Mean of the observed entries of every column, in the units of X.
    scale : ndarray of float64, shape (M,)
        The scalar of the view a column belongs to, repeated over its columns: the root mean square
        of the centred observed entries of the view, or 1.0 where that is rounding or nothing
        differs by 1e-300 (4e-8 of the largest entry where that is more): ratios between columns are
        kept. In tables with columns of several kinds, that of every column of numbers.
    """

    centre: NDArray[np.float64]
    scale: NDArray[np.float64]

    @classmethod
    def fit(
        cls, X: FloatArray, columns: Mapping[str, IntArray], processes: Processes = ALONE
    ) -> Scaling:
        """Measure centre and scale on the observed entries of X, shape (N, M), of all processes;
        every column needs one.
        """
        return measured(X, columns, processes)[0]

    @classmethod
    def of_sparse(cls, X: FloatArray, columns: Mapping[str, IntArray]) -> Scaling:
        """Zeros count as observed; the same numbers as of the dense matrix, to rounding."""
        largest = np.asarray(abs(X).max(axis=0).toarray()).ravel()
        centre = np.zeros(X.shape[1])
        scale = np.ones(X.shape[1])
        for positions in columns.values():
            peak = max(float(largest[positions].max()), _LEAST)
            mean, square = moments(X[:, positions] / peak)
            centre[positions] = np.clip(peak * mean, *extremes(X[:, positions]))
            spread = float(np.sqrt(square.sum() / (X.shape[0] * positions.size)))
            varied = peak > _LEAST and spread > _ROUNDING
            scale[positions] = peak * spread if varied else _scale_of_constants(peak)
        return cls(centre, scale)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[np.float64]]) -> Scaling:
        """Rebuild what `to_arrays` wrote; lists of numbers do as well."""
        centre, scale = (
            np.asarray(arrays[key], dtype=np.float64) for key in ("centre", "scale")
        )
        if centre.ndim != 1 or centre.shape != scale.shape:
            got = f"shapes {centre.shape} and {scale.shape}"
            raise InputError(
                message("centre and scale of one shape (M,)", got, "save the model again")
            )
        if not (np.isfinite(centre).all() and np.isfinite(scale).all() and (scale > 0).all()):
            raise InputError(
                message(
                    "a finite centre and a positive scale", "others", "save the model again"
                )
            )
        return cls(centre, scale)

    def to_arrays(self) -> dict[str, NDArray[np.float64]]:
        """Return the arrays that define the map, for a model file."""
        return {"centre": self.centre, "scale": self.scale}

    def apply(self, X: FloatArray) -> FloatArray:
        """Map X, shape (N, M), to scaled units; the floating type of X is kept, the arithmetic is
        in float64. However X lies in memory, rows lie one after the other: sums are rounded alike.
        """
        Z = np.empty_like(X, order="C")
        np.subtract(X, self.centre, out=Z, casting="same_kind")
        return np.divide(Z, self.scale, out=Z, casting="same_kind")

    def undo(self, Z: FloatArray) -> FloatArray:
        """Map Z, shape (N, M), back to the units of X."""
        X = np.empty_like(Z)
        np.multiply(Z, self.scale, out=X, casting="same_kind")
        return np.add(X, self.centre, out=X, casting="same_kind")

    def undo_std(self, std: FloatArray) -> FloatArray:
        """Map standard deviations, shape (N, M), back to the units of X: they scale and do not
        shift.
        """
        return np.multiply(std, self.scale, out=np.empty_like(std), casting="same_kind")

    def log_jacobian(
        self, observed: BoolArray | IntArray | Float64Array
    ) -> NDArray[np.float64]:
        """Return what turns a log density of z into one of x: Σ −log(scale) over the observed
        entries of a row.

        Parameters
        ----------
        observed : ndarray of bool, shape (N, M)
            Or counts of observed entries.

        Returns
        -------
        ndarray of float64, shape (N,)
            log p(x) = log p(z) + log_jacobian.
        """
        return observed.astype(np.float64) @ -np.log(self.scale)


def _two_sum(
    a: NDArray[np.float64], b: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return a + b as it is rounded, and what rounding lost (the two-sum of Knuth)."""
    total = a + b
    back = total - a
    return total, (a - (total - back)) + (b - back)


class PlainSum:
    """A sum by column, in double precision.

    Parameters
    ----------
    width : int
    """

    def __init__(self, width: int) -> None:
        self._total = np.zeros(width)

    def add(self, values: NDArray[np.float64]) -> None:
        """Add rows of finite numbers, (n, width)."""
        self._total += values.sum(axis=0)

    def over(self, processes: Processes) -> NDArray[np.float64]:
        """Return the sum of all processes, (width,)."""
        return _over(processes.sum, self._total)[0]


class ExactSum:
    """A sum in twice the digits of double precision, by column: it does not depend on how rows are
    divided.

    Parameters
    ----------
    width : int
    """

    def __init__(self, width: int) -> None:
        self._high = np.zeros(width)
        self._low = np.zeros(width)

    def add(self, values: NDArray[np.float64]) -> None:
        """Add rows of finite numbers, (n, width)."""
        for part in chunks(len(values), max(1, _NUMBERS // len(self._high))):
            left = values[part]
            while len(left) > 1:
                half = len(left) // 2
                added, lost = _two_sum(left[:half], left[half : 2 * half])
                self._low += lost.sum(axis=0)
                left = np.concatenate([added, left[2 * half :]]) if len(left) % 2 else added
            self._include(left[0], np.zeros_like(self._low))

    def _include(self, high: NDArray[np.float64], low: NDArray[np.float64]) -> None:
        self._high, lost = _two_sum(self._high, high)
        self._low = self._low + low + lost

    def over(self, processes: Processes) -> NDArray[np.float64]:
        """Return the sum of all processes, (width,)."""
        whole = ExactSum(len(self._high))
        for high, low in processes.gathered((self._high, self._low)):
            whole._include(high, low)
        total: NDArray[np.float64] = whole._high + whole._low
        return total


def _parts(X: FloatArray) -> Iterator[FloatArray]:
    """Cut rows, which need not be in memory; sums are rounded alike however X lies there."""
    return (np.ascontiguousarray(X[rows]) for rows in passes(X.shape))


@dataclass(frozen=True)
class _Columns:
    """What one pass over the rows of all processes says of every column, each of shape (M,).

    Attributes
    ----------
    mean, low, high : ndarray of float64
    counts : ndarray of float64
        Of observed entries.
    """

    mean: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    counts: NDArray[np.float64]


def measured(
    X: FloatArray, columns: Mapping[str, IntArray], processes: Processes = ALONE
) -> tuple[Scaling, NDArray[np.float64]]:
    """Return the scaling of X, shape (N, M), and how many observed entries every column has, of all
    processes.
    """
    if sp.issparse(X):
        return Scaling.of_sparse(X, columns), np.full(X.shape[1], float(X.shape[0]))
    # of many rows to the last digit, however they are divided among processes
    kind = ExactSum if processes.total(X.shape[0]) > _MANY_ROWS else PlainSum
    known = _columns(X, kind, processes)
    scale = _scales(X, columns, known, kind, processes)
    return Scaling(known.mean, scale), known.counts


def _columns(X: FloatArray, kind: type[PlainSum | ExactSum], processes: Processes) -> _Columns:
    """Look through the rows once.

    Means lie between the least and the largest value, as rounding alone would not have it: a
    constant column leaves nothing behind, however large it is.
    """
    total = kind(X.shape[1])
    count = np.zeros(X.shape[1])
    low = np.full(X.shape[1], np.inf)
    high = np.full(X.shape[1], -np.inf)
    for part in _parts(X):
        observed = ~np.isnan(part)
        total.add(np.where(observed, part, 0.0).astype(np.float64, copy=False))
        count += observed.sum(axis=0)
        low, high = widened((low, high), part)
    (count,) = _over(processes.sum, count)
    below, high = _over(processes.largest, -low, high)
    mean = np.clip(total.over(processes) / count, -below, high)
    return _Columns(mean, -below, high, count)


def _scale_of_constants(largest: float) -> float:
    """The scale of columns that do not differ by more than rounding, which is no scale to divide
    by: 1, or for large ones so much that their rounding is nothing.
    """
    return max(1.0, math.sqrt(_ROUNDING) * largest)


def _largest(processes: Processes, values: FloatArray) -> FloatArray:
    """Return the elementwise maximum over all processes."""
    if processes.size == 1:
        return values
    return _over(processes.largest, values.astype(np.float64))[0]


def _total(processes: Processes, values: FloatArray) -> FloatArray:
    """Return the elementwise sum over all processes."""
    return _over(processes.sum, values.astype(np.float64))[0]


def _over(
    collect: Callable[[Tensor], Tensor], *arrays: NDArray[np.float64]
) -> list[NDArray[np.float64]]:
    """Return what all processes have of some arrays."""
    return [collect(torch.from_numpy(array)).numpy() for array in arrays]


def _scales(
    X: FloatArray,
    columns: Mapping[str, IntArray],
    known: _Columns,
    kind: type[PlainSum | ExactSum],
    processes: Processes,
) -> NDArray[np.float64]:
    """Root mean square of every view about its centre, repeated over its columns, in one pass."""
    centre = known.mean
    peak = np.maximum(known.high - centre, centre - known.low)
    largest = np.maximum(np.abs(known.low), np.abs(known.high))
    scale = np.ones(X.shape[1])
    varied = []
    for positions in columns.values():
        scale[positions] = _scale_of_constants(float(largest[positions].max()))
        least = np.maximum(_ROUNDING * largest[positions], _LEAST)
        if (peak[positions] > least).any():
            varied.append(positions)
    squares = [kind(1) for _ in varied]
    for part in _parts(X) if varied else ():
        for square, positions in zip(squares, varied, strict=True):
            values = columns_of(part, positions)
            # divided by the peak, squares cannot overflow
            parts = ((values - centre[positions]) / peak[positions].max()) ** 2
            square.add(np.nan_to_num(parts).reshape(-1, 1))
    for square, positions in zip(squares, varied, strict=True):
        count = known.counts[positions].sum()
        root = float(np.sqrt(square.over(processes)[0] / count))
        scale[positions] = peak[positions].max() * root
    return scale


__all__ = [
    "DEFAULT_VIEW",
    "Scaling",
    "Views",
    "check_finite",
    "check_fit",
    "resolve_views",
]


@dataclass(frozen=True)
class Views:
    """One stacked matrix with its column groups and its scaling; built by `Views.fit`.

    Attributes
    ----------
    X : ndarray of float, RowSource, or scipy sparse array compressed by rows, shape (N, M)
        In the units of the caller; NaN = missing, zeros that a sparse array does not store are
        observed.
    columns : dict of str to ndarray of int, shape (M_v,)
        Column numbers of every view, in the order of the views.
    scaling : Scaling
        Measured on the observed entries of X.
    counts : ndarray of float64, shape (M,)
        Observed entries of every column, of all processes.
    n_rows : int
        N, of all processes.
    """

    X: Any
    columns: dict[str, IntArray]
    scaling: Scaling
    counts: NDArray[np.float64]
    n_rows: int

    @classmethod
    def fit(
        cls,
        X: Any,
        views: object = None,
        column_names: ColumnNames = None,
        processes: Processes = ALONE,
    ) -> Views:
        """Resolve the views, check the data and measure the scaling, over all processes; errors are
        those of the functions called.
        """
        columns = resolve_views(views, X.shape[1], column_names)
        largest = functools.partial(_largest, processes)
        total = functools.partial(_total, processes)
        n_rows = processes.total(X.shape[0])
        check_fit(X, columns, column_names, processes.together, largest, total, n_rows)
        return cls(X, columns, *measured(X, columns, processes), n_rows)

    def unscaled(self, views: Sequence[str]) -> Views:
        """Return the same data with some views left in the caller's units: centre 0, scale 1."""
        if not views:
            return self
        plain = np.concatenate([self.columns[view] for view in views])
        centre = self.scaling.centre.copy()
        scale = self.scaling.scale.copy()
        centre[plain] = 0.0
        scale[plain] = 1.0
        return replace(self, scaling=Scaling(centre, scale))

    def scaled_by_column(self, view: str) -> Views:
        """Return the same data with one scale per column of a view: its standard deviation."""
        positions = self.columns[view]
        each = {str(j): np.array([j], dtype=np.intp) for j in range(positions.size)}
        scale = self.scaling.scale.copy()
        scale[positions] = Scaling.fit(columns_of(self.X, positions), each).scale
        return replace(self, scaling=Scaling(self.scaling.centre, scale))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the views, in order."""
        return tuple(self.columns)

    def scaled(self, view: str) -> FloatArray:
        """Return the columns of one view in scaled units, shape (N, M_v); NaN = missing."""
        return self.scaling_of(view).apply(columns_of(self.X, self.columns[view]))

    def scaling_of(self, view: str) -> Scaling:
        """Return the scaling of the columns of one view."""
        positions = self.columns[view]
        return Scaling(self.scaling.centre[positions], self.scaling.scale[positions])

    def divided(self, view: str, processes: Processes) -> tuple[list[Block], list[IntArray]]:
        """Divide the columns of a view as `split_rows` does, without a look at rows that lack
        nothing.
        """
        positions = self.columns[view]
        if (self.counts[positions] == self.n_rows).all():
            return [(np.arange(self.X.shape[0]), np.arange(positions.size))], []
        return split_rows(self.X, positions, processes)

    @property
    def sparse(self) -> bool:
        """Whether X is sparse."""
        return bool(sp.issparse(self.X))

    def scaled_sparse(self, view: str) -> tuple[Any, FloatArray]:
        """Return the columns of one view of a sparse X over its scale, (N, M_v), and the centre to
        subtract, (M_v,).
        """
        positions = self.columns[view]
        scale = float(self.scaling.scale[positions[0]])
        part = sp.csr_array(self.X[:, positions])
        return (part if scale == 1.0 else part / scale), self.scaling.centre[positions] / scale


def fingerprint(arrays: Iterable[Any], settings: dict[str, Any]) -> str:
    """Return a digest of the data and the settings that a run must share to continue another."""
    digest = hashlib.blake2b(
        json.dumps(settings, sort_keys=True, default=str).encode(), digest_size=16
    )
    for array in arrays:
        values = array.detach().cpu().numpy() if hasattr(array, "detach") else array
        digest.update(str(values.shape).encode())
        digest.update(np.ascontiguousarray(values).data)
    return digest.hexdigest()


def check_reach(
    X: FloatArray,
    ends: tuple[FloatArray, FloatArray],
    scaling: Scaling,
    columns: Mapping[str, IntArray],
    column_names: ColumnNames = None,
) -> None:
    """Refuse entries of new rows that lie so far from the training data that nothing else of the
    row would count.

    Parameters
    ----------
    X : ndarray of float or scipy sparse array, shape (n, M)
    ends : tuple of ndarray of shape (M,)
        The least and the largest value of every column.
    scaling : Scaling
        Of the fit.
    columns : mapping of str to ndarray of int
        Of the views that are scaled.
    column_names : sequence of str, shape (M,), optional

    Raises
    ------
    InputError
        Naming view, row, column and value.
    """
    for values in ends:
        far = np.abs(scaling.apply(values.astype(np.float64)[None])[0])
        for view, positions in columns.items():
            if not (far[positions] > _FARTHEST).any():
                continue
            column = int(positions[np.nanargmax(far[positions])])
            value = float(values[column])
            got = f"{value:g} in {place_of(X, view, column, value, column_names)}"
            want = f"entries within {_FARTHEST:g} standard deviations of the training data"
            raise InputError(
                message(want, got, "correct the value, or write NaN if it is missing")
            )
