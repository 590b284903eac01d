"""log p(Y | X, W) with the weights integrated out, its gradient in closed form, and the exact
two-pass gradient.

With L L^T = B = G + sigma^2 I and m = B^-1 C (docs/math.md, section 2):

log p = -(NM/2) log 2 pi - (M(N-K)/2) log sigma^2 - M sum_k log L_kk - (||Y||^2 - <C, m>) / (2
sigma^2).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bochner.errors import NumericalError
from bochner.features.fourier import Trace, evaluate, pull_back
from bochner.kernels.base import Frequencies
from bochner.linalg import cholesky, closed_form, plus_diagonal
from bochner.memory import Scratch, chunks
from bochner.processes import ALONE, Processes
from bochner.regression.heteroscedastic import column_dense_evidence, column_evidence
from bochner.regression.observations import CompleteBlock, Rows
from bochner.regression.statistics import Statistics, statistics, total

# Rows whose features and phases stay in a core's cache: computing features again for the second
# pass is then cheaper than fetching them from memory.
CHUNK_ROWS = 2048

# Rounding of a Gram matrix's diagonal over the noise variance, beyond which products are in
# float64. On 178 rows of wine, whose noise is 1/65,000 of the signal's variance, 6e-4 cost the
# gradient 0.3 % and the bound 0.02 nats, 2e-3 in the N x N form 10 % and 7 nats.
ROUNDING = 3e-4
# Diagonal over noise variance from which rounding in float64 shows in the bound as well.
ILL_CONDITIONED = 1e6


@dataclass(frozen=True)
class Evidence:
    """A value and its gradients.

    Attributes
    ----------
    value : Tensor, scalar float64
        log p(Y | X, W) in nats.
    d_gram, d_cross : Tensor of shape (K, K) and (K, m), float64
    d_noise : Tensor, scalar or of shape (m,), float64
        Gradient in sigma^2.
    """

    value: Tensor
    d_gram: Tensor
    d_cross: Tensor
    d_noise: Tensor


def evidence(
    stats: Statistics, noise_variance: Tensor, exact: Callable[[], Statistics] | None = None
) -> Evidence:
    """Evaluate log p(Y | X, W) and its gradients from additive statistics.

    Parameters
    ----------
    stats : Statistics
    noise_variance : Tensor, scalar, or of shape (m,) for one per column
        sigma^2 > 0.
    exact : callable, optional
        Forms the statistics anew in float64, where rounding made their Gram matrix indefinite.

    Returns
    -------
    Evidence
    """
    if noise_variance.ndim:
        return Evidence(*column_evidence(stats, noise_variance.detach().double()))
    n, m_cols, k = stats.n_rows, stats.n_columns, stats.gram.shape[0]
    s2 = _number(noise_variance)
    again = None if exact is None else lambda: plus_diagonal(exact().gram, s2)
    factor = cholesky(plus_diagonal(stats.gram, s2), again)
    inverse = factor.inverse()
    # products with an inverse lose what solves with its factor keep
    ill = float(stats.gram.diagonal().max()) > ILL_CONDITIONED * s2
    m = factor.solve(stats.cross) if ill else inverse @ stats.cross
    residual = float(stats.square) - float(torch.dot(stats.cross.reshape(-1), m.reshape(-1)))
    value = (
        -0.5 * n * m_cols * math.log(2.0 * math.pi)
        - 0.5 * m_cols * ((n - k) * math.log(s2) + float(factor.logdet()))
        - 0.5 * residual / s2
    )
    d_noise = (
        -0.5 * m_cols * ((n - k) / s2 + float(inverse.trace()))
        + 0.5 * residual / (s2 * s2)
        - 0.5 * float(torch.dot(m.reshape(-1), m.reshape(-1))) / s2
    )
    d_cross = m / s2
    # -(M/2) B^-1 - m m^T / (2 sigma^2)
    d_gram = torch.addmm(inverse, d_cross, m.T, beta=-0.5 * m_cols, alpha=-0.5)
    return Evidence(inverse.new_tensor(value), d_gram, d_cross, inverse.new_tensor(d_noise))


def evidence_value(
    stats: Statistics, noise_variance: Tensor, exact: Callable[[], Statistics] | None = None
) -> Tensor:
    """Return the value of ``evidence`` alone, scalar float64, at a third of the cost."""
    if noise_variance.ndim:
        return evidence(stats, noise_variance, exact).value
    n, m_cols, k = stats.n_rows, stats.n_columns, stats.gram.shape[0]
    s2 = _number(noise_variance)
    again = None if exact is None else lambda: plus_diagonal(exact().gram, s2)
    factor = cholesky(plus_diagonal(stats.gram, s2), again)
    residual = float(stats.square) - float(explained(factor.factor, stats.cross))
    logdet = float(factor.logdet())
    determinant = 0.5 * m_cols * ((n - k) * math.log(s2) + logdet)
    value = -0.5 * n * m_cols * math.log(2.0 * math.pi) - determinant - 0.5 * residual / s2
    return stats.gram.new_tensor(value)


def explained(factor: Tensor, cross: Tensor) -> Tensor:
    """Return <C, B^-1 C> from the factor of B, (..., K, K) and (..., K, m) -> (...)."""
    half: Tensor = torch.linalg.solve_triangular(factor, cross, upper=False)
    return half.square().sum((-2, -1))


def products_in(
    dtype: torch.dtype, diagonal: float, noise_variance: Tensor, limit: float = ROUNDING
) -> torch.dtype:
    """Return the precision that products for a Gram matrix ask for: the features', or float64 where
    the noise variance is not far above their rounding.

    Parameters
    ----------
    dtype : torch.dtype
        Of the features.
    diagonal : float
        How large the matrix's diagonal is.
    noise_variance : Tensor, scalar or of shape (m,)
    limit : float
        The largest share of the noise variance that rounding may have.
    """
    rounding = 0.5 * torch.finfo(dtype).eps * diagonal
    exact = rounding <= limit * float(noise_variance.detach().min())
    return dtype if exact else torch.float64


def gram_diagonal(f: Frequencies, n_rows: int) -> float:
    """Return how large the diagonal of Phi Phi^T is at the most. Sums over chunks of rows are in
    float64: their errors add up as independent ones.
    """
    n = min(n_rows, CHUNK_ROWS) * math.sqrt(max(1.0, n_rows / CHUNK_ROWS))
    return n * float(f.largest_square)


def dense_evidence(
    features: Tensor, block: CompleteBlock, noise_variance: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Evaluate log p(Y | X, W) in its N x N form, cheaper when K > N.

    Parameters
    ----------
    features : Tensor of shape (K, n)
    block : CompleteBlock
    noise_variance : Tensor, scalar, or of shape (m,) for one per column

    Returns
    -------
    value : Tensor, scalar float64
    d_features : Tensor of shape (K, n), in the features' precision
    d_noise : Tensor, scalar or of shape (m,), float64
    """
    gram = _between_rows(features, noise_variance)
    if noise_variance.ndim:
        return column_dense_evidence(features, gram, block, noise_variance.detach().double())
    Y, n, m_cols = block.Y.double(), block.Y.shape[0], block.n_columns
    s2 = _number(noise_variance)
    factor = cholesky(plus_diagonal(gram, s2))
    inverse = factor.inverse()
    solved = inverse @ Y
    dropped = _dropped(block)
    quadratic = float((Y * solved).sum()) + dropped / s2
    logdet = float(factor.logdet())
    value = -0.5 * (n * m_cols * math.log(2.0 * math.pi) + m_cols * logdet + quadratic)
    d_gram = torch.addmm(inverse, solved, solved.T, beta=-float(m_cols))  # twice the gradient
    d_noise = 0.5 * float(d_gram.trace()) + 0.5 * dropped / (s2 * s2)
    return (
        gram.new_tensor(value),
        features @ d_gram.to(features.dtype),
        gram.new_tensor(d_noise),
    )


