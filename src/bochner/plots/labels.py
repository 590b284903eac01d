"""What the rows of a map are called, and how that is drawn: classes, numbers and dates."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bochner.data.accepted import in_order_of
from bochner.data.arrays import FloatArray
from bochner.data.validation import as_array
from bochner.errors import InputError, message
from bochner.page.dates import as_dates
from bochner.page.labels import Labels, as_labels
from bochner.plots.figures import COLOURS, FAINT, INK, beside, figure, legend, shortened

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection

_MARKERS = "os^Dv"
# Classes with a mark of their own; so many are named on the map, and in one column of a legend.
_MARKED = len(COLOURS) * len(_MARKERS)
_NAMED = len(COLOURS)
_LISTED = 20
_MILLISECONDS_A_DAY = 86_400_000
# Rows below which a class is drawn beside its name.
_FEW = 5
# Points of a name on the map, width of a letter and height of a line.
_FONT = 12
_LETTER = 8.0
_LINE = 16.0


def figure_width(labels: Labels) -> float:
    """Return the inches that a map and its legend need."""
    many = labels.classes is not None and len(labels.classes) > _LISTED
    return 8.4 if many else 6.4


def row_labels(given: object, n_rows: int, index: object = None) -> Labels:
    """Tell classes, numbers and dates apart.

    Raises
    ------
    InputError
        There is not one label per row, or they are of rows in another order than the index, where
        it is known.
    """
    given = in_order_of(index, "labels", given)
    y: Any = as_array("labels", given)
    if y.shape != (n_rows,):
        raise InputError(
            message(f"labels of shape ({n_rows},)", str(y.shape), "pass one per training row")
        )
    if y.dtype.kind == "m":
        return Labels("label (days)", y / np.timedelta64(1, "D"), None)
    days = as_dates(y, of_text=False)
    if days is not None:
        since = np.where(np.isnat(days), np.nan, days.astype(np.int64))
        return Labels("label", since, None, "time")
    return replace(as_labels(given, n_rows)[0], name="label")


def draw_labels(ax: Axes, Z: FloatArray, labels: Labels, size: float, cmap: str) -> None:
    """Draw rows in the colours of their labels, with what tells the colours; those without a label
    are grey.
    """
    known = labels.known
    marks: list[tuple[Artist, str]] = []
    if not known.all():
        # open: one of the classes has a grey colour
        style = {"facecolors": "none", "edgecolors": FAINT, "linewidths": 0.8}
        marks = [(_points(ax, Z[~known], s=size, **style), "no label")]
    if labels.classes is not None:
        _draw_classes(ax, Z, labels, size, marks)
        return
    if known.any():
        _draw_numbers(ax, Z[known], replace(labels, values=labels.values[known]), size, cmap)
    if marks:
        legend(ax, *zip(*marks, strict=True), loc="upper left", frameon=True)


def _points(ax: Axes, Z: FloatArray, **style: Any) -> PathCollection:
    return ax.scatter(Z[:, 0], Z[:, 1], **style)


def _draw_numbers(ax: Axes, Z: FloatArray, labels: Labels, size: float, cmap: str) -> None:
    from matplotlib import dates

    values = labels.values.astype(float)
    ticks: dict[str, object] = {}
    if labels.dates:
        values = values / _MILLISECONDS_A_DAY
        places = dates.AutoDateLocator()  # type: ignore[no-untyped-call]
        style = dates.ConciseDateFormatter(places)  # type: ignore[no-untyped-call]
        ticks = {"ticks": places, "format": style}
    points = _points(ax, Z, s=size, c=values, cmap=cmap, linewidths=0)
    figure(ax).colorbar(points, ax=ax, label=labels.name, **ticks)


def _draw_classes(
    ax: Axes, Z: FloatArray, labels: Labels, size: float, below: list[tuple[Artist, str]]
) -> None:
    """Draw the classes with most rows, in their order, each with a mark of its own; other classes
    share one, and stand below with the marks that are there already.
    """
    codes, classes = labels.values.astype(np.int64), labels.classes or []
    rows = np.bincount(codes[codes >= 0], minlength=len(classes))
    marked = np.sort(np.argsort(-rows, kind="stable")[:_MARKED])
    marked = marked[rows[marked] > 0]
    marks = []
    rest = (codes >= 0) & ~np.isin(codes, marked)
    if rest.any():
        crosses = _points(ax, Z[rest], s=size, color=FAINT, marker="x", linewidths=0.8)
        below = [(crosses, f"and {np.unique(codes[rest]).size} more"), *below]
    for i, k in enumerate(marked):
        points = _points(
            ax,
            Z[codes == k],
            s=size,
            color=COLOURS[i % len(COLOURS)],
            marker=_MARKERS[i // len(COLOURS)],
            linewidths=0,
            alpha=0.85,
        )
        marks.append((points, classes[k]))
    names = [name for _, name in marks]
    if len(marked) <= _NAMED:
        middles = [np.median(Z[codes == k], axis=0) for k in marked]
        # a name would hide the rows of a class of few
        shifts = np.zeros((len(marked), 2))
        shifts[rows[marked] < _FEW, 1] = 0.75 * _LINE
        write_names(ax, shortened(names, 14), np.array(middles), shifts)
    many = len(names) > _LISTED
    small = {"ncols": 2, "fontsize": 8, "labelspacing": 0.4, "columnspacing": 1.0}
    handles = [handle for handle, _ in (*marks, *below)]
    names = [*shortened(names, 16 if many else 24), *(name for _, name in below)]
    legend(ax, handles, names, **beside(ax) | (small if many else {}))


def write_names(
    ax: Axes,
    names: list[str],
    places: FloatArray,
    shifts: FloatArray,
    size: float = _FONT,
) -> None:
    """Write names over places, (n, 2), shifted by so many points, and higher where one would cover
    another.
    """
    from matplotlib.patheffects import withStroke

    if not names:
        return
    # limits are those of the data only now
    ax.apply_aspect()
    on_page = ax.transData.transform(places) * 72 / figure(ax).dpi
    boxes: list[tuple[float, float, float]] = []
    letter, line = _LETTER * size / _FONT, _LINE * size / _FONT
    for i in np.argsort(on_page[:, 1]):
        x, y = on_page[i] + shifts[i]
        half = 0.5 * letter * len(names[i])
        while any(
            abs(x - middle) < half + other and abs(y - base) < line
            for middle, base, other in boxes
        ):
            y += 0.25 * line
        boxes.append((x, y, half))
        ax.annotate(
            names[i],
            places[i],
            (shifts[i, 0], y - on_page[i, 1]),
            textcoords="offset points",
            ha="center",
            va="center",
            weight="bold",
            fontsize=size,
            color=INK,
            parse_math=False,
            path_effects=[withStroke(linewidth=3, foreground="white")],
        )
