"""The periodic kernel, whose spectrum is discrete: whole multiples of the fundamental frequency."""

from __future__ import annotations

import math
from typing import Self

import torch
from torch import Tensor

from bochner import random
from bochner._typing import Numbers, Sampling
from bochner.errors import InputError, message
from bochner.kernels.base import Frequencies, SpectralKernel, as_tensor, check_components
from bochner.kernels.stationary import log_scale

# Harmonics -128 to 128 hold all of the spectrum down to a lengthscale of 0.05.
_MOST_HARMONICS = 128
_LEAST_LENGTHSCALE = 0.05
_GRID = 1024
# Shares of the proposal: the spectrum at the lengthscale that was given, at half of it, and a heavy
# tail.
_SHARES = (0.7, 0.2, 0.1)


class Periodic(SpectralKernel):
    r"""The periodic kernel, in every dimension with a period of its own.

    .. math::

        k(x, x') = v \exp\left(-2 \sum_d \frac{\sin^2(\pi \delta_d / p_d)}{l_d^2}\right),
        \qquad \delta = x - x'

    with the variance v, periods p_d and lengthscales l_d.

    Parameters
    ----------
    period : float or array-like of shape (D,), default=1.0
        Units of the latent, positive; learned as ``log_period``.
    lengthscale : float or array-like of shape (D,), default=1.0
        Without unit, positive; learned as ``log_lengthscale``. Features need 0.05 or more.
    variance : float, default=1.0
        k(x, x), positive; learned as ``log_variance``.

    Raises
    ------
    InputError
        A value is not positive and finite, or has a wrong shape; features of a lengthscale below
        0.05 are asked for.

    Notes
    -----
    In one dimension the spectrum has weight e^(-1/l^2) I_n(1/l^2) at 2 pi n / period, n any whole
    number; in D dimensions weights multiply. A whole number drawn from its weights has no
    derivative in the lengthscale. The harmonics are therefore drawn from a fixed distribution
    (wider than the one of the lengthscale the kernel was built with) and the ratio of the weights
    goes into the amplitude: features are unbiased at every lengthscale and differentiable in all
    parameters, at the price of a feature norm that varies with the draw.
    """

    stationary = True

    def __init__(
        self, period: Numbers = 1.0, lengthscale: Numbers = 1.0, variance: Numbers = 1.0
    ) -> None:
        super().__init__(period=period, lengthscale=lengthscale, variance=variance)
        self.log_period = log_scale("period", period)
        self.log_lengthscale = log_scale("lengthscale", lengthscale)
        self.log_variance = log_scale("variance", variance, max_ndim=0)
        proposal = _proposal(self.log_lengthscale.detach().reshape(-1))
        # the constructor's arguments make it again
        self.register_buffer("_drawn_from", proposal, persistent=False)

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        """Return the kernel matrix, (N, D), (N', D) -> (N, N')."""
        self._check(x.shape[-1])
        turns = (
            math.pi
            * (x[:, None, :] - (x if y is None else y)[None, :, :])
            * (-self.log_period).exp().to(x.dtype)
        )
        square = (turns.sin() * (-self.log_lengthscale).exp().to(x.dtype)).square().sum(-1)
        return self.log_variance.exp().to(x.dtype) * (-2.0 * square).exp()

    def noise(
        self,
        n_frequencies: int,
        n_components: int,
        source: torch.Generator,
        sampling: Sampling,
    ) -> Tensor:
        """Draw (1, H, D) standard normal noise: its quantiles choose the harmonics."""
        self._check(n_components)
        # of the one that was given: a fit goes on wherever it leads
        least = float(as_tensor(self._params["lengthscale"]).min())
        if least < _LEAST_LENGTHSCALE:
            expected = (
                f"a lengthscale of at least {_LEAST_LENGTHSCALE} for features of Periodic"
            )
            do = "choose a larger one; the kernel matrix itself takes any"
            raise InputError(message(expected, f"{least:g}", do))
        return random.normal(n_frequencies, n_components, source, sampling)[None]

    def frequencies(self, noise: Tensor) -> Frequencies:
        """w_ld = 2 pi n_ld / period_d, amplitude sqrt(variance / H prod_d p(n_ld) / q(n_ld))."""
        n_frequencies, dim = noise.shape[1:]
        drawn_from = self.get_buffer("_drawn_from").expand(dim, -1)
        quantile = torch.special.ndtr(noise[0].T.contiguous())
        index = torch.searchsorted(drawn_from.cumsum(1), quantile).clamp(
            max=2 * _MOST_HARMONICS
        )
        spectrum = _spectrum(self.log_lengthscale.reshape(-1)).expand(dim, -1)
        ratio = (spectrum.gather(1, index) / drawn_from.gather(1, index)).prod(0)
        w = 2.0 * math.pi * (index.T - _MOST_HARMONICS).double() * (-self.log_period).exp()
        return Frequencies(w, None, (self.log_variance.exp() * ratio / n_frequencies).sqrt())

    def initial(self, n_mixtures: int, n_components: int, source: torch.Generator) -> Self:  # noqa: ARG002
        """Return a fresh kernel with the arguments the user gave."""
        return type(self)(**self._params)

    def _check(self, n_components: int) -> None:
        check_components("period", self.log_period, n_components)
        check_components("lengthscale", self.log_lengthscale, n_components)


def _spectrum(log_lengthscale: Tensor) -> Tensor:
    """Return e^(-1/l^2) I_n(1/l^2) for n = -128 .. 128, shape (D,) -> (D, 257).

    I_n is an integral of e^(cos) cos over a period, and for periodic functions the mean over a grid
    is exact.
    """
    angle = torch.arange(_GRID, dtype=torch.float64, device=log_lengthscale.device) * (
        2.0 * math.pi / _GRID
    )
    n = torch.arange(_MOST_HARMONICS + 1, dtype=torch.float64, device=log_lengthscale.device)
    wave = torch.exp((-2.0 * log_lengthscale).exp()[:, None] * (angle.cos() - 1.0))
    # far out rounding leaves +-1e-17: a floor keeps the root of the ratio, and its slope, finite
    half = (wave @ (angle[:, None] * n).cos() / _GRID).clamp(min=1e-30)
    return torch.cat([half.flip(1)[:, :-1], half], dim=1)


def _proposal(log_lengthscale: Tensor) -> Tensor:
    """Return the distribution that harmonics are drawn from, (D,) -> (D, 257)."""
    n = torch.arange(-_MOST_HARMONICS, _MOST_HARMONICS + 1, dtype=torch.float64)
    tail = (1.0 / (1.0 + n.square())).expand(len(log_lengthscale), -1)
    parts = (_spectrum(log_lengthscale), _spectrum(log_lengthscale - math.log(2.0)), tail)
    mixed = torch.stack(
        [
            share * part / part.sum(1, keepdim=True)
            for share, part in zip(_SHARES, parts, strict=True)
        ]
    )
    return mixed.sum(0)
