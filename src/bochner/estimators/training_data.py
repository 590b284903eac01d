"""From checked data to the tensors that inference takes, and to what starts see of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from bochner.data.columns import IntArray, columns_of
from bochner.data.missing import split
from bochner.data.sparse import SparseMatrix, leading, mapped, moments
from bochner.data.views import Views
from bochner.data.views import blocks as by_pattern
from bochner.fitting.plan import Plan
from bochner.initialization import iterative_pca
from bochner.likelihoods.gaussian import Gaussian
from bochner.likelihoods.nonconjugate import Likelihood, NonConjugateLikelihood
from bochner.objectives.elbo import Data
from bochner.regression.statistics import Block

FloatArray = NDArray[np.floating[Any]]

# Numbers of a sparse X that may be dense at once.
DENSE_NUMBERS = 2**24
# Rows of a sparse X whose data likelihoods start from.
_TELLING_ROWS = 2000


def blocks(
    data: Views,
    scaled: Mapping[str, FloatArray],
    plan: Plan,
    offsets: Mapping[str, Tensor | None] | None = None,
) -> Data:
    """Turn scaled views, shape (N, M_v), into blocks of observed entries on the plan's device.

    Those of a sparse X stay sparse; ``scaled`` is not looked at then.
    """
    out: list[tuple[Block, ...]] = []
    for v, view in enumerate(data.names):
        likelihood = None if plan.likelihoods is None else plan.likelihoods[v]
        if data.sparse:
            out.append(
                (
                    _sparse_block(
                        data, view, likelihood, None if offsets is None else offsets[view], plan
                    ),
                )
            )
            continue
        if isinstance(likelihood, NonConjugateLikelihood):
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


def _sparse_block(
    data: Views, view: str, likelihood: Likelihood | None, offset: Tensor | None, plan: Plan
) -> Block:
    values, centre = data.scaled_sparse(view)
    if not isinstance(likelihood, NonConjugateLikelihood):
        return Block.of(SparseMatrix.of(values, centre, plan.dtype, plan.device))
    own = None if offset is None else offset.to(plan.device, plan.dtype)
    # unscaled views have a centre of 0
    return Block.encoded(SparseMatrix.of(values, centre, plan.dtype, plan.device), None, own)


def _part(
    values: FloatArray, rows: IntArray, columns: IntArray, plan: Plan
) -> tuple[Tensor, Tensor | None]:
    """Some rows and columns as a tensor, and the rows as an index; None when they are all."""
    all_rows = len(rows) == values.shape[0]
    part = columns_of(values, columns) if all_rows else values[np.ix_(rows, columns)]
    Y = torch.from_numpy(part).to(plan.device, plan.dtype)
    return Y, None if all_rows else torch.tensor(rows, device=plan.device)


def _encoded(
    values: FloatArray, likelihood: NonConjugateLikelihood, offset: Tensor | None, plan: Plan
) -> Block:
    """The rows of a view that is not Gaussian that have any entry, as its likelihood sees them."""
    present = ~np.isnan(values).all(axis=1)
    rows = None if present.all() else torch.tensor(np.flatnonzero(present), device=plan.device)
    Y = likelihood.encode(torch.tensor(values[present], dtype=torch.float64)).to(
        plan.device, plan.dtype
    )
    own = None if offset is None else offset[torch.from_numpy(present)].to(plan.device, plan.dtype)
    return Block.encoded(Y, rows, own)


def stand_ins(
    data: Views, scaled: Mapping[str, FloatArray], plan: Plan, offsets: Mapping[str, Tensor | None]
) -> tuple[dict[str, FloatArray], Data | None]:
    """Return Gaussian stand-ins of the views, by view and as blocks; no blocks when all views are
    Gaussian.

    Columns are centred and views scaled, as Gaussian data are; missing entries are filled.
    """
    if data.sparse:
        return _sparse_stand_ins(data, plan, offsets)
    out: dict[str, FloatArray] = {}
    some = False
    for view, likelihood in zip(data.names, plan.likelihoods or (), strict=True):
        out[view] = scaled[view]
        if isinstance(likelihood, NonConjugateLikelihood):
            some = True
            raw = likelihood.stand_in(
                torch.tensor(scaled[view], dtype=torch.float64), offsets[view]
            ).numpy()
            centred = raw - np.nan_to_num(np.nanmean(raw, axis=0))
            scale = float(np.sqrt(np.nanmean(np.square(centred))))
            out[view] = centred / (scale if scale > 0 else 1.0)
    if not some:
        return out, None
    ends = np.cumsum([own.shape[1] for own in out.values()])[:-1]
    parts = np.hsplit(iterative_pca.fill(side_by_side(out), plan.seed), ends)
    tensors = [torch.tensor(own, dtype=plan.dtype, device=plan.device) for own in parts]
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
        if isinstance(likelihood, NonConjugateLikelihood):
            offset = offsets[view]

            def raw(
                part: FloatArray,
                rows: slice,
                own: NonConjugateLikelihood = likelihood,
                o: Tensor | None = offset,
            ) -> Any:
                return own.stand_in(
                    torch.from_numpy(part).double(), None if o is None else o[rows]
                ).numpy()

            values = mapped(values, raw)
            centre, square = moments(values)
            scale = float(np.sqrt(square.sum() / (values.shape[0] * values.shape[1]))) or 1.0
            values, centre = values / scale, centre / scale
        out.append((Block.of(SparseMatrix.of(values, centre, plan.dtype, plan.device)),))
        shown[view] = leading(values, plan.seed)
    local = any(isinstance(own, NonConjugateLikelihood) for own in plan.likelihoods or ())
    return shown, tuple(out) if local else None


def _present(Y: Tensor, rows: NDArray[np.bool_], plan: Plan) -> Block:
    if rows.all():
        return Block.of(Y)
    index = torch.tensor(np.flatnonzero(rows), device=plan.device)
    return Block.of(Y[index], index)


def side_by_side(
    scaled: Mapping[str, FloatArray], rows: IntArray | None = None
) -> NDArray[np.float64]:
    """Return all views, or some rows of them, in one matrix."""
    parts = [own if rows is None else own[rows] for own in scaled.values()]
    return np.hstack(parts).astype(np.float64, copy=False)


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
    """Return the rows of a sparse X whose data likelihoods start from, the one with the largest
    value among them.

    None: all, because X is dense.
    """
    if isinstance(X, np.ndarray):
        return None
    part = sp.csr_array(X[:, columns])
    rows = set(subset(X.shape[0], fitting(_TELLING_ROWS, columns.size), 0).tolist())
    if part.nnz:
        rows.add(int(np.searchsorted(part.indptr, int(part.data.argmax()), side="right")) - 1)
    return np.array(sorted(rows), dtype=np.int64)
