"""A latent variable model is the list of its parts: latents and views."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

from torch import Tensor, nn

from bochner import random
from bochner.kernels.base import SpectralKernel
from bochner.likelihoods.gaussian import Gaussian
from bochner.likelihoods.nonconjugate import Likelihood
from bochner.models.sites import Sites, SiteUpdate


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


class View(nn.Module):
    """One group of columns: its name, its kernel and its likelihood, with sites where that is not
    Gaussian.

    Parameters
    ----------
    name : str
    kernel : SpectralKernel
        Of the dimensions that the view sees.
    likelihood : Likelihood
    sites : Sites, optional
    dims : sequence of int, optional
        The latent dimensions that the view sees; None: all.
    weight : float
        Of the view's term in what training maximises.
    """

    def __init__(
        self,
        name: str,
        kernel: SpectralKernel,
        likelihood: Likelihood,
        sites: Sites | None = None,
        dims: Sequence[int] | None = None,
        weight: float = 1.0,
    ) -> None:
        super().__init__()
        self.name, self.kernel, self.likelihood, self.sites = name, kernel, likelihood, sites
        self.dims, self.weight = None if dims is None else tuple(dims), weight

    def see(self, x: Tensor) -> Tensor:
        """Return the latents as this view sees them, (n, D) -> (n, D_v)."""
        return x if self.dims is None else x[:, list(self.dims)]

    @property
    def noise_variance(self) -> Tensor:
        """Of a Gaussian view."""
        return cast(Gaussian, self.likelihood).noise_variance


class LatentVariableModel(nn.Module):
    """Latents shared by several views; a single view is a list of one."""

    def __init__(self, latents: GaussianLatents, views: Iterable[View]) -> None:
        super().__init__()
        self.latents = latents
        self._views = nn.ModuleList(views)

    @property
    def views(self) -> list[View]:
        """The views, in the order of the data."""
        return [cast(View, view) for view in self._views]

    def update_sites(self, updates: Sequence[SiteUpdate | None]) -> None:
        """Put the sites of the non-conjugate views in place that a bound asks for."""
        for view, update in zip(self.views, updates, strict=True):
            if view.sites is not None and update is not None:
                view.sites.absorb(update)

    def regroup(self) -> None:
        """Group the columns of non-conjugate views anew."""
        for view in self.views:
            if view.sites is not None:
                view.sites.regroup()

    @property
    def n_components(self) -> int:
        """D."""
        return int(self.latents.mean.shape[1])
