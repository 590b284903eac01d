"""Data sets built from the files that their authors, or those who copied them, made public."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bochner.errors import InputError, message

Arrays = dict[str, NDArray[np.generic]]
# Fourteen electrodes, and whether the eyes are open.
_EEG_COLUMNS = 15
# An EEG channel moves by some tens about its median; four rows jump by hundreds and more.
_EEG_JUMP = 1000.0
_SKIN_ROWS = 245_057
_PUBLIC = "https://raw.githubusercontent.com"


@dataclass(frozen=True)
class Original:
    """A public file and how the arrays of a data set come out of it.

    Attributes
    ----------
    url : str
    sha256 : str
        Of the arrays X and y that must come out, whatever the bytes of the file were.
    build : callable
        The file to the arrays of the data set.
    """

    url: str
    sha256: str
    build: Callable[[Path], Arrays]


def _spambase(path: Path) -> Arrays:
    table = _table(path, ",", 58)
    # this copy begins with numbers of the columns
    if np.array_equal(table[0], np.arange(1, 59)):
        table = table[1:]
    return {"X": table[:, :-1].astype(np.float32), "y": table[:, -1].astype(np.uint8)}


def _eeg(path: Path) -> Arrays:
    lines = path.read_text(encoding="utf-8").splitlines()
    names = [line.split()[1] for line in lines if line.upper().startswith("@ATTRIBUTE")]
    table = _table([line for line in lines if line[:1].isdigit()], ",", _EEG_COLUMNS)
    X = table[:, :-1].astype(np.float32)
    far = (np.abs(X - np.median(X, axis=0)) > _EEG_JUMP).any(1)
    return {
        "X": X,
        "y": table[:, -1].astype(np.uint8),
        "feature_names": np.array(names[:-1]),
        "outlier_rows": np.flatnonzero(far).astype(np.int32),
    }


def _skin(path: Path) -> Arrays:
    # rows of a third class were appended to this copy
    table = _table(path, None, 4)
    table = table[table[:, -1] <= 2][:_SKIN_ROWS]
    return {"X": table[:, :3].astype(np.uint8), "y": (table[:, -1] == 1).astype(np.uint8)}


def _table(
    lines: Path | list[str], delimiter: str | None, n_columns: int
) -> NDArray[np.float64]:
    table = np.loadtxt(lines, delimiter=delimiter, ndmin=2)
    if not len(table) or table.shape[1] != n_columns:
        raise ValueError(f"a table of shape {table.shape}")
    return table


ORIGINALS: dict[str, Original] = {
    "eeg": Original(
        f"{_PUBLIC}/rogerior/ixio/b0b821195044ae8ffbdee7e6f2ae07ba334086a9/EEG%20Eye%20State.arff",
        "86958e3c75413fc01ad56c43e5cb112df72534dbbc4eef3b14ff03a1043c08fa",
        _eeg,
    ),
    "skin": Original(
        f"{_PUBLIC}/victusfate/scatter3D/2225334f460297876f620f024a576b2290d5c7ab/Skin_NonSkin.txt",
        "31414d496c7c3e9f6cddf80bab701ade7cf0e5a15dbfc571ceffacf7b526f8ea",
        _skin,
    ),
    "spambase": Original(
        f"{_PUBLIC}/yash2396/Spam-Classification/"
        "0bc3de0129392ee88234e4d9a84128d492b1f06d/spambase.data",
        "a4b6020a094615dccfedc5215b2d2923e929a2f1abeb268bd914d3bc5e00656f",
        _spambase,
    ),
}


def rebuild(original: Original, path: Path) -> str:
    """Put the data set in place of its public file.

    Parameters
    ----------
    original : Original
    path : Path
        The public file; becomes a compressed ``.npz`` file, whatever its name is.

    Returns
    -------
    str
        SHA-256 of X and y.

    Raises
    ------
    InputError
        Nothing can be built from this file.
    """
    try:
        arrays = original.build(path)
    except (ValueError, IndexError) as error:
        do = "the public copy was changed: take the file from a server that has it, by --from"
        raise InputError(message(f"the table of {original.url}", str(error), do)) from error
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    return digest(arrays)


def digest(arrays: Mapping[str, NDArray[np.generic]]) -> str:
    """Return the SHA-256 of the values of X and y."""
    out = hashlib.sha256()
    for name in ("X", "y"):
        out.update(np.ascontiguousarray(arrays[name]).tobytes())
    return out.hexdigest()


def digest_of_file(path: Path) -> str:
    """Return that of a data set's file; empty where it is none."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return digest(arrays)
    except (OSError, ValueError, KeyError, zipfile.BadZipFile):
        return ""
