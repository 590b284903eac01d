"""Where training starts: latents from a quick embedding, kernels and noise to match.

Starts are compared by the bound on fresh draws, never by labels (EVALUATION: no labels in choices).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from bochner import random
from bochner.data.covariates import Covariates
from bochner.errors import InputError, message
from bochner.initialization import embeddings
from bochner.likelihoods.gaussian import Gaussian
from bochner.likelihoods.nonconjugate import Likelihood, NonConjugateLikelihood
from bochner.models.lvm import GaussianLatents, LatentVariableModel, View
from bochner.models.sites import N_GROUPS, Sites
from bochner.models.spec import ModelSpec, ViewSpec
from bochner.regression.observations import Block, Data, EncodedBlock, encoded_block

FloatArray = NDArray[np.float64]

_EMBEDDINGS: dict[str, Callable[[FloatArray, int, int], FloatArray]] = {
    "pca": embeddings.pca,
    "laplacian": embeddings.laplacian,
    "isomap": embeddings.isomap,
    "tsne": embeddings.tsne,
}
STARTS = (*_EMBEDDINGS, "random")
# The last trains a model: see `fold`.
ALL_STARTS = (*STARTS, "fold")
_INITIAL_STD = 0.1
_INITIAL_NOISE = 0.3


def start(name: str, filled: FloatArray, n_components: int, seed: int) -> FloatArray:
    """Compute one start.

    Parameters
    ----------
    name : {"pca", "laplacian", "isomap", "tsne", "random"}
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
    if name == "tsne" and n_components > embeddings.TSNE_DIMENSIONS:
        got, hint = f"n_components={n_components}", "choose another init"
        raise InputError(
            message(
                f"n_components of at most {embeddings.TSNE_DIMENSIONS} for init='tsne'", got, hint
            )
        )
    if name == "random":
        latents = embeddings.noise(filled.shape[0], n_components, seed)
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
    latents = embeddings.pca(filled, n_components, seed)
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
    return np.where(flat, 0.1 * embeddings.noise(latents.shape[0], latents.shape[1], seed), scaled)


def model_from(
    latents: FloatArray,
    spec: ModelSpec,
    data: Data,
    seed: int,
    dtype: torch.dtype,
    device: torch.device,
    covariates: Covariates | None = None,
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
    covariates : Covariates, optional
        Of the rows.

    Returns
    -------
    LatentVariableModel
    """
    mean = torch.tensor(latents, dtype=dtype)
    beside = None if covariates is None else covariates.values.to("cpu", dtype)
    posterior = GaussianLatents(mean, torch.full_like(mean, math.log(_INITIAL_STD)), beside)
    views = []
    for v, (view, blocks) in enumerate(zip(spec, data, strict=True)):
        dims = spec.layout.dims(v)
        n_dims = mean.shape[1] if dims is None else len(dims)
        source = random.generator(seed, f"kernel/{view.name}")
        kernel = view.kernel.prepared(spec.n_frequencies).initial(spec.n_mixtures, n_dims, source)
        likelihood, sites = _likelihood(view, blocks, device)
        groups = None if covariates is None else covariates.groups
        views.append(View(view.name, kernel, likelihood, sites, dims, view.weight, groups))
    return LatentVariableModel(posterior, views).to(device)


def _likelihood(
    view: ViewSpec, blocks: tuple[Block, ...], device: torch.device
) -> tuple[Likelihood, Sites | None]:
    """Return the likelihood to train and, of a non-conjugate view, its sites."""
    likelihood = view.likelihood
    if isinstance(likelihood, NonConjugateLikelihood):
        learned = copy.deepcopy(likelihood).to(device)
        return learned, _sites(learned, encoded_block(blocks))
    if isinstance(likelihood, Gaussian) and (likelihood.per_column or not likelihood.learned):
        return copy.deepcopy(likelihood), None
    return Gaussian(_INITIAL_NOISE), None


def _sites(likelihood: NonConjugateLikelihood, block: EncodedBlock) -> Sites:
    n_groups = 1 if likelihood.shares_curvature else N_GROUPS
    return Sites(likelihood, block.Y, block.mask, block.offset, n_groups)
