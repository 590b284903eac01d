"""What a fit will take: operations counted, the rate at which this machine does them measured."""

from __future__ import annotations

import functools
import time
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import NDArray
from sklearn.base import clone

from bochner import random
from bochner.data.arrays import FloatArray
from bochner.data.columns import observed_rows
from bochner.data.row_sources import RowSource
from bochner.estimators.rflvm import RFLVM
from bochner.estimators.settings import likelihoods, plans
from bochner.fitting.landmarks import JOINT_STEPS
from bochner.fitting.multistart import RACE_STEPS
from bochner.fitting.plan import COLUMN_BUDGET
from bochner.initialization.simple_models import STEPS as FOLD_STEPS
from bochner.memory import passes
from bochner.models.sites import column_batch
from bochner.training.trainer import RATES

if TYPE_CHECKING:
    from bochner.estimators.base import LatentVariableEstimator

# Rows of the trial, and the steps of its two fits: what the second takes longer is the time of the
# steps between.
TRIAL_ROWS = 300
FEW_STEPS = 2
MORE_STEPS = 52
# Sweeps of the one chain of a trial, where a fit has chains; the same.
FEW_SWEEPS = 2
MORE_SWEEPS = 22
# Blocks of rows on disk that the trial is drawn from.
_BLOCKS = 10
# Steps after the race until the bound has converged, as in most fits of `benchmarks/times.py`.
TYPICAL_STEPS = 400
# Share of what is beside the steps that does not grow with the rows: operations take it to begin.
_FIXED = 0.5
# Bytes an entry of X takes at the peak: the matrix, its scaled copy, the copy that rows are placed
# from and their temporaries in float64, the training copy in float32, masks. Measured; see
# benchmarks/README.md.
BYTES_PER_ENTRY = 42
# Where a view is non-conjugate also the sites of its entries and what a step makes of them.
BYTES_PER_SITE = 100
# And a latent of rows on disk: means, standard deviations, moments, the best state, gradients.
BYTES_PER_LATENT = 190
# Python, torch and what they load.
BASE_BYTES = 590 * 2**20
# Columns that training sees of a view whose leading singular vectors stand for it, at the most:
# what is counted.
_TRUNCATED_COLUMNS = 256


def estimate(
    estimator: LatentVariableEstimator, X: Any, columns: dict[str, NDArray[np.intp]]
) -> dict[str, object]:
    """Estimate time and memory of ``estimator.fit(X)`` by two short fits on some of its rows.

    Parameters
    ----------
    estimator : LatentVariableEstimator
        Not fitted, and left so.
    X : ndarray or RowSource of shape (N, M)
    columns : dict of str to ndarray of int
        Of the views.

    Returns
    -------
    dict
        operations_per_step; gflops, the measured rate; seconds_typical and seconds_at_most (up to
        max_iter steps); memory_bytes; trial_rows. Estimates: a factor of two either way is no
        surprise, since nobody knows the steps.

    Raises
    ------
    InputError, ValueError
        A fit would refuse the settings: the trial has others in their place.
    """
    estimator._validate_params()
    estimator._check_size(X.shape)
    n_rows = X.shape[0]
    some = _trial(X)
    # The first fit of a process loads code: its time is not kept.
    (_, _), (few, _), (more, placing) = (
        _seconds(estimator, some, steps) for steps in (FEW_STEPS, FEW_STEPS, MORE_STEPS)
    )
    trial = operations(_few_dimensions(estimator, X.shape[1]), len(some), columns)
    # On a busy machine the second fit can be the faster one; the rate stays finite then.
    per_step = max(more - few, 1e-3 * more) / (MORE_STEPS - FEW_STEPS)
    rate = trial / per_step
    landmarks = plans.n_landmarks(estimator.landmarks, n_rows)
    trained = landmarks or n_rows
    each = operations(estimator, trained, columns) / rate
    jointly = landmarks and _all_gaussian(estimator)
    joint = JOINT_STEPS * operations(estimator, n_rows, columns) / rate if jointly else 0.0
    layout = plans.layout_of(estimator, list(columns))
    race = plans.starts_of(estimator, layout, n_rows)
    before = each * (
        RACE_STEPS * len(race) * (len(race) > 1) + FOLD_STEPS * sum(s == "fold" for s in race)
    )
    # Starts and evaluation grow with the rows of training, placement with all.
    rest = max(few - FEW_STEPS * per_step, 0.0)
    rest *= _FIXED + (1.0 - _FIXED) * max(1.0, trained / len(some))
    rest += placing * (n_rows - trained) / len(some)
    rest += _sampling(estimator, some) * trained / len(some)
    most = RATES.max_iter if estimator.max_iter == "auto" else int(estimator.max_iter)
    seconds = {
        name: round(before + steps * each + joint + rest, 1)
        for name, steps in (
            ("seconds_typical", min(most, TYPICAL_STEPS)),
            ("seconds_at_most", most),
        )
    }
    return {
        "operations_per_step": int(operations(estimator, trained, columns)),
        "gflops": round(rate / 1e9, 3),
        **seconds,
        "memory_bytes": BASE_BYTES + _bytes(X, estimator, landmarks),
        "trial_rows": len(some),
    }


