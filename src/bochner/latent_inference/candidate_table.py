"""Where rows begin to climb: scores at all candidates, and modes near the best of these, from
tables that rows with the same columns share.

A row's bound is <y, psi(x)> / sigma^2 + h(x): what depends on the row is linear in its data. Values
and three derivatives of psi and h at the candidates are computed once. Scores are then one product.
The bound about a candidate is a cubic, whose mode costs a row some hundred multiplications where an
evaluation costs K^2.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bochner.features.fourier import jet
from bochner.kernels.base import Frequencies
from bochner.latent_inference.quadratic_forms import Shared
from bochner.latent_inference.row_bound import Target, Term
from bochner.linalg import newton_step
from bochner.processes import ALONE, Processes
from bochner.weight_posterior.posterior import ViewPosterior, all_conjugate

# Numbers of a table; beyond them, and in many dimensions, every start is evaluated.
_NUMBERS = 2**23
_MOST_DIMENSIONS = 3
_ORDER = 3
# Steps on the cubic; how far from its candidate it is walked, and believed; a step that ends it.
_STEPS = 4
_FAR = 0.5
_NEAR = 0.1
_SETTLED = 1e-3
# Candidates next to one, itself among them, and steps from one to a better one.
_NEIGHBOURS, _HOPS = 9, 30


def _indices(dim: int) -> list[tuple[int, ...]]:
    """Return dimensions of all partial derivatives up to the third, each set once."""
    orders = range(_ORDER + 1)
    return [i for r in orders for i in itertools.combinations_with_replacement(range(dim), r)]


@dataclass(frozen=True)
class Starts:
    """Where rows begin to climb, (n, R, ...).

    Attributes
    ----------
    x : Tensor of shape (n, R, D)
        Modes of the cubics about the best candidates.
    value : Tensor of shape (n, R)
        There, up to a constant of the row.
    hessian : Tensor of shape (n, R, D, D)
    promised : Tensor of shape (n, R)
        How far a climb from the candidate may come, over the best of the candidates.
    settled : Tensor of shape (n, R), bool
        Whether the cubic's mode is so near its candidate that the bound has one there as well.
    """

    x: Tensor
    value: Tensor
    hessian: Tensor
    promised: Tensor
    settled: Tensor


@dataclass(frozen=True)
class CandidateTable:
    """Single precision: it only says where to start.

    Attributes
    ----------
    points : Tensor of shape (C, D)
    parts : tuple over views of Tensor of shape (C, T, W_v)
        Value and derivatives of what a row's data are multiplied by.
    by_data : tuple over views of bool
        Whether these multiply the data (W_v = M_v), or the linear terms of all draws.
    common : Tensor of shape (C, T)
        Of what rows have in common, the prior included.
    """

    points: Tensor
    parts: tuple[Tensor, ...]
    by_data: tuple[bool, ...]
    common: Tensor

    @classmethod
    def of(
        cls,
        views: Sequence[ViewPosterior],
        target: Target,
        candidates: Tensor,
        processes: Processes = ALONE,
    ) -> CandidateTable:
        """Tabulate the bound of rows that share their columns.

        Parameters
        ----------
        views : sequence of ViewPosterior
            Gaussian ones.
        target : Target
            Of such rows: its linear terms are theirs, the rest is common to all.
        candidates : Tensor of shape (C, D)
        processes : Processes
            That know the same, and tabulate a part of the candidates each.
        """
        if processes.size > 1:
            count = len(candidates)
            here = cls.of(views, target, candidates[processes.part(count)])
            of_views = tuple(processes.united(part, count) for part in here.parts)
            shared = processes.united(here.common, count)
            return cls(candidates.float(), of_views, here.by_data, shared)
        parts, by_data = [], []
        common = _prior(candidates)
        for view, terms in zip(views, target.terms, strict=True):
            share = view.weight / len(view.draws)
            at = [share * _derivatives(candidates, draw.frequencies) for draw in view.draws]
            for by_form, term in zip(at, terms, strict=True):
                if isinstance(term, Term) and isinstance(term.quadratic, Shared):
                    # the share stands twice in the product
                    common += (
                        _of_form(by_form, term.quadratic.matrix, candidates.shape[1]) / share
                    )
            narrow = view.n_columns <= sum(by_form.shape[2] for by_form in at)
            if narrow:
                means = [d @ draw.mean for d, draw in zip(at, view.draws, strict=True)]
                at = [torch.stack(means).sum(0) / view.noise_variance]
            parts.append(torch.cat(at, dim=2).float().contiguous())
            by_data.append(narrow)
        return cls(candidates.float(), tuple(parts), tuple(by_data), common.float())

    def multipliers(self, rows: Sequence[Tensor], target: Target) -> list[Tensor]:
        """Return what multiplies the parts, (n, W_v) a view, from data (n, M_v) and their
        target.
        """
        out = []
        for y, terms, by_data in zip(rows, target.terms, self.by_data, strict=True):
            if by_data:
                out.append(torch.nan_to_num(y).float())
            else:
                linear = [term.linear for term in terms if isinstance(term, Term)]
                out.append(torch.cat(linear, dim=1).float())
        return out

    def scores(self, multipliers: Sequence[Tensor]) -> Tensor:
        """Return the bound of all rows at all candidates, (n, C), up to a constant of the row."""
        left = torch.cat(list(multipliers), dim=1)
        right = torch.cat([part[:, 0] for part in self.parts], dim=1)
        return torch.addmm(self.common[:, 0], left, right.T)

    @functools.cached_property
    def _around(self) -> Tensor:
        """Every candidate and those next to it, (C, k)."""
        away = torch.cdist(self.points, self.points)
        count = min(_NEIGHBOURS, len(away))
        return away.topk(count, dim=1, largest=False).indices

    def ascended(self, chosen: Tensor, scores: Tensor) -> Tensor:
        """Return the candidates that steps to better neighbours end at, (n, R): most that are far
        from the best one lie on its slope.

        Parameters
        ----------
        chosen : Tensor of shape (n, R), int64
        scores : Tensor of shape (n, C)
        """
        for _ in range(_HOPS):
            around = self._around[chosen]
            values = scores.gather(1, around.flatten(1)).reshape(around.shape)
            best = around.gather(2, values.argmax(2, keepdim=True))[..., 0]
            if torch.equal(best, chosen):
                break
            chosen = best
        return chosen

    def begin(self, chosen: Tensor, multipliers: Sequence[Tensor]) -> Starts:
        """Walk to the modes of the cubics about chosen candidates.

        Parameters
        ----------
        chosen : Tensor of shape (n, R), int64
        multipliers : sequence over views of Tensor of shape (n, W_v)

        Returns
        -------
        Starts
        """
        (n, count) = chosen.shape
        dim = self.points.shape[1]
        flat = chosen.flatten()
        again = torch.zeros_like(chosen, dtype=torch.bool)
        for r in range(1, count):
            again[:, r] = (chosen[:, :r] == chosen[:, r : r + 1]).any(1)
        terms = self.common[flat]
        for part, of_candidates in zip(self.parts, multipliers, strict=True):
            every = of_candidates.repeat_interleave(count, dim=0)[:, :, None]
            terms = terms + (part.index_select(0, flat) @ every)[:, :, 0]
        cubic = _Cubic.of(terms, dim)
        away = terms.new_zeros(n * count, dim)
        value, gradient, hessian = cubic.at(away)
        for step_number in range(_STEPS):
            step, gain = newton_step(gradient, hessian, away.new_full((n * count,), _FAR))
            if step_number == 0:
                promised = (
                    value
                    + 4.0 * gain
                    - value.reshape(n, count).amax(1).repeat_interleave(count)
                )
            away = away + step
            length = away.norm(dim=1, keepdim=True)
            away = away * (_FAR / length.clamp(min=_FAR))
            value, gradient, hessian = cubic.at(away)
        peak = torch.linalg.cholesky_ex(-hessian)[1] == 0
        settled = peak & (away.norm(dim=1) < _NEAR) & (step.norm(dim=1) < _SETTLED)
        shape = (n, count)
        return Starts(
            (self.points[flat] + away).reshape(*shape, dim),
            value.reshape(shape).masked_fill(again, -torch.inf),
            hessian.reshape(*shape, dim, dim),
            promised.reshape(shape).masked_fill(again, -torch.inf),
            settled.reshape(shape) | again,
        )


@dataclass(frozen=True)
class _Cubic:
    """Functions of a step, one for each of P points."""

    value: Tensor
    first: Tensor
    second: Tensor
    third: Tensor

    @classmethod
    def of(cls, terms: Tensor, dim: int) -> _Cubic:
        """Lay out derivatives, (P, T), as symmetric tensors."""
        place = {index: t for t, index in enumerate(_indices(dim))}

        def tensor(order: int) -> Tensor:
            every = itertools.product(range(dim), repeat=order)
            flat = terms[:, [place[tuple(sorted(index))] for index in every]]
            return flat.reshape(-1, *[dim] * order)

        return cls(tensor(0), tensor(1), tensor(2), tensor(3))

    def at(self, step: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return values, gradients and Hessians after steps, (P, D)."""
        bend = (self.third @ step[:, None, :, None])[..., 0]
        hessian = self.second + bend
        gradient = self.first + ((self.second + 0.5 * bend) @ step[:, :, None])[..., 0]
        half = self.first + 0.5 * ((self.second + bend / 3.0) @ step[:, :, None])[..., 0]
        return self.value + (half * step).sum(1), gradient, hessian


