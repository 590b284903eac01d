"""What a bound and a prediction need to know of the distribution of a view's data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from bochner.quadrature import log_normal_mean, normal_mean


class Likelihood(nn.Module, ABC):
    """The distribution of one observed entry y given its linear predictor psi.

    Subclasses pass every constructor argument to ``super().__init__``: ``get_params`` returns those very objects.
    """

    name: ClassVar[str]

    def __init__(self, **params: Any) -> None:
        super().__init__()
        self._params = params

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002 - scikit-learn's signature
        """Return the constructor's arguments, the very objects that were passed."""
        return dict(self._params)

    def extra_repr(self) -> str:
        """Show the constructor's arguments."""
        return ", ".join(f"{name}={value!r}" for name, value in self._params.items())

    @abstractmethod
    def log_prob(self, y: Tensor, psi: Tensor) -> Tensor:
        """Return log p(y | psi), elementwise, in nats."""

    @abstractmethod
    def mean(self, psi: Tensor) -> Tensor:
        """Return E[y | psi], elementwise."""

    @abstractmethod
    def variance(self, psi: Tensor) -> Tensor:
        """Return Var[y | psi], elementwise."""

    @abstractmethod
    def draw(self, psi: Tensor, source: torch.Generator) -> Tensor:
        """Draw y given psi, elementwise."""

    def predict(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance of y when psi ~ N(mean, variance), by the laws of total mean and variance."""
        first = normal_mean(self.mean, mean, variance)
        second = normal_mean(lambda psi: self.variance(psi) + self.mean(psi).square(), mean, variance)
        return first, (second - first.square()).clamp(min=0.0)

    def log_predictive(self, y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """Return log of the integral of p(y | psi) N(psi; mean, variance), elementwise, in nats."""
        return log_normal_mean(lambda psi: self.log_prob(y, psi), mean, variance)


@dataclass(frozen=True)
class Slopes:
    """A lower bound of E log p(y | psi), psi ~ N(mean, variance), elementwise, with its slopes.

    Attributes
    ----------
    value, d_mean, d_variance : Tensor of shape (n, m)
        In nats; -2 d_variance >= 0 is the weight that the entry has in the precision of q(A).
    """

    value: Tensor
    d_mean: Tensor
    d_variance: Tensor


@dataclass(frozen=True)
class Curvatures:
    """Second derivatives of that bound.

    Attributes
    ----------
    mean, mixed, variance : Tensor of shape (n, m)
    """

    mean: Tensor
    mixed: Tensor
    variance: Tensor


class LocalLikelihood(Likelihood, ABC):
    """A likelihood that is not conjugate to the weights: its bound has parameters of its own at every entry.

    Psi holds everything: intercept, offset and phi(x)^T a. Data columns may become several columns of psi (the
    sticks of a categorical column); y below is what ``encode`` returned, finite everywhere.
    """

    support: ClassVar[str]
    shares_curvature: bool = False

    def initial(self, Y: Tensor, offset: Tensor | None = None) -> Self:  # noqa: ARG002 - for those that learn
        """Return a likelihood of this kind for the data of a view, its parameters where training starts.

        Parameters
        ----------
        Y : Tensor of shape (N, M), float64
            As observed, NaN = missing.
        offset : Tensor of shape (N,), optional
            Logarithms of the size factors.
        """
        return type(self)(**self._params)

    def encode(self, Y: Tensor) -> Tensor:
        """Return what the bound sees of data (n, M): shape (n, columns of psi), NaN = missing."""
        return Y

    @property
    def group_sizes(self) -> tuple[int, ...] | None:
        """How many columns of psi each data column has; None when one."""
        return None

    @abstractmethod
    def intercept(self, y: Tensor, offset: Tensor | None, columns: Tensor | None = None) -> Tensor:
        """Return where the intercepts start, one per column of y, finite for any data.

        Parameters
        ----------
        y : Tensor of shape (n, m), float64
            NaN = missing.
        offset : Tensor of shape (n,), optional
        columns : Tensor of shape (m,), int64, optional
            Which columns of the view these are; None means all.
        """

    def first(self, y: Tensor, mean: Tensor) -> Tensor:  # noqa: ARG002 - for bounds that are not quadratic
        """Return psi where the first bound is laid; mean is intercept plus offset."""
        return mean

    @abstractmethod
    def stand_in(self, Y: Tensor, offset: Tensor | None) -> Tensor:
        """Return real numbers that vary as psi does, for starts only; shape (n, M'), NaN = missing."""

    @abstractmethod
    def slopes(self, y: Tensor, mean: Tensor, variance: Tensor, columns: Tensor | None = None) -> Slopes:
        """Return the bound of E log p(y | psi) and its slopes, elementwise.

        Parameters
        ----------
        y, mean, variance : Tensor of shape (n, m)
            Of psi under q.
        columns : Tensor of shape (m,), int64, optional
            Which columns of the view these are; None means all.
        """

    def parameter_value(self, y: Tensor, mean: Tensor, variance: Tensor, columns: Tensor | None = None) -> Tensor:
        """Return what the likelihood's own parameters maximise, elementwise, up to what does not depend on them."""
        return self.slopes(y, mean, variance, columns).value

    def slack(
        self,
        y: Tensor,  # noqa: ARG002 - for bounds that loosen as parameters are learned
        mean: Tensor,  # noqa: ARG002
        variance: Tensor,  # noqa: ARG002
        columns: Tensor | None = None,  # noqa: ARG002
    ) -> Tensor | None:
        """Return by how much E log p lies above the bound, elementwise, at least 0; None: of no concern.

        Where a learned parameter loosens the bound, its fall is no sign that training goes wrong: progress is judged
        with the slack added, which is a bound as well.
        """
        return None

    @abstractmethod
    def curvatures(self, y: Tensor, mean: Tensor, variance: Tensor) -> Curvatures:
        """Return the second derivatives of the bound; all columns."""

    @abstractmethod
    def products(self, y: Tensor, mean: Tensor, variance: Tensor) -> tuple[tuple[Tensor, Tensor], ...]:
        """Return pairs (s(y), t(mean, variance)): the bound at any two rows is their sum of products, up to s alone.

        Parameters
        ----------
        y : Tensor of shape (n, m)
        mean, variance : Tensor of shape (c, m)

        Returns
        -------
        tuple of (Tensor of shape (n, m), Tensor of shape (c, m))
        """
