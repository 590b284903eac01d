"""Pictures of what a model makes of rows and places, and of its starts; `bochner.plots` has them
all.
"""

from __future__ import annotations

from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from bochner.data.accepted import COUNT, checked, pair
from bochner.data.arrays import FloatArray
from bochner.data.columns import dense_rows, evenly_spread, extremes
from bochner.data.covariates import of_rows
from bochner.data.row_sources import RowSource
from bochner.errors import InputError, message
from bochner.features.fourier import with_covariates
from bochner.memory import Memory
from bochner.plots.figures import (
    COLOURS,
    INK,
    THOUSANDS,
    axes,
    figure,
    finish,
    quoted,
    shortened,
    two_dimensions,
)
from bochner.prediction.decoding import decode
from bochner.processes.isolation import isolated

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from bochner.estimators.base import LatentVariableEstimator


# Of the axes beyond the data, as a share of their range.
_MARGIN = 0.05
# Entries that are drawn as points.
_SCATTERED = 5000
# Between images: no grey, which would be a pixel.
_GAP = "#d5e2ec"


def starts(
    model: LatentVariableEstimator,
    ax: Axes | None = None,
    *,
    title: str | None = None,
) -> Axes:
    """Draw the bound of every start before and after its race, the kept one in colour at the top.

    Starts of one name are told apart by whether they settled before the race or began as embedded.

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
    ax = ax or axes(6.4, 1.4 + 0.45 * len(model.starts_))[0]
    raced = sorted(model.starts_, key=lambda start: start["elbo"] - start.get("handicap", 0.0))
    for i, start in enumerate(raced):
        colour = COLOURS[0] if i == len(raced) - 1 else "#8a949c"
        ax.plot([start["elbo_start"], start["elbo"]], [i, i], color=colour, linewidth=2)
        ax.plot(
            start["elbo_start"], i, "o", color="white", markeredgecolor=colour, markersize=7
        )
        ax.errorbar(
            start["elbo"],
            i,
            xerr=start["elbo_se"],
            fmt="o",
            color=colour,
            markersize=7,
            capsize=3,
        )
    names = [start["init"] for start in raced]
    ax.set_yticks(
        range(len(raced)), [_said_of(start, names) for start in raced], parse_math=False
    )
    ax.set_ylim(-0.6, len(raced) - 0.4)
    ax.locator_params(axis="x", nbins=5)
    ax.xaxis.set_major_formatter(THOUSANDS)
    finish(ax, title or "Starts: bound before (open) and after the race", "bound (nats)", "")
    return ax


def _said_of(start: dict[str, Any], names: list[str]) -> str:
    """Return the label of a start: its name, how it began if another one has the same name, and the
    length of its race.
    """
    parts = [start["init"]]
    if names.count(start["init"]) > 1 and "settled" in start:
        parts.append("settled" if start["settled"] else "as embedded")
    if start["steps"]:
        parts.append(f"{start['steps']} steps")
    return ", ".join(parts)


@checked(view=[str, None], column=[Integral, str, None], n=[COUNT])
def decoded_grid(
    model: LatentVariableEstimator,
    view: str | None = None,
    shape: tuple[int, int] | None = None,
    column: int | str | None = None,
    dims: tuple[int, int] = (0, 1),
    n: int = 12,
    ax: Axes | None = None,
    *,
    cmap: str | None = None,
    title: str | None = None,
) -> Axes:
    """Walk through the latent plane: draw what the model decodes at the places of a grid.

    Parameters
    ----------
    model : LatentVariableEstimator
        Fitted, with at least two latent dimensions.
    view : str, optional
        Needed when there are several.
    shape : (int, int), optional
        Height and width of the view's images: an image is drawn at every place.
    column : int or str, optional
        Without a shape, one column of the view is drawn as colour, with lines of equal standard
        deviation (of categories: of the probability of another one): its number within the view or
        its name; by default the one that varies most for its scale.
    dims : (int, int), default=(0, 1)
        Latent dimensions of the plane; the others stay at their mean.
    n : int, default=12
        Places along each dimension (four times as many for a column).
    ax : Axes, optional
    cmap : str, optional
        By default "viridis", of images "gray_r".
    title : str, optional

    Returns
    -------
    Axes

    Raises
    ------
    InputError
        ``dims`` are not two of the latent dimensions, or shape or column are not of the view.
    """
    check_is_fitted(model)
    name, positions = _columns(model, view)
    dims = pair("dims", dims)
    if shape is not None:
        shape = _check_shape(shape, positions, name)
    size = 8 * (n if shape else 4 * n) ** 2 * model.n_features_in_
    Memory().check(size, f"a grid of {n:,} places along each dimension", "lower n")
    if shape is None:
        ax = ax or axes(6.4, 6.0)[0]
        said = _draw_column(ax, model, name, column, dims, 4 * n, cmap or "viridis")
    else:
        wide = float(np.sqrt(shape[1] / shape[0]))
        ax = ax or axes(*np.clip([6.4 * wide, 6.4 / wide], 2.5, 12.0))[0]
        _draw_images(ax, model, positions, shape, dims, n, cmap or "gray_r")
        said = f"View {quoted(name)} as decoded across the latent plane"
    finish(ax, title or said, f"latent dimension {dims[0]}", f"latent dimension {dims[1]}")
    return ax


def _draw_column(
    ax: Axes,
    model: LatentVariableEstimator,
    view: str,
    column: int | str | None,
    dims: tuple[int, int],
    n: int,
    cmap: str,
) -> str:
    """Draw what one column decodes to at n × n places, and return a title."""
    places, ends = _plane(model, dims, n)
    j = _column(model, view, model.views_[view], column, places)
    mean, std = (
        values[:, j].reshape(n, n)
        for values in model.inverse_transform(places, return_std=True)
    )
    labels = [str(label) for label in model._coding.labels().get(j, [])]
    nominal = model.likelihood_[view] == "categorical"
    # between two categories there is none
    smooth = "nearest" if nominal else "bilinear"
    shown: dict[str, Any] = {"cmap": cmap, "interpolation": smooth}
    binary = model.likelihood_[view] == "bernoulli"
    if labels and not binary:
        shown |= {"vmin": 0, "vmax": len(labels) - 1}
    image = ax.imshow(mean, origin="lower", extent=ends, aspect="auto", **shown)
    # what varies with a category is how probable another one is
    level = std**2 if nominal else std
    if np.ptp(level) > 0.01 * level.max():
        lines = ax.contour(level, extent=ends, colors="white", linewidths=0.8, levels=5)
        ax.clabel(lines, fontsize=7)
    name = shortened([_called(model, j)], 40)[0]
    bar = figure(ax).colorbar(image, ax=ax)
    if labels and binary:
        # a column of one label has no other
        bar.set_label(f"{name}: probability of {labels[-1]!r}", parse_math=False)
    else:
        bar.set_label(f"decoded {name}", parse_math=False)
        if labels:
            bar.set_ticks(range(len(labels)), labels=shortened(labels, 16), parse_math=False)
    of_lines = (
        "probability of another label"
        if nominal
        else "standard deviation of a new observation"
    )
    return f"{name} of view {quoted(view)}\nlines: {of_lines}"


def _draw_images(
    ax: Axes,
    model: LatentVariableEstimator,
    positions: NDArray[np.intp],
    shape: tuple[int, int],
    dims: tuple[int, int],
    n: int,
    cmap: str,
) -> None:
    """Draw the images of n × n places, one pixel apart, each over its place."""
    places, (left, right, bottom, top) = _plane(model, dims, n)
    # the second dimension grows upwards
    images = model.inverse_transform(places)[:, positions].reshape(n, n, *shape)[::-1]
    low, high = grey_levels(model, positions, images)
    apart = np.pad(images, ((0, 0), (0, 0), (0, 1), (0, 1)), constant_values=np.nan)
    height, width = shape[0] + 1, shape[1] + 1
    mosaic = apart.transpose(0, 2, 1, 3).reshape(n * height, n * width)[:-1, :-1]
    # of a pixel, in units of the latents
    across, up = (right - left) / (n * width), (top - bottom) / (n * height)
    ax.imshow(
        mosaic,
        cmap=cmap,
        extent=(left + across / 2, right - across / 2, bottom + up / 2, top - up / 2),
        aspect=across / up,
        interpolation="nearest",
        vmin=low,
        vmax=high,
    )
    ax.set_facecolor(_GAP)


@checked(view=[str, None], n=[COUNT])
def reconstructions(
    model: LatentVariableEstimator,
    X: ArrayLike | RowSource,
    view: str | None = None,
    shape: tuple[int, int] | None = None,
    n: int = 12,
    ax: Axes | None = None,
    *,
    size_factors: object = None,
    covariates: object = None,
    s: float = 8.0,
    cmap: str = "gray_r",
    title: str | None = None,
) -> Axes:
    """Draw rows beside what the model decodes at their places.

    Parameters
    ----------
    model : LatentVariableEstimator
        Fitted.
    X : array-like, scipy sparse matrix or row source of shape (rows, M)
        Rows, seen or not; NaN = missing. Without a shape all of them are held in memory.
    view : str, optional
        Needed when there are several.
    shape : (int, int), optional
        Height and width of the view's images: data above, decoded below. Without it every observed
        entry of the view is a point, decoded against observed, in standard deviations where each
        column has units of its own. R² is the share of the variance about the columns' means that
        is decoded; with units of their own the mean of the columns' R².
    n : int, default=12
        Images, spread evenly over the rows.
    ax : Axes, optional
    size_factors : array-like of shape (rows,), or dict of view to one, optional
        Of the rows, as in ``transform``: decoded are counts of rows of these sizes.
    covariates : DataFrame, Series, dict of name to values, or array, optional
        Of the rows, as in ``transform``.
    s : float, default=8
        Size of an entry's mark, points squared.
    cmap : str, default="gray_r"
        Of images.
    title : str, optional

    Returns
    -------
    Axes
    """
    check_is_fitted(model)
    name, positions = _columns(model, view)
    every = model._validate(X, reset=False)
    if shape is None:
        ax = ax or axes(5.2, 5.0)[0]
        rows = np.arange(every.shape[0])
        what = f"{len(rows):,} × {every.shape[1]:,} entries of a picture, held in memory"
        do = "pass some of the rows, such as X[:10_000]"
        Memory().check(8 * len(rows) * every.shape[1], what, do)
        values, decoded = _decoded(model, X, every, rows, size_factors, covariates)
        _draw_entries(ax, model, name, values[:, positions], decoded[:, positions], s, title)
        return ax
    shape = _check_shape(shape, positions, name)
    rows = evenly_spread(every.shape[0], n)
    values, decoded = _decoded(model, X, every, rows, size_factors, covariates)
    ax = ax or axes(max(0.8 * len(rows) + 1, 3), 2.4)[0]
    gap = np.full((len(rows), 2, *shape), np.nan)
    gap[:, 0] = values[:, positions].reshape(-1, *shape)
    gap[:, 1] = decoded[:, positions].reshape(-1, *shape)
    padded = np.pad(gap, ((0, 0), (0, 0), (0, 1), (0, 1)), constant_values=np.nan)
    picture = padded.transpose(1, 2, 0, 3).reshape(2 * (shape[0] + 1), -1)
    ends = extremes(every)
    low = float(np.nanmin(ends[0][positions]))
    high = float(np.nanmax(ends[1][positions]))
    ax.imshow(picture, cmap=cmap, vmin=low, vmax=high, interpolation="nearest")
    ax.set_yticks([shape[0] / 2, 1.5 * shape[0] + 1], ["data", "decoded"])
    ax.set_xticks([])
    said = f"Rows of view {quoted(name)} and what the model decodes at their places"
    finish(ax, title or said, "", "")
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return ax


@isolated
def _decoded(
    model: LatentVariableEstimator,
    X: object,
    every: FloatArray,
    rows: NDArray[np.intp],
    size_factors: object,
    covariates: object,
) -> tuple[FloatArray, FloatArray]:
    """Return some of the rows, dense, and what is decoded at their places, in original units."""
    beside = model._beside_all(X, every, covariates, size_factors)[rows]
    values = dense_rows(every, rows)
    offsets = model._offsets(values, of_rows(size_factors, rows))
    Z, _ = model._latents(values, offsets, beside, with_std=False)
    places = with_covariates(torch.from_numpy(Z).double(), beside)
    mean, _ = decode(model._fit.posterior, places, offsets=offsets)
    return values, model._unscale(mean)


def grey_levels(
    model: LatentVariableEstimator, columns: NDArray[np.intp], decoded: FloatArray
) -> tuple[float, float]:
    """Return what to draw white and black where only decoded images are there.

    Half a percent may lie beyond on either side; where no pixel has a mean below 0 the data hardly
    have values there, and what is decoded below is white.
    """
    low, high = (float(end) for end in np.quantile(decoded, (0.005, 0.995)))
    return max(low, 0.0) if model._scaling.centre[columns].min() >= 0 else low, high


def _columns(model: LatentVariableEstimator, view: str | None) -> tuple[str, NDArray[np.intp]]:
    name = list(model.views_)[model._view_index(view)]
    return name, model.views_[name]


def _called(model: LatentVariableEstimator, j: int) -> str:
    names = getattr(model, "feature_names_in_", None)
    return f"column {j}" if names is None else str(names[j])


def _column(
    model: LatentVariableEstimator,
    view: str,
    positions: NDArray[np.intp],
    column: int | str | None,
    places: FloatArray,
) -> int:
    if column is None:
        scale = model._scaling.scale[positions]
        decoded = model.inverse_transform(places)[:, positions] / scale
        return int(positions[np.argmax(decoded.var(axis=0))])
    names = [_called(model, int(j)) for j in positions]
    if isinstance(column, str) and column in names:
        return int(positions[names.index(column)])
    if isinstance(column, str) or not 0 <= column < len(positions):
        do = (
            "name one of its columns"
            if hasattr(model, "feature_names_in_")
            else "number it within the view"
        )
        raise InputError(
            message(f"a column of view {view!r}, which has {len(positions)}", repr(column), do)
        )
    return int(positions[column])


def _check_shape(
    shape: tuple[int, int], positions: NDArray[np.intp], view: str
) -> tuple[int, int]:
    shape = pair("shape", shape)
    if shape[0] * shape[1] != positions.size:
        got = f"{shape[0]} x {shape[1]} = {shape[0] * shape[1]}"
        want = f"a shape of {positions.size} pixels for view {view!r}"
        raise InputError(message(want, got, "give height and width of one image"))
    return shape


def _plane(
    model: LatentVariableEstimator, dims: tuple[int, int], n: int
) -> tuple[FloatArray, tuple[float, float, float, float]]:
    """Return places of shape (n², D), second dimension slowest, and the ends of the grid: left,
    right, bottom, top.
    """
    Z = model.embedding_
    if Z.shape[1] == 1:
        do = "draw its kernel, or fit with n_components=2"
        raise InputError(message("a model with two latent dimensions", "one of 1", do))
    chosen = two_dimensions(dims, Z.shape[1])
    low = Z[:, chosen].min(axis=0)
    high = Z[:, chosen].max(axis=0)
    # where all rows lie at one place too
    margin = _MARGIN * np.where(high > low, high - low, 1.0)
    low, high = low - margin, high + margin
    # every place is the middle of its image
    step = (high - low) / n
    first, second = (
        np.linspace(low[k] + step[k] / 2, high[k] - step[k] / 2, n) for k in (0, 1)
    )
    places = np.tile(Z.mean(axis=0), (n * n, 1))
    places[:, dims[0]] = np.tile(first, n)
    places[:, dims[1]] = np.repeat(second, n)
    return places, (float(low[0]), float(high[0]), float(low[1]), float(high[1]))


def _draw_entries(
    ax: Axes,
    model: LatentVariableEstimator,
    view: str,
    data: FloatArray,
    decoded: FloatArray,
    size: float,
    title: str | None,
) -> None:
    present = ~np.isnan(data)
    count = int(present.sum())
    if not count:
        do = "pass rows that are seen in part"
        raise InputError(message(f"observed entries of view {view!r}", "none", do))
    said = f"View {quoted(view)}, {count:,} entries\n{_agreement(model, view, data, decoded)}"
    unit = ""
    if model._units_differ(view):
        positions = model.views_[view]
        centre, scale = model._scaling.centre[positions], model._scaling.scale[positions]
        data, decoded = (data - centre) / scale, (decoded - centre) / scale
        unit = ", in standard deviations of the column"
    observed, made = data[present], decoded[present]
    kept = evenly_spread(count, _SCATTERED)
    ax.scatter(observed[kept], made[kept], s=size, color=COLOURS[0], alpha=0.5, linewidths=0)
    ends = [float(observed.min()), float(observed.max())]
    ax.plot(ends, ends, color=INK, linewidth=0.8)
    finish(ax, title or said, f"observed{unit}", f"decoded{unit}")


def _agreement(
    model: LatentVariableEstimator, view: str, data: FloatArray, decoded: FloatArray
) -> str:
    """Say how well entries that are there are decoded; nothing where no column varies."""
    observed = np.ma.masked_invalid(data)
    if model.likelihood_[view] == "categorical":
        return f"{100 * float((observed == decoded).mean()):.1f} % of labels right"
    varies = np.ma.filled(np.ma.ptp(observed, axis=0) > 0, False)
    if not varies.any():
        return ""
    observed = observed[:, varies]
    left = np.square(observed - decoded[:, varies]).sum(axis=0)
    total = np.square(observed - observed.mean(axis=0)).sum(axis=0)
    if model._units_differ(view):
        return f"mean R² of columns = {float((1 - left / total).mean()):.3f}"
    return f"R² = {1 - float(left.sum() / total.sum()):.3f}"
