"""Modes of a row's predictive density under each draw of the spectra.

The density of a row is a mean over draws, and draws may place a row several standard deviations
apart: nothing that lies between them need be probable. So every draw has modes and covariances of
its own, and their mixture resembles the posterior of the latent.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bochner import random
from bochner.features.fourier import columns_beside
from bochner.latent_inference.entry_terms import EntrywiseTerm, entries_of
from bochner.latent_inference.infer import MANY_DIMENSIONS
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
from bochner.weight_posterior.posterior import NonConjugatePosterior, ViewPosterior

# Points of a kind at which rows are looked up, the standard deviation of those of a cloud.
_N_POINTS = 96
_WIDE = 2.5
# Numbers of which densities are taken at once: about what stays in a processor's cache.
CACHED_NUMBERS = 2**18

# More combinations of the views' draws are not visited: the draws of all views are paired instead.
_COMBINATIONS = 12
# Steps of this length end a climb, unless they promise more nats, as where modes are narrow.
_TOLERANCE, _RISE = 3e-3, 0.05
# Nats by which a start may lie behind the best of its row: exp(-10) weighs little.
_BEHIND = 10.0
# Log weight of a climb that broke down: none beside others, an equal one where all did.
_NOWHERE = -1e300
# Share of a mode beside which others do not count.
_ALONE = 0.999
# Share of a mode that no row misses.
_WEIGHTLESS = 1e-4
# Halvings of a bracket for a quantile, and how many standard deviations of a mode it reaches.
_BISECTIONS = 30
_FAR = 9.0
# Levels of intervals with the half width that holds them of a standard normal distribution, and
# halvings of a bracket that finds them.
_LEVELS = ((0.5, 0.6744897501960817), (0.95, 1.959963984540054))
_HALVINGS = 10
# Squared distance, in posterior standard deviations, of two climbs that found the same mode.
_SAME = 0.01


@dataclass(frozen=True)
class Modes:
    """Laplace approximations, a mixture for every row.

    Attributes
    ----------
    means : Tensor of shape (n, C, D)
    covariances : Tensor of shape (n, C, D, D)
    log_weights : Tensor of shape (n, C)
        Evidence in nats; -inf where a mode counts already. Most probable first.
    """

    means: Tensor
    covariances: Tensor
    log_weights: Tensor

    def at(self, index: Tensor) -> Modes:
        """Return those of some rows."""
        return Modes(self.means[index], self.covariances[index], self.log_weights[index])

    def places(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the means, covariances and shares of the modes that some row does not miss."""
        shares = self.log_weights.softmax(1)
        count = max(1, int((shares.amax(0) > _WEIGHTLESS).sum()))
        kept = shares[:, :count]
        return (
            self.means[:, :count],
            self.covariances[:, :count],
            kept / kept.sum(1, keepdim=True),
        )

    def std_about(self, centre: Tensor) -> Tensor:
        """Return the root mean square distance of the mixture from a centre, (n, D) -> (n, D)."""
        away = self.means - centre[:, None]
        spread = torch.diagonal(self.covariances, dim1=-2, dim2=-1) + away.square()
        return (self.log_weights.softmax(1)[..., None] * spread).sum(1).sqrt()

    def normal_std_about(self, centre: Tensor) -> Tensor:
        """Return standard deviations of normal distributions about a centre that are like the
        mixture, (n, D) -> (n, D).

        Geometric means of the root mean square distance and those whose 50 % and whose 95 %
        intervals hold as much of it: the first alone holds far more than half within its 50 %
        interval where a small share of the mixture lies far away. Rows with one mode keep it.
        """
        out = self.std_about(centre)
        shares = self.log_weights.softmax(1)
        index = (shares.amax(1) < _ALONE).nonzero()[:, 0]
        count = (
            int((shares[index].amax(0, keepdim=True) > _WEIGHTLESS).sum()) if len(index) else 0
        )
        weights = shares[index, :count, None]
        covariances = self.covariances[index, :count]
        root = torch.diagonal(covariances, dim1=-2, dim2=-1).sqrt()
        away = (centre[index, None] - self.means[index, :count]) / root
        away, root = (part.repeat(1, 1, len(_LEVELS)) for part in (away, root))

        def held(half_width: Tensor) -> Tensor:
            reach = half_width[:, None] / root
            inside = torch.special.ndtr(away + reach) - torch.special.ndtr(away - reach)
            share: Tensor = (weights * inside).sum(1)
            return share

        out[index] = like_normal(out[index], held)
        return out

    def log_density(self, points: Tensor) -> Tensor:
        """Return what the most probable mode's approximation says of log p(y, x) at points (P, D),
        (n, P).
        """
        dim = points.shape[1]
        mean = self.means[:, 0]
        root = cholesky(self.covariances[:, 0])
        precision, log_volume = root.inverse(), -root.logdet()
        pushed = (precision @ mean[..., None])[..., 0]
        # a quadratic form in all points is one product
        products = (points[:, :, None] * points[:, None, :]).flatten(1)
        height = self.log_weights[:, 0] + 0.5 * (log_volume - dim * math.log(2.0 * math.pi))
        height = height - 0.5 * (pushed * mean).sum(1)
        return torch.addmm(height[:, None], pushed, points.T) - 0.5 * (
            precision.flatten(1) @ products.T
        )

    def distribution(self, x: Tensor) -> Tensor:
        """Return the mixture's distribution function in every dimension, (n, D) -> (n, D)."""
        root = torch.diagonal(self.covariances, dim1=-2, dim2=-1).sqrt()
        below = torch.special.ndtr((x[:, None] - self.means) / root)
        share: Tensor = (self.log_weights.softmax(1)[..., None] * below).sum(1)
        return share

    def quantile(self, share: float) -> Tensor:
        """Return where the mixture has so much below it in every dimension, (n, D)."""
        root = torch.diagonal(self.covariances, dim1=-2, dim2=-1).sqrt()
        counts = self.log_weights.isfinite()[..., None]
        reach = _FAR * root
        low = torch.where(counts, self.means - reach, torch.inf).amin(1)
        high = torch.where(counts, self.means + reach, -torch.inf).amax(1)
        for _ in range(_BISECTIONS):
            middle = 0.5 * (low + high)
            short = self.distribution(middle) < share
            low = torch.where(short, middle, low)
            high = torch.where(short, high, middle)
        return 0.5 * (low + high)


