"""Rows placed per second and how well, ``python benchmarks/new_rows.py``.

NG-MVLVM is fitted to 4,000 MNIST digits and places the other 66,000, complete and with 30 % of
their entries missing at random. Printed: rows placed per second; 10-NN accuracy of the placed rows
among the training rows' embedding, beside that of training rows among themselves; the mean per row
of log p(observed entries | place) + log p(place) at the placement, which says which of two
placements is better. Labels are used for accuracies printed and for no choice.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from harness import Job, Store, Value, arguments, table, timed
from numpy.typing import NDArray
from sklearn.neighbors import KNeighborsClassifier

import bochner as bo
from bochner.latent_inference.row_bound import target_for

SCORES = {
    "rows": ".0f",
    "rows_per_s": ".0f",
    "knn10": ".3f",
    "train_knn10": ".3f",
    "row_bound": ".2f",
    "fit_s": ".0f",
}
_TRAIN, _MISSING, _BOUND_ROWS = 4000, 0.3, 500


@functools.cache
def data_of(
    n_train: int, n_new: int, seed: int
) -> tuple[NDArray[np.float32], NDArray[Any], NDArray[np.float32]]:
    """Return pixels in [0, 1] and labels, training rows first, and a uniform draw per entry of the
    new ones.
    """
    bunch = bo.datasets.load_mnist(scale=False)
    rng = np.random.default_rng(seed)
    rows = rng.permutation(len(bunch.data))[: n_train + n_new]
    X = (bunch.data[rows] / 255.0).astype(np.float32)
    return (
        X,
        bunch.target[rows],
        rng.random((len(rows) - n_train, X.shape[1]), dtype=np.float32),
    )


@functools.cache
def fitted(n_train: int, n_new: int, seed: int, max_iter: int) -> tuple[bo.NGMVLVM, float]:
    """Return a fitted model and its seconds."""
    X, _, _ = data_of(n_train, n_new, seed)
    model = bo.NGMVLVM(max_iter=max_iter, init="pca", random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return timed(lambda: model.fit(X[:n_train]))


def row_bound(model: bo.NGMVLVM, X: NDArray[np.float32], Z: NDArray[np.float32]) -> float:
    """Return the mean over rows of a row's bound at its place, scaled units."""
    values = []
    for i in range(0, len(X), 50):
        rows = model._split(X[i : i + 50])
        target = target_for(model._fit.posterior, rows, Z.shape[1], shared=False)
        x = torch.tensor(Z[i : i + 50], dtype=torch.float64)
        values.append(target.evaluate(x, torch.arange(len(x)))[0])
    return float(torch.cat(values).mean())


def measure(
    n_train: int, n_new: int, missing: float, seed: int, max_iter: int
) -> dict[str, Value]:
    """Place the new rows."""
    X, labels, uniform = data_of(n_train, n_new, seed)
    model, seconds = fitted(n_train, n_new, seed, max_iter)
    new = np.where(uniform[:n_new] < missing, np.float32(np.nan), X[n_train : n_train + n_new])
    Z, placing = timed(lambda: model.transform(new))
    near = KNeighborsClassifier(10).fit(model.embedding_, labels[:n_train])
    among = KNeighborsClassifier(11).fit(model.embedding_, labels[:n_train])
    few = slice(_BOUND_ROWS)
    return {
        "rows": n_new,
        "rows_per_s": n_new / placing,
        "knn10": float(near.score(Z, labels[n_train : n_train + n_new])),
        "train_knn10": float(among.score(model.embedding_, labels[:n_train])),
        "row_bound": row_bound(model, new[few], Z[few]),
        "fit_s": seconds,
    }


def jobs(seeds: range, n_train: int, n_new: int, max_iter: int, n_holes: int) -> Iterator[Job]:
    """Yield every row to measure."""
    for seed in seeds:
        for missing, count in ((0.0, n_new), (_MISSING, n_holes)):
            name = f"MNIST, {missing:.0%} missing"
            measured = partial(measure, n_train, count, missing, seed, max_iter)
            yield Job(name, "search", seed, measured)


def main() -> None:
    options = arguments(__doc__)
    store = Store("new_rows", [*SCORES], options.quick)
    sizes = (600, 1000, 100, 200) if options.quick else (_TRAIN, 66_000, 600, 66_000)
    store.collect(jobs(options.seeds, *sizes))
    print(table(store.rows(), SCORES))


if __name__ == "__main__":
    main()
