"""The whole model: latents and views, their joint density, and one sweep over the blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.random import Generator

from bochner.data.arrays import Float64Array, IntArray
from bochner.mcmc.conditionals import coordinates, latents
from bochner.mcmc.conditionals.frequencies import KERNELS
from bochner.mcmc.conditionals.views import ViewModel, ViewState
from bochner.mcmc.draws import source

LatentKernel = Literal["sample", "map"]
BLOCKS = ("mixture", "concentration", "frequencies", "weights", "coordinates", "latents")
# Acceptance that the step size of Hamiltonian trajectories is adapted to.
_TARGET = 0.8


@dataclass(frozen=True)
class State:
    """The present values of a chain.

    Attributes
    ----------
    x : ndarray of shape (N, D)
    views : tuple of ViewState
    step : float
        Of Hamiltonian trajectories.
    acceptance : dict of str to float
        Of the last sweep, by kernel.
    """

    x: Float64Array
    views: tuple[ViewState, ...]
    step: float = 0.05
    acceptance: dict[str, float] = field(default_factory=dict)

    def with_view(self, v: int, state: ViewState) -> State:
        """Return this state with other values of one view."""
        views = (*self.views[:v], state, *self.views[v + 1 :])
        return replace(self, views=views)


@dataclass(frozen=True)
class Model:
    """Views of shared latents, and how they are updated.

    Attributes
    ----------
    views : tuple of ViewModel
    n_components : int
        D.
    latent_kernel : {"sample", "map"}
    frequency_kernel : {"slice", "metropolis"}
    row_steps : int
        Updates of every row's latents per sweep.
    trajectories : int
        Hamiltonian trajectories of all latents per sweep.
    """

    views: tuple[ViewModel, ...]
    n_components: int
    latent_kernel: LatentKernel = "sample"
    frequency_kernel: Literal["slice", "metropolis"] = "slice"
    row_steps: int = 2
    trajectories: int = 1

    @property
    def n_rows(self) -> int:
        """N."""
        return int(self.views[0].data.values.shape[0])

    @property
    def free_blocks(self) -> list[list[int]]:
        """The dimensions that linear maps may mix: those that the same views see."""
        blocks: dict[tuple[bool, ...], list[int]] = {}
        for d in range(self.n_components):
            blocks.setdefault(tuple(d in view.dims for view in self.views), []).append(d)
        return list(blocks.values())

    def prior_state(self, rng: Generator) -> State:
        """Draw everything but the data from the prior."""
        x = rng.standard_normal((self.n_rows, self.n_components))
        states = [view.prior_state(rng, view.data.values.shape[1]) for view in self.views]
        return State(x, tuple(states))

    def log_joint(self, state: State) -> float:
        """Return the log density of data and state, up to a constant."""
        x = state.x
        of_views = [
            view.log_joint(s, x) for view, s in zip(self.views, state.views, strict=True)
        ]
        return float(sum(of_views) - 0.5 * np.square(x).sum())

    # -- blocks

    def update_mixture(self, state: State, keys: Keys) -> State:
        """Draw assignments and components of every view."""
        for v, view in enumerate(self.views):
            state = state.with_view(v, view.update_mixture(state.views[v], keys("mixture", v)))
        return state

    def update_concentration(self, state: State, keys: Keys) -> State:
        """Draw the concentration of every view."""
        for v, view in enumerate(self.views):
            rng = keys("concentration", v)
            state = state.with_view(v, view.update_concentration(state.views[v], rng))
        return state

    def update_frequencies(self, state: State, keys: Keys) -> State:
        """Update the frequencies of every view, with weights integrated out."""
        kernel = KERNELS[self.frequency_kernel]
        accepted = []
        for v, view in enumerate(self.views):
            rng = keys("frequencies", v)
            updated, moved = view.update_frequencies(state.views[v], state.x, kernel, rng)
            state = state.with_view(v, updated)
            accepted.append(moved)
        return _noted(state, "frequencies", accepted)

    def update_weights(self, state: State, keys: Keys) -> State:
        """Draw weights, variances and parameters of the likelihoods."""
        for v, view in enumerate(self.views):
            rng = keys("weights", v)
            state = state.with_view(v, view.update_weights(state.views[v], state.x, rng))
        return state

    def update_coordinates(self, state: State, keys: Keys) -> State:
        """Move latents and frequencies together so that no psi changes."""
        rng = keys("coordinates", 0)
        x, views = coordinates.translated(state.x, state.views, self.views, rng)
        for block in self.free_blocks:
            x, views = coordinates.stretched(x, views, self.views, block, rng)
        return replace(state, x=x, views=views)

    def update_latents(self, state: State, keys: Keys) -> State:
        """Draw the latents, or set them to their mode."""
        rng = keys("latents", 0)
        if self.latent_kernel == "map":
            x = latents.mode(state.x, self._objective(state))
            return self._with_weights(replace(state, x=x), keys)

        def rows(x: Float64Array, index: IntArray) -> Float64Array:
            pairs = zip(self.views, state.views, strict=True)
            of_views = [view.row_objective(s, x, index) for view, s in pairs]
            return np.asarray(np.sum(of_views, axis=0))

        x = latents.sample_rows(state.x, rows, rng, self.row_steps)
        completed = self._completed(replace(state, x=x), keys)
        objective = completed._objective(state)
        accepted = []
        for _ in range(self.trajectories):
            x, accepts = latents.hamiltonian(x, objective, state.step, rng)
            accepted.append(accepts)
        moved = _noted(replace(state, x=x), "latents", accepted)
        return completed._with_weights(moved, keys)

    def _completed(self, state: State, keys: Keys) -> Model:
        """Return the model of observed and drawn entries, where views draw missing ones."""
        pairs = zip(self.views, state.views, strict=True)
        views = [
            view.completed(s, state.x, keys("missing", v)) for v, (view, s) in enumerate(pairs)
        ]
        return replace(self, views=tuple(views))

    def _objective(self, state: State) -> latents.Objective:
        """Return the log likelihood of latents, and its gradient."""

        def objective(x: Float64Array) -> tuple[float, Float64Array]:
            pairs = zip(self.views, state.views, strict=True)
            of_views = [view.latent_objective(s, x) for view, s in pairs]
            return sum(v for v, _ in of_views), np.sum(
                [slope for _, slope in of_views], axis=0
            )

        return objective

    def _with_weights(self, state: State, keys: Keys) -> State:
        """Draw weights again that the density of the latents had integrated out."""
        for v, view in enumerate(self.views):
            rng = keys("redrawn weights", v)
            state = state.with_view(v, view.redraw_weights(state.views[v], state.x, rng))
        return state

    def sweep(
        self,
        state: State,
        seed: int,
        chain: int,
        index: int,
        order: Sequence[str] = BLOCKS,
    ) -> State:
        """Update every block once.

        Parameters
        ----------
        state : State
        seed, chain, index : int
            The key: with the number of the sweep it determines all randomness.
        order : sequence of str
            Of the blocks; any order leaves the posterior invariant.

        Returns
        -------
        State
        """
        updates: dict[str, Callable[[State, Keys], State]] = {
            "mixture": self.update_mixture,
            "concentration": self.update_concentration,
            "frequencies": self.update_frequencies,
            "weights": self.update_weights,
            "coordinates": self.update_coordinates,
            "latents": self.update_latents,
        }
        keys = Keys(seed, chain, index)
        for block in order:
            state = updates[block](state, keys)
        return state

    def adapt(self, state: State, index: int) -> State:
        """Return the state with a step size nearer to the wanted acceptance; during warm-up only.

        Notes
        -----
        Stochastic approximation of Robbins and Monro (1951), on the logarithm.
        """
        gain = (index + 10.0) ** -0.6
        change = gain * (state.acceptance.get("latents", _TARGET) - _TARGET)
        return replace(state, step=float(state.step * np.exp(4.0 * change)))


@dataclass(frozen=True)
class Keys:
    """Sources of randomness of one sweep.

    Attributes
    ----------
    seed, chain, index : int
    """

    seed: int
    chain: int
    index: int

    def __call__(self, purpose: str, view: int) -> Generator:
        """Return the source of one block of one view."""
        return source(self.seed, purpose, self.chain, self.index, view)


def _noted(state: State, kernel: str, accepted: list[float]) -> State:
    rate = float(np.mean(accepted)) if accepted else _TARGET
    return replace(state, acceptance={**state.acceptance, kernel: rate})
