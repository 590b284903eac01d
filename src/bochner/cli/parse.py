"""Options as they are typed, checked by their words, and places of results: torch is not imported
for wrong ones, nor where something is there already.
"""

from __future__ import annotations

import csv
import difflib
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from bochner.data.likelihood_names import LIKELIHOODS, unknown_likelihood
from bochner.errors import InputError, message
from bochner.io.extensions import MODEL_FILE, check_source, checkpoints, in_zarr

OUTPUTS = (".csv", ".npy", ".npz")
COLUMNAR = (".parquet", ".zarr")
# What ``bochner fit`` writes beside the model.
EMBEDDING = "embedding.csv"
PICTURES = ("bound.png", "latent.png")
PAGE = "report.html"
SEED_FILE = "seed.json"
# Parameters that --set refuses, because the command sets them itself.
ELSEWHERE = {
    "views": "--view",
    "likelihood": "--likelihood",
    "random_state": "--seed",
    "checkpoint": "--resume: the checkpoint is in the folder of --out",
    "verbose": "no option: the progress bar shows on a terminal",
}
# The parameters of the models, for models are imported with torch; a test compares them.
COMMON = """
    checkpoint device dtype init landmarks latent learning_rate likelihood max_iter n_components
    n_frequencies n_init n_mixtures noise random_state sampling tol truncation verbose
    view_weight views
    """.split()  # noqa: SIM905 - a list of words
EXTRA = {
    **{name: ["noise_variance"] for name in ("ng-mvlvm", "advised-rflvm", "srflvm")},
    "random-feature-lvm": ["inference", "kernel", "noise_variance"],
    "rflvm": [
        "frequency_kernel",
        "latents",
        "n_chains",
        "n_draws",
        "n_jobs",
        "n_warmup",
        "thin",
    ],
}


def parameters(model: str) -> list[str]:
    """Return the names of a model's parameters, sorted."""
    return sorted([*COMMON, *EXTRA.get(model, ())])


def check_chains(model: str, chains: int | None) -> None:
    """Refuse --chains of models that have none."""
    if chains is not None and "n_chains" not in parameters(model):
        do = "leave --chains out, or choose --model rflvm"
        raise InputError(message("--model rflvm with --chains", f"--model {model}", do))


def check_words(
    data: Path, model: str, likelihood: Sequence[str], settings: Sequence[str]
) -> None:
    """Refuse what can be refused by its name: a path, a parameter, a likelihood.

    Raises
    ------
    InputError
        With what is near where there is anything.
    """
    check_source(data)
    parse_settings(settings, parameters(model), ELSEWHERE)
    given = parse_by_view(likelihood, "--likelihood") or {}
    named = {None: given} if isinstance(given, str) else given
    for view, name in named.items():
        if name not in LIKELIHOODS:
            raise unknown_likelihood(name, view)


def parse_views(specs: Sequence[str], names: Sequence[str] | None) -> dict[str, object] | None:
    """Turn ``name=0:500`` and ``name=cd3,cd4`` into the ``views`` of an estimator; None without
    any.

    Parameters
    ----------
    specs : sequence of str
    names : sequence of str or None
        Column names of the data: a digit that is no name is a column number.

    Raises
    ------
    InputError
        A specification without ``=``, or a view given twice.
    """
    views: dict[str, object] = {}
    for spec in specs:
        name, equals, columns = spec.partition("=")
        if not (name and equals and columns):
            do = "write --view rna=0:500 or --view protein=cd3,cd4"
            raise InputError(message("--view NAME=COLUMNS", repr(spec), do))
        if name in views:
            raise InputError(
                message(
                    "every view once",
                    f"--view {name}=... twice",
                    "list all its columns in one",
                )
            )
        views[name] = _selection(columns, names or ())
    return views or None


def _selection(columns: str, names: Sequence[str]) -> object:
    if columns not in names and (bounds := re.fullmatch(r"(-?\d*):(-?\d*)", columns)):
        return slice(*(int(bound) if bound else None for bound in bounds.groups()))
    items = names_in(columns)
    numbers = all(item.isdigit() for item in items) and not set(items) <= set(names)
    return [int(item) for item in items] if numbers else items


def names_in(text: str) -> list[str]:
    """Return the names in a list, a,b,c; one with a comma stands in double quotes."""
    names = next(csv.reader([text], skipinitialspace=True), [])
    return [name.strip() for name in names if name.strip()]


def quoted(name: str) -> str:
    """Return a name as `names_in` reads it back."""
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def parse_settings(
    specs: Sequence[str], allowed: Sequence[str], elsewhere: Mapping[str, str]
) -> dict[str, object]:
    """Turn ``name=value`` into parameters of an estimator; a value is JSON or None where it can be
    read as such.

    Parameters
    ----------
    specs : sequence of str
    allowed : sequence of str
        Parameters the estimator has.
    elsewhere : mapping of str to str
        Parameters with an option of their own.
    """
    settings: dict[str, object] = {}
    for spec in specs:
        name, equals, text = spec.partition("=")
        if not (name and equals):
            raise InputError(
                message("--set NAME=VALUE", repr(spec), "write --set n_components=3")
            )
        if name in elsewhere:
            raise InputError(
                message(
                    "parameters without an option of their own", spec, f"use {elsewhere[name]}"
                )
            )
        if name not in allowed:
            known = [other for other in allowed if other not in elsewhere]
            close = difflib.get_close_matches(name, known, n=1)
            do = f"did you mean {close[0]!r}?" if close else f"choose from {', '.join(known)}"
            raise InputError(f"Unknown parameter in --set {spec}: {do}")
        settings[name] = _value(text)
    return settings


