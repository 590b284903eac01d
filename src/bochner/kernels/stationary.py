"""Stationary kernels of the distance, RBF and Matern, with their spectra."""

from __future__ import annotations

import math
from typing import Self

import torch
from torch import Tensor, nn

from bochner import random
from bochner._typing import Numbers, Sampling
from bochner.errors import InputError
from bochner.kernels.base import (
    Frequencies,
    SpectralKernel,
    as_tensor,
    check_components,
    positive,
)
from bochner.kernels.parameters import number

# Those whose closed form has no Bessel function.
_MATERN_ORDERS = (0.5, 1.5, 2.5)


def log_scale(name: str, values: Numbers, max_ndim: int = 1) -> nn.Parameter:
    """Return the logarithm of a positive scale, one number or (``max_ndim`` = 1) one per dimension.

    Raises
    ------
    InputError
        A value is not positive and finite, or there are too many axes.
    """
    logs = positive(name, as_tensor(values))
    if logs.ndim > max_ndim:
        allowed = "a number or one number per dimension" if max_ndim else "a number"
        raise InputError(f"{name} must be {allowed}, got shape {tuple(logs.shape)}.")
    return nn.Parameter(logs)


def differences(x: Tensor, y: Tensor | None, log_lengthscale: Tensor) -> Tensor:
    """Return (x_i - y_j) / lengthscale, shapes (N, D), (N', D) -> (N, N', D); y = None means y
    = x.
    """
    check_components("lengthscale", log_lengthscale, x.shape[-1])
    # Differences first: scaled squares would cancel for points far from the origin.
    delta = x[:, None, :] - (x if y is None else y)[None, :, :]
    return delta * (-log_lengthscale).exp().to(x.dtype)


class RBF(SpectralKernel):
    r"""The radial basis function, or squared exponential.

    .. math::

        k(x, x') = v \exp\left(-\tfrac12 \sum_d \delta_d^2 / l_d^2\right), \qquad \delta = x - x'

    with the variance v and lengthscales l_d.

    Parameters
    ----------
    lengthscale : float or array-like of shape (D,), default=1.0
        Units of the latent, positive; learned as ``log_lengthscale``.
    variance : float, default=1.0
        k(x, x), positive; learned as ``log_variance``.

    Raises
    ------
    InputError
        A lengthscale or the variance is not positive and finite, or has a wrong shape.

    Notes
    -----
    Its spectral density is normal with standard deviation 1 / lengthscale, radians per unit of
    latent.
    """

    stationary = True

    def __init__(self, lengthscale: Numbers = 1.0, variance: Numbers = 1.0) -> None:
        super().__init__(lengthscale=lengthscale, variance=variance)
        self.log_lengthscale = log_scale("lengthscale", lengthscale)
        self.log_variance = log_scale("variance", variance, max_ndim=0)

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        """Return the kernel matrix, (N, D), (N', D) -> (N, N')."""
        square = differences(x, y, self.log_lengthscale).square().sum(-1)
        return self.log_variance.exp().to(x.dtype) * (-0.5 * square).exp()

    def noise(
        self,
        n_frequencies: int,
        n_components: int,
        source: torch.Generator,
        sampling: Sampling,
    ) -> Tensor:
        """Draw (1, H, D) standard normal noise."""
        check_components("lengthscale", self.log_lengthscale, n_components)
        return random.normal(n_frequencies, n_components, source, sampling)[None]

    def frequencies(self, noise: Tensor) -> Frequencies:
        """w_l = eps_l / lengthscale with amplitude sqrt(variance / H)."""
        return Frequencies(
            noise[0] * (-self.log_lengthscale).exp(),
            None,
            _amplitude(self.log_variance, noise),
        )

    def initial(self, n_mixtures: int, n_components: int, source: torch.Generator) -> Self:  # noqa: ARG002
        """Return a fresh kernel with the arguments the user gave."""
        return type(self)(**self._params)


