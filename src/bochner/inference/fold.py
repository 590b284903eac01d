"""The folding start: more principal components than latents, folded away while a simple model is
trained.

Rows that overlap in the first D principal components cannot pass each other in D dimensions without
a loss, so that a start from those components ends torn. With a few more they can. The extra
dimensions shrink to nothing during the first part of a short training with isotropic RBF kernels
and few features: one lengthscale per view cannot undo the shrinking, and the rows settle in D
dimensions on the way. Where they end is partly chance: several tries, with different numbers of
extra dimensions, are trained in one batch, and the layout with the best bound is kept.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bochner.inference.simple import SimpleModels
from bochner.models.latent_layout import Layout
from bochner.objectives.elbo import Data

STEPS = 600
_TRIES = 4
_FOLDED_AT = 0.7


def fold(
    latents: Tensor,
    n_components: int | Sequence[int],
    data: Data,
    seed: int,
    n_steps: int = STEPS,
    layout: Layout | None = None,
    weights: Sequence[float] | None = None,
) -> Tensor:
    """Fold latents of more dimensions into fewer.

    Parameters
    ----------
    latents : Tensor of shape (N, E)
        Principal components, E > D, on the plan's device and in its precision.
    n_components : int, or sequence of int
        D, or which of the E dimensions stay. Tries begin with one, two, ... or all of the others,
        the first ones first, and around again; with a layout there is one, with all.
    data : tuple over views of tuples of Block
    seed : int
    n_steps : int
    layout : Layout, optional
        Which view sees which of the E dimensions; None: all see all.
    weights : sequence of float, optional
        Of the views; None: 1.

    Returns
    -------
    Tensor of shape (N, D)
    """
    kept = list(range(n_components)) if isinstance(n_components, int) else list(n_components)
    begins = _begins(latents, kept) if layout is None else torch.ones_like(latents[:1])
    models = SimpleModels(latents.expand(len(begins), -1, -1), data, layout, weights)
    models.settle(n_steps, seed, lambda progress: _shrink(begins, kept, progress))
    best = int(models.bounds(_shrink(begins, kept, 1.0), seed).argmax())
    return models.mean.detach()[best][:, kept]


def _begins(latents: Tensor, kept: list[int]) -> Tensor:
    """Return which dimensions each try begins with, (S, E): those that stay and one, two, ... of
    the others.
    """
    extra = [d for d in range(latents.shape[1]) if d not in kept]
    begins = latents.new_zeros(_TRIES, latents.shape[1])
    begins[:, kept] = 1.0
    for i in range(_TRIES):
        begins[i, extra[: i % len(extra) + 1]] = 1.0
    return begins


def _shrink(begins: Tensor, kept: list[int], progress: float) -> Tensor:
    """Factors of the dimensions: 1 for those that stay, falling from 1 to 0 for the others that a
    try has.
    """
    factors = begins * max(0.0, 1.0 - progress / _FOLDED_AT)
    factors[:, kept] = 1.0
    return factors
