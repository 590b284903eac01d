"""Is a model as sure as it says it is: ``python benchmarks/certainty.py``.

A model of every likelihood is fitted (60 steps from a Laplacian eigenmap, 32 spectral points a
component) to data drawn from smooth random functions of D latents (100 rows of 10 columns for D =
1; 200 of 20 for 2 and 3; 300 of 30 for 5), complete and with 30 % of the entries missing. Then 200
new rows are drawn from the fitted model, so that the model is right and their latents are known.
Columns: shares of the latents within the 50 and 95 % intervals of ``transform(return_std=True)``,
root mean square of (x - z) / std (1 is right); shares of hidden entries by draws; p of chi-square
tests that ranks are uniform; processor time of placing with standard deviations over that without,
and of their first check over that of the fit; learned over true noise variance or dispersion; of 5
rows, ``score_samples`` less a reference by quadrature (D = 1) or by importance sampling with 2,000
samples of another seed (D > 1), the mean and the row that is furthest away, nats.

``--intervals`` measures limits of latents alone: shares of 400 new rows' latents within the 50, 80
and 95 % intervals of ``transform(interval=...)``, and within those of a normal distribution with
the standard deviations of ``transform(return_std=True)``, for comparison.

``--ranks`` measures ranks of latents, one a row of 400 new rows: p of chi-square tests that they
are uniform, by the normal distribution that a standard deviation stands for, and among the tenths
of the row's posterior as ``transform(interval=...)`` has them; and the share in the middle two
tenths, which is 0.2 where ranks are uniform.

``--annealed`` measures ``score_samples`` alone, in 5 and 10 dimensions: of 10 new rows of every
model, less a reference by annealed particles (annealed.py), which climbs nowhere. Beside the
likelihoods above a Gaussian whose noise has the known standard deviation 0.01, and counts of up to
100,000. Columns: the mean difference and that of the row that is furthest away, nats; rows that are
more than 0.5 nats off; root mean square of the standard errors of `score_samples`, of those of the
reference, and of differences over both.

``--placed`` measures where rows lie that were drawn from a fitted model: ``wrong`` is the share, in
percent, of 200 of which the best mode near their place is more than 5 nats below that near their
latent, ``worst`` by how many nats at most.

``--cost`` measures what placing complete Gaussian rows takes with standard deviations and without,
for 200 and for 1,500 rows: ms of processor time, the least of five.

Below the table of all columns stands what an interval made of the bound's curvature in the log
noise variance would be worth: how many of the learned ones are within two of its standard errors,
the root of 2 over the number of entries, of the truth.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from annealed import integrals, log_prior
from harness import Job, Store, Value, aligned, arguments, table
from numpy.typing import NDArray
from scipy.stats import chisquare, norm
from torch import Tensor

import bochner as bo
from bochner import random
from bochner.features.fourier import columns_beside
from bochner.model_selection.calibrate import compare
from bochner.prediction.decoding import sample_at
from bochner.prediction.proposals import Proposal
from bochner.prediction.row_batch import Batch, by_draw, row_keys
from bochner.prediction.row_density import _Samples

Array = NDArray[np.float64]

KINDS = ("gaussian", "bernoulli", "binomial", "negative_binomial", "poisson", "categorical")
SIZES = {1: (100, 10), 2: (200, 20), 3: (200, 20), 5: (300, 30)}
# Of ``--annealed``: likelihood, standard deviation of the noise or mean logarithm of counts, and
# settings of the model.
WIDE_SIZES = {5: (300, 30), 10: (300, 30)}
WIDE_KINDS: dict[str, tuple[str, float, dict[str, Any]]] = {
    "gaussian": ("gaussian", 0.3, {}),
    "gaussian, noise 0.01": ("gaussian", 0.01, {"noise_variance": 1e-4}),
    "bernoulli": ("bernoulli", 0.0, {}),
    "binomial": ("binomial", 0.0, {}),
    "negative binomial": ("negative_binomial", 1.0, {}),
    "negative binomial, large counts": ("negative_binomial", 8.0, {}),
    "poisson": ("poisson", 1.0, {}),
    "poisson, large counts": ("poisson", 8.0, {}),
    "categorical": ("categorical", 0.0, {}),
}
HOLES = {"complete": 0.0, "30 % missing": 0.3}
NOISE, DISPERSION = 0.3, 3.0
N_NEW, N_ENTRY_ROWS, N_SCORED, N_DRAWS = 200, 50, 5, 100
N_WIDE, FAR = 10, 0.5
N_INTERVAL_ROWS, LEVELS = 400, (50, 80, 95)
N_REFERENCE, N_BINS = 2_000, 10
COLUMNS = {
    "latents_50": ".3f",
    "latents_95": ".3f",
    "latents_rms": ".2f",
    "latents_p": ".3f",
    "std_cost": ".2f",
    "check_cost": ".2f",
    "entries_50": ".3f",
    "entries_95": ".3f",
    "entries_p": ".3f",
    "parameter": ".3f",
    "score_mean": ".3f",
    "score_worst": ".3f",
}

RANKS = {"normal_p": ".3f", "normal_middle": ".3f", "tenths_p": ".3f", "tenths_middle": ".3f"}
ANNEALED = {
    "score_mean": ".3f",
    "score_worst": ".3f",
    "rows_off": ".1f",
    "score_error": ".3f",
    "reference_error": ".3f",
    "rms_z": ".2f",
}
# Of ``--placed``
PLACED_KINDS = {
    name: WIDE_KINDS[name]
    for name in ("gaussian", "gaussian, noise 0.01", "poisson", "poisson, large counts")
} | {"gaussian, noise 0.05": ("gaussian", 0.05, {})}
PLACED = {"wrong": ".1f", "worst": ".0f", "ms_per_row": ".1f"}
COST = {"plain": ".0f", "with_std": ".0f", "ratio": ".2f"}
N_COSTS = (200, 1_500)
LIMITS = {f"{name}_{level}": ".3f" for level in LEVELS for name in ("interval", "std")}


def draw(
    kind: str, f: Array, source: np.random.Generator, noise: float = NOISE, level: float = 1.0
) -> Array:
    """Draw a view of one kind from its noise-free values; counts have this mean logarithm."""
    p, rate = 1.0 / (1.0 + np.exp(-f)), np.exp(level + f)
    drawn: dict[str, Callable[[], Any]] = {
        "gaussian": lambda: f + noise * source.normal(size=f.shape),
        "bernoulli": lambda: source.random(f.shape) < 1.0 / (1.0 + np.exp(-3.0 * f)),
        "binomial": lambda: source.binomial(5, p),
        "negative_binomial": lambda: source.negative_binomial(
            DISPERSION, DISPERSION / (DISPERSION + rate)
        ),
        "poisson": lambda: source.poisson(rate),
        "categorical": lambda: np.digitize(f + source.logistic(size=f.shape), [-1.0, 1.0]),
    }
    return np.asarray(drawn[kind](), dtype=np.float64)


def smooth(n: int, m: int, dim: int, source: np.random.Generator) -> Array:
    """Return random functions of random latents, (n, M)."""
    x, w = source.normal(size=(n, dim)), source.normal(size=(60, dim))
    phases = source.uniform(0.0, 2.0 * np.pi, 60)
    f: Array = np.cos(x @ w.T + phases) @ source.normal(size=(60, m)) * math.sqrt(2.0 / 60)
    return f


def training_table(kind: str, dim: int, share: float, seed: int) -> Array:
    """Draw a table over random latents, a share of its entries missing."""
    source = np.random.default_rng(seed)
    Y = draw(kind, smooth(*SIZES[dim], dim, source), source)
    Y[source.random(Y.shape) < share] = np.nan
    return Y


def uniform_p(ranks: Array) -> float:
    """Return p of a chi-square test that numbers in [0, 1] are uniform."""
    return float(chisquare(np.histogram(ranks, N_BINS, (0.0, 1.0))[0]).pvalue)


def new_rows(
    model: Any, share: float, seed: int, n: int = N_NEW, key: str = "certainty"
) -> tuple[Array, Array]:
    """Draw rows from a fitted model, with their latents; holes in eight patterns."""
    source = random.generator(seed, key)
    dim = model.embedding_.shape[1]
    x = torch.randn(n, dim, generator=source, dtype=torch.float64)
    y = sample_at(model._fit.posterior, x, source)
    holes = torch.rand(8, y.shape[1], generator=source) < share
    y = torch.where(holes[torch.arange(n) % 8], torch.nan, y)
    return x.numpy(), model._unscale(y)


def _seconds(job: Callable[[], object], repeats: int = 2) -> float:
    """Return the processor time of a job, the least of some repeats."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        job()
        times.append(time.process_time() - start)
    return min(times)


