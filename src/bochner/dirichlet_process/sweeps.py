"""Block coordinate variational inference for kernels with a Dirichlet process: {z}, {v}, {alpha},
and mergers.

The latents, the kernels' hyperparameters and the noise are the gradient block, which the trainer
steps; the blocks here take their turn every few of its steps (Li et al. 2024b, sections 3.2 and 4;
docs/math.md, section 4).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import torch
from torch import Tensor

from bochner import random
from bochner._typing import Sampling
from bochner.dirichlet_process.local_expectations import replacement_gains, site_gains
from bochner.kernels.base import Frequencies
from bochner.kernels.dirichlet_process import DirichletProcessMixture
from bochner.models.dirichlet_posterior import (
    expected_log_weights,
    kernel_kl,
    merge_alike,
    rebirth,
    set_assignments,
    update_concentration,
    update_sticks,
)
from bochner.models.lvm import LatentVariableModel, NoSites, View
from bochner.models.sites import Sites
from bochner.objectives.elbo import Draws, draw, elbo
from bochner.regression.observations import Block, Data, encoded_block
from bochner.training.trainer import State

# (step, block, bound after it)
Record = tuple[int, str, float]
# view, its kernel, latents, base noise of its spectrum, data, generator -> (H, T)
Gains = Callable[
    [View, DirichletProcessMixture, Tensor, Tensor, tuple[Block, ...], torch.Generator],
    Tensor,
]

# Gradient steps between two sweeps over the other blocks.
SWEEP_EVERY = 10
# Largest step of q(z) in its natural parameters, and the mean divergence it may make at first: all
# points are told at once what each would add to the others as they are, so that long steps would
# send all of them to the same component.
_RATE = 0.2
_RADIUS = 0.05
# Sweeps after which the radius has halved, and its end.
_HALF_LIFE = 50
_LEAST_RADIUS = 0.005
# Draws of a component's frequency that a local expectation averages.
_CANDIDATES = 4
# The last sweep with births: what is born later would not have the time to settle.
_LAST_BIRTH = 60
# Sweeps between two attempts to merge components, and draws on which an attempt is judged.
_MERGE_EVERY = 5
_MERGE_DRAWS = 4


class MixtureSweep:
    """The blocks of a model whose kernels hold Dirichlet processes.

    Parameters
    ----------
    model : LatentVariableModel
    data : tuple over views of tuples of Block
    n_frequencies : int
        H.
    sampling : {"iid", "orthogonal", "sobol"}
    seed : int
    budget : float, optional
        As in ``draw``, for non-conjugate views.
    gains : callable, optional
        Estimates E[log p(Y | X, W) | z_l = k], as `local_gains` does.
    """

    def __init__(
        self,
        model: LatentVariableModel,
        data: Data,
        n_frequencies: int,
        sampling: Sampling,
        seed: int,
        budget: float | None = None,
        gains: Gains | None = None,
    ) -> None:
        self.budget = budget
        self.gains = gains or local_gains
        self.model = model
        self.data = data
        self.n_frequencies = n_frequencies
        self.sampling = sampling
        self.seed = seed
        self._views: tuple[int, Tensor] | None = None
        self.mixtures = mixtures(model)
        self.kernels = list(self.mixtures.values())
        self._blocks: tuple[tuple[str, Callable[[int], None]], ...] = (
            # what the trainer did since the last sweep
            ("gradient", lambda _: None),
            ("z", self._assign),
            ("merge", self._merge),
            ("birth", self._birth),
            # closed forms: the bound never falls
            ("v", lambda _: self._each(update_sticks)),
            ("alpha", lambda _: self._each(update_concentration)),
        )

    def sweep(self, step: int) -> list[Record]:
        """Update each block while the others stay, and return the bound after it, on draws that all
        of them share, so that what a block did shows.
        """
        records = []
        for name, update in self._blocks:
            update(step)
            records.append((step, name, self._bound(step)))
        return records

    def _each(self, update: Callable[[DirichletProcessMixture], None]) -> None:
        for kernel in self.kernels:
            update(kernel)

    def _draws(self, step: int) -> Draws:
        return draw(
            self.model,
            self.n_frequencies,
            self.sampling,
            self.seed,
            "blocks",
            step,
            self.budget,
        )

    @torch.no_grad()
    def _bound(self, step: int) -> float:
        """The sticks and the concentration change divergences alone: the likelihood is evaluated
        when z has moved.
        """
        if self._views is None or self._views[0] != step:
            bound = elbo(self.model, self.data, self._draws(step))
            self._views = step, bound.total + bound.kl
        costs = [kernel_kl(kernel) for kernel in self.kernels]
        return float(self._views[1] - self.model.latents.kl() - torch.stack(costs).sum())

    @torch.no_grad()
    def _assign(self, step: int) -> None:
        """Move q(z) towards its optimum.

        Sites stand for entries near where they were laid: what they promise of points elsewhere has
        to show.
        """
        promised = self.model.has_sites
        before = self._bound(step) if promised else -math.inf
        held = self._views
        old = [kernel.get_buffer("log_phi").clone() for kernel in self.kernels]
        self._step_assignments(step)
        self._views = None
        if promised and not self._bound(step) >= before:
            for kernel, log_phi in zip(self.kernels, old, strict=True):
                # to the last digit, as the bound that is kept with it
                kernel.get_buffer("log_phi").copy_(log_phi)
            self._views = held

    def _step_assignments(self, step: int) -> None:
        draws = self._draws(step)
        x = self.model.latents.sample(draws.latents)
        for v, kernel in self.mixtures.items():
            view = self.model.views[v]
            source = random.generator(self.seed, f"assign/{view.name}", step)
            given = (draws.spectra[v], self.data[v], source)
            gains = self.gains(view, kernel, view.see(x), *given)
            target = expected_log_weights(kernel) + view.weight * gains
            radius = max(_RADIUS / (1.0 + step / (_HALF_LIFE * SWEEP_EVERY)), _LEAST_RADIUS)
            moved = bounded_step(kernel.get_buffer("log_phi"), target, _RATE, radius)
            set_assignments(kernel, moved)

    @torch.no_grad()
    def _merge(self, step: int) -> None:
        """Make one component of two that are alike, where the bound is higher for it; another pair
        each time.
        """
        if step % (SWEEP_EVERY * _MERGE_EVERY):
            return
        for kernel in self.kernels:
            before = {name: value.clone() for name, value in kernel.state_dict().items()}
            value = self._merge_bounds(step)
            if merge_alike(kernel, step // (SWEEP_EVERY * _MERGE_EVERY)):
                if float((self._merge_bounds(step) - value).mean()) <= 0:
                    kernel.load_state_dict(before)
                self._views = None

    @torch.no_grad()
    def _birth(self, step: int) -> None:
        """Put components that nobody uses elsewhere: a peak of the spectrum far from all of them
        would stay unseen.
        """
        if step % (SWEEP_EVERY * _MERGE_EVERY) or step > _LAST_BIRTH * SWEEP_EVERY:
            return
        for v, kernel in self.mixtures.items():
            name = self.model.views[v].name
            rebirth(kernel, random.generator(self.seed, f"birth/{name}", step))
        self._views = None

    def _merge_bounds(self, step: int) -> Tensor:
        """The bound on draws that a merger and what it replaces share."""
        draws = [self._draws(step + i + 1) for i in range(_MERGE_DRAWS)]
        return torch.stack([elbo(self.model, self.data, d).total for d in draws])


def bounded_step(log_phi: Tensor, target: Tensor, rate: float, radius: float) -> Tensor:
    """Return q(z) after a step towards its optimum in natural parameters, halved until it stays
    within a radius.

    Parameters
    ----------
    log_phi : Tensor of shape (H, T)
    target : Tensor of shape (H, T)
        E[log p(Y, z_l = k)], up to a number for each l: the optimum is its softmax. Not finite:
        that q(z_l) stays.
    rate : float
        1 is the whole way.
    radius : float
        Mean KL of the new q(z_l) from the old, nats.

    Returns
    -------
    Tensor of shape (H, T)
        Log-probabilities.
    """
    target = torch.where(
        target.isfinite().all(1, keepdim=True), target.log_softmax(1), log_phi
    )
    while True:
        moved = torch.lerp(log_phi, target, rate).log_softmax(1)
        if float((moved.exp() * (moved - log_phi)).sum(1).mean()) <= radius:
            return moved
        rate *= 0.5


def local_gains(
    view: View,
    kernel: DirichletProcessMixture,
    x: Tensor,
    noise: Tensor,
    blocks: tuple[Block, ...],
    source: torch.Generator,
) -> Tensor:
    """Return E[log p(Y | X, W) | z_l = k], up to a number for each l, shape (H, T)."""
    current = view.frequencies(noise)
    eps = random.normal(_CANDIDATES, kernel.means.shape[1], source, "sobol").to(kernel.means)
    w = kernel.means[:, None, :] + kernel.log_scales.exp()[:, None, :] * eps
    candidates = Frequencies(
        w.flatten(0, 1), None, current.amplitude[:1].expand(w.shape[0] * w.shape[1])
    )
    gains = _gains(view.sites, view, x, current, candidates, blocks)
    return gains.reshape(kernel.truncation, _CANDIDATES, -1).mean(1).T


@functools.singledispatch
def _gains(
    sites: Sites | NoSites,  # noqa: ARG001 - says of what kind the view is
    view: View,
    x: Tensor,
    current: Frequencies,
    candidates: Frequencies,
    blocks: tuple[Block, ...],
) -> Tensor:
    """Return what candidates gain in the place of points, (C, H)."""
    return replacement_gains(x, current, candidates, view.noise_variance, blocks)


@_gains.register
def _(
    sites: Sites,
    view: View,  # noqa: ARG001 - sites hold all that is needed
    x: Tensor,
    current: Frequencies,
    candidates: Frequencies,
    blocks: tuple[Block, ...],
) -> Tensor:
    return site_gains(x, current, candidates, sites, encoded_block(blocks))


def mixtures(model: LatentVariableModel) -> dict[int, DirichletProcessMixture]:
    """Return the kernels with Dirichlet processes, by the number of their view."""
    kernels = enumerate(view.kernel for view in model.views)
    return {v: kernel for v, kernel in kernels if isinstance(kernel, DirichletProcessMixture)}


def sweeps(
    model: LatentVariableModel,
    data: Data,
    n_frequencies: int,
    sampling: Sampling,
    seed: int,
    budget: float | None = None,
    gains: Gains | None = None,
) -> Callable[[State], None] | None:
    """Return what a trainer calls between its steps; None for a model without blocks of this
    kind.
    """
    if not mixtures(model):
        return None
    blocks = MixtureSweep(model, data, n_frequencies, sampling, seed, budget, gains)

    def between(state: State) -> None:
        if state.step % SWEEP_EVERY == 0:
            state.blocks += blocks.sweep(state.step)

    return between