def like_normal(std: Tensor, held: Callable[[Tensor], Tensor]) -> Tensor:
    """Return standard deviations of normal distributions that hold as much as others about the same
    centres: geometric means of the root mean square distance and of what 50 % and 95 % intervals
    ask for.

    Parameters
    ----------
    std : Tensor of shape (n, D)
        Root mean square distances from the centres.
    held : callable
        Half widths of intervals about the centres -> what they hold, (n, L D) -> (n, L D): those of
        every dimension, once for each of the L levels.
    """
    # the levels beside each other: calls cost more here than what they compute
    dim = std.shape[1]
    levels, normal = std.new_tensor(_LEVELS).repeat_interleave(dim, 0).T
    # Chebyshev's inequality
    high: Tensor = std.repeat(1, len(_LEVELS)) / (1.0 - levels).sqrt()
    low = torch.zeros_like(high)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        enough = held(middle) > levels
        low = torch.where(enough, low, middle)
        high = torch.where(enough, middle, high)
    log_std = torch.unflatten((high / normal).log(), 1, (len(_LEVELS), dim)).mean(1)
    return (std * log_std.exp()).sqrt()


def combinations(views: Sequence[ViewPosterior]) -> list[list[ViewPosterior]]:
    """Return the views with one draw each: every combination, or the first of all, the second of
    all and so on where there are many.
    """
    counts = [len(view.draws) for view in views]
    chosen = list(itertools.product(*map(range, counts)))
    if math.prod(counts) > _COMBINATIONS:
        chosen = [tuple(s % count for count in counts) for s in range(max(counts))]
    return [
        [replace(view, draws=(view.draws[s],)) for view, s in zip(views, which, strict=True)]
        for which in chosen
    ]


