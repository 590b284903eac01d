"""Row chunks: bounded memory for sums over rows."""

from __future__ import annotations

from collections.abc import Iterator

from bochner.errors import InputError, message


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
