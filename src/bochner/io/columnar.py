"""Columns of numbers to parquet files and zarr arrays; block by block also to csv and npy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np

from bochner.data.arrays import BoolArray, FloatArray
from bochner.extras import require
from bochner.io.csv.write import CsvRows
from bochner.io.outputs import replacing, replacing_folder


def write_columnar(
    path: Path,
    matrix: FloatArray,
    row_names: Sequence[str] | None,
    columns: Sequence[str] | None,
) -> None:
    """Write a matrix to a parquet file, or to a zarr array; whole or not at all.

    Parameters
    ----------
    path : Path
        ``.parquet`` or ``.zarr``: what is there is replaced.
    matrix : ndarray of shape (N, M)
    row_names : sequence of str, optional
        The column ``row`` of a parquet file.
    columns : sequence of str, optional
        Of a parquet file; by default x0, x1, ...
    """
    names = list(columns or (f"x{j}" for j in range(matrix.shape[1])))
    with writing(path, len(matrix), names, matrix.dtype, row_names=row_names) as write:
        write(matrix)


Write = Callable[[FloatArray], None]
STREAMED = (".csv", ".npy", ".parquet", ".zarr")


@contextmanager
def writing(
    path: Path,
    n_rows: int,
    columns: Sequence[str],
    dtype: np.dtype[np.generic],
    whole: BoolArray | None = None,
    row_names: Sequence[str] | None = None,
    index_name: str = "",
) -> Iterator[Write]:
    """Yield a function that writes consecutive rows; the file appears whole or not at all.

    Parameters
    ----------
    path : Path
        One of `STREAMED`: what is there is replaced.
    n_rows : int
        Of all blocks.
    columns : sequence of str, shape (M,)
        Of csv and parquet files.
    dtype : dtype
    whole : ndarray of bool, shape (M,), optional
        Columns of whole numbers, which csv files hold without points; by default none.
    row_names : sequence of str, shape (n_rows,), optional
        The first column of a csv file, the column ``row`` of a parquet file.
    index_name : str, optional
        Above the row names of a csv file.

    Yields
    ------
    callable
        Takes (n, M) numbers.
    """
    kind = path.suffix.lower()
    shape = (n_rows, len(columns))
    if kind == ".zarr":
        with replacing_folder(path) as part:
            yield _into_zarr(part, shape, dtype)
        return
    with replacing(path) as part, ExitStack() as opened:
        if kind == ".csv":
            file = opened.enter_context(part.open("w", newline="", encoding="utf-8"))
            plain = np.zeros(len(columns), dtype=bool) if whole is None else whole
            yield CsvRows(file, len(columns), columns, plain, row_names, index_name).write
        elif kind == ".npy":
            yield _into_npy(part, opened, shape, dtype)
        else:
            yield _into_parquet(part, opened, columns, dtype, row_names)


def _into_npy(
    part: Path, opened: ExitStack, shape: tuple[int, int], dtype: np.dtype[np.generic]
) -> Write:
    file = opened.enter_context(part.open("wb"))
    described = np.lib.format.dtype_to_descr(dtype)
    header = {"descr": described, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    return lambda block: _all(file.write(np.ascontiguousarray(block, dtype=dtype).data))


def _into_parquet(
    part: Path,
    opened: ExitStack,
    columns: Sequence[str],
    dtype: np.dtype[np.generic],
    row_names: Sequence[str] | None,
) -> Write:
    arrow = require("pyarrow", "writes parquet files")
    named = [] if row_names is None else [("row", arrow.string())]
    kind = arrow.from_numpy_dtype(dtype)
    schema = arrow.schema([*named, *((name, kind) for name in columns)])
    parquet = require("pyarrow.parquet", "writes parquet files")
    # closed whatever happens, and with the system's words where the disk is full
    into = opened.enter_context(part.open("wb"))
    file = opened.enter_context(parquet.ParquetWriter(into, schema))
    done = 0

    def write(block: FloatArray) -> None:
        nonlocal done
        names = [] if row_names is None else [list(row_names[done : done + len(block)])]
        done += len(block)
        file.write_table(arrow.table([*names, *block.T], schema=schema))

    return write


def _into_zarr(part: Path, shape: tuple[int, int], dtype: np.dtype[np.generic]) -> Write:
    zarr = require("zarr", "writes zarr arrays")
    pieces = (min(_ZARR_ROWS, max(1, shape[0])), shape[1])
    array = zarr.open(str(part), mode="w", shape=shape, chunks=pieces, dtype=dtype)
    done = 0

    def write(block: FloatArray) -> None:
        nonlocal done
        array[done : done + len(block)] = block
        done += len(block)

    return write


# Rows of a piece of a zarr array.
_ZARR_ROWS = 2**16


def _all(_: object) -> None:
    """Write all of it: the libraries do, or raise."""
