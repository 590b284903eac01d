"""Pictures of calibration and of the choice of dimensions; `bochner.plots` has them all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bochner.errors import InputError, message
from bochner.plots.figures import (
    COLOURS,
    INK,
    ShownList,
    axes,
    beside,
    finish,
    given_or_made,
    legend,
    shortened,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Lines of one colour.
_STYLES = ("-", "--", ":", "-.")
# A legend of more views would cover their lines.
_INSIDE = 5


def calibration(report: Any, axs: list[Axes] | None = None) -> list[Axes]:
    """Draw how much central intervals hold beside what they should, and the histogram of the
    probability transform.

    Parameters
    ----------
    report : CalibrationReport
        As `bochner.calibration` returns it.
    axs : list of two Axes, optional

    Returns
    -------
    list of Axes
        Left: a line per view with the share of the truth inside intervals of every level; above the
        diagonal they are too wide, below too narrow. Right: the histogram, flat where predictions
        are right; bars of one standard error.
    """
    if not hasattr(report, "calibrated"):
        got = f"a {type(report).__name__}"
        hint = "call bochner.calibration(model, X) first"
        raise InputError(message("a CalibrationReport", got, hint))
    left, right = given_or_made(axs, 2, 10.4, 4.6)
    left.plot([0, 1], [0, 1], color=INK, linewidth=0.8, linestyle=":")
    lines = []
    for i, view in enumerate(report.views.values()):
        colour = COLOURS[i % len(COLOURS)]
        # colours repeat
        style = _STYLES[i // len(COLOURS) % len(_STYLES)]
        pit = np.asarray(view.pit)
        half = len(pit) // 2
        # an interval of level 2 k / bins holds the k bins on both sides of the middle
        held = np.concatenate([[0.0], np.cumsum(pit[half:] + pit[half - 1 :: -1])])
        lines += left.plot(np.linspace(0, 1, half + 1), held, color=colour, linestyle=style)
        levels = list(view.coverage)
        shares = list(view.coverage.values())
        errors = 2 * np.array(list(view.coverage_se.values()))
        left.errorbar(levels, shares, errors, fmt="o", color=colour, markersize=4, capsize=3)
        edges = np.linspace(0, 1, len(pit) + 1)
        right.stairs(pit * len(pit), edges, color=colour, linewidth=1.5, linestyle=style)
        right.errorbar(
            0.5 * (edges[1:] + edges[:-1]),
            pit * len(pit),
            view.pit_se * len(pit),
            fmt="none",
            ecolor=colour,
            alpha=0.6,
        )
    right.axhline(1.0, color=INK, linewidth=0.8, linestyle=":")
    right.set_ylim(bottom=0)
    for axis in (left.xaxis, left.yaxis):
        axis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    left.set_aspect("equal")
    # errors of few entries reach beyond all or nothing
    left.set_ylim(-0.03, 1.03)
    names = shortened((view.view for view in report.views.values()), 24)
    if len(names) > _INSIDE:
        legend(right, lines, names, title="view", **beside(right))
    else:
        legend(left, lines, names, title="view", loc="upper left")
    state = "calibrated on these entries"
    if not report.calibrated:
        state = f"not {state}"
    elif report.too_few():
        state = "too few entries to tell"
    finish(left, f"Central intervals: {state}", "should hold", "hold")
    finish(
        right,
        "Where the truth lies in its predictive distribution",
        "probability below the truth",
        "density",
    )
    return ShownList([left, right])


def n_components(selection: Any, ax: Axes | None = None, *, title: str | None = None) -> Axes:
    """Draw how well held-out entries are predicted by the number of latent dimensions.

    Parameters
    ----------
    selection : ComponentSelection
        As `bochner.select_n_components` returns it.
    ax : Axes, optional
    title : str, optional

    Returns
    -------
    Axes
        Log-likelihood of a held-out entry with bars of one standard error of the difference from
        the best.
    """
    if not hasattr(selection, "behind_se"):
        got = f"a {type(selection).__name__}"
        hint = "call bochner.select_n_components(model, X) first"
        raise InputError(message("a ComponentSelection", got, hint))
    ax = ax or axes(6.4, 4.0)[0]
    bars = np.asarray(selection.behind_se)
    ax.errorbar(
        selection.candidates,
        selection.log_likelihood,
        bars,
        fmt="o-",
        color=COLOURS[0],
        capsize=4,
    )
    ax.axvline(
        selection.best,
        color=COLOURS[2],
        linestyle="--",
        linewidth=1.2,
        label=f"use {selection.best}",
    )
    ax.set_xticks(selection.candidates)
    ax.legend(frameon=False)
    finish(
        ax,
        title or "Held-out entries by latent dimensions; bars: error of the gap",
        "latent dimensions",
        "log-likelihood per held-out entry (nats)",
    )
    return ax
