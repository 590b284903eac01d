"""The posterior of the weights A given latents and draws of the spectra: what prediction needs of a
fit.

Per column A | Y, X, W ~ N(m, sigma^2 B^-1) (docs/math.md, section 2.4).
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bochner import random
from bochner._typing import Sampling
from bochner.features.fourier import evaluate
from bochner.kernels.base import Frequencies
from bochner.likelihoods.gaussian import Gaussian
from bochner.likelihoods.likelihood import shifted
from bochner.likelihoods.nonconjugate import Likelihood, NonConjugateLikelihood
from bochner.models.lvm import LatentVariableModel, View
from bochner.objectives.subset_sites import Anchors
from bochner.processes import ALONE, Processes
from bochner.regression.evidence import gram_diagonal, products_in
from bochner.regression.heteroscedastic import spectrum
from bochner.regression.observations import (
    Block,
    Data,
    EncodedBlock,
    IncompleteBlock,
    complete_blocks,
    encoded_block,
    incomplete_blocks,
)
from bochner.weight_posterior.conditioning import (
    column_groups,
    condition,
    condition_holed,
    expected_statistics,
    groups_of,
    precision,
)

# The covariances of a view's column groups, over all draws, are kept up to this size: fewer draws
# beyond it.
_COVARIANCE_BYTES = 2**30


@dataclass(frozen=True)
class Draw:
    """Posterior of a view's weights under one draw of its spectrum, all float64.

    Attributes
    ----------
    frequencies : Frequencies
    mean : Tensor of shape (K, M)
    covariance : Tensor of shape (groups, K, K)
        B^-1 of each group of columns that were observed in the same rows, or the average of B^-1
        over columns with similar holes; with noise per column, V.
    scales : Tensor of shape (M, K), or None
        With noise per column: 1 / (lambda + sigma_m^2), so that B_m^-1 = V diag(scales_m) V^T.
    """

    frequencies: Frequencies
    mean: Tensor
    covariance: Tensor
    scales: Tensor | None = None

    def to(self, dtype: torch.dtype) -> Draw:
        """Return the same draw in another precision."""
        scales = None if self.scales is None else self.scales.to(dtype)
        return Draw(
            self.frequencies.to(dtype), self.mean.to(dtype), self.covariance.to(dtype), scales
        )

    def features(self, x: Tensor) -> Tensor:
        """Return phi(x) row-major, (n, D) or (n, D + L) with covariates -> (n, K)."""
        return evaluate(x, self.frequencies).features.T

    def spread(self, phi: Tensor, group_of: Tensor) -> Tensor:
        """Return phi^T B_m^-1 phi for every column, (n, K), (M,) -> (n, M)."""
        if self.scales is None:
            return torch.stack(
                [((phi @ inverse) * phi).sum(1) for inverse in self.covariance], dim=1
            )[:, group_of]
        out = phi.new_empty(phi.shape[0], group_of.shape[0])
        for g, vectors in enumerate(self.covariance):
            own = group_of == g
            out[:, own] = (phi @ vectors).square() @ self.scales[own].T
        return out

    def summed(self, weights: Tensor, group_of: Tensor) -> Tensor:
        """Return sum_m weights_nm B_m^-1, (n, M), (M,) -> (n, K, K)."""
        n_groups = self.covariance.shape[0]
        if self.scales is None:
            groups = weights.new_zeros(weights.shape[0], n_groups).index_add_(1, group_of, weights)
            return torch.einsum("ng,gkl->nkl", groups, self.covariance)
        total = weights.new_zeros(weights.shape[0], *self.covariance.shape[1:])
        for g, vectors in enumerate(self.covariance):
            own = group_of == g
            total += (vectors * (weights[:, own] @ self.scales[own])[:, None, :]) @ vectors.T
        return total


@dataclass(frozen=True)
class ViewPosterior:
    """What a fitted view says about new rows.

    Attributes
    ----------
    name : str
    draws : tuple of Draw
    group_of : Tensor of shape (M,), int64
        The column's group in ``Draw.covariance``.
    likelihood : Likelihood
    intercept : Tensor of shape (M,), float64, or None
        Of non-conjugate views.
    dims : tuple of int or None
        The latent dimensions that the view sees, None = all: the frequencies of its draws are 0
        along the others.
    weight : float
        Of the view in training, and so in placement; densities and predictions know none.
    predictive_noise : float or None
        Noise variance of entries to come, where entries that training did not see show more of it
        than the others.

    Notes
    -----
    Columns are those of psi: a categorical view has more of them than of data.
    """

    name: str
    draws: tuple[Draw, ...]
    group_of: Tensor
    likelihood: Likelihood
    intercept: Tensor | None = None
    dims: tuple[int, ...] | None = None
    weight: float = 1.0
    predictive_noise: float | None = None

    @functools.cached_property
    def predictive(self) -> Likelihood:
        """The likelihood of entries to come."""
        if self.predictive_noise is None:
            return self.likelihood
        return Gaussian(self.predictive_noise).requires_grad_(False)

    @property
    def n_columns(self) -> int:
        """Columns of psi."""
        return int(self.group_of.shape[0])

    def see(self, x: Tensor) -> Tensor:
        """Return the latents as this view sees them, (n, D) -> (n, D_v)."""
        return x if self.dims is None else x[:, list(self.dims)]

    @property
    def n_data_columns(self) -> int:
        """M."""
        sizes = None if self.local is None else self.local.group_sizes
        return self.n_columns if sizes is None else len(sizes)

    @property
    def local(self) -> NonConjugateLikelihood | None:
        """The likelihood, unless it is Gaussian."""
        return self.likelihood if isinstance(self.likelihood, NonConjugateLikelihood) else None

    @property
    def noise_variance(self) -> float | Tensor:
        """sigma^2 of the scaled data, or (M,); 1 for non-conjugate views: the unit of their
        covariances.
        """
        if not isinstance(self.likelihood, Gaussian):
            return 1.0
        variance = self.likelihood.noise_variance.detach()
        return variance if self.likelihood.per_column else float(variance)

    def encode(self, y: Tensor) -> Tensor:
        """Return data as the bound sees them, (n, columns of data) -> (n, columns of psi), NaN =
        missing.
        """
        return y if self.local is None else self.local.encode(y)

    def psi(self, draw: Draw, phi: Tensor, offset: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return mean and variance of psi at features phi (n, K), both (n, columns of psi)."""
        mean, variance = phi @ draw.mean, self.noise_variance * draw.spread(phi, self.group_of)
        if self.intercept is not None:
            mean = mean + self.intercept
        return shifted(mean, offset), variance.clamp(min=0.0)


