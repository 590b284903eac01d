"""What observed entries ask of a row's latent: the row's own part of the bound, with gradient and Hessian.

Given q(A) = N(m, sigma^2 B^-1) per column, one view under one draw of W contributes, over its observed columns,

E log p(y | x, A) = -1/2 sum_m [log 2 pi sigma^2 + (y_m - m_m^T phi)^2 / sigma^2 + phi^T B^-1 phi],

a quadratic form in phi: an evaluation costs K^2 per row, not K M. By the envelope theorem the collapsed bound has
this very gradient in a training row's latent, so that placing a row of the training data does not move it; the
predictive density N(m^T phi, sigma^2 (1 + phi^T B^-1 phi)) would count such a row's noise twice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bochner.features.derivatives import jet
from bochner.features.fourier import evaluate
from bochner.inference.local_targets import LocalTerm
from bochner.inference.posterior import ViewPosterior
from bochner.inference.quadratic import Quadratic, Shared, quadratic_of
from bochner.kernels.base import Frequencies
from bochner.likelihoods.base import LocalLikelihood


@dataclass(frozen=True)
class Term:
    """One view under one draw of its spectrum: constant + p^T phi - phi^T Q phi / 2.

    Attributes
    ----------
    frequencies : Frequencies
    constant : Tensor of shape (n,)
        -1/2 sum_m [log 2 pi sigma^2 + y_m^2 / sigma^2] over the observed columns.
    linear : Tensor of shape (n, K)
        p = m y / sigma^2.
    quadratic : Quadratic
        Q = m m^T / sigma^2 + sum_m B_m^-1 over the observed columns.
    """

    frequencies: Frequencies
    constant: Tensor
    linear: Tensor
    quadratic: Quadratic

    def evaluate(self, x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return E log p(y | x, A) with gradient and Hessian: (n,), (n, D), (n, D, D)."""
        j, p = jet(x, self.frequencies), self.linear[rows]
        product = self.quadratic.push(torch.cat([j.value[:, None, :], j.jacobian], dim=1), rows)
        pull = p - product[:, 0]
        value = self.constant[rows] + 0.5 * ((p + pull) * j.value).sum(1)
        first = (j.jacobian @ pull[:, :, None])[..., 0]
        return value, first, j.curvature(pull) - j.jacobian @ product[:, 1:].transpose(1, 2)

    def table(self, x: Tensor) -> Tensor:
        """Return E log p(y | x, A) of all rows at all points x (C, D), (n, C); rows must share their columns."""
        phi = evaluate(x, self.frequencies).features
        if not isinstance(self.quadratic, Shared):
            raise TypeError("a table needs rows that share their columns")
        return self.constant[:, None] + self.linear @ phi - 0.5 * self.quadratic.table(phi)

    def to(self, dtype: torch.dtype) -> Term:
        """Return the same term in another precision."""
        return replace(
            self,
            frequencies=self.frequencies.to(dtype),
            constant=self.constant.to(dtype),
            linear=self.linear.to(dtype),
            quadratic=self.quadratic.to(dtype),
        )


@dataclass(frozen=True)
class Target:
    """A row's bound at a point x: the mean over draws of E log p(y | x, W, A), summed over views, plus log p(x).

    A view's term counts with its weight in training: placing a training row then does not move it.
    """

    terms: tuple[tuple[Term | LocalTerm, ...], ...]
    n_components: int
    weights: tuple[float, ...]

    def to(self, dtype: torch.dtype) -> Target:
        """Return the same target in another precision."""
        return Target(
            tuple(tuple(term.to(dtype) for term in draws) for draws in self.terms), self.n_components, self.weights
        )

    def table(self, x: Tensor) -> Tensor:
        """Return the value of all rows at all points x (C, D), (n, C): Gaussian views, rows that share columns."""
        value = -0.5 * (x.square().sum(1) + self.n_components * math.log(2.0 * math.pi))
        for draws, weight in zip(self.terms, self.weights, strict=True):
            for term in draws:
                if isinstance(term, Term):
                    value = value + term.table(x) * (weight / len(draws))
        return value

    def evaluate(self, x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return value, gradient and Hessian at x (n, D) of the given rows: (n,), (n, D), (n, D, D)."""
        value = -0.5 * (x.square().sum(1) + self.n_components * math.log(2.0 * math.pi))
        first = -x
        second = -torch.eye(self.n_components, dtype=x.dtype).expand(x.shape[0], -1, -1)
        for draws, weight in zip(self.terms, self.weights, strict=True):
            share = weight / len(draws)
            for term in draws:
                a, b, c = term.evaluate(x, rows)
                value, first, second = value + share * a, first + share * b, second + share * c
        return value, first, second


def target_for(
    views: Sequence[ViewPosterior],
    rows: Sequence[Tensor],
    n_components: int,
    shared: bool,
    offsets: Sequence[Tensor | None] | None = None,
) -> Target:
    """Build the target of some rows.

    Parameters
    ----------
    views : sequence of ViewPosterior
    rows : sequence of Tensor of shape (n, M_v), float64
        Scaled (views that are not Gaussian: encoded) data, NaN where missing.
    n_components : int
        D.
    shared : bool
        Whether all these rows observe the same columns of the Gaussian views.
    offsets : sequence of Tensor of shape (n,) or None, optional
        Logarithms of the rows' size factors by view.
    """
    terms: list[tuple[Term | LocalTerm, ...]] = []
    weights: list[float] = []
    for v, (view, y) in enumerate(zip(views, rows, strict=True)):
        seen = ~y.isnan()
        if not bool(seen.any()):
            continue
        weights.append(view.weight)
        if view.local is not None:
            terms.append(_local_terms(view, view.local, y, None if offsets is None else offsets[v]))
        else:
            filled = torch.where(seen, y, torch.zeros_like(y))
            terms.append(tuple(_term(view, s, filled, seen, n_components, shared) for s in range(len(view.draws))))
    return Target(tuple(terms), n_components, tuple(weights))


def _local_terms(
    view: ViewPosterior, likelihood: LocalLikelihood, y: Tensor, offset: Tensor | None
) -> tuple[LocalTerm, ...]:
    seen = (~y.isnan()).to(y.dtype)
    total = torch.zeros_like(seen) if view.intercept is None else view.intercept.expand_as(seen)
    total = total if offset is None else total + offset[:, None]
    filled = torch.nan_to_num(y)
    return tuple(
        LocalTerm(d.frequencies, likelihood, filled, seen, total, d.mean, d.covariance, view.group_of)
        for d in view.draws
    )


def _term(view: ViewPosterior, s: int, filled: Tensor, seen: Tensor, dim: int, shared: bool) -> Term:
    draw, s2 = view.draws[s], torch.as_tensor(view.noise_variance, dtype=filled.dtype)
    constant = -0.5 * ((2.0 * math.pi * s2).log() * seen + filled.square() / s2).sum(1)
    quadratic = quadratic_of(view, s, s2, seen, dim, shared)
    return Term(draw.frequencies, constant, (filled / s2) @ draw.mean.T, quadratic)
