"""From checked data to the tensors that inference takes, and to what starts see of them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from bochner.data.arrays import FloatArray, IntArray
from bochner.data.columns import columns_of, dense_rows
from bochner.data.masks import FullMask
from bochner.data.missing import blocks as by_pattern
from bochner.data.missing import observed_in, split, split_rows
from bochner.data.row_sources import RowSource
from bochner.data.sparse import SparseMatrix, leading, mapped, moments
from bochner.data.stored import MappedMatrix, StoredMatrix
from bochner.data.views import Scaling, Views
from bochner.estimators import shards
from bochner.estimators.settings.plans import divisible
from bochner.estimators.surrogates import Surrogate
from bochner.fitting.data import FitData
from bochner.fitting.plan import Plan
from bochner.initialization import iterative_pca
from bochner.likelihoods.likelihood import Likelihood, of_each_row, rows_of
from bochner.likelihoods.nonconjugate import NonConjugateLikelihood
from bochner.models.lvm import Covariates, ViewSpec
from bochner.processes import Processes
from bochner.regression.observations import (
    Block,
    CompleteBlock,
    Data,
    EncodedBlock,
    IncompleteBlock,
    Rows,
)
from bochner.regression.streamed import StreamedBlock

# Numbers of a sparse X that may be dense at once.
DENSE_NUMBERS = 2**24
# Rows of a sparse X whose data likelihoods start from.
_SAMPLED_ROWS = 2000

Offsets = Mapping[str, Tensor | None]


def fit_data(
    data: Views,
    plan: Plan,
    offsets: Offsets,
    covariates: Covariates,
    size_factors: object = None,
) -> FitData:
    """Turn checked views into what a fit takes, on the plan's device.

    Parameters
    ----------
    data : Views
    plan : Plan
    offsets : mapping of view to Tensor of shape (N,) or None
        Logarithms of the rows' size factors.
    covariates : Covariates
    size_factors : optional
        As given: what else tells rows from others.

    Returns
    -------
    FitData
    """
    source = _views(data.X, data, plan, offsets)
    beside = replace(covariates, values=covariates.values.to(plan.device, plan.dtype))
    n_rows = data.X.shape[0]
    parts_of_fit = (source.blocks(), n_rows, source.stacked, beside, source.surrogates())
    if plan.checkpoint is None or not divisible(data, plan.spec, plan.landmarks):
        return FitData(*parts_of_fit)
    known = (data.X, covariates, size_factors, plan.processes)
    return FitData(*parts_of_fit, checksum=shards.checksum(*known))


class _Views(Protocol):
    """What a fit takes of a kind of X."""

    def blocks(self) -> Data:
        """Return the blocks of observed entries of every view."""

    def stacked(self, rows: IntArray | None) -> NDArray[np.float64]:
        """Return views as starts see them side by side, NaN where missing; None: all rows."""

    def surrogates(self) -> Data | None:
        """Return surrogates as blocks, missing entries filled; None if all views are conjugate."""


@functools.singledispatch
def _views(X: object, data: Views, plan: Plan, offsets: Offsets) -> _Views:
    return (_SparseViews if sp.issparse(X) else _DenseViews)(data, plan, offsets)


@_views.register
def _(X: RowSource, data: Views, plan: Plan, offsets: Offsets) -> _Views:
    return _StoredViews(X, data, plan, offsets)


@dataclass(frozen=True)
class _StoredViews:
    """Views of rows that are read block by block."""

    source: RowSource
    data: Views
    plan: Plan
    offsets: Offsets

    def blocks(self) -> Data:
        """Return the blocks of observed entries of every view."""
        return tuple(self._view(spec) for spec in self.plan.spec)

    def _view(self, spec: ViewSpec) -> tuple[Block, ...]:
        name = spec.name
        if not spec.conjugate:
            matrix = self._matrix(name, np.arange(len(self.data.columns[name])), None)
            offset = of_each_row(self.offsets.get(name), matrix.shape[0], _like(self.plan))
            every = torch.arange(matrix.shape[1])
            return (EncodedBlock(matrix, Rows.of(None), every, FullMask(), offset),)
        positions = self.data.columns[name]
        whole, groups = self.data.divided(name, self.plan.processes)
        out: list[Block] = []
        for rows, columns in whole:
            index = self._index(rows)
            matrix = self._matrix(name, columns, index)
            out.append(CompleteBlock.of(matrix, index, torch.tensor(columns)))
        if groups:
            columns = np.concatenate(groups)
            rows, count = observed_in(self.source, positions[columns])
            index = self._index(rows)
            matrix = self._matrix(name, columns, index)
            rest = (Rows.of(index), torch.tensor(columns), tuple(map(len, groups)), count)
            out.append(StreamedBlock(matrix, *rest))
        return tuple(out)

    def _index(self, rows: IntArray) -> Tensor | None:
        every = len(rows) == self.source.n_rows
        return None if every else torch.tensor(rows, device=self.plan.device)

    def stacked(self, rows: IntArray | None) -> NDArray[np.float64]:
        """Return rows of all views side by side."""
        some = self.source.whole() if rows is None else self.source.take(rows)
        scaled = {}
        for view, columns in self.data.columns.items():
            values = columns_of(some, columns)
            surrogate = self._surrogates.get(view)
            scaled[view] = (
                self.data.scaling_of(view).apply(values)
                if surrogate is None
                else surrogate(values, slice(None) if rows is None else rows)
            )
        return side_by_side(scaled)

    def surrogates(self) -> Data | None:
        """Return surrogates as blocks; None if all views are conjugate."""
        if self.plan.spec.conjugate:
            return None
        return tuple(
            self._view(spec) if spec.conjugate else (self._surrogate(spec.name),)
            for spec in self.plan.spec
        )

    @functools.cached_property
    def _surrogates(self) -> dict[str, Surrogate]:
        given = (self.source, self.plan.processes)
        among = self.offsets
        columns = self.data.columns
        return {
            spec.name: Surrogate.fit(
                spec.likelihood, among.get(spec.name), columns[spec.name], *given
            )
            for spec in self.plan.spec
            if isinstance(spec.likelihood, NonConjugateLikelihood)
        }

    def _surrogate(self, name: str) -> Block:
        columns = self.data.columns[name]
        where = (self.plan.dtype, self.plan.device)
        matrix = MappedMatrix(self.source, columns, self._surrogates[name], *where)
        # in units of their standard deviation: so many squares, whichever rows are taken of it
        square = float(matrix.numel())
        return CompleteBlock(matrix, Rows.of(None), torch.arange(len(columns)), square)

    def _matrix(self, name: str, columns: IntArray, index: Tensor | None) -> StoredMatrix:
        data, plan = self.data, self.plan
        of_view, positions = data.scaling_of(name), data.columns[name][columns]
        scaling = Scaling(of_view.centre[columns], of_view.scale[columns])
        where = (plan.dtype, plan.device)
        rows = None if index is None else index.cpu()
        return StoredMatrix(self.source, positions, scaling, *where, rows=rows)


class _DenseViews:
    """Views of a dense X, NaN where missing."""

    def __init__(self, data: Views, plan: Plan, offsets: Offsets) -> None:
        self.plan = plan
        self.offsets = offsets
        self.scaled = {view: data.scaled(view) for view in data.names}
        self.conjugate = plan.spec.conjugate

    def blocks(self) -> Data:
        """Return the blocks of observed entries of every view."""
        return tuple(self._view(spec) for spec in self.plan.spec)

    def stacked(self, rows: IntArray | None) -> NDArray[np.float64]:
        """Return Gaussian surrogates of the views side by side."""
        return side_by_side(self._surrogates, rows)

    def surrogates(self) -> Data | None:
        """Return surrogates as blocks, missing entries filled; None if all views are conjugate."""
        if self.conjugate:
            return None
        values = self._surrogates
        widths = {view: part.shape[1] for view, part in values.items()}
        filled = iterative_pca.fill(side_by_side(values), self.plan.seed, widths=widths)
        out, ends = [], np.cumsum(list(widths.values()))[:-1]
        for part, raw in zip(np.hsplit(filled, ends), values.values(), strict=True):
            Y = torch.tensor(part, dtype=self.plan.dtype, device=self.plan.device)
            present = torch.tensor(~np.isnan(raw).all(axis=1), device=Y.device)
            out.append((CompleteBlock.present(Y, present),))
        return tuple(out)

    @functools.cached_property
    def _surrogates(self) -> dict[str, FloatArray]:
        """Columns are centred and views scaled, as Gaussian data are."""
        out = dict(self.scaled)
        for spec in self.plan.spec:
            given = (self.scaled[spec.name], self.offsets.get(spec.name), self.plan.processes)
            out[spec.name] = _surrogate(spec.likelihood, *given)
        return out

    def _view(self, spec: ViewSpec) -> tuple[Block, ...]:
        offset = self.offsets.get(spec.name)
        return _blocks(spec.likelihood, self.scaled[spec.name], offset, self.plan)


@dataclass(frozen=True)
class _SparseViews:
    """Views of a sparse X, which are never dense as a whole."""

    data: Views
    plan: Plan
    offsets: Offsets

    def blocks(self) -> Data:
        """Return one block a view."""
        return tuple((self._view(spec),) for spec in self.plan.spec)

    def stacked(self, rows: IntArray | None) -> NDArray[np.float64]:
        """Return the leading principal components of every view's surrogate side by side."""
        return side_by_side(self._components, rows)

    @functools.cached_property
    def _components(self) -> dict[str, FloatArray]:
        seed = self.plan.seed
        return {name: leading(values, seed) for name, (values, _) in self._surrogates.items()}

    def surrogates(self) -> Data | None:
        """Return surrogates as blocks; None if all views are conjugate."""
        if self.plan.spec.conjugate:
            return None
        matrices = (self._matrix(*parts) for parts in self._surrogates.values())
        return tuple((CompleteBlock.of(matrix),) for matrix in matrices)

    @functools.cached_property
    def _surrogates(self) -> dict[str, tuple[object, FloatArray]]:
        """Values and centre of every view, scaled as Gaussian data are."""
        out = {}
        for spec in self.plan.spec:
            offset = self.offsets.get(spec.name)
            scaled = self.data.scaled_sparse(spec.name)
            out[spec.name] = _sparse_surrogate(spec.likelihood, *scaled, offset)
        return out

    def _view(self, spec: ViewSpec) -> Block:
        # unscaled views have a centre of 0
        Y = self._matrix(*self.data.scaled_sparse(spec.name))
        offset = of_each_row(self.offsets.get(spec.name), Y.shape[0], _like(self.plan))
        return _sparse_block(spec.likelihood, Y, offset)

    def _matrix(self, values: object, centre: FloatArray) -> SparseMatrix:
        return SparseMatrix.of(values, centre, self.plan.dtype, self.plan.device)


