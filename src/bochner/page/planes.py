"""The latent space seen through the model: rows and planes decoded to data."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bochner.data.arrays import FloatArray
from bochner.memory import chunks

if TYPE_CHECKING:
    from bochner.estimators.base import LatentVariableEstimator


# Entries decoded at a time: some 100 MB with all that is held beside them.
_ENTRIES = 2_000_000
# A plane has between 9 x 9 and 21 x 21 places, a single dimension as many: between them the page
# interpolates.
_COARSEST = 9
_FINEST = 21
# Means of all planes together: about 1 MB once compressed.
PLANE_ENTRIES = 1_500_000
_MARGIN = 0.08
ROW = -1


@dataclass(frozen=True)
class Plane:
    """A grid in two latent dimensions, the others at their mean over the rows.

    Attributes
    ----------
    dims : (int, int)
        The first is ``ROW`` where there is one latent dimension: it is drawn against the row
        number.
    low, high : (float, float)
        Ends of the grid in the two dimensions.
    sides : (int, int)
        Places along each: one along the rows.
    """

    dims: tuple[int, int]
    low: tuple[float, float]
    high: tuple[float, float]
    sides: tuple[int, int]

    def places(self, centre: FloatArray) -> FloatArray:
        """Return the grid, shape (product of sides, D), second dimension slowest."""
        n, m = self.sides
        Z = np.tile(centre, (n * m, 1))
        first, second = (np.linspace(self.low[i], self.high[i], self.sides[i]) for i in (0, 1))
        if self.dims[0] != ROW:
            Z[:, self.dims[0]] = np.tile(first, m)
        Z[:, self.dims[1]] = np.repeat(second, n)
        return Z


def choose_planes(
    Z: FloatArray, relevance: FloatArray, n_columns: int, most: int = PLANE_ENTRIES
) -> list[Plane]:
    """Choose pairs of dimensions and the resolution that a page can hold.

    Parameters
    ----------
    Z : ndarray of shape (N, D)
    relevance : ndarray of shape (V, D)
        Dimensions that matter more come first.
    n_columns : int
        Columns the page keeps of all views together.
    most : int, default=1,500,000
        Entries of all planes together.

    Returns
    -------
    list of Plane
        Every pair of as many leading dimensions as fit; the rows and the dimension where there is
        only one.
    """
    order = np.argsort(-relevance.mean(axis=0), kind="stable").tolist()
    places = min(most, PLANE_ENTRIES) // max(n_columns, 1)
    kept = len(order)
    while kept > 2 and kept * (kept - 1) // 2 * _COARSEST**2 > places:
        kept -= 1
    pairs = [tuple(sorted(pair)) for pair in combinations(order[:kept], 2)] or [(ROW, 0)]
    side = int(np.clip(np.sqrt(places / max(len(pairs), 1)), _COARSEST, _FINEST))
    low = Z.min(axis=0)
    high = Z.max(axis=0)
    margin = _MARGIN * np.where(high > low, high - low, 1.0)
    # the last place, where ROW is read, holds the row numbers
    low = np.append(low - margin, -0.5)
    high = np.append(high + margin, len(Z) - 0.5)
    return [
        Plane(
            (a, b),
            (float(low[a]), float(low[b])),
            (float(high[a]), float(high[b])),
            (1, side**2) if a == ROW else (side, side),
        )
        for a, b in pairs
    ]


def decode(
    model: LatentVariableEstimator,
    Z: FloatArray,
    columns: NDArray[np.intp],
    most: int = _ENTRIES,
) -> tuple[FloatArray, FloatArray]:
    """Decode latents, a few at a time.

    Parameters
    ----------
    model : LatentVariableEstimator
        Fitted.
    Z : ndarray of shape (n, D)
    columns : ndarray of int, shape (C,)
        Columns of the data to keep.
    most : int
        Entries decoded at a time.

    Returns
    -------
    mean, std : ndarray of shape (n, C)
        As ``inverse_transform`` gives them, in double precision: data may be larger than single
        precision holds.
    """
    mean, std = np.empty((2, len(Z), len(columns)))
    for rows in chunks(len(Z), max(most // int(model.n_features_in_), 1)):
        latents = Z[rows].astype(np.float64)
        row_mean, row_std = model.inverse_transform(latents, return_std=True)
        mean[rows] = row_mean[:, columns]
        std[rows] = row_std[:, columns]
    return mean, std


def decode_means(model: LatentVariableEstimator, Z: FloatArray) -> FloatArray:
    """Decode latents to the means of all columns, (n, M), a few at a time, as `decode` does."""
    mean = np.empty((len(Z), model.n_features_in_))
    for rows in chunks(len(Z), max(_ENTRIES // mean.shape[1], 1)):
        mean[rows] = model.inverse_transform(Z[rows].astype(np.float64))
    return mean