def latents(model: Any, x: Array, rows: Array) -> dict[str, Value]:
    """Compare standard deviations of latents with where the rows are."""
    model.transform(rows)
    plain = _seconds(lambda: model.transform(rows))
    z, std = model.transform(rows, return_std=True)
    cost = _seconds(lambda: model.transform(rows, return_std=True)) / plain
    away = (x - z) / std
    inside = {
        f"latents_{level}": float((np.abs(away) < norm.ppf(0.5 + level / 200)).mean())
        for level in (50, 95)
    }
    one = away[np.arange(len(x)), np.arange(len(x)) % x.shape[1]]
    rms = float(np.sqrt(np.square(away).mean()))
    return {
        **inside,
        "latents_rms": rms,
        "latents_p": uniform_p(norm.cdf(one)),
        "std_cost": cost,
    }


def entries(model: Any, rows: Array, seed: int) -> dict[str, Value]:
    """Hide a tenth of the entries of some rows, and see in which intervals they are."""
    rows, source = rows[:N_ENTRY_ROWS], np.random.default_rng(seed)
    patterns = source.random((4, rows.shape[1])) < 0.2
    hidden = patterns[np.arange(len(rows)) % 4] & ~np.isnan(rows)
    hidden &= (~hidden & ~np.isnan(rows)).any(axis=1, keepdims=True)
    pit, _ = compare(model, rows, hidden, N_DRAWS, None, seed)
    centred = np.abs(pit[hidden] - 0.5)
    one = [source.choice(row[~np.isnan(row)]) for row in pit if not np.isnan(row).all()]
    inside = {f"entries_{n}": float((centred < n / 200).mean()) for n in (50, 95)}
    return {**inside, "entries_p": uniform_p(np.asarray(one))}


