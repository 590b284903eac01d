"""Quick embeddings that starts are made of: principal components, and what follows neighbours.

Graph methods see the scaled data with missing entries filled; the libraries' code, not ours.
"""

from __future__ import annotations

import warnings

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse.linalg import svds
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE, Isomap, SpectralEmbedding

from bochner import random

FloatArray = NDArray[np.float64]

_NEIGHBOURS = 10
_PERPLEXITY = 30.0
# Neighbours are looked for in so many principal components: beyond them distances are mostly noise,
# and slow.
_NEIGHBOUR_SPACE = 50
# scikit-learn's Barnes-Hut trees know at most so many dimensions.
TSNE_DIMENSIONS = 3
# Steps of t-SNE, 250 of them exaggerated; scikit-learn takes 1,000. Training moves on from there:
# fits from 400 steps reach the bounds of fits from 1,000.
_TSNE_STEPS = 400


def noise(n_rows: int, n_components: int, seed: int) -> FloatArray:
    """Draw standard normal latents, (N, D)."""
    source = random.generator(seed, "start")
    noise: FloatArray = torch.randn(
        n_rows, n_components, generator=source, dtype=torch.float64
    ).numpy()
    return noise


def pca(filled: FloatArray, n_components: int, seed: int) -> FloatArray:
    """Return principal components in proportion; columns beyond the rank are 0."""
    n, m = filled.shape
    rank = min(n_components, n, m)
    centred = filled - filled.mean(axis=0)
    if rank >= min(n, m) - 1 or min(n, m) < 50:
        left, values, _ = np.linalg.svd(centred, full_matrices=False)
        left, values = left[:, :rank], values[:rank]
    else:
        first = np.random.Generator(np.random.PCG64(seed)).standard_normal(min(n, m))
        left, values, _ = svds(centred, k=rank, v0=first)
        left, values = left[:, ::-1], values[::-1]
    signs = np.sign(left[np.abs(left).argmax(axis=0), np.arange(rank)])
    out = np.zeros((n, n_components))
    out[:, :rank] = left * np.where(signs == 0, 1.0, signs) * values
    return out


def laplacian(filled: FloatArray, n_components: int, seed: int) -> FloatArray:
    """Return Laplacian eigenmaps, half on their own scale and half spread like a normal."""
    n = filled.shape[0]
    if n < n_components + 3:
        return pca(filled, n_components, seed)
    embedding = SpectralEmbedding(
        n_components,
        affinity="nearest_neighbors",
        n_neighbors=min(_NEIGHBOURS, n - 1),
        random_state=seed % 2**32,
    )
    with warnings.catch_warnings():
        # a disconnected graph still gives a usable start, and the bound decides whether it is kept
        warnings.simplefilter("ignore")
        latents: FloatArray = embedding.fit_transform(filled)
    # rank against a normal: a few far outliers would otherwise squeeze everyone else into one point
    order = latents.argsort(axis=0, kind="stable").argsort(axis=0, kind="stable")
    uniform = (order + 0.5) / n
    spread: FloatArray = torch.special.ndtri(torch.from_numpy(uniform)).numpy()
    plain: FloatArray = (latents - latents.mean(axis=0)) / np.maximum(latents.std(axis=0), 1e-300)
    return 0.5 * (spread + plain)


def isomap(filled: FloatArray, n_components: int, seed: int) -> FloatArray:
    """Return principal coordinates of the distances along the neighbour graph."""
    n = filled.shape[0]
    if n < n_components + 3:
        return pca(filled, n_components, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a disconnected graph is joined at its nearest points
        embedding = Isomap(
            n_components=n_components, n_neighbors=min(_NEIGHBOURS, n - 1), eigen_solver="dense"
        )
        latents: FloatArray = embedding.fit_transform(_neighbour_space(filled, seed))
    return latents


def tsne(filled: FloatArray, n_components: int, seed: int) -> FloatArray:
    """Return t-SNE from principal components: the dearest start, O(N log N) with a large factor; D
    <= 3.
    """
    n = filled.shape[0]
    if n < n_components + 3:
        return pca(filled, n_components, seed)
    first = pca(filled, n_components, seed)
    first = 1e-4 * (first / max(float(first.std()), 1e-300) + 1e-2 * noise(n, n_components, seed))
    perplexity = min(_PERPLEXITY, (n - 1) / 3)
    embedding = TSNE(
        n_components,
        perplexity=perplexity,
        init=first,
        max_iter=_TSNE_STEPS,
        random_state=seed % 2**32,
    )
    latents = embedding.fit_transform(_neighbour_space(filled, seed))
    return np.asarray(latents, dtype=np.float64)


def _neighbour_space(filled: FloatArray, seed: int) -> FloatArray:
    """Rows in few dimensions, of standard deviation about 1: squares of extreme units would
    overflow.
    """
    scaled = filled / max(float(np.abs(filled).max(initial=0.0)), 1e-300)
    scaled = scaled / max(float(scaled.std()), 1e-3)
    if min(filled.shape) <= _NEIGHBOUR_SPACE:
        return scaled
    space: FloatArray = PCA(
        _NEIGHBOUR_SPACE, svd_solver="randomized", random_state=seed % 2**32
    ).fit_transform(scaled)
    return space
