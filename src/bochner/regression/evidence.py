"""log p(Y | X, W) of complete blocks with the weights integrated out, and its exact gradient in
latents, frequencies and noise, in two passes over the rows.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bochner.features.fourier import Trace, evaluate, pull_back
from bochner.kernels.base import Frequencies
from bochner.linalg import Cholesky, cholesky, closed_form, plus_diagonal
from bochner.memory import Scratch, chunks
from bochner.processes import ALONE, Processes
from bochner.regression.noise import Noise, Statistics, products_in, statistics, total
from bochner.regression.observations import AllRows, CompleteBlock, Rows
from bochner.regression.separate_columns import SeparateColumns, separate_columns_evidence

# Rows whose features and phases stay in a core's cache: computing features again for the second
# pass is then cheaper than fetching them from memory.
CHUNK_ROWS = 2048
# Numbers of the sums of several draws, at the most: 128 MB.
SUMS = 2**24
# Numbers of the features of all rows up to which one column after the other takes longer.
_AT_ONCE = 2**19


def gram_diagonal(f: Frequencies, n_rows: int) -> float:
    """Return how large the diagonal of Phi Phi^T is at the most. Sums over chunks of rows are in
    float64: their errors add up as independent ones.
    """
    n = min(n_rows, CHUNK_ROWS) * math.sqrt(max(1.0, n_rows / CHUNK_ROWS))
    return n * float(f.largest_square)


@dataclass
class Gradient:
    """Where the second pass adds up."""

    x: Tensor
    first: Tensor
    second: Tensor | None
    amplitude: Tensor
    linear: Tensor
    noise: Tensor

    @classmethod
    def zeros(cls, x: Tensor, f: Frequencies, s2: Tensor) -> Gradient:
        """Return zeros in the shapes of what the value depends on."""
        points = f.each(torch.zeros_like)
        noise = torch.zeros(s2.shape, dtype=torch.float64, device=x.device)
        zeros = (points.first, points.second, points.amplitude, points.linear)
        return cls(torch.zeros_like(x), *zeros, noise)

    def parts(self) -> tuple[Tensor | None, ...]:
        """Return the gradients in latents, spectral points, amplitude, covariates' factors and
        noise.
        """
        return self.x, self.first, self.second, self.amplitude, self.linear, self.noise

    def over(self, processes: Processes) -> None:
        """Add what the rows of other processes say of the frequencies and of the covariates'
        factors. Latents are this process's own, and the noise's gradient comes from sums over all
        processes already.
        """
        second = [] if self.second is None else [self.second]
        of_frequencies = [self.first, self.amplitude, self.linear, *second]
        for part, summed in zip(of_frequencies, processes.sums(of_frequencies), strict=True):
            part.copy_(summed)

    def add(self, rows: Rows, trace: Trace, f: Frequencies, upstream: Tensor) -> None:
        """Carry the features' gradient of some rows back and add it."""
        d_x, d_first, d_second, d_amplitude, d_linear = pull_back(trace, f, upstream)
        rows.add_to(self.x, d_x)
        self.first += d_first
        if self.second is not None and d_second is not None:
            self.second += d_second
        self.amplitude += d_amplitude
        self.linear += d_linear


def apart(
    blocks: Sequence[CompleteBlock], n_rows: int, n_features: int, processes: Processes
) -> tuple[list[CompleteBlock], list[CompleteBlock]]:
    """Divide the blocks of a view into those that `separate_columns_evidence` takes at once, and
    the others: columns by themselves, in memory, of at least a quarter of the rows of one process.
    """
    if processes.size > 1 or len(blocks) < 2 or n_rows * n_features > _AT_ONCE:
        return [], list(blocks)
    fits = [
        isinstance(block.Y, Tensor) and block.n_columns == 1 and 4 * block.n_rows >= n_rows
        for block in blocks
    ]
    if sum(fits) < 2:
        return [], list(blocks)
    pairs = list(zip(blocks, fits, strict=True))
    return [block for block, fit in pairs if fit], [block for block, fit in pairs if not fit]


