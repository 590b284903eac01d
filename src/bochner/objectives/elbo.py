"""The evidence lower bound of a latent variable model, a pure function of model, data and draws."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bochner import random
from bochner._typing import Sampling
from bochner.models.lvm import LatentVariableModel
from bochner.models.mixture import kernel_kl
from bochner.objectives.collapsed import CHUNK_ROWS, Reduce, view_evidence
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
    """

    latents: Tensor
    spectra: tuple[Tensor, ...]


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
    """

    total: Tensor
    views: tuple[Tensor, ...]
    kl: Tensor


def draw(
    model: LatentVariableModel, n_frequencies: int, sampling: Sampling, seed: int, purpose: str, step: int
) -> Draws:
    """Draw the base noise keyed by (seed, purpose, step).

    The latents and each view have keys of their own, so that the order of the views does not matter.
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
    return Draws(latents, spectra)


def elbo(
    model: LatentVariableModel,
    data: Data,
    draws: Draws,
    *,
    chunk_rows: int = CHUNK_ROWS,
    reduce: Reduce | None = None,
) -> Bound:
    """Evaluate sum_v log p(Y^v | X, W_v) - KL(q(X) || p(X)) at one draw of (X, W).

    Its expectation over draws is a lower bound of log p(Y) (paper 000, Eq. 15; MATH.md section 2).

    Parameters
    ----------
    model : LatentVariableModel
    data : tuple over views of tuples of Block
    draws : Draws
    chunk_rows, reduce
        As in ``view_evidence``.

    Returns
    -------
    Bound
        Differentiable in the model's parameters.
    """
    x = model.latents.sample(draws.latents)
    views = tuple(
        view_evidence(
            x,
            view.kernel.frequencies(noise),
            view.likelihood.noise_variance,
            blocks,
            chunk_rows=chunk_rows,
            reduce=reduce,
        )
        for view, noise, blocks in zip(model.views, draws.spectra, data, strict=True)
    )
    kl = model.latents.kl() + sum(kernel_kl(view.kernel).to(x.device) for view in model.views)
    return Bound(torch.stack(views).sum() - kl, views, kl)
