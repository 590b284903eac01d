"""Damaged files: every reader and loader answers with exit code 0 or 2, one line, soon, in bounded
memory; what carries a checksum never answers with other numbers.
"""

import atexit
import functools
import gzip
import json
import shutil
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from bochner.io import files
from campaign import children
from campaign.counts import Trial

DATA = (
    "X.csv",
    "X.tsv",
    "X.csv.gz",
    "X.parquet",
    "X.npy",
    "X.npz",
    "X.h5ad",
    "X.h5mu",
    "views",
)
MODEL, CHECKPOINT = "model.bochner", "checkpoint.ckpt"
KINDS = (
    *DATA,
    "labels.csv",
    "labels.npz",
    "layout.csv",
    "seed.json",
    *([MODEL] * 5),
    *([CHECKPOINT] * 2),
)
# Bytes beyond what the process has; seconds of processor time.
ROOM, SECONDS = 3 * 2**30, 40.0
FIT = [
    *("--set", "n_frequencies=4", "--set", "n_mixtures=1", "--set", "init=pca"),
    *("--set", "max_iter=8", "--view", "a=a,b,c", "--view", "b=d,e", "--seed", "1"),
]


def trial(seed):
    """Damage a file, and hand it to a command."""
    source = np.random.default_rng([41, seed])
    kind = KINDS[source.integers(len(KINDS))]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "own"
        shutil.copytree(whole(), folder)
        what = _damage(source, folder, kind)
        command, output = _command(source, folder, kind)
        ended = children.run(children.command, command, seconds=SECONDS, room=ROOM)
        faults = judge(ended)
        if not faults and ended.code == 0 and output is not None and what != "edited":
            faults = _compared(output, whole() / output.name)
    words = f"{kind} {what}, {command[0]}"
    outcome = {0: "read", 2: "refused"}.get(ended.code, f"exit code {ended.code}")
    return Trial(
        f"{kind}: {outcome}", [f"{fault} ({words})" for fault in faults], ended.seconds
    )


def judge(ended, codes=(0, 2)):
    """Return what is wrong with how a command ended."""
    if ended.hung:
        return ["hang"]
    faults = []
    if "Traceback" in ended.err or "Traceback" in ended.out:
        faults.append(f"traceback: {' '.join(ended.err[-400:].split())}")
    if ended.code not in codes:
        faults.append(f"exit code {ended.code}: {' '.join(ended.err[-200:].split())}")
    errors = [line for line in ended.err.splitlines() if line.startswith("Error: ")]
    usage = "Usage:" in ended.err or "─ Error ─" in ended.err
    if ended.code == 2 and not faults and len(errors) != 1 and not usage:
        faults.append(f"{len(errors)} lines that say what is wrong")
    return faults


