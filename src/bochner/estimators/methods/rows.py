"""Rows of the caller, checked, as the tensors that a fitted model takes, and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import (
    _check_n_features,
    _num_samples,
    check_array,
    check_is_fitted,
    validate_data,
)
from torch import Tensor

from bochner.data.accepted import as_rows, check_kind, in_order_of, index_of
from bochner.data.arrays import FloatArray
from bochner.data.columns import columns_of, dense_rows, observed_rows
from bochner.data.covariates import NOTHING_KNOWN, CovariateCoding
from bochner.data.row_sources import RowSource, source_of
from bochner.data.sparse import ROWS, canonical
from bochner.data.validation import check_new
from bochner.data.views import Scaling, check_reach
from bochner.errors import DataWarning, InputError, message, warn_user
from bochner.estimators.settings import likelihoods, plans
from bochner.estimators.settings.likelihoods import SizeFactors
from bochner.estimators.tables import Coding, as_frame, coding_of, of_views
from bochner.fitting.plan import Fit
from bochner.kernels.base import SpectralKernel
from bochner.latent_inference.modes import Placement
from bochner.likelihoods.likelihood import offsets_of
from bochner.linalg import check_dense
from bochner.memory import Memory, chunks, passes
from bochner.models.lvm import Covariates
from bochner.processes import current
from bochner.weight_posterior.posterior import GaussianPosterior


class RowsMixin:
    """Checks and units of rows."""

    _fit: Fit
    _candidates: Tensor
    _scaling: Scaling
    views_: dict[str, NDArray[np.intp]]
    _size_factors: SizeFactors
    _coding: Coding
    _covariate_coding: CovariateCoding
    likelihood: object
    landmarks: int | str | None
    noise: str
    views: object
    # names of the rows of training, as long as the estimator is in memory
    _index: object = None
    # whether training reads rows block by block
    _trains_on_blocks: ClassVar[bool] = True

    @property
    def _n_latents(self) -> int:
        """D."""
        return int(self._candidates.shape[1])

    def _unscale(self, stacked: Tensor) -> FloatArray:
        return self._scaling.undo(self._in_columns_of_X(stacked))

    def _unscale_std(self, variance: Tensor) -> FloatArray:
        return self._scaling.undo_std(self._in_columns_of_X(variance.sqrt()))

    def _in_columns_of_X(self, stacked: Tensor) -> NDArray[np.float64]:
        """Views side by side, (n, M), become columns in the order of X: views need not be listed in
        that order.
        """
        back = np.argsort(np.concatenate(list(self.views_.values())))
        values: NDArray[np.float64] = stacked.numpy()[:, back]
        return values

    @property
    def _views_named(self) -> object:
        """What names views, or asks for one noise variance: a table of numbers stays one view
        then. None: nothing does.
        """
        by_view = [
            value
            for value in (getattr(self, "view_weight", None), getattr(self, "latent", None))
            if isinstance(value, Mapping)
        ]
        noise = getattr(self, "noise_variance", None)
        return next((one for one in (self.views, noise, *by_view) if one is not None), None)

    def _validate(self, X: object, *, reset: bool, n_rows: int | None = None) -> Any:
        """Return checked rows: an array, a sparse matrix, or a source of rows that are read block
        by block. There are so many rows in all processes; None: these.
        """
        if not reset:
            check_is_fitted(self)
        # an array in memory is no source; memory maps are arrays of a class of their own
        source = None if type(X) is np.ndarray else source_of(X)
        if source is None:
            return self._validate_whole(X, reset=reset)
        if not (reset or source.n_rows):
            got = f"an array of shape {source.shape}"
            raise InputError(message("data", got, "pass at least one row"))
        if reset and not source.n_columns:
            got = f"an array of shape {source.shape}"
            raise InputError(message("data", got, "pass at least one column"))
        if reason := self._held_because(source, reset, n_rows):
            what = (
                f"{source.n_rows:,} × {source.n_columns:,} numbers, held in memory because of"
            )
            Memory().check(source.held_bytes, f"{what} {reason}", "fit fewer rows or columns")
            values: Any = self._validate_whole(source.whole(), reset=reset)
        else:
            _check_n_features(self, source, reset=reset)
            values = source
            if reset:
                # of an earlier fit
                vars(self).pop("feature_names_in_", None)
                self._coding = coding_of(source, self.likelihood, self._views_named)
        # first: messages name the columns of new values as training did
        self._check_names(source.columns, reset=reset)
        if not (reset or source.is_checked):
            self._check_new(source)
        return values

    def _gaussian_views(self) -> list[GaussianPosterior]:
        return [view for view in self._fit.posterior if isinstance(view, GaussianPosterior)]

    def _held_because(self, source: RowSource, reset: bool, n_rows: int | None = None) -> str:
        """Return why rows have to be in memory as a whole; nothing where they need not."""
        if not reset:
            return ""
        if not self._trains_on_blocks:
            return f"the sampler of {type(self).__name__}"
        if plans.n_landmarks(self.landmarks, n_rows or source.n_rows) is None:
            return "a fit without landmarks"
        if not likelihoods.known_by_rows(self.likelihood):
            return f"likelihood={self.likelihood!r}"
        reason = likelihoods.not_with_holes(self.likelihood, self.noise)
        return (
            "" if reason is None or source.is_complete() else f"missing entries and {reason}"
        )

    def _check_names(self, names: list[str] | None, *, reset: bool) -> None:
        """Keep the names of a source's columns, or compare them with those of training."""
        if names is None:
            return
        if reset:
            self.feature_names_in_ = np.array(names, dtype=object)
            return
        known = getattr(self, "feature_names_in_", None)
        if known is not None and list(known) != names:
            j = next(j for j, name in enumerate(known) if name != names[j])
            want = f"the columns of training, {known[j]!r} as column {j}"
            raise InputError(message(want, repr(names[j]), "put the columns in that order"))

    def _columns_of_fit(self, X: Any) -> Any:
        """Return the columns of a DataFrame that views name; new rows that lack one are left to the
        checks that name it.
        """
        X = as_frame(X, self.likelihood)
        known = {str(name) for name in getattr(self, "feature_names_in_", ())}
        columns = getattr(X, "columns", None)
        given = set() if columns is None else {str(name) for name in columns}
        return of_views(X, self.views) if known <= given else X

    # what has no finite number of that precision is refused by name
    @np.errstate(over="ignore", invalid="ignore")
    def _validate_whole(self, X: object, *, reset: bool) -> FloatArray:
        X = as_rows(_from_torch(X))
        if not reset:
            X = self._columns_of_fit(X)
        else:
            X = of_views(as_frame(X, self.likelihood), self.views)
            self._coding = coding_of(X, self.likelihood, self._views_named)
        X = self._coding.encode(X)
        check_kind(
            X,
            tables=reset,
            frames=not reset and self._coding.of_frames,
        )
        if current().size > 1 and _num_samples(X) == 0:
            do = "start fewer processes, or give every one some rows"
            raise InputError(message("rows in every process", "none in one", do))
        values: FloatArray = validate_data(
            self,
            X,
            reset=reset,
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            ensure_all_finite=False,
            ensure_min_samples=1,
        )
        if sp.issparse(values):
            values = canonical(values)
        if not reset:
            self._check_new(values)
        return values

    def _check_new(self, values: Any) -> None:
        """Refuse rows that a fitted model cannot place."""
        names = getattr(self, "feature_names_in_", None)
        ends = check_new(values, self.views_, names)
        chosen = {view.name: view.likelihood for view in self._fit.posterior}
        likelihoods.check(values, chosen, self.views_, names)
        real = {
            view.name: self.views_[view.name]
            for view in self._fit.posterior
            if view.likelihood.scales_with_data
        }
        check_reach(values, ends, self._scaling, real, names)

    # what has no finite number of that precision is refused by name
    @np.errstate(over="ignore", invalid="ignore")
    def _validate_latents(self, Z: ArrayLike) -> tuple[Tensor, Any]:
        check_is_fitted(self)
        Z = as_rows(_from_torch(Z))
        check_kind(Z)
        values = check_array(Z, dtype=[np.float64, np.float32], input_name="Z")
        if values.shape[1] != self._n_latents:
            got = f"{values.shape[1]} columns"
            want = f"Z with {self._n_latents} columns (latent dimensions)"
            raise InputError(message(want, got, "pass latents, as transform returns them"))
        return torch.tensor(values, dtype=torch.float64), values.dtype

    def _units_differ(self, view: str) -> bool:
        """Whether each column of a view has a scale of its own."""
        return bool(np.ptp(self._scaling.scale[self.views_[view]]) > 0.0)

    @property
    def _scales(self) -> dict[str, float]:
        """Original units per scaled unit, by view; 1 where every column has units of its own."""
        return {
            view: 1.0 if self._units_differ(view) else float(self._scaling.scale[positions[0]])
            for view, positions in self.views_.items()
        }

    def _noise_in_units(
        self, view: str, variance: float | Tensor
    ) -> float | NDArray[np.float64]:
        """Return a noise variance in original units squared: per column where units are."""
        scale = self._scaling.scale[self.views_[view]]
        if self._units_differ(view):
            return np.asarray(likelihoods.plain_noise(variance)) * scale**2
        return likelihoods.plain_noise(variance, float(scale[0]))

    def _split(self, values: FloatArray) -> list[Tensor]:
        scaled = self._scaling.apply(values.astype(np.float64, copy=False))
        return [
            torch.from_numpy(np.ascontiguousarray(columns_of(scaled, positions)))
            for positions in self.views_.values()
        ]

    def _some(
        self, values: FloatArray, offsets: list[Tensor | None], rows: Tensor | slice
    ) -> tuple[list[Tensor], list[Tensor | None]]:
        """Return some rows by view, dense and scaled, with their offsets."""
        part = dense_rows(values, rows if isinstance(rows, slice) else rows.numpy())
        return self._split(part), offsets_of(offsets, rows)

    def _cuts(self, values: FloatArray) -> Iterator[slice]:
        """Cut rows into parts of which there may be copies in float64."""
        return chunks(values.shape[0], ROWS) if sp.issparse(values) else passes(values.shape)

    def _dense_parts(
        self,
        values: FloatArray,
        offsets: list[Tensor | None],
        covariates: Tensor,
        cuts: Iterable[slice] | None = None,
    ) -> Iterator[tuple[list[Tensor], list[Tensor | None], Tensor]]:
        """Yield rows by view, dense and scaled, with their offsets and covariates: part by part,
        those that are asked for, or all.
        """
        for rows in self._cuts(values) if cuts is None else cuts:
            yield *self._some(values, offsets, rows), covariates[rows]

    def _fit_covariates(
        self, covariates: object, X: object, n_rows: int, size_factors: object
    ) -> Covariates:
        """Learn how covariates become numbers, and return those of the rows of training; refuse
        size factors of rows in another order.
        """
        self._covariate_coding = NOTHING_KNOWN
        self._index = index_of(X)
        in_order_of(self._index, "size_factors", size_factors)
        if covariates is None:
            return Covariates.none(n_rows)
        given = covariates, n_rows, self._index
        self._covariate_coding = CovariateCoding.fit(*given, current())
        values = self._covariate_coding.encode(*given)
        return Covariates(values, self._covariate_coding.groups)

    def _beside(
        self, X: object, values: FloatArray, covariates: object, size_factors: object
    ) -> Tensor:
        """Return the covariates of rows as numbers, (n, L); refuse size factors of rows in another
        order, and warn where a fit had some and these rows have none.
        """
        index = index_of(X)
        in_order_of(index, "size_factors", size_factors)
        typical = self._size_factors.typical
        given = typical if size_factors is not None else {}
        named = size_factors if isinstance(size_factors, Mapping) else given
        lacking = sorted({*typical} - {*self._size_factors.shares, *named})
        if lacking:
            warn_user(
                f"The model was fitted with size factors of view {lacking[0]!r}, and these rows "
                "are taken for typical ones: pass size_factors= (--size-factors COLUMN).",
                DataWarning,
            )
        return self._covariate_coding.encode(covariates, values.shape[0], index)

    def _beside_all(
        self,
        X: object,
        values: FloatArray,
        covariates: object,
        size_factors: object,
    ) -> Tensor:
        """Return what `_beside` does; refuse size factors that are not those of all rows, of which
        some are looked at next: some of a wrong number would pass for right.
        """
        beside = self._beside(X, values, covariates, size_factors)
        if size_factors is not None:
            self._offsets(values, size_factors)
        return beside

    def _offsets(self, values: FloatArray, size_factors: object) -> list[Tensor | None]:
        """Return the logarithms of the rows' size factors, by view."""
        chosen = {view.name: view.likelihood for view in self._fit.posterior}
        return list(
            self._size_factors.offsets(values, size_factors, chosen, self.views_).values()
        )

    def _log_jacobian(self, values: FloatArray) -> NDArray[np.float64]:
        """What turns log densities of rows as scaled into those in original units, (n,)."""
        if sp.issparse(values):
            return np.full(values.shape[0], -np.log(self._scaling.scale).sum())
        parts = (values[rows] for rows in passes(values.shape))
        return np.concatenate([self._scaling.log_jacobian(~np.isnan(part)) for part in parts])


