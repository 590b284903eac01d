"""Entries that training does not see, and what they say about the noise of entries to come.

The noise of a fit is what its own latents leave of the entries they were trained on, and latents of
many dimensions leave less than they should: of 1,000 digits with a tenth hidden, 160 dimensions err
on the hidden pixels by half as much again as they expect. So training goes without a few entries of
the views that have scattered holes. They are predicted like the holes, and the noise of whatever is
predicted is raised until nine in ten of them lie inside their 90 % intervals: a level that a few
outliers do not move, as they would a mean of squares. In the end weights and latents are
conditioned on all entries.
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
from bochner.fitting.landmarks import rows_of
from bochner.initialization.embeddings import FloatArray
from bochner.latent_inference.infer import place
from bochner.prediction.completion import view_columns
from bochner.prediction.decoding import complete
from bochner.regression.observations import Block, Data, IncompleteBlock
from bochner.weight_posterior.posterior import ViewPosterior

# The share of the rows that lose some entries, the most of them, and the share of their entries.
_ROW_SHARE = 0.2
_MOST_ROWS = 256
_ENTRY_SHARE = 0.05
# Rows and columns with fewer observed entries lose none; fewer entries of a view than that tell
# nothing.
_MANY, _LEAST = 20, 100
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

    def hide(self, values: FloatArray) -> FloatArray:
        """Return all views side by side, (N, sum of M), without the entries, so that starts do not
        see them.
        """
        if not self.rows.numel():
            return values
        index = self.rows.numpy()
        values = values.copy()
        values[index] = np.where(
            torch.cat(list(self.truth), dim=1).isnan().numpy(), values[index], np.nan
        )
        return values

    def excess(
        self,
        without: Callable[[], Sequence[ViewPosterior]],
        latents: Tensor,
        covariates: Tensor,
    ) -> list[float]:
        """Return what every view's noise lacks for the intervals of its entries to hold what they
        say, at least 0.

        Parameters
        ----------
        without : callable
            Returns the posterior given the other entries.
        latents : Tensor of shape (N, D), float64
            Where training put the rows.
        covariates : Tensor of shape (N, L), float64
        """
        if not self.rows.numel():
            return [0.0] * len(self.data)
        views = without()
        rows = rows_of(self.data, self.rows)
        placed = place(views, latents, rows, covariates=covariates[self.rows])
        mean, variance = complete(views, placed)
        # the noise with which an entry, NaN where nothing was withheld, would lie on the edge of
        # its interval
        lacks = ((torch.cat(list(self.truth), dim=1) - mean) / _EDGE).square() - variance
        of_view = [torch.nanquantile(lacks[:, cols], _LEVEL) for cols in view_columns(views)]
        return [max(0.0, float(torch.nan_to_num(more))) for more in of_view]


def noisier(
    posterior: Sequence[ViewPosterior], excess: Sequence[float]
) -> tuple[ViewPosterior, ...]:
    """Add what withheld entries show to the noise of every view's predictions."""
    return tuple(
        replace(view, predictive_noise=float(view.noise_variance) + more) if more else view
        for view, more in zip(posterior, excess, strict=True)
    )


def withhold(data: Data, n_rows: int, seed: int) -> Withheld:
    """Take a few entries out of the Gaussian views with scattered holes, where they are enough to
    tell anything.

    Parameters
    ----------
    data : tuple over views of tuples of Block
        All Gaussian, some with scattered holes.
    n_rows : int
        N.
    seed : int
    """
    nothing = Withheld(data, torch.empty(0, dtype=torch.int64), (), n_rows)
    source = random.generator(seed, "withheld")
    some = (
        torch.randperm(n_rows, generator=source)[: min(_MOST_ROWS, int(_ROW_SHARE * n_rows))]
        .sort()
        .values
    )
    of_view = rows_of(data, some)
    kept, truth = [], []
    for blocks, y in zip(data, of_view, strict=True):
        drawn = torch.rand(y.shape, generator=source, dtype=torch.float64) < _ENTRY_SHARE
        remaining = list(blocks)
        hidden = torch.zeros_like(drawn)
        for b, block in enumerate(blocks):
            may = drawn[:, block.columns] & _able(block, ~y[:, block.columns].isnan())
            hidden[:, block.columns] = may
            remaining[b] = _without(block, some, may, n_rows)
        enough = int(hidden.sum()) >= _LEAST
        kept.append(tuple(remaining) if enough else blocks)
        truth.append(torch.where(hidden & enough, y, torch.nan))
    if all(bool(y.isnan().all()) for y in truth):
        return nothing
    return Withheld(tuple(kept), some, truth, n_rows)


@functools.singledispatch
def _able(block: Block, shown: Tensor) -> Tensor:  # noqa: ARG001 - complete ones lose nothing
    """Mark the observed entries (n, m) that may be withheld: those with holes beside them, in rows
    and columns which have many.
    """
    return torch.zeros_like(shown)


@_able.register
def _(block: IncompleteBlock, shown: Tensor) -> Tensor:
    of_column = block.observed.sum(0).cpu()
    return shown & (shown.sum(1, keepdim=True) >= _MANY) & (of_column >= _MANY)


@functools.singledispatch
def _without(block: Block, some: Tensor, hidden: Tensor, n_rows: int) -> Block:  # noqa: ARG001
    """Return a block without the entries that are hidden in some rows."""
    return block


@_without.register
def _(block: IncompleteBlock, some: Tensor, hidden: Tensor, n_rows: int) -> Block:
    gone = torch.zeros(n_rows, hidden.shape[1], dtype=torch.bool)
    gone[some] = hidden
    return block.without(gone)
