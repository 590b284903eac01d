"""How far are variational answers from exact ones: ``python benchmarks/mcmc.py``.

60 rows and 12 columns of Gaussian processes (RBF kernel) over the S-curve, seen as they are with
noise (Gaussian), as zeros and ones, or as negative binomial counts; a tenth of the entries hidden.
The variational models and RFLVM on the same data: the truth's R² on the latents after an affine
map, root mean squared error, mean log predictive density and standard deviation of the hidden
entries, coverage of 90 % intervals, standard deviation of the latents, processor seconds.

``--kernels`` measures how fast the kernels of the frequencies mix instead, with the latents at the
truth: effective draws of 1,500, and those per processor second, of the log likelihood and of the
kernel between rows (the least of five pairs). "published" is Metropolis with the component as the
proposal and a factorisation for every proposal; "metropolis" and "slice" are the package's kernels.
Log densities of counts and zeros and ones are
those of the negative binomial and Bernoulli distribution with the predicted moments.
"""

from __future__ import annotations

import argparse
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
from harness import Job, Store, Value, arguments, table
from numpy.random import Generator
from numpy.typing import NDArray
from scipy import stats

import bochner as bo
from bochner.mcmc.conditionals.gaussian import GaussianView
from bochner.mcmc.conditionals.views import ViewData
from bochner.mcmc.draws import source
from bochner.mcmc.model import Keys, Model, State
from bochner.mcmc.priors import Priors

Array = NDArray[np.float64]

ROWS, COLUMNS, HIDDEN = 60, 12, 0.1
KINDS = ("gaussian", "bernoulli", "negative_binomial")
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
WARMUP, DRAWS = 200, 1500
MIXED_ROWS, MIXED_COLUMNS, MIXED_POINTS = 50, 8, 20


# -- against the variational models


