"""Rows that lie further from what their place predicts than noise puts them.

Where noise is small the density of a row over its latent is a few narrow peaks, and the best of
them may lie between all places that a search begins at. A row at another peak shows it: its entries
are many standard deviations from what is predicted there.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor

from bochner.latent_inference.row_bound import rows_at_once
from bochner.likelihoods.likelihood import Offsets, offsets_of
from bochner.memory import chunks
from bochner.weight_posterior.posterior import (
    GaussianPosterior,
    NonConjugatePosterior,
    ViewPosterior,
)

# Rows beyond this excess look for another place.
MISSED = 6.0
# Noise of this share of a view's variance, and less, leaves peaks that a search may miss: with
# standard deviations of 0.01, 0.05 and 0.1 5 to 20, 1 and 0.1 rows in a hundred were at another.
_SMALL_NOISE = 0.02
# More combinations of the views' draws are not visited: the draws of all views are paired instead.
_COMBINATIONS = 12

T = TypeVar("T")


def combinations(by_draw: Sequence[Sequence[T]]) -> list[tuple[T, ...]]:
    """Return one of every view's draws: every combination, or the first of all, the second of all
    and so on where there are many.

    Parameters
    ----------
    by_draw : sequence over views of sequences over draws
        What each draw stands for.
    """
    counts = [len(of_view) for of_view in by_draw]
    if math.prod(counts) <= _COMBINATIONS:
        return list(itertools.product(*by_draw))
    return [
        tuple(of_view[s % count] for of_view, count in zip(by_draw, counts, strict=True))
        for s in range(max(counts))
    ]


def peaked(views: Sequence[ViewPosterior]) -> bool:
    """Return whether curvature grows with e^psi: posteriors are narrow then, and far from
    normal.
    """
    parts = (view for view in views if isinstance(view, NonConjugatePosterior))
    return any(view.bound.extra_sweeps > 0 for view in parts)


def narrow(views: Sequence[ViewPosterior]) -> bool:
    """Return whether noise is so small that rows may be at another peak than the best."""
    gaussian = (view for view in views if isinstance(view, GaussianPosterior))
    noise = (torch.as_tensor(view.noise_variance).amin() for view in gaussian)
    return peaked(views) or any(bool(variance <= _SMALL_NOISE) for variance in noise)


def excess(
    views: Sequence[ViewPosterior], at: Tensor, rows: Sequence[Tensor], offsets: Offsets
) -> Tensor:
    """Return how far rows are from what is predicted at their places, under the draw that they fit
    best: by how many standard deviations of a sum of squares it is larger than noise makes it.

    Counted are entries of Gaussian and of Poisson views: others may be anything anywhere.

    Parameters
    ----------
    views : sequence of ViewPosterior
    at : Tensor of shape (n, D + L), float64
        Their places, covariates beside them.
    rows : sequence over views of Tensor of shape (n, M_v)
        Encoded, NaN where missing.
    offsets : sequence over views of Tensor of shape (n,), or None

    Returns
    -------
    Tensor of shape (n,)
    """
    parts = [
        _excess(views, at[part], [y[part] for y in rows], offsets_of(offsets, part))
        for part in chunks(len(at), rows_at_once(views, 1))
    ]
    return torch.cat(parts)


def _excess(
    views: Sequence[ViewPosterior], at: Tensor, rows: Sequence[Tensor], offsets: Offsets
) -> Tensor:
    square = torch.zeros(len(at), dtype=torch.float64)
    count = torch.zeros_like(square)
    for view, y, offset in zip(views, rows, offsets, strict=True):
        if not (isinstance(view, GaussianPosterior) or peaked([view])):
            continue
        of_draws = []
        for draw in view.draws:
            psi = view.psi(draw, draw.features(at), offset)
            mean, variance = view.predict(*psi, offset)
            # far from all data both may be infinite
            away = ((y - mean).square() / variance).nan_to_num(nan=torch.inf)
            of_draws.append(torch.where(y.isnan(), 0.0, away).sum(1))
        square += torch.stack(of_draws).amin(0)
        count += (~y.isnan()).sum(1)
    return (square - count) / (2.0 * count).sqrt().clamp(min=1.0)