def _value(text: str) -> object:
    """Return a value that is JSON, or Python's word for none; else its text."""
    if text in ("None", "none"):
        return None
    try:
        value: object = json.loads(text)
    except ValueError:
        return text
    return value


def parse_by_view(specs: Sequence[str], option: str) -> str | dict[str, str] | None:
    """Turn ``gaussian`` or several ``view=gaussian`` into a parameter for all views or for each;
    None without any.
    """
    if not specs:
        return None
    if len(specs) == 1 and "=" not in specs[0]:
        return specs[0]
    pairs = [spec.partition("=") for spec in specs]
    if not all(name and value for name, _, value in pairs):
        got = " ".join(f"{option} {spec}" for spec in specs)
        raise InputError(
            message(
                "one name for all views, or VIEW=NAME for each",
                got,
                f"write {option} rna=NAME",
            )
        )
    return {name: value for name, _, value in pairs}


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
    # a zarr array is a folder; others hold what nobody asked to replace
    if path.is_dir() and not (path.suffix.lower() == ".zarr" and _is_store(path)):
        got = f"the folder {path}"
        raise InputError(message("an output file", got, "choose another name"))


def _is_store(folder: Path) -> bool:
    """Tell whether a folder is a store of zarr, or empty."""
    marks = (".zarray", ".zgroup", "zarr.json")
    return any((folder / mark).is_file() for mark in marks) or not any(folder.iterdir())


def check_beside(data: Path, outs: Sequence[Path]) -> None:
    """Refuse results in the place of the data, or among the files of a folder that is read, where
    they would be taken for views: --force is about results.
    """
    for out in outs:
        if _is_among(data, out):
            got = f"{out}, which is the data"
            if not out.exists():
                got = f"{out} in the folder of the data"
            raise InputError(
                message("results in a file of their own", got, "choose another name")
            )


def _is_among(data: Path, path: Path) -> bool:
    """Tell whether a path is the data, or where the files of their folder are, through links."""
    if path.exists() and path.samefile(data):
        return True
    if not data.is_dir():
        return False
    home, place = data.resolve(), path.resolve()
    if in_zarr(data):
        return home in place.parents
    linked = path.is_file() and any(path.samefile(file) for file in home.iterdir())
    return linked or home == place.parent


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


def check_apart(data: Path, out: Path) -> None:
    """Refuse results in the folder of the data, where the next fit would take them for views, or in
    a file, before anything is read.
    """
    if out.exists() and not out.is_dir():
        raise InputError(
            message("--out to be a folder", f"the file {out}", "choose another name")
        )
    if out.is_symlink() and not out.exists():
        got = f"the link {out} to {out.readlink()}, which does not exist"
        raise InputError(message("--out to be a folder", got, "make it, or the link anew"))
    if data.is_dir() and data.resolve() == out.resolve():
        do = f"write --out {'run' if in_zarr(data) else data / 'run'}"
        raise InputError(message("--out apart from the data", f"{out} for both", do))


def check_earlier_run(data: Path, out: Path, resume: bool, force: bool) -> None:
    """Refuse to replace results, files of the user's own, or a run that can be continued, unless
    asked to; and the data, whatever was asked.
    """
    names = (MODEL_FILE, EMBEDDING, *PICTURES, PAGE, SEED_FILE)
    for path in (out / name for name in names):
        if _is_among(data, path):
            got = f"{path}, which is the data"
            do = "choose another folder for --out"
            raise InputError(message("results in files of their own", got, do))
    if checkpoints(out) and not force:
        if not resume:
            raise InputError(
                f"An interrupted run is in {out}: add --resume to continue it, or --force to start "
                "anew."
            )
        return
    if (out / MODEL_FILE).exists() and not force:
        got = f"{out / MODEL_FILE} of a run that is finished"
        do = "add --force to replace them, or choose another folder"
        raise InputError(message("no results in --out", got, do))
    # a killed run leaves its seed alone
    check_replaced(out, names[:-1] if _is_seed(out / SEED_FILE) else names, force)


def check_replaced(out: Path, names: Sequence[str], force: bool) -> None:
    """Refuse to replace files in a folder, unless asked to, and folders in the places of files."""
    for path in (out / name for name in names):
        if path.exists() and (not force or path.is_dir()):
            got = f"{path}, which is a folder" if path.is_dir() else f"{path}, which exists"
            do = "choose another folder for --out"
            do = do if path.is_dir() else f"{do}, or add --force to replace it"
            raise InputError(message("places of results that are free", got, do))


def _is_seed(path: Path) -> bool:
    """Tell whether a file holds the seed of a run, and nothing else."""
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(held, dict) and [*held] == ["seed"] and isinstance(held["seed"], int)
