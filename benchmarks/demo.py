"""How well are the halves of digits completed, beside methods that predict them: ``python
benchmarks/demo.py``.

What ``bochner demo`` does, on splits of its own per seed: error of the lower halves of digits that
were not in training (grey levels 0 to 16) by our model, ridge and kernel ridge regression and
k-nearest neighbours from the upper halves, each with settings by cross-validation on the training
rows, and the column mean; accuracy of nearest neighbours on the latents of the training rows and on
as many principal components. The demo's number of dimensions and steps was chosen by the error on
seeds 100 to 104: ``--first 100 --choice``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from harness import Job, Store, Value, arguments, table

from bochner import demo

SCORES = {"rmse": ".3f", "knn1": ".3f", "knn10": ".3f"}
PEERS = {
    "ridge_rmse": "ridge",
    "kernel_ridge_rmse": "kernel ridge",
    "knn_rmse": "k-NN regression",
    "mean_rmse": "column mean",
}
OURS = "NG-MVLVM"
CANDIDATES = ((8, 60), (12, 100), (12, 150), (16, 100), (24, 100))
_seen: dict[tuple[int, int, int, bool], dict[str, float]] = {}


def scores(dim: int, steps: int, seed: int, quick: bool) -> dict[str, float]:
    """Run the demo on one split, without its files."""
    key = (dim, steps, seed, quick)
    if key not in _seen:
        options = demo.DemoOptions(Path(), dim, seed, 300 if quick else None, steps)
        data = demo.split(options)
        model = demo.fitted(options, data)
        _seen[key] = demo.scores(model, data, demo.completion(model, data))
    return _seen[key]


def measure(method: str, dim: int, steps: int, seed: int, quick: bool) -> dict[str, Value]:
    """Pick one method's figures."""
    result = scores(dim, steps, seed, quick)
    if method == "PCA":
        return {"knn1": result["pca_knn1"], "knn10": result["pca_knn10"]}
    for name, peer in PEERS.items():
        if peer == method:
            return {"rmse": result[name]}
    return {
        "rmse": result["completion_rmse"],
        "knn1": result["knn1"],
        "knn10": result["knn10"],
    }


def jobs(seeds: range, quick: bool) -> Iterator[Job]:
    """Yield the demo and its peers on every split."""
    at = (demo.N_COMPONENTS, demo.MAX_ITER)
    for seed in seeds:
        for method in (OURS, *PEERS.values(), "PCA"):
            yield Job(
                "digits halves", method, seed, partial(measure, method, *at, seed, quick)
            )


def choices(seeds: range, quick: bool) -> Iterator[Job]:
    """Yield what the demo's settings were chosen from."""
    for seed in seeds:
        for dim, steps in CANDIDATES:
            run = partial(measure, OURS, dim, steps, seed, quick)
            yield Job("digits halves", f"{OURS}, D = {dim}, {steps} steps", seed, run)


def main() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--choice", action="store_true", help="settings beside each other")
    chosen, sys.argv[1:] = parser.parse_known_args()
    options = arguments(__doc__)
    store = Store("demo_choice" if chosen.choice else "demo", tuple(SCORES), options.quick)
    store.collect((choices if chosen.choice else jobs)(options.seeds, options.quick))
    print(table([row for row in store.rows() if int(row["seed"]) in options.seeds], SCORES))


if __name__ == "__main__":
    main()
