"""Bounded memory: consecutive chunks of rows, and arrays that the chunks of one pass share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from bochner.errors import InputError, message

if TYPE_CHECKING:
    from torch import Tensor  # readers of files cut rows, too, and do without torch


def chunks(n_rows: int, chunk_rows: int) -> Iterator[slice]:
    """Cut rows 0..N−1 into consecutive slices of `chunk_rows` rows; the last one takes what is
    left.

    Parameters
    ----------
    n_rows : int
        N; 0 gives no slice.
    chunk_rows : int
        At least 1.

    Yields
    ------
    slice
    """
    if chunk_rows < 1:
        raise InputError(
            message("chunk_rows of at least 1", str(chunk_rows), "choose a positive number of rows")
        )
    for start in range(0, n_rows, chunk_rows):
        yield slice(start, min(start + chunk_rows, n_rows))


class Scratch:
    """Named arrays that are handed out again and again, with whatever they held.

    Fresh memory costs more than what is computed in it.

    Parameters
    ----------
    like : Tensor
        Whose precision and device they have.
    """

    def __init__(self, like: Tensor) -> None:
        self._like = like.new_empty(0)
        self._held: dict[str, Tensor] = {}

    def take(self, name: str, n_rows: int, n_columns: int) -> Tensor:
        """Return a contiguous array (n_rows, n_columns): the memory of the last one of that
        name.
        """
        size = n_rows * n_columns
        held = self._held.get(name)
        if held is None or held.numel() < size:
            held = self._held[name] = self._like.new_empty(size)
        return held[:size].view(n_rows, n_columns)
