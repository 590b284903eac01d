"""The posterior of the weights of a view whose likelihood is not Gaussian, under one draw of its spectrum."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import torch
from torch import Tensor

from bochner.features.fourier import evaluate
from bochner.kernels.base import Frequencies
from bochner.likelihoods.base import LocalLikelihood
from bochner.models.lvm import View
from bochner.models.sites import Sites
from bochner.objectives.local import Entries, local_pass
from bochner.objectives.statistics import Block

_SWEEPS = 5
_TOLERANCE = 1e-4


def condition(view: View, f: Frequencies, block: Block, latents: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Return means and covariances of q(A), averaged over draws of X as the bound is.

    Parameters
    ----------
    view : View
    f : Frequencies
    block : Block
    latents : list of Tensor of shape (N, D)

    Returns
    -------
    mean : Tensor of shape (K, columns of psi), float64
    covariance : Tensor of shape (groups, K, K), float64
    """
    sites, likelihood = cast(Sites, view.sites), cast(LocalLikelihood, view.likelihood)
    seen = [x if block.rows is None else x[block.rows] for x in latents]
    features = evaluate(torch.cat(seen), f.to(latents[0].dtype)).features
    n_groups = int(sites.group_of.max()) + 1
    mean = torch.zeros(f.n_features, sites.n_columns, dtype=torch.float64)
    covariance = torch.zeros(n_groups, f.n_features, f.n_features, dtype=torch.float64)
    for g in range(n_groups):  # one at a time: memory is that of a group's entries
        entries = _repeated(Entries.of(sites, block, (sites.group_of == g).nonzero()[:, 0]), len(latents))
        for _ in range(_SWEEPS):
            found = local_pass(features, likelihood, entries, _TOLERANCE)
            precision, pull = found.sites(entries)
            entries = replace(entries, precision=precision, pull=pull)
        mean[:, entries.columns.cpu()] = found.weights.mean.double().cpu()
        covariance[g] = found.weights.covariance[0].double().cpu()
    return mean, covariance


def _repeated(entries: Entries, times: int) -> Entries:
    """Every row once per draw of X, each with its share of the weight."""
    share = torch.ones_like(entries.y) if entries.seen is None else entries.seen
    return replace(
        entries,
        y=entries.y.repeat(times, 1),
        seen=share.repeat(times, 1) / times,
        precision=entries.precision.repeat(times, 1) / times,
        pull=entries.pull.repeat(times, 1) / times,
        total=entries.total.repeat(times, 1),
    )
