"""Where rows lie in latent space, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Placement:
    """Posterior modes of the rows' latents.

    Attributes
    ----------
    modes : Tensor of shape (n, R, D)
        Best first.
    covariances : Tensor of shape (n, R, D, D)
        Of the Laplace approximation at each mode.
    weights : Tensor of shape (n, R)
        Posterior weight of each mode; rows sum to 1, duplicates have 0.
    covariates : Tensor of shape (n, L) or None
        Of the rows.
    """

    modes: Tensor
    covariances: Tensor
    weights: Tensor
    covariates: Tensor | None = None

    @classmethod
    def joined(cls, parts: Sequence[Placement]) -> Placement:
        """Put the rows of several placements one after the other."""
        modes, covariances, weights = zip(
            *((p.modes, p.covariances, p.weights) for p in parts), strict=True
        )
        known = [p.covariates for p in parts if p.covariates is not None]
        beside = torch.cat(known) if known else None
        return cls(torch.cat(modes), torch.cat(covariances), torch.cat(weights), beside)

    def of(self, index: Tensor) -> Placement:
        """Return that of some rows."""
        beside = None if self.covariates is None else self.covariates[index]
        return Placement(self.modes[index], self.covariances[index], self.weights[index], beside)

    def inputs(self, x: Tensor) -> Tensor:
        """Return places of all rows with their covariates beside them, (n, ..., D) -> (n, ..., D +
        L).
        """
        return with_covariates(x, self.covariates)

    @property
    def mean(self) -> Tensor:
        """The best mode, (n, D): a place that exists, where a mean of several modes may not."""
        return self.modes[:, 0]

    @property
    def std(self) -> Tensor:
        """Root mean square distance of the mixture from the best mode, per dimension, (n, D)."""
        away = self.modes - self.modes[:, :1]
        spread = torch.diagonal(self.covariances, dim1=-2, dim2=-1) + away.square()
        return (self.weights[..., None] * spread).sum(1).sqrt()


def with_covariates(x: Tensor, covariates: Tensor | None) -> Tensor:
    """Return places of rows with the rows' covariates beside them, (n, ..., D) and (n, L) -> (n,
    ..., D + L).
    """
    if covariates is None:
        return x
    between = (1,) * (x.ndim - 2)
    beside = covariates.to(x).reshape(x.shape[0], *between, -1)
    return torch.cat([x, beside.expand(*x.shape[:-1], -1)], dim=-1)


def alike(covariates: Tensor | None, n_rows: int) -> Iterator[tuple[Tensor, Tensor | None]]:
    """Yield the rows with the same covariates, (n,), and these covariates, (L,)."""
    if covariates is None:
        yield torch.arange(n_rows), None
        return
    distinct, which = torch.unique(covariates, dim=0, return_inverse=True)
    for number, own in enumerate(distinct):
        yield (which == number).nonzero()[:, 0], own
