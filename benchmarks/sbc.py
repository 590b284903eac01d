"""Simulation-based calibration of the sampler: ``python benchmarks/sbc.py --seeds 200``.

A seed is a replication: latents, frequencies and parameters from the prior, data given them, then a
chain of `RFLVM`'s model on these data that starts at another draw of the prior. The rank of the
truth among 12 draws (every fourth sweep after a warm-up of 200) is uniform on 0 to 12 where the
sampler is right (Talts et al. 2018) and has forgotten its start. 6 rows, 2 columns, one entry
missing, 3 frequencies, D = 1 and 2; moderate priors, so that counts stay small. Ranked are what
rotations and reflections of the latents do not change (the inner product of two rows, the distance
of two others), the kernel's variance, the parameter of the likelihood (noise variance, dispersion
r), the missing entry, the number of components, and the log joint density. Ties are broken at
random. Successes are of 4 and of 10 trials; a categorical column has three categories, which the
library's likelihood encodes as sticks. Printed are mean and deviation of the ranks (6.00 and 3.74
are right), how often each rank came, and the p-value of chi-square. "weights a fifth too small" is
a sampler with a fault, for comparison: a check that finds none there would be worth nothing.

``--stationary`` needs no warm-up: a chain that begins at the truth has the posterior's law from the
start, so that quantities after 12 sweeps less those of the truth are zero on average (Geweke 2004).
A seed is a mean over 20 replications; printed are the mean over seeds and how many standard errors
it is from zero. Variances and parameters are compared by their logarithms.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from harness import Job, Protocol, Value, aligned, arguments, table
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.stats import chisquare

from bochner.likelihoods.categorical import Categorical
from bochner.mcmc.conditionals.gaussian import GaussianView
from bochner.mcmc.conditionals.logistic import BinomialView, NegativeBinomialView
from bochner.mcmc.conditionals.views import ViewData, ViewModel, ViewState
from bochner.mcmc.draws import source
from bochner.mcmc.model import Model, State

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))
from helpers.sampler import PRIORS, zeros

Array = NDArray[np.float64]

ROWS, COLUMNS, POINTS = 6, 2, 3
WARMUP, DRAWS, THIN = 200, 12, 4
SWEEPS, REPLICATIONS = 12, 20
# Replications of the sampler with a fault, which needs few to be found.
FAULTY = 50
Run = Callable[[str, str, int, int], dict[str, Value]]
RIGHT, FAULT = "RFLVM", "weights a fifth too small"
KINDS = ("gaussian", "negative binomial", "bernoulli", "binomial", "categorical")
TRIALS = (4.0, 10.0)
CODING = Categorical([[0.0, 1.0, 2.0]] * COLUMNS)
QUANTITIES = (
    "inner",
    "distance",
    "variance",
    "parameter",
    "missing",
    "components",
    "log_joint",
)


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
    width = sum(CODING.group_sizes) if kind == "categorical" else COLUMNS
    common = ("y", zeros(ROWS, width), tuple(range(dim)), POINTS, PRIORS)
    view: ViewModel
    if kind == "gaussian":
        view = GaussianView(*common) if method == RIGHT else FaultyView(*common)
    elif kind in ("bernoulli", "categorical"):
        view = BinomialView(*common)
    elif kind == "binomial":
        view = BinomialView(*common, np.array(TRIALS))
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


def drawn_entries(kind: str, model: Model, state: State, rng: Generator) -> Array:
    """Draw all entries given the state."""
    view, of_view = model.views[0], state.views[0]
    drawn = view.draw_data(view.psi(of_view, state.x), of_view.parameter, rng)
    if kind != "categorical":
        return drawn
    first, second = drawn[:, 0::2], drawn[:, 1::2]
    return np.where(first == 1.0, 0.0, np.where(second == 1.0, 1.0, 2.0))


def data_of(kind: str, Y: Array) -> ViewData:
    """Return what a chain sees of the entries: all but the first."""
    shown = Y.copy()
    shown[0, 0] = np.nan
    if kind == "categorical":
        shown = CODING.encode(torch.from_numpy(shown)).numpy()
    return ViewData.of(shown)


def replication(
    kind: str, method: str, dim: int, rng: Generator
) -> tuple[Model, State, Array]:
    """Draw a truth from the prior and data given it; return the model of these data, too."""
    model = build(kind, method, dim)
    truth = model.prior_state(rng)
    Y, view = drawn_entries(kind, model, truth, rng), model.views[0]
    return replace(model, views=(view.with_data(data_of(kind, Y)),)), truth, Y


def measure(kind: str, method: str, dim: int, seed: int) -> dict[str, Value]:
    """Return the rank of the truth for each quantity."""
    rng = source(seed, "calibration", dim)
    model, truth, Y = replication(kind, method, dim, rng)
    state, result = model.prior_state(rng), []
    for index in range(WARMUP + DRAWS * THIN):
        state = model.sweep(state, seed, 0, index)
        if index < WARMUP:
            state = model.adapt(state, index)
        elif (index - WARMUP) % THIN == THIN - 1:
            result.append(
                quantities(model, state, drawn_entries(kind, model, state, rng)[0, 0])
            )
    draws, true = np.array(result), quantities(model, truth, Y[0, 0])
    ties = rng.random(draws.shape) < rng.random(true.shape)
    ranks = ((draws < true) | ((draws == true) & ties)).sum(0)
    known = ~np.isnan(true)
    return {
        name: int(r) if k else "" for name, r, k in zip(QUANTITIES, ranks, known, strict=True)
    }


def drift(kind: str, method: str, dim: int, seed: int) -> dict[str, Value]:
    """Return mean changes of all quantities by chains that begin at the truth."""
    changes = []
    for index in range(REPLICATIONS):
        rng = source(seed, "stationary", dim, index)
        model, state, Y = replication(kind, method, dim, rng)
        before = quantities(model, state, Y[0, 0])
        for sweep in range(SWEEPS):
            state = model.sweep(state, seed, index, sweep)
        after = quantities(model, state, drawn_entries(kind, model, state, rng)[0, 0])
        for name in ("variance", "parameter"):
            i = QUANTITIES.index(name)
            before[i], after[i] = np.log(before[i]), np.log(after[i])
        changes.append(after - before)
    means = np.mean(changes, axis=0)
    return {n: "" if np.isnan(v) else float(v) for n, v in zip(QUANTITIES, means, strict=True)}


def jobs(run: Run, seeds: range, quick: bool) -> Iterator[Job]:
    """Yield all replications: those of two dimensions first, one seed after the other, so that a
    run which is stopped has as many of each kind.
    """
    order = itertools.product((KINDS[:2], KINDS[2:3], KINDS[3:]), (2, 1))
    for kinds, dim in order:
        for seed, kind in itertools.product(seeds, kinds[:1] if quick else kinds):
            name = f"{kind}, D = {dim}"
            yield Job(name, RIGHT, seed, partial(run, kind, RIGHT, dim, seed))
    for seed in seeds[:FAULTY]:
        run_faulty = partial(run, KINDS[0], FAULT, 1, seed)
        yield Job(f"{KINDS[0]}, D = 1", FAULT, seed, run_faulty)


def grouped(rows: Sequence[dict[str, str]], name: str) -> Iterator[tuple[str, str, Array]]:
    """Yield data, method and the values of one quantity."""
    groups: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        if row[name]:
            groups.setdefault((row["data"], row["method"]), []).append(float(row[name]))
    for (data, method), values in groups.items():
        yield data, method, np.array(values)


def histograms(rows: Sequence[dict[str, str]]) -> str:
    """Print histograms of ranks and p-values."""
    lines = [["data", "method", "quantity", "n", "ranks 0 to 12", "p"]]
    for name in QUANTITIES:
        for data, method, ranks in grouped(rows, name):
            counts = np.bincount(ranks.astype(int), minlength=DRAWS + 1)
            p = format(float(chisquare(counts).pvalue), ".2g")
            cells = " ".join(str(count) for count in counts)
            lines.append([data, method, name, str(len(ranks)), cells, p])
    return aligned([lines[0], *sorted(lines[1:], key=lambda line: line[:2])])


def standard_errors(rows: Sequence[dict[str, str]]) -> str:
    """Print how many standard errors mean changes are from zero."""
    lines: dict[tuple[str, str], list[str]] = {}
    for name in QUANTITIES:
        for data, method, values in grouped(rows, name):
            line = lines.setdefault((data, method), [data, method, *["-"] * len(QUANTITIES)])
            error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
            line[2 + QUANTITIES.index(name)] = f"{values.mean() / error:+.1f}"
    return aligned([["data", "method", *QUANTITIES], *lines.values()])


PROTOCOL = Protocol("sbc", QUANTITIES, partial(jobs, measure))
PROTOCOL_OF_DRIFT = Protocol("sbc_stationary", QUANTITIES, partial(jobs, drift))


def main() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument(
        "--stationary", action="store_true", help="chains that begin at the truth"
    )
    chosen, sys.argv[1:] = parser.parse_known_args()
    options = arguments(__doc__, seeds=15 if chosen.stationary else 200)
    protocol = PROTOCOL_OF_DRIFT if chosen.stationary else PROTOCOL
    store = protocol.store(options.quick)
    store.collect(protocol.jobs(options.seeds, options.quick))
    print(
        table(store.rows(), dict.fromkeys(QUANTITIES, ".3f" if chosen.stationary else ".2f"))
    )
    print(standard_errors(store.rows()) if chosen.stationary else histograms(store.rows()))


if __name__ == "__main__":
    main()
