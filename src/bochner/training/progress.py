"""A progress bar on standard error or in a notebook, silent elsewhere, and lines for a log that is
kept.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bochner.training.trainer import OnStep, State

_LOG = logging.getLogger("bochner")
# Steps between two lines of the log.
_LOGGED = 100


def _log(label: str, state: State) -> None:
    if state.step % _LOGGED == 0 or state.step == 1:
        _LOG.info("%s: step %d, elbo %.6g", label, state.step, state.history[-1])


def _draws(console: Console) -> bool:
    """Whether a bar can be drawn: notebooks need ipywidgets for it."""
    if console.is_jupyter:
        return importlib.util.find_spec("ipywidgets") is not None
    return console.is_terminal


@contextmanager
def progress_bar(
    label: str, n_steps: int, shown: bool, console: Console | None = None
) -> Iterator[OnStep]:
    """Yield a function to call after every step.

    Parameters
    ----------
    label : str
    n_steps : int
        Steps at the most.
    shown : bool
        Whether the caller wants a bar; without a terminal or a notebook there is none all the
        same.
    console : Console, optional
        Where to draw; by default standard error.
    """
    console = console or Console(stderr=True)
    if not (shown and _draws(console)):
        yield lambda state: _log(label, state)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True, refresh_per_second=4) as bar:
        task = bar.add_task(label, total=n_steps)

        def update(state: State) -> None:
            _log(label, state)
            bar.update(
                task, completed=state.step, description=f"{label}  elbo {state.history[-1]:,.0f}"
            )

        yield update
