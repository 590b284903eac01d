"""Mixtures of Laplace approximations: what is known of where rows lie."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self, TypeVar

import torch
from torch import Tensor

from bochner.latent_inference.modes import Placement
from bochner.linalg import cholesky

# Share of a mode beside which others do not count.
_ALONE = 0.999
# Share of a mode that no row misses.
_WEIGHTLESS = 1e-4
# Halvings of a bracket for a quantile, and how many standard deviations of a mode it reaches.
_BISECTIONS = 30
_FAR = 9.0
# Levels of intervals with the half width that holds them of a standard normal distribution, and
# halvings of a bracket that finds them.
_LEVELS = ((0.5, 0.6744897501960817), (0.95, 1.959963984540054))
_HALVINGS = 10
# Share beyond a place from which it counts as inside: of 70 % intervals, which are the 90 % ones
# where the check of rows drawn from the model finds mixtures too wide.
_REACHED = 0.15
# What counts about a place beyond which there is nothing.
_DOUBT = 0.5
# Squared distance, in posterior standard deviations, of two climbs that found the same mode.
_SAME = 0.01


class Posterior(Protocol):
    """What is known of where rows lie."""

    def distribution(self, x: Tensor) -> Tensor:
        """Return the distribution function in every dimension, (n, D) -> (n, D)."""

    def with_place(self, placement: Placement, shares: Tensor) -> Self:
        """Return a posterior in which a normal distribution about every row's place has this share,
        (n,).
        """


P = TypeVar("P", bound=Posterior)


def reaching(posterior: P, placement: Placement) -> P:
    """Return posteriors that know of the places of the rows.

    A place is the best mode of the row's bound, which takes weights for known. The predictive
    density of a row that fits nowhere is highest where weights are uncertain, and may rule its
    place out. That is right where the row was drawn from the model; of rows of real tables the
    bound's place is right more often, and completes them better. So where hardly anything of the
    posterior lies beyond the place in some dimension a normal distribution about it counts as well:
    for half of the whole where nothing does.
    """
    below = posterior.distribution(placement.mean)
    beyond = torch.minimum(below, 1.0 - below).amin(1)
    shares = _DOUBT * (1.0 - beyond / _REACHED).clamp(0.0, 1.0)
    return posterior.with_place(placement, shares) if bool((shares > 0.0).any()) else posterior


@dataclass(frozen=True)
class Modes:
    """Laplace approximations, a mixture for every row.

    Attributes
    ----------
    means : Tensor of shape (n, C, D)
    covariances : Tensor of shape (n, C, D, D)
    log_weights : Tensor of shape (n, C)
        Evidence in nats; -inf where a mode counts already. Most probable first.
    """

    means: Tensor
    covariances: Tensor
    log_weights: Tensor

    def at(self, index: Tensor) -> Modes:
        """Return those of some rows."""
        return Modes(self.means[index], self.covariances[index], self.log_weights[index])

    def places(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the means, covariances and shares of the modes that some row does not miss."""
        shares = self.log_weights.softmax(1)
        count = max(1, int((shares.amax(0) > _WEIGHTLESS).sum()))
        kept = shares[:, :count]
        return (
            self.means[:, :count],
            self.covariances[:, :count],
            kept / kept.sum(1, keepdim=True),
        )

    def std_about(self, centre: Tensor) -> Tensor:
        """Return the root mean square distance of the mixture from a centre, (n, D) -> (n, D)."""
        away = self.means - centre[:, None]
        spread = torch.diagonal(self.covariances, dim1=-2, dim2=-1) + away.square()
        return (self.log_weights.softmax(1)[..., None] * spread).sum(1).sqrt()

    def normal_std_about(self, centre: Tensor) -> Tensor:
        """Return standard deviations of normal distributions about a centre that are like the
        mixture, (n, D) -> (n, D).

        Geometric means of the root mean square distance and those whose 50 % and whose 95 %
        intervals hold as much of it: the first alone holds far more than half within its 50 %
        interval where a small share of the mixture lies far away. Rows with one mode keep it.
        """
        out = self.std_about(centre)
        shares = self.log_weights.softmax(1)
        index = (shares.amax(1) < _ALONE).nonzero()[:, 0]
        count = (
            int((shares[index].amax(0, keepdim=True) > _WEIGHTLESS).sum()) if len(index) else 0
        )
        weights = shares[index, :count, None]
        covariances = self.covariances[index, :count]
        root = torch.diagonal(covariances, dim1=-2, dim2=-1).sqrt()
        away = (centre[index, None] - self.means[index, :count]) / root
        away, root = (part.repeat(1, 1, len(_LEVELS)) for part in (away, root))

        def held(half_width: Tensor) -> Tensor:
            reach = half_width[:, None] / root
            inside = torch.special.ndtr(away + reach) - torch.special.ndtr(away - reach)
            share: Tensor = (weights * inside).sum(1)
            return share

        out[index] = like_normal(out[index], held)
        return out

    def log_density(self, points: Tensor) -> Tensor:
        """Return what the most probable mode's approximation says of log p(y, x) at points (P, D),
        (n, P).
        """
        dim = points.shape[1]
        mean = self.means[:, 0]
        root = cholesky(self.covariances[:, 0])
        precision, log_volume = root.inverse(), -root.logdet()
        pushed = (precision @ mean[..., None])[..., 0]
        # a quadratic form in all points is one product
        products = (points[:, :, None] * points[:, None, :]).flatten(1)
        height = self.log_weights[:, 0] + 0.5 * (log_volume - dim * math.log(2.0 * math.pi))
        height = height - 0.5 * (pushed * mean).sum(1)
        return torch.addmm(height[:, None], pushed, points.T) - 0.5 * (
            precision.flatten(1) @ products.T
        )

    def distribution(self, x: Tensor) -> Tensor:
        """Return the mixture's distribution function in every dimension, (n, D) -> (n, D)."""
        root = torch.diagonal(self.covariances, dim1=-2, dim2=-1).sqrt()
        below = torch.special.ndtr((x[:, None] - self.means) / root)
        share: Tensor = (self.log_weights.softmax(1)[..., None] * below).sum(1)
        # weights add up to 1 but for rounding, and no file takes shares above it
        return share.clamp(max=1.0)

    def with_place(self, placement: Placement, shares: Tensor) -> Modes:
        """Return a mixture in which a normal distribution about every row's place has this share,
        (n,).
        """
        total = self.log_weights.logsumexp(1)
        log_weights = total + shares.log() - (-shares).log1p()
        about = (placement.modes[:, :1], placement.covariances[:, :1], log_weights[:, None])
        return _sorted([self, Modes(*about)])

    def quantile(self, share: float) -> Tensor:
        """Return where the mixture has so much below it in every dimension, (n, D)."""
        root = torch.diagonal(self.covariances, dim1=-2, dim2=-1).sqrt()
        counts = self.log_weights.isfinite()[..., None]
        reach = _FAR * root
        low = torch.where(counts, self.means - reach, torch.inf).amin(1)
        high = torch.where(counts, self.means + reach, -torch.inf).amax(1)
        for _ in range(_BISECTIONS):
            middle = 0.5 * (low + high)
            short = self.distribution(middle) < share
            low = torch.where(short, middle, low)
            high = torch.where(short, high, middle)
        return 0.5 * (low + high)


