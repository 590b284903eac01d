"""A progress bar on standard error or in a notebook, silent elsewhere, and lines for a log that is
kept.
"""

from __future__ import annotations

import importlib.util
import logging
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bochner.training.trainer import OnStep, State

if TYPE_CHECKING:
    from rich.console import Console

_LOG = logging.getLogger("bochner")
# Steps between two lines of the log.
_LOGGED = 100
# Of a bar: how many are done, and the words before it.
Update = Callable[[int, str], None]


def _log(label: str, state: State) -> None:
    if state.step % _LOGGED == 0 or state.step == 1:
        _LOG.info("%s: step %d, elbo %.6g", label, state.step, state.history[-1])


def _draws(console: Console) -> bool:
    """Whether a bar can be drawn: notebooks need ipywidgets for it."""
    if console.is_jupyter:
        return importlib.util.find_spec("ipywidgets") is not None
    return console.is_terminal


@contextmanager
def _python_random_state() -> Iterator[None]:
    """Keep Python's global generator as it is: rich draws from it when it is imported."""
    state = random.getstate()
    try:
        yield
    finally:
        random.setstate(state)


@contextmanager
def bar(
    label: str, total: int, shown: bool, console: Console | None = None
) -> Iterator[Update | None]:
    """Yield a function that moves a bar, None where none can be drawn.

    Parameters
    ----------
    label : str
    total : int
    shown : bool
        Whether the caller wants a bar; without a terminal or a notebook there is none all the
        same.
    console : Console, optional
        Where to draw; by default standard error.
    """
    if not shown:
        yield None
        return
    with _python_random_state():
        from rich import progress
        from rich.console import Console
    console = console or Console(stderr=True)
    if not _draws(console):
        yield None
        return
    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
    )
    with progress.Progress(
        *columns, console=console, transient=True, refresh_per_second=4
    ) as drawn:
        task = drawn.add_task(label, total=total)
        yield lambda done, words: drawn.update(task, completed=done, description=words)


@contextmanager
def progress_bar(
    label: str, n_steps: int, shown: bool, console: Console | None = None
) -> Iterator[OnStep]:
    """Yield a function to call after every step of training; see `bar`."""
    with bar(label, n_steps, shown, console) as move:

        def update(state: State) -> None:
            _log(label, state)
            if move is not None:
                move(state.step, f"{label}  elbo {state.history[-1]:,.0f}")

        yield update
