"""The progress bar: where it is drawn and where not."""

import io
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

import bochner as bo
from bochner import progress
from bochner.estimators.methods.rows import RowsMixin
from bochner.fitting import placed_rows
from bochner.memory import chunks
from bochner.progress import expect, overall, progress_bar, say, within
from bochner.training.trainer import State


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


@pytest.fixture
def clock(monkeypatch):
    """Time that tests move."""
    now = SimpleNamespace(value=100.0)
    monkeypatch.setattr(progress.time, "monotonic", lambda: now.value)
    return now


def test_lines_are_said_as_phases_begin_and_now_and_then(clock):
    said = []
    console = Console(file=io.StringIO(), force_terminal=False, force_jupyter=False)
    with overall("reading", True, console, said.append):
        clock.value += 3.0
        with progress_bar("training", 30, shown=True) as on_step:
            for step in range(1, 8):
                clock.value += 12.0
                on_step(State(step=step, history=[-9.0 * step]))
        say("placing rows, 0 of 20")
        clock.value += 29.0
        say("placing rows, 10 of 20")
        clock.value += 1.0
        say("placing rows, 15 of 20")
        say("writing")
    assert said == [
        "reading (0 s)",
        "training (3 s)",
        "training, step 3, elbo -27 (39 s)",
        "training, step 6, elbo -54 (75 s)",
        "placing rows, 0 of 20 (87 s)",
        "placing rows, 15 of 20 (117 s)",
        "writing (117 s)",
    ]
    assert console.file.getvalue() == ""


def test_phases_of_what_has_one_name_are_not_said(clock):
    said = []
    console = Console(file=io.StringIO(), force_terminal=False, force_jupyter=False)
    with overall("writing", True, console, said.append):
        with within("choosing"), overall("starts", False):
            clock.value += 40.0
            with progress_bar("training", 30, shown=False) as on_step:
                on_step(State(step=1, history=[-9.0]))
            say("placing rows")
        say("pictures")
    assert said == ["writing (0 s)", "choosing (0 s)", "pictures (40 s)"]


def test_a_library_says_phases_in_its_log_alone(clock, caplog, capsys):
    with caplog.at_level("INFO", logger="bochner"), overall("starts", True):
        clock.value += 30.0
        with progress_bar("training", 30, shown=False) as on_step:
            on_step(State(step=1, history=[-9.0]))
            clock.value += 31.0
            on_step(State(step=2, history=[-8.0]))
    assert caplog.messages == [
        "starts (0 s)",
        "training (30 s)",
        "training: step 1, elbo -9",
        "training: step 2, elbo -8",
    ]
    assert capsys.readouterr() == ("", "")


def noise():
    X = np.random.default_rng(0).normal(size=(60, 5))
    return bo.NGMVLVM(max_iter=2, init="pca", n_init=1, random_state=0).fit(X)


def test_phases_after_training_are_said(caplog):
    with caplog.at_level("INFO", logger="bochner"):
        noise()
    phases = [text.partition(",")[0].partition(" (")[0] for text in caplog.messages]
    assert phases[-3:] == ["final bound", "posterior of the weights", "placing rows"]


def test_rows_are_counted_as_they_are_placed(monkeypatch):
    said = []
    monkeypatch.setattr(placed_rows, "say", said.append)
    monkeypatch.setattr(RowsMixin, "_cuts", lambda _, values: chunks(len(values), 25))
    noise()
    assert said == [f"placing rows, {n} of 60" for n in (25, 50, 60)]
