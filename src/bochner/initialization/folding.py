"""Layouts of the latents, trained and compared under the simplest kernels; folds among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bochner.initialization.simple_models import SimpleModels
from bochner.models.spec import Layout
from bochner.regression.observations import Data

# Steps of a batch of layouts.
STEPS = 200
_TRIES = 3
_FOLDED_AT = 0.7


@dataclass(frozen=True)
class Settled:
    """Layouts after training under the simplest kernels.

    Attributes
    ----------
    latents : Tensor of shape (S, N, D)
    bounds : Tensor of shape (S,), float64
        Over draws that all share, in nats.
    """

    latents: Tensor
    bounds: Tensor


def settle(
    latents: Tensor,
    begins: Tensor,
    layout: Layout,
    wide: Layout,
    data: Data,
    seed: int,
    n_steps: int = STEPS,
    weights: Sequence[float] | None = None,
) -> Settled:
    """Train layouts together; dimensions that do not stay shrink to nothing on the way.

    Parameters
    ----------
    latents : Tensor of shape (S, N, E)
        E >= D, on the plan's device and in its precision.
    begins : Tensor of shape (S, E)
        1 for the dimensions that a layout begins with, 0 for others.
    layout, wide : Layout
        Of the D dimensions that stay and of all E.
    data : tuple over views of tuples of Block
    seed : int
    n_steps : int
    weights : sequence of float, optional
        Of the views; None: 1.

    Returns
    -------
    Settled
    """
    kept = wide.narrowed(layout)
    models = SimpleModels(latents, data, wide, weights)
    models.settle(n_steps, seed, lambda progress: _shrink(begins, kept, progress))
    bounds = models.bounds(_shrink(begins, kept, 1.0), seed)
    return Settled(models.mean[..., kept], bounds)


def fold(
    latents: Tensor,
    layout: Layout,
    wide: Layout,
    data: Data,
    seed: int,
    n_steps: int = STEPS,
    weights: Sequence[float] | None = None,
) -> Tensor:
    """Fold latents of more dimensions into fewer: the best of several tries.

    Parameters
    ----------
    latents : Tensor of shape (N, E)
        Principal components, E > D.
    layout, wide, data, seed, n_steps, weights
        As in `settle`.

    Returns
    -------
    Tensor of shape (N, D)
    """
    begins = tries(latents, layout, wide)
    several = latents.expand(len(begins), -1, -1)
    done = settle(several, begins, layout, wide, data, seed, n_steps, weights)
    return done.latents[int(done.bounds.argmax())]


def tries(latents: Tensor, layout: Layout, wide: Layout) -> Tensor:
    """Return which dimensions each try of a fold begins with, (S, E).

    Without private dimensions there are several tries, which begin with those that stay and one,
    two, ... or all of the others, the first ones first, and around again; with them there is one,
    with all.
    """
    if layout.has_private:
        return torch.ones_like(latents[:1])
    kept = wide.narrowed(layout)
    extra = [d for d in range(latents.shape[1]) if d not in kept]
    begins = latents.new_zeros(_TRIES, latents.shape[1])
    begins[:, kept] = 1.0
    for i in range(_TRIES):
        begins[i, extra[: i % len(extra) + 1]] = 1.0
    return begins


def _shrink(begins: Tensor, kept: list[int], progress: float) -> Tensor:
    """Factors of the dimensions: 1 for those that stay, falling from 1 to 0 for the others that a
    layout begins with.
    """
    factors = begins * max(0.0, 1.0 - progress / _FOLDED_AT)
    factors[:, kept] = 1.0
    return factors
