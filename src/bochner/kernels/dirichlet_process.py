"""The spectral kernel whose number of mixture components the data decide: a truncated Dirichlet
process mixture.
"""

from __future__ import annotations

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
from bochner.kernels.spectral_mixture import narrowing
from bochner.kernels.stationary import log_scale

# log of a responsibility that is zero: finite, so that products with a zero step stay finite
_LOG_ZERO = -745.0


class DirichletProcessMixture(SpectralKernel):
    r"""A stationary kernel whose spectral density is a Dirichlet process mixture of Gaussians.

    .. math::

        k(x, x') = v \sum_k r_k \exp\left(-\tfrac12 \sum_d \sigma_{kd}^2 \delta_d^2\right)
        \cos \mu_k^\top \delta, \qquad \delta = x - x'

    with the variance v and r_k the mean of phi_lk over the points l.

    Every spectral point l chooses its own component z_l, q(z_l) = Cat(phi_l), under a
    stick-breaking prior truncated at T components; the points of component k are N(mu_k, diag
    sigma_k^2). The number of points H counts all of them.

    Parameters
    ----------
    proportions : array-like of shape (T,) or (R, T), optional
        phi, rows sum to 1: one for all points, or one for each H / R of them.
    means, scales : array-like of shape (T, D), optional
        mu and sigma, radians per unit of latent; scales positive. Left at None, the three are
        chosen when a model is built.
    variance : float, default=1.0
        k(x, x), positive; learned.
    prior : (float, float), default=(1.0, 1.0)
        Shape and rate of the Gamma prior of the concentration, positive.
    n_points : int, optional
        R of a kernel whose proportions are chosen when a model is built; models set it to their H.

    Raises
    ------
    InputError
        Proportions that are negative or do not sum to 1, a scale, the variance or a prior that is
        not positive, shapes that disagree, or only some of proportions, means and scales.

    Notes
    -----
    Li et al. (2024b), section 3.1 and 4.3; docs/math.md, section 4. ``frequencies`` makes hard
    draws: z_l from phi_l by the quantile in the last column of the noise, then w_l = mu_z + sigma_z
    eps_l. They are differentiable in mu, sigma and the variance; phi and the posterior of the
    sticks are no parameters but buffers, updated by blocks of their own.
    """

    stationary = True

    def __init__(
        self,
        proportions: Numbers | None = None,
        means: Numbers | None = None,
        scales: Numbers | None = None,
        variance: Numbers = 1.0,
        prior: object = (1.0, 1.0),
        n_points: int | None = None,
    ) -> None:
        super().__init__(
            proportions=proportions,
            means=means,
            scales=scales,
            variance=variance,
            prior=prior,
            n_points=n_points,
        )
        self.prior = _checked_prior(prior)
        if n_points is not None and not number(n_points) >= 1:
            raise InputError(f"n_points must be at least 1, got {n_points!r}.")
        given = [
            name
            for name in ("proportions", "means", "scales")
            if self._params[name] is not None
        ]
        if 0 < len(given) < 3:
            raise InputError(
                f"Give all of proportions, means, scales or none of them: only {given} are given."
            )
        self.log_variance = log_scale("variance", variance, max_ndim=0)
        if not given:
            return
        locations = as_tensor(means)
        logs = positive("scales", as_tensor(scales))
        phi = _checked_proportions(as_tensor(proportions), locations)
        if tuple(logs.shape) != tuple(locations.shape):
            raise InputError(
                f"scales must have shape {tuple(locations.shape)} (mixtures first), got "
                f"{tuple(logs.shape)}."
            )
        if not bool(torch.isfinite(locations).all()):
            raise InputError("means must be finite.")
        self.means = nn.Parameter(locations)
        self.log_scales = nn.Parameter(logs)
        self._start_posterior(phi)

    def _start_posterior(self, phi: Tensor) -> None:
        sticks = torch.ones(phi.shape[1] - 1, dtype=torch.float64)
        shape, rate = self.prior
        self.register_buffer("log_phi", phi.log().clamp(min=_LOG_ZERO))
        # q(v_k) = Beta(a_k, b_k) of the k-th component in ``order``, q(alpha) = Gamma(shape, rate):
        # at the prior
        self.register_buffer("stick_a", sticks)
        self.register_buffer("stick_b", sticks * shape / rate)
        self.register_buffer("concentration", torch.tensor([shape, rate], dtype=torch.float64))
        self.register_buffer("order", torch.arange(phi.shape[1]))

    @property
    def truncation(self) -> int:
        """T."""
        return int(self.means.shape[0])

    @property
    def phi(self) -> Tensor:
        """q(z), shape (R, T), rows sum to 1."""
        return self.get_buffer("log_phi").softmax(1)

    @property
    def proportions(self) -> Tensor:
        """Share of the spectral points that each component is expected to have, shape (T,)."""
        return self.phi.mean(0)

    def values(self) -> dict[str, Tensor]:
        """Return parameters, proportions and the expected concentration, largest component
        first.
        """
        values = {
            name: value
            for name, value in super().values().items()
            if name in ("variance", "means", "scales")
        }
        share = self.proportions
        rank = share.argsort(descending=True, stable=True)
        shape, rate = self.get_buffer("concentration")
        parts = {
            "proportions": share[rank],
            "means": values["means"][rank],
            "scales": values["scales"][rank],
        }
        return {**parts, "variance": values["variance"], "concentration": shape / rate}

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        """Return the kernel matrix, (N, D), (N', D) -> (N, N')."""
        check_components("means", self.means, x.shape[-1])
        delta = x[:, None, :] - (x if y is None else y)[None, :, :]
        square = delta.square()
        kernel = x.new_zeros(delta.shape[:2])
        squared_scales = (2.0 * self.log_scales).exp().to(x.dtype)
        means = self.means.to(x.dtype)
        # one by one: (T, N, N') at once would be large
        for k, share in enumerate(self.proportions.to(x.dtype)):
            kernel = (
                kernel
                + share * (-0.5 * square @ squared_scales[k]).exp() * (delta @ means[k]).cos()
            )
        return self.log_variance.exp().to(x.dtype) * kernel

    def noise(
        self,
        n_frequencies: int,
        n_components: int,
        source: torch.Generator,
        sampling: Sampling,
    ) -> Tensor:
        """Draw (1, H, D + 1) standard normal noise: D columns for the points, the last to choose
        their components.
        """
        check_components("means", self.means, n_components)
        if sampling == "orthogonal":
            # only directions can be orthogonal; the choice of a component is no direction
            directions = random.normal(n_frequencies, n_components, source, sampling)
            return torch.cat([directions, random.normal(n_frequencies, 1, source)], dim=1)[
                None
            ]
        return random.normal(n_frequencies, n_components + 1, source, sampling)[None]

    def frequencies(self, noise: Tensor) -> Frequencies:
        """w_l = mu_z + sigma_z eps_l with z_l drawn from phi_l, amplitude sqrt(variance / H)."""
        n_points = noise.shape[1]
        z = self.assign(noise)
        w = self.means[z] + self.log_scales[z].exp() * noise[0, :, :-1]
        return Frequencies(
            w, None, ((0.5 * self.log_variance).exp() / n_points**0.5).expand(n_points)
        )

    def assign(self, noise: Tensor) -> Tensor:
        """Return the components z that noise chooses.

        Parameters
        ----------
        noise : Tensor of shape (1, H, D + 1)

        Returns
        -------
        Tensor of shape (H,), int64

        Raises
        ------
        InputError
            H is not a multiple of the R points that have proportions of their own.
        """
        phi = self.phi
        n_points = noise.shape[1]
        if n_points % phi.shape[0]:
            raise InputError(
                f"Expected a multiple of {phi.shape[0]} spectral points, one for each that chose "
                "its component, got "
                f"{n_points}. Type n_frequencies={phi.shape[0]}, or {2 * phi.shape[0]} features."
            )
        quantile = torch.special.ndtr(noise[0, :, -1:].contiguous())
        steps = phi.cumsum(1).repeat_interleave(n_points // phi.shape[0], dim=0)
        return torch.searchsorted(steps, quantile)[:, 0].clamp(max=self.truncation - 1)

    @property
    def without_values(self) -> list[str]:
        """Names of the proportions, means and scales where a model has to choose them."""
        return [name for name in super().without_values if name != "n_points"]

    @property
    def has_free_components(self) -> bool:
        """Whether no components were given."""
        return self._params["proportions"] is None

    @property
    def has_posterior(self) -> bool:
        """Always: q of assignments, sticks and concentration."""
        return True

    @property
    def has_distinct_points(self) -> bool:
        """Whether each point has a q(z) of its own; given proportions of one row are those of all
        points.
        """
        return self._params["proportions"] is None or self.phi.shape[0] > 1

    def prepared(self, n_frequencies: int) -> Self:
        """Return this kernel with a q(z) for each of H points, where it has none yet."""
        if self._params["proportions"] is not None or self._params["n_points"] is not None:
            return self
        return type(self)(**{**self._params, "n_points": n_frequencies})

    def initial(self, n_mixtures: int, n_components: int, source: torch.Generator) -> Self:
        """Return a start for training with T = ``n_mixtures``: given parameters are kept."""
        if self._params["proportions"] is not None:
            return type(self)(**self._params)
        rows = self._params["n_points"] or 1
        # Components from smooth to wiggly, and every point nearly undecided: the data choose.
        means = torch.randn(n_mixtures, n_components, generator=source, dtype=torch.float64)
        means *= 0.5 * narrowing(n_components)
        scales = torch.logspace(-0.3, 0.3, n_mixtures, base=10.0, dtype=torch.float64)
        scales = scales[torch.randperm(n_mixtures, generator=source)]
        scales = narrowing(n_components) * scales[:, None].expand(-1, n_components)
        phi = (
            0.1 * torch.randn(rows, n_mixtures, generator=source, dtype=torch.float64)
        ).softmax(1)
        return type(self)(phi, means, scales, self._params["variance"], self._params["prior"])


def _checked_prior(prior: object) -> tuple[float, float]:
    values = as_tensor(prior)
    if values.shape != (2,) or not bool(((values > 0) & torch.isfinite(values)).all()):
        raise InputError(
            "prior must be two positive numbers, shape and rate of a Gamma distribution, got "
            f"{prior!r}."
        )
    return float(values[0]), float(values[1])


def _checked_proportions(phi: Tensor, means: Tensor) -> Tensor:
    phi = phi[None] if phi.ndim == 1 else phi
    if phi.ndim != 2 or means.ndim != 2 or phi.shape[1] != means.shape[0]:
        raise InputError(
            "proportions must have one column for each of the mixtures in means, shape "
            f"{tuple(means.shape)}, "
            f"got {tuple(phi.shape)}."
        )
    off = ((phi < 0) | ~torch.isfinite(phi)).any(1) | ((phi.sum(1) - 1.0).abs() > 1e-6)
    if bool(off.any()):
        row = int(off.nonzero()[0, 0])
        raise InputError(
            f"proportions must not be negative and sum to 1, got row {row}: {phi[row].tolist()}."
        )
    return phi
