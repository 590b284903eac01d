"""Safe files: tensors in safetensors, everything else as JSON in its header; whole or not at all,
with a checksum.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save
from torch import Tensor

from bochner.errors import InputError, ModelFileError, message
from bochner.io.outputs import exists, real, replacing

_KEY = "bochner"
_CHECKSUM = "blake2b"


def repair(kind: str) -> str:
    """Return what to do with a damaged file of a kind: what a run leaves nobody can save again."""
    if kind == "model":
        return "save it again"
    return "delete it and fit anew; bochner fit starts anew with --force"


def check_place(path: str | Path) -> None:
    """Refuse a path that ``write`` could not write to, before a long run finds out.

    Raises
    ------
    InputError
        The folder does not exist or cannot be written.
    """
    folder = real(path).parent
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        got = f"{path} ({'read-only folder' if folder.is_dir() else 'no such folder'})"
        raise InputError(message("a place to write to", got, "choose another path"))


def write(path: str | Path, tensors: Mapping[str, Tensor], header: dict[str, object]) -> None:
    """Write atomically: a reader sees the old file or the new one, never half of it.

    Raises
    ------
    InputError
        The folder does not exist or cannot be written.
    StorageError
        The disk is full, or fails.
    """
    contiguous = {
        name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()
    }
    text = json.dumps(header, allow_nan=False)
    metadata = {_KEY: text, _CHECKSUM: checksum(contiguous, text)}
    # as bytes, because writing them ourselves fails as all files do: with an OSError
    content = _in_order(save(contiguous, metadata))
    with replacing(path) as part:
        part.write_bytes(content)


def _in_order(content: bytes) -> bytes:
    """Return a file with the keys of its metadata in order, so that the same is written as the same
    bytes: safetensors writes them in another order each time.
    """
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return b"".join((len(text).to_bytes(8, "little"), text, memoryview(content)[start:]))


def checksum(tensors: Mapping[str, Tensor], header: str) -> str:
    """Return a digest of the header's text and of every tensor's name, type, shape and values.

    Parameters
    ----------
    tensors : mapping of str to Tensor
        Contiguous, on the CPU.
    header : str

    Returns
    -------
    str
    """
    digest = hashlib.blake2b(header.encode(), digest_size=32)
    for name in sorted(tensors):
        values = tensors[name].numpy()
        digest.update(repr((name, values.dtype.str, values.shape)).encode())
        digest.update(values.reshape(-1).data)
    return digest.hexdigest()


def read(path: str | Path, kind: str, schema: int) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what ``write`` wrote.

    Parameters
    ----------
    path : str or Path
    kind : str
        What the header must call itself, ``"model"`` or ``"checkpoint"``.
    schema : int
        Schema version that this release reads.

    Raises
    ------
    ModelFileError
        The file is missing, not one of ours, damaged, of another kind, or of another schema.
    """
    path = Path(path)
    if not exists(path):
        raise ModelFileError(message(f"a {kind} file", f"no file at {path}", "check the path"))
    if not path.is_file():
        got = f"the folder {path}" if path.is_dir() else f"{path}, which is no file"
        do = f"name the {kind} file in it" if path.is_dir() else "check the path"
        raise ModelFileError(message(f"a {kind} file", got, do))
    if not os.access(path, os.R_OK):
        do = f"allow it: chmod u+r {shlex.quote(str(path))}"
        raise ModelFileError(
            message(f"a {kind} file to read", f"{path} without permission", do)
        )
    try:
        metadata, tensors = _content(path)
        text = metadata[_KEY]
        stated = metadata[_CHECKSUM]
        actual = checksum(tensors, text)
        header = json.loads(text)
    except (
        SafetensorError,
        KeyError,
        ValueError,
        TypeError,
        OSError,
        RecursionError,
    ) as error:
        got = f"{path.name}, which is not one or is cut short ({error})"
        raise ModelFileError(message(f"a bochner {kind} file", got, repair(kind))) from error
    if actual != stated:
        got = f"{path.name}, whose checksum differs from its content: it is damaged"
        do = f"copy it again from where it was whole, or {repair(kind)}"
        raise ModelFileError(message(f"a bochner {kind} file", got, do))
    _check_kind(path, header, kind, schema)
    return tensors, header


def _content(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Return the metadata and the tensors of a file.

    Tensors are copied, because products of memory that is not aligned may round another way.
    """
    try:
        str(path).encode()
    except UnicodeEncodeError:
        # safetensors opens paths in UTF-8 only; names of files are any bytes
        content = path.read_bytes()
        tensors = load(content)
        start = 8 + int.from_bytes(content[:8], "little")
        metadata: dict[str, str] = json.loads(content[8:start]).get("__metadata__") or {}
        return metadata, {name: tensor.clone() for name, tensor in tensors.items()}
    with safe_open(path, framework="pt") as file:
        return (
            file.metadata() or {},
            {name: file.get_tensor(name).clone() for name in file.keys()},  # noqa: SIM118 - not a dict
        )


def _check_kind(path: Path, header: object, kind: str, schema: int) -> None:
    fields = header if isinstance(header, dict) else {}
    if fields.get("kind") != kind:
        raise ModelFileError(
            message(
                f"a bochner {kind} file", f"a {fields.get('kind')} file", "pass the other file"
            )
        )
    if fields.get("schema") != schema:
        got = f"schema {fields.get('schema')!r} in {path.name}"
        with_this = " with this release" if kind == "model" else ""
        do = f"upgrade bochner to read it, or {repair(kind)}{with_this}"
        raise ModelFileError(message(f"schema {schema}", got, do))
