"""The rows of a data set that have data in a view: all of them, or some."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import torch
from torch import Tensor


class Rows(ABC):
    """Rows of a data set of N rows, in ascending order."""

    @staticmethod
    def of(index: Tensor | None) -> Rows:
        """Wrap row numbers, (n,), int64; None: all rows."""
        return AllRows() if index is None else SomeRows(index)

    @staticmethod
    def where(present: Tensor) -> Rows:
        """Return the rows that are marked, (N,), bool."""
        return AllRows() if bool(present.all()) else SomeRows(present.nonzero()[:, 0])

    @abstractmethod
    def take(self, values: Tensor, dim: int = 0) -> Tensor:
        """Return these rows of what has all N along a dimension."""

    @abstractmethod
    def add_to(self, total: Tensor, values: Tensor) -> None:
        """Add values of these rows, (n, ...), to what has all N, (N, ...), in place."""

    @abstractmethod
    def part(self, cut: slice) -> Rows:
        """Return some consecutive ones of these rows."""

    @abstractmethod
    def numbers(self, n_rows: int) -> Tensor:
        """Return the row numbers among N, (n,), int64, on the processor."""

    @abstractmethod
    def among(self, index: Tensor) -> tuple[Tensor, Rows]:
        """Return the positions of those of these rows that are among the given ones, and those
        rows, renumbered.

        Parameters
        ----------
        index : Tensor of shape (l,), int64
            Row numbers that stay, ascending: each gets its position here as its new number.

        Notes
        -----
        Time grows with l: large data are subset chunk by chunk.
        """

    @abstractmethod
    def tensors(self) -> tuple[Tensor, ...]:
        """Return what tells two sets of rows apart."""

    def scatter(self, values: Tensor, like: Tensor) -> Tensor:
        """Return values of these rows among zeros for the others, in the shape of ``like``."""
        total = torch.zeros_like(like)
        self.add_to(total, values)
        return total

    def mark(self, present: Tensor) -> None:
        """Set the mark of these rows, (N,), bool, in place."""
        present[self.take(torch.arange(len(present), device=present.device))] = True


@dataclass(frozen=True)
class AllRows(Rows):
    """All rows, or consecutive ones of them.

    Attributes
    ----------
    cut : slice
    """

    cut: slice = field(default_factory=lambda: slice(None))

    def take(self, values: Tensor, dim: int = 0) -> Tensor:
        """Return a view of the rows."""
        return values[(slice(None),) * dim + (self.cut,)]

    def add_to(self, total: Tensor, values: Tensor) -> None:
        """Add values to the rows, in place."""
        total[self.cut] += values

    def part(self, cut: slice) -> AllRows:
        """Return some consecutive rows."""
        return AllRows(cut)

    def numbers(self, n_rows: int) -> Tensor:
        """Return the row numbers."""
        return torch.arange(n_rows)[self.cut]

    def among(self, index: Tensor) -> tuple[Tensor, Rows]:
        """Return all of the given rows."""
        return index, AllRows()

    def tensors(self) -> tuple[Tensor, ...]:
        """Return nothing."""
        return ()


@dataclass(frozen=True)
class SomeRows(Rows):
    """Some rows.

    Attributes
    ----------
    index : Tensor of shape (n,), int64
    """

    index: Tensor

    def take(self, values: Tensor, dim: int = 0) -> Tensor:
        """Return a copy of the rows."""
        return values.index_select(dim, self.index.to(values.device))

    def add_to(self, total: Tensor, values: Tensor) -> None:
        """Add values to the rows, in place."""
        total.index_add_(0, self.index, values)

    def part(self, cut: slice) -> SomeRows:
        """Return some consecutive ones of these rows."""
        return SomeRows(self.index[cut])

    def numbers(self, n_rows: int) -> Tensor:  # noqa: ARG002 - they are given
        """Return the row numbers."""
        return self.index.cpu()

    def among(self, index: Tensor) -> tuple[Tensor, Rows]:
        """Return which of these rows stay."""
        if not len(self.index):
            return self.index.cpu(), self
        some = index.to(self.index.device)
        place = torch.searchsorted(self.index, some).clamp(max=len(self.index) - 1)
        stays = self.index[place] == some
        if bool(stays.all()):
            return place.cpu(), AllRows()
        return place[stays].cpu(), SomeRows(stays.nonzero()[:, 0])

    def tensors(self) -> tuple[Tensor, ...]:
        """Return the row numbers."""
        return (self.index,)
