"""Modes of a row's predictive density under each draw of the spectra.

The density of a row is a mean over draws, and draws may place a row several standard deviations
apart: nothing that lies between them need be probable. So every draw has modes and covariances of
its own, and their mixture resembles the posterior of the latent.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from bochner import random
from bochner.features.fourier import alike, columns_beside, with_covariates
from bochner.latent_inference.candidates import MANY_DIMENSIONS, best_apart, near_each
from bochner.latent_inference.entry_terms import EntrywiseTerm, entries_of
from bochner.latent_inference.mixtures import Modes, distinct
from bochner.latent_inference.modes import MAX_STEPS, Limits, Placement, climb
from bochner.latent_inference.row_bound import Target, rows_at_once
from bochner.likelihoods.likelihood import (
    Gaussian,
    Likelihood,
    Offsets,
    of_each_row,
    offsets_of,
    shifted,
)
from bochner.likelihoods.poisson import Poisson
from bochner.linalg import cholesky, positive_inverse
from bochner.memory import chunks
from bochner.weight_posterior.posterior import ViewPosterior

# How far apart the best points lie, in every dimension.
APART = 0.25
# Points of a kind at which rows are looked up, the standard deviation of those of a cloud.
_N_POINTS = 96
_WIDE = 2.5
# Points of one latent, evenly on a line, and its end: rows unlike all others lie out there.
_ON_LINE, _ALONG = 300, 9.0
# Numbers of which densities are taken at once: about what stays in a processor's cache.
CACHED_NUMBERS = 2**18

# Steps of this length end a climb, unless they promise more nats, as where modes are narrow.
CLIMBED, _RISE = 3e-3, 0.05
# Nats by which a start may lie behind the best of its row: exp(-10) weighs little.
_BEHIND = 10.0
# Log weight of a climb that broke down: none beside others, an equal one where all did.
_NOWHERE = -1e300


T = TypeVar("T")


def climbed(
    views: Sequence[ViewPosterior],
    start: Placement,
    rows: Sequence[Tensor],
    offsets: Offsets,
    tolerance: float = CLIMBED,
    max_steps: int = MAX_STEPS,
) -> Modes:
    """Climb from placed rows to the modes of their predictive densities.

    Parameters
    ----------
    views : sequence of ViewPosterior
        With one draw each.
    start : Placement
        Of these rows. In many dimensions it is taken as it is.
    rows : sequence over views of Tensor of shape (n, M_v), float64
        Encoded.
    offsets : sequence over views of Tensor of shape (n,), or None
    tolerance : float
        A step of this length ends a climb.
    max_steps : int

    Returns
    -------
    Modes
    """
    dim = start.modes.shape[2]
    most = rows_at_once(views, (1 + dim) * start.modes.shape[1])
    parts = [
        _climbed(
            views,
            start.of(torch.arange(part.start, part.stop)),
            [y[part] for y in rows],
            offsets_of(offsets, part),
            tolerance,
            max_steps,
        )
        for part in chunks(rows[0].shape[0], most)
    ]
    return Modes(
        torch.cat([part.means for part in parts]),
        torch.cat([part.covariances for part in parts]),
        torch.cat([part.log_weights for part in parts]),
    )


def _climbed(
    views: Sequence[ViewPosterior],
    start: Placement,
    rows: Sequence[Tensor],
    offsets: Offsets,
    tolerance: float,
    max_steps: int,
) -> Modes:
    dim = start.modes.shape[2]
    target = predictive_target(views, rows, dim, offsets, start.covariates)
    if dim <= MANY_DIMENSIONS:
        every = torch.ones_like(start.weights, dtype=torch.bool)
        return laplace_modes(target, start.modes, every, tolerance, max_steps)
    n, n_modes, _ = start.modes.shape
    index = torch.arange(n).repeat_interleave(n_modes)
    points = start.modes.reshape(-1, dim)
    covariance = start.covariances.flatten(0, 1)
    value = target.evaluate(points, index)[0]
    log_volume = cholesky(covariance).logdet()
    parts = _mixed(points, covariance, value, log_volume)
    return distinct(Modes(*(part.reshape(n, n_modes, *part.shape[1:]) for part in parts)))


def laplace_modes(
    target: Target,
    starts: Tensor,
    kept: Tensor,
    tolerance: float,
    max_steps: int,
    near: float = 0.0,
) -> Modes:
    """Climb and describe what was found by Laplace's approximations, in the target's precision.

    Parameters
    ----------
    target : Target
    starts : Tensor of shape (n, C, D)
        In the precision of the target.
    kept : Tensor of shape (n, C), bool
        Starts that are climbed from; at least one of every row.
    tolerance, max_steps, near
        As in `Limits`, whose ``rise`` is some hundredths of a nat here.

    Returns
    -------
    Modes
        In float64. Those not kept weigh nothing.
    """
    count, dim = starts.shape[1:]
    index = kept.flatten().nonzero()[:, 0]
    limits = Limits(tolerance, max_steps, _BEHIND, near, rise=_RISE)
    climbs = climb(target, starts.flatten(0, 1)[index], index // count, limits)
    points, value, hessian = (part.double() for part in climbs[:3])
    covariance, log_volume = positive_inverse(-hessian)
    parts = _mixed(points, covariance, value, log_volume)
    places = points.new_zeros(kept.numel(), dim)
    covariances = torch.eye(dim, dtype=points.dtype).repeat(kept.numel(), 1, 1)
    log_weights = points.new_full((kept.numel(),), -torch.inf)
    places[index], covariances[index], log_weights[index] = parts
    parts = (places, covariances, log_weights)
    return distinct(Modes(*(part.reshape(*kept.shape, *part.shape[1:]) for part in parts)))


def _mixed(
    points: Tensor, covariance: Tensor, value: Tensor, log_volume: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return places, covariances and evidence; those of climbs that broke down are the prior's."""
    evidence = value + 0.5 * (log_volume + points.shape[1] * math.log(2.0 * math.pi))
    evidence = torch.where(evidence.isfinite() & points.isfinite().all(1), evidence, _NOWHERE)
    return *_finite(points, covariance), evidence


