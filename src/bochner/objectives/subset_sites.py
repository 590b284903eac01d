"""Non-conjugate views and hold sites for some rows only: the bound of all rows, a few
columns at a time.

Sites live at every entry, so that training keeps two numbers for each. Rows that were placed under
a trained model need none of their own: given latents and spectrum, columns are independent, so that
the sites of all rows can be laid at the q(A) of the anchors, used and dropped, column chunk by
column chunk.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor

from bochner.features.fourier import evaluate
from bochner.kernels.base import Frequencies
from bochner.likelihoods.nonconjugate import NonConjugateLikelihood
from bochner.memory import chunks
from bochner.models.dirichlet_posterior import kernel_kl
from bochner.models.lvm import LatentVariableModel, View
from bochner.models.sites import NoSites, Sites
from bochner.objectives.elbo import Draws
from bochner.regression.evidence import view_evidence
from bochner.regression.nonconjugate import gap_of
from bochner.regression.observations import (
    Block,
    Data,
    EncodedBlock,
    complete_blocks,
    encoded_block,
)
from bochner.regression.site_entries import Entries, entry_pass

_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Anchors:
    """The rows whose sites a model holds.

    Attributes
    ----------
    index : Tensor of shape (L,), int64
        Among all rows, ascending.
    data : tuple over views of tuples of Block
        Of these rows, numbered from 0.
    """

    index: Tensor
    data: Data


def anchored_entries(
    anchor_features: Tensor,
    features: Tensor,
    view: View,
    anchors: EncodedBlock,
    block: EncodedBlock,
    columns: Tensor,
    n_sweeps: int,
) -> Entries:
    """Return entries of all rows, their sites laid at the q(A) that the anchors' sites lead to.

    Parameters
    ----------
    anchor_features : Tensor of shape (K, l)
        Features of the anchors.
    features : Tensor of shape (K, n)
        Of all rows that have data in the view.
    view : View
    anchors, block : EncodedBlock
        Encoded data of the anchors and of all rows.
    columns : Tensor of shape (m,), int64
    n_sweeps : int
        Times that q(A) and the anchors' sites are brought up to date.

    Returns
    -------
    Entries
    """
    likelihood, sites = cast(NonConjugateLikelihood, view.likelihood), cast(Sites, view.sites)
    entries = Entries.of(sites, anchors, columns)
    for _ in range(n_sweeps):
        at_anchors = entry_pass(anchor_features, likelihood, entries, _TOLERANCE)
        precision, shift = at_anchors.sites(entries, likelihood)
        entries = replace(entries, precision=precision, shift=shift)
    total = sites.intercept[entries.columns] + block.offset[:, None]
    every = replace(
        entries,
        y=block.Y.index_select(1, entries.columns),
        mask=block.mask.columns(entries.columns),
        total=total,
        scale=1.0,
    )
    precision, shift = entry_pass(
        features, likelihood, every, _TOLERANCE, at_anchors.weights
    ).sites(every, likelihood)
    return replace(every, precision=precision, shift=shift)


def anchored_elbo(model: LatentVariableModel, data: Data, anchors: Anchors, draws: Draws) -> Tensor:
    """Return the bound of all rows at one draw of (X, W), without gradients, scalar float64 in
    nats.

    Parameters
    ----------
    model : LatentVariableModel
        Latents of all rows, sites of the anchors.
    data : tuple over views of tuples of Block
        All rows.
    anchors : Anchors
    draws : Draws
    """
    x = model.latents.sample(draws.latents)
    total = -model.latents.kl()
    for v, (view, noise) in enumerate(zip(model.views, draws.spectra, strict=True)):
        if view.kernel.has_posterior:
            total = total - kernel_kl(view.kernel).to(x.device)
        anchored = (anchors.index, anchors.data[v])
        total = total + _value(
            view.sites, view, view.see(x), view.frequencies(noise), data[v], anchored
        )
    return total


@functools.singledispatch
def _value(
    sites: Sites | NoSites,  # noqa: ARG001 - says of what kind the view is
    view: View,
    x: Tensor,
    f: Frequencies,
    blocks: tuple[Block, ...],
    anchors: tuple[Tensor, tuple[Block, ...]],  # noqa: ARG001
) -> Tensor:
    """Return what a view adds to the bound, given the anchors and their data."""
    return view_evidence(x, f, view.noise_variance, complete_blocks(blocks))


@_value.register
def _(
    sites: Sites,
    view: View,
    x: Tensor,
    f: Frequencies,
    blocks: tuple[Block, ...],
    anchors: tuple[Tensor, tuple[Block, ...]],
) -> Tensor:
    likelihood = cast(NonConjugateLikelihood, view.likelihood)
    f = f.to(x.dtype)
    block, anchor_block = encoded_block(blocks), encoded_block(anchors[1])
    features = features_of(x, f, block)
    anchor_features = features_of(x[anchors[0]], f, anchor_block)
    value = sites.log_prior(torch.arange(sites.n_columns, device=x.device)).sum()
    for columns in sites.column_chunks(block.Y.shape[0]):
        entries = anchored_entries(
            anchor_features, features, view, anchor_block, block, columns, n_sweeps=2
        )
        solution = entry_pass(features, likelihood, entries, _TOLERANCE)
        value = (
            value
            + entries.mask.apply(solution.slopes.value).sum(dtype=torch.float64)
            - solution.weights.kl().sum()
        )
        value = value + gap_of(likelihood, solution, entries, None).sum()
    return value


def features_of(x: Tensor, f: Frequencies, block: Block) -> Tensor:
    """Return the features of the rows of a block, (K, n), in chunks: phases are twice as large."""
    latents = block.rows.take(x)
    parts = [evaluate(latents[rows], f).features for rows in chunks(latents.shape[0], 8192)]
    return torch.cat(parts, dim=1)
