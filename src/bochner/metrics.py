"""Measures of quality: arrays in, number out."""

from __future__ import annotations

import math
from collections.abc import Hashable
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import norm
from sklearn import manifold
from sklearn.model_selection import KFold, cross_val_score
from sklearn.neighbors import KNeighborsClassifier

from bochner.data.accepted import checked
from bochner.data.arrays import Float64Array, is_missing
from bochner.data.validation import as_array, finite, matrix, numbers, same_rows, same_shape
from bochner.errors import InputError, message

# Of cross-validation.
FOLDS = 5
# Spread of a column, over its largest number, that is rounding.
_ROUNDING = 4 * np.finfo(np.float64).eps


def aligned_r2(X_true: ArrayLike, Z: ArrayLike) -> Float64Array:
    """R² of the true latents after the best affine map of Z onto them, per dimension.

    Latents of these models are known up to an affine map only, so the map is fitted before the
    comparison.

    Parameters
    ----------
    X_true : array-like, shape (N, D)
    Z : array-like, shape (N, D_z)

    Returns
    -------
    ndarray of float64, shape (D,)
        1 − residual / total sum of squares; 1 is a perfect affine copy, 0 no better than the mean.

    Raises
    ------
    InputError
        For NaN or inf, unequal numbers of rows, or a constant true dimension.
    """
    X = matrix("X_true", X_true)
    Z = matrix("Z", Z)
    same_rows({"X_true": X, "Z": Z})
    # the share that is explained does not depend on anyone's units
    X = _centred(X)
    Z = _centred(Z)
    total = np.sum(X**2, axis=0)
    if not total.all():
        got = f"a constant dimension {int(np.argmin(total))}"
        raise InputError(message("true latents that vary", got, "drop that dimension"))
    residual = X - Z @ np.linalg.lstsq(Z, X, rcond=None)[0]
    return np.asarray(1 - np.sum(residual**2, axis=0) / total)


def _centred(values: Float64Array, together: bool = False) -> Float64Array:
    """Return columns less their means, 0 where they are constant but for rounding, over the largest
    number: of each column, or of all together.
    """
    largest = np.abs(values).max(axis=0)
    unit = np.where(largest > 0, largest, 1.0)
    # no square, and no sum, overflows
    scaled = values / unit
    centred = scaled - scaled.mean(axis=0)
    centred[:, np.ptp(scaled, axis=0) <= _ROUNDING] = 0.0
    if together:
        unit /= unit.max()
        centred *= unit
    spread = np.abs(centred).max(axis=None if together else 0)
    return np.asarray(centred / np.where(spread > 0, spread, 1.0))


def mean_aligned_r2(X_true: ArrayLike, Z: ArrayLike) -> float:
    """Mean of `aligned_r2` over the true dimensions.

    Parameters
    ----------
    X_true : array-like, shape (N, D)
    Z : array-like, shape (N, D_z)

    Returns
    -------
    float

    Raises
    ------
    InputError
        As `aligned_r2`.
    """
    return float(aligned_r2(X_true, Z).mean())


