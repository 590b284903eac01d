"""All MNIST digits and CIFAR images (20 x 20, grey; ten and five classes) in a plane: ``python
benchmarks/large.py``.

NG-MVLVM trains on 2,000 landmarks, or on 6,000, places the other rows and takes a few steps over
all; 6,000 were tried on seeds 100 to 102 alone. k-NN accuracy of
landmarks and of rows that were placed stand side by side, as does the bound of all rows before and
after the joint steps. UMAP, beside it, runs unseeded, because a seeded one has a single thread.
``wall`` is what a clock shows with as many threads as ``--threads`` says, ``seconds`` what all of
them spend, waiting for each other included: nothing else may run beside it; ``std_seconds`` of
standard deviations of all rows, asked for afterwards. Labels are used for accuracies printed and
for no choice.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from harness import Job, Protocol, Value, apart, arguments, clocked, table, timed, timed_warm
from numpy.typing import NDArray
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.neighbors import KNeighborsClassifier

import bochner as bo
from bochner.fitting.landmarks import choose

SCORES = {
    "knn1": ".3f",
    "knn10": ".3f",
    "landmarks_knn10": ".3f",
    "placed_knn10": ".3f",
    "wall": ".1f",
    "seconds": ".1f",
    "std_seconds": ".1f",
    "elbo_placed": ".0f",
    "elbo_joint": ".0f",
    "steps": ".0f",
}


# Airplane, automobile, bird, cat and deer, as in the papers' small set: their FD-CIFAR is of five
# classes, too, since a collapsed model has 0.20 of it there, and 0.10 of their F-CIFAR.
FIVE = "CIFAR, five classes"
LOADERS = {"MNIST": bo.datasets.load_mnist, "CIFAR": bo.datasets.load_cifar10_full}
OURS: dict[str, Any] = {"NG-MVLVM, defaults": "auto", "NG-MVLVM, 6,000 landmarks": 6000}
SIZES = {"MNIST": 70_000, "CIFAR": 60_000, FIVE: 30_000}


@functools.cache
def data_of(name: str, n_rows: int, seed: int) -> tuple[NDArray[np.float32], NDArray[Any]]:
    """Return pixels in [0, 1] and labels: all rows, or so many drawn by the seed."""
    bunch = LOADERS[name.partition(",")[0]](scale=False)
    kept = bunch.target < (5 if name == FIVE else 10)
    pixels, labels = (bunch.data[kept] / 255.0).astype(np.float32), bunch.target[kept]
    if n_rows >= len(pixels):
        return pixels, labels
    rows = np.random.default_rng(seed).choice(len(pixels), n_rows, replace=False)
    return pixels[rows], labels[rows]


def correct(Z: NDArray[Any], labels: NDArray[Any], k: int) -> NDArray[np.bool_]:
    """Return which rows their k nearest neighbours in the other folds classify rightly."""
    folds = KFold(5, shuffle=True, random_state=0)
    return np.asarray(
        cross_val_predict(KNeighborsClassifier(k), Z, labels, cv=folds) == labels
    )


def measure_ours(name: str, n_rows: int, seed: int, landmarks: Any) -> dict[str, Value]:
    """Fit NG-MVLVM with its defaults but for landmarks."""
    X, labels = data_of(name, n_rows, seed)
    model = bo.NGMVLVM(random_state=seed, landmarks=landmarks)
    warm = bo.NGMVLVM(random_state=seed, max_iter=8, landmarks=200)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (_, wall), seconds = timed_warm(
            "ours", lambda: clocked(lambda: model.fit(X)), lambda: warm.fit(X[:400])
        )
        _, std_seconds = timed(lambda: model.embedding_std_)
    first, tenth = correct(model.embedding_, labels, 1), correct(model.embedding_, labels, 10)
    chosen = np.zeros(len(X), dtype=bool)
    report = model.landmarks_ or {
        "n": len(X),
        "elbo_placed": model.elbo_,
        "elbo_joint": model.elbo_,
    }
    chosen[choose((), len(X), int(report["n"]), model.seed_).numpy()] = True
    return {
        "knn1": float(first.mean()),
        "knn10": float(tenth.mean()),
        "landmarks_knn10": float(tenth[chosen].mean()),
        "placed_knn10": float(tenth[~chosen].mean()) if not chosen.all() else float("nan"),
        "wall": wall,
        "seconds": seconds,
        "std_seconds": std_seconds,
        "elbo_placed": report["elbo_placed"],
        "elbo_joint": report["elbo_joint"],
        "steps": model.n_iter_,
    }


def measure_umap(name: str, n_rows: int, seed: int) -> dict[str, Value]:
    """Fit UMAP with its defaults in a process of its own, compiled before the clock starts."""
    (Z, wall), seconds = apart(by_umap, name, n_rows, seed)
    labels = data_of(name, n_rows, seed)[1]
    scores: dict[str, Value] = {
        f"knn{k}": float(correct(Z, labels, k).mean()) for k in (1, 10)
    }
    return {**scores, "wall": wall, "seconds": seconds}


def by_umap(name: str, n_rows: int, seed: int) -> tuple[tuple[NDArray[Any], float], float]:
    """Return UMAP's embedding with seconds of a clock, and of processors, after a warm-up."""
    from umap import UMAP

    X, _ = data_of(name, n_rows, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # a warm-up with as many rows as switch on the approximate neighbour search
        return timed_warm(
            "umap",
            lambda: clocked(lambda: UMAP(n_jobs=2).fit_transform(X)),
            lambda: UMAP(n_jobs=2).fit_transform(X[:5000]),
        )


def jobs(seeds: range, quick: bool) -> Iterator[Job]:
    """Yield the fits."""
    for seed in seeds:
        for name, whole in SIZES.items():
            n_rows = 7000 if quick else whole
            label = f"{name} {n_rows}"
            for method, landmarks in OURS.items():
                ours = partial(measure_ours, name, n_rows, seed, landmarks)
                yield Job(label, method, seed, ours)
            yield Job(label, "UMAP", seed, partial(measure_umap, name, n_rows, seed))


PROTOCOL = Protocol("large", tuple(SCORES), jobs)


def main() -> None:
    options = arguments(__doc__, seeds=5)
    store = PROTOCOL.store(options.quick)
    store.collect(jobs(options.seeds, options.quick))
    print(table(store.rows(), SCORES))


if __name__ == "__main__":
    main()
