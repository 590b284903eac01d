"""What every command shares: exit codes, messages of one line, and one JSON object where it is
asked for.
"""

from __future__ import annotations

import _thread
import contextlib
import errno
import io
import json
import logging
import math
import os
import re
import shlex
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import typer

from bochner.errors import InputError, NumericalError, StorageError, message, printable
from bochner.io.extensions import EXTENSIONS, extension_of

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer

# Exit codes: a fault of ours, input that cannot be used, results that could not be written, Ctrl-C
# (128 and its signal, as shells have it).
FAULT = 1
BAD_INPUT = 2
NOT_WRITTEN = 3
INTERRUPTED = 130

# Entries of a table up to which a second thread saves nothing. Where other programs keep the cores
# busy, it costs: threads wait for each other thousands of times a second.
_SMALL = 200_000

Show = Callable[[dict[str, object]], None]


@dataclass
class Reply:
    """What a command answers.

    Attributes
    ----------
    values : dict
        The JSON object.
    show : callable or None
        Prints the values for people; used without ``--json``.
    code : int
        Exit code.
    """

    values: dict[str, object] = field(default_factory=dict)
    show: Show | None = None
    code: int = 0


_LOG = logging.getLogger("bochner")


def in_job() -> bool:
    """Return whether torchrun, or what sets its variables, started this process and others."""
    given = all(name in os.environ for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR"))
    return given and os.environ["WORLD_SIZE"].isdigit() and int(os.environ["WORLD_SIZE"]) > 1


def follows() -> bool:
    """Return whether this is not the first process of a job: the first one speaks for all."""
    return in_job() and os.environ["RANK"] != "0"


def say(text: str) -> None:
    """Print a line on standard error, and in the log where there is one."""
    if follows():
        return
    _LOG.info("%s", _printed(text))


def report_progress(text: str) -> None:
    """Print a line on standard error: the log has its own."""
    _printed(text)


def _printed(text: str) -> str:
    """Print lines on standard error; return what was printed."""
    lines = "\n".join(map(printable, text.split("\n")))
    # a closed pipe or terminal must not end a fit
    with suppress(OSError, ValueError):
        # not by typer, which writes past a bar that is drawn there
        if sys.stderr is not None:
            print(lines, file=sys.stderr)
    return lines


@contextmanager
def session(as_json: bool, log: Path | None = None, shared: bool = False) -> Iterator[Reply]:
    """Run the body of a command: its warnings become lines, its errors exit codes, its reply the
    output.

    Parameters
    ----------
    as_json : bool
        Print the reply as one JSON object and nothing else on standard output. Bad input, faults
        and interruptions print ``{"error": ...}`` there, besides the message on standard error.
    log : Path, optional
        File to which everything said is appended with the time, and the bound while a model is
        trained.
    shared : bool
        Whether the processes of a job share the work; else the first one does it, and the others
        end at once.

    Raises
    ------
    typer.Exit
        With 0 where another process does the work; with 1 (a fault of ours), 2 (bad input), 3 (a
        file could not be written) or 130 (interrupted), where the body did not end well.
    """
    if in_job() and not shared:
        if follows():
            raise typer.Exit
        say("Only bochner fit shares its rows: the first process of this job works alone.")
    reply = Reply()
    with warnings.catch_warnings(), _sigterm_interrupts(), ExitStack() as kept:
        warnings.showwarning = _shown_once()
        try:
            log = None if follows() else log
            if log is not None:
                written = kept.enter_context(_logged(log))
            _check_working_folder()
            with interrupts_as_such():
                yield reply
            _LOG.info(
                "done: %s",
                {
                    name: value
                    for name, value in reply.values.items()
                    if not isinstance(value, dict)
                },
            )
            if log is not None and written.failed:
                reply.code = reply.code or NOT_WRITTEN
        except typer.Exit:
            raise
        except KeyboardInterrupt:
            _fail("Interrupted.", INTERRUPTED, as_json)
        except Exception as error:
            _fail_with(error, as_json)
    if follows():
        pass
    elif as_json:
        typer.echo(json.dumps(_finite(reply.values), allow_nan=False))
    elif reply.show is not None:
        reply.show(reply.values)
    if reply.code:
        raise typer.Exit(reply.code)


def _check_working_folder() -> None:
    """Refuse to work in a folder that was removed: libraries end the process there."""
    try:
        Path.cwd()
    except OSError as error:
        got = f"one that is gone ({error.strerror})"
        do = "go to another (cd), or again to one that was made anew: cd ."
        raise InputError(message("a working folder", got, do)) from error


@contextmanager
def interrupts_as_such() -> Iterator[None]:
    """Raise an interrupt as itself that came while a class was made, in an import: Python up to
    3.11 hides it behind a RuntimeError.

    Raises
    ------
    KeyboardInterrupt
    """
    try:
        yield
    except Exception as error:
        # an error that another process met may be its own cause
        causes: list[BaseException] = [error]
        while (cause := causes[-1].__cause__) is not None and cause not in causes:
            causes.append(cause)
        if any(isinstance(cause, KeyboardInterrupt) for cause in causes):
            raise KeyboardInterrupt from error
        raise


@contextmanager
def one_thread_if_small(n_entries: int) -> Iterator[None]:
    """Use one thread for a small table, unless the caller's OMP_NUM_THREADS says how many."""
    import torch

    n_threads = torch.get_num_threads()
    if n_entries <= _SMALL and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(n_threads)


class _Output(io.FileIO):
    """Standard output that never ends a command, whose work is done: what cannot be written goes
    nowhere.
    """

    reason = ""

    def write(self, content: Buffer) -> int:
        """Write; from the first failure on all counts as written."""
        try:
            return super().write(content)
        except OSError as error:
            # a reader may leave: ``| head``
            if not isinstance(error, BrokenPipeError):
                self.reason = error.strerror or str(error)
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            return memoryview(content).nbytes


@contextmanager
def standard_output() -> Iterator[None]:
    """Let standard output fail late, of help and version, too, where libraries would end with the
    code of a fault: a reader that leaves changes no exit code, a full disk is one line and code 3.
    """
    stream = sys.stdout
    if not isinstance(stream, io.TextIOWrapper):
        yield
        return
    output = _Output(stream.fileno(), "w", closefd=False)
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(output),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
    )
    try:
        yield
    finally:
        sys.stdout.flush()
        if output.reason:
            say(f"Error: standard output: {output.reason}")
            sys.exit(NOT_WRITTEN)


