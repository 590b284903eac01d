"""Kept draws of all chains in one coordinate system.

The posterior does not change when latents and frequencies are rotated or reflected together.
Each draw is turned so that its latents lie nearest to those of the first kept draw.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bochner.data.arrays import Float64Array
from bochner.mcmc.chain import Chain
from bochner.mcmc.conditionals.latents import align
from bochner.mcmc.conditionals.mixture import Components
from bochner.mcmc.model import Model, State


def rotation(
    x: Float64Array, reference: Float64Array, blocks: Sequence[Sequence[int]]
) -> Float64Array:
    """Return the orthogonal matrix, (D, D), that brings x nearest to the reference without mixing
    blocks.
    """
    out = np.zeros((x.shape[1], x.shape[1]))
    for block in blocks:
        index = list(block)
        out[np.ix_(index, index)] = align(x[:, index], reference[:, index])
    return out


def rotated(model: Model, state: State, turn: Float64Array) -> State:
    """Return a state in other coordinates."""
    views = []
    for view, of_view in zip(model.views, state.views, strict=True):
        part = turn[np.ix_(list(view.dims), list(view.dims))]
        components = Components(
            of_view.components.means @ part, part.T @ of_view.components.covariances @ part
        )
        views.append(replace(of_view, points=of_view.points @ part, components=components))
    return replace(state, x=state.x @ turn, views=tuple(views))


def aligned(model: Model, chains: Sequence[Chain]) -> tuple[Chain, ...]:
    """Return the chains with every kept draw in the coordinates of the first one's first draw.

    Parameters
    ----------
    model : Model
    chains : sequence of Chain
        Each with a draw.

    Returns
    -------
    tuple of Chain
    """
    blocks = model.free_blocks
    reference = chains[0].traces["latents"][0]
    return tuple(_aligned(model, chain, reference, blocks) for chain in chains)


def _aligned(
    model: Model, chain: Chain, reference: Float64Array, blocks: list[list[int]]
) -> Chain:
    turns = np.stack([rotation(x, reference, blocks) for x in chain.traces["latents"]])
    traces = {**chain.traces, "latents": chain.traces["latents"] @ turns}
    for view in model.views:
        part = turns[:, list(view.dims)][:, :, list(view.dims)]
        traces[f"{view.name}.points"] = chain.traces[f"{view.name}.points"] @ part
    snapshots = [(n, rotated(model, state, turns[n])) for n, state in chain.snapshots]
    state = rotated(model, chain.state, rotation(chain.state.x, reference, blocks))
    return replace(chain, state=state, traces=traces, snapshots=tuple(snapshots))
