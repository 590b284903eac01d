"""Everything a page shows, gathered from a model and its data and made to fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bochner.page.encode import Packed, finite, pack, quantise
from bochner.page.labels import Labels
from bochner.page.planes import Plane, choose_planes, decode
from bochner.page.views import KeptView

FloatArray = NDArray[np.floating[Any]]

# Characters of compressed data. With the plotting library a page stays below 5 MB.
BUDGET = 3_200_000
# Rows are decoded one by one for the page only where this many entries hold them; the plane serves
# otherwise.
_DECODED_ENTRIES = 1_200_000


@dataclass(frozen=True)
class Rows:
    """The rows that a page shows.

    Attributes
    ----------
    Z, std : ndarray of shape (N, D)
        Latents and their deviations.
    X : ndarray of shape (N, M) or None
        Their data.
    names : list of str or None
    labels : list of Labels
    """

    Z: FloatArray
    std: FloatArray
    X: FloatArray | None
    names: list[str] | None
    labels: list[Labels]


def gather(model: Any, rows: Rows, views: list[KeptView]) -> dict[str, Any]:
    """Return the data of a page as JSON for page.js.

    Parameters
    ----------
    model : LatentVariableEstimator
        Fitted.
    rows : Rows
    views : list of KeptView

    Returns
    -------
    dict
        Where everything together is too large, first the decoded rows are left out, then the data
        of some rows.
    """
    columns = np.concatenate([view.columns for view in views])
    planes = choose_planes(rows.Z, model.relevance_, len(columns))
    centre = rows.Z.mean(axis=0)
    seen = [decode(model, plane.places(centre), columns) for plane in planes]
    decoded = None
    if len(rows.Z) * len(columns) <= _DECODED_ENTRIES:
        decoded = decode(model, rows.Z, columns)
    return {
        "rows": len(rows.Z),
        "dims": rows.Z.shape[1],
        "names": rows.names,
        "z": pack(rows.Z).to_json(),
        "std": pack(rows.std).to_json(),
        "labels": [_labels(own) for own in rows.labels],
        **_fitted_in(_views(model, rows, views, seen, decoded), planes),
    }


@dataclass(frozen=True)
class _Parts:
    """A view's arrays: the rows' data, the rows decoded, and every plane."""

    view: KeptView
    limits: tuple[FloatArray, FloatArray]
    data: FloatArray | None
    decoded: tuple[Packed, Packed] | None
    planes: list[tuple[Packed, Packed]]


def _views(
    model: Any,
    rows: Rows,
    views: list[KeptView],
    seen: list[tuple[FloatArray, FloatArray]],
    decoded: Any,
) -> list[_Parts]:
    parts, start = [], 0
    for view in views:
        own = slice(start, start + len(view.columns))
        start = own.stop
        data = None if rows.X is None else rows.X[:, view.columns]
        made = [
            (mean[:, own], std[:, own])
            for mean, std in [*seen, *([] if decoded is None else [decoded])]
        ]
        limits = view.limits(model, data, [mean for mean, _ in made])
        top = np.full(len(view.columns), max((float(std.max()) for _, std in made), default=0.0))
        packed = [(view.pack(mean, limits), quantise(std, 0 * top, top, 8)) for mean, std in made]
        parts.append(
            _Parts(
                view,
                limits,
                data,
                packed[len(seen)] if decoded is not None else None,
                packed[: len(seen)],
            )
        )
    return parts


def _fitted_in(parts: list[_Parts], planes: list[Plane]) -> dict[str, Any]:
    used = sum(mean.size + std.size for part in parts for mean, std in part.planes)
    every, data = _data(parts, BUDGET - used)
    used += sum(own.size for own in data if own is not None)
    sizes = [sum(own.size for own in part.decoded or ()) for part in parts]
    keep = used + sum(sizes) <= BUDGET
    return {
        "every": every,
        "planes": [
            {
                "dims": list(plane.dims),
                "low": list(plane.low),
                "high": list(plane.high),
                "side": plane.side,
            }
            for plane in planes
        ],
        "views": [
            {
                "name": part.view.name,
                "likelihood": part.view.likelihood,
                "width": part.view.n_columns,
                "columns": part.view.names,
                "shape": part.view.shape,
                "low": finite(part.limits[0][:1] if part.view.shape else part.limits[0]),
                "high": finite(part.limits[1][:1] if part.view.shape else part.limits[1]),
                "data": own and own.to_json(),
                "decoded": [array.to_json() for array in part.decoded]
                if keep and part.decoded
                else None,
                "planes": [[mean.to_json(), std.to_json()] for mean, std in part.planes],
            }
            for part, own in zip(parts, data, strict=True)
        ],
    }


def _data(parts: list[_Parts], room: int) -> tuple[int, list[Packed | None]]:
    """Pack the data of every row, or of every second, third, ... where they need more room."""
    every = 1
    while True:
        packed = [None if p.data is None else p.view.pack(p.data[::every], p.limits) for p in parts]
        size = sum(own.size for own in packed if own is not None)
        if size <= room or every > 100:
            return every, packed
        every = max(int(np.ceil(every * size / max(room, 1))), every + 1)


def _labels(labels: Labels) -> dict[str, Any]:
    values = labels.values.astype(np.int32) if labels.classes is not None else labels.values
    return {"name": labels.name, "classes": labels.classes, "values": pack(values).to_json()}
