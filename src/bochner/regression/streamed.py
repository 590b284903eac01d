"""log p(Y | X, W) of a Gaussian view with scattered holes whose rows are read part by part, and may
be divided among processes: the algebra of `bochner.regression.incomplete`, in passes over rows.

Grams of groups, the right-hand sides, each product of conjugate gradients and the residuals are
sums over rows. What is held is of size K x K and K x m; a pass makes the features of a part again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from bochner.data.stored import StoredMatrix
from bochner.features.fourier import Trace, evaluate
from bochner.kernels.base import Frequencies
from bochner.linalg import cholesky, closed_form
from bochner.memory import chunks
from bochner.processes import ALONE, Processes
from bochner.regression.conjugate_gradients import Weights, precondition
from bochner.regression.evidence import CHUNK_ROWS, Gradient, gram_diagonal, products_in
from bochner.regression.observations import Block, IncompleteBlock, Rows, Sample
from bochner.regression.weighted_grams import weighted_grams, weighted_products

# Nats per observed entry that the bound may lose because means are not solved to the end.
TOLERANCE = 2e-4
_ROUNDING = 1e-2
_MAX_ITER = 200
_PATIENCE = 30


@dataclass(frozen=True)
class StreamedBlock(Block):
    """Gaussian columns with scattered holes, group after group, whose rows are not in memory.

    Attributes
    ----------
    Y : StoredMatrix of shape (n, m)
        NaN where missing.
    sizes : tuple of int
        Columns of each group.
    count : int
        Observed entries.
    """

    Y: StoredMatrix
    sizes: tuple[int, ...]
    count: int
    has_holes: ClassVar[bool] = True

    @property
    def n_entries(self) -> int:
        """Observed entries."""
        return self.count

    def take(self, index: Tensor, rows: Rows) -> IncompleteBlock:
        """Return some rows, in memory."""
        Y = self.Y[index]
        observed = (~Y.isnan()).to(Y.dtype)
        return IncompleteBlock(torch.nan_to_num(Y), rows, self.columns, observed, self.sizes)

    def seen(self, chosen: Tensor) -> Tensor:
        """Return which columns have an entry among the chosen rows, (m,), bool."""
        places = chosen[self.rows.numbers(len(chosen))].nonzero()[:, 0]
        return (~self.Y[places].isnan()).any(dim=0)

    def first_rows(self, columns: Tensor, n_rows: int) -> Tensor:
        """Return the first row that observes each of some columns, n_rows where none does."""
        numbers = self.rows.numbers(n_rows)
        found = torch.full((len(columns),), n_rows)
        for part in chunks(self.n_rows, CHUNK_ROWS):
            shown = ~self.Y[part][:, columns].isnan()
            new = shown.any(dim=0) & (found == n_rows)
            found[new] = numbers[part][shown[:, new].int().argmax(dim=0)]
            if bool((found < n_rows).all()):
                break
        return found


Holed = IncompleteBlock | StreamedBlock


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
    block : IncompleteBlock or StreamedBlock
    latents : sequence of Tensor of shape (N, D)
        Every row counts once per draw.
    f : Frequencies
    dtype : torch.dtype
        Of products.
    chunk_rows : int
    processes : Processes
        Sums are those of all.
    """

    block: Holed
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
                Y, observed = self._entries(cut)
                yield _Part(rows, trace, trace.features.to(self.dtype), Y, observed)

    def _entries(self, cut: slice) -> tuple[Tensor, Tensor]:
        block = self.block
        if isinstance(block, IncompleteBlock):
            return block.Y[cut].to(self.dtype), block.observed[cut].to(self.dtype)
        Y = block.Y[cut].to(self.dtype)
        return torch.nan_to_num(Y), (~Y.isnan()).to(self.dtype)

    def summed(self, of_part: Callable[[_Part], Sequence[Tensor]], *zeros: Tensor) -> list[Tensor]:
        """Add float64 tensors up over parts and processes."""
        totals = list(zeros)
        for part in self:
            for total, own in zip(totals, of_part(part), strict=True):
                total.add_(own)
        if self.processes.size == 1:
            return totals
        wire = self.processes.sum(torch.cat([total.reshape(-1) for total in totals]))
        parts = torch.split(wire, [total.numel() for total in totals])
        return [own.reshape(total.shape) for own, total in zip(parts, totals, strict=True)]


