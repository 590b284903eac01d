"""Sparse matrices written out, up to a limit: where missing entries are to join them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bochner.errors import InputError, message
from bochner.memory import chunks

# Bytes of a dense matrix that a sparse one may become: never silently the whole memory of a
# machine.
LIMIT = 8 * 2**30
CHUNK_ROWS = 2048


def dense(X: Any, place: str, dtype: Any = np.float64) -> NDArray[Any]:
    """Write a sparse matrix out; a dense one is returned as it is.

    Parameters
    ----------
    X : scipy sparse matrix or array, or ndarray, shape (N, M)
    place : str
        Its source, for the message.
    dtype : dtype
        Of the result, which is filled at once: there is no second dense copy.

    Raises
    ------
    InputError
        The result would take more than `LIMIT` bytes.
    """
    if isinstance(X, np.ndarray):
        return X
    size = int(X.shape[0]) * int(X.shape[1]) * np.dtype(dtype).itemsize
    if size > LIMIT:
        got = f"{X.shape[0]:,} × {X.shape[1]:,} entries ({size / 2**30:.1f} GiB) in {place}"
        do = "choose fewer columns, such as the most variable ones, or fewer rows"
        raise InputError(
            message(f"at most {LIMIT / 2**30:.0f} GiB when a sparse matrix is written out", got, do)
        )
    out = np.empty(X.shape, dtype=dtype)
    rows = X.tocsr()
    for own in chunks(X.shape[0], CHUNK_ROWS):
        out[own] = rows[own].toarray()
    return out
