"""What latents are worth to classifiers, and what they restore: ``python benchmarks/latents.py``.

The tables of the papers that no other program measures. Accuracy of k-nearest neighbours (k = 1 to
10), of scikit-learn's SVC, LogisticRegression and MLPClassifier with their defaults on standardised
latents, in five shuffled folds with seed 0; mean squared error of what latents decode to (``mse``
of data with hidden entries: of the hidden ones; ``mse_all``: of all of them, as the published
programs compute it). Models and peers have D = 2. "NAME p% missing": as
many entries hidden at random, as in ``imputation.py``. "NAME + labels": labels as a second view of
zeros and ones; "labels were input" repeats the published protocol, in which latents have seen the
labels that they are scored by; "labels of the test fold unknown" fits anew for every fold, with the
test rows' labels missing, and scores the test rows alone; "labels as categories": a likelihood of
categories in place of Gaussian noise. ``mlp_tuned`` has its penalty chosen by training rows,
``mlp_trained`` is accuracy on them. "MNIST, D = 50": advisedRFLVM with its
noise learned, and kept at four values; ``collapsed`` counts the latent dimensions that carry
nothing. "MNIST, four rotations": the digits and three turns of them as four views. "channel, D =
n": 1,000 channel vectors of ten users. No label is used for any choice.
BOCHNER_DATA names the folder with the files.
"""

from __future__ import annotations

import functools
import itertools
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from harness import Job, Protocol, Value, arguments, table, timed
from imputation import hide, truth
from multiview import words
from numpy.typing import NDArray
from sklearn.decomposition import NMF, PCA, LatentDirichletAllocation
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from tables_srflvm import LOADERS

import bochner as bo

Array = NDArray[np.float64]

KNN = {f"knn{k}": ".3f" for k in range(1, 11)}
CLASSIFIERS = {"svm": ".3f", "logistic": ".3f", "mlp": ".3f"}
TUNED = {"mlp_tuned": ".3f", "mlp_trained": ".3f"}
REST = {"mse": ".4f", "mse_all": ".4f", "collapsed": ".0f", "seconds": ".0f"}
COLUMNS = {**KNN, **CLASSIFIERS, **TUNED, **REST}
NEIGHBOURS = {"knn1": ".3f", "knn10": ".3f"}
# Tables: what of its data they have in common, and their columns
TABLES: dict[str, dict[str, str]] = {
    "missing": {**NEIGHBOURS, "mse": ".4f", "mse_all": ".4f", "seconds": ".0f"},
    "D = 50": {**NEIGHBOURS, "collapsed": ".0f", "seconds": ".0f"},
    "movies": {**NEIGHBOURS, **CLASSIFIERS, **TUNED, "seconds": ".0f"},
    "": {**NEIGHBOURS, **CLASSIFIERS, "mse": ".4f", "seconds": ".0f"},
}
# Noise variances of MNIST's pixels in [0, 1], whose mean square about the column means is 0.067.
COLLAPSE = (0.01, 0.1, 0.5, 2.0)
COLLAPSE_DIMENSIONS = 50
CHANNEL_DIMENSIONS = (2, 5, 10)
MODELS = {"NG-MVLVM": bo.NGMVLVM, "advisedRFLVM": bo.AdvisedRFLVM, "SRFLVM": bo.SRFLVM}
BGPLVM = "BGPLVM, GPy"
CATEGORIES = "NG-MVLVM, labels as categories were input"
INPUT, UNKNOWN = "NG-MVLVM, labels were input", "NG-MVLVM, labels of the test fold unknown"
FOLDS = KFold(5, shuffle=True, random_state=0)
# As imputation.py fits a plane: few steps from principal components. Digits whose latents are
# classified are fitted by the defaults, holes or not.
PLANE: dict[str, Any] = {"init": "pca", "max_iter": 150, "n_frequencies": 50}
# Data, and who is asked there
WHOLE = {
    "bridges": ("NG-MVLVM", "advisedRFLVM", "NMF", "LDA", BGPLVM),
    "newsgroups": ("NG-MVLVM", "advisedRFLVM", "NMF", "LDA"),
    "MNIST": ("NG-MVLVM", "advisedRFLVM", "NMF", "LDA"),
    "CIFAR": ("NG-MVLVM", "advisedRFLVM", "SRFLVM", "NMF", "LDA"),
    "Brendan": ("advisedRFLVM", "SRFLVM"),
    "movies617": ("NG-MVLVM",),
    "MNIST, four rotations": ("NG-MVLVM", "PCA"),
}
HIDDEN = {
    "MNIST": ("advisedRFLVM",),
    "Brendan": ("advisedRFLVM", "SRFLVM"),
    "CIFAR": ("SRFLVM",),
}
LABELLED = ("bridges", "MNIST", "CIFAR", "newsgroups")


