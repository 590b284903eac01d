"""A kernel of one's own: k(x, x') = product over d of 1 / (1 + (delta_d / lengthscale)^2), delta =
x - x'.
"""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor

from bochner import random
from bochner.kernels import Frequencies, SpectralKernel
from bochner.kernels.stationary import differences, log_scale


class Cauchy(SpectralKernel):
    """Correlation falls as a power of the distance: far points still say something. The spectrum is
    Laplace's.
    """

    stationary = True

    def __init__(self, lengthscale: Any = 1.0) -> None:
        super().__init__(lengthscale=lengthscale)  # get_params, clone and repr read these
        # checked; learned as its log
        self.log_lengthscale = log_scale("lengthscale", lengthscale, max_ndim=0)

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        return (1.0 + differences(x, y, self.log_lengthscale).square()).reciprocal().prod(-1)

    def noise(
        self, n_frequencies: int, n_components: int, source: torch.Generator, sampling: Any
    ) -> Tensor:
        return random.normal(n_frequencies, n_components, source, sampling)[None]

    def frequencies(self, noise: Tensor) -> Frequencies:
        # normal to Laplace: sign(e) times an exponential variable, -log(2 Phi(-|e|))
        size = -(torch.special.log_ndtr(-noise[0].abs()) + torch.log(torch.tensor(2.0)))
        n = noise.shape[1]
        return Frequencies(
            noise[0].sign() * size * (-self.log_lengthscale).exp(),
            None,
            noise.new_full((n,), n**-0.5),
        )

    def initial(self, n_mixtures: int, n_components: int, source: torch.Generator) -> Self:
        return type(self)(**self.get_params())
