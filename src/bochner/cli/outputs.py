"""Where results go, checked before anything heavy is imported: what is there already is refused
at once.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from bochner.errors import InputError, message

MODEL_FILE = "model.bochner"
CHECKPOINT = "checkpoint.ckpt"
OUTPUTS = (".csv", ".npy", ".npz")
COLUMNAR = (".parquet", ".zarr")


def check_output(path: Path, force: bool = False, endings: Sequence[str] = OUTPUTS) -> None:
    """Refuse a place that cannot be written to, before any work is done, and a file that would be
    replaced.
    """
    if path.suffix.lower() not in endings:
        got = (
            f"{path} with extension {path.suffix!r}"
            if path.suffix
            else f"{path} without extension"
        )
        raise InputError(message(f"an output file {', '.join(endings)}", got, "rename it"))
    if not path.parent.is_dir():
        raise InputError(
            message("an existing folder to write to", str(path.parent), "create it first")
        )
    check_writable(path.parent)
    if path.exists() and not force:
        raise InputError(
            message(
                "a new output file",
                f"{path}, which exists",
                "add --force to replace it, or rename",
            )
        )


def check_writable(folder: Path) -> None:
    """Refuse a folder that this user cannot write to."""
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(
            message(
                "a folder to write to", f"{folder} without permission", "choose another place"
            )
        )


def check_model(path: Path) -> None:
    """Refuse a model that is not there, or a folder without one."""
    if not path.exists():
        do = "check the path"
        raise InputError(
            message("a model file or a folder of bochner fit", f"no file at {path}", do)
        )


def checkpoints(out: Path) -> list[Path]:
    """Return what an interrupted run left in a folder: of chains there is a file each, and files
    of rows that were placed.
    """
    return sorted(out.glob(f"{CHECKPOINT}*"))


def check_earlier_run(out: Path, resume: bool, force: bool) -> None:
    """Refuse to replace results, or a run that can be continued, unless asked to."""
    if force:
        return
    if checkpoints(out):
        if not resume:
            raise InputError(
                f"An interrupted run is in {out}: add --resume to continue it, or --force to start "
                "anew."
            )
        return
    if (out / MODEL_FILE).exists():
        got = f"{out / MODEL_FILE} of a run that is finished"
        do = "add --force to replace them, or choose another folder"
        raise InputError(message("no results in --out", got, do))
