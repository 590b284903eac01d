"""Everything a page shows, gathered from a model and its data and made to fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bochner.data.arrays import FloatArray, IntArray
from bochner.data.row_sources import RowSource
from bochner.memory import chunks
from bochner.page.encode import Packed, finite, pack, pack_numbers, quantise, script_json
from bochner.page.labels import Labels
from bochner.page.layouts import Layout
from bochner.page.planes import Plane, choose_planes, decode
from bochner.page.views import KeptView

if TYPE_CHECKING:
    from bochner.estimators.base import LatentVariableEstimator


# Characters of data in a page, and how many of them the views may take: a page of 10,000 rows stays
# below 4 MB, one of 100,000 rows below 8 MB.
BUDGET = 7_200_000
VIEWS = 3_200_000
# More latents than this are rounded to 16 bits: a screen shows less.
_EXACT = 500_000
# Characters of a plane's entry, a mean of 16 bits and a standard deviation of 8, once compressed.
_PLANE_ENTRY = 2
# Rows are decoded one by one for the page only where this many entries hold them; the plane serves
# otherwise.
_DECODED_ENTRIES = 1_200_000


@dataclass(frozen=True)
class Rows:
    """The rows that a page shows.

    Attributes
    ----------
    Z, std : ndarray of shape (N, D)
        Latents and their standard deviations.
    X : ndarray or RowSource of shape (N, M), or None
        Their data.
    names : list of str or None
    labels : list of Labels
    layouts : list of Layout
    """

    Z: FloatArray
    std: FloatArray
    X: FloatArray | RowSource | None
    names: list[str] | None
    labels: list[Labels]
    layouts: list[Layout]

    def spread(self, n_columns: int) -> int:
        """Return k where the data of every k-th row are looked at: of those in files that a page
        has room for.
        """
        if not isinstance(self.X, RowSource):
            return 1
        return max(1, -(-len(self.Z) * n_columns // VIEWS))

    def data(self, columns: IntArray, every: int) -> FloatArray | None:
        """Return some columns of every k-th row."""
        if not isinstance(self.X, RowSource):
            return None if self.X is None else self.X[::every, columns]
        parts = [
            self.X.read(rows.start, rows.stop)[-rows.start % every :: every, columns]
            for rows in chunks(self.X.n_rows, self.X.block_rows)
        ]
        return np.concatenate(parts).astype(np.float64)

    def to_json(self) -> dict[str, object]:
        """Return all but the data."""
        rounded = 2 * self.Z.size > _EXACT
        return {
            "rows": len(self.Z),
            "dims": self.Z.shape[1],
            "names": self.names,
            "z": _latents(self.Z, rounded),
            "std": _latents(self.std, rounded),
            "labels": [_labels(one) for one in self.labels],
            "layouts": [
                {"name": one.name, "values": pack(one.places).to_json()}
                for one in self.layouts
            ],
        }


def gather(
    model: LatentVariableEstimator,
    rows: Rows,
    views: list[KeptView],
    budget: int = BUDGET,
) -> dict[str, object]:
    """Return the data of a page as JSON for its script.

    Parameters
    ----------
    model : LatentVariableEstimator
        Fitted.
    rows : Rows
    views : list of KeptView
    budget : int, default=7,200,000
        Characters.

    Returns
    -------
    dict
        Where everything together is too large, first the decoded rows are left out, then the data
        of some rows.
    """
    columns = np.concatenate([view.columns for view in views])
    latents = rows.to_json()
    room = min(VIEWS, budget - len(script_json(latents)))
    most = max(room, 0) // (2 * _PLANE_ENTRY)
    planes = choose_planes(rows.Z, model.relevance_, len(columns), most)
    centre = rows.Z.mean(axis=0)
    grids = [decode(model, plane.places(centre), columns) for plane in planes]
    decoded = None
    if len(rows.Z) * len(columns) <= _DECODED_ENTRIES:
        decoded = decode(model, rows.Z, columns)
    every = rows.spread(len(columns))
    parts = _views(model, rows, views, grids, decoded, every)
    return {**latents, **_fitted_in(parts, planes, room, every)}


@dataclass(frozen=True)
class _Parts:
    """A view's arrays: the data of rows, the rows decoded, and every plane."""

    view: KeptView
    limits: tuple[FloatArray, FloatArray]
    data: FloatArray | None
    decoded: tuple[Packed, Packed] | None
    planes: list[tuple[Packed, Packed]]


