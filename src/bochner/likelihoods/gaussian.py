"""Gaussian noise of one variance per view."""

from __future__ import annotations

import math

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

    def __init__(self, noise_variance: float = 0.1) -> None:
        super().__init__()
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
