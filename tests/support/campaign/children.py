"""Trials in processes of their own: what crashes, hangs or asks for too much memory ends alone."""

import functools
import importlib
import json
import os
import pkgutil
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
import warnings
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Ended:
    """How a child ended.

    Attributes
    ----------
    value : object
        What its function returned, as JSON carries it; None where it returned nothing.
    code : int
        Exit code; minus the number of the signal that killed it.
    out, err : str
        What it printed.
    seconds : float
        Processor time.
    hung : bool
        It was killed because it took too long.
    """

    value: object
    code: int
    out: str
    err: str
    seconds: float
    hung: bool


def run(function, *arguments, seconds=60.0, room=None, after=None):
    """Call a function in a forked child.

    Parameters
    ----------
    function : callable
        What it returns must be JSON.
    seconds : float
        Processor time it may take; ten times as long by the clock.
    room : int, optional
        Bytes of memory that it may ask for beyond what it has.
    after : (float, signal), optional
        Send a signal so many seconds of processor time after the start.

    Returns
    -------
    Ended
    """
    _warm()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if child == 0:
            _be_the_child(function, arguments, place, seconds, room)
        hung, status, usage = _wait(child, 10.0 * seconds, after)
        value = place / "value"
        return Ended(
            json.loads(value.read_text()) if value.exists() else None,
            os.waitstatus_to_exitcode(status),
            (place / "out").read_text(errors="replace") if (place / "out").exists() else "",
            (place / "err").read_text(errors="replace") if (place / "err").exists() else "",
            usage.ru_utime + usage.ru_stime,
            hung or os.waitstatus_to_exitcode(status) == -signal.SIGXCPU,
        )


@functools.cache
def _warm():
    """Import here what every child would import for itself, at ten times the cost of its trial."""
    import bochner

    names = [module.name for module in pkgutil.walk_packages(bochner.__path__, "bochner.")]
    others = (
        "anndata",
        "mudata",
        "pandas",
        "pyarrow.parquet",
        "matplotlib.figure",
        "rich.console",
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in (*names, *others):
            if name.rpartition(".")[2] != "__main__":
                with suppress(ImportError):
                    importlib.import_module(name)


def command(arguments):
    """Run one command line in this process; it ends the process, as the installed command does."""
    from bochner.__main__ import main

    sys.argv = ["bochner", *map(str, arguments)]
    main()


def _be_the_child(function, arguments, place, seconds, room):
    code = 1
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(place / name, os.O_CREAT | os.O_WRONLY | os.O_APPEND), number)
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        # as Python opens it
        how = {"encoding": "utf-8", "errors": "backslashreplace"}
        sys.stderr = open(2, "w", **how, closefd=False, buffering=1)  # noqa: SIM115
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 5))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if room is not None:
            used = (
                int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            )
            resource.setrlimit(resource.RLIMIT_AS, (used + room, used + room))
        value = function(*arguments)
        (place / "part").write_text(json.dumps(value))
        (place / "part").rename(place / "value")
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in filter(None, (sys.stdout, sys.stderr)):
            try:
                stream.flush()
            except (OSError, ValueError):
                code = code or 120
        os._exit(code)


def _wait(child, limit, after):
    """Wait for a child, send it a signal when its time has come, kill it when it is over."""
    begun, handle = time.monotonic(), os.pidfd_open(child)
    hung = False
    try:
        while not select.select([handle], [], [], 0.002 if after else 1.0)[0]:
            if after is not None and _processor_time(child) >= after[0]:
                os.kill(child, after[1])
                after = None
            if time.monotonic() - begun > limit:
                hung = True
                os.kill(child, signal.SIGKILL)
    finally:
        os.close(handle)
    _, status, usage = os.wait4(child, 0)
    return hung, status, usage


def _processor_time(child):
    fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
