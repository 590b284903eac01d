"""Does every likelihood find the latents and its own parameters: ``python
benchmarks/likelihoods.py``.

Views drawn from the model over an S-curve (N = 500, M = 100 each), kernels RBF and RBF + periodic.
The noise-free values f have the kernel's variance; Gaussian noise has standard deviation 0.5, log
odds are 3 f of ones and f of successes in 5 trials, log means are 1 + f, the negative binomial has
r = 3. Tables: R² of the latents by likelihood, alone and with three kinds of views at once
(advisedRFLVM on RBF, SRFLVM on RBF + periodic), the bound, the ceiling of both from the true
latents, and the learned dispersion. "weak bernoulli": ones with log odds f, of 100 and of 400
columns: what a start at the truth keeps is what the data can tell.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
from harness import Job, Protocol, Value, arguments, table, timed
from numpy.typing import NDArray
from sklearn.utils import Bunch

import bochner as bo

Array = NDArray[np.float64]

DISPERSION = 3.0
KERNELS = ("rbf", "rbf+periodic")
KINDS = ("gaussian", "bernoulli", "binomial", "negative_binomial", "poisson", "categorical")
WEAK, WEAK_COLUMNS = "weak bernoulli", (100, 400)
MIXED = ("gaussian", "bernoulli", "negative_binomial")
COLUMNS = {
    "r2_0": ".3f",
    "r2_1": ".3f",
    "r2": ".3f",
    "elbo": ".0f",
    "dispersion": ".2f",
    "steps": ".0f",
}


def draw(kind: str, f: Array, source: np.random.Generator) -> Array:
    """Draw a view of one kind from its noise-free values."""
    p, rate = 1.0 / (1.0 + np.exp(-f)), np.exp(1.0 + f)
    drawn: dict[str, Any] = {
        "gaussian": lambda: f + 0.5 * source.normal(size=f.shape),
        "bernoulli": lambda: source.random(f.shape) < 1.0 / (1.0 + np.exp(-3.0 * f)),
        "weak bernoulli": lambda: source.random(f.shape) < p,
        "binomial": lambda: source.binomial(5, p),
        "negative_binomial": lambda: source.negative_binomial(
            DISPERSION, DISPERSION / (DISPERSION + rate)
        ),
        "poisson": lambda: source.poisson(rate),
        # three ordered bins of a noisy value: no model here knows the order
        "categorical": lambda: np.digitize(f + source.logistic(size=f.shape), [-1.0, 1.0]),
    }
    return np.asarray(drawn[kind](), dtype=np.float64)


def data_of(
    kernel: str, kinds: tuple[str, ...], n_rows: int, n_columns: int, seed: int
) -> Bunch:
    """Draw one view per kind over one curve."""
    curve = bo.datasets.make_s_curve(n_rows, n_columns, [kernel] * len(kinds), 0.0, seed)
    source = np.random.default_rng(seed)
    views = {kind: slice(i * n_columns, (i + 1) * n_columns) for i, kind in enumerate(kinds)}
    X = np.hstack(
        [draw(kind, curve.data[:, columns], source) for kind, columns in views.items()]
    )
    return Bunch(data=X, views=views, latent=curve.latent)


def measure(
    kernel: str, kinds: tuple[str, ...], truth: bool, seed: int, quick: bool, width: int = 100
) -> Mapping[str, Value]:
    """Fit and compare with the truth."""
    n_rows, n_columns, steps = (120, width // 5, 60) if quick else (500, width, "auto")
    data = data_of(kernel, kinds, n_rows, n_columns, seed)
    # two components cannot hold the peaks of a periodic kernel
    model = (bo.SRFLVM if "periodic" in kernel else bo.AdvisedRFLVM)(
        views=data.views,
        likelihood={kind: kind.removeprefix("weak ") for kind in kinds},
        init=data.latent if truth else "auto",
        max_iter=steps,
        random_state=seed,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _, seconds = timed(lambda: model.fit(data.data))
    r2 = bo.metrics.aligned_r2(data.latent, model.embedding_)
    row: dict[str, Value] = {
        "r2_0": float(r2[0]),
        "r2_1": float(r2[1]),
        "r2": float(np.mean(r2)),
    }
    row |= {"elbo": model.elbo_, "steps": model.n_iter_, "seconds": seconds}
    if "negative_binomial" in model.dispersion_:
        row["dispersion"] = float(model.dispersion_["negative_binomial"])
    return row


def jobs(seeds: range, quick: bool) -> Iterator[Job]:
    """List what to measure."""
    for seed in seeds:
        for kernel in KERNELS:
            for kinds in (*((kind,) for kind in KINDS), MIXED):
                for truth in (False, True):
                    name = " + ".join(kinds) + (" from the truth" if truth else "")
                    yield Job(
                        f"S-curve {kernel}",
                        name,
                        seed,
                        partial(measure, kernel, kinds, truth, seed, quick),
                    )


def weak_jobs(seeds: range, quick: bool) -> Iterator[Job]:
    """List what weak data are asked."""
    for seed in seeds:
        for width in WEAK_COLUMNS:
            for truth in (False, True):
                name = f"{WEAK}, M = {width}{' from the truth' if truth else ''}"
                yield Job(
                    "S-curve rbf",
                    name,
                    seed,
                    partial(measure, "rbf", (WEAK,), truth, seed, quick, width),
                )


PROTOCOL = Protocol("likelihoods", (*COLUMNS, "seconds"), jobs)


def main() -> None:
    """Measure what is missing and print the table."""
    options = arguments(__doc__)
    store = PROTOCOL.store(options.quick)
    store.collect(jobs(options.seeds, options.quick))
    store.collect(weak_jobs(options.seeds, options.quick))
    print(table(store.rows(), {**COLUMNS, "seconds": ".1f"}))


if __name__ == "__main__":
    main()
