"""The one spectral feature map, its gradient, and its derivatives in the latents.

Feature-major: a chunk of n rows becomes a (K, n) matrix. With p = (w1 + w2)x / 2 and m = (w1 - w2)x / 2,
cos(w1 x) + cos(w2 x) = 2 cos(m) cos(p) and sin(w1 x) + sin(w2 x) = 2 cos(m) sin(p): a paired map is a
stationary one at the middle frequency, modulated by cos(m). That saves a quarter of the sines and makes the
gradient in p free of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bochner.kernels.base import Frequencies


@dataclass(frozen=True)
class Trace:
    """What the gradient of a chunk of features needs: phases are kept, sines are recomputed."""

    x: Tensor
    features: Tensor
    middle: Tensor
    half_gap: Tensor | None


def evaluate(x: Tensor, frequencies: Frequencies) -> Trace:
    """Compute the features of a chunk of rows.

    Parameters
    ----------
    x : Tensor of shape (n, D)
    frequencies : Frequencies
        P points or pairs, in x's precision.

    Returns
    -------
    Trace
        ``features`` has shape (K, n), K = 2 P: the cosines, then the sines.
    """
    w1, w2, n_pairs = frequencies.first, frequencies.second, frequencies.first.shape[0]
    features = x.new_empty(2 * n_pairs, x.shape[0])
    if w2 is None:
        half_gap, envelope = None, frequencies.amplitude[:, None]
        middle = w1 @ x.T
    else:
        middle, half_gap = (0.5 * (w1 + w2)) @ x.T, (0.5 * (w1 - w2)) @ x.T
        envelope = half_gap.cos().mul_(2.0 * frequencies.amplitude[:, None])
    torch.cos(middle, out=features[:n_pairs]).mul_(envelope)
    torch.sin(middle, out=features[n_pairs:]).mul_(envelope)
    return Trace(x, features, middle, half_gap)


def pull_back(trace: Trace, frequencies: Frequencies, upstream: Tensor) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    """Carry the gradient of the features back to the latents and the spectral points.

    Parameters
    ----------
    trace : Trace
        Of ``evaluate(x, frequencies)``.
    frequencies : Frequencies
    upstream : Tensor of shape (K, n)

    Returns
    -------
    (n, D), (P, D), (P, D) or None, (P,)
        Gradients in x, first, second, amplitude.
    """
    x, amplitude, n_pairs = trace.x, frequencies.amplitude, frequencies.first.shape[0]
    cos_f, sin_f = trace.features[:n_pairs], trace.features[n_pairs:]
    up_cos, up_sin = upstream[:n_pairs], upstream[n_pairs:]
    # d cos(p) = -sin(p), d sin(p) = cos(p): the features are their own derivatives
    d_middle = torch.addcmul(cos_f * up_sin, sin_f, up_cos, value=-1.0)
    wave = torch.addcmul(trace.middle.cos().mul_(up_cos), trace.middle.sin(), up_sin)
    if frequencies.second is None or trace.half_gap is None:
        return d_middle.T @ frequencies.first, d_middle @ x, None, wave.sum(1)
    d_amplitude = 2.0 * torch.linalg.vecdot(trace.half_gap.cos(), wave)
    d_gap = trace.half_gap.sin().mul_(wave).mul_(-2.0 * amplitude[:, None])
    centre, gap = 0.5 * (frequencies.first + frequencies.second), 0.5 * (frequencies.first - frequencies.second)
    d_centre_w, d_gap_w = 0.5 * (d_middle @ x), 0.5 * (d_gap @ x)
    d_x = torch.addmm(d_gap.T @ gap, d_middle.T, centre)
    return d_x, d_centre_w + d_gap_w, d_centre_w - d_gap_w, d_amplitude


class _FourierFeatures(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, first: Tensor, second: Tensor | None, amplitude: Tensor) -> Tensor:
        trace = evaluate(x, Frequencies(first, second, amplitude))
        ctx.save_for_backward(x, first, second, amplitude, trace.features, trace.middle, trace.half_gap)
        return trace.features

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
        x, first, second, amplitude, features, middle, half_gap = ctx.saved_tensors
        return pull_back(Trace(x, features, middle, half_gap), Frequencies(first, second, amplitude), upstream)


def fourier_features(x: Tensor, frequencies: Frequencies) -> Tensor:
    """Return the random features of the rows of x, differentiable once in every argument.

    Parameters
    ----------
    x : Tensor of shape (N, D)
    frequencies : Frequencies
        Converted to x's precision.

    Returns
    -------
    Tensor of shape (K, N)
        Columns phi(x_n) with E phi(x)^T phi(x') = k(x, x').
    """
    f = frequencies.to(x.dtype)
    features: Tensor = _FourierFeatures.apply(x, f.first, f.second, f.amplitude)  # type: ignore[no-untyped-call]
    return features
