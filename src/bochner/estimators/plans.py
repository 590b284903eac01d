"""From an estimator's parameters and checked data to what inference takes: plans and blocks of tensors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bochner.data.columns import columns_of
from bochner.data.views import Views
from bochner.errors import InputError, message
from bochner.inference.embeddings import TSNE_DIMENSIONS
from bochner.inference.initialise import ALL_STARTS
from bochner.inference.plan import Plan, Start
from bochner.inference.train import Options
from bochner.kernels.base import SpectralKernel
from bochner.likelihoods.base import Likelihood, LocalLikelihood
from bochner.objectives.elbo import Data
from bochner.objectives.statistics import Block

FloatArray = NDArray[np.floating[Any]]

MAX_ITER = 3000
# The decay, when training has all its features, as a share of the steps before it.
DECAY = 0.5
# Up to so many rows twice the frequencies cost seconds, and reach a higher bound.
FEW_ROWS = 1000
# Above so many rows a model is trained on landmarks first.
LANDMARK_ROWS, N_LANDMARKS = 6000, 2000
# Share of a view's squares that training may leave out.
TRUNCATION = 0.05


def make(
    estimator: Any,
    data: Views,
    seed: int,
    kernels: Mapping[str, SpectralKernel],
    likelihoods: Mapping[str, Likelihood] | None = None,
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

    Returns
    -------
    Plan

    Raises
    ------
    InputError
        A start does not fit the data.
    """
    gaussian = likelihoods is None or not any(isinstance(own, LocalLikelihood) for own in likelihoods.values())
    auto_iter = estimator.max_iter == "auto"
    return Plan(
        names=data.names,
        kernels=tuple(kernels[name] for name in data.names),
        starts=_starts(estimator, data.X.shape[0], gaussian),
        n_components=int(estimator.n_components),
        n_mixtures=estimator._auto_mixtures if estimator.n_mixtures == "auto" else int(estimator.n_mixtures),
        n_frequencies=_frequencies(estimator, data.X.shape[0], gaussian),
        sampling="sobol" if estimator.sampling == "auto" else estimator.sampling,
        training=Options(
            max_iter=MAX_ITER if auto_iter else int(estimator.max_iter),
            learning_rate=float(estimator.learning_rate),
            tol=float(estimator.tol),
            decay=DECAY,
        ),
        seed=seed,
        dtype=torch.float64 if estimator.dtype == "float64" else torch.float32,
        device=_device(estimator.device),
        n_rows=data.X.shape[0],
        landmarks=_landmarks(estimator.landmarks, data.X.shape[0], gaussian),
        truncation=TRUNCATION if estimator.truncation == "auto" else float(estimator.truncation),
        shown=bool(estimator.verbose),
        checkpoint=None if estimator.checkpoint is None else Path(estimator.checkpoint),
        likelihoods=None if likelihoods is None else tuple(likelihoods[name] for name in data.names),
    )


def _frequencies(estimator: Any, n_rows: int, gaussian: bool) -> int:
    """Return H: by default fewer for many rows, and for views whose columns have a Gram matrix of their own."""
    if estimator.n_frequencies != "auto":
        return int(estimator.n_frequencies)
    if not gaussian:
        return int(estimator._local_frequencies)
    return int(estimator._auto_frequencies if n_rows <= FEW_ROWS else estimator._fewer_frequencies)


def _landmarks(asked: int | str | None, n_rows: int, gaussian: bool) -> int | None:
    """Return how many rows to train on first; views that are not Gaussian are trained on all."""
    if asked is None or (asked == "auto" and not gaussian):
        return None
    count = int(asked) if asked != "auto" else N_LANDMARKS if n_rows > LANDMARK_ROWS else n_rows
    if count < n_rows and not gaussian:
        got, hint = f"landmarks={count} with others", "leave landmarks='auto', which trains on all rows"
        raise InputError(message("Gaussian views for landmarks", got, hint))
    return count if count < n_rows else None


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        got = f"{name!r} ({str(error).splitlines()[0]})"
        raise InputError(message("a torch device", got, "use 'auto', 'cpu' or 'cuda'")) from error


def _starts(estimator: Any, n_rows: int, gaussian: bool) -> tuple[Start, ...]:
    init, n_init = estimator.init, estimator.n_init
    names: list[Start]
    if isinstance(init, np.ndarray):
        names = [_check_start(init, n_rows, estimator.n_components)]
    elif isinstance(init, list):
        names = [s if isinstance(s, str) else _check_start(s, n_rows, estimator.n_components) for s in init]
    elif init == "auto":
        names = _race(estimator, n_rows, gaussian)
    else:
        names = [init]
    unknown = [name for name in names if isinstance(name, str) and name not in ALL_STARTS]
    if unknown or not names:
        raise InputError(message(f"init from {list(ALL_STARTS)}, or arrays", repr(init), "correct the list"))
    count = len(names) if n_init == "auto" else int(n_init)
    return tuple(names[i % len(names)] for i in range(count))


