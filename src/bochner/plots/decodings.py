"""Pictures of what a model makes of rows and places, and of its starts; `bochner.plots` has them
all.
"""

from __future__ import annotations

from numbers import Integral
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from bochner.data.accepted import COUNT, checked, pair
from bochner.data.arrays import FloatArray
from bochner.data.columns import evenly_spread
from bochner.data.validation import numbers
from bochner.errors import InputError, message
from bochner.memory import Memory
from bochner.plots.figures import COLOURS, INK, axes, figure, finish

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from bochner.estimators.base import LatentVariableEstimator


# Of the axes beyond the data, as a share of their range.
_MARGIN = 0.05
# Entries that are drawn as points.
_SCATTERED = 5000


def starts(
    model: LatentVariableEstimator,
    ax: Axes | None = None,
    *,
    title: str | None = None,
) -> Axes:
    """Draw the bound of every start before and after its race, the kept one first in colour.

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
    raced = sorted(model.starts_, key=lambda start: start["elbo"])
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
    steps = [f", {start['steps']} steps" if start["steps"] else "" for start in raced]
    ax.set_yticks(
        range(len(raced)),
        [f"{of_start['init']}{text}" for of_start, text in zip(raced, steps, strict=True)],
        parse_math=False,
    )
    ax.set_ylim(-0.6, len(raced) - 0.4)
    ax.locator_params(axis="x", nbins=5)
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    finish(ax, title or "Starts: bound before (open) and after the race", "bound (nats)", "")
    return ax


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
        deviation: its number within the view or its name; by default the one that varies most.
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
    ax = ax or axes(6.4, 6.0)[0]
    places, ends = _plane(model, dims, n if shape else 4 * n)
    if shape is None:
        j = _column(model, name, positions, column, places)
        mean, std = (
            values[:, j].reshape(4 * n, 4 * n)
            for values in model.inverse_transform(places, return_std=True)
        )
        image = ax.imshow(
            mean,
            origin="lower",
            extent=ends,
            aspect="auto",
            cmap=cmap or "viridis",
            interpolation="bilinear",
        )
        if np.ptp(std) > 0.01 * std.max():
            lines = ax.contour(std, extent=ends, colors="white", linewidths=0.8, levels=5)
            ax.clabel(lines, fontsize=7)
        label = _called(model, j)
        bar = figure(ax).colorbar(image, ax=ax)
        bar.set_label(f"decoded {label}", parse_math=False)
        said = f"{label} of view {name!r}; lines: standard deviation of a new observation"
    else:
        images = model.inverse_transform(places)[:, positions].reshape(n, n, *shape)[::-1]
        mosaic = images.transpose(0, 2, 1, 3).reshape(n * shape[0], n * shape[1])
        low, high = grey_levels(model, positions, mosaic)
        ax.imshow(
            mosaic,
            cmap=cmap or "gray_r",
            extent=ends,
            aspect="auto",
            interpolation="nearest",
            vmin=low,
            vmax=high,
        )
        said = f"View {name!r} as decoded across the latent plane"
    finish(ax, title or said, f"latent dimension {dims[0]}", f"latent dimension {dims[1]}")
    return ax


@checked(view=[str, None], n=[COUNT])
def reconstructions(
    model: LatentVariableEstimator,
    X: ArrayLike,
    view: str | None = None,
    shape: tuple[int, int] | None = None,
    n: int = 12,
    ax: Axes | None = None,
    *,
    s: float = 8.0,
    cmap: str = "gray_r",
    title: str | None = None,
) -> Axes:
    """Draw rows beside what the model decodes at their places.

    Parameters
    ----------
    model : LatentVariableEstimator
        Fitted.
    X : array-like of shape (rows, M)
        Rows, seen or not; NaN = missing.
    view : str, optional
        Needed when there are several.
    shape : (int, int), optional
        Height and width of the view's images: data above, decoded below. Without it every observed
        entry of the view is a point, decoded against observed.
    n : int, default=12
        Images, spread evenly over the rows.
    ax : Axes, optional
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
    values = numbers("X", model._coding.encode(X))
    if shape is None:
        ax = ax or axes(5.2, 5.0)[0]
        decoded = model.inverse_transform(model.transform(X))[:, positions]
        _scatter_entries(ax, values[:, positions], np.asarray(decoded, dtype=float), name, s)
        if title:
            finish(ax, title, "observed", "decoded")
        return ax
    shape = _check_shape(shape, positions, name)
    rows = evenly_spread(len(values), n)
    some = X.iloc[rows] if hasattr(X, "iloc") else values[rows].astype(model.embedding_.dtype)
    decoded = model.inverse_transform(model.transform(some))[:, positions]
    ax = ax or axes(max(0.8 * len(rows) + 1, 3), 2.4)[0]
    gap = np.full((len(rows), 2, *shape), np.nan)
    gap[:, 0] = values[rows][:, positions].reshape(-1, *shape)
    gap[:, 1] = decoded.reshape(-1, *shape)
    padded = np.pad(gap, ((0, 0), (0, 0), (0, 1), (0, 1)), constant_values=np.nan)
    picture = padded.transpose(1, 2, 0, 3).reshape(2 * (shape[0] + 1), -1)
    low = np.nanmin(values[:, positions])
    high = np.nanmax(values[:, positions])
    ax.imshow(picture, cmap=cmap, vmin=low, vmax=high, interpolation="nearest")
    ax.set_yticks([shape[0] / 2, 1.5 * shape[0] + 1], ["data", "decoded"])
    ax.set_xticks([])
    said = f"Rows of view {name!r} and what the model decodes at their places"
    finish(ax, title or said, "", "")
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return ax


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
        return int(
            positions[np.argmax(model.inverse_transform(places)[:, positions].var(axis=0))]
        )
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
    if dims[0] == dims[1] or not all(0 <= d < Z.shape[1] for d in dims):
        raise InputError(
            message(
                f"two dimensions from 0 to {Z.shape[1] - 1}", f"dims={dims}", "correct them"
            )
        )
    low = Z[:, list(dims)].min(axis=0)
    high = Z[:, list(dims)].max(axis=0)
    low, high = low - _MARGIN * (high - low), high + _MARGIN * (high - low)
    # every place is the middle of its image
    step = (high - low) / n
    first, second = (
        np.linspace(low[k] + step[k] / 2, high[k] - step[k] / 2, n) for k in (0, 1)
    )
    places = np.tile(Z.mean(axis=0), (n * n, 1))
    places[:, dims[0]] = np.tile(first, n)
    places[:, dims[1]] = np.repeat(second, n)
    return places, (float(low[0]), float(high[0]), float(low[1]), float(high[1]))


def _scatter_entries(
    ax: Axes, data: FloatArray, decoded: FloatArray, view: str, size: float
) -> None:
    present = ~np.isnan(data)
    observed = data[present]
    made = decoded[present]
    if not observed.size:
        do = "pass rows that are seen in part"
        raise InputError(message(f"observed entries of view {view!r}", "none", do))
    kept = evenly_spread(len(observed), _SCATTERED)
    ax.scatter(observed[kept], made[kept], s=size, color=COLOURS[0], alpha=0.5, linewidths=0)
    ends = [float(observed.min()), float(observed.max())]
    ax.plot(ends, ends, color=INK, linewidth=0.8)
    share = 1 - float(
        ((observed - made) ** 2).sum() / ((observed - observed.mean()) ** 2).sum()
    )
    finish(
        ax,
        f"View {view!r}: R² = {share:.3f} over {len(observed):,} entries",
        "observed",
        "decoded",
    )
