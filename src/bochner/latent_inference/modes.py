"""Where rows lie in latent space, and how sure that is: from starts to the modes of rows.

Newton climbs in single precision, each inside a trust radius of its own, last steps in double,
weights of the modes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from bochner.features.fourier import with_covariates
from bochner.latent_inference.candidate_table import Starts
from bochner.latent_inference.cells import CellTarget
from bochner.latent_inference.row_bound import SETTLED, Target
from bochner.linalg import newton_step, positive_definite, positive_inverse


@dataclass(frozen=True)
class Placement:
    """Posterior modes of the rows' latents.

    Attributes
    ----------
    modes : Tensor of shape (n, R, D)
        Best first.
    covariances : Tensor of shape (n, R, D, D)
        Of the Laplace approximation at each mode.
    weights : Tensor of shape (n, R)
        Posterior weight of each mode; rows sum to 1, duplicates have 0.
    covariates : Tensor of shape (n, L)
        Of the rows.
    """

    modes: Tensor
    covariances: Tensor
    weights: Tensor
    covariates: Tensor

    @classmethod
    def at_the_prior(cls, n_modes: int, dim: int, covariates: Tensor) -> Placement:
        """Return that of rows of which nothing is known."""
        n = len(covariates)
        eye = torch.eye(dim, dtype=torch.float64)
        modes = torch.zeros(n, n_modes, dim, dtype=torch.float64)
        weights = torch.zeros(n, n_modes, dtype=torch.float64)
        weights[:, 0] = 1.0
        return cls(modes, eye.expand(n, n_modes, -1, -1).clone(), weights, covariates)

    @classmethod
    def joined(cls, parts: Sequence[Placement]) -> Placement:
        """Put the rows of several placements one after the other."""
        of_parts = ((p.modes, p.covariances, p.weights, p.covariates) for p in parts)
        return cls(*map(torch.cat, zip(*of_parts, strict=True)))

    def of(self, index: Tensor) -> Placement:
        """Return that of some rows."""
        parts = (self.modes, self.covariances, self.weights, self.covariates)
        return Placement(*(part[index] for part in parts))

    def put(self, index: Tensor, places: Placement) -> None:
        """Put places of some rows among those of all."""
        self.modes[index] = places.modes
        self.covariances[index] = places.covariances
        self.weights[index] = places.weights

    def inputs(self, x: Tensor) -> Tensor:
        """Return places of all rows with their covariates beside them, (n, ..., D) -> (n, ..., D +
        L).
        """
        return with_covariates(x, self.covariates)

    @property
    def mean(self) -> Tensor:
        """The best mode, (n, D): a place that exists, where a mean of several modes may not."""
        return self.modes[:, 0]

    @property
    def std(self) -> Tensor:
        """Root mean square distance of the mixture from the best mode, per dimension, (n, D)."""
        away = self.modes - self.modes[:, :1]
        spread = torch.diagonal(self.covariances, dim1=-2, dim2=-1) + away.square()
        return (self.weights[..., None] * spread).sum(1).sqrt()


# Steps of a climb.
MAX_STEPS = 100
# Nats by which a start may lie behind the row's best, beyond what its slope promises: exp(-40)
# weighs nothing.
HOPELESS = 40.0


class Objective(Protocol):
    """A function of a row's latent."""

    def evaluate(self, x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return value, gradient and Hessian at x (n, D) of the given rows: (n,), (n, D), (n, D,
        D).
        """


class Climbs(NamedTuple):
    """Where climbs ended, with the value and the Hessian there; which of them were winding, (P,),
    so that their ends may depend on rounding; and how long they were, (P,).
    """

    x: Tensor
    value: Tensor
    hessian: Tensor
    winding: Tensor
    length: Tensor


# Newton's method from a candidate near a mode takes four to six steps and goes back once: of rows
# of ordinary tables two in a hundred take more than so many steps or go back more often. Climbs of
# nine to twelve steps under wavy kernels were seen to end where rounding sent them.
_LONG, _BACK = 8, 3
# Share of the radius that a step which was not cut to it is shorter than: rounding may leave a cut
# one a little below.
_INSIDE = 0.999
# Short steps in a row after which a climb ends whatever they promise: slopes of counts of 2^50 are
# rounded to what no step takes away, and climbs took all their steps.
_IDLE = 30


@dataclass(frozen=True)
class Limits:
    """When a climb ends, or is given up.

    Attributes
    ----------
    tolerance : float
        A step of this length ends it.
    max_steps : int
    hopeless : float
        Nats by which it may lie behind the row's best, beyond what its slope promises.
    near : float
        A step of fewer posterior standard deviations ends it, too, and adds the rise that it
        promises to the value.
    long : int
        One of more steps is winding.
    rise : float
        One that promises more nats does not end it, however short it is; many in a row do.
    """

    tolerance: float
    max_steps: int = MAX_STEPS
    hopeless: float = HOPELESS
    near: float = 0.0
    long: int = _LONG
    rise: float = torch.inf


def climb(
    target: Objective,
    starts: Tensor,
    rows: Tensor,
    limits: Limits,
    reached: Tensor | None = None,
    rounding: Tensor | None = None,
) -> Climbs:
    """Maximise each row's bound from each start (P, D) by Newton steps inside a trust radius of its
    own.

    ``reached`` are values that rows have elsewhere, (n,). With ``rounding``, (P,), climbs follow
    curved ridges, and a value that falls by a few times as much has not fallen: it does not tell.
    """
    on_ridge = rounding is not None
    x = starts.clone()
    value, gradient, hessian = target.evaluate(x, rows)
    # rounding of the value must not reject the last, tiny steps
    gap = 4.0 * torch.finfo(x.dtype).eps
    unknown = torch.zeros_like(value) if rounding is None else 4.0 * rounding
    radius = torch.full_like(value, 0.5)
    # from where there is no value no step is better than another
    active = value.isfinite().nonzero()[:, 0]
    leaders = (
        value.new_full((int(rows.max()) + 1,), -torch.inf) if reached is None else reached
    )
    winding = torch.zeros_like(value, dtype=torch.bool)
    n_back = torch.zeros_like(rows)
    walked = torch.zeros_like(value)
    idle = torch.zeros_like(rows)
    # a step that promises more may be short because it leads back to a crest
    promised = _RISEN if on_ridge else limits.rise
    for number in range(limits.max_steps):
        step, gain = newton_step(gradient[active], hessian[active], radius[active])
        best = leaders.scatter_reduce(0, rows, value, "amax")[rows[active]]
        length = step.norm(dim=1)
        close = (2.0 * gain <= limits.near**2) & (length < _INSIDE * radius[active])
        still = length <= limits.tolerance
        idle[active] = torch.where(still, idle[active] + 1, 0)
        short = (still & ((gain <= promised) | (idle[active] > _IDLE))) | close
        x[active[short]] += step[short]
        value[active[close]] += gain[close]
        going = ~short & (value[active] + 4.0 * gain + limits.hopeless >= best)
        active, step, length = active[going], step[going], length[going]
        if not active.numel():
            break
        if number == limits.long:
            winding[active] = True
        trial = x[active] + step
        new_value, new_gradient, new_hessian = target.evaluate(trial, rows[active])
        least = value[active] - gap * (1.0 + value[active].abs()) - unknown[active]
        if on_ridge:
            at_trial = new_value, new_gradient, new_hessian
            _correct(target, rows[active], x[active], trial, length, at_trial, least)
        better = new_value >= least
        kept = active[better]
        x[kept], value[kept] = trial[better], new_value[better]
        gradient[kept], hessian[kept] = new_gradient[better], new_hessian[better]
        n_back[active] += ~better
        walked[active] += length
        wide = 3.0 * length
        if on_ridge:
            # steps back to the crest are short and say nothing of those along it
            wide = torch.maximum(wide, radius[active])
        radius[active] = torch.where(better, wide.clamp(min=1e-3, max=2.0), 0.25 * length)
    return Climbs(x, value, hessian, winding | (n_back > _BACK), walked)


# Steps back to the crest of a curved ridge before one along it is judged: three for one saved up to
# three quarters of the evaluations, more saved little.
_CORRECTIONS = 3


def _correct(
    target: Objective,
    rows: Tensor,
    origin: Tensor,
    trial: Tensor,
    length: Tensor,
    at_trial: tuple[Tensor, Tensor, Tensor],
    least: Tensor,
) -> None:
    """Move steps that fell off a ridge, below ``least``, back to its crest: places, (P, D), and
    what is known there are overwritten.
    """
    value, gradient, hessian = at_trial
    for _ in range(_CORRECTIONS):
        fallen = ((value < least) & value.isfinite()).nonzero()[:, 0]
        if not fallen.numel():
            break
        back, _ = newton_step(gradient[fallen], hessian[fallen], length[fallen])
        again = trial[fallen] + back
        at = target.evaluate(again, rows[fallen])
        # back to where the step began is nowhere: it would be taken again and again
        moved = (again - origin[fallen]).norm(dim=1) > 0.5 * length[fallen]
        higher = (at[0] > value[fallen]) & moved
        some = fallen[higher]
        if not some.numel():
            break
        trial[some] = again[higher]
        for part, new in zip(at_trial, at, strict=True):
            part[some] = new[higher]


# Of climbs along the curved ridges that large counts leave, in double precision.
_RIDGE_STEPS = 2000
# Nats that a step promises at the top of a ridge, at the most.
_RISEN = 1e-9
# A step shorter than this ends a climb in single precision, as SETTLED does in double.
_ROUGH = 1e-3
# Steps from the end of a climb in single precision after which it was not near a mode.
_ASTRAY = 1
# How far a start is moved to see whether its climb forgets it, and how far places may differ then;
# rounding is a thousandth of such a move.
_MOVED, _FORGOTTEN = 1e-12, 1e-4
# Nats behind a row's best mode from which a mode is not walked to its end: it would weigh 1e-11.
_WEIGHTLESS = 25.0
# Squared distance, in posterior standard deviations, below which two climbs in single precision
# have found the same mode.
_SAME = 0.01


class Solution(NamedTuple):
    """Places of rows, and which of them may depend on how numbers were rounded, (n,)."""

    placement: Placement
    doubtful: Tensor


def too_steep(target: Target | CellTarget) -> Tensor:
    """Return whose values single precision does not hold to a nat, (n,)."""
    return target.rounding(torch.float32) > 1.0


def located(target: Target | CellTarget, starts: Starts, polish: bool) -> Solution:
    """Climb where the table found no mode, and weigh modes by their Laplace evidence."""
    n, n_modes, dim = starts.x.shape
    rows = torch.arange(n).repeat_interleave(n_modes)
    x = starts.x.reshape(-1, dim).double()
    value = starts.value.flatten().double()
    hessian = starts.hessian.reshape(-1, dim, dim).double()
    winding = torch.zeros_like(value, dtype=torch.bool)
    hopeful = (starts.promised + HOPELESS > 0.0).flatten()
    value[~hopeful] = -torch.inf
    settled = starts.settled.flatten()
    lost = (hopeful & ~settled).nonzero()[:, 0]
    if lost.numel():
        single = target.to(torch.float32)
        # which values of tables lack
        constant = target.constant()
        best = value.masked_fill(~settled, -torch.inf).reshape(n, n_modes).amax(1)
        reached = (best + constant).float()
        limits = Limits(_ROUGH, hopeless=_WEIGHTLESS)
        rough = climb(single, x[lost].float(), rows[lost], limits, reached)
        x[lost], value[lost], hessian[lost] = (part.double() for part in rough[:3])
        winding[lost] = rough.winding
        value[lost] -= constant[rows[lost]]
    ends = _Modes(x, value, hessian, winding, torch.zeros_like(value))
    if polish:
        ends = ends.polished(n, partial(_settled, target))
    return ends.weighed(target.covariates)


def solved(target: Target | CellTarget, starts: Tensor, polish: bool) -> Solution:
    """Climb from every start and weigh the modes found by their Laplace evidence."""
    n, n_modes, dim = starts.shape
    rows = torch.arange(n).repeat_interleave(n_modes)
    ends = _rough(target, starts.reshape(-1, dim), rows, torch.float32)
    if polish:
        walk = _settled if target.settles_climbs else _polished
        ends = ends.polished(n, partial(walk, target))
    return ends.weighed(target.covariates)


def solved_exactly(target: Target, starts: Tensor, sides: int) -> Solution:
    """Climb as `solved` does, in double precision alone.

    Parameters
    ----------
    target : Target
    starts : Tensor of shape (n, R, D), float64
    sides : int
        So many climbs begin at every start, or beside it: what rounding decides, so small a move
        decides, too, and such rows are doubtful.
    """
    n, n_modes, dim = starts.shape
    every = torch.cat([starts + side * _MOVED for side in range(sides)])
    rows = torch.arange(n).repeat(sides).repeat_interleave(n_modes)
    ends = _rough(target, every.reshape(-1, dim), rows, starts.dtype)
    ends = ends.polished(sides * n, partial(_polished, target), rows)
    placed = ends.weighed(target.covariates.repeat(sides, 1)).placement
    # two ways that part early may meet again by chance, but not after the same length
    length = ends.length.reshape(sides * n, n_modes)
    placed_at = torch.cat([placed.mean, placed.std, length], dim=1).reshape(sides, n, -1)
    away = (placed_at - placed_at[0]).abs().amax((0, 2))
    return Solution(placed.of(torch.arange(n)), ~(away <= _FORGOTTEN))


def _rough(
    target: Target | CellTarget, starts: Tensor, rows: Tensor, precision: torch.dtype
) -> _Modes:
    """Climb from every start (P, D) to near a mode. Single precision finds the basin at half the
    cost; double precision walks the last, quadratic steps, and only of modes that will weigh
    anything.
    """
    x = starts.double().clone()
    value = x.new_full((len(x),), -torch.inf)
    hessian = x.new_zeros(*x.shape, x.shape[1])
    winding = torch.zeros_like(value, dtype=torch.bool)
    length = torch.zeros_like(value)
    left = too_steep(target)[rows]
    index = (~left).nonzero()[:, 0]
    if index.numel():
        begin = x[index].to(precision)
        reached = climb(target.to(precision), begin, rows[index], Limits(_ROUGH))
        x[index], value[index], hessian[index] = (part.double() for part in reached[:3])
        winding[index], length[index] = reached.winding, reached.length.double()
    # beyond the range of single precision, or its digits; along a ridge steps are short long
    # before its top
    index = (left | ~value.isfinite()).nonzero()[:, 0]
    if index.numel():
        begin = starts[index].double()
        error = target.rounding(torch.float64)[rows[index]]
        limits = Limits(SETTLED, _RIDGE_STEPS)
        reached = climb(target, begin, rows[index], limits, rounding=error)
        x[index], value[index], hessian[index], _, length[index] = reached
        winding[index] = True
    return _Modes(x, value, hessian, winding, length)


# From places and Hessians of climbs, and their rows, to modes, values and Hessians.
Polish = Callable[[Tensor, Tensor, Tensor], Climbs]


@dataclass(frozen=True)
class _Modes:
    """Climbs of n rows, R each: of the shapes of `Climbs`, P = n R."""

    x: Tensor
    value: Tensor
    hessian: Tensor
    winding: Tensor
    length: Tensor

    def polished(self, n: int, polish: Polish, rows: Tensor | None = None) -> _Modes:
        """Walk the last steps of what will weigh anything, in double precision; ``rows`` of the
        target where they are not these.
        """
        x = self.x.clone()
        value = self.value.masked_fill(self.value.isnan(), -torch.inf)
        hessian = self.hessian.clone()
        count = len(x) // n
        dim = x.shape[1]
        of_climbs = torch.arange(n).repeat_interleave(count)
        rows = of_climbs if rows is None else rows
        best = value.reshape(n, count).amax(1)[of_climbs]
        shape = (n, count, dim)
        twin = _twins(x.reshape(shape), value.reshape(n, count), hessian.reshape(*shape, dim))
        near = ((value >= best - _WEIGHTLESS) & (twin == torch.arange(len(x)))).nonzero()[:, 0]
        value[:] = -torch.inf
        last = polish(x[near], hessian[near], rows[near])
        x[near], value[near], hessian[near] = last[:3]
        winding = self.winding.clone()
        winding[near] |= last.winding
        length = self.length.clone()
        length[near] += last.length
        return _Modes(x[twin], value[twin], hessian[twin], winding, length)

    def weighed(self, covariates: Tensor) -> Solution:
        """Return the modes of all rows."""
        winding = self.winding.reshape(len(covariates), -1).any(1)
        return Solution(_weighed(self.x, self.value, self.hessian, covariates), winding)


def _weighed(x: Tensor, value: Tensor, hessian: Tensor, covariates: Tensor) -> Placement:
    """Return modes, best first, with the weights of their Laplace evidence."""
    n = len(covariates)
    n_modes = len(x) // n
    dim = x.shape[1]
    covariance, log_volume = positive_inverse(-hessian)
    evidence = (value + 0.5 * log_volume).reshape(n, n_modes)
    # a climb may end at a saddle, about which nothing is like a normal distribution
    top = positive_definite(-hessian).reshape(n, n_modes) & evidence.isfinite()
    evidence = evidence.masked_fill(~top & top.any(1, keepdim=True), -torch.inf)
    order = evidence.argsort(dim=1, descending=True, stable=True)
    modes = x.reshape(n, n_modes, dim).gather(1, order[..., None].expand(-1, -1, dim))
    evidence = evidence.gather(1, order)
    covariance = covariance.reshape(n, n_modes, dim, dim).gather(
        1, order[..., None, None].expand(-1, -1, dim, dim)
    )
    # the same mode reached twice counts once
    for r in range(1, n_modes):
        same = (modes[:, :r] - modes[:, r : r + 1]).norm(dim=-1).min(dim=1).values < 1e-4
        evidence[:, r] = torch.where(
            same, torch.full_like(evidence[:, r], -torch.inf), evidence[:, r]
        )
    return Placement(modes, covariance, evidence.softmax(1), covariates)


def _twins(x: Tensor, value: Tensor, hessian: Tensor) -> Tensor:
    """Return which climb each one counts as, (n R,): its row's best, where both found the same
    mode, or itself.
    """
    n, n_modes, _ = x.shape
    twin = torch.arange(n * n_modes).reshape(n, n_modes)
    best = value.argmax(1)
    rows = torch.arange(n)
    away = x - x[rows, best][:, None]
    squared = -((away @ hessian[rows, best]) * away).sum(-1)
    # a form that is not positive tells nothing
    same = (squared >= 0.0) & (squared < _SAME) & (away.norm(dim=-1) < 10.0 * _ROUGH)
    return torch.where(same, twin[rows, best][:, None], twin).flatten()


def _settled(
    target: Target | CellTarget, starts: Tensor, hessian: Tensor, rows: Tensor
) -> Climbs:
    """Let the target take the last steps; climb where they do not end at a mode."""
    x, value, bends, settled = target.settled(starts, hessian, rows)
    winding = torch.zeros_like(settled)
    length = torch.zeros_like(value)
    off = (~settled).nonzero()[:, 0]
    if off.numel():
        x[off], value[off], bends[off], winding[off], length[off] = _polished(
            target, starts[off], hessian[off], rows[off]
        )
    return Climbs(x, value, bends, winding, length)


def _polished(
    target: Target | CellTarget, starts: Tensor, hessian: Tensor, rows: Tensor
) -> Climbs:
    """Climb in double precision and return modes with their values and Hessians.

    Where the climb ends depends on where single precision left it, and so on the rounding of the
    whole batch. A new evaluation there and one more step bring that below rounding: the step is
    about 1e-10 long, and neither value nor Hessian changes with it.
    """
    x, _, _, winding, length = climb(target, starts, rows, Limits(SETTLED, long=_ASTRAY))
    value, gradient, hessian = target.evaluate(x, rows)
    step, _ = newton_step(gradient, hessian, torch.full_like(value, SETTLED))
    return Climbs(x + step, value, hessian, winding, length)
