"""What observed entries ask of a row's latent one by one: of a non-conjugate view the row's own
part of the bound, of any view its predictive density.

sum_m bound of E log p(y_m | psi_m), psi_m ~ N(total_m + m_m^T phi(x), phi(x)^T S_m phi(x)), with
gradient and Hessian; or, entry by entry, the log predictive density log E p(y_m | psi_m).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from bochner.features.fourier import Jet, jet
from bochner.kernels.base import Frequencies
from bochner.likelihoods.likelihood import Curvatures, Gaussian, Slopes
from bochner.likelihoods.nonconjugate import Likelihood
from bochner.memory import chunks
from bochner.quadrature import laplace

# Entries of points that are evaluated at once: some fifteen arrays of them stay in the cache.
_CACHED = 2**17


class EntryTerms(Protocol):
    """What single entries add to a row's objective, as a function of the moments of psi."""

    def slopes(self, y: Tensor, mean: Tensor, variance: Tensor) -> Slopes:
        """Return the value and its slopes, elementwise."""

    def curvatures(self, y: Tensor, mean: Tensor, variance: Tensor) -> Curvatures:
        """Return its second derivatives, elementwise."""

    def expansion(
        self, y: Tensor, mean: Tensor, variance: Tensor
    ) -> tuple[Slopes, Curvatures]:
        """Return both: what they share need not be computed twice."""
        return self.slopes(y, mean, variance), self.curvatures(y, mean, variance)


@dataclass(frozen=True)
class GaussianEntries(EntryTerms):
    """log N(y; mean, variance + noise).

    Attributes
    ----------
    noise : Tensor, scalar or of shape (M,)
    """

    noise: Tensor

    def slopes(self, y: Tensor, mean: Tensor, variance: Tensor) -> Slopes:
        """Return the log density and its slopes."""
        v = variance + self.noise.to(y.dtype)
        away = y - mean
        on_mean = away / v
        value = -0.5 * ((2.0 * math.pi * v).log() + away * on_mean)
        on_variance = 0.5 * (on_mean.square() - 1.0 / v)
        return Slopes(value, on_mean, on_variance)

    def curvatures(self, y: Tensor, mean: Tensor, variance: Tensor) -> Curvatures:
        """Return its second derivatives."""
        precision = 1.0 / (variance + self.noise.to(y.dtype))
        scaled = (y - mean) * precision
        on_variance = precision * (0.5 * precision - scaled.square())
        return Curvatures(-precision, -scaled * precision, on_variance)


@dataclass(frozen=True)
class LaplaceEntries(EntryTerms):
    """Laplace's approximation of log E p(y | psi).

    Its second derivatives are those of log p(y | psi*) + log N(psi*; mean, variance) at its mode:
    the slopes of the log determinant are left out, and Newton's method converges as fast without.

    Attributes
    ----------
    likelihood : Likelihood
    """

    likelihood: Likelihood

    def slopes(self, y: Tensor, mean: Tensor, variance: Tensor) -> Slopes:
        """Return the approximation and its slopes."""
        return self.expansion(y, mean, variance)[0]

    def curvatures(self, y: Tensor, mean: Tensor, variance: Tensor) -> Curvatures:
        """Return the second derivatives."""
        return self.expansion(y, mean, variance)[1]

    def expansion(
        self, y: Tensor, mean: Tensor, variance: Tensor
    ) -> tuple[Slopes, Curvatures]:
        """Return both, of one search for the modes."""
        series = laplace(self.likelihood.density(y), mean, variance)
        first = series.first
        second = series.second
        shrink = 1.0 / (1.0 - variance * second)
        bend = 0.5 * variance * series.third * shrink.square()
        on_variance = 0.5 * first.square() + 0.5 * second * shrink
        slopes = Slopes(series.value, first + bend, on_variance + bend * first)
        on_mean = second * shrink
        mixed = on_mean * first
        return slopes, Curvatures(on_mean, mixed, mixed * first)


