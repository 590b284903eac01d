"""log p(Y | X, W) of a Gaussian view with scattered holes: a Gram matrix per column, without
forming them all.

With O_m the rows that observe column m, S_m^-1 = I + Phi_O Phi_O^T / sigma^2 and m_m its posterior
mean of the weights,

log p(y_m) = -(N_m/2) log 2 pi sigma^2 - |y_m - Phi_O^T m_m|^2 / (2 sigma^2) - |m_m|^2 / 2 + (1/2)
log det S_m.

The means of all columns are found exactly by conjugate gradients, which the covariance S_g of a
group of columns with similar holes preconditions: two products of features and columns a step,
instead of a factorisation per column. By Jensen's inequality sum_m log det S_m over a group is at
least its size times log det S_g. What that lacks is small and alike from column to column, so that
a few columns, factored exactly, estimate it without bias and with little noise:

log det S_m - log det S_g + tr(S_g S_m^-1) - K, whose last two terms add up to 0 over the group.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bochner.features.fourier import evaluate
from bochner.kernels.base import Frequencies
from bochner.linalg import closed_form
from bochner.memory import chunks
from bochner.regression.conjugate_gradients import Weights, factored, traces, weights_from
from bochner.regression.evidence import CHUNK_ROWS, gram_diagonal
from bochner.regression.incomplete_dense import fits, masked_dense_evidence
from bochner.regression.noise import products_in
from bochner.regression.nonconjugate import carried_back, joined_features
from bochner.regression.observations import (
    Block,
    CompleteBlock,
    IncompleteBlock,
)
from bochner.regression.weighted_grams import weighted_grams, weighted_products

# Nats per observed entry that the bound may lose because means are not solved to the end.
TOLERANCE = 2e-4
# Columns of a block whose determinants are exact in a draw of a bound. On 1,000 digits with 30 %
# hidden, where the shared ones lack some thousand nats of 750,000, eight leave an error of 10 nats,
# far below the noise of a draw of the features, and double the time; two add a fifth.
N_DETERMINANTS = 2.0
# Where columns are fewer two cost as much as all else, and less is lacking, 7 nats of 24,000 for
# 1,500 rows of 40 columns with a tenth missing: a step of training has one of so many columns, and
# of few of them one in every other step, whose error is 10 nats.
_COLUMNS_FOR_ONE = 128
N_DETERMINANTS_A_STEP = 0.5
# Columns factored at a time.
_AT_ONCE = 16
# Rounding of a Gram matrix's diagonal over the noise variance, beyond which all is in float64:
# covariances enter the value by themselves here. And iterations where the noise is that small.
ROUNDING = 1e-2
MAX_ITER = 200


@dataclass(frozen=True)
class Sample:
    """A systematic sample of a block's columns: each is in it with the same probability.

    Attributes
    ----------
    n_columns : float
        How many, at the most; of a fraction on average, so that there may be none.
    start : float
        In [0, 1).
    """

    n_columns: float
    start: float

    @classmethod
    def among(cls, n_columns: int, least: float, start: float) -> Sample:
        """Return the columns of a block whose determinants are exact: `N_DETERMINANTS` of many, and
        of few at the least so many.
        """
        some = n_columns / _COLUMNS_FOR_ONE
        return cls(min(N_DETERMINANTS, max(least, some)), start)

    def of(self, m: int, device: torch.device) -> tuple[Tensor, float]:
        """Return positions among m columns, and what each of them stands for."""
        b = min(m, self.n_columns)
        steps = (torch.arange(math.ceil(b), dtype=torch.float64) + self.start) * (m / b)
        # the last of a fraction is there at times; of whole numbers rounding alone may reach m
        steps = steps[steps < m] if b % 1 else steps
        return steps.long().clamp(max=m - 1).to(device), m / b


def masked_evidence(
    x: Tensor,
    frequencies: Frequencies,
    noise_variance: Tensor,
    block: IncompleteBlock,
    *,
    sample: Sample | None = None,
    chunk_rows: int = CHUNK_ROWS,
    tol: float = TOLERANCE,
) -> Tensor:
    """Evaluate the sum over columns of log N(y_m; 0, Phi_O^T Phi_O + sigma^2 I), differentiable
    once.

    Parameters
    ----------
    x : Tensor of shape (N, D)
        Latents of all rows.
    frequencies : Frequencies
    noise_variance : Tensor, scalar float64
    block : IncompleteBlock
    sample : Sample, optional
        Columns whose determinants are exact; None: all of them, and so is the value. Of fewer rows
        than features with few holes all are exact in any case (``incomplete_dense``).
    chunk_rows : int
        Rows per chunk; the result does not depend on it beyond rounding.
    tol : float
        Nats per observed entry that means not solved to the end may cost.

    Returns
    -------
    Tensor, scalar float64
        In nats. Unbiased over the sample's start.
    """
    f = frequencies.to(x.dtype)
    dtype = _precision(x.dtype, f, block, noise_variance)

    def compute(wanted: bool) -> tuple[Tensor, Sequence[Tensor | None]]:
        rows = block.rows.take(x)
        traces = [evaluate(rows[part], f) for part in chunks(rows.shape[0], chunk_rows)]
        features = joined_features(traces).to(dtype)
        data = block.to(dtype)
        s2 = float(noise_variance)
        if fits(block, features.shape[0]):
            value, upstream, d_noise = masked_dense_evidence(features, block, noise_variance)
        else:
            value, upstream, d_noise = _solve(
                features, data, s2, sample, tol, chunk_rows, wanted
            )
        if not wanted:
            return value, ()
        carried = carried_back(x, block.rows, traces, f, upstream.to(x.dtype))
        return value, (*carried, d_noise)

    return closed_form(compute, x, f.first, f.second, f.amplitude, f.linear, noise_variance)


def _precision(
    dtype: torch.dtype, f: Frequencies, block: IncompleteBlock, noise_variance: Tensor
) -> torch.dtype:
    """Return the precision that the block's noise asks for."""
    return products_in(dtype, gram_diagonal(f, block.n_rows), noise_variance, ROUNDING)


