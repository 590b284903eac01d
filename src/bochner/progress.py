"""One bar for all that a command or a fit does, with the time that is left, on standard error or in
a notebook; elsewhere lines now and then, where somebody wants them, and in the log.
"""

from __future__ import annotations

import functools
import importlib.util
import logging
import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, Task, TaskID

# How many steps of a part are done, the words before the bar, and how many it has by now.
Update = Callable[[int, str, int | None], None]
# Takes a line.
Write = Callable[[str], None]
# Seconds between two lines of one phase at the least.
_SECONDS = 30.0
# Steps of training between two lines of the log, at the most.
_LOGGED = 100
_LOG = logging.getLogger("bochner")


class _Bar:
    """A bar over parts whose lengths become known one by one.

    Attributes
    ----------
    expected : int
        Steps at the most of parts that are still to come.
    ended : int
        Steps of those that ended.
    """

    def __init__(self, drawn: Progress, task: TaskID) -> None:
        self._drawn = drawn
        self._task = task
        self.expected = self.ended = 0

    def say(self, words: str) -> None:
        """Name what is going on."""
        self._drawn.update(self._task, description=words)

    def move(self, done: int, words: str, n_steps: int, most: bool) -> None:
        """Say that so many of a part's steps are done; ``most``: they may turn out fewer."""
        total = self.ended + n_steps + self.expected
        more = most or self.expected > 0
        place: dict[str, Any] = {"completed": self.ended + done, "total": total}
        self._drawn.update(self._task, description=words, most=more, **place)


class _Lines:
    """Lines in place of a bar: one where a phase begins, and one now and then, with the seconds
    since the first. The words before a comma name the phase.

    Attributes
    ----------
    expected, ended : int
        As of a bar; nothing is made of them.
    """

    def __init__(self, write: Write) -> None:
        self._write = write
        self._began = self._last = time.monotonic()
        self._phase = ""
        self.expected = self.ended = 0

    def say(self, words: str) -> None:
        """Name what is going on."""
        phase = words.partition(",")[0]
        now = time.monotonic()
        if phase != self._phase or now - self._last >= _SECONDS:
            self._phase = phase
            self._last = now
            self._write(f"{words} ({now - self._began:.0f} s)")

    def move(self, done: int, words: str, n_steps: int, most: bool) -> None:
        """Say that so many of a part's steps are done."""
        del done, n_steps, most
        self.say(words)


# Of the caller's thread: a fit inside a command moves the bar of the command.
_current: ContextVar[_Bar | _Lines | None] = ContextVar("bar", default=None)
_logged: ContextVar[_Lines | None] = ContextVar("log", default=None)


@contextmanager
def overall(
    words: str, shown: bool, console: Console | None = None, write: Write | None = None
) -> Iterator[None]:
    """Draw one bar for all parts inside; none where one is there already.

    Parameters
    ----------
    words : str
        What is going on first.
    shown : bool
        Whether the caller wants a bar; without a terminal or a notebook there is none all the
        same.
    console : Console, optional
        Where to draw; by default standard error.
    write : callable, optional
        Takes lines where a bar is wanted and cannot be drawn: as each phase begins, and every
        30 seconds at the most; None: no lines.
    """
    with ExitStack() as kept:
        if _logged.get() is None:
            _set(kept, _logged, _Lines(functools.partial(_LOG.info, "%s")))
        if shown and _current.get() is None:
            bar = kept.enter_context(_bar(words, console)) or (write and _Lines(write))
            if bar is not None:
                _set(kept, _current, bar)
        say(words)
        yield


@contextmanager
def within(words: str) -> Iterator[None]:
    """Name what is going on, and let nothing inside name its own phases or move the bar."""
    say(words)
    with ExitStack() as kept:
        _set(kept, _current, None)
        _set(kept, _logged, _Lines(lambda _: None))
        yield


Value = TypeVar("Value")


