"""Rows of a feature map's fit, part by part, and the few of them that a fit holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples
from torch import Tensor

from bochner.data.file_arrays import changed, check_places, computable
from bochner.data.row_sources import ArraySource, read_by_parts
from bochner.errors import InputError, message
from bochner.memory import chunks

# Numbers of a section of a sparse matrix, which becomes dense.
_NUMBERS = 2**20


def sections(X: object) -> list[Callable[[], Any]]:
    """Cut the rows of arrays into consecutive parts, each read when it is called; what is no array
    is one part.
    """
    source = read_by_parts(X)
    if isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind in "biuf":
        masked = isinstance(X, np.ma.MaskedArray)
        source = None if masked or not X.size else ArraySource(X)
    matrix = by_rows(X)
    if sp.issparse(X) and matrix.ndim == 2:
        n_rows, n_columns = matrix.shape
        parts = chunks(n_rows, max(1, _NUMBERS // max(1, n_columns)))
        return [partial(matrix.__getitem__, rows) for rows in parts] or [lambda: X]
    if source is None:
        return [lambda: X]
    n_rows = source.n_rows
    size = source.block_rows
    starts = range(0, n_rows, size)
    return [partial(source.read, first, min(first + size, n_rows)) for first in starts]


def cut(X: object, size: int) -> Iterator[object]:
    """Yield the rows of X in parts of so many rows; none are one part."""
    source = read_by_parts(X)
    n_rows = source.n_rows if source is not None else _num_samples(X)
    matrix = by_rows(X)
    for rows in chunks(n_rows, size) if n_rows else [slice(0, 0)]:
        if source is not None:
            yield source.read(rows.start, rows.stop)
        else:
            yield X[rows] if isinstance(X, Tensor) else _safe_indexing(matrix, rows)


def by_rows(X: Any) -> Any:
    """Return a sparse matrix compressed by rows, of a type that scipy computes with, so that
    they can be cut; whatever else as it is.
    """
    check_places(X, "X")
    X = computable(X)
    compressed = getattr(X, "tocsr", None)
    return X if compressed is None else compressed()


def dense(X: Any) -> Any:
    """Return a sparse matrix, or a table of sparse columns, dense; whatever else as it is."""
    if sp.issparse(X):
        return by_rows(X).toarray()
    types = list(getattr(X, "dtypes", ())) if hasattr(X, "sparse") else []
    sparse = bool(types) and all(hasattr(kind, "fill_value") for kind in types)
    return X.sparse.to_dense() if sparse else X


def values_of(X: Tensor) -> NDArray[Any]:
    """Return the numbers of a dense tensor.

    Raises
    ------
    InputError
        It stands for numbers that only a transform of torch has: torch.func, torch.export.
    """
    try:
        return X.detach().cpu().numpy()
    except RuntimeError as error:
        do = (
            "call this outside of torch.func and torch.export; derivatives are those of "
            "torch.autograd: torch.autograd.functional.jacobian(model.transform, X)"
        )
        got = f"one that holds none ({str(error).splitlines()[0].rstrip('.')})"
        raise InputError(message("a tensor of numbers", got, do)) from error


@contextmanager
def counted_from(first: int) -> Iterator[None]:
    """Let a message about a row of a part say where the part begins."""
    try:
        yield
    except InputError as error:
        if not first:
            raise
        raise InputError(f"{error} Rows are counted from row {first:,} on.") from error


@dataclass(frozen=True)
class Survey:
    """What a fit knows of rows that it does not hold.

    Attributes
    ----------
    n_rows : int
    counts : Tensor of shape (sections,), int64
        Rows of every section that may be drawn.
    """

    n_rows: int
    counts: Tensor

    @classmethod
    def of(cls, sizes: Iterable[tuple[int, int]]) -> Survey:
        """Add up rows, and rows that may be drawn, of every section."""
        pairs = list(sizes)
        return cls(sum(n for n, _ in pairs), torch.tensor([count for _, count in pairs]))

    def take(self, X: object, drawn: Tensor, candidates: Callable[[object], Tensor]) -> Tensor:
        """Return rows by their numbers among those that may be drawn; only their sections are read.

        Parameters
        ----------
        X : Any
            As surveyed.
        drawn : Tensor of shape (l,), int64
        candidates : callable
            From a section to its rows that may be drawn.

        Raises
        ------
        InputError
            X has changed since.
        """
        ends = self.counts.cumsum(0)
        holder = torch.searchsorted(ends, drawn, right=True)
        parts = sections(X)
        out = []
        for number in sorted(set(holder.tolist())):
            rows = candidates(parts[number]())
            count = int(self.counts[number])
            if len(rows) != count:
                raise changed(f"{len(rows)} rows that can be used, which were {count}")
            within = drawn[holder == number] - (ends[number] - count)
            out.append(rows[within.to(rows.device)])
        # sections come in order, rows as they were drawn
        order = holder.argsort(stable=True).argsort()
        return torch.cat(out)[order.to(out[0].device)]