@dataclass(frozen=True)
class _Evaluation:
    """One evaluation of a view.

    Attributes
    ----------
    x : Tensor of shape (N, D)
    f : Frequencies
    noise : Noise
        Of the view's columns.
    chunk_rows : int
    processes : Processes
    into : Gradient or None
        Where gradients add up, if any are wanted.
    scratch : Scratch
    """

    x: Tensor
    f: Frequencies
    noise: Noise
    chunk_rows: int
    processes: Processes
    into: Gradient | None
    scratch: Scratch

    def total(self, blocks: Sequence[CompleteBlock]) -> Tensor:
        """Return the sum of the blocks' log p(Y | X, W), and add their gradients."""
        n_rows = self.x.shape[0]
        together, others = apart(blocks, n_rows, self.f.n_features, self.processes)
        total = torch.zeros((), dtype=torch.float64, device=self.x.device)
        if together:
            total += self._at_once(SeparateColumns.of(together, n_rows))
        for block in others:
            total += self.value(block)
        return total

    def _at_once(self, data: SeparateColumns) -> Tensor:
        """Take columns that lack a few rows each."""
        trace = self._features(AllRows())
        s2 = self.noise.of_columns(data.columns)
        diagonal = gram_diagonal(self.f, self.x.shape[0])
        wanted = self.into is not None
        result = separate_columns_evidence(trace.features, data, s2, diagonal, wanted)
        if self.into is not None:
            self.noise.add_to(self.into.noise, result.d_noise, data.columns)
            self.into.add(AllRows(), trace, self.f, result.d_features)
        return result.value

    def value(self, block: CompleteBlock) -> Tensor:
        """Return a block's log p(Y | X, W), in the cheaper form, and add its gradients."""
        dense = self.f.n_features > block.n_rows and self.processes.size == 1
        return self._dense(block) if dense else self._two_passes(block)

    def _dense(self, block: CompleteBlock) -> Tensor:
        """Take the N x N form, whose features are all held."""
        noise = self.noise.of_block(block)
        trace = self._features(block.rows)
        if self.into is None:
            return noise.dense_value(trace.features, block)
        result = noise.dense_evidence(trace.features, block)
        self.noise.add_to(self.into.noise, result.d_noise, block.columns)
        upstream = trace.features @ result.twice_d_gram.to(trace.features.dtype)
        self.into.add(block.rows, trace, self.f, upstream)
        return result.value

    def _two_passes(self, block: CompleteBlock) -> Tensor:
        """First pass adds up G and C; the second, if a gradient is wanted, carries it back chunk by
        chunk.
        """
        noise = self.noise.of_block(block)
        dtype = self.x.dtype
        # a process may have no rows of a view that others have
        cuts = list(chunks(block.Y.shape[0], self.chunk_rows)) or [slice(0, 0)]
        parts = [block.rows.part(cut) for cut in cuts]
        last: Trace | None = None

        def stats(products: torch.dtype) -> Statistics:
            return total(part(i, products) for i in range(len(cuts))).over(self.processes)

        def part(i: int, products: torch.dtype) -> Statistics:
            nonlocal last
            last = self._features(parts[i])
            square = noise.square(block) if i == 0 else 0.0
            Y = block.Y[cuts[i]]
            return statistics(last.features, Y, square, block.n_columns, products)

        def exact() -> Statistics:
            return stats(torch.float64)

        diagonal = gram_diagonal(self.f, self.processes.total(block.n_rows))
        precision = products_in(dtype, diagonal, noise.variance)
        first = stats(precision)
        if self.into is None:
            return noise.value(first, exact)
        result = noise.evidence(first, exact, precision)
        self.noise.add_to(self.into.noise, result.d_noise, block.columns)
        d_gram = 2.0 * result.d_gram.to(dtype)
        d_cross = result.d_cross.to(dtype)
        # backwards, because the features of the last chunk are still there
        for cut, rows in zip(reversed(cuts), reversed(parts), strict=True):
            trace = last or self._features(rows)
            last = None
            memory = self.scratch.take("upstream", *trace.features.shape)
            upstream = torch.mm(d_gram, trace.features, out=memory)
            self.into.add(rows, trace, self.f, upstream.addmm_(d_cross, block.Y[cut].T))
        return result.value

    def _features(self, rows: Rows) -> Trace:
        return evaluate(rows.take(self.x), self.f, self.scratch)


def view_evidence(
    x: Tensor,
    frequencies: Frequencies,
    noise_variance: Tensor,
    blocks: tuple[CompleteBlock, ...],
    *,
    chunk_rows: int = CHUNK_ROWS,
    processes: Processes = ALONE,
    scratch: Scratch | None = None,
) -> Tensor:
    """Return sum over blocks of log p(Y_block | X, W), differentiable once in x, frequencies and
    noise.

    Parameters
    ----------
    x : Tensor of shape (N, D)
        Latents of all rows; its precision is that of the products.
    frequencies : Frequencies
    noise_variance : Tensor, scalar, or of shape (M,) for one per column, float64
    blocks : tuple of CompleteBlock
    chunk_rows : int
        Rows per chunk; the result does not depend on it beyond rounding.
    processes : Processes
        Among which the rows are divided: the value, and the gradients in frequencies and noise, are
        those of all rows.
    scratch : Scratch, optional
        Of x's precision: memory that the next evaluation may use again.

    Returns
    -------
    Tensor, scalar float64
        In nats. Memory grows with chunk_rows K + K^2 + K M, not with N K.
    """
    f = frequencies.to(x.dtype)
    noise = Noise.of(noise_variance)
    memory = scratch or Scratch(x)

    def compute(wanted: bool) -> tuple[Tensor, Sequence[Tensor | None]]:
        into = Gradient.zeros(x, f, noise_variance) if wanted else None
        evaluation = _Evaluation(x, f, noise, chunk_rows, processes, into, memory)
        value = evaluation.total(blocks)
        if into is not None and processes.size > 1:
            into.over(processes)
        return value, () if into is None else into.parts()

    return closed_form(compute, x, f.first, f.second, f.amplitude, f.linear, noise_variance)


