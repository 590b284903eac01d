"""A latent variable model is the list of its parts: latents and views."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from bochner import random
from bochner.kernels.base import Frequencies, SpectralKernel
from bochner.likelihoods.gaussian import Gaussian
from bochner.likelihoods.nonconjugate import Likelihood
from bochner.models.sites import Sites, SiteUpdate


class GaussianLatents(nn.Module):
    """q(X) = prod_n N(mu_n, diag s_n^2) under the prior N(0, I).

    Parameters
    ----------
    mean, log_std : Tensor of shape (N, D)
    covariates : Tensor of shape (N, L), optional
        What is known of the rows beside their data.
    """

    covariates: Tensor | None

    def __init__(self, mean: Tensor, log_std: Tensor, covariates: Tensor | None = None) -> None:
        super().__init__()
        self.mean = nn.Parameter(mean.clone())
        self.log_std = nn.Parameter(log_std.clone())
        # data, like those of the views: no file holds them
        self.register_buffer("covariates", covariates, persistent=False)

    def sample(self, noise: Tensor) -> Tensor:
        """Return mu + s * noise with the covariates beside, shape (N, D + L)."""
        x = self.mean + self.log_std.exp() * noise
        return x if self.covariates is None else torch.cat([x, self.covariates], dim=1)

    def draws(self, n_draws: int, seed: int, start: int = 0) -> list[Tensor]:
        """Draw X as often as asked, each (N, D + L): the draws over which the weights' statistics
        are averaged. ``start`` is the global number of the first row.
        """
        mean = self.mean.detach()
        n, dim = mean.shape
        like: dict[str, Any] = {"dtype": mean.dtype, "device": mean.device}
        noises = (
            random.row_noise(n, dim, seed, "posterior/latents", i, start=start, **like)
            for i in range(n_draws)
        )
        return [self.sample(noise).detach() for noise in noises]

    def kl(self) -> Tensor:
        """Return KL(q(X) || N(0, I)) in nats, scalar float64."""
        return kl_standard_normal(self.mean, self.log_std)


def kl_standard_normal(mean: Tensor, log_std: Tensor) -> Tensor:
    """KL(N(mean, diag std^2) || N(0, I)), summed over rows and dimensions.

    Parameters
    ----------
    mean, log_std : Tensor of shape (..., N, D)

    Returns
    -------
    Tensor of shape (...), float64, in nats
    """
    mean, log_std = mean.double(), log_std.double()
    entries = (2.0 * log_std).exp() + mean.square() - 1.0 - 2.0 * log_std
    return 0.5 * entries.sum((-2, -1))


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
    groups : sequence of int, optional
        The covariate that each of L columns beside the latents belongs to: each covariate has one
        factor, whose square is the prior variance of its columns' weights. None: no covariates.
    """

    log_factors: nn.Parameter | None

    def __init__(
        self,
        name: str,
        kernel: SpectralKernel,
        likelihood: Likelihood,
        sites: Sites | None = None,
        dims: Sequence[int] | None = None,
        weight: float = 1.0,
        groups: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        self.name, self.kernel, self.likelihood, self.sites = name, kernel, likelihood, sites
        self.dims, self.weight = None if dims is None else tuple(dims), weight
        self.groups = None if groups is None else tuple(groups)
        factors = None if groups is None else nn.Parameter(torch.zeros(max(groups) + 1))
        self.register_parameter("log_factors", factors)

    @property
    def n_covariates(self) -> int:
        """L."""
        return 0 if self.groups is None else len(self.groups)

    def see(self, x: Tensor) -> Tensor:
        """Return the latents, and the covariates beside them, as this view sees them, (n, D + L) ->
        (n, D_v + L), of several models (S, n, ...).
        """
        if self.dims is None:
            return x
        beside = range(x.shape[-1] - self.n_covariates, x.shape[-1])
        return x[..., [*self.dims, *beside]]

    def frequencies(self, noise: Tensor) -> Frequencies:
        """Return the kernel's spectral points at one draw of noise, with the factors of the
        covariates.
        """
        f = self.kernel.frequencies(noise)
        if self.groups is None or self.log_factors is None:
            return f
        return replace(f, linear=self.log_factors.exp()[list(self.groups)].to(f.amplitude))

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
