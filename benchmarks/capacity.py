"""How many features a model needs: ``python benchmarks/capacity.py``.

The bound, and what it costs, against the number of mixture components Q and of frequencies H per
component (heat maps as in figures 6 and 7 of Yang et al. 2025): 1,000 MNIST digits, the S-curve
(RBF + Gibbs) and bridges, trained for 300 steps from the latents that ``optimise.py`` starts from,
as a fit trains: half of the frequencies, at least 25, until the learning rate decays. ``elbo`` is
the bound of the model as it was trained, with H; ``elbo_100`` has H = 100 for every row, so that it
compares what was learned, not with how many features it is expressed. Both are means over the same
32 fresh draws. Seconds are processor time of the training. ``--picture`` draws the heat maps.
BOCHNER_DATA names the folder with the files.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from harness import Job, Protocol, Value, arguments, table
from optimise import Variant, problem, score, train

from bochner.fitting.plan import evaluate, model_from
from bochner.models.lvm import Covariates

DATA = ("MNIST", "S-curve", "bridges")
MIXTURES = (1, 2, 4, 8)
FREQUENCIES = (12, 25, 50, 100, 200)
MOST_FEATURES = 800
STEPS = 300
SCORES = {"elbo": ".0f", "elbo_se": ".0f", "elbo_100": ".0f", "seconds": ".1f"}
LABELLED = {"knn1": ".3f", "knn10": ".3f", "r2": ".3f"}
DEFAULT = (2, 100)


def measure(
    name: str, n_mixtures: int, n_frequencies: int, seed: int, n_steps: int
) -> dict[str, Value]:
    """Train with so many features and score."""
    data, plan, latents, truth = problem(name, seed)
    spec = replace(plan.spec, n_mixtures=n_mixtures, n_frequencies=n_frequencies)
    plan = replace(plan, spec=spec)
    model = model_from(
        latents, spec, data, seed, plan.dtype, plan.device, Covariates.none(len(latents))
    )
    begin = time.process_time()
    train(
        model,
        data,
        plan,
        Variant(spec.early.n_frequencies, n_frequencies, plan.training.decay),
        n_steps,
    )
    seconds = time.process_time() - begin
    bound, error = evaluate(model, data, plan, "score")
    scores = score(model, data, plan, truth)
    return {
        **scores,
        "elbo": bound,
        "elbo_se": error,
        "elbo_100": scores["elbo"],
        "seconds": seconds,
    }


def jobs(names: tuple[str, ...], seeds: range, n_steps: int, most: int) -> Iterator[Job]:
    """Yield every number of features up to the most, seed by seed."""
    for seed in seeds:
        for name in names:
            for q in MIXTURES:
                for h in (h for h in FREQUENCIES if 2 * q * h <= most):
                    yield Job(
                        name, f"Q={q} H={h}", seed, partial(measure, name, q, h, seed, n_steps)
                    )


def grid(rows: list[dict[str, str]], name: str, column: str) -> dict[tuple[int, int], float]:
    """Return the mean over seeds of one column for every (Q, H)."""
    cells: dict[tuple[int, int], list[float]] = {}
    for row in rows:
        if row["data"] == name and row[column]:
            q, h = (int(part[2:]) for part in row["method"].split())
            cells.setdefault((q, h), []).append(float(row[column]))
    return {key: statistics.fmean(values) for key, values in cells.items()}


def picture(rows: list[dict[str, str]], path: Path) -> None:
    """Draw the bound below the best one, and seconds, against Q and H."""
    from matplotlib.figure import Figure

    names = [name for name in DATA if any(row["data"] == name for row in rows)]
    figure = Figure(figsize=(4.2 * len(names), 6.2), layout="constrained")
    axes = figure.subplots(2, len(names), squeeze=False)
    for j, name in enumerate(names):
        bounds = grid(rows, name, "elbo")
        best = max(bounds.values())
        _panel(
            axes[0, j],
            {key: value - best for key, value in bounds.items()},
            f"{name}\nbound minus the best, nats",
            ".0f",
        )
        _panel(axes[1, j], grid(rows, name, "seconds"), "processor seconds", ".1f")
    figure.savefig(path, dpi=110)
    print(f"wrote {path}")


def _panel(axis: Any, cells: dict[tuple[int, int], float], title: str, form: str) -> None:
    """One heat map with its numbers; the default has a frame."""
    from matplotlib.patches import Rectangle

    values = np.full((len(MIXTURES), len(FREQUENCIES)), np.nan)
    for (q, h), value in cells.items():
        values[MIXTURES.index(q), FREQUENCIES.index(h)] = value
    # ranks, so that one bad corner does not take all the colours
    order = np.full(values.shape, np.nan)
    order[~np.isnan(values)] = np.argsort(np.argsort(np.abs(values[~np.isnan(values)])))
    axis.imshow(order, cmap="viridis_r", origin="lower", aspect="auto", alpha=0.75)
    for i, j in zip(*np.nonzero(~np.isnan(values)), strict=True):
        ink = "white" if order[i, j] > 0.7 * np.nanmax(order) else "black"
        text = format(round(values[i, j], int(form[1])) + 0.0, form).replace(
            "-", "\N{MINUS SIGN}"
        )
        axis.text(j, i, text, ha="center", va="center", fontsize=9, color=ink)
    q, h = MIXTURES.index(DEFAULT[0]), FREQUENCIES.index(DEFAULT[1])
    axis.add_patch(
        Rectangle(
            (h - 0.48, q - 0.46), 0.96, 0.92, fill=False, edgecolor="#bd1f01", linewidth=2
        )
    )
    axis.set_xticks(range(len(FREQUENCIES)), [str(h) for h in FREQUENCIES])
    axis.set_yticks(range(len(MIXTURES)), [str(q) for q in MIXTURES])
    axis.set_xlabel("H, frequencies per component")
    axis.set_ylabel("Q, components")
    axis.set_title(title, loc="left", fontsize=11)


PROTOCOL = Protocol(
    "capacity",
    (*SCORES, *LABELLED),
    lambda seeds, quick: jobs(
        DATA, seeds, 40 if quick else STEPS, 100 if quick else MOST_FEATURES
    ),
)


def main() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--picture", action="store_true")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(__file__).parents[1] / "docs" / "images" / "capacity.png",
    )
    chosen, sys.argv[1:] = parser.parse_known_args()
    options = arguments(__doc__, seeds=3)
    store = PROTOCOL.store(options.quick)
    names = ("bridges",) if options.quick else DATA
    store.collect(
        jobs(
            names,
            options.seeds,
            40 if options.quick else STEPS,
            100 if options.quick else MOST_FEATURES,
        )
    )
    print(table(store.rows(), {**SCORES, **LABELLED}))
    if chosen.picture:
        picture(store.rows(), chosen.out)


if __name__ == "__main__":
    main()