@functools.singledispatch
def _blocks(
    likelihood: Likelihood,
    values: FloatArray,
    offset: Tensor | None,  # noqa: ARG001 - Gaussian rows have none
    plan: Plan,
) -> tuple[Block, ...]:
    """Return the blocks of a dense view."""
    observed = ~np.isnan(values)
    blockwise = not likelihood.one_variance or bool(observed.all())
    whole: list[tuple[IntArray, IntArray]]
    if plan.processes.size > 1:
        whole, groups = split_rows(values, np.arange(values.shape[1]), plan.processes)
    else:
        whole, groups = (by_pattern(observed), []) if blockwise else split(observed)
    out: list[Block] = []
    for rows, columns in whole:
        Y, index = _part(values, rows, columns, plan)
        out.append(CompleteBlock.of(Y, index, torch.tensor(columns)))
    if groups:
        columns = np.concatenate(groups)
        rows = np.flatnonzero(~np.isnan(values[:, columns]).all(axis=1))
        Y, index = _part(values, rows, columns, plan)
        sizes = tuple(map(len, groups))
        out.append(IncompleteBlock.of(Y, index, torch.tensor(columns), sizes))
    return tuple(out)


@_blocks.register
def _(
    likelihood: NonConjugateLikelihood, values: FloatArray, offset: Tensor | None, plan: Plan
) -> tuple[Block, ...]:
    return (_encoded(values, likelihood, offset, plan),)