def batch_of(model: Any, rows: Array, seed: int) -> Batch:
    """Return scaled rows of one view as densities take them."""
    views, parts = model._fit.posterior, model._split(rows)
    encoded = [view.encode(y) for view, y in zip(views, parts, strict=True)]
    draws = by_draw(views, encoded, not np.isnan(rows).any())
    keys, none = row_keys(["x"], parts), columns_beside(None, len(rows))
    return Batch(views, encoded, draws, [None] * len(views), keys, seed, none)


def reference(model: Any, rows: Array, seed: int) -> Tensor:
    """Return densities of scaled rows: by the trapezoidal rule, or by very many samples."""
    batch = batch_of(model, rows, seed + 10**6)
    if model.embedding_.shape[1] > 1:
        cloud = batch.cloud(model._candidates)
        first = Proposal.about(batch.modes(model._candidates, cloud), cloud)
        better = _Samples.drawn(batch, first, N_REFERENCE, 0).adapted(batch)
        weights = _Samples.drawn(batch, better, N_REFERENCE, 1).log_weights()
        return weights.logsumexp(1) - math.log(weights.shape[1])
    grid = torch.linspace(-6.0, 6.0, 2001, dtype=torch.float64)[:, None]
    joint = batch.log_joint(grid.expand(len(rows), -1, -1))
    return joint.logsumexp(1) + math.log(12.0 / 2000)


