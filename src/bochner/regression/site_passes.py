"""A view whose likelihood is not Gaussian, in passes over rows: sites are laid at a given q(A),
used and dropped, so that rows need not be in memory and may be divided among processes.

Given latents, spectrum and q(A) an entry's site is a function of that entry alone. What q(A) takes
of all sites are sums over rows: the grams of groups, sum_n mean_{m in g}(omega_nm) phi_n phi_n^T,
the slopes sum_n phi_n s_nm, and each product of conjugate gradients (docs/math.md, section 3). What
is held is of size K x K and K x m.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from bochner.data.masks import Index, Mask
from bochner.features.fourier import evaluate
from bochner.kernels.base import Frequencies
from bochner.likelihoods.likelihood import Slopes
from bochner.likelihoods.nonconjugate import NonConjugateLikelihood
from bochner.memory import chunks
from bochner.models.sites import Sites
from bochner.processes import ALONE, Processes
from bochner.regression.conjugate_gradients import (
    Product,
    Weights,
    factored,
    group_means,
    group_sums,
    refined,
    traces,
)
from bochner.regression.evidence import CHUNK_ROWS
from bochner.regression.observations import EncodedBlock
from bochner.regression.site_steps import (
    SHARES,
    SLACK,
    SiteRule,
    Step,
    astray,
    furthest,
    poor,
    settled,
)
from bochner.regression.weighted_grams import quadratic_forms, weighted_grams

# Numbers in the precisions of all entries up to which they are held between the products of a
# solution, and not laid again for each.
_HELD = 2**25
# Entries of a part, of which some ten arrays stay in a core's cache, and its rows at the least.
_CACHED = 2**18
_FEWEST = 32


@dataclass(frozen=True)
class _Part:
    """Consecutive rows: their features, (K, r), and what is taken of their entries."""

    features: Tensor
    block: EncodedBlock
    cut: slice
    columns: Tensor
    intercept: Tensor

    @functools.cached_property
    def y(self) -> Tensor:
        """The entries, (r, m)."""
        return self.block.Y[self.cut].index_select(1, self.columns)

    @functools.cached_property
    def mask(self) -> Mask:
        """Which of them are observed."""
        return self.block.mask.rows(self.cut).columns(self.columns)

    @functools.cached_property
    def total(self) -> Tensor:
        """Intercept plus offset, (r, m)."""
        return self.intercept + self.block.offset[self.cut, None]


@dataclass(frozen=True)
class _Moments:
    """Mean and variance of psi under q, (r, m), and the slopes of the entries' bounds there."""

    mean: Tensor
    variance: Tensor
    slopes: Slopes


@dataclass
class LaidSites:
    """Sites that were laid at a q(A): what the next one takes of them.

    Attributes
    ----------
    weights : Weights
        The q(A).
    rule : SiteRule
        By which.
    bound : Tensor of shape (G,), float64
        Of every group at this q(A), without its gap, in nats.
    grams : Tensor of shape (G, K, K), float64
        By the mean precisions of groups, without the identity.
    slopes : Tensor of shape (K, m), float64
        The features times the slopes of the entries' bounds in psi.
    precisions : list of Tensor of shape (r, m), or None
        Of consecutive rows; None where they are not held, and laid again where they are needed.
    """

    weights: Weights
    rule: SiteRule
    bound: Tensor
    grams: Tensor
    slopes: Tensor
    precisions: list[Tensor] | None

    def release(self) -> None:
        """Hold the precisions no longer: they take as much memory as the entries."""
        self.precisions = None


