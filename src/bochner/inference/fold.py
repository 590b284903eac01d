"""The folding start: more principal components than latents, folded away while a simple model is trained.

Rows that overlap in the first D principal components cannot pass each other in D dimensions without a loss, so that a
start from those components ends torn. With a few more they can. The extra dimensions shrink to nothing during the
first part of a short training with isotropic RBF kernels and few features: one lengthscale per view cannot undo the
shrinking, and the rows settle in D dimensions on the way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from bochner.inference.initialise import model_from
from bochner.inference.train import Options, Trainer
from bochner.kernels.stationary import RBF
from bochner.models.layout import Layout
from bochner.objectives.collapsed import view_evidence
from bochner.objectives.elbo import Data, draw

STEPS = 1200
_FREQUENCIES = 32
_FOLDED_AT = 0.7
_LEARNING_RATE = 0.03


def fold(
    latents: Tensor,
    n_components: int | Sequence[int],
    names: tuple[str, ...],
    data: Data,
    seed: int,
    n_steps: int = STEPS,
    layout: Layout | None = None,
) -> Tensor:
    """Fold latents of more dimensions into fewer.

    Parameters
    ----------
    latents : Tensor of shape (N, E)
        Principal components, E > D, on the plan's device and in its precision.
    n_components : int, or sequence of int
        D, or which of the E dimensions stay.
    names : tuple of str
        Of the views.
    data : tuple over views of tuples of Block
    seed : int
    n_steps : int
    layout : Layout, optional
        Which view sees which of the E dimensions; None: all see all.

    Returns
    -------
    Tensor of shape (N, D)
    """
    kernels = [RBF() for _ in names]
    kept = list(range(n_components)) if isinstance(n_components, int) else list(n_components)
    start = latents.cpu().numpy()
    model = model_from(start, names, kernels, 1, seed, latents.dtype, latents.device, layout=layout)
    n_entries = sum(block.n_entries for blocks in data for block in blocks)

    def objective(step: int) -> Tensor:
        draws = draw(model, _FREQUENCIES, "sobol", seed, "fold", step)
        x = model.latents.sample(draws.latents) * _shrink(latents, kept, step / n_steps)
        parts = [
            view_evidence(view.see(x), view.kernel.frequencies(noise), view.noise_variance, blocks)
            for view, noise, blocks in zip(model.views, draws.spectra, data, strict=True)
        ]
        return torch.stack(parts).sum() - model.latents.kl()

    Trainer(model, objective, n_entries, Options(n_steps, _LEARNING_RATE, tol=-math.inf)).run()
    return model.latents.mean.detach()[:, kept]


def _shrink(latents: Tensor, kept: list[int], progress: float) -> Tensor:
    """Factors of the dimensions: 1 for those that stay, falling from 1 to 0 for the others."""
    extra = max(0.0, 1.0 - progress / _FOLDED_AT)
    factors = latents.new_full((latents.shape[1],), extra)
    factors[kept] = 1.0
    return factors
