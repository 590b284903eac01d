"""Columns of numbers to parquet files and zarr arrays; block by block also to csv and npy."""

from __future__ import annotations

import csv
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np

from bochner.data.arrays import BoolArray, FloatArray
from bochner.extras import require
from bochner.io.csv.write import cells
from bochner.io.outputs import refusal, replacing


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
    if path.suffix.lower() == ".zarr":
        _write_zarr(path, matrix)
        return
    arrow = require("pyarrow", "writes parquet files")
    names = list(columns or (f"x{j}" for j in range(matrix.shape[1])))
    named = {} if row_names is None else {"row": list(row_names)}
    table = arrow.table({**named, **{name: matrix[:, j] for j, name in enumerate(names)}})
    with replacing(path) as part:
        require("pyarrow.parquet", "writes parquet files").write_table(table, str(part))


def _write_zarr(path: Path, matrix: FloatArray) -> None:
    zarr = require("zarr", "writes zarr arrays")
    with _replacing_folder(path) as part:
        zarr.save_array(str(part), matrix)


@contextmanager
def _replacing_folder(path: Path) -> Iterator[Path]:
    """Yield a folder that takes the place of the path where the block ends well."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        yield part
        if path.exists():
            shutil.rmtree(path)
        part.rename(path)
    except OSError as error:
        raise refusal(path, error) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


Write = Callable[[FloatArray], None]
STREAMED = (".csv", ".npy", ".parquet", ".zarr")


@contextmanager
def writing(
    path: Path,
    n_rows: int,
    columns: Sequence[str],
    dtype: np.dtype[np.generic],
    whole: BoolArray | None = None,
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

    Yields
    ------
    callable
        Takes (n, M) numbers.
    """
    kind = path.suffix.lower()
    if kind == ".zarr":
        with _replacing_folder(path) as part:
            yield _into_zarr(part, (n_rows, len(columns)), dtype)
        return
    with replacing(path) as part, ExitStack() as opened:
        if kind == ".csv":
            yield _into_csv(part, opened, columns, whole)
            return
        begin = {".npy": _into_npy, ".parquet": _into_parquet}[kind]
        yield begin(part, opened, n_rows, columns, dtype)


def _into_csv(
    part: Path, opened: ExitStack, columns: Sequence[str], whole: BoolArray | None
) -> Write:
    file = opened.enter_context(part.open("w", newline="", encoding="utf-8"))
    rows = csv.writer(file, lineterminator="\n")
    rows.writerow(columns)
    plain = np.zeros(len(columns), dtype=bool) if whole is None else whole
    return lambda block: rows.writerows(cells(block, plain, named=True))


def _into_npy(
    part: Path,
    opened: ExitStack,
    n_rows: int,
    columns: Sequence[str],
    dtype: np.dtype[np.generic],
) -> Write:
    file = opened.enter_context(part.open("wb"))
    described = np.lib.format.dtype_to_descr(dtype)
    header = {"descr": described, "fortran_order": False, "shape": (n_rows, len(columns))}
    np.lib.format.write_array_header_1_0(file, header)
    return lambda block: _all(file.write(np.ascontiguousarray(block, dtype=dtype).data))


def _into_parquet(
    part: Path,
    opened: ExitStack,
    n_rows: int,
    columns: Sequence[str],
    dtype: np.dtype[np.generic],
) -> Write:
    del n_rows
    arrow = require("pyarrow", "writes parquet files")
    kind = arrow.from_numpy_dtype(dtype)
    schema = arrow.schema([(name, kind) for name in columns])
    parquet = require("pyarrow.parquet", "writes parquet files")
    file = opened.enter_context(parquet.ParquetWriter(str(part), schema))
    return lambda block: _all(file.write_table(arrow.table(list(block.T), schema=schema)))


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
