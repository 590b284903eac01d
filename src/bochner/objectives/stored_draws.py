"""The bound at several draws of (X, W) of complete rows that are not in memory: they are read once
for all draws.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from bochner.data.stored import StoredMatrix
from bochner.kernels.base import Frequencies
from bochner.models.lvm import GaussianLatents, LatentVariableModel, View
from bochner.objectives.elbo import (
    PLAIN,
    Bound,
    Draws,
    Evaluation,
    gaussian_evidence,
    kl_of_all,
)
from bochner.random import RowNoise
from bochner.regression.evidence import evidence_of_draws
from bochner.regression.observations import (
    AllRows,
    Block,
    CompleteBlock,
    Data,
    Rows,
    blocks_with_holes,
    complete_blocks,
)


def elbos_of_stored(
    model: LatentVariableModel,
    noises: Sequence[RowNoise],
    data: Data,
    draws: Callable[[int], Draws],
    how: Evaluation = PLAIN,
) -> Iterator[Bound]:
    """Evaluate the bound of Gaussian views at several draws, within ``torch.no_grad``: the bits of
    ``elbo_at`` at each.

    Parameters
    ----------
    model, noises, data, draws, how
        As in ``elbos``.

    Yields
    ------
    Bound
        One per draw; what it takes of memory is gone with it.
    """
    spectra = [draws(i) for i in range(len(noises))]
    kl = kl_of_all(model, model.latents.kl(), how.processes)
    terms = [
        _terms(model.latents, v, view, blocks, noises, spectra, how)
        for v, (view, blocks) in enumerate(zip(model.views, data, strict=True))
    ]
    for values in zip(*terms, strict=True):
        yield _bound(model, kl, values)


def _bound(model: LatentVariableModel, kl: Tensor, values: tuple[Tensor, ...]) -> Bound:
    weights = tuple(view.weight for view in model.views)
    total = -kl
    for weight, value in zip(weights, values, strict=True):
        total = torch.add(total, value, alpha=weight)
    none = (None,) * len(values)
    return Bound(total, values, kl, none, (0.0,) * len(values), weights)


def _terms(
    latents: GaussianLatents,
    v: int,
    view: View,
    blocks: tuple[Block, ...],
    noises: Sequence[RowNoise],
    spectra: Sequence[Draws],
    how: Evaluation,
) -> list[Tensor]:
    """Return what a Gaussian view adds to the bound at each draw."""
    points = [view.frequencies(one.spectra[v]) for one in spectra]
    parts: list[list[Tensor]] = [[] for _ in noises]
    holes = blocks_with_holes(blocks)
    held = [block for block in complete_blocks(blocks) if not _reads_once(block, points, how)]
    if holes or held:
        for i, (noise, f) in enumerate(zip(noises, points, strict=True)):
            starts = spectra[i].starts
            x = view.see(latents.drawn(noise))
            value = gaussian_evidence(
                x,
                f,
                view.noise_variance,
                (*holes, *held),
                start=None if starts is None else starts[v],
                chunk_rows=how.chunk_rows,
                processes=how.processes,
            )
            parts[i].append(value)
    draws = [functools.partial(_drawn, latents, view, noise) for noise in noises]
    for block in complete_blocks(blocks):
        if _reads_once(block, points, how):
            values = evidence_of_draws(
                draws,
                points,
                view.noise_variance,
                block,
                dtype=latents.mean.dtype,
                chunk_rows=how.chunk_rows,
                processes=how.processes,
                sums=how.sums,
            )
            for part, value in zip(parts, values, strict=True):
                part.append(value)
    return [torch.stack(part).sum() if len(part) > 1 else part[0] for part in parts]


def _reads_once(block: CompleteBlock, points: Sequence[Frequencies], how: Evaluation) -> bool:
    """Return whether sums over rows are enough: few rows have a cheaper form."""
    few = points[0].n_features > block.n_rows and how.processes.size == 1
    return isinstance(block.Y, StoredMatrix) and not few


def _drawn(latents: GaussianLatents, view: View, noise: RowNoise, rows: Rows) -> Tensor:
    """Return the latents of some rows at a draw, as a view sees them."""
    if isinstance(rows, AllRows):
        return view.see(latents.drawn(noise, rows.cut))
    index = rows.numbers(len(latents.mean))
    if not len(index):
        return view.see(latents.drawn(noise, slice(0, 0)))
    around = slice(int(index[0]), int(index[-1]) + 1)
    return view.see(latents.drawn(noise, around)[index - around.start])
