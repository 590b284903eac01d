"""A view whose likelihood is not Gaussian, in passes over rows: sites are laid at a given q(A),
used and dropped, so that rows need not be in memory and may be divided among processes.

Given latents, spectrum and q(A) an entry's site is a function of that entry alone. What q(A) takes
of all sites are sums over rows: the grams of groups, sum_n mean_{m in g}(omega_nm) phi_n phi_n^T,
the slopes sum_n phi_n s_nm, and each product of conjugate gradients (docs/math.md, section 3). What
is held is of size K x K and K x m.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

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
    refined,
    traces,
)
from bochner.regression.evidence import CHUNK_ROWS
from bochner.regression.observations import EncodedBlock
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
    part_rows : int, optional
        Rows of a part; by default those whose entries stay in a core's cache.

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
        part_rows: int | None = None,
    ) -> None:
        self._block = block
        self._likelihood = likelihood
        self._processes = processes
        self._latents = latents
        self._f = f.to(latents[0].dtype)
        self.columns = sites.group_of.argsort(stable=True)
        counts = torch.bincount(sites.group_of).tolist()
        cached = min(CHUNK_ROWS, max(_FEWEST, _CACHED // len(self.columns)))
        self._part_rows = part_rows or cached
        self._sizes = tuple(count for count in counts if count)
        self._intercept = sites.intercept[self.columns]
        self._prior = sites.log_prior(self.columns).sum()
        self._n_entries = processes.total(block.n_rows) * len(self.columns)

    def stepped(self, weights: Weights, tol: float) -> Weights:
        """Return the q(A) that the sites laid at one lead to.

        Parameters
        ----------
        weights : Weights
            Of the columns in the order of `columns`.
        tol : float
            Twice the nats per entry that means not solved to the end may cost.
        """
        kept: list[Tensor] | None = None
        if self._block.n_rows * len(self._latents) * len(self.columns) <= _HELD:
            kept = []
        share = 1.0 / len(self._latents)

        def sites(part: _Part) -> tuple[Tensor, Tensor]:
            laid = self._laid(part, weights)
            mean = part.total + laid.mean
            precision, slope = self._likelihood.site(part.y, mean, laid.variance, laid.slopes)
            return part.mask.apply(precision) * share, part.mask.apply(slope) * share

        def sums(part: _Part) -> Sequence[Tensor]:
            precision, slope = sites(part)
            if kept is not None:
                kept.append(precision)
            phi = part.features
            grams = weighted_grams(phi, group_means(precision, self._sizes))
            return grams, (phi @ slope).double()

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
        grams, slopes = self._summed(sums, zeros.new_zeros(len(self._sizes), k, k), zeros)
        inverse, logdet = factored(grams)
        # how far the slope of the bound says that the means are from those of these sites
        goal = zeros.new_full((mean.shape[1],), tol * self._n_entries / mean.shape[1])
        mean = refined(apply, mean, slopes - mean, inverse, self._sizes, goal)
        mean = mean.to(weights.mean)
        return Weights(mean, inverse.to(mean), logdet, traces(inverse), self._sizes)

    def value(self, weights: Weights) -> Tensor:
        """Return the bound of all rows with its gap at a q(A), scalar float64, in nats."""
        share = 1.0 / len(self._latents)

        def of_part(part: _Part) -> Sequence[Tensor]:
            laid = self._laid(part, weights)
            mean = part.total + laid.mean
            gap = self._likelihood.gap(part.y, mean, laid.variance, self.columns)
            bound = laid.slopes.value if gap is None else laid.slopes.value + gap
            return (share * part.mask.apply(bound).sum(dtype=torch.float64),)

        (bound,) = self._summed(of_part, torch.zeros_like(self._prior, dtype=torch.float64))
        return bound - weights.kl().sum() + self._prior

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
