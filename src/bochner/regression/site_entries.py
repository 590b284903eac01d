"""The entries of a non-conjugate view, and one pass over them: q(A) from their sites, slopes
under it.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bochner.data.masks import Mask
from bochner.likelihoods.likelihood import Slopes
from bochner.likelihoods.nonconjugate import NonConjugateLikelihood
from bochner.models.sites import Sites
from bochner.regression.conjugate_gradients import Weights, group_sums, weights_from
from bochner.regression.observations import EncodedBlock
from bochner.regression.site_steps import (
    FEW_SHARES,
    SHARES,
    SLACK,
    SiteRule,
    Step,
    astray,
    furthest,
    poor,
    settled,
)
from bochner.regression.weighted_grams import QuadraticForms


@dataclass(frozen=True)
class RowSample:
    """Every k-th row from a random first one: each row is in it with probability 1/k.

    The gradient in the parameters of a likelihood and its gap are estimated from these rows: they
    need a quadrature at every entry.

    Attributes
    ----------
    start : float
        Uniform in [0, 1): says which of the k samples it is.
    n_entries : int
        k is the largest number that leaves so many entries, or 1.
    """

    start: float
    n_entries: int = 2**15

    def of(self, n: int, m: int) -> tuple[slice, int]:
        """Return the rows among n rows of m entries, and k: by how much their sum is multiplied."""
        k = min(n, max(1, n * m // self.n_entries))
        return slice(int(self.start * k), None, k), k


@dataclass(frozen=True)
class Entries:
    """Some columns of a view, ordered by group.

    Attributes
    ----------
    columns : Tensor of shape (m,), int64
    mask : Mask
    y, precision, shift : Tensor of shape (n, m)
    total : Tensor of shape (n, m)
        Intercept plus offset.
    sizes : tuple of int
        Columns of each group.
    scale : float
        All columns over these.
    """

    columns: Tensor
    y: Tensor
    mask: Mask
    precision: Tensor
    shift: Tensor
    total: Tensor
    sizes: tuple[int, ...]
    scale: float

    @classmethod
    def of(cls, sites: Sites, block: EncodedBlock, columns: Tensor | None) -> Entries:
        """Gather columns (None = all)."""
        m = sites.n_columns
        chosen = torch.arange(m, device=sites.shift.device) if columns is None else columns
        chosen = chosen[sites.group_of[chosen].argsort(stable=True)]
        counts = torch.bincount(sites.group_of[chosen]).tolist()

        total = sites.intercept[chosen] + block.offset[:, None]
        return cls(
            chosen,
            block.Y.index_select(1, chosen),
            block.mask.columns(chosen),
            *sites.at(chosen),
            total,
            tuple(c for c in counts if c),
            m / len(chosen),
        )

    def without_latents(self, likelihood: NonConjugateLikelihood) -> Entries:
        """Return these entries with sites that hold psi at intercept plus offset."""
        exact = torch.zeros_like(self.total)
        precision, _ = likelihood.slopes(self.y, self.total, exact, self.columns).touching()
        return replace(self, precision=self.mask.apply(precision), shift=exact)

    def towards(self, laid: Entries, share: Tensor) -> Entries:
        """Return these entries with sites that lie so far on the way to other ones, by group,
        (G,).
        """
        if bool((share == 1.0).all()):
            return laid
        by_column = torch.repeat_interleave(
            share, share.new_tensor(self.sizes, dtype=torch.int64)
        ).to(self.shift)
        precision = torch.lerp(self.precision, laid.precision, by_column)
        return replace(
            self, precision=precision, shift=torch.lerp(self.shift, laid.shift, by_column)
        )


@dataclass(frozen=True)
class Pass:
    """q(A) and the entries' slopes under it."""

    weights: Weights
    forms: QuadraticForms
    latent: Tensor
    variance: Tensor
    slopes: Slopes

    def bounds(self, entries: Entries) -> Tensor:
        """Return what the columns of every group add to the bound, (G,), float64."""
        by_column = entries.mask.apply(self.slopes.value).sum(0, dtype=torch.float64)
        bound = by_column - self.weights.kl()
        return group_sums(bound[None], self.weights.sizes)[0]

    def sites(self, entries: Entries, rule: SiteRule) -> tuple[Tensor, Tensor]:
        """Return precision and shift on phi(x)^T a, which psi is but for intercept and offset."""
        mean = entries.total + self.latent
        precision, slope = rule(entries.y, mean, self.variance, self.slopes)
        precision = entries.mask.apply(precision)
        return precision, entries.mask.apply(slope) + precision * self.latent


