"""Placement: where rows lie in latent space under the posterior of the weights, and how sure that
is.

Every row is scored against reconstructions of training rows in one product, refined by a damped
Newton method of its own, and described by its best modes. Nothing depends on the other rows of a
batch.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from bochner.data.covariates import columns_beside
from bochner.latent_inference.candidate_table import CandidateTable, Starts, tabulates
from bochner.latent_inference.modes import Placement, alike, located, solved
from bochner.latent_inference.row_bound import Target, groups_of_rows, rows_at_once, target_for
from bochner.likelihoods.likelihood import offsets_of
from bochner.weight_posterior.posterior import ViewPosterior, all_conjugate

N_MODES = 3
# Beyond so many dimensions a row climbs from its best start alone: others are all far from it, and
# behind it.
MANY_DIMENSIONS = 12
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
    """

    def __init__(
        self, views: Sequence[ViewPosterior], candidates: Tensor, tables: bool = True
    ) -> None:
        self._views = views
        self._candidates = candidates[:: -(-candidates.shape[0] // _STARTS)]
        self._conjugate = all_conjugate(views)
        many = candidates.shape[0] >= _STARTS
        self._tabulates = tables and many and tabulates(views, self._candidates)
        self._table: tuple[list[Tensor], CandidateTable] | None = None

    @functools.cached_property
    def _near(self) -> Tensor:
        return _near(self._candidates)

    @functools.cached_property
    def _book(self) -> list[tuple[Tensor, Tensor]]:
        return [view.reconstructions(self._candidates) for view in self._views]

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
        out = _at_the_prior(n_modes, dim, beside)
        offsets = offsets or [None] * len(views)
        rows = (
            rows if encoded else [view.encode(y) for view, y in zip(views, rows, strict=True)]
        )
        # Matrices of many dimensions are expensive: single precision, which is good to three
        # digits, has to do.
        single = self._conjugate and dim > MANY_DIMENSIONS
        of_target = [_single(view) for view in views] if single else views
        tabulated = self._tabulates and not beside.shape[1]
        for index, shared in groups_of_rows(
            views, rows, dim, rows_at_once(views, dim * n_modes)
        ):
            part = [y[index] for y in rows]
            of_part = offsets_of(offsets, index)
            known = beside[index]
            kept = known
            if single:
                part = [y.float() for y in part]
                kept = known.float()
            target = target_for(of_target, part, dim, shared, of_part, kept)
            if shared and tabulated:
                solution = located(target, self._begin(part, target, n_modes), polish)
            else:
                if shared and self._conjugate:
                    # single precision: it only says where to start
                    scores = target.to(torch.float32).table(self._candidates.float())
                else:
                    scores = self._scores([y[index] for y in rows], of_part, known)
                chosen = best_apart(scores, self._near if n_modes > 1 else _NONE, n_modes)
                solution = solved(target, self._candidates[chosen], polish and not single)
            out.modes[index], out.covariances[index] = solution.modes, solution.covariances
            out.weights[index] = solution.weights
        return out

    def _begin(self, part: Sequence[Tensor], target: Target, n_modes: int) -> Starts:
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
            return table.begin(best_apart(scores, _NONE, 1), multipliers)
        chosen = table.ascended(best_apart(scores.clone(), self._near, n_modes), scores)
        return table.begin(chosen, multipliers)

    def _scores(self, part: Sequence[Tensor], offsets: Offsets, beside: Tensor) -> Tensor:
        """Return scores of rows whose columns differ, or whose likelihoods are not Gaussian."""
        candidates = self._candidates
        scores = torch.empty(len(part[0]), candidates.shape[0], dtype=torch.float64)
        for index, known in alike(beside):
            some = [y[index] for y in part]
            pairs = zip(self._views, self._book, strict=True)
            at = [shifted(view, pair, known) for view, pair in pairs]
            scores[index] = candidate_scores(at, self._views, some, offsets_of(offsets, index))
        return scores - 0.5 * candidates.square().sum(1)


_NONE = torch.zeros(0, 0, dtype=torch.bool)


def _single(view: ViewPosterior) -> ViewPosterior:
    return replace(view, draws=tuple(draw.to(torch.float32) for draw in view.draws))


def _at_the_prior(n_modes: int, dim: int, covariates: Tensor) -> Placement:
    n = len(covariates)
    eye = torch.eye(dim, dtype=torch.float64)
    out = Placement(
        torch.zeros(n, n_modes, dim, dtype=torch.float64),
        eye.expand(n, n_modes, -1, -1).clone(),
        torch.zeros(n, n_modes, dtype=torch.float64),
        covariates,
    )
    out.weights[:, 0] = 1.0
    return out


def shifted(
    view: ViewPosterior, book: tuple[Tensor, Tensor], covariates: Tensor
) -> tuple[Tensor, Tensor]:
    """Return reconstructions at some covariates (1, L): their means; uncertainties stay."""
    if not covariates.shape[1]:
        return book
    effects = [
        (covariates[0] * draw.frequencies.linear) @ draw.mean[-covariates.shape[1] :]
        for draw in view.draws
    ]
    return book[0] + torch.stack(effects).mean(0), book[1]


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
        ``reconstructions`` of the candidates.
    views : sequence of ViewPosterior
    rows : sequence over views of Tensor of shape (n, M_v), float64
        Encoded.
    offsets : sequence over views of Tensor of shape (n,), or None
    """
    score = torch.zeros(rows[0].shape[0], book[0][0].shape[0], dtype=torch.float64)
    for (mean, spread), view, y, offset in zip(book, views, rows, offsets, strict=True):
        score += view.scores(y, offset, mean, spread)
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
        # several times as fast as torch's
        best = torch.from_numpy(scores.numpy().argmax(1))
        chosen.append(best)
        if r + 1 < count:
            scores.masked_fill_(near[best], -torch.inf)
    return torch.stack(chosen, dim=1)
