"""Views that are missing in a row: completed by a mixture over training latents, or by the row's
own modes.

A half-seen row has many plausible places. The aggregated posterior of the training rows knows where
rows lie, which the prior N(0, I) does not, and a likelihood that takes the noise of its columns for
independent is too sure of itself. So the weight of training latent x_j is

w_j ~ exp(tau sum_v E log p(y_v | x_j, A)),

and there is one tempered exponent tau per hidden view, which `tempering` chooses.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from bochner import random
from bochner.features.fourier import columns_beside
from bochner.latent_inference.candidates import candidate_scores, scores_at
from bochner.latent_inference.infer import Placer
from bochner.latent_inference.modes import Placement
from bochner.likelihoods.likelihood import Offsets, offsets_of, rows_of
from bochner.memory import chunks
from bochner.prediction.decoding import complete as complete_by_modes
from bochner.prediction.decoding import decode, sample_at
from bochner.prediction.decoding import draw_latents as latents_by_modes
from bochner.prediction.row_posterior import predictive_placement
from bochner.weight_posterior.posterior import ViewPosterior

# Rows that are completed at once.
_CHUNK = 1024
# Numbers that are drawn at once.
_NUMBERS = 2**20
# Draws of two kinds that are paired at once, if need be of more than were asked for.
_PAIRED = 64


@dataclass(frozen=True)
class Mixture:
    """Training latents as the places where half-seen rows may lie.

    Attributes
    ----------
    candidates : Tensor of shape (C, D), float64
    temperatures : mapping of view name to float or None
        None where the row's own modes complete that view better.
    placer : Placer, optional
        Places rows under the model, and keeps what it has found out about it.
    """

    candidates: Tensor
    temperatures: Mapping[str, float | None]
    placer: Placer | None = None

    def exponents(self, views: Sequence[ViewPosterior], rows: Sequence[Tensor]) -> Tensor:
        """Return tau of every row, (n,): the mean over the views it lacks; NaN for rows that modes
        complete.
        """
        lacks = torch.stack([y.isnan().all(dim=1) for y in rows], dim=1)
        by_view = [self.temperatures.get(view.name) for view in views]
        tau = torch.tensor(
            [math.nan if t is None else t for t in by_view], dtype=torch.float64
        )
        exponent = torch.where(lacks, tau, torch.zeros_like(tau)).sum(1) / lacks.sum(1)
        return torch.where(lacks.all(dim=1), torch.full_like(exponent, math.nan), exponent)

    def placed(
        self,
        views: Sequence[ViewPosterior],
        rows: Sequence[Tensor],
        offsets: Offsets,
        covariates: Tensor | None,
        known: Placement | None = None,
    ) -> Placement:
        """Return where rows with holes lie, and how sure that is, given where their bounds put
        them, if that is known.
        """
        if known is None:
            placer = self.placer or Placer(views, self.candidates, tables=False)
            known = placer.place(rows, offsets, covariates=covariates)
        return self._refined(known, views, rows, offsets)

    def _refined(
        self,
        known: Placement,
        views: Sequence[ViewPosterior],
        rows: Sequence[Tensor],
        offsets: Offsets,
    ) -> Placement:
        """Return modes of predictive densities."""
        return predictive_placement(views, self.candidates, known, rows, offsets)


class MixtureOfChains(Mixture):
    """The same under draws of Markov chains, each of which has latents of its own.

    Modes of predictive densities are those of single draws, and entries decoded there under all
    draws would be too uncertain: of Gaussian data 90 % intervals held 97 %.
    """

    def _refined(self, known: Placement, *_: object) -> Placement:
        """Return the modes of the bounds, which all draws share."""
        return known


def complete(
    views: Sequence[ViewPosterior],
    mixture: Mixture,
    rows: Sequence[Tensor],
    offsets: Offsets | None = None,
    placed: Placement | None = None,
    covariates: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Predict the columns of half-seen rows.

    Parameters
    ----------
    views : sequence of ViewPosterior
    mixture : Mixture
    rows : sequence over views of Tensor of shape (n, M_v), float64
        Scaled data, NaN where missing.
    offsets : sequence over views of Tensor of shape (n,), or None, optional
        Logarithms of the rows' size factors.
    placed : Placement, optional
        Of these rows, where it is known already.
    covariates : Tensor of shape (n, L), optional
        Of these rows; with them no mixture completes a view.

    Returns
    -------
    mean, variance : Tensor of shape (n, sum of M)
        Of new observations, noise included, where a row has holes; what it shows, and 0, elsewhere.
        Holes within a view that is partly seen come from the row's modes.
    """
    offsets = offsets or [None] * len(views)
    exponents = mixture.exponents(views, rows)
    by_modes = _need_modes(exponents, rows)
    mean = torch.cat([torch.nan_to_num(y) for y in rows], dim=1)
    variance = torch.zeros_like(mean)
    if bool(by_modes.any()):
        row_offsets = offsets_of(offsets, by_modes)
        shown = [y[by_modes] for y in rows]
        beside = rows_of(covariates, by_modes)
        start = None if placed is None else placed.of(by_modes)
        known = mixture.placed(views, shown, row_offsets, beside, start)
        for v, columns in enumerate(view_columns(views)):
            holes = shown[v].isnan()
            lacking = holes.any(dim=1).nonzero()[:, 0]
            if len(lacking):
                of_view = [views[v]], known.of(lacking), [rows_of(row_offsets[v], lacking)]
                some = by_modes.nonzero()[lacking, 0]
                for out, moment in zip(
                    (mean, variance), complete_by_modes(*of_view), strict=True
                ):
                    out[some, columns] = torch.where(
                        holes[lacking], moment, out[some, columns]
                    )
    for v, columns in enumerate(view_columns(views)):
        index = (rows[v].isnan().all(dim=1) & ~exponents.isnan()).nonzero()[:, 0]
        if not index.numel():
            continue
        moments = decode([views[v]], mixture.candidates)
        for part, weights in _weights(views, mixture, rows, exponents, index, offsets):
            mean[part, columns], variance[part, columns] = mixed_moments(weights, *moments)
    return mean, variance


