"""Rows whose density is asked for: their modes, the noise of their samples, and log p(y, x)."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bochner import random
from bochner.features.fourier import with_covariates
from bochner.latent_inference.candidates import (
    MANY_DIMENSIONS,
    beginning,
    starts_around,
)
from bochner.latent_inference.infer import N_MODES, place
from bochner.latent_inference.mixtures import Modes, joined
from bochner.latent_inference.modes import Placement
from bochner.latent_inference.predictive_modes import (
    APART,
    CACHED_NUMBERS,
    best_points,
    climbed,
    points_around,
    table,
)
from bochner.latent_inference.row_misfit import MISSED, combinations, excess, peaked
from bochner.likelihoods.likelihood import Offsets, offsets_of
from bochner.memory import chunks
from bochner.prediction.proposals import FREEDOM, Cloud
from bochner.prediction.turned_rows import turned
from bochner.weight_posterior.posterior import ViewPosterior, all_conjugate

# Samples of each round: all rows have the first, and where entries are integrated by quadrature,
# fewer of them.
_ROUNDS = (128, 256, 1024, 1024)
_LOCAL_ROUNDS = (64, 256, 1024, 1024)
# In many dimensions no proposal resembles the posterior enough for more samples to help.
_MANY_ROUNDS = (256,)
# Rows that their best mode misses climb again, from so many candidates and from around: of 200 rows
# of three latents and a noise of 0.01, 16 had a mode that was not found, and lacked a thousand nats
# and more.
_N_CLIMBS = 32
# The evidence of modes, in nats, that more climbs add to a density which is worth another estimate.
_GAIN = 0.05
# Rows are told apart by their scaled values to so many binary digits: rounding does not reach them.
_DIGITS = 2.0**20
_LARGE = 1e300
# How many of the points at which rows are looked up a row climbs from.
_N_STARTS = 3
_N_BEST = 16
# Points for posteriors that are peaked beside those of others: modes lie between these.
_N_BETWEEN = 320
_LOG_2_PI = math.log(2.0 * math.pi)


def row_keys(names: Sequence[str], rows: Sequence[Tensor]) -> list[int]:
    """Return a number for every row that depends on its values alone, in whatever order views are.

    Parameters
    ----------
    names : sequence of str
        Of the views.
    rows : sequence over views of Tensor of shape (n, M_v), float64
        NaN where missing.

    Returns
    -------
    list of n int
    """
    keys = [0] * rows[0].shape[0]
    for name, y in zip(names, rows, strict=True):
        rounded = ((y * _DIGITS).round() + 0.0).nan_to_num(_LARGE).contiguous().numpy()
        for i, row in enumerate(rounded):
            digest = hashlib.blake2b(row.tobytes(), digest_size=8, key=_key_of(name)).digest()
            keys[i] = (keys[i] + int.from_bytes(digest, "little")) % 2**63
    return keys


def _key_of(name: str) -> bytes:
    return hashlib.blake2b(name.encode(), digest_size=32).digest()


@dataclass(frozen=True)
class OneDraw:
    """A view under one of its draws.

    Attributes
    ----------
    view : ViewPosterior
        As rows see it: complete ones in as few columns as the means of its weights have directions.
    rows : Tensor of shape (n, m)
        Encoded, NaN where missing, as the view is.
    whole : ViewPosterior
        With all columns.
    """

    view: ViewPosterior
    rows: Tensor
    whole: ViewPosterior

    @classmethod
    def of(cls, view: ViewPosterior, s: int, y: Tensor, complete: bool) -> OneDraw:
        """Return the s-th of encoded rows, (n, columns of psi)."""
        single = replace(view, draws=(view.draws[s],))
        short = turned(view, s) if complete else None
        if short is None:
            return cls(single, y, single)
        return cls(short, short.exact_rows(y), single)

    def at(self, index: Tensor | slice) -> OneDraw:
        """Return that of some rows."""
        return replace(self, rows=self.rows[index])

    def repeated(self, count: int) -> OneDraw:
        """Return that of rows so many times each, one after the other."""
        return replace(self, rows=self.rows.repeat_interleave(count, dim=0))

    def psi(self, x: Tensor, offset: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return mean and variance of psi at places, (n, D)."""
        (draw,) = self.view.draws
        return self.view.psi(draw, draw.features(x), offset)