def _solve(
    features: Tensor,
    block: IncompleteBlock,
    s2: float,
    sample: Sample | None,
    tol: float,
    chunk_rows: int,
    wanted: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the value and its gradients in the features, (K, n), and in sigma^2; zeros unless
    wanted.
    """
    observed = block.observed
    sizes = block.sizes
    solution = _weights(features, block, s2, tol)
    squares, upstream = _fit(features, block, solution, chunk_rows, wanted)
    upstream /= s2
    counts = torch.tensor(sizes, dtype=torch.float64, device=observed.device)
    k = features.shape[0]
    n_entries = block.n_entries
    value = (
        -0.5
        * (
            n_entries * math.log(2.0 * math.pi * s2)
            + squares / s2
            + solution.mean.double().square().sum()
        )
        - 0.5 * (counts * solution.logdet).sum()
    )
    d_noise = 0.5 * (squares / s2 - n_entries + (counts * (k - solution.trace)).sum()) / s2
    # of S_g in the gradient
    weights = -solution.gather(observed) / s2
    m = observed.shape[1]
    chosen, share = (sample or Sample(m, 0.0)).of(m, observed.device)
    if max(sizes) > 1 and len(chosen):
        lack = _lack(features, block, solution, chosen, share, s2, wanted)
        value = value + lack.value
        d_noise = d_noise + lack.d_noise
        weights = weights + lack.weights
        upstream += lack.upstream
    if wanted:
        upstream += weighted_products(features, solution.covariance, weights)
    return value, upstream, d_noise


def _weights(features: Tensor, block: IncompleteBlock, s2: float, tol: float) -> Weights:
    observed = block.observed
    goal = 2.0 * tol * observed.sum(0)
    return weights_from(
        features, observed / s2, block.Y / s2, block.sizes, goal, max_iter=MAX_ITER
    )


def _fit(
    features: Tensor,
    block: IncompleteBlock,
    solution: Weights,
    chunk_rows: int,
    wanted: bool,
) -> tuple[Tensor, Tensor]:
    """Return the squared residuals of the observed entries, and the residuals times the means, (K,
    n).
    """
    upstream = torch.zeros_like(features)
    squares = torch.zeros((), dtype=torch.float64, device=features.device)
    for part in chunks(features.shape[1], chunk_rows):
        residual = block.Y[part] - features[:, part].T @ solution.mean
        residual.mul_(block.observed[part])
        squares += residual.square().sum(dtype=torch.float64)
        if wanted:
            upstream[:, part] = solution.mean @ residual.T
    return squares, upstream


class Determinants:
    """What the determinants of some columns, factored exactly, say that the shared ones lack.

    Parameters
    ----------
    solution : Weights
        With the shared ones.
    share : float
        Columns that each of these stands for.

    Attributes
    ----------
    value : Tensor, scalar float64
        In nats.
    """

    def __init__(self, solution: Weights, share: float) -> None:
        self._solution = solution
        self._share = share
        self._shared = solution.covariance.double()
        self.value = torch.zeros((), dtype=torch.float64, device=self._shared.device)
        self._traces = torch.zeros_like(self.value)
        self._precisions = torch.zeros_like(self._shared)
        self._counts = torch.zeros_like(solution.logdet)

    def add(self, grams: Tensor, groups: Tensor) -> Tensor:
        """Factor columns of given groups, (b,), and return their covariances, (b, K, K); their
        grams are without the identity.
        """
        covariances, logdet = factored(grams)
        products = (self._shared[groups] * grams).sum((1, 2)) + traces(self._shared)[groups]
        lacking = logdet - self._solution.logdet[groups] - products + grams.shape[-1]
        self.value -= 0.5 * self._share * lacking.sum()
        self._precisions.index_add_(0, groups, grams)
        self._counts += torch.bincount(groups, minlength=len(self._counts))
        self._traces += traces(covariances).sum()
        return covariances

    def gradients(self, s2: float) -> tuple[Tensor, Tensor]:
        """Return the gradients in S_g^-1, (G, K, K), over share / 2, and in sigma^2."""
        shared = self._shared
        counts = self._counts
        # S_g (sum of S_m^-1) S_g - (number) S_g
        turned = shared @ self._precisions @ shared
        turned += counts[:, None, None] * (shared @ shared - shared)
        rest = (counts * self._solution.trace).sum() - traces(turned).sum() - self._traces
        return turned, 0.5 * self._share * rest / s2


@dataclass(frozen=True)
class _Lack:
    """What the shared determinants lack.

    Attributes
    ----------
    value, d_noise : Tensor, scalar float64
    upstream : Tensor of shape (K, n)
    weights : Tensor of shape (n, G)
        Further weights of S_g in the features' gradient.
    """

    value: Tensor
    d_noise: Tensor
    upstream: Tensor
    weights: Tensor


def _lack(
    features: Tensor,
    block: IncompleteBlock,
    solution: Weights,
    chosen: Tensor,
    share: float,
    s2: float,
    wanted: bool,
) -> _Lack:
    """Factor some columns, each of which stands for so many; sums over them for sums over all."""
    observed = block.observed
    groups = solution.spread(torch.arange(len(block.sizes), device=observed.device))[chosen]
    exact = Determinants(solution, share)
    upstream = torch.zeros_like(features)
    for part in torch.split(torch.arange(len(chosen), device=observed.device), _AT_ONCE):
        mask = observed[:, chosen[part]]
        covariance = exact.add(weighted_grams(features, mask) / s2, groups[part])
        if wanted:
            upstream -= weighted_products(
                features, covariance.to(features.dtype), mask * (share / s2)
            )
    if not wanted:
        zero = torch.zeros_like(exact.value)
        return _Lack(exact.value, zero, upstream, torch.zeros_like(observed[:, :1]))
    turned, d_noise = exact.gradients(s2)
    upstream -= weighted_products(
        features, turned.to(features.dtype), solution.average(observed) * (share / s2)
    )
    sums = observed.new_zeros(observed.shape[0], len(block.sizes)).index_add_(
        1, groups, observed[:, chosen]
    )
    return _Lack(exact.value, d_noise, upstream, sums * (share / s2))


@functools.singledispatch
def completed(
    block: Block,
    x: Tensor,  # noqa: ARG001 - see the kinds
    frequencies: Frequencies,  # noqa: ARG001
    noise_variance: Tensor,  # noqa: ARG001
) -> CompleteBlock:
    """Return a block whose holes are filled by their posterior means given latents and features.

    Parameters
    ----------
    block : CompleteBlock or IncompleteBlock
    x : Tensor of shape (N, D)
    frequencies : Frequencies
    noise_variance : Tensor, scalar
    """
    raise TypeError(f"expected a Gaussian block, got a {type(block).__name__}")


@completed.register
def _(
    block: CompleteBlock,
    x: Tensor,  # noqa: ARG001 - nothing is missing
    frequencies: Frequencies,  # noqa: ARG001
    noise_variance: Tensor,  # noqa: ARG001
) -> CompleteBlock:
    return block


@completed.register
@torch.no_grad()
def _(
    block: IncompleteBlock, x: Tensor, frequencies: Frequencies, noise_variance: Tensor
) -> CompleteBlock:
    f = frequencies.to(x.dtype)
    dtype = _precision(x.dtype, f, block, noise_variance)
    features = evaluate(block.rows.take(x), f).features.to(dtype)
    mean = _weights(features, block.to(dtype), float(noise_variance), TOLERANCE).mean
    return block.filled((features.T @ mean).to(block.Y.dtype))
