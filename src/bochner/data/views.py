"""Views: one stacked matrix, named column groups, and the mask of what is observed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from bochner.data.arrays import BoolArray, FloatArray, IntArray
from bochner.data.columns import (
    DEFAULT_VIEW,
    ColumnNames,
    columns_of,
    resolve_views,
)
from bochner.data.scaling import Scaling
from bochner.data.validation import check_finite, check_fit, check_kind
from bochner.processes import ALONE, Processes

__all__ = [
    "DEFAULT_VIEW",
    "Scaling",
    "Views",
    "blocks",
    "check_finite",
    "check_fit",
    "check_kind",
    "resolve_views",
]

Block = tuple[IntArray, IntArray]


@dataclass(frozen=True)
class Views:
    """One stacked matrix with its column groups and its scaling; built by `Views.fit`.

    Attributes
    ----------
    X : ndarray of float, RowSource, or scipy sparse array compressed by rows, shape (N, M)
        In the units of the caller; NaN = missing, zeros that a sparse array does not store are
        observed.
    columns : dict of str to ndarray of int, shape (M_v,)
        Column numbers of every view, in the order of the views.
    scaling : Scaling
        Measured on the observed entries of X.
    """

    X: Any
    columns: dict[str, IntArray]
    scaling: Scaling

    @classmethod
    def fit(
        cls,
        X: Any,
        views: object = None,
        column_names: ColumnNames = None,
        processes: Processes = ALONE,
    ) -> Views:
        """Resolve the views, check the data and measure the scaling, over all processes; errors are
        those of the functions called.
        """
        columns = resolve_views(views, X.shape[1], column_names)
        processes.together(lambda: check_fit(X, columns, column_names))
        return cls(X, columns, Scaling.fit(X, columns, processes))

    def unscaled(self, views: Sequence[str]) -> Views:
        """Return the same data with some views left in the caller's units: centre 0, scale 1."""
        if not views:
            return self
        plain = np.concatenate([self.columns[view] for view in views])
        centre, scale = self.scaling.centre.copy(), self.scaling.scale.copy()
        centre[plain], scale[plain] = 0.0, 1.0
        return replace(self, scaling=Scaling(centre, scale))

    def scaled_by_column(self, view: str) -> Views:
        """Return the same data with one scale per column of a view: its standard deviation."""
        own = self.columns[view]
        each = {str(j): np.array([j], dtype=np.intp) for j in range(own.size)}
        scale = self.scaling.scale.copy()
        scale[own] = Scaling.fit(columns_of(self.X, own), each).scale
        return replace(self, scaling=Scaling(self.scaling.centre, scale))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the views, in order."""
        return tuple(self.columns)

    @property
    def observed(self) -> BoolArray:
        """Mask of the observed entries, shape (N, M)."""
        return np.asarray(~np.isnan(self.X))

    def scaled(self, view: str) -> FloatArray:
        """Return the columns of one view in scaled units, shape (N, M_v); NaN = missing."""
        return self.scaling_of(view).apply(columns_of(self.X, self.columns[view]))

    def scaling_of(self, view: str) -> Scaling:
        """Return the scaling of the columns of one view."""
        own = self.columns[view]
        return Scaling(self.scaling.centre[own], self.scaling.scale[own])

    @property
    def sparse(self) -> bool:
        """Whether X is sparse."""
        return bool(sp.issparse(self.X))

    def scaled_sparse(self, view: str) -> tuple[Any, FloatArray]:
        """Return the columns of one view of a sparse X over its scale, (N, M_v), and the centre to
        subtract, (M_v,).
        """
        own = self.columns[view]
        scale = float(self.scaling.scale[own[0]])
        part = sp.csr_array(self.X[:, own])
        return (part if scale == 1.0 else part / scale), self.scaling.centre[own] / scale


def blocks(observed: BoolArray) -> list[Block]:
    """Group the columns of one view by identical missingness pattern.

    A complete view is one block, a view whose rows are absent as a whole is one block of the other
    rows, scattered holes make one block per distinct pattern. Within a block every entry is
    observed, so a bound is the sum over blocks of its complete form.

    Parameters
    ----------
    observed : ndarray of bool, shape (N, M_v)

    Returns
    -------
    list of (rows, columns)
        Two arrays of int each, ascending; columns count within the view. A column without any
        observed entry is in no block. Order of first appearance.
    """
    if observed.size and observed.all():
        return [(np.arange(observed.shape[0]), np.arange(observed.shape[1]))]
    # One bit per entry, one contiguous row of bytes per column: hashing is then a single pass over
    # N·M_v/8 bytes.
    packed = np.packbits(np.ascontiguousarray(observed.T), axis=1)
    groups: dict[bytes, list[int]] = {}
    for column, pattern in enumerate(packed):
        groups.setdefault(pattern.tobytes(), []).append(column)
    found = [
        (np.flatnonzero(observed[:, own[0]]), np.array(own, dtype=np.intp))
        for own in groups.values()
    ]
    return [(rows, own) for rows, own in found if rows.size]


def fingerprint(arrays: Iterable[Any], settings: dict[str, Any]) -> str:
    """Return a digest of the data and the settings that a run must share to continue another."""
    digest = hashlib.blake2b(
        json.dumps(settings, sort_keys=True, default=str).encode(), digest_size=16
    )
    for array in arrays:
        values = array.detach().cpu().numpy() if hasattr(array, "detach") else array
        digest.update(str(values.shape).encode())
        digest.update(np.ascontiguousarray(values).data)
    return digest.hexdigest()