def is_bad_input(error: Exception) -> bool:
    """Tell whether an exception is about what the user gave, not about a fault of ours."""
    if isinstance(error, InputError) or (
        isinstance(error, OSError) and error.filename is not None
    ):
        return True
    frames = list(traceback.walk_tb(error.__traceback__))
    # scikit-learn's checks raise plain ValueErrors: they are told from others by where they come
    # from.
    checked = bool(frames) and str(frames[-1][0].f_globals.get("__name__", "")).startswith(
        "sklearn.utils"
    )
    return checked and isinstance(error, ValueError | TypeError)


def _fail_with(error: Exception, as_json: bool) -> None:
    if isinstance(error, StorageError):
        _fail(f"Error: {error}", NOT_WRITTEN, as_json)
    if is_bad_input(error):
        reason = _of_path(error) if isinstance(error, OSError) else str(error)
        _fail(f"Error: {reason}", BAD_INPUT, as_json)
    if isinstance(error, Warning):
        text = " ".join(str(error).split())
        do = "leave out -W error (PYTHONWARNINGS) to go on past warnings"
        _fail(f"Error: {type(error).__name__}: {text} ({do})", BAD_INPUT, as_json)
    if not isinstance(error, NumericalError):
        traceback.print_exception(error, file=sys.stderr)
        _LOG.error("fault", exc_info=error)
    say(
        "This is a fault of bochner, not of your data: please report it with the lines above and "
        "the version."
    )
    _fail(f"Error: {type(error).__name__}: {error}", FAULT, as_json)


# What to do where the system refuses a path.
_PATHS = {
    errno.EACCES: "allow it (chmod), or choose another",
    errno.EPERM: "allow it (chmod), or choose another",
    errno.EISDIR: "name a file: it is a folder",
    errno.ELOOP: "name the file that its links are meant for: they lead to themselves",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ENOTDIR: "choose another: a part of it is a file, and no folder",
}


def _of_path(error: OSError) -> str:
    do = _PATHS.get(error.errno or 0, "check it")
    return message("a path that can be used", f"{error.filename} ({error.strerror})", do)


