"""What do more views add: ``python benchmarks/many_views.py --threads 1 [--pictures]``.

curves: an S-curve seen by one to six views of 10 columns each, drawn in turn from Gaussian
processes with RBF and Gibbs kernels (300 rows, noise of standard deviation 0.5); R² of the true
latents after the best affine map. digits: 1,000 MNIST digits, a subset per seed, each seen upright
and rotated by 30, 60 and 90 degrees; k-NN of two-dimensional latents, and the three rotated views
of 200 other digits completed from the upright one (R² of all pixels together). Data are new in
every seed; labels are used for the accuracies printed and for no choice. BOCHNER_DATA names the
folder with MNIST.
"""

from __future__ import annotations

import functools
import itertools
import sys
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from harness import Job, Protocol, Value, arguments, clocked, table
from numpy.typing import NDArray
from scipy import ndimage
from sklearn.decomposition import PCA
from sklearn.linear_model import RidgeCV
from sklearn.manifold import TSNE

import bochner as bo

Array = NDArray[np.float64]

OURS, ONE = "NG-MVLVM, defaults", "NG-MVLVM, all columns as one view"
CURVES = (1, 2, 3, 4, 6)
ROWS, WIDTH = 300, 10
ANGLES = (0, 30, 60, 90)
TRAINED, NEW, SIDE = 1000, 200, 28
SCORES = {"r2": ".3f", "knn1": ".3f", "knn10": ".3f", "completed_r2": ".3f", "cpu_s": ".1f"}


def fitted(method: str, X: Array, views: dict[str, slice], seed: int, quick: bool) -> Any:
    """Fit our model."""
    settings: dict[str, Any] = {"max_iter": 60} if quick else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kept = views if method == OURS else None
        return bo.NGMVLVM(views=kept, random_state=seed, **settings).fit(X)


def curve(n_views: int, method: str, seed: int, quick: bool) -> dict[str, Value]:
    """Find the S-curve that so many views see."""
    kernels = list(itertools.islice(itertools.cycle(("rbf", "gibbs")), n_views))
    bunch = bo.datasets.make_s_curve(ROWS, WIDTH, kernels, random_state=seed)
    if method == "PCA":
        Z, seconds = clocked(lambda: PCA(2).fit_transform(bunch.data))
    else:
        Z, seconds = clocked(
            lambda: fitted(method, bunch.data, bunch.views, seed, quick).embedding_
        )
    return {"r2": bo.metrics.mean_aligned_r2(bunch.latent, Z), "cpu_s": seconds}


@functools.cache
def rotated(seed: int, quick: bool) -> tuple[Array, NDArray[Any], Array, dict[str, slice]]:
    """Return digits seen from four sides, their labels, and others."""
    bunch = bo.datasets.load_mnist(scale=False)
    n_trained, n_new = (100, 20) if quick else (TRAINED, NEW)
    rows = np.random.default_rng(seed).choice(70000, n_trained + n_new, replace=False)
    images = bunch.data[rows].reshape(-1, SIDE, SIDE) / 255.0
    seen = [
        ndimage.rotate(images, angle, axes=(1, 2), reshape=False, order=1).reshape(
            len(rows), -1
        )
        for angle in ANGLES
    ]
    X = np.hstack(seen).astype(np.float64)
    width = SIDE * SIDE
    views = {f"{a} degrees": slice(i * width, (i + 1) * width) for i, a in enumerate(ANGLES)}
    return X[:n_trained], bunch.target[rows][:n_trained], X[n_trained:], views


def digits(method: str, seed: int, quick: bool) -> dict[str, Value]:
    """Embed digits; complete other digits' rotated views from the upright one."""
    X, labels, new, views = rotated(seed, quick)
    rest = slice(SIDE * SIDE, None)
    completed = None
    if method in (OURS, ONE):
        model, seconds = clocked(lambda: fitted(method, X, views, seed, quick))
        Z = model.embedding_
        completed = model.impute(hidden(new))[:, rest]
    elif method == "ridge":
        upright = slice(0, SIDE * SIDE)
        ridge, seconds = clocked(
            lambda: RidgeCV(np.logspace(0, 5, 21)).fit(X[:, upright], X[:, rest])
        )
        return {
            "completed_r2": of_pixels(
                new[:, rest], ridge.predict(new[:, upright]), X[:, rest]
            ),
            "cpu_s": seconds,
        }
    else:
        peer: Any = PCA(2) if method == "PCA" else TSNE(random_state=seed)
        Z, seconds = clocked(lambda: peer.fit_transform(X))
    out: dict[str, Value] = {f"knn{k}": bo.metrics.knn_accuracy(Z, labels, k) for k in (1, 10)}
    if completed is not None:
        out["completed_r2"] = of_pixels(new[:, rest], completed, X[:, rest])
    return {**out, "cpu_s": seconds}


def hidden(rows: Array) -> Array:
    """Return rows of which only the upright view is there."""
    out = rows.copy()
    out[:, SIDE * SIDE :] = np.nan
    return out


def of_pixels(true: Array, completed: Array, train: Array) -> float:
    """R² over all pixels together, against the training means."""
    total = ((true - train.mean(axis=0)) ** 2).sum()
    return float(1.0 - ((true - completed) ** 2).sum() / total)


def picture(folder: Path, seed: int = 0) -> Path:
    """Draw digits, their rotated views, and what completes those from the upright one."""
    import matplotlib.pyplot as plt

    X, _, new, views = rotated(seed, quick=False)
    completed = fitted(OURS, X, views, seed, quick=False).impute(hidden(new))
    names = list(views)
    figure, axes = plt.subplots(2 * len(names) - 1, 10, figsize=(10, 7.4))
    for column in range(10):
        rows = [(new, name, name) for name in names]
        rows[2:2] = [(completed, names[1], "completed")]
        rows[4:4] = [(completed, names[2], "completed")]
        rows.append((completed, names[3], "completed"))
        for axis, (values, view, label) in zip(axes[:, column], rows, strict=True):
            image = values[column, views[view]].reshape(SIDE, SIDE)
            axis.imshow(image, cmap="gray_r", vmin=0, vmax=1)
            axis.set_xticks([])
            axis.set_yticks([])
            if column == 0:
                axis.set_ylabel(label, rotation=0, ha="right", va="center")
    figure.tight_layout()
    path = folder / "many_views.png"
    figure.savefig(path, dpi=80)
    return path


def jobs(seeds: range, quick: bool) -> Iterator[Job]:
    """Yield every row to measure."""
    for seed in seeds:
        for n_views, method in itertools.product(
            CURVES[:2] if quick else CURVES, (OURS, ONE, "PCA")
        ):
            if n_views > 1 or method != ONE:
                name = f"S-curve, {n_views} view{'s' if n_views > 1 else ''}"
                yield Job(name, method, seed, partial(curve, n_views, method, seed, quick))
        for method in (OURS, ONE, "PCA", "t-SNE", "ridge"):
            yield Job("rotated digits", method, seed, partial(digits, method, seed, quick))


PROTOCOL = Protocol("many_views", tuple(SCORES), jobs)


def main() -> None:
    pictures = "--pictures" in sys.argv
    if pictures:
        sys.argv.remove("--pictures")
    options = arguments(__doc__)
    store = PROTOCOL.store(options.quick)
    store.collect(jobs(options.seeds, options.quick))
    print(table(store.rows(), SCORES))
    if pictures:
        print(f"wrote {picture(Path.cwd())}")


if __name__ == "__main__":
    main()
