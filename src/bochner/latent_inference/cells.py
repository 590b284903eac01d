"""A row's bound from polynomials on squares of the latent plane, which rows share.

What depends on a row is linear in numbers s(y) of its data: its bound is <s(y), a(x)> + h(x), up to
a constant of the row. In one and two dimensions a and h are interpolated on cells by polynomials of
so high a degree that modes move by a millionth of their standard deviations. An evaluation then
costs a row some ten thousand multiplications, whatever the number of features and of draws.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from bochner import random
from bochner.latent_inference.linear_bound import LinearBound
from bochner.linalg import newton_step
from bochner.memory import chunks
from bochner.processes import Processes
from bochner.weight_posterior.posterior import ViewPosterior

# Degree of the polynomials.
DEGREE = 12
# Most dimensions of the plane.
_MOST_DIMENSIONS = 2
# Widths of cells that are tried.
_WIDTHS = (1.0, 0.7, 0.5, 0.35, 0.25, 0.18, 0.125)
# How far a mode may move, in posterior standard deviations.
_TOLERANCE = 2e-5
# Cells on which a width is tried, and points of each.
_TRIED = 6
_POINTS = 8
# Directions to which wide a are reduced: those of so many candidates, down to a share of the
# largest.
_WIDE = 64
_SPANNED = 512
_LEAST = 1e-12
# Numbers of all cells, and of points that are evaluated at once.
_NUMBERS = 2**25
_AT_ONCE = 2**20
# Points whose polynomials stay in a core's cache; steps on them; one that ends them.
_BLOCK = 2048
_STEPS = 3
_SETTLED = 1e-7
# How far out of its cell, half widths, a point may come before it gets another one.
_OUT = 1.1


def celled(views: Sequence[ViewPosterior], dim: int) -> bool:
    """Return whether rows can be placed in cells: few dimensions, no covariates."""
    linear = any(draw.frequencies.n_linear for view in views for draw in view.draws)
    return dim <= _MOST_DIMENSIONS and not linear


class Polynomials:
    """Polynomials of total degree on the square [-1, 1]^D, which values at as many points tell.

    Parameters
    ----------
    dim : int
        1: Chebyshev's extrema; 2: the Padua points, at which interpolation is nearly as good.
    """

    def __init__(self, dim: int) -> None:
        p = DEGREE
        first = torch.arange(p + 1, dtype=torch.float64).mul(torch.pi / p).cos()
        second = torch.arange(p + 2, dtype=torch.float64).mul(torch.pi / (p + 1)).cos()
        if dim == 1:
            self.index = torch.arange(p + 1)[None]
            self.nodes = first[:, None]
        else:
            pairs = itertools.product(range(p + 1), repeat=2)
            self.index = torch.tensor([pair for pair in pairs if sum(pair) <= p]).T
            places = itertools.product(range(p + 1), range(p + 2))
            some = torch.tensor([pair for pair in places if sum(pair) % 2 == 0]).T
            self.nodes = torch.stack([first[some[0]], second[some[1]]], dim=1)
        directions, triangle = torch.linalg.qr(self.at(self.nodes)[0].T)
        self.coefficients = torch.linalg.solve_triangular(triangle, directions.T, upper=True)

    def at(self, u: Tensor) -> list[Tensor]:
        """Return all polynomials, and their derivatives along each dimension and along each pair of
        them, (T, P), at points (P, D).
        """
        along = [_chebyshev(u[:, d]) for d in range(u.shape[1])]
        columns = [part[:, index] for part, index in zip(along, self.index, strict=True)]
        orders = sorted(itertools.product(range(3), repeat=u.shape[1]), key=_order)
        out = []
        for order in orders:
            if sum(order) <= 2:
                parts = [column[r] for column, r in zip(columns, order, strict=True)]
                out.append(functools.reduce(torch.mul, parts))
        return out

    def evaluate(self, terms: Tensor, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return values, gradients and Hessians of P polynomials, (T, P), at a point each."""
        sums = [(terms * part).sum(0) for part in self.at(u)]
        if u.shape[1] == 1:
            return sums[0], sums[1][:, None], sums[2][:, None, None]
        value, first, second, along, across, beside = sums
        hessian = torch.stack([along, across, across, beside], dim=1).reshape(-1, 2, 2)
        return value, torch.stack([first, second], dim=1), hessian


