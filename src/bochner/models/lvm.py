"""A latent variable model is the list of its parts, latents and views; and what is asked of it: who
sees which latents, likelihoods, kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import ClassVar, cast

import torch
from torch import Tensor, nn

from bochner._typing import Context, Sampling
from bochner.features.fourier import columns_beside, with_covariates
from bochner.kernels.base import Frequencies, SpectralKernel
from bochner.likelihoods.likelihood import Gaussian
from bochner.likelihoods.nonconjugate import Likelihood, NonConjugateLikelihood
from bochner.memory import chunks
from bochner.models import limits
from bochner.models.sites import Sites, SiteUpdate
from bochner.random import RowNoise


@dataclass(frozen=True)
class Layout:
    """Shared dimensions come first, then every view's private ones, in the order of the views.

    Attributes
    ----------
    shared : int
        Dimensions that every view sees, at least 1.
    private : tuple of int
        Further dimensions of each view, which no other view sees.
    """

    shared: int
    private: tuple[int, ...]

    @property
    def n_components(self) -> int:
        """D, all dimensions together."""
        return self.shared + sum(self.private)

    @property
    def has_private(self) -> bool:
        """Whether any view has dimensions that no other view sees."""
        return any(self.private)

    def narrowed(self, narrow: Layout) -> list[int]:
        """Return which dimensions a layout of fewer keeps: the first shared ones, and the first of
        every view's private ones.
        """
        private = [self.private_dims(v)[:n] for v, n in enumerate(narrow.private)]
        return [*range(narrow.shared), *(d for dims in private for d in dims)]

    def private_dims(self, view: int) -> tuple[int, ...]:
        """Return the private dimensions of the view with this number."""
        starts = list(accumulate(self.private, initial=self.shared))
        return tuple(range(starts[view], starts[view + 1]))

    def dims(self, view: int) -> tuple[int, ...] | None:
        """Return the dimensions that a view sees, ascending; None when it sees all of them."""
        dims = (*range(self.shared), *self.private_dims(view))
        return None if len(dims) == self.n_components else dims


@dataclass(frozen=True)
class ViewSpec:
    """One view before training.

    Attributes
    ----------
    name : str
    kernel : SpectralKernel
        What the view's kernel is like; ``initial`` makes the one to train.
    likelihood : Likelihood
        At its start.
    weight : float
        Of the view's term in what training maximises.
    """

    name: str
    kernel: SpectralKernel
    likelihood: Likelihood
    weight: float = 1.0

    @property
    def conjugate(self) -> bool:
        """Whether the weights can be integrated out exactly."""
        return not isinstance(self.likelihood, NonConjugateLikelihood)


@dataclass(frozen=True)
class ModelSpec:
    """A model before training.

    Attributes
    ----------
    views : tuple of ViewSpec
    layout : Layout
        Which view depends on which latent dimensions.
    n_mixtures, n_frequencies : int
        Q, H.
    n_early : int
        H until the bound has converged: steps cost a fraction and find nearly the same place.
    sampling : {"iid", "orthogonal", "sobol"}
        How spectral points are drawn.
    groups : tuple of L int
        The covariate that each column beside the latents belongs to.
    """

    views: tuple[ViewSpec, ...]
    layout: Layout
    n_mixtures: int
    n_frequencies: int
    sampling: Sampling
    n_early: int
    groups: tuple[int, ...] = ()

    def __iter__(self) -> Iterator[ViewSpec]:
        return iter(self.views)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the views."""
        return tuple(view.name for view in self.views)

    @property
    def n_components(self) -> int:
        """D."""
        return self.layout.n_components

    @property
    def n_features(self) -> int:
        """Of a kernel of Q mixtures, without covariates: 2 Q H."""
        return 2 * self.n_mixtures * self.n_frequencies

    @property
    def likelihoods(self) -> tuple[Likelihood, ...]:
        """Of the views."""
        return tuple(view.likelihood for view in self.views)

    @property
    def weights(self) -> tuple[float, ...]:
        """Of the views in training."""
        return tuple(view.weight for view in self.views)

    @property
    def conjugate(self) -> bool:
        """Whether every view is."""
        return all(view.conjugate for view in self.views)

    @property
    def has_sweeps(self) -> bool:
        """Whether a kernel has block updates between the steps of training."""
        return any(view.kernel.has_posterior for view in self.views)

    @property
    def surrogate(self) -> ModelSpec:
        """The same model with Gaussian likelihoods in place of non-conjugate ones."""
        gaussian = (
            v if v.conjugate else replace(v, likelihood=Gaussian()) for v in self.views
        )
        return replace(self, views=tuple(gaussian))

    @property
    def early(self) -> ModelSpec:
        """The model of the race and of training up to the decay: with fewer frequencies.

        Non-conjugate views, and kernels that are made for one number of points, have all of them
        throughout.
        """
        fixed = any(view.kernel.has_distinct_points for view in self.views)
        if fixed or not self.conjugate:
            return self
        return replace(self, n_frequencies=self.n_early)


