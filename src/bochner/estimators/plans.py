"""From an estimator's parameters and checked data to what inference takes: plans and blocks of tensors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bochner.data.views import Views
from bochner.errors import InputError, message
from bochner.inference.embeddings import TSNE_DIMENSIONS
from bochner.inference.initialise import ALL_STARTS
from bochner.inference.plan import Plan, Start
from bochner.inference.train import Options
from bochner.kernels.base import SpectralKernel
from bochner.objectives.elbo import Data
from bochner.objectives.statistics import Block

FloatArray = NDArray[np.floating[Any]]

N_MIXTURES = 2
N_FREQUENCIES, FEWER_FREQUENCIES = 100, 50  # the latter for many rows
MAX_ITER = 3000
# Above so many rows a model is trained on landmarks first.
LANDMARK_ROWS, N_LANDMARKS = 6000, 4000
# Share of a view's squares that training may leave out.
TRUNCATION = 0.05


def make(estimator: Any, data: Views, seed: int, kernels: Mapping[str, SpectralKernel]) -> Plan:
    """Resolve every "auto" of an estimator.

    Parameters
    ----------
    estimator : LatentVariableEstimator
        Parameters already validated one by one.
    data : Views
    seed : int
    kernels : mapping of str to SpectralKernel
        By view.

    Returns
    -------
    Plan

    Raises
    ------
    InputError
        A likelihood or a start does not fit the data.
    """
    _check_likelihood(estimator.likelihood, data)
    auto_iter = estimator.max_iter == "auto"
    return Plan(
        names=data.names,
        kernels=tuple(kernels[name] for name in data.names),
        starts=_starts(estimator, data.X.shape[0]),
        n_components=int(estimator.n_components),
        n_mixtures=N_MIXTURES if estimator.n_mixtures == "auto" else int(estimator.n_mixtures),
        n_frequencies=_frequencies(estimator.n_frequencies, data.X.shape[0]),
        sampling="sobol" if estimator.sampling == "auto" else estimator.sampling,
        training=Options(
            max_iter=MAX_ITER if auto_iter else int(estimator.max_iter),
            learning_rate=float(estimator.learning_rate),
            tol=float(estimator.tol),
        ),
        seed=seed,
        dtype=torch.float64 if estimator.dtype == "float64" else torch.float32,
        device=_device(estimator.device),
        n_rows=data.X.shape[0],
        landmarks=_landmarks(estimator.landmarks, data.X.shape[0]),
        truncation=TRUNCATION if estimator.truncation == "auto" else float(estimator.truncation),
        shown=bool(estimator.verbose),
        checkpoint=None if estimator.checkpoint is None else Path(estimator.checkpoint),
    )


def _frequencies(asked: int | str, n_rows: int) -> int:
    if asked != "auto":
        return int(asked)
    return N_FREQUENCIES if n_rows <= LANDMARK_ROWS else FEWER_FREQUENCIES


def _landmarks(asked: int | str | None, n_rows: int) -> int | None:
    if asked is None:
        return None
    count = int(asked) if asked != "auto" else N_LANDMARKS if n_rows > LANDMARK_ROWS else n_rows
    return count if count < n_rows else None


def _check_likelihood(likelihood: str | Mapping[str, str], data: Views) -> None:
    if isinstance(likelihood, str):
        return
    for view, name in likelihood.items():
        if view not in data.names:
            raise InputError(message(f"likelihood for views {list(data.names)}", repr(view), "correct the name"))
        if name != "gaussian":
            raise InputError(message(f"likelihood 'gaussian' for view {view!r}", repr(name), "use 'gaussian'"))


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        got = f"{name!r} ({str(error).splitlines()[0]})"
        raise InputError(message("a torch device", got, "use 'auto', 'cpu' or 'cuda'")) from error


def _starts(estimator: Any, n_rows: int) -> tuple[Start, ...]:
    init, n_init = estimator.init, estimator.n_init
    names: list[Start]
    if isinstance(init, np.ndarray):
        names = [_check_start(init, n_rows, estimator.n_components)]
    elif isinstance(init, list):
        names = [s if isinstance(s, str) else _check_start(s, n_rows, estimator.n_components) for s in init]
    elif init == "auto":
        names = _race(n_rows, estimator)
    else:
        names = [init]
    unknown = [name for name in names if isinstance(name, str) and name not in ALL_STARTS]
    if unknown or not names:
        raise InputError(message(f"init from {list(ALL_STARTS)}, or arrays", repr(init), "correct the list"))
    count = len(names) if n_init == "auto" else int(n_init)
    return tuple(names[i % len(names)] for i in range(count))


def _race(n_rows: int, estimator: Any) -> list[Start]:
    """Return the starts of a race: those that fold and follow neighbours cost too much for many rows."""
    if n_rows <= LANDMARK_ROWS:
        return ["pca", "fold", "laplacian", *(["tsne"] if estimator.n_components <= TSNE_DIMENSIONS else [])]
    trained = _landmarks(estimator.landmarks, n_rows) or n_rows
    return ["pca", "laplacian"] if trained <= LANDMARK_ROWS else ["pca"]


def _check_start(array: Any, n_rows: int, n_components: int) -> NDArray[np.float64]:
    values = np.asarray(array, dtype=np.float64)
    if values.shape != (n_rows, n_components):
        got = f"shape {values.shape}"
        raise InputError(message(f"init of shape {(n_rows, n_components)}", got, "pass one latent per row"))
    if not np.isfinite(values).all():
        raise InputError(message("a finite init", "NaN or inf", "replace them"))
    return values


def blocks(data: Views, scaled: Mapping[str, FloatArray], plan: Plan) -> Data:
    """Turn scaled views, shape (N, M_v), into blocks of observed entries on the plan's device."""
    out = []
    for view in data.names:
        own = []
        for rows, columns in data.blocks(view):
            whole = len(rows) == data.X.shape[0]
            part = scaled[view][:, columns] if whole else scaled[view][np.ix_(rows, columns)]
            Y = torch.tensor(part, dtype=plan.dtype, device=plan.device)
            index = None if whole else torch.tensor(rows, device=plan.device)
            own.append(Block.of(Y, index, torch.tensor(columns)))
        out.append(tuple(own))
    return tuple(out)


def filled(scaled: Mapping[str, FloatArray]) -> NDArray[np.float64]:
    """Return all views side by side with missing entries at their column's mean, for starts only."""
    return np.nan_to_num(np.hstack(list(scaled.values())).astype(np.float64))


def subset(n_rows: int, most: int, seed: int) -> NDArray[np.int64]:
    """Return at most ``most`` row numbers, ascending, drawn by the seed."""
    if n_rows <= most:
        return np.arange(n_rows)
    chosen = np.random.Generator(np.random.PCG64(seed)).choice(n_rows, most, replace=False)
    return np.sort(chosen)
