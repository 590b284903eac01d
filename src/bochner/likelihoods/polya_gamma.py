"""The Polya-gamma bound of logistic likelihoods, and Böhning's.

log p(y | psi) = log c(y) + a psi - b log(1 + e^psi) is bounded under psi ~ N(mean, variance) by

Polya-gamma: log c + (a - b/2) mean - b log 2 cosh(c/2),  c^2 = mean^2 + variance;
Böhning:    log p(y | mean) - b variance / 8.

Both are what docs/math.md, section 3 states, with the local parameters c and xi at their optimum
for q; the KL divergence of the Polya-gamma variable is in the first (Li et al. 2024b drop it).
"""

from __future__ import annotations

import torch
from torch import Tensor

from bochner.likelihoods.densities import softplus
from bochner.likelihoods.likelihood import Curvatures, Slopes

# c^2 below which the slope of the weight is taken from its series.
_SHORT = 0.05**2


def log_2cosh_half(c: Tensor) -> Tensor:
    """Return log(2 cosh(c/2)) for c >= 0."""
    return 0.5 * c + torch.log1p(torch.exp(-c))


# tanh(c/2) / 2c is 1/4 there up to c^2 / 48, below every rounding
_SMALL = 1e-5


def mean_weight(c: Tensor) -> Tensor:
    """Return E omega for omega ~ PG(1, c): tanh(c/2) / (2c), 1/4 at 0."""
    c = c.clamp(min=_SMALL)
    return torch.tanh(0.5 * c) / (2.0 * c)


def _weight_slope(c: Tensor) -> Tensor:
    """Return d E omega / d c^2."""
    small = c < 0.05
    safe = torch.where(small, torch.ones_like(c), c)
    tanh = torch.tanh(0.5 * safe)
    # (d/dc)(tanh(c/2) / 2c) / 2c
    exact = (0.25 * (1.0 - tanh.square()) - 0.5 * tanh / safe) / (2.0 * safe.square())
    series = -1.0 / 48.0 + c.square() / 240.0 - 17.0 * c.square().square() / 26880.0
    return torch.where(small, series, exact)


def slopes(
    a: Tensor,
    b: Tensor | float,
    log_c: Tensor | float,
    mean: Tensor,
    variance: Tensor,
) -> Slopes:
    """Return the Polya-gamma bound, elementwise.

    Parameters
    ----------
    a, mean, variance : Tensor of shape (n, m)
    b, log_c : Tensor of shape (n, m) or (m,), or float
    """
    # written in place where autograd has no use for what was there: entries are many
    c = torch.addcmul(variance, mean, mean).clamp_(min=_SMALL**2).sqrt_()
    # one exponential serves both: tanh(c/2) = (1 - e^-c) / (1 + e^-c)
    less = torch.expm1(-c)
    more = less + 2.0
    d_variance = (less / more).div_(c).mul_(b).mul_(0.25)  # minus half of E omega
    log_cosh = more.log().add_(c, alpha=0.5)
    kappa = a - 0.5 * b
    value = (kappa * mean).add_(log_c).sub_(log_cosh.mul_(b))
    return Slopes(value, torch.addcmul(kappa, d_variance, mean, value=2.0), d_variance)


def curvatures(b: Tensor | float, mean: Tensor, variance: Tensor) -> Curvatures:
    """Return the second derivatives of the Polya-gamma bound."""
    c = (mean.square() + variance).sqrt()
    omega = b * mean_weight(c)
    slope = b * _weight_slope(c)
    return Curvatures(-omega - 2.0 * mean.square() * slope, -mean * slope, -0.5 * slope)


def expansion(
    a: Tensor,
    b: Tensor | float,
    log_c: Tensor | float,
    mean: Tensor,
    variance: Tensor,
) -> tuple[Slopes, Curvatures]:
    """Return what ``slopes`` and ``curvatures`` do, from one exponential."""
    square = torch.addcmul(variance, mean, mean).clamp_(min=_SMALL**2)
    c = square.sqrt()
    less = torch.expm1(-c)
    more = less + 2.0
    tanh = less.div_(more)  # of -c/2
    weight = (tanh / c).mul_(-0.5)
    # (d/dc)(tanh(c/2) / 2c) / 2c, and its series where the difference loses digits
    slope = tanh.square_().neg_().add_(1.0).mul_(0.25).sub_(weight).div_(square).mul_(0.5)
    series = (square * (-17.0 / 26880.0)).add_(1.0 / 240.0).mul_(square).sub_(1.0 / 48.0)
    slope = b * torch.where(square < _SHORT, series, slope)
    omega = b * weight
    kappa = a - 0.5 * b
    log_cosh = more.log_().add_(c, alpha=0.5)
    slopes = Slopes(log_c + kappa * mean - b * log_cosh, kappa - omega * mean, -0.5 * omega)
    mixed = -mean * slope
    return slopes, Curvatures((2.0 * mean * mixed).sub_(omega), mixed, -0.5 * slope)


def bohning_slopes(
    a: Tensor,
    b: Tensor | float,
    log_c: Tensor | float,
    mean: Tensor,
    variance: Tensor,
) -> Slopes:
    """Return Böhning's bound, elementwise; its curvature does not depend on q."""
    eighth = -0.125 * b * torch.ones_like(mean)
    value = log_c + a * mean - b * softplus(mean)
    return Slopes(value + eighth * variance, a - b * torch.sigmoid(mean), eighth)


def bohning_curvatures(b: Tensor | float, mean: Tensor) -> Curvatures:
    """Return the second derivatives of Böhning's bound."""
    p = torch.sigmoid(mean)
    zero = torch.zeros_like(mean)
    return Curvatures(-b * p * (1.0 - p), zero, zero)
