"""What is known of where a row lies: modes of its predictive density under every draw of the
spectra, or, of one latent, its posterior on a grid.

A row's posterior is a mixture over the draws of the spectra; under each of them the row has modes
of its own, and the predictive density there knows that weights are uncertain. Modes that placement
did not climb to are looked for among points all around. A standard deviation does not know the
shape of a posterior; intervals are its quantiles.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bochner.features.fourier import alike, with_covariates
from bochner.latent_inference.candidates import (
    MANY_DIMENSIONS,
    Near,
    best_apart,
    near_each,
)
from bochner.latent_inference.entry_terms import EntrywiseTerm, ScoringTerm
from bochner.latent_inference.grid import OnGrid, grid_points, resolved
from bochner.latent_inference.mixtures import Modes, joined, merged, reaching
from bochner.latent_inference.modes import Placement
from bochner.latent_inference.predictive_modes import (
    laplace_modes,
    points_around,
    predictive_target,
    table,
)
from bochner.latent_inference.row_bound import Target
from bochner.latent_inference.row_misfit import peaked
from bochner.likelihoods.categorical import Categorical
from bochner.likelihoods.likelihood import Offsets, offsets_of
from bochner.memory import chunks
from bochner.prediction.turned_rows import turned, whole_rows
from bochner.weight_posterior.posterior import (
    NonConjugatePosterior,
    ViewPosterior,
    all_conjugate,
)

# Points from which a row climbs beside its modes, how far apart they lie in every dimension, and by
# how many nats they may be behind the best of them.
_N_STARTS = 3
_APART = 0.4
_BEHIND = 8.0
# Climbs of so many steps, of more where posteriors are peaked, to this length: standard deviations
# ask for two digits.
_STEPS = 2
_PEAKED_STEPS = 4
_TOLERANCE = 1e-2
# Steps of so many posterior standard deviations are taken without looking where they end: Gaussian
# views.
_NEARLY = 0.3
# Nats by which a point lies above what the approximations of a row's places say, to be climbed
# from, and more by this share of what it lies below the best: Gaussian views.
_LACKING, _SHARE = 1.0, 0.5
# Weight of a mode below which it is not climbed from.
_LITTLE = 1e-4
# Numbers of the slopes of features and columns that are held at once.
_NUMBERS = 2**23


def posteriors(
    views: Sequence[ViewPosterior],
    candidates: Tensor,
    placement: Placement,
    rows: Sequence[Tensor],
    offsets: Offsets,
    encoded: bool = False,
) -> Iterator[tuple[Tensor, Modes | OnGrid]]:
    """Yield the posteriors of rows with observed entries, and which rows they are.

    Parameters
    ----------
    views : sequence of ViewPosterior
    candidates : Tensor of shape (C, D), float64
        Latents of training rows.
    placement : Placement
        Of these rows.
    rows : sequence over views of Tensor of shape (n, M_v), float64
        Scaled data, NaN where missing.
    offsets : sequence over views of Tensor of shape (n,), or None
        Logarithms of size factors.
    encoded : bool, default=False
        Whether the rows are encoded already.
    """
    if not encoded:
        rows = [view.encode(y) for view, y in zip(views, rows, strict=True)]
    index = observed_views(rows).any(1).nonzero()[:, 0]
    if candidates.shape[1] == 1:
        for chosen, posterior in _on_grid(views, placement, index, rows, offsets):
            yield chosen, posterior
            index = index[~torch.isin(index, chosen)]
    slopes = (1 + placement.mean.shape[1]) * (placement.modes.shape[1] + _N_STARTS)
    for some, whole in whole_rows(views, rows, index):
        features = max(view.draws[0].mean.shape[0] for view in views)
        columns = [1 if whole and turned(view, 0) else view.n_columns for view in views]
        at_once = max(1, _NUMBERS // (slopes * max(features, *columns)))
        for part in chunks(len(some), at_once):
            chosen = some[part]
            of_rows = ([y[chosen] for y in rows], offsets_of(offsets, chosen))
            yield chosen, _modes(views, candidates, placement.of(chosen), *of_rows, whole)


def _on_grid(
    views: Sequence[ViewPosterior],
    placement: Placement,
    index: Tensor,
    rows: Sequence[Tensor],
    offsets: Offsets,
) -> Iterator[tuple[Tensor, OnGrid]]:
    """Yield posteriors of one latent that a grid resolves, and which rows they are."""
    points = grid_points()
    for part in chunks(len(index), max(1, _NUMBERS // len(points))):
        chosen = index[part]
        of_rows = ([y[chosen] for y in rows], offsets_of(offsets, chosen))
        places = placement.of(chosen)
        shares = _scores(views, points, *of_rows, places.covariates).softmax(1)
        fine = resolved(shares, places)
        yield chosen[fine], OnGrid.of(shares[fine])


def predictive_placement(
    views: Sequence[ViewPosterior],
    candidates: Tensor,
    placement: Placement,
    rows: Sequence[Tensor],
    offsets: Offsets,
    encoded: bool = False,
) -> Placement:
    """Return where rows lie with the modes of their predictive densities in place of those of the
    bound, which takes weights for known better than they are, and beside the best of those where
    the two contradict each other; as it is in many dimensions, and
    where views hold categories: those are completed from the best place alone, and as often right.

    Parameters
    ----------
    views, candidates, placement, rows, offsets, encoded
        As in `posteriors`.
    """
    n, _, dim = placement.modes.shape
    categories = any(isinstance(view.likelihood, Categorical) for view in views)
    if dim > MANY_DIMENSIONS or categories:
        return placement
    by_part = [
        (chosen, *reaching(posterior, placement.of(chosen)).places())
        for chosen, posterior in posteriors(
            views, candidates, placement, rows, offsets, encoded
        )
    ]
    count = max((weights.shape[1] for _, _, _, weights in by_part), default=1)
    modes = placement.mean[:, None].repeat(1, count, 1)
    covariances = torch.eye(dim, dtype=modes.dtype).repeat(n, count, 1, 1)
    covariances[:, 0] = placement.covariances[:, 0]
    weights = torch.zeros(n, count, dtype=modes.dtype)
    weights[:, 0] = 1.0
    for chosen, places, spread, shares in by_part:
        kept = shares.shape[1]
        modes[chosen, :kept] = places
        covariances[chosen, :kept] = spread
        weights[chosen, :kept] = shares
    return Placement(modes, covariances, weights, placement.covariates)


def latent_std(
    views: Sequence[ViewPosterior],
    candidates: Tensor,
    placement: Placement,
    rows: Sequence[Tensor],
    offsets: Offsets,
) -> Tensor:
    """Return standard deviations of the rows' posteriors about their best modes, as normal
    intervals want them.

    Parameters
    ----------
    views, candidates, placement, rows, offsets
        As in `posteriors`.

    Returns
    -------
    Tensor of shape (n, D)
        1 for a row without observed entries, and in dimensions that no observed view sees. Of
        float32 computations: good to three digits.
    """
    known = posteriors(views, candidates, placement, rows, offsets)
    return _std(known, placement, seen_dimensions(views, rows, placement.mean.shape[1]))


def _std(
    known: Iterable[tuple[Tensor, Modes | OnGrid]], placement: Placement, informed: Tensor
) -> Tensor:
    out = torch.ones_like(placement.mean)
    for chosen, posterior in known:
        out[chosen] = posterior.normal_std_about(placement.mean[chosen])
    return torch.where(informed, out, 1.0)


def latent_limits(
    views: Sequence[ViewPosterior],
    candidates: Tensor,
    placement: Placement,
    rows: Sequence[Tensor],
    offsets: Offsets,
    level: float,
    share: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return what `latent_std` does, and central intervals of the rows' posteriors, whatever their
    shape; those that hold most reach the rows' places.

    Parameters
    ----------
    views, candidates, placement, rows, offsets
        As in `latent_std`.
    level : float
        Of the prior's intervals, where nothing is observed.
    share : float
        Of a mixture of modes that holds so much of the posterior; of `latent_calibration.Check`.

    Returns
    -------
    std, low, high : Tensor of shape (n, D)
    """
    known = list(posteriors(views, candidates, placement, rows, offsets))
    reach = torch.special.ndtri(torch.tensor(0.5 + 0.5 * level, dtype=torch.float64))
    high = torch.ones_like(placement.mean) * reach
    low = -high
    informed = seen_dimensions(views, rows, high.shape[1])
    for chosen, posterior in known:
        modes = reaching(posterior, placement.of(chosen))
        # a grid's are exact: what a check says of them is chance
        held = level if isinstance(modes, OnGrid) else share
        limits = [modes.quantile(0.5 + side * 0.5 * held) for side in (-1.0, 1.0)]
        low[chosen] = torch.where(informed[chosen], limits[0], low[chosen])
        high[chosen] = torch.where(informed[chosen], limits[1], high[chosen])
    return _std(known, placement, informed), low, high


