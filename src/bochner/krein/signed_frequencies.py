"""Distributions of signed, weighted frequencies: what a fit of an indefinite kernel ends with.

H frequencies w_h with weights c_h > 0 and signs s_h: the fitted kernel is sum_h s_h c_h E[cos(w_h .
delta)], and a draw of the frequencies gives features that are unbiased for it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from bochner.features.spherical import direction_mean, directions


@dataclass(frozen=True)
class SignedFrequencies(ABC):
    """Weights and signs; how a frequency is distributed is the subclass's.

    Attributes
    ----------
    weight : Tensor of shape (H,), float64
        c_h, positive.
    sign : Tensor of shape (H,), float64
        +1 for the positive part, which comes first, -1 for the negative part.
    """

    weight: Tensor
    sign: Tensor

    @abstractmethod
    def draw(self, source: torch.Generator) -> Tensor:
        """Draw the H frequencies, (H, d), radians per unit of the normalised rows."""

    @abstractmethod
    def expected_cosine(self, h: int, x: Tensor, y: Tensor) -> Tensor:
        """Return E[cos(w_h . (x_i - y_j))], (n, d), (m, d) -> (n, m)."""

    def kernel(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the fitted kernel, which the features estimate without bias: (n, d), (m, d) -> (n,
        m).
        """
        total = x.new_zeros(x.shape[0], y.shape[0])
        for h, factor in enumerate((self.weight * self.sign).tolist()):
            total = total + factor * self.expected_cosine(h, x, y)
        return total


@dataclass(frozen=True)
class GaussianFrequencies(SignedFrequencies):
    """w_h ~ N(mean_h, factor_h factor_h^T).

    Attributes
    ----------
    mean : Tensor of shape (H, d), float64
    factor : Tensor of shape (H, d) or (H, d, d), float64
        Standard deviations, or lower triangular factors of the covariances.
    """

    mean: Tensor
    factor: Tensor

    def _spread(self, h: int, points: Tensor) -> Tensor:
        factor = self.factor[h].to(points)
        return points * factor if factor.ndim == 1 else points @ factor

    def draw(self, source: torch.Generator) -> Tensor:
        """Draw the frequencies."""
        noise = torch.randn(
            self.mean.shape, generator=source, dtype=torch.float64, device=source.device
        )
        noise = noise.to(self.mean.device)
        if self.factor.ndim == 2:
            return self.mean + self.factor * noise
        return self.mean + torch.einsum("hij,hj->hi", self.factor, noise)

    def expected_cosine(self, h: int, x: Tensor, y: Tensor) -> Tensor:
        """Return exp(-1/2 delta^T V delta) cos(m . delta)."""
        mean = self.mean[h].to(x)
        wave = ((x @ mean)[:, None] - (y @ mean)[None, :]).cos()
        square = torch.cdist(self._spread(h, x), self._spread(h, y)).square()
        return (-0.5 * square).exp() * wave


@dataclass(frozen=True)
class RadialFrequencies(SignedFrequencies):
    """w_h = radius_h u_h with u_h uniform on the sphere.

    Attributes
    ----------
    radius : Tensor of shape (H,), float64
        Radians per unit of the rows.
    dim : int
        d.
    """

    radius: Tensor
    dim: int

    def draw(self, source: torch.Generator) -> Tensor:
        """Draw the frequencies; directions are orthogonal in groups, of one radius where it has as
        many.
        """
        some = directions(len(self.radius), self.dim, source)
        return (self.radius.to(some.device)[:, None] * some).to(self.radius.device)

    def kernel(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the fitted kernel, (n, d), (m, d) -> (n, m): frequencies of one radius are one
        term.
        """
        radii, group = self.radius.unique(return_inverse=True)  # type: ignore[no-untyped-call]
        factors = torch.zeros_like(radii).index_add(0, group, self.weight * self.sign)
        distances = torch.cdist(x, y)
        terms = zip(radii.tolist(), factors.tolist(), strict=True)
        waves = (
            factor * direction_mean(radius * distances, self.dim) for radius, factor in terms
        )
        return sum(waves, torch.zeros_like(distances)).to(x.dtype)

    def expected_cosine(self, h: int, x: Tensor, y: Tensor) -> Tensor:
        """Return the mean of cos(r u.delta) over directions u."""
        return direction_mean(float(self.radius[h]) * torch.cdist(x, y), self.dim).to(x.dtype)
