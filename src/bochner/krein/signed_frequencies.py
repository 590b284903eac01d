"""Distributions of signed, weighted frequencies: what a fit of an indefinite kernel ends with.

H frequencies w_h with weights c_h > 0 and signs s_h: the fitted kernel is sum_h s_h c_h E[cos(w_h .
delta)], and a draw of the frequencies gives features that are unbiased for it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

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

    def without_empty(self, columns: Tensor) -> Tensor:
        """Return the columns of the features that are not zero for every row: (..., 2 H), cosines
        and sines of the positive part, then those of the negative part -> (..., K).
        """
        return columns


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

    @classmethod
    def none(cls, dim: int, device: torch.device) -> GaussianFrequencies:
        """Return no frequencies in so many dimensions."""
        rows = torch.zeros(0, dim, dtype=torch.float64, device=device)
        return cls(rows.sum(1), rows.sum(1), rows, rows)

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


@dataclass(frozen=True)
class WithConstant(SignedFrequencies):
    """Frequencies and a constant: a wave that is zero and certain, and has a cosine alone.

    A last frequency with one cosine of a random phase would be unbiased as well, but adds the
    square of its weight to the error of a pair.

    Attributes
    ----------
    others : SignedFrequencies
        The other frequencies; their weights are not used.
    place : int
        Number of the constant, which is the last of its part.
    """

    others: SignedFrequencies
    place: int

    @classmethod
    def of(cls, others: SignedFrequencies, constant: float) -> WithConstant:
        """Add a constant of either sign to the kernel of others."""
        place = int((others.sign > 0).sum()) if constant >= 0 else len(others.sign)
        # a weight is positive
        weight = _inserted(others.weight, place, max(abs(constant), 1e-300))
        sign = _inserted(others.sign, place, 1.0 if constant >= 0 else -1.0)
        return cls(weight, sign, others, place)

    def draw(self, source: torch.Generator) -> Tensor:
        """Draw the frequencies; that of the constant is zero."""
        return _inserted(self.others.draw(source), self.place, 0.0)

    def expected_cosine(self, h: int, x: Tensor, y: Tensor) -> Tensor:
        """Return that of another frequency, or 1."""
        if h == self.place:
            return x.new_ones(x.shape[0], y.shape[0])
        return self.others.expected_cosine(h - (h > self.place), x, y)

    def kernel(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the fitted kernel, (n, d), (m, d) -> (n, m)."""
        weight = torch.cat([self.weight[: self.place], self.weight[self.place + 1 :]])
        constant = float(self.weight[self.place] * self.sign[self.place])
        return replace(self.others, weight=weight).kernel(x, y) + constant

    def without_empty(self, columns: Tensor) -> Tensor:
        """Return the columns without the sine of zero, the last of its part."""
        sine = 2 * self.place + 1
        return torch.cat([columns[..., :sine], columns[..., sine + 1 :]], -1)


def _inserted(values: Tensor, place: int, value: float) -> Tensor:
    """Return values with another before those from a place on, (H, ...) -> (H + 1, ...)."""
    one = values.new_full((1, *values.shape[1:]), value)
    return torch.cat([values[:place], one, values[place:]])