def seen_dimensions(
    views: Sequence[ViewPosterior], rows: Sequence[Tensor], dim: int
) -> Tensor:
    """Return which dimensions the observed views of rows see, (n, D), bool: the others keep their
    prior, whatever climbs left of them.
    """
    by_view = torch.stack([view.sees(dim) for view in views])
    return (observed_views(rows).double() @ by_view) > 0


def observed_views(rows: Sequence[Tensor]) -> Tensor:
    """Return in which views rows have entries, (n, V), bool."""
    return torch.stack([(~y.isnan()).any(1) for y in rows], dim=1)


def _modes(
    views: Sequence[ViewPosterior],
    candidates: Tensor,
    placement: Placement,
    rows: Sequence[Tensor],
    offsets: Offsets,
    whole: bool,
) -> Modes:
    dim = candidates.shape[1]
    kept = placement.weights > _LITTLE
    kept[:, 0] = True
    steps = _PEAKED_STEPS if peaked(views) else _STEPS
    around = _Around.of(points_around(candidates), placement.modes)
    parts = []
    for s in range(max(len(view.draws) for view in views)):
        pairs = [_single(view, s, y, whole) for view, y in zip(views, rows, strict=True)]
        single, data = [view for view, _ in pairs], [y for _, y in pairs]
        target = predictive_target(single, data, dim, offsets, placement.covariates)
        target = _coarse(target).to(torch.float32)
        places = placement.modes.float(), kept
        # there points are far from each other
        if dim > MANY_DIMENSIONS:
            parts.append(laplace_modes(target, *places, _TOLERANCE, 0))
            continue
        scores = _scores(single, around.points, data, offsets, placement.covariates)
        scores[scores <= scores.amax(1, keepdim=True) - _BEHIND] = -torch.inf
        if all_conjugate(views):
            parts.append(_gaussian_modes(target, places, around, scores, rows))
        else:
            more = around.best(scores)
            starts, which = (torch.cat(pair, dim=1) for pair in zip(places, more, strict=True))
            parts.append(laplace_modes(target, starts, which, _TOLERANCE, steps))
    return joined(parts)


