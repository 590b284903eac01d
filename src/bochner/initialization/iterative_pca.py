"""Matrices with missing entries filled from their leading components: where starts of data with
holes come from.

Alternating least squares for regularised principal components (Josse and Husson 2012; the subspace
iteration of Hastie, Mazumder, Lee and Zadeh 2015): fill, move the subspace, shrink each component
by the noise that it carries, repeat. The rank is chosen by observed entries that are held out.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from bochner.data.arrays import Float64Array

Single = NDArray[np.float32]

# Ranks that are tried, and the share of the entries held out to choose among them.
RANKS = (2, 5, 10, 20, 40, 80, 120, 160)
_HELD_OUT = 0.05
# Rows that tell the rank.
_ROWS = 2000
_MOST_HELD_OUT = 20_000
_MAX_ITER = 40
_TOLERANCE = 1e-3


def fill(
    values: Float64Array,
    seed: int,
    ranks: tuple[int, ...] = RANKS,
    *,
    widths: Mapping[str, int] | None = None,
) -> Float64Array:
    """Fill missing entries.

    Parameters
    ----------
    values : ndarray of shape (N, M)
        Columns of mean about 0 and comparable scale; NaN = missing.
    seed : int
        Of the entries held out and the first subspace.
    ranks : tuple of int
        Ascending; the first after which the held-out error rises ends the search.
    widths : mapping from str to int, optional
        Columns of every view, in their order: which entries are held out does not depend on it.

    Returns
    -------
    ndarray of shape (N, M)
        Observed entries as they were. What has no structure is filled with 0.
    """
    missing = np.isnan(values)
    if not missing.any():
        return values
    if widths is not None and list(widths) != sorted(widths):
        return _filled_by_name(values, seed, ranks, widths)
    some = np.linspace(0, values.shape[0] - 1, min(values.shape[0], _ROWS)).astype(np.intp)
    filled = (
        _Completion(values, missing, seed)
        .run(chosen_rank(values[some], seed, ranks))
        .astype(np.float64)
    )
    return np.where(missing, filled, values)


def _filled_by_name(
    values: Float64Array, seed: int, ranks: tuple[int, ...], widths: Mapping[str, int]
) -> Float64Array:
    """Fill missing entries with the views in the order of their names."""
    ends = dict(zip(widths, itertools.accumulate(widths.values()), strict=True))
    order = np.concatenate([np.arange(ends[v] - widths[v], ends[v]) for v in sorted(widths)])
    out = np.empty_like(values)
    out[:, order] = fill(values[:, order], seed, ranks)
    return out


def chosen_rank(values: Float64Array, seed: int, ranks: tuple[int, ...] = RANKS) -> int:
    """Return the rank whose held-out observed entries are predicted best; 0 when 0 predicts them as
    well.
    """
    source = np.random.Generator(np.random.PCG64(seed))
    hidden = np.isnan(values)
    index = np.flatnonzero(~hidden)
    held = source.choice(
        index, min(_MOST_HELD_OUT, int(np.ceil(_HELD_OUT * index.size))), replace=False
    )
    hidden.flat[held] = True
    truth = values.flat[held]
    best = 0
    least = float(np.mean(np.square(truth)))
    completion = _Completion(values, hidden, seed)
    for rank in ranks:
        if rank >= min(values.shape):
            break
        error = float(np.mean(np.square(completion.run(rank).flat[held] - truth)))
        if error >= least:
            break
        best = rank
        least = error
    return best


class _Completion:
    """A matrix whose missing entries are filled by one rank after another, each from where the last
    one ended.
    """

    def __init__(self, values: Float64Array, missing: NDArray[np.bool_], seed: int) -> None:
        self.filled = np.where(missing, 0.0, values).astype(np.float32)
        self.missing = missing
        self.source = np.random.Generator(np.random.PCG64(seed))
        self.basis = np.zeros((values.shape[1], 0), dtype=np.float32)

    def run(self, rank: int) -> Single:
        """Iterate until the singular values have settled."""
        if rank == 0:
            return self.filled
        fresh = self.source.standard_normal(
            (self.filled.shape[1], rank - self.basis.shape[1]), dtype=np.float32
        )
        self.basis = np.linalg.qr(
            np.hstack([self.basis, self.filled.T @ (self.filled @ fresh)])
        )[0]
        before = np.zeros(rank)
        for _ in range(_MAX_ITER):
            self.basis = np.linalg.qr(self.filled.T @ (self.filled @ self.basis))[0]
            scores = self.filled @ self.basis
            strength, turn = np.linalg.eigh(scores.T @ scores)
            estimate = ((scores @ turn) * self._kept(strength)) @ (self.basis @ turn).T
            np.copyto(self.filled, estimate, where=self.missing)
            now = np.sqrt(strength.clip(min=0.0))
            if np.abs(now - before).max() <= _TOLERANCE * now.max():
                break
            before = now
        return self.filled

    def _kept(self, strength: Single) -> Single:
        """Share of each component that is not noise; strength holds squared singular values."""
        n, m = self.filled.shape
        rank = strength.size
        left_over = max(float(np.square(self.filled).sum() - strength.sum()), 0.0)
        noise = left_over / max(1, n * m - rank * (n + m - rank)) * max(n, m)
        lost: Single = np.divide(
            noise, strength, out=np.ones_like(strength), where=strength > noise
        )
        return np.float32(1.0) - lost