@functools.lru_cache(4)
def data_of(
    name: str, seed: int
) -> tuple[Array, NDArray[Any] | None, dict[str, slice] | None]:
    """Return rows, labels where there are any, and views where there are several."""
    if name == "movies617":
        X, views, labels = words(name)
        return X, labels, views
    if name == "Brendan":
        return truth(name, seed), None, None
    stem, _, turned = name.partition(", four ")
    X, labels = LOADERS[stem](seed)
    if not turned:
        return X, labels, None
    images = X.reshape(len(X), 28, 28)
    turns = [np.rot90(images, k, axes=(1, 2)).reshape(X.shape) for k in range(4)]
    views = {f"{90 * k} degrees": slice(k * 784, (k + 1) * 784) for k in range(4)}
    return np.hstack(turns), labels, views


def classified(Z: Array, labels: NDArray[Any]) -> dict[str, Value]:
    """Return accuracies in five folds."""
    scores: dict[str, Value] = {
        f"knn{k}": bo.metrics.knn_accuracy(Z, labels, k) for k in range(1, 11)
    }
    for name, classifier in classifiers().items():
        pipeline = make_pipeline(StandardScaler(), classifier)
        scores[name] = float(cross_val_score(pipeline, Z, labels, cv=FOLDS).mean())
    return scores


def networks(Z: Array, labels: Any) -> dict[str, Value]:
    """Return the accuracy of a network whose penalty training rows choose, and that of the default
    on its own training rows.
    """
    network = make_pipeline(StandardScaler(), classifiers()["mlp"])
    grid = GridSearchCV(network, {"mlpclassifier__alpha": (1e-4, 1e-1, 1.0, 10.0)}, cv=3)
    return {
        "mlp_tuned": float(cross_val_score(grid, Z, labels, cv=FOLDS).mean()),
        "mlp_trained": float(network.fit(Z, labels).score(Z, labels)),
    }


def classifiers() -> dict[str, Any]:
    """Build the classifiers beside neighbours."""
    return {
        "svm": SVC(),
        "logistic": LogisticRegression(max_iter=1000),
        "mlp": MLPClassifier(max_iter=1000, random_state=0),
    }


def fitted(
    X: Array, method: str, views: Any, seed: int, **options: Any
) -> tuple[Array, Array]:
    """Return latents and what they decode to."""
    if method in MODELS:
        model: Any = MODELS[method](views=views, random_state=seed, **options)
        return model.fit_transform(X), model.inverse_transform(model.embedding_)
    if method == BGPLVM:
        return bayesian_gplvm(X, seed)
    peers: dict[str, Any] = {
        "NMF": NMF(2, init="nndsvda", max_iter=1000, random_state=seed),
        "LDA": LatentDirichletAllocation(2, random_state=seed),
        "PCA": PCA(2, random_state=seed),
    }
    Z = peers[method].fit_transform(X)
    if method == "LDA":  # two topic shares sum to one: that is a line, as in the papers
        return Z, np.full_like(X, np.nan)
    return Z, peers[method].inverse_transform(Z)


