"""How far are variational answers from exact ones: ``python benchmarks/mcmc.py``.

60 rows and 12 columns of Gaussian processes (RBF kernel) over the S-curve, seen as they are with
noise (Gaussian), as zeros and ones, as successes of eight trials, as one of three categories, or as
negative binomial counts; a tenth of the entries hidden.
The variational models and RFLVM on the same data: the truth's R² on the latents after an affine
map, root mean squared error, mean log predictive density and standard deviation of the hidden
entries, coverage of 90 % intervals, standard deviation of the latents, processor seconds.

``--kernels`` measures how fast the kernels of the frequencies mix instead, with the latents at the
truth: effective draws of 1,500, and those per processor second, of the log likelihood and of the
kernel between rows (the least of five pairs). "published" is Metropolis with the component as the
proposal and a factorisation for every proposal; "metropolis" and "slice" are the package's kernels.
"S-curve, holes": a tenth of the entries hidden, more patterns than four, so that a frequency moves
with its own two weights integrated out given the others. "all blocks": 500 draws of whole sweeps,
as published (latents at their mode) and as the package has them (latents sampled).

``--race`` asks how long chains take to SRFLVM's answer on the Gaussian data, a tenth of the rows
hidden in every fourth column, four patterns: one chain from principal components, without a
variational fit, 2,000 sweeps, by the package's sampler and as published; mean latents and
predictions of the later half of the draws so far, looked at every ten sweeps; seconds until R² is
at least that of SRFLVM less 0.01, and the mean log density of hidden entries less 0.01, and their
ratio to SRFLVM's seconds; none where 2,000 sweeps do not get there.

Log densities of counts, successes and zeros and ones are those of the negative binomial, binomial
and Bernoulli distribution with the predicted moments; those of categories are shares of 200 draws.
"""

from __future__ import annotations

import argparse
import itertools
import resource
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import arviz
import numpy as np
import torch
from harness import Job, Store, Value, arguments, table
from numpy.random import Generator
from numpy.typing import NDArray
from scipy import stats
from scipy.special import logsumexp
from sklearn.decomposition import PCA

import bochner as bo
from bochner.mcmc.conditionals.gaussian import GaussianView
from bochner.mcmc.conditionals.latents import align
from bochner.mcmc.conditionals.views import ViewData
from bochner.mcmc.draws import source
from bochner.mcmc.model import Keys, Model, State
from bochner.mcmc.priors import Priors

Array = NDArray[np.float64]

ROWS, COLUMNS, HIDDEN = 60, 12, 0.1
KINDS = ("gaussian", "bernoulli", "negative_binomial", "binomial", "categorical")
TRIALS = 8
CHAINS: dict[str, Any] = {"n_chains": 2, "n_warmup": 200, "n_draws": 150, "thin": 2}
SAME: dict[str, Any] = {"n_frequencies": 32}
MODELS: dict[str, Callable[..., Any]] = {
    "RFLVM": partial(bo.RFLVM, **CHAINS, **SAME),
    "SRFLVM": partial(bo.SRFLVM, **SAME),
    "AdvisedRFLVM": bo.AdvisedRFLVM,
    "NGMVLVM": bo.NGMVLVM,
}
SCORES = {
    "r2": ".3f",
    "rmse": ".3f",
    "density": ".3f",
    "entry_std": ".3f",
    "coverage": ".3f",
    "f_std": ".3f",
    "latent_std": ".3f",
    "r_hat": ".2f",
    "seconds": ".0f",
}
MIXING = {
    "likelihood": ".0f",
    "kernel": ".0f",
    "likelihood_rate": ".2f",
    "kernel_rate": ".2f",
    "seconds": ".1f",
}
SHARES = 200
WARMUP, DRAWS, DRAWS_OF_ALL = 200, 1500, 500
MIXED_ROWS, MIXED_COLUMNS, MIXED_POINTS = 50, 8, 20
RACE = {
    "r2_srflvm": ".3f",
    "r2": ".3f",
    "density_srflvm": ".3f",
    "density": ".3f",
    "seconds_srflvm": ".1f",
    "seconds_r2": ".1f",
    "seconds_density": ".1f",
    "ratio_r2": ".1f",
    "ratio_density": ".1f",
    "seconds": ".1f",
}
RACE_SWEEPS, RACE_LOOK, RACE_PATTERNS = 2000, 10, 4
RACERS: dict[str, dict[str, Any]] = {
    "RFLVM from PCA": {},
    "as published": {"latent_kernel": "map"},
}
PARTS = {
    "models": ("mcmc", SCORES),
    "kernels": ("mcmc-kernels", MIXING),
    "race": ("mcmc_race", RACE),
}


# -- against the variational models


