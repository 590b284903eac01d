"""The spectral mixture kernel and its non-stationary next generation (Li et al. 2024a, Yang et al.
2025; docs/math.md, section 1).
"""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor, nn

from bochner import random
from bochner._typing import Context, Numbers, Sampling
from bochner.errors import InputError
from bochner.kernels.base import (
    Frequencies,
    SpectralKernel,
    as_tensor,
    check_components,
    positive,
)


def narrowing(n_components: int) -> float:
    """Return by what a start's frequencies in D dimensions are multiplied, 1 up to D = 2 and 2 / D
    beyond.

    Distances between rows of unit variance grow as sqrt(D), and with frequencies as in the plane no
    two rows would be alike any more: training would collapse them. A kernel that is nearly
    linear to begin with does not.
    """
    return 2.0 / max(n_components, 2)


def _check_shape(name: str, values: Tensor, shape: tuple[int, ...]) -> Tensor:
    if tuple(values.shape) != shape:
        raise InputError(
            f"{name} must have shape {shape} (mixtures first), got {tuple(values.shape)}."
        )
    if not bool(torch.isfinite(values).all()):
        raise InputError(f"{name} must be finite.")
    return values


def _given(**params: object) -> bool:
    """Return whether the parameters have values; InputError when some do and some do not."""
    missing = [name for name, value in params.items() if value is None]
    if 0 < len(missing) < len(params):
        raise InputError(
            f"Give all of {', '.join(params)} or none of them: {missing[0]} is None."
        )
    return not missing


# Up to so many dimensions all components start alike in weight.
_FEW_DIMENSIONS = 10


