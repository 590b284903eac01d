"""AnnData and MuData as tables, in memory or from files."""

from __future__ import annotations

import functools
import subprocess
import sys
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bochner.data.accepted import in_order_of
from bochner.data.arrays import is_missing
from bochner.data.columns import listing
from bochner.data.file_arrays import check_places, computable
from bochner.errors import InputError, message
from bochner.extras import require
from bochner.io.join import check_unique, join
from bochner.io.request import Request
from bochner.io.table import Table, as_matrix, dense, unreadable
from bochner.memory import Memory

if TYPE_CHECKING:
    import pandas as pd
    from anndata import AnnData
    from mudata import MuData

T = TypeVar("T")
# Names, attributes and small arrays of an HDF5 file, in at most 10 seconds of processor time.
_READS = """
import sys
try:
    import resource
    resource.setrlimit(resource.RLIMIT_CPU, (10, 10))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
except ImportError:
    pass
import h5py
def look(name, node):
    for key in node.attrs:
        node.attrs[key]
    if isinstance(node, h5py.Dataset) and node.shape is not None and node.nbytes < 2**20:
        node[()]
with h5py.File(sys.argv[1], "r") as file:
    look("/", file)
    file.visititems(look)
"""


def check_anndata(adata: object, place: str = "adata") -> None:
    """Refuse what is no AnnData, and say what takes it."""
    if _has_modalities(adata) or not (hasattr(adata, "obsm") and hasattr(adata, "var_names")):
        do = "call fit_mudata" if _has_modalities(adata) else "call the estimator's fit"
        raise InputError(message(f"an AnnData for {place}", _kind(adata), do))


def check_mudata(mdata: object, place: str = "mdata") -> None:
    """Refuse what is no MuData, and say what takes it."""
    if not _has_modalities(mdata):
        do = "call fit_anndata" if hasattr(mdata, "obsm") else "call the estimator's fit"
        raise InputError(message(f"a MuData for {place}", _kind(mdata), do))


def _has_modalities(data: object) -> bool:
    # of a DataFrame `mod` is a method
    return hasattr(getattr(data, "mod", None), "keys")


def _kind(data: object) -> str:
    return f"an object of type {type(data).__name__}"


def from_anndata(
    adata: AnnData,
    layer: str | None = None,
    mask_var: object = None,
    use_rep: str | None = None,
    place: str = "adata",
) -> Table:
    """Turn an AnnData into a table: rows are observations, columns variables.

    Parameters
    ----------
    adata : AnnData
        Dense or sparse, in memory or backed, whole or a subset.
    layer : str, optional
        Key of ``adata.layers`` to take instead of ``adata.X``.
    mask_var : str or array of bool, optional
        Variables to take: a column of ``adata.var``, such as ``"highly_variable"``, or a mask.
    use_rep : str, optional
        Key of ``adata.obsm`` to take instead of variables.
    place : str
        Its name in messages.

    Raises
    ------
    InputError
        No such layer, column or representation; no X; names that repeat.
    """
    check_anndata(adata, place)
    _refuse_modalities(layer, "layer", place)
    if use_rep is not None:
        if layer is not None or mask_var is not None:
            do = "leave out layer and mask_var"
            raise InputError(message("use_rep alone", "use_rep with layer or mask_var", do))
        matrix = _chosen(adata.obsm, use_rep, f"{place}.obsm", "use_rep")
        columns = [f"{use_rep}_{j}" for j in range(matrix.shape[1])]
        if hasattr(matrix, "to_numpy"):
            # those of a DataFrame: new ones are placed as they are
            columns = [str(name) for name in matrix.columns]
            matrix = matrix.to_numpy()
    else:
        matrix = (
            adata.X
            if layer is None
            else _chosen(adata.layers, layer, f"{place}.layers", "layer")
        )
        if matrix is None:
            names = listing([repr(str(name)) for name in adata.layers])
            do = (
                f"name a layer of {names}"
                if names
                else "read the data again: it has no layers"
            )
            raise InputError(message(f"{place}.X", "none", do))
        columns = [str(name) for name in adata.var_names]
    matrix = _in_memory(matrix)
    check_places(matrix, place)
    matrix = computable(matrix)
    if mask_var is not None:
        mask = mask_of(adata.var, adata.n_vars, mask_var, place)
        matrix = matrix[:, mask]
        columns = [name for name, kept in zip(columns, mask, strict=True) if kept]
    rows = [str(name) for name in adata.obs_names]
    check_unique(rows, "row", f"{place}.obs_names")
    check_unique(columns, "column", f"{place}.var_names")
    X = dense(matrix, place) if sp.issparse(matrix) else as_matrix(np.asarray(matrix), place)
    return Table(X, rows, columns)


