"""The posterior of the weights A given latents and draws of the spectra: what prediction needs of a
fit.

Per column A | Y, X, W ~ N(m, sigma^2 B^-1) (docs/math.md, section 2.4).
"""

from __future__ import annotations

import copy
import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import torch
from torch import Tensor

from bochner import random
from bochner._typing import Sampling
from bochner.likelihoods.likelihood import Gaussian, per_size, shifted
from bochner.likelihoods.nonconjugate import Likelihood, NonConjugateLikelihood
from bochner.linalg import laid_out
from bochner.models.lvm import LatentVariableModel, View
from bochner.objectives.subset_sites import Anchors
from bochner.processes import ALONE, Processes
from bochner.regression.observations import Block, Data
from bochner.weight_posterior.conditioning import Draw, conditioning

# The covariances of a view's column groups, over all draws, are kept up to this size: fewer draws
# beyond it.
_COVARIANCE_BYTES = 2**30
# Numbers of means and variances of psi that are held at once.
_NUMBERS = 2**23
# Scores encoded rows of a view, (n, M), NaN where missing, with logarithms of their size factors,
# (n,) or None, at some places: (n, C).
RowScores = Callable[[Tensor, Tensor | None], Tensor]

PredictiveNoise = float | Sequence[float] | None


@dataclass(frozen=True)
class ViewPosterior(ABC):
    """What a fitted view says about new rows.

    Attributes
    ----------
    name : str
    draws : tuple of Draw
    group_of : Tensor of shape (M,), int64
        The column's group in ``Draw.covariance``.
    likelihood : Likelihood
    dims : tuple of int or None
        The latent dimensions that the view sees, None = all: the frequencies of its draws are 0
        along the others.
    weight : float
        Of the view in training, and so in placement; densities and predictions know none.
    predictive_noise : float, sequence of M floats, or None
        Noise variance of entries to come, where entries that training did not see show more of it
        than the others.

    Notes
    -----
    Columns are those of psi: a categorical view has more of them than of data.
    """

    name: str
    draws: tuple[Draw, ...]
    group_of: Tensor
    likelihood: Likelihood
    dims: tuple[int, ...] | None = None
    weight: float = 1.0
    predictive_noise: PredictiveNoise = None

    @staticmethod
    def of(
        name: str,
        draws: tuple[Draw, ...],
        group_of: Tensor,
        likelihood: Likelihood,
        intercept: Tensor | None = None,
        *,
        dims: tuple[int, ...] | None = None,
        weight: float = 1.0,
        predictive_noise: PredictiveNoise = None,
        largest: Tensor | None = None,
    ) -> ViewPosterior:
        """Return the posterior of the kind that the likelihood asks for, its intercepts 0 where
        none are given; `largest` of one that is not Gaussian.
        """
        parts = (name, draws, group_of, likelihood, dims, weight, predictive_noise)
        if not isinstance(likelihood, NonConjugateLikelihood):
            return GaussianPosterior(*parts)
        if intercept is None:
            intercept = torch.zeros(len(group_of), dtype=torch.float64)
        return NonConjugatePosterior(*parts, intercept=intercept, largest=largest)

    @functools.cached_property
    def predictive(self) -> Likelihood:
        """The likelihood of entries to come."""
        if self.predictive_noise is None:
            return self.likelihood
        return Gaussian(self.predictive_noise).requires_grad_(False)

    @property
    def n_columns(self) -> int:
        """Columns of psi."""
        return int(self.group_of.shape[0])

    @property
    def n_data_columns(self) -> int:
        """M."""
        return self.likelihood.n_data_columns(self.n_columns)

    def see(self, x: Tensor) -> Tensor:
        """Return the latents as this view sees them, (n, D) -> (n, D_v)."""
        return x if self.dims is None else x[:, list(self.dims)]

    def sees(self, n_components: int) -> Tensor:
        """Return which dimensions the view sees, (D,), float64: 1 or 0."""
        if self.dims is None:
            return torch.ones(n_components, dtype=torch.float64)
        out = torch.zeros(n_components, dtype=torch.float64)
        out[list(self.dims)] = 1.0
        return out

    def encode(self, y: Tensor) -> Tensor:
        """Return data as the bound sees them, (n, columns of data) -> (n, columns of psi), NaN =
        missing.
        """
        return self.likelihood.encode(y)

    def psi(
        self, draw: Draw, phi: Tensor, offset: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return mean and variance of psi at features phi (n, K), both (n, columns of psi)."""
        mean = phi @ draw.mean
        variance = self.noise_variance * draw.spread(phi, self.group_of)
        return shifted(self.with_intercept(mean), offset), variance.clamp(min=0.0)

    def predict(
        self, psi: Tensor, variance: Tensor, offset: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return mean and variance of entries to come at moments of psi, (n, columns of psi) ->
        (n, M).

        Parameters
        ----------
        psi, variance : Tensor of shape (n, columns of psi)
        offset : Tensor of shape (n,), optional
            Which psi holds.
        """
        return self.predictive.predict_below(psi, variance, self.largest_at(psi, offset))

    def drawn(
        self, psi: Tensor, source: torch.Generator, offset: Tensor | None = None
    ) -> Tensor:
        """Return entries to come drawn given psi, (n, columns of psi) -> (n, M)."""
        most = self.largest_at(psi, offset)
        return self.predictive.draw(psi if most is None else psi.minimum(most), source)

    def counted(self, observed: Tensor) -> Tensor:
        """Return how many columns of the data are behind each entry: 1 where it is observed, else
        0.
        """
        return observed

    def largest_at(self, psi: Tensor, offset: Tensor | None) -> Tensor | None:  # noqa: ARG002
        """Return the largest psi of rows with these offsets, (n, columns of psi); None: any."""
        return None

    @property
    @abstractmethod
    def noise_variance(self) -> float | Tensor:
        """The unit of the covariances."""

    @property
    @abstractmethod
    def n_sloped_columns(self) -> int:
        """Columns whose slopes placement forms for every row."""

    @abstractmethod
    def with_intercept(self, psi: Tensor) -> Tensor:
        """Add the columns' intercepts, (n, columns of psi)."""

    @abstractmethod
    def residual_variance(self, x: Tensor) -> Tensor:
        """Return the mean variance, (columns of psi,), of what stands about the fitted values of
        rows at x, (n, D), float64.
        """

    @abstractmethod
    def explained(self, y: Tensor, fitted: Tensor) -> Tensor:
        """Return the values that reports explain: data, or psi as fitted, (n, columns)."""

    @abstractmethod
    def pattern(self, observed: Tensor) -> Tensor:
        """Return what makes rows alike of their observed entries, (n, columns) -> (n, ...)."""

    @abstractmethod
    def stays_factored(self, dim: int) -> bool:
        """Return whether rows with columns of their own are left without matrices, in so many
        dimensions.
        """

    @abstractmethod
    def reconstructions(self, candidates: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean of psi (C, M) at places and its uncertainty, over draws: Var psi /
        sigma^2, (C, M) or (C, 1).
        """

    @abstractmethod
    def scores_at(self, mean: Tensor, spread: Tensor) -> RowScores:
        """Return the function that scores rows at some places: weighted E log p(y | psi) of the
        observed entries at every place, (n, C), up to a constant of the row.

        Parameters
        ----------
        mean, spread
            As ``reconstructions`` returns them.
        """


@dataclass(frozen=True)
class GaussianPosterior(ViewPosterior):
    """A view that is Gaussian given its weights."""

    @property
    def noise_variance(self) -> float | Tensor:
        """sigma^2 of the scaled data, or (M,)."""
        return cast(Gaussian, self.likelihood).known_variance

    @property
    def predicted_noise(self) -> float | Tensor:
        """sigma^2 of entries to come, or (M,)."""
        if self.predictive_noise is None:
            return self.noise_variance
        noise = torch.as_tensor(self.predictive_noise, dtype=torch.float64)
        return noise if noise.ndim else float(noise)

    @property
    def n_sloped_columns(self) -> int:
        """None: rows have quadratic forms."""
        return 0

    def with_intercept(self, psi: Tensor) -> Tensor:
        """Return psi: columns are centred."""
        return psi

    def residual_variance(self, x: Tensor) -> Tensor:  # noqa: ARG002 - see the other kind
        """Return sigma^2."""
        noise = torch.as_tensor(self.noise_variance, dtype=torch.float64)
        return noise.expand(self.n_columns)

    def explained(self, y: Tensor, fitted: Tensor) -> Tensor:  # noqa: ARG002 - see the other kind
        """Return the data."""
        return y

    def pattern(self, observed: Tensor) -> Tensor:
        """Return which entries are observed: rows with the same have one quadratic form."""
        return observed

    def stays_factored(self, dim: int) -> bool:
        """Return what the draws say."""
        return self.draws[0].stays_factored(dim)

    def reconstructions(self, candidates: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and uncertainty; with one noise for all columns the mean uncertainty of them,
        which differs by group alone, will do for a start.
        """
        of_columns = isinstance(self.noise_variance, Tensor)
        mean = torch.zeros(candidates.shape[0], self.n_columns, dtype=torch.float64)
        spread = torch.zeros(candidates.shape[0], 1, dtype=torch.float64)
        for draw in self.draws:
            phi = draw.features(candidates)
            mean += phi @ draw.mean / len(self.draws)
            of_draw = draw.spread(phi, self.group_of)
            of_draw = of_draw if of_columns else of_draw.mean(1, keepdim=True)
            spread = spread + of_draw / len(self.draws)
        return mean, spread

    def scores_at(self, mean: Tensor, spread: Tensor) -> RowScores:
        """Return what gives -1/2 sum_m [(y_m - mean_m)^2 / sigma^2 + spread_m] over observed
        entries.
        """
        squared_mean = mean.square()

        def scores(y: Tensor, offset: Tensor | None) -> Tensor:  # noqa: ARG001 - Gaussian rows have none
            observed = (~y.isnan()).double()
            filled = torch.nan_to_num(y)
            scaled = filled / self.noise_variance
            known = observed / self.noise_variance
            squared = (filled * scaled).sum(1, keepdim=True)
            squared = squared - 2.0 * scaled @ mean.T + known @ squared_mean.T
            entries = observed if spread.shape[1] > 1 else observed.sum(1, keepdim=True)
            return -0.5 * self.weight * (squared + entries @ spread.T)

        return scores


@dataclass(frozen=True)
class NonConjugatePosterior(ViewPosterior):
    """A view whose likelihood is not conjugate to the weights.

    Attributes
    ----------
    intercept : Tensor of shape (M,), float64
    largest : Tensor of shape (M,), float64, or None
        The largest psi, less the offset, that entries are predicted with: what training data
        support. None: any.
    """

    intercept: Tensor = field(kw_only=True)
    largest: Tensor | None = field(kw_only=True, default=None)

    def __post_init__(self) -> None:
        """Lay the intercepts out as those of a file."""
        object.__setattr__(self, "intercept", laid_out(self.intercept))

    def largest_at(self, psi: Tensor, offset: Tensor | None) -> Tensor | None:
        """Return the largest psi of the columns with the rows' offsets."""
        return None if self.largest is None else shifted(self.largest.expand_as(psi), offset)

    @property
    def bound(self) -> NonConjugateLikelihood:
        """The likelihood."""
        return cast(NonConjugateLikelihood, self.likelihood)

    @property
    def noise_variance(self) -> float | Tensor:
        """1."""
        return 1.0

    @property
    def n_sloped_columns(self) -> int:
        """All columns of psi."""
        return self.n_columns

    def with_intercept(self, psi: Tensor) -> Tensor:
        """Return psi with its intercepts."""
        return psi + self.intercept

    def residual_variance(self, x: Tensor) -> Tensor:
        """Return that of psi under the weights' posterior: columns that tell nothing have hardly
        any fitted variance, and no noise.
        """
        most = max(1, _NUMBERS // self.n_columns)
        sums = [self.reconstructions(some)[1].sum(0) for some in torch.split(x, most)]
        return torch.stack(sums).sum(0) / max(1, x.shape[0])

    def explained(self, y: Tensor, fitted: Tensor) -> Tensor:  # noqa: ARG002 - see the other kind
        """Return psi as fitted."""
        return fitted

    def pattern(self, observed: Tensor) -> Tensor:
        """Return whether there is anything at all: every entry is treated by itself."""
        return observed.any(1, keepdim=True)

    def stays_factored(self, dim: int) -> bool:  # noqa: ARG002 - whatever it is
        """Return True: there is no matrix."""
        return True

    def reconstructions(self, candidates: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance of psi."""
        mean = torch.zeros(candidates.shape[0], self.n_columns, dtype=torch.float64)
        spread = torch.zeros_like(mean)
        for draw in self.draws:
            of_draw, variance = self.psi(draw, draw.features(candidates))
            mean = mean + of_draw / len(self.draws)
            spread = spread + variance / len(self.draws)
        return mean, spread

    def scores_at(self, mean: Tensor, spread: Tensor) -> RowScores:
        """Return what gives the bound of every row as it would be with the typical size factor:
        good enough to start from.
        """
        of_places = self.bound.of_places(mean, spread)

        def scores(y: Tensor, offset: Tensor | None) -> Tensor:
            filled, observed = _known(y, offset)
            pairs = zip(self.bound.of_rows(filled), of_places, strict=True)
            return self.weight * _added(observed, pairs)

        return scores

    def predictive_scores(
        self, y: Tensor, offset: Tensor | None, mean: Tensor, spread: Tensor
    ) -> Tensor:
        """Return about log E p(y | psi) of the observed entries, (n, C), as `scores_at` does the
        bound, unweighted.
        """
        filled, observed = _known(y, offset)
        return _added(observed, self.bound.predictive_products(filled, mean, spread))


def _known(y: Tensor, offset: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return rows as of the typical size factor, 0 where missing, and 1 where observed, else 0."""
    return per_size(torch.nan_to_num(y), offset), (~y.isnan()).double()


def _added(observed: Tensor, pairs: Iterable[tuple[Tensor, Tensor]]) -> Tensor:
    """Return the sum of products of what rows, (n, m), and places, (C, m), have, (n, C)."""
    total: Tensor = sum((observed * of_row) @ at.T for of_row, at in pairs)  # type: ignore[assignment]
    return total


def all_conjugate(views: Sequence[ViewPosterior]) -> bool:
    """Return whether every view is Gaussian given its weights."""
    return all(isinstance(view, GaussianPosterior) for view in views)


def weights_posterior(
    model: LatentVariableModel,
    data: Data,
    *,
    n_frequencies: int,
    n_draws: int,
    n_latent_draws: int,
    sampling: Sampling,
    seed: int,
    anchors: Anchors | None = None,
    processes: Processes = ALONE,
) -> tuple[ViewPosterior, ...]:
    """Condition the weights of every view on the data.

    Parameters
    ----------
    model : LatentVariableModel
    data : tuple over views of tuples of Block
    n_frequencies : int
        H.
    n_draws : int
        Draws of W that prediction will average over.
    n_latent_draws : int
        Draws of X over which the statistics are averaged: E[G] and E[C] make q(A) optimal for q(X).
    sampling : {"iid", "orthogonal", "sobol"}
    seed : int
    anchors : Anchors, optional
        The rows that sites belong to; None: all.
    processes : Processes
        Among which the rows are divided.

    Returns
    -------
    tuple of ViewPosterior
    """
    with torch.no_grad():
        latents = model.latents.draws(n_latent_draws, seed, processes.start)
        known = None if anchors is None else anchors.take(latents[0], processes)
        return tuple(
            _view_posterior(
                view,
                blocks,
                latents,
                n_frequencies,
                n_draws,
                sampling,
                seed,
                None
                if anchors is None or known is None
                else (view.see(known), anchors.data[v]),
                processes,
            )
            for v, (view, blocks) in enumerate(zip(model.views, data, strict=True))
        )


def _view_posterior(
    view: View,
    blocks: tuple[Block, ...],
    latents: list[Tensor],
    n_frequencies: int,
    n_draws: int,
    sampling: Sampling,
    seed: int,
    anchors: tuple[Tensor, tuple[Block, ...]] | None,
    processes: Processes,
) -> ViewPosterior:
    kind = conditioning(view.sites, view, blocks, anchors, processes)
    draws: list[Draw] = []
    n_components = latents[0].shape[1] - view.n_covariates
    latents = [view.see(x) for x in latents]
    n_dims = latents[0].shape[1] - view.n_covariates
    for s in range(n_draws):
        source = random.generator(
            seed, f"posterior/spectrum/{view.name}", s, device=latents[0].device
        )
        noise = view.kernel.noise(n_frequencies, n_dims, source, sampling)
        draw = kind.draw(view.frequencies(noise).detach(), latents)
        draws.append(
            replace(draw, frequencies=draw.frequencies.widened(view.dims, n_components))
        )
        if draws[0].covariance.numel() * 8 * (s + 2) > _COVARIANCE_BYTES:
            break
    group_of = kind.group_of(draws[0], len(latents))
    likelihood = copy.deepcopy(view.likelihood).cpu().requires_grad_(False)
    parts = (view.name, tuple(draws), group_of, likelihood, kind.intercept)
    largest = kind.largest_psi()
    return ViewPosterior.of(*parts, dims=view.dims, weight=view.weight, largest=largest)
