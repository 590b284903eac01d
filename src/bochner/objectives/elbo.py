"""The evidence lower bound of a latent variable model, a pure function of model, data and draws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from bochner import random
from bochner._typing import Sampling
from bochner.likelihoods.base import LocalLikelihood
from bochner.models.lvm import LatentVariableModel, View
from bochner.models.mixture import kernel_kl
from bochner.models.sites import SiteUpdate, column_batch
from bochner.objectives.collapsed import CHUNK_ROWS, Reduce, view_evidence
from bochner.objectives.local import local_evidence
from bochner.objectives.statistics import Block

Data = tuple[tuple[Block, ...], ...]


@dataclass(frozen=True)
class Draws:
    """Base noise of one evaluation.

    Attributes
    ----------
    latents : Tensor of shape (N, D)
    spectra : tuple of Tensor of shape (Q, H, columns)
        One per view.
    columns : tuple of Tensor of shape (m,), int64, or None
        The mini-batch of columns of each view; None means all.
    """

    latents: Tensor
    spectra: tuple[Tensor, ...]
    columns: tuple[Tensor | None, ...] | None = None


@dataclass(frozen=True)
class Bound:
    """A stochastic value of the bound.

    Attributes
    ----------
    total : Tensor, scalar float64
        sum(views) - kl, in nats, for scaled data.
    views : tuple of Tensor
        log p(Y_v | X, W_v).
    kl : Tensor
        KL(q(X) || p(X)), and of the kernels' own posteriors where they have one.
    updates : tuple of SiteUpdate or None
        What views that are not Gaussian ask of their sites.
    slack : Tensor or float
        Of their bounds: total + slack is a bound as well, by which training and starts are judged.
    """

    total: Tensor
    views: tuple[Tensor, ...]
    kl: Tensor
    updates: tuple[SiteUpdate | None, ...] = ()
    slack: Tensor | float = 0.0

    @property
    def judged(self) -> Tensor:
        """Total plus slack, with the gradient of the total."""
        return self.total + self.slack


def draw(
    model: LatentVariableModel,
    n_frequencies: int,
    sampling: Sampling,
    seed: int,
    purpose: str,
    step: int,
    budget: float | None = None,
) -> Draws:
    """Draw the base noise keyed by (seed, purpose, step).

    The latents and each view have keys of their own, so that the order of the views does not matter. With a budget,
    multiplications of one product of features and columns, views that are not Gaussian draw columns as well.
    """
    mean = model.latents.mean
    latents = random.row_noise(
        mean.shape[0], mean.shape[1], seed, f"{purpose}/latents", step, dtype=mean.dtype, device=mean.device
    )
    spectra = tuple(
        view.kernel.noise(
            n_frequencies,
            model.n_components,
            random.generator(seed, f"{purpose}/spectrum/{view.name}", step, device=mean.device),
            sampling,
        )
        for view in model.views
    )
    columns = (
        None
        if budget is None
        else tuple(
            _columns(view, spectrum, budget, seed, purpose, step)
            for view, spectrum in zip(model.views, spectra, strict=True)
        )
    )
    return Draws(latents, spectra, columns)


def _columns(view: View, spectrum: Tensor, budget: float, seed: int, purpose: str, step: int) -> Tensor | None:
    if view.sites is None:
        return None
    (n, m), k = view.sites.pull.shape, 2 * spectrum.shape[0] * spectrum.shape[1]
    size = column_batch(n, m, k, budget)
    if size == m:
        return None
    device = view.sites.pull.device
    source = random.generator(seed, f"{purpose}/columns/{view.name}", step, device=device)
    return torch.randperm(m, generator=source, device=device)[:size]


def elbo(
    model: LatentVariableModel,
    data: Data,
    draws: Draws,
    *,
    chunk_rows: int = CHUNK_ROWS,
    reduce: Reduce | None = None,
    n_sweeps: int = 1,
) -> Bound:
    """Evaluate sum_v log p(Y^v | X, W_v) - KL(q(X) || p(X)) at one draw of (X, W).

    Its expectation over draws is a lower bound of log p(Y) (paper 000, Eq. 15; MATH.md section 2).

    Parameters
    ----------
    model : LatentVariableModel
    data : tuple over views of tuples of Block
    draws : Draws
    chunk_rows, reduce
        As in ``view_evidence``, of Gaussian views.
    n_sweeps : int
        As in ``local_evidence``, of the others.

    Returns
    -------
    Bound
        Differentiable in the model's parameters.
    """
    x = model.latents.sample(draws.latents)
    values: list[Tensor] = []
    updates: list[SiteUpdate | None] = []
    slack: Tensor | float = 0.0
    chosen = draws.columns or (None,) * len(model.views)
    for view, noise, blocks, columns in zip(model.views, draws.spectra, data, chosen, strict=True):
        f = view.kernel.frequencies(noise)
        if view.sites is None:
            s2 = view.noise_variance
            values.append(view_evidence(x, f, s2, blocks, chunk_rows=chunk_rows, reduce=reduce))
            updates.append(None)
        else:
            likelihood = cast(LocalLikelihood, view.likelihood)
            local = local_evidence(x, f, likelihood, view.sites, blocks[0], columns=columns, n_sweeps=n_sweeps)
            values.append(local.value)
            updates.append(local.update)
            slack = slack + local.slack
    kl = model.latents.kl() + sum(kernel_kl(view.kernel).to(x.device) for view in model.views)
    return Bound(torch.stack(values).sum() - kl, tuple(values), kl, tuple(updates), slack)


def regroup(model: LatentVariableModel) -> None:
    """Group the columns of views that are not Gaussian anew."""
    for view in model.views:
        if view.sites is not None:
            view.sites.regroup()


def absorb(model: LatentVariableModel, bound: Bound) -> None:
    """Put the sites that a finite bound asks for in place."""
    if not bool(torch.isfinite(bound.total)):
        return
    for view, update in zip(model.views, bound.updates, strict=True):
        if view.sites is not None and update is not None:
            view.sites.absorb(update)
