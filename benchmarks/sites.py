"""What do sweeps of the sites and tighter bounds buy: ``python benchmarks/sites.py``.

150 rows of 20 columns drawn over two latents, fitted by NGMVLVM at its defaults: ones, counts of
Poisson and of negative binomial views, and counts in the hundreds (r = 5). One or two sweeps of the
sites a step, all else alike; for negative binomial views Polya-gamma's bound or the tilted one. The
bound is the final one, of two sweeps in every row; ``score`` is the log probability of 150 further
rows by importance sampling, which knows nothing of the bounds.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
from harness import Job, Store, Value, arguments, table, timed
from numpy.typing import NDArray

import bochner as bo

Array = NDArray[np.float64]

N_ROWS, N_COLUMNS = 150, 20
COLUMNS = {"elbo": ".0f", "score": ".2f", "r2": ".3f", "steps": ".0f", "seconds": ".1f"}
DISPERSION = 5.0
KINDS = ("bernoulli", "poisson", "negative binomial", "large counts")


def drawn(kind: str, n_rows: int, seed: int) -> tuple[Array, Array]:
    """Draw latents and data."""
    source = np.random.default_rng(seed)
    latents = source.normal(size=(n_rows, 2))
    frequencies, phases = (
        source.normal(size=(2, 3 * N_COLUMNS)),
        source.uniform(0, 2 * np.pi, 3 * N_COLUMNS),
    )
    f = (
        np.cos(latents @ frequencies + phases)
        @ source.normal(size=(3 * N_COLUMNS, N_COLUMNS))
        / 5.0
    )
    mean = np.exp(f + (6.0 if kind == "large counts" else 1.0))
    if kind == "bernoulli":
        return latents, (source.random(f.shape) < 1.0 / (1.0 + np.exp(-3.0 * f))).astype(
            np.float64
        )
    if kind == "poisson":
        return latents, source.poisson(mean).astype(np.float64)
    return latents, source.negative_binomial(
        DISPERSION, DISPERSION / (DISPERSION + mean)
    ).astype(np.float64)


def measure(
    kind: str, likelihood: Any, n_sweeps: int, seed: int, max_iter: int | str
) -> dict[str, Value]:
    """Fit half of the rows and score the others."""
    latents, Y = drawn(kind, 2 * N_ROWS, seed)
    model = bo.NGMVLVM(likelihood=likelihood, max_iter=max_iter, random_state=seed)
    with warnings.catch_warnings(), patch("bochner.fitting.multistart.SWEEPS", n_sweeps):
        warnings.simplefilter("ignore")
        _, seconds = timed(lambda: model.fit(Y[:N_ROWS]))
    result = {"elbo": float(model.elbo_), "score": model.score(Y[N_ROWS:]), "seconds": seconds}
    return {
        **result,
        "r2": bo.metrics.mean_aligned_r2(latents[:N_ROWS], model.embedding_),
        "steps": model.n_iter_,
    }


def jobs(seeds: range, max_iter: int | str) -> Iterator[Job]:
    """Yield kinds of data by sweeps and bounds."""
    bounds = {
        bound: bo.likelihoods.NegativeBinomial(bound=bound)
        for bound in ("polya-gamma", "tilted")
    }
    for seed in seeds:
        for kind in KINDS:
            counts = kind in ("negative binomial", "large counts")
            for bound, likelihood in bounds.items() if counts else [("", kind)]:
                for n in (1, 2):
                    name = f"{bound} {n} {'sweep' if n == 1 else 'sweeps'}".strip()
                    yield Job(
                        kind, name, seed, partial(measure, kind, likelihood, n, seed, max_iter)
                    )


def main() -> None:
    options = arguments(__doc__)
    store = Store("sites", tuple(COLUMNS), options.quick)
    store.collect(jobs(options.seeds, 20 if options.quick else "auto"))
    print(table(store.rows(), COLUMNS))


if __name__ == "__main__":
    main()
