"""How far steps of training may take a kernel: beyond, gradients are noise."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

# Of a kernel on log odds or log means: a standard deviation of 30 makes ones of probabilities up to
# 1e-13. Where latents separate the ones of every column from its zeros, as two columns that say the
# same let them, the bound rises with the variance without end (that of 732 rows and 7 columns of
# zeros and ones past 1e6), and single precision was lost in it.
_MOST_VARIANCE = 1e3
_VARIANCES = ("log_variance", "log_weights")
# Of the spectral points of a component, in radians per standard deviation of the latents: functions
# that change within a fiftieth of it. A component without use turns white, where nothing holds its
# scale: it rose to 1e5, and the noise of its gradients took the latents of six views 140,000 nats
# down.
_MOST_LOG_SCALE = 4.0
# The same in radians per standard deviation of q(X), on the average over rows: beyond it features
# of two draws have next to nothing in common. Components of counts whose logarithms spread widely
# went on to the limit above, and the noise in the latents' gradients took the bound from -5,070 to
# -5,650.
_MOST_RADIANS = 2.0
_SCALES = ("log_scales",)


@torch.no_grad()
def finest(log_std: Tensor) -> Tensor:
    """Return the log of the largest scale of spectral points in each dimension: waves of a larger
    one are lost in the standard deviations of the latents.

    Parameters
    ----------
    log_std : Tensor of shape (N, D)
        Of q(X), of all rows.

    Returns
    -------
    Tensor of shape (D,)
    """
    return math.log(_MOST_RADIANS) - log_std.mean(0)


@torch.no_grad()
def limit_scales(kernel: nn.Module, finest: Tensor | None) -> None:
    """Bring back trained scales of spectral points.

    Parameters
    ----------
    kernel : nn.Module
    finest : Tensor of shape (D,) or None
        Of the dimensions that it sees; None: nothing is known of the latents.
    """
    for parameter in _trained(kernel, _SCALES):
        parameter.clamp_(max=_MOST_LOG_SCALE)
        # a kernel of somebody else may call so what has no dimensions
        if finest is not None and parameter.shape[-1:] == finest.shape:
            parameter.clamp_(max=finest.to(parameter))


@torch.no_grad()
def limit_variances(kernel: nn.Module) -> None:
    """Bring back trained variances of a kernel on log odds or log means."""
    for parameter in _trained(kernel, _VARIANCES):
        parameter.clamp_(max=math.log(_MOST_VARIANCE))


def _trained(kernel: nn.Module, endings: tuple[str, ...]) -> list[nn.Parameter]:
    named = kernel.named_parameters()
    return [p for name, p in named if p.requires_grad and name.endswith(endings)]
