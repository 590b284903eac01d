"""Figures without pyplot's global state: making, finishing and saving them."""

from __future__ import annotations

import functools
import io
import os
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bochner.data.accepted import pair
from bochner.errors import InputError, message, printable
from bochner.io.outputs import replacing

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.container import Container
    from matplotlib.figure import Figure

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
# Inches of a letter of a title.
_LETTER = 0.085
_LEAST_LETTERS = 12


class ShownList(list["Axes"]):
    """Axes of one figure, which a notebook shows."""

    def _repr_png_(self) -> bytes:
        return _png(self[0])


def save(ax: Axes | Sequence[Axes], path: str | Path, dpi: int = 150) -> Path:
    """Write the figure of an Axes to a file and return its path.

    Parameters
    ----------
    ax : Axes or list of Axes
        As a function of this module returned it; several are those of one figure.
    path : path
        Its ending chooses the format: .png, .pdf, .svg.
    dpi : int, default=150

    Returns
    -------
    Path

    Raises
    ------
    InputError
        ``ax`` is something else.
    """
    drawn = _one_figure(ax)
    target = Path(path)
    # matplotlib takes the format from the name, which the file does not have yet
    kind = target.suffix.lstrip(".").lower() or "png"
    with replacing(target) as part:
        drawn.savefig(part, dpi=dpi, format=kind)
    return target


def _one_figure(ax: object) -> Figure:
    """Return the figure of an Axes, or of several, of a part of it too."""
    several = np.asarray(ax, dtype=object).ravel()
    figures = [figure(one).figure for one in several if hasattr(one, "get_figure")]
    got = f"an object of type {type(ax).__name__}"
    if several.size and len(figures) == several.size:
        made: Figure = figures[0]
        if all(other is made for other in figures):
            return made
        got = f"Axes of {len({id(one) for one in figures})} figures"
    do = "pass what a function of bochner.plots returned"
    raise InputError(message("an Axes, or a list of Axes of one figure", got, do))


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
        A notebook shows their figure.

    Raises
    ------
    ImportError
        Without matplotlib.
    InputError
        MPLBACKEND, in the environment, names a backend that matplotlib does not have.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError('pictures need matplotlib: pip install "bochner[plot]"') from error
    except ValueError as error:
        # it looks at the name when it is imported; pictures here need none
        got = f"MPLBACKEND={os.environ.get('MPLBACKEND')}"
        do = "unset MPLBACKEND: pictures are drawn without it"
        raise InputError(message("a backend of matplotlib", got, do)) from error
    made = Figure(figsize=(width, height), layout="constrained")
    kind = {"axes_class": _shown_axes()}
    return ShownList(made.subplots(1, n_columns, squeeze=False, subplot_kw=kind)[0])


def given_or_made(
    given: Sequence[Axes] | None, count: int, width: float, height: float
) -> ShownList:
    """Return so many Axes of the caller, or those of a new figure of so many inches.

    Raises
    ------
    InputError
        There are more or fewer.
    """
    drawn = axes(width, height, count) if given is None else given
    several = ShownList(np.ravel(np.asarray(drawn, dtype=object)))
    if len(several) != count:
        word = {2: "two", 3: "three"}[count]
        do = f"leave axs out, or pass a list of {word}"
        raise InputError(message(f"{word} Axes", str(len(several)), do))
    return several


@functools.cache
def _shown_axes() -> type[Axes]:
    """Return Axes that a notebook shows as their figure, which pyplot does not know."""
    from matplotlib.axes import Axes

    class ShownAxes(Axes):
        def _repr_png_(self) -> bytes:
            return _png(self)

    return ShownAxes


def _png(ax: Axes) -> bytes:
    buffer = io.BytesIO()
    _one_figure(ax).savefig(buffer, format="png", dpi=_SCREEN_DPI)
    return buffer.getvalue()


def figure(ax: Axes) -> Any:
    """Return the figure of an Axes, whatever kind it is."""
    return ax.figure


def finish(ax: Axes, title: str, x: str, y: str) -> None:
    """Give an Axes its title and labels, in one style."""
    # names of columns and views may hold dollar signs, which would start mathematics
    lines = "\n".join(textwrap.fill(line, _letters(ax)) for line in title.splitlines())
    ax.set_title(lines, loc="left", fontsize=11, color=INK, parse_math=False)
    ax.set_xlabel(x, parse_math=False)
    ax.set_ylabel(y, parse_math=False)
    ax.spines[["top", "right"]].set_visible(False)


def _letters(ax: Axes) -> int:
    """Return how many letters of a title have room above an Axes, without its neighbours."""
    share = ax.get_position().width
    place = ax.get_subplotspec()
    # our figures are as wide as their titles ask for
    if place is not None and isinstance(ax, _shown_axes()):
        share = len(place.colspan) / place.get_gridspec().ncols
    inches = share * figure(ax).bbox.width / figure(ax).dpi
    return max(_LEAST_LETTERS, int(inches / _LETTER))


def beside(ax: Axes) -> dict[str, object]:
    """Return where a legend covers no data, if the layout of the figure makes room for it; else
    it would cover the next Axes.
    """
    if _has_layout(ax):
        return {"loc": "center left", "bbox_to_anchor": (1, 0.5)}
    return {"loc": "best", "frameon": True, "fontsize": "small"}


def _has_layout(ax: Axes) -> bool:
    return figure(ax).get_layout_engine() is not None


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
    return f"'{shortened([name], 24)[0]}'"


def _shortened(line: str, length: int) -> str:
    end = (length - 1) // 2
    return line if len(line) <= length else f"{line[: length - 1 - end]}…{line[-end:]}"


def two_dimensions(dims: object, n_dims: int) -> list[int]:
    """Return two different latent dimensions of so many.

    Raises
    ------
    InputError
        ``dims`` are something else.
    """
    chosen = list(pair("dims", dims))
    if chosen[0] == chosen[1] or not all(0 <= d < n_dims for d in chosen):
        want = f"two dimensions from 0 to {n_dims - 1}"
        raise InputError(message(want, f"dims={dims}", "correct them"))
    return chosen
