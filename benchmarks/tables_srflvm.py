"""The k-NN table of the SRFLVM paper and its times, on the sets at hand: ``python
benchmarks/tables_srflvm.py``.

D = 2, everything at its default. The paper's figure and seconds for the same likelihood stand
beside ours. bridges (214 x 4 counts), 20 newsgroups, 1,000 MNIST digits (a subset per seed) and
2,000 CIFAR-10 images (one data set, a model seed per seed); G-: grey levels in [0, 1], counts as
they are; N-: grey levels 0 to 255, counts; B-: whether an entry is above half the largest grey
level, whether a word occurs, whether a count is above its column's median. "bridges, log": the
logarithms of the counts, which a Gaussian likelihood is for. Counts without a figure in the paper:
pbmc3k (2,638 cells, 2,000 variable genes, a sparse matrix; negative binomial with size factors, D =
2 and 10) against labels of cell types, beside principal components of log-normalised counts and
UMAP of fifty of them; congress109 (529 speakers, 1,000 phrases; negative binomial and Poisson with
size factors) against the party. The paper's comparator is measured by tables_rflvm.py. No label is
used for any choice. BOCHNER_DATA names the folder with the files. ``--part paper`` or ``counts``
for one of the two tables.
"""

from __future__ import annotations

import argparse
import itertools
import resource
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from harness import Job, Protocol, Value, arguments, table, timed, timed_warm
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

import bochner as bo

Data = tuple[NDArray[np.float64], NDArray[Any]]

# name of a row: likelihood
LIKELIHOODS = {
    "G-SRFLVM": "gaussian",
    "N-SRFLVM": "negative_binomial",
    "B-SRFLVM": "bernoulli",
}
# 1-NN accuracy and seconds that the paper prints for its own method, tables II and III
PAPER = {
    ("bridges", "G-SRFLVM"): (0.851, 103.6),
    ("newsgroups", "G-SRFLVM"): (0.411, 81.7),
    ("MNIST", "G-SRFLVM"): (0.584, 111.6),
    ("CIFAR", "G-SRFLVM"): (0.279, 130.7),
    ("bridges", "N-SRFLVM"): (0.846, 78.6),
    ("newsgroups", "N-SRFLVM"): (0.391, 283.6),
    ("MNIST", "N-SRFLVM"): (0.408, 719.1),
    ("CIFAR", "N-SRFLVM"): (0.258, 575.5),
    ("bridges", "B-SRFLVM"): (0.833, 143.8),
    ("newsgroups", "B-SRFLVM"): (0.398, 131.8),
    ("MNIST", "B-SRFLVM"): (0.369, 719.7),
    ("CIFAR", "B-SRFLVM"): (0.262, 574.9),
}
COLUMNS = {
    "knn1": ".3f",
    "knn10": ".3f",
    "paper_knn1": ".3f",
    "seconds": ".1f",
    "paper_seconds": ".0f",
    "components": ".1f",
    "concentration": ".2f",
    "elbo": ".0f",
}
COUNTS = {
    "knn1": ".3f",
    "knn10": ".3f",
    "seconds": ".1f",
    "peak_mb": ".0f",
    "steps": ".0f",
    "elbo": ".0f",
}
_PCA_WIDTH = 50


def _mnist(seed: int) -> Data:
    bunch = bo.datasets.load_mnist(scale=False)
    rows = np.random.default_rng(seed).choice(70000, 1000, replace=False)
    return bunch.data[rows] / 255.0, bunch.target[rows]


def _whole(load: Callable[[], Any], seed: int) -> Data:  # noqa: ARG001 - one data set for all seeds
    bunch = load()
    return np.asarray(bunch.data, dtype=np.float64), bunch.target


def _logarithms(seed: int) -> Data:
    counts, labels = _whole(bo.datasets.load_bridges, seed)
    return np.log(counts), labels


def _bundled(seed: int) -> Data:  # noqa: ARG001
    pixels, labels = load_digits(return_X_y=True)
    return pixels[:200] / 16.0, labels[:200]


LOADERS: dict[str, Callable[[int], Data]] = {
    "bridges": partial(_whole, bo.datasets.load_bridges),
    "newsgroups": partial(_whole, lambda: bo.datasets.load_newsgroups("content")),
    "MNIST": _mnist,
    "CIFAR": partial(_whole, bo.datasets.load_cifar10),
    "bridges, log": _logarithms,
    "bundled digits": _bundled,
}


def as_asked(X: NDArray[np.float64], method: str) -> NDArray[np.float64]:
    """Return grey levels or counts as a likelihood takes them."""
    grey = bool((np.floor(X) != X).any())
    if method.startswith("N-"):
        return np.rint(255.0 * X) if grey else X
    if method.startswith("B-"):
        few = X.shape[1] < 10  # counts of which none is 0
        return ((0.5 if grey else np.median(X, axis=0) if few else 0.0) < X).astype(np.float64)
    return X


