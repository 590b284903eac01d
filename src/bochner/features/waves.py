"""Random features by operations that are differentiable as often as one likes, for derivatives of
their derivatives.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bochner.kernels.base import Frequencies


def beside(x: Tensor, frequencies: Frequencies) -> Tensor:
    """Return the covariates beside latents, (n, D + L) -> (L, n); 0 where they are left out."""
    given = x[..., frequencies.first.shape[-1] :].mT
    return given if given.shape[-2] else x.new_zeros(frequencies.n_linear, x.shape[-2])


def waves(x: Tensor, frequencies: Frequencies) -> Tensor:
    """Return the features of places, (n, D + L) -> (K, n); covariates are constants."""
    # a (cos w1 x + cos w2 x) and a (sin w1 x + sin w2 x), or one wave of each
    places = frequencies.latents(x).mT
    cos = torch.cos(frequencies.first @ places)
    sin = torch.sin(frequencies.first @ places)
    if frequencies.second is not None:
        cos = cos + torch.cos(frequencies.second @ places)
        sin = sin + torch.sin(frequencies.second @ places)
    amplitude = frequencies.amplitude[..., None]
    constants = beside(x.detach(), frequencies) * frequencies.linear[:, None]
    return torch.cat([amplitude * cos, amplitude * sin, constants], dim=-2)


def pull_back_again(
    x: Tensor, frequencies: Frequencies, upstream: Tensor
) -> tuple[Tensor | None, ...]:
    """Carry the gradient of the features back as `fourier.pull_back` does, differentiably.

    Parameters
    ----------
    x : Tensor of shape (n, D + L)
    frequencies : Frequencies
    upstream : Tensor of shape (K, n)

    Returns
    -------
    (n, D + L), (P, D), (P, D) or None, (P,), (L,)
        Gradients in x, first, second, amplitude, linear; None where none is asked for.
    """
    given = [
        x,
        frequencies.first,
        frequencies.second,
        frequencies.amplitude,
        frequencies.linear,
    ]
    wanted = [tensor for tensor in given if tensor is not None and tensor.requires_grad]
    features = waves(x, frequencies)
    slopes = iter(torch.autograd.grad(features, wanted, upstream, create_graph=True))
    return tuple(
        None if tensor is None or not tensor.requires_grad else next(slopes)
        for tensor in given
    )
