"""The data of a view as the regression takes them: blocks of columns that are observed alike.

A view is a tuple of blocks. Gaussian columns that are observed in the same rows make a complete
block, those with scattered holes an incomplete one; a view whose likelihood is not conjugate to the
weights is one encoded block.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor

from bochner.data.masks import FullMask, Mask, entries_of
from bochner.data.sparse import SparseMatrix
from bochner.data.stored import StoredMatrix
from bochner.likelihoods.likelihood import of_each_row
from bochner.memory import chunks


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


_ROWS = 8192  # of a product, that are held at once in double precision

Matrix = Tensor | SparseMatrix | StoredMatrix


@dataclass(frozen=True)
class Block:
    """What all blocks have.

    Attributes
    ----------
    Y : Tensor, SparseMatrix or StoredMatrix of shape (n, m), or (n, r) when it was rotated
        Scaled or encoded values, 0 where missing. One that is sparse, or not in memory, gives
        dense rows or columns when asked, never all at once.
    rows : Rows
        Which rows of the data set have data here.
    columns : Tensor of shape (m,), int64
        Positions within the view.
    has_holes : bool
        Whether Gaussian entries are missing here and there.
    """

    has_holes: ClassVar[bool] = False

    Y: Matrix
    rows: Rows
    columns: Tensor

    @property
    def n_rows(self) -> int:
        """Rows that have data here."""
        return int(self.Y.shape[0])

    @property
    def n_columns(self) -> int:
        """M: what multiplies every row of the bound, whatever Y was rotated to."""
        return int(self.columns.shape[0])

    @property
    def n_entries(self) -> int:
        """Entries that the bound sums over."""
        return self.n_rows * self.n_columns

    def values(self) -> Tensor:
        """Return Y with NaN where missing, dense, (n, m)."""
        return self.Y if isinstance(self.Y, Tensor) else self.Y[:]

    def take(self, index: Tensor, rows: Rows) -> Block:
        """Return rows by their positions in the block, (l,); ``rows`` of the new data set."""
        raise NotImplementedError

    def holding(self, values: Tensor, offset: Tensor) -> Block:
        """Return the same columns of other rows, (n, m), NaN = missing, with offsets (n,)."""
        raise NotImplementedError

    def subset(self, index: Tensor) -> Block:
        """Return the block of some rows of the data set, (l,), int64, ascending."""
        position, rows = self.rows.among(index)
        return self.take(position.to(self.Y.device), rows)

    def observes(self, chosen: Tensor) -> Tensor:
        """Return which columns have an entry among the chosen rows, (N,), bool -> (m,), bool."""
        return self.rows.take(chosen).any().expand(self.n_columns)

    def first_rows(self, columns: Tensor, n_rows: int) -> Tensor:
        """Return the first row that observes each of some columns, (l,); n_rows where none does."""
        first = torch.cat([self.rows.numbers(n_rows), torch.tensor([n_rows])])[:1]
        return first.expand(len(columns))

    def offsets(self, n_rows: int) -> Tensor:
        """Return what is added to psi in all rows of the data set, (N,), float64: 0 without any."""
        return torch.zeros(n_rows, dtype=torch.float64)

    def tensors(self) -> tuple[Tensor, ...]:
        """Return what tells two blocks apart."""
        parts = (self.Y,) if isinstance(self.Y, Tensor) else self.Y.parts
        return (*parts, *self.rows.tensors(), self.columns)


@dataclass(frozen=True)
class CompleteBlock(Block):
    """Gaussian columns that are observed in the same rows.

    Attributes
    ----------
    square : float
        ||Y||^2 of all m columns, summed in float64.
    """

    square: float

    @classmethod
    def of(
        cls, Y: Matrix, rows: Tensor | None = None, columns: Tensor | None = None
    ) -> CompleteBlock:
        """Build a block and its square.

        Parameters
        ----------
        Y : Tensor, SparseMatrix or StoredMatrix of shape (n, m)
        rows : Tensor of shape (n,), int64, optional
            Of the data set; None: all.
        columns : Tensor of shape (m,), int64, optional
            Of the view; None: all.
        """
        return cls._with_square(Y, Rows.of(rows), _columns(Y, columns))

    @classmethod
    def _with_square(cls, Y: Matrix, rows: Rows, columns: Tensor) -> CompleteBlock:
        return cls(Y, rows, columns, _square(Y))

    @classmethod
    def present(cls, Y: Tensor, present: Tensor) -> CompleteBlock:
        """Build a block of the rows that are marked, (N,), bool, of data with all rows."""
        rows = Rows.where(present)
        return cls._with_square(rows.take(Y), rows, _columns(Y, None))

    @functools.cached_property
    def squares(self) -> Tensor:
        """||y_m||^2 of every column, (m,), float64; of a block that was not rotated."""
        parts = (self.Y[part].double().square().sum(0) for part in chunks(self.n_rows, _ROWS))
        return functools.reduce(torch.add, parts)

    def holding(self, values: Tensor, offset: Tensor) -> CompleteBlock:  # noqa: ARG002
        """Return the same columns of other rows."""
        present = ~values.isnan().all(dim=1)
        return self._with_square(values[present], Rows.where(present), self.columns)

    def take(self, index: Tensor, rows: Rows) -> CompleteBlock:
        """Return some rows."""
        return self._with_square(_rows_of(self.Y, index), rows, self.columns)


@dataclass(frozen=True)
class BlockWithHoles(Block):
    """Gaussian columns with scattered holes, which stand group after group.

    Attributes
    ----------
    sizes : tuple of int
        Columns of each group: those of similar holes are together.
    """

    has_holes: ClassVar[bool] = True

    sizes: tuple[int, ...]

    def entries(self, cut: slice, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return values of some rows, 0 where missing, and which are observed, 1 or 0."""
        raise NotImplementedError


