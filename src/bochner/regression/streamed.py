"""log p(Y | X, W) of a Gaussian view with scattered holes whose rows are read part by part, and may
be divided among processes: the algebra of `bochner.regression.incomplete`, in passes over rows.

Grams of groups, the right-hand sides, each product of conjugate gradients and the residuals are
sums over rows. What is held is of size K x K and K x m; a pass makes the features of a part again.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bochner.data.masks import Index, entries_of
from bochner.data.stored import StoredMatrix
from bochner.features.fourier import Trace, evaluate
from bochner.kernels.base import Frequencies
from bochner.linalg import closed_form
from bochner.memory import chunks
from bochner.processes import ALONE, Processes
from bochner.regression.conjugate_gradients import (
    Product,
    Weights,
    factored,
    group_means,
    group_sums,
    precondition,
    refined,
    traces,
)
from bochner.regression.evidence import CHUNK_ROWS, Gradient, gram_diagonal
from bochner.regression.incomplete import (
    MAX_ITER,
    ROUNDING,
    TOLERANCE,
    Determinants,
    Sample,
    masked_evidence,
)
from bochner.regression.noise import products_in
from bochner.regression.observations import BlockWithHoles, IncompleteBlock, Rows
from bochner.regression.weighted_grams import weighted_grams, weighted_products


@dataclass(frozen=True)
class StreamedBlock(BlockWithHoles):
    """Columns with scattered holes, whose rows are not in memory.

    Attributes
    ----------
    Y : StoredMatrix of shape (n, m)
        NaN where missing.
    count : int
        Observed entries.
    """

    Y: StoredMatrix
    count: int

    def entries(self, cut: slice, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Read some rows."""
        return entries_of(self.Y[cut].to(dtype))

    @property
    def n_entries(self) -> int:
        """Observed entries."""
        return self.count

    def take(self, index: Tensor, rows: Rows) -> IncompleteBlock:
        """Return some rows, in memory."""
        Y, observed = entries_of(self.Y[index])
        return IncompleteBlock(Y, rows, self.columns, self.sizes, observed)

    def observes(self, chosen: Tensor) -> Tensor:
        """Return which columns have an entry among the chosen rows, (m,), bool."""
        places = chosen[self.rows.numbers(len(chosen))].nonzero()[:, 0]
        return (~self.Y[places].isnan()).any(dim=0)

    def first_rows(self, columns: Tensor, n_rows: int) -> Tensor:
        """Return the first row that observes each of some columns, n_rows where none does."""
        numbers = self.rows.numbers(n_rows)
        first = torch.full((len(columns),), n_rows)
        for part in chunks(self.n_rows, CHUNK_ROWS):
            shown = ~self.Y[part][:, columns].isnan()
            new = shown.any(dim=0) & (first == n_rows)
            first[new] = numbers[part][shown[:, new].int().argmax(dim=0)]
            if bool((first < n_rows).all()):
                break
        return first


@dataclass(frozen=True)
class _Part:
    """Consecutive rows: their features (K, r), what is observed and Y, 0 where missing, (r, m)."""

    rows: Rows
    trace: Trace
    features: Tensor
    Y: Tensor
    observed: Tensor


@dataclass(frozen=True)
class Passes:
    """Rows of a block at draws of the latents, part by part, as often as somebody asks.

    Attributes
    ----------
    block : BlockWithHoles
    latents : sequence of Tensor of shape (N, D)
        Every row counts once per draw.
    f : Frequencies
    dtype : torch.dtype
        Of products.
    chunk_rows : int
    processes : Processes
        Sums are those of all.
    """

    block: BlockWithHoles
    latents: Sequence[Tensor]
    f: Frequencies
    dtype: torch.dtype
    chunk_rows: int = CHUNK_ROWS
    processes: Processes = ALONE

    def __iter__(self) -> Iterator[_Part]:
        for x in self.latents:
            for cut in chunks(self.block.n_rows, self.chunk_rows):
                rows = self.block.rows.part(cut)
                trace = evaluate(rows.take(x), self.f)
                Y, observed = self.block.entries(cut, self.dtype)
                yield _Part(rows, trace, trace.features.to(self.dtype), Y, observed)

    def summed(
        self, of_part: Callable[[_Part], Sequence[Tensor]], *zeros: Tensor
    ) -> list[Tensor]:
        """Add float64 tensors up over parts and processes."""
        totals = list(zeros)
        for part in self:
            for total, summand in zip(totals, of_part(part), strict=True):
                total.add_(summand)
        return self.processes.sums(totals)


@dataclass(frozen=True)
class _Sums:
    """Sums over rows: grams of groups, of chosen columns, right-hand sides, entries."""

    grams: Tensor
    chosen: Tensor
    right: Tensor
    counts: Tensor


