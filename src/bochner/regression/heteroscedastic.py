"""log p(Y | X, W) with one noise variance per column: B_m = G + sigma_m^2 I for every column m.

One eigendecomposition G = V diag(lambda) V^T serves all columns, B_m^-1 = V diag(1 / (lambda +
sigma_m^2)) V^T, so that a step costs one of them instead of one factorisation per column.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bochner.regression.observations import CompleteBlock
from bochner.regression.statistics import Statistics


def spectrum(gram: Tensor) -> tuple[Tensor, Tensor]:
    """Return eigenvalues (K,), none below 0, and eigenvectors (K, K) of a Gram matrix, float64."""
    values, vectors = torch.linalg.eigh(gram.double())
    return values.clamp(min=0.0), vectors  # products in single precision leave small negative ones


def column_evidence(stats: Statistics, noise: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Evaluate log p(Y | X, W) and its gradients from additive statistics.

    Parameters
    ----------
    stats : Statistics
        ``square`` of every column.
    noise : Tensor of shape (m,), float64
        sigma_m^2 > 0.

    Returns
    -------
    value : Tensor, scalar float64
    d_gram, d_cross : Tensor of shape (K, K) and (K, m), float64
    d_noise : Tensor of shape (m,), float64
    """
    n, k = stats.n_rows, stats.gram.shape[0]
    values, vectors = spectrum(stats.gram)
    cross, inverse = vectors.T @ stats.cross, 1.0 / (values[:, None] + noise)
    m = cross * inverse  # V^T B_m^-1 c_m
    residual = stats.square - (cross * m).sum(0)
    value = -0.5 * (
        n * noise.shape[0] * math.log(2.0 * math.pi)
        + (n - k) * noise.log().sum()
        - inverse.log().sum()
        + (residual / noise).sum()
    )
    d_noise = -0.5 * (
        (n - k) / noise + inverse.sum(0) - residual / noise.square() + m.square().sum(0) / noise
    )
    # -(1/2) sum_m [B_m^-1 + m_m m_m^T / sigma_m^2]
    inner = torch.addmm(torch.diag(inverse.sum(1)), m / noise, m.T)
    return value, -0.5 * (vectors @ inner @ vectors.T), vectors @ (m / noise), d_noise


def column_dense_evidence(
    features: Tensor, gram: Tensor, block: CompleteBlock, noise: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Evaluate log p(Y | X, W) in its N x N form, cheaper when K > N.

    Parameters
    ----------
    features : Tensor of shape (K, n)
    gram : Tensor of shape (n, n), float64
        Phi^T Phi.
    block : CompleteBlock
    noise : Tensor of shape (m,), float64

    Returns
    -------
    value : Tensor, scalar float64
    d_features : Tensor of shape (K, n), in the features' precision
    d_noise : Tensor of shape (m,), float64
    """
    values, vectors = spectrum(gram)
    turned, inverse = vectors.T @ block.Y.double(), 1.0 / (values[:, None] + noise)
    solved = turned * inverse
    value = -0.5 * (
        turned.numel() * math.log(2.0 * math.pi) - inverse.log().sum() + (turned * solved).sum()
    )
    inner = torch.addmm(torch.diag(inverse.sum(1)), solved, solved.T, beta=-1.0)
    d_kernel = 0.5 * (vectors @ inner @ vectors.T)
    d_noise = 0.5 * (solved.square().sum(0) - inverse.sum(0))
    return value, 2.0 * features @ d_kernel.to(features.dtype), d_noise
