"""The Gibbs kernel, whose lengthscale varies with the point, and sums of kernels."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor, nn

from bochner._typing import Numbers, Sampling
from bochner.errors import InputError
from bochner.kernels.base import Frequencies, Kernel, SpectralKernel, as_tensor
from bochner.kernels.stationary import log_scale


class Gibbs(Kernel):
    r"""An RBF kernel whose lengthscale varies with the point; exact only.

    .. math::

        k(x, x') = v \left(\frac{2 l l'}{l^2 + l'^2}\right)^{D/2}
        \exp\left(-\frac{\|x - x'\|^2}{l^2 + l'^2}\right)

    with the variance v, l of x the lengthscale times exp(-decay norm(x)), and l' that of x'.

    Parameters
    ----------
    lengthscale : float, default=1.0
        l at the origin, units of the latent, positive; learned as ``log_lengthscale``.
    decay : float, default=0.5
        Per unit of latent; 0 gives RBF; learned as ``decay``.
    variance : float, default=1.0
        k(x, x), positive; learned as ``log_variance``.

    Raises
    ------
    InputError
        Lengthscale or variance is not positive, or decay is not a finite number.

    Notes
    -----
    The power D / 2 makes it positive semi-definite in D dimensions; Yang et al. (2025) print the
    form of D = 1 (docs/math.md, section 1).
    """

    def __init__(
        self, lengthscale: Numbers = 1.0, decay: Numbers = 0.5, variance: Numbers = 1.0
    ) -> None:
        super().__init__(lengthscale=lengthscale, decay=decay, variance=variance)
        rate = as_tensor(decay)
        if rate.ndim or not bool(torch.isfinite(rate)):
            raise InputError(f"decay must be a finite number, got {decay!r}.")
        self.decay = nn.Parameter(rate)
        self.log_lengthscale = log_scale("lengthscale", lengthscale, max_ndim=0)
        self.log_variance = log_scale("variance", variance, max_ndim=0)

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        """Return the kernel matrix, (N, D), (N', D) -> (N, N')."""
        y = x if y is None else y
        log_x = self._log_lengthscales(x)[:, None]
        log_y = self._log_lengthscales(y)[None, :]
        total = (2.0 * log_x).exp() + (2.0 * log_y).exp()
        # 2 l l' / (l^2 + l'^2) = 1 / cosh(log l - log l'), written to stay finite for any gap of
        # the logarithms
        gap = (log_x - log_y).abs()
        log_prefactor = (
            0.5 * x.shape[-1] * (math.log(2.0) - gap - torch.log1p((-2.0 * gap).exp()))
        )
        square = (x[:, None, :] - y[None, :, :]).square().sum(-1)
        return (self.log_variance.to(x.dtype) + log_prefactor - square / total).exp()

    def _log_lengthscales(self, x: Tensor) -> Tensor:
        distance: Tensor = torch.linalg.vector_norm(x, dim=-1)
        return self.log_lengthscale.to(x.dtype) - self.decay.to(x.dtype) * distance


class Sum(Kernel):
    """The sum of kernels of any kind; exact only. ``SpectralSum`` has features too.

    Parameters
    ----------
    kernels : sequence of Kernel
        Copied: training the sum leaves them as they are.

    Raises
    ------
    InputError
        There is none, or something else is among them.
    """

    def __init__(self, kernels: Sequence[Kernel]) -> None:
        super().__init__(kernels=kernels)
        self.parts = _copies(kernels, Kernel)
        self.stationary = all(part.stationary for part in kernels)

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        """Return the kernel matrix, (N, D), (N', D) -> (N, N')."""
        return torch.stack([part(x, y) for part in self.parts]).sum(0)


class SpectralSum(SpectralKernel):
    """The sum of kernels that all have spectral densities: their spectral points are stacked.

    Parameters
    ----------
    kernels : sequence of SpectralKernel
        Copied: training the sum leaves them as they are.

    Raises
    ------
    InputError
        There is none, or a kernel without a spectral density is among them.
    """

    def __init__(self, kernels: Sequence[SpectralKernel]) -> None:
        super().__init__(kernels=kernels)
        self.parts = _copies(kernels, SpectralKernel)
        self.stationary = all(part.stationary for part in kernels)

    @property
    def n_mixtures(self) -> int:
        """Mixture components of all parts together."""
        return sum(part.n_mixtures for part in self._spectral_parts())

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        """Return the kernel matrix, (N, D), (N', D) -> (N, N')."""
        return torch.stack([part(x, y) for part in self.parts]).sum(0)

    def noise(
        self,
        n_frequencies: int,
        n_components: int,
        source: torch.Generator,
        sampling: Sampling,
    ) -> Tensor:
        """Draw the parts' noise, H points per component; NaN fills the columns that a part does not
        have.
        """
        draws = [
            part.noise(n_frequencies, n_components, source, sampling)
            for part in self._spectral_parts()
        ]
        width = max(draw.shape[-1] for draw in draws)
        return torch.cat(
            [nn.functional.pad(d, (0, width - d.shape[-1]), value=math.nan) for d in draws]
        )

    def frequencies(self, noise: Tensor) -> Frequencies:
        """Stack the spectral points of the parts, each with its own amplitude."""
        parts = self._spectral_parts()
        blocks = torch.split(noise, [part.n_mixtures for part in parts])
        # by all rows of a part: some of a sum within the sum are padded already
        points = [
            part.frequencies(b[..., ~b.isnan().all(1).all(0)])
            for part, b in zip(parts, blocks, strict=True)
        ]
        first = torch.cat([p.first for p in points])
        if self.stationary:
            return Frequencies(first, None, torch.cat([p.amplitude for p in points]))
        pairs = [p.paired() for p in points]
        second = torch.cat([p.partners for p in pairs])
        return Frequencies(first, second, torch.cat([p.amplitude for p in pairs]))

    def initial(self, n_mixtures: int, n_components: int, source: torch.Generator) -> Self:
        """Return the sum of the parts' starts."""
        return type(self)(
            [
                part.initial(n_mixtures, n_components, source)
                for part in self._params["kernels"]
            ]
        )

    def _spectral_parts(self) -> list[SpectralKernel]:
        return [part for part in self.parts if isinstance(part, SpectralKernel)]


def _copies(kernels: Sequence[Kernel], kind: type[object]) -> nn.ModuleList:
    if isinstance(kernels, Kernel) or not hasattr(kernels, "__len__") or not len(kernels):
        raise InputError(
            f"kernels must be a list of at least one {kind.__name__}, got {kernels!r}."
        )
    for kernel in kernels:
        if not isinstance(kernel, kind):
            do = (
                " Use Sum for kernels without spectral density."
                if isinstance(kernel, Kernel)
                else ""
            )
            raise InputError(
                f"kernels must hold {kind.__name__} objects, got {type(kernel).__name__}.{do}"
            )
    return nn.ModuleList(copy.deepcopy(kernel) for kernel in kernels)
