"""How rows that lack a view are completed: chosen on training rows that are treated as if they were
new.

Rows are completed with weights and candidates from which they were left out: a row whose own data
are in the weights finds them again, and the sharpest exponent, or its own modes, would always win.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bochner import random
from bochner.latent_inference.infer import candidate_scores, place, scores_at
from bochner.likelihoods.categorical import Categorical
from bochner.likelihoods.likelihood import Offsets, offsets_of
from bochner.prediction.completion import mixed_moments, view_columns
from bochner.prediction.decoding import complete as complete_by_modes
from bochner.prediction.decoding import decode
from bochner.prediction.row_posterior import predictive_placement
from bochner.weight_posterior.downdating import leave_out
from bochner.weight_posterior.posterior import RowScores, ViewPosterior

# 1 to 1/256
TEMPERATURES = tuple(2.0 ** (-0.5 * i) for i in range(17))
_ROWS = 1000
_PLACED_ROWS = 256
_FOLDS = 5


@dataclass(frozen=True)
class Choice:
    """How rows that lack a view are completed.

    Attributes
    ----------
    temperature : float or None
        The best exponent of the mixture; None where there is none: categories have no mean, and
        size factors scale that of counts row by row.
    modes : bool
        Whether the row's own modes did better still.
    """

    temperature: float | None
    modes: bool = False

    @property
    def exponent(self) -> float | None:
        """None where modes complete the view."""
        return None if self.modes else self.temperature


def learn(
    views: Sequence[ViewPosterior],
    candidates: Tensor,
    latent_draws: Tensor,
    rows: Sequence[Tensor],
    seed: int,
    offsets: Offsets | None = None,
) -> dict[str, Choice]:
    """Choose for every view how rows that lack it are completed: by the held-out density of
    training rows.

    Parameters
    ----------
    views : sequence of ViewPosterior
    candidates : Tensor of shape (C, D), float64
        Latents of training rows.
    latent_draws : Tensor of shape (S, C, D), float64
        The draws of these latents that the weights were conditioned on.
    rows : sequence over views of Tensor of shape (C, M_v), float64
        Scaled data of those rows.
    seed : int
    offsets : sequence over views of Tensor of shape (C,), or None, optional
        Logarithms of the rows' size factors.

    Returns
    -------
    dict of view name to Choice
        Modes win with exact data, whose rows lie between the candidates; empty when there is one
        view.
    """
    if len(views) < 2:
        return {}
    offsets = offsets or [None] * len(views)
    able = [
        v
        for v, view in enumerate(views)
        if not isinstance(view.likelihood, Categorical) and offsets[v] is None
    ]
    completed: dict[int, list[tuple[Tensor, Tensor]]] = {v: [] for v in able}
    for part in _parts(rows, able, candidates.shape[0], seed):
        fold = _Fold.of(views, candidates, latent_draws, rows, part, offsets)
        for v in able:
            if bool(informative(fold.rows, v).any()):
                completed[v].append(fold.completed(v))
    return {
        view.name: _choice(completed[v]) if v in able else Choice(None)
        for v, view in enumerate(views)
    }


def _parts(rows: Sequence[Tensor], able: Sequence[int], n: int, seed: int) -> Sequence[Tensor]:
    """Return the rows to leave out, fold by fold: of every view some that tell of it."""
    order = torch.randperm(n, generator=random.generator(seed, "completion"))
    chosen = torch.zeros(n, dtype=torch.bool)
    for v in able:
        chosen[order[informative(rows, v)[order]][:_ROWS]] = True
    index = order[chosen[order]]
    return index.chunk(min(_FOLDS, index.shape[0])) if index.shape[0] > 1 else ()


def _choice(folds: Sequence[tuple[Tensor, Tensor]]) -> Choice:
    """Choose by the densities of all folds; without rows that tell, scores count as they are."""
    if not folds:
        return Choice(1.0)
    values = torch.cat([of_fold[0] for of_fold in folds], dim=1)
    by_modes = torch.cat([f[1] for f in folds])
    best = int(values.mean(dim=1).argmax())
    return Choice(TEMPERATURES[best], bool((by_modes - values[best]).nanmean() > 0.0))


@dataclass(frozen=True)
class _Fold:
    """Rows that were left out, with weights and candidates that do not know them; every view is
    hidden in its turn.
    """

    views: Sequence[ViewPosterior]
    candidates: Tensor
    rows: Sequence[Tensor]
    offsets: Offsets
    scores: Sequence[RowScores]

    @classmethod
    def of(
        cls,
        views: Sequence[ViewPosterior],
        candidates: Tensor,
        latent_draws: Tensor,
        rows: Sequence[Tensor],
        index: Tensor,
        offsets: Offsets,
    ) -> _Fold:
        """Leave rows out."""
        data = [y[index] for y in rows]
        left = leave_out(views, latent_draws[:, index], data)
        stay = torch.ones(candidates.shape[0], dtype=torch.bool).index_fill_(0, index, False)
        rest = candidates[stay]
        return cls(
            left,
            rest,
            data,
            offsets_of(offsets, index),
            scores_at(left, rest),
        )

    def completed(self, v: int) -> tuple[Tensor, Tensor]:
        """Complete view v of the rows that tell of it: densities under every temperature (T, n), by
        modes (n,).

        Only so many of the rows are placed; the others have NaN.
        """
        index = informative(self.rows, v).nonzero()[:, 0]
        data = [y[index] for y in self.rows]
        row_offsets = offsets_of(self.offsets, index)
        truth = data[v]
        shown = hidden(data, v)
        encoded = [view.encode(y) for view, y in zip(self.views, shown, strict=True)]
        scores = candidate_scores(self.scores, encoded, row_offsets)
        values = _tempered_densities(truth, scores, *decode([self.views[v]], self.candidates))
        few = slice(_PLACED_ROWS // _FOLDS)
        some = offsets_of(row_offsets, few)
        observed = [y[few] for y in shown]
        placed = place(self.views, self.candidates, observed, some)
        placed = predictive_placement(self.views, self.candidates, placed, observed, some)
        mean, variance = complete_by_modes(self.views, placed, some)
        columns = view_columns(self.views)[v]
        by_modes = truth.new_full((truth.shape[0],), torch.nan)
        by_modes[few] = density(truth[few], mean[:, columns], variance[:, columns])
        return values, by_modes


def _tempered_densities(
    truth: Tensor, scores: Tensor, mean: Tensor, variance: Tensor
) -> Tensor:
    """Return the log density of every row's hidden view under every temperature, (temperatures,
    n).
    """
    out = [
        density(truth, *mixed_moments((tau * scores).softmax(1), mean, variance))
        for tau in TEMPERATURES
    ]
    return torch.stack(out)


def informative(rows: Sequence[Tensor], v: int) -> Tensor:
    """Return which rows have data in view v and in another one, (n,): they tell how well v is
    completed.
    """
    known = ~torch.stack([y.isnan().all(dim=1) for y in rows], dim=1)
    return known[:, v] & (known.sum(dim=1) > 1)


def hidden(rows: Sequence[Tensor], v: int) -> list[Tensor]:
    """Return rows without view v."""
    return [torch.full_like(y, torch.nan) if i == v else y for i, y in enumerate(rows)]


def density(y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """Return the mean over a row's observed entries of log N(y; mean, variance), constants dropped,
    (n,).
    """
    terms = -0.5 * ((y - mean).square() / variance + variance.log())
    return terms.nanmean(dim=1)
