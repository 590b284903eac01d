"""The data of a fit: rows that are subset, what training and starts see of them, and how a model of
all rows comes out when training saw every one.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bochner.data.arrays import Float64Array
from bochner.data.columns import dense_rows
from bochner.fitting import landmarks
from bochner.fitting.drawn_columns import draw_columns
from bochner.fitting.noise_recalibration import Withheld, withhold
from bochner.fitting.plan import MANY_ROWS, Fit, Plan, evaluate
from bochner.fitting.svd_compression import Rotation, rotate
from bochner.initialization import iterative_pca
from bochner.likelihoods.likelihood import Gaussian, Likelihood
from bochner.linalg import cholesky
from bochner.models.lvm import Covariates, LatentVariableModel, ModelSpec
from bochner.models.sites import DENSE
from bochner.objectives.subset_sites import Anchors
from bochner.processes import ALONE, Processes
from bochner.progress import say
from bochner.regression.observations import Block, CompleteBlock, Data, has_holes
from bochner.weight_posterior.posterior import ViewPosterior

# Draws of the final bound of many rows: its standard error falls with the rows, too.
_FEW_DRAWS = 8
# And of many entries with sites, where a draw costs as much as ten steps.
_FEWER_DRAWS = 4
# Prior precision of the effects that are taken out of the data that starts are made of, in units of
# the noise: scaled covariates have about unit variance, and the data as well.
_RIDGE = 1.0
Stacked = Callable[[NDArray[np.intp] | None], Float64Array]


@dataclass(frozen=True)
class FitData:
    """Rows of every view.

    Attributes
    ----------
    blocks : tuple over views of tuples of Block
        Scaled, on the plan's device.
    n_rows : int
        N.
    stacked : callable
        Rows -> their scaled data, all views side by side, NaN where missing; None: all rows. What
        starts are made of.
    surrogates : tuple over views of tuples of Block, optional
        Complete Gaussian data in place of those of non-conjugate views, where training starts.
    covariates : Covariates
        Of all rows.
    checksum : int, optional
        Of the rows of all processes, where it tells data apart in place of the blocks.
    """

    blocks: Data
    n_rows: int
    stacked: Stacked
    covariates: Covariates
    surrogates: Data | None = None
    checksum: int | None = None

    def take(self, index: Tensor, processes: Processes = ALONE) -> FitData:
        """Return some rows, renumbered: of rows that are divided among processes all of these, in
        every process.
        """
        if processes.size > 1:
            return self._joined(index, processes)
        rows = index.cpu().numpy()
        some = self.surrogates
        return FitData(
            landmarks.take(self.blocks, index),
            index.shape[0],
            lambda chosen: self.stacked(rows if chosen is None else rows[chosen]),
            self.covariates.take(index),
            some and landmarks.take(some, index),
        )

    def _joined(self, index: Tensor, processes: Processes) -> FitData:
        """Return rows of all processes."""
        local = processes.local(index, self.n_rows)

        def known(block: Block) -> Block:
            plain = replace(block, columns=torch.arange(block.Y.shape[1]))
            (rows,) = landmarks.rows_of(((plain,),), local)
            # of a kind that is in memory
            some = block.subset(local[:0])
            where = block.Y.device, block.Y.dtype
            values = processes.joined(rows, index, self.n_rows).to(*where)
            offset = processes.joined(block.offsets(self.n_rows)[local], index, self.n_rows)
            return some.holding(values, offset.to(values))

        def of_all(data: Data) -> Data:
            return tuple(tuple(map(known, view)) for view in data)

        here = torch.from_numpy(self.stacked(local.numpy()))
        values = processes.joined(here, index, self.n_rows).numpy()
        return FitData(
            of_all(self.blocks),
            len(index),
            lambda chosen: values if chosen is None else values[chosen],
            self._joined_covariates(local, index, processes),
            self.surrogates and of_all(self.surrogates),
        )

    def _joined_covariates(
        self, local: Tensor, index: Tensor, processes: Processes
    ) -> Covariates:
        """Return those of rows of all processes."""
        known = self.covariates
        if not known.groups:
            return Covariates.none(len(index))
        values = processes.joined(known.take(local).values, index, self.n_rows)
        return replace(known, values=values)


@dataclass(frozen=True)
class Candidates:
    """Training rows that all processes know: from where rows are placed, and what reports look at.

    Attributes
    ----------
    latents : Tensor of shape (C, D)
    values : ndarray, sparse matrix or RowSource
        Rows among which the candidates are: all rows of one process, or the candidates.
    index : Tensor of shape (C,), int64
        Which of these rows they are.
    offsets : list over views of Tensor of shape (n,), or None
        Logarithms of these rows' size factors.
    covariates : Tensor of shape (n, L), float64
        Of these rows.
    fit, data, plan
        Of these rows.
    """

    latents: Tensor
    values: Any
    index: Tensor
    offsets: list[Tensor | None]
    covariates: Tensor
    fit: Fit
    data: FitData
    plan: Plan

    @classmethod
    def of(
        cls,
        fit: Fit,
        values: Any,
        offsets: list[Tensor | None],
        covariates: Tensor,
        data: FitData,
        kept: Tensor,
        plan: Plan,
    ) -> Candidates:
        """Take rows by their global numbers, (C,)."""
        processes = plan.processes
        n_rows = values.shape[0]
        if processes.size == 1:
            given = offsets, covariates, fit, data, plan
            return cls(fit.latents[kept], values, kept, *given)
        local = processes.local(kept, n_rows)
        latents = processes.joined(fit.latents[local], kept, n_rows)
        raw = torch.from_numpy(dense_rows(values, local.numpy()))
        rows = processes.joined(raw, kept, n_rows).numpy()

        def of_rows(offset: Tensor | None) -> Tensor | None:
            return None if offset is None else processes.joined(offset[local], kept, n_rows)

        draws = fit.latent_draws
        if draws is not None:
            here = draws[:, local].transpose(0, 1)
            draws = processes.joined(here, kept, n_rows).transpose(0, 1)
        every = torch.arange(len(kept))
        known = replace(fit, latents=latents, latent_draws=draws)
        alone = replace(plan, processes=ALONE)
        logs = [of_rows(offset) for offset in offsets]
        beside = covariates.new_zeros(len(kept), 0)
        if covariates.shape[1]:
            beside = processes.joined(covariates[local], kept, n_rows)
        some = data.take(kept, processes)
        return cls(latents, rows, every, logs, beside, known, some, alone)


@dataclass(frozen=True)
class NothingWithheld:
    """Training sees all of the data."""

    data: Data

    def counts(self) -> list[int]:
        """Return that no view loses an entry."""
        return [0] * len(self.data)

    def hide(self, values: Float64Array, ends: Sequence[int]) -> Float64Array:  # noqa: ARG002
        """Return the values as they are."""
        return values

    def recalibration(
        self,
        without: Callable[[], Sequence[ViewPosterior]],  # noqa: ARG002 - see Withheld
        latents: Tensor,  # noqa: ARG002
        covariates: Tensor,  # noqa: ARG002
    ) -> Callable[[Sequence[ViewPosterior]], tuple[ViewPosterior, ...]]:
        """Leave posteriors as they are: nothing says that the noise should be larger."""
        return tuple


class TrainingData:
    """What training and starts see of rows.

    Training goes without a few entries of views with scattered holes, and sees complete views on
    fewer columns where that loses next to nothing.

    Parameters
    ----------
    rows : FitData
    plan : Plan

    Attributes
    ----------
    complete : Data
        All columns, without the withheld entries.
    blocks : Data
        The same on fewer columns.
    drawn : Data
        The same, of which steps of training draw columns where there are many with holes.
    surrogates : Data or None
        Complete Gaussian data on fewer columns, where training starts if its own bound is
        expensive; None: it is not.
    rotation : Rotation
        What training on fewer columns leaves out.
    withheld : Withheld or NothingWithheld
    covariates : Covariates
        Of the rows. Starts are made of data without their linear effects: latents are for the rest.
    """

    def __init__(self, rows: FitData, plan: Plan) -> None:
        self.n_rows = rows.n_rows
        self._stacked = rows.stacked
        self._ends = _ends(rows.blocks if rows.surrogates is None else rows.surrogates)
        self._seed = plan.seed
        self._names = [view.name for view in plan.spec]
        self.covariates = rows.covariates
        scattered = has_holes(rows.blocks)
        conjugate = rows.surrogates is None
        self.withheld: Withheld | NothingWithheld = NothingWithheld(rows.blocks)
        per_column = [_has_noise_per_column(view.likelihood) for view in plan.spec]
        if (scattered and conjugate) or (any(per_column) and plan.processes.size == 1):
            self.withheld = withhold(
                rows.blocks, per_column, rows.n_rows, plan.seed, self._names
            )
        self.complete = self.withheld.data
        self.blocks, self.rotation = _rotated(self.complete, plan, plan.spec)
        self.surrogates = rows.surrogates
        self.drawn = self.blocks
        if rows.surrogates is not None:
            # a hundred rotated columns of surrogates say as much as all of them
            shown = self._without_withheld(rows, rows.surrogates, plan)
            self.surrogates, _ = _rotated(shown, plan, plan.spec.surrogate)
        elif scattered:
            self.surrogates, _ = _rotated(self._without_holes(plan), plan, plan.spec)
            self.drawn = draw_columns(self.blocks, self.filled + self._effects, plan)

    @functools.cached_property
    def filled(self) -> Float64Array:
        """All views side by side, missing and withheld entries filled and without the effects of
        covariates: what starts are made of.
        """
        values = self._shown - self._effects if self.covariates.groups else self._shown
        widths = dict(zip(self._names, np.diff(self._ends, prepend=0).tolist(), strict=True))
        return iterative_pca.fill(values, self._seed, widths=widths)

    @functools.cached_property
    def _shown(self) -> Float64Array:
        return self.withheld.hide(self._stacked(None), self._ends)

    @functools.cached_property
    def _effects(self) -> Float64Array | float:
        """What covariates add to every entry, (N, sum of M)."""
        if not self.covariates.groups:
            return 0.0
        effects: Float64Array = (
            linear_effects(self.covariates, torch.from_numpy(self._shown)).cpu().numpy()
        )
        return effects

    @property
    def by_view(self) -> list[Float64Array]:
        """The same, view by view."""
        return np.split(self.filled, self._ends[:-1], axis=1)

    @functools.cached_property
    def start_blocks(self) -> Data:
        """On which starts are compared by simple models."""
        blocks = self.blocks if self.surrogates is None else self.surrogates
        covariates = self.covariates
        if not covariates.groups:
            return blocks
        return tuple(
            tuple(_without_effects(block, covariates, self.n_rows) for block in view_blocks)
            for view_blocks in blocks
        )

    @property
    def n_entries(self) -> int:
        """Observed entries."""
        return sum(block.n_entries for blocks in self.blocks for block in blocks)

    def _without_withheld(self, rows: FitData, surrogates: Data, plan: Plan) -> Data:
        """Return surrogates of which the views that lose entries are filled without them."""
        out: list[tuple[Block, ...]] = []
        parts = zip(surrogates, rows.blocks, self.complete, self._ends, strict=True)
        for blocks, before, after, end in parts:
            if before is after:
                out.append(blocks)
                continue
            begin = end - sum(block.n_columns for block in blocks)
            values = (self.filled + self._effects)[:, begin:end]
            Y = torch.tensor(values, dtype=plan.dtype, device=plan.device)
            out.append((_present(Y, blocks),))
        return tuple(out)

    def _without_holes(self, plan: Plan) -> Data:
        """Return Gaussian data with their scattered holes filled."""
        out: list[tuple[Block, ...]] = []
        end = 0
        for blocks in self.complete:
            begin = end
            end += sum(block.n_columns for block in blocks)
            if has_holes((blocks,)):
                values = (self.filled + self._effects)[:, begin:end]
                Y = torch.tensor(values, dtype=plan.dtype, device=plan.device)
                out.append((_present(Y, blocks),))
            else:
                out.append(blocks)
        return tuple(out)


def _ends(data: Data) -> list[int]:
    """Return where each view ends among all columns."""
    return list(itertools.accumulate(sum(b.n_columns for b in blocks) for blocks in data))


def _has_noise_per_column(likelihood: Likelihood) -> bool:
    return isinstance(likelihood, Gaussian) and likelihood.per_column


def _present(Y: Tensor, blocks: tuple[Block, ...]) -> CompleteBlock:
    """Return the rows of Y that any of the blocks has."""
    present = torch.zeros(Y.shape[0], dtype=torch.bool, device=Y.device)
    for block in blocks:
        block.rows.mark(present)
    return CompleteBlock.present(Y, present)


@functools.singledispatch
def _without_effects(block: Block, covariates: Covariates, n_rows: int) -> Block:  # noqa: ARG001
    """Return a dense complete block without the linear effects of covariates; others stay."""
    return block


@_without_effects.register
def _(block: CompleteBlock, covariates: Covariates, n_rows: int) -> Block:
    if not isinstance(block.Y, Tensor):
        return block
    effects = linear_effects(covariates, block.Y, block.rows.numbers(n_rows))
    rest = block.Y - effects.to(block.Y)
    before, after = (float(Y.double().square().sum()) for Y in (block.Y, rest))
    return replace(block, Y=rest, square=block.square - before + after)


def linear_effects(covariates: Covariates, Y: Tensor, rows: Tensor | None = None) -> Tensor:
    """Return the linear effects of covariates on columns, by ridge regression on what is observed.

    Parameters
    ----------
    covariates : Covariates
    Y : Tensor of shape (n, m)
        NaN where missing.
    rows : Tensor of shape (n,), int64, optional
        Which rows these are; None: all.

    Returns
    -------
    Tensor of shape (n, m), float64
        What the covariates add to every entry.
    """
    known = covariates if rows is None else covariates.take(rows)
    design = known.values.double().to(Y.device)
    observed = (~Y.isnan()).double()
    cross = design.T @ torch.nan_to_num(Y.double())
    if bool(observed.all()):
        gram = (design.T @ design)[None]
    else:
        # as einsum multiplies three factors, all rows would stand beside all columns L times
        products = (design[:, :, None] * design[:, None]).flatten(1)
        n_covariates = design.shape[1]
        gram = (observed.T @ products).reshape(-1, n_covariates, n_covariates)
    gram.diagonal(dim1=-2, dim2=-1).add_(_RIDGE)
    if gram.shape[0] == 1:
        return design @ cholesky(gram[0]).solve(cross)
    return design @ cholesky(gram).solve(cross.T[..., None])[..., 0].T


def _rotated(data: Data, plan: Plan, spec: ModelSpec) -> tuple[Data, Rotation]:
    return rotate(data, plan.truncation, plan.seed, spec.likelihoods)


@dataclass(frozen=True)
class Finished:
    """A model of all rows.

    Attributes
    ----------
    model : LatentVariableModel
    elbo, elbo_se : float
        Mean over fresh draws, and its standard error, nats.
    landmarks : dict or None
        Their number, and the bound of all rows before and after the joint steps.
    anchors : Anchors or None
        The rows that sites belong to; None: all.
    interrupted : bool
        Whether the joint steps were cut short.
    """

    model: LatentVariableModel
    elbo: float
    elbo_se: float
    landmarks: dict[str, float] | None = None
    anchors: Anchors | None = None
    interrupted: bool = False


class RowSelection(Protocol):
    """Rows to train on, the plan for them, and how the others join."""

    rows: FitData
    plan: Plan

    def finish(
        self, model: LatentVariableModel, training: TrainingData, *, interrupted: bool
    ) -> Finished:
        """Return the model of all rows."""


class EveryRow:
    """Training sees all rows."""

    def __init__(self, data: FitData, plan: Plan) -> None:
        self.rows = data
        self.plan = plan

    def finish(
        self,
        model: LatentVariableModel,
        training: TrainingData,  # noqa: ARG002 - landmarks need it
        *,
        interrupted: bool,  # noqa: ARG002
    ) -> Finished:
        """Return the model with its bound."""
        return Finished(model, *final_bound(model, self.rows, self.plan))


def final_bound(model: LatentVariableModel, data: FitData, plan: Plan) -> tuple[float, float]:
    """Return the bound that is stated, and its standard error."""
    say("final bound")
    many = plan.processes.total(data.n_rows) > MANY_ROWS
    n_draws = _FEW_DRAWS if many else None
    entries = sum(block.n_entries for blocks in data.blocks for block in blocks)
    if model.has_sites and entries > DENSE:
        n_draws = _FEWER_DRAWS
    return evaluate(
        model,
        data.blocks,
        plan,
        "final",
        n_draws=n_draws,
        weighted=False,
        said="final bound",
    )