def dense_evidence_value(features: Tensor, block: CompleteBlock, noise_variance: Tensor) -> Tensor:
    """Return the value of ``dense_evidence`` alone, scalar float64."""
    if noise_variance.ndim:
        return dense_evidence(features, block, noise_variance)[0]
    s2, n, m_cols = _number(noise_variance), block.Y.shape[0], block.n_columns
    gram = _between_rows(features, noise_variance)
    factor = cholesky(plus_diagonal(gram, s2))
    quadratic = float(explained(factor.factor, block.Y.double())) + _dropped(block) / s2
    logdet = float(factor.logdet())
    value = -0.5 * (n * m_cols * math.log(2.0 * math.pi) + m_cols * logdet + quadratic)
    return gram.new_tensor(value)


def _between_rows(features: Tensor, noise_variance: Tensor) -> Tensor:
    """Return Phi^T Phi, (n, n), in float64."""
    variances = features.detach().square().sum(0)
    exact = features.to(products_in(features.dtype, float(variances.max()), noise_variance))
    return (exact.T @ exact).double()


def _dropped(block: CompleteBlock) -> float:
    """Return the squares that a rotation to fewer columns left out."""
    if block.Y.shape[1] == block.n_columns:
        return 0.0
    return max(0.0, block.square - float(block.Y.double().square().sum()))


