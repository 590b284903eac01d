"""From an estimator's parameters and checked data to what inference takes: plans and blocks of tensors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from bochner.data.columns import IntArray, columns_of
from bochner.data.holes import split
from bochner.data.sparse import SparseMatrix, leading, mapped, moments
from bochner.data.views import Views
from bochner.data.views import blocks as by_pattern
from bochner.errors import InputError, message
from bochner.estimators import latents, weights
from bochner.inference import low_rank
from bochner.inference.embeddings import TSNE_DIMENSIONS
from bochner.inference.initialise import ALL_STARTS
from bochner.inference.plan import Plan, Start
from bochner.inference.train import Options
from bochner.kernels.base import SpectralKernel
from bochner.kernels.dirichlet_process import DirichletProcessMixture
from bochner.likelihoods.base import Likelihood, LocalLikelihood
from bochner.likelihoods.gaussian import Gaussian
from bochner.models.layout import Layout
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
# Numbers of a sparse X that may be dense at once.
DENSE_NUMBERS = 2**24


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
    if estimator.noise == "column" and any(isinstance(own, DirichletProcessMixture) for own in kernels.values()):
        hint = "leave noise='view', or fit AdvisedRFLVM"
        raise InputError(message("noise='view' with Dirichlet process kernels", "noise='column'", hint))
    auto_iter = estimator.max_iter == "auto"
    layout = latents.resolve(estimator.latent, estimator.n_components, data.names)
    return Plan(
        names=data.names,
        kernels=tuple(kernels[name] for name in data.names),
        starts=_starts(estimator, layout, data.X.shape[0]),
        n_components=layout.n_components,
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
        landmarks=_landmarks(estimator.landmarks, data.X.shape[0]),
        truncation=TRUNCATION if estimator.truncation == "auto" else float(estimator.truncation),
        shown=bool(estimator.verbose),
        checkpoint=None if estimator.checkpoint is None else Path(estimator.checkpoint),
        likelihoods=None if likelihoods is None else tuple(likelihoods[name] for name in data.names),
        layout=layout if any(layout.private) else None,
        weights=weights.resolve(estimator.view_weight, {name: len(own) for name, own in data.columns.items()}),
    )


def _frequencies(estimator: Any, n_rows: int, gaussian: bool) -> int:
    """Return H: by default fewer for many rows, and for views whose columns have a Gram matrix of their own."""
    if estimator.n_frequencies != "auto":
        return int(estimator.n_frequencies)
    if not gaussian:
        return int(estimator._local_frequencies)
    return int(estimator._auto_frequencies if n_rows <= FEW_ROWS else estimator._fewer_frequencies)


def _landmarks(asked: int | str | None, n_rows: int) -> int | None:
    """Return how many rows to train on first."""
    if asked is None:
        return None
    count = int(asked) if asked != "auto" else N_LANDMARKS if n_rows > LANDMARK_ROWS else n_rows
    return count if count < n_rows else None


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        got = f"{name!r} ({str(error).splitlines()[0]})"
        raise InputError(message("a torch device", got, "use 'auto', 'cpu' or 'cuda'")) from error


def _starts(estimator: Any, layout: Layout, n_rows: int) -> tuple[Start, ...]:
    init, n_init = estimator.init, estimator.n_init
    names: list[Start]
    if isinstance(init, np.ndarray):
        names = [_check_start(init, n_rows, layout.n_components)]
    elif isinstance(init, list):
        names = [s if isinstance(s, str) else _check_start(s, n_rows, layout.n_components) for s in init]
    elif init == "auto":
        names = _race(estimator, layout, n_rows)
    else:
        names = [init]
    unknown = [name for name in names if isinstance(name, str) and name not in ALL_STARTS]
    if unknown or not names:
        raise InputError(message(f"init from {list(ALL_STARTS)}, or arrays", repr(init), "correct the list"))
    count = len(names) if n_init == "auto" else int(n_init)
    return tuple(names[i % len(names)] for i in range(count))


def _race(estimator: Any, layout: Layout, n_rows: int) -> list[Start]:
    """Return the starts of a race: those that fold and follow neighbours cost too much for many rows."""
    if n_rows <= LANDMARK_ROWS:
        return ["pca", "fold", "laplacian", *(["tsne"] if layout.shared <= TSNE_DIMENSIONS else [])]
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


def blocks(
    data: Views, scaled: Mapping[str, FloatArray], plan: Plan, offsets: Mapping[str, Tensor | None] | None = None
) -> Data:
    """Turn scaled views, shape (N, M_v), into blocks of observed entries on the plan's device.

    Those of a sparse X stay sparse; ``scaled`` is not looked at then.
    """
    out: list[tuple[Block, ...]] = []
    for v, view in enumerate(data.names):
        likelihood = None if plan.likelihoods is None else plan.likelihoods[v]
        if data.sparse:
            out.append((_sparse_block(data, view, likelihood, None if offsets is None else offsets[view], plan),))
            continue
        if isinstance(likelihood, LocalLikelihood):
            offset = None if offsets is None else offsets[view]
            out.append((_encoded(scaled[view], likelihood, offset, plan),))
            continue
        own, observed = [], ~np.isnan(scaled[view])
        per_column = isinstance(likelihood, Gaussian) and likelihood.per_column
        whole, groups = (by_pattern(observed), []) if per_column else split(observed)
        for rows, columns in whole:
            part, index = _part(scaled[view], rows, columns, plan)
            own.append(Block.of(part, index, torch.tensor(columns)))
        if groups:
            columns = np.concatenate(groups)
            rows = np.flatnonzero(~np.isnan(scaled[view][:, columns]).all(axis=1))
            part, index = _part(scaled[view], rows, columns, plan)
            own.append(Block.holed(part, index, torch.tensor(columns), tuple(map(len, groups))))
        out.append(tuple(own))
    return tuple(out)


def _sparse_block(data: Views, view: str, likelihood: Likelihood | None, offset: Tensor | None, plan: Plan) -> Block:
    values, centre = data.scaled_sparse(view)
    if not isinstance(likelihood, LocalLikelihood):
        return Block.of(SparseMatrix.of(values, centre, plan.dtype, plan.device))
    own = None if offset is None else offset.to(plan.device, plan.dtype)
    return Block.encoded(SparseMatrix.of(values, None, plan.dtype, plan.device), None, own)


def _part(values: FloatArray, rows: IntArray, columns: IntArray, plan: Plan) -> tuple[Tensor, Tensor | None]:
    """Some rows and columns as a tensor, and the rows as an index; None when they are all."""
    all_rows = len(rows) == values.shape[0]
    part = columns_of(values, columns) if all_rows else values[np.ix_(rows, columns)]
    Y = torch.from_numpy(part).to(plan.device, plan.dtype)
    return Y, None if all_rows else torch.tensor(rows, device=plan.device)


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

    Columns are centred and views scaled, as Gaussian data are; missing entries are filled.
    """
    if data.sparse:
        return _sparse_stand_ins(data, plan, offsets)
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
    ends = np.cumsum([own.shape[1] for own in out.values()])[:-1]
    tensors = [
        torch.tensor(own, dtype=plan.dtype, device=plan.device) for own in np.hsplit(filled(out, plan.seed), ends)
    ]
    present = [np.asarray(~np.isnan(own).all(axis=1)) for own in out.values()]
    return out, tuple((_present(Y, rows, plan),) for Y, rows in zip(tensors, present, strict=True))