@functools.singledispatch
def evidence_with_holes(
    block: BlockWithHoles,
    x: Tensor,
    frequencies: Frequencies,
    noise_variance: Tensor,
    *,
    sample: Sample | None = None,
    chunk_rows: int = CHUNK_ROWS,
    processes: Processes = ALONE,
) -> Tensor:
    """Return log p(Y | X, W) of a block: see ``masked_evidence`` where it is in memory as a whole,
    ``streamed_evidence`` elsewhere.
    """
    given = (x, frequencies, noise_variance, block)
    return streamed_evidence(*given, sample=sample, chunk_rows=chunk_rows, processes=processes)


@evidence_with_holes.register
def _(
    block: IncompleteBlock,
    x: Tensor,
    frequencies: Frequencies,
    noise_variance: Tensor,
    *,
    sample: Sample | None = None,
    chunk_rows: int = CHUNK_ROWS,
    processes: Processes = ALONE,
) -> Tensor:
    given = (x, frequencies, noise_variance, block)
    if processes.size > 1:
        return streamed_evidence(
            *given, sample=sample, chunk_rows=chunk_rows, processes=processes
        )
    return masked_evidence(*given, sample=sample, chunk_rows=chunk_rows)


def streamed_evidence(
    x: Tensor,
    frequencies: Frequencies,
    noise_variance: Tensor,
    block: BlockWithHoles,
    *,
    sample: Sample | None = None,
    chunk_rows: int = CHUNK_ROWS,
    tol: float = TOLERANCE,
    processes: Processes = ALONE,
) -> Tensor:
    """Evaluate the sum over columns of log N(y_m; 0, Phi_O^T Phi_O + sigma^2 I), differentiable
    once.

    Parameters
    ----------
    x : Tensor of shape (N, D)
        Latents of all rows.
    frequencies : Frequencies
    noise_variance : Tensor, scalar float64
    block : BlockWithHoles
    sample, chunk_rows, tol
        As in `bochner.regression.incomplete.masked_evidence`.
    processes : Processes
        Among which the rows are divided: the value, and the gradients in frequencies and noise, are
        those of all rows.

    Returns
    -------
    Tensor, scalar float64
        In nats. Memory does not grow with the rows but for the gradient in x.
    """
    f = frequencies.to(x.dtype)
    n_rows = processes.total(block.n_rows)
    dtype = products_in(x.dtype, gram_diagonal(f, n_rows), noise_variance, ROUNDING)
    passes = Passes(block, [x], f, dtype, chunk_rows, processes)
    m = block.n_columns
    chosen, share = (sample or Sample(m, 0.0)).of(m, x.device)

    def compute(wanted: bool) -> tuple[Tensor, Sequence[Tensor | None]]:
        s2 = float(noise_variance)
        sums = _sums(passes, s2, chosen)
        solution = _solved(passes, sums, s2, 2.0 * tol * sums.counts)
        lack = _lack(solution, sums.chosen, chosen, share, s2)
        into = Gradient.zeros(x, f, noise_variance) if wanted else None
        squares = _residuals(passes, solution, lack, chosen, share, s2, into)
        k = f.n_features
        n_entries = float(sums.counts.sum())
        sizes = torch.tensor(block.sizes, dtype=torch.float64, device=x.device)
        fit = squares / s2 + float(solution.mean.square().sum())
        plain = -0.5 * (n_entries * math.log(2.0 * math.pi * s2) + fit)
        value = plain - 0.5 * (sizes * solution.logdet).sum() + lack.value
        if into is None:
            return value, ()
        d_noise = squares / s2 - n_entries + (sizes * (k - solution.trace)).sum()
        into.noise += 0.5 * d_noise / s2 + lack.d_noise
        if processes.size > 1:
            into.over(processes)
        return value, into.parts()

    return closed_form(compute, x, f.first, f.second, f.amplitude, f.linear, noise_variance)


def _zeros(passes: Passes, *shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.float64, device=passes.latents[0].device)


def _sums(passes: Passes, s2: float, chosen: Tensor) -> _Sums:
    """Return what one pass says; grams are without the identity."""
    sizes = passes.block.sizes
    k = passes.f.n_features
    m = passes.block.n_columns

    def of_part(part: _Part) -> Sequence[Tensor]:
        phi = part.features
        observed = part.observed
        return (
            weighted_grams(phi, group_means(observed, sizes) / s2),
            weighted_grams(phi, observed[:, chosen]) / s2,
            (phi @ (part.Y / s2)).double(),
            observed.sum(0, dtype=torch.float64),
        )

    shapes = (len(sizes), k, k), (len(chosen), k, k), (k, m), (m,)
    return _Sums(*passes.summed(of_part, *(_zeros(passes, *shape) for shape in shapes)))


