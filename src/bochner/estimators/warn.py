"""Warnings about data that a model can be fitted to, but that will disappoint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bochner.data.sparse import observed_rows
from bochner.errors import DataWarning, warn_user
from bochner.likelihoods.negative_binomial import LARGEST, LARGEST_POLYA_GAMMA

# Deviations of given latents beyond which maps are as embeddings of other libraries have them, not
# as the prior does.
_FAR = 3.0


def of_rank(shape: tuple[int, ...], n_components: int) -> None:
    """Warn of more latent dimensions than data of a shape (N, M) can have."""
    limit = min(shape[0] - 1, shape[1])
    if n_components > limit:
        warn_user(
            f"n_components={n_components} is above the rank the data can have ({limit}): "
            "the further dimensions can only repeat the prior.",
            DataWarning,
        )


def of_starts(starts: Iterable[str | NDArray[np.float64]]) -> None:
    """Warn of given latents, (N, D), that lie where the prior hardly is: training seldom gets back
    from there.
    """
    spreads = [
        float(start.std(axis=0).max(initial=0.0)) for start in starts if not isinstance(start, str)
    ]
    for spread in (own for own in spreads if own > _FAR):
        warn_user(
            f"init has a deviation of {spread:.3g}, where latents have about 1 under their prior: "
            "training from there "
            f"ends far below what it can reach. Divide the array by {spread:.3g}.",
            DataWarning,
        )


def of_dispersion(dispersion: Mapping[str, Any]) -> None:
    """Warn of a shared dispersion at its cap."""
    for view, learned in dispersion.items():
        caps = [
            cap
            for cap in (LARGEST, LARGEST_POLYA_GAMMA)
            if np.ndim(learned) == 0 and np.isclose(learned, cap)
        ]
        if caps:
            text = (
                f"The dispersion of view {view!r} reached {caps[0]:g}, its cap: its counts are "
                "as good as Poisson."
            )
            warn_user(f"{text} Use likelihood='poisson', which has a tighter bound.", DataWarning)


def of_empty(values: NDArray[Any]) -> None:
    """Warn of rows with nothing observed; zeros of a sparse matrix are observed."""
    empty = ~observed_rows(values)
    if empty.any():
        warn_user(
            f"{int(empty.sum())} row(s) with nothing observed (first: row {int(empty.argmax())}): "
            "they are placed at the prior, mean 0 and deviation 1.",
            DataWarning,
        )