def all_conjugate(views: Sequence[ViewPosterior]) -> bool:
    """Return whether every view is Gaussian given its weights."""
    return all(view.local is None for view in views)


def weights_posterior(
    model: LatentVariableModel,
    data: Data,
    *,
    n_frequencies: int,
    n_draws: int,
    n_latent_draws: int,
    sampling: Sampling,
    seed: int,
    anchors: Anchors | None = None,
    processes: Processes = ALONE,
) -> tuple[ViewPosterior, ...]:
    """Condition the weights of every view on the data.

    Parameters
    ----------
    model : LatentVariableModel
    data : tuple over views of tuples of Block
    n_frequencies : int
        H.
    n_draws : int
        Draws of W that prediction will average over.
    n_latent_draws : int
        Draws of X over which the statistics are averaged: E[G] and E[C] make q(A) optimal for q(X).
    sampling : {"iid", "orthogonal", "sobol"}
    seed : int
    anchors : Anchors, optional
        The rows that sites belong to; None: all.
    processes : Processes
        Among which the rows of Gaussian views are divided.

    Returns
    -------
    tuple of ViewPosterior
    """
    with torch.no_grad():
        latents = model.latents.draws(n_latent_draws, seed, processes.start)
        return tuple(
            _view_posterior(
                view,
                blocks,
                latents,
                n_frequencies,
                n_draws,
                sampling,
                seed,
                None
                if anchors is None or view.sites is None
                else (anchors.index, encoded_block(anchors.data[v])),
                processes,
            )
            for v, (view, blocks) in enumerate(zip(model.views, data, strict=True))
        )


