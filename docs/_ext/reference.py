"""Pages that are written from the package itself, so that they cannot fall behind it: every public
name and command.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from enum import Enum
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import bochner

_TITLES = {
    "datasets": "Data sets",
    "features": "Features of spectral kernels",
    "kernels": "Kernels",
    "likelihoods": "Likelihoods",
    "metrics": "Metrics",
    "plots": "Plots",
    "dask": "Fits and placement of Dask arrays",
    "testing": "Laws for kernels and likelihoods of your own",
}
_GROUPS = (
    (
        "Latent variable models",
        lambda thing: inspect.isclass(thing) and hasattr(thing, "impute"),
    ),
    (
        "Feature maps",
        lambda thing: inspect.isclass(thing) and hasattr(thing, "approximation_error"),
    ),
    ("Other classes", inspect.isclass),
    ("Functions", callable),
)


def public(module: ModuleType) -> list[str]:
    """Return the public names of a module: ``__all__``, or what it defines itself."""
    own = getattr(module, "__all__", None)
    if own is not None:
        return list(own)
    return [
        n
        for n, v in vars(module).items()
        if not n.startswith("_") and inspect.getmodule(v) is module
    ]


def modules() -> dict[str, ModuleType]:
    """Return the public modules by name."""
    return {
        n: import_module(f"bochner.{n}")
        for n in bochner.__all__
        if inspect.ismodule(getattr(bochner, n))
    }


def names() -> Iterator[str]:
    """Yield the full name of everything public: what the reference must hold."""
    yield from (
        f"bochner.{n}" for n in bochner.__all__ if not inspect.ismodule(getattr(bochner, n))
    )
    for short, module in modules().items():
        yield from (f"bochner.{short}.{n}" for n in public(module))


def _table(module: str, own: list[str]) -> str:
    lines = [
        f".. currentmodule:: {module}",
        "",
        ".. autosummary::",
        "   :toctree: generated/",
        "   :nosignatures:",
        "",
    ]
    return "\n".join([*lines, *(f"   {n}" for n in sorted(own, key=str.lower)), ""])


def _heading(text: str, line: str) -> str:
    return f"{text}\n{line * len(text)}\n"


def _forget(folder: Path) -> None:
    """Delete pages of names that are gone: an earlier build wrote them, this one would warn."""
    current = set(names())
    for page in folder.glob("*.rst"):
        if page.stem not in current:
            page.unlink()


def write_api(folder: Path) -> None:
    """Write the pages of the reference: one for the top level and one per module, each with a table
    of its names.
    """
    folder.mkdir(exist_ok=True)
    _forget(folder / "generated")
    left = {
        n: getattr(bochner, n)
        for n in bochner.__all__
        if not inspect.ismodule(getattr(bochner, n))
    }
    parts = [
        _heading("Reference", "="),
        "Everything here is imported as ``import bochner as bo``.\n",
    ]
    for title, belongs in _GROUPS:
        own = [n for n, thing in left.items() if belongs(thing)]
        left = {n: thing for n, thing in left.items() if n not in own}
        if own:
            parts += [_heading(title, "-"), _table("bochner", own)]
    found = modules()
    parts += [
        _heading("Modules", "-"),
        ".. toctree::",
        "   :maxdepth: 1",
        "",
        *(f"   {n}" for n in sorted(found)),
        "",
    ]
    _write(folder / "index.rst", "\n".join(parts))
    for short, module in found.items():
        target = f".. module:: bochner.{short}\n"
        intro = inspect.cleandoc(module.__doc__ or "")
        title = _heading(f"{_TITLES.get(short, short.title())} (bo.{short})", "=")
        _write(
            folder / f"{short}.rst",
            "\n".join([target, title, intro, "", _table(f"bochner.{short}", public(module))]),
        )


def write_command_line(path: Path) -> None:
    """Write the commands with their arguments and options as typer knows them."""
    from typer.main import get_command

    from bochner.cli import app

    path.parent.mkdir(exist_ok=True)
    commands = get_command(app).commands.items()
    _write(
        path, "\n".join(part for name, command in commands for part in _command(name, command))
    )


def _command(name: str, command: Any) -> list[str]:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option"]
    usage = " ".join(
        ["bochner", name, *("OPTIONS" for _ in options[:1]), *(_value(p) for p in arguments)]
    )
    lines = [
        f"## bochner {name}",
        "",
        inspect.cleandoc(command.help or ""),
        "",
        "```text",
        usage,
        "```",
        "",
    ]
    lines += ["| option | meaning | |", "|---|---|---|"]
    for p in [*arguments, *options]:
        flags = _value(p) if p in arguments else ", ".join([*p.opts, *p.secondary_opts])
        value = "" if p in arguments or getattr(p, "is_flag", False) else f" {_value(p)}"
        needed = "required" if p.required else ""
        shown = (
            ""
            if any(p.default is nothing for nothing in (None, False, ())) or p.required
            else f"default {_plain(p.default)}"
        )
        text = (p.help or "").replace("|", "\\|").rstrip()
        lines.append(f"| `{flags}{value}` | {text} | {needed or shown} |")
    return [*lines, ""]


def _value(parameter: Any) -> str:
    """Return what a reader types for a parameter: its own metavar, the choices, or the name of the
    type.
    """
    if parameter.metavar:
        return str(parameter.metavar).replace("|", " or ")
    kind = parameter.type_descriptor.annotation
    kind = next((part for part in get_args(kind) if part is not type(None)), kind)
    return (
        "{" + ",".join(c.value for c in kind) + "}"
        if issubclass(kind, Enum)
        else kind.__name__.upper()
    )


def _plain(value: Any) -> Any:
    return getattr(value, "value", value)


def _write(path: Path, text: str) -> None:
    """Write only what changed: an unchanged page is not built again."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
