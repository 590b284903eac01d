"""The posterior of a view's weights under one draw of its spectrum: columns share a noise variance,
or have one each.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Self

import torch
from torch import Tensor

from bochner.features.fourier import evaluate
from bochner.kernels.base import Frequencies

# Features per point and slope from which on forming a row's matrix, once, costs more than the two
# products with all columns' means, at every evaluation of a climb.
_PRODUCTS = 16
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

    @abstractmethod
    def spread(self, phi: Tensor, group_of: Tensor) -> Tensor:
        """Return phi^T B_m^-1 phi for every column, (n, K), (M,) -> (n, M)."""

    @abstractmethod
    def summed(self, weights: Tensor, group_of: Tensor) -> Tensor:
        """Return sum_m weights_nm B_m^-1, (n, M), (M,) -> (n, K, K)."""

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

    def spread(self, phi: Tensor, group_of: Tensor) -> Tensor:
        """Return phi^T B_m^-1 phi for every column."""
        of_groups = [((phi @ inverse) * phi).sum(1) for inverse in self.covariance]
        return torch.stack(of_groups, dim=1)[:, group_of]

    def summed(self, weights: Tensor, group_of: Tensor) -> Tensor:
        """Return sum_m weights_nm B_m^-1."""
        groups = weights.new_zeros(weights.shape[0], self.covariance.shape[0])
        groups.index_add_(1, group_of, weights)
        return torch.einsum("ng,gkl->nkl", groups, self.covariance)

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
        few_groups = self.covariance.shape[0] * self.mean.shape[0] <= 4 * self.mean.shape[1]
        return few_groups and _PRODUCTS * (1 + dim) < self.mean.shape[0]


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
            total += (
                vectors * (weights[:, members] @ self.scales[members])[:, None, :]
            ) @ vectors.T
        return total

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

    def stays_factored(self, dim: int) -> bool:  # noqa: ARG002 - whatever it is
        """Return False: every column has a matrix of its own."""
        return False
