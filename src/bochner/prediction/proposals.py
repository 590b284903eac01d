"""Mixtures of Student's t distributions from which importance sampling draws latents of rows."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from bochner.latent_inference.mixtures import Modes
from bochner.linalg import cholesky

# Shares in a proposal: of the prior, of a cloud, of the moments of earlier samples.
_PRIOR_SHARE = 0.05
_CLOUD_SHARE = 0.2
_MOMENTS_SHARE = 0.25
# Degrees of freedom of a proposal's parts.
FREEDOM = 6
_LOG_2_PI = math.log(2.0 * math.pi)


@dataclass(frozen=True)
class Cloud:
    """Places of every row that are probable, far apart: what modes may have missed.

    Attributes
    ----------
    places : Tensor of shape (n, R, D)
    radius : float
    weights : Tensor of shape (n, R)
    """

    places: Tensor
    radius: float
    weights: Tensor

    def at(self, index: Tensor) -> Cloud:
        """Return that of some rows."""
        return Cloud(self.places[index], self.radius, self.weights[index])


@dataclass(frozen=True)
class Proposal:
    """A mixture for every row: Student's t distributions, and last the prior.

    Attributes
    ----------
    means : Tensor of shape (n, C, D)
    factors : Tensor of shape (n, C, D, D)
        Lower triangular roots of the scale matrices.
    weights : Tensor of shape (n, C)
    modes, cloud : Modes, Cloud or None
        What it was made of.
    """

    means: Tensor
    factors: Tensor
    weights: Tensor
    modes: Modes
    cloud: Cloud | None

    @classmethod
    def about(
        cls,
        modes: Modes,
        cloud: Cloud | None,
        moments: tuple[Tensor, Tensor] | None = None,
    ) -> Proposal:
        """Return a proposal about modes, a cloud and, if given, a mean (n, D) with a covariance."""
        (n, _, dim) = modes.means.shape
        like = modes.means
        eye = torch.eye(dim, dtype=like.dtype)
        extra = [(like.new_zeros(n, 1, dim), eye, like.new_full((n, 1), _PRIOR_SHARE))]
        if cloud is not None:
            extra.insert(
                0, (cloud.places, cloud.radius**2 * eye, _CLOUD_SHARE * cloud.weights)
            )
        if moments is not None:
            share = like.new_full((n, 1), _MOMENTS_SHARE)
            extra.insert(0, (moments[0][:, None], moments[1][:, None], share))
        rest = 1.0 - sum(share[:1].sum() for _, _, share in extra)
        parts = [(modes.means, modes.covariances, rest * modes.log_weights.softmax(1)), *extra]
        roots = [
            cholesky(scale).factor.expand(*centre.shape, dim) for centre, scale, _ in parts
        ]
        return cls(
            torch.cat([centre for centre, _, _ in parts], dim=1),
            torch.cat(roots, dim=1),
            torch.cat([share for _, _, share in parts], dim=1),
            modes,
            cloud,
        )

    def at(self, index: Tensor) -> Proposal:
        """Return that of some rows."""
        parts = (self.means[index], self.factors[index], self.weights[index])
        cloud = None if self.cloud is None else self.cloud.at(index)
        return Proposal(*parts, self.modes.at(index), cloud)

    def draw(self, uniform: Tensor, normal: Tensor, chi_square: Tensor) -> Tensor:
        """Return places (n, T, D); every part has its share of them, up to one."""
        n, count, _ = normal.shape
        levels = (torch.arange(count, dtype=uniform.dtype) + uniform[:, None]) / count
        last = self.weights.shape[1] - 1
        which = torch.searchsorted(self.weights.cumsum(1), levels).clamp(max=last)
        stretch = torch.where(which == last, 1.0, (FREEDOM / chi_square).sqrt())
        rows = torch.arange(n)[:, None]
        away = (self.factors[rows, which] @ normal[..., None])[..., 0]
        places: Tensor = self.means[rows, which] + away * stretch[..., None]
        return places

    def log_density(self, x: Tensor) -> Tensor:
        """Return the log density of places, (n, T, D) -> (n, T)."""
        dim = x.shape[2]
        parts = []
        constant = math.lgamma(0.5 * (FREEDOM + dim)) - math.lgamma(0.5 * FREEDOM)
        constant -= 0.5 * dim * math.log(math.pi * FREEDOM)
        for c in range(self.weights.shape[1]):
            factor = self.factors[:, c]
            away = (x - self.means[:, c : c + 1]).mT
            squared = torch.linalg.solve_triangular(factor, away, upper=False).square().sum(1)
            if c == self.weights.shape[1] - 1:
                shape = -0.5 * (squared + dim * _LOG_2_PI)
            else:
                shape = constant - 0.5 * (FREEDOM + dim) * torch.log1p(squared / FREEDOM)
            volume = torch.diagonal(factor, dim1=-2, dim2=-1).log().sum(-1)
            parts.append(shape + (self.weights[:, c].log() - volume)[:, None])
        return torch.stack(parts).logsumexp(0)
