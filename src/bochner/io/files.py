"""Safe files: tensors in safetensors, everything else as JSON in its header; written whole or not
at all.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from bochner.errors import InputError, ModelFileError, message
from bochner.io.outputs import replacing

_KEY = "bochner"


def check_place(path: str | Path) -> None:
    """Refuse a path that ``write`` could not write to, before a long run finds out.

    Raises
    ------
    InputError
        The folder does not exist or cannot be written.
    """
    folder = Path(path).absolute().parent
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        got = f"{path} ({'read-only folder' if folder.is_dir() else 'no such folder'})"
        raise InputError(message("a place to write to", got, "choose another path"))


def write(path: str | Path, tensors: dict[str, Tensor], header: dict[str, Any]) -> None:
    """Write atomically: a reader sees the old file or the new one, never half of it.

    Raises
    ------
    InputError
        The folder does not exist or cannot be written.
    """
    path = Path(path)
    contiguous = {
        name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()
    }
    metadata = {_KEY: json.dumps(header, allow_nan=False)}
    try:
        with replacing(path) as part:
            save_file(contiguous, part, metadata=metadata)
    except OSError as error:
        raise InputError(
            message("a place to write to", f"{path} ({error.strerror})", "choose another path")
        ) from error


def read(path: str | Path, kind: str, newest: int) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what ``write`` wrote.

    Parameters
    ----------
    path : str or Path
    kind : str
        What the header must call itself, ``"model"`` or ``"checkpoint"``.
    newest : int
        Newest schema version this release reads.

    Raises
    ------
    ModelFileError
        The file is missing, not one of ours, cut short, of another kind, or of a newer schema.
    """
    path = Path(path)
    if not path.is_file():
        raise ModelFileError(message(f"a {kind} file", f"no file at {path}", "check the path"))
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {})[_KEY])
            # copied, because products of memory that is not aligned may round another way
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 - not a dict
    except (SafetensorError, KeyError, ValueError, OSError) as error:
        got = f"{path.name}, which is not one or is cut short ({error})"
        raise ModelFileError(message(f"a bochner {kind} file", got, "save it again")) from error
    if header.get("kind") != kind:
        raise ModelFileError(
            message(f"a bochner {kind} file", f"a {header.get('kind')} file", "pass the other file")
        )
    if int(header.get("schema", 0)) > newest:
        got = f"schema {header['schema']} in {path.name}"
        raise ModelFileError(
            message(f"schema {newest} or older", got, "upgrade bochner to read it")
        )
    return tensors, header