def measure(name: str, method: str, seed: int, max_iter: int | str) -> dict[str, Value]:
    """Fit one model and score its embedding."""
    X, labels = LOADERS[name](seed)
    X = as_asked(X, method)
    model = bo.SRFLVM(likelihood=LIKELIHOODS[method], max_iter=max_iter, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warm = bo.SRFLVM(**{**model.get_params(), "max_iter": 8})
        Z, seconds = timed_warm(
            method, lambda: model.fit_transform(X), lambda: warm.fit_transform(X[:200])
        )
    accuracy = {f"knn{k}": bo.metrics.knn_accuracy(Z, labels, k) for k in (1, 10)}
    theirs = PAPER.get((name.removesuffix(", log"), method), ("", ""))
    paper = dict(zip(("paper_knn1", "paper_seconds"), theirs, strict=True))
    result: dict[str, Any] = {
        "components": model.n_active_mixtures_["x"],
        "concentration": model.concentration_["x"],
    }
    return {**accuracy, **paper, **result, "seconds": seconds, "elbo": float(model.elbo_)}


def jobs(names: tuple[str, ...], seeds: range, max_iter: int | str) -> Iterator[Job]:
    """Yield all likelihoods on all data."""
    for seed in seeds:  # a whole table of fewer seeds is worth more than half a table
        for name in names:
            for method in LIKELIHOODS if not name.endswith("log") else ("G-SRFLVM",):
                yield Job(name, method, seed, partial(measure, name, method, seed, max_iter))


def _cells(quick: bool) -> tuple[Any, NDArray[Any]]:
    """Return a sparse matrix of counts and labels."""
    if quick:
        pixels, labels = load_digits(return_X_y=True)
        return sp.csr_array(pixels[:200]), labels[:200]
    bunch = bo.datasets.load_pbmc3k()
    return bunch.data[:, bunch.hvg], bunch.target


def _speakers(quick: bool) -> tuple[Any, NDArray[Any]]:
    if quick:
        return _cells(quick)
    bunch = bo.datasets.load_congress109()
    return np.asarray(bunch.data, dtype=np.float64), bunch.target


def _log_normalised(X: Any) -> NDArray[np.float64]:
    """Return log(1 + count / size), sizes relative to their median."""
    counts = X.toarray() if hasattr(X, "toarray") else X
    dense = np.asarray(counts, dtype=np.float64)
    size = np.maximum(dense.sum(1, keepdims=True), 0.5)
    return np.log1p(dense * np.median(size) / size)


def _embedded(
    X: Any, method: str, dim: int, seed: int, steps: int | str
) -> tuple[NDArray[Any], dict[str, Value]]:
    if method in ("PCA", "UMAP"):
        whole = PCA(dim if method == "PCA" else _PCA_WIDTH, random_state=seed).fit_transform(
            _log_normalised(X)
        )
        if method == "PCA":
            return whole, {}
        from umap import UMAP

        return UMAP(n_components=dim, random_state=seed).fit_transform(whole), {}
    kinds = {"N-": bo.likelihoods.NegativeBinomial, "P-": bo.likelihoods.Poisson}
    likelihood = kinds[method[:2]](size_factors="total")
    model = bo.SRFLVM(dim, likelihood=likelihood, max_iter=steps, random_state=seed).fit(X)
    return model.embedding_, {"elbo": float(model.elbo_), "steps": int(model.n_iter_)}


def measure_counts(
    load: Callable[[bool], Any], method: str, dim: int, seed: int, quick: bool
) -> dict[str, Value]:
    """Embed counts and score by neighbours; peak memory is that of the process so far."""
    X, labels = load(quick)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (Z, result), seconds = timed(
            lambda: _embedded(X, method, dim, seed, 20 if quick else "auto")
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    accuracy = {f"knn{k}": bo.metrics.knn_accuracy(Z, labels, k) for k in (1, 10)}
    return {**accuracy, **result, "seconds": seconds, "peak_mb": peak}


def count_jobs(seeds: range, quick: bool) -> Iterator[Job]:
    """Yield cells and speakers by all methods."""
    for seed in seeds:
        for name, load, methods, dims in (
            ("pbmc3k", _cells, ("PCA", "UMAP", "N-SRFLVM"), (2, 10)),
            ("congress109", _speakers, ("PCA", "UMAP", "N-SRFLVM", "P-SRFLVM"), (2,)),
        ):
            for dim, method in itertools.product(dims, methods):
                run = partial(measure_counts, load, method, dim, seed, quick)
                yield Job(name, f"{method}, D = {dim}", seed, run)


NAMES = ("bridges", "bridges, log", "newsgroups", "MNIST", "CIFAR")
PROTOCOL = Protocol(
    "tables_srflvm",
    tuple(COLUMNS),
    lambda seeds, quick: jobs(NAMES, seeds, 40 if quick else "auto"),
)
PROTOCOL_OF_COUNTS = Protocol("tables_counts", tuple(COUNTS), count_jobs)


def main() -> None:
    parts = argparse.ArgumentParser(add_help=False)
    parts.add_argument("--part", choices=("all", "paper", "counts"), default="all")
    chosen, sys.argv[1:] = parts.parse_known_args()
    options = arguments(__doc__)
    if chosen.part in ("all", "paper"):
        store = PROTOCOL.store(options.quick)
        names = ("bundled digits",) if options.quick else NAMES
        store.collect(jobs(names, options.seeds, 40 if options.quick else "auto"))
        print(table(store.rows(), COLUMNS))
    if chosen.part in ("all", "counts"):
        counts = PROTOCOL_OF_COUNTS.store(options.quick)
        counts.collect(count_jobs(options.seeds, options.quick))
        print(table(counts.rows(), COUNTS))


if __name__ == "__main__":
    main()
