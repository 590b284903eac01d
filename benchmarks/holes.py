"""What scattered holes cost: ``python benchmarks/holes.py``.

Made tables of 300 rows and 20 columns, of 30 rows and 2,000 columns and of 200 rows and 5,000
columns, smooth functions of two latents with noise, complete and with 5, 10 and 20 % of their
entries missing: processor seconds of a fit, of `transform`, `score` and `calibration` on 100
further rows (with holes as well), the size of the model file; and the ratios of the two. Defaults.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
from harness import Job, Store, Value, arguments, table, timed
from numpy.typing import NDArray

import bochner as bo

Array = NDArray[np.float64]

FIGURES = {
    "fit_s": ".1f",
    "transform_s": ".2f",
    "score_s": ".2f",
    "calibration_s": ".2f",
    "megabytes": ".2f",
}
FORMATS = FIGURES | {f"{name}_ratio": ".2f" for name in FIGURES}
# Rows, columns and the share of entries that are missing.
TABLES = {"made": (300, 20, 0.05), "few rows": (30, 2000, 0.1), "wide": (200, 5000, 0.2)}
N_NEW, NOISE = 100, 0.2


def made(seed: int, n_rows: int, n_columns: int) -> Array:
    """Draw a complete table."""
    rng = np.random.default_rng(seed)
    latents = rng.standard_normal((n_rows, 2))
    signal = np.sin(latents @ rng.standard_normal((2, n_columns)))
    signal += 0.5 * latents @ rng.standard_normal((2, n_columns))
    return np.asarray(signal + NOISE * rng.standard_normal(signal.shape))


def costs(X: Array, new: Array, seed: int) -> dict[str, float]:
    """Return what a table costs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, fit = timed(lambda: bo.NGMVLVM(random_state=seed).fit(X))
        _, transform = timed(lambda: model.transform(new))
        _, score = timed(lambda: model.score(new))
        _, calibration = timed(lambda: bo.calibration(model, new, random_state=seed))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.bochner"
        model.save(path)
        size = os.path.getsize(path) / 1e6
    seconds = (fit, transform, score, calibration)
    return dict(zip(FIGURES, (*seconds, size), strict=True))


def measure(seed: int, n_rows: int, n_columns: int, hidden: float) -> dict[str, Value]:
    """Measure both tables; costs are those with holes, ratios to the complete one."""
    whole = made(seed, n_rows + N_NEW, n_columns)
    incomplete = whole.copy()
    incomplete[np.random.default_rng([seed, 1]).random(whole.shape) < hidden] = np.nan
    of_whole, of_incomplete = (
        costs(X[:n_rows], X[n_rows:], seed) for X in (whole, incomplete)
    )
    ratios = {f"{name}_ratio": of_incomplete[name] / of_whole[name] for name in FIGURES}
    return {**of_incomplete, **ratios}


def jobs(seeds: range, quick: bool) -> Iterator[Job]:
    """Yield a row per table and seed."""
    for name, (n_rows, n_columns, hidden) in TABLES.items():
        sizes = (60, 20) if quick else (n_rows, n_columns)
        for seed in seeds:
            method = f"NG-MVLVM, {hidden:.0%} missing".replace("%", " %")
            yield Job(name, method, seed, partial(measure, seed, *sizes, hidden))


def main() -> None:
    options = arguments(__doc__)
    store = Store("holes", tuple(FORMATS), options.quick)
    store.collect(jobs(options.seeds, options.quick))
    print(table(store.rows(), FORMATS))


if __name__ == "__main__":
    main()