def like_normal(std: Tensor, held: Callable[[Tensor], Tensor]) -> Tensor:
    """Return standard deviations of normal distributions that hold as much as others about the same
    centres: geometric means of the root mean square distance and of what 50 % and 95 % intervals
    ask for.

    Parameters
    ----------
    std : Tensor of shape (n, D)
        Root mean square distances from the centres.
    held : callable
        Half widths of intervals about the centres -> what they hold, (n, L D) -> (n, L D): those of
        every dimension, once for each of the L levels.
    """
    # the levels beside each other: calls cost more here than what they compute
    dim = std.shape[1]
    levels, normal = std.new_tensor(_LEVELS).repeat_interleave(dim, 0).T
    # Chebyshev's inequality
    high: Tensor = std.repeat(1, len(_LEVELS)) / (1.0 - levels).sqrt()
    low = torch.zeros_like(high)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        enough = held(middle) > levels
        low = torch.where(enough, low, middle)
        high = torch.where(enough, middle, high)
    log_std = torch.unflatten((high / normal).log(), 1, (len(_LEVELS), dim)).mean(1)
    return (std * log_std.exp()).sqrt()


def distinct(modes: Modes) -> Modes:
    """Give a mode that was reached twice no second weight."""
    log_weights = modes.log_weights.clone()
    # rows with one mode have no other one
    rows = (log_weights.isfinite().sum(1) > 1).nonzero()[:, 0]
    if not len(rows):
        return modes
    means, weights = modes.means[rows], log_weights[rows]
    precision = cholesky(modes.covariances[rows]).inverse()
    # (n, R, R', D): of every other mode from each
    away = means[:, None] - means[:, :, None]
    near = ((away @ precision) * away).sum(3) < _SAME
    for r in range(1, log_weights.shape[1]):
        again = (near[:, :r, r] & weights[:, :r].isfinite()).any(1)
        weights[again, r] = -torch.inf
    log_weights[rows] = weights
    return Modes(modes.means, modes.covariances, log_weights)


def joined(parts: Sequence[Modes]) -> Modes:
    """Mix the modes of equally probable draws."""
    share = math.log(len(parts))
    return _sorted([replace(part, log_weights=part.log_weights - share) for part in parts])


def merged(modes: Modes, more: Modes) -> Modes:
    """Return a mixture with the modes of another one that it does not have."""
    return _sorted([distinct(_sorted([modes, more]))])


def _sorted(parts: Sequence[Modes]) -> Modes:
    """Put modes beside each other, the most probable first."""
    log_weights = torch.cat([part.log_weights for part in parts], dim=1)
    order = log_weights.argsort(dim=1, descending=True, stable=True)
    rows = torch.arange(order.shape[0])[:, None]
    return Modes(
        torch.cat([part.means for part in parts], dim=1)[rows, order],
        torch.cat([part.covariances for part in parts], dim=1)[rows, order],
        log_weights[rows, order],
    )
