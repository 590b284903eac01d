"""Where training starts: latents from a quick embedding, kernels and noise to match.

Starts are compared by the bound on fresh draws, never by labels (EVALUATION: no labels in choices).
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse.linalg import svds
from sklearn.manifold import SpectralEmbedding

from bochner import random
from bochner.errors import InputError
from bochner.kernels.base import SpectralKernel
from bochner.likelihoods.base import Likelihood, LocalLikelihood
from bochner.likelihoods.gaussian import Gaussian
from bochner.models.latents import GaussianLatents
from bochner.models.lvm import LatentVariableModel, View
from bochner.models.sites import N_GROUPS, Sites
from bochner.objectives.elbo import Data
from bochner.objectives.statistics import Block

FloatArray = NDArray[np.float64]

STARTS = ("pca", "laplacian", "random")
# The fourth trains a model: see `fold`.
ALL_STARTS = (*STARTS, "fold")
_INITIAL_STD = 0.1
_NEIGHBOURS = 10


def start(name: str, filled: FloatArray, n_components: int, seed: int) -> FloatArray:
    """Compute one start.

    Parameters
    ----------
    name : {"pca", "laplacian", "random"}
    filled : ndarray of shape (N, M)
        Scaled data; missing entries hold their column's mean, 0 (as a start only: no bound ever sees them).
    n_components : int
        D.
    seed : int

    Returns
    -------
    ndarray of shape (N, D)
        Columns of mean 0 and deviation 1, the scale of the prior. Dimensions the data cannot fill are small noise.
    """
    if name == "pca":
        latents = _pca(filled, n_components, seed)
    elif name == "laplacian":
        latents = _laplacian(filled, n_components, seed)
    elif name == "random":
        latents = _noise(filled.shape[0], n_components, seed)
    else:
        raise InputError(f"Unknown start {name!r}. Use one of {list(STARTS)} or an array of shape (N, D).")
    return _standardise(latents, seed)


def components(filled: FloatArray, n_components: int, seed: int) -> FloatArray:
    """Return principal components in proportion, the first of deviation 1: what the folding start begins with."""
    latents = _pca(filled, n_components, seed)
    return latents / max(float(latents[:, 0].std()), 1e-300)


def folded(latents: FloatArray, seed: int) -> FloatArray:
    """Return latents that were folded, centred and with one scale for all dimensions."""
    centred = latents - latents.mean(axis=0)
    spread = float(centred.std())
    return centred / spread if spread > 0 else _standardise(latents, seed)


def _noise(n_rows: int, n_components: int, seed: int) -> FloatArray:
    source = random.generator(seed, "start")
    noise: FloatArray = torch.randn(n_rows, n_components, generator=source, dtype=torch.float64).numpy()
    return noise


def _standardise(latents: FloatArray, seed: int) -> FloatArray:
    spread = latents.std(axis=0)
    flat = spread < 1e-10 * max(1.0, float(spread.max(initial=0.0)))
    scaled = (latents - latents.mean(axis=0)) / np.where(flat, 1.0, spread)
    # a dimension without data starts near zero but not at it: there its gradient would vanish
    return np.where(flat, 0.1 * _noise(latents.shape[0], latents.shape[1], seed), scaled)


def _pca(filled: FloatArray, n_components: int, seed: int) -> FloatArray:
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


def _laplacian(filled: FloatArray, n_components: int, seed: int) -> FloatArray:
    n = filled.shape[0]
    if n < n_components + 3:
        return _pca(filled, n_components, seed)
    embedding = SpectralEmbedding(
        n_components, affinity="nearest_neighbors", n_neighbors=min(_NEIGHBOURS, n - 1), random_state=seed % 2**32
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


def model_from(
    latents: FloatArray,
    names: Sequence[str],
    kernels: Sequence[SpectralKernel],
    n_mixtures: int,
    seed: int,
    dtype: torch.dtype,
    device: torch.device,
    likelihoods: Sequence[Likelihood] | None = None,
    data: Data | None = None,
) -> LatentVariableModel:
    """Build a model at a start.

    Parameters
    ----------
    latents : ndarray of shape (N, D)
    names : sequence of str
        Of the views.
    kernels : sequence of SpectralKernel
        What each view's kernel is like; ``initial`` makes the one to train.
    n_mixtures : int
    seed : int
    dtype : torch.dtype
        Of the latents and so of every product over rows.
    device : torch.device
    likelihoods : sequence of Likelihood, optional
        At their start; None: Gaussian ones. Others than Gaussian need the data.
    data : tuple over views of tuples of Block, optional

    Returns
    -------
    LatentVariableModel
    """
    mean = torch.tensor(latents, dtype=dtype)
    posterior = GaussianLatents(mean, torch.full_like(mean, math.log(_INITIAL_STD)))
    views = []
    for v, (name, kernel) in enumerate(zip(names, kernels, strict=True)):
        own = kernel.initial(n_mixtures, mean.shape[1], random.generator(seed, f"kernel/{name}"))
        likelihood = None if likelihoods is None else likelihoods[v]
        if isinstance(likelihood, LocalLikelihood) and data is not None:
            learned = copy.deepcopy(likelihood).to(device)
            views.append(View(name, own, learned, _sites(learned, data[v][0])))
        else:
            views.append(View(name, own, Gaussian(0.3)))
    return LatentVariableModel(posterior, views).to(device)


def _sites(likelihood: LocalLikelihood, block: Block) -> Sites:
    seen = torch.ones_like(block.Y) if block.seen is None else block.seen
    offset = torch.zeros_like(block.Y[:, 0]) if block.offset is None else block.offset
    return Sites(likelihood, block.Y, seen, offset, 1 if likelihood.shares_curvature else N_GROUPS)