def entry_pass(
    features: Tensor,
    likelihood: NonConjugateLikelihood,
    entries: Entries,
    tol: float,
    weights: Weights | None = None,
    factors_in: torch.dtype = torch.float64,
) -> Pass:
    """Bring q(A) up to date with the sites, unless one is given, and lay the bound of every entry
    at it. Factors are in double precision, or in another one as far as that does.
    """
    if weights is None:
        sites = (entries.precision, entries.shift, entries.sizes)
        weights = weights_from(features, *sites, tol, factors_in=factors_in)
    # counts in the thousands leave variances below single precision's rounding
    forms = QuadraticForms.of(features, weights.covariance)
    variance = weights.spread(forms.values).clamp(min=0.0)
    latent = features.T @ weights.mean
    slopes = likelihood.slopes(entries.y, entries.total + latent, variance, entries.columns)
    return Pass(weights, forms, latent, variance, slopes)


def swept(
    features: Tensor,
    likelihood: NonConjugateLikelihood,
    entries: Entries,
    tol: float,
    n_sweeps: int,
    factors_in: torch.dtype = torch.float64,
) -> tuple[Pass, Entries]:
    """Bring q(A) and its sites up to date several times; return the last pass and the entries with
    the sites that led to it.

    Parameters
    ----------
    features, likelihood, entries, tol, factors_in
        As in ``entry_pass``.
    n_sweeps : int
        The first of them brings q(A) alone up to date.
    """
    sweep = _Sweep(features, likelihood, tol, factors_in)
    here = sweep.begin(entries)
    for _ in range(n_sweeps - 1):
        here = sweep.step(FEW_SHARES, here, likelihood.site).end
    return here


def swept_until_settled(
    features: Tensor,
    likelihood: NonConjugateLikelihood,
    entries: Entries,
    tol: float,
    n_sweeps: int,
) -> tuple[Pass, Entries]:
    """Return what ``swept`` does, after ``n_sweeps`` at the least, two or more, and until one gains
    next to nothing.
    """
    sweep = _Sweep(features, likelihood, tol, torch.float64)
    step_from = functools.partial(sweep.step, SHARES)
    given = (sweep.begin(entries), likelihood.site, entries.y.numel(), n_sweeps - 1)
    return settled(step_from, *given).end


@dataclass(frozen=True)
class _Sweep:
    """What brings q(A) up to date with the sites of entries, and lays these again."""

    features: Tensor
    likelihood: NonConjugateLikelihood
    tol: float
    factors_in: torch.dtype

    def at(self, entries: Entries) -> tuple[Pass, Entries]:
        """Return the pass that their sites lead to, and the entries."""
        given = (self.features, self.likelihood, entries, self.tol)
        return entry_pass(*given, factors_in=self.factors_in), entries

    def begin(self, entries: Entries) -> tuple[Pass, Entries]:
        """Return the pass that the sites of entries lead to, of groups that these have led
        astray one whose mean of psi is intercept plus offset, and its entries.

        Sites of counts far below the mean of their column hold psi from above only as far as the
        sites of other rows let them: under a fresh spectrum it was 1,000 nats too high, from where
        steps do not come back, and latents followed the gradient.
        """
        here = self.at(entries)
        bound = here[0].bounds(entries)
        if not poor(bound, len(entries.y), entries.sizes):
            return here
        without = entries.without_latents(self.likelihood)
        share = astray(bound, self.at(without)[0].bounds(without))
        return self.at(entries.towards(without, share)) if bool(share.any()) else here

    def step(
        self, shares: tuple[float, ...], begin: tuple[Pass, Entries], rule: SiteRule
    ) -> Step[tuple[Pass, Entries]]:
        """Go towards the sites that a pass lays."""
        solution, entries = begin
        precision, shift = solution.sites(entries, rule)
        laid = replace(entries, precision=precision, shift=shift)

        def at(share: Tensor) -> tuple[tuple[Pass, Entries], Tensor]:
            end = self.at(entries.towards(laid, share))
            return end, end[0].bounds(end[1])

        bound = solution.bounds(entries)
        slack = SLACK * self.features.shape[1] * bound.new_tensor(entries.sizes)
        return furthest(at, bound, slack, shares)