def _finite(points: Tensor, covariance: Tensor) -> tuple[Tensor, Tensor]:
    """Put the prior where a climb broke down."""
    fine = points.isfinite().all(1) & covariance.isfinite().flatten(1).all(1)
    eye = torch.eye(points.shape[1], dtype=points.dtype)
    kept = torch.where(fine[:, None], points, 0.0)
    return kept, torch.where(fine[:, None, None], covariance, eye)


def predictive_target(
    views: Sequence[ViewPosterior],
    rows: Sequence[Tensor],
    n_components: int,
    offsets: Offsets,
    covariates: Tensor | None = None,
) -> Target:
    """Return log p(y | x) + log p(x) of some rows under one draw of every view.

    Parameters
    ----------
    views : sequence of ViewPosterior
        The first draw of each counts.
    rows : sequence over views of Tensor of shape (n, M_v), float64
        Encoded, NaN where missing.
    n_components : int
        D.
    offsets : sequence over views of Tensor of shape (n,), or None
    covariates : Tensor of shape (n, L), optional
    """
    terms = tuple(
        (_term(view, y, offset),)
        for view, y, offset in zip(views, rows, offsets, strict=True)
        if not bool(y.isnan().all())
    )
    beside = columns_beside(covariates, rows[0].shape[0])
    return Target(terms, n_components, (1.0,) * len(terms), beside)


def _term(view: ViewPosterior, y: Tensor, offset: Tensor | None) -> EntrywiseTerm:
    draw = view.draws[0]
    total = shifted(view.with_intercept(torch.zeros_like(y)), offset)
    covariance, group_of = draw.covariances(view.noise_variance, view.group_of)
    return EntrywiseTerm(
        draw.frequencies,
        entries_of(view.predictive),
        torch.nan_to_num(y),
        view.counted((~y.isnan()).to(y.dtype)),
        total,
        draw.mean,
        covariance,
        group_of,
    )


