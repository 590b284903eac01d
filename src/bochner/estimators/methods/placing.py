"""Rows of the caller to places in latent space, part by part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from bochner.data.arrays import FloatArray
from bochner.data.columns import dense_rows
from bochner.data.views import fingerprint
from bochner.estimators import tensors
from bochner.estimators.methods.rows import EmptyRows, Patterns, RowsMixin
from bochner.estimators.methods.training_latents import (
    Lost,
    MeanAndStd,
    Placed,
    TrainingLatents,
)
from bochner.fitting.data import Candidates
from bochner.fitting.placed_rows import NotKept, Places, say_placed
from bochner.latent_inference.infer import Placer
from bochner.latent_inference.modes import Placement
from bochner.likelihoods.likelihood import offsets_of
from bochner.prediction.latent_calibration import Check, check, widened
from bochner.prediction.row_posterior import latent_limits, latent_std, observed_views
from bochner.processes import current
from bochner.progress import say

# Training rows whose patterns of holes rows have on which standard deviations are checked.
_PATTERNS = 4
# Numbers in the covariances of places that are remembered.
_REMEMBERED = 2**25


class PlacingMixin(RowsMixin):
    """Placement of rows, and the latents of the training rows."""

    seed_: int
    _placed: tuple[str, Placement] | None
    _embedded: TrainingLatents
    _patterns: Patterns
    _placer: Placer | None = None  # of the model as it is

    @property
    def embedding_(self) -> FloatArray:
        """Latents of the training rows, (N, D)."""
        check_is_fitted(self)
        self._embedded = located = self._embedded.located(self)
        return located.mean

    @property
    def embedding_std_(self) -> FloatArray:
        """Standard deviations of the training rows' latents, (N, D)."""
        return self._embedding().std

    def _embedding(self) -> Placed:
        check_is_fitted(self)
        self._embedded = placed = self._embedded.whole(self)
        return placed

    def _lasting(self) -> TrainingLatents:
        """Return latents of the training rows without rows of the training data."""
        lasting = self._embedded.lasting(self)
        # the model itself may find rows again that a copy can not
        if not isinstance(lasting, Lost):
            self._embedded = lasting
        return lasting

    def _in_files(self) -> Placed | Lost:
        """Return them as files have them."""
        lasting = self._lasting()
        return lasting if isinstance(lasting, Lost) else self._embedding()

    @property
    def _dtype(self) -> np.dtype[np.generic]:
        """That of the training rows."""
        return self._embedded.dtype

    def _placements(
        self,
        values: Any,
        offsets: list[Tensor | None],
        covariates: Tensor,
        cuts: Iterable[slice] | None = None,
    ) -> Iterator[tuple[Placement, list[Tensor], list[Tensor | None]]]:
        """Yield placed rows, their scaled data and offsets, part by part: those that are asked for,
        or all.
        """
        empty = EmptyRows()
        cuts = list(self._cuts(values) if cuts is None else cuts)
        parts = self._dense_parts(values, offsets, covariates, cuts)
        for cut, (rows, row_offsets, beside) in zip(cuts, parts, strict=True):
            empty.add(cut.start, observed_views(rows).any(1).numpy())
            placed = self._current_placer().place(rows, row_offsets, covariates=beside)
            yield placed, rows, row_offsets
        empty.warn()

    def _current_placer(self) -> Placer:
        if self._placer is None:
            self._placer = Placer(self._fit.posterior, self._candidates)
        return self._placer

    def _prepare_placing(self, some: Candidates) -> None:
        """Divide what placing begins with among processes, where most rows have all columns."""
        processes = current()
        if processes.size == 1:
            return
        self._placer = None
        # the same rows in every process
        if np.isnan(some.values).any(axis=1).mean() < 0.5:
            self._current_placer().prepare(processes)

    def _latents(
        self,
        values: Any,
        offsets: list[Tensor | None],
        covariates: Tensor,
        with_std: bool = True,
        checked: bool = True,
        kept: Places | None = None,
    ) -> MeanAndStd:
        """Return places of rows and, if wanted, their standard deviations, (n, D): those that an
        earlier run kept, and others.
        """
        of_part = self._std if checked else self._raw_std
        mean = np.empty((values.shape[0], self._n_latents), values.dtype)
        std = np.zeros(mean.shape, values.dtype if checked else np.float64)
        places = NotKept() if kept is None or not with_std else kept
        known = places.restore(torch.from_numpy(mean), torch.from_numpy(std))
        cuts = [cut for cut in self._cuts(values) if not bool(known[cut].all())]
        given = (values, offsets, covariates, cuts)
        for cut, (part, rows, logs) in zip(cuts, self._placements(*given), strict=True):
            if kept is not None:
                say_placed(cut.start, len(mean))
            mean[cut] = part.mean
            if with_std:
                std[cut] = of_part(part, rows, logs)
            here = torch.arange(cut.start, cut.stop)
            places.add(here, *(torch.from_numpy(values[cut]) for values in (mean, std)))
        places.finish()
        return mean, std

    def _std(
        self, placement: Placement, rows: list[Tensor], offsets: list[Tensor | None]
    ) -> Tensor:
        """Return the standard deviations of placed rows, (n, D)."""
        return widened(self._raw_std(placement, rows, offsets), self._check().excess)

    def _raw_std(
        self, placement: Placement, rows: list[Tensor], offsets: list[Tensor | None]
    ) -> Tensor:
        """Return standard deviations as Laplace's approximations have them, (n, D)."""
        return latent_std(self._fit.posterior, self._candidates, placement, rows, offsets)

    def _place(
        self, values: FloatArray, offsets: list[Tensor | None], covariates: Tensor
    ) -> Placement:
        parts: list[Placement] = []
        for part, *_ in self._placements(values, offsets, covariates):
            parts.append(part)
            say_placed(sum(len(placed.mean) for placed in parts), values.shape[0])
        return Placement.joined(parts)

    def _keep_patterns(self, values: object, known: Tensor, covariates: Tensor) -> None:
        """Keep which entries some known rows have, for when standard deviations are asked for."""
        some = known[torch.from_numpy(tensors.subset(len(known), _PATTERNS, self.seed_))]
        shown = [~y.isnan() for y in self._split(dense_rows(values, some.numpy()))]
        self._patterns = Patterns(shown, covariates[some])

    def _check(self) -> Check:
        """Return what standard deviations and intervals lack: measured when it is first asked
        for.
        """
        if self._fit.latent_excess is None:
            model = (self._fit.posterior, self._candidates)
            held = self._patterns
            checked = check(*model, held.shown, self.seed_, held.covariates)
            shares = list(checked.shares)
            self._fit = replace(self._fit, latent_excess=checked.excess, latent_shares=shares)
        assert self._fit.latent_excess is not None
        return Check(self._fit.latent_excess, tuple(self._fit.latent_shares))

    def _intervals(
        self, values: Any, offsets: list[Tensor | None], covariates: Tensor, level: float
    ) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Return places of rows, their standard deviations, and limits of central intervals, (n,
        D).
        """
        checked = self._check()
        out = np.empty((4, values.shape[0], self._n_latents), values.dtype)
        start = 0
        share = checked.share(level)
        model = (self._fit.posterior, self._candidates)
        for part, rows, logs in self._placements(values, offsets, covariates):
            stop = start + len(part.mean)
            std, *limits = latent_limits(*model, part, rows, logs, level, share)
            of_part = (part.mean, widened(std, checked.excess), *limits)
            for whole, some in zip(out, of_part, strict=True):
                whole[start:stop] = some
            start = stop
        mean, std, low, high = out
        return mean, std, low, high

    def _stds(
        self,
        values: FloatArray,
        offsets: list[Tensor | None],
        placement: Placement,
        wanted: Tensor | None = None,
    ) -> NDArray[np.float64]:
        """Return standard deviations of placed rows, or of the wanted ones of them, (n,), bool;
        unchecked, (n, D).
        """
        if wanted is None:
            wanted = torch.ones(len(placement.mean), dtype=torch.bool)
        parts = []
        start = 0
        for rows, row_offsets, _ in self._dense_parts(values, offsets, placement.covariates):
            stop = start + len(rows[0])
            index = wanted[start:stop].nonzero()[:, 0]
            places = placement.of(start + index)
            shown = [y[index] for y in rows]
            parts.append(self._raw_std(places, shown, offsets_of(row_offsets, index)))
            if len(rows[0]) < len(wanted):
                say(f"standard deviations, {stop:,} of {len(wanted):,} rows")
            start = stop
        stds: NDArray[np.float64] = torch.cat(parts).numpy()
        return stds

    def _remember(self, values: FloatArray, placement: Placement) -> str | None:
        """Keep where the training rows lie, if that is small: completing them is what usually comes
        next. Return what tells these rows from others then.
        """
        small = placement.covariances.numel() <= _REMEMBERED and not sp.issparse(values)
        small = small and not placement.covariates.shape[1]
        digest = fingerprint([values], {}) if small else None
        self._placed = None if digest is None else (digest, placement)
        return digest

    def _recall(self, values: FloatArray, offsets: list[Tensor | None]) -> Placement | None:
        """Return where rows lie if they are the training rows of this very fit, without size
        factors or covariates.
        """
        # files do not hold it
        placed = getattr(self, "_placed", None)
        known = (
            placed is not None
            and all(o is None for o in offsets)
            and placed[0] == fingerprint([values], {})
        )
        return placed[1] if known and placed is not None else None
