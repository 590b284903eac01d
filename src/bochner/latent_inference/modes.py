"""Where rows lie in latent space, and how sure that is: from starts to the modes of rows.

Newton climbs in single precision, each inside a trust radius of its own, last steps in double,
weights of the modes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from bochner.features.fourier import with_covariates
from bochner.latent_inference.candidate_table import Starts
from bochner.latent_inference.cells import CellTarget
from bochner.latent_inference.row_bound import SETTLED, Target
from bochner.linalg import newton_step, positive_inverse


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
    def joined(cls, parts: Sequence[Placement]) -> Placement:
        """Put the rows of several placements one after the other."""
        of_parts = ((p.modes, p.covariances, p.weights, p.covariates) for p in parts)
        return cls(*map(torch.cat, zip(*of_parts, strict=True)))

    def of(self, index: Tensor) -> Placement:
        """Return that of some rows."""
        parts = (self.modes, self.covariances, self.weights, self.covariates)
        return Placement(*(part[index] for part in parts))

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


def alike(covariates: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the rows with the same covariates, (n,), and these covariates, (1, L)."""
    if not covariates.shape[1]:
        yield torch.arange(len(covariates)), covariates[:1]
        return
    distinct, which = torch.unique(covariates, dim=0, return_inverse=True)
    for number, values in enumerate(distinct):
        yield (which == number).nonzero()[:, 0], values[None]


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


