"""NumPy files: one array (npy) or several by name (npz); never pickles."""

from __future__ import annotations

import math
import shutil
import struct
import tempfile
import zipfile
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from bochner.errors import DataWarning, InputError, message, warn_user
from bochner.io.request import Request
from bochner.io.table import Table, as_matrix, unreadable
from bochner.memory import Memory, size_text

LABELS = ("y", "labels")
# What files of one array, and of several, begin with.
_ARRAY = b"\x93NUMPY"
_ARCHIVE = b"PK"
# The head of a member of a zip file, which ends with the lengths of its name and of what is beside.
_LOCAL = struct.Struct("<4s5H3L2H")
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def read_npy(path: Path, request: Request | None = None) -> Table:
    """Read a file with one two-dimensional array of numbers."""
    loaded = load_arrays(path, "npy", (request or Request()).memory)
    if not isinstance(loaded, np.ndarray):
        raise unreadable(path, "npy", "it holds several arrays: rename it to .npz")
    return Table(as_matrix(loaded, str(path)))


def read_npz(path: Path, request: Request | None = None) -> Table:
    """Read a file with one or several named arrays.

    Two-dimensional arrays are data: one array is a single table, several are views of the same
    rows, in the order of the file. ``row_names``, ``column_names`` (single table only) and the
    labels ``y`` or ``labels`` are kept; other arrays of fewer dimensions are ignored.

    Raises
    ------
    InputError
        For an unreadable file, arrays of objects, no array of data, or views of unequal length.
    """
    arrays = load_arrays(path, "npz", (request or Request()).memory)
    if isinstance(arrays, np.ndarray):
        raise unreadable(path, "npz", "it holds a single array: rename it to .npy")
    beside = beside_arrays(arrays, path)
    data = [
        as_matrix(a, f"array {name!r} of {path}") for name, a in arrays.items() if a.ndim >= 2
    ]
    return Table(np.hstack(data), **beside)


def beside_arrays(arrays: Mapping[str, NDArray[np.generic]], path: Path) -> dict[str, Any]:
    """Return what the table of an npz file has beside its numbers: names, views and labels.

    Raises
    ------
    InputError
        No array is data, or views differ in their rows.
    """
    data = {name: array.shape for name, array in arrays.items() if array.ndim >= 2}
    if not data:
        stored = ", ".join(f"{name!r} {a.shape}" for name, a in arrays.items()) or "no array"
        do = "save X with shape (rows, columns)"
        # by these names scipy.sparse.save_npz stores a matrix
        if {"format", "shape", "data"} <= arrays.keys():
            stored = "a sparse matrix of scipy"
            do = (
                "fit scipy.sparse.load_npz(path) in Python, or write it as .h5ad: "
                "anndata.AnnData(X).write_h5ad(path)"
            )
        raise InputError(message(f"a two-dimensional array in {path}", stored, do))
    counts = {name: shape[0] for name, shape in data.items()}
    if len(set(counts.values())) > 1:
        got = ", ".join(f"{name!r}: {count}" for name, count in counts.items())
        raise InputError(
            message(
                f"views with the same rows in {path}",
                got,
                "save one row per sample in every view",
            )
        )
    n_rows = next(iter(counts.values()))
    widths = {name: shape[1] for name, shape in data.items()}
    given = {name: array for name, array in arrays.items() if array.ndim < 2}
    found = (_of_length(given, key, n_rows, path) for key in LABELS)
    return {
        "row_names": _names(given, "row_names", n_rows, path),
        "column_names": _names(given, "column_names", sum(widths.values()), path),
        "views": None if len(data) == 1 else consecutive(widths),
        "labels": next((array for array in found if array is not None), None),
    }


def consecutive(widths: dict[str, int]) -> dict[str, slice]:
    """Lay views of the given widths side by side: name to slice of columns."""
    stops = np.cumsum(list(widths.values())).tolist()
    return {
        name: slice(stop - width, stop)
        for (name, width), stop in zip(widths.items(), stops, strict=True)
    }


def _of_length(
    arrays: Mapping[str, NDArray[np.generic]], key: str, count: int, path: Path
) -> NDArray[np.generic] | None:
    """Return an array of so many entries; warn of one that has others, and leave it out."""
    array = arrays.get(key)
    if array is None or array.shape == (count,):
        return array
    what = "columns" if key == "column_names" else "rows"
    want = f"{key} of shape ({count},), one for each of the {what}, in {path}"
    do = "it is left out: save it again with one for each"
    warn_user(message(want, f"shape {array.shape}", do), DataWarning)
    return None


def _names(
    arrays: Mapping[str, NDArray[np.generic]], key: str, count: int, path: Path
) -> list[str] | None:
    stored = _of_length(arrays, key, count, path)
    if stored is None:
        return None
    names = [str(name) for name in stored.tolist()]
    repeated = next((name for name, n in Counter(names).items() if n > 1), None)
    if repeated is not None:
        what = key.removesuffix("_names")
        got = f"{repeated!r} twice in {key} of {path}"
        do = f"rename or drop one of the {what}s"
        raise InputError(message(f"{what} names that differ", got, do))
    return names