@dataclass(frozen=True)
class QuadraticEntries(EntryTerms):
    """log E p(y | psi), log p taken for its expansion to second order about the mean of psi.

    Where a row may lie asks for no more digits, and this is one evaluation of the derivatives.

    Attributes
    ----------
    likelihood : Likelihood
    """

    likelihood: Likelihood

    def slopes(self, y: Tensor, mean: Tensor, variance: Tensor) -> Slopes:
        """Return the value and its slopes, third derivatives of log p left out."""
        density = self.likelihood.density(y)
        first, second, _ = density.derivatives(mean)
        second = second.clamp(max=0.0)
        shrink = 1.0 / (1.0 - variance * second)
        on_mean = first * shrink
        value = density.value(mean) + 0.5 * (variance * first * on_mean + shrink.log())
        on_variance = 0.5 * (on_mean.square() + second * shrink)
        return Slopes(value, on_mean, on_variance)

    def curvatures(self, y: Tensor, mean: Tensor, variance: Tensor) -> Curvatures:
        """Return the second derivatives."""
        first, second, _ = self.likelihood.density(y).derivatives(mean)
        second = second.clamp(max=0.0)
        shrink = 1.0 / (1.0 - variance * second)
        on_mean = second * shrink
        mixed = on_mean * first * shrink
        return Curvatures(on_mean, mixed, mixed * first * shrink)


@functools.singledispatch
def entries_of(likelihood: Likelihood) -> EntryTerms:
    """Return the log predictive densities of a view's entries."""
    return LaplaceEntries(likelihood)


@entries_of.register
def _(likelihood: Gaussian) -> EntryTerms:
    return GaussianEntries(likelihood.noise_variance.detach())


