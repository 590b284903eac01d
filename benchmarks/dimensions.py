"""Which rule finds the number of dimensions: ``python benchmarks/dimensions.py --seeds 10``.

Forty made tables, ten with 1, 2, 3 and 5 latents each: smooth random functions of them (standard
deviation of the frequencies 0.9 over the root of the number of latents) with noise of standard
deviation 0.3; 150 rows of 20 columns, and 300 of 30 with five latents. ``select_n_components``
tries 1, 2, 3, 4, 5, 6 and 8 dimensions in its three repeats, by fits of 100 steps from principal
components with 32 spectral points a component.
One run says what both rules choose: ``best`` the number that predicts hidden entries best,
``one_se`` the smallest that lies no more than one standard error behind it. ``*_right``: whether
that is the true number; ``*_off``: how many more dimensions it is.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np
from harness import Job, Store, Value, aligned, arguments, table
from numpy.typing import NDArray

import bochner as bo

SIZES = {1: (150, 20), 2: (150, 20), 3: (150, 20), 5: (300, 30)}
CANDIDATES, WAVES, NOISE, SMOOTH = (1, 2, 3, 4, 5, 6, 8), 60, 0.3, 0.9
RULES = ("best", "one_se")
COLUMNS = {
    "best": ".1f",
    "best_right": ".2f",
    "best_off": ".1f",
    "one_se": ".1f",
    "one_se_right": ".2f",
    "one_se_off": ".1f",
    "seconds": ".0f",
}


def data(dim: int, seed: int) -> NDArray[np.float64]:
    """Draw a table over so many latents."""
    (n, m), source = SIZES[dim], np.random.default_rng((seed, dim))
    x, w = source.normal(size=(n, dim)), source.normal(size=(WAVES, dim))
    w *= SMOOTH / math.sqrt(dim)
    waves = np.cos(x @ w.T + source.uniform(0.0, 2.0 * np.pi, WAVES))
    f = waves @ source.normal(size=(WAVES, m)) * math.sqrt(2.0 / WAVES)
    drawn: NDArray[np.float64] = f + NOISE * source.normal(size=f.shape)
    return drawn


def measure(dim: int, seed: int) -> Mapping[str, Value]:
    """Ask once, and read off what both rules say."""
    model = bo.AdvisedRFLVM(init="pca", max_iter=100, n_init=1, n_frequencies=32)
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = bo.select_n_components(
            model, data(dim, seed), CANDIDATES, rule="one_se", random_state=seed
        )
    seconds = time.process_time() - start
    best = found.candidates[int(found.log_likelihood.argmax())]
    result: dict[str, Value] = {"seconds": seconds}
    for rule, chosen in zip(RULES, (best, found.best), strict=True):
        result |= {
            rule: chosen,
            f"{rule}_right": float(chosen == dim),
            f"{rule}_off": chosen - dim,
        }
    return result


def jobs(seeds: range) -> Iterator[Job]:
    """Every number of latents, seed by seed."""
    for seed in seeds:
        for dim in SIZES:
            name = f"{dim} latent{'s' if dim > 1 else ''}"
            yield Job(name, "three repeats", seed, partial(measure, dim, seed))


def summary(rows: Sequence[Mapping[str, str]]) -> str:
    """Say how often each rule is right, over all tables, and where they differ."""
    lines = [["rule", "right", "too many", "too few"]]
    for rule in RULES:
        off = [int(row[f"{rule}_off"]) for row in rows]
        counts = (sum(d == 0 for d in off), sum(d > 0 for d in off), sum(d < 0 for d in off))
        lines.append([rule, *(f"{count} of {len(off)}" for count in counts)])
    return aligned(lines)


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, seeds=10)
    store = Store("dimensions", list(COLUMNS), options.quick)
    store.collect(jobs(options.seeds))
    print(table(store.rows(), COLUMNS))
    print(summary(store.rows()))


if __name__ == "__main__":
    main()
