"""Statistics of hidden entries: means whose errors count rows, columns side by side, skewness, and
whether the errors of a row go together more than draws of the model do.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2, norm

from bochner.data.arrays import Float64Array

# Columns with fewer entries are not compared; differences of so much do not count.
_COLUMN_ENTRIES = 20
_TOLERANCE = 0.02
# Ranks among draws have an end.
_SCORED = 2.5e-3
# Fewer pairs of hidden entries in one row tell nothing.
_LEAST_PAIRS = 200


def sums_of_rows(
    pit: Float64Array, drawn: Float64Array, rows: NDArray[np.intp], n: int, seed: int
) -> Float64Array:
    """Sum normal scores of a view's hidden entries over rows.

    Parameters
    ----------
    pit : ndarray of shape (E,)
        Of the entries.
    drawn : ndarray of shape (S, E)
        Joint draws of them.
    rows : ndarray of int, shape (E,)
        Of n.
    n : int
    seed : int
        Of what breaks ties between draws.

    Returns
    -------
    ndarray of shape (4, n)
        Number of pairs of entries, squares of the scores, products of pairs of the truth, and these
        on average over draws.
    """
    count = np.bincount(rows, minlength=n)
    ties = np.random.default_rng(seed).random(drawn.shape)
    order = np.lexsort((ties, drawn), axis=0)
    ranks = np.empty(drawn.shape)
    np.put_along_axis(ranks, order, np.arange(len(drawn))[:, None] + 0.5, axis=0)
    edge = 0.5 / len(drawn)
    scores = norm.ppf(pit.clip(edge, 1.0 - edge))
    squares, products = _sums(scores[None], rows, n)
    _, of_draws = _sums(norm.ppf(ranks / len(drawn)), rows, n)
    pairs = 0.5 * count * (count - 1.0)
    return np.stack([pairs, squares, products, of_draws])


def _sums(z: Float64Array, rows: NDArray[np.intp], n: int) -> Float64Array:
    """Return squares and products of pairs, mean over draws (S, E) -> (2, n)."""
    squares = np.bincount(rows, np.square(z).mean(axis=0), minlength=n)
    totals = np.zeros((len(z), n))
    for s, scores in enumerate(z):
        totals[s] = np.bincount(rows, scores, minlength=n)
    pairs = 0.5 * (np.square(totals).mean(axis=0) - squares)
    return np.stack([squares, pairs])


def beyond_draws(sums: Float64Array, n_entries: int) -> tuple[float, float]:
    """Return how much more the scores of a row's entries correlate than those of draws, and its
    standard error.

    Parameters
    ----------
    sums : ndarray of shape (4, n)
        As `sums_of_rows` has them.
    n_entries : int

    Returns
    -------
    float, float
        (0, inf) where few rows have several hidden entries.
    """
    counts, squares, pairs, expected = sums
    total = counts.sum()
    if total < _LEAST_PAIRS:
        return 0.0, float("inf")
    scale = max(squares.sum() / n_entries, 1e-12)
    away = pairs / scale - expected
    more = float(away.sum() / total)
    error = np.sqrt(np.square(away - more * counts).sum()) / total
    return more, float(error)


def skewness(pit: Float64Array, rows: NDArray[np.intp]) -> tuple[float, float]:
    """Return the skewness of normal scores about their mean, and its standard error."""
    z = norm.ppf(pit.clip(_SCORED, 1.0 - _SCORED))
    z = (z - z.mean()) / max(z.std(), 1e-12)
    return mean_of_rows(z**3 - 3.0 * z, rows)


def beyond_scale(
    pit: Float64Array, rows: NDArray[np.intp], level: float, most: float
) -> tuple[float, float]:
    """Return how many more entries lie far out than where the inner half says, and the standard
    error.

    Far out: outside the central intervals that should hold a share, counted in deviations of a
    normal distribution that has the inner half of the scores, and no more than so many of these. A
    factor by which all deviations are wrong changes nothing.

    Parameters
    ----------
    pit : ndarray of shape (E,)
    rows : ndarray of int, shape (E,)
    level : float
    most : float
        Deviations.

    Returns
    -------
    float, float
        A share less what the normal distribution has there. The error has that of the inner half's
        scale in it; (0, inf) where the scale leaves nothing inside the intervals to compare with.
    """
    away = np.abs(norm.ppf(pit.clip(_SCORED, 1.0 - _SCORED)))
    middle = float(np.median(away))
    quartile = float(norm.ppf(0.75))
    limit = float(norm.ppf(0.5 + 0.5 * level))
    c = min(limit * quartile / max(middle, 1e-12), most)
    if c < 1.0:
        return 0.0, float("inf")
    p = 2.0 * float(norm.sf(c))
    far = away > c * middle / quartile
    # what an error of the middle does to the share
    slope = float(norm.pdf(c) / norm.pdf(quartile)) * c / quartile
    influence = far - p + slope * ((away <= middle) - 0.5)
    excess, error = mean_of_rows(influence, rows)
    variance = p * (1.0 - p) + 0.25 * slope**2 - slope * p
    least = np.sqrt(variance / len(pit))
    return excess, max(error, float(least))


def mean_of_rows(values: Float64Array, rows: NDArray[np.intp]) -> tuple[float, float]:
    """Return the mean of entries and its standard error when rows are independent and their entries
    are not.
    """
    mean = float(values.mean())
    _, inverse = np.unique(rows, return_inverse=True)
    sums = np.bincount(inverse, values - mean)
    n = len(sums)
    if n < 2:
        return mean, float("inf")
    error = np.sqrt(n / (n - 1) * np.sum(sums**2)) / len(values)
    return mean, float(error)


def mean_of_fits(
    values: Float64Array, rows: NDArray[np.intp], fits: NDArray[np.intp]
) -> tuple[float, float]:
    """Return the mean of entries that several fits predicted, and its standard error: rows and
    fits are drawn.

    The variance of fits is that of their means beyond what their rows explain, at least 0; of one
    fit there is none to see.

    Parameters
    ----------
    values : ndarray of shape (E,)
    rows : ndarray of int, shape (E,)
    fits : ndarray of int, shape (E,)
        Numbers from 0 on of the fits that predicted the entries.
    """
    mean, of_rows = mean_of_rows(values, rows)
    counts = np.bincount(fits)
    if len(counts) < 2:
        return mean, of_rows
    means = np.bincount(fits, values) / counts
    _, inverse = np.unique(rows, return_inverse=True)
    shares = np.zeros((len(counts), int(inverse.max()) + 1))
    np.add.at(shares, (fits, inverse), (values - means[fits]) / counts[fits])
    first, second = np.triu_indices(len(counts), 1)
    apart = np.square(means[first] - means[second])
    explained = np.square(shares[first] - shares[second]).sum(axis=1)
    of_fits = max(0.5 * float((apart - explained).mean()), 0.0)
    weights = np.square(counts / counts.sum()).sum()
    return mean, float(np.sqrt(of_rows**2 + of_fits * weights))


def by_column(
    inside: Float64Array, columns: NDArray[np.intp]
) -> tuple[int, int, float, tuple[float, float]]:
    """Compare columns with what all of them hold: how many are off, of how many, p of a chi-square
    test, and the range. Differences of a tolerance do not count.
    """
    counts = np.bincount(columns)
    kept = counts >= _COLUMN_ENTRIES
    if not kept.any():
        return 0, 0, 1.0, (float("nan"), float("nan"))
    sums = np.bincount(columns, inside)[kept]
    counts = counts[kept]
    shares = sums / counts
    counted = int(kept.sum())
    # a little of every kind, so that columns that hold all or nothing have an error
    mean = (sums.sum() + 1.0) / (counts.sum() + 2.0)
    squares = np.square(shares - mean) / (mean * (1.0 - mean) / counts + _TOLERANCE**2)
    p = float(chi2.sf(squares.sum(), counted - 1)) if counted > 1 else 1.0
    off = int((squares > chi2.isf(0.05 / counted, 1)).sum())
    return off, counted, p, (float(shares.min()), float(shares.max()))
