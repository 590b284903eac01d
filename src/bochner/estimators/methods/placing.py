"""Rows of the caller to places in latent space, part by part; those of the training rows are kept,
or found when they are first asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from bochner.data.arrays import FloatArray
from bochner.data.columns import dense_rows
from bochner.data.row_sources import RowSource, changed
from bochner.data.views import fingerprint
from bochner.estimators import training_data
from bochner.estimators.methods.rows import RowsMixin
from bochner.estimators.settings import options
from bochner.fitting.data import FitData
from bochner.fitting.plan import Fit, Plan
from bochner.latent_inference.infer import Placer
from bochner.latent_inference.modes import Placement
from bochner.prediction.latent_std import Check, check, latent_interval, latent_std, widened
from bochner.processes import ALONE, isolated

Places = tuple[FloatArray, FloatArray]

# Training rows whose patterns of holes rows have on which standard deviations are checked.
_PATTERNS = 4
# Numbers in the covariances of places that are remembered.
_REMEMBERED = 2**25


@dataclass(frozen=True)
class Unplaced:
    """Training rows that are not in memory, and whose latents were not all asked for yet.

    Attributes
    ----------
    source : RowSource
    checksum : int
        Of the rows that were fitted.
    offsets : list over views of Tensor of shape (N,), or None
        Logarithms of these rows' size factors.
    covariates : Tensor of shape (N, L)
        Of these rows.
    mean : ndarray of shape (N, D), optional
        Their latents, once somebody has asked for these alone: half the work of deviations, too.
    """

    source: RowSource
    checksum: int
    offsets: list[Tensor | None]
    covariates: Tensor
    mean: FloatArray | None = None

    def check(self) -> None:
        """Refuse rows that are others than in the fit."""
        if self.source.checksum() != self.checksum:
            raise changed("others than when the fit began")


@dataclass(frozen=True)
class Unchecked:
    """Training rows whose standard deviations were not asked for yet.

    Attributes
    ----------
    mean : ndarray of shape (N, D)
    std : ndarray of shape (N, D), float64
        As Laplace's approximations have them.
    """

    mean: FloatArray
    std: FloatArray


@dataclass(frozen=True)
class Patterns:
    """Some training rows as the check of standard deviations draws others like them.

    Attributes
    ----------
    shown : list over views of Tensor of shape (n, M_v), bool
        Which of their entries are observed.
    covariates : Tensor of shape (n, L)
    """

    shown: list[Tensor]
    covariates: Tensor


@dataclass(frozen=True)
class Candidates:
    """Training rows that all processes know: from where rows are placed, and what reports look at.

    Attributes
    ----------
    latents : Tensor of shape (C, D)
    values : ndarray, sparse matrix or RowSource
        Rows among which the candidates are: all rows of one process, or the candidates.
    index : Tensor of shape (C,), int64
        Which of these rows they are.
    offsets : list over views of Tensor of shape (n,), or None
        Logarithms of these rows' size factors.
    fit, data, plan
        Of these rows.
    """

    latents: Tensor
    values: Any
    index: Tensor
    offsets: list[Tensor | None]
    fit: Fit
    data: FitData
    plan: Plan

    @classmethod
    def of(
        cls,
        fit: Fit,
        values: Any,
        offsets: list[Tensor | None],
        data: FitData,
        kept: Tensor,
        plan: Plan,
    ) -> Candidates:
        """Take rows by their global numbers, (C,)."""
        processes = plan.processes
        n_rows = values.shape[0]
        if processes.size == 1:
            return cls(fit.latents[kept], values, kept, offsets, fit, data, plan)
        local = processes.local(kept, n_rows)
        latents = processes.joined(fit.latents[local], kept, n_rows)
        raw = torch.from_numpy(dense_rows(values, local.numpy()))
        rows = processes.joined(raw, kept, n_rows).numpy()

        def of_rows(offset: Tensor | None) -> Tensor | None:
            return None if offset is None else processes.joined(offset[local], kept, n_rows)

        draws = fit.latent_draws
        if draws is not None:
            here = draws[:, local].transpose(0, 1)
            draws = processes.joined(here, kept, n_rows).transpose(0, 1)
        every = torch.arange(len(kept))
        known = replace(fit, latents=latents, latent_draws=draws)
        alone = replace(plan, processes=ALONE)
        logs = [of_rows(offset) for offset in offsets]
        return cls(latents, rows, every, logs, known, data.take(kept, processes), alone)


def _digest(values: FloatArray) -> str:
    return fingerprint([values], {})


class PlacingMixin(RowsMixin):
    """Placement of rows, and the latents of the training rows."""

    seed_: int
    _placed: tuple[str, Placement] | None
    _embedded: Places | Unplaced | Unchecked
    _patterns: Patterns
    # of the model as it is: made when it is first used
    _placer: Placer | None = None

    @property
    def embedding_(self) -> FloatArray:
        """Latents of the training rows, (N, D)."""
        held = self._embedded
        if isinstance(held, Unplaced):
            if held.mean is None:
                held.check()
                given = (held.source, held.offsets, held.covariates)
                mean, _ = isolated(self._latents)(*given, with_std=False)
                held = self._embedded = replace(held, mean=mean)
            assert held.mean is not None
            return held.mean
        return held.mean if isinstance(held, Unchecked) else held[0]

    @embedding_.setter
    def embedding_(self, value: FloatArray) -> None:
        self._embedded = (value, getattr(self, "_embedded", (value, value))[1])

    @property
    def embedding_std_(self) -> FloatArray:
        """Standard deviations of the training rows' latents, (N, D)."""
        return self._embedding()[1]

    @embedding_std_.setter
    def embedding_std_(self, value: FloatArray) -> None:
        self._embedded = (getattr(self, "_embedded", (value, value))[0], value)

    def _embedding(self) -> Places:
        if isinstance(self._embedded, Unplaced):
            self._embedded.check()
            held = self._embedded
            self._embedded = isolated(self._latents)(
                held.source, held.offsets, held.covariates
            )
        elif isinstance(self._embedded, Unchecked):
            mean = self._embedded.mean
            raw = torch.from_numpy(self._embedded.std)
            std = widened(raw, isolated(self._check)().excess).numpy()
            self._embedded = (mean, std.astype(mean.dtype))
        return self._embedded

    @property
    def _dtype(self) -> np.dtype[np.generic]:
        """That of the training rows."""
        held = self._embedded
        if isinstance(held, Unplaced):
            return held.source.dtype
        return held.mean.dtype if isinstance(held, Unchecked) else held[0].dtype

    def _placements(
        self, values: Any, offsets: list[Tensor | None], covariates: Tensor
    ) -> Iterator[tuple[Placement, list[Tensor], list[Tensor | None]]]:
        """Yield placed rows, their scaled data and offsets, part by part."""
        options.of_empty(values)
        if self._placer is None:
            self._placer = Placer(self._fit.posterior, self._candidates)
        for rows, row_offsets, beside in self._dense_parts(values, offsets, covariates):
            yield self._placer.place(rows, row_offsets, covariates=beside), rows, row_offsets

    def _latents(
        self,
        values: Any,
        offsets: list[Tensor | None],
        covariates: Tensor,
        with_std: bool = True,
        checked: bool = True,
    ) -> Places:
        """Return places of rows and, if wanted, their standard deviations, (n, D)."""
        of_part = self._std if checked else self._raw_std
        mean = np.empty((values.shape[0], self._n_latents), values.dtype)
        std = np.zeros(mean.shape, values.dtype if checked else np.float64)
        start = 0
        for part, rows, row_offsets in self._placements(values, offsets, covariates):
            stop = start + len(part.mean)
            mean[start:stop] = part.mean
            if with_std:
                std[start:stop] = of_part(part, rows, row_offsets)
            start = stop
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
        return Placement.joined(
            [part for part, *_ in self._placements(values, offsets, covariates)]
        )

    def _keep_patterns(self, values: object, known: Tensor, covariates: Tensor) -> None:
        """Keep which entries some known rows have, for when standard deviations are asked for."""
        some = known[torch.from_numpy(training_data.subset(len(known), _PATTERNS, self.seed_))]
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
    ) -> Places:
        """Return limits of the latents' central intervals, (n, D)."""
        shape = (values.shape[0], self._n_latents)
        share = self._check().share(level)
        low = np.empty(shape, values.dtype)
        high = np.empty(shape, values.dtype)
        start = 0
        for part, rows, row_offsets in self._placements(values, offsets, covariates):
            stop = start + len(part.mean)
            model = (self._fit.posterior, self._candidates)
            limits = latent_interval(*model, part, rows, row_offsets, level, share)
            low[start:stop], high[start:stop] = limits
            start = stop
        return low, high

    def _stds(
        self, values: FloatArray, offsets: list[Tensor | None], placement: Placement
    ) -> NDArray[np.float64]:
        """Return standard deviations of all placed rows, unchecked, (n, D)."""
        parts, start = [], 0
        for rows, row_offsets, _ in self._dense_parts(values, offsets, placement.covariates):
            stop = start + len(rows[0])
            parts.append(
                self._raw_std(placement.of(torch.arange(start, stop)), rows, row_offsets)
            )
            start = stop
        stds: NDArray[np.float64] = torch.cat(parts).numpy()
        return stds

    def _remember(self, values: FloatArray, placement: Placement) -> None:
        """Keep where the training rows lie, if that is small: completing them is what usually comes
        next.
        """
        small = placement.covariances.numel() <= _REMEMBERED and not sp.issparse(values)
        small = small and not placement.covariates.shape[1]
        self._placed = (_digest(values), placement) if small else None

    def _recall(self, values: FloatArray, offsets: list[Tensor | None]) -> Placement | None:
        """Return where rows lie if they are the training rows of this very fit, without size
        factors or covariates.
        """
        placed = getattr(self, "_placed", None)  # files do not hold it
        known = (
            placed is not None
            and all(o is None for o in offsets)
            and placed[0] == _digest(values)
        )
        return placed[1] if known and placed is not None else None
