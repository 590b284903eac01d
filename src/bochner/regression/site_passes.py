"""A view whose likelihood is not Gaussian, in passes over rows: sites are laid at a given q(A),
used and dropped, so that rows need not be in memory and may be divided among processes.

Given latents, spectrum and q(A) an entry's site is a function of that entry alone. What q(A) takes
of all sites are sums over rows: the grams of groups, sum_n mean_{m in g}(omega_nm) phi_n phi_n^T,
the slopes sum_n phi_n s_nm, and each product of conjugate gradients (docs/math.md, section 3). What
is held is of size K x K and K x m.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from bochner.data.masks import Mask
from bochner.features.fourier import evaluate
from bochner.kernels.base import Frequencies
from bochner.likelihoods.likelihood import Slopes
from bochner.likelihoods.nonconjugate import NonConjugateLikelihood
from bochner.memory import chunks
from bochner.models.sites import Sites
from bochner.processes import ALONE, Processes
from bochner.regression.conjugate_gradients import (
    Weights,
    factored,
    group_means,
    group_sums,
    refined,
    traces,
)
from bochner.regression.evidence import CHUNK_ROWS
from bochner.regression.observations import EncodedBlock
from bochner.regression.site_steps import SHARES, SLACK, SiteRule, Step, furthest, settled
from bochner.regression.weighted_grams import quadratic_forms, weighted_grams

# Numbers in the precisions of all entries up to which they are held between the products of a
# solution, and not laid again for each.
_HELD = 2**25
# Entries of a part, of which some ten arrays stay in a core's cache, and its rows at the least.
_CACHED = 2**18
_FEWEST = 32


@dataclass(frozen=True)
class _Part:
    """Consecutive rows: features (K, r), entries (r, m), intercept plus offset (r, m)."""

    features: Tensor
    y: Tensor
    mask: Mask
    total: Tensor


@dataclass(frozen=True)
class _Laid:
    """Moments of phi^T a under q, (r, m), and the slopes of the entries' bounds there."""

    mean: Tensor
    variance: Tensor
    slopes: Slopes


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
        weights, tol
            As in ``stepped``.
        least : int
            Steps to take at the least, as long as they do not lower the bound.
        """
        n_entries = self._n_rows * len(self.columns)
        step_from = functools.partial(self._step, tol)
        last = settled(step_from, weights, self._likelihood.site, n_entries, least)
        return last.end, last.bound.sum()

    def _step(self, tol: float, begin: Weights, rule: SiteRule) -> Step[Weights]:
        """Go towards the q(A) of the sites that are laid at one."""
        whole, bound = self.stepped(begin, tol, rule)

        def at(share: Tensor) -> tuple[Weights, Tensor]:
            end = begin.towards(whole, share)
            return end, self._bounds(end)

        slack = SLACK * self._n_rows * begin.logdet.new_tensor(self._sizes)
        return furthest(at, bound, slack, SHARES)

    def stepped(self, weights: Weights, tol: float, rule: SiteRule) -> tuple[Weights, Tensor]:
        """Return the q(A) that the sites laid at one lead to, and the bound at that one, without
        its gap, of every group, (G,), float64.

        Parameters
        ----------
        weights : Weights
            Of the columns in the order of `columns`.
        tol : float
            Twice the nats per entry that means not solved to the end may cost.
        rule : SiteRule
        """
        kept: list[Tensor] | None = None
        if self._block.n_rows * len(self._latents) * len(self.columns) <= _HELD:
            kept = []
        share = 1.0 / len(self._latents)

        def sites(part: _Part) -> tuple[Tensor, Tensor, Tensor]:
            laid = self._laid(part, weights)
            mean = part.total + laid.mean
            precision, slope = rule(part.y, mean, laid.variance, laid.slopes)
            value = share * part.mask.apply(laid.slopes.value)
            return part.mask.apply(precision) * share, part.mask.apply(slope) * share, value

        def sums(part: _Part) -> Sequence[Tensor]:
            precision, slope, value = sites(part)
            if kept is not None:
                kept.append(precision)
            phi = part.features
            grams = weighted_grams(phi, group_means(precision, self._sizes))
            return grams, (phi @ slope).double(), value.sum(0, dtype=torch.float64)

        def apply(v: Tensor) -> Tensor:
            narrow = v.to(weights.mean)
            given = iter(kept or ())

            def of_part(part: _Part) -> Sequence[Tensor]:
                precision = sites(part)[0] if kept is None else next(given)
                phi = part.features
                return ((phi @ (phi.T @ narrow).mul_(precision)).double(),)

            return v + self._summed(of_part, torch.zeros_like(v))[0]

        mean = weights.mean.double()
        k = mean.shape[0]
        zeros = torch.zeros_like(mean)
        of_groups = zeros.new_zeros(len(self._sizes), k, k)
        grams, slopes, value = self._summed(sums, of_groups, zeros, zeros[0])
        inverse, logdet = factored(grams)
        # how far the slope of the bound says that the means are from those of these sites
        goal = zeros.new_full((mean.shape[1],), tol * self._n_rows)
        mean = refined(apply, mean, slopes - mean, inverse, self._sizes, goal)
        mean = mean.to(weights.mean)
        stepped = Weights(mean, inverse.to(mean), logdet, traces(inverse), self._sizes)
        return stepped, self._by_group(value - weights.kl() + self._prior)

    def bound(self, weights: Weights) -> Tensor:
        """Return the bound of all rows at a q(A), without its gap, scalar float64, in nats."""
        return self._bounds(weights).sum()

    def gap(self, weights: Weights) -> Tensor:
        """Return the gap of the bound at a q(A), scalar float64, in nats."""
        none = self._prior.new_empty(0, len(self.columns))
        if self._likelihood.gap(none, none, none, self.columns) is None:
            return none.new_zeros((), dtype=torch.float64)

        def of_entries(part: _Part, laid: _Laid) -> Tensor:
            mean = part.total + laid.mean
            return cast(
                Tensor, self._likelihood.gap(part.y, mean, laid.variance, self.columns)
            )

        return self._total(weights, of_entries).sum()

    def _bounds(self, weights: Weights) -> Tensor:
        """Return the bound of every group at a q(A), (G,), float64."""
        value = self._total(weights, lambda _, laid: laid.slopes.value)
        return self._by_group(value - weights.kl() + self._prior)

    def _total(self, weights: Weights, of_entries: Callable[[_Part, _Laid], Tensor]) -> Tensor:
        """Return what all entries of each column have at a q(A), (m,), float64."""
        share = 1.0 / len(self._latents)

        def of_part(part: _Part) -> Sequence[Tensor]:
            entries = part.mask.apply(of_entries(part, self._laid(part, weights)))
            return (share * entries.sum(0, dtype=torch.float64),)

        (total,) = self._summed(of_part, torch.zeros_like(self._prior, dtype=torch.float64))
        return total

    def _by_group(self, by_column: Tensor) -> Tensor:
        return group_sums(by_column[None], self._sizes)[0]

    def _laid(self, part: _Part, weights: Weights) -> _Laid:
        mean = part.features.T @ weights.mean
        # counts in the thousands leave variances below single precision's rounding
        variance = quadratic_forms(part.features, weights.covariance).clamp(min=0.0)
        spread = weights.spread(variance)
        total = part.total + mean
        return _Laid(
            mean, spread, self._likelihood.slopes(part.y, total, spread, self.columns)
        )

    def __iter__(self) -> Iterator[_Part]:
        block = self._block
        for x in self._latents:
            for cut in chunks(block.n_rows, self._part_rows):
                features = evaluate(block.rows.part(cut).take(x), self._f).features
                y = block.Y[cut].index_select(1, self.columns)
                mask = block.mask.rows(cut).columns(self.columns)
                yield _Part(features, y, mask, self._intercept + block.offset[cut, None])

    def _summed(
        self, of_part: Callable[[_Part], Sequence[Tensor]], *zeros: Tensor
    ) -> list[Tensor]:
        totals = [zero.clone() for zero in zeros]
        for part in self:
            for total, addend in zip(totals, of_part(part), strict=True):
                total.add_(addend)
        return self._processes.sums(totals)
