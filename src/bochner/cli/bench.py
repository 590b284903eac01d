"""``bochner bench``: a script of benchmarks/ and the figures published with it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from bochner.cli.session import say
from bochner.errors import InputError, message


def folder() -> Path:
    """Find benchmarks/ of the checkout that this package was imported from, or that is the working
    directory.
    """
    for root in (Path(__file__).parents[3], Path.cwd()):
        if (root / "benchmarks" / "harness.py").is_file():
            return root / "benchmarks"
    do = "clone the repository, install it with pip install -e . and run the command there"
    raise InputError(message("a checkout with benchmarks/", "an installed package without it", do))


def run(name: str, quick: bool) -> dict[str, Any]:
    """Run a script; what it says goes to standard error while it runs.

    Returns
    -------
    dict
        name, command, output, published (the README's section, None where there is none), seconds.

    Raises
    ------
    InputError
        Not in a checkout, or no such script.
    RuntimeError
        The script failed.
    """
    scripts = folder()
    names = sorted(
        p.stem for p in scripts.glob("*.py") if "def main" in p.read_text(encoding="utf-8")
    )
    if name not in names:
        raise InputError(
            message("the name of a benchmark", repr(name), f"choose from {', '.join(names)}")
        )
    command = [sys.executable, str(scripts / f"{name}.py"), *(["--quick"] if quick else [])]
    started = time.perf_counter()
    done = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=scripts)
    lines = []
    for line in done.stdout or ():
        say(line.rstrip("\n"))
        lines.append(line)
    if done.wait():
        raise RuntimeError(f"{' '.join(command)} ended with exit code {done.returncode}")
    seconds = round(time.perf_counter() - started, 3)
    output, command_line = (
        "".join(lines),
        f"python benchmarks/{name}.py{' --quick' if quick else ''}",
    )
    return {
        "name": name,
        "command": command_line,
        "output": output,
        "published": published(scripts / "README.md", name),
        "seconds": seconds,
    }


def published(readme: Path, name: str) -> str | None:
    """Return the section of the README about a script."""
    for section in readme.read_text(encoding="utf-8").split("\n## ")[1:]:
        head, _, body = section.partition("\n")
        if head.strip() == f"{name}.py":
            return body.strip()
    return None


def show_both(values: Mapping[str, Any]) -> None:
    """Print what came out and what was published."""
    typer.echo(
        f"Measured now ({values['command']}, {values['seconds']} "
        f"s):\n\n{values['output'].rstrip()}\n"
    )
    typer.echo(
        f"Published (benchmarks/README.md):\n\n{values['published'] or 'nothing under this name'}"
    )