@dataclass(frozen=True)
class _Sums:
    """Sums over rows: grams of groups, of chosen columns, right-hand sides, entries."""

    grams: Tensor
    chosen: Tensor
    right: Tensor
    counts: Tensor


def streamed_evidence(
    x: Tensor,
    frequencies: Frequencies,
    noise_variance: Tensor,
    block: Holed,
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
    block : IncompleteBlock or StreamedBlock
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
    dtype = products_in(x.dtype, gram_diagonal(f, n_rows), noise_variance, _ROUNDING)
    passes = Passes(block, [x], f, dtype, chunk_rows, processes)
    m = block.n_columns
    chosen, share = (sample or Sample(m, 0.0)).of(m, x.device)

    def compute(wanted: bool) -> tuple[Tensor, Sequence[Tensor | None]]:
        s2 = float(noise_variance)
        sums = _sums(passes, s2, chosen)
        found = _solved(passes, sums, s2, 2.0 * tol * sums.counts)
        lack = _lack(found, sums.chosen, chosen, share, s2)
        into = Gradient.zeros(x, f, noise_variance) if wanted else None
        squares = _residuals(passes, found, lack, chosen, share, s2, into)
        k, n_entries = f.n_features, float(sums.counts.sum())
        sizes = torch.tensor(block.sizes, dtype=torch.float64, device=x.device)
        fit = squares / s2 + float(found.mean.square().sum())
        plain = -0.5 * (n_entries * math.log(2.0 * math.pi * s2) + fit)
        value = plain - 0.5 * (sizes * found.logdet).sum() + lack.value
        if into is None:
            return value, ()
        d_noise = squares / s2 - n_entries + (sizes * (k - found.trace)).sum()
        into.noise += 0.5 * d_noise / s2 + lack.d_noise
        if processes.size > 1:
            into.over(processes)
        return value, into.parts()

    return closed_form(compute, x, f.first, f.second, f.amplitude, f.linear, noise_variance)


def _zeros(passes: Passes, *shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.float64, device=passes.latents[0].device)


def _sums(passes: Passes, s2: float, chosen: Tensor) -> _Sums:
    """Return what one pass says; grams are without the identity."""
    sizes, k, m = passes.block.sizes, passes.f.n_features, passes.block.n_columns

    def of_part(part: _Part) -> Sequence[Tensor]:
        phi, seen = part.features, part.observed
        average = torch.stack([own.mean(1) for own in torch.split(seen, list(sizes), dim=1)], dim=1)
        return (
            weighted_grams(phi, average / s2),
            weighted_grams(phi, seen[:, chosen]) / s2,
            (phi @ (part.Y / s2)).double(),
            seen.sum(0, dtype=torch.float64),
        )

    shapes = (len(sizes), k, k), (len(chosen), k, k), (k, m), (m,)
    return _Sums(*passes.summed(of_part, *(_zeros(passes, *shape) for shape in shapes)))


def _solved(passes: Passes, sums: _Sums, s2: float, goal: Tensor) -> Weights:
    """Return q(A): preconditioned conjugate gradients, a pass over the rows each, in float64."""
    gram = sums.grams.clone()
    gram.diagonal(dim1=-2, dim2=-1).add_(1.0)
    factor = cholesky(gram)
    covariance, sizes = factor.inverse(), passes.block.sizes
    trace = torch.diagonal(covariance, dim1=-2, dim2=-1).sum(-1)
    mean = precondition(covariance, sums.right, sizes)
    if any(size > 1 for size in sizes):
        mean = _refined(passes, covariance, sums.right, mean, s2, goal)
    return Weights(mean, covariance, factor.logdet(), trace, sizes)


def _refined(
    passes: Passes, covariance: Tensor, right: Tensor, mean: Tensor, s2: float, goal: Tensor
) -> Tensor:
    sizes = passes.block.sizes

    def apply(v: Tensor) -> Tensor:
        narrow = v.to(passes.dtype)

        def of_part(part: _Part) -> Sequence[Tensor]:
            phi = part.features
            return ((phi @ (phi.T @ narrow).mul_(part.observed / s2)).double(),)

        return v + passes.summed(of_part, torch.zeros_like(v))[0]

    residual = right - apply(mean)
    z = precondition(covariance, residual, sizes)
    direction, inner = z, (residual * z).sum(0)
    best, worse = math.inf, 0
    for _ in range(_MAX_ITER):
        lost = float(inner.sum())
        if not bool((inner > goal).any()):
            break
        best, worse = (lost, 0) if lost < best else (best, worse + 1)
        if worse == _PATIENCE:
            break
        image = apply(direction)
        step = inner / (direction * image).sum(0).clamp(min=1e-30)
        mean, residual = mean + step * direction, residual - step * image
        z = precondition(covariance, residual, sizes)
        inner, before = (residual * z).sum(0), inner
        direction = z + (inner / before.clamp(min=1e-30)) * direction
    return mean


@dataclass(frozen=True)
class _Lack:
    """What the shared determinants lack, and the matrices of its gradient: of chosen columns, and
    of groups.
    """

    value: Tensor
    d_noise: Tensor
    covariances: Tensor
    turned: Tensor


def _lack(found: Weights, grams: Tensor, chosen: Tensor, share: float, s2: float) -> _Lack:
    """Factor the chosen columns; sums over them stand for sums over all."""
    shared, sizes = found.covariance, torch.tensor(found.sizes)
    k = shared.shape[1]
    zero = torch.zeros((), dtype=torch.float64, device=shared.device)
    if max(found.sizes) == 1:
        return _Lack(zero, zero, torch.zeros_like(grams), torch.zeros_like(shared))
    groups = torch.repeat_interleave(torch.arange(len(sizes)), sizes).to(chosen.device)[chosen]
    gram = grams.clone()
    gram.diagonal(dim1=-2, dim2=-1).add_(1.0)
    factor = cholesky(gram)
    product = (shared[groups] * gram).sum((1, 2))
    value = -0.5 * share * (factor.logdet() - found.logdet[groups] - product + k).sum()
    covariances = factor.inverse()
    precisions = torch.zeros_like(shared).index_add_(0, groups, gram)
    counts = torch.bincount(groups, minlength=len(sizes)).double()
    turned = shared @ precisions @ shared - counts[:, None, None] * shared
    own = torch.diagonal(covariances, dim1=-2, dim2=-1).sum()
    trace = torch.diagonal(turned, dim1=-2, dim2=-1).sum()
    d_noise = 0.5 * share * (-own + (counts * found.trace).sum() - trace) / s2
    return _Lack(value, d_noise, covariances, turned)


def _residuals(
    passes: Passes,
    found: Weights,
    lack: _Lack,
    chosen: Tensor,
    share: float,
    s2: float,
    into: Gradient | None,
) -> float:
    """Return the squared residuals of all rows; carry the gradient of each part back."""
    dtype, sizes = passes.dtype, list(found.sizes)
    mean, shared = found.mean.to(dtype), found.covariance.to(dtype)
    covariances, turned = lack.covariances.to(dtype), lack.turned.to(dtype)
    grouped = max(sizes) > 1
    groups = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    of_chosen = groups.to(chosen.device)[chosen]

    def of_part(part: _Part) -> Sequence[Tensor]:
        phi, seen = part.features, part.observed
        residual = (part.Y - phi.T @ mean).mul_(seen)
        if into is not None:
            by_group = torch.split(seen, sizes, dim=1)
            sums = torch.stack([own.sum(1) for own in by_group], dim=1)
            upstream, weights = mean @ residual.T / s2, -sums / s2
            if grouped:
                mask = seen[:, chosen] * (share / s2)
                weights = weights.index_add(1, of_chosen, mask)
                averages = sums / sums.new_tensor(sizes)
                upstream -= weighted_products(phi, covariances, mask)
                upstream -= weighted_products(phi, turned, averages * (share / s2))
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
    times, n_groups = len(passes.latents), int(groups.max()) + 1
    members = [(groups == g).nonzero()[:, 0] for g in range(n_groups)]
    some = [own[Sample(most, 0.5).of(len(own), own.device)[0]] for own in members]
    s2 = times * noise_variance
    sums = _sums(passes, s2, torch.cat(some))
    goal = torch.full_like(sums.counts, tol)
    mean = _solved(passes, sums, s2, goal).mean
    gram = sums.chosen * noise_variance  # the sum over draws over their number
    gram.diagonal(dim1=-2, dim2=-1).add_(noise_variance)
    inverse = torch.split(cholesky(gram).inverse(), [len(own) for own in some])
    return mean.cpu(), torch.stack([own.mean(0) for own in inverse]).cpu()


def holed_blocks(blocks: Iterable[Block]) -> tuple[Holed, ...]:
    """Return the blocks of a view whose columns have holes of their own."""
    return tuple(block for block in blocks if isinstance(block, IncompleteBlock | StreamedBlock))
