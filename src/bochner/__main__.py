"""``python -m bochner`` and the command ``bochner``."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from bochner.cli import app
from bochner.cli.session import (
    INTERRUPTED,
    dropped_interrupts_again,
    say,
    standard_output,
)

# New objects between two searches for cycles. Imports make some hundred thousand that stay: at
# Python's 700 a sixth of their time goes into searches that find nothing.
_OBJECTS = 20_000


@contextmanager
def _few_searches() -> Iterator[None]:
    """Let Python look for cycles of objects more rarely."""
    before = gc.get_threshold()
    gc.set_threshold(_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _forget_sizes_of_zero() -> None:
    """Take a size of 0 in the environment for an unknown one: rich prints nothing in no columns."""
    for name in ("COLUMNS", "LINES"):
        given = os.environ.get(name, "")
        if given.isdecimal() and int(given) == 0:
            del os.environ[name]


def _end_undisturbed() -> None:
    """Ignore signals from now on: of a command that is over nothing is left to interrupt, and a
    second Ctrl-C would end in a traceback, or with a code that says it was not done.
    """
    # Python sets signal handlers in the main thread only
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)


def main() -> None:
    """Run the command line."""
    # Before it ends, Python searches for cycles once more and takes apart what it finds: half a
    # second of a process that is over.
    atexit.register(gc.freeze)
    _forget_sizes_of_zero()
    with dropped_interrupts_again(), _few_searches(), standard_output():
        try:
            app(prog_name="bochner")
        except KeyboardInterrupt:
            # before the command began, while its words were read
            say("Interrupted.")
            sys.exit(INTERRUPTED)
        finally:
            _end_undisturbed()


if __name__ == "__main__":
    main()
