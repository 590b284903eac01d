"""How well signed, weighted frequencies fit a kernel matrix: exact errors and closed-form
expectations.

The model of a pair i != j is K_ij = sum_h f_h cos(w_h . delta_ij) + noise, f_h = s_h c_h. Under a
Gaussian q(w_h) = N(m_h, diag V_h) both moments of a cosine are closed forms (docs/math.md, section
5), so nothing is sampled.
"""

from __future__ import annotations

import torch
from torch import Tensor

# Rows of a block of pairs.
_BLOCK = 256


def expected_squared_error(
    mean: Tensor, variance: Tensor, factor: Tensor, delta: Tensor, target: Tensor
) -> Tensor:
    """Return E_q[(K_ij - sum_h f_h cos(w_h . delta_ij))^2] of every pair.

    E cos = e^{-q/2} cos(m.delta) and E cos^2 = (1 + e^{-2q} cos(2 m.delta)) / 2 with q = delta^T V
    delta.

    Parameters
    ----------
    mean, variance : Tensor of shape (H, d)
    factor : Tensor of shape (H,)
        f = sign times weight.
    delta : Tensor of shape (P, d)
        x_i - x_j.
    target : Tensor of shape (P,)
        K_ij.

    Returns
    -------
    Tensor of shape (P,)
    """
    wave = (delta @ mean.T).cos()
    decay = (-0.5 * delta.square() @ variance.T).exp()
    first = decay * wave
    # cos(2a) = 2 cos(a)^2 - 1, and e^{-2q} = decay^4
    second = 0.5 * (1.0 + decay**4 * (2.0 * wave.square() - 1.0))
    bias = target - first @ factor
    return bias.square() + (second - first.square()).clamp(min=0.0) @ factor.square()


def residuals(x: Tensor, target: Tensor, frequencies: Tensor, factor: Tensor) -> Tensor:
    """Return sum_h f_h cos(w_h . delta_ij) - K_ij off the diagonal, 0 on it: (n, d), (n, n), (H,
    d), (H,) -> (n, n).
    """
    phase = x @ frequencies.T
    features = torch.cat([phase.cos(), phase.sin()], 1)
    residual = (features * factor.repeat(2)) @ features.T - target
    return residual - torch.diag(torch.diagonal(residual))


def squared_error(
    x: Tensor, target: Tensor, frequencies: Tensor, factor: Tensor
) -> tuple[float, Tensor, Tensor]:
    """Return sum_{i != j} residual_ij^2 and its gradients in the frequencies and in the factors.

    The derivatives of ``residuals``, written out: the matrix of pairs is symmetric, so half of it
    is formed, in blocks of rows that stay in the processor's cache, and no product is made twice.

    Parameters
    ----------
    x : Tensor of shape (n, d)
    target : Tensor of shape (n, n)
        Symmetric.
    frequencies : Tensor of shape (H, d)
    factor : Tensor of shape (H,)

    Returns
    -------
    float
    Tensor of shape (H, d)
    Tensor of shape (H,)
    """
    phase = x @ frequencies.T
    features = torch.cat([phase.cos(), phase.sin()], 1)
    weighted = features * factor.repeat(2)
    on_features = torch.zeros_like(features)
    total = 0.0
    for start in range(0, len(x), _BLOCK):
        stop = min(start + _BLOCK, len(x))
        residual = torch.addmm(
            target[start:stop, start:], weighted[start:stop], features[start:].T, beta=-1.0
        )
        diagonal = residual[:, : stop - start]
        others = residual[:, stop - start :]
        diagonal.fill_diagonal_(0.0)
        total += 2.0 * _square(residual) - _square(diagonal)
        on_features[start:stop].addmm_(residual, features[start:])
        on_features[stop:].addmm_(others.T, features[start:stop])
    (cosine, sine) = features.chunk(2, 1)
    (in_cosine, in_sine) = on_features.chunk(2, 1)
    in_phase = (cosine * in_sine).addcmul_(sine, in_cosine, value=-1.0)
    in_factor = torch.linalg.vecdot(cosine, in_cosine, dim=0) + torch.linalg.vecdot(
        sine, in_sine, dim=0
    )
    return total, 4.0 * factor[:, None] * (in_phase.T @ x), 2.0 * in_factor


def _square(matrix: Tensor) -> float:
    """Return the sum of squares; over rows in the matrix's precision, over their sums in double
    precision.
    """
    return float(torch.linalg.vecdot(matrix, matrix).double().sum())


def curvature(x: Tensor, frequencies: Tensor) -> Tensor:
    """Return sum_{i<j} sin(w_h . delta_ij)^2 delta_ijd^2, (n, d), (H, d) -> (H, d), without forming
    pairs.

    It is the Gauss-Newton curvature of half the squared error in w_h, but for the factor f_h^2.
    With sin^2 = (1 - cos 2a) / 2 the pair sums split into sums over rows.
    """
    phase = 2.0 * (x @ frequencies.T)
    square = x.square()
    n = x.shape[0]
    everything = 2.0 * (n * square.sum(0) - x.sum(0).square())
    waves = torch.zeros_like(frequencies)
    for wave in (phase.cos(), phase.sin()):
        waves = waves + 2.0 * (
            wave.sum(0)[:, None] * (wave.T @ square) - (wave.T @ x).square()
        )
    return (0.25 * (everything - waves)).clamp(min=0.0)


def gaussian_entropy(variance: Tensor) -> Tensor:
    """Return the entropy of prod_h N(., diag V_h), (H, d) -> scalar, nats."""
    # log(2 pi e)
    return 0.5 * (variance.log() + 2.8378770664093453).sum()