@checked(k=[Integral])
def knn_accuracy(Z: ArrayLike, labels: ArrayLike, k: int = 1) -> float:
    """Accuracy of a k-nearest-neighbour classifier on Z, mean over 5 shuffled folds (fixed seed 0).

    Parameters
    ----------
    Z : array-like, shape (N, D)
    labels : array-like, shape (N,)
    k : int
        Neighbours; at most the rows of four folds.

    Returns
    -------
    float

    Raises
    ------
    InputError
        Labels are not one per row, one is missing or no label, or k does not fit the rows.
    """
    Z = matrix("Z", Z)
    y = as_array("labels", labels)
    if y.shape != (len(Z),):
        raise InputError(
            message(
                f"labels of shape ({len(Z)},), one per row of Z",
                str(y.shape),
                "pass one per row",
            )
        )
    rows = len(Z) - -(-len(Z) // FOLDS)
    if len(Z) < FOLDS or not 1 <= k <= rows:
        got = f"k={k} for {len(Z)} rows"
        raise InputError(
            message(
                f"1 <= k <= {max(rows, 0)}, the rows of four folds",
                got,
                "lower k or pass more rows",
            )
        )
    folds = KFold(FOLDS, shuffle=True, random_state=0)
    return float(
        cross_val_score(KNeighborsClassifier(k), _in_range(Z), _classes(y), cv=folds).mean()
    )


def _classes(labels: NDArray[np.generic]) -> NDArray[np.intp]:
    """Return the number of every row's class, in the order of the labels."""
    values: list[Any] = labels.tolist()
    for i, value in enumerate(values):
        if is_missing(value):
            do = "leave out the rows without one"
            raise InputError(message("a label for every row", f"{value} in row {i}", do))
        if not isinstance(value, Hashable):
            got = f"an object of type {type(value).__name__} in row {i}"
            raise InputError(message("labels", got, "pass texts or whole numbers"))
    try:
        kinds = sorted(set(values))
    except TypeError:  # of several types
        kinds = sorted(set(values), key=str)
    number_of = {value: i for i, value in enumerate(kinds)}
    return np.array([number_of[value] for value in values], dtype=np.intp)


@checked(k=[Integral])
def trustworthiness(X: ArrayLike, Z: ArrayLike, k: int = 10) -> float:
    """How far neighbours in Z are neighbours in X: scikit-learn's trustworthiness, 1 is best.

    Parameters
    ----------
    X : array-like, shape (N, M)
    Z : array-like, shape (N, D)
    k : int
        Neighbours; less than N / 2.

    Returns
    -------
    float

    Raises
    ------
    InputError
        Rows differ in number, or k does not fit them.
    """
    X = matrix("X", X)
    Z = matrix("Z", Z)
    same_rows({"X": X, "Z": Z})
    if not 1 <= k < len(X) / 2:
        got = f"k={k} for {len(X)} rows"
        raise InputError(message("1 <= k < half the rows", got, "lower k or pass more rows"))
    return float(manifold.trustworthiness(_in_range(X), _in_range(Z), n_neighbors=k))


def _in_range(values: Float64Array) -> Float64Array:
    """Return values over a power of two, which rounds nothing and keeps neighbours, so that squares
    of distances neither overflow nor vanish.
    """
    largest = float(np.abs(values).max(initial=0.0))
    return np.ldexp(values, -math.frexp(largest)[1]) if largest > 0 else values


def rmse(true: ArrayLike, predicted: ArrayLike, mask: ArrayLike | None = None) -> float:
    """Root mean squared error, over the entries of a mask where one is given.

    Parameters
    ----------
    true, predicted : array-like, one shape
        Finite where the mask is True (everywhere without a mask).
    mask : array-like of bool, same shape, optional

    Returns
    -------
    float

    Raises
    ------
    InputError
        Shapes differ, a value is not finite, or nothing is left to compare.
    """
    a = numbers("true", true)
    b = numbers("predicted", predicted)
    same_shape({"true": a, "predicted": b})
    if mask is not None:
        chosen = as_array("mask", mask)
        if chosen.dtype != np.bool_ or chosen.shape != a.shape:
            got = f"{chosen.dtype} of shape {chosen.shape}"
            raise InputError(
                message(
                    f"a boolean mask of shape {a.shape}", got, "mark the entries to compare"
                )
            )
        a = a[chosen]
        b = b[chosen]
    if a.size == 0:
        raise InputError(
            message("entries to compare", "none", "pass a mask that is True somewhere")
        )
    finite({"true": a, "predicted": b})
    return _norm(a - b) / math.sqrt(a.size)


@checked(level=[Real])
def coverage(true: ArrayLike, mean: ArrayLike, std: ArrayLike, level: float = 0.9) -> float:
    """Share of true values inside the central interval of N(mean, std²) that should hold `level` of
    them.

    Parameters
    ----------
    true, mean, std : array-like, one shape
        std >= 0.
    level : float
        In (0, 1).

    Returns
    -------
    float

    Raises
    ------
    InputError
        Shapes differ, a value is not finite, a standard deviation is negative, or the level is
        outside (0, 1).
    """
    if not 0 < level < 1:
        raise InputError(
            message("a level between 0 and 1", str(level), "write 0.9 for nine in ten")
        )
    t, m, s = _predictive(true, mean, std)
    return float(np.mean(np.abs(t - m) <= norm.ppf(0.5 + level / 2) * s))


def pit(true: ArrayLike, mean: ArrayLike, std: ArrayLike) -> Float64Array:
    """Probability integral transform: the distribution function of N(mean, std²) at the true
    values.

    Uniform on [0, 1] where the predictive distribution is right; standard deviations say how it is
    not.

    Parameters
    ----------
    true, mean, std : array-like, one shape
        std > 0.

    Returns
    -------
    ndarray of float64, the same shape

    Raises
    ------
    InputError
        Shapes differ, a value is not finite, or a standard deviation is not positive.
    """
    t, m, s = _predictive(true, mean, std)
    if not s.all():
        raise InputError(
            message(
                "positive standard deviations",
                "a standard deviation of 0",
                "leave out entries that are known",
            )
        )
    return np.asarray(norm.cdf((t - m) / s))


@checked(random_state=[Integral, None])
def randomised_pit(
    true: ArrayLike, draws: ArrayLike, random_state: int | None = None
) -> Float64Array:
    """Probability integral transform by draws: the rank of the true value among them, ties broken
    at random.

    Uniform on [0, 1] where truth and draws come from one distribution, whatever it is: counts and
    categories too.

    Parameters
    ----------
    true : array-like, any shape
    draws : array-like, shape (S, ...)
        Of the predictive distribution, S of them along the first axis; 200 tell apart what matters.
    random_state : int, optional
        Of what breaks ties, and of the place within a rank.

    Returns
    -------
    ndarray of float64, shape of true
    """
    t = numbers("true", true)
    d = numbers("draws", draws)
    if d.ndim != t.ndim + 1 or d.shape[1:] != t.shape or not len(d):
        do = "put the draws along the first axis"
        raise InputError(
            message(f"draws of shape (S, {', '.join(map(str, t.shape))})", f"{d.shape}", do)
        )
    finite({"true": t, "draws": d})
    uniform = np.random.default_rng(random_state).random(t.shape)
    return np.asarray(
        ((d < t).sum(axis=0) + uniform * ((d == t).sum(axis=0) + 1)) / (len(d) + 1)
    )


def procrustes_agreement(Z: ArrayLike, other: ArrayLike) -> float:
    """Agreement of two embeddings of the same rows up to shift, rotation, reflection and scale: 1
    is a perfect copy.

    Parameters
    ----------
    Z, other : array-like, shape (N, D)
        Fewer dimensions are filled up with zeros.

    Returns
    -------
    float
        1 - residual / total sum of squares after the best such map of one onto the other; in [0,
        1], symmetric.
    """
    A = matrix("Z", Z)
    B = matrix("other", other)
    same_rows({"Z": A, "other": B})
    A = _centred(A, together=True)
    B = _centred(B, together=True)
    total = float(np.sum(A**2) * np.sum(B**2))
    if total == 0:
        raise InputError(
            message("embeddings that vary", "one with all rows at one point", "fit it again")
        )
    shared = float(np.linalg.svd(A.T @ B, compute_uv=False).sum() ** 2)
    # rounding may lead beyond
    return min(shared / total, 1.0)


def relative_error(A: ArrayLike, B: ArrayLike) -> float:
    """Frobenius norm of A − B over that of B, the reference; one shape (N, M).

    Parameters
    ----------
    A, B : array-like, shape (N, M)
        B is the reference.

    Returns
    -------
    float

    Raises
    ------
    InputError
        Shapes differ, an entry is not finite, or B is zero.
    """
    a = matrix("A", A)
    b = matrix("B", B)
    same_shape({"A": a, "B": b})
    unit = np.abs(b).max()
    if unit == 0:
        raise InputError(
            message("a reference B that is not zero", "zeros only", "exchange A and B")
        )
    return _norm(a / unit - b / unit) / _norm(b / unit)


def _norm(values: Float64Array) -> float:
    """Return the Frobenius norm, of numbers whose squares overflow or vanish, too."""
    largest = float(np.abs(values).max())
    return largest * float(np.linalg.norm(values / largest)) if largest > 0 else 0.0


def _predictive(
    true: ArrayLike, mean: ArrayLike, std: ArrayLike
) -> tuple[Float64Array, Float64Array, Float64Array]:
    t = numbers("true", true)
    m = numbers("mean", mean)
    s = numbers("std", std)
    same_shape({"true": t, "mean": m, "std": s})
    finite({"true": t, "mean": m, "std": s})
    if t.size == 0 or (s < 0).any():
        got = "none" if t.size == 0 else f"{s.min()}"
        raise InputError(
            message(
                "values with standard deviations of at least 0",
                got,
                "pass standard deviations",
            )
        )
    return t, m, s
