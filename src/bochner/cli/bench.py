"""``bochner bench``: a table of a paper, or a script of benchmarks/ and the figures published with
it.
"""

from __future__ import annotations

import csv
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import typer

from bochner.cli.session import say
from bochner.errors import InputError, message

# the script of the papers' tables
TABLES = "papers"
# what scripts share, none itself
_SHARED = "harness"
# Seconds that an interrupted script has to end: by itself, as Ctrl-C reaches it, too, and after it
# was told to.
_ALONE = 1.0
_TOLD = 10.0


def folder() -> Path:
    """Find benchmarks/ of the checkout that this package was imported from, or that is the working
    directory.
    """
    for root in (Path(__file__).parents[3], Path.cwd()):
        if (root / "benchmarks" / f"{_SHARED}.py").is_file():
            return root / "benchmarks"
    do = "clone the repository, install it with pip install -e . and run the command there"
    raise InputError(
        message("a checkout with benchmarks/", "an installed package without it", do)
    )


def run(
    name: str | None, options: Sequence[str] = (), aloud: bool = False
) -> dict[str, object]:
    """Run a script, or measure a table of a paper.

    Parameters
    ----------
    name : str or None
        A script, or a table or figure; None where the options say what to do with all of them.
    options : sequence of str
        Options of the script.
    aloud : bool
        Repeat what it prints on standard error and in the log meanwhile: where the reply is JSON.

    Returns
    -------
    dict
        name, command, output, published (the README's section, None where there is none), seconds.

    Raises
    ------
    InputError
        Not in a checkout, no such script, table or figure, or the script failed, whose own message
        is on standard error.
    """
    scripts = folder()
    names = sorted(
        p.stem
        for p in scripts.glob("*.py")
        if p.stem != _SHARED and "def main" in p.read_text(encoding="utf-8")
    )
    if name is not None and name not in (*names, *entries(scripts)):
        do = f"choose from {', '.join(names)}, or a table or figure that bochner bench --list names"
        raise InputError(message("the name of a benchmark", repr(name), do))
    script = name if name in names else TABLES
    words = [*([name] if name is not None and script == TABLES else []), *options]
    command = [sys.executable, str(scripts / f"{script}.py"), *words]
    started = time.perf_counter()
    lines = []
    with _running(command, scripts) as done:
        for line in done.stdout or ():
            if aloud:
                say(line.rstrip("\n"))
            lines.append(line)
    if done.returncode:
        got = f"benchmarks/{script}.py, which ended with exit code {done.returncode}"
        raise InputError(message("a script that ends well", got, "read its message above"))
    seconds = round(time.perf_counter() - started, 3)
    return {
        "name": name,
        "command": " ".join(("python", f"benchmarks/{script}.py", *words)),
        "output": "".join(lines),
        "published": None if script == TABLES else published(scripts / "README.md", str(name)),
        "seconds": seconds,
    }


@contextmanager
def _running(command: Sequence[str], scripts: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a script, which ends with the block however that ends: hours of work for nobody would
    follow a SIGTERM.
    """
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=scripts) as done:
        try:
            yield done
        except BaseException:
            # SIGINT: Python's subprocess.run then ends what the script runs
            with suppress(subprocess.TimeoutExpired):
                done.wait(_ALONE)
            if done.poll() is None:
                done.send_signal(signal.SIGINT)
                with suppress(subprocess.TimeoutExpired):
                    done.wait(_TOLD)
            done.kill()
            raise


def entries(scripts: Path) -> list[str]:
    """Return the papers' tables and figures, in their order."""
    listed = scripts / f"{TABLES}.csv"
    if not listed.is_file():
        return []
    with listed.open(newline="", encoding="utf-8") as file:
        return list(dict.fromkeys(row["entry"] for row in csv.DictReader(file)))


def published(readme: Path, name: str) -> str | None:
    """Return the section of the README about a script."""
    for section in readme.read_text(encoding="utf-8").split("\n## ")[1:]:
        head, _, body = section.partition("\n")
        if head.strip() == f"{name}.py":
            return body.strip()
    return None


def show_both(values: Mapping[str, object]) -> None:
    """Print what came out and what was published; a paper's table has both."""
    command, output = str(values["command"]), str(values["output"]).rstrip()
    if command.startswith(f"python benchmarks/{TABLES}.py"):
        typer.echo(output)
        return
    typer.echo(f"Measured now ({command}, {values['seconds']} s):\n\n{output}\n")
    typer.echo(
        f"Published (benchmarks/README.md):\n\n{values['published'] or 'nothing under this name'}"
    )
