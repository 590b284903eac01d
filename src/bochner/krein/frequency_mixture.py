"""A truncated Dirichlet process mixture of Gaussians over frequencies, with its closed-form blocks
and bound.

mu_k ~ N(m0, R0^-1), Lambda_k ~ Wishart(W0, nu0), w_h | z_h = k ~ N(mu_k, Lambda_k^-1); mean field
with q(mu_k) = N(m_k, R_k^-1), q(Lambda_k) = Wishart(W_k, nu_k) (Liu et al. 2020, section IV;
docs/math.md, section 5). What is known of a frequency is a mean and a diagonal variance, or a
covariance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from bochner.linalg import cholesky
from bochner.models.sticks import StickBreaking


@dataclass(frozen=True)
class Moments:
    """Mean (H, d) and covariance (H, d, d) of q(w_h), float64; a diagonal covariance may be given
    as (H, d).
    """

    mean: Tensor
    variance: Tensor

    def scatter(self, weights: Tensor) -> Tensor:
        """Return sum_h weights_hk V_h, (H, T) -> (T, d, d)."""
        if self.variance.ndim == 2:
            return torch.diag_embed(weights.T @ self.variance)
        return torch.einsum("hk,hij->kij", weights, self.variance)

    def traces(self, matrices: Tensor) -> Tensor:
        """Return tr(A_k V_h), (T, d, d) -> (H, T)."""
        if self.variance.ndim == 2:
            return self.variance @ torch.diagonal(matrices, dim1=-2, dim2=-1).T
        return torch.einsum("kij,hij->hk", matrices, self.variance)


@dataclass(frozen=True)
class FrequencyMixture:
    """q(mu) q(Lambda) q(z) q(v) q(alpha); immutable, updates return a new one.

    Attributes
    ----------
    centre : Tensor of shape (T, d)
        m_k, means of q(mu_k).
    centre_cov : Tensor of shape (T, d, d)
        R_k^-1, covariances of q(mu_k).
    scale : Tensor of shape (T, d, d)
        W_k of q(Lambda_k).
    dof : Tensor of shape (T,)
        nu_k.
    responsibilities : Tensor of shape (H, T)
        q(z_h = k).
    sticks : StickBreaking
    prior_width : float
        R0 = I / prior_width^2 and E[Lambda_k] = I / prior_width^2 under the prior; m0 = 0, nu0 = d
        + 2.
    """

    centre: Tensor
    centre_cov: Tensor
    scale: Tensor
    dof: Tensor
    responsibilities: Tensor
    sticks: StickBreaking
    prior_width: float

    @classmethod
    def start(
        cls,
        moments: Moments,
        n_mixtures: int,
        prior_width: float,
        source: torch.Generator,
    ) -> Self:
        """Return a start: responsibilities drawn at random, then one update of every block.

        Parameters
        ----------
        moments : Moments
        n_mixtures : int
            T.
        prior_width : float
            Standard deviation of the frequencies expected beforehand, radians per unit of the rows.
        source : torch.Generator
        """
        (n, d) = moments.mean.shape
        options = {"dtype": torch.float64, "device": moments.mean.device}
        phi = (
            torch.rand(
                n, n_mixtures, generator=source, dtype=torch.float64, device=source.device
            )
            + 0.1
        )
        phi = (phi / phi.sum(1, keepdim=True)).to(moments.mean.device)
        eye = torch.eye(d, **options).expand(n_mixtures, d, d)  # type: ignore[call-overload]
        sticks = StickBreaking.start(n_mixtures, device=moments.mean.device)
        dof = torch.full((n_mixtures,), d + 2.0, **options)  # type: ignore[call-overload]
        start = cls(
            torch.zeros(n_mixtures, d, **options),  # type: ignore[call-overload]
            prior_width**2 * eye,
            eye / (prior_width**2 * (d + 2.0)),
            dof,
            phi,
            sticks,
            prior_width,
        )
        return start.update_sticks().update_centres(moments).update_scales(moments)

    @property
    def precision(self) -> Tensor:
        """E[Lambda_k] = nu_k W_k, (T, d, d)."""
        return self.dof[:, None, None] * self.scale

    @property
    def _dim(self) -> int:
        return self.centre.shape[1]

    def update(self, moments: Moments) -> Self:
        """Return q after one sweep over z, v and alpha, mu, Lambda: none lowers the bound."""
        swept = self.update_assignments(moments).update_sticks()
        return swept.update_centres(moments).update_scales(moments)

    def update_sticks(self) -> Self:
        """Return q with the optimal q(v), then q(alpha)."""
        sticks = self.sticks.update_sticks(self.responsibilities.sum(0)).update_concentration()
        return replace(self, sticks=sticks)

    def update_assignments(self, moments: Moments) -> Self:
        """Return q with the optimal q(z): softmax of E[log N(w_h; mu_k, Lambda_k^-1)] + E[log
        pi_k].
        """
        return replace(
            self, responsibilities=self.sticks.assign(self.expected_log_density(moments))
        )

    def update_centres(self, moments: Moments) -> Self:
        """Return q with the optimal q(mu_k): R_k = R0 + n_k E[Lambda_k], m_k = R_k^-1 E[Lambda_k]
        sum phi E[w].
        """
        eye = torch.eye(self._dim, dtype=torch.float64, device=self.centre.device)
        precision = (
            eye / self.prior_width**2
            + self.responsibilities.sum(0)[:, None, None] * self.precision
        )
        covariance = torch.cholesky_inverse(torch.linalg.cholesky(precision))
        # of three factors einsum may hold the product of the first two, (T, d, d, H)
        total = self.responsibilities.T @ moments.mean
        natural = torch.einsum("kij,kj->ki", self.precision, total)
        return replace(
            self, centre=torch.einsum("kij,kj->ki", covariance, natural), centre_cov=covariance
        )

    def update_scales(self, moments: Moments) -> Self:
        """Return q with the optimal q(Lambda_k): nu_k = nu0 + n_k, W_k^-1 = W0^-1 + sum phi E[(w -
        mu)(w - mu)^T].
        """
        count = self.responsibilities.sum(0)
        d = self._dim
        eye = torch.eye(d, dtype=torch.float64, device=self.centre.device)
        gap = moments.mean[:, None, :] - self.centre
        scatter = torch.einsum("hk,hki,hkj->kij", self.responsibilities, gap, gap)
        scatter = (
            scatter
            + moments.scatter(self.responsibilities)
            + count[:, None, None] * self.centre_cov
        )
        inverse = (d + 2.0) * self.prior_width**2 * eye + scatter
        return replace(
            self,
            scale=torch.cholesky_inverse(torch.linalg.cholesky(inverse)),
            dof=d + 2.0 + count,
        )

    def expected_log_density(self, moments: Moments) -> Tensor:
        """Return E[log N(w_h; mu_k, Lambda_k^-1)], (H, T)."""
        gap = moments.mean[:, None, :] - self.centre
        square = torch.einsum("hki,kij,hkj->hk", gap, self.precision, gap) + moments.traces(
            self.precision
        )
        square = square + torch.einsum("kij,kij->k", self.precision, self.centre_cov)
        return 0.5 * (self._expected_log_det() - self._dim * math.log(2 * math.pi) - square)

    def natural_parameters(self) -> tuple[Tensor, Tensor]:
        """Return sum_k phi_hk E[Lambda_k], (H, d, d), and sum_k phi_hk E[Lambda_k] m_k, (H, d)."""
        precision = torch.einsum("hk,kij->hij", self.responsibilities, self.precision)
        natural = torch.einsum("kij,kj->ki", self.precision, self.centre)
        return precision, self.responsibilities @ natural

    def bound(self, moments: Moments) -> Tensor:
        """Return E[log p(w, z, mu, Lambda, v, alpha)] - E[log q] but for the entropy of q(w),
        scalar, nats.
        """
        density = (self.responsibilities * self.expected_log_density(moments)).sum()
        sticks = self.sticks.assignment_bound(self.responsibilities) - self.sticks.kl()
        return density + sticks - self._kl_centres() - self._kl_scales()

    def _expected_log_det(self) -> Tensor:
        i = torch.arange(self._dim, dtype=torch.float64, device=self.dof.device)
        digammas = torch.digamma(0.5 * (self.dof[:, None] - i)).sum(1)
        return digammas + self._dim * math.log(2.0) + cholesky(self.scale).logdet()

    def _kl_centres(self) -> Tensor:
        width2 = self.prior_width**2
        d = self._dim
        square = (
            self.centre.square().sum(1)
            + torch.diagonal(self.centre_cov, dim1=-2, dim2=-1).sum(1)
        ) / width2
        return (
            0.5
            * (square - d + d * math.log(width2) - cholesky(self.centre_cov).logdet()).sum()
        )

    def _kl_scales(self) -> Tensor:
        d = self._dim
        nu0 = self._dim + 2.0
        # W0^-1 = nu0 width^2 I
        prior_rate = nu0 * self.prior_width**2
        trace = prior_rate * torch.diagonal(self.scale, dim1=-2, dim2=-1).sum(1)
        # log |W_k| / |W0|
        log_ratio = cholesky(self.scale).logdet() + d * math.log(prior_rate)
        gammas = torch.mvlgamma(torch.full_like(self.dof, 0.5 * nu0), d) - torch.mvlgamma(
            0.5 * self.dof, d
        )
        i = torch.arange(d, dtype=torch.float64, device=self.dof.device)
        digammas = torch.digamma(0.5 * (self.dof[:, None] - i)).sum(1)
        kl = (
            0.5 * (self.dof - nu0) * digammas
            - 0.5 * nu0 * log_ratio
            + 0.5 * self.dof * (trace - d)
            + gammas
        )
        return kl.sum()
