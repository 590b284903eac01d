"""What a bound needs to know of the distribution of a view's data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Self

import torch
from torch import Tensor

from bochner.likelihoods.likelihood import Curvatures, Likelihood, Slopes

__all__ = [
    "Curvatures",
    "Likelihood",
    "NonConjugateLikelihood",
    "SeparableLikelihood",
    "Slopes",
]


# Groups of columns that share a covariance of their weights: against one for each, 8 lose 0.05 % of
# the bound on 1,000 binary digits, 4 lose 0.1 %, a single one 0.7 %.
N_GROUPS = 4


class NonConjugateLikelihood(Likelihood, ABC):
    """A likelihood that is not conjugate to the weights: its bound has variational parameters at
    every entry.

    Psi holds everything: intercept, offset and phi(x)^T a. Data columns may become several columns
    of psi (the sticks of a categorical column); y below is what ``encode`` returned, finite
    everywhere.

    Attributes
    ----------
    extra_sweeps : int
        Times that sites are brought up to date in a step beyond what other likelihoods take.
    """

    extra_sweeps: ClassVar[int] = 0

    def site(
        self,
        y: Tensor,  # noqa: ARG002
        mean: Tensor,  # noqa: ARG002
        variance: Tensor,  # noqa: ARG002
        slopes: Slopes,
    ) -> tuple[Tensor, Tensor]:
        """Return the precision of every entry's site and its slope at the mean: those with which
        its bound touches.

        A step of Newton's, which is safe where the bound is quadratic; a likelihood whose is not
        says how far it goes.

        Parameters
        ----------
        y, mean, variance : Tensor of shape (n, m)
            Of psi under q.
        slopes : Slopes
            There.

        Returns
        -------
        precision, slope : Tensor of shape (n, m)
            Of exp(slope (psi - mean) - precision (psi - mean)^2 / 2).
        """
        return slopes.touching()

    def covariance_groups(self, n_rows: int, n_columns: int) -> int:  # noqa: ARG002
        """Return how many covariances the weights of a view have, which columns of about the same
        precision share.

        Parameters
        ----------
        n_rows, n_columns : int
            Of the view.

        Returns
        -------
        int
            Of as many as columns each has its own: the bound is higher, and means take no
            iterations.
        """
        return N_GROUPS

    def followed(self, y: Tensor, slopes: Slopes) -> Slopes:  # noqa: ARG002 - most are bounded
        """Return the slopes that gradients in latents and spectra are taken from where columns are
        far from all their entries: those of the bound, unless single ones outweigh all others.

        Parameters
        ----------
        y : Tensor of shape (n, m)
        slopes : Slopes

        Returns
        -------
        Slopes
        """
        return slopes

    def beyond_sites(
        self,
        slopes: Slopes,  # noqa: ARG002 - sites of counts change little from draw to draw
        precision: Tensor,  # noqa: ARG002
        slope: Tensor,  # noqa: ARG002
    ) -> tuple[Tensor, Tensor] | None:
        """Return what the slopes of the bound in mean and variance have beyond those of the sites,
        where gradients are to have in them how q(A) follows the features at given sites; None: it
        is taken as given.

        Parameters
        ----------
        slopes : Slopes
        precision, slope : Tensor of shape (n, m)
            Of the sites, at the mean of psi.

        Returns
        -------
        on_mean, on_variance : Tensor of shape (n, m), or None
        """
        return None

    def initial(self, Y: Tensor, offset: Tensor | None = None) -> Self:  # noqa: ARG002 - for those that learn
        """Return a likelihood of this kind for the data of a view, its parameters where training
        starts.

        Parameters
        ----------
        Y : Tensor of shape (N, M), float64
            As observed, NaN = missing; centred and scaled where `scales_with_data`.
        offset : Tensor of shape (N,), optional
            Logarithms of the size factors.

        Returns
        -------
        NonConjugateLikelihood
        """
        return type(self)(**self._params)

    @abstractmethod
    def intercept(
        self, y: Tensor, offset: Tensor | None, columns: Tensor | None = None
    ) -> Tensor:
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
        """Return psi where the first bound is laid; mean is intercept plus offset.

        Parameters
        ----------
        y, mean : Tensor of shape (n, m)
            mean is intercept plus offset.

        Returns
        -------
        Tensor of shape (n, m)
        """
        return mean

    @abstractmethod
    def surrogate(self, Y: Tensor, offset: Tensor | None) -> Tensor:
        """Return real numbers that vary as psi does, for starts only; shape (n, M'), NaN = missing.

        Parameters
        ----------
        Y : Tensor of shape (n, M)
            NaN = missing.
        offset : Tensor of shape (n,) or None

        Returns
        -------
        Tensor of shape (n, M')
            NaN = missing.
        """

    @abstractmethod
    def slopes(
        self, y: Tensor, mean: Tensor, variance: Tensor, columns: Tensor | None = None
    ) -> Slopes:
        """Return the bound of E log p(y | psi) and its slopes, elementwise.

        Parameters
        ----------
        y, mean, variance : Tensor of shape (n, m)
            Of psi under q.
        columns : Tensor of shape (m,), int64, optional
            Which columns of the view these are; None means all.

        Returns
        -------
        Slopes
        """

    def parameter_value(
        self, y: Tensor, mean: Tensor, variance: Tensor, columns: Tensor | None = None
    ) -> Tensor:
        """Return what the likelihood's own parameters maximise, elementwise, up to what does not
        depend on them.

        Parameters
        ----------
        y, mean, variance : Tensor of shape (n, m)
            Of psi under q.
        columns : Tensor of shape (m,), int64, optional

        Returns
        -------
        Tensor of shape (n, m)
        """
        return self.slopes(y, mean, variance, columns).value

    def gap(
        self,
        y: Tensor,  # noqa: ARG002 - for bounds that loosen as parameters are learned
        mean: Tensor,  # noqa: ARG002
        variance: Tensor,  # noqa: ARG002
        columns: Tensor | None = None,  # noqa: ARG002
    ) -> Tensor | None:
        """Return the variational gap, E log p less the bound, elementwise, at least 0; None: of no
        concern.

        Where a learned parameter loosens the bound, its fall is no sign that training goes wrong:
        progress is measured with the gap added, which is a bound as well.

        Parameters
        ----------
        y, mean, variance : Tensor of shape (n, m)
            Entries, and moments of psi.
        columns : Tensor of shape (m,), int64, optional
            Which columns of the view these are; None means all.

        Returns
        -------
        Tensor of shape (n, m) or None
        """
        return None

    def gap_beside(
        self,
        y: Tensor,
        mean: Tensor,
        variance: Tensor,
        columns: Tensor | None,
        expected: Tensor | None,  # noqa: ARG002 - for gaps that take it
    ) -> Tensor | None:
        """Return ``gap`` where ``parameter_value`` may have been computed at these moments already.

        Parameters
        ----------
        y, mean, variance : Tensor of shape (n, m)
            As in ``gap``.
        columns : Tensor of shape (m,), int64, or None
            As in ``gap``.
        expected : Tensor of shape (n, m) or None
            What ``parameter_value`` returned there.

        Returns
        -------
        Tensor of shape (n, m) or None
        """
        return self.gap(y, mean, variance, columns)

    @abstractmethod
    def curvatures(self, y: Tensor, mean: Tensor, variance: Tensor) -> Curvatures:
        """Return the second derivatives of the bound; all columns.

        Parameters
        ----------
        y, mean, variance : Tensor of shape (n, m)
            Of psi under q.

        Returns
        -------
        Curvatures
        """

    def expansion(
        self, y: Tensor, mean: Tensor, variance: Tensor
    ) -> tuple[Slopes, Curvatures]:
        """Return ``slopes`` and ``curvatures`` of all columns: what they share need not be
        computed twice.

        Parameters
        ----------
        y, mean, variance : Tensor of shape (n, m)
            Of psi under q.

        Returns
        -------
        Slopes, Curvatures
        """
        return self.slopes(y, mean, variance), self.curvatures(y, mean, variance)

    @abstractmethod
    def products(
        self, y: Tensor, mean: Tensor, variance: Tensor
    ) -> tuple[tuple[Tensor, Tensor], ...]:
        """Return pairs (s(y), t(mean, variance)): the bound at any two rows is their sum of
        products, up to s alone.

        Parameters
        ----------
        y : Tensor of shape (n, m)
        mean, variance : Tensor of shape (c, m)

        Returns
        -------
        tuple of (Tensor of shape (n, m), Tensor of shape (c, m))
        """

    def of_rows(self, y: Tensor) -> tuple[Tensor, ...]:
        """Return what rows have of ``products``, whatever the places.

        Parameters
        ----------
        y : Tensor of shape (n, m)
            Entries.

        Returns
        -------
        of_rows : tuple of Tensor of shape (n, m)
            The first of every pair.
        """
        none = torch.zeros_like(y[:1])
        return tuple(of_row for of_row, _ in self.products(y, none, none))

    def of_places(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, ...]:
        """Return what places have of ``products``, whatever the rows.

        Parameters
        ----------
        mean, variance : Tensor of shape (c, m)
            Of psi under q.

        Returns
        -------
        of_places : tuple of Tensor of shape (c, m)
            The second of every pair.
        """
        none = torch.zeros_like(mean[:1])
        return tuple(of_place for _, of_place in self.products(none, mean, variance))

    def predictive_products(
        self, y: Tensor, mean: Tensor, variance: Tensor
    ) -> tuple[tuple[Tensor, Tensor], ...]:
        """Return pairs as `products` does, whose sum is near log E p(y | psi) where the bound is
        far below it; the bound itself unless a likelihood knows better.

        Parameters
        ----------
        y, mean, variance : Tensor of shape (n, m)
            Of psi under q.

        Returns
        -------
        tuple of (Tensor, Tensor)
            As ``products`` has them.
        """
        return self.products(y, mean, variance)


class SeparableLikelihood(NonConjugateLikelihood, ABC):
    """A likelihood whose outcomes latents can separate, such as ones from zeros.

    Sites of the last draw of latents and spectra are then far from those of the next, and the
    kernel's variance grows without end unless q(A) follows the features in its gradient: a product
    of rows and squared features more.
    """

    def beyond_sites(
        self, slopes: Slopes, precision: Tensor, slope: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return what the slopes of the bound have beyond those of the sites."""
        return slopes.d_mean - slope, slopes.d_variance + 0.5 * precision