def _set(kept: ExitStack, variable: ContextVar[Value], value: Value) -> None:
    """Set a variable until the end of a block."""
    kept.callback(variable.reset, variable.set(value))


@contextmanager
def _bar(words: str, console: Console | None) -> Iterator[_Bar | None]:
    """Draw a bar where it can be drawn."""
    with _python_random_state():
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    console = console or Console(stderr=True)
    if not _draws(console):
        yield None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        _left_column(),
    )
    with Progress(*columns, console=console, transient=True, refresh_per_second=4) as drawn:
        yield _Bar(drawn, drawn.add_task(words, total=None, most=True))


def say(words: str) -> None:
    """Name what is going on: a phase, and after a comma how far it is."""
    for place in (_current.get(), _logged.get()):
        if place is not None:
            place.say(words)


def expect(n_steps: int) -> None:
    """Count steps of parts to come into the time that is left, where a bar is drawn."""
    if (bar := _current.get()) is not None:
        bar.expected += n_steps


@contextmanager
def part(
    words: str, n_steps: int, shown: bool, console: Console | None = None
) -> Iterator[Update | None]:
    """Yield a function that moves the bar through a part, None where there is no bar.

    Parameters
    ----------
    words : str
    n_steps : int
        At the most.
    shown : bool
    console : Console, optional
        As in `overall`, where this part stands alone.
    """
    with overall(words, shown, console):
        bar = _current.get() if shown else None
        if bar is None:
            yield None
            return
        bar.expected = max(0, bar.expected - n_steps)
        taken = 0

        def move(done: int, words: str, until: int | None) -> None:
            nonlocal taken
            taken = done
            bar.move(done, words, n_steps if until is None else until, until is None)

        move(0, words, None)
        yield move
        bar.ended += taken


class Steps(Protocol):
    """Where a run of training stands.

    Attributes
    ----------
    step : int
        Steps done.
    history : list of float
        The bound of every step.
    """

    step: int
    history: list[float]


class StepBar(Protocol):
    """To be called after every step."""

    def __call__(self, state: Steps, until: int | None = None) -> None:
        """Take the state, and the last step where that is known."""


@contextmanager
def progress_bar(
    label: str, n_steps: int, shown: bool, console: Console | None = None
) -> Iterator[StepBar]:
    """Yield a function to call after every step of training; see `part`."""
    with part(label, n_steps, shown, console) as move:
        last = time.monotonic()

        def update(state: Steps, until: int | None = None) -> None:
            nonlocal last
            late = time.monotonic() - last >= _SECONDS
            if state.step % _LOGGED == 0 or state.step == 1 or late:
                last = time.monotonic()
                _LOG.info("%s: step %d, elbo %.6g", label, state.step, state.history[-1])
            if move is not None:
                words = f"{label}, step {state.step}, elbo {state.history[-1]:,.0f}"
                move(state.step, words, until)

        yield update


def _draws(console: Console) -> bool:
    """Whether a bar can be drawn: notebooks need ipywidgets for it."""
    if console.is_jupyter:
        return importlib.util.find_spec("ipywidgets") is not None
    return console.is_terminal


def _left_column() -> Any:
    from rich.progress import ProgressColumn
    from rich.text import Text

    class Left(ProgressColumn):
        """The time that is left, as far as the steps before tell it."""

        max_refresh = 0.5

        def render(self, task: Task) -> Text:
            """Write minutes and seconds."""
            seconds = task.time_remaining
            if seconds is None or task.total is None:
                return Text("")
            minutes, seconds = divmod(int(seconds), 60)
            words = "at most " if task.fields.get("most") else ""
            return Text(f"{words}{minutes}:{seconds:02d} left", style="progress.remaining")

    return Left()


@contextmanager
def _python_random_state() -> Iterator[None]:
    """Keep Python's global generator as it is: rich draws from it when it is imported."""
    state = random.getstate()
    try:
        yield
    finally:
        random.setstate(state)
