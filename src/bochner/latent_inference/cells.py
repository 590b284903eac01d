"""A row's bound from polynomials on squares of the latent plane, which rows share.

What depends on a row is linear in numbers s(y) of its data: its bound is <s(y), a(x)> + h(x), up to
a constant of the row. In one and two dimensions a and h are interpolated on cells by polynomials of
so high a degree that modes move by a millionth of their standard deviations. An evaluation then
costs a row some ten thousand multiplications, whatever the number of features and of draws.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from bochner import random
from bochner.features.fourier import evaluate
from bochner.latent_inference.polynomials import DEGREE, Polynomials
from bochner.latent_inference.quadratic_forms import Shared
from bochner.latent_inference.row_bound import Target, Term, target_for
from bochner.linalg import newton_step
from bochner.memory import chunks
from bochner.processes import Processes
from bochner.weight_posterior.posterior import (
    GaussianPosterior,
    NonConjugatePosterior,
    ViewPosterior,
)

# Most dimensions of the plane.
_MOST_DIMENSIONS = 2
# Share of a difference of bounds that rounding explains.
_SAME = 1e-7
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


@dataclass(frozen=True)
class Parts:
    """What bounds of rows that share their Gaussian columns are made of.

    Attributes
    ----------
    views : sequence of ViewPosterior
        Those of which rows have data.
    target : Target
        Of such rows.
    dim : int
        D.
    """

    views: Sequence[ViewPosterior]
    target: Target
    dim: int

    def of_points(
        self, x: Tensor, slopes: Sequence[Sequence[Tensor]] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return a (P, W), or along a basis with these slopes (P, R), and h (P,) at points."""
        common = -0.5 * x.square().sum(1)
        out = []
        of_views = [_slopes(view, None) for view in self.views] if slopes is None else slopes
        views = zip(self.views, self.target.terms, of_views, strict=True)
        for view, terms, known in views:
            linear, constant = _of_points(view, terms, x, known)
            out.append(linear)
            common = common + constant
        if slopes is None:
            return torch.cat(out, dim=1), common
        return functools.reduce(torch.add, out), common

    def slopes(self, basis: Tensor) -> list[list[Tensor]]:
        """Return what `of_points` takes for a along a basis, (W, R)."""
        sizes = []
        for view in self.views:
            nothing = torch.zeros(1, view.n_columns, dtype=basis.dtype)
            sizes.append(_of_rows(view, nothing).shape[1])
        parts = torch.split(basis, sizes)
        return [_slopes(view, part) for view, part in zip(self.views, parts, strict=True)]

    def of_rows(self, rows: Sequence[Tensor]) -> Tensor:
        """Return s (n, W) of encoded rows, (n, M_v) a view, NaN where missing."""
        pairs = zip(self.views, rows, strict=True)
        return torch.cat([_of_rows(view, y) for view, y in pairs], dim=1)

    def drawn(self, x: Tensor) -> list[Tensor]:
        """Return encoded rows that the views draw at points, (P, M_v) a view."""
        source = random.generator(0, "cells/rows")
        rows = []
        for view in self.views:
            draw = view.draws[0]
            mean, _ = view.psi(draw, draw.features(x))
            values = view.likelihood.draw(mean, source)
            rows.append(view.encode(values))
        return rows

    def are_the_bound(self, x: Tensor) -> bool:
        """Return whether they say how bounds differ between points (P, D): products of a likelihood
        may say it of another bound.
        """
        rows = self.drawn(x)
        s = self.of_rows(rows)
        every = torch.arange(len(x))
        target = target_for(self.views, rows, self.dim, shared=True)
        there = x.roll(1, 0)
        exact = target.evaluate(x, every)[0] - target.evaluate(there, every)[0]
        a, h = self.of_points(x)
        b, g = self.of_points(there)
        ours = (s * (a - b)).sum(1) + h - g
        return bool(((ours - exact).abs() <= _SAME * (1.0 + exact.abs())).all())


def celled(views: Sequence[ViewPosterior], dim: int) -> bool:
    """Return whether rows can be placed in cells: few dimensions, no covariates."""
    linear = any(draw.frequencies.n_linear for view in views for draw in view.draws)
    return dim <= _MOST_DIMENSIONS and not linear


@functools.singledispatch
def _slopes(view: ViewPosterior, basis: Tensor | None) -> list[Tensor]:
    """Return what features, or a view's part of a, are multiplied by to get a along the view's part
    of a basis, (W_v, R), or along every column.
    """
    raise NotImplementedError(type(view))


@_slopes.register
def _(view: GaussianPosterior, basis: Tensor | None) -> list[Tensor]:
    share = view.weight / len(view.draws)
    scaled = [draw.mean * (share / view.noise_variance) for draw in view.draws]
    return scaled if basis is None else [mean @ basis for mean in scaled]


@_slopes.register
def _(view: NonConjugatePosterior, basis: Tensor | None) -> list[Tensor]:  # noqa: ARG001
    return [] if basis is None else [basis]


