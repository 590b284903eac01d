"""Gaussian views as complete rows see them: in as many columns as their means have directions."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields

import torch
from torch import Tensor

from bochner.latent_inference.predictive_modes import table
from bochner.weight_posterior.conditioning import SharedDraw
from bochner.weight_posterior.posterior import GaussianPosterior, ViewPosterior


@dataclass(frozen=True)
class TurnedPosterior(GaussianPosterior):
    """A Gaussian view as complete rows see it: along the directions of its means, and in one column
    that stands for all others.

    Where columns share their noise and the uncertainty of their weights, rotating them changes no
    density: along the directions in which the means of the weights lie data matter as they are, and
    of all others their sum of squares.

    Attributes
    ----------
    counts : Tensor of shape (R + 1,), float64
        So many columns of the data are behind each.
    directions : Tensor of shape (M, R), float64
        Orthonormal.
    """

    counts: Tensor = field(default_factory=lambda: torch.ones(1, dtype=torch.float64))
    directions: Tensor = field(default_factory=lambda: torch.ones(1, 0, dtype=torch.float64))

    def counted(self, observed: Tensor) -> Tensor:
        """Return how many columns of the data are behind each entry."""
        return observed * self.counts

    def rows(self, y: Tensor) -> Tensor:
        """Return complete rows (n, M) in these columns, (n, R + 1): the last one has the root mean
        square of what lies along no direction. Products are in single precision.
        """
        along = (y.float() @ self.directions.float()).double()
        left = y.square().sum(1) - along.square().sum(1)
        root = (left.clamp(min=0.0) / self.counts[-1]).sqrt()
        return torch.cat([along, root[:, None]], dim=1)

    def exact_rows(self, y: Tensor) -> Tensor:
        """Return them with products in double precision: densities ask for it, whose noise may be
        small beside the data.
        """
        along = y @ self.directions
        left = (y - along @ self.directions.T).square().sum(1)
        return torch.cat([along, (left / self.counts[-1]).sqrt()[:, None]], dim=1)


@table.register
def _(
    view: TurnedPosterior,
    y: Tensor,
    offset: Tensor | None,  # noqa: ARG001 - Gaussian rows have none
    mean: Tensor,
    variance: Tensor,
) -> Tensor:
    # one variance of all columns
    v = variance[:, :1] + view.predicted_noise
    squares = (y.square() @ view.counts)[:, None] - 2.0 * y @ mean.T + mean.square().sum(1)
    return -0.5 * (squares / v.T + view.counts.sum() * v.log().T)


@functools.singledispatch
def turned(view: ViewPosterior, s: int) -> TurnedPosterior | None:  # noqa: ARG001
    """Return a view under one of its draws as complete rows see it; None where columns differ in
    more than the means of their weights, or are few.
    """
    return None


@turned.register
def _(view: GaussianPosterior, s: int) -> TurnedPosterior | None:
    draw = view.draws[s % len(view.draws)]
    form = draw.turned
    few = view.n_columns <= len(draw.mean) + 1
    if form is None or few or isinstance(view.predicted_noise, Tensor):
        return None
    directions, along = form
    mean = torch.cat([along, along.new_zeros(len(along), 1)], dim=1)
    counts = mean.new_ones(mean.shape[1])
    counts[-1] = view.n_columns - directions.shape[1]
    parts = {part.name: getattr(view, part.name) for part in fields(view)}
    parts["draws"] = (SharedDraw(draw.frequencies, mean, draw.covariance),)
    parts["group_of"] = torch.zeros(len(counts), dtype=torch.int64)
    return TurnedPosterior(**parts, counts=counts, directions=directions)


def whole_rows(
    views: Sequence[ViewPosterior], rows: Sequence[Tensor], index: Tensor
) -> Iterator[tuple[Tensor, bool]]:
    """Yield which of some rows are complete, where a view has a form of its own for those, and
    which are not.
    """
    whole = torch.zeros(len(index), dtype=torch.bool)
    if any(turned(view, 0) for view in views):
        whole = torch.stack([~y[index].isnan().any(1) for y in rows]).all(0)
    for some, are in ((index[whole], True), (index[~whole], False)):
        if len(some):
            yield some, are
