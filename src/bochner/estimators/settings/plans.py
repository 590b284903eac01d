"""From an estimator's parameters and checked data to a plan of the fit."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray

from bochner._typing import Sampling
from bochner.data.columns import extremes
from bochner.data.validation import numbers
from bochner.data.views import Views, fingerprint
from bochner.errors import DataWarning, InputError, message, warn_user
from bochner.estimators.settings import view_options
from bochner.estimators.settings.likelihoods import with_fixed_noise
from bochner.estimators.settings.parameters import Parameters
from bochner.fitting.plan import COLUMN_BUDGET, Plan, Start, n_features_of
from bochner.initialization.embeddings import (
    ALL_STARTS,
    N_NARROW,
    NARROW_STARTS,
    TSNE_DIMENSIONS,
)
from bochner.kernels.base import SpectralKernel
from bochner.likelihoods.likelihood import Gaussian
from bochner.likelihoods.nonconjugate import Likelihood
from bochner.linalg import device_named
from bochner.memory import Memory
from bochner.models.lvm import Layout, ModelSpec, ViewSpec
from bochner.models.sites import column_batch
from bochner.processes import ALONE, Processes
from bochner.training.trainer import RATES, Options

# The decay, when training has all its features, as a share of the steps before it.
DECAY = 1.0
# And its steps at the least: the winner of a race has converged soon after it, and what steps with
# all features add is worth more than steps before them (seeds 100 and 101 of six data sets).
LEAST_DECAY = 200
# Components of a Dirichlet process kernel are assigned between steps: many dimensions are given up
# at twice the rate. With other kernels many dimensions end at a higher bound at this one, too.
CAREFUL_RATES = replace(RATES, learning_rate=0.1, window=50, tol=1e-4)
# Numbers beside counts or categories still rise where shorter windows see a plateau.
MIXED_RATES = replace(RATES, window=50, tol=1e-4)
# Views that are not Gaussian where a step takes some of their columns, whose sites then wait for
# their turn, or where components are assigned between steps: larger steps end lower.
SMALL_RATES = Options(learning_rate=0.06)
# Up to so many rows twice the frequencies cost seconds, and reach a higher bound.
FEW_ROWS = 1000
# Rows for one frequency of training up to the decay, and the fewest of those.
ROWS_EACH = 20
LEAST_FREQUENCIES = 16
# Of latents that are given: their squares are nats of the prior.
_FARTHEST = 1e6
# Spectral points per component and latent dimension, at the least: fewer do not span the linear
# functions of them all.
POINTS_PER_DIMENSION = 1.25
# Up to so many dimensions points are drawn from a Sobol net, and what is small in the data may be
# left out.
FEW_DIMENSIONS = 10
# Of the starts that "auto" tries those race that the simplest kernels hold for equally good, nats
# per entry.
MARGIN = 2e-3
# In small tables, where the simplest kernels may hold the best layout for the worst and a race
# takes a tenth of a second, every start races. Rows and entries of such.
SMALL_ROWS = 500
SMALL_ENTRIES = 10_000
EVERY = 1e3
# Beyond so many dimensions starts are not raced: principal components already follow what the data
# have.
RACED_DIMENSIONS = 12
# Counts beyond this are multiplied in double precision.
LARGE_COUNTS = 10_000
# Above so many rows a model is trained on landmarks first.
LANDMARK_ROWS = 6000
N_LANDMARKS = 2000
# Share of a view's squares that training may leave out.
TRUNCATION = 0.05


# Standard deviations of given latents beyond which maps are as embeddings of other libraries have
# them, not as the prior does.
FAR = 3.0
# Parameters in which a fit and the one that continues it may differ.
TRANSIENT = ("checkpoint", "verbose", "device", "random_state")


def check_size(shape: tuple[int, ...], estimator: Parameters) -> None:
    """Refuse latents and features that no memory holds, before it is asked for.

    Raises
    ------
    InputError
        Naming the size: means of all rows and a square matrix of the dimensions; features of all
        rows and their frequencies.
    """
    n_components = estimator.n_components
    size = 8 * n_components * (shape[0] + n_components)
    what = f"{n_components:,} latent dimensions of {shape[0]:,} rows"
    Memory().check(size, what, "lower n_components")
    width = shape[0] + n_components
    # starts wait for each other
    of_one = {"n_frequencies": width, "n_mixtures": width, "n_init": shape[0] * n_components}
    for name, size in of_one.items():
        count = getattr(estimator, name)
        if not isinstance(count, str):
            what = f"{name}={count:,} with {shape[0]:,} rows"
            Memory().check(8 * count * size, what, f"lower {name}")


def make(
    estimator: Parameters,
    data: Views,
    seed: int,
    kernels: Mapping[str, SpectralKernel],
    likelihoods: Mapping[str, Likelihood] | None = None,
    groups: tuple[int, ...] = (),
    processes: Processes = ALONE,
) -> Plan:
    """Resolve every "auto" of an estimator.

    Parameters
    ----------
    estimator : LatentVariableEstimator
        Parameters already validated one by one.
    data : Views
    seed : int
    kernels : mapping of str to SpectralKernel
        By view.
    likelihoods : mapping of str to Likelihood, optional
        By view, at their start; None: Gaussian ones.
    groups : tuple of L int
        The covariate that each column beside the latents belongs to.
    processes : Processes
        Among which the rows are divided.

    Returns
    -------
    Plan

    Raises
    ------
    InputError
        A start does not fit the data.
    """
    n_rows = processes.total(data.X.shape[0])
    spec = _spec(estimator, data, kernels, likelihoods or {}, n_rows)
    spec = replace(spec, groups=groups)
    counts = n_features_of(spec)
    _warn_of_rank((n_rows, data.X.shape[1]), spec.n_components)
    starts = starts_of(estimator, spec.layout, n_rows)
    _warn_of_far(starts)
    some = n_landmarks(estimator.landmarks, n_rows)
    chosen = isinstance(estimator.init, str) and estimator.init == "auto"
    return Plan(
        spec=spec,
        starts=starts,
        margin=_margin(spec, data) if chosen and estimator.n_init == "auto" else math.inf,
        training=_training(
            estimator, _rates(spec, _draws_columns(spec, data, counts, some or n_rows))
        ),
        seed=seed,
        dtype=_dtype(estimator.dtype, data, likelihoods or {}, processes),
        device=device_named(estimator.device),
        truncation=_truncation(estimator.truncation, spec.n_components),
        landmarks=some,
        shown=bool(estimator.verbose) and processes.rank == 0,
        checkpoint=None if estimator.checkpoint is None else Path(estimator.checkpoint),
        origin=_digest(estimator, data, divisible(data, spec, some)),
        processes=processes,
    )


def _spec(
    estimator: Parameters,
    data: Views,
    kernels: Mapping[str, SpectralKernel],
    likelihoods: Mapping[str, Likelihood],
    n_rows: int,
) -> ModelSpec:
    """Return the model that is asked for."""
    if estimator.noise == "column" and not takes_column_noise(kernels):
        hint = "leave noise='view', or fit AdvisedRFLVM"
        raise InputError(
            message("noise='view' with Dirichlet process kernels", "noise='column'", hint)
        )
    layout = layout_of(estimator, data.names)
    widths = {name: len(columns) for name, columns in data.columns.items()}
    weights = dict.fromkeys(widths, 1.0)
    if estimator.view_weight is not None:
        weights = view_options.weights(estimator.view_weight, widths)
    learned = {name: likelihoods.get(name) or Gaussian() for name in data.names}
    scales = {name: float(data.scaling_of(name).scale[0]) for name in data.names}
    chosen = with_fixed_noise(estimator.noise_variance, learned, scales)
    views = tuple(
        ViewSpec(name, kernels[name], chosen[name], weights[name]) for name in data.names
    )
    conjugate = all(view.conjugate for view in views)
    count = n_frequencies(estimator, n_rows, conjugate, layout.n_components)
    return ModelSpec(
        views=views,
        layout=layout,
        n_mixtures=n_mixtures(estimator),
        n_frequencies=count,
        sampling=_sampling(estimator.sampling, layout.n_components),
        n_early=_early(count, n_rows, layout.n_components),
    )


def layout_of(estimator: Parameters, names: Sequence[str]) -> Layout:
    """Return who sees which latents: all views all of them, unless a dict says more."""
    if isinstance(estimator.latent, Mapping):
        return view_options.layout(estimator.latent, estimator.n_components, names)
    return Layout(int(estimator.n_components), (0,) * len(names))


def n_mixtures(estimator: Parameters) -> int:
    """Return Q."""
    asked = estimator.n_mixtures
    return int(estimator._auto_mixtures if asked == "auto" else asked)


def takes_column_noise(kernels: Mapping[str, SpectralKernel]) -> bool:
    """Return whether models with these kernels learn a noise variance per column."""
    return not _decided(kernels.values())


def _decided(kernels: Iterable[SpectralKernel]) -> bool:
    """Whether a kernel's components are assigned between steps."""
    return any(kernel.has_posterior for kernel in kernels)


