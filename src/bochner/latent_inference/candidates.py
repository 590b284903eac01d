"""Where climbs begin: at places of training rows that explain a row best, and all around."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from bochner import random
from bochner.latent_inference.modes import Placement
from bochner.likelihoods.likelihood import Offsets
from bochner.weight_posterior.posterior import RowScores, ViewPosterior

# Beyond so many dimensions a row climbs from its best start alone: others are far behind it.
MANY_DIMENSIONS = 12
# Points of the prior, widened so far, for rows that no training row is near.
FEW_AROUND = 64
_WIDER = 1.5
# Which candidates are near those with these numbers, (n,) -> (n, C), bool.
Near = Callable[[Tensor], Tensor]


class Apart:
    """Chooses the best candidates of each row that are apart."""

    def __init__(self, candidates: Tensor) -> None:
        self._candidates = candidates

    @functools.cached_property
    def _near(self) -> Tensor:
        return _near(self._candidates)

    def __call__(self, scores: Tensor, count: int) -> Tensor:
        """Return their numbers, (n, R); overwrites the scores, (n, C)."""
        return best_apart(scores, lambda best: self._near[best], count)


def shifted(
    view: ViewPosterior, book: tuple[Tensor, Tensor], covariates: Tensor
) -> tuple[Tensor, Tensor]:
    """Return reconstructions at some covariates (1, L): their means; uncertainties stay."""
    if not covariates.shape[1]:
        return book
    effects = [
        (covariates[0] * draw.frequencies.linear) @ draw.mean[-covariates.shape[1] :]
        for draw in view.draws
    ]
    return book[0] + torch.stack(effects).mean(0), book[1]


def scores_at(views: Sequence[ViewPosterior], candidates: Tensor) -> list[RowScores]:
    """Return what scores rows at candidates, (C, D), view by view."""
    return [view.scores_at(*view.reconstructions(candidates)) for view in views]


def candidate_scores(
    at: Sequence[RowScores], rows: Sequence[Tensor], offsets: Offsets
) -> Tensor:
    """Return weighted E log p(y | x, A) of the observed entries at every candidate, (n, C), up to a
    constant.

    Parameters
    ----------
    at : sequence over views of callable
        ``scores_at`` the candidates.
    rows : sequence over views of Tensor of shape (n, M_v), float64
        Encoded.
    offsets : sequence over views of Tensor of shape (n,), or None
    """
    parts = [of(y, offset) for of, y, offset in zip(at, rows, offsets, strict=True)]
    return torch.stack(parts).sum(0) if len(parts) > 1 else parts[0]


def _near(candidates: Tensor) -> Tensor:
    """Mark the candidates that are near each other, (C, C): less than half of the spread of them
    all apart.
    """
    near: Tensor = (
        torch.cdist(candidates, candidates) < 0.5 * candidates.std(0, unbiased=False).norm()
    )
    return near


def near_each(points: Tensor, distance: float, n_asked: int) -> Near:
    """Return what tells which points, (P, D), are nearer to some of them than a distance; of so
    many of them it will be asked.
    """
    if n_asked < len(points):
        return lambda best: torch.cdist(points[best], points) < distance
    every = torch.cdist(points, points) < distance
    return lambda best: every[best]


def best_apart(scores: Tensor, near: Near, count: int) -> Tensor:
    """Return the best candidate of each row and the best ones that are far from those before, (n,
    count).

    Parameters
    ----------
    scores : Tensor of shape (n, C)
        Overwritten.
    near : callable
        Which candidates are near some.
    count : int
    """
    chosen = []
    for r in range(count):
        # several times as fast as torch's
        best = torch.from_numpy(scores.numpy().argmax(1))
        chosen.append(best)
        if r + 1 < count:
            scores.masked_fill_(near(best), -torch.inf)
    return torch.stack(chosen, dim=1)


def starts_around(dim: int, count: int = FEW_AROUND) -> Tensor:
    """Return where else than near training rows modes are looked for, (P, D)."""
    source = random.generator(0, "score/more starts")
    return _WIDER * random.normal(count, dim, source, "sobol")


def beginning(starts: Tensor, covariates: Tensor) -> Placement:
    """Return where climbs begin, (n, R, D), all alike."""
    eye = torch.eye(starts.shape[2], dtype=starts.dtype).expand(*starts.shape[:2], -1, -1)
    return Placement(starts, eye, torch.ones_like(starts[..., 0]), covariates)
