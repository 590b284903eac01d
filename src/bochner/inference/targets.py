"""What observed entries ask of a row's latent: the row's log joint density with gradient and Hessian.

For one view and one draw of W, with residual u(x) = ||y - m^T phi||^2 over the observed columns and predictive
variance v(x) = sigma^2 (1 + phi^T B^-1 phi), log p(y | x) = -(M/2) log 2 pi v - u / 2v. Both are quadratic forms in
phi, so that an evaluation costs at most K^2 per row and no longer K M: u = y^T y - 2 p^T phi + ||F^T phi||^2 with
F F^T = m m^T, as narrow as the rank of m.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bochner.features.derivatives import Jet, jet
from bochner.inference.posterior import ViewPosterior
from bochner.kernels.base import Frequencies


@dataclass(frozen=True)
class Term:
    """One view under one draw of its spectrum.

    Attributes
    ----------
    frequencies : Frequencies
    linear : Tensor of shape (n, K)
        p = m y.
    factor : Tensor of shape (K, r), or (n, K, M) when every row has observed columns of its own
        F F^T = m m^T over the observed columns.
    covariance : Tensor of shape (K, K)
        B^-1, averaged over the observed columns where they differ.
    square : Tensor of shape (n,)
        y^T y.
    n_observed : Tensor of shape (n,)
    noise_variance : float
    """

    frequencies: Frequencies
    linear: Tensor
    factor: Tensor
    covariance: Tensor
    square: Tensor
    n_observed: Tensor
    noise_variance: float

    def evaluate(self, x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return log p(y | x) with gradient and Hessian: (n,), (n, D), (n, D, D)."""
        j, p = jet(x, self.frequencies), self.linear[rows]
        u, du, ddu = _residual(j, self.factor if self.factor.ndim == 2 else self.factor[rows], p)
        h, dh, ddh = _form(j, self.covariance)
        u, v = u + self.square[rows], self.noise_variance * (1.0 + h)
        dv, ddv = self.noise_variance * dh, self.noise_variance * ddh
        return _normal(u, du, ddu, v, dv, ddv, self.n_observed[rows])

    def to(self, dtype: torch.dtype) -> Term:
        """Return the same term in another precision."""
        return replace(
            self,
            frequencies=self.frequencies.to(dtype),
            linear=self.linear.to(dtype),
            factor=self.factor.to(dtype),
            covariance=self.covariance.to(dtype),
            square=self.square.to(dtype),
            n_observed=self.n_observed.to(dtype),
        )


def _residual(j: Jet, factor: Tensor, p: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """||F^T phi||^2 - 2 p^T phi with its first and second derivative in x."""
    product = torch.cat([j.value[:, None, :], j.jacobian], dim=1) @ factor
    fit, slopes = product[:, :1], product[:, 1:]
    pull = (fit @ factor.transpose(-1, -2))[:, 0] - p
    value = fit.square().sum((1, 2)) - 2.0 * (p * j.value).sum(1)
    first = 2.0 * (j.jacobian @ pull[:, :, None])[..., 0]
    return value, first, 2.0 * (slopes @ slopes.transpose(1, 2) + j.curvature(pull))


def _form(j: Jet, matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """phi^T A phi with its first and second derivative in x."""
    product = torch.cat([j.value[:, None, :], j.jacobian], dim=1) @ matrix
    pull = product[:, 0]
    first = 2.0 * (j.jacobian @ pull[:, :, None])[..., 0]
    second = 2.0 * (j.jacobian @ product[:, 1:].transpose(1, 2) + j.curvature(pull))
    return (pull * j.value).sum(1), first, second


def _normal(
    u: Tensor, du: Tensor, ddu: Tensor, v: Tensor, dv: Tensor, ddv: Tensor, m: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """-(m/2) log 2 pi v - u / 2v with first and second derivative."""
    value = -0.5 * (m * (math.log(2.0 * math.pi) + v.log()) + u / v)
    # f_u = -1/2v, f_v = -m/2v + u/2v^2, f_uv = 1/2v^2, f_vv = m/2v^2 - u/v^3
    f_u, f_v = -0.5 / v, -0.5 * m / v + 0.5 * u / v**2
    f_uv, f_vv = 0.5 / v**2, 0.5 * m / v**2 - u / v**3
    first = f_u[:, None] * du + f_v[:, None] * dv
    cross = du[:, :, None] * dv[:, None, :]
    second = (
        f_u[:, None, None] * ddu
        + f_v[:, None, None] * ddv
        + f_uv[:, None, None] * (cross + cross.transpose(1, 2))
        + f_vv[:, None, None] * dv[:, :, None] * dv[:, None, :]
    )
    return value, first, second


@dataclass(frozen=True)
class Target:
    """The log joint density of rows: the mean over draws of log p(y | x, W), summed over views, plus log p(x)."""

    terms: tuple[tuple[Term, ...], ...]
    n_components: int

    def to(self, dtype: torch.dtype) -> Target:
        """Return the same target in another precision."""
        return Target(tuple(tuple(term.to(dtype) for term in draws) for draws in self.terms), self.n_components)

    def evaluate(self, x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return log joint, gradient and Hessian at x (n, D) of the given rows: (n,), (n, D), (n, D, D)."""
        value = -0.5 * (x.square().sum(1) + self.n_components * math.log(2.0 * math.pi))
        first = -x
        second = -torch.eye(self.n_components, dtype=x.dtype).expand(x.shape[0], -1, -1)
        for draws in self.terms:
            for term in draws:
                a, b, c = term.evaluate(x, rows)
                value, first, second = value + a / len(draws), first + b / len(draws), second + c / len(draws)
        return value, first, second


def target_for(views: Sequence[ViewPosterior], rows: Sequence[Tensor], n_components: int, shared: bool) -> Target:
    """Build the target of some rows.

    Parameters
    ----------
    views : sequence of ViewPosterior
    rows : sequence of Tensor of shape (n, M_v), float64
        Scaled data, NaN where missing.
    n_components : int
        D.
    shared : bool
        Whether all these rows observe the same columns.
    """
    terms = []
    for view, y in zip(views, rows, strict=True):
        seen = ~y.isnan()
        if bool(seen.any()):
            filled = torch.where(seen, y, torch.zeros_like(y))
            columns = seen[0].nonzero()[:, 0] if shared else None
            terms.append(tuple(_term(view, s, filled, seen, columns) for s in range(len(view.draws))))
    return Target(tuple(terms), n_components)


def _term(view: ViewPosterior, s: int, filled: Tensor, seen: Tensor, columns: Tensor | None) -> Term:
    draw = view.draws[s]
    if columns is not None:
        factor = _narrow(draw.mean[:, columns])
    else:
        factor = draw.mean[None] * seen[:, None, :].to(draw.mean.dtype)
    groups = torch.bincount(view.group_of[seen.any(0)], minlength=draw.covariance.shape[0]).double()
    covariance = torch.einsum("g,gkl->kl", groups / groups.sum(), draw.covariance)
    return Term(
        draw.frequencies,
        filled @ draw.mean.T,
        factor,
        covariance,
        filled.square().sum(1),
        seen.sum(1).double(),
        view.noise_variance,
    )


def _narrow(m: Tensor) -> Tensor:
    """Return F with F F^T = m m^T and no more columns than the rank of m."""
    if m.shape[1] < m.shape[0] // 2:
        return m
    values, vectors = torch.linalg.eigh(m @ m.T)
    kept = values > 1e-15 * values[-1]
    narrow: Tensor = vectors[:, kept] * values[kept].sqrt()
    return narrow