def tabulates(views: Sequence[ViewPosterior], candidates: Tensor) -> bool:
    """Return whether a table is worth its memory: Gaussian views, few dimensions."""
    n, dim = candidates.shape
    if dim > _MOST_DIMENSIONS:
        return False
    plain = all_conjugate(views)
    plain = plain and not any(draw.frequencies.n_linear for v in views for draw in v.draws)
    width = sum(min(v.n_columns, len(v.draws) * v.draws[0].mean.shape[0]) for v in views)
    return plain and n * len(_indices(dim)) * width <= _NUMBERS


def _derivatives(x: Tensor, frequencies: Frequencies) -> Tensor:
    """Return features with all their derivatives up to the third, (C, T, K)."""
    at = jet(x, frequencies)
    out = []
    for index in _indices(x.shape[1]):
        total = torch.zeros_like(at.value)
        for w, c, s in at.waves:
            slope = torch.ones_like(w[:, 0])
            for d in index:
                slope = slope * w[:, d]
            # derivatives of cosine and sine, in turn
            waves = [(c, s), (-s, c), (-c, -s), (s, -c)][len(index)]
            total += torch.cat(waves, dim=1) * slope.repeat(2)
        out.append(total)
    return torch.stack(out, dim=1)


def _of_form(at: Tensor, matrix: Tensor, dim: int) -> Tensor:
    """Return derivatives of -phi^T Q phi / 2, (C, T), by the product rule."""
    indices = _indices(dim)
    place = {index: t for t, index in enumerate(indices)}
    # third derivatives appear beside phi alone
    few = [t for t, index in enumerate(indices) if len(index) < _ORDER]
    pushed = at[:, few] @ matrix
    out = []
    for index in indices:
        total = torch.zeros_like(at[:, 0, 0])
        for chosen in itertools.product((False, True), repeat=len(index)):
            left = tuple(d for d, is_left in zip(index, chosen, strict=True) if is_left)
            right = tuple(d for d, is_left in zip(index, chosen, strict=True) if not is_left)
            if len(right) == _ORDER:  # Q is symmetric
                left, right = right, left
            total += torch.linalg.vecdot(at[:, place[left]], pushed[:, place[right]])
        out.append(-0.5 * total)
    return torch.stack(out, dim=1)


def _prior(x: Tensor) -> Tensor:
    """Return derivatives of log N(x; 0, I), (C, T)."""
    dim = x.shape[1]
    out = torch.zeros(x.shape[0], len(_indices(dim)), dtype=x.dtype)
    out[:, 0] = -0.5 * (x.square().sum(1) + dim * math.log(2.0 * math.pi))
    out[:, 1 : 1 + dim] = -x
    for t, index in enumerate(_indices(dim)):
        if len(index) == 2 and index[0] == index[1]:
            out[:, t] = -1.0
    return out
