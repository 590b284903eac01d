"""What observed entries ask of a row's latent: the row's own part of the bound, with gradient and
Hessian.

Given q(A) = N(m, sigma^2 B^-1) per column, one view under one draw of W contributes, over its
observed columns,

E log p(y | x, A) = -1/2 sum_m [log 2 pi sigma^2 + (y_m - m_m^T phi)^2 / sigma^2 + phi^T B^-1 phi],

a quadratic form in phi: an evaluation costs K^2 per row, not K M. By the envelope theorem the
collapsed bound has this very gradient in a training row's latent, so that placing a row of the
training data does not move it; the predictive density N(m^T phi, sigma^2 (1 + phi^T B^-1 phi))
would count such a row's noise twice.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bochner.features.fourier import evaluate, jet
from bochner.kernels.base import Frequencies
from bochner.latent_inference.placement import with_covariates
from bochner.latent_inference.quadratic_forms import Quadratic, Shared, quadratic_of
from bochner.latent_inference.row_bound_nonconjugate import NonConjugateTerm
from bochner.likelihoods.nonconjugate import NonConjugateLikelihood
from bochner.likelihoods.offsets import shifted
from bochner.weight_posterior.posterior import ViewPosterior


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
        j = jet(x, self.frequencies)
        product = self.quadratic.push(j.stack, rows)
        value, on_features = self._value(j.value, product[:, 0], rows)
        return (
            value,
            j.slope(on_features),
            j.curvature(on_features) - j.jacobian @ product[:, 1:].transpose(1, 2),
        )

    def slope(self, x: Tensor, rows: Tensor) -> Tensor:
        """Return the gradient alone, (n, D)."""
        j = jet(x, self.frequencies)
        product = self.quadratic.push(j.value[:, None], rows)[:, 0]
        return j.slope(self.linear[rows] - product)

    def _value(self, phi: Tensor, product: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the value and its gradient in the features, p - Q phi."""
        p = self.linear[rows]
        on_features = p - product
        return self.constant[rows] + 0.5 * (p + on_features).mul_(phi).sum(1), on_features

    def factors(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return phi at all points x (C, D), (K, C), and what -phi^T Q phi / 2 adds there for all
        rows, (C,).
        """
        phi = evaluate(x, self.frequencies).features
        if not isinstance(self.quadratic, Shared):
            raise TypeError("a table needs rows that share their columns")
        return phi, -0.5 * self.quadratic.table(phi)

    def beside(self, covariates: Tensor | None) -> Term:
        """Return the term for points without covariates, those of the rows (n, L) put in.

        With phi = [w, 0] + [0, c] = w + c, p^T phi - phi^T Q phi / 2 = (p - Q c)^T w - w^T Q w / 2
        + (p - Q c / 2)^T c.
        """
        own = self.frequencies.linear
        if covariates is None or own is None or not isinstance(self.quadratic, Shared):
            return self
        padded = torch.zeros_like(self.linear)
        padded[:, -own.shape[0] :] = covariates * own
        pushed = padded @ self.quadratic.matrix
        constant = self.constant + ((self.linear - 0.5 * pushed) * padded).sum(1)
        return replace(self, constant=constant, linear=self.linear - pushed)

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
    """A row's bound at a point x: the mean over draws of E log p(y | x, W, A), summed over views,
    plus log p(x).

    A view's term counts with its weight in training: placing a training row then does not move it.
    """

    terms: tuple[tuple[Term | NonConjugateTerm, ...], ...]
    n_components: int
    weights: tuple[float, ...]
    covariates: Tensor | None = None

    def to(self, dtype: torch.dtype) -> Target:
        """Return the same target in another precision."""
        return Target(
            tuple(tuple(term.to(dtype) for term in draws) for draws in self.terms),
            self.n_components,
            self.weights,
            None if self.covariates is None else self.covariates.to(dtype),
        )

    def table(self, x: Tensor) -> Tensor:
        """Return the value of all rows at all points x (C, D), (n, C): Gaussian views, rows that
        share columns.
        """
        of_points, _ = self._prior(x)
        of_rows, linear, features = x.new_zeros(()), [], []
        for term, share in self._shares():
            if isinstance(term, Term):
                phi, form = term.factors(x)
                own = term.beside(self.covariates)
                of_points, of_rows = of_points + share * form, of_rows + share * own.constant
                linear.append(own.linear)
                features.append(phi.mul_(share))
        # one product over all terms: tables are large, passes over them slow
        return torch.addmm(of_points, torch.cat(linear, dim=1), torch.cat(features)).add_(
            of_rows[:, None]
        )

    def evaluate(self, x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return value, gradient and Hessian at x (n, D) of the given rows: (n,), (n, D), (n, D,
        D).
        """
        prior = -torch.eye(self.n_components, dtype=x.dtype).repeat(x.shape[0], 1, 1)
        total = (*self._prior(x), prior)
        at = x if self.covariates is None else with_covariates(x, self.covariates[rows])
        for term, share in self._shares():
            for own, more in zip(total, term.evaluate(at, rows), strict=True):
                own.add_(more, alpha=share)
        return total

    def constant(self) -> Tensor:
        """Return what no latent changes, (n,): Gaussian views."""
        parts = [share * term.constant for term, share in self._shares() if isinstance(term, Term)]
        return torch.stack(parts).sum(0)

    def slope(self, x: Tensor, rows: Tensor) -> Tensor:
        """Return the gradient at x (n, D) of the given rows, (n, D): Gaussian views."""
        _, total = self._prior(x)
        for term, share in self._shares():
            if isinstance(term, Term):
                total = total + share * term.slope(x, rows)
        return total

    def _prior(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return -0.5 * (x.square().sum(1) + self.n_components * math.log(2.0 * math.pi)), -x

    def _shares(self) -> Iterator[tuple[Term | NonConjugateTerm, float]]:
        """Yield all terms with what they count for: a view's weight, divided among its draws."""
        for draws, weight in zip(self.terms, self.weights, strict=True):
            yield from ((term, weight / len(draws)) for term in draws)


def target_for(
    views: Sequence[ViewPosterior],
    rows: Sequence[Tensor],
    n_components: int,
    shared: bool,
    offsets: Sequence[Tensor | None] | None = None,
    covariates: Tensor | None = None,
) -> Target:
    """Build the target of some rows.

    Parameters
    ----------
    views : sequence of ViewPosterior
    rows : sequence of Tensor of shape (n, M_v), float64
        Scaled (non-conjugate views: encoded) data, NaN where missing.
    n_components : int
        D.
    shared : bool
        Whether all these rows observe the same columns of the Gaussian views.
    offsets : sequence of Tensor of shape (n,) or None, optional
        Logarithms of the rows' size factors by view.
    covariates : Tensor of shape (n, L), optional
    """
    terms: list[tuple[Term | NonConjugateTerm, ...]] = []
    weights: list[float] = []
    for v, (view, y) in enumerate(zip(views, rows, strict=True)):
        seen = ~y.isnan()
        if not bool(seen.any()):
            continue
        weights.append(view.weight)
        if view.local is not None:
            terms.append(
                _nonconjugate_terms(view, view.local, y, None if offsets is None else offsets[v])
            )
        else:
            filled = torch.where(seen, y, torch.zeros_like(y))
            terms.append(_terms(view, filled, seen, n_components, shared))
    return Target(tuple(terms), n_components, tuple(weights), covariates)


def _nonconjugate_terms(
    view: ViewPosterior, likelihood: NonConjugateLikelihood, y: Tensor, offset: Tensor | None
) -> tuple[NonConjugateTerm, ...]:
    seen = (~y.isnan()).to(y.dtype)
    total = torch.zeros_like(seen) if view.intercept is None else view.intercept.expand_as(seen)
    total = shifted(total, offset)
    filled = torch.nan_to_num(y)
    return tuple(
        NonConjugateTerm(
            d.frequencies, likelihood, filled, seen, total, d.mean, d.covariance, view.group_of
        )
        for d in view.draws
    )


def _terms(
    view: ViewPosterior, filled: Tensor, seen: Tensor, dim: int, shared: bool
) -> tuple[Term, ...]:
    s2 = torch.as_tensor(view.noise_variance, dtype=filled.dtype)
    scaled = filled / s2
    constant = -0.5 * (seen.to(filled.dtype) @ (2.0 * math.pi * s2).log().expand(filled.shape[1]))
    constant -= 0.5 * torch.linalg.vecdot(scaled, filled)
    return tuple(
        Term(
            draw.frequencies,
            constant,
            scaled @ draw.mean.T,
            quadratic_of(view, s, s2, seen, dim, shared),
        )
        for s, draw in enumerate(view.draws)
    )
