"""Pictures of learned kernels; `bochner.plots` has them all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from bochner import metrics
from bochner.data.accepted import COUNT, checked
from bochner.data.arrays import FloatArray
from bochner.data.validation import numbers
from bochner.errors import InputError, message
from bochner.plots.figures import (
    COLOURS,
    INK,
    axes,
    figure,
    finish,
    given_or_made,
    quoted,
    two_dimensions,
)
from bochner.plots.labels import write_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from bochner.estimators.base import LatentVariableEstimator


# Components with a smaller share are not drawn; so many, the largest, are labelled.
_LEAST_SHARE = 0.005
_NAMED = 8
# Points of their labels, and from an ellipse to the middle of one.
_SMALL = 9.0
_ASIDE = 16.0
# Linear predictors by likelihood.
_PREDICTORS = {
    "bernoulli": "log odds",
    "binomial": "log odds",
    "categorical": "log odds",
    "negative_binomial": "log means",
    "poisson": "log means",
}


@checked(view=[str, None], n_points=[COUNT])
def learned_kernel(
    model: LatentVariableEstimator,
    view: str | None = None,
    ax: Axes | None = None,
    n_points: int = 120,
    *,
    cmap: str | None = None,
    title: str | None = None,
) -> Axes:
    """Draw a view's learned kernel between points along the dimension that matters most to it.

    Parameters
    ----------
    model : LatentVariableEstimator
        Fitted.
    view : str, optional
        Needed when there are several.
    ax : Axes, optional
    n_points : int, default=120
        Points from the 1st to the 99th percentile of the training rows; other dimensions stay at
        their mean.
    cmap : str, optional
        By default "Reds", or "RdBu_r" where covariances are negative.
    title : str, optional

    Returns
    -------
    Axes
        Bands parallel to the diagonal mean a stationary kernel; white is no covariance.
    """
    check_is_fitted(model)
    ax = ax or axes(5.6, 4.6)[0]
    name = list(model.views_)[model._view_index(view)]
    dim, places, K = kernel_slice(model, name, n_points)
    low, high = places[0], places[-1]
    limit = float(np.abs(K).max())
    signed = float(K.min()) < -0.02 * limit
    colours, least = ("RdBu_r", -limit) if signed else ("Reds", 0.0)
    image = ax.imshow(
        K,
        cmap=cmap or colours,
        vmin=least,
        vmax=limit,
        extent=(low, high, high, low),
        aspect="equal",
    )
    figure(ax).colorbar(image, ax=ax, label=covariance(model, name), shrink=0.85)
    label = f"latent dimension {dim}"
    finish(ax, title or f"Learned kernel of view {quoted(name)}", label, label)
    return ax


def kernel_slice(
    model: LatentVariableEstimator, view: str, n_points: int = 120
) -> tuple[int, FloatArray, FloatArray]:
    """Return a view's learned kernel between points along the dimension that matters most to it.

    Returns
    -------
    dim : int
    places : ndarray of shape (n_points,)
        From the 1st to the 99th percentile of the training rows; other dimensions stay at their
        mean.
    K : ndarray of shape (n_points, n_points)
    """
    dim = int(np.argmax(model.relevance_[model._view_index(view)]))
    low, high = np.quantile(model.embedding_[:, dim], (0.01, 0.99))
    Z = np.tile(model.embedding_.mean(axis=0), (n_points, 1))
    Z[:, dim] = np.linspace(low, high, n_points)
    return dim, np.linspace(low, high, n_points), model.kernel_matrix(Z, view=view)


@checked(view=[str, None])
def kernel_recovery(
    model: LatentVariableEstimator,
    true: ArrayLike,
    view: str | None = None,
    order: ArrayLike | None = None,
    axs: list[Axes] | None = None,
) -> list[Axes]:
    """Draw a view's learned kernel matrix of the training rows beside the true one, and their
    difference.

    Parameters
    ----------
    model : LatentVariableEstimator
        Fitted.
    true : array-like of shape (N, N)
        The kernel matrix of the noise-free process that the view was drawn from, training rows in
        order.
    view : str, optional
        Needed when there are several.
    order : array-like of shape (N,), optional
        Rows are sorted by this number, the position along a curve, say; by default by the first
        coordinate of the leading eigenvector of the true matrix.
    axs : list of three Axes, optional

    Returns
    -------
    list of Axes
        Learned, true, and learned minus true, with the relative error (Frobenius) and the one that
        is left after a constant is taken out of both: centred columns of data carry no constant.
        The three share one scale.

    Raises
    ------
    InputError
        ``true`` is not a symmetric matrix of the training rows, or ``order`` is not one number per
        row.
    """
    check_is_fitted(model)
    K = numbers("true", true)
    n = len(model.embedding_)
    if K.shape != (n, n) or not np.allclose(
        K, K.T, atol=1e-6 * max(1.0, float(np.abs(K).max(initial=0.0)))
    ):
        got = f"shape {K.shape}" if K.shape != (n, n) else "one that is not symmetric"
        raise InputError(
            message(f"a symmetric kernel matrix of the {n} training rows", got, "pass (N, N)")
        )
    key = np.linalg.eigh(K)[1][:, -1] if order is None else numbers("order", order)
    if key.shape != (n,):
        raise InputError(
            message(
                f"order of shape ({n},)", str(key.shape), "pass one number per training row"
            )
        )
    learned = np.asarray(model.kernel_matrix(model.embedding_, view=view), dtype=float)
    rows = np.argsort(key, kind="stable")
    error = metrics.relative_error(learned, K)
    centred = metrics.relative_error(_centred(learned), _centred(K))
    drawn = given_or_made(axs, 3, 12.6, 4.2)
    titles = (
        "Learned kernel",
        "True kernel",
        f"Difference: error {error:.2f}, without constants {centred:.2f}",
    )
    limit = float(max(np.abs(K).max(), np.abs(learned).max()))
    for ax, matrix, title in zip(drawn, (learned, K, learned - K), titles, strict=True):
        image = ax.imshow(
            matrix[np.ix_(rows, rows)],
            cmap="RdBu_r",
            vmin=-limit,
            vmax=limit,
            interpolation="nearest",
        )
        finish(
            ax, title, "training row, sorted", "training row, sorted" if ax is drawn[0] else ""
        )
    name = list(model.views_)[model._view_index(view)]
    figure(drawn[0]).colorbar(image, ax=drawn, label=covariance(model, name), shrink=0.8)
    return drawn


def covariance(model: LatentVariableEstimator, view: str) -> str:
    """Name what the kernel of a view is the covariance of."""
    likelihood = model.likelihood_[view]
    if likelihood == "gaussian":
        differ = model._units_differ(view)
        return "covariance of standardised columns" if differ else "covariance (data units²)"
    return f"covariance of {_PREDICTORS.get(likelihood, 'linear predictors')}"


def _centred(K: FloatArray) -> FloatArray:
    K = K - K.mean(axis=0)
    return np.asarray(K - K.mean(axis=1, keepdims=True))


@checked(view=[str, None])
def spectrum(
    model: LatentVariableEstimator,
    view: str | None = None,
    dims: tuple[int, int] | None = None,
    ax: Axes | None = None,
    *,
    title: str | None = None,
) -> Axes:
    """Draw the learned spectrum of a view: where the components of its kernel lie, how wide they
    are, their shares.

    Parameters
    ----------
    model : LatentVariableEstimator
        Fitted; its kernel of that view is a stationary spectral mixture, with or without a
        Dirichlet process.
    view : str, optional
        Needed when there are several.
    dims : (int, int), optional
        Latent dimensions to draw; by default the two that matter most to the view. With one latent
        dimension the spectral density is drawn instead.
    ax : Axes, optional
    title : str, optional

    Returns
    -------
    Axes
        Ellipses of one standard deviation, as dark as their component's share and drawn at its
        frequency and at minus that: the two are one wave. Components below half a percent are left
        out.

    Raises
    ------
    InputError
        The kernel has no such components, or ``dims`` are not two of the latent dimensions.
    """
    check_is_fitted(model)
    name = list(model.views_)[model._view_index(view)]
    share, means, scales = components(model.kernels_[name], name)
    n_dims = means.shape[1]
    ax = ax or axes(5.6, 5.0)[0]
    said = f"Spectrum of view {quoted(name)}: {len(share)} component{'s' if len(share) > 1 else ''}"
    unit = "frequency along latent dimension {} (radians per unit)"
    if n_dims == 1:
        _density(ax, share, means[:, 0], scales[:, 0])
        finish(ax, title or said, unit.format(0), "spectral density, share per frequency")
        return ax
    most = np.argsort(-model.relevance_[model._view_index(view)])[:2]
    shown = two_dimensions(sorted(most.tolist()) if dims is None else dims, n_dims)
    _component_ellipses(ax, share, means[:, shown], scales[:, shown])
    finish(ax, title or said, unit.format(shown[0]), unit.format(shown[1]))
    ax.set_aspect("equal", adjustable="datalim")
    names = [f"{100 * p:.0f} %" for p in share[:_NAMED]]
    # over its middle a name would hide a small ellipse
    right = (means[:, shown] + scales[:, shown] * (1.0, 0.0))[:_NAMED]
    write_names(ax, names, right, np.tile((_ASIDE, 0.0), (len(names), 1)), _SMALL)
    return ax


def components(
    kernel: Mapping[str, FloatArray], name: str
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return shares that sum to 1, means and scales of the components that matter, largest
    first.
    """
    weights = kernel.get("proportions", kernel.get("weights"))
    if (
        weights is None
        or not {"means", "scales"} <= set(kernel)
        or np.ndim(kernel["means"]) != 2
    ):
        got = f"the kernel of view {name!r} with {sorted(kernel)}"
        raise InputError(
            message("a kernel with mixture components", got, "fit SRFLVM or AdvisedRFLVM")
        )
    share = np.asarray(weights, dtype=float) / np.sum(weights)
    kept = np.argsort(-share, kind="stable")[: int((share >= _LEAST_SHARE).sum())]
    return share[kept], np.asarray(kernel["means"])[kept], np.asarray(kernel["scales"])[kept]


