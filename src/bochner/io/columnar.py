"""Columns of numbers to parquet files and zarr arrays."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from bochner.extras import require
from bochner.io.outputs import replacing


def write_columnar(
    path: Path,
    matrix: NDArray[Any],
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


def _write_zarr(path: Path, matrix: NDArray[Any]) -> None:
    zarr = require("zarr", "writes zarr arrays")
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        zarr.save_array(str(part), matrix)
        if path.exists():
            shutil.rmtree(path)
        part.rename(path)
    finally:
        shutil.rmtree(part, ignore_errors=True)
