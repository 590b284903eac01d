"""What rows bring along, or do not: logarithms of size factors, and covariates.

Views without size factors and models without covariates have None; that is asked here, once.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor


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
    return counts if offset is None else counts / offset.to(counts).exp()[:, None]