@functools.singledispatch
def _of_points(
    view: ViewPosterior, terms: Sequence[object], x: Tensor, slopes: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    """Return what a view adds to a, (P, W_v) or (P, R), and to h, (P,)."""
    raise NotImplementedError(type(view))


@_of_points.register
def _(
    view: GaussianPosterior, terms: Sequence[object], x: Tensor, slopes: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    share = view.weight / len(view.draws)
    linear = torch.zeros(len(x), slopes[0].shape[1], dtype=x.dtype)
    common = torch.zeros(len(x), dtype=x.dtype)
    for term, of_draw in zip(terms, slopes, strict=True):
        assert isinstance(term, Term)
        assert isinstance(term.quadratic, Shared)
        phi = evaluate(x, term.frequencies).features
        linear.addmm_(phi.T, of_draw)
        common -= 0.5 * share * term.quadratic.table(phi)
    return linear, common


@_of_points.register
def _(
    view: NonConjugatePosterior,
    terms: Sequence[object],  # noqa: ARG001 - products say it
    x: Tensor,
    slopes: Sequence[Tensor],
) -> tuple[Tensor, Tensor]:
    total = torch.zeros((), dtype=x.dtype)
    for draw in view.draws:
        mean, variance = view.psi(draw, draw.features(x))
        total = total + torch.cat(view.bound.of_places(mean, variance), dim=1)
    linear = total * (view.weight / len(view.draws))
    for basis in slopes:
        linear = linear @ basis
    return linear, torch.zeros(len(x), dtype=x.dtype)


@functools.singledispatch
def _of_rows(view: ViewPosterior, y: Tensor) -> Tensor:
    """Return what a view has of s, (n, W_v)."""
    raise NotImplementedError(type(view))


@_of_rows.register
def _(view: GaussianPosterior, y: Tensor) -> Tensor:  # noqa: ARG001 - data multiply its slopes
    return torch.nan_to_num(y)


@_of_rows.register
def _(view: NonConjugatePosterior, y: Tensor) -> Tensor:
    observed = ~y.isnan()
    of_rows = view.bound.of_rows(torch.nan_to_num(y))
    return torch.cat([of_row * observed for of_row in of_rows], dim=1)


class Cells:
    """Squares of the latent plane with the polynomials of a and h, made when a row comes there.

    Parameters
    ----------
    parts : Parts
    candidates : Tensor of shape (C, D), float64
    width : float
        Of a cell.
    """

    def __init__(self, parts: Parts, candidates: Tensor, width: float) -> None:
        self._parts = parts
        self._polynomials = Polynomials(parts.dim)
        some = candidates[:: -(-len(candidates) // _SPANNED)]
        linear, _ = parts.of_points(some)
        self._basis = _basis(linear)
        self._slopes = None if self._basis is None else parts.slopes(self._basis)
        at = [
            parts.of_points(part, self._slopes) for part in torch.split(candidates, _SPANNED)
        ]
        book = [torch.cat([linear, common[:, None]], dim=1) for linear, common in at]
        self._book = torch.cat(book).float()
        self._set_width(width)

    def _set_width(self, width: float) -> None:
        self._width = width
        self._held: dict[int, Tensor] = {}

    @classmethod
    def of(
        cls, views: Sequence[ViewPosterior], target: Target, candidates: Tensor
    ) -> Cells | None:
        """Find the widest cells that are good enough; None where none are.

        Parameters
        ----------
        views, target
            As in `Parts`.
        candidates : Tensor of shape (C, D), float64
        """
        parts = Parts(views, target, candidates.shape[1])
        if not parts.are_the_bound(candidates[:: -(-len(candidates) // _TRIED)]):
            return None
        cells = cls(parts, candidates, 1.0)
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
        parts = chunks(len(rows[0]), max(1, _AT_ONCE // self._parts_width))
        every = ([y[part] for y in rows] for part in parts)
        s = torch.cat([self._reduced(self._parts.of_rows(some)) for some in every])
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
        drawn = self._parts.of_rows(self._parts.drawn(at))
        linear, common = self._parts.of_points(points)
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
        n_features = sum(_features(view) for view in self._parts.views)
        width = len(nodes) * (self._parts_width + n_features)
        for part in chunks(len(lacking), max(1, _AT_ONCE // width)):
            some = lacking[part]
            points = (centres[some][:, None] + nodes).flatten(0, 1)
            linear, common = self._parts.of_points(points, self._slopes)
            values = torch.cat([linear, common[:, None]], dim=1)
            of_cells = values.reshape(len(some), len(nodes), -1)
            terms = self._polynomials.coefficients @ of_cells
            made = [codes[i] for i in some]
            kept |= zip(made, terms.mT.contiguous(), strict=True)
        cells = [kept.get(code, self._held.get(code)) for code in codes]
        self._held = kept
        return [cell for cell in cells if cell is not None]

    @property
    def _parts_width(self) -> int:
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


def _features(view: ViewPosterior) -> int:
    return int(view.draws[0].mean.shape[0])


def _basis(linear: Tensor) -> Tensor | None:
    """Return directions that hold a at the candidates but for what rounds away, (W, R)."""
    if linear.shape[1] <= _WIDE:
        return None
    directions, triangle = torch.linalg.qr(linear.T)
    left, sizes, _ = torch.linalg.svd(triangle)
    kept = max(1, int((sizes > _LEAST * sizes[0]).sum()))
    return torch.mm(directions, left[:, :kept])


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