def _start(
    n_mixtures: int, n_components: int, source: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Weights (Q,), means (Q, D), scales (Q, D): from smooth to wiggly on latents of unit variance.

    Distances grow with the dimension, and scales fall (`narrowing`), lest the kernel be that of
    noise. In many dimensions the first component is nearly linear, its weight such that its slopes
    are of the size of the data.
    """
    weights = torch.full((n_mixtures,), 1.0 / n_mixtures, dtype=torch.float64)
    means = 0.1 * torch.randn(n_mixtures, n_components, generator=source, dtype=torch.float64)
    if n_components > _FEW_DIMENSIONS:
        overall = torch.logspace(-0.7, 0.3, n_mixtures, base=10.0, dtype=torch.float64)
        scales = (overall / n_components**0.5)[:, None].expand(-1, n_components).clone()
        return overall.pow(-2), means * scales, scales
    scales = torch.logspace(0.0, 0.3, n_mixtures, base=10.0, dtype=torch.float64)
    narrow = narrowing(n_components)
    return weights, narrow * means, narrow * scales[:, None].expand(-1, n_components)


class SpectralMixture(SpectralKernel):
    r"""The stationary kernel whose spectral density is a mixture of Gaussians.

    .. math::

        k(x, x') = \sum_q \alpha_q \exp\left(-\tfrac12 \sum_d \sigma_{qd}^2 \delta_d^2\right)
        \cos \mu_q^\top \delta, \qquad \delta = x - x'

    Parameters
    ----------
    weights : array-like of shape (Q,), optional
        alpha, positive.
    means, scales : array-like of shape (Q, D), optional
        mu and sigma of the spectral density, radians per unit of latent; scales positive.
        Left at None, the three are chosen when a model is built.

    Raises
    ------
    InputError
        A weight or scale is not positive, shapes disagree, or only some arguments are given.

    Notes
    -----
    Li et al. (2024a), Eq. 12, with the exponent it means (docs/math.md, section 1).
    """

    stationary = True
    stackable = True

    def __init__(
        self,
        weights: Numbers | None = None,
        means: Numbers | None = None,
        scales: Numbers | None = None,
    ) -> None:
        super().__init__(weights=weights, means=means, scales=scales)
        if not _given(**self._params):
            return
        log_weights = positive("weights", as_tensor(weights))
        means = as_tensor(means)
        self.log_weights = nn.Parameter(
            _check_shape("weights", log_weights, (means.shape[0],))
        )
        self.means = nn.Parameter(
            _check_shape("means", means, (*log_weights.shape, means.shape[-1]))
        )
        self.log_scales = nn.Parameter(
            _check_shape("scales", positive("scales", as_tensor(scales)), tuple(means.shape))
        )

    @property
    def n_mixtures(self) -> int:
        """Q."""
        return int(self.log_weights.shape[0])

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        """Return the kernel matrix, (N, D), (N', D) -> (N, N')."""
        delta = x[:, None, :] - (x if y is None else y)[None, :, :]
        decay = torch.einsum(
            "nmd,qd->qnm", delta.square(), (2.0 * self.log_scales).exp().to(x.dtype)
        )
        wave = torch.einsum("nmd,qd->qnm", delta, self.means.to(x.dtype)).cos()
        return torch.einsum(
            "q,qnm->nm", self.log_weights.exp().to(x.dtype), (-0.5 * decay).exp() * wave
        )

    def noise(
        self,
        n_frequencies: int,
        n_components: int,
        source: torch.Generator,
        sampling: Sampling,
    ) -> Tensor:
        """Draw (Q, H, D) standard normal noise."""
        check_components("means", self.means, n_components)
        points = random.normal(self.n_mixtures * n_frequencies, n_components, source, sampling)
        return points.reshape(self.n_mixtures, n_frequencies, n_components)

    def frequencies(self, noise: Tensor) -> Frequencies:
        """w_l = mu_q + sigma_q eps_l with amplitude sqrt(alpha_q / H)."""
        n_frequencies = noise.shape[-2]
        w = self.means.unsqueeze(-2) + self.log_scales.exp().unsqueeze(-2) * noise
        amplitude = (0.5 * self.log_weights).exp() / n_frequencies**0.5
        return Frequencies(
            w.flatten(-3, -2), None, amplitude.repeat_interleave(n_frequencies, -1)
        )

    def initial(self, n_mixtures: int, n_components: int, source: torch.Generator) -> Self:
        """Return a start for training: given parameters are kept."""
        if self._params["weights"] is not None:
            return type(self)(**self._params)
        return type(self)(*_start(n_mixtures, n_components, source))


class NextGenSpectralMixture(SpectralKernel):
    r"""The non-stationary kernel of pairs of correlated Gaussian frequencies (NG-SM).

    .. math::

        k(x, x') = \tfrac14 \sum_q \alpha_q \left[T(x, x') + T(x', x)
        + e^{-\delta^\top S_1 \delta / 2} \cos \mu_1^\top \delta
        + e^{-\delta^\top S_2 \delta / 2} \cos \mu_2^\top \delta\right]

    with :math:`T(a, b) = \exp(-(a^\top S_1 a - 2 a^\top S_c b + b^\top S_2 b) / 2)
    \cos(\mu_1^\top a - \mu_2^\top b)`, :math:`\delta = x - x'`, :math:`S_i =
    \mathrm{diag}(\sigma_i^2)` and :math:`S_c = \rho\, \mathrm{diag}(\sigma_1 \sigma_2)`, all of
    the component q.

    Parameters
    ----------
    weights : array-like of shape (Q,), optional
        alpha, positive.
    means1, means2, scales1, scales2 : array-like of shape (Q, D), optional
        Means and standard deviations of the two frequencies, radians per unit of latent; standard
        deviations positive.
    correlations : array-like of shape (Q,), optional
        rho in (-1, 1). Left at None, all are chosen when a model is built.

    Raises
    ------
    InputError
        A weight or scale is not positive, a correlation not inside (-1, 1), shapes disagree, or
        only some are given.

    Notes
    -----
    Yang et al. (2025), section 3.1 and Prop. 1, drawn without its division (docs/math.md, section
    1).
    """

    stackable = True

    def __init__(
        self,
        weights: Numbers | None = None,
        means1: Numbers | None = None,
        means2: Numbers | None = None,
        scales1: Numbers | None = None,
        scales2: Numbers | None = None,
        correlations: Numbers | None = None,
    ) -> None:
        super().__init__(
            weights=weights,
            means1=means1,
            means2=means2,
            scales1=scales1,
            scales2=scales2,
            correlations=correlations,
        )
        if not _given(**self._params):
            return
        log_weights = positive("weights", as_tensor(weights))
        shape = tuple(as_tensor(means1).shape)
        if len(shape) != 2:
            raise InputError(f"means1 must have shape (mixtures, dimensions), got {shape}.")
        self.log_weights = nn.Parameter(_check_shape("weights", log_weights, shape[:1]))
        pairs = (("means1", means1), ("means2", means2))
        self.means = nn.Parameter(
            torch.stack([_check_shape(n, as_tensor(v), shape) for n, v in pairs])
        )
        pairs = (("scales1", scales1), ("scales2", scales2))
        logs = [_check_shape(n, positive(n, as_tensor(v)), shape) for n, v in pairs]
        self.log_scales = nn.Parameter(torch.stack(logs))
        rho = _check_shape("correlations", as_tensor(correlations), shape[:1])
        if bool((rho.abs() >= 1).any()):
            raise InputError(
                f"correlations must lie inside (-1, 1), got {float(rho[rho.abs() >= 1][0])}."
            )
        self.atanh_correlations = nn.Parameter(rho.atanh())

    @property
    def n_mixtures(self) -> int:
        """Q."""
        return int(self.log_weights.shape[0])

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        """Return the kernel matrix, (N, D), (N', D) -> (N, N')."""
        y = x if y is None else y
        scales = self.log_scales.exp().to(x.dtype)
        means = self.means.to(x.dtype)
        rho = self.atanh_correlations.tanh().to(x.dtype)
        delta = x[:, None, :] - y[None, :, :]
        kernel = x.new_zeros(x.shape[0], y.shape[0])
        for q, weight in enumerate(self.log_weights.exp().to(x.dtype)):
            (s1, s2) = scales[:, q]
            (m1, m2) = means[:, q]
            total = (
                self._cross(x, y, s1, s2, m1, m2, rho[q])
                + self._cross(y, x, s1, s2, m1, m2, rho[q]).T
            )
            for s, m in ((s1, m1), (s2, m2)):
                total = total + (-0.5 * (delta * s).square().sum(-1)).exp() * (delta @ m).cos()
            kernel = kernel + 0.25 * weight * total
        return kernel

    @staticmethod
    def _cross(
        a: Tensor, b: Tensor, s1: Tensor, s2: Tensor, m1: Tensor, m2: Tensor, rho: Tensor
    ) -> Tensor:
        """T(a, b) for all pairs, (N, D), (N', D) -> (N, N')."""
        square = (a * s1).square().sum(-1)[:, None] + (b * s2).square().sum(-1)[None, :]
        cross = 2.0 * rho * (a * s1) @ (b * s2).T
        return (-0.5 * (square - cross)).exp() * ((a @ m1)[:, None] - (b @ m2)[None, :]).cos()

    def noise(
        self,
        n_frequencies: int,
        n_components: int,
        source: torch.Generator,
        sampling: Sampling,
    ) -> Tensor:
        """Draw (Q, H, 2 D) standard normal noise."""
        check_components("means1", self.means, n_components)
        points = random.normal(
            self.n_mixtures * n_frequencies, 2 * n_components, source, sampling, groups=2
        )
        return points.reshape(self.n_mixtures, n_frequencies, 2 * n_components)

    def frequencies(self, noise: Tensor) -> Frequencies:
        """w1 = mu1 + sigma1 eps1, w2 = mu2 + sigma2 (rho eps1 + sqrt(1 - rho^2) eps2), sqrt(alpha_q
        / 4H).
        """
        parameters = (self.log_weights, self.means, self.log_scales, self.atanh_correlations)
        return Frequencies(*_Pairs.apply(*parameters, noise))  # type: ignore[no-untyped-call]

    def initial(self, n_mixtures: int, n_components: int, source: torch.Generator) -> Self:
        """Return a start for training, close to a stationary kernel: given parameters are kept."""
        if self._params["weights"] is not None:
            return type(self)(**self._params)
        weights, means, scales = _start(n_mixtures, n_components, source)
        correlations = torch.full((n_mixtures,), 0.9, dtype=torch.float64)
        return type(self)(weights, means, means.clone(), scales, scales.clone(), correlations)


class _Pairs(torch.autograd.Function):
    """Pairs of frequencies and their amplitudes, from the parameters of ``NextGenSpectralMixture``
    and noise; differentiable once.
    """

    @staticmethod
    def forward(
        ctx: Context,
        log_weights: Tensor,
        means: Tensor,
        log_scales: Tensor,
        atanh_correlations: Tensor,
        noise: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        n_frequencies = noise.shape[-2]
        eps1, eps2 = noise.chunk(2, dim=-1)
        rho = atanh_correlations.tanh()[..., None, None]
        # sqrt(1 - tanh^2) = 1 / cosh has no cancellation near |rho| = 1
        rest = atanh_correlations.cosh().reciprocal_()[..., None, None]
        correlated = torch.stack([eps1, torch.addcmul(rho * eps1, rest, eps2)], dim=-4)
        scales = log_scales.exp()
        w = torch.addcmul(means.unsqueeze(-2), scales.unsqueeze(-2), correlated)
        amplitude = (0.5 * log_weights).exp_().mul_(0.5 / n_frequencies**0.5)
        ctx.save_for_backward(eps1, eps2, rho, rest, correlated, scales, amplitude)
        first, second = w.flatten(-3, -2).unbind(-3)
        return first, second, amplitude.repeat_interleave(n_frequencies, -1)

    @staticmethod
    def backward(
        ctx: Context, d_first: Tensor, d_second: Tensor, d_amplitude: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, None]:
        eps1, eps2, rho, rest, correlated, scales, amplitude = ctx.saved_tensors
        d_w = torch.stack([d_first, d_second], dim=-3).view(correlated.shape)
        d_scales = (d_w * correlated).sum(-2) * scales
        # the second of a pair moves with rho by rest^2 eps1 - rest rho eps2, per unit of atanh(rho)
        moved = (rest * eps1 - rho * eps2).mul_(d_w.select(-4, 1)).sum(-2)
        d_atanh = (moved * scales.select(-3, 1)).sum(-1) * rest[..., 0, 0]
        d_each = d_amplitude.reshape(*amplitude.shape, -1).sum(-1)
        return 0.5 * amplitude * d_each, d_w.sum(-2), d_scales, d_atanh, None