def _gaussian_modes(
    target: Target,
    places: tuple[Tensor, Tensor],
    around: _Around,
    scores: Tensor,
    rows: Sequence[Tensor],
) -> Modes:
    """Climb from the rows' places, and then from points that these do not explain.

    Scores are log densities up to a constant here: what the approximation about a row's place says
    of points can be compared with them.
    """
    modes = laplace_modes(target, *places, _TOLERANCE, _STEPS, _NEARLY)
    counts = sum(((~y.isnan()).sum(1) for y in rows), start=scores.new_zeros(len(scores)))
    constant = 0.5 * math.log(2.0 * math.pi) * (around.points.shape[1] + counts)
    lacking = scores - modes.log_density(around.points) - constant[:, None]
    least = _LACKING + _SHARE * (scores.amax(1, keepdim=True) - scores)
    starts, kept = around.best(scores.masked_fill(~(lacking > least), -torch.inf))
    if not bool(kept.any()):
        return modes
    more = laplace_modes(target, starts, kept, _TOLERANCE, _STEPS, _NEARLY)
    return merged(modes, more)


@dataclass(frozen=True)
class _Around:
    """Points at which rows are looked up.

    Attributes
    ----------
    points : Tensor of shape (C, D)
    near : callable
        Which are near some.
    near_modes : Tensor of shape (n, C), bool
        Which are near the places of the rows.
    """

    points: Tensor
    near: Near
    near_modes: Tensor

    @classmethod
    def of(cls, points: Tensor, modes: Tensor) -> _Around:
        """Look at points (C, D) from the modes (n, R, D) of rows."""
        apart = _APART * points.shape[1] ** 0.5
        away = torch.cdist(modes.flatten(0, 1), points) < apart
        near_modes = away.reshape(*modes.shape[:2], len(points)).any(1)
        return cls(points, near_each(points, apart, len(points)), near_modes)

    def best(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Return the best points with a finite score that are apart, in single precision, (n, R,
        D), and which of them there are, (n, R).
        """
        scores = scores.masked_fill(self.near_modes, -torch.inf)
        index = best_apart(scores.clone(), self.near, _N_STARTS)
        return self.points[index].float(), scores.gather(1, index).isfinite()


def _single(
    view: ViewPosterior, s: int, y: Tensor, whole: bool
) -> tuple[ViewPosterior, Tensor]:
    """Return a view with one draw, whose columns share the mean of their covariances, and rows as
    it sees them, (n, M) -> (n, m).
    """
    products = turned(view, s) if whole else None
    if products is not None:
        return products, products.rows(y)
    draw, group_of = view.draws[s % len(view.draws)].averaged(view.group_of)
    return replace(view, draws=(draw,), group_of=group_of), y


def _scores(
    views: Sequence[ViewPosterior],
    points: Tensor,
    rows: Sequence[Tensor],
    offsets: Offsets,
    covariates: Tensor,
) -> Tensor:
    """Return about log p(y, x) of every row at every point, a mean over the views' draws, (n, C),
    up to a constant.
    """
    n = rows[0].shape[0]
    total = (-0.5 * points.square().sum(1)).repeat(n, 1)
    for index, known in alike(covariates):
        at = with_covariates(points, known.expand(len(points), -1))
        some = [y[index] for y in rows], offsets_of(offsets, index)
        for view, y, offset in zip(views, *some, strict=True):
            of_draws = [
                _about(view, y, offset, *view.psi(draw, draw.features(at)))
                for draw in view.draws
            ]
            total[index] += torch.stack(of_draws).logsumexp(0)
    return total


@functools.singledispatch
def _about(
    view: ViewPosterior,
    y: Tensor,
    offset: Tensor | None,
    mean: Tensor,
    variance: Tensor,
) -> Tensor:
    """Return about log p(y | psi) of rows at places with these moments of psi, (n, C)."""
    return table(view, y, offset, mean, variance)


@_about.register
def _(
    view: NonConjugatePosterior,
    y: Tensor,
    offset: Tensor | None,
    mean: Tensor,
    variance: Tensor,
) -> Tensor:
    # products cost far less than predictive densities
    return view.predictive_scores(y, offset, mean, variance)


def _coarse(target: Target) -> Target:
    """Return a target that costs less and is good to three digits."""
    return replace(target, terms=tuple(tuple(map(_scoring, draws)) for draws in target.terms))


def _scoring(term: object) -> ScoringTerm:
    if not isinstance(term, EntrywiseTerm):
        raise TypeError("predictive targets are made of such terms alone")
    return term.coarse()
