"""What each spectral point would add to the evidence under each component: the exact local
expectation of q(z).

Let pair l be the cosine and sine of w_l, Sigma_-l = sigma^2 I + Phi_-l^T Phi_-l the covariance
without it and F a candidate pair. Putting F in the place of pair l changes log p(Y | X, W), from
its value without pair l, by

-(M/2) log det(I + S) + 1/2 tr[(I + S)^-1 R R^T],   S = F Sigma_-l^-1 F^T (2 x 2),   R = F
Sigma_-l^-1 Y (2 x M).

Both follow from the additive statistics of the current pairs and the candidates together, once,
without a factorisation per point: with B = Phi Phi^T + sigma^2 I and D = sigma^2 (B^-1)_ll, S and R
without pair l are those with it plus S_Fl D^-1 S_lF and S_Fl D^-1 R_l.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import torch
from torch import Tensor

from bochner.features.fourier import evaluate
from bochner.kernels.base import Frequencies
from bochner.linalg import cholesky, plus_diagonal
from bochner.memory import chunks
from bochner.models.sites import Sites
from bochner.regression.evidence import CHUNK_ROWS
from bochner.regression.incomplete import completed
from bochner.regression.noise import Statistics, statistics, total
from bochner.regression.observations import Block, CompleteBlock, EncodedBlock


@torch.no_grad()
def replacement_gains(
    x: Tensor,
    current: Frequencies,
    candidates: Frequencies,
    noise_variance: Tensor,
    blocks: tuple[Block, ...],
    *,
    chunk_rows: int = CHUNK_ROWS,
) -> Tensor:
    """Return what log p(Y | X, W) gains when candidate c takes the place of point l, shape (C, H),
    nats.

    Parameters
    ----------
    x : Tensor of shape (N, D)
    current, candidates : Frequencies
        H and C points, stationary. Factors of covariates in the current ones stay whatever is
        replaced: their weights are integrated out with the others.
    noise_variance : Tensor, scalar
    blocks : tuple of Block
        A Gaussian view. Scattered holes are filled by the current points first: gains are then
        those of the bound whose posterior of the missing entries is held.
    chunk_rows : int

    Returns
    -------
    Tensor of shape (C, H), float64
        Counted from the evidence without point l: differences within a column are those of the
        evidence.
    """
    both, n_points, n_candidates = _together(current, candidates, x.dtype)
    gains = x.new_zeros(n_candidates, n_points, dtype=torch.float64)
    for held in blocks:
        block = completed(held, x, current, noise_variance)
        latents = block.rows.take(x)
        sums = partial(_statistics, latents, both, n_points, block, chunk_rows)
        exact = cache(partial(sums, products=torch.float64))
        gains += _block_gains(sums(), n_points, n_candidates, noise_variance.double(), exact)
    return gains


@torch.no_grad()
def site_gains(
    x: Tensor,
    current: Frequencies,
    candidates: Frequencies,
    sites: Sites,
    block: EncodedBlock,
    *,
    chunk_rows: int = CHUNK_ROWS,
) -> Tensor:
    """Return what the bound of a non-conjugate view gains, given its sites, shape (C, H),
    nats.

    Parameters
    ----------
    x, current, candidates, chunk_rows
        As in ``replacement_gains``.
    sites : Sites
        Each group of columns is taken to have its mean precision: one weighted Gram per group.
    block : EncodedBlock
        Says which rows have data.

    Returns
    -------
    Tensor of shape (C, H), float64

    Notes
    -----
    Given the sites, q(A)'s bound is the evidence of Gaussian data with precisions of their own and
    unit noise: the same algebra with G = sum_n w_n phi_n phi_n^T, C = Phi shift and sigma^2 = 1.
    """
    both, n_points, n_candidates = _together(current, candidates, x.dtype)
    latents = block.rows.take(x)
    gains = x.new_zeros(n_candidates, n_points, dtype=torch.float64)
    one = gains.new_ones(())
    for group in range(int(sites.group_of.max()) + 1):
        columns = (sites.group_of == group).nonzero()[:, 0]
        sums = partial(_weighted, latents, both, n_points, sites, columns, chunk_rows)
        exact = cache(partial(sums, products=torch.float64))
        gains += _block_gains(sums(), n_points, n_candidates, one, exact)
    return gains


def _weighted(
    latents: Tensor,
    both: Frequencies,
    n_points: int,
    sites: Sites,
    columns: Tensor,
    chunk_rows: int,
    products: torch.dtype | None = None,
) -> Statistics:
    """Return the statistics that sites weigh, pair after pair; products in that precision."""
    precision, shift = sites.at(columns)
    weight = precision.mean(1)
    products = products or latents.dtype
    parts = []
    for rows in chunks(latents.shape[0], chunk_rows):
        features = evaluate(latents[rows], both).features.to(products)
        gram = ((features * weight[rows].to(products)) @ features.T).double()
        cross = (features @ shift[rows].to(products)).double()
        parts.append(Statistics(gram, cross, 0.0, latents[rows].shape[0], len(columns)))
    return _by_pair(total(parts), both, n_points)


def _together(
    current: Frequencies, candidates: Frequencies, dtype: torch.dtype
) -> tuple[Frequencies, int, int]:
    """All points, those there first, and the number of each kind."""
    first = torch.cat([current.first, candidates.first])
    amplitude = torch.cat([current.amplitude, candidates.amplitude])
    both = Frequencies(first, None, amplitude, current.linear).to(dtype)
    return both, current.first.shape[0], candidates.first.shape[0]


def _by_pair(stats: Statistics, both: Frequencies, n_points: int) -> Statistics:
    """Reorder the features so that the cosine and the sine of a point stand together: the points
    that are there, covariates, candidates.
    """
    n_pairs = both.first.shape[0]
    pairs = torch.arange(2 * n_pairs, device=stats.gram.device).reshape(2, n_pairs).T.flatten()
    beside = torch.arange(2 * n_pairs, both.n_features, device=stats.gram.device)
    order = torch.cat([pairs[: 2 * n_points], beside, pairs[2 * n_points :]])
    return Statistics(
        stats.gram[order][:, order],
        stats.cross[order],
        stats.square,
        stats.n_rows,
        stats.n_columns,
    )


def _statistics(
    latents: Tensor,
    both: Frequencies,
    n_points: int,
    block: CompleteBlock,
    chunk_rows: int,
    products: torch.dtype | None = None,
) -> Statistics:
    """Return the statistics of points and candidates, pair after pair; products in that
    precision.
    """
    stats = total(
        statistics(
            evaluate(latents[rows], both).features, block.Y[rows], 0.0, products=products
        )
        for rows in chunks(block.Y.shape[0], chunk_rows)
    )
    return _by_pair(stats, both, n_points)


def _block_gains(
    stats: Statistics,
    n_points: int,
    n_candidates: int,
    s2: Tensor,
    exact: Callable[[], Statistics] | None = None,
) -> Tensor:
    """Return the gains of a block; ``exact`` makes its statistics anew in float64, where rounding
    was too much.
    """
    k = stats.gram.shape[0] - 2 * n_candidates
    m_cols = stats.n_columns
    # what follows them, up to k, are covariates
    pairs = 2 * n_points
    kept = plus_diagonal(stats.gram[:k, :k], s2)
    mixed = stats.gram[k:, :k]
    again = None if exact is None else lambda: plus_diagonal(exact().gram[:k, :k], s2)
    inverse = cholesky(kept, again).inverse()
    # R of the current pairs
    m = inverse @ stats.cross[:k]
    # S between candidates and current pairs
    to_current = mixed @ inverse
    among = (_diagonal_pairs(stats.gram[k:, k:]) - _row_pairs(to_current, mixed)) / s2
    # R of the candidates
    r = (stats.cross[k:] - mixed @ m) / s2
    # without pair l: S_cl D_l^-1, (C, H, 2, 2)
    left_out = torch.linalg.inv(s2 * _diagonal_pairs(inverse[:pairs, :pairs]))  # noqa: TID251 - 2 x 2
    link = to_current[:, :pairs].reshape(-1, 2, n_points, 2).transpose(1, 2)
    weight = link @ left_out
    s = among[:, None] + weight @ link.mT
    outer = _row_pairs(r, r)[:, None]
    cross = weight @ (r @ m[:pairs].T).reshape(-1, 2, n_points, 2).permute(0, 2, 3, 1)
    outer = outer + cross + cross.mT + weight @ _row_pairs(m[:pairs], m[:pairs]) @ weight.mT
    gains = _pair_evidence(s, outer, m_cols)
    # rounding that left the matrix of all pairs definite may still make I + S indefinite
    return (
        gains
        if exact is None or bool(gains.isfinite().all())
        else _block_gains(exact(), n_points, n_candidates, s2)
    )


def _pair_evidence(s: Tensor, outer: Tensor, m_cols: int) -> Tensor:
    """-(M/2) log det(I + S) + 1/2 tr[(I + S)^-1 R R^T] for 2 x 2 matrices, written out."""
    a = 1.0 + s[..., 0, 0]
    b = 0.5 * (s[..., 0, 1] + s[..., 1, 0])
    d = 1.0 + s[..., 1, 1]
    det = a * d - b * b
    trace = (
        d * outer[..., 0, 0] + a * outer[..., 1, 1] - b * (outer[..., 0, 1] + outer[..., 1, 0])
    ) / det
    return -0.5 * m_cols * det.log() + 0.5 * trace


def _diagonal_pairs(matrix: Tensor) -> Tensor:
    """The 2 x 2 blocks on the diagonal, (2 P, 2 P) -> (P, 2, 2)."""
    n = matrix.shape[0] // 2
    pairs = matrix.reshape(n, 2, n, 2).diagonal(dim1=0, dim2=2)
    return pairs.permute(2, 0, 1)


def _row_pairs(left: Tensor, right: Tensor) -> Tensor:
    """The 2 x 2 products of the same pairs of rows, (2 P, K), (2 P, K) -> (P, 2, 2)."""
    return torch.unflatten(left, 0, (-1, 2)) @ torch.unflatten(right, 0, (-1, 2)).mT