def _margin(spec: ModelSpec, data: Views) -> float:
    """Return which starts race: of non-conjugate views the best one, of small tables all."""
    n_rows, n_columns = data.X.shape
    small = n_rows <= SMALL_ROWS and n_rows * n_columns <= SMALL_ENTRIES
    return (EVERY if small else MARGIN) if spec.conjugate else 0.0


def _rates(spec: ModelSpec, draws_columns: bool) -> Options:
    """Return the learning rates of a model."""
    decided = _decided(view.kernel for view in spec)
    if not spec.conjugate and (decided or draws_columns):
        return SMALL_RATES
    if decided or spec.n_components > RACED_DIMENSIONS:
        return CAREFUL_RATES
    mixed = any(view.conjugate for view in spec) and not spec.conjugate
    return MIXED_RATES if mixed else RATES


def _draws_columns(spec: ModelSpec, data: Views, counts: Sequence[int], n_rows: int) -> bool:
    """Return whether a step over so many rows takes some of a non-conjugate view's columns."""
    sizes = [len(data.columns[view.name]) for view in spec]
    return any(
        not view.conjugate and column_batch(n_rows, size, count, COLUMN_BUDGET) < size
        for view, size, count in zip(spec, sizes, counts, strict=True)
    )


def _training(estimator: Parameters, rates: Options) -> Options:
    """Return how to train: the rates, unless one was asked for."""
    return replace(
        rates,
        max_iter=rates.max_iter if estimator.max_iter == "auto" else int(estimator.max_iter),
        tol=rates.tol if estimator.tol == "auto" else float(estimator.tol),
        learning_rate=rates.learning_rate
        if estimator.learning_rate == "auto"
        else float(estimator.learning_rate),
        decay=DECAY,
        least_decay=LEAST_DECAY,
    )


