"""Placement: where rows lie in latent space given the weights' posterior, and how sure that is.

Every row is scored against reconstructions of training rows in one product, refined by a damped
Newton method of its own, and described by its best modes. Nothing depends on the other rows of a
batch: a row whose climb is so winding that rounding could decide where it ends climbs again in
double precision, and, where a move of its start by 1e-12 decides that, too, or its values are too
large, by sums in a fixed order.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bochner.features.fourier import alike, columns_beside, with_covariates
from bochner.latent_inference.candidates import (
    FEW_AROUND,
    MANY_DIMENSIONS,
    Apart,
    beginning,
    candidate_scores,
    scores_at,
    shifted,
    starts_around,
)
from bochner.latent_inference.fixed_order import FixedOrder, holds
from bochner.latent_inference.many_rows import ManyRows
from bochner.latent_inference.mixtures import Modes, joined
from bochner.latent_inference.modes import (
    MAX_STEPS,
    Placement,
    located,
    solved,
    solved_exactly,
    too_steep,
)
from bochner.latent_inference.predictive_modes import (
    CLIMBED,
    best_points,
    by_products,
    climbed,
    table,
)
from bochner.latent_inference.row_bound import SETTLED, rows_at_once, target_for
from bochner.latent_inference.row_misfit import MISSED, combinations, excess, narrow
from bochner.likelihoods.likelihood import Offsets, offsets_of
from bochner.memory import chunks
from bochner.processes import Processes
from bochner.weight_posterior.posterior import (
    NonConjugatePosterior,
    RowScores,
    ViewPosterior,
    all_conjugate,
)

# Modes of a row that are kept.
N_MODES = 3
# So many candidates, evenly among those given, are scored: Newton's steps bridge the gaps.
_STARTS = 2000
# Rows that their place misses, so many at once, are looked up at so many candidates and all around,
# take a few steps from so many of these that are so far apart in every dimension, and climb from
# the best ends: where no place fits, as of counts that are no Poisson's, all rows of a table do.
# Where two products look them up, points all around are many, as many as these numbers hold what is
# predicted there. Of rows of small noise or large counts 1 to 5 in a hundred were at another place
# with 564 points and 16 climbs, 0 to 2 with 2,564 points; climbs of all 16 take as long.
_N_LOOKED_AT, _LOOKED_UP = 500, 1024
_MANY_AROUND, _NUMBERS = 2000, 2**20
_N_SEARCHED, _FIRST_STEPS, _N_CLIMBED = 32, 4, 6
# Nats that make another place the better one.
_RISE = 1.0
# So few climbs cost the same in double precision, since calls decide.
_FEW = 96
# Radians per unit of latent, whose square is what a wave multiplies rounding by, a Newton step: of
# faster ones no climb is in single precision.
_FAST = 100.0
# So many times the rows are placed at once in a fixed order: its calls cost more.
_IN_ORDER = 8
# Rows whose pattern of observed columns is their own are solved with one quadratic form each, in
# smaller chunks; less small ones where the forms stay factored.
_SINGLE_CHUNK = 64
_FACTORED_CHUNK = 256
# So many rows that observe the same columns are worth a call of their own, with one form of all.
_OWN_CALL = 8


def place(
    views: Sequence[ViewPosterior],
    candidates: Tensor,
    rows: Sequence[Tensor],
    offsets: Offsets | None = None,
    n_modes: int = N_MODES,
    polish: bool = True,
    encoded: bool = False,
    covariates: Tensor | None = None,
) -> Placement:
    """Place rows, once: every start is climbed from.

    Parameters
    ----------
    views : sequence of ViewPosterior
    candidates : Tensor of shape (C, D), float64
        Latents of training rows, where the search starts.
    rows, offsets, n_modes, polish, encoded, covariates
        As in ``Placer.place``.

    Returns
    -------
    Placement
    """
    placer = Placer(views, candidates, tables=False)
    return placer.place(rows, offsets, n_modes, polish, encoded, covariates)


class Placer:
    """Places rows under one model, as often as asked.

    Parameters
    ----------
    views : sequence of ViewPosterior
    candidates : Tensor of shape (C, D), float64
        Latents of training rows, where the search starts.
    tables : bool
        Whether Gaussian rows begin at modes that a table of all candidates finds, where these are
        many: it costs what placing a thousand rows does.

    Attributes
    ----------
    many : ManyRows or None
        Places rows in large numbers.
    """

    def __init__(
        self, views: Sequence[ViewPosterior], candidates: Tensor, tables: bool = True
    ) -> None:
        self._views = views
        self._candidates = candidates[:: -(-candidates.shape[0] // _STARTS)]
        self._conjugate = all_conjugate(views)
        self._best = Apart(self._candidates)
        many = tables and candidates.shape[0] >= _STARTS
        self.many = ManyRows(views, self._candidates, self._best) if many else None

    @functools.cached_property
    def _reconstructions(self) -> list[tuple[Tensor, Tensor]]:
        return [view.reconstructions(self._candidates) for view in self._views]

    @functools.cached_property
    def _scores_of_rows(self) -> list[RowScores]:
        return scores_at(self._views, self._candidates)

    def prepare(self, processes: Processes) -> None:
        """Divide among processes that place rows under the same model, and all call this, what each
        would compute before its first rows; most have entries in all columns.
        """
        if processes.size > 1 and self.many is not None:
            self.many.prepare(processes)

    def place(
        self,
        rows: Sequence[Tensor],
        offsets: Offsets | None = None,
        n_modes: int = N_MODES,
        polish: bool = True,
        encoded: bool = False,
        covariates: Tensor | None = None,
    ) -> Placement:
        """Place rows.

        Parameters
        ----------
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
        covariates : Tensor of shape (n, L), float64, optional
            Of the rows, where the model has any; None: 0, their average.

        Returns
        -------
        Placement
        """
        views = self._views
        dim = self._candidates.shape[1]
        n_modes = n_modes if dim <= MANY_DIMENSIONS else 1
        beside = columns_beside(covariates, rows[0].shape[0])
        out = Placement.at_the_prior(n_modes, dim, beside)
        offsets = offsets or [None] * len(views)
        rows = (
            rows if encoded else [view.encode(y) for view, y in zip(views, rows, strict=True)]
        )
        left = torch.arange(len(beside))
        if self.many is not None and not beside.shape[1]:
            left = self.many.place_in_cells(rows, offsets, n_modes, polish, out)
        given = Given(rows, offsets, beside)
        if len(left):
            self._place(given, left, n_modes, polish, out)
        if polish and len(beside) and self._narrow and dim <= MANY_DIMENSIONS:
            self._search(given, n_modes, out)
        return out

    def _place(
        self, given: Given, left: Tensor, n_modes: int, polish: bool, out: Placement
    ) -> None:
        """Place rows from their best candidates."""
        doubtful = [left]
        if not (polish and (len(left) * n_modes <= _FEW or self._fast)):
            doubtful = list(self._place_roughly(given, left, n_modes, polish, out))
        if polish:
            rounded = self._place_exactly(given, doubtful, n_modes, out)
            if any(map(len, rounded)):
                # what is kept does not depend on who asked for it first
                _ = self._reconstructions if given.beside.shape[1] else self._scores_of_rows
                with FixedOrder():
                    self._place_exactly(given, rounded, n_modes, out, in_order=True)

    def _search(self, given: Given, n_modes: int, out: Placement) -> None:
        """Climb from many places with rows that have no draw's mode near their place which explains
        them, and put those that gain at the best mode that any draw has.

        Between training rows draws differ by more than small noise: where one has a row, the mean
        of all, which other rows climb, has a chasm.
        """
        missed = self._missed(given, out.mean)
        if not len(missed):
            return
        some = given.of(missed)
        # those that no draw's mode near their place explains either
        near = self._modes_of_draws(some, out.mean[missed][:, None])
        still = self._missed(some, near.means[:, 0])
        missed, highest = missed[still], near.log_weights.amax(1)[still]
        for part in chunks(len(missed), _LOOKED_UP):
            index = missed[part]
            some = given.of(index)
            begun = self._modes_of_draws(some, self._probable(some), CLIMBED, _FIRST_STEPS)
            found = self._modes_of_draws(some, begun.means[:, :_N_CLIMBED])
            rise = found.log_weights.amax(1) - highest[part]
            better = (rise > _RISE).nonzero()[:, 0]
            if not len(better):
                continue
            some, starts = some.of(better), found.means[better, :n_modes]
            # few are worth the last digits
            found = self._modes_of_draws(some, starts, SETTLED)
            means, covariances = found.means[:, :n_modes], found.covariances[:, :n_modes]
            weights = found.log_weights[:, :n_modes].softmax(1)
            out.put(index[better], Placement(means, covariances, weights, some.beside))

    def _missed(self, given: Given, at: Tensor) -> Tensor:
        """Return the numbers of rows that places, (n, D), do not explain."""
        there = with_covariates(at, given.beside)
        away = excess(self._views, there, given.rows, given.offsets)
        return (away > MISSED).nonzero()[:, 0]

    def _probable(self, given: Given) -> Tensor:
        """Return where rows are most probable of some candidates and of points all around, (n, R,
        D).
        """
        some = self._candidates[:: -(-len(self._candidates) // _N_LOOKED_AT)]
        points = torch.cat([some, starts_around(some.shape[1], self._n_around(given))])

        def tables(index: Tensor, at: Tensor) -> Iterator[list[Tensor]]:
            part = given.of(index)
            for view, y, offset in zip(self._views, part.rows, part.offsets, strict=True):
                moments = (view.psi(draw, draw.features(at)) for draw in view.draws)
                yield [table(view, y, offset, *of_draw) for of_draw in moments]

        return points[best_points(points, given.beside, tables, _N_SEARCHED)[1]]

    def _n_around(self, given: Given) -> int:
        """Return how many points all around are worth looking at."""
        pairs = zip(self._views, given.offsets, strict=True)
        if given.beside.shape[1] or not all(by_products(*pair) for pair in pairs):
            return FEW_AROUND
        width = sum(view.n_columns for view in self._views)
        return min(_MANY_AROUND, max(FEW_AROUND, _NUMBERS // width))

    def _modes_of_draws(
        self,
        given: Given,
        starts: Tensor,
        tolerance: float = CLIMBED,
        max_steps: int = MAX_STEPS,
    ) -> Modes:
        """Return modes of the predictive density under every draw, the best first."""
        begin = beginning(starts, given.beside)
        of_draws = [[replace(v, draws=(draw,)) for draw in v.draws] for v in self._views]
        every = combinations(of_draws)
        return joined(
            [
                climbed(which, begin, given.rows, given.offsets, tolerance, max_steps)
                for which in every
            ]
        )

    @functools.cached_property
    def _narrow(self) -> bool:
        return narrow(self._views)

    @functools.cached_property
    def _fast(self) -> bool:
        draws = (draw for view in self._views for draw in view.draws)
        return any(draw.frequencies.fastest > _FAST for draw in draws)

    def _place_roughly(
        self, given: Given, left: Tensor, n_modes: int, polish: bool, out: Placement
    ) -> Iterator[Tensor]:
        """Place rows, their modes looked for in single precision, and yield those that this may not
        be enough for.
        """
        views = self._views
        dim = self._candidates.shape[1]
        # Matrices of many dimensions are expensive: single precision, which is good to three
        # digits, has to do.
        single = self._conjugate and dim > MANY_DIMENSIONS
        of_target = [_single(view) for view in views] if single else views
        many = None if given.beside.shape[1] else self.many
        for index, shared in self._groups(given, left, n_modes):
            some = given.of(index)
            part, kept = some.rows, some.beside
            if single:
                part, kept = [y.float() for y in part], kept.float()
            target = target_for(of_target, part, dim, shared, some.offsets, kept)
            steep = too_steep(target)
            if polish and bool(steep.any()):
                yield index[steep]
                left = index[~steep]
                if len(left):
                    yield from self._place_roughly(given, left, n_modes, polish, out)
                continue
            if shared and many is not None and many.tabulates:
                solution = located(target, many.begin(part, target, n_modes), polish)
            else:
                if shared and self._conjugate:
                    # single precision: it only says where to start
                    scores = target.to(torch.float32).table(self._candidates.float())
                else:
                    scores = self._scores(some)
                chosen = self._best(scores, n_modes)
                solution = solved(target, self._candidates[chosen], polish and not single)
            out.put(index, solution.placement)
            yield index[solution.doubtful]

    def _place_exactly(
        self,
        given: Given,
        parts: Sequence[Tensor],
        n_modes: int,
        out: Placement,
        in_order: bool = False,
    ) -> list[Tensor]:
        """Place rows in double precision, or, summed in a fixed order, so that their bits are their
        own; return those of the first kind whose values are too large, or that climb elsewhere
        from where they begin a little beside it.
        """
        every = torch.cat([*parts, torch.zeros(0, dtype=torch.int64)])
        if not len(every):
            return []
        dim = self._candidates.shape[1]
        sides = 1 if in_order else 2
        doubtful = []
        for index, shared in self._groups(given, every, sides * n_modes, apart=in_order):
            some = given.of(index)
            target = target_for(self._views, some.rows, dim, shared, some.offsets, some.beside)
            steep = too_steep(target)
            if not in_order and bool(steep.any()):
                doubtful.append(index[steep])
                left = self._place_exactly(given, [index[~steep]], n_modes, out)
                doubtful.extend(left)
                continue
            chosen = self._best(self._scores(some), n_modes)
            solution = solved_exactly(target, self._candidates[chosen], sides)
            out.put(index, solution.placement)
            doubtful.append(index[solution.doubtful])
        return doubtful

    def _groups(
        self, given: Given, left: Tensor, n_starts: int, apart: bool = False
    ) -> Iterator[tuple[Tensor, bool]]:
        """Yield the numbers of rows that are placed in one call, and whether these share their
        columns, as they do where those that do not are kept apart: one by one where the order of
        sums cannot be fixed.
        """
        if apart and not holds():
            yield from ((row, True) for row in torch.split(left, 1))
            return
        dim = self._candidates.shape[1]
        most = rows_at_once(self._views, dim * n_starts) * (_IN_ORDER if apart else 1)
        rows = given.of(left).rows
        for group, shared in groups_of_rows(self._views, rows, dim, most, apart):
            yield left[group], shared

    def _scores(self, given: Given) -> Tensor:
        """Return scores of rows whose columns differ, or whose likelihoods are not Gaussian."""
        candidates = self._candidates
        scores = torch.empty(len(given.beside), candidates.shape[0], dtype=torch.float64)
        for index, known in alike(given.beside):
            some = given.of(index)
            at = self._scores_beside(known) if known.shape[1] else self._scores_of_rows
            scores[index] = candidate_scores(at, some.rows, some.offsets)
        return scores - 0.5 * candidates.square().sum(1)

    def _scores_beside(self, covariates: Tensor) -> list[RowScores]:
        """Return what scores rows of some covariates, (1, L), view by view."""
        pairs = zip(self._views, self._reconstructions, strict=True)
        return [view.scores_at(*shifted(view, pair, covariates)) for view, pair in pairs]


@dataclass(frozen=True)
class Given:
    """What is given of rows.

    Attributes
    ----------
    rows : sequence over views of Tensor of shape (n, M_v)
        Encoded.
    offsets : sequence over views of Tensor of shape (n,), or None
    beside : Tensor of shape (n, L)
        Covariates.
    """

    rows: Sequence[Tensor]
    offsets: Offsets
    beside: Tensor

    def of(self, index: Tensor) -> Given:
        """Return that of some rows."""
        if len(index) == len(self.beside) and torch.equal(index, torch.arange(len(index))):
            return self
        rows = [y[index] for y in self.rows]
        return Given(rows, offsets_of(self.offsets, index), self.beside[index])


def groups_of_rows(
    views: Sequence[ViewPosterior],
    rows: Sequence[Tensor],
    dim: int,
    most: int,
    apart: bool,
) -> Iterator[tuple[Tensor, bool]]:
    """Yield row indices in chunks that share a pattern of observed columns, then those with a
    pattern of their own; or, apart, of rows that have anything, each pattern by itself.

    Non-conjugate views treat every entry by itself: of them it matters whether there is
    anything at all.
    """
    masks = [~y.isnan() for y in rows]
    by_entry = apart and all(isinstance(view, NonConjugatePosterior) for view in views)
    if by_entry or all(bool(mask.all()) for mask in masks):
        yield from (
            (chunk, True) for chunk in torch.split(torch.arange(rows[0].shape[0]), most)
        )
        return
    observed = torch.cat(
        [view.pattern(m) for view, m in zip(views, masks, strict=True)], dim=1
    )
    patterns, inverse, counts = torch.unique(
        observed, dim=0, return_inverse=True, return_counts=True
    )
    factored = all(view.stays_factored(dim) for view in views)
    # without matrices of their own rows need no call of their own either
    several = patterns.shape[0] > 1 and not apart
    enough = (_SINGLE_CHUNK if factored else _OWN_CALL) if several else 1
    single: list[Tensor] = []
    for p in range(patterns.shape[0]):
        if not bool(patterns[p].any()):
            continue
        index = (inverse == p).nonzero()[:, 0]
        if int(counts[p]) < enough:
            single.append(index)
        else:
            yield from ((chunk, True) for chunk in torch.split(index, most))
    if single:
        size = _FACTORED_CHUNK if factored else _SINGLE_CHUNK
        yield from (
            (chunk, False)
            for chunk in torch.split(torch.cat(single), min(size, max(most, _SINGLE_CHUNK)))
        )


def _single(view: ViewPosterior) -> ViewPosterior:
    return replace(view, draws=tuple(draw.to(torch.float32) for draw in view.draws))
