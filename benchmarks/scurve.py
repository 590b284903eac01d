"""Does the model find a known latent curve, and how fast: ``python benchmarks/scurve.py``.

Two views drawn from Gaussian processes over an S-curve (N = 500, M = 100 each, noise standard
deviation 0.5). Tables: latents, bound and kernels per method, the bound from the true latents being
the ceiling; R² against time, by fits of growing length; seconds to equal bound beside
``reference.py``, from the same start on the same scaled data in the same run. From principal
components models have Q = 2 and H = 50; with the defaults and from the true latents H = 100.
``--part fits`` makes the first table alone, ``--part layouts`` another of RBF + Gibbs: the bounds
that training reaches from the true latents and from each start, beside those of one RBF kernel per
view, a line per seed; ``--part defaults`` one of default fits, one view of RBF + periodic by SRFLVM
among them, beside fits from the true latents: how far each bound is from theirs.
"""

from __future__ import annotations

import argparse
import functools
import math
import sys
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import reference
import torch
from harness import Job, Protocol, Store, Value, arguments, table, timed_warm
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Bunch

import bochner as bo
from bochner.data.views import Views
from bochner.initialization.embeddings import components, folded, start
from bochner.initialization.simple_models import SimpleModels, settle
from bochner.models.lvm import Layout
from bochner.regression.observations import CompleteBlock

Array = NDArray[np.float64]

DATA = {"RBF+RBF": ("rbf", "rbf"), "RBF+Gibbs": ("rbf", "gibbs")}
MODEL: dict[str, Any] = {"n_mixtures": 2, "n_frequencies": 50}
TRACE = (25, 50, 100, 200, 400)
CURVES = {
    "RBF+RBF": (("rbf", "rbf"), bo.NGMVLVM),
    "RBF+Gibbs": (("rbf", "gibbs"), bo.NGMVLVM),
    "RBF + periodic": (("rbf+periodic",), bo.SRFLVM),
    "RBF + periodic, SM": (("rbf+periodic",), bo.NGMVLVM),
}
MARGIN = 50.0  # nats the reference may stay below our bound

FITS = {
    "r2_0": ".4f",
    "r2_1": ".4f",
    "r2": ".4f",
    "elbo": ".0f",
    "elbo_se": ".1f",
    "steps": ".0f",
    "seconds": ".1f",
}
DEFAULTS = {
    "r2": ".4f",
    "r2_truth": ".4f",
    "elbo": ".0f",
    "below_truth": ".0f",
    "steps": ".0f",
    "seconds": ".1f",
}
KERNELS = {f"k{v}{kind}": ".3f" for v in (0, 1) for kind in ("", "_scaled", "_centred")}
POINTS = {"seconds": ".2f", "bound": ".0f", "r2": ".4f"}
SPEED = {
    "ours_seconds": ".2f",
    "ours_bound": ".0f",
    "ours_r2": ".4f",
    "reached": ".0f",
    "ref_seconds": ".2f",
    "ratio": ".1f",
    "ref_bound": ".0f",
    "ref_r2": ".4f",
}


@dataclass(frozen=True)
class Setting:
    """Sizes of a run."""

    n_rows: int = 500
    n_columns: int = 100
    max_iter: int | str = "auto"
    budget: float = 6.0  # of our time


@functools.cache
def data_of(name: str, seed: int, setting: Setting) -> Bunch:
    """Draw a data set."""
    return bo.datasets.make_s_curve(setting.n_rows, setting.n_columns, DATA[name], 0.5, seed)


@functools.cache
def scaled_of(name: str, seed: int, setting: Setting) -> tuple[list[Array], float]:
    """Return the scaled views that the estimators train on, and what their elbo_ holds beyond
    it.
    """
    data = data_of(name, seed, setting)
    views = Views.fit(data.data, data.views)
    scaled = [np.asarray(views.scaled(view), dtype=np.float64) for view in views.names]
    return scaled, float(views.scaling.log_jacobian(views.counts))