# Rows whose latents are drawn, or compared with the prior, at once.
_PART = 2**16


@dataclass(frozen=True)
class Covariates:
    """Columns that stand beside the latents of rows.

    Attributes
    ----------
    values : Tensor of shape (N, L)
        Centred over the rows of training; 0 stands for their average.
    groups : tuple of L int
        The covariate that each column belongs to: a categorical one has a column per category.
        Empty where nothing is known of the rows.
    """

    values: Tensor
    groups: tuple[int, ...]

    @classmethod
    def none(cls, n_rows: int) -> Covariates:
        """Return no columns."""
        return cls(columns_beside(None, n_rows), ())

    def take(self, index: Tensor) -> Covariates:
        """Return those of some rows, (l,), int64."""
        return Covariates(self.values[index.to(self.values.device)], self.groups)


# A row that knows nothing has the prior's standard deviation, 1, and one between two places a
# little more. Under a kernel that has become white the gradient is noise, which took that of one
# row to 150: 11,000 nats of divergence, and all other rows with it.
_MOST_LOG_STD = math.log(2.0)


class GaussianLatents(nn.Module):
    """q(X) = prod_n N(mu_n, diag s_n^2) under the prior N(0, I).

    Parameters
    ----------
    mean, log_std : Tensor of shape (N, D)
    covariates : Tensor of shape (N, L), optional
        What is known of the rows beside their data; left out, nothing: L = 0.
    """

    covariates: Tensor

    def __init__(
        self, mean: Tensor, log_std: Tensor, covariates: Tensor | None = None
    ) -> None:
        super().__init__()
        self.mean = nn.Parameter(mean.clone())
        self.log_std = nn.Parameter(log_std.clone())
        # data, like those of the views: no file holds them
        beside = columns_beside(covariates, mean.shape[0]).to(mean)
        self.register_buffer("covariates", beside, persistent=False)

    @torch.no_grad()
    def project(self) -> None:
        """Bring back standard deviations that steps made far larger than the prior's."""
        self.log_std.clamp_(max=_MOST_LOG_STD)

    def sample(self, noise: Tensor) -> Tensor:
        """Return mu + s * noise with the covariates beside, shape (N, D + L)."""
        return self.sample_with_kl(noise)[0]

    def sample_with_kl(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return ``sample(noise)`` and ``kl()``, both in one operation: differentiable once."""
        sampled: tuple[Tensor, Tensor] = _SampleWithKL.apply(self.mean, self.log_std, noise)  # type: ignore[no-untyped-call]
        x, kl = sampled
        return with_covariates(x, self.covariates), kl

    @torch.no_grad()
    def drawn(self, noise: RowNoise, rows: slice | None = None) -> Tensor:
        """Return ``sample`` of noise that is made row part by row part, without gradients: nothing
        is held but the result, which is of all rows or of consecutive ones.
        """
        start, stop = (0, len(self.mean)) if rows is None else (rows.start, rows.stop)
        x = torch.empty_like(self.mean[start:stop])
        for part in chunks(len(x), _PART):
            here = slice(start + part.start, start + part.stop)
            spread = self.log_std[here].exp().mul_(noise[here])
            torch.add(self.mean[here], spread, out=x[part])
        return with_covariates(x, self.covariates[start:stop])

    def draws(self, n_draws: int, seed: int, start: int = 0) -> list[Tensor]:
        """Draw X as often as asked, each (N, D + L): the draws over which the weights' statistics
        are averaged. ``start`` is the global number of the first row.
        """
        noises = (self.noise(seed, "posterior/latents", i, start) for i in range(n_draws))
        return [self.drawn(noise) for noise in noises]

    def noise(self, seed: int, purpose: str, step: int, start: int = 0) -> RowNoise:
        """Return standard normal noise of all rows at a key, (N, D)."""
        mean = self.mean
        n_rows, dim = mean.shape
        key = (n_rows, dim, seed, purpose, step, start)
        return RowNoise(*key, mean.dtype, mean.device)

    def kl(self) -> Tensor:
        """Return KL(q(X) || N(0, I)) in nats, scalar float64."""
        mean, log_std = self.mean, self.log_std
        parts = chunks(mean.shape[-2], _PART)
        sums = [
            kl_standard_normal(mean[..., part, :], log_std[..., part, :]) for part in parts
        ]
        return torch.stack(sums).sum(0)


class _SampleWithKL(torch.autograd.Function):
    """mean + std * noise, (..., N, D), and KL(N(mean, diag std^2) || N(0, I)), (...)."""

    @staticmethod
    def forward(
        ctx: Context, mean: Tensor, log_std: Tensor, noise: Tensor
    ) -> tuple[Tensor, Tensor]:
        std = log_std.exp()
        spread = std * noise
        ctx.save_for_backward(mean, std, spread)
        return mean + spread, kl_standard_normal(mean, log_std)

    @staticmethod
    def backward(ctx: Context, d_x: Tensor, d_kl: Tensor) -> tuple[Tensor, Tensor, None]:
        mean, std, spread = ctx.saved_tensors
        weight = d_kl.to(mean)[..., None, None]
        d_log_std = torch.addcmul(d_x * spread, weight, std.square().sub_(1.0))
        return torch.addcmul(d_x, weight, mean), d_log_std, None


def kl_standard_normal(mean: Tensor, log_std: Tensor) -> Tensor:
    """KL(N(mean, diag std^2) || N(0, I)), summed over rows and dimensions.

    Parameters
    ----------
    mean, log_std : Tensor of shape (..., N, D)

    Returns
    -------
    Tensor of shape (...), float64, in nats
    """
    mean = mean.double()
    log_std = log_std.double()
    entries = (2.0 * log_std).exp() + mean.square() - 1.0 - 2.0 * log_std
    return 0.5 * entries.sum((-2, -1))


class NoSites(nn.Module):
    """Of a Gaussian view: its weights are integrated out exactly, nothing is held for its
    entries.
    """

    take_turns: ClassVar[bool] = False

    def regroup(self) -> None:
        """Do nothing."""

    def absorb(self, update: SiteUpdate | None) -> None:
        """Do nothing."""

    def drawn_columns(
        self,
        n_features: int,  # noqa: ARG002 - all columns take part, at no cost of their own
        budget: float,  # noqa: ARG002
        source: Callable[[torch.device], torch.Generator],  # noqa: ARG002
    ) -> None:
        """Return None: all columns."""
        return


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
        Of a view that is not conjugate; any other has none.
    dims : sequence of int, optional
        The latent dimensions that the view sees; None: all.
    weight : float
        Of the view's term in what training maximises.
    groups : sequence of int
        The covariate that each of L columns beside the latents belongs to: each covariate has one
        factor, whose square is the prior variance of its columns' weights.
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
        groups: Sequence[int] = (),
    ) -> None:
        super().__init__()
        self.name = name
        self.kernel = kernel
        self.likelihood = likelihood
        self.sites: Sites | NoSites = sites or NoSites()
        self.dims = None if dims is None else tuple(dims)
        self.weight = weight
        self.groups = tuple(groups)
        factors = (
            nn.Parameter(torch.zeros(max(groups) + 1, dtype=torch.float32))
            if self.groups
            else None
        )
        self.register_parameter("log_factors", factors)

    @property
    def n_covariates(self) -> int:
        """L."""
        return len(self.groups)

    def latent_dims(self, n_components: int) -> tuple[int, ...]:
        """Return which of D latent dimensions the view sees, ascending."""
        return tuple(range(n_components)) if self.dims is None else self.dims

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
        if self.log_factors is None:
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

    @property
    def has_sites(self) -> bool:
        """Whether some view is not conjugate: its sites take their turn beside the gradient."""
        return any(view.sites.take_turns for view in self.views)

    def update_sites(self, updates: Sequence[SiteUpdate | None]) -> None:
        """Put the sites of the non-conjugate views in place that a bound asks for."""
        for view, update in zip(self.views, updates, strict=True):
            view.sites.absorb(update)

    def project(self, finest: Tensor | None = None) -> None:
        """Bring back parameters that a step moved too far.

        Parameters
        ----------
        finest : Tensor of shape (D,), optional
            What `limits.finest` returns of all rows: where some of them are elsewhere kernels would
            differ.
        """
        self.latents.project()
        for view in self.views:
            view.likelihood.project()
            dims = list(view.latent_dims(self.n_components))
            limits.limit_scales(view.kernel, None if finest is None else finest[dims])
            if view.sites.take_turns:
                limits.limit_variances(view.kernel)

    def regroup(self) -> None:
        """Group the columns of non-conjugate views anew."""
        for view in self.views:
            view.sites.regroup()

    @property
    def n_components(self) -> int:
        """D."""
        return int(self.latents.mean.shape[1])
