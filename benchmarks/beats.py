"""Are next-gen kernels worth their pairs of frequencies on data drawn from such a kernel: ``python
benchmarks/beats.py``.

Two views of 200 rows over two latents. The first is smooth (30 columns, noise standard deviation
0.3), so that every model finds the latents. The columns of the second (100, noise 1) are sums of
slow and fast waves, each slow one with a fast one of the same amplitude and phase, so that their
sum swells and dies away over the latents: what a next-gen spectral mixture is a process of, and no
stationary kernel. Of 200 further rows: mean log density of an entry, of both views, and R² of the
second view's entries restored from the first alone; bound, and R² of the training rows' latents.
MV-advisedRFLVM has two or four components, NG-MVLVM two. The data were settled on seeds 100 to 103,
where other ones (four times as fast waves, 100 rows, one view alone) did no better for NG-MVLVM.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from harness import Job, Protocol, Value, timed
from numpy.typing import NDArray

import bochner as bo

Array = NDArray[np.float64]

N, SMOOTH, WAVES = 200, 30, 100
COLUMNS_OF_WAVES, NOISE, FAST = 100, 1.0, 2.0
MODELS: dict[str, tuple[Any, int]] = {
    "NG-MVLVM": (bo.NGMVLVM, 2),
    "MV-advisedRFLVM": (bo.AdvisedRFLVM, 2),
    "MV-advisedRFLVM, 4 components": (bo.AdvisedRFLVM, 4),
}
COLUMNS = {
    "density": ".4f",
    "restored_r2": ".4f",
    "elbo": ".0f",
    "latent_r2": ".3f",
    "seconds": ".1f",
}
VIEWS = {
    "smooth": slice(0, SMOOTH),
    "waves": slice(SMOOTH, SMOOTH + COLUMNS_OF_WAVES),
}


def process(X: Array, frequencies: list[Array], n_columns: int, rng: Any) -> Array:
    """Draw columns: waves of all frequencies of a place in the lists share their weights."""
    phases = [X @ w.T for w in frequencies]
    waves = np.hstack([sum(np.cos(p) for p in phases), sum(np.sin(p) for p in phases)])
    weights = rng.normal(size=(waves.shape[1], n_columns))
    return np.asarray(waves @ weights / np.sqrt(len(frequencies) * len(frequencies[0])))


def draw(seed: int, n: int) -> tuple[Array, Array]:
    """Return latents and data of n rows."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    axes = np.eye(2)[rng.integers(2, size=WAVES)]
    slow = 0.4 * axes + 0.5 * rng.normal(size=(WAVES, 2))
    fast = slow + FAST * axes + 0.05 * rng.normal(size=(WAVES, 2))
    smooth = process(X, [rng.normal(size=(WAVES, 2)) / 1.5], SMOOTH, rng)
    waves = process(X, [slow, fast], COLUMNS_OF_WAVES, rng)
    noise = np.repeat([0.3, NOISE], [SMOOTH, COLUMNS_OF_WAVES])
    return X, np.hstack([smooth, waves]) + noise * rng.normal(size=(n, len(noise)))


def measure(method: str, seed: int, quick: bool) -> dict[str, Value]:
    """Fit the first half of the rows and predict the second."""
    X, Y = draw(seed, 2 * N)
    train, new = Y[:N], Y[N:]
    build, n_mixtures = MODELS[method]
    few = {"max_iter": 20} if quick else {}
    model = build(n_mixtures=n_mixtures, views=VIEWS, random_state=seed, **few)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _, seconds = timed(lambda: model.fit(train))
        half = new.copy()
        half[:, VIEWS["waves"]] = np.nan
        restored = model.impute(half)[:, VIEWS["waves"]]
    truth = new[:, VIEWS["waves"]]
    spread = np.square(truth - train[:, VIEWS["waves"]].mean(axis=0)).sum()
    return {
        "density": float(model.score(new)) / Y.shape[1],
        "restored_r2": 1.0 - float(np.square(restored - truth).sum() / spread),
        "elbo": float(model.elbo_),
        "latent_r2": bo.metrics.mean_aligned_r2(X[:N], model.embedding_),
        "seconds": seconds,
    }


def jobs(seeds: range, quick: bool) -> Iterator[Job]:
    """Yield all models, seed by seed."""
    for seed in seeds:
        for method in MODELS:
            yield Job("beats", method, seed, partial(measure, method, seed, quick))


PROTOCOL = Protocol("beats", tuple(COLUMNS), jobs)


if __name__ == "__main__":
    PROTOCOL.main(__doc__, COLUMNS)
