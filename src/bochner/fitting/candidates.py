"""Starts before their race: embeddings and folds, trained together under the simplest kernels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bochner.fitting.data import TrainingData
from bochner.fitting.plan import Plan, Start
from bochner.fitting.svd_compression import narrowed
from bochner.initialization.build import FloatArray, components, folded, start
from bochner.initialization.folding import STEPS, settle, tries
from bochner.initialization.shared_private import split_start, wide_start
from bochner.models.spec import Layout

# Dimensions that a fold begins with beyond D, at the most.
_EXTRA = 3
# And so many shared ones, and of every view that has private ones, with those.
_EXTRA_PRIVATE = 2
# Leading columns of a complete view tell layouts apart as well as all of them do: on MNIST the
# order of four starts is the same with 48 as with 132.
_COLUMNS = 48


@dataclass(frozen=True)
class Candidate:
    """Where a start begins.

    Attributes
    ----------
    index : int
        Among the plan's starts.
    name : str
    latents : ndarray of shape (N, D)
    bound : float
        Under the simplest kernels, in nats; 0 where there is nothing to compare with.
    settled : bool
        Whether the latents are those after training under the simplest kernels.
    """

    index: int
    name: str
    latents: FloatArray
    bound: float = 0.0
    settled: bool = False


@dataclass(frozen=True)
class _Try:
    """One layout of a batch.

    Attributes
    ----------
    index : int
        Of the start that it belongs to.
    latents : Tensor of shape (N, E)
    begins : Tensor of shape (E,)
        1 for the dimensions that it begins with, 0 for others.
    """

    index: int
    latents: Tensor
    begins: Tensor


def candidates(data: TrainingData, plan: Plan) -> list[Candidate]:
    """Compute every start of a plan, in their order.

    Several starts, and folds, are trained together under the simplest kernels first, which tells
    which are good. Folds go on from there. Embeddings that "auto" tries go on from there and from
    where they were: the simplest kernels smooth away what t-SNE knows of clusters (1,000 digits of
    MNIST end 5,500 nats lower from there) and mend what it tears (oil ends 400 nats higher).
    """
    names = [origin if isinstance(origin, str) else "array" for origin in plan.starts]
    if names != ["fold"] and len(names) == 1:
        return [Candidate(0, names[0], _embedded(data, plan, 0, plan.starts[0]))]
    wide, batch = _batch(data, plan, names)
    done = settle(
        torch.stack([one.latents for one in batch]),
        torch.stack([one.begins for one in batch]),
        plan.spec.layout,
        wide,
        narrowed(data.start_blocks, _COLUMNS),
        plan.seed,
        min(STEPS, plan.training.max_iter),
        plan.spec.weights,
    )
    kept = wide.narrowed(plan.spec.layout)
    out = []
    for index, (name, origin) in enumerate(zip(names, plan.starts, strict=True)):
        best = _best(batch, index, done.bounds)
        bound = float(done.bounds[best])
        settled = folded(done.latents[best].double().cpu().numpy(), plan.seed + index)
        as_it_was = batch[best].latents[:, kept].double().cpu().numpy()
        if name != "fold":
            given = as_it_was if isinstance(origin, str) else origin
            out.append(Candidate(index, name, given, bound))
        if name == "fold" or plan.margin < math.inf:
            out.append(Candidate(index, name, settled, bound, settled=True))
    return out


def _best(batch: Sequence[_Try], index: int, bounds: Tensor) -> int:
    """Return which layout of the batch a start is best represented by."""
    numbers = [i for i, one in enumerate(batch) if one.index == index]
    return max(numbers, key=lambda i: float(bounds[i]))


def _batch(data: TrainingData, plan: Plan, names: Sequence[str]) -> tuple[Layout, list[_Try]]:
    """Return all layouts of all starts among E dimensions, and what views see of those."""
    layout = plan.spec.layout
    first, wide = _wide(data, plan) if "fold" in names else (None, layout)
    kept = wide.narrowed(layout)
    blank = torch.zeros(data.n_rows, wide.n_components, dtype=plan.dtype, device=plan.device)
    batch = []
    for index, origin in enumerate(plan.starts):
        if names[index] == "fold":
            latents = torch.as_tensor(first).to(blank)
            batch += [_Try(index, latents, own) for own in tries(latents, layout, wide)]
        else:
            latents = blank.clone()
            latents[:, kept] = torch.as_tensor(_embedded(data, plan, index, origin)).to(blank)
            begins = torch.zeros_like(latents[0])
            begins[kept] = 1.0
            batch.append(_Try(index, latents, begins))
    return wide, batch


def _wide(data: TrainingData, plan: Plan) -> tuple[FloatArray, Layout]:
    """Return what folds begin with: more dimensions than stay."""
    layout = plan.spec.layout
    if layout.has_private:
        return wide_start(data.by_view, layout, _EXTRA_PRIVATE, plan.seed)
    wide = replace(layout, shared=layout.shared + _EXTRA)
    return components(data.filled, wide.n_components, plan.seed), wide


def _embedded(data: TrainingData, plan: Plan, index: int, origin: Start) -> FloatArray:
    """Return the latents of a start that does not fold."""
    if not isinstance(origin, str):
        return origin
    seed = plan.seed + index
    layout = plan.spec.layout
    if layout.has_private:
        return split_start(origin, data.by_view, layout, seed)
    return start(origin, data.filled, layout.n_components, seed)
