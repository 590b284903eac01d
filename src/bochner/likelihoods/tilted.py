"""The tilted bound of log(1 + e^z), z normal: its curvature is the data's own, however large the
counts.

E log(1 + e^z) <= a^2 v / 2 + log(1 + e^(m + (1/2 - a) v)) for every a, z ~ N(m, v): Jensen after
the tilt e^(-a z) (Saul and Jordan 1999; Knowles and Minka 2011). The best a solves a = logistic(m +
(1/2 - a) v), where the slopes are a in the mean and a (1 - a) / 2 in the variance. The Polya-gamma
bound has tanh(c/2) / 4c in place of the latter: the same for small c, but far from 0 it falls as 1
/ c instead of e^-c, and an entry whose count is hundreds of times the dispersion then holds q as if
it were that many observations.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from bochner.likelihoods.densities import softplus
from bochner.likelihoods.likelihood import Curvatures, Slopes

# Newton steps that bring the tilt to rounding where the variance is at most `_WIDE`, in double
# precision and in single, and how many more any other variance takes.
_STEPS, _STEPS_SINGLE = 3, 2
_WIDE = 4.0
_MORE_STEPS = 3


def tilt(mean: Tensor, variance: Tensor) -> Tensor:
    """Return the best a; any a gives a bound, but only the best one has its slopes.

    u = m + (1/2 - a) v solves u + v (logistic(u) - 1/2) = m, which is concave above 0 and odd:
    Newton's method from below the solution rises to it, whatever the variance.
    """
    variance = variance.expand_as(mean)
    size = mean.abs()
    below = torch.maximum(size / (1.0 + 0.25 * variance), size - 0.5 * variance)
    steps = _STEPS_SINGLE if mean.dtype == torch.float32 else _STEPS
    u = _newton(below.copysign_(mean), mean, variance, steps)
    wide = variance > _WIDE
    if wide.any():
        u[wide] = _newton(u[wide], mean[wide], variance[wide], _MORE_STEPS)
    return u.sigmoid_()


def _newton(u: Tensor, mean: Tensor, variance: Tensor, steps: int) -> Tensor:
    for _ in range(steps):
        p = torch.sigmoid(u)
        slope = torch.addcmul(p, p, p, value=-1.0).mul_(variance).add_(1.0)
        left = torch.addcmul(u - mean, p - 0.5, variance)
        u = torch.addcdiv(u, left, slope, value=-1.0)
    return u


def log1p_exp(a: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """Return the bound of E log(1 + e^z) for a given tilt."""
    return 0.5 * a.square() * variance + softplus(mean + (0.5 - a) * variance)


def slopes(
    y: Tensor, b: Tensor, log_c: Tensor | float, mean: Tensor, variance: Tensor
) -> Slopes:
    """Return the bound of E[log c + y z - b log(1 + e^z)], elementwise.

    Parameters
    ----------
    y, b, log_c : Tensor of shape (n, m)
    mean, variance : Tensor of shape (n, m)
        Of z.
    """
    return _slopes(tilt(mean, variance), y, b, log_c, mean, variance)


def _slopes(
    a: Tensor,
    y: Tensor,
    b: Tensor,
    log_c: Tensor | float,
    mean: Tensor,
    variance: Tensor,
) -> Slopes:
    bound = log1p_exp(a, mean, variance)
    return Slopes(log_c + y * mean - b * bound, y - b * a, -0.5 * b * a * (1.0 - a))


def curvatures(b: Tensor, mean: Tensor, variance: Tensor) -> Curvatures:
    """Return the second derivatives, the tilt following mean and variance."""
    return _curvatures(tilt(mean, variance), b, variance)


def _curvatures(a: Tensor, b: Tensor, variance: Tensor) -> Curvatures:
    spread = a * (1.0 - a)
    inner = b * spread / (1.0 + spread * variance)
    away = 0.5 - a
    return Curvatures(-inner, -inner * away, -inner * away.square())


def expansion(
    y: Tensor, r: Tensor, log_c: Tensor | float, mean: Tensor, variance: Tensor
) -> tuple[Slopes, Curvatures]:
    """Return what ``slopes`` and ``curvatures`` do for b = y + r, of one tilt.

    y and r change places where z changes its sign. Of a mean above 0 that is what is computed: the
    large parts y z and (y + r) z are not subtracted, and what a count of 10^12 says of z keeps its
    digits.
    """
    above = mean > 0.0
    below = -mean.abs()
    b = y + r
    a = tilt(below, variance)
    bound = _slopes(a, torch.where(above, r, y), b, log_c, below, variance)
    bend = _curvatures(a, b, variance)
    return (
        replace(bound, d_mean=torch.where(above, -bound.d_mean, bound.d_mean)),
        replace(bend, mixed=torch.where(above, -bend.mixed, bend.mixed)),
    )
