"""Peers of several views, with one face: MOFA (mofapy2) and multiset canonical correlation by
cca-zoo.

``fit`` takes rows side by side and where each view is, ``transform`` places rows of which whole
views may be missing (NaN), and ``complete`` returns all views of them.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import KFold

Array = NDArray[np.float64]
Views = Mapping[str, slice]
# Between correlations (0) and covariances (1) of views: which is right depends on their scales
SHRINKAGES = (1e-4, 1e-3, 1e-2, 0.1, 0.5, 0.9, 1.0)


class Mofa:
    """MOFA+ by mofapy2 (Argelaguet et al. 2020): sparse weights, automatic relevance of factors by
    view.

    New rows are placed by their posterior mean given the weights' first two moments and the noise.
    """

    def __init__(self, n_components: int, seed: int) -> None:
        self.n_components, self.seed = n_components, seed

    def fit(self, X: Array, views: Views) -> Self:
        from mofapy2.run.entry_point import entry_point

        self.mean_ = np.nanmean(X, axis=0)
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run = entry_point()
            run.set_data_options(scale_views=False)
            centred = X - self.mean_
            run.set_data_matrix([[centred[:, columns].copy()] for columns in views.values()])
            run.set_model_options(factors=self.n_components)
            run.set_train_options(
                iter=1000, convergence_mode="medium", seed=self.seed, quiet=True
            )
            run.build()
            run.run()
        nodes = run.model.nodes
        weights = [node.getExpectations() for node in nodes["W"].nodes]
        self.weights_ = np.vstack([np.asarray(w["E"]) for w in weights])
        self.squares_ = np.vstack([np.asarray(w["E2"]) for w in weights])
        noise = [np.asarray(node.getExpectations()["E"]) for node in nodes["Tau"].nodes]
        self.precision_ = np.concatenate([np.atleast_2d(tau).mean(axis=0) for tau in noise])
        self.embedding_ = np.asarray(nodes["Z"].getExpectations()["E"])
        return self

    def transform(self, X: Array) -> Array:
        result = np.zeros((len(X), self.weights_.shape[1]))
        for rows, seen in patterns(X):
            W, tau = self.weights_[seen], self.precision_[seen]
            gram = (W.T * tau) @ W
            gram[np.diag_indices(len(gram))] = 1 + tau @ self.squares_[seen]
            centred = X[np.ix_(rows, seen)] - self.mean_[seen]
            result[rows] = np.linalg.solve(gram, ((centred * tau) @ W).T).T
        return result

    def complete(self, X: Array) -> Array:
        return np.asarray(self.mean_ + self.transform(X) @ self.weights_.T)


class Canonical:
    """Multiset canonical correlation by cca-zoo, regularised; a row is the mean of the scores of
    the views it has.

    Parameters
    ----------
    shrinkage : float or None
        None: the one with the highest correlation of rows left out.
    """

    def __init__(self, n_components: int, shrinkage: float | None = None) -> None:
        self.n_components, self.shrinkage = n_components, shrinkage

    def fit(self, X: Array, views: Views) -> Self:
        from cca_zoo.linear import MCCA
        from cca_zoo.model_selection import GridSearchCV

        self.columns_ = list(views.values())
        blocks: list[Any] = [X[:, columns] for columns in self.columns_]
        model: Any = MCCA(self.n_components, shrinkage=self.shrinkage or 0.0)
        if self.shrinkage is None:
            folds = KFold(5, shuffle=True, random_state=0)
            search = GridSearchCV(model, {"shrinkage": list(SHRINKAGES)}, cv=folds)
            model = search.fit(blocks).best_estimator_
        self.model_ = model if self.shrinkage is None else model.fit(blocks)
        self.embedding_ = self.transform(X)
        return self

    def transform(self, X: Array) -> Array:
        result = np.zeros((len(X), self.n_components))
        for rows, seen in patterns(X):
            scores = [
                (X[rows, columns] - mean) @ weights
                for columns, mean, weights in zip(
                    self.columns_, self.model_.means_, self.model_.weights_, strict=True
                )
                if seen[columns].all()
            ]
            result[rows] = np.mean(scores, axis=0)
        return result

    def complete(self, X: Array) -> Array:
        result = np.zeros_like(X)
        for rows, seen in patterns(X):
            parts = [X[rows, c] if seen[c].all() else None for c in self.columns_]
            for columns, part in zip(self.columns_, self.model_.predict(parts), strict=True):
                result[rows, columns] = part
        return result


def patterns(X: Array) -> Iterable[tuple[NDArray[np.intp], NDArray[np.bool_]]]:
    """Yield rows with the same columns missing, and which columns they have."""
    seen, which = np.unique(~np.isnan(X), axis=0, return_inverse=True)
    for i, columns in enumerate(seen):
        yield np.flatnonzero(which.ravel() == i), columns


def best_completion(
    makers: Iterable[Callable[[], Mofa | Canonical]], X: Array, views: Views, hidden: str
) -> Callable[[], Mofa | Canonical]:
    """Return the maker of the model that completes a view of training rows left out best."""
    scores = []
    for make in (makers := list(makers)):
        error = 0.0
        for train, test in KFold(3, shuffle=True, random_state=0).split(X):
            rows = X[test].copy()
            rows[:, views[hidden]] = np.nan
            guess = make().fit(X[train], views).complete(rows)
            error += float(np.square((guess - X[test])[:, views[hidden]]).sum())
        scores.append(error)
    return makers[int(np.argmin(scores))]
