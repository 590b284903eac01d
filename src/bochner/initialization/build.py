"""Where training starts: latents from a quick embedding, kernels and noise to match.

Starts are compared by the bound on fresh draws, never by labels (EVALUATION: no labels in choices).
"""

from __future__ import annotations

import copy
import functools
import math
import warnings
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse.linalg import svds
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE, Isomap, SpectralEmbedding

from bochner import random
from bochner.data.covariates import Covariates
from bochner.errors import InputError, message
from bochner.initialization.neighbour_embedding import MOST_ROWS, embed
from bochner.likelihoods.gaussian import Gaussian
from bochner.likelihoods.nonconjugate import Likelihood, NonConjugateLikelihood
from bochner.models.lvm import GaussianLatents, LatentVariableModel, ModelSpec, View
from bochner.models.sites import N_GROUPS, Sites
from bochner.regression.observations import Block, Data, EncodedBlock, encoded_block

_NEIGHBOURS = 10
_PERPLEXITY = 30.0
# Neighbours are looked for in so many principal components: beyond them distances are mostly noise,
# and slow.
_NEIGHBOUR_SPACE = 50
# scikit-learn's Barnes-Hut trees know at most so many dimensions.
TSNE_DIMENSIONS = 3
# Steps of t-SNE by trees, 250 of them exaggerated; scikit-learn takes 1,000. Training moves on from
# there: fits from 400 steps reach the bounds of fits from 1,000.
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
        left = left[:, :rank]
        values = values[:rank]
    else:
        first = np.random.Generator(np.random.PCG64(seed)).standard_normal(min(n, m))
        left, values, _ = svds(centred, k=rank, v0=first)
        left = left[:, ::-1]
        values = values[::-1]
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
    plain: FloatArray = (latents - latents.mean(axis=0)) / np.maximum(
        latents.std(axis=0), 1e-300
    )
    return 0.5 * (spread + plain)


