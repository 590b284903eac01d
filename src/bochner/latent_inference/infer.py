"""Placement: where rows lie in latent space under the posterior of the weights, and how sure that
is.

Every row is scored against reconstructions of training rows in one product, refined by a damped
Newton method of its own, and described by its best modes. Nothing depends on the other rows of a
batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from bochner.latent_inference.climbing import HOPELESS, climb, newton_step, positive_inverse
from bochner.latent_inference.placement import Placement, groups_of_rows, rows_at_once
from bochner.latent_inference.row_bound import Target, target_for
from bochner.weight_posterior.posterior import ViewPosterior

N_MODES = 3
# Beyond so many dimensions a row climbs from its best start alone: others are all far from it, and
# behind it.
MANY_DIMENSIONS = 12
# A step shorter than this is taken and ends a climb, in double precision and in the single
# precision that goes before: Newton's error after it is about its square.
_TOLERANCE = 1e-5
_ROUGH = 1e-3
# Squared distance, in posterior standard deviations, below which two climbs in single precision
# have found the same mode.
_SAME = 0.01
# So many candidates, evenly among those given, are scored: Newton's steps bridge what lies between
# them.
_STARTS = 2000

Offsets = Sequence[Tensor | None]


def place(
    views: Sequence[ViewPosterior],
    candidates: Tensor,
    rows: Sequence[Tensor],
    offsets: Offsets | None = None,
    n_modes: int = N_MODES,
    polish: bool = True,
    encoded: bool = False,
) -> Placement:
    """Place rows.

    Parameters
    ----------
    views : sequence of ViewPosterior
    candidates : Tensor of shape (C, D), float64
        Latents of training rows, where the search starts.
    rows : sequence over views of Tensor of shape (n, M_v), float64
        Scaled data, NaN where missing. A row without any observed entry gets the prior.
    offsets : sequence over views of Tensor of shape (n,), or None, optional
        Logarithms of the rows' size factors.
    n_modes : int
        R, starts from which a row climbs; one in more than 12 dimensions.
    polish : bool
        Whether double precision walks the last steps; without, modes are good to three digits.
    encoded : bool
        Whether rows are as their likelihoods encode them already.

    Returns
    -------
    Placement
    """
    n, dim = rows[0].shape[0], candidates.shape[1]
    n_modes = n_modes if dim <= MANY_DIMENSIONS else 1
    out = Placement(
        torch.zeros(n, n_modes, dim, dtype=torch.float64),
        torch.eye(dim, dtype=torch.float64).expand(n, n_modes, -1, -1).clone(),
        torch.zeros(n, n_modes, dtype=torch.float64),
    )
    out.weights[:, 0] = 1.0
    offsets = offsets or [None] * len(views)
    rows = rows if encoded else [view.encode(y) for view, y in zip(views, rows, strict=True)]
    candidates = candidates[:: -(-candidates.shape[0] // _STARTS)]
    book: list[tuple[Tensor, Tensor]] = []
    near = _near(candidates) if n_modes > 1 else torch.zeros(0, 0, dtype=torch.bool)
    conjugate = all(view.local is None for view in views)
    # Matrices of many dimensions are expensive: single precision, which is good to three digits,
    # has to do.
    single = conjugate and dim > MANY_DIMENSIONS
    seen_by = (
        [replace(v, draws=tuple(d.to(torch.float32) for d in v.draws)) for v in views]
        if single
        else views
    )
    for index, shared in groups_of_rows(views, rows, dim, rows_at_once(views, dim * n_modes)):
        part = [y[index] for y in rows]
        of_part = [None if offset is None else offset[index] for offset in offsets]
        target = target_for(
            seen_by, [y.float() for y in part] if single else part, dim, shared, of_part
        )
        if shared and conjugate:
            # single precision: it only says where to start
            scores = target.to(torch.float32).table(candidates.float())
        else:
            book = book or [reconstructions(view, candidates) for view in views]
            scores = candidate_scores(book, views, part, of_part) - 0.5 * candidates.square().sum(1)
        starts = candidates[best_apart(scores, near, n_modes)]
        found = _solve(target, starts, polish and not single)
        out.modes[index], out.covariances[index], out.weights[index] = (
            found.modes,
            found.covariances,
            found.weights,
        )
    return out


def reconstructions(view: ViewPosterior, candidates: Tensor) -> tuple[Tensor, Tensor]:
    """Mean of psi (C, M) at the candidates and its uncertainty, over draws: Var psi / sigma^2, (C,
    M) or (C, 1).
    """
    mean = torch.zeros(candidates.shape[0], view.n_columns, dtype=torch.float64)
    spread = (
        torch.zeros_like(mean)
        if view.local
        else torch.zeros(candidates.shape[0], 1, dtype=torch.float64)
    )
    for draw in view.draws:
        phi = draw.features(candidates)
        if view.local is None:
            mean += phi @ draw.mean / len(view.draws)
            spread = spread + _of_columns(view, draw.spread(phi, view.group_of)) / len(view.draws)
        else:
            own, variance = view.psi(draw, phi)
            mean, spread = mean + own / len(view.draws), spread + variance / len(view.draws)
    return mean, spread


def _of_columns(view: ViewPosterior, spread: Tensor) -> Tensor:
    """With one noise for all columns their spreads differ by group alone: the mean of them will do
    for a start.
    """
    return spread if isinstance(view.noise_variance, Tensor) else spread.mean(1, keepdim=True)


def candidate_scores(
    book: Sequence[tuple[Tensor, Tensor]],
    views: Sequence[ViewPosterior],
    rows: Sequence[Tensor],
    offsets: Offsets,
) -> Tensor:
    """Return weighted E log p(y | x, A) of the observed entries at every candidate, (n, C), up to a
    constant.

    Parameters
    ----------
    book : sequence over views of (Tensor of shape (C, M_v), Tensor of shape (C, 1) or (C, M_v))
        `reconstructions` of the candidates.
    views : sequence of ViewPosterior
    rows : sequence over views of Tensor of shape (n, M_v), float64
        Encoded.
    offsets : sequence over views of Tensor of shape (n,), or None
    """
    score = torch.zeros(rows[0].shape[0], book[0][0].shape[0], dtype=torch.float64)
    for (mean, spread), view, y, offset in zip(book, views, rows, offsets, strict=True):
        seen = (~y.isnan()).double()
        filled = torch.nan_to_num(y)
        if view.local is not None:
            # every row as it would be with the typical size factor: good enough to start from
            typical = filled if offset is None else filled / offset.exp()[:, None]
            for of_row, of_candidate in view.local.products(typical, mean, spread):
                score += view.weight * ((seen * of_row) @ of_candidate.T)
            continue
        scaled, known = filled / view.noise_variance, seen / view.noise_variance
        squared = (
            (filled * scaled).sum(1, keepdim=True) - 2.0 * scaled @ mean.T + known @ mean.square().T
        )
        wide = seen @ spread.T if spread.shape[1] > 1 else seen.sum(1, keepdim=True) * spread.T
        score -= 0.5 * view.weight * (squared + wide)
    return score


def _near(candidates: Tensor) -> Tensor:
    """Mark the candidates that are near each other, (C, C): less than half of the spread of them
    all apart.
    """
    near: Tensor = (
        torch.cdist(candidates, candidates) < 0.5 * candidates.std(0, unbiased=False).norm()
    )
    return near


def best_apart(scores: Tensor, near: Tensor, count: int) -> Tensor:
    """Return the best candidate of each row and the best ones that are far from those before, (n,
    count).

    Parameters
    ----------
    scores : Tensor of shape (n, C)
        Overwritten.
    near : Tensor of shape (C, C), bool
        Which candidates are near each other.
    count : int
    """
    chosen = []
    for r in range(count):
        best = scores.argmax(1)
        chosen.append(best)
        if r + 1 < count:
            scores.masked_fill_(near[best], -torch.inf)
    return torch.stack(chosen, dim=1)


def _solve(target: Target, starts: Tensor, polish: bool) -> Placement:
    """Climb from every start and weigh the modes found by their Laplace evidence."""
    n, n_modes, dim = starts.shape
    rows = torch.arange(n).repeat_interleave(n_modes)
    # Single precision finds the basin at half the cost; double precision walks the last, quadratic
    # steps, and only of modes that will weigh anything.
    x, value, hessian = (
        t.double()
        for t in climb(
            target.to(torch.float32), starts.reshape(-1, dim).float(), rows, tolerance=_ROUGH
        )
    )
    if polish:
        best = value.reshape(n, n_modes).amax(1)[rows]
        twin = _twins(
            x.reshape(n, n_modes, dim),
            value.reshape(n, n_modes),
            hessian.reshape(n, n_modes, dim, dim),
        )
        near = ((value > best - 2.0 * HOPELESS) & (twin == torch.arange(n * n_modes))).nonzero()[
            :, 0
        ]
        x[near], value[near], hessian[near] = _polished(target, x[near], rows[near])
        x, value, hessian = x[twin], value[twin], hessian[twin]
    covariance, log_volume = positive_inverse(-hessian)
    evidence = (value + 0.5 * log_volume).reshape(n, n_modes)
    order = evidence.argsort(dim=1, descending=True, stable=True)
    modes = x.reshape(n, n_modes, dim).gather(1, order[..., None].expand(-1, -1, dim))
    evidence = evidence.gather(1, order)
    covariance = covariance.reshape(n, n_modes, dim, dim).gather(
        1, order[..., None, None].expand(-1, -1, dim, dim)
    )
    for r in range(1, n_modes):  # the same mode reached twice counts once
        same = (modes[:, :r] - modes[:, r : r + 1]).norm(dim=-1).min(dim=1).values < 1e-4
        evidence[:, r] = torch.where(
            same, torch.full_like(evidence[:, r], -torch.inf), evidence[:, r]
        )
    return Placement(modes, covariance, evidence.softmax(1))


def _twins(x: Tensor, value: Tensor, hessian: Tensor) -> Tensor:
    """Return which climb each one counts as, (n R,): its row's best, where both found the same
    mode, or itself.
    """
    n, n_modes, _ = x.shape
    twin = torch.arange(n * n_modes).reshape(n, n_modes)
    best = value.argmax(1)
    own = torch.arange(n)
    away = x - x[own, best][:, None]
    squared = -((away @ hessian[own, best]) * away).sum(-1)
    # a form that is not positive tells nothing
    same = (squared >= 0.0) & (squared < _SAME) & (away.norm(dim=-1) < 10.0 * _ROUGH)
    return torch.where(same, twin[own, best][:, None], twin).flatten()


def _polished(target: Target, starts: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Climb in double precision and return modes with their values and Hessians.

    Where the climb ends depends on where single precision left it, and so on the rounding of the
    whole batch. A new evaluation there and one more step bring that below rounding: the step is
    about 1e-10 long, and neither value nor Hessian changes with it.
    """
    x, _, _ = climb(target, starts, rows, tolerance=_TOLERANCE)
    value, gradient, hessian = target.evaluate(x, rows)
    step, _ = newton_step(gradient, hessian, torch.full_like(value, _TOLERANCE))
    return x + step, value, hessian