def _density(ax: Axes, share: FloatArray, mean: FloatArray, scale: FloatArray) -> None:
    reach = float((np.abs(mean) + 4 * scale).max())
    w = np.linspace(-reach, reach, 801)
    total = np.zeros_like(w)
    for i, (p, m, s) in enumerate(zip(share, mean, scale, strict=True)):
        waves = np.exp(-0.5 * ((w - m) / s) ** 2) + np.exp(-0.5 * ((w + m) / s) ** 2)
        density = 0.5 * p * waves / (s * np.sqrt(2 * np.pi))
        total += density
        ax.plot(
            w,
            density,
            color=COLOURS[i % len(COLOURS)],
            linewidth=1.2,
            label=f"{100 * p:.0f} %",
        )
    ax.plot(w, total, color=INK, linewidth=1.8, label="all")
    ax.legend(frameon=False, title="share")


def _component_ellipses(
    ax: Axes, share: FloatArray, means: FloatArray, scales: FloatArray
) -> None:
    from matplotlib.patches import Ellipse

    for i, (p, m, s) in enumerate(zip(share, means, scales, strict=True)):
        colour = COLOURS[i % len(COLOURS)]
        for sign in (1.0, -1.0):
            place = (float(sign * m[0]), float(sign * m[1]))
            depth = 0.15 + 0.6 * float(p / share.max())
            ax.add_patch(
                Ellipse(
                    place, 2 * s[0], 2 * s[1], facecolor=colour, edgecolor=colour, alpha=depth
                )
            )
    ends = np.vstack([means + 1.5 * scales, means - 1.5 * scales])
    ax.update_datalim(np.vstack([ends, -ends]))
    ax.autoscale_view()
    ax.axhline(0.0, color=INK, linewidth=0.4, zorder=0)
    ax.axvline(0.0, color=INK, linewidth=0.4, zorder=0)