def _views(
    model: LatentVariableEstimator,
    rows: Rows,
    views: list[KeptView],
    grids: list[tuple[FloatArray, FloatArray]],
    decoded: Any,
    every: int,
) -> list[_Parts]:
    parts = []
    start = 0
    for view in views:
        place = slice(start, start + len(view.columns))
        start = place.stop
        data = rows.data(view.columns, every)
        made = [
            (mean[:, place], std[:, place])
            for mean, std in [*grids, *([] if decoded is None else [decoded])]
        ]
        limits = view.limits(model, data, [mean for mean, _ in made])
        top = _largest([std for _, std in made], view)
        packed = [
            (view.pack(mean, limits), quantise(std, 0 * top, top, 8)) for mean, std in made
        ]
        parts.append(
            _Parts(
                view,
                limits,
                data,
                packed[len(grids)] if decoded is not None else None,
                packed[: len(grids)],
            )
        )
    return parts


def _largest(stds: list[FloatArray], view: KeptView) -> FloatArray:
    """Return the largest standard deviation of every column, (C,); of pixels, which share a scale,
    that of all.
    """
    top = np.max([np.zeros(len(view.columns)), *(std.max(axis=0) for std in stds)], axis=0)
    return np.full_like(top, top.max()) if view.shape else np.asarray(top)


def _fitted_in(
    parts: list[_Parts], planes: list[Plane], room: int, held: int
) -> dict[str, object]:
    used = sum(mean.size + std.size for part in parts for mean, std in part.planes)
    every, data = _data(parts, room - used)
    used += sum(packed.size for packed in data if packed is not None)
    sizes = [sum(packed.size for packed in part.decoded or ()) for part in parts]
    keep = used + sum(sizes) <= room
    return {
        "every": every * held,
        "planes": [
            {
                "dims": list(plane.dims),
                "low": list(plane.low),
                "high": list(plane.high),
                "sides": list(plane.sides),
            }
            for plane in planes
        ],
        "views": [
            {
                "name": part.view.name,
                "likelihood": part.view.likelihood,
                "width": part.view.n_columns,
                "columns": part.view.names,
                "labels": part.view.labels if any(part.view.labels) else None,
                "one_unit": part.view.one_unit,
                "shape": part.view.shape,
                "low": finite(part.limits[0][:1] if part.view.shape else part.limits[0]),
                "high": finite(part.limits[1][:1] if part.view.shape else part.limits[1]),
                "data": packed and packed.to_json(),
                "decoded": [array.to_json() for array in part.decoded]
                if keep and part.decoded
                else None,
                "planes": [[mean.to_json(), std.to_json()] for mean, std in part.planes],
            }
            for part, packed in zip(parts, data, strict=True)
        ],
    }


def _data(parts: list[_Parts], room: int) -> tuple[int, list[Packed | None]]:
    """Pack the data of every row that is held, or of every k-th of them where they need more
    room.
    """
    every = 1
    while True:
        packed = [
            None if p.data is None else p.view.pack(p.data[::every], p.limits) for p in parts
        ]
        size = sum(array.size for array in packed if array is not None)
        if size <= room or every > 100:
            return every, packed
        every = max(int(np.ceil(every * size / max(room, 1))), every + 1)


def _labels(labels: Labels) -> dict[str, object]:
    packed = (
        pack_numbers(labels.values.astype(np.float64))
        if labels.classes is None
        else pack(labels.values.astype(np.int32))
    )
    return {
        "name": labels.name,
        "classes": labels.classes,
        "dates": labels.dates,
        "values": packed.to_json(),
    }


def _latents(values: FloatArray, rounded: bool) -> dict[str, object]:
    if not rounded:
        return pack(values).to_json()
    low = values.min(axis=0)
    high = values.max(axis=0)
    return quantise(values, low, high, bits=16).to_json()
