"""Are spare dimensions found: ``python benchmarks/spare.py --seeds 10``.

Tables of 200 rows and 20 columns are smooth random functions of two latents with noise (standard
deviation 0.3), and are fitted with five. ``found`` is the number of dimensions that ``collapse_``
does not call dead; "embeddings into five" races the starts that give every dimension something,
"default" also those that begin with two. Seeds from 100 on were looked at when the starts were
chosen.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
from harness import Job, Store, Value, arguments, table
from numpy.typing import NDArray

import bochner as bo

N, M, TRUE, FITTED, NOISE = 200, 20, 2, 5, 0.3
STARTS: dict[str, Any] = {
    "default": "auto",
    "embeddings into five": ["pca", "fold", "laplacian"],
}
COLUMNS = {"found": ".1f", "least_explained": ".3f", "elbo": ".0f", "seconds": ".1f"}


def data(seed: int) -> NDArray[np.float64]:
    """Draw a table."""
    source = np.random.default_rng(seed)
    x, w = source.normal(size=(N, TRUE)), 0.7 * source.normal(size=(60, TRUE))
    waves = np.cos(x @ w.T + source.uniform(0.0, 2.0 * np.pi, 60))
    f = waves @ source.normal(size=(60, M)) * math.sqrt(2.0 / 60)
    drawn: NDArray[np.float64] = f + NOISE * source.normal(size=f.shape)
    return drawn


def measure(method: str, seed: int) -> Mapping[str, Value]:
    """Fit and count."""
    model = bo.AdvisedRFLVM(FITTED, init=STARTS[method], random_state=0)
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(data(seed))
    seconds = time.process_time() - start
    dead = model.collapse_.dead
    alive = [v for d, v in enumerate(model.variance_explained_[0]) if d not in dead]
    return {
        "found": FITTED - len(dead),
        "least_explained": float(min(alive)),
        "elbo": float(model.elbo_),
        "seconds": seconds,
    }


def jobs(seeds: range) -> Iterator[Job]:
    """Both ways to start, seed by seed."""
    for seed in seeds:
        for method in STARTS:
            yield Job("two latents", method, seed, partial(measure, method, seed))


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__)
    store = Store("spare", list(COLUMNS), options.quick)
    store.collect(jobs(options.seeds))
    print(table(store.rows(), COLUMNS))


if __name__ == "__main__":
    main()
