"""What draws of the latents say about the weights of a non-conjugate view, column by column, by the
natural parameters of its sites.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import torch
from torch import Tensor

from bochner.data.masks import PartialMask
from bochner.kernels.base import Frequencies
from bochner.likelihoods.nonconjugate import Likelihood, NonConjugateLikelihood
from bochner.memory import chunks
from bochner.models.lvm import View
from bochner.models.sites import Sites
from bochner.objectives.subset_sites import (
    LOST_PER_ENTRY,
    anchored_weights,
    features_of,
)
from bochner.processes import ALONE, Processes
from bochner.regression.evidence import CHUNK_ROWS
from bochner.regression.observations import EncodedBlock
from bochner.regression.site_entries import Entries, swept_until_settled
from bochner.regression.site_passes import SitePasses

# Of sites under a new draw of spectra, which move ever less.
_SWEEPS = 5
# Sites that were laid at a posterior of many rows are near their place.
_FEWER_SWEEPS = 2
_SITE_TOLERANCE = 1e-4


def condition_sites(
    view: View, f: Frequencies, block: EncodedBlock, latents: list[Tensor]
) -> tuple[Tensor, Tensor]:
    """Return means and covariances of q(A), averaged over draws of X as the bound is.

    Parameters
    ----------
    view : View
        With sites of all rows.
    f : Frequencies
    block : EncodedBlock
    latents : list of Tensor of shape (N, D)

    Returns
    -------
    mean : Tensor of shape (K, columns of psi), float64
    covariance : Tensor of shape (groups, K, K), float64
        Of the groups of `column_groups`.
    """
    sites = cast(Sites, view.sites)
    likelihood = cast(NonConjugateLikelihood, view.likelihood)
    working = f.to(latents[0].dtype)
    features = torch.cat([features_of(x, working, block) for x in latents], dim=1)
    groups = list(sites.column_chunks(features.shape[1]))
    mean = torch.zeros(f.n_features, sites.n_columns, dtype=torch.float64)
    covariance = torch.zeros(len(groups), f.n_features, f.n_features, dtype=torch.float64)
    # one at a time: memory is that of a group's entries
    for g, columns in enumerate(groups):
        entries = _repeated(Entries.of(sites, block, columns), len(latents))
        given = (features, likelihood, entries, _SITE_TOLERANCE, _SWEEPS)
        solution, _ = swept_until_settled(*given)
        mean[:, entries.columns.cpu()] = solution.weights.mean.double().cpu()
        covariance[g] = solution.weights.covariance[0].double().cpu()
    return mean, covariance


def condition_anchored(
    view: View,
    f: Frequencies,
    block: EncodedBlock,
    latents: list[Tensor],
    anchors: tuple[Tensor, EncodedBlock],
    processes: Processes = ALONE,
) -> tuple[Tensor, Tensor]:
    """Return what `condition_sites` does where the view's sites belong to some rows, in passes over
    all.

    Parameters
    ----------
    view, f
        As in `condition_sites`.
    block : EncodedBlock
        The rows here.
    latents : list of Tensor of shape (N, D)
    anchors : (Tensor of shape (L, D), EncodedBlock)
        Latents of the rows that the sites belong to at the first draw, and their data.
    processes : Processes
        Among which the rows are divided.

    Returns
    -------
    mean : Tensor of shape (K, columns of psi), float64
    covariance : Tensor of shape (groups, K, K), float64
        Of the sites' groups.
    """
    sites = cast(Sites, view.sites)
    likelihood = cast(NonConjugateLikelihood, view.likelihood)
    passes = SitePasses(block, latents, f, likelihood, sites, processes)
    weights = anchored_weights(view, anchors[0], f, anchors[1])
    weights, _ = passes.settled(weights, LOST_PER_ENTRY, _FEWER_SWEEPS)
    mean = torch.zeros(f.n_features, sites.n_columns, dtype=torch.float64)
    mean[:, passes.columns.cpu()] = weights.mean.double().cpu()
    return mean, weights.covariance.double().cpu()


def column_groups(sites: Sites, n_rows: int, n_latents: int) -> Tensor:
    """Return which covariance of `condition_sites` each column has, (columns of psi,), int64."""
    out = torch.zeros(sites.n_columns, dtype=torch.int64)
    for g, columns in enumerate(sites.column_chunks(n_rows * n_latents)):
        out[columns.cpu()] = g
    return out


def largest_psi(
    likelihood: Likelihood, block: EncodedBlock, processes: Processes
) -> Tensor | None:
    """Return the largest psi by column that the rows of all processes support, (columns of psi,);
    columns without entries have that of the others.
    """
    likelihood = cast(NonConjugateLikelihood, likelihood)
    largest_of_parts = []
    for part in chunks(block.n_rows, CHUNK_ROWS):
        y = block.mask.rows(part).hide(block.Y[part]).double().cpu()
        of_part = likelihood.largest_psi(y, block.offset[part].double().cpu())
        if of_part is None:
            return None
        largest_of_parts.append(of_part)
    largest = processes.largest(torch.stack(largest_of_parts).amax(0))
    if not bool(largest.isfinite().any()):
        return None
    return torch.where(largest.isfinite(), largest, largest.amax())


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
