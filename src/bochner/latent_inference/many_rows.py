"""Rows that are placed in large numbers: what those that observe the same columns have in common is
computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from bochner.latent_inference.candidate_table import CandidateTable, Starts, tabulates
from bochner.latent_inference.cells import Cells, CellTarget, celled
from bochner.latent_inference.linear_bound import LinearBound
from bochner.latent_inference.modes import Placement, Solution, located, solved
from bochner.latent_inference.row_bound import Target, target_for
from bochner.likelihoods.likelihood import Offsets
from bochner.memory import chunks
from bochner.processes import ALONE, Processes
from bochner.weight_posterior.posterior import GaussianPosterior, ViewPosterior

T = TypeVar("T")

# Rows that are placed in cells, and whose candidates are scored, at once.
_IN_CELLS = 4096
_SCORED = 1024


class ManyRows:
    """Places rows by cells, or tells where they begin to climb.

    Parameters
    ----------
    views : sequence of ViewPosterior
    candidates : Tensor of shape (C, D), float64
        Latents of training rows, where the search starts.
    best : callable
        Scores of shape (n, C), which it may overwrite, and R -> the R best candidates of each row
        that are apart, (n, R).

    Attributes
    ----------
    tabulates : bool
        Whether rows begin at modes that a table of all candidates finds.
    cells : dict
        Of rows by the views that they have all columns of; under None of rows that lack some of a
        Gaussian view's. None where no cells are good enough.
    """

    def __init__(
        self,
        views: Sequence[ViewPosterior],
        candidates: Tensor,
        best: Callable[[Tensor, int], Tensor],
    ) -> None:
        self._views = views
        self._candidates = candidates
        self._best = best
        self._has_cells = celled(views, candidates.shape[1])
        self._table: tuple[list[Tensor], CandidateTable] | None = None
        self.tabulates = tabulates(views, candidates)
        self.cells: dict[tuple[bool, ...] | None, _Known | None] = {}

    def place_in_cells(
        self,
        rows: Sequence[Tensor],
        offsets: Offsets,
        n_modes: int,
        polish: bool,
        out: Placement,
    ) -> Tensor:
        """Place rows that have data and no size factors; return the others."""
        views = self._views
        if not self._has_cells:
            return torch.arange(rows[0].shape[0])
        there = [~y.isnan() for y in rows]
        present = torch.stack([mask.any(1) for mask in there], dim=1)
        fits = present.any(1)
        holes = torch.zeros_like(fits)
        for view, mask, offset in zip(views, there, offsets, strict=True):
            if isinstance(view, GaussianPosterior):
                holes |= mask.any(1) & ~mask.all(1)
            elif offset is not None:
                fits &= offset == 0.0
        left = ~fits
        whole = fits & ~holes
        kinds: list[tuple[tuple[bool, ...] | None, Tensor]] = [
            (tuple(kind.tolist()), (whole & (present == kind).all(1)).nonzero()[:, 0])
            for kind in torch.unique(present[whole], dim=0)
        ]
        kinds.append((None, (fits & holes).nonzero()[:, 0]))
        for kind, index in kinds:
            if not len(index):
                continue
            known = self._known(kind, [y[index[:1]] for y in rows])
            if known is None:
                left[index] = True
                continue
            for part in torch.split(index, _IN_CELLS):
                some = [y[part] for y in _of_views(rows, kind)]
                out.put(part, self._in_cells(known, some, n_modes, polish).placement)
        return left.nonzero()[:, 0]

    def prepare(self, processes: Processes) -> None:
        """Make what rows with all columns have in common, each process a part of it."""
        if not self._has_cells:
            return
        row = [torch.zeros(1, view.n_columns, dtype=torch.float64) for view in self._views]
        known = self._known((True,) * len(row), row, processes)
        if known is not None:
            known.cells.fill(self._candidates, processes)

    def _known(
        self,
        kind: tuple[bool, ...] | None,
        row: Sequence[Tensor],
        processes: Processes = ALONE,
    ) -> _Known | None:
        """Return the cells of rows of a kind, one of which is given; None where none are good
        enough.
        """
        if kind not in self.cells:
            candidates = self._candidates
            dim = candidates.shape[1]
            views = _of_views(self._views, kind)
            target = None if kind is None else target_for(self._views, row, dim, True)
            cells = Cells.of(LinearBound.of(views, dim, target), candidates)
            table = None
            if self.tabulates and target is not None:
                table = CandidateTable.of(views, target, candidates, processes)
            by_data = table is not None and all(table.by_data)
            self.cells[kind] = (
                None if cells is None else _Known(cells, table if by_data else None)
            )
        return self.cells[kind]

    def _in_cells(
        self, known: _Known, rows: Sequence[Tensor], n_modes: int, polish: bool
    ) -> Solution:
        """Place rows by cells."""
        cells, table = known.cells, known.table
        target = CellTarget(cells, cells.rows(rows))
        chosen = []
        for part in chunks(len(target.rows), _SCORED):
            scores = cells.scores(target.rows[part])
            if table is None or n_modes == 1:
                chosen.append(self._best(scores, n_modes))
            else:
                best = self._best(scores.clone(), n_modes)
                chosen.append(table.ascended(best, scores))
        every = torch.cat(chosen)
        if table is None:
            return solved(target, self._candidates[every], polish)
        multipliers = [torch.nan_to_num(y).float() for y in rows]
        return located(target, table.begin(every, multipliers), polish)

    def begin(self, part: Sequence[Tensor], target: Target, n_modes: int) -> Starts:
        """Return the starts of rows that observe the same columns; the table of the last such
        columns is still there.
        """
        observed = [~y[:1].isnan() for y in part]
        if self._table is None or not all(map(torch.equal, observed, self._table[0])):
            # the target has no terms of views that these rows lack
            views = [
                view for view, there in zip(self._views, observed, strict=True) if there.any()
            ]
            self._table = observed, CandidateTable.of(views, target, self._candidates)
        table = self._table[1]
        part = [y for y, there in zip(part, observed, strict=True) if there.any()]
        multipliers = table.multipliers(part, target)
        scores = table.scores(multipliers)
        if n_modes == 1:
            return table.begin(self._best(scores, 1), multipliers)
        chosen = table.ascended(self._best(scores.clone(), n_modes), scores)
        return table.begin(chosen, multipliers)


@dataclass(frozen=True)
class _Known:
    """What rows that have data of the same views begin with.

    Attributes
    ----------
    cells : Cells
    table : CandidateTable or None
        Where a step from the best candidates costs less than a climb.
    """

    cells: Cells
    table: CandidateTable | None


def _of_views(of_all: Sequence[T], kind: tuple[bool, ...] | None) -> list[T]:
    """Return what is of the views that rows of a kind have."""
    return (
        list(of_all)
        if kind is None
        else [of for of, has in zip(of_all, kind, strict=True) if has]
    )