def fitted(estimator: Any, data: Bunch) -> tuple[Any, float]:
    """Fit after a warm-up of its class, and return it with its seconds; a fit cut short is no news
    here.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warm = type(estimator)(**{**estimator.get_params(), "max_iter": 8, "init": "auto"})
        name = type(estimator).__name__
        return timed_warm(
            name, lambda: estimator.fit(data.data), lambda: warm.fit(data.data[:100])
        )


def estimator_of(method: str, data: Bunch, seed: int, **others: Any) -> Any:
    """Build the estimator of a method."""
    common: dict[str, Any] = {"views": data.views, "random_state": seed, **others}
    kind = bo.AdvisedRFLVM if method.startswith("MV-advised") else bo.NGMVLVM
    if method.endswith("defaults"):
        return kind(**common)
    return (
        kind(init=data.latent, **common)
        if method == CEILING
        else kind(init="pca", **MODEL, **common)
    )


CEILING = "NG-MVLVM from the truth"
METHODS = (
    "NG-MVLVM, defaults",
    "MV-advisedRFLVM, defaults",
    CEILING,
    "NG-MVLVM from PCA",
    "MV-advisedRFLVM from PCA",
)


def kernel_errors(model: Any, data: Bunch) -> dict[str, Value]:
    """Compare learned and true kernel matrices: as they are, after the best factor, and without
    constants too.

    Centring the columns takes constants out of the data, so a model of them need not learn the
    kernel's constant.
    """
    errors: dict[str, Value] = {}
    for v, (view, K) in enumerate(data.kernel_matrices.items()):
        learned = model.kernel_matrix(model.embedding_, view=view, exact=True).astype(
            np.float64
        )
        errors[f"k{v}"] = bo.metrics.relative_error(learned, K)
        errors[f"k{v}_scaled"] = bo.metrics.relative_error(
            _best_factor(learned, K) * learned, K
        )
        a, b = _centred(learned), _centred(K)
        errors[f"k{v}_centred"] = bo.metrics.relative_error(_best_factor(a, b) * a, b)
    return errors


def _best_factor(A: Array, B: Array) -> float:
    return float((A * B).sum() / (A * A).sum())


def _centred(K: Array) -> Array:
    K = K - K.mean(axis=0)
    return np.asarray(K - K.mean(axis=1, keepdims=True))


def measure_fit(name: str, method: str, seed: int, setting: Setting) -> dict[str, Value]:
    """Fit one method on one draw of the data."""
    data = data_of(name, seed, setting)
    model, seconds = fitted(estimator_of(method, data, seed, max_iter=setting.max_iter), data)
    r2 = bo.metrics.aligned_r2(data.latent, model.embedding_)
    scores = {"r2_0": float(r2[0]), "r2_1": float(r2[1]), "r2": float(r2.mean())}
    bound = {
        "elbo": float(model.elbo_),
        "elbo_se": float(model.elbo_se_),
        "steps": model.n_iter_,
    }
    return {**scores, **bound, "seconds": seconds, **kernel_errors(model, data)}


@functools.cache
def point(
    name: str, seed: int, setting: Setting, sampling: str, max_iter: int | str
) -> tuple[float, float, float]:
    """Return seconds, bound (scaled data) and R² of a whole fit from PCA."""
    data = data_of(name, seed, setting)
    others = {"sampling": sampling, "max_iter": max_iter}
    model, seconds = fitted(estimator_of("NG-MVLVM from PCA", data, seed, **others), data)
    bound = float(model.elbo_) - scaled_of(name, seed, setting)[1]
    return seconds, bound, bo.metrics.mean_aligned_r2(data.latent, model.embedding_)


@functools.cache
def reference_trace(name: str, seed: int, setting: Setting) -> reference.Trace:
    """Run the reference from the same start until our bound or the budget is reached."""
    Ys, _ = scaled_of(name, seed, setting)
    seconds, bound, _ = point(name, seed, setting, "sobol", setting.max_iter)
    Z0 = start("pca", np.hstack(Ys), 2, seed)
    limits: dict[str, Any] = {"target": bound - MARGIN, "budget": setting.budget * seconds}
    run = partial(reference.fit, Ys, Z0, 10**6, seed, **MODEL, **limits)
    return timed_warm("reference", run, lambda: reference.fit(Ys, Z0, 8, seed, every=4))[0]


def measure_speed(name: str, seed: int, setting: Setting) -> dict[str, Value]:
    """Seconds until the bound of our full fit, less the margin, is reached: by ours and by the
    reference.

    Ours is the quickest of the whole fits of growing length that get there, start, evaluation and
    placement included; the reference's is its training alone.
    """
    target = point(name, seed, setting, "sobol", setting.max_iter)[1] - MARGIN
    lengths = (*TRACE, setting.max_iter)
    seconds, bound, r2 = min(
        p for n in lengths if (p := point(name, seed, setting, "sobol", n))[1] >= target
    )
    trace = reference_trace(name, seed, setting)
    there = [i for i, value in enumerate(trace.bounds) if value >= target]
    last = there[0] if there else len(trace.bounds) - 1
    truth = data_of(name, seed, setting).latent
    ours: dict[str, Value] = {
        "ours_seconds": seconds,
        "ours_bound": bound,
        "ours_r2": r2,
        "reached": int(bool(there)),
    }
    ref = {
        "ref_bound": trace.bounds[last],
        "ref_r2": bo.metrics.mean_aligned_r2(truth, trace.latents[last]),
    }
    return {
        **ours,
        **ref,
        "ref_seconds": trace.seconds[last],
        "ratio": trace.seconds[last] / seconds,
    }


LAYOUTS = {"elbo": ".0f", "r2": ".3f", "simple": ".0f", "simple_r2": ".3f"}
ORIGINS = ("truth", "fold", "tsne", "laplacian", "pca")


@functools.cache
def layouts_of(seed: int, setting: Setting) -> tuple[list[Array], list[float], list[Array]]:
    """Return latents that training may start at, and bounds and latents once they settled under
    simple kernels.
    """
    data, (Ys, _) = data_of("RBF+Gibbs", seed, setting), scaled_of("RBF+Gibbs", seed, setting)
    filled = np.hstack(Ys)
    blocks = tuple((CompleteBlock.of(torch.tensor(Y, dtype=torch.float32)),) for Y in Ys)
    wide = torch.tensor(components(filled, 3, seed), dtype=torch.float32)
    narrow = settle(
        wide[None], torch.ones(1, 3), Layout(2, (0, 0)), Layout(3, (0, 0)), blocks, seed
    ).latents[0]
    result = [data.latent, folded(narrow.double().numpy(), seed)]
    result += [start(name, filled, 2, seed) for name in ORIGINS[2:]]
    models = SimpleModels(torch.tensor(np.stack(result), dtype=torch.float32), blocks)
    ones = torch.ones(len(result), 2)
    models.settle(500, seed, lambda _: ones)
    return (
        result,
        models.bounds(ones, seed).tolist(),
        list(models.mean.detach().double().numpy()),
    )


def measure_layout(origin: str, seed: int, setting: Setting) -> dict[str, Value]:
    """Train from one layout until the bound no longer rises; print it beside that of simple
    kernels.
    """
    data, i = data_of("RBF+Gibbs", seed, setting), ORIGINS.index(origin)
    result, bounds, settled = layouts_of(seed, setting)
    limit = 1600 if setting.max_iter == "auto" else setting.max_iter
    model = bo.NGMVLVM(
        init=result[i], tol=0.0, max_iter=limit, views=data.views, random_state=seed
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(data.data)
    r2 = [bo.metrics.mean_aligned_r2(data.latent, Z) for Z in (model.embedding_, settled[i])]
    simple = bounds[i] + scaled_of("RBF+Gibbs", seed, setting)[1]
    return {"elbo": float(model.elbo_), "r2": r2[0], "simple": simple, "simple_r2": r2[1]}


def layout_jobs(seeds: range, setting: Setting) -> Iterator[Job]:
    """Yield the starts of every draw of the data."""
    for seed in seeds:
        yield from (
            Job("RBF+Gibbs", o, seed, partial(measure_layout, o, seed, setting))
            for o in ORIGINS
        )


def measure_reference_point(
    name: str, seed: int, setting: Setting, steps: int
) -> Mapping[str, Value]:
    """Return where the reference stood after some steps; nothing where it ended before."""
    trace = reference_trace(name, seed, setting)
    if steps not in trace.steps:
        return {}
    i, truth = trace.steps.index(steps), data_of(name, seed, setting).latent
    r2 = bo.metrics.mean_aligned_r2(truth, trace.latents[i])
    return {"seconds": trace.seconds[i], "bound": trace.bounds[i], "r2": r2}


def measure_point(name: str, seed: int, setting: Setting, steps: int) -> Mapping[str, Value]:
    """Return where a whole fit of some steps stands."""
    return dict(zip(POINTS, point(name, seed, setting, "sobol", steps), strict=True))


def fit_jobs(seeds: range, setting: Setting) -> Iterator[Job]:
    """Yield all methods on all data."""
    for method in METHODS:
        for name in DATA:
            yield from (
                Job(name, method, s, partial(measure_fit, name, method, s, setting))
                for s in seeds
            )


def default_jobs(seeds: range, setting: Setting) -> Iterator[Job]:
    """Yield default fits of all curves, beside those from the true latents."""
    for seed in seeds:
        for name in CURVES:
            run = partial(measure_default, name, seed, setting)
            yield Job(name, "defaults", seed, run)


def measure_default(name: str, seed: int, setting: Setting) -> dict[str, Value]:
    """Fit by defaults and from the true latents; return R² of both and the bounds' difference."""
    kernels, kind = CURVES[name]
    sizes = (setting.n_rows, setting.n_columns)
    data = bo.datasets.make_s_curve(*sizes, kernels, 0.5, seed)
    fits = [
        fitted(
            kind(views=data.views, init=init, random_state=seed, max_iter=setting.max_iter),
            data,
        )
        for init in ("auto", data.latent)
    ]
    (ours, seconds), (ceiling, _) = fits
    r2 = [bo.metrics.mean_aligned_r2(data.latent, model.embedding_) for model, _ in fits]
    return {
        "r2": float(r2[0]),
        "r2_truth": float(r2[1]),
        "elbo": float(ours.elbo_),
        "below_truth": float(ceiling.elbo_ - ours.elbo_),
        "steps": ours.n_iter_,
        "seconds": seconds,
    }


