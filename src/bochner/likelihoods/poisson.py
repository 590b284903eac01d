"""Counts whose variance is their mean."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from bochner.likelihoods.counts import (
    LARGEST_LOG_RATE,
    REACH,
    Counts,
    SizeFactors,
    gamma_products,
    log_factorial,
    log_peak,
    rate_moments,
)
from bochner.likelihoods.densities import PoissonDensity
from bochner.likelihoods.likelihood import Curvatures, Slopes

# Log means beyond this count as if they were this: no data ask for them, but fits on their way do.
# Squares of their exponentials, which Adam takes of gradients, are still finite, and a model file
# holds the bounds.
_MOST = {torch.float32: 60.0, torch.float64: 180.0}
# Counts above which a value in double precision is that beside the largest: of 1e11 differences of
# a hundredth of a nat would be lost.
_MANY = 1e5
# Sites do not touch where the log mean is so much below or above that of the entry's own count.
_BELOW = 4.0
_ABOVE = 5.0
# Gradients do not grow where it is so much above: with 5 fits of counts whose logarithms have a
# standard deviation of 3 were worse.
_FAR_ABOVE = 8.0
# Columns whose weights have covariances of their own: so few, or so few that all matrices, those of
# the rows at the most, are factored by so many multiplications.
_FEW_COLUMNS = 12
_FEW_PRODUCTS = 1e7


class Poisson(Counts):
    """Counts of mean and variance e^psi.

    E log p is in closed form, E e^psi = exp(mean + variance / 2): no augmentation, no gap
    (docs/math.md, section 3).

    Parameters
    ----------
    size_factors : {None, "total"}, default=None
        "total": a row's mean is proportional to its total count in the view. Factors of your own go
        to ``fit``.
    """

    name: ClassVar[str] = "poisson"
    extra_sweeps: ClassVar[int] = (
        # e^psi punishes what fresh spectra put too high; the other bounds are about linear
        1
    )

    def __init__(self, size_factors: SizeFactors = None) -> None:
        super().__init__(size_factors=size_factors)

    def covariance_groups(self, n_rows: int, n_columns: int) -> int:
        """Return one for each column of a small view: precisions are e^psi, in which columns differ
        most, and iterations cost more than the factors of so few columns.
        """
        if n_columns <= _FEW_COLUMNS or n_columns * n_rows**3 <= _FEW_PRODUCTS:
            return n_columns
        return super().covariance_groups(n_rows, n_columns)

    def log_prob(self, y: Tensor, psi: Tensor) -> Tensor:
        """Return y psi - e^psi - log y!."""
        return self.density(y.to(psi.dtype)).value(psi)

    def density(self, y: Tensor) -> PoissonDensity:
        """Return log p(y | psi) with derivatives in closed form."""
        return PoissonDensity(y, log_peak(y))

    def variance(self, psi: Tensor) -> Tensor:
        """Return e^psi."""
        return psi.exp()

    def draw(self, psi: Tensor, source: torch.Generator) -> Tensor:
        """Draw counts."""
        return torch.poisson(psi.clamp(max=LARGEST_LOG_RATE).exp(), generator=source)

    def predict_below(
        self, mean: Tensor, variance: Tensor, most: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return them for e^min(psi, most)."""
        first, spread = rate_moments(mean, variance, most)
        return first, first + spread

    def first(self, y: Tensor, mean: Tensor) -> Tensor:  # noqa: ARG002
        """Return log(y + 1/2): Newton steps from there do not overshoot."""
        return (y + 0.5).log()

    def site(
        self,
        y: Tensor,
        mean: Tensor,
        variance: Tensor,
        slopes: Slopes,  # noqa: ARG002
    ) -> tuple[Tensor, Tensor]:
        """Return sites that touch, but for entries far from their counts.

        Far below there is no curvature to say how far to go: by a factor of e^2 in the mean. Far
        above an entry would outweigh all others: its site is laid nearer to its count.
        """
        peak = (y + 0.5).log()
        point = torch.minimum(mean, peak + _ABOVE)
        exponent = torch.minimum(mean + 0.5 * variance, peak + _ABOVE)
        rate = exponent.exp()
        precision = torch.where(
            exponent < peak - _BELOW, torch.maximum(rate, (y - rate).abs() / REACH), rate
        )
        return precision, y - rate + precision * (point - mean)

    def followed(self, y: Tensor, slopes: Slopes) -> Slopes:
        """Return slopes of entries far above their counts as if they were at the border of that:
        q(A) has not settled there, and kernels would shrink until it need not.
        """
        most = (y + 0.5) * math.exp(_FAR_ABOVE)
        return replace(
            slopes,
            d_mean=torch.maximum(slopes.d_mean, -most),
            d_variance=torch.maximum(slopes.d_variance, -0.5 * most),
        )

    def slopes(
        self,
        y: Tensor,
        mean: Tensor,
        variance: Tensor,
        columns: Tensor | None = None,  # noqa: ARG002
    ) -> Slopes:
        """Return E log p(y | psi) and its slopes."""
        rate = _rate(mean, variance)
        value = y * mean - rate - log_factorial(y).to(mean.dtype)
        many = y > _MANY
        if mean.dtype == torch.float64 and bool(many.any()):
            value = torch.where(many, _value_of_many(y, mean, variance), value)
        return Slopes(value, y - rate, -0.5 * rate)

    def curvatures(self, y: Tensor, mean: Tensor, variance: Tensor) -> Curvatures:  # noqa: ARG002
        """Return the second derivatives."""
        rate = _rate(mean, variance)
        return Curvatures(-rate, -0.5 * rate, -0.25 * rate)

    def products(
        self, y: Tensor, mean: Tensor, variance: Tensor
    ) -> tuple[tuple[Tensor, Tensor], ...]:
        """Return (y, psi) and (1, -e^(psi + variance/2))."""
        return (y, mean), (torch.ones_like(y), -_rate(mean, variance))

    def predictive_products(
        self, y: Tensor, mean: Tensor, variance: Tensor
    ) -> tuple[tuple[Tensor, Tensor], ...]:
        """Return those of negative binomials: rates are taken for gamma variables whose logarithms
        have these moments. Where weights are uncertain, the bound is hundreds of nats below.
        """
        return gamma_products(y, mean, variance)


def _value_of_many(y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """Return E log p(y | psi) of counts that are large: y psi, e^psi and log y! would agree in most
    of their digits.
    """
    size = y.clamp(min=1.0)
    away = mean - size.log()
    above = (away + 0.5 * variance).clamp(max=_MOST[mean.dtype])
    return log_peak(y) - size * (torch.expm1(above) - away)


def _rate(mean: Tensor, variance: Tensor) -> Tensor:
    """Return E e^psi, psi ~ N(mean, variance)."""
    return (mean + 0.5 * variance).clamp(max=_MOST[mean.dtype]).exp()
