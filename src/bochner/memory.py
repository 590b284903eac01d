"""Bounded memory: chunks of rows, arrays that the chunks of one pass share, and limits that are
looked at before memory is asked for.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bochner.errors import InputError, message

if TYPE_CHECKING:
    # readers of files cut rows, too, and do without torch
    from torch import Tensor


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
            message(
                "chunk_rows of at least 1", str(chunk_rows), "choose a positive number of rows"
            )
        )
    for start in range(0, n_rows, chunk_rows):
        yield slice(start, min(start + chunk_rows, n_rows))


# Numbers, and rows, of a matrix that are looked at together.
_NUMBERS = 2**22
_ROWS = 8192


def passes(shape: tuple[int, int]) -> Iterator[slice]:
    """Cut the rows of a matrix, (N, M), into slices of few numbers: one pass over all of them."""
    return chunks(shape[0], max(1, min(_ROWS, _NUMBERS // max(1, shape[1]))))


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
        self._last: dict[str, Tensor] = {}

    def take(self, name: str, *shape: int) -> Tensor:
        """Return a contiguous array: the memory of the last one of that name."""
        last = self._last.get(name)
        if last is not None and last.shape == shape:
            return last
        size = math.prod(shape)
        held = self._held.get(name)
        if held is None or held.numel() < size:
            held = self._held[name] = self._like.new_empty(size)
        self._last[name] = held[:size].view(shape)
        return self._last[name]


GIB = 2**30
# A compressed file may become this many times as large, or this many bytes: ten times more than
# tables of numbers do, and small files are left alone.
EXPANSION = 100
FREE = 2**28


def size_text(size: int) -> str:
    """Write a number of bytes for people."""
    for unit, factor in (("TiB", 2**40), ("GiB", GIB), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= factor:
            return f"{size / factor:,.1f} {unit}"
    return f"{size} bytes"


@dataclass(frozen=True)
class Memory:
    """How much memory data may take.

    Attributes
    ----------
    limit : int
        Bytes of a matrix.
    """

    limit: int = 8 * GIB

    @classmethod
    def of_machine(cls) -> Memory:
        """Return the limit of what parameters make a fit hold: all that the machine has, the
        default where that is less or not known.
        """
        try:
            size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        except (AttributeError, ValueError, OSError):  # not every system says
            size = 0
        return cls(max(cls.limit, size))

    def check(self, size: int, what: str, do: str = "") -> None:
        """Refuse `what` of so many bytes when they are too many; `do` says what to change, by
        default the option that raises the limit.

        Raises
        ------
        InputError
            Naming the size, the limit and the option that raises it.
        """
        if size > self.limit:
            do = do or f"take fewer rows or columns, or allow it: --memory {-(-size // GIB)}"
            raise InputError(
                message(
                    f"at most {size_text(self.limit)}", f"{size_text(size)} for {what}", do
                )
            )

    def expanded(self, compressed: int) -> int:
        """Return the bytes that a compressed file of so many bytes may become."""
        return min(self.limit, max(FREE, EXPANSION * compressed))

    def too_large(self, place: str, most: int) -> InputError:
        """Build the error for a compressed file that becomes more than `most` bytes."""
        got = f"more from {place}"
        do = (
            "check where it comes from; to allow it give the memory in GiB, such as --memory 8"
        )
        return InputError(message(f"at most {size_text(most)} when decompressed", got, do))


@dataclass(frozen=True)
class GivenMemory(Memory):
    """A limit that the user gave: compressed files may take all of it."""

    def expanded(self, compressed: int) -> int:
        """Return the limit."""
        del compressed
        return self.limit


def memory_of(gib: float | None) -> Memory:
    """Return the limit for a number of GiB; None is the default.

    Raises
    ------
    InputError
        The number is not positive.
    """
    if gib is None:
        return Memory()
    if not 0 < gib < 2**30:
        raise InputError(message("memory in GiB above 0", f"{gib}", "write --memory 16"))
    return GivenMemory(int(gib * GIB))