def score(model: Any, rows: Array, seed: int) -> dict[str, Value]:
    """Compare densities of rows with the reference."""
    rows = rows[:N_SCORED]
    result = model.score_samples(rows) - model._log_jacobian(rows)
    away = result - reference(model, rows, seed).numpy()
    return {"score_mean": float(away.mean()), "score_worst": float(np.abs(away).max())}


def unfitted(dim: int, kind: str, seed: int, **more: Any) -> Any:
    """Return the model, to be trained for a short while."""
    settings: Any = {"max_iter": 60, "init": "laplacian", "n_init": 1, "n_frequencies": 32}
    return bo.AdvisedRFLVM(dim, likelihood=kind, random_state=seed, **settings, **more)


def drawn_from_a_fit(
    kind: str, dim: int, share: float, seed: int
) -> tuple[Any, Array, Array, Array, Array]:
    """Fit a model and draw rows from it; return it, their latents, the rows, and where it places
    them with which standard deviations.
    """
    model = unfitted(dim, kind, seed).fit(training_table(kind, dim, share, seed))
    # latents that models share would make one chance event of several
    key = f"certainty/{kind}/{dim}/{share}"
    x, rows = new_rows(model, share, seed, N_INTERVAL_ROWS, key)
    return model, x, rows, *model.transform(rows, return_std=True)


def measure_intervals(kind: str, dim: int, share: float, seed: int) -> Mapping[str, Value]:
    """Fit a model and see which intervals hold the latents of rows drawn from it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, x, rows, z, std = drawn_from_a_fit(kind, dim, share, seed)
        result: dict[str, Value] = {}
        for level in LEVELS:
            _, low, high = model.transform(rows, interval=level / 100)
            result[f"interval_{level}"] = float(((low < x) & (x < high)).mean())
            inside = np.abs(x - z) < norm.ppf(0.5 + level / 200) * std
            result[f"std_{level}"] = float(inside.mean())
    return result


def measure_ranks(kind: str, dim: int, share: float, seed: int) -> Mapping[str, Value]:
    """Fit a model and rank the latents of rows drawn from it, among two kinds of quantiles."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, x, rows, z, std = drawn_from_a_fit(kind, dim, share, seed)
        # the limits of these are the tenths: the least is the median
        levels = (1e-6, 0.2, 0.4, 0.6, 0.8)
        limits = [model.transform(rows, interval=level)[1:] for level in levels]
    edges = np.stack([limits[0][1], *(side for both in limits[1:] for side in both)])
    one = np.arange(len(x)), np.arange(len(x)) % x.shape[1]
    ranks = {
        "normal": norm.cdf((x - z) / std)[one],
        "tenths": ((edges < x).sum(axis=0)[one] + 0.5) / N_BINS,
    }
    result: dict[str, Value] = {}
    for name, u in ranks.items():
        result[f"{name}_p"] = uniform_p(u)
        result[f"{name}_middle"] = float((np.abs(u - 0.5) < 0.1).mean())
    return result


