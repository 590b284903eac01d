"""Scaling of the stacked matrix: a centre per column, one scalar per view, or per column of tables
whose columns have different units.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from bochner.data.arrays import BoolArray, FloatArray, IntArray
from bochner.data.columns import columns_of
from bochner.data.sparse import moments
from bochner.errors import InputError, message
from bochner.memory import passes
from bochner.processes import ALONE, Processes


@dataclass(frozen=True)
class Scaling:
    """The affine map z = (x − centre) / scale and its inverse; NaN (missing) stays NaN.

    Attributes
    ----------
    centre : ndarray of float64, shape (M,)
        Mean of the observed entries of every column, in the units of X.
    scale : ndarray of float64, shape (M,)
        The scalar of the view a column belongs to, repeated over its columns: the root mean square
        of the centred observed entries of the view, or 1.0 where that is 0: ratios between columns
        are kept. In tables with columns of several kinds, that of every column of numbers.
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
        if sp.issparse(X):
            return cls._fit_sparse(X, columns)
        centre = _means(X, processes)
        return cls(centre, _scales(X, columns, centre, processes))

    @classmethod
    def _fit_sparse(cls, X: FloatArray, columns: Mapping[str, IntArray]) -> Scaling:
        """Zeros count as observed; the same numbers as of the dense matrix, to rounding."""
        largest = np.asarray(abs(X).max(axis=0).toarray()).ravel()
        centre, scale = np.zeros(X.shape[1]), np.ones(X.shape[1])
        for own in columns.values():
            peak = max(float(largest[own].max()), 1e-300)
            mean, square = moments(X[:, own] / peak)
            centre[own] = peak * mean
            spread = float(np.sqrt(square.sum() / (X.shape[0] * own.size)))
            scale[own] = peak * spread if spread > 8 * np.finfo(np.float64).eps else 1.0
        return cls(centre, scale)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[np.float64]]) -> Scaling:
        """Rebuild what `to_arrays` wrote; lists of numbers do as well."""
        centre, scale = (np.asarray(arrays[key], dtype=np.float64) for key in ("centre", "scale"))
        if centre.ndim != 1 or centre.shape != scale.shape:
            got = f"shapes {centre.shape} and {scale.shape}"
            raise InputError(
                message("centre and scale of one shape (M,)", got, "save the model again")
            )
        if not (np.isfinite(centre).all() and np.isfinite(scale).all() and (scale > 0).all()):
            raise InputError(
                message("a finite centre and a positive scale", "others", "save the model again")
            )
        return cls(centre, scale)

    def to_arrays(self) -> dict[str, NDArray[np.float64]]:
        """Return the arrays that define the map, for a model file."""
        return {"centre": self.centre, "scale": self.scale}

    def apply(self, X: FloatArray) -> FloatArray:
        """Map X, shape (N, M), to scaled units; the floating type of X is kept, the arithmetic is
        in float64.
        """
        Z = np.empty_like(X)
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

    def log_jacobian(self, observed: BoolArray | IntArray) -> NDArray[np.float64]:
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


def _parts(X: FloatArray) -> Iterator[FloatArray]:
    """Cut rows, which need not be in memory."""
    return (X[rows] for rows in passes(X.shape))


def _means(X: FloatArray, processes: Processes) -> NDArray[np.float64]:
    """Means of the observed entries of every column: float64 sums, and no float64 copy of X."""
    total, count = np.zeros(X.shape[1]), np.zeros(X.shape[1])
    for part in _parts(X):
        total += np.nansum(part, axis=0, dtype=np.float64)
        count += (~np.isnan(part)).sum(axis=0)
    total, count = _over(processes.sum, total, count)
    return total / count


def _over(
    collect: Callable[[Tensor], Tensor], *arrays: NDArray[np.float64]
) -> list[NDArray[np.float64]]:
    """Return what all processes have of some arrays."""
    return [collect(torch.from_numpy(array)).numpy() for array in arrays]


def _scales(
    X: FloatArray,
    columns: Mapping[str, IntArray],
    centre: NDArray[np.float64],
    processes: Processes,
) -> NDArray[np.float64]:
    """Root mean square of every view about its centre, repeated over its columns, in two passes."""
    peak, largest = np.zeros(X.shape[1]), np.zeros(X.shape[1])
    for part in _parts(X):
        np.fmax(peak, np.fmax.reduce(np.abs(part - centre), axis=0), out=peak)
        np.fmax(largest, np.fmax.reduce(np.abs(part), axis=0), out=largest)
    peak, largest = _over(processes.largest, peak, largest)
    scale = np.ones(X.shape[1])
    # Constant columns leave rounding errors of the mean behind: they are 0, not a scale to divide
    # by.
    rounding = 8 * np.finfo(np.float64).eps
    varied = [own for own in columns.values() if peak[own].max() > rounding * largest[own].max()]
    squares, counts = np.zeros(len(varied)), np.zeros(len(varied))
    for part in _parts(X) if varied else ():
        for v, own in enumerate(varied):
            values = columns_of(part, own)
            # divided by the peak, squares cannot overflow
            squares[v] += float(np.nansum(((values - centre[own]) / peak[own].max()) ** 2))
            counts[v] += np.count_nonzero(~np.isnan(values))
    squares, counts = _over(processes.sum, squares, counts)
    for own, square, count in zip(varied, squares, counts, strict=True):
        scale[own] = peak[own].max() * float(np.sqrt(square / count))
    return scale