def climbed(
    views: Sequence[ViewPosterior],
    start: Placement,
    rows: Sequence[Tensor],
    offsets: Offsets,
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
    max_steps: int,
) -> Modes:
    dim = start.modes.shape[2]
    target = predictive_target(views, rows, dim, offsets, start.covariates)
    if dim <= MANY_DIMENSIONS:
        every = torch.ones_like(start.weights, dtype=torch.bool)
        return laplace_modes(target, start.modes, every, _TOLERANCE, max_steps)
    n, n_modes, _ = start.modes.shape
    index = torch.arange(n).repeat_interleave(n_modes)
    points = start.modes.reshape(-1, dim)
    covariance = start.covariances.flatten(0, 1)
    value = target.evaluate(points, index)[0]
    log_volume = cholesky(covariance).logdet()
    parts = _mixed(points, covariance, value, log_volume)
    return _distinct(Modes(*(part.reshape(n, n_modes, *part.shape[1:]) for part in parts)))


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
    return _distinct(Modes(*(part.reshape(*kept.shape, *part.shape[1:]) for part in parts)))


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


def _distinct(modes: Modes) -> Modes:
    """Give a mode that was reached twice no second weight."""
    log_weights = modes.log_weights.clone()
    # rows with one mode have no other one
    rows = (log_weights.isfinite().sum(1) > 1).nonzero()[:, 0]
    if not len(rows):
        return modes
    means, weights = modes.means[rows], log_weights[rows]
    precision = cholesky(modes.covariances[rows]).inverse()
    # (n, R, R', D): of every other mode from each
    away = means[:, None] - means[:, :, None]
    near = ((away @ precision) * away).sum(3) < _SAME
    for r in range(1, log_weights.shape[1]):
        again = (near[:, :r, r] & weights[:, :r].isfinite()).any(1)
        weights[again, r] = -torch.inf
    log_weights[rows] = weights
    return Modes(modes.means, modes.covariances, log_weights)


def joined(parts: Sequence[Modes]) -> Modes:
    """Mix the modes of equally probable draws."""
    share = math.log(len(parts))
    return _sorted([replace(part, log_weights=part.log_weights - share) for part in parts])


def merged(modes: Modes, more: Modes) -> Modes:
    """Return a mixture with the modes of another one that it does not have."""
    return _sorted([_distinct(_sorted([modes, more]))])


def _sorted(parts: Sequence[Modes]) -> Modes:
    """Put modes beside each other, the most probable first."""
    log_weights = torch.cat([part.log_weights for part in parts], dim=1)
    order = log_weights.argsort(dim=1, descending=True, stable=True)
    rows = torch.arange(order.shape[0])[:, None]
    return Modes(
        torch.cat([part.means for part in parts], dim=1)[rows, order],
        torch.cat([part.covariances for part in parts], dim=1)[rows, order],
        log_weights[rows, order],
    )


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


def peaked(views: Sequence[ViewPosterior]) -> bool:
    """Return whether curvature grows with e^psi: posteriors are narrow then, and far from
    normal.
    """
    parts = (view for view in views if isinstance(view, NonConjugatePosterior))
    return any(view.bound.extra_sweeps > 0 for view in parts)


def points_around(candidates: Tensor, n_between: int = 0) -> Tensor:
    """Return where rows may lie: some candidates; and, for rows unlike all training rows, a wide
    cloud, where the weights are uncertain, with more points where the prior puts rows.
    """
    source = random.generator(0, "score/starts")
    cloud = random.normal(_N_POINTS + n_between, candidates.shape[1], source, "sobol")
    cloud[:_N_POINTS] *= _WIDE
    return torch.cat([candidates[:: -(-candidates.shape[0] // _N_POINTS)], cloud])


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