def draw(kind: str, seed: int) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Return complete data, the true latents and what is hidden."""
    made = bo.datasets.make_s_curve(ROWS, COLUMNS, ("rbf",), noise=0.3, random_state=seed)
    rng = np.random.default_rng(seed)
    signal, hidden = np.asarray(made.data), rng.random((ROWS, COLUMNS)) < HIDDEN
    if kind == "bernoulli":
        signal = rng.binomial(1, 1.0 / (1.0 + np.exp(-2.0 * signal))).astype(float)
    if kind == "negative_binomial":
        signal = rng.poisson(rng.gamma(3.0, 1.0 / 3.0, signal.shape) * np.exp(1.0 + signal))
    return signal.astype(float), np.asarray(made.latent), hidden


def log_density(kind: str, y: Array, mean: Array, std: Array) -> Array:
    """Return the log density of entries under the distribution with these moments."""
    if kind == "gaussian":
        return np.asarray(stats.norm.logpdf(y, mean, std))
    if kind == "bernoulli":
        return np.asarray(stats.bernoulli.logpmf(y, np.clip(mean, 1e-6, 1.0 - 1e-6)))
    # at least the variance of a Poisson variable, or there is no negative binomial
    variance = np.maximum(std**2, 1.0001 * mean)
    r = mean**2 / (variance - mean)
    return np.asarray(stats.nbinom.logpmf(y, r, r / (r + mean)))


def processor_seconds() -> float:
    """Return the processor time of this process and of those that it waited for: chains."""
    others = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + others.ru_utime + others.ru_stime


def measure(kind: str, method: str, seed: int) -> dict[str, Value]:
    """Fit one model to one data set."""
    Y, latent, hidden = draw(kind, seed)
    shown = np.where(hidden, np.nan, Y)
    begin = processor_seconds()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = MODELS[method](likelihood=kind, random_state=seed).fit(shown)
        seconds = processor_seconds() - begin
        mean, std = model.impute(shown, return_std=True)
    truth, at, spread = Y[hidden], mean[hidden], std[hidden]
    sampled = isinstance(model, bo.RFLVM)
    z = model.latent_mean_ if sampled else model.embedding_
    z_std = model.latent_std_ if sampled else model.embedding_std_
    r_hats = [own["r_hat"] for own in model.diagnostics_.values()] if sampled else []
    return {
        "r2": bo.metrics.mean_aligned_r2(latent, z),
        "rmse": float(np.sqrt(np.mean((truth - at) ** 2))),
        "density": float(log_density(kind, truth, at, spread).mean()),
        "entry_std": float(spread.mean()),
        "coverage": bo.metrics.coverage(truth, at, spread) if kind == "gaussian" else "",
        "latent_std": float(z_std.mean()),
        "r_hat": max((r for r in r_hats if np.isfinite(r)), default=""),
        "seconds": seconds,
    }


# -- how fast chains mix


def published_sweep(model: Model, state: State, keys: Keys) -> State:
    """Move the frequencies as published: all weights are integrated out at every proposal."""
    view, own = model.views[0], state.views[0]
    rng: Generator = keys("published", 0)
    value, _ = view.latent_objective(own, state.x)
    for h, k in enumerate(own.labels):
        step = own.components.roots[k] @ rng.standard_normal(model.n_components)
        points = own.points.copy()
        points[h] = own.components.means[k] + step
        proposal = replace(own, points=points)
        there, _ = view.latent_objective(proposal, state.x)
        if np.log(rng.random()) < there - value:
            own, value = proposal, there
    return state.with_view(0, view.redraw_weights(own, state.x, rng))


SAMPLERS: dict[str, dict[str, Any]] = {
    "slice": {"frequency_kernel": "slice"},
    "metropolis": {"frequency_kernel": "metropolis"},
    "published": {},
}


def traces(method: str, seed: int) -> tuple[Array, float]:
    """Run a chain of everything but the latents, which stay at the truth; return quantities that no
    relabelling changes, and processor seconds.
    """
    made = bo.datasets.make_s_curve(
        MIXED_ROWS, MIXED_COLUMNS, ("rbf",), noise=0.3, random_state=seed
    )
    Y = np.asarray(made.data)
    Y = (Y - Y.mean(0)) / Y.std()
    x = np.asarray(made.latent)
    x = (x - x.mean(0)) / x.std(0)
    view = GaussianView("y", ViewData.of(Y), (0, 1), MIXED_POINTS, Priors())
    model = Model((view,), 2, **SAMPLERS[method])
    state = replace(model.prior_state(source(seed, "bench start")), x=x)
    pairs = np.random.default_rng(seed).integers(0, MIXED_ROWS, (2, 5))
    out, begin = [], 0.0
    for index in range(WARMUP + DRAWS):
        if index == WARMUP:
            begin = time.process_time()
        state = model.sweep(state, seed, 0, index, ("mixture", "concentration"))
        if method == "published":
            state = published_sweep(model, state, Keys(seed, 0, index))
        else:
            state = model.sweep(state, seed, 0, index, ("frequencies",))
        state = model.sweep(state, seed, 0, index, ("weights",))
        if index >= WARMUP:
            phi = view.phi(state.views[0], state.x)
            kernel = (phi[pairs[0]] * phi[pairs[1]]).sum(1)
            fitted = view.row_log_likelihood(state.views[0], x, np.arange(len(x))).sum()
            out.append(np.concatenate([[fitted], kernel]))
    return np.array(out), time.process_time() - begin


def mixing(method: str, seed: int) -> dict[str, Value]:
    """Return effective draws, and those per processor second."""
    values, seconds = traces(method, seed)
    ess = np.array([float(arviz.ess(own)) for own in values.T])
    return {
        "likelihood": ess[0],
        "kernel": ess[1:].min(),
        "likelihood_rate": ess[0] / seconds,
        "kernel_rate": ess[1:].min() / seconds,
        "seconds": seconds,
    }


def jobs(kernels: bool, seeds: range) -> Iterator[Job]:
    """Yield what is to be measured, seed by seed."""
    for seed in seeds:
        if kernels:
            for name in SAMPLERS:
                yield Job("S-curve", name, seed, partial(mixing, name, seed))
            continue
        for kind in KINDS:
            for name in MODELS:
                yield Job(kind, name, seed, partial(measure, kind, name, seed))


def main() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--kernels", action="store_true", help="how fast the sampler mixes")
    own, rest = parser.parse_known_args()
    sys.argv[1:] = rest
    options = arguments(__doc__, seeds=2)
    columns = MIXING if own.kernels else SCORES
    store = Store("mcmc-kernels" if own.kernels else "mcmc", tuple(columns), options.quick)
    store.collect(jobs(own.kernels, options.seeds))
    rows = [row for row in store.rows() if int(row["seed"]) in options.seeds]
    print(table(rows, columns))


if __name__ == "__main__":
    main()