def _order(order: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    return sum(order), tuple(-r for r in order)


def _chebyshev(u: Tensor) -> Tensor:
    """Return Chebyshev's polynomials with two derivatives, (3, degree + 1, P)."""
    out = u.new_zeros(3, DEGREE + 1, len(u))
    out[0, 0], out[0, 1], out[1, 1] = 1.0, u, 1.0
    twice = 2.0 * u
    for k in range(2, DEGREE + 1):
        out[:, k] = twice * out[:, k - 1] - out[:, k - 2]
        out[1, k].add_(out[0, k - 1], alpha=2.0)
        out[2, k].add_(out[1, k - 1], alpha=4.0)
    return out


class Cells:
    """Squares of the latent plane with the polynomials of a and h, made when a row comes there.

    Parameters
    ----------
    bound : LinearBound
    candidates : Tensor of shape (C, D), float64
    width : float
        Of a cell.
    """

    def __init__(self, bound: LinearBound, candidates: Tensor, width: float) -> None:
        self._bound = bound
        self._polynomials = Polynomials(bound.dim)
        some = candidates[:: -(-len(candidates) // _SPANNED)]
        linear, _ = bound.of_points(some)
        self._basis = _basis(linear)
        self._slopes = None if self._basis is None else bound.slopes(self._basis)
        at = [
            bound.of_points(part, self._slopes) for part in torch.split(candidates, _SPANNED)
        ]
        book = [torch.cat([linear, common[:, None]], dim=1) for linear, common in at]
        self._book = torch.cat(book).float()
        self._set_width(width)

    def _set_width(self, width: float) -> None:
        self._width = width
        self._held: dict[int, Tensor] = {}

    @classmethod
    def of(cls, bound: LinearBound, candidates: Tensor) -> Cells | None:
        """Find the widest cells that are good enough; None where none are.

        Parameters
        ----------
        bound : LinearBound
        candidates : Tensor of shape (C, D), float64
        """
        if not bound.is_the_bound(candidates[:: -(-len(candidates) // _TRIED)]):
            return None
        cells = cls(bound, candidates, 1.0)
        width = None
        first = 0
        last = len(_WIDTHS)
        while first < last:  # the wider cells are, the worse
            middle = (first + last) // 2
            cells._set_width(_WIDTHS[middle])
            if cells._error(candidates) <= _TOLERANCE:
                width = middle
                last = middle
            else:
                first = middle + 1
        if width is None:
            return None
        cells._set_width(_WIDTHS[width])
        return cells

    def fill(self, points: Tensor, processes: Processes) -> None:
        """Make the cells of points, (P, D), where most rows will come, each process a part of
        them.
        """
        keys = torch.unique(self._keys(points), dim=0)
        part = processes.part(len(keys))
        codes = _codes(keys).tolist()
        made = self._of(codes[part], (keys[part] + 0.5) * self._width)
        numbers = (self._book.shape[1], self._polynomials.index.shape[1])
        here = torch.stack(made) if made else points.new_zeros(0, *numbers)
        self._held = dict(zip(codes, processes.united(here, len(codes)), strict=True))

    def rows(self, rows: Sequence[Tensor]) -> Tensor:
        """Return what the polynomials are multiplied by, (n, R), of encoded rows."""
        parts = chunks(len(rows[0]), max(1, _AT_ONCE // self._n_numbers))
        every = ([y[part] for y in rows] for part in parts)
        s = torch.cat([self._reduced(self._bound.of_rows(some)) for some in every])
        return torch.cat([s, s.new_ones(len(s), 1)], dim=1)

    def scores(self, rows: Tensor) -> Tensor:
        """Return the bound of rows at all candidates, (n, C), up to a constant: float32."""
        return rows.float() @ self._book.T

    def _reduced(self, linear: Tensor) -> Tensor:
        return linear if self._basis is None else linear @ self._basis

    def _error(self, candidates: Tensor) -> float:
        """Return how far, in posterior standard deviations, modes may be from where they are: as
        far as slopes are wrong times the largest of these deviations, which is 1 at the most.
        """
        at = candidates[:: -(-len(candidates) // _TRIED)]
        source = random.generator(0, "cells/points")
        shape = (len(at), _POINTS, at.shape[1])
        inside = torch.rand(shape, generator=source, dtype=torch.float64)
        places = self._keys(at)[:, None] + inside
        points = (places * self._width).flatten(0, 1)
        drawn = self._bound.of_rows(self._bound.drawn(at))
        linear, common = self._bound.of_points(points)
        of_points = torch.arange(len(at)).repeat_interleave(_POINTS)
        exact = (drawn[of_points] * linear).sum(1) + common
        rows = torch.cat([self._reduced(drawn), drawn.new_ones(len(at), 1)], dim=1)
        target = CellTarget(self, rows)
        value, _, _ = target.evaluate(points, of_points)
        away = float((value - exact).abs().max())
        # rows that the model draws at a point lie about there
        _, _, hessian = target.evaluate(at, torch.arange(len(at)))
        least = torch.linalg.eigvalsh(-hessian).min()
        precision = max(1.0, float(least))
        # such an error crosses 0 once more than the polynomials' degree
        slope = away * 2.0 * (DEGREE + 1) / self._width
        return slope / math.sqrt(precision)

    def _keys(self, x: Tensor) -> Tensor:
        return (x / self._width).floor()

    def terms(self, rows: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the polynomials of points' rows (P, R) in their cells, (T, P), and these cells'
        centres, (P, D).
        """
        keys = self._keys(x)
        centres = (keys + 0.5) * self._width
        code = _codes(keys)
        present, inverse, counts = torch.unique(code, return_inverse=True, return_counts=True)
        order = inverse.argsort(stable=True)
        sorted_rows = rows[order]
        ends = counts.cumsum(0).tolist()
        firsts = order[counts.cumsum(0) - counts]
        cells = self._of(present.tolist(), centres[firsts])
        out = rows.new_empty(len(x), self._polynomials.index.shape[1])
        start = 0
        for polynomials, end in zip(cells, ends, strict=True):
            torch.mm(sorted_rows[start:end], polynomials, out=out[start:end])
            start = end
        back = torch.empty_like(order)
        back[order] = torch.arange(len(order))
        return out[back].T.contiguous(), centres

    def _of(self, codes: list[int], centres: Tensor) -> list[Tensor]:
        """Return the polynomials of some cells, (R, T) each."""
        lacking = [i for i, code in enumerate(codes) if code not in self._held]
        numbers = self._book.shape[1] * self._polynomials.index.shape[1]
        kept = dict(self._held) if len(self._held) < _NUMBERS // numbers else {}
        nodes = 0.5 * self._width * self._polynomials.nodes
        width = len(nodes) * (self._n_numbers + self._bound.n_features)
        for part in chunks(len(lacking), max(1, _AT_ONCE // width)):
            some = lacking[part]
            points = (centres[some][:, None] + nodes).flatten(0, 1)
            linear, common = self._bound.of_points(points, self._slopes)
            values = torch.cat([linear, common[:, None]], dim=1)
            of_cells = values.reshape(len(some), len(nodes), -1)
            terms = self._polynomials.coefficients @ of_cells
            made = [codes[i] for i in some]
            kept |= zip(made, terms.mT.contiguous(), strict=True)
        cells = [kept.get(code, self._held.get(code)) for code in codes]
        self._held = kept
        return [cell for cell in cells if cell is not None]

    @property
    def _n_numbers(self) -> int:
        return len(self._basis) if self._basis is not None else self._book.shape[1]

    def evaluate(
        self, terms: Tensor, centres: Tensor, x: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return values, gradients and Hessians of points' polynomials at x, (P, D)."""
        scale = 2.0 / self._width
        u = scale * (x - centres)
        cuts = chunks(len(x), _BLOCK)
        parts = [self._polynomials.evaluate(terms[:, cut], u[cut]) for cut in cuts]
        value, gradient, hessian = map(torch.cat, zip(*parts, strict=True))
        return value, gradient * scale, hessian * scale**2

    def outside(self, centres: Tensor, x: Tensor) -> Tensor:
        """Return which points left their cells, (P,)."""
        return ((x - centres).abs() > 0.5 * _OUT * self._width).any(1)


def _codes(keys: Tensor) -> Tensor:
    """Return a number of each cell, (n, D) -> (n,), int64."""
    code = keys[:, 0].long()
    return code if keys.shape[1] == 1 else (code << 32) + keys[:, 1].long()


def _basis(linear: Tensor) -> Tensor | None:
    """Return directions that hold a at the candidates but for what rounds away, (W, R); None where
    they are not much fewer.
    """
    if linear.shape[1] <= _WIDE:
        return None
    directions, triangle = torch.linalg.qr(linear.T)
    left, sizes, _ = torch.linalg.svd(triangle)
    kept = max(1, int((sizes > _LEAST * sizes[0]).sum()))
    return torch.mm(directions, left[:, :kept]) if 2 * kept <= linear.shape[1] else None


@dataclass(frozen=True)
class CellTarget:
    """Bounds of rows from cells, up to a constant of the row.

    Attributes
    ----------
    cells : Cells
    rows : Tensor of shape (n, R)
    """

    settles_climbs: ClassVar[bool] = True

    cells: Cells
    rows: Tensor

    @property
    def covariates(self) -> Tensor:
        """Those of the rows, (n, 0): none."""
        return self.rows.new_zeros(len(self.rows), 0)

    def to(self, dtype: torch.dtype) -> CellTarget:  # noqa: ARG002 - of little cost in any
        """Return the target: it computes in double precision whatever it is given."""
        return self

    def constant(self) -> Tensor:
        """Return what values lack that those of tables have, (n,): nothing."""
        return self.rows.new_zeros(len(self.rows))

    def rounding(self, dtype: torch.dtype) -> Tensor:  # noqa: ARG002 - values are small
        """Return by how many nats values may be wrong, (n,): they are small."""
        return self.rows.new_zeros(len(self.rows), dtype=torch.float64)

    def evaluate(self, x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return value, gradient and Hessian at x (P, D) of the given rows."""
        wide = x.double()
        terms, centres = self.cells.terms(self.rows[rows], wide)
        value, gradient, hessian = self.cells.evaluate(terms, centres, wide)
        return value.to(x), gradient.to(x), hessian.to(x)

    def settled(
        self,
        starts: Tensor,
        hessian: Tensor,
        rows: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Take Newton's steps from near modes, (P, D); return modes, values and Hessians, and which
        were found.
        """
        x = starts
        terms, centres = self.cells.terms(self.rows[rows], x)
        for _ in range(_STEPS):
            value, gradient, hessian = self.cells.evaluate(terms, centres, x)
            step, _ = newton_step(gradient, hessian, torch.full_like(value, 0.1))
            x = x + step
        settled = (step.norm(dim=1) <= _SETTLED) & ~self.cells.outside(centres, x)
        return x, value, hessian, settled
