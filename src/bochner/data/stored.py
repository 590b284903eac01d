"""Columns of rows that are not in memory, scaled, of which dense blocks are cut."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from bochner.data.arrays import FloatArray, IntArray
from bochner.data.columns import columns_of
from bochner.data.row_sources import ArraySource, RowSource
from bochner.data.views import Scaling
from bochner.memory import chunks

Index = slice | Tensor
# A copy pays where a pass over it reads at most this share of what a pass over the source reads.
_SMALLER = 0.5
# Bytes that are free on a disk, over those of a copy.
_ROOM = 2


class StoredMatrix:
    """A view of a row source in scaled units, (n, m); one block of rows is held at a time.

    Parameters
    ----------
    source : RowSource
    columns : ndarray of int, shape (m,)
        Of the source.
    scaling : Scaling
        Of these columns.
    dtype : torch.dtype
        Of every dense block.
    device : torch.device
    basis : Tensor of shape (m, r), optional
        Blocks are multiplied by it.
    rows : Tensor of shape (n,), int64, optional
        Of the source, ascending; None: all.
    """

    def __init__(
        self,
        source: RowSource,
        columns: IntArray,
        scaling: Scaling,
        dtype: torch.dtype,
        device: torch.device,
        basis: Tensor | None = None,
        rows: Tensor | None = None,
    ) -> None:
        self._source = source
        self._columns = columns
        self._scaling = scaling
        self._basis = basis
        self._index = rows
        self.dtype = dtype
        self.device = device
        width = len(columns) if basis is None else basis.shape[1]
        self.shape = (source.n_rows if rows is None else len(rows), int(width))
        self._held: tuple[int, Tensor] = (-1, torch.empty(0, dtype=dtype))

    def rotated(self, basis: Tensor) -> StoredMatrix:
        """Return the matrix times a basis, (m, r)."""
        matrix = (self._source, self._columns, self._scaling, self.dtype, self.device)
        return StoredMatrix(*matrix, basis, self._index)

    def copied(self, folder: Path | None) -> StoredMatrix:
        """Return the matrix with its rows, scaled and rotated, in a temporary file, for many passes
        over them: where the source unpacks rows each time, or has far more numbers a row.

        The file has no name: it is gone with the process, however that ends.

        Parameters
        ----------
        folder : Path, optional
            On the disk that takes the file; None: the system's folder for such files.

        Returns
        -------
        StoredMatrix
            The same matrix where a copy does not pay, or the disk has no room for it.
        """
        size = self.numel() * self.dtype.itemsize
        read = self._source.n_rows * self._source.n_columns * self._source.dtype.itemsize
        if not self._source.decodes and size > _SMALLER * read:
            return self
        place = tempfile.gettempdir() if folder is None else folder
        try:
            if shutil.disk_usage(place).free < _ROOM * size:
                return self
            with tempfile.TemporaryFile(dir=place) as file:
                return self._written(file)
        except OSError:
            return self  # rows are read from where they are

    def _written(self, file: IO[bytes]) -> StoredMatrix:
        """Write all rows to a file, and return the matrix of its memory map."""
        for rows in chunks(self.shape[0], self._source.block_rows):
            part = self[rows].cpu().numpy()
            file.write(np.ascontiguousarray(part).data)
        file.flush()
        source = ArraySource(np.memmap(file, part.dtype, "r", shape=self.shape))
        n_columns = self.shape[1]
        plain = Scaling(np.zeros(n_columns), np.ones(n_columns))
        return StoredMatrix(source, np.arange(n_columns), plain, self.dtype, self.device)

    def __getitem__(self, index: Index) -> Tensor:
        """Return some rows, dense, (n', m): a slice of step 1, or row numbers."""
        size = self._source.block_rows
        if self._index is not None:
            return self._rows(self._index[index], size)
        if isinstance(index, Tensor):
            return self._rows(index, size)
        start, stop, _ = index.indices(self.shape[0])
        parts = [
            self._block(number)[max(start - number * size, 0) : stop - number * size]
            for number in range(start // size, -(-stop // size))
        ]
        return parts[0] if len(parts) == 1 else torch.cat([self._nothing(), *parts])

    def index_select(self, dim: int, index: Tensor) -> Tensor:
        """Return some columns (dim = 1) of all rows, dense, (n, m')."""
        return self[:].index_select(dim, index)

    def double(self) -> Tensor:
        """Return all of it, dense, float64: for few rows."""
        return self[:].double()

    def numel(self) -> int:
        """Entries."""
        return self.shape[0] * self.shape[1]

    @property
    def parts(self) -> tuple[Tensor, ...]:
        """What tells two matrices apart: a checksum of the rows, and the columns."""
        return torch.tensor([self._source.checksum()]), torch.from_numpy(self._columns.copy())

    def _nothing(self) -> Tensor:
        return torch.empty(0, self.shape[1], dtype=self.dtype, device=self.device)

    def _rows(self, index: Tensor, size: int) -> Tensor:
        out = torch.empty(len(index), self.shape[1], dtype=self.dtype, device=self.device)
        blocks = index // size
        for number in sorted(set(blocks.tolist())):
            places = (blocks == number).nonzero()[:, 0]
            out[places] = self._block(number)[index[places] - number * size]
        return out

    def _block(self, number: int) -> Tensor:
        """Return the rows of a block of the source; the last one is still there."""
        if self._held[0] != number:
            size = self._source.block_rows
            first = number * size
            raw = self._source.read(first, min(first + size, self._source.n_rows))
            self._held = (number, self._entries(raw, first))
        return self._held[1]

    def _entries(self, raw: Any, first: int) -> Tensor:
        values = self._scaled(columns_of(raw, self._columns), first)
        block = torch.from_numpy(np.ascontiguousarray(values)).to(self.device, self.dtype)
        return block if self._basis is None else block @ self._basis

    def _scaled(self, values: FloatArray, first: int) -> FloatArray:  # noqa: ARG002
        """Return entries of consecutive rows, from a first one on, in units of the fit."""
        return self._scaling.apply(values)


class MappedMatrix(StoredMatrix):
    """Entries of a row source as a function of them and their rows gives them, (n, m).

    Parameters
    ----------
    source : RowSource
    columns : ndarray of int, shape (m,)
        Of the source.
    function : callable
        Entries of consecutive rows, (r, m), and those rows as a slice -> (r, m).
    dtype, device
        As in `StoredMatrix`.
    """

    def __init__(
        self,
        source: RowSource,
        columns: IntArray,
        function: Callable[[FloatArray, slice], FloatArray],
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        plain = Scaling(np.zeros(len(columns)), np.ones(len(columns)))
        super().__init__(source, columns, plain, dtype, device)
        self._function = function

    def _scaled(self, values: FloatArray, first: int) -> FloatArray:
        return self._function(values, slice(first, first + len(values)))


def copied(Y: Any, folder: Path | None) -> Any:
    """Return a matrix for many passes over its rows, as `StoredMatrix.copied`; one in memory as it
    is.
    """
    return Y.copied(folder) if isinstance(Y, StoredMatrix) else Y


def unpacked(source: RowSource) -> RowSource:
    """Return rows that are expensive to read in a temporary file without a name, for many passes
    over them; as they are where the disk has no room.
    """
    size = source.n_rows * source.n_columns * source.dtype.itemsize
    place = tempfile.gettempdir()
    try:
        if shutil.disk_usage(place).free < _ROOM * size:
            return source
        with tempfile.TemporaryFile(dir=place) as file:
            for block in source.blocks():
                file.write(np.ascontiguousarray(block).data)
            file.flush()
            mapped = np.memmap(file, source.dtype, "r", shape=source.shape)
    except OSError:
        return source
    rows: RowSource = ArraySource(mapped)
    rows.columns = source.columns
    return rows
