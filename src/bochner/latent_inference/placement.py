"""Where rows lie in latent space, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
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
    """

    modes: Tensor
    covariances: Tensor
    weights: Tensor

    @classmethod
    def joined(cls, parts: Sequence[Placement]) -> Placement:
        """Put the rows of several placements one after the other."""
        modes, covariances, weights = zip(
            *((p.modes, p.covariances, p.weights) for p in parts), strict=True
        )
        return cls(torch.cat(modes), torch.cat(covariances), torch.cat(weights))

    def of(self, index: Tensor) -> Placement:
        """Return that of some rows."""
        return Placement(self.modes[index], self.covariances[index], self.weights[index])

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