def _dtype(
    name: str, data: Views, likelihoods: Mapping[str, Likelihood], processes: Processes
) -> torch.dtype:
    """Return the precision of products: counts so large weigh entries by more than single precision
    holds apart.
    """
    counted = [
        data.columns[view]
        for view, likelihood in likelihoods.items()
        if not likelihood.scales_with_data
    ]
    if name == "float64" or not counted:
        return torch.float64 if name == "float64" else torch.float32
    largest = np.nan_to_num(extremes(data.X)[1][np.concatenate(counted)]).max()
    most = processes.largest(torch.tensor([float(largest)], dtype=torch.float64))
    return torch.float64 if float(most) > LARGE_COUNTS else torch.float32


def n_frequencies(
    estimator: Parameters, n_rows: int, gaussian: bool, n_components: int
) -> int:
    """Return H: by default fewer for many rows, and for views whose columns have a Gram matrix of
    their own.
    """
    if estimator.n_frequencies != "auto":
        return int(estimator.n_frequencies)
    least = math.ceil(POINTS_PER_DIMENSION * n_components)
    if not gaussian:
        return max(int(estimator._local_frequencies), least)
    return max(
        int(
            estimator._auto_frequencies if n_rows <= FEW_ROWS else estimator._fewer_frequencies
        ),
        least,
    )