def bayesian_gplvm(X: Array, seed: int) -> tuple[Array, Array]:
    """Fit GPy's Bayesian Gaussian process latent variable model: 30 inducing points, from principal
    components, until its optimiser stops; data in units of one standard deviation, as ours.
    """
    import GPy

    np.random.seed(seed)  # GPy draws from NumPy's own generator
    centre, scale = X.mean(axis=0), float(X.std())
    model = GPy.models.BayesianGPLVM((X - centre) / scale, 2, num_inducing=30)
    model.optimize("lbfgs", max_iters=1000)
    Z = np.asarray(model.X.mean)
    return Z, np.asarray(model.predict(Z)[0]) * scale + centre


def measure_whole(name: str, method: str, seed: int, quick: bool) -> dict[str, Value]:
    """Fit complete data."""
    X, labels, views = data_of(name, seed)
    few = {"max_iter": 20} if quick and method in MODELS else {}
    (Z, decoded), seconds = timed(lambda: fitted(X, method, views, seed, **few))
    result: dict[str, Value] = {} if labels is None else classified(Z, labels)
    if name == "movies617":
        result |= networks(Z, labels)
    error = float(np.mean(np.square(decoded - X)))
    return {**result, "seconds": seconds, **({} if np.isnan(error) else {"mse": error})}


def measure_hidden(
    name: str, share: float, method: str, seed: int, quick: bool
) -> dict[str, Value]:
    """Fit data with hidden entries."""
    X, labels = truth(name, seed), None if name == "Brendan" else LOADERS[name](seed)[1]
    Y, hidden = hide(X, share, seed)
    options: dict[str, Any] = {} if name == "MNIST" else dict(PLANE)
    options |= {"max_iter": 20} if quick else {}
    model: Any = MODELS[method](random_state=seed, **options)
    Z, seconds = timed(lambda: model.fit_transform(Y))
    result: dict[str, Value] = {} if labels is None else classified(Z, labels)
    error = float(np.mean(np.square(model.impute(Y) - X)[hidden]))
    every = float(np.mean(np.square(model.inverse_transform(model.embedding_) - X)))
    return {**result, "mse": error, "mse_all": every, "seconds": seconds}


def measure_labels(name: str, method: str, seed: int, quick: bool) -> dict[str, Value]:
    """Fit data with their labels as a second view."""
    X, labels, _ = data_of(name, seed)
    assert labels is not None
    ones = (labels[:, None] == np.unique(labels)).astype(np.float64)
    views = {
        "data": slice(0, X.shape[1]),
        "labels": slice(X.shape[1], X.shape[1] + ones.shape[1]),
    }
    options: dict[str, Any] = {"max_iter": 20} if quick else {}
    if method == INPUT:
        # a few columns beside hundreds: by the rule of "balanced" both views count the same
        options["view_weight"] = "balanced"
    if method == CATEGORIES:
        ones = np.unique(labels, return_inverse=True)[1][:, None].astype(np.float64)
        views["labels"] = slice(X.shape[1], X.shape[1] + 1)
        options["likelihood"] = {"data": "gaussian", "labels": "categorical"}
    if method != UNKNOWN:
        both = np.hstack([X, ones])
        (Z, _), seconds = timed(lambda: fitted(both, "NG-MVLVM", views, seed, **options))
        return {**classified(Z, labels), "seconds": seconds}
    folds, total = [], 0.0
    for train, test in FOLDS.split(X):
        both = np.hstack([X, ones])
        both[test, X.shape[1] :] = np.nan
        run = partial(fitted, both, "NG-MVLVM", views, seed, **options)
        (Z, _), seconds = timed(run)
        total += seconds
        folds.append(scored_apart(Z, labels, train, test))
    return {
        **{key: float(np.mean([f[key] for f in folds])) for key in folds[0]},
        "seconds": total,
    }


def scored_apart(
    Z: Array, labels: NDArray[Any], train: NDArray[Any], test: NDArray[Any]
) -> dict[str, float]:
    """Return accuracies of test rows by classifiers of training rows."""
    models = {f"knn{k}": KNeighborsClassifier(k) for k in range(1, 11)}
    models |= {name: make_pipeline(StandardScaler(), c) for name, c in classifiers().items()}
    return {
        name: float(classifier.fit(Z[train], labels[train]).score(Z[test], labels[test]))
        for name, classifier in models.items()
    }


