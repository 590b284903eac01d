"""What a prediction needs to know of the distribution of a view's data; Gaussian noise; the size
factors that rows bring along.

Views without size factors and models without covariates have None; that is asked here, once.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from bochner.errors import InputError, message
from bochner.kernels.base import as_tensor, positive
from bochner.kernels.parameters import HasParameters
from bochner.likelihoods.densities import EntryDensity
from bochner.quadrature import LogDensity, log_normal_mean, normal_mean

# Least noise variance of a column that learns its own, in scaled units.
_LEAST = 1e-4
# Of one variance for all columns of scaled data. Rows beside one of another order let it fall until
# no step of latents or features fits between them and the bound: at 1e-8 fits of 100 rows, one of
# them 1e5 times the others, ended 1e5 nats below noise alone (seeds 5 to 7), at 1e-7 and 1e-6 above
# it. Data without noise are not held back: surfaces and waves end at 3e-6 and 5e-5.
_LEAST_SHARED = 1e-6

Offsets = Sequence[Tensor | None]


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


class Likelihood(HasParameters, nn.Module, ABC):
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
            NaN = missing.
        mean, variance : Tensor of shape (n, m)
            Of psi.

        Returns
        -------
        Tensor of shape (n, m)
            NaN where y is.
        """
        missing = y.isnan()
        if not bool(missing.any()):
            return log_normal_mean(self.density(y), mean, variance)
        # quadrature is what takes time: where nothing is asked for there is none
        index = (~missing).flatten().nonzero()[:, 0]
        density = self.density(torch.nan_to_num(y)).at(index)
        log_p = log_normal_mean(density, mean.flatten()[index], variance.flatten()[index])
        out = torch.full_like(mean, torch.nan).flatten().index_copy(0, index, log_p)
        return out.view_as(mean)

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

    def touching(self) -> tuple[Tensor, Tensor]:
        """Give the sites with which the bound touches.

        Returns
        -------
        precision, slope : Tensor of shape (n, m)
        """
        return -2.0 * self.d_variance, self.d_mean


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


class Gaussian(Likelihood):
    """y = psi + N(0, noise_variance), the projection variance of Li et al. (2024a).

    Parameters
    ----------
    noise_variance : float, or sequence of M floats for one per column
        In the units of the scaled view squared; positive. Those of columns stay above 1e-4: the
        bound of a column without noise, a constant one say, has no maximum. One that training
        learns for all columns stays above 1e-6.
    least : float, or sequence of M floats, default=0
        Variances of columns, no other ones, stay above it, too: what discrete values ask for. The
        bound of a column of three values rises without end as its noise falls, and latents that
        code it say nothing of the others.

    Raises
    ------
    InputError
        The variance is not positive and finite.
    """

    name: ClassVar[str] = "gaussian"
    knows_by_rows: ClassVar[bool] = True
    scales_with_data: ClassVar[bool] = True

    def __init__(
        self,
        noise_variance: float | Sequence[float] = 0.1,
        least: float | Sequence[float] = 0.0,
    ) -> None:
        super().__init__(noise_variance=noise_variance, least=least)
        given = as_tensor(noise_variance)
        start = positive("noise_variance", given)
        floor = as_tensor(least)
        if not bool((floor.isfinite() & (floor >= 0.0)).all()) or floor.ndim > given.ndim:
            expected = "least finite and at least 0, one number or one per noise_variance"
            raise InputError(message(expected, repr(least), "correct it, or leave it out"))
        # of columns: no parameter, and so no part of the state
        self._least = floor.clamp(min=_LEAST)
        if given.ndim:
            start = (given - self._least).clamp(min=1e-2 * _LEAST).log()
        self.log_noise_variance = nn.Parameter(start)

    @property
    def per_column(self) -> bool:
        """Whether every column has a variance of its own."""
        return self.log_noise_variance.ndim > 0

    @property
    def known_variance(self) -> float | Tensor:
        """The variance without its history: a number, or of shape (M,)."""
        variance = self.noise_variance.detach()
        return variance if self.per_column else float(variance)

    @property
    def one_variance(self) -> bool:
        """Whether all columns share the variance."""
        return not self.per_column

    @property
    def learned(self) -> bool:
        """Whether training moves the variance."""
        return self.log_noise_variance.requires_grad

    @property
    def noise_variance(self) -> Tensor:
        """The variance, scalar or of shape (M,), float64."""
        variance = self.log_noise_variance.exp()
        return variance + self._least.to(variance) if self.per_column else variance

    def project(self) -> None:
        """Keep a learned variance where rounding leaves something of it."""
        if self.learned and not self.per_column:
            with torch.no_grad():
                self.log_noise_variance.clamp_(min=math.log(_LEAST_SHARED))

    def log_prob(self, y: Tensor, psi: Tensor) -> Tensor:
        """Return log N(y; psi, noise_variance), elementwise."""
        squares = (y - psi).square() / self.noise_variance
        return -0.5 * (math.log(2.0 * math.pi) + self.noise_variance.log() + squares)

    def mean(self, psi: Tensor) -> Tensor:
        """Return psi."""
        return psi

    def variance(self, psi: Tensor) -> Tensor:
        """Return the noise variance at every entry."""
        return self.noise_variance.detach().to(psi.dtype).expand(psi.shape)

    def draw(self, psi: Tensor, source: torch.Generator) -> Tensor:
        """Draw psi plus noise."""
        noise = torch.randn(psi.shape, generator=source, dtype=psi.dtype)
        return psi + self.variance(psi).sqrt() * noise

    def predict(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance + noise variance."""
        return mean, variance + self.variance(mean)

    def log_predictive(self, y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """Return log N(y; mean, variance + noise_variance)."""
        v = variance + self.variance(mean)
        return -0.5 * ((2.0 * math.pi * v).log() + (y - mean).square() / v)
