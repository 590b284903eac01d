"""What observed entries ask of a row's latent: the row's own part of the bound, with gradient and
Hessian.

Given q(A) = N(m, sigma^2 B^-1) per column, one view under one draw of W contributes, over its
observed columns,

E log p(y | x, A) = -1/2 sum_m [log 2 pi sigma^2 + (y_m - m_m^T phi)^2 / sigma^2 + phi^T B^-1 phi],

a quadratic form phi^T Q phi, Q = sum over them of m m^T / sigma^2 + B_m^-1: an evaluation costs K^2
per row, not K M.

By the envelope theorem the collapsed bound has this very gradient in a training row's latent, so
that placing a row of the training data does not move it; the predictive density
N(m^T phi, sigma^2 (1 + phi^T B^-1 phi)) would count such a row's noise twice.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from bochner.features.fourier import columns_beside, evaluate, jet, with_covariates
from bochner.kernels.base import Frequencies
from bochner.latent_inference.entry_terms import EntrywiseTerm
from bochner.latent_inference.quadratic_forms import Quadratic, Shared, quadratic_of
from bochner.likelihoods.likelihood import shifted
from bochner.linalg import newton_step
from bochner.weight_posterior.posterior import (
    GaussianPosterior,
    NonConjugatePosterior,
    ViewPosterior,
)

# Rows that are placed at once, at most.
_CHUNK = 1024
# Numbers of one dense array of non-conjugate views.
_NUMBERS = 2**21
# A step shorter than this is taken and ends a walk to a mode: Newton's error after it is about its
# square.
SETTLED = 1e-5
# Steps with a curvature that is known: how many, how long, and which is the last.
_SLOPES = 4
_CLOSE = 1e-2
_LAST = 1e-4


def rows_at_once(views: Sequence[ViewPosterior], slopes: int) -> int:
    """Return how many rows to place at once: the slopes of every psi along every dimension and mode
    are dense.
    """
    width = slopes * sum(view.n_sloped_columns for view in views)
    return max(1, min(_CHUNK, _NUMBERS // max(width, 1)))


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
    present : Tensor of shape (n,), bool
        Which rows have any of the view's columns.
    """

    frequencies: Frequencies
    constant: Tensor
    linear: Tensor
    quadratic: Quadratic
    present: Tensor

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

    def beside(self, covariates: Tensor) -> Term:
        """Return the term for points without covariates, those of the rows (n, L) put in.

        With phi = [w, 0] + [0, c] = w + c, p^T phi - phi^T Q phi / 2 = (p - Q c)^T w - w^T Q w / 2
        + (p - Q c / 2)^T c.
        """
        linear = self.frequencies.linear
        if not covariates.shape[1] or not isinstance(self.quadratic, Shared):
            return self
        padded = torch.zeros_like(self.linear)
        padded[:, -linear.shape[0] :] = covariates * linear
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

    Attributes
    ----------
    settles_climbs : bool
        Whether `settled` takes ends of climbs in single precision too, and not those of tables
        alone.
    """

    settles_climbs: ClassVar[bool] = False

    terms: tuple[tuple[Term | EntrywiseTerm, ...], ...]
    n_components: int
    weights: tuple[float, ...]
    covariates: Tensor

    def to(self, dtype: torch.dtype) -> Target:
        """Return the same target in another precision."""
        return Target(
            tuple(tuple(term.to(dtype) for term in draws) for draws in self.terms),
            self.n_components,
            self.weights,
            self.covariates.to(dtype),
        )

    def table(self, x: Tensor) -> Tensor:
        """Return the value of all rows at all points x (C, D), (n, C): Gaussian views, rows that
        share columns.
        """
        of_points, _ = self._prior(x)
        of_rows = x.new_zeros(())
        linear = []
        features = []
        for term, share in self._shares():
            if isinstance(term, Term):
                phi, form = term.factors(x)
                moved = term.beside(self.covariates)
                of_points = of_points + share * form
                of_rows = of_rows + share * moved.constant
                linear.append(moved.linear)
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
        at = with_covariates(x, self.covariates[rows])
        for term, share in self._shares():
            some = _having(term, rows)
            if len(rows[some]):
                more = term.evaluate(at[some], rows[some])
                for sums, part in zip(total, more, strict=True):
                    sums[some] += share * part
        return total

    def constant(self) -> Tensor:
        """Return what no latent changes, (n,): Gaussian views."""
        parts = [
            share * term.constant for term, share in self._shares() if isinstance(term, Term)
        ]
        return torch.stack(parts).sum(0)

    def rounding(self, dtype: torch.dtype) -> Tensor:
        """Return by how many nats values may be wrong that are differences of large parts, (n,)."""
        error = torch.zeros(len(self.covariates), dtype=torch.float64)
        for term, share in self._shares():
            if isinstance(term, EntrywiseTerm):
                error += share * torch.finfo(dtype).eps * term.largest_values()
        return error

    def slope(self, x: Tensor, rows: Tensor) -> Tensor:
        """Return the gradient at x (n, D) of the given rows, (n, D): Gaussian views."""
        _, total = self._prior(x)
        for term, share in self._shares():
            some = _having(term, rows)
            if isinstance(term, Term) and len(rows[some]):
                total[some] += share * term.slope(x[some], rows[some])
        return total

    def settled(
        self, starts: Tensor, hessian: Tensor, rows: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Take steps from near modes (P, D) with the curvature there, and one with a new one, which
        brings what comes of single precision below rounding: Gaussian views. Return modes, values
        and Hessians, and which were found.
        """
        x = starts.clone()
        going = torch.arange(len(starts))
        for _ in range(_SLOPES):
            slope = self.slope(x[going], rows[going])
            step, _ = newton_step(slope, hessian[going], x.new_full((len(going),), _CLOSE))
            x[going] += step
            going = going[step.norm(dim=1) > _LAST]
            if not going.numel():
                break
        value, gradient, hessian = self.evaluate(x, rows)
        step, _ = newton_step(gradient, hessian, torch.ones_like(value))
        return x + step, value, hessian, step.norm(dim=1) <= SETTLED

    def _prior(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return -0.5 * (x.square().sum(1) + self.n_components * math.log(2.0 * math.pi)), -x

    def _shares(self) -> Iterator[tuple[Term | EntrywiseTerm, float]]:
        """Yield all terms with what they count for: a view's weight, divided among its draws."""
        for draws, weight in zip(self.terms, self.weights, strict=True):
            yield from ((term, weight / len(draws)) for term in draws)


def _having(term: Term | EntrywiseTerm, rows: Tensor) -> Tensor | slice:
    """Return which points are of rows that have anything of a term's view: of others it says
    nothing.
    """
    there = term.present[rows]
    return slice(None) if bool(there.all()) else there.nonzero()[:, 0]


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
    terms: list[tuple[Term | EntrywiseTerm, ...]] = []
    weights: list[float] = []
    for view, y, offset in zip(views, rows, offsets or [None] * len(views), strict=True):
        if bool(y.isnan().all()):
            continue
        weights.append(view.weight)
        terms.append(_terms(view, y, offset, n_components, shared))
    beside = columns_beside(covariates, rows[0].shape[0])
    return Target(tuple(terms), n_components, tuple(weights), beside)


@functools.singledispatch
def _terms(
    view: ViewPosterior, y: Tensor, offset: Tensor | None, dim: int, shared: bool
) -> tuple[Term | EntrywiseTerm, ...]:
    """Return what a view adds to the target, a term for every draw."""
    raise NotImplementedError(type(view))


@_terms.register
def _(
    view: NonConjugatePosterior,
    y: Tensor,
    offset: Tensor | None,
    dim: int,  # noqa: ARG001 - entries are treated one by one
    shared: bool,  # noqa: ARG001
) -> tuple[EntrywiseTerm, ...]:
    observed = (~y.isnan()).to(y.dtype)
    total = shifted(view.intercept.expand_as(observed), offset)
    entries = (view.bound, torch.nan_to_num(y), observed, total)
    return tuple(
        EntrywiseTerm(d.frequencies, *entries, d.mean, d.covariance, view.group_of)
        for d in view.draws
    )


@_terms.register
def _(
    view: GaussianPosterior,
    y: Tensor,
    offset: Tensor | None,  # noqa: ARG001 - Gaussian rows have none
    dim: int,
    shared: bool,
) -> tuple[Term, ...]:
    observed = ~y.isnan()
    filled = torch.where(observed, y, torch.zeros_like(y))
    s2 = torch.as_tensor(view.noise_variance, dtype=filled.dtype)
    scaled = filled / s2
    constant = -0.5 * (
        observed.to(filled.dtype) @ (2.0 * math.pi * s2).log().expand(filled.shape[1])
    )
    constant -= 0.5 * torch.linalg.vecdot(scaled, filled)
    return tuple(
        Term(
            draw.frequencies,
            constant,
            scaled @ draw.mean.T,
            quadratic_of(view, s, s2, observed, dim, shared),
            observed.any(1),
        )
        for s, draw in enumerate(view.draws)
    )
