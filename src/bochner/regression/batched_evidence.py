"""log p(Y | X, W) with the weights integrated out and its gradient, of several models at once.

A step of one small model is mostly the time that its many small operations take to begin, so that
several in one batch cost little more than one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from bochner.memory import chunks
from bochner.regression.evidence import CHUNK_ROWS
from bochner.regression.noise import explained, products_in
from bochner.regression.observations import CompleteBlock


@dataclass(frozen=True)
class BatchedEvidence:
    """Values of S models and their gradients.

    Attributes
    ----------
    value : Tensor of shape (S,), float64
        log p(Y | X_s, W_s) in nats; -inf where rounding or infinities left no factor.
    d_features : Tensor of shape (S, K, n)
        In the features before they were multiplied by the amplitude; 0 where there is no factor.
    d_log_amplitude, d_noise : Tensor of shape (S,), float64
    """

    value: Tensor
    d_features: Tensor
    d_log_amplitude: Tensor
    d_noise: Tensor


def batched_evidence(
    features: Tensor, amplitude: Tensor, noise: Tensor, block: CompleteBlock
) -> BatchedEvidence:
    """Evaluate log p(Y | X_s, W_s) and its gradients.

    Parameters
    ----------
    features : Tensor of shape (S, K, n)
        Of the block's rows; K is meant to be small.
    amplitude : Tensor of shape (S,), float64
        Features count times this.
    noise : Tensor of shape (S,), float64
        sigma^2.
    block : CompleteBlock

    Returns
    -------
    BatchedEvidence
    """
    k, n = features.shape[1:]
    m_cols = block.n_columns
    a = amplitude[:, None, None]
    gram, cross, factor, usable = _factored(features, amplitude, noise, block)
    inverse = torch.cholesky_inverse(factor)
    m = inverse @ cross
    residual = block.square - (cross * m).sum((1, 2))
    value = _batched_value(factor, residual, noise, block)
    usable &= value.isfinite()
    traces = inverse.diagonal(dim1=-2, dim2=-1).sum(-1)
    d_noise = -0.5 * m_cols * ((n - k) / noise + traces)
    d_noise += 0.5 * residual / noise.square() - 0.5 * m.square().sum((1, 2)) / noise
    d_gram = -0.5 * m_cols * inverse - 0.5 * (m @ m.mT) / noise[:, None, None]
    d_cross = m / noise[:, None, None]
    d_log_amplitude = 2.0 * (d_gram * gram).sum((1, 2)) + (d_cross * cross).sum((1, 2))
    on = usable[:, None, None]
    d_features = _carried(
        torch.where(on, 2.0 * a.square() * d_gram, 0.0),
        torch.where(on, a * d_cross, 0.0),
        features,
        block,
    )
    return BatchedEvidence(
        torch.where(usable, value, -math.inf),
        d_features,
        torch.where(usable, d_log_amplitude, 0.0),
        torch.where(usable, d_noise, 0.0),
    )


def batched_evidence_value(
    features: Tensor, amplitude: Tensor, noise: Tensor, block: CompleteBlock
) -> Tensor:
    """Return the values of ``batched_evidence`` alone, (S,), float64."""
    _, cross, factor, usable = _factored(features, amplitude, noise, block)
    residual = block.square - explained(factor, cross)
    value = _batched_value(factor, residual, noise, block)
    return torch.where(usable & value.isfinite(), value, -math.inf)


def _factored(
    features: Tensor, amplitude: Tensor, noise: Tensor, block: CompleteBlock
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the Gram matrices, the products with Y, the factors of Gram plus noise, and whether
    there are any, in float64.
    """
    a = amplitude[:, None, None]
    gram, cross = _products(features, block)
    largest = float((amplitude.square() * _largest(gram) / noise).max())
    if products_in(features.dtype, largest, noise.new_ones(())) != features.dtype:
        gram, cross = _products(features.double(), block)
    gram = gram * a.square()
    cross = cross * a
    shifted = gram.clone()
    shifted.diagonal(dim1=-2, dim2=-1).add_(noise[:, None])
    factor, info = torch.linalg.cholesky_ex(shifted)
    return gram, cross, factor, info == 0


def _batched_value(
    factor: Tensor, residual: Tensor, noise: Tensor, block: CompleteBlock
) -> Tensor:
    """Return log p(Y | X_s, W_s) where the columns leave so much unexplained, (S,)."""
    n = block.n_rows
    m_cols = block.n_columns
    k = factor.shape[-1]
    logdet = 2.0 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    determinant = (n - k) * noise.log() + logdet
    return -0.5 * (
        n * m_cols * math.log(2.0 * math.pi) + m_cols * determinant + residual / noise
    )


def _products(features: Tensor, block: CompleteBlock) -> tuple[Tensor, Tensor]:
    """Return the Gram matrices and the products with Y, (S, K, K) and (S, K, m), in float64."""
    return (features @ features.mT).double(), _cross(features, block).double()


def _largest(gram: Tensor) -> Tensor:
    """Return the largest diagonal element of every Gram matrix, (S,)."""
    return gram.diagonal(dim1=-2, dim2=-1).amax(-1)


def _cross(features: Tensor, block: CompleteBlock) -> Tensor:
    """Return features times Y, (S, K, m); of a sparse Y only some rows are ever dense."""
    s, k, n = features.shape
    total = features.new_zeros(s * k, block.Y.shape[1])
    for cut in chunks(n, CHUNK_ROWS):
        total.addmm_(features[:, :, cut].reshape(s * k, -1), block.Y[cut].to(features.dtype))
    return total.reshape(s, k, -1)


def _carried(
    d_gram: Tensor, d_cross: Tensor, features: Tensor, block: CompleteBlock
) -> Tensor:
    """Carry the gradients of the statistics back to the features, (S, K, n)."""
    s, k, n = features.shape
    out = features.new_empty(s, k, n)
    small = d_cross.to(features.dtype).reshape(s * k, -1)
    for cut in chunks(n, CHUNK_ROWS):
        out[:, :, cut] = (small @ block.Y[cut].T).reshape(s, k, -1)
    return out.baddbmm_(d_gram.to(features.dtype), features)
