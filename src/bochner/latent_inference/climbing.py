"""Newton's method for many rows at once, each inside a trust radius of its own."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from bochner.linalg import cholesky

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
) -> tuple[Tensor, Tensor, Tensor]:
    """Maximise each row's bound from each start (P, D) by Newton steps inside a trust radius of its
    own.

    A start that cannot catch up with the row's best is left where it is: its weight would vanish.
    ``reached`` are values that rows have elsewhere, (n,).
    """
    x = starts.clone()
    value, gradient, hessian = target.evaluate(x, rows)
    gap = (
        4.0 * torch.finfo(x.dtype).eps
    )  # rounding of the value must not reject the last, tiny steps
    radius, active = torch.full_like(value, 0.5), torch.arange(x.shape[0])
    leaders = value.new_full((int(rows.max()) + 1,), -torch.inf) if reached is None else reached
    for _ in range(max_steps):
        step, gain = newton_step(gradient[active], hessian[active], radius[active])
        best = leaders.scatter_reduce(0, rows, value, "amax")[rows[active]]
        length = step.norm(dim=1)
        short = length <= tolerance
        x[active[short]] += step[short]
        going = ~short & (value[active] + 4.0 * gain + hopeless > best)
        active, step, length = active[going], step[going], length[going]
        if not active.numel():
            break
        trial = x[active] + step
        new_value, new_gradient, new_hessian = target.evaluate(trial, rows[active])
        better = new_value >= value[active] - gap * (1.0 + value[active].abs())
        kept = active[better]
        x[kept], value[kept] = trial[better], new_value[better]
        gradient[kept], hessian[kept] = new_gradient[better], new_hessian[better]
        radius[active] = torch.where(better, (3.0 * length).clamp(min=1e-3, max=2.0), 0.25 * length)
    return x, value, hessian


def newton_step(gradient: Tensor, hessian: Tensor, radius: Tensor) -> tuple[Tensor, Tensor]:
    """Return an ascent step, its curvatures made positive and its length cut, and the rise the full
    step promises.
    """
    factor, info = torch.linalg.cholesky_ex(-hessian)
    full = torch.cholesky_solve(gradient[..., None], factor)[..., 0]
    bent = (info > 0).nonzero()[:, 0]
    if bent.numel():
        # eigenvectors cost ten times a factor, and are only needed here
        values, vectors = torch.linalg.eigh(-hessian[bent])
        along = (vectors.transpose(1, 2) @ gradient[bent][..., None])[..., 0]
        full[bent] = (vectors @ (along / values.abs().clamp(min=1e-6))[..., None])[..., 0]
    length = full.norm(dim=1).clamp(min=1e-300)
    return full * (radius / length).clamp(max=1.0)[:, None], 0.5 * (full * gradient).sum(1)


def positive_inverse(precision: Tensor) -> tuple[Tensor, Tensor]:
    """Invert, with log det; directions that are no maximum get the prior's precision, never more
    certainty.
    """
    eye = torch.eye(precision.shape[-1], dtype=precision.dtype)
    above = torch.linalg.cholesky_ex(precision - eye)[1] == 0
    factor = cholesky(torch.where(above[:, None, None], precision, eye))
    inverse, log_volume = factor.inverse(), -factor.logdet()
    rest = (~above).nonzero()[:, 0]
    if rest.numel():
        values, vectors = torch.linalg.eigh(precision[rest])
        values = values.clamp(min=1.0)
        inverse[rest] = (vectors / values[..., None, :]) @ vectors.transpose(-1, -2)
        log_volume[rest] = -values.log().sum(-1)
    return inverse, log_volume