@dataclass(frozen=True)
class EntrywiseTerm:
    """One view under one draw of its spectrum.

    Attributes
    ----------
    frequencies : Frequencies
    likelihood : EntryTerms
        Of a non-conjugate view its likelihood.
    y, observed, total : Tensor of shape (n, m)
        Encoded data with 0 where missing, 1 where observed, intercept plus offset.
    mean : Tensor of shape (K, m)
    covariance : Tensor of shape (G, K, K)
    group_of : Tensor of shape (m,), int64
    """

    frequencies: Frequencies
    likelihood: EntryTerms
    y: Tensor
    observed: Tensor
    total: Tensor
    mean: Tensor
    covariance: Tensor
    group_of: Tensor

    def to(self, dtype: torch.dtype) -> EntrywiseTerm:
        """Return the same term in another precision."""
        return replace(
            self,
            frequencies=self.frequencies.to(dtype),
            y=self.y.to(dtype),
            observed=self.observed.to(dtype),
            total=self.total.to(dtype),
            mean=self.mean.to(dtype),
            covariance=self.covariance.to(dtype),
        )

    def evaluate(self, x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the bound with gradient and Hessian: (n,), (n, D), (n, D, D)."""
        some = max(1, _CACHED // max(self.y.shape[1], 1))
        parts = [self._evaluated(x[part], rows[part]) for part in chunks(len(x), some)]
        if len(parts) == 1:
            return parts[0]
        value, gradient, hessian = (torch.cat(each) for each in zip(*parts, strict=True))
        return value, gradient, hessian

    def coarse(self) -> ScoringTerm:
        """Return a term that costs less and is good to three digits."""
        parts = dict(vars(self))
        if isinstance(self.likelihood, LaplaceEntries):
            parts["likelihood"] = QuadraticEntries(self.likelihood.likelihood)
        return ScoringTerm(**parts)

    def largest_values(self) -> Tensor:
        """Return how large the parts are that a row's log density is the difference of, (n,): of a
        count y about y log y.
        """
        size = self.y.double().abs() * self.observed
        return (size * size.log1p()).sum(1)

    def _evaluated(self, x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        j = jet(x, self.frequencies)
        psi, variance, pushed = self._moments(j.value, rows)
        with torch.no_grad():
            slopes, bend = self.likelihood.expansion(self.y[rows], psi, variance)
        on_spread = self._gather(self._seen(slopes.d_variance, rows))
        on_features = self._seen(slopes.d_mean, rows) @ self.mean.T
        on_features += 2.0 * torch.einsum("ng,gnk->nk", on_spread, pushed)
        # (n, G, D): slope of phi^T S_g phi
        d_spread = 2.0 * torch.einsum("ndk,gnk->ngd", j.jacobian, pushed)
        second = self._bend(
            _pushed(j.jacobian, self.mean),
            d_spread,
            self._seen(bend.mean, rows),
            self._seen(bend.mixed, rows),
            self._gather(self._seen(bend.variance, rows)),
        )
        value = self._seen(slopes.value, rows).sum(1)
        gradient = j.slope(on_features)
        hessian = second + self._slant(j, on_features, on_spread)
        return value, gradient, hessian

    @functools.cached_property
    def present(self) -> Tensor:
        """Which rows have anything, (n,)."""
        return self.observed.any(1)

    @functools.cached_property
    def _complete(self) -> bool:
        return bool((self.observed == 1).all())

    @functools.cached_property
    def _members(self) -> Tensor:
        """1 where a column belongs to a group, (m, G): a product sums faster than an index."""
        groups = torch.arange(self.covariance.shape[0], device=self.group_of.device)
        return (self.group_of[:, None] == groups).to(self.mean.dtype)

    def _seen(self, entries: Tensor, rows: Tensor) -> Tensor:
        """Return entries, 0 where nothing was observed."""
        return entries if self._complete else entries * self.observed[rows]

    def _moments(self, phi: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return mean and variance of psi, (n, m), and S_g phi, (G, n, K)."""
        pushed = phi @ self.covariance
        by_group = torch.linalg.vecdot(pushed, phi).T.clamp(min=0.0)
        psi = torch.addmm(self.total[rows], phi, self.mean)
        return psi, by_group[:, self.group_of], pushed

    def _gather(self, by_column: Tensor) -> Tensor:
        """Sum over the columns of every group, (..., m) -> (..., G)."""
        return by_column @ self._members

    def _bend(
        self,
        d_psi: Tensor,
        d_spread: Tensor,
        mean: Tensor,
        mixed: Tensor,
        variance: Tensor,
    ) -> Tensor:
        """The part of the Hessian that comes from the bound's second derivatives."""
        weighted = d_psi * mean[:, None]
        out = weighted @ d_psi.transpose(1, 2)
        by_mixed = torch.mul(d_psi, mixed[:, None], out=weighted)
        cross = self._gather(by_mixed) @ d_spread
        # no product of three in one call: the order of its products is looked for every time
        spread = (d_spread * variance[..., None]).transpose(1, 2) @ d_spread
        return out + cross + cross.transpose(1, 2) + spread

    def _slant(self, j: Jet, on_features: Tensor, on_spread: Tensor) -> Tensor:
        """The part that comes from the features' second derivatives."""
        total = j.curvature(on_features)
        n, dim, k = j.jacobian.shape
        slopes = j.jacobian.transpose(1, 2)
        # several groups in one call, as many as stay in the cache
        at_once = max(1, _CACHED // max(n * dim * k, 1))
        for some in chunks(len(self.covariance), at_once):
            # symmetric matrices one below the other, transposed, are the same side by side
            beside = self.covariance[some].flatten(0, 1).T
            product = _pushed(j.jacobian, beside).reshape(n, -1, k) @ slopes
            forms = product.view(n, dim, -1, dim)
            total = total + (2.0 * on_spread[:, None, some, None] * forms).sum(2)
        return total


def _pushed(jacobian: Tensor, matrix: Tensor) -> Tensor:
    """Return every point's slopes times one matrix, (n, D, K) times (K, m), as one product: of what
    is not contiguous torch makes n thin ones.
    """
    return (jacobian.flatten(0, 1) @ matrix).view(*jacobian.shape[:2], -1)


class ScoringTerm(EntrywiseTerm):
    """One view with the curvature of its variances left out.

    Under the model the weight of that curvature, the slope in the variance, is 0 in the mean: what
    is left is Fisher's scoring for the variances, at a (1 + D)-th of the cost.
    """

    def _slant(self, j: Jet, on_features: Tensor, on_spread: Tensor) -> Tensor:  # noqa: ARG002
        return j.curvature(on_features)
