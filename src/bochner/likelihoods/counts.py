"""What count likelihoods share: size factors, intercepts, moments."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from bochner.errors import InputError, message
from bochner.likelihoods.likelihood import of_each_row, per_size

# How far the site of an entry may ask its log mean to go: a factor of e^2.
REACH = 2.0
_BISECTIONS = 30  # of a range of e^14 or less

# A log mean that is so unsure is known to a factor of e, one standard deviation to either side.
LARGEST_VARIANCE = 1.0
# Counts of a log mean beyond this have no integer of 64 bits.
LARGEST_LOG_RATE = 43.0

SizeFactors = Literal["total"] | None


def check_size_factors(value: object) -> None:
    """Refuse what is neither None nor "total".

    Raises
    ------
    InputError
    """
    if value is not None and not (isinstance(value, str) and value == "total"):
        do = "pass factors of your own to fit(X, size_factors=...) and leave this at None"
        raise InputError(message("size_factors None or 'total'", repr(value), do))


def log_normal_moments(mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean of e^psi and its relative variance, psi normal, as far as data can say them.

    The mean of a log-normal variable is its median times e^(variance/2): where psi is all but
    unknown, rates that nobody has measured make up all of it, and it overflows. Variances above 1
    therefore count as 1: the mean is then sqrt(e) times the median.

    Parameters
    ----------
    mean, variance : Tensor of shape (n, M)
        Of psi.

    Returns
    -------
    first, relative : Tensor of shape (n, M)
        E e^psi, and Var e^psi / (E e^psi)^2.
    """
    variance = variance.clamp(max=LARGEST_VARIANCE)
    first = (mean + 0.5 * variance).clamp(max=LARGEST_LOG_RATE).exp()
    return first, variance.expm1()


def log_rate(y: Tensor, offset: Tensor | None) -> Tensor:
    """Return the logarithm of total count over total size, by column, half a count added.

    Parameters
    ----------
    y : Tensor of shape (N, M)
        NaN = missing.
    offset : Tensor of shape (N,), optional
        Logarithms of the size factors.
    """
    sizes = of_each_row(offset, y.shape[0], y).exp()
    return ((y.nansum(0) + 0.5) / (sizes @ (~y.isnan()).to(y.dtype) + 0.5)).log()


def log_normalised(Y: Tensor, offset: Tensor | None) -> Tensor:
    """Return log(1 + y / size), NaN = missing: counts as starts see them."""
    return per_size(Y, offset).log1p()


def moment_dispersion(
    Y: Tensor, mean: Tensor, *, shared: bool, smallest: float, largest: float
) -> Tensor:
    """Estimate r of variance = mean + mean^2 / r: Pearson's chi-square is to be the number of
    entries.

    Parameters
    ----------
    Y, mean : Tensor of shape (N, M)
        Y with NaN = missing.
    shared : bool
        One r for all columns.
    smallest, largest : float
        Limits of the estimate; columns without excess variance get the largest.

    Returns
    -------
    Tensor, scalar or of shape (M,)
    """
    dims = (0, 1) if shared else (0,)
    observed = ~Y.isnan()
    mean = mean.clamp(min=1e-12)
    square = torch.nan_to_num_((Y - mean).square_())
    counts = observed.sum(dims)
    low = torch.full_like(mean.sum(dims), math.log(smallest))
    high = torch.full_like(low, math.log(largest))
    # memory: of whole tables, many times
    squared = mean.square()
    memory = torch.empty_like(mean)
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        torch.addcmul(mean, squared, (-middle).exp(), out=memory)
        excess = torch.div(square, memory, out=memory).sum(dims) > counts
        low = torch.where(excess, low, middle)
        high = torch.where(excess, middle, high)
    return (0.5 * (low + high)).exp()
