"""A kernel written by following the page on extensions: the rational quadratic."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor

from bochner import random
from bochner._typing import Sampling
from bochner.errors import InputError
from bochner.kernels import Frequencies, SpectralKernel
from bochner.kernels.base import check_components
from bochner.kernels.stationary import differences, log_scale


class RationalQuadratic(SpectralKernel):
    """k(x, x') = (1 + r^2 / (2 alpha))^(-alpha), r^2 = sum_d (delta_d / lengthscale_d)^2.

    A mixture of RBF kernels whose inverse squared lengthscale is Gamma(alpha, alpha) (Rasmussen
    and Williams 2006, Eq. 4.19): frequencies are normal times the root of such a variable. With
    alpha a whole number, that is a mean of 2 alpha squares of normal noise.
    """

    stationary = True

    def __init__(self, lengthscale: float = 1.0, alpha: int = 1) -> None:
        super().__init__(lengthscale=lengthscale, alpha=alpha)
        if alpha != int(alpha) or alpha < 1:
            raise InputError(f"alpha must be a whole number of at least 1, got {alpha}.")
        self.alpha = alpha
        self.log_lengthscale = log_scale("lengthscale", lengthscale)

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        square = differences(x, y, self.log_lengthscale).square().sum(-1)
        return (1.0 + square / (2.0 * self.alpha)) ** -self.alpha

    def noise(
        self,
        n_frequencies: int,
        n_components: int,
        source: torch.Generator,
        sampling: Sampling,
    ) -> Tensor:
        check_components("lengthscale", self.log_lengthscale, n_components)
        # orthogonal rows are for directions alone: the lengths have noise of their own
        direction = random.normal(n_frequencies, n_components, source, sampling)
        lengths = random.normal(n_frequencies, 2 * self.alpha, source)
        return torch.cat([direction, lengths], dim=1)[None]

    def frequencies(self, noise: Tensor) -> Frequencies:
        direction, lengths = noise[0].split(
            [noise.shape[2] - 2 * self.alpha, 2 * self.alpha], 1
        )
        first = direction * lengths.square().mean(1, keepdim=True).sqrt()
        n = noise.shape[1]
        return Frequencies(
            first * (-self.log_lengthscale).exp(), None, noise.new_full((n,), n**-0.5)
        )

    def initial(self, n_mixtures: int, n_components: int, source: torch.Generator) -> Self:
        return type(self)(**self.get_params())