def trace_jobs(seeds: range, setting: Setting) -> Iterator[Job]:
    """Yield fits of growing length, and the reference after as many steps and more."""
    for name in DATA:
        for seed in seeds:
            for steps in TRACE:
                run = partial(measure_point, name, seed, setting, steps)
                yield Job(name, f"NG-MVLVM, {steps} steps", seed, run)
            for steps in (100, 200, 400, 800, 1600, 3200, 6400):
                run = partial(measure_reference_point, name, seed, setting, steps)
                yield Job(name, f"reference, {steps} steps", seed, run)


def speed_jobs(seeds: range, setting: Setting) -> Iterator[Job]:
    """Yield the comparison with the reference."""
    for name in DATA:
        yield from (
            Job(name, "ours / reference", s, partial(measure_speed, name, s, setting))
            for s in seeds
        )


def gaps(rows: list[dict[str, str]]) -> list[str]:
    """Say how far every bound is below the ceiling of its draw of the data."""
    ceiling = {
        (r["data"], r["seed"]): float(r["elbo"]) for r in rows if r["method"] == CEILING
    }
    lines = []
    for name in DATA:
        for method in (m for m in METHODS if m != CEILING):
            of_setting = [
                r
                for r in rows
                if r["data"] == name and r["method"] == method and (name, r["seed"]) in ceiling
            ]
            below = [ceiling[name, r["seed"]] - float(r["elbo"]) for r in of_setting]
            mean = sum(below) / len(below) if below else math.nan
            lines.append(
                f"{name}, {method}: bound below the one from the true latents by {mean:.0f} nats "
                "(mean)"
            )
    return lines


