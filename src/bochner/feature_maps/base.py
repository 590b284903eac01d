"""What every explicit feature map of a kernel shares: rows in, columns out, and how far the kernel
is from them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags, check_random_state, gen_batches
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor
from torch.compiler import is_compiling

from bochner import random
from bochner.data.accepted import COUNT, FLAG, as_rows, check, check_kind
from bochner.data.row_sources import floating, is_stored, read_by_parts
from bochner.errors import DataWarning, InputError, message, warn_user
from bochner.feature_maps.sections import counted_from, cut, dense, sections, values_of
from bochner.kernels.domains import IndefiniteKernel, magnitude_of
from bochner.linalg import check_dense, device_named, own_precision
from bochner.memory import Memory
from bochner.processes.isolation import transactional

# Entries of the largest array that the exact kernel may build at once.
_EXACT_ENTRIES = 2**24
# Rows of a chunk, and numbers of one of a wide table.
_CHUNK = 4096
_NUMBERS = 2**20


class FeatureMap(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator, ABC):
    """Rows to columns whose (signed) inner products approximate a kernel; subclasses fit and
    compute them.
    """

    n_components: int
    device: str
    random_state: Any
    n_features_in_: int
    _parameter_constraints: ClassVar[dict[str, list[object]]]

    @abstractmethod
    def _features(self, rows: Tensor) -> Tensor:
        """Return (n, K) features of prepared rows, on their device."""

    @abstractmethod
    def _exact(self, rows: Tensor, others: Tensor) -> Tensor:
        """Return the exact kernel of prepared rows, (n, d), (m, d) -> (n, m)."""

    def _prepared(self, rows: Tensor) -> Tensor:
        """Return checked rows as the kernel wants them."""
        return rows

    def _column_signs(self) -> Tensor | None:
        """Return the sign of every column's contribution to the kernel, (K,); None where all are
        +1.
        """
        return None

    def _n_zero(self, rows: Tensor) -> int:  # noqa: ARG002 - a map without such rows
        """Return how many prepared rows have no image but zero."""
        return 0

    def transform(self, X: object) -> Any:
        """Return the features of the rows of X.

        Parameters
        ----------
        X : array-like, sparse matrix, Tensor or row source of shape (n_samples, n_features)
            Sparse rows become dense chunk by chunk.

        Returns
        -------
        ndarray, Tensor or Dask array of shape (n_samples, n_components)
            In X's precision; of other types than float32 and float64, in float64. A tensor gives a
            tensor on the same device, differentiable in X, in full precision under autocast
            too; a Dask array gives one, chunk by chunk, computed when it is asked for.

        Raises
        ------
        NotFittedError
            ``fit`` was not called.
        ValueError
            X is not finite or has another number of columns, or lies so many lengthscales from zero
            that the phases of waves are lost.

        Warns
        -----
        DataWarning
            Rows of norm zero, for kernels on the sphere: they become zero features.
        """
        if is_compiling():
            # a compiler cannot follow checks of values: it leaves the map as it is
            return torch.compiler.disable(self._whole)(X)  # type: ignore[no-untyped-call]
        return self._whole(X)

    def _whole(self, X: Any) -> Any:
        check_is_fitted(self)
        if is_stored(X) and hasattr(X, "map_blocks"):
            return self._lazily(X)
        if sp.issparse(X) or read_by_parts(X) is not None:
            return self._joined(X)
        features, n_zero = self._transform(X)
        self._warn(n_zero)
        return features

    def iter_transform(self, X: object, chunk: int = _CHUNK) -> Iterator[Any]:
        """Yield the features of X in chunks of rows, so that memory does not grow with their
        number.

        Parameters
        ----------
        X : array-like, sparse matrix, Tensor, row source or iterator
            Of shape (n_samples, n_features); memory maps and arrays of zarr, HDF5 and Dask are read
            chunk by chunk. Of an iterator every item is a chunk.
        chunk : int, default=4096
            Rows per chunk.

        Returns
        -------
        iterator of (at most chunk, n_components)

        Raises
        ------
        NotFittedError, ValueError
            As ``transform``, the second at the chunk it concerns; ``chunk`` is not a positive
            integer.
        """
        check_is_fitted(self)
        check({"chunk": [COUNT]}, {"chunk": chunk}, "iter_transform")
        return self._features_of(X if isinstance(X, Iterator) else cut(X, int(chunk)))

    def _features_of(self, parts: Iterator[object]) -> Iterator[Any]:
        total = 0
        first = 0
        for rows in parts:
            with counted_from(first):
                features, n_zero = self._transform(rows)
            total += n_zero
            first += len(features)
            yield features
        self._warn(total)

    def _joined(self, X: Any) -> Any:
        """Return the features of rows that are read chunk by chunk."""
        chunk = max(1, min(_CHUNK, _NUMBERS // self.n_features_in_))
        parts = self.iter_transform(X, chunk)
        first = next(parts)
        # no chunk is kept: between those that are, memory would not be given back
        out = np.empty((X.shape[0], self._n_features_out), first.dtype)
        out[: len(first)] = first
        stop = len(first)
        for part in parts:
            out[stop : stop + len(part)] = part
            stop += len(part)
        return out

    def _lazily(self, X: Any) -> object:
        """Return the features of a Dask array as one: nothing is computed here."""
        dtype = floating(X.dtype)
        self._validate(np.zeros((1, *X.shape[1:]), dtype), reset=False)
        whole = X.rechunk({1: -1})
        return whole.map_blocks(
            self.transform,
            chunks=(whole.chunks[0], (self._n_features_out,)),
            dtype=dtype,
            meta=np.empty((0, 0), dtype),
        )

    @torch.no_grad()
    @own_precision()
    def approximation_error(self, X: object, relative: bool = False) -> float:
        """Return the root mean squared error of the kernel matrix over all pairs of different rows.

        Parameters
        ----------
        X : array-like, sparse matrix or Tensor of shape (n_samples, n_features)
            At least two rows.
        relative : bool, default=False
            Divide by the root mean square of the exact kernel over the same pairs.

        Returns
        -------
        float

        Raises
        ------
        NotFittedError, ValueError
            As ``transform``; X has fewer than two rows, or, with ``relative``, the kernel is zero
            between all of them.
        """
        check_is_fitted(self)
        check({"relative": [FLAG]}, {"relative": relative}, "approximation_error")
        rows = self._prepared(self._validate(X, reset=False, min_samples=2).double())
        features = self._features(rows)
        # features have about the kernel's values as inner products, or far smaller ones
        largest = max(
            float(features.square().sum(1).max()),
            float(self._exact(rows[:1], rows).abs().max()),
        )
        magnitude = magnitude_of(largest)
        features = features / math.sqrt(magnitude)
        signs = self._column_signs()
        left = features if signs is None else features * signs.to(features)
        n_rows = rows.shape[0]
        error = exact_square = rows.new_zeros(())
        for block in gen_batches(n_rows, max(1, _EXACT_ENTRIES // rows.numel())):
            exact = self._exact(rows[block], rows) / magnitude
            pairs = torch.ones_like(exact, dtype=torch.bool)
            pairs[:, block].fill_diagonal_(False)
            error = error + (left[block] @ features.T - exact)[pairs].square().sum()
            exact_square = exact_square + exact[pairs].square().sum()
        if relative and not float(exact_square) > 0.0:
            do = "leave out relative=True, or give rows of which some are alike"
            got = "one that is zero between all of them"
            raise InputError(message("a kernel that is not zero between all rows", got, do))
        if relative:
            return float((error / exact_square).sqrt())
        return magnitude * float((error / (n_rows * (n_rows - 1))).sqrt())

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        tags.input_tags.sparse = True
        return tags

    @own_precision()
    def _transform(self, X: object) -> tuple[Any, int]:
        rows = self._prepared(self._validate(X, reset=False))
        features = self._features(rows)
        return (features if isinstance(X, Tensor) else features.cpu().numpy()), self._n_zero(
            rows
        )

    def _warn(self, n_zero: int) -> None:
        if n_zero:
            text = (
                f"{n_zero} rows have norm zero: they have no place on the sphere, their "
                "features are zero."
            )
            warn_user(text, DataWarning)

    def _checked_rows(
        self, X: object, *, reset: bool, min_samples: int = 1
    ) -> Iterator[Tensor]:
        """Check X section by section, and yield its rows."""
        first = 0
        for section in sections(X):
            least = 1 if first else min_samples
            rows = self._validate(section(), reset=reset and not first, min_samples=least)
            with counted_from(first):
                self._check_domain(rows)
            first += len(rows)
            yield rows

    def _check_domain(self, rows: Tensor) -> None:
        """Refuse checked rows that the kernel is not meant for, which are read one after the
        other.
        """

    def _check(self, X: object, *, reset: bool) -> None:
        """Check X section by section: no copy of all of it is made."""
        for _ in self._checked_rows(X, reset=reset):
            pass

    def _source(self, purpose: str) -> torch.Generator:
        """Return a generator that depends on ``random_state`` and the purpose alone."""
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        return random.generator(seed, purpose)

    def _validate_params(self) -> None:
        """Refuse parameters of other types; True and False are no numbers."""
        check(self._parameter_constraints, self.get_params(deep=False), type(self).__name__)

    def _check_size(self) -> None:
        """Refuse what no memory holds, before it is asked for."""
        for name, numbers in self._largest_arrays().items():
            what = f"{name}={getattr(self, name):,} and {self.n_features_in_:,} columns"
            Memory().check(8 * numbers, what, f"lower {name}")

    def _largest_arrays(self) -> dict[str, int]:
        """Return by parameters how many numbers they make a fit of the columns hold."""
        return {"n_components": self.n_components * (self.n_features_in_ + 1)}

    def _validate(self, X: object, *, reset: bool, min_samples: int = 1) -> Tensor:
        """Check X with scikit-learn's rules and messages; return its rows as a float32 or float64
        tensor.
        """
        rows = self._validated(X, reset=reset, min_samples=min_samples)
        if reset:
            self._check_size()
        return rows

    # what has no finite number of that precision is refused by name
    @np.errstate(over="ignore", invalid="ignore")
    def _validated(self, X: object, *, reset: bool, min_samples: int) -> Tensor:
        options = {
            "dtype": [np.float64, np.float32],
            "ensure_min_samples": min_samples,
            "reset": reset,
        }
        if not isinstance(X, Tensor):
            X = as_rows(X)
            check_kind(X)
            X = dense(X)
            array = np.ascontiguousarray(validate_data(self, X, **options))
            # torch warns about memory it may not write; nothing here writes, but the warning would
            # reach the user
            return torch.from_numpy(array if array.flags.writeable else array.copy()).to(
                device_named(self.device)
            )
        check_dense(X)
        rows = X if X.dtype in (torch.float32, torch.float64) or X.is_complex() else X.double()
        # Shape, names and number of columns show in the first rows: a tensor on a device is not
        # copied for them.
        validate_data(self, values_of(rows[: max(1, min_samples)]), **options)
        wrong = (~torch.isfinite(rows)).nonzero()
        if len(wrong):
            row, column = wrong[0].tolist()
            got = f"{float(rows[row, column])} in row {row}, column {column}"
            do = "drop these rows or complete them"
            raise InputError(message("finite numbers in X", got, do))
        return rows


class IndefiniteMap(FeatureMap):
    """Base of the maps of kernels on a domain: rows are brought there, and those that have no place
    on it, of norm zero on the sphere, become zero features.
    """

    kernel_: IndefiniteKernel

    def _prepared(self, rows: Tensor) -> Tensor:
        return self.kernel_.normalise(rows)

    def _exact(self, rows: Tensor, others: Tensor) -> Tensor:
        return self.kernel_(rows, others) * self._have_places(rows, others)

    def _n_zero(self, rows: Tensor) -> int:
        return len(rows) - int(self._has_place(rows).sum())

    def _has_place(self, rows: Tensor) -> Tensor:
        """Return which rows have a place on the domain, (n,), bool."""
        if self.kernel_.domain != "sphere":
            return torch.ones(len(rows), dtype=torch.bool, device=rows.device)
        return (rows != 0).any(1)

    def _have_places(self, rows: Tensor, others: Tensor) -> Tensor:
        """Return of which pairs both rows have one, (n, m), bool."""
        return self._has_place(rows)[:, None] * self._has_place(others)[None, :]

    def _with_zeros(self, features: Tensor, rows: Tensor) -> Tensor:
        """Return the features of rows, zero where a row has no place."""
        placed = self._has_place(rows)
        return features if bool(placed.all()) else features * placed[:, None]


class DrawnMap(FeatureMap):
    """A feature map that is drawn for a number of columns: the rows of its fit do not matter."""

    @abstractmethod
    def fit(self, X: object, y: object = None) -> Self:
        """Draw the features for as many dimensions as X has columns.

        Parameters
        ----------
        X : array-like, sparse matrix or Tensor of shape (n_samples, n_features)
            Only its shape matters.
        y : ignored

        Returns
        -------
        self
        """

    @transactional
    def partial_fit(self, X: object, y: object = None) -> Self:
        """Fit to the first rows of a stream, and check the others: the features stay.

        Parameters
        ----------
        X : array-like, sparse matrix or Tensor of shape (n_samples, n_features)
            Only its shape matters.
        y : ignored

        Returns
        -------
        self

        Raises
        ------
        InputError, ValueError
            As ``fit``; X has another number of columns than the rows before.
        """
        if not hasattr(self, "_n_features_out"):
            return self.fit(X, y)
        self._check(X, reset=False)
        return self