def _solved(passes: Passes, sums: _Sums, s2: float, goal: Tensor) -> Weights:
    """Return q(A): preconditioned conjugate gradients, a pass over the rows each, in float64."""
    covariance, logdet = factored(sums.grams)
    sizes = passes.block.sizes
    mean = precondition(covariance, sums.right, sizes)

    def products(columns: Index) -> Product:
        def product(v: Tensor) -> Tensor:
            narrow = v.to(passes.dtype)

            def of_part(part: _Part) -> Sequence[Tensor]:
                phi = part.features
                precision = part.observed[:, columns] / s2
                return ((phi @ (phi.T @ narrow).mul_(precision)).double(),)

            return v + passes.summed(of_part, torch.zeros_like(v))[0]

        return product

    if max(sizes) > 1:
        away = sums.right - products(slice(None))(mean)
        mean = refined(products, mean, away, covariance, sizes, goal, max_iter=MAX_ITER)
    return Weights(mean, covariance, logdet, traces(covariance), sizes)


@dataclass(frozen=True)
class _Lack:
    """What the shared determinants lack, and the matrices of its gradient: of chosen columns, and
    of groups.
    """

    value: Tensor
    d_noise: Tensor
    covariances: Tensor
    turned: Tensor


def _lack(solution: Weights, grams: Tensor, chosen: Tensor, share: float, s2: float) -> _Lack:
    """Factor the chosen columns; sums over them stand for sums over all."""
    exact = Determinants(solution, share)
    if max(solution.sizes) == 1 or not len(chosen):
        shared = torch.zeros_like(solution.covariance)
        return _Lack(exact.value, exact.value, torch.zeros_like(grams), shared)
    covariances = exact.add(grams, _groups(solution.sizes, chosen))
    turned, d_noise = exact.gradients(s2)
    return _Lack(exact.value, d_noise, covariances, turned)


def _groups(sizes: tuple[int, ...], chosen: Tensor) -> Tensor:
    """Return the groups of some columns, (b,)."""
    groups = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    return groups.to(chosen.device)[chosen]


def _residuals(
    passes: Passes,
    solution: Weights,
    lack: _Lack,
    chosen: Tensor,
    share: float,
    s2: float,
    into: Gradient | None,
) -> float:
    """Return the squared residuals of all rows; carry the gradient of each part back."""
    dtype = passes.dtype
    sizes = solution.sizes
    mean = solution.mean.to(dtype)
    shared = solution.covariance.to(dtype)
    covariances = lack.covariances.to(dtype)
    turned = lack.turned.to(dtype)
    lacking = max(sizes) > 1 and len(chosen) > 0
    of_chosen = _groups(sizes, chosen)

    def of_part(part: _Part) -> Sequence[Tensor]:
        phi = part.features
        observed = part.observed
        residual = (part.Y - phi.T @ mean).mul_(observed)
        if into is not None:
            sums = group_sums(observed, sizes)
            upstream = mean @ residual.T / s2
            weights = -sums / s2
            if lacking:
                mask = observed[:, chosen] * (share / s2)
                weights = weights.index_add(1, of_chosen, mask)
                upstream -= weighted_products(phi, covariances, mask)
                upstream -= weighted_products(
                    phi, turned, solution.average(observed) * (share / s2)
                )
            upstream += weighted_products(phi, shared, weights)
            into.add(part.rows, part.trace, passes.f, upstream.to(part.trace.features.dtype))
        return (residual.square().sum(dtype=torch.float64),)

    (squares,) = passes.summed(of_part, _zeros(passes))
    return float(squares)


def condition_streamed(
    passes: Passes, noise_variance: float, groups: Tensor, most: int, tol: float
) -> tuple[Tensor, Tensor]:
    """Return means and covariances of the weights, averaged over draws of X as the bound is.

    Parameters
    ----------
    passes : Passes
    noise_variance : float
    groups : Tensor of shape (m,), int64
        Of the covariances.
    most : int
        Columns at the most whose covariances a group averages.
    tol : float
        Twice the nats that a column's mean may cost.

    Returns
    -------
    mean : Tensor of shape (K, m), float64
    covariance : Tensor of shape (groups, K, K), float64
    """
    times = len(passes.latents)
    n_groups = int(groups.max()) + 1
    members = [(groups == g).nonzero()[:, 0] for g in range(n_groups)]
    some = [group[Sample(most, 0.5).of(len(group), group.device)[0]] for group in members]
    s2 = times * noise_variance
    sums = _sums(passes, s2, torch.cat(some))
    goal = torch.full_like(sums.counts, tol)
    mean = _solved(passes, sums, s2, goal).mean
    # B = sigma^2 (G + I) with the sum over draws over their number
    inverse = torch.split(
        factored(sums.chosen)[0] / noise_variance, [len(columns) for columns in some]
    )
    return mean.cpu(), torch.stack([columns.mean(0) for columns in inverse]).cpu()
