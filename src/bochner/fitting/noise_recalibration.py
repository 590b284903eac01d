"""Entries that training does not see, and what they say about the noise of entries to come.

The noise of a fit is what its own latents leave of the entries they were trained on, and latents of
many dimensions leave less than they should: of 1,000 digits with a tenth hidden, 160 dimensions err
on the hidden pixels by half as much again as they expect. So training goes without a few entries of
the views that have scattered holes. They are predicted like the holes, and the noise of whatever is
predicted is raised until nine in ten of them lie inside their 90 % intervals: a level that a few
outliers do not move, as they would a mean of squares. Where every column has a noise of its own,
all are raised by the same factor: such tables are small, the factor is known from few entries, and
is drawn towards one as if a hundred more had lain where they should. In the end weights and latents
are conditioned on all entries.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
import torch
from torch import Tensor

from bochner import random
from bochner.data.arrays import Float64Array
from bochner.fitting.landmarks import rows_of
from bochner.latent_inference.infer import place
from bochner.prediction.completion import view_columns
from bochner.prediction.decoding import complete
from bochner.prediction.row_posterior import predictive_placement
from bochner.regression.observations import (
    Block,
    CompleteBlock,
    Data,
    IncompleteBlock,
    SomeRows,
)
from bochner.weight_posterior.posterior import ViewPosterior

# The share of the rows that lose some entries, the most of them, and the share of their entries.
_ROW_SHARE = 0.2
_MOST_ROWS = 256
_ENTRY_SHARE = 0.05
# Rows and columns with fewer observed entries lose none.
_MANY = 20
# Fewer entries of a view tell nothing.
_LEAST = 100
# Of views with a noise per column all rows up to the most lose that share: columns of tables are
# few. Fewer entries than that tell nothing, and a column with fewer loses none.
_COLUMN_SHARE = 0.1
_LEAST_OF_COLUMNS = 40
_MANY_OF_COLUMN = 20
# Of columns with a noise each: as many entries draw the factor towards one. Without them the tables
# of benchmarks/mixed.py whose intervals are right would be raised by chance: the 0.9 quantile of 50
# entries scatters by a quarter of the noise, the factors that are needed by a fifth.
_DRAWN_TO_ONE = 100.0
# What intervals hold, and their half width in standard deviations.
_LEVEL = 0.9
_EDGE = NormalDist().inv_cdf(0.5 + 0.5 * _LEVEL)


@dataclass(frozen=True)
class Withheld:
    """A part of the data.

    Attributes
    ----------
    data : tuple over views of tuples of Block
        Without the entries.
    rows : Tensor of shape (n,), int64
        That lose some.
    truth : sequence over views of Tensor of shape (n, M_v), float64
        The entries; NaN elsewhere.
    n_rows : int
        Of the data.
    """

    data: Data
    rows: Tensor
    truth: Sequence[Tensor]
    n_rows: int

    def counts(self) -> list[int]:
        """Return how many entries every view loses."""
        if not self.rows.numel():
            return [0] * len(self.data)
        return [int((~truth.isnan()).sum()) for truth in self.truth]

    def hide(self, values: Float64Array, ends: Sequence[int]) -> Float64Array:
        """Return all views side by side, (N, ...), without the entries, so that starts do not see
        them.

        Parameters
        ----------
        values : ndarray of shape (N, ...)
            Views that lose entries have their columns of data.
        ends : sequence over views of int
            Where each view ends among the columns.
        """
        if not self.rows.numel():
            return values
        values = values.copy()
        index = self.rows.numpy()[:, None]
        for truth, end in zip(self.truth, ends, strict=True):
            hidden = ~truth.isnan().numpy()
            if hidden.any():
                columns = np.arange(end - hidden.shape[1], end)
                values[index, columns] = np.where(hidden, np.nan, values[index, columns])
        return values

    def recalibration(
        self,
        without: Callable[[], Sequence[ViewPosterior]],
        latents: Tensor,
        covariates: Tensor,
    ) -> Callable[[Sequence[ViewPosterior]], tuple[ViewPosterior, ...]]:
        """Return what gives a posterior the noise that entries show; see `excess`."""
        if not self.rows.numel():
            return tuple
        excess = self.excess(without, latents, covariates)
        return functools.partial(_noisier, excess=excess)

    def excess(
        self,
        without: Callable[[], Sequence[ViewPosterior]],
        latents: Tensor,
        covariates: Tensor,
    ) -> list[Tensor]:
        """Return what every view's noise lacks for the intervals of its entries to hold what they
        say, at least 0: a number, or one per column where every column has a noise of its own.

        Parameters
        ----------
        without : callable
            Returns the posterior given the other entries.
        latents : Tensor of shape (N, D), float64
            Where training put the rows.
        covariates : Tensor of shape (N, L), float64
        """
        if not self.rows.numel():
            return [torch.zeros((), dtype=torch.float64)] * len(self.data)
        views = without()
        rows = rows_of(self.data, self.rows)
        offsets = [blocks[0].offsets(self.n_rows)[self.rows].cpu() for blocks in self.data]
        beside = covariates[self.rows]
        placed = place(views, latents, rows, offsets, encoded=True, covariates=beside)
        placed = predictive_placement(views, latents, placed, rows, offsets, encoded=True)
        mean, variance = complete(views, placed, offsets)
        return [
            _lacking(view, truth, mean[:, columns], variance[:, columns])
            for view, truth, columns in zip(
                views, self.truth, view_columns(views), strict=True
            )
        ]


def _lacking(view: ViewPosterior, truth: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """Return what the noise of a view lacks, a scalar or (M,); truth is NaN where nothing was
    withheld.
    """
    if bool(truth.isnan().all()):
        return torch.zeros((), dtype=torch.float64)
    # the noise with which an entry would lie on the edge of its interval, in units of the noise
    noise = torch.as_tensor(view.noise_variance, dtype=torch.float64)
    lacks = (((truth - mean) / _EDGE).square() - variance) / noise
    edge = torch.nanquantile(lacks, _LEVEL).clamp(min=0.0)
    n_entries = float((~truth.isnan()).sum())
    # one noise of many columns is known from a hundred entries or more
    known = n_entries / (n_entries + _DRAWN_TO_ONE) if noise.dim() else 1.0
    return known * edge * noise


def _noisier(
    posterior: Sequence[ViewPosterior], excess: Sequence[Tensor]
) -> tuple[ViewPosterior, ...]:
    """Add what withheld entries show to the noise of every view's predictions."""
    return tuple(
        replace(view, predictive_noise=(view.noise_variance + more).tolist())
        if bool((more > 0.0).any())
        else view
        for view, more in zip(posterior, excess, strict=True)
    )


