"""What the bound of a non-Gaussian view holds for every entry and column."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from bochner.data.masks import Mask
from bochner.data.sparse import SparseMatrix
from bochner.data.stored import StoredMatrix
from bochner.likelihoods.nonconjugate import N_GROUPS, NonConjugateLikelihood
from bochner.memory import chunks

# Standard deviation of an intercept about where the data put it, in logits or log rates: separable
# columns stay finite.
INTERCEPT_STD = 2.0
# Places where groups of sorted columns may end: as many in equal steps, and in the largest gaps.
_ENDS = 128
# Columns that are laid out at once.
_COLUMNS = 256
# Numbers of one dense array of rows and columns, of which some fifteen are held at once.
DENSE = 2**22


@dataclass(frozen=True)
class SiteUpdate:
    """New sites of some columns.

    Attributes
    ----------
    columns : Tensor of shape (m,), int64
    precision, shift : Tensor of shape (n, m)
        The natural parameters.
    intercept : Tensor of shape (m,)
    worth : Tensor of shape (m,), float64
        What every column added to the bound with its variational gap.
    """

    columns: Tensor
    precision: Tensor
    shift: Tensor
    intercept: Tensor
    worth: Tensor


class Sites(nn.Module):
    """q(A_m) is proportional to N(0, I) prod_n exp(pull_nm psi - precision_nm psi^2 / 2), psi =
    phi(x_n)^T a_m.

    Whatever the numbers, that is a distribution of the weights and its bound is one; `absorb` makes
    it tighter.

    Parameters
    ----------
    likelihood : NonConjugateLikelihood
    y : Tensor, SparseMatrix or StoredMatrix of shape (n, m)
        Encoded data, 0 where missing.
    mask : Mask
    offset : Tensor of shape (n,)
    n_groups : int or None
        Covariances of weights; None gives every column its own.
    """

    take_turns: ClassVar[bool] = True
    precision: Tensor
    shift: Tensor
    intercept: Tensor
    centre: Tensor
    group_of: Tensor
    worth: Tensor

    def __init__(
        self,
        likelihood: NonConjugateLikelihood,
        y: Tensor | SparseMatrix | StoredMatrix,
        mask: Mask,
        offset: Tensor,
        n_groups: int | None = N_GROUPS,
    ) -> None:
        super().__init__()
        # column by column in memory: steps take some columns, and put them back
        precision, shift = (
            torch.empty(y.shape[1], y.shape[0], dtype=y.dtype, device=y.device).T
            for _ in range(2)
        )
        centre = torch.empty(y.shape[1], dtype=y.dtype, device=y.device)
        for part in chunks(y.shape[1], _COLUMNS):
            columns = torch.arange(part.start, part.stop, device=y.device)
            part_mask = mask.columns(part)
            laid = _lay(likelihood, y.index_select(1, columns), part_mask, offset, columns)
            precision[:, part], shift[:, part], centre[part] = laid
        self.n_groups = n_groups
        self.register_buffer("precision", precision)
        self.register_buffer("shift", shift)
        self.register_buffer("intercept", centre.clone())
        self.register_buffer("centre", centre)
        self.register_buffer(
            "group_of", torch.zeros(y.shape[1], dtype=torch.int64, device=y.device)
        )
        self.register_buffer(
            "worth",
            torch.full((y.shape[1],), -torch.inf, dtype=torch.float64, device=y.device),
        )
        self.regroup()

    @property
    def n_columns(self) -> int:
        """Columns of psi."""
        return int(self.shift.shape[1])

    def regroup(self) -> None:
        """Put columns of about the same precision into one group: where groups begin and end costs
        the bound the least.
        """
        m = self.n_columns
        if self.n_groups is None or self.n_groups >= m:
            self.group_of.copy_(torch.arange(m))
            return
        # beside the precision of the prior, 1
        total = 1.0 + self.precision.sum(0, dtype=torch.float64)
        order = total.argsort(stable=True)
        sizes = _group_sizes(total[order].cpu(), self.n_groups)
        groups = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
        self.group_of[order] = groups.to(order.device)

    def at(self, columns: Tensor) -> tuple[Tensor, Tensor]:
        """Return precision and shift of some columns, (n, j)."""
        precision, shift = (
            part.T.index_select(0, columns).T.contiguous()
            for part in (self.precision, self.shift)
        )
        return precision, shift

    def column_chunks(self, n_rows: int) -> Iterator[Tensor]:
        """Yield the columns of every group, so many at once that one dense array of them keeps to a
        budget.
        """
        most = max(1, DENSE // max(n_rows, 1))
        for group in range(int(self.group_of.max()) + 1):
            yield from torch.split((self.group_of == group).nonzero()[:, 0], most)

    def drawn_columns(
        self,
        n_features: int,
        budget: float,
        source: Callable[[torch.device], torch.Generator],
    ) -> Tensor | None:
        """Draw as many columns as a budget of multiplications allows; None: all."""
        n, m = self.shift.shape
        size = column_batch(n, m, n_features, budget)
        if size == m:
            return None
        device = self.shift.device
        return torch.randperm(m, generator=source(device), device=device)[:size]

    def absorb(self, update: SiteUpdate | None) -> None:
        """Put new sites in place, if there are any."""
        if update is None:
            return
        # half the time of assigning to an index
        self.precision.T.index_copy_(0, update.columns, update.precision.T)
        self.shift.T.index_copy_(0, update.columns, update.shift.T)
        self.intercept[update.columns] = update.intercept
        self.worth[update.columns] = update.worth

    def control_variate(self, columns: Tensor) -> Tensor:
        """Return what makes the scaled value of some columns depend less on which they are: 0 on
        average over draws, and 0 of all columns.

        By what columns were worth when they were last drawn, those never drawn as much as the
        others.
        """
        if len(columns) == self.n_columns:
            return self.worth.new_zeros(())
        known = self.worth.isfinite()
        worth = (
            torch.where(known, self.worth, self.worth[known].mean())
            if bool(known.any())
            else known.double()
        )
        return worth.sum() - worth[columns].mean() * self.n_columns

    def log_prior(self, columns: Tensor) -> Tensor:
        """Return the penalty of the intercepts, at most 0, per column: -(b - centre)^2 / (2
        std^2).
        """
        away = (self.intercept - self.centre)[columns].double() / INTERCEPT_STD
        return -0.5 * away.square()


@torch.no_grad()
def _lay(
    likelihood: NonConjugateLikelihood,
    y: Tensor,
    mask: Mask,
    offset: Tensor,
    columns: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return precision, shift and intercept with which some columns start."""
    centre = likelihood.intercept(mask.hide(y).double(), offset.double(), columns).to(y.dtype)
    total = offset[:, None] + centre
    psi = likelihood.first(y, total)
    slopes = likelihood.slopes(y, psi, torch.full_like(psi, 0.1), columns)
    precision = mask.apply(-2.0 * slopes.d_variance)
    shift = mask.apply(slopes.d_mean)
    return precision, shift + precision * (psi - total), centre