SMALL = Setting(100, 20, 60, 2.0)
PROTOCOL = Protocol(
    "scurve",
    (*FITS, *KERNELS),
    lambda seeds, quick: fit_jobs(seeds, SMALL if quick else Setting()),
)


def main() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument(
        "--part", default="all", choices=["all", "fits", "layouts", "defaults"]
    )
    chosen, sys.argv[1:] = parser.parse_known_args()
    options = arguments(__doc__)
    setting = SMALL if options.quick else Setting()
    if chosen.part == "layouts":
        layouts = Store("scurve_layouts", tuple(LAYOUTS), options.quick)
        layouts.collect(layout_jobs(options.seeds, setting))
        print(table(layouts.rows(), LAYOUTS, heads=("seed", "method")))
        return
    if chosen.part == "defaults":
        curves = Store("scurve_defaults", tuple(DEFAULTS), options.quick)
        curves.collect(default_jobs(options.seeds, setting))
        print(table(curves.rows(), DEFAULTS, heads=("data", "seed")))
        print(table(curves.rows(), DEFAULTS, heads=("data", "method")))
        return
    fits = PROTOCOL.store(options.quick)
    fits.collect(fit_jobs(options.seeds, setting))
    print(table(fits.rows(), FITS), table(fits.rows(), KERNELS), *gaps(fits.rows()), sep="\n")
    if chosen.part == "fits":
        return
    trace = Store("scurve_trace", tuple(POINTS), options.quick)
    trace.collect(trace_jobs(options.seeds, setting))
    print(table(trace.rows(), POINTS))
    speed = Store("scurve_speed", tuple(SPEED), options.quick)
    speed.collect(speed_jobs(options.seeds, setting))
    print(
        "seconds to equal bound; where the reference did not get there (reached 0) its ratio is a "
        "lower limit"
    )
    print(table(speed.rows(), SPEED))


if __name__ == "__main__":
    main()
