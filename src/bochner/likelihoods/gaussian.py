"""Gaussian noise of one variance per view, or of one per column."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from bochner.errors import InputError, message
from bochner.kernels.base import as_tensor, positive
from bochner.likelihoods.nonconjugate import Likelihood

# Least noise variance of a column that learns its own, in scaled units.
_LEAST = 1e-4
# Of one variance for all columns of scaled data. Rows beside one of another order let it fall until
# no step of latents or features fits between them and the bound: at 1e-8 fits of 100 rows, one of
# them 1e5 times the others, ended 1e5 nats below noise alone (seeds 5 to 7), at 1e-7 and 1e-6 above
# it. Data without noise are not held back: surfaces and waves end at 3e-6 and 5e-5.
_LEAST_SHARED = 1e-6


class Gaussian(Likelihood):
    """y = psi + N(0, noise_variance), the projection variance of Li et al. (2024a).

    Parameters
    ----------
    noise_variance : float, or sequence of M floats for one per column
        In the units of the scaled view squared; positive. Those of columns stay above 1e-4: the
        bound of a column without noise, a constant one say, has no maximum. One that training
        learns for all columns stays above 1e-6.
    least : float, or sequence of M floats, default=0
        Variances of columns, no other ones, stay above it, too: what discrete values ask for. The
        bound of a column of three values rises without end as its noise falls, and latents that
        code it say nothing of the others.

    Raises
    ------
    InputError
        The variance is not positive and finite.
    """

    name: ClassVar[str] = "gaussian"
    knows_by_rows: ClassVar[bool] = True
    scales_with_data: ClassVar[bool] = True

    def __init__(
        self,
        noise_variance: float | Sequence[float] = 0.1,
        least: float | Sequence[float] = 0.0,
    ) -> None:
        super().__init__(noise_variance=noise_variance, least=least)
        given = as_tensor(noise_variance)
        start = positive("noise_variance", given)
        floor = as_tensor(least)
        if not bool((floor.isfinite() & (floor >= 0.0)).all()) or floor.ndim > given.ndim:
            expected = "least finite and at least 0, one number or one per noise_variance"
            raise InputError(message(expected, repr(least), "correct it, or leave it out"))
        # of columns: no parameter, and so no part of the state
        self._least = floor.clamp(min=_LEAST)
        if given.ndim:
            start = (given - self._least).clamp(min=1e-2 * _LEAST).log()
        self.log_noise_variance = nn.Parameter(start)

    @property
    def per_column(self) -> bool:
        """Whether every column has a variance of its own."""
        return self.log_noise_variance.ndim > 0

    @property
    def known_variance(self) -> float | Tensor:
        """The variance without its history: a number, or of shape (M,)."""
        variance = self.noise_variance.detach()
        return variance if self.per_column else float(variance)

    @property
    def one_variance(self) -> bool:
        """Whether all columns share the variance."""
        return not self.per_column

    @property
    def learned(self) -> bool:
        """Whether training moves the variance."""
        return self.log_noise_variance.requires_grad

    @property
    def noise_variance(self) -> Tensor:
        """The variance, scalar or of shape (M,), float64."""
        variance = self.log_noise_variance.exp()
        return variance + self._least.to(variance) if self.per_column else variance

    def project(self) -> None:
        """Keep a learned variance where rounding leaves something of it."""
        if self.learned and not self.per_column:
            with torch.no_grad():
                self.log_noise_variance.clamp_(min=math.log(_LEAST_SHARED))

    def log_prob(self, y: Tensor, psi: Tensor) -> Tensor:
        """Return log N(y; psi, noise_variance), elementwise."""
        squares = (y - psi).square() / self.noise_variance
        return -0.5 * (math.log(2.0 * math.pi) + self.noise_variance.log() + squares)

    def mean(self, psi: Tensor) -> Tensor:
        """Return psi."""
        return psi

    def variance(self, psi: Tensor) -> Tensor:
        """Return the noise variance at every entry."""
        return self.noise_variance.detach().to(psi.dtype).expand(psi.shape)

    def draw(self, psi: Tensor, source: torch.Generator) -> Tensor:
        """Draw psi plus noise."""
        noise = torch.randn(psi.shape, generator=source, dtype=psi.dtype)
        return psi + self.variance(psi).sqrt() * noise

    def predict(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance + noise variance."""
        return mean, variance + self.variance(mean)

    def log_predictive(self, y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """Return log N(y; mean, variance + noise_variance)."""
        v = variance + self.variance(mean)
        return -0.5 * ((2.0 * math.pi * v).log() + (y - mean).square() / v)
