"""From arguments to tables and back to files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from bochner.cli.parse import COLUMNAR, names_in, parse_by_view
from bochner.data.arrays import FloatArray
from bochner.errors import InputError, ModelFileError, message
from bochner.io.columnar import write_columnar
from bochner.io.csv.write import write_csv
from bochner.io.extensions import EXTENSIONS, NAMED, extension_of, in_zarr
from bochner.io.on_disk import StoredTable, open_text
from bochner.io.outputs import replacing
from bochner.io.readers import open_source, read_source
from bochner.io.request import KnownColumns, Request, selection_of
from bochner.io.table import Table
from bochner.memory import memory_of

if TYPE_CHECKING:
    from bochner.estimators.base import LatentVariableEstimator


@dataclass(frozen=True)
class FrameTable(Table):
    """A mixed table: X holds its numbers, with labels as positions.

    Attributes
    ----------
    frame : DataFrame
        With the types of its columns.
    """

    frame: Any = None


@dataclass(frozen=True)
class Reading:
    """How files are read: the options that all commands with data share.

    Attributes
    ----------
    columns, drop, header, memory, mask_var, decimal
        As typed.
    beside : sequence of str
        Columns that are covariates, and no data.
    """

    columns: Sequence[str] = ()
    drop: Sequence[str] = ()
    header: bool | None = None
    memory: float | None = None
    mask_var: Sequence[str] = ()
    beside: Sequence[str] = ()
    decimal: str = "."

    @classmethod
    def typed(
        cls,
        columns: Sequence[str] | None,
        drop: Sequence[str] | None,
        header: bool | None,
        memory: float | None,
        mask_var: Sequence[str] | None,
        decimal: str,
    ) -> Reading:
        """Return what options say; None of those that were not given."""
        named = (columns or (), drop or (), header, memory, mask_var or ())
        return cls(*named, decimal=str(decimal))

    def without(self, path: Path, columns: Sequence[str | None]) -> Reading:
        """Return how to read a file of which some columns are no data; those of h5ad files are in
        obs.

        Raises
        ------
        InputError
            The rows are in no file whose columns can be read apart.
        """
        kind = extension_of(path)
        if kind == ".h5ad" or not any(columns):
            return self
        if kind not in NAMED or path.is_dir():
            function = "bochner.fit_mudata" if kind == ".h5mu" else "bochner.fit_anndata"
            do = "save the rows as one, with these columns among the others"
            if kind == ".h5mu" or in_zarr(path):
                do = f"call {function} from Python, which takes columns of obs"
            want = "a csv, parquet or h5ad file with --batch, --covariate or --size-factors"
            raise InputError(message(want, str(path), do))
        beside = [*self.beside, *(name for name in columns if name is not None)]
        return replace(self, beside=tuple(dict.fromkeys(beside)))

    def read(
        self,
        path: Path,
        index: str | None,
        layer: Sequence[str],
        known: Sequence[str] | None = None,
    ) -> Table:
        """Read data; see `bochner.io.readers.read`.

        Of files that have all columns that are `known` to a model only those are read, unless
        others were asked for.
        """
        return read_source(path, self.request(index, layer, known))

    def open(
        self,
        path: Path,
        index: str | None,
        layer: Sequence[str],
        known: Sequence[str] | None = None,
    ) -> StoredTable | None:
        """Open data that are read block by block; see `bochner.io.readers.open_source`."""
        return open_source(path, self.request(index, layer, known))

    def open_text(
        self,
        path: Path,
        index: str | None,
        layer: Sequence[str],
        known: Sequence[str] | None = None,
    ) -> StoredTable | None:
        """Open text that is read block by block; see `bochner.io.on_disk.open_text`."""
        if layer or self.mask_var:
            return None
        request = self.request(index, layer, known)
        return open_text(path, request, lambda: read_source(path, request))

    def request(
        self,
        index: str | None,
        layer: Sequence[str] = (),
        known: Sequence[str] | None = None,
    ) -> Request:
        """Return what is asked of a reader."""
        drop = [*_names(self.drop), *self.beside]
        selection = selection_of(_names(self.columns) or None, drop)
        if known is not None and not (self.columns or self.drop):
            selection = KnownColumns(known, self.beside)
        layers = parse_by_view(layer, "--layer")
        masks = parse_by_view(self.mask_var, "--mask-var")
        memory = memory_of(self.memory)
        return Request(index, layers, masks, self.header, self.decimal, selection, memory)


def names_of_views(specs: Sequence[str]) -> list[str] | None:
    """Return the names of the columns of views; None where any view counts its columns."""
    chosen = [spec.partition("=")[2] for spec in specs]
    if not all(chosen) or any(":" in name or name[:1].isdigit() for name in chosen):
        return None
    return _names(chosen) or None


def _names(specs: Sequence[str]) -> list[str]:
    return [name for spec in specs for name in names_in(spec)]


def load_model(path: Path) -> LatentVariableEstimator:
    """Load a model from its file, or from the folder that ``bochner fit`` wrote."""
    from bochner.estimators.loading import load

    try:
        return load(path)
    except ModelFileError as error:
        if extension_of(path) not in EXTENSIONS or not path.is_file():
            raise
        do = "write the model before the data, the folder of bochner fit"
        raise InputError(
            message("a bochner model file", f"{path}, a name of data", do)
        ) from error


def column_names(model: LatentVariableEstimator) -> list[str] | None:
    """Return what the columns of a model's training data were called."""
    names = getattr(model, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


class _Stream:
    """A file that NumPy writes through Python: past it, it would not say why a write failed."""

    def __init__(self, file: BinaryIO) -> None:
        self.write = file.write


def write_matrices(
    path: Path,
    arrays: Mapping[str, FloatArray],
    columns: Sequence[str] | None,
    rows_of: Table | None,
    typed: FloatArray | None = None,
) -> None:
    """Write arrays of a table's rows by extension: npz by name, others side by side; complete or
    not at all. Text of a completed matrix is like that of what was `typed`.
    """
    row_names, index_name = (
        (None, "") if rows_of is None else (rows_of.row_names, rows_of.index_name)
    )
    kind = path.suffix.lower()
    if kind == ".csv":
        matrix = np.hstack(list(arrays.values()))
        write_csv(path, matrix, row_names, columns, index_name, typed)
        return
    if kind in COLUMNAR:
        write_columnar(path, np.hstack(list(arrays.values())), row_names, columns)
        return
    with replacing(path) as part, part.open("wb") as file:
        if kind == ".npy":
            np.save(_Stream(file), np.hstack(list(arrays.values())))
        else:
            named: dict[str, Any] = {**arrays}
            if row_names is not None:
                named["row_names"] = np.array(row_names)
            np.savez(file, **named)


# What a file of latents holds of every dimension: NAME, NAME_std, NAME_low, ...
PLACED = ("mean", "std", "low", "high")


def write_embedding(path: Path, placed: Sequence[FloatArray], rows_of: Table | None) -> None:
    """Write latents, their standard deviations and, if they are there, the limits of intervals:
    columns z0, z1, ..., z0_std, z1_std, ..., z0_low, ..., z0_high, ...
    """
    parts = dict(zip(PLACED, placed, strict=False))
    write_matrices(path, parts, latent_names(placed[0].shape[1], len(placed)), rows_of)


def latent_names(n_components: int, n_parts: int = 2) -> list[str]:
    """Return the columns of latents, of their standard deviations, and of limits."""
    ends = ["", *(f"_{part}" for part in PLACED[1:n_parts])]
    return [f"z{d}{end}" for end in ends for d in range(n_components)]


def frame(table: Table) -> Any:
    """Return the table's matrix with its column names where pandas can carry them; mixed tables
    with the types of their columns, those on disk as the source of their rows.
    """
    if isinstance(table, FrameTable):
        return table.frame
    if isinstance(table, StoredTable):
        return table.rows
    if table.column_names is None:
        return table.X
    try:
        import pandas as pd
    except ImportError:
        return table.X
    return pd.DataFrame(table.X, columns=table.column_names)
