"""The pipeline example, at small size."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "krein_pipeline.py"


def test_pipeline_with_a_search_over_the_kernel(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [EXAMPLE.name, "--columns", "20", "--iterations", "10"])
    search = runpy.run_path(str(EXAMPLE))["main"]()
    assert search.best_score_ > 0.93
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("chosen: tau = ")
    assert float(lines[1].split(": ")[1]) > 0.9
    fitted = search.best_estimator_.named_steps["kreinfeatures"]
    assert float(lines[2].split(": ")[1]) == pytest.approx(fitted.held_out_error_, abs=1e-4)
