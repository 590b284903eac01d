"""What draws of the latents say about the weights of columns with scattered holes.

Means are exact. Covariances are exact where features are few; otherwise columns with similar holes
share the average of some: K^2 numbers for each of a thousand pixels would take gigabytes and tell
pixels apart by a few per cent. With 5 to 20 % of a table of 300 rows and 20 columns hidden,
standard deviations of the hidden entries fall by 1 %, 90 % intervals hold the same share to 0.4 %,
and a density takes a fifth of the time.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from bochner.features.fourier import evaluate
from bochner.kernels.base import Frequencies
from bochner.linalg import cholesky
from bochner.memory import chunks
from bochner.processes import ALONE, Processes
from bochner.regression.conjugate_gradients import weights_from
from bochner.regression.incomplete import Sample
from bochner.regression.observations import BlockWithHoles, IncompleteBlock
from bochner.regression.streamed import Passes, condition_streamed
from bochner.regression.weighted_grams import weighted_grams

# Numbers in the covariances of a draw up to which every column has its own; columns averaged by a
# group otherwise.
_UNGROUPED_NUMBERS = 2**18
_AVERAGED = 32
# Numbers in the entries that are held at a time, and columns factored at a time.
_ENTRIES = 2**24
_AT_ONCE = 16
# Twice the nats that a column's mean may cost.
_TOLERANCE = 1e-10


def groups_of(block: BlockWithHoles, n_features: int) -> Tensor:
    """Return the number of the covariance of every column, (m,), int64: its own where there are few
    numbers, its group's elsewhere.
    """
    m = block.n_columns
    if m * n_features**2 <= _UNGROUPED_NUMBERS:
        return torch.arange(m)
    return torch.repeat_interleave(torch.arange(len(block.sizes)), torch.tensor(block.sizes))


@functools.singledispatch
def condition_with_holes(
    block: BlockWithHoles,
    f: Frequencies,
    latents: list[Tensor],
    noise_variance: float,
    processes: Processes = ALONE,
) -> tuple[Tensor, Tensor]:
    """Return what `condition_incomplete` does, in passes over rows that are not in memory or belong
    to several processes.
    """
    f = f.to(latents[0].dtype)
    rows = Passes(block, latents, f, torch.float64, processes=processes)
    groups = groups_of(block, f.n_features)
    return condition_streamed(rows, noise_variance, groups, _AVERAGED, _TOLERANCE)


_in_passes = condition_with_holes.dispatch(BlockWithHoles)


@condition_with_holes.register
def _(
    block: IncompleteBlock,
    f: Frequencies,
    latents: list[Tensor],
    noise_variance: float,
    processes: Processes = ALONE,
) -> tuple[Tensor, Tensor]:
    if processes.size > 1:
        return _in_passes(block, f, latents, noise_variance, processes)
    return condition_incomplete(f, block, latents, noise_variance)


def condition_incomplete(
    f: Frequencies,
    block: IncompleteBlock,
    latents: list[Tensor],
    noise_variance: float,
    most: int = _ENTRIES,
) -> tuple[Tensor, Tensor]:
    """Return means and covariances of the weights, averaged over draws of X as the bound is.

    Parameters
    ----------
    f : Frequencies
    block : IncompleteBlock
    latents : list of Tensor of shape (N, D)
    noise_variance : float
    most : int
        Entries that are held at a time.

    Returns
    -------
    mean : Tensor of shape (K, m), float64
    covariance : Tensor of shape (groups, K, K), float64
        B^-1 = cov A / sigma^2, in the order of `groups_of`.
    """
    at_rows = [block.rows.take(x) for x in latents]
    features = evaluate(torch.cat(at_rows), f.to(latents[0].dtype)).features
    mean = _means(features.double(), block, len(latents), noise_variance, most)
    return mean.cpu(), _covariances(features, block, len(latents), noise_variance).cpu()


def _means(
    features: Tensor, block: IncompleteBlock, times: int, s2: float, most: int
) -> Tensor:
    """Every row once per draw of X, each with its share of the weight; some columns at a time."""
    out = features.new_empty(features.shape[0], block.n_columns)
    share = 1.0 / (times * s2)
    ends = torch.tensor(block.sizes).cumsum(0).tolist()
    for end, size in zip(ends, block.sizes, strict=True):
        for part in chunks(size, max(1, most // features.shape[1])):
            place = slice(end - size + part.start, end - size + part.stop)
            values = block.values()[:, place].double()
            precision = (~values.isnan()).double().mul_(share).repeat(times, 1)
            tol = values.new_full((values.shape[1],), _TOLERANCE)
            shift = torch.nan_to_num(values).mul_(share).repeat(times, 1)
            out[:, place] = weights_from(
                features, precision, shift, (part.stop - part.start,), tol
            ).mean
    return out


def _covariances(features: Tensor, block: IncompleteBlock, times: int, s2: float) -> Tensor:
    k = features.shape[0]
    groups = groups_of(block, features.shape[0])
    mask = block.observed.to(features.dtype)
    n_groups = int(groups.max()) + 1
    out = torch.zeros(n_groups, k, k, dtype=torch.float64, device=features.device)
    for g in range(n_groups):
        members = (groups == g).nonzero()[:, 0]
        chosen = members[Sample(_AVERAGED, 0.5).of(len(members), members.device)[0]].to(
            mask.device
        )
        for part in torch.split(chosen, _AT_ONCE):
            weights = mask[:, part].repeat(times, 1)
            gram = _shifted(features, weights, times, s2)

            def exact(weights: Tensor = weights) -> Tensor:
                # little noise is lost in products of single precision
                return _shifted(features.double(), weights.double(), times, s2)

            out[g] += cholesky(gram, exact).inverse().sum(0) / len(chosen)
    return out


def _shifted(features: Tensor, weights: Tensor, times: int, s2: float) -> Tensor:
    """Return Phi diag(w_m) Phi^T / times + sigma^2 I of some columns, (m, K, K)."""
    gram = weighted_grams(features, weights) / times
    gram.diagonal(dim1=-2, dim2=-1).add_(s2)
    return gram