def _view_posterior(
    view: View,
    blocks: tuple[Block, ...],
    latents: list[Tensor],
    n_frequencies: int,
    n_draws: int,
    sampling: Sampling,
    seed: int,
    anchors: tuple[Tensor, EncodedBlock] | None,
    processes: Processes,
) -> ViewPosterior:
    n_columns = sum(block.Y.shape[1] for block in blocks)
    draws: list[Draw] = []
    n_components = latents[0].shape[1] - view.n_covariates
    latents = [view.see(x) for x in latents]
    n_seen = latents[0].shape[1] - view.n_covariates
    for s in range(n_draws):
        source = random.generator(
            seed, f"posterior/spectrum/{view.name}", s, device=latents[0].device
        )
        noise = view.kernel.noise(n_frequencies, n_seen, source, sampling)
        f = view.frequencies(noise).detach()
        if view.sites is None:
            found = _draw(f, blocks, latents, view.noise_variance, n_columns, processes)
        else:
            found = Draw(_to_cpu(f), *condition(view, f, encoded_block(blocks), latents, anchors))
        draws.append(replace(found, frequencies=found.frequencies.widened(view.dims, n_components)))
        if draws[0].covariance.numel() * 8 * (s + 2) > _COVARIANCE_BYTES:
            break
    if view.sites is None:
        group_of = _group_of(blocks, draws[0].frequencies)
    else:
        group_of = column_groups(view.sites, blocks[0].Y.shape[0], len(latents))
    likelihood = copy.deepcopy(view.likelihood).cpu().requires_grad_(False)
    intercept = None if view.sites is None else view.sites.intercept.double().cpu()
    return ViewPosterior(
        view.name, tuple(draws), group_of, likelihood, intercept, view.dims, view.weight
    )


def _group_of(blocks: tuple[Block, ...], f: Frequencies) -> Tensor:
    """Return the number of every column's covariance: one of each block, or more where it has
    holes.
    """
    out, n_groups = torch.zeros(sum(block.n_columns for block in blocks), dtype=torch.int64), 0
    for block in (*complete_blocks(blocks), *incomplete_blocks(blocks)):
        own = torch.zeros(1, dtype=torch.int64)
        if isinstance(block, IncompleteBlock):
            own = groups_of(block, f.n_features)
        out[block.columns] = own + n_groups
        n_groups += int(own.max()) + 1
    return out


def _draw(
    f: Frequencies,
    blocks: tuple[Block, ...],
    latents: list[Tensor],
    noise_variance: Tensor,
    n_columns: int,
    processes: Processes,
) -> Draw:
    mean = torch.zeros(f.n_features, n_columns, dtype=torch.float64)
    covariances = []
    eye = torch.eye(f.n_features, dtype=torch.float64, device=noise_variance.device)
    scales = (
        torch.ones(n_columns, f.n_features, dtype=torch.float64) if noise_variance.ndim else None
    )
    for block in complete_blocks(blocks):
        diagonal = gram_diagonal(f, processes.total(block.n_rows))
        products = products_in(latents[0].dtype, diagonal, noise_variance)
        stats = expected_statistics(f, block, latents, products, processes)
        if scales is not None:
            values, vectors = spectrum(stats.gram / len(latents))
            inverse = 1.0 / (values + noise_variance.detach()[block.columns.to(eye.device), None])
            mean[:, block.columns] = (
                vectors @ (vectors.T @ stats.cross / len(latents) * inverse.T)
            ).cpu()
            scales[block.columns] = inverse.cpu()
            covariances.append(vectors[None].cpu())
            continue
        factor = precision(f, block, latents, stats, noise_variance.double(), processes)
        mean[:, block.columns] = factor.solve(stats.cross / len(latents)).cpu()
        covariances.append(factor.inverse()[None].cpu())
    for holed in incomplete_blocks(blocks):
        mean[:, holed.columns], own = condition_holed(f, holed, latents, float(noise_variance))
        covariances.append(own)
    # row by row, as a file would hold them: products of another layout differ in the last bit
    return Draw(_to_cpu(f), mean, torch.cat(covariances).contiguous(), scales)


def _to_cpu(f: Frequencies) -> Frequencies:
    # in the order a file has: products of another layout round another way
    return f.each(lambda part: part.cpu().contiguous())
