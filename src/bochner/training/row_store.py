"""Numbers of very many rows: in memory while they are few, else in a file that is gone with its
owner. Some rows are held at a time.
"""

from __future__ import annotations

import os
import tempfile
from typing import IO

import torch
from torch import Tensor

from bochner.errors import StorageError, StorageWarning, message, warn_user
from bochner.memory import size_text

# Numbers that stay in memory.
_HELD = 2**21


class RowStore:
    """Rows of a matrix that begin as 0.

    Parameters
    ----------
    n_rows, width : int
    dtype : torch.dtype
    held : int
        Numbers up to which they stay in memory.

    Warns
    -----
    StorageWarning
        There is no room for the file: the numbers are held in memory.
    """

    def __init__(self, n_rows: int, width: int, dtype: torch.dtype, held: int = _HELD) -> None:
        self._width = width
        self._dtype = dtype
        self._file = None if n_rows * width <= held else _room(n_rows * width * dtype.itemsize)
        here = 0 if self._file else n_rows
        self._values = torch.zeros(here, width, dtype=dtype)

    def read(self, part: slice) -> Tensor:
        """Return some consecutive rows, on the processor: a copy, or the rows themselves."""
        if self._file is None:
            return self._values[part]
        out = torch.empty(part.stop - part.start, self._width, dtype=self._dtype)
        left = out.numpy().data.cast("B")
        place = self._place(part)
        while left:
            count = os.preadv(self._file.fileno(), [left], place)
            if not count:
                raise StorageError(
                    message("the rows that were written", "the file's end", "retry")
                )
            left = left[count:]
            place += count
        return out

    def write(self, part: slice, values: Tensor) -> None:
        """Put some consecutive rows in place.

        Raises
        ------
        StorageError
            The disk fails.
        """
        if self._file is None:
            self._values[part] = values.to(self._values)
            return
        whole = values.detach().to("cpu", self._dtype).contiguous()
        left = whole.numpy().data.cast("B")
        place = self._place(part)
        try:
            while left:
                count = os.pwrite(self._file.fileno(), left, place)
                left = left[count:]
                place += count
        except OSError as error:
            raise StorageError(_no_room(len(left), error)) from error

    def _place(self, part: slice) -> int:
        return int(part.start) * self._width * self._dtype.itemsize


def _room(size: int) -> IO[bytes] | None:
    """Return a file of zeros; None where there is no room for one."""
    try:
        file = tempfile.TemporaryFile(prefix="bochner-", buffering=0)  # noqa: SIM115 - held on to
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
        else:
            file.truncate(size)
    except OSError as error:
        warn_user(f"{_no_room(size, error)} They are held in memory.", StorageWarning)
        return None
    return file


def _no_room(size: int, error: OSError) -> str:
    got = f"{type(error).__name__}: {error.strerror}"
    folder = tempfile.gettempdir()
    do = "let the variable TMPDIR name a folder with room"
    return message(f"room in {folder} for {size_text(size)} of rows' latents", got, do)
