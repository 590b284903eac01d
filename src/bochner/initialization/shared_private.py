"""Starts of models with private latents: what the views have in common first, then what it leaves
of each.

The common part is found by generalised canonical correlation (MAXVAR) of the views' principal
components: directions that every view contains keep their weight, those of a single view lose it.
An embedding of the common parts starts the shared latents; what neighbours there do not predict of
a view starts its private ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sklearn.neighbors import KNeighborsRegressor

from bochner.data.arrays import Float64Array
from bochner.initialization import embeddings
from bochner.initialization.embeddings import components, start
from bochner.models.lvm import Layout

# Principal components that may be common: this share of a view's squares, at most so many, one in
# so many rows.
_SHARE = 0.99
_MOST = 40
_ROWS_EACH = 10
_NEIGHBOURS = 15


def split_start(
    name: str, views: Sequence[Float64Array], layout: Layout, seed: int
) -> Float64Array:
    """Compute a start of shared and private latents.

    Parameters
    ----------
    name : str
        The embedding of the common parts, as in ``start``.
    views : sequence of ndarray of shape (N, M_v)
        Scaled data, missing entries at 0.
    layout : Layout
    seed : int

    Returns
    -------
    ndarray of shape (N, D)
        Columns of mean 0 and standard deviation 1.
    """
    common = np.hstack(common_parts(views, seed))
    shared = start(name, common, layout.shared, seed)
    pairs = zip(views, layout.private, strict=True)
    private = [_private_start(name, view, shared, n, seed) for view, n in pairs if n]
    return np.hstack([shared, *private])


def _private_start(
    name: str, view: Float64Array, shared: Float64Array, n_private: int, seed: int
) -> Float64Array:
    """Return a start of a view's private latents, (N, d_v).

    The leading components of what is unexplained may be even functions of a private latent, which
    would fold it. The starts that follow neighbours therefore unroll the view as a whole first, in
    shared and private dimensions.
    """
    if name == "random":
        return start("random", view, n_private, seed)
    if name == "pca":
        return start("pca", unexplained(view, shared), n_private, seed)
    unrolled = start("isomap", view, shared.shape[1] + n_private, seed)
    left = unexplained(unrolled, shared)
    absent = (view == 0.0).all(axis=1, keepdims=True)
    return start("pca", np.where(absent, 0.0, left), n_private, seed)


def wide_start(
    views: Sequence[Float64Array], layout: Layout, extra: int, seed: int
) -> tuple[Float64Array, Layout]:
    """Return what a folding start begins with: principal components in proportion, more of them,
    and their layout.

    Parameters
    ----------
    views : sequence of ndarray of shape (N, M_v)
    layout : Layout
    extra : int
        Further shared dimensions, and further private ones of every view that has any.
    seed : int

    Returns
    -------
    latents : ndarray of shape (N, E)
    layout : Layout
        Its first shared and first private dimensions are those that stay.
    """
    n_shared = layout.shared + extra
    private = tuple(n + extra if n else 0 for n in layout.private)
    common = np.hstack(common_parts(views, seed))
    shared = start("pca", common, layout.shared, seed)
    parts = [components(common, n_shared, seed)]
    for view, n_private in zip(views, private, strict=True):
        if n_private:
            left = unexplained(view, shared)
            parts.append(components(left, n_private, seed))
    return np.hstack(parts), Layout(n_shared, private)


def common_parts(views: Sequence[Float64Array], seed: int) -> list[Float64Array]:
    """Return every view's projection on what all views contain, each direction weighted by its
    squared correlation.

    The left singular vectors of the views' orthonormal principal components side by side maximise
    the sum of squared correlations with all views; a squared singular value is 1 where one view
    alone contains the direction and V where all do, so that (s^2 - 1) / (V - 1) is the mean
    correlation.
    """
    bases = [_basis(view, seed) for view in views]
    left, correlation = _correlations(bases)
    # what views whose rows have nothing to do with each other would have in common
    source = np.random.Generator(np.random.PCG64(seed))
    permuted = [source.permutation(basis) for basis in bases]
    _, by_chance = _correlations(permuted)
    chance = float(by_chance[0])
    above = (correlation - chance) / max(1.0 - chance, 1e-6)
    weight = np.clip(above, 0.0, 1.0)
    weighted = left * np.square(weight)
    return [weighted @ (left.T @ view) for view in views]


def _correlations(bases: Sequence[Float64Array]) -> tuple[Float64Array, Float64Array]:
    """Return directions in the space of rows, (N, r), and the mean correlation of each with the
    views, descending.
    """
    left, values, _ = np.linalg.svd(np.hstack(bases), full_matrices=False)
    correlation = (np.square(values) - 1.0) / (len(bases) - 1)
    return left, np.clip(correlation, 0.0, 1.0)


def _basis(view: Float64Array, seed: int) -> Float64Array:
    """Return orthonormal principal components, (N, r)."""
    n_rows, n_columns = view.shape
    most = max(1, min(_MOST, n_columns, n_rows // _ROWS_EACH))
    scores = embeddings.pca(view, most, seed)
    squares = np.square(scores).sum(axis=0)
    centred = view - view.mean(axis=0)
    total = max(float(np.square(centred).sum()), 1e-300)
    enough = int(np.searchsorted(squares.cumsum(), _SHARE * total)) + 1
    rank = max(1, min(most, enough))
    lengths = np.sqrt(np.maximum(squares[:rank], 1e-300))
    basis: Float64Array = scores[:, :rank] / lengths
    return basis


def unexplained(view: Float64Array, shared: Float64Array) -> Float64Array:
    """Return a view without what neighbours in the shared latents predict, (N, M_v); 0 in rows that
    lack the view.
    """
    neighbours = KNeighborsRegressor(min(_NEIGHBOURS, len(view)))
    neighbours.fit(shared, view)
    left: Float64Array = view - neighbours.predict(shared)
    absent = (view == 0.0).all(axis=1, keepdims=True)
    return np.where(absent, 0.0, left)
