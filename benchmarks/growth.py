"""How does the time of a whole fit grow with rows, columns and features: ``python
benchmarks/growth.py``.

Subsets of MNIST (784 columns) and S-curves (RBF + periodic, one view, noise 0.5): the curves of
wall time against N of Yang et al. (2025), figure 3, and against N and M of Li et al. (2024b),
figure 3. An S-curve (RBF, 300 rows, 100 columns) by Q mixture components and H frequencies each:
the heat maps of Yang et al. (2025), figures 6 and 7, and Li et al. (2024a), figure 4. Ours with
their defaults; RFLVM takes one chain of 40 sweeps from a variational fit, where the published
program takes 2,000. Beside them the Bayesian GPLVM of GPy (30 inducing points, L-BFGS until it
stops), as peers.py runs it, and t-SNE by scikit-learn. Processor seconds of one thread, each fit in
a process of its own; with them 1-NN accuracy of digits, R² of curves. BOCHNER_DATA names the folder
with the digits.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from harness import Job, Protocol, Value, apart
from numpy.typing import NDArray
from peers import by_name
from times import processor_seconds

import bochner as bo

Array = NDArray[np.float64]

COLUMNS = {"cpu": ".1f", "knn1": ".3f", "r2": ".3f", "elbo": ".0f"}
OURS: dict[str, Any] = {
    "NG-MVLVM": bo.NGMVLVM,
    "advisedRFLVM": bo.AdvisedRFLVM,
    "G-SRFLVM": bo.SRFLVM,
    "G-RFLVM": partial(bo.RFLVM, n_chains=1, n_warmup=20, n_draws=20, thin=1),
}
# Rows and columns of a table, and who is asked there. GPy's program takes minutes beyond.
DIGITS = {
    250: ("NG-MVLVM", "advisedRFLVM", "G-SRFLVM", "BGPLVM, GPy", "t-SNE"),
    500: ("NG-MVLVM", "advisedRFLVM", "G-SRFLVM", "BGPLVM, GPy", "t-SNE"),
    1000: ("NG-MVLVM", "advisedRFLVM", "G-SRFLVM", "BGPLVM, GPy", "t-SNE"),
    2000: ("NG-MVLVM", "advisedRFLVM", "G-SRFLVM", "t-SNE"),
}
_OF_CURVES = ("G-SRFLVM", "G-RFLVM", "BGPLVM, GPy")
CURVES = {
    (100, 100): _OF_CURVES,
    (200, 25): _OF_CURVES,
    (200, 50): _OF_CURVES,
    (200, 100): _OF_CURVES,
    (200, 200): _OF_CURVES,
    (200, 400): _OF_CURVES,
    (400, 100): _OF_CURVES,
    (800, 100): _OF_CURVES,
}
MIXTURES, FREQUENCIES = (1, 2, 4), (12, 25, 50, 100)
_SLOW = "BGPLVM, GPy"


def digits(n_rows: int, seed: int) -> tuple[Array, Array]:
    """Return so many digits, and their labels."""
    every = bo.datasets.load_mnist()
    rows = np.random.default_rng(seed).permutation(len(every.data))[:n_rows]
    return np.asarray(every.data[rows], float), np.asarray(every.target[rows])


def curve(
    n_rows: int, n_columns: int, seed: int, kernel: str = "rbf+periodic"
) -> tuple[Array, Array]:
    """Return a view of an S-curve, and its latents."""
    made = bo.datasets.make_s_curve(n_rows, n_columns, (kernel,), 0.5, seed)
    return np.asarray(made.data, float), np.asarray(made.latent)


def latents(method: str, X: Array, seed: int, quick: bool) -> Array:
    """Fit a method; return the latents."""
    if method not in OURS:
        return by_name(method, X, seed, quick)
    model = OURS[method](random_state=seed, **({"max_iter": 20} if quick else {}))
    return np.asarray(model.fit(X).embedding_)


def measure(shape: tuple[int, ...], method: str, seed: int, quick: bool) -> dict[str, Value]:
    """Time a fit after a warm-up on few rows, and score it."""
    n, *columns = shape
    of_digits = not columns
    X, truth = digits(n, seed) if of_digits else curve(n, columns[0], seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if method != _SLOW:  # minutes, to save what is less than a second
            latents(method, X[:60], seed, quick=True)
        Z, seconds = processor_seconds(lambda: latents(method, X, seed, quick))
    score = (
        {"knn1": bo.metrics.knn_accuracy(Z, truth, 1)}
        if of_digits
        else {"r2": bo.metrics.mean_aligned_r2(truth, Z)}
    )
    return {"cpu": seconds, **score}


def measure_features(
    method: str, n_mixtures: int, n_frequencies: int, seed: int, quick: bool
) -> dict[str, Value]:
    """Time a fit with so many features after a warm-up on few rows, and score it."""
    X, truth = curve(300, 100, seed, "rbf")
    steps = {"max_iter": 20} if quick else {}
    features = {"n_mixtures": n_mixtures, "n_frequencies": n_frequencies}
    model = OURS[method](random_state=seed, **features, **steps)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        latents(method, X[:60], seed, quick=True)
        _, seconds = processor_seconds(lambda: model.fit(X))
    r2 = bo.metrics.mean_aligned_r2(truth, model.embedding_)
    return {"cpu": seconds, "r2": r2, "elbo": float(model.elbo_)}


def jobs(seeds: range, quick: bool) -> Iterator[Job]:
    """Yield all sizes and who is asked there, seed by seed."""
    for seed in seeds:
        tables: list[tuple[str, tuple[int, ...], tuple[str, ...]]] = [
            *((f"MNIST, N = {n:,}", (n,), methods) for n, methods in DIGITS.items()),
            *(
                (f"S-curve, N = {n}, M = {m}", (n, m), methods)
                for (n, m), methods in CURVES.items()
            ),
        ]
        for name, shape, methods in tables[5:6] if quick else tables:
            for method in methods:
                yield Job(
                    name, method, seed, partial(apart, measure, shape, method, seed, quick)
                )
        for method in ("NG-MVLVM", "advisedRFLVM") if not quick else ():
            for q, h in itertools.product(MIXTURES, FREQUENCIES):
                work = partial(apart, measure_features, method, q, h, seed, quick)
                yield Job(f"S-curve RBF, Q = {q}, H = {h}", method, seed, work)


PROTOCOL = Protocol("growth", tuple(COLUMNS), jobs)


if __name__ == "__main__":
    PROTOCOL.main(__doc__, COLUMNS)