def draw(kind: str, seed: int) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Return complete data, the true latents and what is hidden."""
    made = bo.datasets.make_s_curve(ROWS, COLUMNS, ("rbf",), noise=0.3, random_state=seed)
    rng = np.random.default_rng(seed)
    signal, hidden = np.asarray(made.data), rng.random((ROWS, COLUMNS)) < HIDDEN
    if kind == "bernoulli":
        signal = rng.binomial(1, 1.0 / (1.0 + np.exp(-2.0 * signal))).astype(float)
    if kind == "binomial":
        signal = rng.binomial(TRIALS, 1.0 / (1.0 + np.exp(-2.0 * signal))).astype(float)
    if kind == "categorical":
        signal = np.digitize(2.0 * signal + rng.logistic(size=signal.shape), (-1.0, 1.0))
    if kind == "negative_binomial":
        signal = rng.poisson(rng.gamma(3.0, 1.0 / 3.0, signal.shape) * np.exp(1.0 + signal))
    return signal.astype(float), np.asarray(made.latent), hidden


def log_density(kind: str, y: Array, mean: Array, std: Array) -> Array:
    """Return the log density of entries under the distribution with these moments."""
    if kind == "gaussian":
        return np.asarray(stats.norm.logpdf(y, mean, std))
    if kind == "bernoulli":
        return np.asarray(stats.bernoulli.logpmf(y, np.clip(mean, 1e-6, 1.0 - 1e-6)))
    if kind == "binomial":
        return np.asarray(
            stats.binom.logpmf(y, TRIALS, np.clip(mean / TRIALS, 1e-6, 1.0 - 1e-6))
        )
    # at least the variance of a Poisson variable, or there is no negative binomial
    variance = np.maximum(std**2, 1.0001 * mean)
    r = mean**2 / (variance - mean)
    return np.asarray(stats.nbinom.logpmf(y, r, r / (r + mean)))


def processor_seconds() -> float:
    """Return the processor time of this process and of those that it waited for: chains."""
    others = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + others.ru_utime + others.ru_stime


def sampled_f(model: Any, kind: str) -> float:
    """Return the mean standard deviation of f at hidden entries over the draws of all chains."""
    draws = model.to_arviz().posterior
    f = np.asarray(draws["x.missing"])
    if kind == "negative_binomial":  # log odds there: with log r they are log means
        f = f + np.log(np.asarray(draws["x.dispersion"]))
    return float(f.std((0, 1)).mean())


def bound_f(model: Any, hidden: NDArray[np.bool_], seed: int) -> float:
    """Return the same of a bound: over draws of latents, spectra and weights."""
    (view,), rng = model._fit.posterior, np.random.default_rng(seed)
    means, variances = [], []
    for _ in range(SHARES):
        noise = rng.standard_normal(model.embedding_.shape)
        x = torch.from_numpy(model.embedding_ + model.embedding_std_ * noise)
        for drawn in view.draws:
            mean, variance = view.psi(drawn, drawn.features(x))
            means.append(mean.numpy()[hidden])
            variances.append(variance.numpy()[hidden])
    return float(np.sqrt(np.var(means, axis=0) + np.mean(variances, axis=0)).mean())


def measure(kind: str, method: str, seed: int) -> dict[str, Value]:
    """Fit one model to one data set."""
    Y, latent, hidden = draw(kind, seed)
    shown = np.where(hidden, np.nan, Y)
    begin = processor_seconds()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        likelihood = bo.likelihoods.Binomial(TRIALS) if kind == "binomial" else kind
        model = MODELS[method](likelihood=likelihood, random_state=seed).fit(shown)
        seconds = processor_seconds() - begin
        mean, std = model.impute(shown, return_std=True)
        truth, at, spread = Y[hidden], mean[hidden], std[hidden]
        if kind == "categorical":
            drawn = np.asarray(model.impute(shown, n_draws=SHARES))[:, hidden]
            density = np.log(((drawn == truth).sum(0) + 1.0 / 3.0) / (SHARES + 1.0))
        else:
            density = log_density(kind, truth, at, spread)
    sampled = isinstance(model, bo.RFLVM)
    of_f: Value = ""
    if kind != "categorical":
        of_f = sampled_f(model, kind) if sampled else bound_f(model, hidden, seed)
    z = model.latent_mean_ if sampled else model.embedding_
    z_std = model.latent_std_ if sampled else model.embedding_std_
    r_hats = [figures["r_hat"] for figures in model.diagnostics_.values()] if sampled else []
    return {
        "r2": bo.metrics.mean_aligned_r2(latent, z),
        "rmse": float(np.sqrt(np.mean((truth - at) ** 2))),
        "density": float(density.mean()),
        "entry_std": float(spread.mean()),
        "coverage": bo.metrics.coverage(truth, at, spread) if kind == "gaussian" else "",
        "f_std": of_f,
        "latent_std": float(z_std.mean()),
        "r_hat": max((r for r in r_hats if np.isfinite(r)), default=""),
        "seconds": seconds,
    }


# -- how fast chains mix


def published_sweep(model: Model, state: State, keys: Keys) -> State:
    """Move the frequencies as published: all weights are integrated out at every proposal."""
    view, of_view = model.views[0], state.views[0]
    rng: Generator = keys("published", 0)
    value, _ = view.latent_objective(of_view, state.x)
    for h, k in enumerate(of_view.labels):
        step = of_view.components.roots[k] @ rng.standard_normal(model.n_components)
        points = of_view.points.copy()
        points[h] = of_view.components.means[k] + step
        proposal = replace(of_view, points=points)
        there, _ = view.latent_objective(proposal, state.x)
        if np.log(rng.random()) < there - value:
            of_view, value = proposal, there
    return state.with_view(0, view.redraw_weights(of_view, state.x, rng))


SAMPLERS: dict[str, dict[str, Any]] = {
    "slice": {"frequency_kernel": "slice"},
    "metropolis": {"frequency_kernel": "metropolis"},
    "published": {},
}
HOLES, ALL_BLOCKS = "S-curve, holes", "S-curve, all blocks"
# Blocks before and after the frequencies' when the latents stay, and when all is sampled
BEFORE, AFTER = ("mixture", "concentration"), ("weights",)
MIXED: dict[str, tuple[str, ...]] = {
    "S-curve": ("slice", "metropolis", "published"),
    HOLES: ("slice", "metropolis"),
    ALL_BLOCKS: ("slice", "metropolis", "published"),
}


def standard_curve(seed: int, rows: int, columns: int) -> tuple[Array, Array]:
    """Return data and true latents of unit variance."""
    made = bo.datasets.make_s_curve(rows, columns, ("rbf",), noise=0.3, random_state=seed)
    Y, x = np.asarray(made.data), np.asarray(made.latent)
    return (Y - Y.mean(0)) / Y.std(), (x - x.mean(0)) / x.std(0)


def chain_of(data: str, method: str, seed: int) -> Iterator[tuple[Model, State]]:
    """Yield the states of a chain that starts with the latents at the truth, without end."""
    Y, x = standard_curve(seed, MIXED_ROWS, MIXED_COLUMNS)
    if data == HOLES:
        Y[np.random.default_rng(seed).random(Y.shape) < HIDDEN] = np.nan
    kernels = dict(SAMPLERS[method])
    if data == ALL_BLOCKS and method == "published":
        kernels["latent_kernel"] = "map"
    view = GaussianView("y", ViewData.of(Y), (0, 1), MIXED_POINTS, Priors())
    model = Model((view,), 2, **kernels)
    state = replace(model.prior_state(source(seed, "bench start")), x=x)
    after: tuple[str, ...] = AFTER
    if data == ALL_BLOCKS:
        after = (
            (*AFTER, "latents")
            if method == "published"
            else (*AFTER, "coordinates", "latents")
        )
    for index in itertools.count():
        state = model.sweep(state, seed, 0, index, BEFORE)
        if method == "published":
            state = published_sweep(model, state, Keys(seed, 0, index))
        else:
            state = model.sweep(state, seed, 0, index, ("frequencies",))
        state = model.sweep(state, seed, 0, index, after)
        if index < WARMUP:
            state = model.adapt(state, index)
        yield model, state


def traces(data: str, method: str, seed: int) -> tuple[Array, float]:
    """Run a chain; return quantities that no relabelling changes, and processor seconds."""
    pairs = np.random.default_rng(seed).integers(0, MIXED_ROWS, (2, 5))
    out, begin = [], 0.0
    last = WARMUP + (DRAWS_OF_ALL if data == ALL_BLOCKS else DRAWS)
    for index, (model, state) in enumerate(
        itertools.islice(chain_of(data, method, seed), last)
    ):
        if index == WARMUP - 1:
            begin = time.process_time()
        if index >= WARMUP:
            view, of_view = model.views[0], state.views[0]
            phi = view.phi(of_view, state.x)
            kernel = (phi[pairs[0]] * phi[pairs[1]]).sum(1)
            fitted = view.log_likelihood(of_view, state.x)
            out.append(np.concatenate([[fitted], kernel]))
    return np.array(out), time.process_time() - begin


def mixing(data: str, method: str, seed: int) -> dict[str, Value]:
    """Return effective draws, and those per processor second."""
    values, seconds = traces(data, method, seed)
    ess = np.array([float(arviz.ess(trace)) for trace in values.T])
    return {
        "likelihood": ess[0],
        "kernel": ess[1:].min(),
        "likelihood_rate": ess[0] / seconds,
        "kernel_rate": ess[1:].min() / seconds,
        "seconds": seconds,
    }


# -- how long to the answer of a bound


def blocks_hidden(seed: int) -> NDArray[np.bool_]:
    """Return entries to hide: a tenth of the rows in every fourth column, four times."""
    rows = np.random.default_rng(seed).random((ROWS, RACE_PATTERNS)) < HIDDEN
    return rows[:, np.arange(COLUMNS) % RACE_PATTERNS]


def racing(model: Model, state: State, seed: int) -> Iterator[tuple[State, float]]:
    """Yield the states of a chain and the processor seconds so far, without end."""
    published, spent = model.latent_kernel == "map", 0.0
    for index in itertools.count():
        begin = time.process_time()
        if published:
            state = model.sweep(state, seed, 0, index, BEFORE)
            state = published_sweep(model, state, Keys(seed, 0, index))
            state = model.sweep(state, seed, 0, index, (*AFTER, "latents"))
        else:
            state = model.sweep(state, seed, 0, index)
        if index < RACE_SWEEPS // 2:
            state = model.adapt(state, index)
        spent += time.process_time() - begin
        yield state, spent


def race(method: str, seed: int) -> dict[str, Value]:
    """Measure the time of a chain to R² and predictive density of SRFLVM."""
    Y, truth, _ = draw("gaussian", seed)
    hidden = blocks_hidden(seed)
    shown = np.where(hidden, np.nan, Y)
    centre = np.nanmean(shown, axis=0)
    scale = float(np.nanstd(shown - centre))
    begin = time.process_time()
    fit = bo.SRFLVM(**SAME, random_state=seed).fit(shown)
    bound = time.process_time() - begin
    mean, std = fit.impute(shown, return_std=True)
    wanted = bo.metrics.mean_aligned_r2(truth, fit.embedding_)
    dense = float(log_density("gaussian", Y[hidden], mean[hidden], std[hidden]).mean())
    result: dict[str, Value] = {
        "seconds_srflvm": bound,
        "r2_srflvm": wanted,
        "density_srflvm": dense,
    }
    view = GaussianView("y", ViewData.of((shown - centre) / scale), (0, 1), 32, Priors())
    model = Model((view,), 2, **RACERS[method])
    x = PCA(2).fit_transform(np.where(hidden, centre, Y))
    start = replace(model.prior_state(source(seed, "race")), x=x / x.std(0))
    places, logs = [], []
    true = ((Y - centre) / scale)[hidden]
    for index, (state, spent) in enumerate(
        itertools.islice(racing(model, start, seed), RACE_SWEEPS), start=1
    ):
        of_view = state.views[0]
        places.append(state.x)
        psi, noise = view.psi(of_view, state.x)[hidden], of_view.parameter[0]
        logs.append(stats.norm.logpdf(true, psi, np.sqrt(noise)) - np.log(scale))
        if index % RACE_LOOK:
            continue
        kept = slice(index // 2, None)
        z = np.mean([x @ align(x, places[-1]) for x in places[kept]], axis=0)
        r2 = bo.metrics.mean_aligned_r2(truth, z)
        density = float(np.mean(logsumexp(logs[kept], axis=0) - np.log(len(logs[kept]))))
        result |= {"r2": r2, "density": density, "seconds": spent}
        for name, reached in (
            ("r2", r2 >= wanted - 0.01),
            ("density", density >= dense - 0.01),
        ):
            if reached and f"seconds_{name}" not in result:
                result |= {f"seconds_{name}": spent, f"ratio_{name}": spent / bound}
    return result


def jobs(part: str, seeds: range) -> Iterator[Job]:
    """Yield what is to be measured, seed by seed."""
    for seed in seeds:
        if part == "race":
            for name in RACERS:
                yield Job("gaussian", name, seed, partial(race, name, seed))
        elif part == "kernels":
            for data, names in MIXED.items():
                for name in names:
                    yield Job(data, name, seed, partial(mixing, data, name, seed))
        else:
            for kind in KINDS:
                for name in MODELS:
                    yield Job(kind, name, seed, partial(measure, kind, name, seed))


def main() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--kernels", action="store_true", help="how fast the sampler mixes")
    parser.add_argument("--race", action="store_true", help="how long to a bound's answer")
    chosen, rest = parser.parse_known_args()
    sys.argv[1:] = rest
    options = arguments(__doc__, seeds=2)
    part = "kernels" if chosen.kernels else "race" if chosen.race else "models"
    file, columns = PARTS[part]
    store = Store(file, tuple(columns), options.quick)
    store.collect(jobs(part, options.seeds))
    rows = [row for row in store.rows() if int(row["seed"]) in options.seeds]
    print(table(rows, columns))


if __name__ == "__main__":
    main()