@functools.singledispatch
def _surrogate(
    likelihood: Likelihood,  # noqa: ARG001 - Gaussian data are their own
    values: FloatArray,
    offset: Tensor | None,  # noqa: ARG001
    processes: Processes,  # noqa: ARG001
) -> FloatArray:
    """Return what starts see of a dense view: centred and scaled as Gaussian data are."""
    return values


@_surrogate.register
def _(
    likelihood: NonConjugateLikelihood,
    values: FloatArray,
    offset: Tensor | None,
    processes: Processes,
) -> FloatArray:
    raw = likelihood.surrogate(torch.tensor(values, dtype=torch.float64), offset)
    centred = raw - torch.nan_to_num(_mean(raw, processes))
    scale = float(_mean(centred.reshape(-1).square(), processes).sqrt())
    out: FloatArray = (centred / (scale if scale > 0 else 1.0)).numpy()
    return out


def _mean(values: Tensor, processes: Processes) -> Tensor:
    """Return the mean of what is observed in every column over the rows of all processes."""
    total, count = processes.sums([values.nansum(0), (~values.isnan()).double().sum(0)])
    return total / count


@functools.singledispatch
def _sparse_surrogate(
    likelihood: Likelihood,  # noqa: ARG001 - Gaussian data are their own
    values: sp.csr_array,
    centre: FloatArray,
    offset: Tensor | None,  # noqa: ARG001
) -> tuple[object, FloatArray]:
    """Return values and centre of a sparse view as starts see it."""
    return values, centre


