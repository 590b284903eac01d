"""The figures of a page, as Bokeh models: page.js gives them their colours and the map its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bochner.errors import InputError, message
from bochner.plots.figures import COLOURS
from bochner.plots.kernels import components, kernel_slice
from bochner.prediction.calibration import CalibrationReport

if TYPE_CHECKING:
    from bokeh.plotting import figure as Figure

FloatArray = NDArray[np.floating[Any]]

# A trace is drawn at so many steps; a screen has about as many pixels.
_TRACE = 1500
_BLUE_RED = (
    "#053061",
    "#2166ac",
    "#4393c3",
    "#92c5de",
    "#d1e5f0",
    "#f7f7f7",
    "#fddbc7",
    "#f4a582",
    "#d6604d",
    "#b2182b",
    "#67001f",
)
_REDS = (
    "#fff5f0",
    "#fee0d2",
    "#fcbba1",
    "#fc9272",
    "#fb6a4a",
    "#ef3b2c",
    "#cb181d",
    "#a50f15",
    "#67000d",
)
# From so many rows on, points are drawn by the graphics processor: its part of the library costs
# 0.2 MB.
_GL_ROWS = 3000
# page.html gives the map's element the focus, and shows it.
_NO_OUTLINE = ":host, :host * { outline: none !important; }"


def check_bokeh() -> None:
    """Refuse to begin what could not be finished.

    Raises
    ------
    InputError
        Without Bokeh.
    """
    try:
        import bokeh.plotting  # noqa: F401
    except ImportError as error:
        do = 'install it: pip install "bochner[report]"'
        raise InputError(
            message("the package bokeh, which draws the report", "none", do)
        ) from error


def library(n_rows: int) -> list[str]:
    """Return the scripts of the plotting library, with WebGL where there are many rows."""
    from bokeh.resources import Resources

    parts = ["bokeh", "bokeh-gl"] if n_rows > _GL_ROWS else ["bokeh"]
    scripts: list[str] = Resources(mode="inline", components=parts).js_raw
    return scripts[
        : len(parts)
    ]  # what follows sets the level of its log, which says so on the console


def as_item(drawn: Figure) -> dict[str, Any]:
    """Return a figure as JSON that BokehJS embeds."""
    from bokeh.embed import json_item
    from bokeh.themes import Theme

    return dict(json_item(drawn, theme=Theme(json={})))


def latent_map(n_rows: int) -> Figure:
    """Draw the empty map; page.js fills its sources by name."""
    from bokeh.models import (
        BoxZoomTool,
        ColumnDataSource,
        CustomJS,
        LassoSelectTool,
        LinearColorMapper,
        PanTool,
        Range1d,
        WheelZoomTool,
    )
    from bokeh.plotting import figure

    drawn = figure(
        name="map",
        sizing_mode="stretch_both",
        toolbar_location=None,
        stylesheets=[_NO_OUTLINE],
        x_range=Range1d(0, 1),
        y_range=Range1d(0, 1),
        output_backend="webgl" if n_rows > _GL_ROWS else "canvas",
        tools=[
            PanTool(),
            LassoSelectTool(),
            BoxZoomTool(),
            WheelZoomTool(modifiers={"ctrl": True}),
        ],
    )
    shade = LinearColorMapper(palette=["#888888"], name="shades")
    drawn.image(
        "image",
        "x",
        "y",
        "dw",
        "dh",
        name="shade",
        color_mapper=shade,
        source=_source("image x y dw dh"),
    )
    drawn.ellipse(
        "x",
        "y",
        "width",
        "height",
        source=_source("x y width height"),
        name="deviations",
        fill_color=None,
        line_alpha=0.35,
        line_width=0.7,
    )
    colour = {
        "field": "colour",
        "transform": LinearColorMapper(palette=list(COLOURS), name="colours"),
    }
    points: ColumnDataSource = _source("x y colour marker size")
    drawn.scatter(
        "x",
        "y",
        marker={"field": "marker"},
        size="size",
        source=points,
        name="points",
        fill_color=colour,
        line_color=None,
        fill_alpha=0.85,
        nonselection_fill_alpha=0.12,
        selection_fill_alpha=1.0,
    )
    drawn.ellipse(
        "x",
        "y",
        "width",
        "height",
        source=_source("x y width height"),
        name="row",
        fill_alpha=0.15,
        line_width=1.5,
    )
    drawn.scatter(
        "x", "y", size=15, source=_source("x y"), name="ring", fill_color=None, line_width=2.5
    )
    drawn.scatter(
        "x", "y", marker="cross", size=26, source=_source("x y"), name="cross", line_width=2.5
    )
    for event, call in (
        ("mousemove", "move(cb_obj.x, cb_obj.y)"),
        ("mouseleave", "leave()"),
        ("tap", "tap(cb_obj.x, cb_obj.y)"),
    ):
        drawn.js_on_event(event, CustomJS(code=f"window.bochnerPage?.{call}"))
    points.selected.js_on_change(
        "indices", CustomJS(code="window.bochnerPage?.select(cb_obj.indices)")
    )
    return drawn


def bound_trace(model: Any) -> Figure:
    """Draw the bound of every training step and the final one."""
    from bokeh.models import NumeralTickFormatter
    from bokeh.plotting import figure

    history = np.asarray(model.elbo_history_, dtype=np.float64)
    kept = np.unique(
        np.linspace(0, len(history) - 1, min(len(history), _TRACE)).round().astype(int)
    )
    # The first steps lie far below the rest and would flatten it: they may leave the picture.
    low, high = float(np.quantile(history, 0.02)), float(history.max())
    reach = max(high - low, 1.0)
    near = (
        low - reach < model.elbo_ < high + reach
    )  # a bound of more rows or columns than training saw may lie far off
    low, high = (min(low, model.elbo_), max(high, model.elbo_)) if near else (low, high)
    drawn = figure(
        name="bound",
        height=300,
        sizing_mode="stretch_width",
        toolbar_location=None,
        tools="",
        x_axis_label="training step",
        y_axis_label="bound (nats)",
        y_range=(low - 0.05 * reach, high + 0.08 * reach),
    )
    drawn.line(
        kept + 1,
        history[kept],
        line_color=COLOURS[0],
        line_width=1.6,
        legend_label="one draw per step",
    )
    if near:
        final, steps = [model.elbo_, model.elbo_], [1, len(history)]
        drawn.line(
            steps,
            final,
            line_color=COLOURS[6],
            line_dash="dashed",
            legend_label=f"final: {model.elbo_:,.0f}",
        )
    drawn.legend.location = "bottom_right"
    drawn.yaxis.formatter = NumeralTickFormatter(format="0,0")
    return drawn


def kernel(model: Any, view: str) -> Figure:
    """Draw a view's learned kernel along the dimension that matters most to it."""
    from bokeh.models import ColorBar, LinearColorMapper
    from bokeh.plotting import figure

    dim, places, K = kernel_slice(model, view, 80)
    limit = float(np.abs(K).max())
    signed = float(K.min()) < -0.02 * limit
    colours = LinearColorMapper(
        palette=_between(_BLUE_RED if signed else _REDS), low=-limit if signed else 0.0, high=limit
    )
    low, high = float(places[0]), float(places[-1])
    label = f"latent dimension {dim}"
    drawn = figure(
        name="kernel",
        height=340,
        width=400,
        toolbar_location=None,
        tools="",
        x_range=(low, high),
        y_range=(high, low),
        x_axis_label=label,
        y_axis_label=label,
        title=f"View {view!r}",
    )
    # rows of an image go up, the axis down: the picture is that of a matrix
    drawn.image(
        [np.asarray(K, dtype=np.float32)], low, low, high - low, high - low, color_mapper=colours
    )
    drawn.add_layout(ColorBar(color_mapper=colours, width=12, padding=4, title="units²"), "right")
    return drawn