def load_arrays(
    path: Path, kind: str, memory: Memory
) -> NDArray[np.generic] | dict[str, NDArray[np.generic]]:
    """Read the array of an npy file, or those of an npz file by name.

    Parameters
    ----------
    path : Path
    kind : str
        What the file should be, for messages.
    memory : Memory

    Returns
    -------
    ndarray, or dict of str to ndarray
        Whatever its name says, the content decides. What else an npz holds is left out.

    Raises
    ------
    InputError
        The file is neither, is cut short, holds Python objects, or its headers promise more than
        the memory allows; they are looked at first.
    """
    try:
        with path.open("rb") as file:
            start = file.read(len(_ARRAY))
            file.seek(0)
            if start == _ARRAY:
                most = min(memory.limit, path.stat().st_size)
                return _array(file, path.stat().st_size, str(path), memory, most)
            if start.startswith(_ARCHIVE):
                return _archive(file, path, memory)
    except InputError:
        raise
    except Exception as error:  # whatever NumPy and zipfile raise: it is the file
        raise unreadable(path, kind, error) from error
    raise unreadable(path, kind, "it is no NumPy file")


def map_arrays(path: Path, memory: Memory, most: int) -> dict[str, NDArray[np.generic]] | None:
    """Open the arrays of an npz file, those of rows as memory maps: of the file itself, or, where
    they are compressed, of a temporary file without a name.

    Parameters
    ----------
    path : Path
    memory : Memory
        Limits of other arrays, and of what compressed ones become.
    most : int
        Numbers of all arrays up to which they are not opened.

    Returns
    -------
    dict of str to ndarray, or None
        None: they are not so many, or not all of them are numbers in rows.

    Raises
    ------
    InputError
        The file is unreadable.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = _members(archive)
            heads: dict[str, _Head] = {}
            for name, info in members.items():
                with archive.open(info) as member:
                    heads[name] = _head(member)
            data = {name: head for name, head in heads.items() if len(head.shape) >= 2}
            plain = all(len(h.shape) == 2 and h.dtype.kind == "f" for h in data.values())
            if not plain or sum(math.prod(head.shape) for head in data.values()) <= most:
                return None
            left = memory.expanded(path.stat().st_size)
            arrays: dict[str, NDArray[np.generic]] = {}
            for name, info in members.items():
                place = f"array {name!r} of {path}"
                if info.file_size > left:
                    raise memory.too_large(place, left)
                left -= info.file_size
                if name in data:
                    arrays[name] = _mapped(archive, path, info, data[name])
                    continue
                with archive.open(info) as member:
                    arrays[name] = _array(member, info.file_size, place, memory, left)
            return arrays
    except InputError:
        raise
    except Exception as error:  # whatever NumPy and zipfile raise: it is the file
        raise unreadable(path, "npz", error) from error


class _Head(NamedTuple):
    """What the file of an array says of it, and the bytes that takes."""

    shape: tuple[int, ...]
    is_fortran: bool
    dtype: np.dtype[Any]
    n_bytes: int


def _head(file: IO[bytes]) -> _Head:
    version = npy.read_magic(file)
    if version not in _HEADERS:
        raise ValueError("it holds records, not numbers")
    return _Head(*_HEADERS[version](file), file.tell())


def check_no_objects(path: Path) -> None:
    """Refuse an npy file of Python objects; of others, damaged ones included, say nothing."""
    objects = False
    with suppress(OSError, ValueError), path.open("rb") as file:
        objects = _head(file).dtype.hasobject
    if objects:
        raise _of_objects(str(path))


def _of_objects(place: str) -> InputError:
    do = "save an array of numbers with dtype=float, of text with dtype=str"
    return InputError(message("numbers", f"Python objects in {place}", do))


def _members(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """Return the files of arrays by the arrays' names."""
    infos = archive.infolist()
    suffix = ".npy"
    return {i.filename.removesuffix(suffix): i for i in infos if i.filename.endswith(suffix)}


def _mapped(
    archive: zipfile.ZipFile, path: Path, info: zipfile.ZipInfo, head: _Head
) -> NDArray[np.generic]:
    """Map an array of a file that holds several."""
    order: Literal["F", "C"] = "F" if head.is_fortran else "C"
    if info.compress_type == zipfile.ZIP_STORED:
        with path.open("rb") as file:
            file.seek(info.header_offset)
            local = file.read(_LOCAL.size)
        # its own lengths: those of the directory at the end may differ
        beside = sum(_LOCAL.unpack(local)[-2:])
        start = info.header_offset + _LOCAL.size + beside + head.n_bytes
        return np.memmap(path, head.dtype, "r", start, head.shape, order)
    with tempfile.TemporaryFile() as file, archive.open(info) as member:
        shutil.copyfileobj(member, file, 2**20)
        file.flush()
        return np.memmap(file, head.dtype, "r", head.n_bytes, head.shape, order)


def _archive(file: IO[bytes], path: Path, memory: Memory) -> dict[str, NDArray[np.generic]]:
    left = memory.expanded(path.stat().st_size)
    arrays = {}
    with zipfile.ZipFile(file) as archive:
        for name, info in _members(archive).items():
            with archive.open(info) as member:
                place = f"array {name!r} of {path}"
                arrays[name] = _array(member, info.file_size, place, memory, left)
            left -= arrays[name].nbytes
    return arrays


def _array(
    file: IO[bytes], size: int, place: str, memory: Memory, most: int
) -> NDArray[np.generic]:
    """Read one array of at most `most` bytes from a file of `size` bytes."""
    shape, _, dtype, _ = _head(file)
    if dtype.hasobject:
        raise _of_objects(place)
    count = math.prod(shape)
    asked = count * dtype.itemsize
    if asked > size:
        raise ValueError(
            f"it is cut short: {size_text(asked)} for the shape {_short(shape)}, got "
            f"{size_text(size)}"
        )
    if asked > most:
        raise memory.too_large(place, most)
    memory.check(count * 8, f"{_short(shape)} numbers in {place}")
    file.seek(0)
    loaded: NDArray[np.generic] = npy.read_array(file, allow_pickle=False)
    return loaded


def _short(shape: tuple[int, ...]) -> str:
    return " × ".join(f"{length:,}" for length in shape)
