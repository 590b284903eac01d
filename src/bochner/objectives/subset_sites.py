"""Non-conjugate views that hold sites for some rows only: the bound of all rows, in passes over
them.

Sites live at every entry, so that training keeps two numbers for each. Rows that were placed under
a trained model need none of their own: the sites of all rows are laid at the q(A) of the anchors,
used and dropped, part by part, in whichever process has the rows.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from bochner.features.fourier import evaluate
from bochner.kernels.base import Frequencies
from bochner.likelihoods.nonconjugate import NonConjugateLikelihood
from bochner.memory import chunks
from bochner.models.dirichlet_posterior import kernel_kl
from bochner.models.lvm import LatentVariableModel, NoSites, View
from bochner.models.sites import Sites
from bochner.objectives.elbo import Draws, gaussian_evidence
from bochner.processes import ALONE, Processes
from bochner.regression.conjugate_gradients import Weights, weights_from
from bochner.regression.observations import Block, Data, EncodedBlock, encoded_block
from bochner.regression.site_passes import SitePasses

# Relative error of the means that anchors lead to, which all rows then move.
_TOLERANCE = 1e-3
# Twice the nats an entry that means of all rows may lose: the bound lacked a hundred nats of 2e5
# with a hundred times as much, which saved no time.
LOST_PER_ENTRY = 1e-5


@dataclass(frozen=True)
class Anchors:
    """The rows whose sites a model holds.

    Attributes
    ----------
    index : Tensor of shape (L,), int64
        Among all rows of all processes, ascending.
    data : tuple over views of tuples of Block
        Of these rows, numbered from 0, in every process.
    """

    index: Tensor
    data: Data

    def take(self, x: Tensor, processes: Processes) -> Tensor:
        """Return the latents of these rows, (L, D), from those of the rows here."""
        local = processes.local(self.index, len(x))
        return processes.joined(x[local], self.index, len(x))


def anchored_weights(view: View, x: Tensor, f: Frequencies, block: EncodedBlock) -> Weights:
    """Return the q(A) that the sites of anchors lead to when they follow a draw of latents.

    Parameters
    ----------
    view : View
    x : Tensor of shape (L, D)
        Of the anchors.
    f : Frequencies
    block : EncodedBlock
        The anchors' data.

    Returns
    -------
    Weights
        Columns group after group.
    """
    likelihood = cast(NonConjugateLikelihood, view.likelihood)
    sites = cast(Sites, view.sites)
    features = features_of(x, f.to(x.dtype), block)
    parts = []
    # one at a time: memory is that of its entries
    for group in torch.unique(sites.group_of):
        columns = (sites.group_of == group).nonzero()[:, 0]
        given = (*sites.at(columns), (len(columns),))
        parts.append(weights_from(features, *given, _TOLERANCE))
    passes = SitePasses(block, [x], f, likelihood, sites)
    weights, _ = passes.settled(Weights.joined(parts), LOST_PER_ENTRY)
    return weights


def anchored_elbo(
    model: LatentVariableModel,
    x: Tensor,
    data: Data,
    anchors: Anchors,
    draws: Draws,
    processes: Processes = ALONE,
) -> Tensor:
    """Return the bound of all rows at one draw of (X, W), without gradients, scalar float64 in
    nats.

    Parameters
    ----------
    model : LatentVariableModel
        Latents of the rows here, sites of the anchors.
    x : Tensor of shape (N, D + L)
        A draw of these latents, the covariates beside.
    data : tuple over views of tuples of Block
        The rows here.
    anchors : Anchors
    draws : Draws
        Of the spectra; the latents' noise is not looked at.
    processes : Processes
        Among which the rows are divided: the bound is that of all.
    """
    total = -processes.sum(model.latents.kl())
    known = anchors.take(x, processes)
    for v, (view, noise) in enumerate(zip(model.views, draws.spectra, strict=True)):
        if view.kernel.has_posterior:
            total = total - kernel_kl(view.kernel).to(x.device)
        of_view = (view.see(known), anchors.data[v])
        f = view.frequencies(noise)
        start = None if draws.starts is None else draws.starts[v]
        given = (view, view.see(x), f, data[v], of_view, start, processes)
        total = total + _value(view.sites, *given)
    return total


@functools.singledispatch
def _value(
    sites: Sites | NoSites,  # noqa: ARG001 - says of what kind the view is
    view: View,
    x: Tensor,
    f: Frequencies,
    blocks: tuple[Block, ...],
    anchors: tuple[Tensor, tuple[Block, ...]],  # noqa: ARG001
    start: float | None,
    processes: Processes,
) -> Tensor:
    """Return what a view adds to the bound, given the anchors' latents and their data."""
    noise = view.noise_variance
    return gaussian_evidence(x, f, noise, blocks, start=start, processes=processes)


@_value.register
def _(
    sites: Sites,
    view: View,
    x: Tensor,
    f: Frequencies,
    blocks: tuple[Block, ...],
    anchors: tuple[Tensor, tuple[Block, ...]],
    start: float | None,  # noqa: ARG001
    processes: Processes,
) -> Tensor:
    likelihood = cast(NonConjugateLikelihood, view.likelihood)
    known = anchored_weights(view, anchors[0], f, encoded_block(anchors[1]))
    passes = SitePasses(encoded_block(blocks), [x], f, likelihood, sites, processes)
    weights, bound = passes.settled(known, LOST_PER_ENTRY)
    return bound + passes.gap(weights)


def features_of(x: Tensor, f: Frequencies, block: Block) -> Tensor:
    """Return the features of the rows of a block, (K, n), in chunks: phases are twice as large."""
    latents = block.rows.take(x)
    parts = [evaluate(latents[rows], f).features for rows in chunks(latents.shape[0], 8192)]
    return torch.cat(parts, dim=1)
