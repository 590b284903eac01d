"""Two fits into one folder: the second is refused, whenever it comes, and changes nothing."""

import subprocess
import sys

import numpy as np
import pytest

from bochner.io.outputs import alone_in
from helpers.cli import refused, replied

SMALL = ["--set", "n_frequencies=4", "--set", "n_mixtures=1", "--set", "init=pca"]
SMALL += ["--set", "max_iter=3", "--seed", "1"]


@pytest.fixture
def data(tmp_path):
    np.save(tmp_path / "X.npy", np.sin(np.random.default_rng(0).normal(size=(20, 4))))
    return tmp_path / "X.npy"


@pytest.mark.parametrize("how", [[], ["--force"], ["--resume"]])
def test_a_folder_that_another_run_holds_is_refused(data, tmp_path, how):
    out = tmp_path / "run"
    out.mkdir()
    with alone_in(out):
        said = refused("fit", data, *SMALL, *how, "--out", out)
    assert said == (
        f"Expected a folder of one's own, got {out}, where another run is writing. Wait until it "
        "has ended, or choose another folder."
    )
    assert list(out.iterdir()) == []
    replied("fit", data, *SMALL, *how, "--out", out)


def test_a_folder_is_free_when_its_process_was_killed(data, tmp_path):
    out = tmp_path / "run"
    out.mkdir()
    code = (
        "import sys, time\nfrom bochner.io.outputs import alone_in\n"
        "with alone_in(sys.argv[1]):\n    print('held', flush=True)\n    time.sleep(600)"
    )
    held = subprocess.Popen(
        [sys.executable, "-c", code, out], stdout=subprocess.PIPE, text=True
    )
    try:
        assert held.stdout.readline() == "held\n"
        assert "another run is writing" in refused("fit", data, *SMALL, "--out", out)
    finally:
        held.kill()
        held.wait()
    replied("fit", data, *SMALL, "--out", out)