def by_draw(
    views: Sequence[ViewPosterior], rows: Sequence[Tensor], complete: bool = False
) -> list[list[OneDraw]]:
    """Return what the densities of encoded rows take, by view and draw."""
    return [
        [OneDraw.of(view, s, y, complete) for s in range(len(view.draws))]
        for view, y in zip(views, rows, strict=True)
    ]


@dataclass(frozen=True)
class Batch:
    """Encoded rows, by view and draw as well, their offsets by view, and what their noise is keyed
    by.
    """

    views: Sequence[ViewPosterior]
    rows: list[Tensor]
    draws: list[list[OneDraw]]
    offsets: list[Tensor | None]
    keys: list[int]
    seed: int
    covariates: Tensor

    def at(self, index: Tensor) -> Batch:
        """Return some of the rows."""
        keys = [self.keys[i] for i in index.tolist()]
        rows = [y[index] for y in self.rows]
        return replace(
            self,
            rows=rows,
            draws=[[one.at(index) for one in of_view] for of_view in self.draws],
            offsets=offsets_of(self.offsets, index),
            keys=keys,
            covariates=self.covariates[index],
        )

    def rounds(self, dim: int) -> tuple[int, ...]:
        """Return how many samples each round has."""
        if dim > MANY_DIMENSIONS:
            return _MANY_ROUNDS
        return _ROUNDS if all_conjugate(self.views) else _LOCAL_ROUNDS

    def modes(self, candidates: Tensor, cloud: Cloud | None) -> Modes:
        """Return the modes of every draw, from candidates and the best of a cloud."""
        return self._modes(candidates, N_MODES, _best_of(cloud))

    def more_modes(self, candidates: Tensor, cloud: Cloud | None) -> Modes:
        """Return the modes of every draw from many places."""
        wide = starts_around(candidates.shape[1])
        starts = [wide.expand(len(self.keys), -1, -1), *_best_of(cloud)]
        return self._modes(candidates, _N_CLIMBS, starts)

    def _modes(self, candidates: Tensor, n_climbs: int, starts: Sequence[Tensor]) -> Modes:
        """Return the modes of every draw that climbs reach from so many candidates and from
        starts of every row, (n, R, D).
        """
        parts = []
        for which in combinations(self.draws):
            start = place(
                [one.whole for one in which],
                candidates,
                self.rows,
                self.offsets,
                n_climbs,
                polish=False,
                encoded=True,
                covariates=self.covariates,
            )
            for x in starts:
                start = _with_starts(start, x)
            parts.append(self._climbed(which, start))
        return joined(parts)

    def missed(self, found: Modes) -> Tensor:
        """Return which rows are further from what their best mode predicts than noise puts them,
        under every draw: their numbers, (l,).

        Of Gaussian and Poisson views, which may hold a row so fast that a mode which is not found
        is all of its density.
        """
        dim = found.means.shape[2]
        if dim > MANY_DIMENSIONS or not (all_conjugate(self.views) or peaked(self.views)):
            return torch.zeros(0, dtype=torch.int64)
        at = with_covariates(found.means[:, 0], self.covariates)
        away = excess(self.views, at, self.rows, self.offsets)
        return (away > MISSED).nonzero()[:, 0]

    def cloud(self, candidates: Tensor) -> Cloud | None:
        """Return where each row is probable of some candidates and of points all around; None in
        many dimensions, where points are far from each other.
        """
        dim = candidates.shape[1]
        if dim > MANY_DIMENSIONS:
            return None
        points = points_around(candidates, _N_BETWEEN if peaked(self.views) else 0)

        def tables(index: Tensor, at: Tensor) -> Iterator[list[Tensor]]:
            sizes = offsets_of(self.offsets, index)
            for of_view, offset in zip(self.draws, sizes, strict=True):
                yield [
                    table(one.view, one.rows[index], offset, *one.psi(at)) for one in of_view
                ]

        total, index = best_points(points, self.covariates, tables, _N_BEST)
        radius = 0.5 * APART * math.sqrt(dim)
        return Cloud(points[index], radius, (0.5 * total.gather(1, index)).softmax(1))

    def modes_near(self, x: Tensor) -> Modes:
        """Return the mode of every draw that a climb from x (n, D) reaches."""
        start = beginning(x[:, None], self.covariates)
        return joined([self._climbed(which, start) for which in combinations(self.draws)])

    def _climbed(self, which: Sequence[OneDraw], start: Placement) -> Modes:
        """Return the modes that climbs reach under one draw of every view."""
        rows = [one.rows for one in which]
        return climbed([one.view for one in which], start, rows, self.offsets)

    def noise(self, count: int, dim: int, purpose: int) -> tuple[Tensor, Tensor, Tensor]:
        """Draw every row's uniforms (n,), normals (n, count, dim) and chi-squares (n, count)."""
        shape = (count, dim + FREEDOM)
        uniform = torch.empty(len(self.keys), dtype=torch.float64)
        normal = torch.empty(len(self.keys), *shape, dtype=torch.float64)
        for i, key in enumerate(self.keys):
            source = random.generator(self.seed, "score", key, purpose)
            uniform[i] = torch.rand((), generator=source, dtype=torch.float64)
            normal[i] = torch.randn(shape, generator=source, dtype=torch.float64)
        return uniform, normal[..., :dim], normal[..., dim:].square().sum(-1)

    def log_joint(self, x: Tensor) -> Tensor:
        """Return log p(y | x) + log p(x) at places of every row, (n, T, D) -> (n, T)."""
        n, count, dim = x.shape
        every = [one.view for of_view in self.draws for one in of_view]
        width = max(max(v.n_columns, v.draws[0].mean.shape[0]) for v in every)
        parts = []
        for part in chunks(n, max(1, CACHED_NUMBERS // (count * width))):
            rows = [
                [one.at(part).repeated(count) for one in of_view] for of_view in self.draws
            ]
            sizes = [
                None if o is None else o[part].repeat_interleave(count) for o in self.offsets
            ]
            at = with_covariates(x[part], self.covariates[part]).flatten(0, 1)
            parts.append(log_likelihood(rows, at, sizes).reshape(-1, count))
        return torch.cat(parts) - 0.5 * (x.square().sum(-1) + dim * _LOG_2_PI)


def gained(found: Modes, more: Modes) -> Tensor:
    """Return the numbers of rows whose modes have more evidence than those that were found."""
    rise = more.log_weights.logsumexp(1) - found.log_weights.logsumexp(1)
    return (rise > _GAIN).nonzero()[:, 0]


def _best_of(cloud: Cloud | None) -> list[Tensor]:
    """Return the best places of a cloud, (n, R, D), if there is one."""
    return [] if cloud is None else [cloud.places[:, :_N_STARTS]]


def _with_starts(placement: Placement, x: Tensor) -> Placement:
    """Return a placement with more places (n, R, D) for every row, of no weight."""
    eye = torch.eye(x.shape[2], dtype=x.dtype).expand(*x.shape[:2], -1, -1)
    return Placement(
        torch.cat([placement.modes, x], dim=1),
        torch.cat([placement.covariances, eye], dim=1),
        torch.cat([placement.weights, torch.zeros_like(x[..., 0])], dim=1),
        placement.covariates,
    )


def log_likelihood(draws: Sequence[Sequence[OneDraw]], x: Tensor, offsets: Offsets) -> Tensor:
    """Return the sum over views of log mean_s p(y | x, W_s) over observed entries, (n,).

    Parameters
    ----------
    draws : sequence over views of sequences over draws
        As `by_draw` returns them.
    x : Tensor of shape (n, D)
    offsets : sequence over views of Tensor of shape (n,), or None
    """
    total = torch.zeros(x.shape[0], dtype=torch.float64)
    for of_view, offset in zip(draws, offsets, strict=True):
        of_draws = []
        for one in of_view:
            observed = ~one.rows.isnan()
            moments = one.psi(x, offset)
            values = one.view.predictive.log_predictive(one.rows.nan_to_num(), *moments)
            # far from all data a value is -inf, of which 0 times is not 0
            values = torch.where(observed, values, 0.0)
            of_draws.append((values * one.view.counted(observed)).sum(1))
        total += torch.stack(of_draws).logsumexp(0) - math.log(len(of_draws))
    return total
