"""Latents of the training rows: found by the fit, or when they are first asked for."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bochner.data.arrays import FloatArray
from bochner.data.columns import dense_rows
from bochner.data.file_arrays import changed
from bochner.data.row_sources import RowSource
from bochner.data.views import fingerprint
from bochner.errors import DataWarning, InputError, message, warn_user
from bochner.estimators.methods.rows import KnownRows
from bochner.fitting.data import Candidates
from bochner.fitting.placed_rows import NotKept, Places
from bochner.latent_inference.modes import Placement
from bochner.likelihoods.likelihood import offsets_of
from bochner.prediction.latent_calibration import Check, widened
from bochner.processes import current
from bochner.processes.isolation import isolated

MeanAndStd = tuple[FloatArray, FloatArray]

# Rows of many whose standard deviations tell whether dimensions carry anything.
_MEASURED = 1000
# Bytes of rows that are held for when their standard deviations are asked for.
_HELD = 2**30


class Placing(Protocol):
    """A model that places rows."""

    @property
    def _n_latents(self) -> int: ...

    def _latents(
        self,
        values: Any,
        offsets: list[Tensor | None],
        covariates: Tensor,
        with_std: bool = True,
        checked: bool = True,
        kept: Places | None = None,
    ) -> MeanAndStd: ...

    def _place(
        self, values: FloatArray, offsets: list[Tensor | None], covariates: Tensor
    ) -> Placement: ...

    def _stds(
        self,
        values: FloatArray,
        offsets: list[Tensor | None],
        placement: Placement,
        wanted: Tensor | None = None,
    ) -> NDArray[np.float64]: ...

    def _remember(self, values: FloatArray, placement: Placement) -> str | None: ...

    def _check(self) -> Check: ...


class TrainingRows(ABC):
    """The rows of a fit, while it lasts."""

    @abstractmethod
    def placed(
        self,
        model: Placing,
        offsets: list[Tensor | None],
        some: Candidates,
        covariates: Tensor,
        kept: Places,
    ) -> tuple[TrainingLatents, KnownRows]:
        """Return their latents, as far as they are found now, and the rows that reports look at;
        those that are found later are kept.
        """


@dataclass(frozen=True)
class HeldRows(TrainingRows):
    """Rows in memory.

    Attributes
    ----------
    values : ndarray or sparse matrix of shape (N, M)
    """

    values: FloatArray

    def placed(
        self,
        model: Placing,
        offsets: list[Tensor | None],
        some: Candidates,
        covariates: Tensor,
        kept: Places,  # noqa: ARG002 - nothing is found later
    ) -> tuple[Located, KnownRows]:
        """Place them; reports look at all of them where no other process has any.

        Of more rows than others are placed from, a quarter of a fit's time would be that of
        standard deviations: those of some candidates are found now, and of the others when they are
        asked for.
        """
        values = self.values
        if some.values is not values:
            given = (values, offsets, covariates)
            mean, std = model._latents(*given, checked=False, kept=NotKept())
            return Unchecked(mean, std), _placed(some, model)
        placement = model._place(values, offsets, covariates)
        rows = _MeasuredRows(values, offsets, placement)
        digest = model._remember(values, placement)
        mean = placement.mean.numpy().astype(values.dtype)
        if len(some.index) == len(mean) or rows.size > _HELD:
            std = rows.stds(model)
            return Unchecked(mean, std), KnownRows(values, offsets, some.index, placement, std)
        measured = torch.zeros(len(mean), dtype=torch.bool)
        measured[some.index[:: -(-len(some.index) // _MEASURED)]] = True
        std = rows.stds(model, measured)
        latents = Unmeasured(mean, rows, digest or rows.digest(), measured, std)
        return latents, KnownRows(values, offsets, some.index, placement, std)


@dataclass(frozen=True)
class _MeasuredRows:
    """Placed rows in memory whose standard deviations can be found.

    Attributes
    ----------
    values : ndarray or sparse matrix of shape (n, M)
        Those of the caller, who may change them.
    offsets : list over views of Tensor of shape (n,), or None
    placement : Placement
    """

    values: FloatArray
    offsets: list[Tensor | None]
    placement: Placement

    @property
    def _arrays(self) -> tuple[NDArray[np.generic], ...]:
        """What the values stand in."""
        values: Any = self.values
        if isinstance(values, np.ndarray):
            return (values,)
        return values.data, values.indices, values.indptr

    @property
    def size(self) -> int:
        """Bytes of the values and of the places."""
        held = sum(array.nbytes for array in self._arrays)
        return held + self.placement.modes.nbytes + self.placement.covariances.nbytes

    def digest(self) -> str:
        """Return what tells the values from others."""
        return fingerprint(self._arrays, {})

    def stds(self, model: Placing, wanted: Tensor | None = None) -> NDArray[np.float64]:
        """Return standard deviations of all rows, or of those that are wanted, (n,), bool; not yet
        checked.
        """
        return model._stds(self.values, self.offsets, self.placement, wanted)


@dataclass(frozen=True)
class StoredRows(TrainingRows):
    """Rows that are not in memory.

    Attributes
    ----------
    source : RowSource
    checksum : int
        When the fit began.
    """

    source: RowSource
    checksum: int

    def placed(
        self,
        model: Placing,
        offsets: list[Tensor | None],
        some: Candidates,
        covariates: Tensor,
        kept: Places,
    ) -> tuple[Unplaced, KnownRows]:
        """Leave them to be placed when somebody asks; refuse those that changed in the fit."""
        current().together(self.check)
        return Unplaced(self, offsets, covariates, kept), _placed(some, model)

    def check(self) -> None:
        """Refuse rows that are others than in the fit."""
        if self.source.checksum() != self.checksum:
            raise changed("others than when the fit began")


@functools.singledispatch
def training_rows(values: Any) -> TrainingRows:
    """Return the rows that a fit begins with."""
    return HeldRows(values)


@training_rows.register
def _(values: RowSource) -> TrainingRows:
    return StoredRows(values, values.checksum())


class TrainingLatents(ABC):
    """Latents of the training rows, as far as somebody has asked for them."""

    @property
    @abstractmethod
    def dtype(self) -> np.dtype[np.generic]:
        """That of the training rows."""

    @abstractmethod
    def located(self, model: Placing) -> Located:
        """Return them with their means."""

    @abstractmethod
    def whole(self, model: Placing) -> Placed:
        """Return them with their means and standard deviations."""

    @abstractmethod
    def lasting(self, model: Placing) -> TrainingLatents:
        """Return them without rows of the training data."""


@dataclass(frozen=True)
class Unplaced(TrainingLatents):
    """Latents that were not asked for yet.

    Attributes
    ----------
    rows : StoredRows
    offsets : list over views of Tensor of shape (N,), or None
        Logarithms of these rows' size factors.
    covariates : Tensor of shape (N, L)
        Of these rows.
    kept : Places
        Knows where an earlier run placed rows, and keeps where this one does.
    """

    rows: StoredRows
    offsets: list[Tensor | None]
    covariates: Tensor
    kept: Places

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """That of the source."""
        return self.rows.source.dtype

    def located(self, model: Placing) -> Located:
        """Place the rows: half the work of standard deviations, too."""
        mean, _ = self._placed(model, with_std=False)
        return OnlyMeans(mean, self)

    def whole(self, model: Placing) -> Placed:
        """Place the rows, once for both."""
        return Placed(*self._placed(model, with_std=True))

    def lasting(self, model: Placing) -> Placed | Lost:
        """Place the rows: a copy does not have them."""
        return _without_rows(self, np.empty((0, model._n_latents), self.dtype), model)

    def _placed(self, model: Placing, with_std: bool) -> MeanAndStd:
        self.rows.check()
        given = (self.rows.source, self.offsets, self.covariates)
        return isolated(model._latents)(*given, with_std=with_std, kept=self.kept)


@dataclass(frozen=True)
class Located(TrainingLatents):
    """Latents whose means are known.

    Attributes
    ----------
    mean : ndarray of shape (N, D)
    """

    mean: FloatArray

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """That of the means."""
        return self.mean.dtype

    def located(self, model: Placing) -> Self:
        """Return them as they are."""
        del model
        return self

    def lasting(self, model: Placing) -> TrainingLatents:
        """Return them as they are."""
        del model
        return self


@dataclass(frozen=True)
class OnlyMeans(Located):
    """Latents of rows that are not in memory, whose standard deviations were not asked for yet.

    Attributes
    ----------
    rest : Unplaced
    """

    rest: Unplaced

    def whole(self, model: Placing) -> Placed:
        """Place the rows again, for both."""
        return self.rest.whole(model)

    def lasting(self, model: Placing) -> Placed | Lost:
        """Place the rows again: a copy does not have them."""
        return _without_rows(self, self.mean, model)


@dataclass(frozen=True)
class Unmeasured(Located):
    """Latents of rows in memory, whose standard deviations were not asked for yet.

    Attributes
    ----------
    rows : _MeasuredRows
    digest : str
        Of the values of the fit.
    measured : Tensor of shape (N,), bool
        Which rows' standard deviations are known.
    std : ndarray of shape (C, D), float64
        Theirs, not yet checked.
    """

    rows: _MeasuredRows
    digest: str
    measured: Tensor
    std: NDArray[np.float64]

    def whole(self, model: Placing) -> Placed:
        """Find the standard deviations."""
        return self.lasting(model).whole(model)

    def lasting(self, model: Placing) -> Unchecked:
        """Find the standard deviations: a copy does not have the rows. An array that was changed
        after the fit has none; those of the bound are taken, which no data are needed for.
        """
        std = self.rows.placement.std.numpy()
        std[self.measured.numpy()] = self.std
        if self.rows.digest() == self.digest:
            rest = ~self.measured
            std[rest.numpy()] = isolated(self.rows.stds)(model, rest)
        else:
            warn_user(
                "The array that was fitted has been changed since, so that standard deviations of "
                "its rows are those of the bound, which are too small. Ask for embedding_std_ "
                "before, or call transform(X, return_std=True) with the rows of the fit.",
                DataWarning,
            )
        return Unchecked(self.mean, std)


@dataclass(frozen=True)
class Unchecked(Located):
    """Latents whose standard deviations were not asked for yet.

    Attributes
    ----------
    std : ndarray of shape (N, D), float64
        As Laplace's approximations have them.
    """

    std: FloatArray

    def whole(self, model: Placing) -> Placed:
        """Widen the standard deviations by what the check of them finds."""
        std = widened(torch.from_numpy(self.std), isolated(model._check)().excess).numpy()
        return Placed(self.mean, std.astype(self.mean.dtype))


@dataclass(frozen=True)
class Placed(Located):
    """Latents that are known.

    Attributes
    ----------
    std : ndarray of shape (N, D)
    """

    std: FloatArray

    def whole(self, model: Placing) -> Placed:
        """Return them as they are."""
        del model
        return self


@dataclass(frozen=True)
class Lost(Located):
    """Latents of rows that were not those of the fit any more when the model was written; there
    are means where somebody had asked for them before.
    """

    @property
    def std(self) -> FloatArray:
        """None, (0, D)."""
        return self.mean[:0]

    def located(self, model: Placing) -> Self:
        """Return the means; refuse where there are none."""
        return self if len(self.mean) else self.whole(model)

    def whole(self, model: Placing) -> NoReturn:
        """Refuse."""
        del model
        got = "none: its rows were gone, or others, when it was saved or pickled"
        do = "call transform with the rows; reports and pictures want a fit of them"
        raise InputError(message("a model with latents of its training rows", got, do))


def of_arrays(mean: FloatArray, std: FloatArray, n_rows: int) -> Placed | Lost:
    """Return latents of so many rows as files have them: arrays without rows are not known."""
    if len(std) == n_rows:
        return Placed(mean, std)
    return Lost(mean if len(mean) == n_rows else mean[:0])


def _without_rows(
    latents: Unplaced | OnlyMeans, mean: FloatArray, model: Placing
) -> Placed | Lost:
    """Place rows for a copy that does not have them: a model whose data are gone is still one."""
    try:
        return latents.whole(model)
    except InputError as error:
        what = "embedding_std_ is" if len(mean) else "embedding_ and embedding_std_ are"
        warn_user(f"{what} not kept: {error}", DataWarning)
        return Lost(mean)


def _placed(some: Candidates, model: Placing) -> KnownRows:
    """Place the candidates, and no other rows: each of several processes a part of them."""
    processes = current()
    n_rows = len(some.index)
    offsets = offsets_of(some.offsets, some.index)
    values = dense_rows(some.values, some.index.numpy())
    covariates = some.covariates[some.index]

    def of_part(part: slice) -> tuple[Placement, NDArray[np.float64]]:
        given = values[part], offsets_of(offsets, part)
        placement = model._place(*given, covariates[part])
        return placement, model._stds(*given, placement)

    part = processes.part(n_rows)
    # fewer candidates than processes leave some of these without any
    here = of_part(part) if part.start < part.stop else None
    placements, stds = zip(*filter(None, processes.gathered(here)), strict=True)
    given = torch.arange(n_rows), Placement.joined(placements), np.concatenate(stds)
    return KnownRows(values, offsets, *given)