def withhold(
    data: Data,
    per_column: Sequence[bool],
    n_rows: int,
    seed: int,
    names: Sequence[str] | None = None,
) -> Withheld:
    """Take a few entries out of the Gaussian views with scattered holes, where they are enough to
    tell anything.

    Parameters
    ----------
    data : tuple over views of tuples of Block
    per_column : sequence over views of bool
        Whether the view is Gaussian with a noise of its own for every column.
    n_rows : int
        N.
    seed : int
    names : sequence over views of str, optional
        Which entries are taken does not depend on the order of views that have names.
    """
    nothing = Withheld(data, torch.empty(0, dtype=torch.int64), (), n_rows)
    source = random.generator(seed, "withheld")
    n_some = n_rows if any(per_column) else int(_ROW_SHARE * n_rows)
    some = torch.randperm(n_rows, generator=source)[: min(_MOST_ROWS, n_some)].sort().values
    of_view = rows_of(data, some)
    uniform: dict[int, Tensor] = {}
    for v in sorted(range(len(data)), key=lambda v: names[v] if names is not None else v):
        uniform[v] = torch.rand(of_view[v].shape, generator=source, dtype=torch.float64)
    kept = []
    truth = []
    for v, (blocks, by_column, y) in enumerate(zip(data, per_column, of_view, strict=True)):
        share, least = (
            (_COLUMN_SHARE, _LEAST_OF_COLUMNS) if by_column else (_ENTRY_SHARE, _LEAST)
        )
        drawn = uniform[v] < share
        remaining = list(blocks)
        hidden = torch.zeros_like(drawn)
        for b, block in enumerate(blocks):
            may = drawn[:, block.columns] & _able(
                block, ~y[:, block.columns].isnan(), by_column
            )
            hidden[:, block.columns] = may
            remaining[b] = _without(block, some, may, n_rows)
        enough = int(hidden.sum()) >= least
        kept.append(tuple(remaining) if enough else blocks)
        truth.append(torch.where(hidden & enough, y, torch.nan))
    if all(bool(y.isnan().all()) for y in truth):
        return nothing
    return Withheld(tuple(kept), some, truth, n_rows)


@functools.singledispatch
def _able(block: Block, shown: Tensor, by_column: bool) -> Tensor:  # noqa: ARG001 - others lose nothing
    """Mark the observed entries (n, m) that may be withheld: those with holes beside them, in rows
    and columns which have many.
    """
    return torch.zeros_like(shown)


@_able.register
def _(block: IncompleteBlock, shown: Tensor, by_column: bool) -> Tensor:  # noqa: ARG001
    of_column = block.observed.sum(0).cpu()
    return shown & (shown.sum(1, keepdim=True) >= _MANY) & (of_column >= _MANY)


@_able.register
def _(block: CompleteBlock, shown: Tensor, by_column: bool) -> Tensor:
    """Mark those of a single column that some rows lack, where its noise is its own."""
    alone = by_column and block.n_columns == 1 and isinstance(block.rows, SomeRows)
    return shown & (alone and block.n_rows >= _MANY_OF_COLUMN)


@functools.singledispatch
def _without(block: Block, some: Tensor, hidden: Tensor, n_rows: int) -> Block:  # noqa: ARG001
    """Return a block without the entries that are hidden in some rows."""
    return block


@_without.register
def _(block: IncompleteBlock, some: Tensor, hidden: Tensor, n_rows: int) -> Block:
    gone = torch.zeros(n_rows, hidden.shape[1], dtype=torch.bool)
    gone[some] = hidden
    return block.without(gone)


@_without.register
def _(block: CompleteBlock, some: Tensor, hidden: Tensor, n_rows: int) -> Block:
    if not bool(hidden.any()):
        return block
    gone = torch.zeros(n_rows, dtype=torch.bool)
    gone[some] = hidden[:, 0]
    stays = ~gone[block.rows.numbers(n_rows)]
    rows = block.rows.numbers(n_rows)[stays]
    device = block.Y.device
    return block.take(stays.nonzero()[:, 0].to(device), SomeRows(rows.to(device)))
