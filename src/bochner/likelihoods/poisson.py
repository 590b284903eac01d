"""Counts whose variance is their mean."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from bochner.likelihoods.base import Curvatures, LocalLikelihood, Slopes
from bochner.likelihoods.counts import SizeFactors, check_size_factors, log_normalised, log_rate


class Poisson(LocalLikelihood):
    """Counts of mean and variance e^psi.

    E log p is in closed form, E e^psi = exp(mean + variance / 2): no augmentation, no gap (MATH.md section 3).

    Parameters
    ----------
    size_factors : {None, "total"}, default=None
        "total": a row's mean is proportional to its total count in the view. Factors of your own go to ``fit``.
    """

    name: ClassVar[str] = "poisson"
    support: ClassVar[str] = "counts"

    def __init__(self, size_factors: SizeFactors = None) -> None:
        super().__init__(size_factors=size_factors)
        check_size_factors(size_factors)
        self.size_factors = size_factors

    def log_prob(self, y: Tensor, psi: Tensor) -> Tensor:
        """Return y psi - e^psi - log y!."""
        return y * psi - psi.exp() - (y.double() + 1.0).lgamma().to(psi.dtype)

    def mean(self, psi: Tensor) -> Tensor:
        """Return e^psi."""
        return psi.exp()

    def variance(self, psi: Tensor) -> Tensor:
        """Return e^psi."""
        return psi.exp()

    def draw(self, psi: Tensor, source: torch.Generator) -> Tensor:
        """Draw counts."""
        return torch.poisson(psi.exp(), generator=source)

    def predict(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance of counts whose log mean is normal, in closed form."""
        first = (mean + 0.5 * variance).exp()
        return first, first + first.square() * variance.expm1()

    def intercept(self, y: Tensor, offset: Tensor | None, columns: Tensor | None = None) -> Tensor:  # noqa: ARG002
        """Return the log of mean count over mean size."""
        return log_rate(y, offset)

    def first(self, y: Tensor, mean: Tensor) -> Tensor:  # noqa: ARG002
        """Return log(y + 1/2): Newton steps from there do not overshoot."""
        return (y + 0.5).log()

    def stand_in(self, Y: Tensor, offset: Tensor | None) -> Tensor:
        """Return log(1 + y / size)."""
        return log_normalised(Y, offset)

    def slopes(self, y: Tensor, mean: Tensor, variance: Tensor, columns: Tensor | None = None) -> Slopes:  # noqa: ARG002
        """Return E log p(y | psi) and its slopes."""
        rate = (mean + 0.5 * variance).exp()
        constant = (y.double() + 1.0).lgamma().to(mean.dtype)
        return Slopes(y * mean - rate - constant, y - rate, -0.5 * rate)

    def curvatures(self, y: Tensor, mean: Tensor, variance: Tensor) -> Curvatures:  # noqa: ARG002
        """Return the second derivatives."""
        rate = (mean + 0.5 * variance).exp()
        return Curvatures(-rate, -0.5 * rate, -0.25 * rate)

    def products(self, y: Tensor, mean: Tensor, variance: Tensor) -> tuple[tuple[Tensor, Tensor], ...]:
        """Return (y, psi) and (1, -e^(psi + variance/2))."""
        return (y, mean), (torch.ones_like(y), -(mean + 0.5 * variance).exp())
