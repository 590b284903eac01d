"""How good is a two-dimensional picture of images, beside other methods: ``python
benchmarks/digits.py``.

1,000 MNIST digits (a subset per seed) and 2,000 CIFAR-10 images of five classes (one data set, a
model seed per seed), D = 2. Labels are used for the k-NN accuracies printed and for no choice.
Bound and k-NN of every start are printed before and after training, so that copying a start would
show. BOCHNER_DATA names the folder with the files.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from harness import Job, Protocol, Value, apart, arguments, table, timed_warm
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE, Isomap

import bochner as bo
from bochner.data.views import Views
from bochner.initialization.embeddings import components, folded, start
from bochner.initialization.simple_models import settle
from bochner.models.lvm import Layout
from bochner.regression.observations import CompleteBlock

Array = NDArray[np.float64]

MODEL: dict[str, Any] = {"n_mixtures": 2, "n_frequencies": 50}
SCORES = {"knn1": ".3f", "knn10": ".3f", "seconds": ".1f"}
STARTS = {
    "start_knn1": ".3f",
    "start_knn10": ".3f",
    "start_elbo": ".0f",
    "elbo": ".0f",
    "elbo_se": ".0f",
    "steps": ".0f",
}
COLUMNS = {**SCORES, **STARTS}
METHODS = (
    "NG-MVLVM from PCA",
    "NG-MVLVM, defaults",
    "advisedRFLVM from PCA",
    "PCA",
    "Isomap",
    "t-SNE",
    "UMAP",
)


@functools.cache
def data_of(name: str, seed: int) -> tuple[Array, NDArray[Any]]:
    """Return pixels in [0, 1] and labels."""
    if name == "bundled digits":
        pixels, labels = load_digits(return_X_y=True)
        return pixels[:300] / 16.0, labels[:300]
    if name == "CIFAR":
        bunch = bo.datasets.load_cifar10()
        return bunch.data.astype(np.float64), bunch.target
    bunch = bo.datasets.load_mnist(scale=False)
    rows = np.random.default_rng(seed).choice(70000, 1000, replace=False)
    return bunch.data[rows] / 255.0, bunch.target[rows]


def ours(method: str, seed: int, max_iter: int | str) -> Any:
    """Build one of our estimators."""
    common: dict[str, Any] = {"random_state": seed, "max_iter": max_iter}
    if method == "NG-MVLVM, defaults":
        return bo.NGMVLVM(**common)
    init = "laplacian" if method.endswith("Laplacian") else "pca"
    kind = bo.AdvisedRFLVM if method.startswith("advised") else bo.NGMVLVM
    return kind(init=init, **MODEL, **common)


def peer(method: str, seed: int) -> Any:
    """Build a method of others with its defaults; seeded, so that rows can be repeated."""
    if method == "UMAP":
        from umap import UMAP

        return UMAP(random_state=seed, n_jobs=1)  # a seeded UMAP has one thread
    return {
        "PCA": PCA(2, random_state=seed),
        "Isomap": Isomap(),
        "t-SNE": TSNE(random_state=seed),
    }[method]


def embedded(
    name: str, method: str, seed: int, build: Callable[[], Any]
) -> tuple[Any, Array, float]:
    """Fit after one warm-up of the method; return the fitted estimator, its embedding and its
    seconds.
    """
    X, _ = data_of(name, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warm, model = build(), build()
        if "max_iter" in warm.get_params() and method not in ("t-SNE", "Isomap"):
            warm.set_params(max_iter=8)
        Z, seconds = timed_warm(
            method, lambda: model.fit_transform(X), lambda: warm.fit_transform(X[:200])
        )
    return model, np.asarray(Z), seconds


def accuracies(Z: Array, labels: NDArray[Any], prefix: str = "") -> dict[str, Value]:
    """Return 1-NN and 10-NN accuracy."""
    return {f"{prefix}knn{k}": bo.metrics.knn_accuracy(Z, labels, k) for k in (1, 10)}


def measure_peer(name: str, method: str, seed: int) -> dict[str, Value]:
    """Measure a method of others; UMAP in a process of its own, whose threads slow what comes after
    them.
    """
    ask = (name, method, seed)
    Z, seconds = apart(by_peer, *ask) if method == "UMAP" else by_peer(*ask)
    return {**accuracies(Z, data_of(name, seed)[1]), "seconds": seconds}


def by_peer(name: str, method: str, seed: int) -> tuple[Array, float]:
    """Return the embedding of a method of others and its seconds."""
    return embedded(name, method, seed, lambda: peer(method, seed))[1:]


def measure_ours(name: str, method: str, seed: int, max_iter: int | str) -> dict[str, Value]:
    """Measure one of our models, and the start it was trained from: the one with the best bound
    after the race.
    """
    X, labels = data_of(name, seed)
    model, Z, seconds = embedded(name, method, seed, lambda: ours(method, seed, max_iter))
    won = max(model.starts_, key=lambda s: s["elbo"])
    Z0 = start_of(won["init"], [scaled(X)], model.seed_ + won["index"])
    bounds = {
        "start_elbo": won["elbo_start"],
        "elbo": float(model.elbo_),
        "elbo_se": float(model.elbo_se_),
    }
    scores = {**accuracies(Z, labels), "seconds": seconds, **accuracies(Z0, labels, "start_")}
    return {**scores, **bounds, "steps": model.n_iter_, "start": won["init"]}


def start_of(init: str, views: list[Array], seed: int) -> Array:
    """Return the latents that training began with."""
    filled = np.hstack(views)
    if init != "fold":
        return start(init, filled, 2, seed)
    wide = torch.tensor(components(filled, 3, seed), dtype=torch.float32)
    data = tuple(
        (CompleteBlock.of(torch.tensor(view, dtype=torch.float32)),) for view in views
    )
    shared = (0,) * len(views)
    narrow = settle(
        wide[None], torch.ones(1, 3), Layout(2, shared), Layout(3, shared), data, seed
    ).latents[0]
    return folded(narrow.double().numpy(), seed)


def scaled(X: Array) -> Array:
    """Return what the estimators train on."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # constant columns
        views = Views.fit(X)
    return np.asarray(views.scaled(views.names[0]), dtype=np.float64)


