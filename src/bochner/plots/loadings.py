"""Pictures of what drives latent dimensions; `bochner.plots` has them all."""

from __future__ import annotations

from numbers import Integral
from typing import TYPE_CHECKING

import numpy as np
from sklearn.utils.validation import check_is_fitted

from bochner.data.accepted import checked
from bochner.data.arrays import FloatArray
from bochner.errors import InputError, message
from bochner.plots.figures import axes, figure, finish, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from bochner.estimators.base import LatentVariableEstimator

# Shares from here on are written in white.
_DARK = 0.6
# Inches of a letter of a name; a title is a tenth larger.
_LETTER = 0.085


@checked(n=[Integral])
def loadings(
    model: LatentVariableEstimator,
    n: int = 5,
    ax: Axes | None = None,
    *,
    cmap: str = "Blues",
    title: str | None = None,
) -> Axes:
    """Draw the columns that each latent dimension drives most.

    Shown is the share of a column's variance that is lost when the dimension is not known.

    Parameters
    ----------
    model : LatentVariableEstimator
        Fitted.
    n : int, default=5
        Columns of each dimension; those of the first dimension come first. Names of more than 40
        letters are shortened: ``model.loadings(as_frame=True)`` has them.
    ax : Axes, optional
    cmap : str, default="Blues"
        Colours of 0 to 100 %; larger shares, of columns that the other dimensions alone predict
        worse than their mean does, have the colour of 100 %.
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
    short = shortened((names[j] for j in rows), 40)
    said = title or "Column variance lost without a dimension"
    if ax is None:
        # names stand left of the cells, the title begins above them
        left = 0.6 + _LETTER * max(len(name) for name in short)
        width = left + max(1.2 + 0.6 * shares.shape[1], 1.1 * _LETTER * len(said) + 0.2)
        ax = axes(width, 1.2 + 0.28 * len(rows))[0]
    image = ax.imshow(shares[rows], cmap=cmap, vmin=0.0, vmax=1.0, aspect="auto")
    for i, j in enumerate(rows):
        for d, share in enumerate(shares[j]):
            colour = "white" if share > _DARK else "black"
            text = f"{100 * share:.0f}"
            ax.annotate(text, (d, i), ha="center", va="center", fontsize=8, color=colour)
    ax.set_xticks(range(shares.shape[1]))
    ax.set_yticks(range(len(rows)), short, parse_math=False)
    extend = "max" if shares[rows].max() > 1.0 else "neither"
    bar = figure(ax).colorbar(image, ax=ax, extend=extend)
    bar.ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    finish(ax, said, "latent dimension", "column")
    return ax


def leading(shares: FloatArray, n: int) -> list[int]:
    """Return the n columns of each dimension with the largest shares, each once."""
    order = np.argsort(-shares, axis=0, kind="stable")[:n]
    return list(dict.fromkeys(int(j) for j in order.T.ravel()))