def _fail(text: str, code: int, as_json: bool) -> None:
    say(text)
    if as_json and not follows():
        typer.echo(json.dumps({"error": text.removeprefix("Error: ")}))
    raise typer.Exit(code)


def _shown_once() -> Callable[..., None]:
    """Return what shows warnings: once, as rows on disk are worked through part by part."""
    shown: set[str] = set()

    # where a warning comes from is of no use on a command line
    def show(message: Warning | str, *_: object, **__: object) -> None:
        text = " ".join(str(message).split())
        if text not in shown:
            shown.add(text)
            say(f"Warning: {text}")

    return show


class _LogFile(logging.FileHandler):
    """A log that says once when it cannot be written, and lets the run go on without it."""

    failed = False

    def handleError(self, record: logging.LogRecord) -> None:
        """Say what is wrong on standard error alone: the log is what fails."""
        del record
        reason = sys.exc_info()[1]
        if not self.failed:
            self.failed = True
            typer.echo(f"Warning: {self.baseFilename} is not written on: {reason}.", err=True)


# Endings of what is written beside the log.
_RESULTS = (".bochner", ".ckpt", ".html", ".json", ".png", ".zarr")


def _is_log(path: Path) -> bool:
    """Tell whether a file is empty or begins with a date, as logs do."""
    with path.open("rb") as file:
        start = file.read(10)
    return re.fullmatch(rb"(\d{4}-\d\d-\d\d)?", start) is not None


@contextmanager
def _logged(path: Path) -> Iterator[_LogFile]:
    """Append the package's messages to a file; what was set before is set again afterwards.

    Raises
    ------
    InputError
        The file is called as data or results are, or holds something else, or its folder is not
        there.
    """
    do = "write --log fit.log"
    if extension_of(path) in EXTENSIONS:
        raise InputError(message("a file for the log", f"{path}, a name of data", do))
    if extension_of(path) in _RESULTS:
        raise InputError(message("a file for the log", f"{path}, a name of results", do))
    if path.is_file() and not _is_log(path):
        got = f"{path}, which is there and no log"
        raise InputError(message("a file for the log", got, do))
    if not path.parent.is_dir():
        folder = str(path.parent)
        create = f"create it first: mkdir -p {shlex.quote(folder)}"
        raise InputError(message("an existing folder for the log", folder, create))
    # names of files may hold bytes that are no text
    handler = _LogFile(path, encoding="utf-8", errors="backslashreplace")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    level = _LOG.level
    _LOG.addHandler(handler)
    _LOG.setLevel(logging.INFO)
    _LOG.info("bochner %s", shlex.join(sys.argv[1:]))
    try:
        yield handler
    finally:
        _LOG.setLevel(level)
        _LOG.removeHandler(handler)
        # what a full disk did not take is lost, and was said
        with contextlib.suppress(OSError):
            handler.close()


# Seconds after which an interrupt that Python dropped is raised again.
_AGAIN = 0.02


@contextmanager
def _sigterm_interrupts() -> Iterator[None]:
    """Let SIGTERM do what Ctrl-C does: batch systems send it before they kill."""
    if threading.current_thread() is not threading.main_thread():
        # Python sets signal handlers in the main thread only
        yield
        return
    # the handler goes first: an interrupt may strike while it is taken away
    with dropped_interrupts_again():
        before = signal.signal(signal.SIGTERM, _interrupt)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)


@contextmanager
def dropped_interrupts_again() -> Iterator[None]:
    """Raise an interrupt again that struck where Python cannot raise it, and print nothing of it.

    One that comes when the handler of SIGTERM is gone is over: the work is done.
    """
    hook = sys.unraisablehook

    def again(lost: sys.UnraisableHookArgs) -> None:
        # Python drops what is raised within a finaliser or the callback of a weak reference
        if not issubclass(lost.exc_type, KeyboardInterrupt):
            hook(lost)
            return
        # SIGINT may be ignored, as in the background of a shell script; SIGTERM is ours
        later = threading.Timer(_AGAIN, _thread.interrupt_main, [signal.SIGTERM])
        later.daemon = True
        later.start()

    sys.unraisablehook = again
    try:
        yield
    finally:
        sys.unraisablehook = hook


def _interrupt(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise KeyboardInterrupt


def _finite(value: object) -> object:
    """Replace what JSON has no word for (NaN, inf) by null."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
