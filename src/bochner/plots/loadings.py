"""Pictures of what drives latent dimensions; `bochner.plots` has them all."""

from __future__ import annotations

from numbers import Integral
from typing import TYPE_CHECKING

import numpy as np
from sklearn.utils.validation import check_is_fitted

from bochner.data.accepted import checked
from bochner.data.arrays import FloatArray
from bochner.errors import InputError, message
from bochner.plots.figures import axes, figure, finish

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from bochner.estimators.base import LatentVariableEstimator

# Shares from here on are written in white.
_DARK = 0.6


@checked(n=[Integral])
def loadings(
    model: LatentVariableEstimator,
    n: int = 5,
    ax: Axes | None = None,
    *,
    cmap: str = "Blues",
    title: str | None = None,
) -> Axes:
    """Draw the columns that each latent dimension drives most, with the shares of their variance.

    Parameters
    ----------
    model : LatentVariableEstimator
        Fitted.
    n : int, default=5
        Columns of each dimension; those of the first dimension come first.
    ax : Axes, optional
    cmap : str, default="Blues"
        Colours of 0 to 100 %.
    title : str, optional

    Returns
    -------
    Axes

    Raises
    ------
    InputError
        ``n`` is less than one.
    """
    check_is_fitted(model)
    if n < 1:
        raise InputError(message("n of at least 1", str(n), "ask for 5 columns a dimension"))
    shares = model.loadings()
    rows = leading(shares, n)
    names = getattr(model, "feature_names_in_", np.arange(len(shares)))
    ax = ax or axes(2.6 + 0.7 * shares.shape[1], 1.2 + 0.28 * len(rows))[0]
    image = ax.imshow(shares[rows], cmap=cmap, vmin=0.0, vmax=1.0, aspect="auto")
    for i, j in enumerate(rows):
        for d, share in enumerate(shares[j]):
            colour = "white" if share > _DARK else "black"
            text = f"{100 * share:.0f}"
            ax.annotate(text, (d, i), ha="center", va="center", fontsize=8, color=colour)
    ax.set_xticks(range(shares.shape[1]))
    ax.set_yticks(range(len(rows)), [str(names[j]) for j in rows], parse_math=False)
    bar = figure(ax).colorbar(image, ax=ax)
    bar.ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    finish(ax, title or "Share of each column's variance", "latent dimension", "column")
    return ax


def leading(shares: FloatArray, n: int) -> list[int]:
    """Return the n columns of each dimension with the largest shares, each once."""
    order = np.argsort(-shares, axis=0, kind="stable")[:n]
    return list(dict.fromkeys(int(j) for j in order.T.ravel()))
