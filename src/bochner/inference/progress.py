"""A progress bar on standard error, silent when that is not a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bochner.inference.train import OnStep, State


def _nothing(state: State) -> None:
    del state


@contextmanager
def progress_bar(label: str, n_steps: int, shown: bool) -> Iterator[OnStep]:
    """Yield a function to call after every step.

    Parameters
    ----------
    label : str
    n_steps : int
        Steps at the most.
    shown : bool
        Whether the caller wants a bar; without a terminal there is none all the same.
    """
    console = Console(stderr=True)
    if not shown or not console.is_terminal:
        yield _nothing
        return
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True, refresh_per_second=4) as bar:
        task = bar.add_task(label, total=n_steps)

        def update(state: State) -> None:
            bar.update(task, completed=state.step, description=f"{label}  elbo {state.history[-1]:,.0f}")

        yield update
