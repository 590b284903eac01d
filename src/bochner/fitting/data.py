"""The data of a fit: rows that are subset, and what training and starts see of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bochner.fitting import landmarks
from bochner.fitting.noise_recalibration import Withheld, withhold
from bochner.fitting.plan import Plan
from bochner.fitting.svd_compression import Rotation, rotate
from bochner.initialization import iterative_pca
from bochner.initialization.build import FloatArray
from bochner.models.spec import ModelSpec
from bochner.regression.observations import Block, CompleteBlock, Data, has_holes
from bochner.weight_posterior.posterior import ViewPosterior

Stacked = Callable[[NDArray[np.intp] | None], FloatArray]


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
    """

    blocks: Data
    n_rows: int
    stacked: Stacked
    surrogates: Data | None = None

    def take(self, index: Tensor) -> FitData:
        """Return some rows, renumbered."""
        rows = index.cpu().numpy()
        some = self.surrogates
        return FitData(
            landmarks.take(self.blocks, index),
            index.shape[0],
            lambda chosen: self.stacked(rows if chosen is None else rows[chosen]),
            some and landmarks.take(some, index),
        )


@dataclass(frozen=True)
class NothingWithheld:
    """Training sees all of the data."""

    data: Data

    def hide(self, values: FloatArray) -> FloatArray:
        """Return the values as they are."""
        return values

    def excess(
        self,
        without: Callable[[], Sequence[ViewPosterior]],  # noqa: ARG002 - see Withheld
        latents: Tensor,  # noqa: ARG002
    ) -> list[float]:
        """Return 0 for every view: nothing says that the noise should be larger."""
        return [0.0] * len(self.data)


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
    surrogates : Data or None
        Complete Gaussian data on fewer columns, where training starts if its own bound is
        expensive; None: it is not.
    rotation : Rotation
        What training on fewer columns leaves out.
    withheld : Withheld or NothingWithheld
    """

    def __init__(self, rows: FitData, plan: Plan) -> None:
        self.n_rows = rows.n_rows
        self._stacked = rows.stacked
        self._seed = plan.seed
        scattered = has_holes(rows.blocks)
        conjugate = rows.surrogates is None
        self.withheld: Withheld | NothingWithheld = NothingWithheld(rows.blocks)
        if scattered and conjugate:
            self.withheld = withhold(rows.blocks, rows.n_rows, plan.seed)
        self.complete = self.withheld.data
        self.blocks, self.rotation = _rotated(self.complete, plan, plan.spec)
        self.surrogates = rows.surrogates
        if rows.surrogates is not None:
            # a hundred rotated columns of surrogates say as much as all of them
            self.surrogates, _ = _rotated(rows.surrogates, plan, plan.spec.surrogate)
        elif scattered:
            self.surrogates, _ = _rotated(self._without_holes(plan), plan, plan.spec)

    @functools.cached_property
    def filled(self) -> FloatArray:
        """All views side by side, missing and withheld entries filled: what starts are made of."""
        values = self.withheld.hide(self._stacked(None))
        return iterative_pca.fill(values, self._seed) if np.isnan(values).any() else values

    @property
    def by_view(self) -> list[FloatArray]:
        """The same, view by view."""
        widths = [sum(block.n_columns for block in blocks) for blocks in self.start_blocks]
        return np.split(self.filled, np.cumsum(widths)[:-1], axis=1)

    @property
    def start_blocks(self) -> Data:
        """On which starts are compared by simple models."""
        return self.blocks if self.surrogates is None else self.surrogates

    @property
    def n_entries(self) -> int:
        """Observed entries."""
        return sum(block.n_entries for blocks in self.blocks for block in blocks)

    def _without_holes(self, plan: Plan) -> Data:
        """Return Gaussian data with their scattered holes filled."""
        out: list[tuple[Block, ...]] = []
        end = 0
        for blocks in self.complete:
            begin = end
            end += sum(block.n_columns for block in blocks)
            if has_holes((blocks,)):
                values = self.filled[:, begin:end]
                Y = torch.tensor(values, dtype=plan.dtype, device=plan.device)
                out.append((_present(Y, blocks),))
            else:
                out.append(blocks)
        return tuple(out)


def _present(Y: Tensor, blocks: tuple[Block, ...]) -> CompleteBlock:
    """Return the rows of Y that any of the blocks has."""
    present = torch.zeros(Y.shape[0], dtype=torch.bool, device=Y.device)
    for block in blocks:
        block.rows.mark(present)
    return CompleteBlock.present(Y, present)


def _rotated(data: Data, plan: Plan, spec: ModelSpec) -> tuple[Data, Rotation]:
    return rotate(data, plan.truncation, plan.seed, spec.likelihoods)
