"""Which preparation of bridges' and of newsgroups' counts do bounds choose, and which do labels:
``python benchmarks/bridges.py``.

214 days x 4 counts of bicycles, weekday or weekend. The papers do not say how a model with Gaussian
noise gets counts. Counts as they are, their square roots and their logarithms, one noise variance
or one per column, and a negative binomial likelihood; ``elbo`` is in nats of the counts themselves
(square roots and logarithms with the logarithm of their derivative), so that it can be compared
between preparations. Accuracy of 1 to 10 neighbours on two latents, and on the four columns
themselves ("all columns"), five shuffled folds with seed 0; "above medians": what the best rule
makes of the four bits of a Bernoulli likelihood. Counts of words, 2,752 messages x 20, are 0 for
the most part: their logarithms are those of one more, their square roots those of 3/8 more
(Anscombe 1948), and one noise variance is asked for, as Dirichlet process kernels have it.
``--choice`` takes seeds 100 up; the
preparation is chosen by their mean bound, without labels. The data are of one year: seeds are those
of the model. BOCHNER_DATA names the folder with the files.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from harness import Job, Protocol, Store, Value, arguments, table, timed
from numpy.typing import NDArray

import bochner as bo

Array = NDArray[np.floating[Any]]

KNN = {f"knn{k}": ".3f" for k in range(1, 11)}
COLUMNS = {**KNN, "elbo": ".0f", "seconds": ".1f"}
SHOWN = {f"knn{k}": ".3f" for k in (1, 2, 3, 5, 10)} | {"elbo": ".0f", "seconds": ".1f"}
# Values, and the logarithm of the derivative that a density of counts gets.
PREPARED: dict[str, tuple[Callable[[Array], Array], Callable[[Array], Array]]] = {
    "counts": (np.asarray, np.zeros_like),
    "square roots": (np.sqrt, lambda counts: -np.log(2.0 * np.sqrt(counts))),
    "logarithms": (np.log, lambda counts: -np.log(counts)),
}
# Counts of which most are 0.
WORDS: dict[str, tuple[Callable[[Array], Array], Callable[[Array], Array]]] = {
    "counts": PREPARED["counts"],
    "square roots": (
        lambda counts: np.sqrt(counts + 0.375),
        lambda counts: -np.log(2.0 * np.sqrt(counts + 0.375)),
    ),
    "logarithms": (np.log1p, lambda counts: -np.log1p(counts)),
}
MODELS = {"advisedRFLVM": bo.AdvisedRFLVM, "NG-MVLVM": bo.NGMVLVM, "SRFLVM": bo.SRFLVM}
PER_COLUMN = ", noise per column"
COUNTS = ", negative binomial"


def accuracies(Z: Array, labels: NDArray[Any]) -> dict[str, Value]:
    """Return accuracies of 1 to 10 neighbours."""
    return {f"knn{k}": bo.metrics.knn_accuracy(Z, labels, k) for k in range(1, 11)}


def best_rule() -> dict[str, Value]:
    """Return the share of days that the most frequent label of their four bits, counts above the
    medians of their columns, is right for: no embedding of the bits can tell more.
    """
    bunch = bo.datasets.load_bridges()
    bits = np.asarray(bunch.data) > np.median(bunch.data, axis=0)
    kinds = np.unique(bits, axis=0, return_inverse=True)[1].ravel()
    right = [np.bincount(bunch.target[kinds == kind]).max() for kind in np.unique(kinds)]
    return dict.fromkeys(KNN, float(sum(right) / len(bits)))


def measure(name: str, method: str, seed: int, max_iter: int | str) -> dict[str, Value]:
    """Fit one model on prepared counts."""
    data, _, kind = name.partition(", ")
    words = data == "newsgroups"
    bunch = bo.datasets.load_newsgroups("content") if words else bo.datasets.load_bridges()
    counts, labels = np.asarray(bunch.data, dtype=np.float64), bunch.target
    prepare, derivative = (WORDS if words else PREPARED)[kind]
    X = prepare(counts)
    if method == "all columns":
        return accuracies(X, labels)
    options: dict[str, Any] = {"noise": "column"} if method.endswith(PER_COLUMN) else {}
    if method.endswith(COUNTS):
        options = {"likelihood": "negative_binomial"}
    model = MODELS[method.partition(",")[0]](random_state=seed, max_iter=max_iter, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        Z, seconds = timed(lambda: model.fit_transform(X))
    bound = float(model.elbo_) + float(derivative(counts).sum())
    return {**accuracies(Z, labels), "elbo": bound, "seconds": seconds}


def jobs(seeds: range, quick: bool) -> Iterator[Job]:
    """Yield all preparations and models, seed by seed."""
    max_iter: int | str = 20 if quick else "auto"
    for seed in seeds:
        for kind in PREPARED:
            methods = [f"{model}{noise}" for model in MODELS for noise in ("", PER_COLUMN)]
            methods.remove(f"SRFLVM{PER_COLUMN}")  # Dirichlet process kernels have one noise
            if kind == "counts":
                methods += [f"{model}{COUNTS}" for model in MODELS]
            for method in [*methods, "all columns"]:
                name = f"bridges, {kind}"
                yield Job(name, method, seed, partial(measure, name, method, seed, max_iter))
        yield Job("bridges, above medians", "best rule, labels known", seed, best_rule)
        for kind in WORDS:
            for method in ("NG-MVLVM", "SRFLVM", "all columns"):
                name = f"newsgroups, {kind}"
                yield Job(name, method, seed, partial(measure, name, method, seed, max_iter))


PROTOCOL = Protocol("bridges", tuple(COLUMNS), jobs)


def main() -> None:
    parts = argparse.ArgumentParser(add_help=False)
    parts.add_argument("--choice", action="store_true")
    chosen, sys.argv[1:] = parts.parse_known_args()
    options = arguments(__doc__)
    store = PROTOCOL.store(options.quick)
    seeds = options.seeds
    if chosen.choice:
        store = Store("bridges_choice", tuple(COLUMNS), options.quick)
        seeds = range(100 + seeds.start, 100 + seeds.stop)
    store.collect(jobs(seeds, options.quick))
    print(table(store.rows(), SHOWN))


if __name__ == "__main__":
    main()
