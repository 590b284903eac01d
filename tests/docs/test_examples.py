"""The gallery's programs at small size: they run, draw, and say what they claim."""

from __future__ import annotations

import ast
import time
import warnings
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
PROGRAMS = sorted(path.stem for path in EXAMPLES.glob("plot_*.py"))

# By program: the sizes to use here in place of its own.
SMALL: dict[str, dict[str, Any]] = {
    "plot_counts": {"N_ROWS": 60, "STEPS": 10},
    "plot_covariates": {"N_ROWS": 80, "STEPS": 20},
    "plot_kernel_recovery": {"N_SAMPLES": 60, "STEPS": 40},
    "plot_krein": {"COLUMNS": (10, 40), "ITERATIONS": 5},
    "plot_missing": {"N_ROWS": 150, "STEPS": 40},
    "plot_mixed_table": {"N_ROWS": 80, "STEPS": 20},
    "plot_new_samples": {"N_TRAIN": 150, "N_NEW": 60, "STEPS": 20},
    "plot_own_likelihood": {"N_ROWS": 100, "STEPS": 60},
    "plot_s_curve": {"N_SAMPLES": 80, "STEPS": 60},
    "plot_a_notebook": {"N_ROWS": 120, "STEPS": 20},
    "plot_two_views": {"N_TRAIN": 150, "STEPS": 20},
}


def resized(program: str, sizes: dict[str, Any]) -> CodeType:
    """A program with other values for the constants at its top."""
    path = EXAMPLES / f"{program}.py"
    tree = ast.parse(path.read_text())
    left = dict(sizes)
    for node in tree.body:
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and node.targets[0].id in left
        ):
            node.value = ast.copy_location(
                ast.parse(repr(left.pop(node.targets[0].id)), mode="eval").body, node.value
            )
    assert not left, f"{program} has no constants {sorted(left)}"
    return compile(ast.fix_missing_locations(tree), str(path), "exec")


@pytest.fixture(autouse=True)
def _stopped_clock(monkeypatch):
    """Peers have the model's seconds to choose their settings: here each tries its first one."""
    monkeypatch.setattr(time, "process_time", lambda: 0.0)


def run(program: str) -> dict[str, Any]:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.close("all")
    names: dict[str, Any] = {"__name__": "__main__"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(resized(program, SMALL[program]), names)
        figures = [plt.figure(number) for number in plt.get_fignums()]
        assert figures, "the gallery needs a picture"
        for figure in figures:
            figure.canvas.draw()
            assert all(ax.has_data() for ax in figure.axes)
    plt.close("all")
    return names


def test_every_program_is_run_here():
    assert sorted(SMALL) == PROGRAMS


def test_two_views():
    names = run("plot_two_views")
    assert names["error"] < 5.0 < names["test"].std()
    # those of the demo, the better one among them
    assert set(names["peers"]) == {"ridge", "kernel ridge", "nearest neighbours"}


def test_s_curve():
    names = run("plot_s_curve")
    assert names["r2"].mean() > 0.9


def test_counts():
    names = run("plot_counts")
    assert (
        (names["low"] >= 0) & (names["high"] <= 16) & (names["low"] <= names["high"])
    ).all()
    assert names["images"].min() >= 0
    assert names["images"].max() <= 16


def test_missing():
    names = run("plot_missing")
    assert names["error"] < 0.8 * names["by_means"]
    assert 0.6 < names["inside"] <= 1


def test_krein():
    names = run("plot_krein")
    assert names["errors"][1] < names["errors"][0]
    assert names["scores"][-1] > 0.9


def test_kernel_recovery():
    names = run("plot_kernel_recovery")
    assert max(names["errors"].values()) < 1.5


def test_own_likelihood():
    names = run("plot_own_likelihood")
    assert names["fits"]["exponential"][1] > names["fits"]["gaussian"][1]
    assert (names["low"] > 0).all()


def test_mixed_table():
    names = run("plot_mixed_table")
    assert names["completed"].dtypes.equals(names["shown"].dtypes)
    assert all(not table.isna().any(axis=None) for table in names["tables"].values())
    assert len(names["tables"]) == 4


def test_new_samples():
    names = run("plot_new_samples")
    assert names["shares"]["NG-MVLVM, whole rows"] > 0.4
    assert names["wider"].mean() > names["std"].mean()


def test_covariates():
    names = run("plot_covariates")
    assert names["explained"](names["model"].embedding_) > 0.5
    assert abs(names["new"] - names["model"].embedding_[:5]).max() < 1e-6


def test_a_notebook():
    names = run("plot_a_notebook")
    assert names["report"]._repr_html_()
