"""The posterior of the weights of a view whose likelihood is not Gaussian, under one draw of its
spectrum.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import torch
from torch import Tensor

from bochner.data.masks import PartialMask
from bochner.kernels.base import Frequencies
from bochner.likelihoods.nonconjugate import NonConjugateLikelihood
from bochner.models.lvm import View
from bochner.models.sites import Sites
from bochner.objectives.subset_sites import anchored_entries, features_of
from bochner.regression.observations import EncodedBlock
from bochner.regression.site_entries import Entries, entry_pass

_SWEEPS = 5
# Sites that were laid at a posterior of many rows are near their place.
_FEWER_SWEEPS = 2
_TOLERANCE = 1e-4


def condition(
    view: View,
    f: Frequencies,
    block: EncodedBlock,
    latents: list[Tensor],
    anchors: tuple[Tensor, EncodedBlock] | None = None,
) -> tuple[Tensor, Tensor]:
    """Return means and covariances of q(A), averaged over draws of X as the bound is.

    Parameters
    ----------
    view : View
    f : Frequencies
    block : EncodedBlock
    latents : list of Tensor of shape (N, D)
    anchors : (Tensor of shape (L,), Block), optional
        The rows that the view's sites belong to, and their data; None: all.

    Returns
    -------
    mean : Tensor of shape (K, columns of psi), float64
    covariance : Tensor of shape (groups, K, K), float64
        Of the groups of `column_groups`.
    """
    sites, likelihood = cast(Sites, view.sites), cast(NonConjugateLikelihood, view.likelihood)
    working = f.to(latents[0].dtype)
    every = [features_of(x, working, block) for x in latents]
    own = (
        []
        if anchors is None
        else [features_of(x[anchors[0]], working, anchors[1]) for x in latents]
    )
    features = torch.cat(every, dim=1)
    groups = list(sites.column_chunks(features.shape[1]))
    mean = torch.zeros(f.n_features, sites.n_columns, dtype=torch.float64)
    covariance = torch.zeros(len(groups), f.n_features, f.n_features, dtype=torch.float64)
    for g, columns in enumerate(groups):  # one at a time: memory is that of a group's entries
        if anchors is None:
            entries = Entries.of(sites, block, columns)
        else:
            entries = anchored_entries(
                own[0], every[0], view, anchors[1], block, columns, n_sweeps=2
            )
        entries = _repeated(entries, len(latents))
        for _ in range(_SWEEPS if anchors is None else _FEWER_SWEEPS):
            found = entry_pass(features, likelihood, entries, _TOLERANCE)
            precision, shift = found.sites(entries, likelihood)
            entries = replace(entries, precision=precision, shift=shift)
        mean[:, entries.columns.cpu()] = found.weights.mean.double().cpu()
        covariance[g] = found.weights.covariance[0].double().cpu()
    return mean, covariance


def column_groups(sites: Sites, n_rows: int, n_latents: int) -> Tensor:
    """Return which covariance of `condition` each column has, (columns of psi,), int64."""
    out = torch.zeros(sites.n_columns, dtype=torch.int64)
    for g, columns in enumerate(sites.column_chunks(n_rows * n_latents)):
        out[columns.cpu()] = g
    return out


def _repeated(entries: Entries, times: int) -> Entries:
    """Every row once per draw of X, each with its share of the weight."""
    share = entries.mask.weights(entries.y).repeat(times, 1) / times
    return replace(
        entries,
        y=entries.y.repeat(times, 1),
        mask=PartialMask(share),
        precision=entries.precision.repeat(times, 1) / times,
        shift=entries.shift.repeat(times, 1) / times,
        total=entries.total.repeat(times, 1),
    )
