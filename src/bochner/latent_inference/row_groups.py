"""What is given of rows that are placed, and which of them are placed in one call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bochner.likelihoods.likelihood import offsets_of
from bochner.weight_posterior.posterior import NonConjugatePosterior, ViewPosterior

# Rows whose pattern of observed columns is their own are solved with one quadratic form each, in
# smaller chunks; less small ones where the forms stay factored.
_SINGLE_CHUNK = 64
_FACTORED_CHUNK = 256
# So many rows that observe the same columns are worth a call of their own, with one form of all.
_OWN_CALL = 8

Offsets = Sequence[Tensor | None]


@dataclass(frozen=True)
class Given:
    """What is given of rows.

    Attributes
    ----------
    rows : sequence over views of Tensor of shape (n, M_v)
        Encoded.
    offsets : sequence over views of Tensor of shape (n,), or None
    beside : Tensor of shape (n, L)
        Covariates.
    """

    rows: Sequence[Tensor]
    offsets: Offsets
    beside: Tensor

    def of(self, index: Tensor) -> Given:
        """Return that of some rows."""
        if len(index) == len(self.beside) and torch.equal(index, torch.arange(len(index))):
            return self
        rows = [y[index] for y in self.rows]
        return Given(rows, offsets_of(self.offsets, index), self.beside[index])


def groups_of_rows(
    views: Sequence[ViewPosterior],
    rows: Sequence[Tensor],
    dim: int,
    most: int,
    apart: bool,
) -> Iterator[tuple[Tensor, bool]]:
    """Yield row indices in chunks that share a pattern of observed columns, then those with a
    pattern of their own; or, apart, of rows that have anything, each pattern by itself.

    Non-conjugate views treat every entry by itself: of them it matters whether there is
    anything at all.
    """
    masks = [~y.isnan() for y in rows]
    by_entry = apart and all(isinstance(view, NonConjugatePosterior) for view in views)
    if by_entry or all(bool(mask.all()) for mask in masks):
        yield from (
            (chunk, True) for chunk in torch.split(torch.arange(rows[0].shape[0]), most)
        )
        return
    observed = torch.cat(
        [view.pattern(m) for view, m in zip(views, masks, strict=True)], dim=1
    )
    patterns, inverse, counts = torch.unique(
        observed, dim=0, return_inverse=True, return_counts=True
    )
    factored = all(view.stays_factored(dim) for view in views)
    # without matrices of their own rows need no call of their own either
    several = patterns.shape[0] > 1 and not apart
    enough = (_SINGLE_CHUNK if factored else _OWN_CALL) if several else 1
    single: list[Tensor] = []
    for p in range(patterns.shape[0]):
        if not bool(patterns[p].any()):
            continue
        index = (inverse == p).nonzero()[:, 0]
        if int(counts[p]) < enough:
            single.append(index)
        else:
            yield from ((chunk, True) for chunk in torch.split(index, most))
    if single:
        size = _FACTORED_CHUNK if factored else _SINGLE_CHUNK
        yield from (
            (chunk, False)
            for chunk in torch.split(torch.cat(single), min(size, max(most, _SINGLE_CHUNK)))
        )
