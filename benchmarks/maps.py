"""How good is a two-dimensional map of tables, words and several views: ``python
benchmarks/maps.py``.

As ``digits.py``, of bridges (214 days × 4 counts, and their logarithms; weekday or weekend), oil
(1,000 × 12 measurements; three flows), 20 words of 2,752 newsgroup documents (three groups) and
2,000 handwritten digits in six sets of features, which are six views for our model. Peers see the
columns as they are; of the six views, each divided by its standard deviation, side by side. "all
columns" is no map but those. ``paper_knn1`` is the best that the papers print for their own models
of one view. The documents, which stand group by group and of which half have a twin, are shuffled:
t-SNE and UMAP keep twins in the order of the rows, and so next to their group. No label is used for
any choice. BOCHNER_DATA names the folder with the files.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from digits import SCORES, accuracies, peer, start_of
from harness import Job, Protocol, Value, apart, arguments, table, timed_warm
from numpy.typing import NDArray
from sklearn.utils import Bunch

import bochner as bo
from bochner.data.views import Views

Array = NDArray[np.float64]

METHODS = ("NG-MVLVM, defaults", "PCA", "Isomap", "t-SNE", "UMAP", "all columns")
# 1-NN accuracy, table 8 of Yang et al. (2025) and table 1 of Li et al. (2024a); of the method the
# paper proposes
PAPER = {"bridges": 0.853, "newsgroups": 0.418}
COLUMNS = {**SCORES, "paper_knn1": ".3f", "start_knn1": ".3f", "elbo": ".0f", "steps": ".0f"}


@functools.cache
def data_of(name: str) -> Bunch:
    """Load a data set; its data are dense and float64."""
    stem, _, log = name.partition(", ")
    bunch = getattr(bo.datasets, f"load_{stem}")()
    data, target = np.asarray(bunch.data, dtype=np.float64), np.asarray(bunch.target)
    if stem == "newsgroups":
        order = np.random.default_rng(0).permutation(len(data))
        data, target = data[order], target[order]
    return Bunch(data=np.log(data) if log else data, target=target, views=bunch.get("views"))


@functools.cache
def scaled_of(name: str) -> list[Any]:
    """Return the views that our model trains on."""
    bunch = data_of(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # constant columns
        views = Views.fit(bunch.data, bunch.views)
    return [views.scaled(view) for view in views.names]


def embedded(
    method: str, build: Callable[[], Any], X: Array, quick: Callable[[Any], Any]
) -> tuple[Any, Array, float]:
    """Fit after one warm-up of the method; return the fitted estimator, its embedding and its
    seconds.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = build()
        warm = quick(build())
        Z, seconds = timed_warm(
            method, lambda: model.fit_transform(X), lambda: warm.fit_transform(X[:150])
        )
    return model, np.asarray(Z), seconds


def by_peer(X: Array, method: str, seed: int) -> tuple[Array, float]:
    """Return the embedding of a method of others and its seconds."""
    return embedded(method, lambda: peer(method, seed), X, lambda model: model)[1:]


def measure(name: str, method: str, seed: int, max_iter: int | str) -> dict[str, Value]:
    """Fit one method on one data set."""
    bunch = data_of(name)
    paper: dict[str, Value] = (
        {"paper_knn1": PAPER[stem]} if (stem := name.partition(",")[0]) in PAPER else {}
    )
    if not method.startswith("NG"):
        X = bunch.data if bunch.views is None else np.hstack(scaled_of(name))
        if method == "all columns":
            return {**accuracies(X, bunch.target), **paper}
        Z, seconds = (
            apart(by_peer, X, method, seed) if method == "UMAP" else by_peer(X, method, seed)
        )
        return {**accuracies(Z, bunch.target), **paper, "seconds": seconds}

    def build() -> Any:
        return bo.NGMVLVM(views=bunch.views, random_state=seed, max_iter=max_iter)

    model, Z, seconds = embedded(
        method, build, bunch.data, lambda model: model.set_params(max_iter=8)
    )
    won = max(model.starts_, key=lambda s: s["elbo"])
    Z0 = start_of(won["init"], scaled_of(name), model.seed_ + won["index"])
    scores = {
        **accuracies(Z, bunch.target),
        **accuracies(Z0, bunch.target, "start_"),
        "seconds": seconds,
    }
    about: dict[str, Value] = {
        "elbo": float(model.elbo_),
        "steps": model.n_iter_,
        "start": won["init"],
    }
    return {**scores, **paper, **about}


def jobs(names: tuple[str, ...], seeds: range, max_iter: int | str) -> Iterator[Job]:
    """Yield all methods on all data, seed by seed."""
    for seed in seeds:
        for name in names:
            yield from (
                Job(name, m, seed, partial(measure, name, m, seed, max_iter)) for m in METHODS
            )


NAMES = ("bridges", "bridges, log", "oil", "newsgroups", "handwritten")
PROTOCOL = Protocol(
    "maps",
    (*COLUMNS, "start_knn10", "start"),
    lambda seeds, quick: jobs(NAMES, seeds, 60 if quick else "auto"),
)


def main() -> None:
    options = arguments(__doc__)
    store = PROTOCOL.store(options.quick)
    names = NAMES[:1] if options.quick else NAMES
    store.collect(jobs(names, options.seeds, 60 if options.quick else "auto"))
    print(table(store.rows(), COLUMNS))


if __name__ == "__main__":
    main()
