"""Which values a likelihood can have produced, and which likelihood could have produced the
values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bochner.data.arrays import BoolArray, FloatArray, IntArray
from bochner.data.columns import ColumnNames, are_row_names, describe_column, extremes
from bochner.data.sparse import moments
from bochner.errors import InputError, message
from bochner.memory import passes

# What `guess` calls counts.
COUNTS = ("poisson", "negative_binomial")
# Shares and ratios that decide between counts and bounded scores, and between Poisson and negative
# binomial.
_PILED_UP = 0.01
_EXCESS = 1.2
# Standard errors by which a ratio lies clearly below that of a Poisson: one table of Poisson counts
# in 30,000 does by chance.
_CLEARLY = 4.0


@dataclass(frozen=True)
class Support:
    """What the entries of a view may be.

    Attributes
    ----------
    kind : {"positive", "binary", "trials", "counts", "categories"}
    largest : ndarray of shape (), or (M_v,), optional
        Of trials.
    categories : sequence of sequence of float, optional
        Of every column; where training is to find them, rows must share them.
    """

    kind: str
    largest: NDArray[np.float64] | None = None
    categories: Sequence[Sequence[float]] | None = None

    def _refused(
        self, X: FloatArray, columns: IntArray | slice = slice(None)
    ) -> tuple[BoolArray, str, str]:
        """Return which entries, of the given columns, cannot be, what was expected and what to
        do.
        """
        if self.kind == "binary":
            return (
                (X != 0) & (X != 1),
                "zeros and ones",
                "threshold the column, or choose another likelihood",
            )
        if self.kind == "positive":
            return X <= 0, "numbers above 0", "correct the value, or choose another likelihood"
        if self.kind == "categories":
            known = [
                np.isin(X[:, j], levels) for j, levels in enumerate(self.categories or ())
            ]
            bad = ~np.stack(known, axis=1) if known else np.zeros(X.shape, dtype=bool)
            return (
                bad,
                "categories seen in training",
                "write NaN if the category is new, or fit again with it",
            )
        bad = (X < 0) | (np.floor(X) != X)
        if self.kind == "trials" and self.largest is not None:
            over = (self.largest[columns] if self.largest.ndim else self.largest) < X
            if (over & ~bad).any():
                do = "raise n_trials, or correct the value"
                return bad | over, "counts of at most n_trials", do
        return (
            bad,
            "counts (whole numbers of at least 0)",
            "correct the value, or choose another likelihood",
        )

    def check(
        self,
        X: FloatArray,
        positions: IntArray,
        view: str,
        likelihood: str,
        column_names: ColumnNames = None,
    ) -> None:
        """Refuse entries outside the support.

        Parameters
        ----------
        X : ndarray or scipy sparse array of shape (N, M)
            All columns; NaN = missing.
        positions : ndarray of int, shape (M_v,)
            The view's columns.
        view, likelihood : str
            Names for the message.
        column_names : sequence of str, shape (M,), optional

        Raises
        ------
        InputError
            Naming view, row, column and value of the first such entry.
        """
        if self.kind == "categories" and self.categories is None:
            _refuse_names(X, positions, view, column_names)
            return
        n_trials = self.largest
        if n_trials is not None and n_trials.ndim and n_trials.size != len(positions):
            want = f"n_trials for each of the {len(positions)} columns of view {view!r}"
            do = "give one for every column, or one number for all"
            raise InputError(message(want, f"{n_trials.size}", do))
        for rows in [slice(None)] if sp.issparse(X) else passes(X.shape):
            if (fault := self._first_refused(X[rows][:, positions])) is None:
                continue
            row, column, value, expected, do = fault
            where = describe_column(int(positions[column]), column_names)
            want = f"{expected} in view {view!r} (likelihood {likelihood!r})"
            row += rows.start or 0
            got = f"{value:.10g} in row {row}, {where}"
            raise InputError(message(want, got, do), row=row)

    def _first_refused(self, part: Any) -> tuple[int, int, float, str, str] | None:
        """Return row, column and value of the first entry outside the support, what was expected
        and what to do; None: there is none.
        """
        if sp.issparse(part):
            stored: Any = part
            part = stored.tocsr()
            bad, expected, do = self._refused(part.data, part.indices)
            if not bad.any():
                return None
            entry = int(bad.argmax())
            row = int(np.searchsorted(part.indptr, entry, side="right")) - 1
            return row, int(part.indices[entry]), float(part.data[entry]), expected, do
        bad, expected, do = self._refused(part)
        bad &= ~np.isnan(part)
        if not bad.any():
            return None
        row, column = (int(i) for i in np.argwhere(bad)[0])
        return row, column, float(part[row, column]), expected, do


def _refuse_names(
    X: FloatArray, positions: IntArray, view: str, column_names: ColumnNames
) -> None:
    """Refuse a column of categories that differ from row to row."""
    for j in positions.tolist():
        observed = X[:, j][~np.isnan(X[:, j])]
        n_labels = np.unique(observed).size
        if are_row_names(n_labels, observed.size):
            where = describe_column(j, column_names)
            got = f"{n_labels} different values in {observed.size} rows of view {view!r}, {where}"
            do = (
                "drop the column, or choose another likelihood; if they are categories, name them: "
                "bochner.likelihoods.Categorical(categories)"
            )
            raise InputError(message("values that are categories", got, do))


def guess(X: FloatArray) -> tuple[str, str]:
    """Choose a likelihood for the columns of a view, and say why.

    Parameters
    ----------
    X : ndarray or scipy sparse array of shape (N, M_v)
        NaN = missing; zeros that a sparse array does not store are observed.

    Returns
    -------
    name, reason : str

    Notes
    -----
    Zeros and ones are Bernoulli. Whole numbers of at least 0 are counts, unless they pile up at the
    largest of them, as bounded scores do, or vary clearly less than a Poisson, as answers from 1 to
    5 do: Poisson when their variance about the columns' means is that of a Poisson, else negative
    binomial. All else is Gaussian. Categories cannot be told from counts: name them.
    """
    sparse = sp.issparse(X)
    values = np.asarray(X.data if sparse else X[~np.isnan(X)], dtype=np.float64)
    n_zeros = X.shape[0] * X.shape[1] - values.size if sparse else 0
    if np.isin(values, (0.0, 1.0)).all():
        return "bernoulli", "every value is 0 or 1"
    if (values < 0).any():
        return "gaussian", f"there are negative values ({values.min():.6g})"
    fractional = values != np.floor(values)
    if fractional.any():
        return "gaussian", f"there are fractions ({values[fractional][0]:.6g})"
    most = float(values.max(initial=0.0)) if sparse else float(values.max())
    zeros = {0.0: n_zeros}
    top, below = (
        (np.sum(values == v) + zeros.get(v, 0)) / (values.size + n_zeros)
        for v in (most, most - 1)
    )
    if top > _PILED_UP and top > below:
        return (
            "gaussian",
            f"whole numbers pile up at the largest, {most:.6g} ({100 * top:.0f} % of the entries)",
        )
    return _by_variance(_Columns.of(X))


def _by_variance(columns: _Columns) -> tuple[str, str]:
    """Choose a likelihood for whole numbers of at least 0, and say why."""
    if (low := columns.ratio_below_poisson()) is not None:
        return "gaussian", f"whole numbers whose variance is only {low:.2f} times their mean"
    ratio = columns.squares.sum() / max(columns.totals.sum(), 1e-300)
    if ratio <= _EXCESS:
        return "poisson", f"counts whose variance is {ratio:.2f} times their mean"
    return "negative_binomial", f"counts whose variance is {ratio:.3g} times their mean"


def vary_too_little(X: FloatArray) -> bool:
    """Return whether X, (N, M), holds whole numbers of at least 0 that vary clearly less than
    counts.
    """
    values = np.asarray(X.data if sp.issparse(X) else X[~np.isnan(X)])
    whole = (values >= 0).all() and (values == np.floor(values)).all()
    return bool(whole) and _Columns.of(X).ratio_below_poisson() is not None


@dataclass(frozen=True)
class _Columns:
    """Sums over the columns' observed entries, each of shape (M_v,).

    Attributes
    ----------
    counts, totals, squares : ndarray
        Of ones, of entries, and of squares about the mean.
    largest : ndarray
    """

    counts: NDArray[np.float64]
    totals: NDArray[np.float64]
    squares: NDArray[np.float64]
    largest: NDArray[np.float64]

    @classmethod
    def of(cls, X: FloatArray) -> Self:
        """Add up the columns of a matrix, dense or sparse."""
        largest = np.nan_to_num(extremes(X)[1].astype(np.float64))
        if sp.issparse(X):
            mean, squares = moments(X)
            counts = np.full(len(mean), float(X.shape[0]))
            return cls(counts, counts * mean, squares, largest)
        X = np.asarray(X, dtype=np.float64)
        counts = (~np.isnan(X)).sum(0).astype(np.float64)
        totals = np.nansum(X, axis=0)
        squares = np.nansum((X - totals / np.maximum(counts, 1.0)) ** 2, axis=0)
        return cls(counts, totals, squares, largest)

    def ratio_below_poisson(self) -> float | None:
        """Return the pooled ratio of variance to mean where it is clearly below 1; None: it is not.

        Rates that vary from row to row raise the variance of Poisson counts and never lower it. Of
        n counts with one rate and the total t, the squares over the mean have the mean n - 1 and
        the variance 2 (n - 1) (1 - 1 / t), exactly (Haldane 1937). The more rows and columns, the
        nearer to 1 lies the bound.
        """
        # zeros and ones, and constants, are also found beside counts: they tell nothing of these
        kept = (self.largest > 1.0) & (self.squares > 0.0)
        counts, totals, squares = self.counts[kept], self.totals[kept], self.squares[kept]
        means = totals / counts
        expected = (means * (counts - 1.0)).sum()
        variance = 2.0 * (means**2 * (counts - 1.0) * (1.0 - 1.0 / totals)).sum()
        if squares.sum() >= expected - _CLEARLY * np.sqrt(variance):
            return None
        return float(squares.sum() / totals.sum())
