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
from collections.abc import Callable, Iterator, Mapping
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
_OF_DIGITS = ("NG-MVLVM", "advisedRFLVM", "G-SRFLVM", "BGPLVM, GPy", "t-SNE")
_OF_CURVES = ("G-SRFLVM", "G-RFLVM", "BGPLVM, GPy")
DIGITS = (250, 500, 1000, 2000)
# The program of GPy takes minutes beyond.
MOST_FOR_GPY = 1000
CURVES = (
    *((100, 100), (200, 25), (200, 50), (200, 100)),
    *((200, 200), (200, 400), (400, 100), (800, 100)),
)
MIXTURES, FREQUENCIES = (1, 2, 4), (12, 25, 50, 100)
# Rows and truth of a seed, and the score of latents beside that truth.
Made = Callable[[int], tuple[Array, Array]]
Score = Callable[[Array, Array], dict[str, Value]]


def digits(n_rows: int, seed: int) -> tuple[Array, Array]:
    """Return so many digits, and their labels."""
    every = bo.datasets.load_mnist()
    rows = np.random.default_rng(seed).permutation(len(every.data))[:n_rows]
    return np.asarray(every.data[rows], float), np.asarray(every.target[rows])


def curve(kernel: str, n_rows: int, n_columns: int, seed: int) -> tuple[Array, Array]:
    """Return a view of an S-curve, and its latents."""
    made = bo.datasets.make_s_curve(n_rows, n_columns, (kernel,), 0.5, seed)
    return np.asarray(made.data, float), np.asarray(made.latent)


def neighbours(Z: Array, labels: Array) -> dict[str, Value]:
    """Score a map of digits."""
    return {"knn1": bo.metrics.knn_accuracy(Z, labels, 1)}


def shape_found(Z: Array, truth: Array) -> dict[str, Value]:
    """Score the latents of a curve."""
    return {"r2": bo.metrics.mean_aligned_r2(truth, Z)}


def fitted(
    method: str, X: Array, seed: int, quick: bool, features: Mapping[str, int]
) -> dict[str, Any]:
    """Fit a method; return its latents, and the bound of a model whose features are given."""
    if method not in OURS:
        return {"Z": by_name(method, X, seed, quick)}
    steps = {"max_iter": 20} if quick else {}
    model = OURS[method](random_state=seed, **steps, **features).fit(X)
    bound = {"elbo": float(model.elbo_)} if features else {}
    return {"Z": np.asarray(model.embedding_), **bound}


def measure(
    made: Made, score: Score, method: str, seed: int, quick: bool, **features: int
) -> dict[str, Value]:
    """Time a fit after a warm-up on few rows, and score it."""
    X, truth = made(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if method != "BGPLVM, GPy":  # minutes, to save what is less than a second
            fitted(method, X[:60], seed, True, {})
        fit = partial(fitted, method, X, seed, quick, features)
        found, seconds = processor_seconds(fit)
    return {"cpu": seconds, **score(found.pop("Z"), truth), **found}


def jobs(seeds: range, quick: bool) -> Iterator[Job]:
    """Yield all sizes and who is asked there, seed by seed; a quick run takes one curve."""
    for seed in seeds:
        for n in () if quick else DIGITS:
            for method in _OF_DIGITS:
                if method == "BGPLVM, GPy" and n > MOST_FOR_GPY:
                    continue
                of_rows = (partial(digits, n), neighbours, method, seed, quick)
                yield Job(f"MNIST, N = {n:,}", method, seed, partial(apart, measure, *of_rows))
        for n, m in CURVES[:1] if quick else CURVES:
            made = partial(curve, "rbf+periodic", n, m)
            for method in _OF_CURVES:
                of_curve = (made, shape_found, method, seed, quick)
                name = f"S-curve, N = {n}, M = {m}"
                yield Job(name, method, seed, partial(apart, measure, *of_curve))
        made = partial(curve, "rbf", 300, 100)
        for method in () if quick else ("NG-MVLVM", "advisedRFLVM"):
            for q, h in itertools.product(MIXTURES, FREQUENCIES):
                work = partial(
                    measure,
                    *(made, shape_found, method, seed, quick),
                    n_mixtures=q,
                    n_frequencies=h,
                )
                yield Job(f"S-curve RBF, Q = {q}, H = {h}", method, seed, partial(apart, work))


PROTOCOL = Protocol("growth", tuple(COLUMNS), jobs)


if __name__ == "__main__":
    PROTOCOL.main(__doc__, COLUMNS)
