"""Code that runs beside the scripts of benchmarks."""

import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


def run_there(code):
    """Return a process of its own that has run Python code in the folder of benchmarks."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=BENCHMARKS, capture_output=True, text=True, check=False)
