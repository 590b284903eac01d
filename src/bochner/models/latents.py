"""The posterior of the latents."""

from __future__ import annotations

from torch import Tensor, nn

from bochner.divergences import kl_standard_normal


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

    def kl(self) -> Tensor:
        """Return KL(q(X) || N(0, I)) in nats, scalar float64."""
        return kl_standard_normal(self.mean, self.log_std)
