"""How well signed, weighted frequencies fit a kernel matrix: exact errors and closed-form expectations.

The model of a pair i != j is K_ij = sum_h f_h cos(w_h . delta_ij) + noise, f_h = s_h c_h. Under a Gaussian
q(w_h) = N(m_h, diag V_h) both moments of a cosine are closed forms (MATH.md section 5), so nothing is sampled.
"""

from __future__ import annotations

import torch
from torch import Tensor


def expected_squared_error(mean: Tensor, variance: Tensor, factor: Tensor, delta: Tensor, target: Tensor) -> Tensor:
    """Return E_q[(K_ij - sum_h f_h cos(w_h . delta_ij))^2] of every pair.

    E cos = e^{-q/2} cos(m.delta) and E cos^2 = (1 + e^{-2q} cos(2 m.delta)) / 2 with q = delta^T V delta.

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
    """Return sum_h f_h cos(w_h . delta_ij) - K_ij off the diagonal, 0 on it: (n, d), (n, n), (H, d), (H,) -> (n, n)."""
    phase = x @ frequencies.T
    features = torch.cat([phase.cos(), phase.sin()], 1)
    residual = (features * factor.repeat(2)) @ features.T - target
    return residual - torch.diag(torch.diagonal(residual))


def curvature(x: Tensor, frequencies: Tensor) -> Tensor:
    """Return sum_{i<j} sin(w_h . delta_ij)^2 delta_ijd^2, (n, d), (H, d) -> (H, d), without forming pairs.

    It is the Gauss-Newton curvature of half the squared error in w_h, but for the factor f_h^2. With
    sin^2 = (1 - cos 2a) / 2 the pair sums split into sums over rows.
    """
    phase, square, n = 2.0 * (x @ frequencies.T), x.square(), x.shape[0]
    everything = 2.0 * (n * square.sum(0) - x.sum(0).square())
    waves = torch.zeros_like(frequencies)
    for wave in (phase.cos(), phase.sin()):
        waves = waves + 2.0 * (wave.sum(0)[:, None] * (wave.T @ square) - (wave.T @ x).square())
    return (0.25 * (everything - waves)).clamp(min=0.0)


def gaussian_entropy(variance: Tensor) -> Tensor:
    """Return the entropy of prod_h N(., diag V_h), (H, d) -> scalar, nats."""
    return 0.5 * (variance.log() + 2.8378770664093453).sum()  # log(2 pi e)
