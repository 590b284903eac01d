"""Gaussian noise of one variance per view."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn

from bochner.kernels.base import as_tensor, positive
from bochner.likelihoods.base import Likelihood


class Gaussian(Likelihood):
    """y = psi + N(0, noise_variance), the projection variance of paper 001.

    Parameters
    ----------
    noise_variance : float
        In the units of the scaled view squared; positive.

    Raises
    ------
    InputError
        The variance is not positive and finite.
    """

    name: ClassVar[str] = "gaussian"

    def __init__(self, noise_variance: float = 0.1) -> None:
        super().__init__(noise_variance=noise_variance)
        self.log_noise_variance = nn.Parameter(positive("noise_variance", as_tensor(noise_variance)))

    @property
    def noise_variance(self) -> Tensor:
        """The variance, scalar float64."""
        return self.log_noise_variance.exp()

    def log_prob(self, y: Tensor, psi: Tensor) -> Tensor:
        """Return log N(y; psi, noise_variance), elementwise."""
        deviation = (y - psi).square() / self.noise_variance
        return -0.5 * (math.log(2.0 * math.pi) + self.log_noise_variance + deviation)

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