def _bytes(X: Any, estimator: LatentVariableEstimator, landmarks: int | None) -> int:
    """Return what a fit takes above what is loaded."""
    n_rows, n_columns = (int(n) for n in X.shape)
    trained = (landmarks or n_rows) * n_columns
    rows = BYTES_PER_ENTRY * trained
    if landmarks:
        rows = _with_others(X, rows, estimator.n_components)
    return rows + trained * (0 if _all_gaussian(estimator) else BYTES_PER_SITE)


@functools.singledispatch
def _with_others(X: Any, trained: int, n_components: int) -> int:  # noqa: ARG001 - X is larger
    """Return the bytes of all rows, of which some are trained on."""
    return int(BYTES_PER_ENTRY * X.size)


@_with_others.register
def _(X: RowSource, trained: int, n_components: int) -> int:
    # of the other rows on disk only their latents
    return trained + BYTES_PER_LATENT * X.n_rows * n_components


def _all_gaussian(estimator: LatentVariableEstimator) -> bool:
    return likelihoods.all_gaussian(estimator.likelihood)


def operations(
    estimator: LatentVariableEstimator,
    n_rows: int,
    columns: dict[str, NDArray[np.intp]],
) -> float:
    """Count the multiplications and additions of a step: 4 N K (K + M) per view, both products
    there and back; of non-conjugate views 2 N K (K + 2) for each column of those that a step takes.
    """
    sizes = [positions.size for positions in columns.values()]
    counts = _n_features(estimator, n_rows, list(columns))
    if _all_gaussian(estimator):
        widths = [min(size, _TRUNCATED_COLUMNS) for size in sizes]
        each = [4 * K * (K + width) for K, width in zip(counts, widths, strict=True)]
    else:
        taken = [
            column_batch(n_rows, size, K, COLUMN_BUDGET)
            for K, size in zip(counts, sizes, strict=True)
        ]
        each = [2 * K * (K + 2) * count for K, count in zip(counts, taken, strict=True)]
    return float(n_rows * sum(each))


def _n_features(
    estimator: LatentVariableEstimator, n_rows: int, names: Sequence[str]
) -> list[int]:
    """Return K of every view: 2 H for each of the kernel's groups of spectral points."""
    layout = plans.layout_of(estimator, names)
    conjugate = _all_gaussian(estimator)
    count = plans.n_frequencies(estimator, n_rows, conjugate, layout.n_components)
    source = random.generator(0, "cost")
    counts = []
    for v, name in enumerate(names):
        dims = layout.dims(v)
        width = layout.n_components if dims is None else len(dims)
        kernel = estimator._kernel_for(name).prepared(count)
        kernel = kernel.initial(plans.n_mixtures(estimator), width, source)
        counts.append(2 * kernel.n_mixtures * count)
    return counts


