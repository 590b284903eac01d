"""What a prediction needs to know of the distribution of a view's data, and the size factors that
rows bring along.

Views without size factors and models without covariates have None; that is asked here, once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from bochner.likelihoods.densities import EntryDensity
from bochner.quadrature import LogDensity, log_normal_mean, normal_mean


def rows_of(values: Tensor | None, index: Tensor | slice | None) -> Tensor | None:
    """Return what some rows bring along; ``index`` None means all rows.

    Parameters
    ----------
    values : Tensor of shape (N, ...) or None
    index : Tensor of shape (n,), slice or None

    Returns
    -------
    Tensor of shape (n, ...) or None
    """
    return values if values is None or index is None else values[index]


def offsets_of(offsets: Sequence[Tensor | None], index: Tensor | slice) -> list[Tensor | None]:
    """Return the offsets of some rows, by view."""
    return [rows_of(offset, index) for offset in offsets]


def shifted(psi: Tensor, offset: Tensor | None) -> Tensor:
    """Add every row's offset to its psi, (n, m), (n,) -> (n, m)."""
    return psi if offset is None else psi + offset[:, None]


def of_each_row(offset: Tensor | None, n_rows: int, like: Tensor) -> Tensor:
    """Return offsets (n_rows,) in the precision and place of another tensor; 0 where there are
    none.
    """
    return like.new_zeros(n_rows) if offset is None else offset.to(like)


def per_size(counts: Tensor, offset: Tensor | None) -> Tensor:
    """Divide the counts of every row by its size factor, (n, m), (n,) -> (n, m)."""
    return counts / of_each_row(offset, counts.shape[0], counts).exp()[:, None]


