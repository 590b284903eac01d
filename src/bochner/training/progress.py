"""The steps of a trainer on a bar, and in lines for a log that is kept."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from bochner.progress import part
from bochner.training.trainer import State

if TYPE_CHECKING:
    from rich.console import Console

_LOG = logging.getLogger("bochner")
# Steps between two lines of the log.
_LOGGED = 100


class StepBar(Protocol):
    """To be called after every step."""

    def __call__(self, state: State, until: int | None = None) -> None:
        """Take the state, and the last step where that is known."""


def _log(label: str, state: State) -> None:
    if state.step % _LOGGED == 0 or state.step == 1:
        _LOG.info("%s: step %d, elbo %.6g", label, state.step, state.history[-1])


@contextmanager
def progress_bar(
    label: str, n_steps: int, shown: bool, console: Console | None = None
) -> Iterator[StepBar]:
    """Yield a function to call after every step of training; see `bochner.progress.part`."""
    with part(label, n_steps, shown, console) as move:

        def update(state: State, until: int | None = None) -> None:
            _log(label, state)
            if move is not None:
                words = f"{label}, step {state.step}, elbo {state.history[-1]:,.0f}"
                move(state.step, words, until)

        yield update
