"""Many rows, ``python benchmarks/scale.py --threads 1``: memory and processor seconds of fits of
rows on disk and in memory, and rows placed per processor second.

Fifty columns of sines of two latents with noise; NG-MVLVM from PCA, 60 steps on 2,000 landmarks,
then passes over all rows, and their embedding. Every fit runs in a process of its own; ``peak_mb``
is what it takes beyond what was there before, which are the rows where they are in memory.
``row_bound`` is the median of the rows' bounds at their places, scaled units.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import Job, Store, Value, arguments, table, timed
from numpy.typing import NDArray

import bochner as bo
from bochner.latent_inference.infer import Placer, place
from bochner.latent_inference.row_bound import target_for

SCORES = {"cpu_s": ".0f", "rows_per_s": ".0f", "peak_mb": ".0f", "row_bound": ".3f"}
_COLUMNS, _STEPS = 50, 60


def rows_of(n_rows: int, seed: int) -> NDArray[np.float32]:
    """Return rows about a surface, block by block the same whatever their number."""
    rng = np.random.default_rng(100 + seed)
    W, V = rng.normal(size=(2, _COLUMNS)), rng.normal(size=(2, _COLUMNS))
    b = rng.uniform(0, 6, size=_COLUMNS)
    Z = rng.normal(size=(n_rows, 2))
    noise = 0.2 * rng.normal(size=(n_rows, _COLUMNS))
    return (np.sin(1.2 * Z @ W + b) + 0.5 * np.cos(Z @ V + b) + noise).astype(np.float32)


def fit_here(path: str, how: str, seed: int) -> None:
    """Fit rows of a file in this process, and print what it took."""
    X: Any = np.load(path, mmap_mode="r" if how == "on disk" else None)
    small = np.array(X[:300])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        settings: dict[str, Any] = {"init": "pca", "random_state": seed}
        bo.NGMVLVM(max_iter=2, n_frequencies=8, **settings).fit(small)  # libraries are loaded
        before = _memory("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here
        _, seconds = timed(lambda: bo.NGMVLVM(max_iter=_STEPS, **settings).fit(X).embedding_)
    print(json.dumps({"cpu_s": seconds, "peak_mb": (_memory("VmHWM") - before) / 1024}))


def _memory(name: str) -> int:
    """Return a figure of this process's memory, KiB (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def measure_fit(n_rows: int, how: str, seed: int) -> dict[str, Value]:
    """Fit in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.npy"
        np.save(path, rows_of(n_rows, seed))
        words = [sys.executable, __file__, "--fit", str(path), how, str(seed)]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
    result: dict[str, Value] = json.loads(done.stdout.splitlines()[-1])
    return {**result, "rows_per_s": n_rows / float(result["cpu_s"])}


def measure_placement(n_rows: int, how: str, seed: int) -> dict[str, Value]:
    """Place new rows with and without a table of the candidates."""
    X = rows_of(2000 + n_rows, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        settings: dict[str, Any] = {"init": "pca", "random_state": seed, "landmarks": None}
        model = bo.NGMVLVM(max_iter=_STEPS, **settings).fit(X[:2000])
    rows = model._split(X[2000:])
    views, candidates = model._fit.posterior, model._candidates
    if how == "tables":
        placed, seconds = timed(lambda: Placer(views, candidates).place(rows))
    else:
        placed, seconds = timed(lambda: place(views, candidates, rows))
    value = target_for(views, rows, 2, True).evaluate(placed.mean, torch.arange(n_rows))[0]
    return {
        "cpu_s": seconds,
        "rows_per_s": n_rows / seconds,
        "row_bound": float(value.median()),
    }


def jobs(seeds: range, sizes: tuple[int, ...], n_new: int) -> Iterator[Job]:
    """Yield every row to measure."""
    for seed in seeds:
        for how in ("tables", "climbs"):
            yield Job(f"place {n_new:,}", how, seed, partial(measure_placement, n_new, how, seed))
        for n_rows in sizes:
            for how in ("on disk", "in memory"):
                yield Job(f"fit {n_rows:,}", how, seed, partial(measure_fit, n_rows, how, seed))


def main() -> None:
    if sys.argv[1:2] == ["--fit"]:
        fit_here(sys.argv[2], sys.argv[3], int(sys.argv[4]))
        return
    options = arguments(__doc__, seeds=1)
    store = Store("scale", [*SCORES], options.quick)
    sizes = (7000,) if options.quick else (10_000, 30_000)
    store.collect(jobs(options.seeds, sizes, 300 if options.quick else 10_000))
    print(table(store.rows(), SCORES))


if __name__ == "__main__":
    main()