@_sparse_surrogate.register
def _(
    likelihood: NonConjugateLikelihood,
    values: sp.csr_array,
    centre: FloatArray,
    offset: Tensor | None,
) -> tuple[object, FloatArray]:
    values = mapped(values, functools.partial(_raw, likelihood, offset))
    centre, square = moments(values)
    scale = float(np.sqrt(square.sum() / (values.shape[0] * values.shape[1]))) or 1.0
    return values / scale, centre / scale


@functools.singledispatch
def _sparse_block(
    likelihood: Likelihood,  # noqa: ARG001 - says of what kind the view is
    Y: SparseMatrix,
    offset: Tensor,  # noqa: ARG001 - Gaussian rows have none
) -> Block:
    """Return the block of a sparse view."""
    return CompleteBlock.of(Y)


@_sparse_block.register
def _(
    likelihood: NonConjugateLikelihood,  # noqa: ARG001
    Y: SparseMatrix,
    offset: Tensor,
) -> Block:
    return EncodedBlock.of(Y, None, offset)


def _like(plan: Plan) -> Tensor:
    return torch.empty(0, dtype=plan.dtype, device=plan.device)


def _raw(
    likelihood: NonConjugateLikelihood, offset: Tensor | None, part: FloatArray, rows: slice
) -> FloatArray:
    """Return the surrogate of some rows."""
    data = torch.from_numpy(part).double()
    values: FloatArray = likelihood.surrogate(data, rows_of(offset, rows)).numpy()
    return values


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
    """The rows of a non-conjugate view that have any entry, as its likelihood sees them."""
    present = ~np.isnan(values).all(axis=1)
    rows = None
    if not present.all():
        rows = torch.tensor(np.flatnonzero(present), device=plan.device)
    data = torch.tensor(values[present], dtype=torch.float64)
    Y = likelihood.encode(data).to(plan.device, plan.dtype)
    some = rows_of(offset, torch.from_numpy(present))
    return EncodedBlock.of(Y, rows, of_each_row(some, Y.shape[0], Y))


def side_by_side(
    scaled: Mapping[str, FloatArray], rows: IntArray | None = None
) -> NDArray[np.float64]:
    """Return all views, or some rows of them, in one matrix."""
    parts = [part if rows is None else part[rows] for part in scaled.values()]
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


def informative_rows(
    X: Any, columns: NDArray[np.intp], likelihood: Likelihood, processes: Processes
) -> NDArray[np.int64]:
    """Return the numbers of the rows whose data a likelihood starts from, among those of all
    processes: all rows of a dense X where it has to know them, the one with the largest value
    among them where X is sparse.
    """
    n_rows = processes.total(X.shape[0])
    if likelihood.knows_by_rows:
        return subset(n_rows, fitting(_SAMPLED_ROWS, columns.size), 0)
    if isinstance(X, np.ndarray):
        return np.arange(n_rows)
    part = sp.csr_array(X[:, columns])
    rows = set(subset(X.shape[0], fitting(_SAMPLED_ROWS, columns.size), 0).tolist())
    if part.nnz:
        rows.add(int(np.searchsorted(part.indptr, int(part.data.argmax()), side="right")) - 1)
    return np.array(sorted(rows), dtype=np.int64)


def informative_data(
    data: Views,
    view: str,
    likelihood: Likelihood,
    offset: Tensor | None,
    processes: Processes,
) -> tuple[Tensor, Tensor | None]:
    """Return the data that a likelihood starts from, (n, M_v), with their offsets, (n,): the same
    in every process.
    """
    columns = data.columns[view]
    n_rows = data.X.shape[0]
    rows = torch.from_numpy(informative_rows(data.X, columns, likelihood, processes))
    here = processes.local(rows, n_rows)
    some = dense_rows(data.X, here.numpy())[:, columns].astype(np.float64)
    part = torch.from_numpy(data.scaling_of(view).apply(some))
    values = processes.joined(part, rows, n_rows)
    if offset is None:
        return values, None
    return values, processes.joined(offset[here], rows, n_rows)