def draw_rows(
    views: Sequence[ViewPosterior],
    mixture: Mixture,
    rows: Sequence[Tensor],
    n_draws: int,
    seed: int,
    offsets: Offsets | None = None,
    covariates: Tensor | None = None,
) -> Tensor:
    """Draw completions: a latent, then a spectrum, weights and noise; the views that a row lacks
    share its latent.

    Returns
    -------
    Tensor of shape (n_draws, n, sum of M)
    """
    latents = draw_latents(views, mixture, rows, n_draws, seed, offsets, covariates)
    return draw_at(views, latents, rows, seed, offsets)


def draw_at(
    views: Sequence[ViewPosterior],
    latents: Sequence[Tensor],
    rows: Sequence[Tensor],
    seed: int,
    offsets: Offsets | None = None,
) -> Tensor:
    """Draw what rows do not show, given where they lie; as `draw_rows`."""
    source = random.generator(seed, "complete/draws")
    known = torch.cat(list(rows), dim=1)
    lacking = known.isnan().any(dim=1).nonzero()[:, 0]
    shown = known[lacking]
    sizes = offsets_of(offsets or [None] * len(views), lacking)
    n_draws = latents[0].shape[1]
    drawn = torch.nan_to_num(known).expand(n_draws, -1, -1).clone()
    # several draws at once: few rows would read all weights for each
    at_once = min(_CHUNK, max(1, _NUMBERS // known.shape[1]))
    for some in chunks(n_draws, max(1, at_once // max(1, len(lacking)))):
        count = some.stop - some.start
        parts = [
            sample_at([v], _side_by_side(x[lacking, some]), source, [_repeated(o, count)])
            for v, x, o in zip(views, latents, sizes, strict=True)
        ]
        new = torch.cat(parts, dim=1).reshape(count, *shown.shape)
        drawn[some, lacking] = torch.where(shown.isnan(), new, shown)
    return drawn


def _side_by_side(x: Tensor) -> Tensor:
    """Return draws of rows one draw after another, (n, S, D) -> (S n, D)."""
    return x.transpose(0, 1).flatten(0, 1)


def _repeated(offset: Tensor | None, count: int) -> Tensor | None:
    """Return offsets of rows, (n,), for so many draws of them, one after another."""
    return None if offset is None else offset.repeat(count)


def draw_latents(
    views: Sequence[ViewPosterior],
    mixture: Mixture,
    rows: Sequence[Tensor],
    n_draws: int,
    seed: int,
    offsets: Offsets | None = None,
    covariates: Tensor | None = None,
) -> list[Tensor]:
    """Draw where half-seen rows lie, one set of places for every view whose entries they are to
    predict.

    Returns
    -------
    list over views of Tensor of shape (n, n_draws, D), or (n, n_draws, D + L) with covariates
        From the mixture where a row lacks the whole view, from the row's own modes otherwise; 0
        where a row has no holes. Where a row has views of both kinds, places of a draw lie as close
        to each other as the two distributions allow.
    """
    offsets = offsets or [None] * len(views)
    exponents = mixture.exponents(views, rows)
    by_modes = _need_modes(exponents, rows)
    n_rows = rows[0].shape[0]
    beside = columns_beside(covariates, n_rows)
    width = mixture.candidates.shape[1] + beside.shape[1]
    both = (by_modes & ~exponents.isnan()).nonzero()[:, 0]
    count = -(-n_draws // _PAIRED) * _PAIRED if both.numel() else n_draws
    by_mode = torch.zeros(n_rows, count, width, dtype=torch.float64)
    if bool(by_modes.any()):
        placed = mixture.placed(
            views,
            [y[by_modes] for y in rows],
            offsets_of(offsets, by_modes),
            beside[by_modes],
        )
        by_mode[by_modes] = latents_by_modes(placed, count, seed)
    mixed = by_mode.clone()
    source = random.generator(seed, "complete/mixture")
    for part, weights in _weights(
        views, mixture, rows, exponents, (~exponents.isnan()).nonzero()[:, 0], offsets
    ):
        mixed[part] = mixture.candidates[
            torch.multinomial(weights, count, replacement=True, generator=source)
        ]
    for part in torch.split(both, _CHUNK) if both.numel() else ():
        mixed[part] = _paired(mixed[part], by_mode[part])
    lacks = [(y.isnan().all(dim=1) & ~exponents.isnan())[:, None, None] for y in rows]
    return [torch.where(without, mixed, by_mode)[:, :n_draws] for without in lacks]


def _paired(mixed: Tensor, by_mode: Tensor) -> Tensor:
    """Return draws of one distribution, (n, draws, D), in the order that brings them closest to
    those of another: a draw of a row is of one place then, and both distributions are what they
    were.
    """
    scale = torch.cat([mixed, by_mode], dim=1).std(1, keepdim=True)
    # what does not differ has no say
    weight = torch.where(scale > 0.0, 1.0 / scale, 0.0)
    out = mixed.clone()
    for block in range(0, mixed.shape[1], _PAIRED):
        some = slice(block, block + _PAIRED)
        away = torch.cdist(by_mode[:, some] * weight, mixed[:, some] * weight).square()
        for row, cost in enumerate(away.numpy()):
            out[row, some] = mixed[row, some][linear_sum_assignment(cost)[1]]
    return out


def _need_modes(exponents: Tensor, rows: Sequence[Tensor]) -> Tensor:
    """Return which rows have holes that the mixture does not fill, (n,)."""
    holes = torch.stack([y.isnan().any(dim=1) for y in rows], dim=1)
    whole = torch.stack([y.isnan().all(dim=1) for y in rows], dim=1)
    return (holes & ~whole).any(dim=1) | (whole.any(dim=1) & exponents.isnan())


def _weights(
    views: Sequence[ViewPosterior],
    mixture: Mixture,
    rows: Sequence[Tensor],
    exponents: Tensor,
    index: Tensor,
    offsets: Offsets,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield row numbers in chunks and the weights of the candidates for each, (n, C)."""
    if not index.numel():
        return
    at = scores_at(views, mixture.candidates)
    for part in torch.split(index, _CHUNK):
        encoded = [view.encode(y[part]) for view, y in zip(views, rows, strict=True)]
        scores = candidate_scores(at, encoded, offsets_of(offsets, part))
        yield part, (exponents[part, None] * scores).softmax(1)


def mixed_moments(weights: Tensor, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of mixtures (n, C) of candidates whose columns have these means and
    variances, (C, M).

    About the candidates' own mean, so that squares of large means do not cancel, and never less
    than the least of the variances, which rounding could bring about.
    """
    centre = mean.mean(dim=0)
    away = mean - centre
    m = weights @ away
    mixed = weights @ (variance + away.square()) - m.square()
    return centre + m, torch.maximum(mixed, variance.amin(dim=0))


def view_columns(views: Sequence[ViewPosterior]) -> list[slice]:
    """Return where each view lies when they stand side by side."""
    ends = list(itertools.accumulate(view.n_data_columns for view in views))
    return [
        slice(end - view.n_data_columns, end) for view, end in zip(views, ends, strict=True)
    ]