def _early(n_frequencies: int, n_rows: int, n_components: int) -> int:
    """Return how many frequencies training has until the bound has converged.

    Half of them, and fewer for few rows, whose steps are mostly features then. Fewer than D, and a
    quarter more, do not span the linear functions of all dimensions.
    """
    few = min(n_frequencies // 2, n_rows // ROWS_EACH)
    return min(n_frequencies, max(few, LEAST_FREQUENCIES, n_components + n_components // 4))


def _sampling(asked: str, n_components: int) -> Sampling:
    """Return how points are drawn: a Sobol net fills few dimensions, many are spanned evenly by
    orthogonal points.
    """
    if asked != "auto":
        return cast(Sampling, asked)
    return "sobol" if n_components <= FEW_DIMENSIONS else "orthogonal"


def _truncation(asked: str | float, n_components: int) -> float:
    """Return the share of a view's squares that may be left out: none where dimensions are many
    enough to fit it.
    """
    if asked != "auto":
        return float(asked)
    return TRUNCATION if n_components <= FEW_DIMENSIONS else 0.0


def n_landmarks(asked: int | str | None, n_rows: int) -> int | None:
    """Return how many rows to train on first."""
    if asked is None:
        return None
    count = (
        int(asked) if asked != "auto" else N_LANDMARKS if n_rows > LANDMARK_ROWS else n_rows
    )
    return count if count < n_rows else None


def starts_of(estimator: Parameters, layout: Layout, n_rows: int) -> tuple[Start, ...]:
    """Return where training starts, as often as asked."""
    init = estimator.init
    n_init = estimator.n_init
    names: list[Start]
    if isinstance(init, np.ndarray):
        names = [_check_start(init, n_rows, layout.n_components)]
    elif isinstance(init, list):
        names = [
            s if isinstance(s, str) else _check_start(s, n_rows, layout.n_components)
            for s in init
        ]
    elif init == "auto":
        names = _race(estimator, layout, n_rows)
    else:
        names = [str(init)]
    unknown = [name for name in names if isinstance(name, str) and name not in ALL_STARTS]
    if unknown or not names:
        raise InputError(
            message(f"init from {list(ALL_STARTS)}, or arrays", repr(init), "correct the list")
        )
    narrow = [name for name in names if isinstance(name, str) and name in NARROW_STARTS]
    if narrow and layout.has_private:
        raise InputError(message("latents that all views share", repr(narrow), "leave it out"))
    count = len(names) if n_init == "auto" else int(n_init)
    return tuple(names[i % len(names)] for i in range(count))


def _race(estimator: Parameters, layout: Layout, n_rows: int) -> list[Start]:
    """Return the starts of a race: those that fold and follow neighbours cost too much for many
    rows.
    """
    if layout.shared > RACED_DIMENSIONS:
        return ["pca"]
    if n_rows <= LANDMARK_ROWS:
        more = ["tsne"] if layout.shared <= TSNE_DIMENSIONS else []
        if layout.shared > N_NARROW and not layout.has_private:
            more += NARROW_STARTS if n_rows <= FEW_ROWS else ["laplacian-2"]
        return ["pca", "fold", "laplacian", *more]
    trained = n_landmarks(estimator.landmarks, n_rows) or n_rows
    return ["pca", "laplacian"] if trained <= LANDMARK_ROWS else ["pca"]


def _check_start(array: object, n_rows: int, n_components: int) -> NDArray[np.float64]:
    values = numbers("init", array)
    if values.shape != (n_rows, n_components):
        got = f"shape {values.shape}"
        raise InputError(
            message(f"init of shape {(n_rows, n_components)}", got, "pass one latent per row")
        )
    if not np.isfinite(values).all():
        raise InputError(message("a finite init", "NaN or inf", "replace them"))
    if (largest := np.abs(values).max(initial=0.0)) > _FARTHEST:
        do = "divide it by its standard deviation: the prior of the latents has 1"
        raise InputError(message(f"an init of at most {_FARTHEST:g}", f"{largest:.3g}", do))
    return values


def _warn_of_rank(shape: tuple[int, ...], n_components: int) -> None:
    """Warn of more latent dimensions than data of a shape (N, M) can have."""
    limit = min(shape[0] - 1, shape[1])
    if n_components > limit:
        warn_user(
            f"n_components={n_components} is above the rank the data can have ({limit}): "
            "the further dimensions can only repeat the prior.",
            DataWarning,
        )


def _warn_of_far(starts: Iterable[Start]) -> None:
    """Warn of given latents, (N, D), that lie where the prior hardly is: training seldom gets back
    from there.
    """
    spreads = [
        float(start.std(axis=0).max(initial=0.0))
        for start in starts
        if not isinstance(start, str)
    ]
    for spread in (far for far in spreads if far > FAR):
        warn_user(
            f"init has a standard deviation of {spread:.3g}, where latents have about 1 under "
            "their prior: "
            "training from there "
            f"ends far below what it can reach. Divide the array by {spread:.3g}.",
            DataWarning,
        )


def divisible(data: Views, spec: ModelSpec, landmarks: int | None) -> bool:
    """Return whether a fit may be continued by another number of processes: its training sees
    landmarks alone, and all that they are follows from the rows.
    """
    by_rows = all(view.likelihood.knows_by_rows for view in spec)
    return landmarks is not None and by_rows and not data.sparse


def _digest(estimator: Parameters, data: Views, divisible: bool = False) -> str:
    """Return a digest of the data's units, the names of their columns, and all parameters.

    Parameters
    ----------
    estimator : LatentVariableEstimator
    data : Views
    divisible : bool
        Whether the same rows, divided in another way, are to have the same digest: without units.

    Returns
    -------
    str
    """
    params = estimator.get_params(deep=False)
    names = getattr(estimator, "feature_names_in_", None)
    settings = {
        "class": _described(type(estimator)),
        "params": {name: _described(params[name]) for name in params if name not in TRANSIENT},
        "names": None if names is None else [str(name) for name in names],
        "views": list(data.columns),
    }
    units = [data.scaling.centre, data.scaling.scale]
    # sums of other parts round in another way
    if divisible:
        units = []
    return fingerprint([*units, *data.columns.values()], settings)


def _described(value: object) -> object:
    """Return what tells a parameter from another, the same in every process."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray | torch.Tensor):
        return fingerprint([np.asarray(value)], {})
    if isinstance(value, dict):
        return [[str(key), _described(item)] for key, item in value.items()]
    if isinstance(value, list | tuple):
        return [_described(item) for item in value]
    if isinstance(value, slice | Path | np.generic):
        return str(value)
    return _of_object(value)


def _of_object(value: object) -> object:
    cls = value if isinstance(value, type) else type(value)
    name = f"{cls.__module__}.{cls.__qualname__}"
    if cls is value or not hasattr(value, "get_params"):
        return name
    return [name, _described(value.get_params())]