def _sparse_stand_ins(
    data: Views, plan: Plan, offsets: Mapping[str, Tensor | None]
) -> tuple[dict[str, FloatArray], Data | None]:
    """The same of a sparse X; starts see the leading principal components of each view."""
    shown: dict[str, FloatArray] = {}
    out: list[tuple[Block, ...]] = []
    for view, likelihood in zip(data.names, plan.likelihoods or (), strict=True):
        values, centre = data.scaled_sparse(view)
        if isinstance(likelihood, LocalLikelihood):
            offset = offsets[view]

            def raw(part: FloatArray, rows: slice, own: LocalLikelihood = likelihood, o: Tensor | None = offset) -> Any:
                return own.stand_in(torch.from_numpy(part).double(), None if o is None else o[rows]).numpy()

            values = mapped(values, raw)
            centre, square = moments(values)
            scale = float(np.sqrt(square.sum() / (values.shape[0] * values.shape[1]))) or 1.0
            values, centre = values / scale, centre / scale
        out.append((Block.of(SparseMatrix.of(values, centre, plan.dtype, plan.device)),))
        shown[view] = leading(values, plan.seed)
    local = any(isinstance(own, LocalLikelihood) for own in plan.likelihoods or ())
    return shown, tuple(out) if local else None


def _present(Y: Tensor, rows: NDArray[np.bool_], plan: Plan) -> Block:
    if rows.all():
        return Block.of(Y)
    index = torch.tensor(np.flatnonzero(rows), device=plan.device)
    return Block.of(Y[index], index)


def filled(scaled: Mapping[str, FloatArray], seed: int, rows: IntArray | None = None) -> NDArray[np.float64]:
    """Return all views side by side, or some rows of them, with missing entries filled: for starts only."""
    parts = [own if rows is None else own[rows] for own in scaled.values()]
    return low_rank.fill(np.hstack(parts).astype(np.float64), seed)


def subset(n_rows: int, most: int, seed: int) -> NDArray[np.int64]:
    """Return at most ``most`` row numbers, ascending, drawn by the seed."""
    if n_rows <= most:
        return np.arange(n_rows)
    chosen = np.random.Generator(np.random.PCG64(seed)).choice(n_rows, most, replace=False)
    return np.sort(chosen)


def fitting(n_rows: int, n_columns: int) -> int:
    """Return how many rows, at most those, may be dense at once."""
    return max(1, min(n_rows, DENSE_NUMBERS // n_columns))


def telling(X: Any, columns: NDArray[np.intp]) -> NDArray[np.int64] | None:
    """Return the rows of a sparse X whose data likelihoods start from, the one with the largest value among them.

    None: all, because X is dense.
    """
    if isinstance(X, np.ndarray):
        return None
    part = sp.csr_array(X[:, columns])
    rows = set(subset(X.shape[0], fitting(N_LANDMARKS, columns.size), 0).tolist())
    if part.nnz:
        rows.add(int(np.searchsorted(part.indptr, int(part.data.argmax()), side="right")) - 1)
    return np.array(sorted(rows), dtype=np.int64)
