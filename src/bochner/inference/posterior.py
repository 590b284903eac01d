"""The posterior of the weights A given latents and draws of the spectra: what prediction needs of a fit.

Per column A | Y, X, W ~ N(m, sigma^2 B^-1) (MATH.md section 2, fact 3).
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor

from bochner import random
from bochner._typing import Sampling
from bochner.data.batches import chunks
from bochner.features.fourier import evaluate
from bochner.inference.holed_posterior import condition_holed, groups_of
from bochner.inference.local_posterior import condition
from bochner.kernels.base import Frequencies
from bochner.likelihoods.base import Likelihood, LocalLikelihood
from bochner.likelihoods.gaussian import Gaussian
from bochner.linalg import cholesky
from bochner.models.lvm import LatentVariableModel, View
from bochner.objectives.collapsed import CHUNK_ROWS
from bochner.objectives.statistics import Block, Statistics, statistics

# The covariances of a view's column groups, over all draws, are kept up to this size: fewer draws beyond it.
_COVARIANCE_BYTES = 2**30


@dataclass(frozen=True)
class Draw:
    """Posterior of a view's weights under one draw of its spectrum, all float64.

    Attributes
    ----------
    frequencies : Frequencies
    mean : Tensor of shape (K, M)
    covariance : Tensor of shape (groups, K, K)
        B^-1 of each group of columns that were observed in the same rows, or the average of B^-1 over columns with
        similar holes.
    """

    frequencies: Frequencies
    mean: Tensor
    covariance: Tensor

    def features(self, x: Tensor) -> Tensor:
        """Return phi(x) row-major, (n, D) -> (n, K)."""
        return evaluate(x, self.frequencies).features.T

    def spread(self, phi: Tensor) -> Tensor:
        """Return phi^T B^-1 phi for every group of columns, (n, K) -> (n, groups)."""
        return torch.stack([((phi @ inverse) * phi).sum(1) for inverse in self.covariance], dim=1)


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
        Of views that are not Gaussian.

    Notes
    -----
    Columns are those of psi: a categorical view has more of them than of data.
    """

    name: str
    draws: tuple[Draw, ...]
    group_of: Tensor
    likelihood: Likelihood
    intercept: Tensor | None = None

    @property
    def n_columns(self) -> int:
        """Columns of psi."""
        return int(self.group_of.shape[0])

    @property
    def n_data_columns(self) -> int:
        """M."""
        sizes = None if self.local is None else self.local.group_sizes
        return self.n_columns if sizes is None else len(sizes)

    @property
    def local(self) -> LocalLikelihood | None:
        """The likelihood, unless it is Gaussian."""
        return self.likelihood if isinstance(self.likelihood, LocalLikelihood) else None

    @property
    def noise_variance(self) -> float:
        """sigma^2 of the scaled data, 1 for views that are not Gaussian: what their covariances are in units of."""
        return float(self.likelihood.noise_variance.detach()) if isinstance(self.likelihood, Gaussian) else 1.0

    def encode(self, y: Tensor) -> Tensor:
        """Return data as the bound sees them, (n, columns of data) -> (n, columns of psi), NaN = missing."""
        return y if self.local is None else self.local.encode(y)

    def psi(self, draw: Draw, phi: Tensor, offset: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return mean and variance of psi at features phi (n, K), both (n, columns of psi)."""
        mean, variance = phi @ draw.mean, self.noise_variance * draw.spread(phi)[:, self.group_of]
        if self.intercept is not None:
            mean = mean + self.intercept
        return (mean if offset is None else mean + offset[:, None]), variance.clamp(min=0.0)


def weights_posterior(
    model: LatentVariableModel,
    data: tuple[tuple[Block, ...], ...],
    *,
    n_frequencies: int,
    n_draws: int,
    n_latent_draws: int,
    sampling: Sampling,
    seed: int,
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

    Returns
    -------
    tuple of ViewPosterior
    """
    with torch.no_grad():
        mean = model.latents.mean
        noises = [
            random.row_noise(
                mean.shape[0], mean.shape[1], seed, "posterior/latents", i, dtype=mean.dtype, device=mean.device
            )
            for i in range(n_latent_draws)
        ]
        latents = [model.latents.sample(noise) for noise in noises]
        return tuple(
            _view_posterior(view, blocks, latents, n_frequencies, n_draws, sampling, seed)
            for view, blocks in zip(model.views, data, strict=True)
        )


def _view_posterior(
    view: View,
    blocks: tuple[Block, ...],
    latents: list[Tensor],
    n_frequencies: int,
    n_draws: int,
    sampling: Sampling,
    seed: int,
) -> ViewPosterior:
    n_columns = sum(block.Y.shape[1] for block in blocks)
    draws: list[Draw] = []
    for s in range(n_draws):
        source = random.generator(seed, f"posterior/spectrum/{view.name}", s, device=latents[0].device)
        noise = view.kernel.noise(n_frequencies, latents[0].shape[1], source, sampling)
        f = view.kernel.frequencies(noise).detach()
        if view.sites is None:
            draws.append(_draw(f, blocks, latents, view.noise_variance, n_columns))
        else:
            draws.append(Draw(_to_cpu(f), *condition(view, f, blocks[0], latents)))
        if draws[0].covariance.numel() * 8 * (s + 2) > _COVARIANCE_BYTES:
            break
    group_of = _group_of(blocks, draws[0].frequencies) if view.sites is None else view.sites.group_of.cpu()
    likelihood = copy.deepcopy(view.likelihood).cpu().requires_grad_(False)
    intercept = None if view.sites is None else view.sites.intercept.double().cpu()
    return ViewPosterior(view.name, tuple(draws), group_of, likelihood, intercept)


def _group_of(blocks: tuple[Block, ...], f: Frequencies) -> Tensor:
    """Return the number of every column's covariance: one of each block, or more where it has holes."""
    out, n_groups = torch.zeros(sum(block.n_columns for block in blocks), dtype=torch.int64), 0
    for block in blocks:
        own = torch.zeros(1, dtype=torch.int64) if block.seen is None else groups_of(block, f.n_features)
        out[block.columns] = own + n_groups
        n_groups += int(own.max()) + 1
    return out


def _draw(
    f: Frequencies, blocks: tuple[Block, ...], latents: list[Tensor], noise_variance: Tensor, n_columns: int
) -> Draw:
    mean = torch.zeros(f.n_features, n_columns, dtype=torch.float64)
    covariances = []
    eye = torch.eye(f.n_features, dtype=torch.float64, device=noise_variance.device)
    for block in blocks:
        if block.seen is not None:
            mean[:, block.columns], own = condition_holed(f, block, latents, float(noise_variance))
        else:
            stats = _expected_statistics(f, block, latents)
            factor = cholesky(stats.gram / len(latents) + noise_variance.double() * eye)
            mean[:, block.columns] = factor.solve(stats.cross / len(latents)).cpu()
            own = factor.inverse()[None].cpu()
        covariances.append(own)
    # row by row, as a file would hold them: products of another layout differ in the last bit
    return Draw(_to_cpu(f), mean, torch.cat(covariances).contiguous())


def _expected_statistics(f: Frequencies, block: Block, latents: list[Tensor]) -> Statistics:
    """Sum the statistics over the draws of X, chunk by chunk."""
    sums: Statistics | None = None
    working = f.to(latents[0].dtype)
    for x in latents:
        seen = x if block.rows is None else x[block.rows]
        for rows in chunks(seen.shape[0], CHUNK_ROWS):
            part = statistics(evaluate(seen[rows], working).features, block.Y[rows], 0.0)
            sums = part if sums is None else sums + part
    if sums is None:
        raise ValueError("no draws of the latents")
    return sums


def _to_cpu(f: Frequencies) -> Frequencies:
    second = None if f.second is None else f.second.cpu()
    return Frequencies(f.first.cpu(), second, f.amplitude.cpu())
