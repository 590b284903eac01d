"""Rows of the caller, checked, as the tensors that a fitted model takes, and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_array, check_is_fitted, validate_data
from torch import Tensor

from bochner.data.columns import columns_of
from bochner.data.outliers import check_reach
from bochner.data.sparse import ROWS, canonical, dense_rows
from bochner.data.validation import as_rows
from bochner.data.views import Scaling, check_finite, check_kind
from bochner.errors import InputError, message
from bochner.estimators import likelihoods
from bochner.estimators.likelihoods import SizeFactors
from bochner.estimators.tables import Coding, coding_of
from bochner.fitting.plan import Fit
from bochner.kernels.base import SpectralKernel
from bochner.latent_inference.placement import offsets_of
from bochner.memory import chunks

FloatArray = NDArray[np.floating[Any]]

_ROWS = 8192


class RowsMixin:
    """Checks and units of rows."""

    embedding_: FloatArray
    _fit: Fit
    _scaling: Scaling
    _columns: dict[str, NDArray[np.intp]]
    _size_factors: SizeFactors
    _coding: Coding
    likelihood: Any
    views: Any

    def _unscale(self, stacked: Tensor) -> FloatArray:
        return self._scaling.undo(self._in_columns_of_X(stacked))

    def _unscale_std(self, variance: Tensor) -> FloatArray:
        return self._scaling.undo_std(self._in_columns_of_X(variance.sqrt()))

    def _in_columns_of_X(self, stacked: Tensor) -> FloatArray:
        """Views side by side, (n, M), become columns in the order of X: views need not be listed in
        that order.
        """
        back = np.argsort(np.concatenate(list(self._columns.values())))
        values: FloatArray = stacked.numpy()[:, back]
        return values

    def _validate(self, X: Any, *, reset: bool) -> FloatArray:
        if not reset:
            check_is_fitted(self)
        X = as_rows(_from_torch(X))
        if reset:
            self._coding = coding_of(X, self.likelihood, self.views)
        X = self._coding.encode(X)
        check_kind(X)
        values: FloatArray = validate_data(
            self,
            X,
            reset=reset,
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            ensure_all_finite=False,
            ensure_min_samples=2 if reset else 1,
        )
        if sp.issparse(values):
            values = canonical(values)
        if not reset:
            names = getattr(self, "feature_names_in_", None)
            check_finite(values, self._columns, names)
            own = {view.name: view.likelihood for view in self._fit.posterior}
            likelihoods.check(values, own, self._columns, names)
            real = {
                view.name: self._columns[view.name]
                for view in self._fit.posterior
                if view.likelihood.scales_with_data
            }
            check_reach(values, self._scaling, real, names)
        return values

    def _validate_latents(self, Z: ArrayLike) -> tuple[Tensor, Any]:
        check_is_fitted(self)
        Z = as_rows(_from_torch(Z))
        check_kind(Z)
        values = check_array(Z, dtype=[np.float64, np.float32], input_name="Z")
        if values.shape[1] != self.embedding_.shape[1]:
            got, want = (
                f"{values.shape[1]} columns",
                f"Z with {self.embedding_.shape[1]} columns (latent dimensions)",
            )
            raise InputError(message(want, got, "pass latents, as transform returns them"))
        return torch.tensor(values, dtype=torch.float64), values.dtype

    @property
    def _scales(self) -> dict[str, float]:
        """Original units per scaled unit, by view; 1 where every column has units of its own."""
        scales = {view: self._scaling.scale[own] for view, own in self._columns.items()}
        return {view: float(own[0]) if np.ptp(own) == 0.0 else 1.0 for view, own in scales.items()}

    def _noise_in_units(self, view: str, variance: float | Tensor) -> Any:
        """Return a noise variance in original units squared: per column where units are."""
        own = self._scaling.scale[self._columns[view]]
        if np.ptp(own) == 0.0:
            return likelihoods.plain_noise(variance, float(own[0]))
        return np.asarray(likelihoods.plain_noise(variance)) * own**2

    def _split(self, values: FloatArray) -> list[Tensor]:
        scaled = self._scaling.apply(values.astype(np.float64, copy=False))
        return [
            torch.from_numpy(np.ascontiguousarray(columns_of(scaled, own)))
            for own in self._columns.values()
        ]

    def _some(
        self, values: FloatArray, offsets: list[Tensor | None], rows: Tensor | slice
    ) -> tuple[list[Tensor], list[Tensor | None]]:
        """Return some rows by view, dense and scaled, with their offsets."""
        part = dense_rows(values, rows if isinstance(rows, slice) else rows.numpy())
        return self._split(part), offsets_of(offsets, rows)

    def _dense_parts(
        self, values: FloatArray, offsets: list[Tensor | None]
    ) -> Iterator[tuple[list[Tensor], list[Tensor | None]]]:
        """Yield rows by view, dense and scaled, with their offsets: part by part, copies in float64
        as well.
        """
        n = values.shape[0]
        for rows in chunks(n, ROWS if sp.issparse(values) else _ROWS):
            yield self._some(values, offsets, rows)

    def _offsets(self, values: FloatArray, size_factors: Any) -> list[Tensor | None]:
        """Return the logarithms of the rows' size factors, by view."""
        own = {view.name: view.likelihood for view in self._fit.posterior}
        return list(self._size_factors.offsets(values, size_factors, own, self._columns).values())

    def _log_jacobian(self, values: FloatArray) -> NDArray[np.float64]:
        """What turns log densities of rows as scaled into those in original units, (n,)."""
        if sp.issparse(values):
            return np.full(values.shape[0], -np.log(self._scaling.scale).sum())
        return self._scaling.log_jacobian(~np.isnan(values))

    def _total_log_jacobian(self, values: FloatArray) -> float:
        """The sum of `_log_jacobian` over rows, without a mask in float64."""
        if sp.issparse(values):
            return float(self._log_jacobian(values).sum())
        return float(self._scaling.log_jacobian(np.count_nonzero(~np.isnan(values), axis=0)))


def _from_torch(X: Any) -> Any:
    """Return a tensor as an array, without its gradient and on the processor; whatever else as it
    is.

    Precisions that numpy does not know (bfloat16) become single.
    """
    if not isinstance(X, torch.Tensor):
        return X
    X = X.detach().cpu()
    return (X.float() if X.dtype == torch.bfloat16 else X).numpy()


def natural(kernel: SpectralKernel, scale: float) -> dict[str, NDArray[np.float64]]:
    """Parameters of a kernel by name; variances and weights in original units squared."""
    values: Mapping[str, Tensor] = kernel.values()
    square = scale**2
    return {
        name: value.numpy() * (square if name.split(".")[-1] in ("weights", "variance") else 1.0)
        for name, value in values.items()
    }
