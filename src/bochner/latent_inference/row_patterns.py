"""Rows that are placed together: those that observe the same columns, and the others in chunks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from bochner.latent_inference.quadratic_forms import stays_factored
from bochner.weight_posterior.posterior import ViewPosterior

_CHUNK = 1024
# Rows whose pattern of observed columns is their own are solved with one quadratic form each, in
# smaller chunks; less small ones where the forms stay factored.
_OWN_CHUNK, _FACTORED_CHUNK = 64, 256
# Numbers of one dense array of views that are not Gaussian.
_NUMBERS = 2**21


def rows_at_once(views: Sequence[ViewPosterior], slopes: int) -> int:
    """Return how many rows to place at once: the slopes of every psi along every dimension and mode
    are dense.
    """
    width = slopes * sum(view.n_columns for view in views if view.local is not None)
    return max(1, min(_CHUNK, _NUMBERS // max(width, 1)))


def groups_of_rows(
    views: Sequence[ViewPosterior], rows: Sequence[Tensor], dim: int, most: int
) -> Iterator[tuple[Tensor, bool]]:
    """Yield row indices in chunks that share a pattern of observed columns, then those with a
    pattern of their own.

    Views that are not Gaussian treat every entry by itself: of them it matters whether there is
    anything at all.
    """
    masks = [~y.isnan() for y in rows]
    if all(bool(mask.all()) for mask in masks):
        yield from ((chunk, True) for chunk in torch.split(torch.arange(rows[0].shape[0]), most))
        return
    seen = torch.cat(
        [
            m if view.local is None else m.any(1, keepdim=True)
            for view, m in zip(views, masks, strict=True)
        ],
        dim=1,
    )
    patterns, inverse, counts = torch.unique(seen, dim=0, return_inverse=True, return_counts=True)
    own: list[Tensor] = []
    for p in range(patterns.shape[0]):
        if not bool(patterns[p].any()):
            continue
        index = (inverse == p).nonzero()[:, 0]
        if int(counts[p]) < _OWN_CHUNK and patterns.shape[0] > _OWN_CHUNK:
            own.append(index)
        else:
            yield from ((chunk, True) for chunk in torch.split(index, most))
    if own:
        factored = all(view.local is not None or stays_factored(view, dim) for view in views)
        size = _FACTORED_CHUNK if factored else _OWN_CHUNK
        yield from (
            (chunk, False)
            for chunk in torch.split(torch.cat(own), min(size, max(most, _OWN_CHUNK)))
        )
