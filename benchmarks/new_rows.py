"""Rows placed per second and how well, ``python benchmarks/new_rows.py``.

NG-MVLVM is fitted to 4,000 MNIST digits and places the other 66,000, complete and with 30 % of
their entries missing at random. Printed: rows placed per second; 10-NN accuracy of the placed rows
among the training rows' embedding, beside that of training rows among themselves; the mean per row
of log p(observed entries | place) + log p(place) at the placement, which says which of two
placements is better. Labels are used for accuracies printed and for no choice.

``--grid`` compares places in two dimensions with the best of a grid of 120 x 120 points: NG-MVLVM
with its defaults is fitted to a part of digits, of oil flows and of MNIST. ``wrong`` is the share,
in percent, of rows for which a climb from the grid's best point ends more than 0.3 away and more
than 5 nats of that same sum above their place, ``worst`` by how many nats at most; ``knn1`` the
accuracy of one neighbour among the training rows.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import sys
import time
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from harness import Job, Store, Value, arguments, table, timed
from numpy.typing import NDArray
from sklearn.neighbors import KNeighborsClassifier
from sklearn.utils import Bunch
from times import data_of as data_set

import bochner as bo
from bochner.latent_inference.modes import Limits, climb
from bochner.latent_inference.row_bound import SETTLED, target_for

SCORES = {
    "rows": ".0f",
    "rows_per_s": ".0f",
    "knn10": ".3f",
    "train_knn10": ".3f",
    "row_bound": ".2f",
    "fit_s": ".0f",
}
_TRAIN, _MISSING, _BOUND_ROWS = 4000, 0.3, 500
# Of ``--grid``: rows that are fitted, points a side, what is too far off and too much worse.
GRID = {"wrong": ".2f", "worst": ".1f", "knn1": ".3f", "ms_per_row": ".2f"}
_GRID_TRAIN = {"digits": 1200, "oil": 700, "MNIST 3,000": 1500}
_SIDE, _FAR, _WORSE = 120, 0.3, 5.0


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


def measure_grid(name: str, new: bool, seed: int) -> dict[str, Value]:
    """Compare places with the best points of a grid."""
    model, bunch = fitted_map(name, seed)
    n_train = _GRID_TRAIN[name]
    chosen = slice(n_train, None) if new else slice(n_train)
    rows, labels = bunch.data[chosen], bunch.target[chosen]
    model.transform(rows[:10])
    start = time.process_time()
    placed = np.asarray(model.transform(rows), float)
    seconds = time.process_time() - start
    z = torch.from_numpy(placed)
    target = target_for(model._fit.posterior, model._split(rows), 2, shared=True)
    ends = [torch.linspace(float(of.min()) - 0.5, float(of.max()) + 0.5, _SIDE) for of in z.T]
    grid = torch.cartesian_prod(*ends).double()
    parts = [target.table(part) for part in torch.split(grid, 1200)]
    best = grid[torch.cat(parts, dim=1).argmax(1)]
    every = torch.arange(len(z))
    top = climb(target, best, every, Limits(SETTLED))
    below = top.value - target.evaluate(z, every)[0]
    below[(z - top.x).norm(dim=1) <= _FAR] = 0.0
    scores: dict[str, Value] = {
        "wrong": 100.0 * float((below > _WORSE).double().mean()),
        "worst": max(0.0, float(below.max())),
        "ms_per_row": 1e3 * seconds / len(z),
    }
    if new:
        near = KNeighborsClassifier(1).fit(model.embedding_, bunch.target[:n_train])
        scores["knn1"] = float(near.score(placed, labels))
    return scores


@functools.cache
def fitted_map(name: str, seed: int) -> tuple[bo.NGMVLVM, Bunch]:
    """Return a map of the first rows of a data set, in an order that the seed draws."""
    bunch = data_set(name, seed)
    order = np.random.default_rng(seed).permutation(len(bunch.data))
    X = np.asarray(bunch.data, float)[order]
    some = Bunch(data=X, target=np.asarray(bunch.target)[order])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return bo.NGMVLVM(random_state=seed).fit(X[: _GRID_TRAIN[name]]), some


def grid_jobs(seeds: range, quick: bool) -> Iterator[Job]:
    """Every data set, seed by seed, rows that were fitted and others."""
    for seed, name in itertools.product(seeds, ["oil"] if quick else _GRID_TRAIN):
        for how, new in (("training rows", False), ("new rows", True)):
            yield Job(name, how, seed, partial(measure_grid, name, new, seed))


def main() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--grid", action="store_true", help="places beside those of a grid")
    chosen, sys.argv[1:] = parser.parse_known_args()
    options = arguments(__doc__)
    if chosen.grid:
        store = Store("new_rows_grid", [*GRID], options.quick)
        store.collect(grid_jobs(options.seeds, options.quick))
        print(table(store.rows(), GRID))
        return
    store = Store("new_rows", [*SCORES], options.quick)
    sizes = (600, 1000, 100, 200) if options.quick else (_TRAIN, 66_000, 600, 66_000)
    store.collect(jobs(options.seeds, *sizes))
    print(table(store.rows(), SCORES))


if __name__ == "__main__":
    main()
