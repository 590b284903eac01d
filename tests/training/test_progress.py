"""The progress bar: where it is drawn and where not."""

import io
from importlib.util import find_spec

import pytest
from rich.console import Console

from bochner.training.progress import progress_bar
from bochner.training.trainer import State


def drawn(**kind):
    console = Console(file=io.StringIO(), width=80, **kind)
    with progress_bar("fit", 10, shown=True, console=console) as on_step:
        on_step(State(step=4, history=[-12.0]))
    return console.file.getvalue()


def test_a_terminal_has_a_bar_and_a_file_has_none():
    assert "4/10" in drawn(force_terminal=True)
    assert drawn(force_terminal=False, force_jupyter=False) == ""


@pytest.mark.skipif(find_spec("ipywidgets") is not None, reason="ipywidgets is installed")
def test_a_notebook_without_widgets_has_no_bar_and_no_warning():
    assert drawn(force_jupyter=True) == ""