class Likelihood(nn.Module, ABC):
    """The distribution of one observed entry y given its linear predictor psi.

    Subclasses pass every constructor argument to ``super().__init__``: ``get_params`` returns those
    very objects.

    Attributes
    ----------
    name : str
    scales_with_data : bool
        Whether data of this likelihood may be centred and scaled: true of location-scale families
        of real numbers, such as the normal and Student's t. A view of one is fitted in units of
        the root mean square of its centred entries and reported in those of the data; any other
        is fitted as it is.
    knows_by_rows : bool
        Whether some rows say where its parameters start and how entries are encoded: rows may then
        be divided among processes, or read block by block.
    support : {"real", "positive", "binary", "trials", "counts", "categories"}
        What an entry can be; anything else is refused with view, row, column and value.
    """

    name: ClassVar[str]
    scales_with_data: ClassVar[bool] = False
    knows_by_rows: ClassVar[bool] = False
    support: ClassVar[str] = "real"

    def __init__(self, **params: Any) -> None:
        super().__init__()
        self._params = params

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002 - scikit-learn's signature
        """Return the constructor's arguments, the very objects that were passed.

        Parameters
        ----------
        deep : bool, default=True
            Ignored: scikit-learn's signature.

        Returns
        -------
        dict
        """
        return dict(self._params)

    def extra_repr(self) -> str:
        """Show the constructor's arguments.

        Returns
        -------
        str
        """
        return ", ".join(f"{name}={value!r}" for name, value in self._params.items())

    @abstractmethod
    def log_prob(self, y: Tensor, psi: Tensor) -> Tensor:
        """Return log p(y | psi), elementwise, in nats.

        Parameters
        ----------
        y, psi : Tensor of shape (n, m)

        Returns
        -------
        Tensor of shape (n, m)
        """

    @abstractmethod
    def mean(self, psi: Tensor) -> Tensor:
        """Return E[y | psi], elementwise.

        Parameters
        ----------
        psi : Tensor of shape (n, m)

        Returns
        -------
        Tensor of shape (n, m)
        """

    @abstractmethod
    def variance(self, psi: Tensor) -> Tensor:
        """Return Var[y | psi], elementwise.

        Parameters
        ----------
        psi : Tensor of shape (n, m)

        Returns
        -------
        Tensor of shape (n, m)
        """

    @abstractmethod
    def draw(self, psi: Tensor, source: torch.Generator) -> Tensor:
        """Draw y given psi, elementwise.

        Parameters
        ----------
        psi : Tensor of shape (n, m)
        source : torch.Generator

        Returns
        -------
        Tensor of shape (n, m)
        """

    def predict(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance of y when psi ~ N(mean, variance), by the laws of total mean and
        variance.

        Parameters
        ----------
        mean, variance : Tensor of shape (n, m)
            Of psi.

        Returns
        -------
        mean, variance : Tensor of shape (n, m)
            Of y.
        """
        first = normal_mean(self.mean, mean, variance)
        second = normal_mean(
            lambda psi: self.variance(psi) + self.mean(psi).square(), mean, variance
        )
        return first, (second - first.square()).clamp(min=0.0)

    def predict_below(
        self,
        mean: Tensor,
        variance: Tensor,
        most: Tensor | None,  # noqa: ARG002 - for those that grow without bound
    ) -> tuple[Tensor, Tensor]:
        """Return what `predict` does for min(psi, most).

        Parameters
        ----------
        mean, variance : Tensor of shape (n, m)
            Of psi.
        most : Tensor of shape (n, m) or None
            None: psi is what it is.

        Returns
        -------
        mean, variance : Tensor of shape (n, m)
            Of y.
        """
        return self.predict(mean, variance)

    def largest_psi(
        self,
        y: Tensor,  # noqa: ARG002
        offset: Tensor | None,  # noqa: ARG002
    ) -> Tensor | None:
        """Return the largest psi, less the offset, that entries to come are predicted with; None:
        any.

        A mean that is an exponential of psi needs one: where a function of the latents overshoots
        between training rows, its exponential is far beyond all data.

        Parameters
        ----------
        y : Tensor of shape (n, m)
            Encoded, NaN = missing.
        offset : Tensor of shape (n,) or None

        Returns
        -------
        Tensor of shape (m,) or None
            Monotone in the rows: that of more rows is the elementwise maximum. -inf where a column
            has no entries here.
        """
        return None

    def log_predictive(self, y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """Return log of the integral of p(y | psi) N(psi; mean, variance), elementwise, in nats.

        Parameters
        ----------
        y : Tensor of shape (n, m)
        mean, variance : Tensor of shape (n, m)
            Of psi.

        Returns
        -------
        Tensor of shape (n, m)
        """
        return log_normal_mean(self.density(y), mean, variance)

    def project(self) -> None:
        """Bring parameters that training moved too far back, in place; by default none are."""

    @property
    def one_variance(self) -> bool:
        """Whether columns have normal noise of one variance: the bound then knows them through
        Y Y^T alone.
        """
        return False

    def encode(self, Y: Tensor) -> Tensor:
        """Return what the bound sees of data (n, M): shape (n, columns of psi), NaN = missing.

        Parameters
        ----------
        Y : Tensor of shape (n, M)
            NaN = missing.

        Returns
        -------
        Tensor of shape (n, columns of psi)
            NaN = missing.
        """
        return Y

    def n_data_columns(self, n_columns: int) -> int:
        """Return how many columns of data have so many columns of psi.

        Parameters
        ----------
        n_columns : int

        Returns
        -------
        int
        """
        return n_columns

    def by_data_column(self, of_psi: Tensor) -> Tensor:
        """Sum what belongs to the same column of data, (n, columns of psi) -> (n, M).

        Parameters
        ----------
        of_psi : Tensor of shape (n, columns of psi)

        Returns
        -------
        Tensor of shape (n, M)
        """
        return of_psi

    def density(self, y: Tensor) -> LogDensity:
        """Return log p(y | psi) as quadrature needs it, a concave function of psi.

        Parameters
        ----------
        y : Tensor of shape (n, m)

        Returns
        -------
        LogDensity
            Its derivatives are taken of ``log_prob``; subclasses give them in closed form.
        """
        return EntryDensity(y, self.log_prob)


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