def measure_collapse(variance: float | None, seed: int, quick: bool) -> dict[str, Value]:
    """Fit MNIST in many dimensions with a noise that is learned or kept, and count the latent
    dimensions that stay at their prior.
    """
    X, labels, _ = data_of("MNIST", seed)
    assert labels is not None
    options = {**PLANE, "max_iter": 20 if quick else 300}
    model = bo.AdvisedRFLVM(
        COLLAPSE_DIMENSIONS, noise_variance=variance, random_state=seed, **options
    )
    Z, seconds = timed(lambda: model.fit_transform(X))
    accuracy = {f"knn{k}": bo.metrics.knn_accuracy(Z, labels, k) for k in (1, 10)}
    return {**accuracy, "collapsed": len(model.collapse_.dead), "seconds": seconds}


@functools.lru_cache(2)
def channel(seed: int) -> Any:
    """Draw ten users for five seconds, every 5 ms, and keep every tenth vector."""
    bunch = bo.datasets.make_channel(10, 1000, random_state=seed)
    return bunch.data[::10], bunch.target[::10], bunch.views


def measure_channel(dim: int, method: str, seed: int, quick: bool) -> dict[str, Value]:
    """Compress channel vectors."""
    X, labels, views = channel(seed)
    if method == "PCA":
        pca = PCA(dim, random_state=seed)
        Z, seconds = timed(lambda: pca.fit_transform(X))
        decoded = pca.inverse_transform(Z)
    else:
        few: dict[str, Any] = {"max_iter": 20} if quick else {}
        model = bo.NGMVLVM(dim, views=views, random_state=seed, **few)
        Z, seconds = timed(lambda: model.fit_transform(X))
        decoded = model.inverse_transform(Z)
    error = float(np.mean(np.square(decoded - X)))
    return {**classified(Z, labels), "mse": error, "seconds": seconds}


def jobs(seeds: range, quick: bool) -> Iterator[Job]:
    """Yield everything, seed by seed."""
    for seed in seeds:
        for name, methods in WHOLE.items():
            for method in methods:
                yield Job(
                    name, method, seed, partial(measure_whole, name, method, seed, quick)
                )
        for name, methods in HIDDEN.items():
            for share in (0.1, 0.3, 0.6):
                for method in methods:
                    run = partial(measure_hidden, name, share, method, seed, quick)
                    yield Job(f"{name} {share:.0%} missing", method, seed, run)
        for name in LABELLED:
            for method in (INPUT, UNKNOWN, *((CATEGORIES,) if name == "CIFAR" else ())):
                run = partial(measure_labels, name, method, seed, quick)
                yield Job(f"{name} + labels", method, seed, run)
        for dim, method in itertools.product(CHANNEL_DIMENSIONS, ("NG-MVLVM", "PCA")):
            run = partial(measure_channel, dim, method, seed, quick)
            yield Job(f"channel, D = {dim}", method, seed, run)
        for variance in (None, *COLLAPSE):
            method = "noise learned" if variance is None else f"noise variance {variance}"
            run = partial(measure_collapse, variance, seed, quick)
            yield Job(f"MNIST, D = {COLLAPSE_DIMENSIONS}", method, seed, run)


PROTOCOL = Protocol("latents", tuple(COLUMNS), jobs)


def tables(rows: list[dict[str, str]]) -> str:
    """Print a table of each kind of data, the largest first."""
    parts: dict[str, list[dict[str, str]]] = {name: [] for name in TABLES}
    for row in rows:
        parts[next(name for name in TABLES if name in row["data"])].append(row)
    kinds = sorted((name for name in parts if parts[name]), key=lambda name: -len(parts[name]))
    return "\n\n".join(table(parts[name], TABLES[name]) for name in kinds)


def main() -> None:
    options = arguments(__doc__)
    store = PROTOCOL.store(options.quick)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        store.collect(jobs(options.seeds, options.quick))
    print(tables(store.rows()))


if __name__ == "__main__":
    main()
