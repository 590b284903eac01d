"""Kullback-Leibler divergences in closed form."""

from __future__ import annotations

from torch import Tensor


def kl_standard_normal(mean: Tensor, log_std: Tensor) -> Tensor:
    """KL(N(mean, diag std^2) || N(0, I)), summed over every entry.

    Parameters
    ----------
    mean, log_std : Tensor of shape (N, D)

    Returns
    -------
    Tensor, scalar float64, in nats
    """
    mean, log_std = mean.double(), log_std.double()
    return 0.5 * ((2.0 * log_std).exp() + mean.square() - 1.0 - 2.0 * log_std).sum()
