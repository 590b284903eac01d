"""What a bound needs to know of the distribution of a view's data given its noise-free value."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor, nn


class Likelihood(nn.Module, ABC):
    """The distribution of one observed entry y given psi = phi(x)^T a."""

    @abstractmethod
    def log_prob(self, y: Tensor, psi: Tensor) -> Tensor:
        """Return log p(y | psi), elementwise, in nats."""

    @abstractmethod
    def mean(self, psi: Tensor) -> Tensor:
        """Return E[y | psi], elementwise."""
