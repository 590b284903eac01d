"""Which files are read, by their names alone: nothing heavy is imported to refuse a wrong path."""

from __future__ import annotations

import glob
import os
import re
from pathlib import Path

from bochner.errors import InputError, message

NAMED = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet")
# Of text that is not compressed.
TEXT = (".csv", ".tsv", ".txt")
ARRAYS = (".npz", ".npy")
LAYERED = (".h5ad", ".h5mu")
EXTENSIONS = (*NAMED, *ARRAYS, *LAYERED)
# What to do with a file that is not read.
_SAVE = "save it as .csv in the program that wrote it"
_UNPACK = "unpack it"
_PANDAS = "read it with pandas, and save it by to_csv or to_parquet"
_HINTS = {
    ".zarr": "name the store, which is a folder: unpack it, or copy it as a whole",
    ".txt": "rename it to .csv, or to .tsv if tabs separate its cells",
    **dict.fromkeys(
        (".json", ".jsonl", ".pkl", ".pickle", ".feather", ".h5", ".hdf5", ".orc"), _PANDAS
    ),
    **dict.fromkeys((".xlsx", ".xls", ".ods", ".sav", ".dta", ".sas7bdat", ".rds"), _SAVE),
    **dict.fromkeys((".zip", ".bz2", ".xz", ".zst", ".7z", ".gz", ".tar"), _UNPACK),
}
# What ``bochner fit`` leaves in its folder.
MODEL_FILE = "model.bochner"
CHECKPOINT = "checkpoint.ckpt"
# How files of rows beside a checkpoint end: their stage, and their first and last row.
_SHARD = re.compile(r"\.rows-.+-\d{12}-\d{12}")
# And those of Markov chains: their number.
_CHAIN = re.compile(r"\.chain\d+")


def extension_of(path: Path) -> str:
    """Return what the name of a file ends in: one of `EXTENSIONS` where it is one, in lower
    case.
    """
    name = path.name.lower()
    return next((known for known in EXTENSIONS if name.endswith(known)), path.suffix.lower())


def in_zarr(path: Path) -> bool:
    """Tell whether a path is a zarr store or inside one: ``A.zarr/layers/counts``."""
    is_store = any(part.suffix.lower() == ".zarr" for part in (path, *path.parents))
    return is_store and extension_of(path) not in EXTENSIONS


def checkpoints(folder: Path) -> list[Path]:
    """Return what an interrupted run left in a folder: its checkpoint and the files beside it."""
    checkpoint = folder / CHECKPOINT
    return [path for path in (checkpoint, *beside(checkpoint)) if path.exists()]


def beside(checkpoint: Path) -> list[Path]:
    """Return the files beside a checkpoint: of rows, of how far passes over all of them are, and of
    Markov chains.
    """
    return [*shards(checkpoint), passes_file(checkpoint), *_ending(checkpoint, _CHAIN)]


def shards(checkpoint: Path) -> list[Path]:
    """Return the files of rows beside a checkpoint."""
    return _ending(checkpoint, _SHARD)


def _ending(checkpoint: Path, ends: re.Pattern[str]) -> list[Path]:
    """Return files whose names are the checkpoint's and an end, and none of others."""
    files = checkpoint.parent.glob(f"{glob.escape(checkpoint.name)}.*")
    return sorted(file for file in files if ends.fullmatch(file.name, len(checkpoint.name)))


def passes_file(checkpoint: Path) -> Path:
    """Return the file that says how far passes over all rows are."""
    return checkpoint.with_name(f"{checkpoint.name}.passes")


def chain_file(checkpoint: Path, number: int) -> Path:
    """Return the file of a Markov chain."""
    return checkpoint.with_name(f"{checkpoint.name}.chain{number}")


def check_source(path: str | os.PathLike[str]) -> Path:
    """Refuse a path that cannot be read.

    Raises
    ------
    InputError
        There is no such file or folder, its kind is unknown, it is a pipe or a device, or it holds
        a fit and no data.
    """
    source = Path(path)
    _refuse_stream(source)
    if not source.exists():
        raise InputError(
            message("a file or folder", f"{source}, which does not exist", "check the path")
        )
    if source.is_dir():
        _refuse_run(source)
    else:
        check_extension(source)
    return source


def _refuse_stream(source: Path) -> None:
    """Refuse standard input, pipes and devices: data are read more than once."""
    other = source.exists() and not (source.is_file() or source.is_dir())
    if other or (str(source) == "-" and not source.exists()):
        got = "-, standard input" if str(source) == "-" else f"{source}, a pipe or a device"
        do = "write it to a file first: ... > data.csv"
        raise InputError(message("a file or folder, which is read more than once", got, do))


def _refuse_run(folder: Path) -> None:
    """Refuse the folder of a fit: its latents would be taken for data."""
    finished = (folder / MODEL_FILE).is_file()
    if not (finished or checkpoints(folder)):
        return
    got = f"{folder}, the folder of {'a finished' if finished else 'an interrupted'} fit"
    do = f"name the data that were fitted; to continue: bochner fit DATA --out {folder} --resume"
    if finished:
        do = (
            f"name the data; to look at the fit: bochner report {folder}; to place new rows: "
            f"bochner transform {folder} NEW --out latents.csv; to fit anew: "
            f"bochner fit DATA --out {folder} --force"
        )
    raise InputError(message("data", got, do))


def check_extension(path: Path) -> str:
    """Return the extension of a file that can be read, and refuse any other."""
    extension = extension_of(path)
    if extension not in EXTENSIONS:
        got = (
            f"{path} with extension {extension!r}"
            if extension
            else f"{path} without extension"
        )
        raise InputError(
            message(
                f"a .zarr store, one of {', '.join(EXTENSIONS)} or a folder of them",
                got,
                _HINTS.get(path.suffix.lower(), "convert the file"),
            )
        )
    return extension