def from_mudata(
    mdata: MuData,
    layer: object = None,
    mask_var: object = None,
    modalities: Sequence[str] | None = None,
    place: str = "mdata",
) -> Table:
    """Turn a MuData into a table: modalities are views, rows are those of ``mdata`` in its order.

    Parameters
    ----------
    mdata : MuData
        Rows that a modality lacks become NaN.
    layer, mask_var : as in `from_anndata`, or dict of modality to one, optional
        A mask given as a name is used in the modalities that have it, and must be in one.
    modalities : sequence of str, optional
        Which, and in which order; all by default.
    place : str

    Raises
    ------
    InputError
        Modalities that are not there, or as `from_anndata` raises.
    """
    check_mudata(mdata, place)
    if getattr(mdata, "axis", 0) != 0:
        raise InputError(
            message(
                f"{place}.axis of 0 (shared rows)",
                f"{mdata.axis}",
                "transpose or build it anew",
            )
        )
    modalities = [modalities] if isinstance(modalities, str) else modalities
    names = list(mdata.mod) if modalities is None else list(modalities)
    absent = [repr(name) for name in names if name not in list(mdata.mod)]
    if absent or not names:
        got = f"no {listing(absent)}" if absent else "none"
        raise InputError(
            message(f"modalities of {place}", got, f"choose from {listing(list(mdata.mod))}")
        )
    layers = by_modality(layer, names, "layer")
    masks = by_modality(mask_var, names, "mask_var")
    tables = {
        name: from_anndata(
            mdata.mod[name], layers[name], masks[name], None, f"{place}[{name!r}]"
        )
        for name in names
    }
    named = {row for table in tables.values() for row in table.row_names or ()}
    return join(
        tables,
        f"modality of {place}",
        [str(row) for row in mdata.obs_names if str(row) in named],
    )


def read_h5ad(path: Path, request: Request | None = None) -> Table:
    """Read an AnnData file: its variables are columns with names."""
    request = request or Request()
    adata = _opened(
        path, "h5ad", require("anndata", "reads h5ad files").read_h5ad, request.memory
    )
    kept = request.selection.kept([str(name) for name in adata.var_names])
    if len(kept) < adata.n_vars:
        request.selection.check(str(path))
        # before columns are cut
        for matrix in (adata.X, *adata.layers.values()):
            check_places(matrix, path.name)
        adata = adata[:, kept]
    return from_anndata(adata, request.layer, request.mask_var, place=path.name)


def read_h5mu(path: Path, request: Request | None = None) -> Table:
    """Read a MuData file: its modalities are views."""
    request = request or Request()
    mdata = _opened(
        path, "h5mu", require("mudata", "reads h5mu files").read_h5mu, request.memory
    )
    return from_mudata(mdata, request.layer, request.mask_var, place=path.name)


def _opened(path: Path, kind: str, read: Callable[[Path], T], memory: Memory) -> T:
    try:
        check_survives(path)
        _check_expanded(path, memory)
        with warnings.catch_warnings():
            # about the formats of other releases; names that repeat are looked at here
            warnings.simplefilter("ignore")
            return read(path)
    except InputError:
        raise
    # whatever HDF5 and the registry of encodings raise: it is the file
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise unreadable(path, kind, reason) from error


def check_survives(path: Path) -> None:
    """Refuse a file that the HDF5 library cannot read without a crash, or without end: some
    damaged files take the process that reads them with them, so another process reads first.

    Raises
    ------
    InputError
    """
    state = path.stat()
    ended = _ended(str(path), state.st_mtime_ns, state.st_size)
    # signals are negative, and large on Windows; errors in words are raised by who reads next
    if ended < 0 or ended >= 2**31:
        kind = path.suffix.lstrip(".")
        raise unreadable(path, kind, "the HDF5 library crashes or does not end at it")


