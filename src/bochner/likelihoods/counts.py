"""What count likelihoods share: size factors, intercepts, moments."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from bochner.errors import InputError, message

SizeFactors = Literal["total"] | None


def check_size_factors(value: object) -> None:
    """Refuse what is neither None nor "total".

    Raises
    ------
    InputError
    """
    if value is not None and value != "total":
        do = "pass factors of your own to fit(X, size_factors=...) and leave this at None"
        raise InputError(message("size_factors None or 'total'", repr(value), do))


def log_rate(y: Tensor, offset: Tensor | None) -> Tensor:
    """Return the logarithm of total count over total size, by column, half a count added.

    Parameters
    ----------
    y : Tensor of shape (N, M)
        NaN = missing.
    offset : Tensor of shape (N,), optional
        Logarithms of the size factors.
    """
    sizes = torch.ones_like(y[:, 0]) if offset is None else offset.to(y.dtype).exp()
    return ((y.nansum(0) + 0.5) / (sizes @ (~y.isnan()).to(y.dtype) + 0.5)).log()


def log_normalised(Y: Tensor, offset: Tensor | None) -> Tensor:
    """Return log(1 + y / size), NaN = missing: counts as starts see them."""
    return torch.log1p(Y if offset is None else Y / offset.to(Y.dtype).exp()[:, None])


def moment_dispersion(Y: Tensor, mean: Tensor, *, shared: bool, smallest: float, largest: float) -> Tensor:
    """Estimate r of variance = mean + mean^2 / r by moments.

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
    seen = (~Y.isnan()).to(mean.dtype)
    square = (mean.square() * seen).sum(0)
    excess = (torch.nan_to_num((Y - mean).square() - mean) * seen).sum(0)
    if shared:
        # a column's weight falls with its mean squared, or the largest counts alone would decide
        scale = (mean * seen).sum(0).clamp(min=1e-12) / seen.sum(0).clamp(min=1.0)
        square, excess = (square / scale.square()).sum(), (excess / scale.square()).sum()
    ratio = square / excess.clamp(min=1e-300)
    return torch.where(excess > 0, ratio, torch.full_like(ratio, largest)).clamp(smallest, largest)
