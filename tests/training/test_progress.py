"""The progress bar: where it is drawn and where not."""

import io
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
from rich.console import Console

from bochner import progress
from bochner.progress import expect, overall, say
from bochner.training.trainer import State, progress_bar


def drawn(shown=True, **kind):
    console = Console(file=io.StringIO(), width=100, **kind)
    with progress_bar("fit", 10, shown=shown, console=console) as on_step:
        on_step(State(step=4, history=[-12.0]))
    return console.file.getvalue()


def test_a_terminal_has_a_bar_and_a_file_has_none():
    assert "fit, step 4, elbo -12" in drawn(force_terminal=True)
    assert drawn(force_terminal=False, force_jupyter=False) == ""
    assert drawn(shown=False, force_terminal=True) == ""


def test_parts_share_one_bar_that_says_what_is_left():
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    with overall("reading", True, console):
        assert "reading" in console.file.getvalue()  # before anything is known
        bar = progress._current.get()
        task = bar._drawn.tasks[0]
        expect(30)
        expect(20)
        with progress_bar("start", 20, shown=True) as on_step:
            on_step(State(step=20, history=[-12.0]))
            assert (task.completed, task.total, task.fields["most"]) == (20, 50, True)
        with progress_bar("hidden", 5, shown=False) as on_step:
            on_step(State(step=5, history=[-1.0]))
        with progress_bar("training", 30, shown=True) as on_step:
            on_step(State(step=3, history=[-9.0]))
            assert (task.completed, task.total) == (23, 50)
            on_step(State(step=6, history=[-9.0]), 12)  # the end is known
            assert (task.completed, task.total, task.fields["most"]) == (26, 32, False)
        say("writing")
        assert task.description == "writing"
    assert progress._current.get() is None
    assert console.file.getvalue().count("\n") < 40  # one bar, drawn again and again


@pytest.mark.parametrize(
    ("seconds", "most", "text"),
    [(75.2, False, "1:15 left"), (9.0, True, "at most 0:09 left"), (None, True, "")],
)
def test_the_time_that_is_left(seconds, most, text):
    task = SimpleNamespace(time_remaining=seconds, total=5, fields={"most": most})
    assert progress._left_column().render(task).plain == text


@pytest.mark.skipif(find_spec("ipywidgets") is not None, reason="ipywidgets is installed")
def test_a_notebook_without_widgets_has_no_bar_and_no_warning():
    assert drawn(force_jupyter=True) == ""
