"""Simulation-based calibration of the sampler: ``python benchmarks/sbc.py --seeds 200``.

A seed is a replication: latents, frequencies and parameters from the prior, data given them, then a
chain of `RFLVM`'s model on these data that starts at another draw of the prior. The rank of the
truth among 12 draws (every fourth sweep after a warm-up of 50) is uniform on 0 to 12 where the
sampler is right (Talts et al. 2018). 6 rows, 2 columns, one entry missing, 3 frequencies, D = 1 and
2; moderate priors, so that counts stay small. Ranked are what rotations and reflections of the
latents do not change (the inner product of two rows, the distance of two others), the kernel's
variance, the parameter of the likelihood (noise variance, dispersion r), the missing entry, the
number of components, and the log joint density. Ties are broken at random. Printed are mean and
deviation of the ranks (6.00 and 3.74 are right), how often each rank came, and the p-value of
chi-square. "weights a fifth too small" is a sampler with a fault, for comparison: a check that
finds none there would be worth nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from harness import Job, Protocol, Value, aligned, arguments, table
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.stats import chisquare

from bochner.mcmc.conditionals.gaussian import GaussianView
from bochner.mcmc.conditionals.logistic import BinomialView, NegativeBinomialView
from bochner.mcmc.conditionals.views import ViewModel, ViewState
from bochner.mcmc.draws import source
from bochner.mcmc.model import Model, State

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))
from helpers.sampler import PRIORS, zeros

Array = NDArray[np.float64]

ROWS, COLUMNS, POINTS = 6, 2, 3
WARMUP, DRAWS, THIN = 50, 12, 4
RIGHT, FAULT = "RFLVM", "weights a fifth too small"
KINDS = ("gaussian", "negative binomial", "bernoulli")
QUANTITIES = ("inner", "distance", "variance", "parameter", "missing", "components", "log_joint")


class FaultyView(GaussianView):
    """Weights that are drawn a fifth too small."""

    def update_weights(self, state: ViewState, x: Array, rng: Generator) -> ViewState:
        """Draw them, then shrink them."""
        drawn = super().update_weights(state, x, rng)
        return replace(drawn, weights=0.8 * drawn.weights)

    def redraw_weights(self, state: ViewState, x: Array, rng: Generator) -> ViewState:
        """Draw them, then shrink them."""
        drawn = super().redraw_weights(state, x, rng)
        return replace(drawn, weights=0.8 * drawn.weights)


def build(kind: str, method: str, dim: int) -> Model:
    """Return the model; its data are still zeros."""
    common = ("y", zeros(ROWS, COLUMNS), tuple(range(dim)), POINTS, PRIORS)
    view: ViewModel
    if kind == "gaussian":
        view = GaussianView(*common) if method == RIGHT else FaultyView(*common)
    elif kind == "bernoulli":
        view = BinomialView(*common, np.ones(COLUMNS))
    else:
        view = NegativeBinomialView(*common, per_column=False)
    return Model((view,), dim)


def quantities(model: Model, state: State, missing: float) -> Array:
    """Return what is ranked, in the order of QUANTITIES."""
    x, of_view = state.x, state.views[0]
    return np.array(
        [
            x[0] @ x[1],
            np.linalg.norm(x[2] - x[3]),
            of_view.variance,
            of_view.parameter[0] if of_view.parameter.size else np.nan,
            missing,
            of_view.labels.max() + 1.0,
            model.log_joint(state),
        ]
    )


def drawn_entries(model: Model, state: State, rng: Generator) -> Array:
    """Draw all entries given the state."""
    view, of_view = model.views[0], state.views[0]
    return view.draw_data(view.psi(of_view, state.x), of_view.parameter, rng)


def measure(kind: str, method: str, dim: int, seed: int) -> dict[str, Value]:
    """Return the rank of the truth for each quantity."""
    model, rng = build(kind, method, dim), source(seed, "calibration", dim)
    truth = model.prior_state(rng)
    Y, view = drawn_entries(model, truth, rng), model.views[0]
    shown = replace(view.data, values=np.where(view.data.observed, Y, 0.0))
    model = replace(model, views=(view.with_data(shown),))
    state, result = model.prior_state(rng), []
    for index in range(WARMUP + DRAWS * THIN):
        state = model.sweep(state, seed, 0, index)
        if index < WARMUP:
            state = model.adapt(state, index)
        elif (index - WARMUP) % THIN == THIN - 1:
            result.append(quantities(model, state, drawn_entries(model, state, rng)[0, 0]))
    draws, true = np.array(result), quantities(model, truth, Y[0, 0])
    ties = rng.random(draws.shape) < rng.random(true.shape)
    ranks = ((draws < true) | ((draws == true) & ties)).sum(0)
    known = ~np.isnan(true)
    return {name: int(r) if k else "" for name, r, k in zip(QUANTITIES, ranks, known, strict=True)}


def jobs(seeds: range, quick: bool) -> Iterator[Job]:
    """Yield all replications, one kind of model after the other."""
    for kind in KINDS[:1] if quick else KINDS:
        for dim in (1, 2):
            for seed in seeds:
                yield Job(
                    f"{kind}, D = {dim}", RIGHT, seed, partial(measure, kind, RIGHT, dim, seed)
                )
    for seed in seeds:
        yield Job("gaussian, D = 1", FAULT, seed, partial(measure, "gaussian", FAULT, 1, seed))


def shown(rows: Sequence[dict[str, str]]) -> str:
    """Print histograms of ranks and p-values."""
    groups: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in rows:
        groups.setdefault((row["data"], row["method"]), []).append(row)
    lines = [["data", "method", "quantity", "n", "ranks 0 to 12", "p"]]
    for (data, method), group in groups.items():
        for name in QUANTITIES:
            ranks = np.array([int(row[name]) for row in group if row[name]])
            if not ranks.size:
                continue
            counts = np.bincount(ranks, minlength=DRAWS + 1)
            p = format(float(chisquare(counts).pvalue), ".2g")
            cells = " ".join(str(count) for count in counts)
            lines.append([data, method, name, str(len(ranks)), cells, p])
    return aligned(lines)


PROTOCOL = Protocol("sbc", QUANTITIES, jobs)


def main() -> None:
    options = arguments(__doc__, seeds=200)
    store = PROTOCOL.store(options.quick)
    store.collect(jobs(options.seeds, options.quick))
    print(table(store.rows(), dict.fromkeys(QUANTITIES, ".2f")))
    print(shown(store.rows()))


if __name__ == "__main__":
    main()
