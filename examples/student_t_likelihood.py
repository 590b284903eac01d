"""A likelihood written by following the page on extensions: Student's t, for heavy tails."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from bochner.likelihoods import Curvatures, NonConjugateLikelihood, Slopes
from bochner.quadrature import normal_nodes


class StudentT(NonConjugateLikelihood):
    """y = psi + scale t, t of ``df`` degrees of freedom (more than 2: variances are finite).

    -log(1 + u) is convex in u: by Jensen's inequality E log p is at least its value at the
    expected square of y - psi. The scale is learned.
    """

    name, support, scales_with_data = "student_t", "real", True

    def __init__(self, scale: float = 0.3, df: int = 4) -> None:
        super().__init__(scale=scale, df=df)
        self.df = df
        self.log_scale = nn.Parameter(torch.tensor(scale, dtype=torch.float64).log())

    def slopes(
        self, y: Tensor, mean: Tensor, variance: Tensor, columns: Tensor | None = None
    ) -> Slopes:
        square, away, n = self._square(y), y - mean, self.df + 1
        total = square + away.square() + variance
        constant = math.lgamma(0.5 * n) - math.lgamma(0.5 * self.df) - 0.5 * math.log(math.pi)
        value = constant - 0.5 * square.log() - 0.5 * n * (total / square).log()
        return Slopes(value, n * away / total, -0.5 * n / total)

    def curvatures(self, y: Tensor, mean: Tensor, variance: Tensor) -> Curvatures:
        away = y - mean
        total = self._square(y) + away.square() + variance
        bend = (self.df + 1) / total.square()
        return Curvatures(bend * (2.0 * away.square() - total), -bend * away, 0.5 * bend)

    def log_prob(self, y: Tensor, psi: Tensor) -> Tensor:
        return self.slopes(y, psi, torch.zeros_like(psi)).value

    def log_predictive(self, y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        # log p is not concave in psi, which the quadrature of the base class relies on
        nodes, weights = (part.to(mean) for part in normal_nodes(100))
        psi = mean[..., None] + variance.sqrt()[..., None] * nodes
        return (self.log_prob(y[..., None], psi) + weights.log()).logsumexp(-1)

    def mean(self, psi: Tensor) -> Tensor:
        return psi

    def variance(self, psi: Tensor) -> Tensor:
        return (self._square(psi).detach() / (self.df - 2)).expand(psi.shape)

    def draw(self, psi: Tensor, source: torch.Generator) -> Tensor:
        normal = torch.randn((self.df + 1, *psi.shape), generator=source, dtype=psi.dtype)
        t = normal[0] / normal[1:].square().mean(0).sqrt()
        return psi + self.log_scale.detach().exp() * t

    def intercept(
        self, y: Tensor, offset: Tensor | None, columns: Tensor | None = None
    ) -> Tensor:
        return y.nanmedian(0).values

    def surrogate(self, Y: Tensor, offset: Tensor | None) -> Tensor:
        return Y

    def products(
        self, y: Tensor, mean: Tensor, variance: Tensor
    ) -> tuple[tuple[Tensor, Tensor], ...]:
        # -(y - mean)^2 less what depends on y alone: no sum of products, but it ranks alike
        return (torch.ones_like(y), -mean.square() - variance), (y, 2.0 * mean)

    def _square(self, like: Tensor) -> Tensor:
        """Return df scale^2 in the precision of the entries."""
        return (2.0 * self.log_scale).exp().to(like.dtype) * self.df