def measure(kind: str, dim: int, share: float, seed: int) -> Mapping[str, Value]:
    """Fit a model and check what it says of rows drawn from it."""
    Y = training_table(kind, dim, share, seed)
    model = unfitted(dim, kind, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = time.process_time()
        model.fit(Y)
        fitted, start = time.process_time() - start, time.process_time()
        model.embedding_std_  # noqa: B018
        check = (time.process_time() - start) / fitted
        x, rows = new_rows(model, share, seed)
        result = {**latents(model, x, rows), **entries(model, rows, seed), "check_cost": check}
        result |= score(model, rows, seed)
    if kind == "gaussian":
        result["parameter"] = float(model.noise_variance_["x"]) / NOISE**2
    if kind == "negative_binomial":
        result["parameter"] = float(np.median(model.dispersion_["x"])) / DISPERSION
    return result


def measure_annealed(name: str, dim: int, share: float, seed: int) -> Mapping[str, Value]:
    """Fit a model and compare densities of rows drawn from it with annealed particles."""
    kind, size, settings = WIDE_KINDS[name]
    source = np.random.default_rng(seed)
    f = smooth(*WIDE_SIZES[dim], dim, source)
    Y = draw(kind, f, source, noise=size, level=size)
    Y[source.random(Y.shape) < share] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = unfitted(dim, kind, seed, **settings).fit(Y)
        x, rows = new_rows(model, share, seed, N_WIDE, f"annealed/{name}/{dim}/{share}")
        density, error = model.score_samples(rows, return_std=True)
    batch = batch_of(model, rows, seed)

    def log_likelihood(index: NDArray[np.int64], at: Array) -> Array:
        joint = batch.at(torch.from_numpy(index)).log_joint(torch.from_numpy(at))
        out: Array = joint.numpy() - log_prior(at)
        return out

    truth = integrals(log_likelihood, N_WIDE, dim, seed, x)
    away = density - model._log_jacobian(rows) - truth.value
    both = np.hypot(error, truth.error)
    return {
        "score_mean": float(away.mean()),
        "score_worst": float(np.abs(away).max()),
        "rows_off": int((np.abs(away) > FAR).sum()),
        "score_error": root_mean_square(error),
        "reference_error": root_mean_square(truth.error),
        "rms_z": root_mean_square(away / both),
    }


def root_mean_square(values: Array) -> float:
    return float(np.sqrt(np.square(values).mean()))


def annealed_jobs(seeds: range, quick: bool) -> Iterator[Job]:
    """Every kind of data, number of dimensions and share of holes, seed by seed."""
    for seed, dim in itertools.product(seeds, (5,) if quick else WIDE_SIZES):
        for kind in ("gaussian",) if quick else WIDE_KINDS:
            for name, share in HOLES.items():
                job = partial(measure_annealed, kind, dim, share, seed)
                yield Job(f"{kind}, D = {dim}", name, seed, job)


def measure_placed(name: str, dim: int, share: float, seed: int) -> Mapping[str, Value]:
    """Fit a model and compare where it places rows drawn from it with where they were drawn."""
    kind, size, settings = PLACED_KINDS[name]
    source = np.random.default_rng(seed)
    Y = draw(kind, smooth(300, 30, dim, source), source, noise=size, level=size)
    Y[source.random(Y.shape) < share] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = unfitted(dim, kind, seed, **settings).fit(Y)
        x, rows = new_rows(model, share, seed, N_NEW, f"placed/{name}/{dim}/{share}")
        model.transform(rows[:10])
        seconds = _seconds(lambda: model.transform(rows), 1)
        batch, z = batch_of(model, rows, seed), model.transform(rows)
    near = [batch.modes_near(torch.from_numpy(np.asarray(at, float))) for at in (x, z)]
    below = (near[0].log_weights.amax(1) - near[1].log_weights.amax(1)).numpy()
    return {
        "wrong": 100.0 * float((below > 5.0).mean()),
        "worst": float(below.max()),
        "ms_per_row": 1e3 * seconds / N_NEW,
    }


def placed_jobs(seeds: range, quick: bool) -> Iterator[Job]:
    """Every kind of data, number of dimensions and share of holes, seed by seed."""
    for seed, dim in itertools.product(seeds, (2,) if quick else (1, 2, 3, 5)):
        for kind, (name, share) in itertools.product(PLACED_KINDS, HOLES.items()):
            job = partial(measure_placed, kind, dim, share, seed)
            yield Job(f"{kind}, D = {dim}", name, seed, job)


def measure_cost(dim: int, n: int, seed: int) -> Mapping[str, Value]:
    """Fit a model and time how rows are placed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = unfitted(dim, "gaussian", seed).fit(training_table("gaussian", dim, 0.0, seed))
        _, rows = new_rows(model, 0.0, seed, n)
        model.transform(rows[:10], return_std=True)
        plain = _seconds(lambda: model.transform(rows), 5)
        with_std = _seconds(lambda: model.transform(rows, return_std=True), 5)
    return {"plain": 1e3 * plain, "with_std": 1e3 * with_std, "ratio": with_std / plain}


def cost_jobs(seeds: range, quick: bool) -> Iterator[Job]:
    """Every number of dimensions and of rows, seed by seed."""
    for seed in seeds:
        for dim in (1,) if quick else SIZES:
            for n in N_COSTS:
                job = partial(measure_cost, dim, n, seed)
                yield Job(f"gaussian D={dim}", f"{n} rows", seed, job)


def curvature(rows: Sequence[Mapping[str, str]]) -> str:
    """Say how far learned noise variances are from the truth, in standard errors of the bound's
    curvature.
    """
    lines = [["data", "n", "within 2", "root mean square"]]
    away: dict[str, list[float]] = {}
    for row in rows:
        kind, dim = row["data"].split(" D=")
        if kind == "gaussian":
            n, m = SIZES[int(dim)]
            error = math.sqrt(2.0 / (n * m * (1.0 - HOLES[row["method"]])))
            z = math.log(float(row["parameter"])) / error
            away.setdefault(row["data"], []).append(z)
    for data, values in away.items():
        inside = sum(abs(z) < 2.0 for z in values)
        rms = math.sqrt(sum(z * z for z in values) / len(values))
        lines.append([data, str(len(values)), str(inside), f"{rms:.1f}"])
    return aligned(lines)


def jobs(
    run: Callable[[str, int, float, int], Mapping[str, Value]], seeds: range, quick: bool
) -> Iterator[Job]:
    """Every likelihood, number of dimensions and share of holes, seed by seed."""
    for seed in seeds:
        for kind in KINDS[:1] if quick else KINDS:
            for dim in (1,) if quick else SIZES:
                for name, share in HOLES.items():
                    job = partial(run, kind, dim, share, seed)
                    yield Job(f"{kind} D={dim}", name, seed, job)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--intervals", action="store_true", help="limits of latents alone")
    parser.add_argument("--ranks", action="store_true", help="ranks of latents alone")
    parser.add_argument("--annealed", action="store_true", help="densities of rows alone")
    parser.add_argument("--placed", action="store_true", help="places of rows alone")
    parser.add_argument("--cost", action="store_true", help="times of placement alone")
    chosen, sys.argv[1:] = parser.parse_known_args()
    options = arguments(__doc__)
    parts = {
        "cost": (COST, cost_jobs),
        "annealed": (ANNEALED, annealed_jobs),
        "placed": (PLACED, placed_jobs),
    }
    for part in (part for part in parts if getattr(chosen, part)):
        form, its_jobs = parts[part]
        store = Store(f"certainty_{part}", list(form), options.quick)
        store.collect(its_jobs(options.seeds, options.quick))
        print(table(store.rows(), form))
        return
    name, columns, run = "certainty", COLUMNS, measure
    if chosen.intervals:
        name, columns, run = "certainty_intervals", LIMITS, measure_intervals
    if chosen.ranks:
        name, columns, run = "certainty_ranks", RANKS, measure_ranks
    store = Store(name, list(columns), options.quick)
    store.collect(jobs(run, options.seeds, options.quick))
    print(table(store.rows(), columns))
    if run is measure:
        print(curvature(store.rows()))


if __name__ == "__main__":
    main()