def _group_sizes(precision: Tensor, n_groups: int) -> Tensor:
    """Return how many columns each group has, of ascending precisions.

    With the average of its group for its own precision p_m, a column's KL divergence grows with
    p_m / p - 1 - log(p_m / p): over a group, with its size times log of the mean less the mean of
    logs. Its sum is least over groups that end at one of some places, those of the largest gaps
    among them (dynamic programming).
    """
    m = len(precision)
    gaps = 1 + precision.log().diff().argsort(stable=True)[-_ENDS:]
    steps = min(m, _ENDS)
    ends = torch.unique(torch.cat([torch.arange(steps + 1) * m // steps, gaps]))
    sums, logs = (
        torch.cat([values.new_zeros(1), values.cumsum(0)])[ends]
        for values in (precision, precision.log())
    )
    # from the one end to the other, a group at least a column
    sizes = ends - ends[:, None]
    means = (sums - sums[:, None]) / sizes
    loss = torch.where(sizes > 0, sizes * means.log() - (logs - logs[:, None]), torch.inf)
    least = loss[0]
    before = []
    for _ in range(n_groups - 1):
        least, start = (least[:, None] + loss).min(0)
        before.append(start)
    stops = [len(ends) - 1]
    for start in reversed(before):
        stops.append(int(start[stops[-1]]))
    return torch.diff(ends[[0, *reversed(stops)]])


def column_batch(n_rows: int, n_columns: int, n_features: int, budget: float) -> int:
    """Return how many columns a step takes: their products stay below a budget of multiplications.

    Parameters
    ----------
    n_rows, n_columns, n_features : int
    budget : float
        Multiplications of one product of features and columns.
    """
    return max(1, min(n_columns, math.ceil(budget / (n_rows * n_features))))
