"""The posterior of the latents."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from bochner import random


class GaussianLatents(nn.Module):
    """q(X) = prod_n N(mu_n, diag s_n^2) under the prior N(0, I).

    Parameters
    ----------
    mean, log_std : Tensor of shape (N, D)
    """

    def __init__(self, mean: Tensor, log_std: Tensor) -> None:
        super().__init__()
        self.mean = nn.Parameter(mean.clone())
        self.log_std = nn.Parameter(log_std.clone())

    def sample(self, noise: Tensor) -> Tensor:
        """Return mu + s * noise, shape (N, D)."""
        return self.mean + self.log_std.exp() * noise

    def draws(self, n_draws: int, seed: int) -> list[Tensor]:
        """Draw X as often as asked, each (N, D): the draws over which the weights' statistics are
        averaged.
        """
        mean = self.mean.detach()
        like: dict[str, Any] = {"dtype": mean.dtype, "device": mean.device}
        noises = (
            random.row_noise(mean.shape[0], mean.shape[1], seed, "posterior/latents", i, **like)
            for i in range(n_draws)
        )
        return [self.sample(noise).detach() for noise in noises]

    def kl(self) -> Tensor:
        """Return KL(q(X) || N(0, I)) in nats, scalar float64."""
        return kl_standard_normal(self.mean, self.log_std)


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
