"""What a page keeps of every view: which columns, in which order, rounded to which limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bochner.data.arrays import FloatArray, IntArray
from bochner.data.columns import evenly_spread
from bochner.data.row_sources import RowSource
from bochner.page.encode import Packed, quantise
from bochner.page.planes import decode_means
from bochner.page.shapes import Shape, check_shapes, guess_shape
from bochner.plots.decodings import grey_levels

if TYPE_CHECKING:
    from bochner.estimators.base import LatentVariableEstimator


# A table view keeps so many columns, those whose decoded values vary most: more cannot be read at a
# glance.
MOST_COLUMNS = 40
_LARGEST_IMAGE = 128 * 128
_SAMPLE = 1000


@dataclass(frozen=True)
class KeptView:
    """What the page keeps of a view.

    Attributes
    ----------
    name, likelihood : str
    n_columns : int
        Of the view in the data.
    columns : ndarray of int, shape (C,)
        Kept columns of X: pixels in order, or columns by falling variation of their decoded values.
    names : list of str, shape (C,)
        Empty for images.
    shape : (int, int) or None
        Height and width of an image.
    labels : list of (list of str, or None), shape (C,)
        Of a mixed table: what the numbers of a column stand for; None of columns of numbers.
    one_unit : bool
        Whether an average over the columns means something: not over categories, nor over columns
        of which each has a scale of its own.
    """

    name: str
    likelihood: str
    n_columns: int
    columns: IntArray
    names: list[str]
    shape: Shape | None
    labels: list[list[str] | None]
    one_unit: bool

    def pack(self, values: FloatArray, limits: tuple[FloatArray, FloatArray]) -> Packed:
        """Round to grey levels for images, to 16 bits for numbers that are read."""
        return quantise(values, *limits, bits=8 if self.shape else 16)

    def limits(
        self,
        model: LatentVariableEstimator,
        data: FloatArray | None,
        decoded: list[FloatArray],
    ) -> tuple[FloatArray, FloatArray]:
        """Return the least and the largest value of every column.

        Pixels share theirs: those of the data, or without data the grey levels of what is decoded.
        What is decoded beyond is shown as black or white. Labels take all their range, and a
        column of one value a twentieth of it: decoded numbers would differ from it by their
        rounding only, and seem far off.
        """
        if self.shape:
            if data is None:
                ends = grey_levels(
                    model, self.columns, np.concatenate([part.ravel() for part in decoded])
                )
            else:
                ends = float(np.nanmin(data)), float(np.nanmax(data))
            return np.full(len(self.columns), ends[0]), np.full(len(self.columns), ends[1])
        parts = decoded if data is None else [data, *decoded]
        spread = [
            _of_labels(labels) if labels else _of_one(data, c)
            for c, labels in enumerate(self.labels)
        ]
        parts = [*parts, np.array(spread, dtype=np.float64).T]
        low = np.min([np.nanmin(part, axis=0, initial=np.inf) for part in parts], axis=0)
        high = np.max([np.nanmax(part, axis=0, initial=-np.inf) for part in parts], axis=0)
        return low.astype(np.float64), high.astype(np.float64)


def choose_views(
    model: LatentVariableEstimator,
    X: FloatArray | RowSource | None,
    Z: FloatArray,
    shapes: Mapping[str, object],
) -> list[KeptView]:
    """Choose what to keep of every view.

    Parameters
    ----------
    model : LatentVariableEstimator
        Fitted.
    X : ndarray or RowSource of shape (N, M), or None
    Z : ndarray of shape (N, D)
    shapes : mapping of view to (height, width)
        Views of images; square images without column names are found where the data leave no doubt.
    """
    widths = {view: int(positions.size) for view, positions in model.views_.items()}
    given = check_shapes(shapes, widths)
    rows = evenly_spread(len(Z), _SAMPLE)
    decoded = decode_means(model, Z[rows])
    names = getattr(model, "feature_names_in_", None)
    kept = []
    for view, positions in model.views_.items():
        sample = decoded[:, positions] if X is None else X[rows][:, positions]
        guessed = (
            None if names is not None or widths[view] > _LARGEST_IMAGE else guess_shape(sample)
        )
        shape = given.get(view, guessed)
        columns = (
            positions
            if shape
            else positions[
                np.argsort(-decoded[:, positions].var(axis=0), kind="stable")[:MOST_COLUMNS]
            ]
        )
        called = [] if shape else [str(j) if names is None else str(names[j]) for j in columns]
        likelihood = model.likelihood_[view]
        width = widths[view]
        labels = [model._coding.labels().get(int(j)) for j in columns]
        one_unit = not (any(labels) or model._units_differ(view))
        kept.append(
            KeptView(view, likelihood, width, columns, called, shape, labels, one_unit)
        )
    return kept


def _of_labels(labels: list[str]) -> tuple[float, float]:
    return 0.0, max(len(labels) - 1.0, 1.0)


def _of_one(data: FloatArray | None, c: int) -> tuple[float, float]:
    """Return a range around the value of a column that has one; none of others."""
    column = np.empty(0) if data is None else data[:, c]
    known = column[~np.isnan(column)]
    if not known.size or np.ptp(known) > 0:
        return np.nan, np.nan
    value = float(known[0])
    reach = 0.025 * abs(value) or 0.025
    return value - reach, value + reach
