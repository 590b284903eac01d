"""How rows that lack a view are completed: chosen on training rows that are treated as if they were
new.

Rows are completed with weights and candidates from which they were left out: a row whose own data
are in the weights finds them again, and the sharpest exponent, or its own modes, would always win.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bochner import random
from bochner.latent_inference.candidates import candidate_scores, scores_at
from bochner.latent_inference.infer import Placer
from bochner.latent_inference.modes import Placement
from bochner.likelihoods.categorical import Categorical
from bochner.likelihoods.likelihood import Offsets, offsets_of, rows_of
from bochner.memory import chunks
from bochner.prediction.completion import mixed_moments
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
# Standard errors of what modes gain beyond which no more rows are placed: of 130 views of seven
# tables no choice changed, and a third of the rows are not placed; half of narrow views' are not.
_CLEAR = 2.5
# Numbers of rows that are placed at once.
_NUMBERS = 2**22


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
    unsure = set(able)
    for part in _parts(rows, able, candidates.shape[0], seed):
        fold = _fold(views, candidates, latent_draws, rows, part, offsets)
        informed = {v: fold.informative(v) for v in able}
        few = {
            v: index[: _PLACED_ROWS // _FOLDS] for v, index in informed.items() if v in unsure
        }
        by_modes = fold.by_modes(few)
        for v, index in informed.items():
            if len(index):
                placed = by_modes.get(v, index.new_zeros(0).double())
                completed[v].append((fold.by_mixture(v, index, TEMPERATURES), placed))
        unsure = {v for v in unsure if not _is_clear(completed[v])}
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
    """Choose by the densities of all folds, of which few rows are placed; without rows that tell,
    scores count as they are.
    """
    if not folds:
        return Choice(1.0)
    best, gains = _gains(folds)
    return Choice(TEMPERATURES[best], bool(gains.mean() > 0.0))


def _gains(folds: Sequence[tuple[Tensor, Tensor]]) -> tuple[int, Tensor]:
    """Return the number of the best temperature, and what modes gain over it, placed row by placed
    row.
    """
    best = int(torch.cat([by_mixture for by_mixture, _ in folds], dim=1).mean(dim=1).argmax())
    gains = [by_modes - by_mixture[best, : len(by_modes)] for by_mixture, by_modes in folds]
    return best, torch.cat(gains)


def _is_clear(folds: Sequence[tuple[Tensor, Tensor]]) -> bool:
    """Return whether the folds so far tell if modes are better: no more rows are placed then."""
    if not folds:
        return False
    _, gains = _gains(folds)
    return len(gains) > 1 and bool(
        gains.mean().abs() > _CLEAR * gains.std() / math.sqrt(len(gains))
    )


def _fold(
    views: Sequence[ViewPosterior],
    candidates: Tensor,
    latent_draws: Tensor,
    rows: Sequence[Tensor],
    index: Tensor,
    offsets: Offsets,
) -> HiddenViews:
    """Return some rows, with weights and candidates that do not know them."""
    data = [y[index] for y in rows]
    left = leave_out(views, latent_draws[:, index], data)
    stay = torch.ones(candidates.shape[0], dtype=torch.bool).index_fill_(0, index, False)
    return HiddenViews(left, candidates[stay], data, offsets_of(offsets, index))


@dataclass(frozen=True)
class HiddenViews:
    """Rows that a model does not know, of which one view is hidden at a time.

    Attributes
    ----------
    views : sequence of ViewPosterior
    candidates : Tensor of shape (C, D), float64
    rows : sequence over views of Tensor of shape (n, M_v), float64
        Scaled data, NaN where missing.
    offsets : sequence over views of Tensor of shape (n,), or None
    """

    views: Sequence[ViewPosterior]
    candidates: Tensor
    rows: Sequence[Tensor]
    offsets: Offsets

    @functools.cached_property
    def _scores(self) -> list[RowScores]:
        return scores_at(self.views, self.candidates)

    @functools.cached_property
    def _placer(self) -> Placer:
        """Places rows: what it knows of the candidates is known for all views."""
        return Placer(self.views, self.candidates, tables=False)

    def informative(self, v: int) -> Tensor:
        """Return the numbers of the `informative` rows of view v, (r,), int64."""
        return informative(self.rows, v).nonzero()[:, 0]

    def by_mixture(self, v: int, index: Tensor, temperatures: Sequence[float]) -> Tensor:
        """Return the log density of view v of some rows (r,), completed by the mixture under every
        temperature, (temperatures, r).
        """
        shown = hidden([y[index] for y in self.rows], v)
        encoded = [view.encode(y) for view, y in zip(self.views, shown, strict=True)]
        scores = candidate_scores(self._scores, encoded, offsets_of(self.offsets, index))
        moments = decode([self.views[v]], self.candidates)
        truth = self.rows[v][index]
        out = [
            density(truth, *mixed_moments((tau * scores).softmax(1), *moments))
            for tau in temperatures
        ]
        return torch.stack(out)

    def by_modes(self, asked: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """Return the log densities of views of some rows, completed by the rows' modes.

        Parameters
        ----------
        asked : mapping of int to Tensor of shape (r,), int64
            Rows by the view that is hidden; all are placed together.

        Returns
        -------
        dict of int to Tensor of shape (r,)
        """
        if not asked:
            return {}
        rows = torch.cat(list(asked.values()))
        counts = torch.tensor([len(index) for index in asked.values()])
        lacks = torch.tensor(list(asked)).repeat_interleave(counts)
        out = {v: [self.candidates.new_zeros(0)] for v in asked}
        at_once = max(1, _NUMBERS // sum(y.shape[1] for y in self.rows))
        for part in chunks(len(rows), at_once):
            placed = self._placed(rows[part], lacks[part])
            for v in asked:
                some = (lacks[part] == v).nonzero()[:, 0]
                if not len(some):
                    continue
                index = rows[part][some]
                given = [self.views[v]], placed.of(some), [rows_of(self.offsets[v], index)]
                out[v].append(density(self.rows[v][index], *complete_by_modes(*given)))
        return {v: torch.cat(values) for v, values in out.items()}

    def _placed(self, index: Tensor, lacks: Tensor) -> Placement:
        """Return where some rows (r,) lie without the view that each of them lacks, (r,)."""
        rows = [
            y[index].masked_fill((lacks == v)[:, None], torch.nan)
            for v, y in enumerate(self.rows)
        ]
        offsets = offsets_of(self.offsets, index)
        placed = self._placer.place(rows, offsets)
        return predictive_placement(self.views, self.candidates, placed, rows, offsets)


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