@functools.lru_cache(64)
def _ended(path: str, changed: int, size: int) -> int:  # noqa: ARG001 - of this state of the file
    # an interpreter inside another program
    if not sys.executable:
        return 0
    command = [sys.executable, "-P", "-c", _READS, path]
    quiet = subprocess.DEVNULL
    return subprocess.run(
        command, stdin=quiet, stdout=quiet, stderr=quiet, check=False
    ).returncode


def _check_expanded(path: Path, memory: Memory) -> None:
    """Refuse a file of few bytes whose arrays are many, before they are read."""
    h5py = require("h5py", "reads h5ad and h5mu files")
    sizes = []

    def add(_: str, node: Any) -> None:
        # no size: a None of `uns`, as scanpy's log1p leaves one
        if isinstance(node, h5py.Dataset) and node.size is not None:
            sizes.append(node.size * node.dtype.itemsize)

    with h5py.File(path, "r") as file:
        file.visititems(add)
    most = memory.expanded(path.stat().st_size)
    if sum(sizes) > most:
        raise memory.too_large(str(path), most)


def _chosen(mapping: Mapping[str, T], key: str, place: str, option: str) -> T:
    if not isinstance(key, Hashable) or key not in mapping:
        known = list(mapping)
        do = (
            f"choose {option} from {listing([repr(name) for name in known])}"
            if known
            else f"leave out {option}"
        )
        raise InputError(
            message(
                f"{key!r} in {place}",
                f"{listing([repr(n) for n in known]) or 'an empty one'}",
                do,
            )
        )
    return mapping[key]


def _in_memory(matrix: Any) -> Any:
    """Read what a backed AnnData left on disk."""
    if hasattr(matrix, "to_memory"):
        return matrix.to_memory()
    return matrix if sp.issparse(matrix) else np.asarray(matrix[...])


def mask_of(
    var: pd.DataFrame, n_columns: int, mask_var: object, place: str
) -> NDArray[np.bool_]:
    """Return which variables are taken, (n_columns,), by a column of ``var`` or a mask."""
    _refuse_modalities(mask_var, "mask_var", place)
    if isinstance(mask_var, str):
        columns = {str(name): column for name, column in var.items()}
        mask_var = _chosen(columns, mask_var, f"{place}.var", "mask_var")
    mask_var = in_order_of(var.index, "mask_var", mask_var, f"{place}.var_names")
    mask = np.asarray(mask_var)
    if mask.dtype == object and all(isinstance(value, bool | np.bool_) for value in mask.flat):
        mask = mask.astype(np.bool_)
    if mask.dtype != np.bool_ or mask.shape != (n_columns,) or not mask.any():
        chosen = f" with {int(mask.sum())} chosen" if mask.dtype == np.bool_ else ""
        missing = mask.dtype == object and any(map(is_missing, mask.flat))
        lacking = ", some of them missing" if missing else ""
        got = f"{mask.dtype} of shape {mask.shape}{chosen}{lacking}"
        raise InputError(
            message(f"mask_var of {n_columns} booleans for {place}", got, "correct the mask")
        )
    return np.asarray(mask, dtype=np.bool_)


def _refuse_modalities(value: object, option: str, place: str) -> None:
    """Refuse what names modalities, of which an AnnData has none."""
    if isinstance(value, Mapping):
        got = listing([f"{view}={name}" for view, name in value.items()]) or "an empty dict"
        do = "write its name alone"
        raise InputError(message(f"one {option} for {place}, an AnnData", got, do))


def by_modality(value: object, names: list[str], option: str) -> dict[str, Any]:
    """Return what is asked of each modality: the same, or by its name.

    Raises
    ------
    InputError
        A name is none of theirs.
    """
    if not isinstance(value, Mapping):
        return dict.fromkeys(names, value)
    unknown = [repr(str(name)) for name in value if name not in names]
    if unknown:
        raise InputError(
            message(
                f"{option} for modalities {listing(names)}",
                listing(unknown),
                "correct the names",
            )
        )
    return {name: value.get(name) for name in names}
