"""Arrays in files: what is read of them, whether they are still there, and what is wrong."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import scipy.sparse as sp

from bochner.errors import InputError, message


@contextmanager
def readable(place: str) -> Iterator[None]:
    """Name the file where a library cannot read a part of it: it is damaged.

    Parameters
    ----------
    place : str
        Empty: errors are not about a file.

    Raises
    ------
    InputError
    """
    try:
        yield
    except (InputError, MemoryError):
        raise
    except Exception as error:  # whatever the libraries of files raise
        if not place:
            raise
        reason = " ".join(str(error).split()) or type(error).__name__
        do = "the file is damaged: copy it again from where it was whole, or write it anew"
        raise InputError(
            message("rows that can be read", f"{place} ({reason})", do)
        ) from error


def place_of(array: Any) -> str:
    """Return where an array of HDF5 or zarr is stored; nothing for others."""
    library = type(array).__module__.partition(".")[0]
    if library == "h5py":
        return f"{array.name} of {array.file.filename}"
    if library != "zarr":
        return ""
    # zarr 2 has none
    return str(getattr(array, "store_path", array)).removeprefix("file://")


def check_there(array: Any) -> None:
    """Refuse an array of a file that was closed since, or cut short: reading a memory map beyond
    its end kills the process.
    """
    # h5py's are falsy once their file is closed
    if type(array).__module__.startswith("h5py") and not array:
        raise changed("a file that was closed")
    mapped = _map_of(array)
    if mapped is None:
        return
    # the map begins at a page, not after it; slices keep the offset of the whole
    offset = int(getattr(array, "offset", 0))
    needed = offset - offset % mmap.ALLOCATIONGRANULARITY + len(mapped)
    size = mapped.size()
    if size < needed:
        name = getattr(array, "filename", None) or "a file"
        raise changed(f"{size:,} bytes in {name}, which had {needed:,}")


def _map_of(array: object) -> mmap.mmap | None:
    """Return the memory map from which an array of NumPy's reads; None for other arrays."""
    while isinstance(array, np.ndarray):
        array = array.base
    return array if isinstance(array, mmap.mmap) else None


def mapped_file(array: object) -> mmap.mmap | None:
    """Return the file that a memory map of NumPy's reads from, where the system can be told which
    of its pages are not needed; None for other arrays, and where writes stay in memory (mode "c"):
    those would be lost.
    """
    if getattr(array, "mode", "c") == "c" or not hasattr(mmap, "MADV_DONTNEED"):
        return None
    return _map_of(array)


def release(array: object) -> None:
    """Give back the pages of a memory map: those that were read or written count as memory of the
    process until then.
    """
    mapped = mapped_file(array)
    if mapped is not None:
        mapped.madvise(mmap.MADV_DONTNEED)


def changed(got: str) -> InputError:
    """Build the error for rows that are others than before."""
    do = "start again when nothing writes to the data any more"
    return InputError(message("the same rows from start to end", got, do))


def check_places(X: Any, place: str) -> None:
    """Refuse a sparse matrix whose entries stand outside it, as in damaged files: libraries write
    them beyond the memory of their results.

    Parameters
    ----------
    X : scipy sparse matrix, or ndarray
    place : str
        For the message.

    Raises
    ------
    InputError
    """
    form = getattr(X, "format", "")
    # of other formats the library looks itself
    if form not in ("csr", "csc"):
        return
    lines, width = X.shape if form == "csr" else X.shape[::-1]
    ends, entries = X.indptr, X.indices
    reason = ""
    if len(ends) != lines + 1 or ends[0] != 0 or (np.diff(ends) < 0).any():
        reason = "where its lines end is not in order"
    elif ends[-1] > min(len(entries), len(X.data)):
        reason = f"{ends[-1]:,} entries, of which {min(len(entries), len(X.data)):,} are there"
    else:
        entries = entries[: ends[-1]]
        outside = entries[(entries < 0) | (entries >= width)]
        reason = f"entry {int(outside[0]):,} of {width:,}" if outside.size else ""
    if reason:
        raise places_outside(X.shape, place, reason)


def places_outside(shape: tuple[int, int], place: str, reason: object) -> InputError:
    """Build the error for a sparse matrix whose entries stand outside its shape."""
    got = f"entries outside it in {place} ({reason})"
    do = "write the file again, or build the matrix anew: it is damaged"
    return InputError(message(f"a sparse matrix of {shape[0]:,} × {shape[1]:,}", got, do))


def computable(X: Any) -> Any:
    """Return a sparse matrix of a type that scipy computes with; whatever else as it is.

    scipy builds matrices of float16, and of numbers whose bytes are in another machine's order, but
    neither cuts them nor writes them out. They become double precision, as arrays of float16 do,
    and numbers in the order of this machine.

    Parameters
    ----------
    X : scipy sparse matrix, or anything

    Returns
    -------
    The same, or a copy.
    """
    given = X.dtype if sp.issparse(X) else None  # type: ignore[attr-defined]
    if given is None:
        return X
    dtype = np.dtype(np.float64) if given == np.float16 else given.newbyteorder("=")
    return X if dtype == given else X.astype(dtype)
