"""Pictures of latents, training and completions; `bochner.plots` has them all."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from bochner.data.accepted import COUNT, COUNT_OR_NONE, checked, pair
from bochner.data.arrays import FloatArray
from bochner.data.columns import evenly_spread
from bochner.errors import InputError, message
from bochner.plots.figures import (
    COLOURS,
    FAINT,
    INK,
    THOUSANDS,
    axes,
    beside,
    finish,
    legend,
    shortened,
    two_dimensions,
)
from bochner.plots.labels import draw_labels, figure_width, row_labels
from bochner.summary import seen_in_training

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from bochner.estimators.base import LatentVariableEstimator


# Empty pixels between two images of a strip.
_PIXEL_GAP = 1
# Views in a column of a legend.
_LISTED = 12
# Bars of one colour.
_HATCHES = ("", "//", "..", "xx")
# Rows of a map; a picture has fewer points than more would need.
_DRAWN = 100_000


# Standard deviations of all rows by which the ellipse of one widens the axes at the most.
_FARTHEST = 0.5


@checked(dims=[tuple, list], n_ellipses=[COUNT_OR_NONE])
def latent_map(
    model: LatentVariableEstimator,
    labels: ArrayLike | None = None,
    dims: tuple[int, int] = (0, 1),
    ax: Axes | None = None,
    n_ellipses: int = 150,
    *,
    s: float | None = None,
    cmap: str = "viridis",
    title: str | None = None,
) -> Axes:
    """Draw the training rows in latent space, some with an ellipse of one posterior standard
    deviation. Of more than 100,000 rows so many are drawn, spread evenly.

    Parameters
    ----------
    model : LatentVariableEstimator
        Fitted.
    labels : array-like of shape (N,), optional
        Classes (text, categories, or up to 50 whole numbers) get colours, and a name at their
        median where they are few; numbers and dates get a colour bar. Rows without a label are
        grey. Of more than 50 classes those with most rows have a mark of their own.
    dims : (int, int), default=(0, 1)
        Latent dimensions to draw. A model with one dimension is drawn against the row number.
    ax : Axes, optional
    n_ellipses : int, default=150
        Rows drawn with their standard deviation, spread evenly over the data.
    s : float, optional
        Size of a row's mark, points squared; by default smaller the more rows there are.
    cmap : str, default="viridis"
        Colours of labels that are numbers.
    title : str, optional

    Returns
    -------
    Axes
    """
    check_is_fitted(model)
    Z, std, names = _coordinates(model, dims)
    n_rows = len(Z)
    y = None if labels is None else row_labels(labels, n_rows, model._index)
    ax = ax or axes(6.4 if y is None else figure_width(y), 5.6)[0]
    if names[0] != "row":
        # the prior is as wide in every direction
        ax.set_aspect("equal", adjustable="datalim")
    if n_rows > _DRAWN:
        some = np.linspace(0, n_rows - 1, _DRAWN).astype(int)
        Z = Z[some]
        std = std[some]
        y = None if y is None else replace(y, values=y.values[some])
    _ellipses(ax, Z, std, n_ellipses)
    size = float(np.clip(9000 / len(Z), 5, 30)) if s is None else s
    if y is None:
        ax.scatter(Z[:, 0], Z[:, 1], s=size, color=COLOURS[0], linewidths=0, alpha=0.8)
    else:
        draw_labels(ax, Z, y, size, cmap)
    count = min(n_ellipses, len(Z))
    which = "each" if count == len(Z) else f"{count} of them"
    shape = "line" if names[0] == "row" else "ellipse"
    drawn = f"{len(Z):,} of {n_rows:,} rows" if n_rows > _DRAWN else f"{n_rows:,} rows"
    said = drawn + (f"; {shape}: one standard deviation ({which})" if count else "")
    finish(ax, title or said, *names)
    return ax


@checked(window=[COUNT])
def bound_trace(
    model: LatentVariableEstimator,
    ax: Axes | None = None,
    window: int = 50,
    *,
    title: str | None = None,
) -> Axes:
    """Draw the evidence lower bound of every training step, its running mean, and its final value.

    Parameters
    ----------
    model : LatentVariableEstimator
        Fitted.
    ax : Axes, optional
    window : int, default=50
        Steps of the running mean.
    title : str, optional

    Returns
    -------
    Axes
    """
    check_is_fitted(model)
    ax = ax or axes(6.4, 4.0)[0]
    history = np.asarray(model.elbo_history_, dtype=float)
    steps = np.arange(1, len(history) + 1)
    ax.plot(steps, history, color=FAINT, linewidth=0.8, label="one draw per step")
    width = min(window, len(history) // 10)
    if width > 1:
        mean = np.convolve(history, np.full(width, 1 / width), mode="valid")
        ax.plot(
            steps[: len(mean)] + (width - 1) / 2,
            mean,
            color=COLOURS[0],
            linewidth=2,
            label=f"mean of {width} steps",
        )
    digits = 0 if model.elbo_se_ >= 1 else 2
    whole = ", of all data" if seen_in_training(model) else ""
    final = f"final{whole}: {model.elbo_:,.{digits}f} ± {model.elbo_se_:,.{digits}f}"
    ax.axhline(model.elbo_, color=COLOURS[2], linestyle="--", linewidth=1.2, label=final)
    # none where the fit was interrupted before its first step
    if history.size:
        # The first steps lie far below the rest and would flatten it: they may leave the picture.
        low = np.quantile(history, 0.02)
        high = max(history.max(), model.elbo_)
        if high > low:
            ax.set_ylim(low - 0.05 * (high - low), high + 0.08 * (high - low))
    ax.yaxis.set_major_formatter(THOUSANDS)
    ax.legend(frameon=False, loc="lower right")
    finish(
        ax,
        title or f"Evidence lower bound: {model._training_result()}",
        "training step",
        "bound (nats)",
    )
    return ax


def relevance(
    model: LatentVariableEstimator,
    ax: Axes | None = None,
    *,
    title: str | None = None,
) -> Axes:
    """Draw the share of each view's variation along each latent dimension.

    Parameters
    ----------
    model : LatentVariableEstimator
        Fitted.
    ax : Axes, optional
    title : str, optional

    Returns
    -------
    Axes
    """
    check_is_fitted(model)
    ax = ax or axes(6.4, 3.6)[0]
    n_views, n_dims = model.relevance_.shape
    width = 0.8 / n_views
    bars = []
    for i in range(n_views):
        places = np.arange(n_dims) + (i - (n_views - 1) / 2) * width
        colour = COLOURS[i % len(COLOURS)]
        hatch = _HATCHES[i // len(COLOURS) % len(_HATCHES)]
        shares = 100 * model.relevance_[i]
        bars.append(
            ax.bar(places, shares, width * 0.92, color=colour, hatch=hatch, edgecolor="white")
        )
    ax.set_xticks(range(n_dims))
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:.0f} %")
    if n_views > 1:
        names = shortened(model.views_, 24)
        legend(ax, bars, names, title="view", ncols=1 + (n_views - 1) // _LISTED, **beside(ax))
    finish(
        ax,
        title or "What each latent dimension carries",
        "latent dimension",
        "share of the view's variation",
    )
    return ax


@checked(n=[COUNT])
def completions(
    true: ArrayLike,
    completed: ArrayLike,
    observed: ArrayLike,
    shape: tuple[int, int],
    n: int = 12,
    ax: Axes | None = None,
    *,
    cmap: str = "gray_r",
    title: str | None = None,
) -> Axes:
    """Draw images in three lines: the truth, what the model was shown, what it made of it.

    Parameters
    ----------
    true, completed : array-like of shape (rows, pixels)
        What is not known of the truth is NaN.
    observed : array-like of bool, shape (rows, pixels)
        True where the model saw the pixel.
    shape : (int, int)
        Height and width of an image.
    n : int, default=12
        Images, spread evenly over the rows.
    ax : Axes, optional
    cmap : str, default="gray_r"
    title : str, optional

    Returns
    -------
    Axes
    """
    shape = pair("shape", shape)
    T = np.asarray(true, dtype=float)
    C = np.asarray(completed, dtype=float)
    mask_of_known = np.asarray(observed, dtype=bool)
    if (
        not T.shape == C.shape == mask_of_known.shape
        or T.ndim != 2
        or T.shape[1] != shape[0] * shape[1]
    ):
        got = f"{T.shape}, {C.shape}, {mask_of_known.shape}"
        raise InputError(
            message(
                f"three arrays of shape (rows, {shape[0] * shape[1]})",
                got,
                "flatten the images",
            )
        )
    if not len(T):
        raise InputError(message("images", "none", "pass at least one row"))
    rows = evenly_spread(len(T), n)
    ax = ax or axes(max(0.8 * len(rows) + 1, 3), 3.0)[0]
    picture = np.vstack(
        [_strip(images[rows], shape) for images in (T, np.where(mask_of_known, T, np.nan), C)]
    )
    # Between images there is nothing, what the model was not shown is blue: neither is a pixel
    # value.
    hidden = np.vstack(
        [
            _strip(mask[rows], shape)
            for mask in (0.0 * T, np.where(mask_of_known, 0.0, 1.0), 0.0 * T)
        ]
    )
    low, high = float(np.nanmin(T)), float(np.nanmax(T))
    ax.imshow(picture, cmap=cmap, vmin=low, vmax=high, interpolation="nearest")
    ax.imshow(
        np.where(hidden == 1, 1.0, np.nan),
        cmap="Blues",
        vmin=0,
        vmax=4,
        interpolation="nearest",
    )
    height = shape[0] + _PIXEL_GAP
    ax.set_yticks(
        [height * i + shape[0] / 2 for i in range(3)], ["truth", "shown", "completed"]
    )
    ax.set_xticks([])
    said = "Rows never seen in training, completed from what was shown (blue: hidden)"
    finish(ax, title or said, "", "")
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return ax


def _coordinates(
    model: LatentVariableEstimator, dims: tuple[int, int]
) -> tuple[FloatArray, FloatArray, tuple[str, str]]:
    Z = model.embedding_
    std = model.embedding_std_
    if Z.shape[1] == 1:
        rows = np.arange(len(Z), dtype=float)
        return (
            np.column_stack([rows, Z[:, 0]]),
            np.column_stack([0 * rows, std[:, 0]]),
            ("row", "latent dimension 0"),
        )
    chosen = two_dimensions(dims, Z.shape[1])
    return (
        Z[:, chosen],
        std[:, chosen],
        (f"latent dimension {chosen[0]}", f"latent dimension {chosen[1]}"),
    )


def _ellipses(ax: Axes, Z: FloatArray, std: FloatArray, count: int) -> None:
    from matplotlib.collections import EllipseCollection, LineCollection

    rows = evenly_spread(len(Z), count)
    shown, of_rows = Z[rows], std[rows]
    # one latent dimension: the row number has no standard deviation
    if not std[:, 0].any():
        ends = list(np.stack([shown - of_rows, shown + of_rows], axis=1))
        lines = LineCollection(ends, colors=INK, linewidths=0.5, alpha=0.35)
        ax.add_collection(lines, autolim=False)
    else:
        drawn = EllipseCollection(
            2 * of_rows[:, 0],
            2 * of_rows[:, 1],
            np.zeros(len(rows)),
            units="xy",
            offsets=shown,
            offset_transform=ax.transData,
            facecolors="none",
            edgecolors=INK,
            linewidths=0.5,
            alpha=0.35,
        )
        ax.add_collection(drawn, autolim=False)
    # a row that may lie in several places has an ellipse of their distance: it is cut off rather
    # than make all others small
    most = np.minimum(of_rows, _FARTHEST * Z.std(axis=0))
    ax.update_datalim(np.vstack([shown - most, shown + most]))


def _strip(images: FloatArray, shape: tuple[int, int]) -> FloatArray:
    """Lay images side by side with NaN between and below them."""
    padded = np.full((len(images), shape[0] + _PIXEL_GAP, shape[1] + _PIXEL_GAP), np.nan)
    padded[:, : shape[0], : shape[1]] = images.reshape(-1, *shape)
    return np.concatenate(list(padded), axis=1)[:, :-_PIXEL_GAP]
