"""How well are hidden entries restored, beside other imputers: ``python benchmarks/imputation.py``.

1,000 MNIST digits (a subset per seed), 1,965 Frey faces and 2,000 CIFAR-10 images, scaled to [0,
1], with 10, 30 and 60 % of the entries hidden at random. Mean squared error on the hidden entries
and, of our models, on all of them; share of the hidden truths inside 90 % intervals; processor
seconds of choice, fit and imputation. Where a number of dimensions or a rank is chosen, a twentieth
of the observed entries is held out for it; truths and labels are never seen. ``--pictures FOLDER``
draws restored images of the first seed, with 0, 10, 30 and 60 % hidden. BOCHNER_DATA names the
folder with the files.
"""

from __future__ import annotations

import argparse
import functools
import sys
import time
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from harness import Job, Protocol, Value, arguments, table
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.experimental import enable_iterative_imputer  # noqa: F401 - makes the next import possible
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer

import bochner as bo
from bochner.initialization import iterative_pca

Array = NDArray[np.float64]

HIDDEN = {
    "MNIST": (0.3, 0.6, 0.1),
    "Brendan": (0.3,),
    "CIFAR": (0.3, 0.6, 0.1),
    "bundled digits": (0.3,),
}
# Of the images that are drawn, and the shares of hidden entries.
SHAPES = {"MNIST": (28, 28), "Brendan": (28, 20), "CIFAR": (20, 20)}
SHOWN = (0.0, 0.1, 0.3, 0.6)
RANKS = (2, 5, 10, 15, 20, 30, 40, 60, 80, 100, 120, 160)
# A few steps of a small model from principal components: restoring entries needs no race of starts.
PLANE: dict[str, Any] = {"init": "pca", "max_iter": 150, "n_frequencies": 50}
SPACE: dict[str, Any] = {"init": "pca", "max_iter": 100, "n_mixtures": 1}
NORMAL_90 = 1.6448536
OURS = ("D = 2, 150 steps from PCA", "D held out, 100 steps from PCA")
METHODS = ("column mean", "SVD, rank held out", "10-NN", "iterative", *OURS)
# Minutes a run: one cell of each data set tells.
ONE_CELL = ("iterative",)
SCORES = {"mse": ".5f", "mse_all": ".4f", "coverage": ".3f", "chosen": ".0f", "seconds": ".0f"}


@functools.cache
def truth(name: str, seed: int) -> Array:
    """Return complete data in [0, 1]."""
    if name == "bundled digits":
        return np.asarray(load_digits().data[:300] / 16.0)
    if name == "MNIST":
        rows = np.random.default_rng(seed).choice(70000, 1000, replace=False)
        return bo.datasets.load_mnist(scale=False).data[rows] / 255.0
    bunch = (
        bo.datasets.load_brendan(scale=False)
        if name == "Brendan"
        else bo.datasets.load_cifar10(scale=False)
    )
    return np.asarray(bunch.data / 255.0)


def hide(X: Array, share: float, seed: int) -> tuple[Array, NDArray[np.bool_]]:
    """Return data with that share of the entries NaN, and where; every column keeps an entry."""
    hidden = np.random.default_rng([seed, round(100 * share)]).random(X.shape) < share
    return np.where(hidden, np.nan, X), hidden


def iterative(seed: int) -> Any:
    """Build scikit-learn's iterative imputer with as many predictors and rounds as end within
    minutes.
    """
    return IterativeImputer(
        n_nearest_features=20, max_iter=5, random_state=seed, keep_empty_features=True
    )


def by_peer(method: str, Y: Array, seed: int) -> Array:
    """Impute with a method of others."""
    if method == "SVD, rank held out":
        mean = np.nanmean(Y, axis=0)
        scale = float(np.sqrt(np.nanmean(np.square(Y - mean))))
        return np.asarray(iterative_pca.fill((Y - mean) / scale, seed, RANKS) * scale + mean)
    imputers = {
        "column mean": SimpleImputer(),
        "10-NN": KNNImputer(n_neighbors=10),
        "iterative": iterative(seed),
    }
    return np.asarray(imputers[method].fit_transform(Y))


def by_ours(
    method: str, Y: Array, seed: int, max_iter: int | None
) -> tuple[Array, Array, Array, int]:
    """Impute with our model; return what is restored, its standard deviations, reconstructions of
    all entries, and D.
    """
    options = dict(PLANE if method.startswith("D = 2") else SPACE)
    options["max_iter"] = max_iter or options["max_iter"]
    model, dim = bo.NGMVLVM(random_state=seed, **options), 2
    if "held out" in method:
        result = bo.select_n_components(
            model, Y, rows="same", fraction=0.05, n_repeats=1, random_state=seed
        )
        print(result, file=sys.stderr, flush=True)
        dim = result.best
    fitted = model.set_params(n_components=dim).fit(Y)
    restored, std = fitted.impute(Y, return_std=True)
    return restored, std, fitted.inverse_transform(fitted.embedding_), dim


