"""Unordered categories, by sticks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

import torch
from torch import Tensor

from bochner.errors import InputError, message, shown
from bochner.likelihoods import polya_gamma
from bochner.likelihoods.densities import (
    LogisticDensity,
    log_odds_density,
    products_of_successes,
)
from bochner.likelihoods.likelihood import Curvatures, Slopes
from bochner.likelihoods.nonconjugate import SeparableLikelihood
from bochner.quadrature import normal_mean


class Categorical(SeparableLikelihood):
    """y is one of C categories: category k is taken with probability logistic(psi_k) if no earlier
    one was.

    A column of C categories has C - 1 columns of psi, each a Bernoulli of the rows that came so
    far; the order of the categories matters a little. Categories are the values seen in training,
    and any number may name one.

    Parameters
    ----------
    categories : sequence of sequence of float, optional
        Of every column, in the order of the sticks; None takes the values of the data, ascending.

    Notes
    -----
    docs/math.md, section 3; Linderman, Johnson and Adams (2015).
    """

    name: ClassVar[str] = "categorical"
    support: ClassVar[str] = "categories"

    def __init__(self, categories: Sequence[Sequence[float]] | None = None) -> None:
        super().__init__(categories=categories)
        try:
            given = () if categories is None else categories
            known = [[float(c) for c in values] for values in given]
        except (TypeError, ValueError) as error:
            want = "categories as a list of numbers for every column"
            do = "write [[0, 1, 2], [0, 1]] for two columns"
            raise InputError(message(want, shown(categories), do)) from error
        if any(len(set(values)) < max(len(values), 1) for values in known):
            do = "list each category once"
            raise InputError(message("distinct categories for every column", repr(known), do))
        self.categories = None if categories is None else known

    @property
    def _known(self) -> list[list[float]]:
        if self.categories is None:
            raise InputError(
                message(
                    "categories", "None", "pass them, or let a model take them from its data"
                )
            )
        return self.categories

    @property
    def group_sizes(self) -> tuple[int, ...]:
        """Sticks per column: C - 1, and one for a column that has a single category."""
        return tuple(max(len(values) - 1, 1) for values in self._known)

    def n_data_columns(self, n_columns: int) -> int:  # noqa: ARG002 - the categories say so
        """Return the number of columns with categories."""
        return len(self.group_sizes)

    def by_data_column(self, of_psi: Tensor) -> Tensor:
        """Sum over the sticks of every column."""
        sizes = torch.tensor(self.group_sizes)
        column = torch.arange(len(sizes)).repeat_interleave(sizes)
        return of_psi.new_zeros(of_psi.shape[0], len(sizes)).index_add_(1, column, of_psi)

    def initial(self, Y: Tensor, offset: Tensor | None = None) -> Self:  # noqa: ARG002
        """Take the categories from the data."""
        if self._params["categories"] is not None:
            return type(self)(**self._params)
        categories: list[list[float]] = [
            torch.unique(column[~column.isnan()]).tolist() for column in Y.T
        ]
        return type(self)(categories)

    def codes(self, Y: Tensor) -> Tensor:
        """Return the position of each value among its column's categories; -1 if unknown, NaN if
        missing.

        Parameters
        ----------
        Y : Tensor of shape (n, M)

        Returns
        -------
        Tensor of shape (n, M)
        """
        out = torch.full_like(Y, -1.0)
        for j, values in enumerate(self._known):
            for k, value in enumerate(values):
                out[:, j] = torch.where(
                    Y[:, j] == value, torch.full_like(Y[:, j], float(k)), out[:, j]
                )
        return torch.where(Y.isnan(), Y, out)

    def encode(self, Y: Tensor) -> Tensor:
        """Return the sticks' outcomes: 1 taken, 0 passed by, NaN never reached."""
        columns = []
        for code, values in zip(self.codes(Y).T, self._known, strict=True):
            never = torch.full_like(code, torch.nan)
            if len(values) == 1:  # nothing is left to chance
                columns.append(never)
            columns += [
                torch.where(code >= k, (code == k).to(Y.dtype), never)
                for k in range(len(values) - 1)
            ]
        return torch.stack(columns, dim=1)

    def log_prob(self, y: Tensor, psi: Tensor) -> Tensor:
        """Return log p of each stick's outcome."""
        return log_odds_density(y, 1.0 - y, psi)

    def density(self, y: Tensor) -> LogisticDensity:
        """Return log p of each stick's outcome with derivatives in closed form."""
        zero = torch.zeros_like(y)
        return LogisticDensity(y, 1.0 - y, zero, zero)

    def probabilities(self, mean: Tensor, variance: Tensor) -> list[Tensor]:
        """Return p(y = k) of every column when psi ~ N(mean, variance): one (n, C) per column.

        Parameters
        ----------
        mean, variance : Tensor of shape (n, sticks)

        Returns
        -------
        list of Tensor of shape (n, C)
            One per column.
        """
        # weights of nodes add up to 1 but for rounding: no stick is more than whole
        taken = normal_mean(torch.sigmoid, mean, variance).clamp(max=1.0)
        out = []
        for part, values in zip(
            torch.split(taken, list(self.group_sizes), dim=1), self._known, strict=True
        ):
            rest = torch.cat([torch.ones_like(part[:, :1]), (1.0 - part).cumprod(1)], dim=1)
            sticks = torch.cat([part, torch.ones_like(part[:, :1])], dim=1) * rest
            out.append(sticks if len(values) > 1 else torch.ones_like(part))
        return out

    def mean(self, psi: Tensor) -> Tensor:
        """Return the most probable category of every column, (n, sticks) -> (n, M)."""
        return self.predict(psi, torch.zeros_like(psi))[0]

    def variance(self, psi: Tensor) -> Tensor:
        """Return the probability of any other category."""
        return self.predict(psi, torch.zeros_like(psi))[1]

    def predict(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """Return the most probable category and the probability of any other, (n, M)."""
        values = []
        doubts = []
        for p, known in zip(self.probabilities(mean, variance), self._known, strict=True):
            best, index = p.max(dim=1)
            values.append(torch.tensor(known, dtype=mean.dtype)[index])
            doubts.append(1.0 - best)
        return torch.stack(values, dim=1), torch.stack(doubts, dim=1).clamp(min=0.0)

    def draw(self, psi: Tensor, source: torch.Generator) -> Tensor:
        """Draw categories, (n, sticks) -> (n, M)."""
        columns = []
        for p, values in zip(
            self.probabilities(psi, torch.zeros_like(psi)), self._known, strict=True
        ):
            index = torch.multinomial(p, 1, generator=source)[:, 0]
            columns.append(torch.tensor(values, dtype=psi.dtype)[index])
        return torch.stack(columns, dim=1)

    def intercept(
        self,
        y: Tensor,
        offset: Tensor | None,  # noqa: ARG002
        columns: Tensor | None = None,  # noqa: ARG002
    ) -> Tensor:
        """Return the log odds of the sticks: -log(C - k) when all categories are as frequent."""
        return torch.logit((y.nansum(0) + 0.5) / ((~y.isnan()).sum(0) + 1.0))

    def surrogate(self, Y: Tensor, offset: Tensor | None) -> Tensor:  # noqa: ARG002
        """Return one column of zeros and ones per category."""
        pairs = [(j, value) for j, values in enumerate(self._known) for value in values]
        columns = [
            torch.where(Y[:, j].isnan(), Y[:, j], (Y[:, j] == value).to(Y.dtype))
            for j, value in pairs
        ]
        return torch.stack(columns, dim=1)

    def slopes(
        self,
        y: Tensor,
        mean: Tensor,
        variance: Tensor,
        columns: Tensor | None = None,  # noqa: ARG002
    ) -> Slopes:
        """Return the Polya-gamma bound of the sticks and its slopes."""
        return polya_gamma.slopes(y, 1.0, 0.0, mean, variance)

    def curvatures(self, y: Tensor, mean: Tensor, variance: Tensor) -> Curvatures:  # noqa: ARG002
        """Return the second derivatives of the bound."""
        return polya_gamma.curvatures(1.0, mean, variance)

    def expansion(
        self, y: Tensor, mean: Tensor, variance: Tensor
    ) -> tuple[Slopes, Curvatures]:
        """Return the bound of the sticks with its slopes and second derivatives."""
        return polya_gamma.expansion(y, 1.0, 0.0, mean, variance)

    def products(
        self, y: Tensor, mean: Tensor, variance: Tensor
    ) -> tuple[tuple[Tensor, Tensor], ...]:
        """Return (a - b/2, psi) and (b, -log 2 cosh(c/2)), b = 1."""
        c = (mean.square() + variance).sqrt()
        return (y - 0.5, mean), (torch.ones_like(y), -polya_gamma.log_2cosh_half(c))

    def predictive_products(
        self, y: Tensor, mean: Tensor, variance: Tensor
    ) -> tuple[tuple[Tensor, Tensor], ...]:
        """Return those of both outcomes of every stick."""
        return products_of_successes(y, mean, variance, mean.new_ones(()))