def jobs(names: tuple[str, ...], seeds: range, max_iter: int | str) -> Iterator[Job]:
    """Yield all methods on all data; UMAP only where it is installed."""
    for name in names:
        for method in METHODS:
            if method == "UMAP" and importlib.util.find_spec("umap") is None:
                print("UMAP is left out: pip install bochner[bench]", file=sys.stderr)
                continue
            for seed in seeds:
                if method in ("PCA", "Isomap", "t-SNE", "UMAP"):
                    yield Job(name, method, seed, partial(measure_peer, name, method, seed))
                else:
                    yield Job(
                        name, method, seed, partial(measure_ours, name, method, seed, max_iter)
                    )


NAMES = ("MNIST", "CIFAR")
PROTOCOL = Protocol(
    "digits",
    (*COLUMNS, "start"),
    lambda seeds, quick: jobs(NAMES, seeds, 60 if quick else "auto"),
)


def main() -> None:
    options = arguments(__doc__)
    store = PROTOCOL.store(options.quick)
    names = ("bundled digits",) if options.quick else NAMES
    store.collect(jobs(names, options.seeds, 60 if options.quick else "auto"))
    print(table(store.rows(), SCORES))
    trained = [row for row in store.rows() if row["start"]]
    print("before and after training; start: which one had the best bound after the race")
    print(
        table(
            trained,
            {**STARTS, "knn1": ".3f", "knn10": ".3f"},
            heads=("data", "method", "start"),
        )
    )


if __name__ == "__main__":
    main()
