"""Posteriors of rows with one latent on a grid.

Such posteriors are often skewed: a row that says little has a mode where it fits best and a tail
that the prior ends, which a normal distribution about the mode does not have. All rows share the
points, so that their features are computed once, and no row is climbed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bochner.latent_inference.mixtures import like_normal
from bochner.latent_inference.modes import Placement

# The grid's end and the distance of its points.
_END = 5.0
_STEP = 0.04
# Posteriors that lie on fewer points, by the inverse sum of squares of their shares (5 is a normal
# distribution with a standard deviation of 1.4 steps), and those with more than so much at an end,
# are not resolved.
_LEAST_POINTS = 5.0
_AT_END = 1e-3
# Parts of equal probability of which a posterior has two places each.
_PARTS = 8
# Distance from its mean from which a part has something below it.
_SAME = 1e-9
# Share of a place's posterior from which a mode narrower than a step counts.
_COUNTS = 1e-2


def grid_points() -> Tensor:
    """Return the points, (C, 1), float64."""
    half = round(_END / _STEP)
    return _STEP * torch.arange(-half, half + 1, dtype=torch.float64)[:, None]


@dataclass(frozen=True)
class OnGrid:
    """Posteriors of rows: constant densities about every point of the grid.

    Attributes
    ----------
    below : Tensor of shape (n, C + 1)
        Probability below the lower end of every point's cell, and 1.
    mean, variance : Tensor of shape (n,)
    """

    below: Tensor
    mean: Tensor
    variance: Tensor

    @classmethod
    def of(cls, shares: Tensor) -> OnGrid:
        """Return the posteriors with these probabilities of the points, (n, C)."""
        points = grid_points()[:, 0]
        mean = shares @ points
        variance = (shares @ points.square() - mean.square()).clamp(min=0.0)
        below = torch.nn.functional.pad(shares.cumsum(1), (1, 0)).clamp(max=1.0)
        return cls(below, mean, variance)

    def places(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return means, covariances and shares of the parts that make up the posterior, those in
        the middle first: it is cut into parts of equal probability, and each of them at its own
        mean, so that a far mode of small probability stays apart from the others.
        """
        points = grid_points()[:, 0]
        halves = []
        for k in range(_PARTS):
            held = self.below.clamp(k / _PARTS, (k + 1) / _PARTS).diff(dim=1)
            mean = held @ points / held.sum(1)
            lower = points < mean[:, None] - _SAME
            halves += [torch.where(side, held, 0.0) for side in (lower, ~lower)]
        # what has no average is taken from the first
        middle = len(halves) // 2
        order = sorted(range(len(halves)), key=lambda half: abs(half + 0.5 - middle))
        return self._moments([halves[half] for half in order])

    @staticmethod
    def _moments(parts: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Return means (n, R, 1), covariances (n, R, 1, 1) and shares (n, R) of what R parts hold
        at every point, (n, C).
        """
        points = grid_points()[:, 0]
        shares = torch.stack([held.sum(1) for held in parts], dim=1)
        total = shares.clamp(min=torch.finfo(shares.dtype).tiny)
        means = torch.stack([held @ points for held in parts], dim=1) / total
        squares = [
            (held * (points - mean[:, None]).square()).sum(1)
            for held, mean in zip(parts, means.unbind(1), strict=True)
        ]
        # a point stands for all of its cell
        variances = torch.stack(squares, dim=1) / total + _STEP**2 / 12.0
        return means[..., None], variances[..., None, None], shares

    def normal_std_about(self, centre: Tensor) -> Tensor:
        """Return standard deviations of normal distributions about a centre that are like the
        posterior, (n, 1) -> (n, 1): as those of `Modes`.
        """
        std = (self.variance[:, None] + (self.mean[:, None] - centre).square()).sqrt()

        def held(half_width: Tensor) -> Tensor:
            return self.distribution(centre + half_width) - self.distribution(
                centre - half_width
            )

        return like_normal(std, held)

    def distribution(self, x: Tensor) -> Tensor:
        """Return the distribution function, (n, 1) -> (n, 1)."""
        cells = self.below.shape[1] - 1
        at = (x / _STEP + 0.5 * cells).clamp(0.0, float(cells))
        lower = at.long().clamp(max=cells - 1)
        start = self.below.gather(1, lower)
        share = start + (at - lower) * (self.below.gather(1, lower + 1) - start)
        # as that of `Modes`
        return share.clamp(max=1.0)

    def with_place(self, placement: Placement, shares: Tensor) -> OnGrid:
        """Return posteriors in which a normal distribution about every row's place has this share,
        (n,).
        """
        std = placement.covariances[:, 0, :, 0].sqrt()
        at = -0.5 * ((grid_points()[:, 0] - placement.mean) / std).square()
        return self.of(self.below.diff(dim=1).lerp(at.softmax(1), shares[:, None]))

    def quantile(self, share: float) -> Tensor:
        """Return where there is so much below, (n, 1)."""
        cells = self.below.shape[1] - 1
        wanted = self.below.new_full((len(self.below), 1), share)
        upper = torch.searchsorted(self.below, wanted).clamp(1, cells)
        start = self.below.gather(1, upper - 1)
        end = self.below.gather(1, upper)
        part = (wanted - start) / (end - start).clamp(min=torch.finfo(end.dtype).tiny)
        return _STEP * (upper - 1 + part.clamp(0.0, 1.0) - 0.5 * cells)


def resolved(shares: Tensor, placement: Placement) -> Tensor:
    """Return which posteriors the grid resolves, (n,), bool: those without narrow modes.

    Parameters
    ----------
    shares : Tensor of shape (n, C)
        Probabilities of its points.
    placement : Placement
        Of the rows.
    """
    wide = shares.square().sum(1) * _LEAST_POINTS < 1.0
    inside = torch.maximum(shares[:, 0], shares[:, -1]) < _AT_END
    narrow = (placement.covariances[..., 0, 0] < _STEP**2) & (placement.weights > _COUNTS)
    return wide & inside & ~narrow.any(1)
