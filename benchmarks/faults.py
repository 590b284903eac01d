"""Does ``bo.calibration`` name what is wrong: ``python benchmarks/faults.py --seeds 10``.

A model with two latents is fitted to 200 rows of 20 columns, 400 rows are drawn from it with their
noise-free values, and their noise is put wrong in one way: 1.6 or 0.6 times as large for all, for
every other column, with heavy tails (Student's t, 3 degrees of freedom, the same variance), 3 % of
the entries moved by eight standard deviations, skewed (log-normal, the same variance), or shared by
a row (a third of its variance); counts of a Poisson model are drawn from a negative binomial one
with dispersion 3. ``named``: whether the sentence that says this was among those of the report
(outliers may also be called heavy tails); for rows as they were drawn: whether there was none.
``sentences``: how many there were.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch
from harness import Job, Store, Value, arguments, table
from numpy.typing import NDArray

import bochner as bo
from bochner import random
from bochner.prediction.decoding import sample_at

Array = NDArray[np.float64]
Source = np.random.Generator

N_TRAIN, M, N_NEW, FRACTION = 200, 20, 400, 0.3
COLUMNS = {"named": ".2f", "sentences": ".1f"}
FAULTS: dict[str, tuple[str, Callable[[Array, float, Source], Array]]] = {
    "none": ("", lambda r, _s, _g: r),
    "noise times 1.6": ("too narrow", lambda r, _s, _g: 1.6 * r),
    "noise times 0.6": ("too wide", lambda r, _s, _g: 0.6 * r),
    "noise of some columns": (
        "columns differ in their noise",
        lambda r, _s, _g: r * np.tile([0.5, 1.6], r.shape[1] // 2),
    ),
    "heavy tails": (
        "heavier tails",
        lambda r, _s, g: r / np.sqrt(g.chisquare(3.0, r.shape)),
    ),
    "outliers": (
        "outliers|heavier tails",
        lambda r, s, g: r + 8.0 * s * (g.random(r.shape) < 0.03) * g.choice([-1, 1], r.shape),
    ),
    "skewed": (
        "skewed",
        lambda r, s, _g: s * (np.exp(0.8 * r / s) - np.exp(0.32)) / 1.3119,
    ),
    "dependence": (
        "correlate",
        lambda r, s, g: (r + 0.7 * s * g.normal(size=(len(r), 1))) / np.sqrt(1.49),
    ),
}
COUNTS = {"none, counts": "", "overdispersion": "vary more than poisson"}


def training_table(kind: str, seed: int) -> Array:
    """Draw a table."""
    source = np.random.default_rng(seed)
    x, w = source.normal(size=(N_TRAIN, 2)), source.normal(size=(60, 2))
    waves = np.cos(x @ w.T + source.uniform(0.0, 2.0 * np.pi, 60))
    f = waves @ source.normal(size=(60, M)) * np.sqrt(2.0 / 60)
    if kind == "poisson":
        return np.asarray(source.poisson(np.exp(1.0 + f)), dtype=np.float64)
    drawn: Array = f + 0.3 * source.normal(size=f.shape)
    return drawn


@lru_cache(maxsize=2)
def fitted(kind: str, seed: int) -> Any:
    """Fit the model that all faults of a seed share."""
    model: Any = bo.AdvisedRFLVM(2, likelihood=kind, max_iter=100, n_init=1, random_state=seed)
    return model.set_params(init="pca", n_frequencies=32).fit(training_table(kind, seed))


def measure(fault: str, seed: int) -> Mapping[str, Value]:
    """Draw rows with a fault from a fitted model and ask."""
    kind = "poisson" if fault in COUNTS else "gaussian"
    source = np.random.default_rng(seed + 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = fitted(kind, seed)
        noise = random.generator(seed, "faults")
        x = torch.randn(N_NEW, 2, generator=noise, dtype=torch.float64)
        scaled = sample_at(model._fit.posterior, x, noise)
        rows = model._unscale(scaled)
        mean = model.inverse_transform(x.numpy())
        if kind == "gaussian":
            text, change = FAULTS[fault]
            s = float(np.sqrt(model.noise_variance_["x"]))
            rows = mean + change(rows - mean, s, source)
        else:
            text = COUNTS[fault]
            rate = np.maximum(mean, 1e-9)
            if text:
                rows = source.poisson(rate * source.gamma(3.0, 1.0 / 3.0, rate.shape))
        report = bo.calibration(model, rows, fraction=FRACTION, n_draws=100, random_state=seed)
    said = report.problems()
    right = (
        not said
        if not text
        else any(one in sentence for sentence in said for one in text.split("|"))
    )
    return {"named": float(right), "sentences": float(len(said))}


def jobs(seeds: range) -> Iterator[Job]:
    """Every fault, seed by seed."""
    for seed in seeds:
        for fault in (*FAULTS, *COUNTS):
            yield Job("two latents", fault, seed, partial(measure, fault, seed))


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__)
    store = Store("faults", list(COLUMNS), options.quick)
    store.collect(jobs(options.seeds))
    print(table(store.rows(), COLUMNS))


if __name__ == "__main__":
    main()