def climb(
    target: Objective,
    starts: Tensor,
    rows: Tensor,
    tolerance: float,
    max_steps: int = MAX_STEPS,
    hopeless: float = HOPELESS,
    reached: Tensor | None = None,
    near: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Maximise each row's bound from each start (P, D) by Newton steps inside a trust radius of its
    own.

    A start that cannot catch up with the row's best is left where it is: its weight would vanish.
    ``reached`` are values that rows have elsewhere, (n,). A step of less than ``near`` posterior
    standard deviations ends a climb, too, and adds the rise that it promises to the value.
    """
    x = starts.clone()
    value, gradient, hessian = target.evaluate(x, rows)
    # rounding of the value must not reject the last, tiny steps
    gap = 4.0 * torch.finfo(x.dtype).eps
    radius = torch.full_like(value, 0.5)
    # from where there is no value no step is better than another
    active = value.isfinite().nonzero()[:, 0]
    leaders = (
        value.new_full((int(rows.max()) + 1,), -torch.inf) if reached is None else reached
    )
    for _ in range(max_steps):
        step, gain = newton_step(gradient[active], hessian[active], radius[active])
        best = leaders.scatter_reduce(0, rows, value, "amax")[rows[active]]
        length = step.norm(dim=1)
        close = (2.0 * gain <= near**2) & (length < radius[active])
        short = (length <= tolerance) | close
        x[active[short]] += step[short]
        value[active[close]] += gain[close]
        going = ~short & (value[active] + 4.0 * gain + hopeless >= best)
        active = active[going]
        step = step[going]
        length = length[going]
        if not active.numel():
            break
        trial = x[active] + step
        new_value, new_gradient, new_hessian = target.evaluate(trial, rows[active])
        better = new_value >= value[active] - gap * (1.0 + value[active].abs())
        kept = active[better]
        x[kept], value[kept] = trial[better], new_value[better]
        gradient[kept], hessian[kept] = new_gradient[better], new_hessian[better]
        radius[active] = torch.where(
            better, (3.0 * length).clamp(min=1e-3, max=2.0), 0.25 * length
        )
    return x, value, hessian


# Of climbs along the curved ridges that large counts leave, in double precision.
_RIDGE_STEPS = 2000
# A step shorter than this ends a climb in single precision, as SETTLED does in double.
_ROUGH = 1e-3
# So few climbs cost the same in double precision, since calls decide; between two basins single
# precision may let the rounding of the batch choose.
_FEW = 96
# Nats behind a row's best mode from which a mode is not walked to its end: it would weigh 1e-11.
_WEIGHTLESS = 25.0
# Squared distance, in posterior standard deviations, below which two climbs in single precision
# have found the same mode.
_SAME = 0.01


def located(target: Target | CellTarget, starts: Starts, polish: bool) -> Placement:
    """Climb where the table found no mode, and weigh modes by their Laplace evidence."""
    n, n_modes, dim = starts.x.shape
    rows = torch.arange(n).repeat_interleave(n_modes)
    x = starts.x.reshape(-1, dim).double()
    value = starts.value.flatten().double()
    hessian = starts.hessian.reshape(-1, dim, dim).double()
    hopeful = (starts.promised + HOPELESS > 0.0).flatten()
    value[~hopeful] = -torch.inf
    lost = (hopeful & ~starts.settled.flatten()).nonzero()[:, 0]
    if lost.numel():
        single = target.to(torch.float32)
        # which values of tables lack
        constant = target.constant()
        best = (
            value.masked_fill(~starts.settled.flatten(), -torch.inf)
            .reshape(n, n_modes)
            .amax(1)
        )
        reached = (best + constant).float()
        climbing = (single, x[lost].float(), rows[lost], _ROUGH)
        rough = climb(*climbing, hopeless=_WEIGHTLESS, reached=reached)
        x[lost], value[lost], hessian[lost] = (part.double() for part in rough)
        value[lost] -= constant[rows[lost]]
    ends = _Modes(x, value, hessian)
    if polish:
        ends = ends.polished(n, partial(_settled, target))
    return _weighed(ends, target.covariates)


def solved(target: Target | CellTarget, starts: Tensor, polish: bool) -> Placement:
    """Climb from every start and weigh the modes found by their Laplace evidence."""
    n, n_modes, dim = starts.shape
    rows = torch.arange(n).repeat_interleave(n_modes)
    ends = _rough(target, starts.reshape(-1, dim), rows)
    if polish:
        walk = _settled if target.settles_climbs else _polished
        ends = ends.polished(n, partial(walk, target))
    return _weighed(ends, target.covariates)


def _rough(target: Target | CellTarget, starts: Tensor, rows: Tensor) -> _Modes:
    """Climb from every start (P, D) to near a mode. Single precision finds the basin at half the
    cost; double precision walks the last, quadratic steps, and only of modes that will weigh
    anything.
    """
    x = starts.double()
    value = x.new_full((len(x),), -torch.inf)
    hessian = x.new_zeros(*x.shape, x.shape[1])
    left = target.too_steep()[rows]
    index = (~left).nonzero()[:, 0]
    if index.numel():
        begin = x[index] if len(x) <= _FEW else x[index].float()
        found = climb(target.to(begin.dtype), begin, rows[index], tolerance=_ROUGH)
        x[index], value[index], hessian[index] = (part.double() for part in found)
    # beyond the range of single precision, or its digits; along a ridge steps are short long
    # before its top
    index = (left | ~value.isfinite()).nonzero()[:, 0]
    if index.numel():
        begin = starts[index].double()
        found = climb(target, begin, rows[index], SETTLED, max_steps=_RIDGE_STEPS)
        x[index], value[index], hessian[index] = found
    return _Modes(x, value, hessian)


# From places and Hessians of climbs, and their rows, to modes, values and Hessians.
Polish = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]


@dataclass(frozen=True)
class _Modes:
    """Climbs of n rows, R each.

    Attributes
    ----------
    x : Tensor of shape (n R, D)
    value : Tensor of shape (n R,)
    hessian : Tensor of shape (n R, D, D)
    """

    x: Tensor
    value: Tensor
    hessian: Tensor

    def polished(self, n: int, polish: Polish) -> _Modes:
        """Walk the last steps of what will weigh anything, in double precision."""
        x = self.x.clone()
        value = self.value.masked_fill(self.value.isnan(), -torch.inf)
        hessian = self.hessian.clone()
        count = len(x) // n
        dim = x.shape[1]
        rows = torch.arange(n).repeat_interleave(count)
        best = value.reshape(n, count).amax(1)[rows]
        shape = (n, count, dim)
        twin = _twins(x.reshape(shape), value.reshape(n, count), hessian.reshape(*shape, dim))
        near = ((value >= best - _WEIGHTLESS) & (twin == torch.arange(len(x)))).nonzero()[:, 0]
        value[:] = -torch.inf
        x[near], value[near], hessian[near] = polish(x[near], hessian[near], rows[near])
        return _Modes(x[twin], value[twin], hessian[twin])


def _weighed(ends: _Modes, covariates: Tensor) -> Placement:
    """Return modes, best first, with the weights of their Laplace evidence."""
    x = ends.x
    value = ends.value
    hessian = ends.hessian
    n = len(covariates)
    n_modes = len(x) // n
    dim = x.shape[1]
    covariance, log_volume = positive_inverse(-hessian)
    evidence = (value + 0.5 * log_volume).reshape(n, n_modes)
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
) -> tuple[Tensor, Tensor, Tensor]:
    """Let the target take the last steps; climb where they do not end at a mode."""
    x, value, bends, found = target.settled(starts, hessian, rows)
    off = (~found).nonzero()[:, 0]
    if off.numel():
        x[off], value[off], bends[off] = _polished(
            target, starts[off], hessian[off], rows[off]
        )
    return x, value, bends


def _polished(
    target: Target | CellTarget, starts: Tensor, hessian: Tensor, rows: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Climb in double precision and return modes with their values and Hessians.

    Where the climb ends depends on where single precision left it, and so on the rounding of the
    whole batch. A new evaluation there and one more step bring that below rounding: the step is
    about 1e-10 long, and neither value nor Hessian changes with it.
    """
    x, _, _ = climb(target, starts, rows, tolerance=SETTLED)
    value, gradient, hessian = target.evaluate(x, rows)
    step, _ = newton_step(gradient, hessian, torch.full_like(value, SETTLED))
    return x + step, value, hessian