def measure(
    name: str, share: float, method: str, seed: int, max_iter: int | None
) -> dict[str, Value]:
    """Measure one imputer on one mask."""
    X = truth(name, seed)
    Y, hidden = hide(X, share, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        begin = time.process_time()
        if method not in OURS:
            restored = by_peer(method, Y, seed)
            seconds = time.process_time() - begin
            return {"mse": float(np.mean(np.square(restored - X)[hidden])), "seconds": seconds}
        restored, std, decoded, dim = by_ours(method, Y, seed, max_iter)
        seconds = time.process_time() - begin
    error = np.abs(restored - X)[hidden]
    return {
        "mse": float(np.mean(np.square(error))),
        "mse_all": float(np.mean(np.square(decoded - X))),
        "coverage": float(np.mean(error < NORMAL_90 * std[hidden])),
        "chosen": dim,
        "seconds": seconds,
    }


def jobs(names: tuple[str, ...], seeds: range, max_iter: int | None) -> Iterator[Job]:
    """Yield all methods on all masks: every cell of the first seed, then all seeds with 30 %
    hidden, then the rest.
    """
    cells = [(seed, share, name) for seed in seeds for name in names for share in HIDDEN[name]]
    for seed, share, name in sorted(
        cells, key=lambda cell: (cell[0] > 0 and cell[1] != 0.3, cell[0], cell[1] != 0.3)
    ):
        for method in METHODS:
            if method not in ONE_CELL or (seed == 0 and share == 0.3):
                label = f"{name} {share:.0%}"
                yield Job(
                    label, method, seed, partial(measure, name, share, method, seed, max_iter)
                )


def pictures(folder: Path, max_iter: int | None) -> None:
    """Draw, for every share of hidden entries, what is shown and what our models restore in two
    dimensions and in forty; of complete rows what these decode.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, shape in SHAPES.items():
        X = truth(name, 0)
        rows = np.linspace(0, len(X) - 1, 10).astype(int)
        lines = [("truth", X)]
        for share in SHOWN:
            Y = hide(X, share, 0)[0] if share else X
            if share:
                lines.append((f"{share:.0%} hidden", Y))
            for dim, options in ((2, PLANE), (40, SPACE)):
                steps = max_iter or options["max_iter"]
                model = bo.NGMVLVM(dim, random_state=0, **{**options, "max_iter": steps}).fit(
                    Y
                )
                restored = (
                    model.impute(Y) if share else model.inverse_transform(model.embedding_)
                )
                lines.append((f"D = {dim}" if share else f"decoded, D = {dim}", restored))
        _draw(folder / f"restored_{name.lower()}.png", lines, rows, shape)


def _draw(
    path: Path, lines: list[tuple[str, Array]], rows: Array, shape: tuple[int, int]
) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 1.2 * len(lines)))
    axes = figure.subplots(len(lines), len(rows))
    for line, (label, images) in zip(axes, lines, strict=True):
        for axis, row in zip(line, rows, strict=True):
            image = np.ma.masked_invalid(images[row].reshape(shape))
            axis.imshow(image, cmap="gray", vmin=0, vmax=1)
            axis.set_facecolor("tab:red")
            axis.set_xticks([])
            axis.set_yticks([])
        line[0].set_ylabel(label, rotation=0, ha="right", va="center")
    figure.tight_layout(pad=0.3)
    figure.savefig(path, dpi=80)


NAMES = ("MNIST", "Brendan", "CIFAR")
PROTOCOL = Protocol(
    "imputation", tuple(SCORES), lambda seeds, quick: jobs(NAMES, seeds, 40 if quick else None)
)


def main() -> None:
    extra = argparse.ArgumentParser(add_help=False)
    extra.add_argument("--pictures", type=Path)
    chosen, rest = extra.parse_known_args()
    sys.argv[1:] = rest
    options = arguments(__doc__)
    max_iter = 40 if options.quick else None
    if chosen.pictures is not None:
        pictures(chosen.pictures, max_iter)
        return
    store = PROTOCOL.store(options.quick)
    names = ("bundled digits",) if options.quick else NAMES
    store.collect(jobs(names, options.seeds, max_iter))
    print(table(store.rows(), SCORES))


if __name__ == "__main__":
    main()
