"""Small models of given kernels and likelihoods, as a fit would build them."""

from collections.abc import Sequence
from typing import Any

import torch

from bochner.fitting.plan import model_from
from bochner.kernels.base import SpectralKernel
from bochner.likelihoods import Gaussian
from bochner.models.lvm import Covariates, LatentVariableModel, Layout, ModelSpec, ViewSpec
from bochner.regression.observations import CompleteBlock


def spec_of(
    kernels: Sequence[SpectralKernel],
    names: Sequence[str] = "abcdef",
    *,
    layout: Layout | None = None,
    dim: int = 2,
    n_mixtures: int = 2,
    n_frequencies: int = 8,
    likelihoods: Sequence[Any] | None = None,
    weights: Sequence[float] | None = None,
) -> ModelSpec:
    """Return the specification of a model with one view per kernel."""
    n_views = len(kernels)
    given = likelihoods or [Gaussian() for _ in kernels]
    parts = zip(names[:n_views], kernels, given, weights or [1.0] * n_views, strict=True)
    views = tuple(ViewSpec(*part) for part in parts)
    every = layout or Layout(dim, (0,) * n_views)
    return ModelSpec(views, every, n_mixtures, n_frequencies, "sobol", n_frequencies)


def build(
    latents: Any,
    kernels: Sequence[SpectralKernel],
    names: Sequence[str] = "abcdef",
    *,
    data: Any = None,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    **given: Any,
) -> LatentVariableModel:
    """Return a model at given latents; only non-conjugate views need data."""
    spec = spec_of(kernels, names, dim=latents.shape[1], **given)
    blocks = data or ((CompleteBlock.of(torch.zeros(1, 1)),),) * len(kernels)
    return model_from(
        latents, spec, blocks, seed, dtype, torch.device("cpu"), Covariates.none(len(latents))
    )