@functools.singledispatch
def _trial(X: Any) -> FloatArray:
    """Return the rows of the trial."""
    trial: FloatArray = X[_rows(X)]
    return trial


@_trial.register
def _(X: RowSource) -> FloatArray:
    # a few rows of each of a few blocks: others need not be read
    starts = np.linspace(0, X.n_rows, _BLOCKS, endpoint=False).astype(int)
    most = min(TRIAL_ROWS, X.n_rows // _BLOCKS)
    parts = [X.read(start, start + most) for start in starts] if most else [X[:]]
    near = np.concatenate(parts)
    if np.isnan(near).all(axis=0).any():
        return X[_rows(X)]
    return near[_rows(near)]


def _rows(X: Any) -> NDArray[np.intp]:
    """Return rows for the trial, spread over the data; a column needs an observed entry among
    them.
    """
    some = np.flatnonzero(observed_rows(X))
    kept = np.unique(
        some[np.linspace(0, len(some) - 1, min(TRIAL_ROWS, len(some))).astype(int)]
    )
    empty = np.isnan(X[kept]).all(axis=0)
    for rows in passes(X.shape) if empty.any() else ():
        shown = ~np.isnan(X[rows][:, empty])
        shows = shown.any(axis=0)
        kept = np.union1d(kept, rows.start + shown.argmax(axis=0)[shows])
        empty[np.flatnonzero(empty)[shows]] = False
        if not empty.any():
            break
    return kept


@functools.singledispatch
def _with_sweeps(estimator: LatentVariableEstimator, count: int) -> LatentVariableEstimator:  # noqa: ARG001 - most have no chains
    """Return an estimator whose chains make few sweeps, where it has chains."""
    return estimator


@_with_sweeps.register
def _(estimator: RFLVM, count: int) -> RFLVM:
    estimator.set_params(n_chains=1, n_warmup=0, n_draws=count, thin=1, n_jobs=None)
    return estimator


@functools.singledispatch
def _sampling(estimator: LatentVariableEstimator, X: FloatArray) -> float:  # noqa: ARG001
    """Return the seconds that the chains of a fit take on some rows; 0 where it has none."""
    return 0.0


@_sampling.register
def _(estimator: RFLVM, X: FloatArray) -> float:
    few, more = (
        _seconds(estimator, X, FEW_STEPS, sweeps)[0] for sweeps in (FEW_SWEEPS, MORE_SWEEPS)
    )
    sweep = max(more - few, 1e-3 * more) / (MORE_SWEEPS - FEW_SWEEPS)
    n_sweeps = estimator.n_warmup + estimator.thin * estimator.n_draws
    at_once = min(int(effective_n_jobs(estimator.n_jobs or 1)), estimator.n_chains)
    return sweep * n_sweeps * -(-estimator.n_chains // at_once)


def _few_dimensions(
    estimator: LatentVariableEstimator, n_columns: int
) -> LatentVariableEstimator:
    """Return a copy with as many dimensions as principal components there can be."""
    n_components = min(estimator.n_components, n_columns)
    copy: LatentVariableEstimator = clone(estimator)
    copy.set_params(n_components=n_components)
    return copy


def _seconds(
    estimator: LatentVariableEstimator, X: FloatArray, steps: int, sweeps: int = FEW_SWEEPS
) -> tuple[float, float]:
    """Return what a fit and what placing its rows again takes."""
    trial = _with_sweeps(clone(estimator), sweeps).set_params(
        max_iter=steps, tol=0.0, n_init=1, init="pca", landmarks=None, random_state=0
    )
    trial = _few_dimensions(trial, X.shape[1]).set_params(checkpoint=None, verbose=0)
    started = time.perf_counter()
    with warnings.catch_warnings():
        # of a fit of a few steps
        warnings.simplefilter("ignore")
        trial.fit(X)
        fitted = time.perf_counter()
        trial.transform(X)
    return fitted - started, time.perf_counter() - fitted
