"""log p(Y | X_s, W_s) of several small models of the same data at once, with its gradient in closed
form.

The formulas are those of ``collapsed``; a step of one small model is mostly the time that its many
small operations take to begin, so that several in one batch cost little more than one.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from bochner.linalg import cholesky
from bochner.memory import chunks
from bochner.regression.autograd import closed_form
from bochner.regression.evidence import CHUNK_ROWS
from bochner.regression.observations import Block, CompleteBlock, complete_blocks


def _evidence(
    features: Tensor, s2: Tensor, block: CompleteBlock, wanted: bool
) -> tuple[Tensor, Sequence[Tensor | None]]:
    """Return the value of every model and its gradients in features and noise."""
    (s, k, n), m_cols = features.shape, block.n_columns
    noise = s2[:, None, None]
    cuts, cross = (
        list(chunks(n, CHUNK_ROWS)),
        torch.zeros((), dtype=torch.float64, device=features.device),
    )
    for cut in cuts:  # of a sparse Y only some rows are ever dense
        cross = cross + (features[:, :, cut].reshape(s * k, -1) @ block.Y[cut]).double().reshape(
            s, k, -1
        )
    gram = (features @ features.mT).double()
    gram.diagonal(dim1=-2, dim2=-1).add_(s2[:, None])
    factor = cholesky(gram)
    inverse = factor.inverse()
    m = inverse @ cross
    residual = block.square - (cross * m).sum((1, 2))
    logdet = (n - k) * s2.log() + factor.logdet()
    value = -0.5 * (n * m_cols * math.log(2.0 * math.pi) + m_cols * logdet + residual / s2)
    if wanted:
        traces = inverse.diagonal(dim1=-2, dim2=-1).sum(-1)
        d_noise = -0.5 * m_cols * ((n - k) / s2 + traces)
        d_noise += 0.5 * residual / s2.square() - 0.5 * m.square().sum((1, 2)) / s2
        d_gram = -0.5 * m_cols * inverse - 0.5 * (m @ m.mT) / noise
        d_features = 2.0 * d_gram.to(features.dtype) @ features
        d_cross = (m / noise).to(features.dtype).reshape(s * k, -1)
        for cut in cuts:
            d_features[:, :, cut] += (d_cross @ block.Y[cut].T).reshape(s, k, -1)
        return value, (d_features, d_noise)
    return value, ()


def batched_evidence(features: Tensor, noise_variance: Tensor, blocks: tuple[Block, ...]) -> Tensor:
    """Return sum over blocks of log p(Y_block | X_s, W_s) for every model s.

    Parameters
    ----------
    features : Tensor of shape (S, K, N)
        Of all rows; K is meant to be small.
    noise_variance : Tensor of shape (S,), float64
    blocks : tuple of Block

    Returns
    -------
    Tensor of shape (S,), float64
        In nats, differentiable once in features and noise.
    """
    values = []
    for block in complete_blocks(blocks):
        own = block.rows.take(features, dim=2)
        compute = functools.partial(_evidence, own, noise_variance, block)
        values.append(closed_form(compute, own, noise_variance))
    return torch.stack(values).sum(0)
