"""The linear SVM that feature maps are judged by: scikit-learn's ``LinearSVC(dual=False)`` to its
minimum, and the C that cross-validation of training rows chooses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler

Array = NDArray[Any]
PENALTIES = tuple(10.0**power for power in range(-6, 5))
FOLDS = 3
# Cross-validation of that many training rows
CHOOSING_ROWS = 5000
# The slope at the minimum, relative to the coefficients
_EXACT, _MOST_STEPS = 1e-3, 200


class SquaredHinge(ClassifierMixin, BaseEstimator):
    """The linear SVM of LinearSVC(dual=False), to its minimum by Newton's method.

    1/2 ||w||^2 + C sum max(0, 1 - y f)^2 with an intercept that is penalised too: quadratic while
    the same rows are within the margin, so that a few dense solves, with the least loss along each
    step, replace hundreds of passes over the rows. Of several classes each against the others.
    """

    def __init__(self, C: float = 1.0) -> None:
        self.C = C

    def fit(self, X: Array, y: Array) -> SquaredHinge:
        self.classes_, (self.coef_,) = np.unique(y), minima(X, y, (self.C,))
        return self

    def predict(self, X: Array) -> Array:
        return np.asarray(self.classes_[_winner(self.coef_, X)])


@dataclass
class _Problem:
    """Rows with a column of ones and the side of the plane that they belong on."""

    Z: Array
    sign: Array
    # products of all rows where these are fewer than the columns, else of the columns over the rows
    # within the margin, of which a step changes few
    gram: Array
    within: Array

    def minima(self, penalties: Sequence[float]) -> Iterator[Array]:
        """Yield the minimum of every C, from the one before on."""
        w, margin = np.zeros(self.Z.shape[1], self.Z.dtype), np.zeros_like(self.sign)
        for C in penalties:
            for _ in range(_MOST_STEPS):
                inside = np.maximum(0, 1 - margin)
                slope = w - 2 * C * (self.sign * inside) @ self.Z
                if np.linalg.norm(slope) <= _EXACT * np.linalg.norm(w):
                    break
                step = self._newton(C, margin < 1) - w
                along = self.sign * (self.Z @ step)
                size = _lowest(C, w @ step, step @ step, 1 - margin, along)
                w, margin = w + size * step, margin + size * along
            yield w

    def _newton(self, C: float, within: Array) -> Array:
        """Minimise the quadratic of the rows within the margin, from their products where they are
        fewer than the columns.
        """
        Z, sign = self.Z[within], self.sign[within]
        if len(self.Z) < self.Z.shape[1]:
            return Z.T @ _solve(self.gram[np.ix_(within, within)], C, sign)
        if len(Z) < Z.shape[1]:
            return Z.T @ _solve(Z @ Z.T, C, sign)
        came, went = self.Z[within & ~self.within], self.Z[self.within & ~within]
        if len(came) + len(went) < len(Z):
            self.gram = self.gram + came.T @ came - went.T @ went
        else:
            self.gram = Z.T @ Z
        self.within = within
        return _solve(self.gram.copy(), C, Z.T @ sign)


def _lowest(C: float, slope: float, curvature: float, gap: Array, along: Array) -> float:
    """Return how far along a step the loss is least: its slope is linear between the places where
    rows enter or leave the margin (Keerthi and DeCoste 2005).
    """
    gap, along = gap.astype(np.float64), along.astype(np.float64)
    inside = (gap > 0) | ((gap == 0) & (along < 0))
    with np.errstate(divide="ignore", invalid="ignore"):
        place = gap / along
    rows = np.flatnonzero((place > 0) & np.isfinite(place))
    rows = rows[np.argsort(place[rows])]
    came = np.where(inside[rows], -1.0, 1.0)
    first, second = -2 * C * along * gap, 2 * C * along**2
    constant = slope + first[inside].sum() + np.r_[0.0, np.cumsum(came * first[rows])]
    linear = curvature + second[inside].sum() + np.r_[0.0, np.cumsum(came * second[rows])]
    ends = np.r_[place[rows], np.inf]
    segment = int(np.argmax(constant + linear * ends >= 0))
    return float(-constant[segment] / linear[segment])


def _solve(square: Array, C: float, right: Array) -> Array:
    square[np.diag_indices(len(square))] += 1 / (2 * C)
    factor = cho_factor(square, overwrite_a=True, check_finite=False)
    return np.asarray(cho_solve(factor, right))


def minima(X: Array, y: Array, penalties: Sequence[float]) -> Iterator[Array]:
    """Yield the coefficients of every C, a row per class (one of two classes)."""
    Z, classes = np.column_stack([X, np.ones(len(X), X.dtype)]), np.unique(y)
    wide = len(Z) < Z.shape[1]
    gram = Z @ Z.T if wide else Z.T @ Z
    everywhere = np.ones(len(Z), dtype=bool)
    paths = []
    for c in classes if len(classes) > 2 else classes[1:]:
        sign = np.where(y == c, 1, -1).astype(Z.dtype)
        paths.append(_Problem(Z, sign, gram, everywhere).minima(penalties))
    yield from (np.stack(coef) for coef in zip(*paths, strict=True))


def _winner(coef: Array, X: Array) -> Array:
    """Return the number of the class."""
    values = X @ coef[:, :-1].T + coef[:, -1]
    return np.asarray(values.argmax(1) if len(coef) > 1 else (values[:, 0] > 0).astype(int))


def some_rows(n: int, seed: int, most: int = CHOOSING_ROWS) -> Array:
    """Return the training rows that choices see."""
    return np.random.default_rng(seed).permutation(n)[:most]


def validated(
    X: Array, y: Array, penalties: Sequence[float] = PENALTIES
) -> dict[float, float]:
    """Return the mean accuracy of every C on the folds left out; columns are standardised by the
    other folds.
    """
    classes, scores = np.unique(y), np.zeros(len(penalties))
    for train, test in StratifiedKFold(FOLDS).split(X, y):
        scaler = StandardScaler().fit(X[train])
        rest = scaler.transform(X[test])
        for i, coef in enumerate(minima(scaler.transform(X[train]), y[train], penalties)):
            scores[i] += np.mean(classes[_winner(coef, rest)] == y[test]) / FOLDS
    return dict(zip(penalties, scores.tolist(), strict=True))


def accuracy(
    train: tuple[Array, Array], test: tuple[Array, Array], seed: int
) -> dict[str, float]:
    """Return the accuracy on the test rows and the C, chosen by cross-validation within the
    training rows; of equals the smallest.
    """
    X, y = train
    some = some_rows(len(X), seed)
    scores = validated(X[some], y[some])
    C = max(scores, key=lambda c: (scores[c], -c))
    scaler = StandardScaler().fit(X)
    model = SquaredHinge(C).fit(scaler.transform(X), y)
    return {"accuracy": float(model.score(scaler.transform(test[0]), test[1])), "C": C}
