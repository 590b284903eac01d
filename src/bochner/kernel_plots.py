"""Pictures of learned kernels; `bochner.plots` has them all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bochner import metrics
from bochner.errors import InputError, message
from bochner.figures import axes, figure, finish

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FloatArray = NDArray[np.floating[Any]]


def learned_kernel(model: Any, view: str | None = None, ax: Axes | None = None, n_points: int = 120) -> Axes:
    """Draw a view's learned kernel between points along the dimension that matters most to it.

    Parameters
    ----------
    model : LatentVariableEstimator
        Fitted.
    view : str, optional
        Needed when there are several.
    ax : Axes, optional
    n_points : int, default=120
        Points from the 1st to the 99th percentile of the training rows; other dimensions stay at their mean.

    Returns
    -------
    Axes
        Bands parallel to the diagonal mean a stationary kernel; white is no covariance.
    """
    ax = ax or axes(5.6, 4.6)[0]
    index = model._view_index(view)
    name = list(model._columns)[index]
    dim = int(np.argmax(model.relevance_[index]))
    low, high = np.quantile(model.embedding_[:, dim], (0.01, 0.99))
    Z = np.tile(model.embedding_.mean(axis=0), (n_points, 1))
    Z[:, dim] = np.linspace(low, high, n_points)
    K = model.kernel_matrix(Z, view=name)
    limit = float(np.abs(K).max())
    signed = float(K.min()) < -0.02 * limit
    colours, least = ("RdBu_r", -limit) if signed else ("Reds", 0.0)
    image = ax.imshow(K, cmap=colours, vmin=least, vmax=limit, extent=(low, high, high, low), aspect="equal")
    figure(ax).colorbar(image, ax=ax, label="covariance (data units²)", shrink=0.85)
    label = f"latent dimension {dim}"
    finish(ax, f"Learned kernel of view {name!r}", label, label)
    return ax


def kernel_recovery(
    model: Any, true: ArrayLike, view: str | None = None, order: ArrayLike | None = None, axs: list[Axes] | None = None
) -> list[Axes]:
    """Draw a view's learned kernel matrix of the training rows beside the true one, and their difference.

    Parameters
    ----------
    model : LatentVariableEstimator
        Fitted.
    true : array-like of shape (N, N)
        The kernel matrix of the noise-free process that the view was drawn from, training rows in order.
    view : str, optional
        Needed when there are several.
    order : array-like of shape (N,), optional
        Rows are sorted by this number, the position along a curve, say; by default by the first coordinate of the
        leading eigenvector of the true matrix.
    axs : list of three Axes, optional

    Returns
    -------
    list of Axes
        Learned, true, and learned minus true, with the relative error (Frobenius) and the one that is left after a
        constant is taken out of both: centred columns of data carry no constant. The three share one scale.

    Raises
    ------
    InputError
        ``true`` is not a symmetric matrix of the training rows, or ``order`` is not one number per row.
    """
    K = np.asarray(true, dtype=float)
    n = len(model.embedding_)
    if K.shape != (n, n) or not np.allclose(K, K.T, atol=1e-6 * max(1.0, float(np.abs(K).max(initial=0.0)))):
        got = f"shape {K.shape}" if K.shape != (n, n) else "one that is not symmetric"
        raise InputError(message(f"a symmetric kernel matrix of the {n} training rows", got, "pass (N, N)"))
    key = np.linalg.eigh(K)[1][:, -1] if order is None else np.asarray(order, dtype=float)
    if key.shape != (n,):
        raise InputError(message(f"order of shape ({n},)", str(key.shape), "pass one number per training row"))
    learned = np.asarray(model.kernel_matrix(model.embedding_, view=view), dtype=float)
    rows = np.argsort(key, kind="stable")
    error, centred = metrics.relative_error(learned, K), metrics.relative_error(_centred(learned), _centred(K))
    axs = axs or axes(12.6, 4.2, 3)
    titles = ("Learned kernel", "True kernel", f"Difference: error {error:.2f}, without constants {centred:.2f}")
    limit = float(max(np.abs(K).max(), np.abs(learned).max()))
    for ax, matrix, title in zip(axs, (learned, K, learned - K), titles, strict=True):
        image = ax.imshow(matrix[np.ix_(rows, rows)], cmap="RdBu_r", vmin=-limit, vmax=limit, interpolation="nearest")
        finish(ax, title, "training row, sorted", "training row, sorted" if ax is axs[0] else "")
    figure(axs[0]).colorbar(image, ax=axs, label="covariance (data units²)", shrink=0.8)
    return axs


def _centred(K: FloatArray) -> FloatArray:
    K = K - K.mean(axis=0)
    return np.asarray(K - K.mean(axis=1, keepdims=True))
