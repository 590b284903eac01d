"""What observed entries ask of a row's latent: the row's log joint density with gradient and Hessian.

For one view and one draw of W, with residual u(x) = ||y - m^T phi||^2 over the observed columns and predictive
variance v(x) = sigma^2 (1 + phi^T B^-1 phi), log p(y | x) = -(M/2) log 2 pi v - u / 2v. Both are quadratic forms in
phi, so that an evaluation costs K^2 per row and no longer K M: ||y - m^T phi||^2 = y^T y - 2 p^T phi + phi^T Q phi.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

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
    quadratic : Tensor of shape (K, K), or (n, K, K) when every row has observed columns of its own
        Q = m m^T over the observed columns.
    covariance : Tensor of shape (K, K)
        B^-1, averaged over the observed columns where they differ.
    square : Tensor of shape (n,)
        y^T y.
    n_observed : Tensor of shape (n,)
    noise_variance : float
    """

    frequencies: Frequencies
    linear: Tensor
    quadratic: Tensor
    covariance: Tensor
    square: Tensor
    n_observed: Tensor
    noise_variance: float

    def evaluate(self, x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return log p(y | x) with gradient and Hessian: (n,), (n, D), (n, D, D)."""
        j, quadratic = jet(x, self.frequencies), self.quadratic
        p = self.linear[rows]
        u, du, ddu = _form(j, quadratic if quadratic.ndim == 2 else quadratic[rows], p)
        h, dh, ddh = _form(j, self.covariance, None)
        u, v = u + self.square[rows], self.noise_variance * (1.0 + h)
        dv, ddv = self.noise_variance * dh, self.noise_variance * ddh
        return _normal(u, du, ddu, v, dv, ddv, self.n_observed[rows])


def _form(j: Jet, matrix: Tensor, p: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """phi^T A phi - 2 p^T phi with its first and second derivative in x."""
    stacked = torch.cat([j.value[:, None, :], j.jacobian], dim=1)
    product = stacked @ matrix
    slope = product[:, 0] if p is None else product[:, 0] - p
    # phi^T A phi - 2 p^T phi = phi^T (slope) - p^T phi
    value = ((slope if p is None else slope - p) * j.value).sum(1)
    first = 2.0 * (j.jacobian @ slope[:, :, None])[..., 0]
    second = 2.0 * (j.jacobian @ product[:, 1:].transpose(1, 2) + j.curvature(slope))
    return value, first, second


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
        m = draw.mean[:, columns]
        quadratic = m @ m.T
    else:
        quadratic = (draw.mean[None] * seen[:, None, :].to(draw.mean.dtype)) @ draw.mean.T
    groups = torch.bincount(view.group_of[seen.any(0)], minlength=draw.covariance.shape[0]).double()
    covariance = torch.einsum("g,gkl->kl", groups / groups.sum(), draw.covariance)
    return Term(
        draw.frequencies,
        filled @ draw.mean.T,
        quadratic,
        covariance,
        filled.square().sum(1),
        seen.sum(1).double(),
        view.noise_variance,
    )
