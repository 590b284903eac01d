"""Which entries of a matrix are observed: all of them, or some."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

Index = Tensor | slice


def entries_of(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return values, 0 where missing, and 1 where an entry is observed, 0 where it is not."""
    return torch.nan_to_num(values), (~values.isnan()).to(values.dtype)


class Mask(ABC):
    """The observed entries of a matrix of n rows and m columns."""

    @classmethod
    def of(cls, values: Tensor) -> Mask:
        """Read off what NaN marks as missing."""
        missing = values.isnan()
        if not bool(missing.any()):
            return FullMask()
        return PartialMask((~missing).to(values.dtype))

    @abstractmethod
    def apply(self, values: Tensor) -> Tensor:
        """Return values with 0 where an entry is missing."""

    @abstractmethod
    def hide(self, values: Tensor) -> Tensor:
        """Return values with NaN where an entry is missing."""

    @abstractmethod
    def weights(self, values: Tensor) -> Tensor:
        """Return 1 where observed and 0 where missing, in the shape and precision of values."""

    @abstractmethod
    def rows(self, index: Index) -> Mask:
        """Return the mask of some rows."""

    @abstractmethod
    def columns(self, index: Index) -> Mask:
        """Return the mask of some columns."""

    @abstractmethod
    def tensors(self) -> tuple[Tensor, ...]:
        """Return what tells two masks apart."""


@dataclass(frozen=True)
class FullMask(Mask):
    """Every entry is observed."""

    def apply(self, values: Tensor) -> Tensor:
        """Return the values."""
        return values

    def hide(self, values: Tensor) -> Tensor:
        """Return the values."""
        return values

    def weights(self, values: Tensor) -> Tensor:
        """Return ones."""
        return torch.ones_like(values)

    def rows(self, index: Index) -> FullMask:  # noqa: ARG002 - all rows are alike
        """Return the same mask."""
        return self

    def columns(self, index: Index) -> FullMask:  # noqa: ARG002 - all columns are alike
        """Return the same mask."""
        return self

    def tensors(self) -> tuple[Tensor, ...]:
        """Return nothing."""
        return ()


@dataclass(frozen=True)
class PartialMask(Mask):
    """Some entries are missing.

    Attributes
    ----------
    observed : Tensor of shape (n, m)
        1 where observed and 0 where missing, in the precision of the data. An entry that stands for
        a share of one has that share.
    """

    observed: Tensor

    def apply(self, values: Tensor) -> Tensor:
        """Return values with 0 where an entry is missing."""
        return values * self.observed

    def hide(self, values: Tensor) -> Tensor:
        """Return values with NaN where an entry is missing."""
        return values.masked_fill(self.observed == 0, torch.nan)

    def weights(self, values: Tensor) -> Tensor:  # noqa: ARG002 - the mask has its own shape
        """Return what is observed."""
        return self.observed

    def rows(self, index: Index) -> PartialMask:
        """Return the mask of some rows."""
        return PartialMask(self.observed[index])

    def columns(self, index: Index) -> PartialMask:
        """Return the mask of some columns."""
        if isinstance(index, slice):
            return PartialMask(self.observed[:, index])
        return PartialMask(self.observed.index_select(1, index))

    def tensors(self) -> tuple[Tensor, ...]:
        """Return the observed entries."""
        return (self.observed,)
