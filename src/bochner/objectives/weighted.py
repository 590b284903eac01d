"""Weighted Grams, one per column: the statistic under every bound whose entries differ in precision.

G_m = sum_n w_nm phi_n phi_n^T for columns m: pieces of rows add, any subset of columns may be asked for (a mini-batch
of columns gives an unbiased estimate of sums over columns), and nothing of size columns x rows x features is built.
Augmented likelihoods need it with w = E omega, scattered missing entries with w = observed / sigma^2.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from bochner.data.batches import chunks

# Numbers in a temporary: what stays in the caches of a core and is large enough for products at full speed.
_BUDGET = 2**21
_ROWS = 1024
# Trace of a Gram from which single precision leaves eigenvalues that are wrong by several hundredths.
_HEAVY = 3e5


def _cuts(n_matrices: int, k: int, n: int) -> Iterator[tuple[slice, slice]]:
    """Yield (matrices, rows) whose scaled features fit the budget."""
    rows = min(n, _ROWS)
    some = max(1, _BUDGET // max(k * rows, 1))
    for own in chunks(n_matrices, some):
        for part in chunks(n, rows):
            yield own, part


def weighted_grams(features: Tensor, weights: Tensor) -> Tensor:
    """Return sum_n w_nm phi_n phi_n^T for every column.

    Parameters
    ----------
    features : Tensor of shape (K, n)
    weights : Tensor of shape (n, m)
        Nonnegative; a missing entry has weight 0.

    Returns
    -------
    Tensor of shape (m, K, K), float64
        Products in the features' precision over at most 1,024 rows, sums in float64; products as well where rounding
        would outweigh the identity that the Gram is going to be added to (counts in the thousands).
    """
    if float(weights.sum(0).amax() * features.square().sum(0).amax()) > _HEAVY:
        features, weights = features.double(), weights.double()
    k, n = features.shape
    out = features.new_zeros(weights.shape[1], k, k, dtype=torch.float64)
    for own, part in _cuts(weights.shape[1], k, n):
        phi = features[:, part]
        out[own] += ((phi * weights[part, own].T[:, None, :]) @ phi.T).double()
    return out


def quadratic_forms(features: Tensor, matrices: Tensor) -> Tensor:
    """Return phi_n^T S_m phi_n, (K, n) and (m, K, K) -> (n, m)."""
    k, n = features.shape
    out = features.new_empty(n, matrices.shape[0])
    for own, part in _cuts(matrices.shape[0], k, n):
        phi = features[:, part]
        out[part, own] = torch.linalg.vecdot(matrices[own] @ phi, phi, dim=-2).T
    return out


def weighted_products(features: Tensor, matrices: Tensor, weights: Tensor) -> Tensor:
    """Return sum_m w_nm S_m phi_n, the gradient of sum_nm w_nm phi_n^T S_m phi_n / 2.

    Parameters
    ----------
    features : Tensor of shape (K, n)
    matrices : Tensor of shape (m, K, K)
        Symmetric.
    weights : Tensor of shape (n, m)

    Returns
    -------
    Tensor of shape (K, n)
    """
    k, n = features.shape
    out = torch.zeros_like(features)
    for own, part in _cuts(matrices.shape[0], k, n):
        out[:, part] += torch.einsum("mkn,nm->kn", matrices[own] @ features[:, part], weights[part, own])
    return out
