"""What a view contributes to the joint density: the base of the likelihoods of the sampler."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from bochner.data.arrays import Float64Array, IntArray
from bochner.mcmc.conditionals import mixture
from bochner.mcmc.conditionals.frequencies import (
    FrequencyKernel,
    GivenOtherWeights,
    update_frequencies,
)
from bochner.mcmc.conditionals.mixture import Components, NormalInverseWishart
from bochner.mcmc.conditionals.weights import GaussianForm
from bochner.mcmc.features import features, pull_back
from bochner.mcmc.priors import Priors

# Numbers of some rows, or all of them without a copy.
Rows = IntArray | slice
EVERY = slice(None)


@dataclass(frozen=True)
class ViewState:
    """The present values of a view.

    Attributes
    ----------
    points : ndarray of shape (H, D_v)
        Frequencies.
    labels : ndarray of shape (H,)
        Component of each, 0 .. C - 1, the largest component first.
    components : Components
    concentration : float
    variance : float
        k(x, x) of the kernel.
    weights : ndarray of shape (K, M)
        Standard normal a priori; with an intercept K = 2 (H + 1).
    parameter : ndarray
        Of the likelihood: the noise variance (1,), the dispersion (1,) or (M,), or nothing (0,).
    """

    points: Float64Array
    labels: IntArray
    components: Components
    concentration: float
    variance: float
    weights: Float64Array
    parameter: Float64Array


@dataclass(frozen=True)
class ViewData:
    """Entries of a view.

    Attributes
    ----------
    values : ndarray of shape (N, M)
        0 where missing.
    observed : ndarray of bool, shape (N, M)
    offset : ndarray of shape (N,)
        Added to psi: logarithms of size factors.
    """

    values: Float64Array
    observed: NDArray[np.bool_]
    offset: Float64Array

    @classmethod
    def of(cls, Y: Float64Array, offset: Float64Array | float = 0.0) -> Self:
        """Take data of shape (N, M), NaN = missing."""
        observed = ~np.isnan(Y)
        return cls(np.where(observed, Y, 0.0), observed, np.zeros(Y.shape[0]) + offset)


@dataclass(frozen=True)
class WeightMoments:
    """Means and covariances of the weights.

    Attributes
    ----------
    mean : ndarray of shape (K, M)
    covariances : ndarray of shape (groups, K, K)
    group_of : ndarray of shape (M,)
        The group of each column.
    """

    mean: Float64Array
    covariances: Float64Array
    group_of: IntArray


class ViewModel(ABC):
    """A view: its data, its prior and its likelihood.

    Parameters
    ----------
    name : str
    data : ViewData
    dims : sequence of int
        The latent dimensions that the view sees.
    n_points : int
        H.
    priors : Priors
    """

    has_intercept: bool = True
    # what draws call the likelihood's parameter, where it has one
    parameter_name: str = "parameter"

    def __init__(
        self,
        name: str,
        data: ViewData,
        dims: tuple[int, ...],
        n_points: int,
        priors: Priors,
    ) -> None:
        self.name = name
        self.data = data
        self.dims = dims
        self.n_points = n_points
        self.priors = priors
        self.component_prior = NormalInverseWishart(
            len(dims), priors.kappa, len(dims) + priors.extra_degrees, priors.scale
        )

    # -- features

    def see(self, x: Float64Array) -> Float64Array:
        """Return the latents as this view sees them, (n, D) -> (n, D_v)."""
        return x[:, list(self.dims)]

    def spectrum(self, state: ViewState) -> tuple[Float64Array, Float64Array]:
        """Return frequencies (P, D_v) and amplitudes (P,).

        The intercept is a last frequency 0, whose cosine is 1.
        """
        amplitude = np.full(self.n_points, np.sqrt(state.variance / self.n_points))
        if not self.has_intercept:
            return state.points, amplitude
        points = np.vstack([state.points, np.zeros((1, len(self.dims)))])
        return points, np.append(amplitude, self.priors.intercept)

    def phi(self, state: ViewState, x: Float64Array) -> Float64Array:
        """Return the features of rows, (n, D) -> (n, K)."""
        return features(self.see(x), *self.spectrum(state))

    def psi(self, state: ViewState, x: Float64Array) -> Float64Array:
        """Return the linear predictor of every entry, shape (N, M)."""
        return np.asarray(self.data.offset[:, None] + self.phi(state, x) @ state.weights)

    def kernel_rows(self) -> IntArray:
        """Return the rows of the weights that are not those of the intercept, shape (2 H,)."""
        size = self.n_points + self.has_intercept
        cosines = np.arange(self.n_points)
        return np.concatenate([cosines, size + cosines])

    # -- likelihood

    @abstractmethod
    def log_prob(self, psi: Float64Array, parameter: Float64Array, rows: Rows) -> Float64Array:
        """Return log p of the entries of some rows, 0 where missing, shape (n, M)."""

    def log_prob_of_psi(
        self, psi: Float64Array, parameter: Float64Array, rows: Rows
    ) -> Float64Array:
        """Return `log_prob` less what does not depend on psi, shape (n, M)."""
        return self.log_prob(psi, parameter, rows)

    @abstractmethod
    def score(self, psi: Float64Array, parameter: Float64Array) -> Float64Array:
        """Return d log p / d psi, 0 where missing, shape (N, M)."""

    @abstractmethod
    def form(self, psi: Float64Array, parameter: Float64Array, rng: Generator) -> GaussianForm:
        """Return the likelihood as a quadratic function of psi, auxiliary variables drawn."""

    @abstractmethod
    def draw_parameter(self, rng: Generator) -> Float64Array:
        """Draw the likelihood's parameter from its prior."""

    @abstractmethod
    def draw_variance(self, parameter: Float64Array, rng: Generator) -> float:
        """Draw the kernel's variance from its prior."""

    @abstractmethod
    def draw_data(
        self, psi: Float64Array, parameter: Float64Array, rng: Generator
    ) -> Float64Array:
        """Draw data given psi, shape (N, M)."""

    @abstractmethod
    def log_prior(self, state: ViewState) -> float:
        """Return the log density of variance and parameter, in their logarithms."""

    @abstractmethod
    def update_weights(self, state: ViewState, x: Float64Array, rng: Generator) -> ViewState:
        """Draw weights, variance and the likelihood's parameter."""

    @abstractmethod
    def weight_moments(
        self, state: ViewState, x: Float64Array, rng: Generator
    ) -> WeightMoments:
        """Return the distribution of the weights given the rest, auxiliary variables drawn."""

    def row_objective(self, state: ViewState, x: Float64Array, rows: IntArray) -> Float64Array:
        """Return the log likelihood of some rows at latents x up to constants, given the weights,
        (n, D), (n,) -> (n,).
        """
        psi = self.data.offset[rows, None] + self.phi(state, x) @ state.weights
        return np.asarray(self.log_prob_of_psi(psi, state.parameter, rows).sum(1))

    def log_likelihood(self, state: ViewState, x: Float64Array) -> float:
        """Return the log likelihood of all entries."""
        return float(self.log_prob(self.psi(state, x), state.parameter, EVERY).sum())

    def latent_objective(
        self, state: ViewState, x: Float64Array
    ) -> tuple[float, Float64Array]:
        """Return the log likelihood up to a constant, given the weights, and its gradient in the
        latents, (N, D).
        """
        points, _ = self.spectrum(state)
        phi = self.phi(state, x)
        psi = self.data.offset[:, None] + phi @ state.weights
        value = self.log_prob_of_psi(psi, state.parameter, EVERY).sum()
        upstream = (state.weights @ self.score(psi, state.parameter).T).T
        return float(value), self.widen(pull_back(phi, points, upstream), x.shape[1])

    def completed(
        self,
        state: ViewState,  # noqa: ARG002
        x: Float64Array,  # noqa: ARG002
        rng: Generator,  # noqa: ARG002
    ) -> Self:
        """Return the view whose `latent_objective` moves latents: this one, or one whose missing
        entries are drawn.
        """
        return self

    def redraw_weights(
        self,
        state: ViewState,
        x: Float64Array,  # noqa: ARG002
        rng: Generator,  # noqa: ARG002
    ) -> ViewState:
        """Draw the weights again where `latent_objective` had integrated them out."""
        return state

    def widen(self, gradient: Float64Array, n_components: int) -> Float64Array:
        """Return a gradient in the dimensions that the view sees as one in all of them."""
        out = np.zeros((gradient.shape[0], n_components))
        out[:, list(self.dims)] = gradient
        return out

    # -- blocks

    def with_data(self, data: ViewData) -> Self:
        """Return this view with other data."""
        return type(self)(self.name, data, self.dims, self.n_points, self.priors)

    def prior_state(self, rng: Generator, n_columns: int) -> ViewState:
        """Draw everything but the data from the prior."""
        shape, rate = self.priors.concentration
        concentration = float(rng.gamma(shape) / rate)
        labels = mixture.draw_partition(self.n_points, concentration, rng)
        nothing = np.zeros((0, len(self.dims)))
        drawn = [self.component_prior.draw(nothing, rng) for _ in range(int(labels.max()) + 1)]
        components = Components(
            np.stack([mean for mean, _ in drawn]), np.stack([root for _, root in drawn])
        )
        noise = rng.standard_normal((self.n_points, len(self.dims), 1))
        points = components.means[labels] + (components.roots[labels] @ noise)[..., 0]
        parameter = self.draw_parameter(rng)
        variance = self.draw_variance(parameter, rng)
        rows = 2 * (self.n_points + self.has_intercept)
        weights = rng.standard_normal((rows, n_columns))
        return ViewState(
            points, labels, components, concentration, variance, weights, parameter
        )

    def update_mixture(self, state: ViewState, rng: Generator) -> ViewState:
        """Draw assignments, then components."""
        labels = mixture.draw_assignments(
            state.points, state.labels, state.concentration, self.component_prior, rng
        )
        return self.update_components(replace(state, labels=labels), rng)

    def update_components(self, state: ViewState, rng: Generator) -> ViewState:
        """Draw means and covariances of the components."""
        prior = self.component_prior
        components = mixture.draw_components(state.points, state.labels, prior, rng)
        return replace(state, components=components)

    def update_frequencies(
        self, state: ViewState, x: Float64Array, kernel: FrequencyKernel, rng: Generator
    ) -> tuple[ViewState, float]:
        """Update every frequency and its weights; return the share that moved, too."""
        psi = self.psi(state, x)
        form = self.form(psi, state.parameter, rng)
        _, amplitude = self.spectrum(state)
        given = GivenOtherWeights(self.see(x), amplitude, state.weights, psi, form, rng)
        points, moved = update_frequencies(
            state.points, state.labels, state.components, given, kernel, rng
        )
        return replace(state, points=points, weights=given.weights), moved

    def update_concentration(self, state: ViewState, rng: Generator) -> ViewState:
        """Draw the concentration."""
        shape, rate = self.priors.concentration
        n_components = int(state.labels.max()) + 1
        drawn = mixture.draw_concentration(
            state.concentration, self.n_points, n_components, shape, rate, rng
        )
        return replace(state, concentration=drawn)

    def log_joint(self, state: ViewState, x: Float64Array) -> float:
        """Return the log density of data and state given the latents, components integrated
        out.
        """
        shape, rate = self.priors.concentration
        concentration = shape * np.log(state.concentration) - rate * state.concentration
        likelihood = self.log_likelihood(state, x)
        weights = -0.5 * np.square(state.weights).sum()
        partition = mixture.log_partition(state.labels, state.concentration)
        points = mixture.log_points(state.points, state.labels, self.component_prior)
        parameters = self.log_prior(state)
        return float(likelihood + weights + partition + points + concentration + parameters)
