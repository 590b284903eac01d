"""What a row's bound is linear in: <s(y), a(x)> + h(x), up to a constant of the row.

s(y) are numbers of a row's data, a and h functions of its latent alone. Rows that have all columns
of a Gaussian view share what does not depend on their values, a quadratic form of the features;
where entries are missing, or are no Gaussian ones, every entry has numbers of its own.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from bochner import random
from bochner.features.fourier import evaluate
from bochner.latent_inference.entry_terms import EntrywiseTerm
from bochner.latent_inference.quadratic_forms import Shared
from bochner.latent_inference.row_bound import Target, Term, target_for
from bochner.weight_posterior.posterior import (
    GaussianPosterior,
    NonConjugatePosterior,
    ViewPosterior,
)

# Share of a difference of bounds that rounding explains.
_SAME = 1e-7


@dataclass(frozen=True)
class _Part(ABC):
    """What one view adds.

    Attributes
    ----------
    view : ViewPosterior
    """

    view: ViewPosterior

    @property
    def share(self) -> float:
        """What each of the view's draws counts for."""
        return self.view.weight / len(self.view.draws)

    @abstractmethod
    def of_rows(self, y: Tensor) -> Tensor:
        """Return s of encoded rows, (n, M) -> (n, W)."""

    @abstractmethod
    def slopes(self, basis: Tensor | None) -> list[Tensor]:
        """Return what `of_points` takes for a along a basis, (W, R), or along every number."""

    @abstractmethod
    def of_points(self, x: Tensor, slopes: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Return a, (P, W) or (P, R), and h, (P,), at points (P, D)."""


@dataclass(frozen=True)
class _WholeRows(_Part):
    """A Gaussian view of which rows have all columns.

    Attributes
    ----------
    terms : tuple of Term
        Of such rows, under every draw.
    """

    terms: tuple[Term, ...]

    def of_rows(self, y: Tensor) -> Tensor:
        """Return the data."""
        return y

    def slopes(self, basis: Tensor | None) -> list[Tensor]:
        """Return what features are multiplied by, under every draw."""
        noise = cast(GaussianPosterior, self.view).noise_variance
        scaled = [draw.mean * (self.share / noise) for draw in self.view.draws]
        return scaled if basis is None else [mean @ basis for mean in scaled]

    def of_points(self, x: Tensor, slopes: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Return products of the features, and their quadratic form."""
        linear = torch.zeros(len(x), slopes[0].shape[1], dtype=x.dtype)
        common = torch.zeros(len(x), dtype=x.dtype)
        for term, of_draw in zip(self.terms, slopes, strict=True):
            assert isinstance(term.quadratic, Shared)
            phi = evaluate(x, term.frequencies).features
            linear.addmm_(phi.T, of_draw)
            common -= 0.5 * self.share * term.quadratic.table(phi)
        return linear, common


@dataclass(frozen=True)
class _Entries(_Part):
    """A view of which every entry has numbers of its own, 0 where it is missing."""

    def of_rows(self, y: Tensor) -> Tensor:
        """Return what the view says of entries, those that are missing left out."""
        observed = (~y.isnan()).to(y.dtype)
        return torch.cat(
            [part * observed for part in _of_entries(self.view, torch.nan_to_num(y))], dim=1
        )

    def slopes(self, basis: Tensor | None) -> list[Tensor]:
        """Return what a is multiplied by."""
        return [] if basis is None else [basis]

    def of_points(self, x: Tensor, slopes: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Return the mean of what the draws say."""
        linear = torch.zeros((), dtype=x.dtype)
        for draw in self.view.draws:
            moments = self.view.psi(draw, draw.features(x))
            linear = linear + torch.cat(_of_places(self.view, *moments), dim=1)
        linear = linear * self.share
        for basis in slopes:
            linear = linear @ basis
        return linear, torch.zeros(len(x), dtype=x.dtype)


@functools.singledispatch
def _of_entries(view: ViewPosterior, y: Tensor) -> tuple[Tensor, ...]:
    """Return the numbers of encoded entries, (n, M) each."""
    raise NotImplementedError(type(view))


@_of_entries.register
def _(view: GaussianPosterior, y: Tensor) -> tuple[Tensor, ...]:  # noqa: ARG001
    return y, torch.ones_like(y)


@_of_entries.register
def _(view: NonConjugatePosterior, y: Tensor) -> tuple[Tensor, ...]:
    return tuple(view.bound.of_rows(y))


@functools.singledispatch
def _of_places(view: ViewPosterior, mean: Tensor, variance: Tensor) -> tuple[Tensor, ...]:
    """Return what these are multiplied by where psi has some moments, (P, M) each."""
    raise NotImplementedError(type(view))


@_of_places.register
def _(view: GaussianPosterior, mean: Tensor, variance: Tensor) -> tuple[Tensor, ...]:
    # E log N(y; psi, sigma^2) but for y^2: y mean - (mean^2 + variance) / 2, over sigma^2
    return mean / view.noise_variance, -0.5 * (mean.square() + variance) / view.noise_variance


@_of_places.register
def _(view: NonConjugatePosterior, mean: Tensor, variance: Tensor) -> tuple[Tensor, ...]:
    return tuple(view.bound.of_places(mean, variance))


@dataclass(frozen=True)
class LinearBound:
    """Bounds of rows that have data of the same views, and all columns of the Gaussian ones or
    holes anywhere.

    Attributes
    ----------
    parts : sequence of _Part
    dim : int
        D.
    holes : bool
        Whether entries may be missing anywhere.
    """

    parts: Sequence[_Part]
    dim: int
    holes: bool

    @classmethod
    def of(
        cls, views: Sequence[ViewPosterior], dim: int, target: Target | None = None
    ) -> LinearBound:
        """Return that of some views.

        Parameters
        ----------
        views : sequence of ViewPosterior
        dim : int
            D.
        target : Target, optional
            Of rows that have all columns of the Gaussian views; without, entries may be missing
            anywhere.
        """
        if target is None:
            return cls([_Entries(view) for view in views], dim, holes=True)
        pairs = zip(views, target.terms, strict=True)
        return cls([_part(view, terms) for view, terms in pairs], dim, holes=False)

    @property
    def views(self) -> list[ViewPosterior]:
        """Those of which rows have data."""
        return [part.view for part in self.parts]

    @property
    def n_features(self) -> int:
        """Features of a point, of all views."""
        return sum(int(view.draws[0].mean.shape[0]) for view in self.views)

    def of_points(
        self, x: Tensor, slopes: Sequence[Sequence[Tensor]] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return a (P, W), or along a basis with these slopes (P, R), and h (P,) at points."""
        every = [part.slopes(None) for part in self.parts] if slopes is None else slopes
        of_parts = [
            part.of_points(x, known) for part, known in zip(self.parts, every, strict=True)
        ]
        linear = [of_part[0] for of_part in of_parts]
        common = functools.reduce(torch.add, [of_part[1] for of_part in of_parts])
        common = common - 0.5 * x.square().sum(1)
        if slopes is None:
            return torch.cat(linear, dim=1), common
        return functools.reduce(torch.add, linear), common

    def slopes(self, basis: Tensor) -> list[list[Tensor]]:
        """Return what `of_points` takes for a along a basis, (W, R)."""
        nothing = [torch.zeros(1, view.n_columns, dtype=basis.dtype) for view in self.views]
        sizes = [part.of_rows(y).shape[1] for part, y in zip(self.parts, nothing, strict=True)]
        of_parts = torch.split(basis, sizes)
        return [part.slopes(some) for part, some in zip(self.parts, of_parts, strict=True)]

    def of_rows(self, rows: Sequence[Tensor]) -> Tensor:
        """Return s (n, W) of encoded rows, (n, M_v) a view, NaN where missing."""
        pairs = zip(self.parts, rows, strict=True)
        return torch.cat([part.of_rows(y) for part, y in pairs], dim=1)

    def drawn(self, x: Tensor) -> list[Tensor]:
        """Return encoded rows that the views draw at points, (P, M_v) a view; where entries may be
        missing, fewer and fewer have values.
        """
        source = random.generator(0, "cells/rows")
        missing = torch.arange(len(x), dtype=torch.float64)[:, None] / len(x)
        rows = []
        for view in self.views:
            draw = view.draws[0]
            mean, _ = view.psi(draw, draw.features(x))
            y = view.encode(view.likelihood.draw(mean, source))
            if self.holes:
                hole = torch.rand(y.shape, generator=source, dtype=torch.float64) < missing
                y = y.masked_fill(hole, torch.nan)
            rows.append(y)
        return rows

    def is_the_bound(self, x: Tensor) -> bool:
        """Return whether it says how bounds differ between points (P, D): products of a likelihood
        may say it of another bound.
        """
        rows = self.drawn(x)
        s = self.of_rows(rows)
        every = torch.arange(len(x))
        target = target_for(self.views, rows, self.dim, shared=not self.holes)
        there = x.roll(1, 0)
        exact = target.evaluate(x, every)[0] - target.evaluate(there, every)[0]
        a, h = self.of_points(x)
        b, g = self.of_points(there)
        ours = (s * (a - b)).sum(1) + h - g
        return bool(((ours - exact).abs() <= _SAME * (1.0 + exact.abs())).all())


def _part(view: ViewPosterior, terms: Sequence[Term | EntrywiseTerm]) -> _Part:
    """Return what a view adds of whose columns rows have all, or which has entries."""
    whole = tuple(term for term in terms if isinstance(term, Term))
    return _WholeRows(view, whole) if whole else _Entries(view)
