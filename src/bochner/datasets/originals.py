"""Data sets built from the files that their authors, or those who copied them, made public."""

from __future__ import annotations

import gzip
import hashlib
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.io import loadmat

from bochner.errors import InputError, message

Arrays = dict[str, NDArray[np.generic]]
# Fourteen electrodes, and whether the eyes are open.
_EEG_COLUMNS = 15
# An EEG channel moves by some tens about its median; four rows jump by hundreds and more.
_EEG_JUMP = 1000.0
_SKIN_ROWS = 245_057
_OIL = tuple(f"{name}{end}" for end in ("", "_val", "_test") for name in ("X", "y", "frac"))
_PUBLIC = "https://raw.githubusercontent.com"


@dataclass(frozen=True)
class Original:
    """Public files and how the arrays of a data set come out of them.

    Attributes
    ----------
    urls : tuple of str
    sha256 : str
        Of the arrays that must come out, whatever the bytes of the files were.
    build : callable
        The files to the arrays of the data set.
    checked : tuple of str
        Names of those arrays, in the order of the checksum.
    """

    urls: tuple[str, ...]
    sha256: str
    build: Callable[[Sequence[Path]], Arrays]
    checked: tuple[str, ...] = ("X", "y")

    def digest(self, arrays: Mapping[str, NDArray[np.generic]]) -> str:
        """Return the SHA-256 of the values of the arrays that are checked."""
        out = hashlib.sha256()
        for name in self.checked:
            out.update(np.ascontiguousarray(arrays[name]).tobytes())
        return out.hexdigest()

    def digest_of_file(self, path: Path) -> str:
        """Return that of a data set's file; empty where it is none."""
        try:
            with np.load(path, allow_pickle=False) as arrays:
                return self.digest(arrays)
        except (OSError, ValueError, KeyError, zipfile.BadZipFile):
            return ""

    def rebuild(self, files: Sequence[Path], path: Path) -> str:
        """Write the data set as a compressed ``.npz`` file, whatever its name is.

        Parameters
        ----------
        files : sequence of Path
            The public files.
        path : Path

        Returns
        -------
        str
            Checksum of its arrays.

        Raises
        ------
        InputError
            Nothing can be built from these files.
        """
        try:
            arrays = self.build(files)
        except Exception as error:  # whatever the libraries raise: it is the files
            do = "the public copy was changed: take the file from a server that has it, by --from"
            raise InputError(message(f"the data of {self.urls[0]}", str(error), do)) from error
        with path.open("wb") as file:
            np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
        return self.digest(arrays)


def _mnist(paths: Sequence[Path]) -> Arrays:
    # images and labels of training, then of testing
    train, train_labels, test, test_labels = map(_idx, paths)
    X = np.concatenate([train, test]).reshape(-1, 784)
    y = np.concatenate([train_labels, test_labels])
    return {"X": X, "y": y, "n_train": np.array(len(train))}


def _idx(path: Path) -> NDArray[np.uint8]:
    """Read an array of bytes: two zeros, the type 8, the number of dimensions, and their sizes."""
    with gzip.open(path) as file:
        content = file.read()
    if content[:3] != b"\0\0\x08":
        raise ValueError("a file without bytes in the idx format")
    n = content[3]
    shape = np.frombuffer(content, ">i4", n, 4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * n).reshape(shape)


def _brendan(paths: Sequence[Path]) -> Arrays:
    return {"X": np.ascontiguousarray(loadmat(str(paths[0]), appendmat=False)["ff"].T)}


def _oil(paths: Sequence[Path]) -> Arrays:
    held = loadmat(str(paths[0]), appendmat=False)
    arrays: Arrays = {}
    for name, end in (("Trn", ""), ("Vdn", "_val"), ("Tst", "_test")):
        arrays[f"X{end}"] = held[f"Data{name}"].astype(np.float32)
        # one of three is 1
        arrays[f"y{end}"] = held[f"Data{name}Lbls"].argmax(axis=1).astype(np.uint8)
        arrays[f"frac{end}"] = held[f"Data{name}Frctns"].astype(np.float32)
    return arrays


def _spambase(paths: Sequence[Path]) -> Arrays:
    table = _table(paths[0], ",", 58)
    # this copy begins with numbers of the columns
    if np.array_equal(table[0], np.arange(1, 59)):
        table = table[1:]
    return {"X": table[:, :-1].astype(np.float32), "y": table[:, -1].astype(np.uint8)}


def _eeg(paths: Sequence[Path]) -> Arrays:
    lines = paths[0].read_text(encoding="utf-8").splitlines()
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


def _skin(paths: Sequence[Path]) -> Arrays:
    # rows of a third class were appended to this copy
    table = _table(paths[0], None, 4)
    table = table[table[:, -1] <= 2][:_SKIN_ROWS]
    return {"X": table[:, :3].astype(np.uint8), "y": (table[:, -1] == 1).astype(np.uint8)}


def _table(
    lines: Path | list[str], delimiter: str | None, n_columns: int
) -> NDArray[np.float64]:
    table = np.loadtxt(lines, delimiter=delimiter, ndmin=2)
    if not len(table) or table.shape[1] != n_columns:
        raise ValueError(f"a table of shape {table.shape}")
    return table


_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist"
_GPMAT = f"{_PUBLIC}/lawrennd/GPmat/master/matlab"

ORIGINALS: dict[str, Original] = {
    "brendan": Original(
        (f"{_GPMAT}/frey_rawface.mat",),
        "2438ba4f0d2a6bd8bac43de756141eaa33c8d248dd613d464bdb1210d9b7af78",
        _brendan,
        ("X",),
    ),
    "mnist": Original(
        (
            f"{_MNIST}/train-images-idx3-ubyte.gz",
            f"{_MNIST}/train-labels-idx1-ubyte.gz",
            f"{_MNIST}/t10k-images-idx3-ubyte.gz",
            f"{_MNIST}/t10k-labels-idx1-ubyte.gz",
        ),
        "c2069063c1105f2bf96266aef1ff68c6e13bdda7a54e37bf19c16f1db24efc83",
        _mnist,
    ),
    "oil": Original(
        (f"{_GPMAT}/SHEFFIELDML0p01/3Class.mat",),
        "e397d35f72af8fb526ae0eb161f37eff176fc619c9c99e774d1d0891d2f2db35",
        _oil,
        _OIL,
    ),
    "eeg": Original(
        (
            f"{_PUBLIC}/rogerior/ixio/b0b821195044ae8ffbdee7e6f2ae07ba334086a9/"
            "EEG%20Eye%20State.arff",
        ),
        "86958e3c75413fc01ad56c43e5cb112df72534dbbc4eef3b14ff03a1043c08fa",
        _eeg,
    ),
    "skin": Original(
        (
            f"{_PUBLIC}/victusfate/scatter3D/2225334f460297876f620f024a576b2290d5c7ab/"
            "Skin_NonSkin.txt",
        ),
        "31414d496c7c3e9f6cddf80bab701ade7cf0e5a15dbfc571ceffacf7b526f8ea",
        _skin,
    ),
    "spambase": Original(
        (
            f"{_PUBLIC}/yash2396/Spam-Classification/"
            "0bc3de0129392ee88234e4d9a84128d492b1f06d/spambase.data",
        ),
        "a4b6020a094615dccfedc5215b2d2923e929a2f1abeb268bd914d3bc5e00656f",
        _spambase,
    ),
}
