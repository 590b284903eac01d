"""Where training starts: latents from a quick embedding, named and scaled as the prior is.

Starts are compared by the bound on fresh draws, never by labels.

t-SNE of some thousand rows is computed by its exact gradient. The Barnes-Hut trees of scikit-learn
win where rows are many. Up to some thousand the N x N kernel, taken block by block while it is in a
core's cache, costs half to two thirds of that a step; and a start needs fewer steps: with a
learning rate of N / 3 (that of Belkina et al. 2019 with the gradient's factor of 4), 70 exaggerated
and 180 others end where scikit-learn's 400 end: 4 % above on 150 rows of iris, 0 to 13 % below on
five larger tables (``benchmarks/starts.py``).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
import torch
from scipy.sparse.linalg import svds
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE, Isomap, SpectralEmbedding
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

from bochner import random
from bochner.data.arrays import Float64Array
from bochner.errors import InputError, message

# Of a row in the graphs of the Laplacian and of Isomap; the customary one of t-SNE.
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


def noise(n_rows: int, n_components: int, seed: int) -> Float64Array:
    """Draw standard normal latents, (N, D)."""
    source = random.generator(seed, "start")
    noise: Float64Array = torch.randn(
        n_rows, n_components, generator=source, dtype=torch.float64
    ).numpy()
    return noise


def pca(filled: Float64Array, n_components: int, seed: int) -> Float64Array:
    """Return principal components in proportion; columns beyond the numerical rank are 0: where
    views are divided by their scale, rounding would be as large as data.
    """
    n, m = filled.shape
    rank = min(n_components, n, m)
    centred = filled - filled.mean(axis=0)
    size = float(np.abs(filled).max(initial=0.0)) * n**0.5
    rounding = max(n, m) * np.finfo(np.float64).eps * size
    if float(np.linalg.norm(centred)) <= rounding:
        # ARPACK refuses a matrix of zeros, and one of rounding has no components
        return np.zeros((n, n_components))
    if rank >= min(n, m) - 1 or min(n, m) < 50:
        left, values, _ = np.linalg.svd(centred, full_matrices=False)
        left = left[:, :rank]
        values = values[:rank]
    else:
        first = np.random.Generator(np.random.PCG64(seed)).standard_normal(min(n, m))
        left, values, _ = svds(centred, k=rank, v0=first)
        left = left[:, ::-1]
        values = values[::-1]
    values = np.where(values > rounding, values, 0.0)
    signs = np.sign(left[np.abs(left).argmax(axis=0), np.arange(rank)])
    out = np.zeros((n, n_components))
    out[:, :rank] = left * np.where(signs == 0, 1.0, signs) * values
    return out


def laplacian(filled: Float64Array, n_components: int, seed: int) -> Float64Array:
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
        latents: Float64Array = embedding.fit_transform(filled)
    # rank against a normal: a few far outliers would otherwise squeeze everyone else into one point
    order = latents.argsort(axis=0, kind="stable").argsort(axis=0, kind="stable")
    uniform = (order + 0.5) / n
    spread: Float64Array = torch.special.ndtri(torch.from_numpy(uniform)).numpy()
    plain: Float64Array = (latents - latents.mean(axis=0)) / np.maximum(
        latents.std(axis=0), 1e-300
    )
    return 0.5 * (spread + plain)


def isomap(filled: Float64Array, n_components: int, seed: int) -> Float64Array:
    """Return principal coordinates of the distances along the neighbour graph."""
    n = filled.shape[0]
    if n < n_components + 3:
        return pca(filled, n_components, seed)
    with warnings.catch_warnings():
        # a disconnected graph is joined at its nearest points
        warnings.simplefilter("ignore")
        embedding = Isomap(
            n_components=n_components,
            n_neighbors=min(_NEIGHBOURS, n - 1),
            eigen_solver="dense",
        )
        latents: Float64Array = embedding.fit_transform(_neighbour_space(filled, seed))
    return latents


def tsne(filled: Float64Array, n_components: int, seed: int) -> Float64Array:
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


def _neighbour_space(filled: Float64Array, seed: int) -> Float64Array:
    """Rows in few dimensions, of standard deviation about 1: squares of extreme units would
    overflow.
    """
    scaled = filled / max(float(np.abs(filled).max(initial=0.0)), 1e-300)
    scaled = scaled / max(float(scaled.std()), 1e-3)
    if min(filled.shape) <= _NEIGHBOUR_SPACE:
        return scaled
    reduction = PCA(_NEIGHBOUR_SPACE, svd_solver="randomized", random_state=seed % 2**32)
    with np.errstate(invalid="ignore"):
        # shares of a variance of 0, which are not used
        space: Float64Array = reduction.fit_transform(scaled)
    return space


_EMBEDDINGS: dict[str, Callable[[Float64Array, int, int], Float64Array]] = {
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
# The last trains a model: see `bochner.initialization.simple_models`.
ALL_STARTS = (*STARTS, *NARROW_STARTS, "fold")


def start(name: str, filled: Float64Array, n_components: int, seed: int) -> Float64Array:
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


def components(filled: Float64Array, n_components: int, seed: int) -> Float64Array:
    """Return principal components in proportion, the first of standard deviation 1: what the
    folding start begins with.
    """
    latents = pca(filled, n_components, seed)
    return latents / max(float(latents[:, 0].std()), 1e-300)


def folded(latents: Float64Array, seed: int) -> Float64Array:
    """Return latents that were folded, centred and with one scale for all dimensions."""
    centred = latents - latents.mean(axis=0)
    spread = float(centred.std())
    return centred / spread if spread > 0 else _standardise(latents, seed)


def _standardise(latents: Float64Array, seed: int) -> Float64Array:
    spread = latents.std(axis=0)
    flat = spread < 1e-10 * max(1.0, float(spread.max(initial=0.0)))
    scaled = (latents - latents.mean(axis=0)) / np.where(flat, 1.0, spread)
    # a dimension without data starts near zero but not at it: there its gradient would vanish
    return np.where(flat, 0.1 * noise(latents.shape[0], latents.shape[1], seed), scaled)


# Rows up to which blocks of N x N are faster than trees; their affinities are 72 MB there.
MOST_ROWS = 6000
_EXAGGERATION = 12.0
_EXAGGERATED = 70
_STEPS = 250
# The learning rate over N.
_RATE = 1.0 / 3.0
# Steps of the search for a row's bandwidth, which halve its interval.
_HALVINGS = 40
# Rows of a block: with some thousand columns it stays in a cache.
_BLOCK = 256


def conditionals(squares: Float64Array, perplexity: float) -> Float64Array:
    """Return a row's probabilities of its neighbours, whose entropy is that of so many equal ones.

    Parameters
    ----------
    squares : ndarray of shape (N, k)
        Squared distances.
    perplexity : float
        At most k.

    Returns
    -------
    ndarray of shape (N, k)
        Rows sum to 1. Neighbours at one distance are all equal, more than the perplexity or not.
    """
    squares = squares - squares.min(axis=1, keepdims=True)
    squares = squares / np.maximum(squares.mean(axis=1, keepdims=True), 1e-300)
    low = np.zeros_like(squares[:, :1])
    high = np.full_like(squares[:, :1], np.inf)
    precision = np.ones_like(low)
    for _ in range(_HALVINGS):
        weights = np.exp(-precision * squares)
        total = weights.sum(axis=1, keepdims=True)
        entropy = (
            np.log(total) + precision * (weights * squares).sum(axis=1, keepdims=True) / total
        )
        wide = entropy > math.log(perplexity)
        low = np.where(wide, precision, low)
        high = np.where(wide, high, precision)
        precision = np.where(np.isinf(high), 2.0 * precision, 0.5 * (low + high))
    probabilities: Float64Array = weights / total
    return probabilities


def affinities(values: Float64Array, perplexity: float) -> sp.csr_matrix:
    """Return the joint probabilities of neighbours (van der Maaten and Hinton 2008).

    Parameters
    ----------
    values : ndarray of shape (N, M)
    perplexity : float
        At most (N - 1) / 3; three times as many neighbours count.

    Returns
    -------
    csr_matrix of shape (N, N)
        Symmetric, of sum 1, 0 on the diagonal.
    """
    n = values.shape[0]
    k = min(n - 1, int(3.0 * perplexity + 1.0))
    distances, index = NearestNeighbors(n_neighbors=k).fit(values).kneighbors()
    each = conditionals(distances**2, perplexity)
    rows = np.arange(0, n * k + 1, k)
    directed = sp.csr_matrix((each.ravel(), index.ravel(), rows), shape=(n, n))
    joint: sp.csr_matrix = (directed + directed.T) / (2.0 * n)
    return joint


class Forces:
    """The gradient of t-SNE's divergence, by blocks of the N x N kernel on and above its diagonal.

    Parameters
    ----------
    joint : csr_matrix of shape (N, N)
        Of ``affinities``.
    """

    def __init__(self, joint: sp.csr_matrix) -> None:
        self.n_rows = joint.shape[0]
        self._joint = [
            torch.from_numpy(joint[i : i + _BLOCK, i:].toarray()).float()
            for i in range(0, self.n_rows, _BLOCK)
        ]
        size = min(_BLOCK, self.n_rows) * self.n_rows
        self._memory = torch.empty(2, size, dtype=torch.float32)

    def __call__(self, y: Tensor, exaggeration: float, total: float) -> tuple[Tensor, float]:
        """Return a quarter of the gradient, and the kernel's sum over all pairs.

        Parameters
        ----------
        y : Tensor of shape (D, N), float32
        exaggeration : float
            What affinities are multiplied by.
        total : float
            The kernel's sum over all pairs, of these points or of those a step before.

        Returns
        -------
        Tensor of shape (D, N), float
            The sum is that of these points.
        """
        one = torch.ones_like(y[:1])
        square = y.square().sum(0, keepdim=True)
        left = torch.cat([-2.0 * y, 1.0 + square, one])
        right = torch.cat([y, one, square])
        charges = torch.cat([y, one])
        sums = torch.zeros_like(charges)
        normaliser = 0.0
        for number, joint in enumerate(self._joint):
            begin = number * _BLOCK
            end = begin + joint.shape[0]
            # 1 / (1 + |y_i - y_j|^2)
            kernel = self._memory[0, : joint.numel()].view_as(joint)
            torch.mm(left[:, begin:end].T, right[:, begin:], out=kernel).reciprocal_()
            later = kernel[:, end - begin :]
            normaliser += float(kernel.sum()) + float(later.sum())
            # q (q - exaggeration p total): what pushes rows apart, less what pulls them together
            push = self._memory[1, : joint.numel()].view_as(joint)
            torch.add(kernel, joint, alpha=-exaggeration * total, out=push).mul_(kernel)
            sums[:, begin:].addmm_(charges[:, begin:end], push)
            sums[:, begin:end].addmm_(charges[:, end:], push[:, end - begin :].T)
        return (sums[:-1] - y * sums[-1]) / total, normaliser - self.n_rows


def embed(values: Float64Array, first: Float64Array, perplexity: float) -> Float64Array:
    """Return a t-SNE embedding.

    Parameters
    ----------
    values : ndarray of shape (N, M)
    first : ndarray of shape (N, D)
        Where it begins: small, of standard deviation 1e-4.
    perplexity : float

    Returns
    -------
    ndarray of shape (N, D)
    """
    forces = Forces(affinities(values, perplexity))
    y = torch.tensor(first.T, dtype=torch.float32)
    velocity = torch.zeros_like(y)
    gains = torch.ones_like(y)
    rate = _RATE * y.shape[1]
    # all points are at one place: the kernel is 1
    total = float(y.shape[1] * (y.shape[1] - 1))
    for step in range(_STEPS):
        early = step < _EXAGGERATED
        # the sum of the step before is close, and saves a pass
        gradient, total = forces(y, _EXAGGERATION if early else 1.0, total)
        gains = torch.where(velocity * gradient < 0.0, gains + 0.2, 0.8 * gains).clamp_(
            min=0.01
        )
        velocity.mul_(0.5 if early else 0.8).addcmul_(gains, gradient, value=-rate)
        y += velocity
    embedded: Float64Array = y.T.double().numpy()
    return embedded