def isomap(filled: FloatArray, n_components: int, seed: int) -> FloatArray:
    """Return principal coordinates of the distances along the neighbour graph."""
    n = filled.shape[0]
    if n < n_components + 3:
        return pca(filled, n_components, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a disconnected graph is joined at its nearest points
        embedding = Isomap(
            n_components=n_components,
            n_neighbors=min(_NEIGHBOURS, n - 1),
            eigen_solver="dense",
        )
        latents: FloatArray = embedding.fit_transform(_neighbour_space(filled, seed))
    return latents


def tsne(filled: FloatArray, n_components: int, seed: int) -> FloatArray:
    """Return t-SNE from principal components, D <= 3: by exact gradients up to some thousand rows,
    then by trees, O(N log N).
    """
    n = filled.shape[0]
    if n < n_components + 3:
        return pca(filled, n_components, seed)
    first = pca(filled, n_components, seed)
    first = 1e-4 * (
        first / max(float(first.std()), 1e-300) + 1e-2 * noise(n, n_components, seed)
    )
    perplexity = min(_PERPLEXITY, (n - 1) / 3)
    if n <= MOST_ROWS:
        return embed(_neighbour_space(filled, seed), first, perplexity)
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


FloatArray = NDArray[np.float64]

_EMBEDDINGS: dict[str, Callable[[FloatArray, int, int], FloatArray]] = {
    "pca": pca,
    "laplacian": laplacian,
    "isomap": isomap,
    "tsne": tsne,
}
STARTS = (*_EMBEDDINGS, "random")
# Two dimensions of an embedding, the others near 0: where the data have no more, the bound leaves
# them there, and from an embedding into all of them it does not find back.
NARROW_STARTS = {"laplacian-2": "laplacian", "tsne-2": "tsne"}
N_NARROW = 2
# The last trains a model: see `fold`.
ALL_STARTS = (*STARTS, *NARROW_STARTS, "fold")
_INITIAL_STD = 0.1
_INITIAL_NOISE = 0.3


def start(name: str, filled: FloatArray, n_components: int, seed: int) -> FloatArray:
    """Compute one start.

    Parameters
    ----------
    name : {"pca", "laplacian", "isomap", "tsne", "random", "laplacian-2", "tsne-2"}
    filled : ndarray of shape (N, M)
        Scaled data; missing entries are filled (as a start only: no bound of the data ever sees
        them).
    n_components : int
        D.
    seed : int

    Returns
    -------
    ndarray of shape (N, D)
        Columns of mean 0 and standard deviation 1, the scale of the prior. Dimensions the data
        cannot fill are small noise.
    """
    if name in NARROW_STARTS:
        latents = np.zeros((filled.shape[0], n_components))
        width = min(N_NARROW, n_components)
        latents[:, :width] = start(NARROW_STARTS[name], filled, width, seed)
        return _standardise(latents, seed)
    if name == "tsne" and n_components > TSNE_DIMENSIONS:
        got = f"n_components={n_components}"
        hint = "choose another init"
        raise InputError(
            message(f"n_components of at most {TSNE_DIMENSIONS} for init='tsne'", got, hint)
        )
    if name == "random":
        latents = noise(filled.shape[0], n_components, seed)
    elif name in _EMBEDDINGS:
        latents = _EMBEDDINGS[name](filled, n_components, seed)
    else:
        raise InputError(
            f"Unknown start {name!r}. Use one of {list(STARTS)} or an array of shape (N, D)."
        )
    return _standardise(latents, seed)


def components(filled: FloatArray, n_components: int, seed: int) -> FloatArray:
    """Return principal components in proportion, the first of standard deviation 1: what the
    folding start begins with.
    """
    latents = pca(filled, n_components, seed)
    return latents / max(float(latents[:, 0].std()), 1e-300)


def folded(latents: FloatArray, seed: int) -> FloatArray:
    """Return latents that were folded, centred and with one scale for all dimensions."""
    centred = latents - latents.mean(axis=0)
    spread = float(centred.std())
    return centred / spread if spread > 0 else _standardise(latents, seed)


def _standardise(latents: FloatArray, seed: int) -> FloatArray:
    spread = latents.std(axis=0)
    flat = spread < 1e-10 * max(1.0, float(spread.max(initial=0.0)))
    scaled = (latents - latents.mean(axis=0)) / np.where(flat, 1.0, spread)
    # a dimension without data starts near zero but not at it: there its gradient would vanish
    return np.where(flat, 0.1 * noise(latents.shape[0], latents.shape[1], seed), scaled)


def model_from(
    latents: FloatArray,
    spec: ModelSpec,
    data: Data,
    seed: int,
    dtype: torch.dtype,
    device: torch.device,
    covariates: Covariates,
) -> LatentVariableModel:
    """Build a model at a start.

    Parameters
    ----------
    latents : ndarray of shape (N, D)
    spec : ModelSpec
    data : tuple over views of tuples of Block
        Non-conjugate views keep sites for them.
    seed : int
    dtype : torch.dtype
        Of the latents and so of every product over rows.
    device : torch.device
    covariates : Covariates
        Of the rows.

    Returns
    -------
    LatentVariableModel
    """
    mean = torch.tensor(latents, dtype=dtype)
    beside = covariates.values.to("cpu", dtype)
    posterior = GaussianLatents(mean, torch.full_like(mean, math.log(_INITIAL_STD)), beside)
    views = []
    for v, (view, blocks) in enumerate(zip(spec, data, strict=True)):
        dims = spec.layout.dims(v)
        n_dims = mean.shape[1] if dims is None else len(dims)
        source = random.generator(seed, f"kernel/{view.name}")
        kernel = view.kernel.prepared(spec.n_frequencies).initial(
            spec.n_mixtures, n_dims, source
        )
        likelihood, sites = _start(view.likelihood, blocks, device)
        settings = (likelihood, sites, dims, view.weight, covariates.groups)
        views.append(View(view.name, kernel, *settings))
    return LatentVariableModel(posterior, views).to(device)


@functools.singledispatch
def _start(
    likelihood: Likelihood,
    blocks: tuple[Block, ...],
    device: torch.device,
) -> tuple[Likelihood, Sites | None]:
    """Return the likelihood to train and, of a non-conjugate view, its sites."""
    raise NotImplementedError(type(likelihood))


@_start.register
def _(
    likelihood: NonConjugateLikelihood, blocks: tuple[Block, ...], device: torch.device
) -> tuple[Likelihood, Sites | None]:
    learned = copy.deepcopy(likelihood).to(device)
    return learned, _sites(learned, encoded_block(blocks))


@_start.register
def _(
    likelihood: Gaussian,
    blocks: tuple[Block, ...],  # noqa: ARG001 - it starts alike for all data
    device: torch.device,  # noqa: ARG001
) -> tuple[Likelihood, Sites | None]:
    if likelihood.one_variance and likelihood.learned:
        return Gaussian(_INITIAL_NOISE), None
    return copy.deepcopy(likelihood), None


def _sites(likelihood: NonConjugateLikelihood, block: EncodedBlock) -> Sites:
    n_groups = 1 if likelihood.shares_curvature else N_GROUPS
    return Sites(likelihood, block.Y, block.mask, block.offset, n_groups)
