"""The posterior of a view's weights under one draw of its spectrum, where columns share a noise
variance or have one each, and how each kind of view is conditioned on its data, at draws of the
latents.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Protocol, Self

import torch
from torch import Tensor

from bochner.features.fourier import evaluate
from bochner.kernels.base import Frequencies
from bochner.linalg import laid_out
from bochner.models.lvm import NoSites, View
from bochner.models.sites import DENSE, Sites
from bochner.processes import Processes
from bochner.regression.evidence import expected_statistics, gram_diagonal, precision
from bochner.regression.noise import (
    Noise,
    NoisePerColumn,
    SharedNoise,
    Statistics,
    products_in,
    spectrum,
)
from bochner.regression.observations import (
    Block,
    CompleteBlock,
    EncodedBlock,
    blocks_with_holes,
    complete_blocks,
    encoded_block,
)
from bochner.weight_posterior.incomplete_conditioning import condition_with_holes, groups_of
from bochner.weight_posterior.site_conditioning import (
    column_groups,
    condition_anchored,
    condition_sites,
    largest_psi,
)

# Features per point and slope from which on forming a row's matrix, once, costs more than the two
# products with all columns' means, at every evaluation of a climb.
_PRODUCTS = 16
# So many products with matrices of groups cost less than reading a matrix of every row.
_FEW_PRODUCTS = 4
# Columns with noise of their own share a covariance in so many groups.
_NOISE_GROUPS = 4


@dataclass(frozen=True)
class Draw(ABC):
    """Posterior of a view's weights under one draw of its spectrum, all float64.

    Attributes
    ----------
    frequencies : Frequencies
    mean : Tensor of shape (K, M)
    covariance : Tensor of shape (groups, K, K)
        Of each group of columns that were observed in the same rows.
    """

    frequencies: Frequencies
    mean: Tensor
    covariance: Tensor

    def __post_init__(self) -> None:
        """Lay the tensors out as those of a file, so that a loaded model answers with the same
        bits.
        """
        object.__setattr__(self, "frequencies", self.frequencies.each(laid_out))
        for name, part in self.tensors().items():
            object.__setattr__(self, name, laid_out(part))

    @staticmethod
    def of(
        frequencies: Frequencies, mean: Tensor, covariance: Tensor, scales: Tensor | None
    ) -> Draw:
        """Return a draw whose columns have one noise variance, or one each where there are
        scales.
        """
        if scales is None:
            return SharedDraw(frequencies, mean, covariance)
        return SpectralDraw(frequencies, mean, covariance, scales)

    def to(self, dtype: torch.dtype) -> Self:
        """Return the same draw in another precision."""
        parts = {name: part.to(dtype) for name, part in self.tensors().items()}
        return replace(self, frequencies=self.frequencies.to(dtype), **parts)

    def tensors(self) -> dict[str, Tensor]:
        """Return all but the frequencies by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)[1:]}

    def features(self, x: Tensor) -> Tensor:
        """Return phi(x) row-major, (n, D) or (n, D + L) with covariates -> (n, K)."""
        return evaluate(x, self.frequencies).features.T

    @property
    def turned(self) -> tuple[Tensor, Tensor] | None:
        """Directions of the columns in which means lie, (M, R), orthonormal, and the means along
        them, (K, R), where columns differ in their means alone.
        """
        return None

    @abstractmethod
    def spread(self, phi: Tensor, group_of: Tensor) -> Tensor:
        """Return phi^T B_m^-1 phi for every column, (n, K), (M,) -> (n, M)."""

    @abstractmethod
    def summed(self, weights: Tensor, group_of: Tensor) -> Tensor:
        """Return sum_m weights_nm B_m^-1, (n, M), (M,) -> (n, K, K)."""

    @abstractmethod
    def factors(
        self, weights: Tensor, group_of: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return L (G, K, K), c (n, G, 1) or (n, G, K), and R (G, K, K) or None, of which
        sum_m weights_nm B_m^-1 = sum_g L_g diag(c_ng) R_g; None is the identity.
        """

    @abstractmethod
    def averaged(self, group_of: Tensor) -> tuple[Draw, Tensor]:
        """Return a draw with fewer covariances, if it can have them, and its groups."""

    @abstractmethod
    def covariances(
        self, noise_variance: float | Tensor, group_of: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return covariances of the weights, (G, K, K), and the one that each column has, (M,)."""

    @abstractmethod
    def stays_factored(self, dim: int) -> bool:
        """Return whether rows with columns of their own are better left without matrices, in so
        many dimensions.
        """


@dataclass(frozen=True)
class SharedDraw(Draw):
    """Columns with one noise variance: ``covariance`` holds B^-1 of each group, or the average of
    B^-1 over columns with similar holes.
    """

    @functools.cached_property
    def turned(self) -> tuple[Tensor, Tensor] | None:
        """Directions of means, and means along them, where columns share a covariance."""
        if len(self.covariance) > 1:
            return None
        directions, triangle = torch.linalg.qr(self.mean.T)
        return directions, triangle.T.contiguous()

    def spread(self, phi: Tensor, group_of: Tensor) -> Tensor:
        """Return phi^T B_m^-1 phi for every column."""
        of_groups = [((phi @ inverse) * phi).sum(1) for inverse in self.covariance]
        return torch.stack(of_groups, dim=1)[:, group_of]

    def summed(self, weights: Tensor, group_of: Tensor) -> Tensor:
        """Return sum_m weights_nm B_m^-1."""
        return torch.einsum("ng,gkl->nkl", self._counts(weights, group_of), self.covariance)

    def factors(self, weights: Tensor, group_of: Tensor) -> tuple[Tensor, Tensor, None]:
        """Return B^-1 of every group and how many columns of it each row observes."""
        return self.covariance, self._counts(weights, group_of)[..., None], None

    def _counts(self, weights: Tensor, group_of: Tensor) -> Tensor:
        groups = weights.new_zeros(weights.shape[0], self.covariance.shape[0])
        return groups.index_add_(1, group_of, weights)

    def averaged(self, group_of: Tensor) -> tuple[Draw, Tensor]:
        """Return the draw whose columns share the mean of their covariances."""
        counts = torch.bincount(group_of, minlength=self.covariance.shape[0]).to(
            self.mean.dtype
        )
        mean = torch.einsum("g,gkl->kl", counts / counts.sum(), self.covariance)[None]
        return replace(self, covariance=mean), torch.zeros_like(group_of)

    def covariances(
        self, noise_variance: float | Tensor, group_of: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return sigma^2 B^-1 of every group."""
        return noise_variance * self.covariance, group_of

    def stays_factored(self, dim: int) -> bool:
        """Return whether groups are few and features many."""
        groups, n_features = self.covariance.shape[:2]
        few = groups <= _FEW_PRODUCTS or groups * n_features <= 4 * self.mean.shape[1]
        return few and _PRODUCTS * (1 + dim) < n_features


@dataclass(frozen=True)
class SpectralDraw(Draw):
    """Columns with a noise variance each: B_m^-1 = V diag(scales_m) V^T, V the ``covariance`` of
    the column's group.

    Attributes
    ----------
    scales : Tensor of shape (M, K)
        1 / (lambda + sigma_m^2).
    """

    scales: Tensor

    def spread(self, phi: Tensor, group_of: Tensor) -> Tensor:
        """Return phi^T B_m^-1 phi for every column."""
        out = phi.new_empty(phi.shape[0], group_of.shape[0])
        for g, vectors in enumerate(self.covariance):
            members = group_of == g
            out[:, members] = (phi @ vectors).square() @ self.scales[members].T
        return out

    def summed(self, weights: Tensor, group_of: Tensor) -> Tensor:
        """Return sum_m weights_nm B_m^-1."""
        total = weights.new_zeros(weights.shape[0], *self.covariance.shape[1:])
        for g, vectors in enumerate(self.covariance):
            members = group_of == g
            of_rows = weights[:, members]
            if of_rows.shape[1] < of_rows.shape[0]:
                # matrices of the columns, which are fewer
                matrices = (vectors * self.scales[members][:, None, :]) @ vectors.T
                total.flatten(1).addmm_(of_rows, matrices.flatten(1))
            else:
                scales = (of_rows @ self.scales[members])[:, None, :]
                total += (vectors * scales) @ vectors.T
        return total

    def factors(self, weights: Tensor, group_of: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the eigenvectors of every group and what its observed columns scale them by."""
        groups = range(self.covariance.shape[0])
        scales = [weights[:, group_of == g] @ self.scales[group_of == g] for g in groups]
        return self.covariance, torch.stack(scales, dim=1), self.covariance.mT

    def averaged(self, group_of: Tensor) -> tuple[Draw, Tensor]:
        """Return the draw as it is."""
        return self, group_of

    def covariances(
        self, noise_variance: float | Tensor, group_of: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return covariances that columns with similar noise share."""
        noise = torch.as_tensor(noise_variance)
        variances = self.scales * noise[:, None]
        of_column = torch.zeros_like(group_of)
        out: list[Tensor] = []
        for g, vectors in enumerate(self.covariance):
            columns = (group_of == g).nonzero()[:, 0]
            columns = columns[noise[columns].argsort()]
            for part in columns.chunk(_NOISE_GROUPS):
                of_column[part] = len(out)
                out.append((vectors * variances[part].mean(0)) @ vectors.T)
        return torch.stack(out), of_column

    def stays_factored(self, dim: int) -> bool:
        """Return whether groups, of two products each, are few and features many."""
        groups, n_features = self.covariance.shape[:2]
        return 2 * groups <= _FEW_PRODUCTS and _PRODUCTS * (1 + dim) < n_features


class Conditioning(Protocol):
    """How the weights of a kind of view are conditioned on its data."""

    @property
    def intercept(self) -> Tensor | None:
        """Of the columns of psi, (M,)."""

    def draw(self, f: Frequencies, latents: list[Tensor]) -> Draw:
        """Return the posterior of the weights under one draw of the spectrum."""

    def group_of(self, draw: Draw, n_latents: int) -> Tensor:
        """Return the number of every column's covariance in the draws, (M,), int64."""

    def largest_psi(self) -> Tensor | None:
        """Return the largest psi by column that data support, (columns of psi,); None: any."""


@dataclass(frozen=True)
class _OnBlocks(ABC):
    """Gaussian data."""

    noise: Noise
    blocks: tuple[Block, ...]
    processes: Processes

    @property
    def intercept(self) -> None:
        """None: columns are centred."""
        return

    @abstractmethod
    def draw(self, f: Frequencies, latents: list[Tensor]) -> Draw:
        """Condition block by block."""

    def group_of(self, draw: Draw, n_latents: int) -> Tensor:  # noqa: ARG002
        """Return the covariance of each column's block, or one of them where it has holes."""
        return _group_of(self.blocks, draw.frequencies)

    def largest_psi(self) -> None:
        """None: values of any size may be predicted."""
        return

    def _no_mean(self, f: Frequencies) -> Tensor:
        n_columns = sum(block.Y.shape[1] for block in self.blocks)
        return torch.zeros(f.n_features, n_columns, dtype=torch.float64)

    def _statistics(self, f: Frequencies, block: CompleteBlock, x: list[Tensor]) -> Statistics:
        """Return a block's expected statistics, as exactly as its noise asks for."""
        diagonal = gram_diagonal(f, self.processes.total(block.n_rows))
        products = products_in(x[0].dtype, diagonal, self.noise.variance)
        return expected_statistics(f, block, x, products, self.processes)


class _WithSharedNoise(_OnBlocks):
    """One noise variance of all columns."""

    def draw(self, f: Frequencies, latents: list[Tensor]) -> Draw:
        """Factor the matrix of every block."""
        mean = self._no_mean(f)
        covariances = []
        variance = self.noise.variance
        among = self.processes
        for block in complete_blocks(self.blocks):
            stats = self._statistics(f, block, latents)
            factor = precision(f, block, latents, stats, variance.double(), among)
            mean[:, block.columns] = factor.solve(stats.cross / len(latents)).cpu()
            covariances.append(factor.inverse()[None].cpu())
        for incomplete in blocks_with_holes(self.blocks):
            mean[:, incomplete.columns], covariance = condition_with_holes(
                incomplete, f, latents, float(variance), among
            )
            covariances.append(covariance)
        # row by row, as a file would hold them: products of another layout differ in the last bit
        return SharedDraw(_to_cpu(f), mean, torch.cat(covariances))


class _WithNoisePerColumn(_OnBlocks):
    """A noise variance of every column, none of which has holes."""

    def draw(self, f: Frequencies, latents: list[Tensor]) -> Draw:
        """Take the eigenvectors of every block."""
        mean = self._no_mean(f)
        directions = []
        scales = torch.ones(mean.shape[1], f.n_features, dtype=torch.float64)
        variance = self.noise.variance.detach()
        for block in complete_blocks(self.blocks):
            stats = self._statistics(f, block, latents)
            values, vectors = spectrum(stats.gram / len(latents))
            inverse = 1.0 / (values + variance[block.columns.to(variance.device), None])
            projected = vectors.T @ stats.cross / len(latents)
            mean[:, block.columns] = (vectors @ (projected * inverse.T)).cpu()
            scales[block.columns] = inverse.cpu()
            directions.append(vectors[None].cpu())
        return SpectralDraw(_to_cpu(f), mean, torch.cat(directions), scales)


_OF_NOISE: dict[type[Noise], type[_OnBlocks]] = {
    SharedNoise: _WithSharedNoise,
    NoisePerColumn: _WithNoisePerColumn,
}


@dataclass(frozen=True)
class _OnSites:
    """Encoded data, by their sites."""

    view: View
    sites: Sites
    block: EncodedBlock
    processes: Processes

    @property
    def intercept(self) -> Tensor:
        """That of the sites."""
        return self.sites.intercept.double().cpu()

    def draw(self, f: Frequencies, latents: list[Tensor]) -> Draw:
        """Condition column group by column group; many entries in passes over the rows."""
        given = (self.view, f, self.block, latents)
        if self._in_passes(len(latents)):
            return SharedDraw(
                _to_cpu(f), *condition_anchored(*given, (latents[0], self.block))
            )
        return SharedDraw(_to_cpu(f), *condition_sites(*given))

    def group_of(self, draw: Draw, n_latents: int) -> Tensor:  # noqa: ARG002
        """Return the groups of the sites."""
        if self._in_passes(n_latents):
            return self.sites.group_of.cpu()
        return column_groups(self.sites, self.block.Y.shape[0], n_latents)

    def largest_psi(self) -> Tensor | None:
        """Return what the likelihood says of the data."""
        return largest_psi(self.view.likelihood, self.block, self.processes)

    def _in_passes(self, n_latents: int) -> bool:
        return self.block.Y.shape[0] * n_latents * self.sites.n_columns > DENSE


@dataclass(frozen=True)
class _OnAnchors(_OnSites):
    """Encoded data of which some rows have sites."""

    anchors: tuple[Tensor, EncodedBlock]

    def draw(self, f: Frequencies, latents: list[Tensor]) -> Draw:
        """Condition in passes over rows."""
        given = (self.view, f, self.block, latents, self.anchors, self.processes)
        return SharedDraw(_to_cpu(f), *condition_anchored(*given))

    def group_of(self, draw: Draw, n_latents: int) -> Tensor:  # noqa: ARG002
        """Return the groups of the sites."""
        return self.sites.group_of.cpu()


@functools.singledispatch
def conditioning(
    sites: Sites | NoSites,  # noqa: ARG001 - says of what kind the view is
    view: View,
    blocks: tuple[Block, ...],
    anchors: tuple[Tensor, tuple[Block, ...]] | None,  # noqa: ARG001
    processes: Processes,
) -> Conditioning:
    """Return how a view is conditioned, given the rows that sites belong to (None: all), their
    latents, (L, D), and their data.
    """
    noise = Noise.of(view.noise_variance)
    return _OF_NOISE[type(noise)](noise, blocks, processes)


@conditioning.register
def _(
    sites: Sites,
    view: View,
    blocks: tuple[Block, ...],
    anchors: tuple[Tensor, tuple[Block, ...]] | None,
    processes: Processes,
) -> Conditioning:
    given = (view, sites, encoded_block(blocks), processes)
    if anchors is None:
        return _OnSites(*given)
    return _OnAnchors(*given, (anchors[0], encoded_block(anchors[1])))


def _group_of(blocks: tuple[Block, ...], f: Frequencies) -> Tensor:
    """Return the number of every column's covariance: one of each block, or more where it has
    holes.
    """
    out = torch.zeros(sum(block.n_columns for block in blocks), dtype=torch.int64)
    complete = complete_blocks(blocks)
    for number, block in enumerate(complete):
        out[block.columns] = number
    n_groups = len(complete)
    for incomplete in blocks_with_holes(blocks):
        groups = groups_of(incomplete, f.n_features)
        out[incomplete.columns] = groups + n_groups
        n_groups += int(groups.max()) + 1
    return out


def _to_cpu(f: Frequencies) -> Frequencies:
    return f.each(lambda part: part.cpu())
