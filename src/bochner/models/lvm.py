"""A latent variable model is the list of its parts: latents and views."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from torch import Tensor, nn

from bochner.kernels.base import SpectralKernel
from bochner.likelihoods.gaussian import Gaussian
from bochner.likelihoods.nonconjugate import Likelihood
from bochner.models.latents import GaussianLatents
from bochner.models.sites import Sites


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

    @property
    def n_components(self) -> int:
        """D."""
        return int(self.latents.mean.shape[1])
