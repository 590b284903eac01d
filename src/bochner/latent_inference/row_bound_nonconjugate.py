"""What the observed entries of a non-Gaussian view ask of a row's latent: the row's own part of the
bound.

sum_m bound of E log p(y_m | psi_m), psi_m ~ N(total_m + m_m^T phi(x), phi(x)^T S_m phi(x)), with
gradient and Hessian.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bochner.features.fourier import Jet, jet
from bochner.kernels.base import Frequencies
from bochner.latent_inference.predictive_entries import EntryTerms


@dataclass(frozen=True)
class NonConjugateTerm:
    """One view under one draw of its spectrum.

    Attributes
    ----------
    frequencies : Frequencies
    likelihood : EntryTerms
        Of a non-conjugate view its likelihood.
    y, seen, total : Tensor of shape (n, m)
        Encoded data with 0 where missing, 1 where observed, intercept plus offset.
    mean : Tensor of shape (K, m)
    covariance : Tensor of shape (G, K, K)
    group_of : Tensor of shape (m,), int64
    """

    frequencies: Frequencies
    likelihood: EntryTerms
    y: Tensor
    seen: Tensor
    total: Tensor
    mean: Tensor
    covariance: Tensor
    group_of: Tensor

    def to(self, dtype: torch.dtype) -> NonConjugateTerm:
        """Return the same term in another precision."""
        return replace(
            self,
            frequencies=self.frequencies.to(dtype),
            y=self.y.to(dtype),
            seen=self.seen.to(dtype),
            total=self.total.to(dtype),
            mean=self.mean.to(dtype),
            covariance=self.covariance.to(dtype),
        )

    def evaluate(self, x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the bound with gradient and Hessian: (n,), (n, D), (n, D, D)."""
        j, y, seen = jet(x, self.frequencies), self.y[rows], self.seen[rows]
        psi, variance, pushed = self._moments(j.value, rows)
        with torch.no_grad():
            bend = self.likelihood.curvatures(y, psi, variance)
        value, on_features, on_spread = self._value(psi, variance, pushed, rows)
        d_psi = j.jacobian @ self.mean
        # (n, G, D): slope of phi^T S_g phi
        d_spread = 2.0 * torch.einsum("ndk,gnk->ngd", j.jacobian, pushed)
        second = self._bend(
            d_psi, d_spread, seen * bend.mean, seen * bend.mixed, self._gather(seen * bend.variance)
        )
        return value, j.slope(on_features), second + self._slant(j, on_features, on_spread)

    def _moments(self, phi: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return mean and variance of psi, (n, m), and S_g phi, (G, n, K)."""
        pushed = phi @ self.covariance
        by_group = torch.linalg.vecdot(pushed, phi).T
        return self.total[rows] + phi @ self.mean, by_group[:, self.group_of].clamp(min=0.0), pushed

    def _value(
        self, psi: Tensor, variance: Tensor, pushed: Tensor, rows: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the value (n,) with its gradients in the features (n, K) and in the spread of
        every group (n, G).
        """
        seen = self.seen[rows]
        with torch.no_grad():
            slopes = self.likelihood.slopes(self.y[rows], psi, variance)
        on_spread = self._gather(seen * slopes.d_variance)
        on_features = (seen * slopes.d_mean) @ self.mean.T + 2.0 * torch.einsum(
            "ng,gnk->nk", on_spread, pushed
        )
        return (seen * slopes.value).sum(1), on_features, on_spread

    def _gather(self, by_column: Tensor) -> Tensor:
        out = by_column.new_zeros(by_column.shape[0], self.covariance.shape[0])
        return out.index_add_(1, self.group_of, by_column)

    def _bend(
        self, d_psi: Tensor, d_spread: Tensor, mean: Tensor, mixed: Tensor, variance: Tensor
    ) -> Tensor:
        """The part of the Hessian that comes from the bound's second derivatives."""
        out = (d_psi * mean[:, None]) @ d_psi.transpose(1, 2)
        weighted = d_psi * mixed[:, None]
        by_group = weighted.new_zeros(*weighted.shape[:2], d_spread.shape[1]).index_add_(
            2, self.group_of, weighted
        )
        cross = by_group @ d_spread
        spread = torch.einsum("ngd,ng,nge->nde", d_spread, variance, d_spread)
        return out + cross + cross.transpose(1, 2) + spread

    def _slant(self, j: Jet, on_features: Tensor, on_spread: Tensor) -> Tensor:
        """The part that comes from the features' second derivatives."""
        total = j.curvature(on_features)
        for g, covariance in enumerate(self.covariance):
            product = (j.jacobian @ covariance) @ j.jacobian.transpose(1, 2)
            total = total + 2.0 * on_spread[:, g, None, None] * product
        return total


class ScoringTerm(NonConjugateTerm):
    """One view with the curvature of its variances left out.

    Under the model the weight of that curvature, the slope in the variance, is 0 in the mean: what
    is left is Fisher's scoring for the variances, at a (1 + D)-th of the cost.
    """

    def _slant(self, j: Jet, on_features: Tensor, on_spread: Tensor) -> Tensor:  # noqa: ARG002
        return j.curvature(on_features)