def points_around(candidates: Tensor, n_between: int = 0) -> Tensor:
    """Return where rows may lie: some candidates; and, for rows unlike all training rows, a wide
    cloud, where the weights are uncertain, with more points where the prior puts rows.
    """
    some = candidates[:: -(-candidates.shape[0] // _N_POINTS)]
    if candidates.shape[1] == 1:
        line = torch.linspace(-_ALONG, _ALONG, _ON_LINE, dtype=torch.float64)
        return torch.cat([some, line[:, None]])
    source = random.generator(0, "score/starts")
    cloud = random.normal(_N_POINTS + n_between, candidates.shape[1], source, "sobol")
    cloud[:_N_POINTS] *= _WIDE
    return torch.cat([some, cloud])


def best_points(
    points: Tensor,
    covariates: Tensor,
    tables: Callable[[Tensor, Tensor], Iterable[Sequence[Tensor]]],
    count: int,
) -> tuple[Tensor, Tensor]:
    """Look rows up at points.

    Parameters
    ----------
    points : Tensor of shape (P, D)
    covariates : Tensor of shape (n, L)
        Of the rows.
    tables : callable
        Of the numbers of i rows and the points with their covariates beside, (P, D + L): by view,
        the rows' log predictive densities under every draw, each (i, P).
    count : int

    Returns
    -------
    density : Tensor of shape (n, P)
        Logarithms, up to a constant, of the mean over draws.
    index : Tensor of shape (n, count)
        Of the best points that are apart.
    """
    dim = points.shape[1]
    total = (-0.5 * points.square().sum(1)).repeat(len(covariates), 1)
    for index, known in alike(covariates):
        at = with_covariates(points, known.expand(len(points), -1))
        for of_draws in tables(index, at):
            total[index] += torch.stack(list(of_draws)).logsumexp(0)
    near = near_each(points, APART * math.sqrt(dim), count * len(covariates))
    return total, best_apart(total.clone(), near, count)


def by_products(view: ViewPosterior, offset: Tensor | None) -> bool:
    """Return whether the table of a view is a few products, so that points cost little."""
    likelihood = view.predictive
    return isinstance(likelihood, Gaussian) or (
        isinstance(likelihood, Poisson) and offset is None
    )


@functools.singledispatch
def table(
    view: ViewPosterior, y: Tensor, offset: Tensor | None, mean: Tensor, variance: Tensor
) -> Tensor:
    """Return log predictive densities of all rows (n, M) at points with these moments (C, M)."""
    return _table(view.predictive, y, offset, mean, variance)


@functools.singledispatch
def _table(
    likelihood: Likelihood, y: Tensor, offset: Tensor | None, mean: Tensor, variance: Tensor
) -> Tensor:
    """Return log predictive densities under a likelihood, up to a constant of the row."""
    return _entry_by_entry(likelihood, y, offset, mean, variance)


def _entry_by_entry(
    likelihood: Likelihood, y: Tensor, offset: Tensor | None, mean: Tensor, variance: Tensor
) -> Tensor:
    observed = ~y.isnan()
    filled = torch.nan_to_num(y)
    entries = entries_of(likelihood)
    parts = []
    shift = of_each_row(offset, y.shape[0], y)
    for part in chunks(y.shape[0], max(1, CACHED_NUMBERS // mean.numel())):
        psi = mean + shift[part, None, None]
        shape = psi.shape
        repeated = filled[part, None].expand(shape).flatten(0, 1)
        values = entries.slopes(
            repeated, psi.flatten(0, 1), variance.repeat(shape[0], 1)
        ).value
        parts.append(torch.where(observed[part, None], values.reshape(shape), 0.0).sum(2))
    return torch.cat(parts)


@_table.register
def _(
    likelihood: Poisson, y: Tensor, offset: Tensor | None, mean: Tensor, variance: Tensor
) -> Tensor:
    if offset is not None:
        return _entry_by_entry(likelihood, y, offset, mean, variance)
    observed = (~y.isnan()).to(y.dtype)
    filled = torch.nan_to_num(y)
    products = likelihood.predictive_products(filled, mean, variance)
    return torch.stack([(observed * of_row) @ at.T for of_row, at in products]).sum(0)


@_table.register
def _(
    likelihood: Gaussian,
    y: Tensor,
    offset: Tensor | None,  # noqa: ARG001 - Gaussian rows have none
    mean: Tensor,
    variance: Tensor,
) -> Tensor:
    observed = (~y.isnan()).to(y.dtype)
    filled = torch.nan_to_num(y)
    v = variance + likelihood.noise_variance.detach()
    squared = filled.square() @ v.reciprocal().T - 2.0 * filled @ (mean / v).T
    return -0.5 * (squared + observed @ (mean.square() / v + v.log()).T)
