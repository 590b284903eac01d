"""A likelihood of one's own: waiting times y > 0 of mean e^psi, log p(y | psi) = -psi - y
e^(-psi).
"""

from __future__ import annotations

import torch
from torch import Tensor

from bochner.likelihoods import Curvatures, NonConjugateLikelihood, Slopes


class Exponential(NonConjugateLikelihood):
    """E e^(-psi) = exp(-mean + variance / 2) for psi ~ N(mean, variance): the bound is the
    expectation itself.
    """

    name, support = "exponential", "positive"

    def log_prob(self, y: Tensor, psi: Tensor) -> Tensor:
        return -psi - y * (-psi).exp()

    def mean(self, psi: Tensor) -> Tensor:
        return psi.exp()

    def variance(self, psi: Tensor) -> Tensor:
        return (2.0 * psi).exp()

    def draw(self, psi: Tensor, source: torch.Generator) -> Tensor:
        return psi.exp() * torch.empty_like(psi).exponential_(generator=source)

    def intercept(
        self, y: Tensor, offset: Tensor | None, columns: Tensor | None = None
    ) -> Tensor:
        return y.nanmean(0).log()

    def first(
        self, y: Tensor, mean: Tensor
    ) -> Tensor:  # the first Newton steps start near the data
        return torch.maximum(y.log(), mean - 4.0)

    def surrogate(self, Y: Tensor, offset: Tensor | None) -> Tensor:
        return Y.log()

    def slopes(
        self, y: Tensor, mean: Tensor, variance: Tensor, columns: Tensor | None = None
    ) -> Slopes:
        ratio = y * (0.5 * variance - mean).exp()
        return Slopes(-mean - ratio, ratio - 1.0, -0.5 * ratio)

    def curvatures(self, y: Tensor, mean: Tensor, variance: Tensor) -> Curvatures:
        ratio = y * (0.5 * variance - mean).exp()
        return Curvatures(-ratio, 0.5 * ratio, -0.25 * ratio)

    def products(
        self, y: Tensor, mean: Tensor, variance: Tensor
    ) -> tuple[tuple[Tensor, Tensor], ...]:
        return (torch.ones_like(y), -mean), (y, -(0.5 * variance - mean).exp())
