"""Figures without pyplot's global state: making, finishing and saving them."""

from __future__ import annotations

import functools
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bochner.errors import printable
from bochner.io.outputs import replacing

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.container import Container

# Of what a notebook shows: as many as matplotlib has by default.
_SCREEN_DPI = 100
INK = "#303030"
FAINT = "#b0b0b0"
# Ticks of large numbers, with no more digits than tell them apart.
THOUSANDS = "{x:,.10g}"
# Petroff's ten colours, chosen by survey and simulation to be told apart with every kind of colour
# vision.
COLOURS = (
    "#3f90da",
    "#ffa90e",
    "#bd1f01",
    "#94a4a2",
    "#832db6",
    "#a96b59",
    "#e76300",
    "#b9ac70",
    "#717581",
    "#92dadd",
)
# Where a legend covers no data.
BESIDE: dict[str, object] = {"loc": "center left", "bbox_to_anchor": (1, 0.5)}


def save(ax: Axes, path: str | Path, dpi: int = 150) -> Path:
    """Write the figure of an Axes to a file and return its path.

    Parameters
    ----------
    ax : Axes
    path : path
        Its ending chooses the format: .png, .pdf, .svg.
    dpi : int, default=150

    Returns
    -------
    Path
    """
    target = Path(path)
    # matplotlib takes the format from the name, which the file does not have yet
    kind = target.suffix.lstrip(".").lower() or "png"
    with replacing(target) as part:
        figure(ax).savefig(part, dpi=dpi, format=kind)
    return target


def axes(width: float, height: float, n_columns: int = 1) -> list[Axes]:
    """Make a new figure of so many inches and return its Axes, side by side.

    Parameters
    ----------
    width, height : float
        Inches.
    n_columns : int, default=1

    Returns
    -------
    list of Axes

    Raises
    ------
    ImportError
        Without matplotlib.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError('pictures need matplotlib: pip install "bochner[plot]"') from error
    made = Figure(figsize=(width, height), layout="constrained")
    kind = {"axes_class": _shown_axes()}
    return list(made.subplots(1, n_columns, squeeze=False, subplot_kw=kind)[0])


@functools.cache
def _shown_axes() -> type[Axes]:
    """Return Axes that a notebook shows as their figure, which pyplot does not know."""
    from matplotlib.axes import Axes

    class ShownAxes(Axes):
        def _repr_png_(self) -> bytes:
            buffer = io.BytesIO()
            figure(self).savefig(buffer, format="png", dpi=_SCREEN_DPI)
            return buffer.getvalue()

    return ShownAxes


def figure(ax: Axes) -> Any:
    """Return the figure of an Axes, whatever kind it is."""
    return ax.figure


def finish(ax: Axes, title: str, x: str, y: str) -> None:
    """Give an Axes its title and labels, in one style."""
    # names of columns and views may hold dollar signs, which would start mathematics
    ax.set_title(title, loc="left", fontsize=11, color=INK, parse_math=False)
    ax.set_xlabel(x, parse_math=False)
    ax.set_ylabel(y, parse_math=False)
    ax.spines[["top", "right"]].set_visible(False)


def legend(
    ax: Axes, handles: Sequence[Artist | Container], names: Sequence[str], **options: Any
) -> None:
    """Draw a legend with names as they are: matplotlib leaves out those that begin with an
    underscore, and reads mathematics between dollar signs.
    """
    numbers = [str(i) for i in range(len(names))]
    made = ax.legend(handles, numbers, **{"frameon": False} | options)
    for text, name in zip(made.get_texts(), names, strict=True):
        text.set_parse_math(False)
        text.set_text(name)


def shortened(names: Iterable[object], length: int) -> list[str]:
    """Return names on one line each, those that are longer than so many characters without their
    middle; without their common beginning where they would look the same.
    """
    lines = [printable(" ".join(str(name).split())) for name in names]
    short = [_shortened(line, length) for line in lines]
    if len(set(short)) == len(set(lines)):
        return short
    letters = enumerate(zip(*lines, strict=False))
    start = next((i for i, at_place in letters if len(set(at_place)) > 1), 0)
    return [_shortened(f"…{line[start:]}", length) for line in lines]


def quoted(name: str) -> str:
    """Return the name of a view as titles have it."""
    return repr(shortened([name], 24)[0])


def _shortened(line: str, length: int) -> str:
    end = (length - 1) // 2
    return line if len(line) <= length else f"{line[: length - 1 - end]}…{line[-end:]}"