def spectrum(model: Any, view: str) -> Figure | None:
    """Draw where the components of a view's spectrum lie, or return None for kernels that have none
    to draw.
    """
    from bokeh.plotting import figure

    own = model.kernels_[view]
    if (
        not {"means", "scales"} <= set(own)
        or np.ndim(own["means"]) != 2
        or np.shape(own["means"])[1] < 2
    ):
        return None
    share, means, scales = components(own, view)
    a, b = sorted(np.argsort(-model.relevance_[model._view_index(view)])[:2].tolist())
    unit = "frequency along latent dimension {} (radians per unit)"
    drawn = figure(
        name="spectrum",
        height=340,
        width=400,
        toolbar_location=None,
        tools="",
        match_aspect=True,
        x_axis_label=unit.format(a),
        y_axis_label=unit.format(b),
        title=f"View {view!r}: {len(share)} components",
    )
    for i, (p, m, s) in enumerate(zip(share, means, scales, strict=True)):
        colour = COLOURS[i % len(COLOURS)]
        drawn.ellipse(
            [m[a], -m[a]],
            [m[b], -m[b]],
            width=2 * s[a],
            height=2 * s[b],
            fill_color=colour,
            line_color=colour,
            fill_alpha=0.15 + 0.6 * float(p / share.max()),
        )
    return drawn


def calibration(found: CalibrationReport) -> list[Figure]:
    """Draw what intervals hold beside what they should, and the histogram of the probability
    integral transform.
    """
    from bokeh.plotting import figure

    left = figure(
        name="coverage",
        height=340,
        width=400,
        toolbar_location=None,
        tools="",
        x_range=(0, 1),
        y_range=(0, 1),
        x_axis_label="share an interval should hold",
        y_axis_label="share it holds",
        title="Coverage",
    )
    left.line([0, 1], [0, 1], line_color="#888888", line_dash="dotted")
    right = figure(
        name="pit",
        height=340,
        width=400,
        toolbar_location=None,
        tools="",
        x_range=(0, 1),
        x_axis_label="place of the truth in its predictive distribution",
        y_axis_label="density",
        title="Flat where predictions are right",
    )
    for i, view in enumerate(found.views.values()):
        colour, pit = COLOURS[i % len(COLOURS)], np.asarray(view.pit)
        half = len(pit) // 2
        held = np.concatenate([[0.0], np.cumsum(pit[half:] + pit[half - 1 :: -1])])
        left.line(
            np.linspace(0, 1, half + 1),
            held,
            line_color=colour,
            line_width=1.6,
            legend_label=view.view,
        )
        edges = np.linspace(0, 1, len(pit) + 1)
        right.step(
            edges,
            np.append(pit, pit[-1]) * len(pit),
            mode="after",
            line_color=colour,
            line_width=1.6,
        )
    left.legend.location = "top_left"
    right.y_range.start = 0
    return [left, right]


def _source(columns: str) -> Any:
    from bokeh.models import ColumnDataSource

    return ColumnDataSource({name: [] for name in columns.split()})


def _between(colours: tuple[str, ...], count: int = 64) -> list[str]:
    """Blend colours into a palette of so many."""
    stops = np.array(
        [[int(colour[i : i + 2], 16) for i in (1, 3, 5)] for colour in colours], dtype=float
    )
    at = np.linspace(0, len(colours) - 1, count)
    mixed = np.stack(
        [np.interp(at, np.arange(len(colours)), stops[:, i]) for i in range(3)], axis=1
    )
    return [f"#{r:02x}{g:02x}{b:02x}" for r, g, b in mixed.round().astype(int).tolist()]