class Matern(SpectralKernel):
    r"""The Matern kernel of order 1/2, 3/2 or 5/2.

    .. math::

        k(x, x') = v\, p(s)\, e^{-s}, \qquad s^2 = 2 \nu \sum_d \delta_d^2 / l_d^2, \qquad
        \delta = x - x'

    with the variance v, lengthscales l_d, and p(s) = 1, 1 + s or 1 + s + s^2 / 3.

    Parameters
    ----------
    lengthscale : float or array-like of shape (D,), default=1.0
        Units of the latent, positive; learned as ``log_lengthscale``.
    nu : {0.5, 1.5, 2.5}, default=1.5
        The order; fixed. Order 1/2 is the exponential kernel.
    variance : float, default=1.0
        k(x, x), positive; learned as ``log_variance``.

    Raises
    ------
    InputError
        The order has no closed form here, or a scale is not positive and finite or has a wrong
        shape.

    Notes
    -----
    Its spectral density is one multivariate Student-t with 2 nu degrees of freedom, not a product
    over dimensions (docs/math.md, section 1; Rasmussen and Williams 2006, Eq. 4.15). The gradient
    at distance zero is 0.
    """

    stationary = True

    def __init__(
        self, lengthscale: Numbers = 1.0, nu: float = 1.5, variance: Numbers = 1.0
    ) -> None:
        super().__init__(lengthscale=lengthscale, nu=nu, variance=variance)
        if number(nu) not in _MATERN_ORDERS:
            raise InputError(
                f"nu must be 0.5, 1.5 or 2.5, got {nu!r}. For nu = infinity use RBF."
            )
        self.degrees = round(2 * nu)
        self.log_lengthscale = log_scale("lengthscale", lengthscale)
        self.log_variance = log_scale("variance", variance, max_ndim=0)

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        """Return the kernel matrix, (N, D), (N', D) -> (N, N')."""
        square = differences(x, y, self.log_lengthscale).square().sum(-1)
        # The root has an infinite slope at zero: coinciding points take a constant branch with
        # slope zero.
        apart = square > 0
        s = torch.where(apart, self.degrees * square, 1.0).sqrt() * apart
        polynomial = {1: torch.ones_like(s), 3: 1.0 + s, 5: 1.0 + s + s.square() / 3.0}[
            self.degrees
        ]
        return self.log_variance.exp().to(x.dtype) * polynomial * (-s).exp()

    def noise(
        self,
        n_frequencies: int,
        n_components: int,
        source: torch.Generator,
        sampling: Sampling,
    ) -> Tensor:
        """Draw (1, H, D + 2 nu) standard normal noise: D columns for the direction, 2 nu for the
        chi-square.
        """
        check_components("lengthscale", self.log_lengthscale, n_components)
        if sampling == "orthogonal":
            # Only directions can be orthogonal; blocks of D + 2 nu columns would tie them to the
            # lengths.
            direction = random.normal(n_frequencies, n_components, source, sampling)
            return torch.cat(
                [direction, random.normal(n_frequencies, self.degrees, source)], dim=1
            )[None]
        return random.normal(n_frequencies, n_components + self.degrees, source, sampling)[
            None
        ]

    def frequencies(self, noise: Tensor) -> Frequencies:
        """w_l = eps_l sqrt(2 nu / u_l) / lengthscale, u_l chi-square(2 nu), with amplitude
        sqrt(variance / H).
        """
        direction = noise[0, :, : -self.degrees]
        chi = noise[0, :, -self.degrees :]
        student = direction * (math.sqrt(self.degrees) / chi.norm(dim=1, keepdim=True))
        return Frequencies(
            student * (-self.log_lengthscale).exp(), None, _amplitude(self.log_variance, noise)
        )

    def initial(self, n_mixtures: int, n_components: int, source: torch.Generator) -> Self:  # noqa: ARG002
        """Return a fresh kernel with the arguments the user gave."""
        return type(self)(**self._params)


def _amplitude(log_variance: Tensor, noise: Tensor) -> Tensor:
    """Return sqrt(variance / H) for each of H points."""
    n_frequencies = noise.shape[1]
    amplitude: Tensor = (0.5 * log_variance).exp() / n_frequencies**0.5
    return amplitude.expand(n_frequencies)