def evidence_of_draws(
    latents: Sequence[Callable[[Rows], Tensor]],
    frequencies: Sequence[Frequencies],
    noise_variance: Tensor,
    block: CompleteBlock,
    *,
    dtype: torch.dtype,
    chunk_rows: int = CHUNK_ROWS,
    processes: Processes = ALONE,
    sums: int = SUMS,
) -> list[Tensor]:
    """Return what ``view_evidence`` does of a block at each of several draws, without gradients, to
    the same bits: rows are read once for all of them.

    Parameters
    ----------
    latents : sequence of callable
        Rows -> their latents at a draw, (n, D).
    frequencies : sequence of Frequencies
        One per draw.
    noise_variance : Tensor, scalar, or of shape (M,) for one per column, float64
    block : CompleteBlock
    dtype : torch.dtype
        Of the latents and so of the products.
    chunk_rows, processes
        As in ``view_evidence``.
    sums : int
        Numbers of the sums that are held, at the most.

    Returns
    -------
    list of Tensor, scalar float64
        In nats. Sums of all draws are held, K^2 + K m numbers each; where that is too much rows are
        read once for each few draws.
    """
    noise = Noise.of(noise_variance).of_block(block)
    points = [f.to(dtype) for f in frequencies]
    n_rows = processes.total(block.n_rows)
    cuts = list(chunks(block.Y.shape[0], chunk_rows)) or [slice(0, 0)]
    scratch = Scratch(torch.empty(0, dtype=dtype, device=block.Y.device))

    def products(draw: int) -> torch.dtype:
        return products_in(dtype, gram_diagonal(points[draw], n_rows), noise.variance)

    def summed(draws: range, of_products: Sequence[torch.dtype]) -> list[Statistics]:
        sums: list[Statistics] = []
        for i, cut in enumerate(cuts):
            Y = block.Y[cut]
            rows = block.rows.part(cut)
            square = noise.square(block) if i == 0 else 0.0
            for place, draw in enumerate(draws):
                phi = evaluate(latents[draw](rows), points[draw], scratch).features
                given = (square, block.n_columns, of_products[place])
                part = statistics(phi, Y, *given)
                sums[place : place + 1] = [sums[place] + part if i else part]
        return [one.over(processes) for one in sums]

    def exact(draw: int) -> Statistics:
        return summed(range(draw, draw + 1), [torch.float64])[0]

    k = points[0].n_features
    width = block.Y.shape[1]
    at_once = max(1, sums // (k * (k + width)))
    out = []
    for some in chunks(len(points), at_once):
        draws = range(some.start, some.stop)
        of_draws = summed(draws, [products(draw) for draw in draws])
        for draw, of_draw in zip(draws, of_draws, strict=True):
            out.append(noise.value(of_draw, functools.partial(exact, draw)))
    return out


def expected_statistics(
    f: Frequencies,
    block: CompleteBlock,
    latents: list[Tensor],
    products: torch.dtype | None = None,
    processes: Processes = ALONE,
) -> Statistics:
    """Sum the statistics of a complete block over draws of X, chunk by chunk.

    Parameters
    ----------
    f : Frequencies
    block : CompleteBlock
    latents : list of Tensor of shape (N, D)
        At least one.
    products : torch.dtype, optional
        Precision of the products; None: the latents'.
    processes : Processes
        Among which the rows are divided: sums are those of all rows.
    """
    sums: Statistics | None = None
    working = f.to(latents[0].dtype)
    for x in latents:
        at_rows = block.rows.take(x)
        for rows in chunks(at_rows.shape[0], CHUNK_ROWS) if len(at_rows) else [slice(0, 0)]:
            part = statistics(
                evaluate(at_rows[rows], working).features,
                block.Y[rows],
                0.0,
                products=products,
            )
            sums = part if sums is None else sums + part
    if sums is None:
        raise ValueError("no draws of the latents")
    return sums.over(processes)


def precision(
    f: Frequencies,
    block: CompleteBlock,
    latents: list[Tensor],
    stats: Statistics,
    noise_variance: Tensor,
    processes: Processes = ALONE,
) -> Cholesky:
    """Factor B = E[G] + sigma^2 I, (K, K), from products in float64 where those of the statistics
    are too rough.

    Parameters
    ----------
    f, block, latents
        As in ``expected_statistics``, which made ``stats``.
    stats : Statistics
    noise_variance : Tensor, scalar
    processes : Processes
    """

    def matrix(sums: Statistics) -> Tensor:
        return plus_diagonal(sums.gram / len(latents), noise_variance)

    def exact() -> Tensor:
        return matrix(expected_statistics(f, block, latents, torch.float64, processes))

    return cholesky(matrix(stats), exact)