class SitePasses:
    """Rows of an encoded block at draws of the latents, part by part, as often as somebody asks.

    Parameters
    ----------
    block : EncodedBlock
        Its entries may be in memory, sparse, or on disk.
    latents : sequence of Tensor of shape (N, D)
        Every row counts once per draw, by its share.
    f : Frequencies
    likelihood : NonConjugateLikelihood
    sites : Sites
        Of other rows: their intercepts, and the groups of columns.
    processes : Processes
        Sums are those of all.

    Attributes
    ----------
    columns : Tensor of shape (m,), int64
        In the order of what is returned: group after group.
    """

    def __init__(
        self,
        block: EncodedBlock,
        latents: Sequence[Tensor],
        f: Frequencies,
        likelihood: NonConjugateLikelihood,
        sites: Sites,
        processes: Processes = ALONE,
    ) -> None:
        self._block = block
        self._likelihood = likelihood
        self._processes = processes
        self._latents = latents
        self._f = f.to(latents[0].dtype)
        self.columns = sites.group_of.argsort(stable=True)
        counts = torch.bincount(sites.group_of).tolist()
        # a part's entries stay in a core's cache
        self._part_rows = min(CHUNK_ROWS, max(_FEWEST, _CACHED // len(self.columns)))
        self._sizes = tuple(count for count in counts if count)
        self._intercept = sites.intercept[self.columns]
        self._prior = sites.log_prior(self.columns)
        self._n_rows = processes.total(block.n_rows)

    def settled(self, weights: Weights, tol: float, least: int = 1) -> tuple[Weights, Tensor]:
        """Return a q(A) that further steps would hardly better, and ``bound`` of it.

        Parameters
        ----------
        weights : Weights
            As in ``laid``.
        tol : float
            As in ``solved``.
        least : int
            Steps to take at the least, as long as they do not lower the bound.
        """
        n_entries = self._n_rows * len(self.columns)
        rule = self._likelihood.site
        step_from = functools.partial(self._step, tol)
        end = settled(step_from, self._begin(weights, tol), rule, n_entries, least).end
        return end.weights, end.bound.sum()

    def _begin(self, weights: Weights, tol: float) -> LaidSites:
        """Lay the sites of all entries at a q(A), of groups that it is astray for at one of mean 0,
        as `swept` does in memory: ``_Sweep.begin`` says why.
        """
        rule = self._likelihood.site
        here = self.laid(weights, rule)
        if not poor(here.bound, self._n_rows, self._sizes):
            return here
        none = torch.zeros_like(here.bound)
        zeros = torch.zeros_like(weights.mean), torch.zeros_like(weights.covariance)
        exact = Weights(*zeros, none, none, weights.sizes)
        without = self.solved(self.laid(exact, _holding), tol)
        share = astray(here.bound, self.laid(without, rule).bound)
        return self.laid(weights.towards(without, share), rule) if bool(share.any()) else here

    def _step(self, tol: float, begin: LaidSites, rule: SiteRule) -> Step[LaidSites]:
        """Go towards the q(A) of the sites that are laid at one."""
        # by what they are: a bound method is another object each time it is asked for
        if begin.rule != rule:
            begin = self.laid(begin.weights, rule)
        whole = self.solved(begin, tol)
        begin.release()

        def at(share: Tensor) -> tuple[LaidSites, Tensor]:
            end = self.laid(begin.weights.towards(whole, share), rule)
            return end, end.bound

        slack = SLACK * self._n_rows * begin.bound.new_tensor(self._sizes)
        return furthest(at, begin.bound, slack, SHARES)

    def laid(self, weights: Weights, rule: SiteRule) -> LaidSites:
        """Lay the sites of all entries at a q(A), in one pass.

        Parameters
        ----------
        weights : Weights
            Of the columns in the order of `columns`.
        rule : SiteRule
        """
        kept: list[Tensor] | None = None
        if self._block.n_rows * len(self._latents) * len(self.columns) <= _HELD:
            kept = []
        share = 1.0 / len(self._latents)

        def sums(part: _Part) -> Sequence[Tensor]:
            moments = self._moments(part, weights)
            precision, slope = self._sites(part, moments, rule)
            if kept is not None:
                kept.append(precision)
            phi = part.features
            grams = weighted_grams(phi, group_means(precision, self._sizes))
            value = share * part.mask.apply(moments.slopes.value)
            return grams, (phi @ slope).double(), value.sum(0, dtype=torch.float64)

        k = weights.mean.shape[0]
        zeros = torch.zeros_like(weights.mean, dtype=torch.float64)
        of_groups = zeros.new_zeros(len(self._sizes), k, k)
        grams, slopes, value = self._summed(self._parts(), sums, of_groups, zeros, zeros[0])
        by_column = value - weights.kl() + self._prior
        bound = group_sums(by_column[None], self._sizes)[0]
        return LaidSites(weights, rule, bound, grams, slopes, kept)

    def solved(self, laid: LaidSites, tol: float) -> Weights:
        """Return the q(A) that sites lead to.

        Parameters
        ----------
        laid : LaidSites
        tol : float
            Twice the nats per entry that means not solved to the end may cost.
        """

        def products(columns: Index) -> Product:
            weights = laid.weights.of(columns)
            kept = None
            if laid.precisions is not None:
                kept = [part[:, columns] for part in laid.precisions]

            def product(v: Tensor) -> Tensor:
                narrow = v.to(weights.mean)
                held = iter(kept or ())

                def of_part(part: _Part) -> Sequence[Tensor]:
                    if kept is None:
                        moments = self._moments(part, weights)
                        precision, _ = self._sites(part, moments, laid.rule)
                    else:
                        precision = next(held)
                    phi = part.features
                    return ((phi @ (phi.T @ narrow).mul_(precision)).double(),)

                return v + self._summed(self._parts(columns), of_part, torch.zeros_like(v))[0]

            return product

        inverse, logdet = factored(laid.grams)
        mean = laid.weights.mean.double()
        # how far the slope of the bound says that the means are from those of these sites
        goal = mean.new_full((mean.shape[1],), tol * self._n_rows)
        mean = refined(products, mean, laid.slopes - mean, inverse, self._sizes, goal)
        mean = mean.to(laid.weights.mean)
        return Weights(mean, inverse.to(mean), logdet, traces(inverse), self._sizes)

    def gap(self, weights: Weights) -> Tensor:
        """Return the gap of the bound at a q(A), scalar float64, in nats."""
        none = self._prior.new_empty(0, len(self.columns))
        if self._likelihood.gap(none, none, none, self.columns) is None:
            return none.new_zeros((), dtype=torch.float64)
        share = 1.0 / len(self._latents)

        def of_part(part: _Part) -> Sequence[Tensor]:
            moments = self._moments(part, weights)
            given = (part.y, moments.mean, moments.variance, self.columns)
            gap = part.mask.apply(cast(Tensor, self._likelihood.gap(*given)))
            return (share * gap.sum(0, dtype=torch.float64),)

        zeros = torch.zeros_like(self._prior, dtype=torch.float64)
        (total,) = self._summed(self._parts(), of_part, zeros)
        return total.sum()

    def _moments(self, part: _Part, weights: Weights) -> _Moments:
        psi = part.total + part.features.T @ weights.mean
        # counts in the thousands leave variances below single precision's rounding
        variance = quadratic_forms(part.features, weights.covariance).clamp(min=0.0)
        spread = weights.spread(variance)
        slopes = self._likelihood.slopes(part.y, psi, spread, part.columns)
        return _Moments(psi, spread, slopes)

    def _sites(self, part: _Part, moments: _Moments, rule: SiteRule) -> tuple[Tensor, Tensor]:
        """Return the precisions of the entries' sites and the slopes there, each by the share of
        its row, (r, m).
        """
        share = 1.0 / len(self._latents)
        sites = rule(part.y, moments.mean, moments.variance, moments.slopes)
        precision, slope = (part.mask.apply(of_entries) * share for of_entries in sites)
        return precision, slope

    def _parts(self, columns: Index = slice(None)) -> Iterator[_Part]:
        """Yield all rows, part by part, with some of the columns."""
        block = self._block
        taken = (self.columns[columns], self._intercept[columns])
        for x in self._latents:
            for cut in chunks(block.n_rows, self._part_rows):
                features = evaluate(block.rows.part(cut).take(x), self._f).features
                yield _Part(features, block, cut, *taken)

    def _summed(
        self,
        parts: Iterable[_Part],
        of_part: Callable[[_Part], Sequence[Tensor]],
        *zeros: Tensor,
    ) -> list[Tensor]:
        totals = [zero.clone() for zero in zeros]
        for part in parts:
            for total, addend in zip(totals, of_part(part), strict=True):
                total.add_(addend)
        return self._processes.sums(totals)


def _holding(
    _y: Tensor, _mean: Tensor, _variance: Tensor, slopes: Slopes
) -> tuple[Tensor, Tensor]:
    """Give sites of the touching precision that hold psi where it is: a ``SiteRule``."""
    precision, slope = slopes.touching()
    return precision, torch.zeros_like(slope)