@functools.cache
def whole():
    """Return a folder with one good file of every kind, and what commands make of them."""
    folder = Path(tempfile.mkdtemp(prefix="campaign"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    source = np.random.default_rng(0)
    X = np.sin(source.normal(size=(20, 2)) @ source.normal(size=(2, 5)))
    X[2, 1] = np.nan
    names = [f"row{i}" for i in range(len(X))]
    frame = pd.DataFrame(X, columns=list("abcde"), index=pd.Index(names, name="row"))
    frame.to_csv(folder / "X.csv")
    frame.to_csv(folder / "X.tsv", sep="\t")
    (folder / "X.csv.gz").write_bytes(gzip.compress((folder / "X.csv").read_bytes(), mtime=0))
    frame.to_parquet(folder / "X.parquet")
    np.save(folder / "X.npy", X)
    np.savez(folder / "X.npz", a=X[:, :3], b=X[:, 3:])
    (folder / "views").mkdir()
    frame[["a", "b", "c"]].to_csv(folder / "views" / "a.csv")
    frame[["d", "e"]].to_csv(folder / "views" / "b.csv")
    _annotated(folder, frame)
    labels = pd.DataFrame({"row": names, "kind": ["x", "y"] * 10})
    labels.to_csv(folder / "labels.csv", index=False)
    np.savez(folder / "labels.npz", kind=np.array(["x", "y"] * 10))
    pd.DataFrame(source.normal(size=(20, 2)), index=frame.index, columns=["u", "v"]).to_csv(
        folder / "layout.csv"
    )
    children.run(_fit, folder)
    return folder


def _annotated(folder, frame):
    import anndata
    import mudata

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        of = {
            name: anndata.AnnData(frame[columns].fillna(0.0))
            for name, columns in {"a": ["a", "b", "c"], "b": ["d", "e"]}.items()
        }
        anndata.AnnData(frame).write_h5ad(folder / "X.h5ad")
        mudata.MuData(of).write_h5mu(folder / "X.h5mu")


def _fit(folder):
    """Write the model, the outputs of commands, and the checkpoint of a run that was stopped."""
    fit = [*_fit_command(folder), "--out", folder / "run"]
    place = ["transform", folder / "run", folder / "X.csv", "--out", folder / "Z.csv"]
    for command in (fit, place):
        ended = children.run(children.command, command)
        assert ended.code == 0, ended.err
    (folder / "run" / MODEL).rename(folder / MODEL)
    shutil.copy(folder / "run" / "embedding.csv", folder / "embedding.csv")
    shutil.rmtree(folder / "run")
    (folder / "stopped").mkdir()
    children.run(_stopped, folder)


def _stopped(folder):
    """Fit until the second write of the checkpoint: the process ends there."""
    import os

    from bochner.training.checkpoint import Checkpoint

    write = Checkpoint.write

    def and_end(*arguments):
        write(*arguments)
        os._exit(9)

    Checkpoint.maybe = and_end
    children.command([*_fit_command(folder), "--out", folder / "stopped"])


def _fit_command(folder):
    return ["fit", folder / "X.csv", *FIT]


def _command(source, folder, kind):
    """Return a command that reads the damaged file, and the output to compare."""
    out, data = folder / "Z.csv", folder / "X.csv"
    out.unlink(missing_ok=True)
    model = folder / MODEL
    if kind in DATA:
        path = folder / kind
        if source.random() < 0.5:
            return ["transform", model, path, "--out", out], None
        return ["info", path], None
    if kind.startswith("labels"):
        return [
            "report",
            model,
            data,
            "--labels",
            folder / kind,
            "--out",
            folder / "p.html",
        ], None
    if kind == "layout.csv":
        command = ["report", model, data, "--embedding", folder / kind]
        return [*command, "--out", folder / "p.html"], None
    if kind == MODEL:
        commands = (
            (["transform", model, data, "--out", out], out),
            (["info", model], None),
            (["sample", model, "--n", "3", "--out", out], None),
            (["report", model, data, "--out", folder / "p.html"], None),
            (["impute", model, data, "--out", out], None),
        )
        return commands[source.choice(5, p=[0.4, 0.15, 0.15, 0.15, 0.15])]
    place = folder / "stopped"
    return [*_fit_command(folder), "--out", place, "--resume"], place / "embedding.csv"


def _compared(output, other):
    """A file that passes its checksum answers as the whole one does."""
    same = output.exists() and output.read_bytes() == other.read_bytes()
    return [] if same else ["silent difference"]


def _damage(source, folder, kind):
    path = folder / kind
    if kind in (CHECKPOINT, "seed.json"):
        path = folder / "stopped" / kind
    if kind == "views":
        path = path / "a.csv"
    if kind in (MODEL, CHECKPOINT) and source.random() < 0.5:
        _edit(source, path, "model" if kind == MODEL else "checkpoint")
        return "edited"
    content = bytearray(path.read_bytes())
    how = source.choice(["flip", "flips", "cut", "zeros", "grown", "swapped", "header"])
    place = int(source.integers(len(content)))
    if how == "flip":
        content[place] ^= 1 << int(source.integers(8))
    elif how == "flips":
        for at in source.integers(len(content), size=20):
            content[at] ^= int(source.integers(1, 256))
    elif how == "cut":
        del content[place:]
    elif how == "zeros":
        content[place : place + 64] = bytes(len(content[place : place + 64]))
    elif how == "grown":
        content[place:place] = source.bytes(int(source.integers(1, 200)))
    elif how == "swapped":
        other = int(source.integers(len(content)))
        part = bytes(content[other : other + 32])
        content[place : place + len(part)] = part
    else:
        head = min(128, len(content))
        for at in source.integers(head, size=3):
            content[at] = int(source.choice([0, 9, 10, 34, 44, 57, 123, 255]))
    path.write_bytes(bytes(content))
    return str(how)


# -- files whose checksum is right and whose content is not


def _edit(source, path, kind):
    """Change keys, values and tensors of a file, and write it with a checksum that fits."""
    tensors, header = files.read(path, kind, 1)
    for _ in range(int(source.integers(1, 3))):
        if source.random() < 0.5:
            _edit_tensor(source, tensors)
        else:
            header = _edit_header(source, header)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        text = json.dumps(header)
    from safetensors.torch import save

    tensors = {name: tensor.contiguous().clone() for name, tensor in tensors.items()}
    path.write_bytes(
        save(tensors, {"bochner": text, "blake2b": files.checksum(tensors, text)})
    )


def _edit_tensor(source, tensors):
    if not tensors:
        return
    name = sorted(tensors)[source.integers(len(tensors))]
    tensor = tensors[name]
    how = source.choice(["gone", "renamed", "nan", "huge", "flat", "empty", "integers", "twice",
                         "strange", "transposed"])  # fmt: skip
    if how == "gone":
        del tensors[name]
    elif how == "renamed":
        tensors[name + "x"] = tensors.pop(name)
    elif how in ("nan", "huge"):
        changed = tensor.clone()
        if tensor.is_floating_point() and tensor.numel():
            changed.view(-1)[0] = float("nan") if how == "nan" else 1e30
        elif tensor.numel():
            changed.view(-1)[0] = 99
        tensors[name] = changed
    elif how == "flat":
        tensors[name] = tensor.reshape(-1)
    elif how == "empty":
        tensors[name] = tensor.reshape(-1)[:0]
    elif how == "integers":
        tensors[name] = tensor.to(torch.int32)
    elif how == "twice":
        tensors[name] = torch.stack([tensor, tensor])
    elif how == "strange":
        tensors["0.likelihood.__class__"] = torch.ones(2)
        tensors["9.likelihood.transform"] = torch.ones(2)
    elif tensor.dim() > 1:
        tensors[name] = tensor.transpose(0, 1)


STRANGE = (None, -1, 0, 1.5, 10**20, "x", "__class__", "../../etc/passwd", [], {}, [[1]], {"a": []},
           True, float("nan"), [None], "cuda:7", -(10**6))  # fmt: skip


def _edit_header(source, value, depth=0):
    """Change one thing somewhere in a JSON value."""
    if isinstance(value, dict) and value and (depth == 0 or source.random() < 0.8):
        key = sorted(value)[source.integers(len(value))]
        how = source.random()
        if how < 0.15:
            return {k: v for k, v in value.items() if k != key}
        if how < 0.25:
            return {**value, "unknown": 1, "__class__": "x"}
        return {**value, key: _edit_header(source, value[key], depth + 1)}
    if isinstance(value, list) and value and source.random() < 0.8:
        at = int(source.integers(len(value)))
        if source.random() < 0.2:
            return value[:at]
        return [*value[:at], _edit_header(source, value[at], depth + 1), *value[at + 1 :]]
    return STRANGE[source.integers(len(STRANGE))]