@dataclass(frozen=True)
class IncompleteBlock(BlockWithHoles):
    """Columns with scattered holes, in memory.

    Attributes
    ----------
    observed : Tensor of shape (n, m)
        1 where observed, 0 where missing (Y is 0 there).
    """

    Y: Tensor
    observed: Tensor

    @classmethod
    def of(
        cls, Y: Tensor, rows: Tensor | None, columns: Tensor, sizes: tuple[int, ...]
    ) -> IncompleteBlock:
        """Build a block from values with NaN where missing, as ``CompleteBlock.of`` does."""
        values, observed = entries_of(Y)
        return cls(values, Rows.of(rows), columns, sizes, observed)

    def entries(self, cut: slice, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return values and marks of some rows."""
        return self.Y[cut].to(dtype), self.observed[cut].to(dtype)

    @property
    def n_entries(self) -> int:
        """Observed entries."""
        return int(self.observed.sum(dtype=torch.float64))

    def values(self) -> Tensor:
        """Return Y with NaN where missing, (n, m)."""
        return self.Y.masked_fill(self.observed == 0, torch.nan)

    def to(self, dtype: torch.dtype) -> IncompleteBlock:
        """Return the block in another precision."""
        return replace(self, Y=self.Y.to(dtype), observed=self.observed.to(dtype))

    def holding(self, values: Tensor, offset: Tensor) -> IncompleteBlock:  # noqa: ARG002
        """Return the same columns of other rows."""
        present = ~values.isnan().all(dim=1)
        made = self.of(values[present], None, self.columns, self.sizes)
        return replace(made, rows=Rows.where(present))

    def take(self, index: Tensor, rows: Rows) -> IncompleteBlock:
        """Return some rows."""
        return replace(self, Y=self.Y[index], rows=rows, observed=self.observed[index])

    def filled(self, values: Tensor) -> CompleteBlock:
        """Return a complete block with the given values, (n, m), in the holes."""
        Y = torch.where(self.observed > 0, self.Y, values)
        return CompleteBlock(Y, self.rows, self.columns, _square(Y))

    def without(self, hidden: Tensor) -> IncompleteBlock:
        """Return the block without further entries.

        Parameters
        ----------
        hidden : Tensor of shape (N, m), bool
            Of all rows of the data set.
        """
        gone = self.rows.take(hidden).to(self.Y.device)
        Y, observed = entries_of(self.values().masked_fill(gone, torch.nan))
        return replace(self, Y=Y, observed=observed)

    def observes(self, chosen: Tensor) -> Tensor:
        """Return which columns have an entry among the chosen rows, (m,), bool."""
        return (self.observed.cpu()[chosen[self.rows.numbers(len(chosen))]] > 0).any(dim=0)

    def first_rows(self, columns: Tensor, n_rows: int) -> Tensor:
        """Return the first row that observes each of some columns; n_rows where none does."""
        shown = self.observed.cpu()[:, columns] > 0
        rows = torch.cat([self.rows.numbers(n_rows), torch.tensor([n_rows])])
        return rows[shown.int().cumsum(0).eq(0).sum(0)]  # the last one where no row does

    def tensors(self) -> tuple[Tensor, ...]:
        """Return what tells two blocks apart."""
        return (*super().tensors(), self.observed)


@dataclass(frozen=True)
class EncodedBlock(Block):
    """A view whose likelihood is not conjugate to the weights, as that likelihood encodes it.

    Attributes
    ----------
    mask : Mask
    offset : Tensor of shape (n,)
        Added to psi of every entry of a row: the logarithm of its size factor, 0 without one.
    """

    Y: Matrix
    mask: Mask
    offset: Tensor

    @classmethod
    def of(
        cls, Y: Tensor | SparseMatrix, rows: Tensor | None = None, offset: Tensor | None = None
    ) -> EncodedBlock:
        """Build a block from encoded values with NaN where missing.

        Parameters
        ----------
        Y : Tensor or SparseMatrix of shape (n, m)
        rows : Tensor of shape (n,), int64, optional
            Of the data set; None: all.
        offset : Tensor of shape (n,), optional
            None: 0.
        """
        like = torch.empty(0, dtype=Y.dtype, device=Y.device)
        offset = of_each_row(offset, Y.shape[0], like)
        mask: Mask = FullMask()
        if isinstance(Y, Tensor):
            mask, Y = Mask.of(Y), torch.nan_to_num(Y)
        return cls(Y, Rows.of(rows), _columns(Y, None), mask, offset)

    def values(self) -> Tensor:
        """Return Y with NaN where missing, dense, (n, m)."""
        return self.mask.hide(super().values())

    def take(self, index: Tensor, rows: Rows) -> EncodedBlock:
        """Return some rows."""
        Y, mask = _rows_of(self.Y, index), self.mask.rows(index)
        return replace(self, Y=Y, rows=rows, mask=mask, offset=self.offset[index])

    def holding(self, values: Tensor, offset: Tensor) -> EncodedBlock:
        """Return the same columns of other rows."""
        present = ~values.isnan().all(dim=1)
        made = self.of(values[present], None, offset[present])
        return replace(made, rows=Rows.where(present))

    def offsets(self, n_rows: int) -> Tensor:
        """Return the offsets of all rows of the data set, (N,), float64; 0 without data here."""
        offset = self.offset.double().cpu()
        return super().offsets(n_rows).index_copy_(0, self.rows.numbers(n_rows), offset)

    def tensors(self) -> tuple[Tensor, ...]:
        """Return what tells two blocks apart."""
        return (*super().tensors(), *self.mask.tensors(), self.offset)


Data = tuple[tuple[Block, ...], ...]


def has_holes(data: Iterable[Iterable[Block]]) -> bool:
    """Return whether any Gaussian view has scattered holes."""
    return any(block.has_holes for blocks in data for block in blocks)


def complete_blocks(blocks: Iterable[Block]) -> tuple[CompleteBlock, ...]:
    """Return the complete blocks of a view."""
    return tuple(block for block in blocks if isinstance(block, CompleteBlock))


def blocks_with_holes(blocks: Iterable[Block]) -> tuple[BlockWithHoles, ...]:
    """Return the blocks of a view whose columns have scattered holes."""
    return tuple(block for block in blocks if isinstance(block, BlockWithHoles))


def encoded_block(blocks: tuple[Block, ...]) -> EncodedBlock:
    """Return the single block of a view whose likelihood is not conjugate to the weights."""
    (block,) = blocks
    if not isinstance(block, EncodedBlock):
        raise TypeError(f"expected an encoded block, got a {type(block).__name__}")
    return block


def _columns(Y: Matrix, columns: Tensor | None) -> Tensor:
    return torch.arange(Y.shape[1]) if columns is None else columns


def _rows_of(Y: Matrix, index: Tensor) -> Tensor | SparseMatrix:
    return Y.rows(index) if isinstance(Y, SparseMatrix) else Y[index]


@functools.singledispatch
def _square(Y: Matrix) -> float:
    # in parts: a whole copy in float64 is twice the data
    parts = (Y[part].double().square().sum() for part in chunks(Y.shape[0], _ROWS))
    return sum((float(part) for part in parts), 0.0)


@_square.register
def _(Y: SparseMatrix) -> float:
    return Y.square()