def _number(noise_variance: Tensor) -> float:
    """Return a noise variance as a number: formulas of single numbers are Python's, whose
    operations cost a tenth of torch's.
    """
    s2 = float(noise_variance)
    if not 0.0 < s2 * s2 < math.inf:
        raise NumericalError(f"The noise variance was {s2}. Check the scale of the data.")
    return s2


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
        """Add what the rows of other processes say of the frequencies. Latents are this process's
        own, and the noise's gradient comes from sums over all processes already.
        """
        second = [] if self.second is None else [self.second]
        of_frequencies = [self.first, self.amplitude, *second]
        for part, summed in zip(of_frequencies, processes.sums(of_frequencies), strict=True):
            part.copy_(summed)

    def add_noise(self, d_noise: Tensor, block: CompleteBlock) -> None:
        """Add the gradient in sigma^2, or in those of a block's columns."""
        if self.noise.ndim:
            self.noise[block.columns.to(self.noise.device)] += d_noise
        else:
            self.noise += d_noise

    def add(self, rows: Rows, trace: Trace, f: Frequencies, upstream: Tensor) -> None:
        """Carry the features' gradient of some rows back and add it."""
        d_x, d_first, d_second, d_amplitude, d_linear = pull_back(trace, f, upstream)
        rows.add_to(self.x, d_x)
        self.first += d_first
        if self.second is not None and d_second is not None:
            self.second += d_second
        self.amplitude += d_amplitude
        self.linear += d_linear


def _two_passes(
    x: Tensor,
    f: Frequencies,
    s2: Tensor,
    block: CompleteBlock,
    chunk_rows: int,
    processes: Processes,
    into: Gradient | None,
    scratch: Scratch,
) -> Tensor:
    """First pass adds up G and C; the second, if a gradient is wanted, carries it back chunk by
    chunk.
    """
    # a process may have no rows of a view that others have
    cuts = list(chunks(block.Y.shape[0], chunk_rows)) or [slice(0, 0)]
    parts = [block.rows.part(cut) for cut in cuts]
    last: Trace | None = None

    def stats(dtype: torch.dtype) -> Statistics:
        return total(part(i, dtype) for i in range(len(cuts))).over(processes)

    def part(i: int, dtype: torch.dtype) -> Statistics:
        nonlocal last
        last = evaluate(parts[i].take(x), f, scratch)
        square = block.squares if s2.ndim else block.square
        return statistics(
            last.features, block.Y[cuts[i]], square if i == 0 else 0.0, block.n_columns, dtype
        )

    products = products_in(x.dtype, gram_diagonal(f, processes.total(block.n_rows)), s2)
    if into is None:
        return evidence_value(stats(products), s2, lambda: stats(torch.float64))
    result = evidence(stats(products), s2, lambda: stats(torch.float64))
    into.add_noise(result.d_noise, block)
    d_gram, d_cross = 2.0 * result.d_gram.to(x.dtype), result.d_cross.to(x.dtype)
    # backwards, because the features of the last chunk are still there
    for cut, rows in zip(reversed(cuts), reversed(parts), strict=True):
        trace, last = last or evaluate(rows.take(x), f, scratch), None
        upstream = torch.mm(
            d_gram, trace.features, out=scratch.take("upstream", *trace.features.shape)
        )
        into.add(rows, trace, f, upstream.addmm_(d_cross, block.Y[cut].T))
    return result.value


def _dense(
    x: Tensor,
    f: Frequencies,
    s2: Tensor,
    block: CompleteBlock,
    into: Gradient | None,
    scratch: Scratch,
) -> Tensor:
    trace = evaluate(block.rows.take(x), f, scratch)
    if into is None:
        return dense_evidence_value(trace.features, block, s2)
    value, upstream, d_noise = dense_evidence(trace.features, block, s2)
    into.add_noise(d_noise, block)
    into.add(block.rows, trace, f, upstream)
    return value


def _own_noise(s2: Tensor, block: CompleteBlock) -> Tensor:
    """Return the noise of a block's columns; a single column needs no eigendecomposition."""
    own = s2[block.columns.to(s2.device)] if s2.ndim else s2
    return own[0] if own.numel() == 1 and own.ndim else own


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
    f, memory = frequencies.to(x.dtype), scratch or Scratch(x)

    def compute(wanted: bool) -> tuple[Tensor, Sequence[Tensor | None]]:
        into = Gradient.zeros(x, f, noise_variance) if wanted else None
        value = torch.zeros((), dtype=torch.float64, device=x.device)
        for block in blocks:
            s2 = _own_noise(noise_variance, block)
            if f.n_features > block.n_rows and processes.size == 1:
                value += _dense(x, f, s2, block, into, memory)
            else:
                value += _two_passes(x, f, s2, block, chunk_rows, processes, into, memory)
        if into is not None and processes.size > 1:
            into.over(processes)
        return value, () if into is None else into.parts()

    return closed_form(compute, x, f.first, f.second, f.amplitude, f.linear, noise_variance)