def _from_torch(X: object) -> object:
    """Return a tensor as an array, without its gradient and on the processor; whatever else as it
    is.

    Precisions that numpy does not know (bfloat16) become single.
    """
    if not isinstance(X, torch.Tensor):
        return X
    check_dense(X)
    X = X.detach().cpu().resolve_conj().resolve_neg()
    return (X.float() if X.dtype == torch.bfloat16 else X).numpy()


def natural(kernel: SpectralKernel, scale: float) -> dict[str, NDArray[np.float64]]:
    """Parameters of a kernel by name; variances and weights in original units squared."""
    values: Mapping[str, Tensor] = kernel.values()
    square = scale**2
    return {
        name: value.numpy()
        * (square if name.split(".")[-1] in ("weights", "variance") else 1.0)
        for name, value in values.items()
    }


def warn_of_empty(values: NDArray[np.generic]) -> None:
    """Warn of rows with nothing observed; zeros of a sparse matrix are observed."""
    rows = EmptyRows()
    rows.add(0, observed_rows(values))
    rows.warn()


class EmptyRows:
    """Counts rows with nothing observed, part by part."""

    def __init__(self) -> None:
        self._count = 0
        self._first = -1

    def add(self, start: int, observed: NDArray[np.bool_]) -> None:
        """Count those among rows from a first one on, by whether anything of them is observed."""
        empty = ~observed
        if not self._count and empty.any():
            self._first = start + int(empty.argmax())
        self._count += int(empty.sum())

    def warn(self) -> None:
        """Warn of them, if there are any."""
        if self._count:
            warn_user(
                f"{self._count} row(s) with nothing observed (first: row {self._first}): they are "
                "placed at the prior, mean 0 and standard deviation 1.",
                DataWarning,
            )


@dataclass(frozen=True)
class KnownRows:
    """Placed training rows that all processes know: what reports look at.

    Attributes
    ----------
    values : ndarray or sparse matrix
    offsets : list over views of Tensor of shape (n,), or None
        Logarithms of these rows' size factors.
    index : Tensor of shape (C,), int64
        Which of them the candidates are.
    placement : Placement
    std : ndarray of shape (S, D), float64
        Of some of them at the least, not yet checked.
    """

    values: FloatArray
    offsets: list[Tensor | None]
    index: Tensor
    placement: Placement
    std: NDArray[np.float64]


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
