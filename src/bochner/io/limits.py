"""Limits of memory, looked at before the memory is asked for."""

from __future__ import annotations

from dataclasses import dataclass

from bochner.errors import InputError, message

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
                message(f"at most {size_text(self.limit)}", f"{size_text(size)} for {what}", do)
            )

    def expanded(self, compressed: int) -> int:
        """Return the bytes that a compressed file of so many bytes may become."""
        return min(self.limit, max(FREE, EXPANSION * compressed))

    def too_large(self, place: str, most: int) -> InputError:
        """Build the error for a compressed file that becomes more than `most` bytes."""
        got = f"more from {place}"
        do = "check where it comes from; to allow it give the memory in GiB, such as --memory 8"
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