def _race(estimator: Any, n_rows: int, gaussian: bool) -> list[Start]:
    """Return the starts of a race: those that fold and follow neighbours cost too much for many rows."""
    if n_rows <= LANDMARK_ROWS:
        return ["pca", "fold", "laplacian", *(["tsne"] if estimator.n_components <= TSNE_DIMENSIONS else [])]
    trained = _landmarks(estimator.landmarks, n_rows, gaussian) or n_rows
    return ["pca", "laplacian"] if trained <= LANDMARK_ROWS else ["pca"]


def _check_start(array: Any, n_rows: int, n_components: int) -> NDArray[np.float64]:
    values = np.asarray(array, dtype=np.float64)
    if values.shape != (n_rows, n_components):
        got = f"shape {values.shape}"
        raise InputError(message(f"init of shape {(n_rows, n_components)}", got, "pass one latent per row"))
    if not np.isfinite(values).all():
        raise InputError(message("a finite init", "NaN or inf", "replace them"))
    return values


def blocks(
    data: Views, scaled: Mapping[str, FloatArray], plan: Plan, offsets: Mapping[str, Tensor | None] | None = None
) -> Data:
    """Turn scaled views, shape (N, M_v), into blocks of observed entries on the plan's device."""
    out: list[tuple[Block, ...]] = []
    for v, view in enumerate(data.names):
        likelihood = None if plan.likelihoods is None else plan.likelihoods[v]
        if isinstance(likelihood, LocalLikelihood):
            offset = None if offsets is None else offsets[view]
            out.append((_encoded(scaled[view], likelihood, offset, plan),))
            continue
        own = []
        for rows, columns in data.blocks(view):
            whole = len(rows) == data.X.shape[0]
            part = columns_of(scaled[view], columns) if whole else scaled[view][np.ix_(rows, columns)]
            Y = torch.from_numpy(part).to(plan.device, plan.dtype)
            index = None if whole else torch.tensor(rows, device=plan.device)
            own.append(Block.of(Y, index, torch.tensor(columns)))
        out.append(tuple(own))
    return tuple(out)


def _encoded(values: FloatArray, likelihood: LocalLikelihood, offset: Tensor | None, plan: Plan) -> Block:
    """The rows of a view that is not Gaussian that have any entry, as its likelihood sees them."""
    present = ~np.isnan(values).all(axis=1)
    rows = None if present.all() else torch.tensor(np.flatnonzero(present), device=plan.device)
    Y = likelihood.encode(torch.tensor(values[present], dtype=torch.float64)).to(plan.device, plan.dtype)
    own = None if offset is None else offset[torch.from_numpy(present)].to(plan.device, plan.dtype)
    return Block.encoded(Y, rows, own)


def stand_ins(
    data: Views, scaled: Mapping[str, FloatArray], plan: Plan, offsets: Mapping[str, Tensor | None]
) -> tuple[dict[str, FloatArray], Data | None]:
    """Return Gaussian stand-ins of the views, by view and as blocks; no blocks when all views are Gaussian.

    Columns are centred and views scaled, as Gaussian data are; a missing entry takes part as its column's mean, 0.
    """
    out: dict[str, FloatArray] = {}
    some = False
    for view, likelihood in zip(data.names, plan.likelihoods or (), strict=True):
        out[view] = scaled[view]
        if isinstance(likelihood, LocalLikelihood):
            some = True
            raw = likelihood.stand_in(torch.tensor(scaled[view], dtype=torch.float64), offsets[view]).numpy()
            centred = raw - np.nan_to_num(np.nanmean(raw, axis=0))
            scale = float(np.sqrt(np.nanmean(np.square(centred))))
            out[view] = centred / (scale if scale > 0 else 1.0)
    if not some:
        return out, None
    tensors = [torch.tensor(np.nan_to_num(own), dtype=plan.dtype, device=plan.device) for own in out.values()]
    present = [np.asarray(~np.isnan(own).all(axis=1)) for own in out.values()]
    return out, tuple((_present(Y, rows, plan),) for Y, rows in zip(tensors, present, strict=True))


def _present(Y: Tensor, rows: NDArray[np.bool_], plan: Plan) -> Block:
    if rows.all():
        return Block.of(Y)
    index = torch.tensor(np.flatnonzero(rows), device=plan.device)
    return Block.of(Y[index], index)


def filled(scaled: Mapping[str, FloatArray], rows: slice | NDArray[np.int64]) -> NDArray[np.float64]:
    """Return some rows of all views side by side, missing entries at their column's mean, for starts only."""
    return np.nan_to_num(np.hstack([own[rows] for own in scaled.values()]).astype(np.float64))


def subset(n_rows: int, most: int, seed: int) -> NDArray[np.int64]:
    """Return at most ``most`` row numbers, ascending, drawn by the seed."""
    if n_rows <= most:
        return np.arange(n_rows)
    chosen = np.random.Generator(np.random.PCG64(seed)).choice(n_rows, most, replace=False)
    return np.sort(chosen)
