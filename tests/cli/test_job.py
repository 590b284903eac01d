"""``torchrun -m bochner -- fit``: two processes give the model of one, which goes on."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import numpy as np
import pytest

import bochner as bo
from bochner.fitting import placed_rows
from helpers.cli import run
from helpers.forks import MAIN

pytestmark = [
    pytest.mark.filterwarnings("ignore:Training stopped"),
    pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc"),
]
COMMAND = [
    "--set",
    "landmarks=70",
    "--set",
    "n_frequencies=8",
    "--set",
    "init=pca",
    "--seed",
    "0",
]
# The disk is full when the model is to be written.
FULL = f"""
import errno
from bochner.estimators import saving
from bochner.io.outputs import refusal
write = saving.files.write
def full(path, *given, **named):
    if str(path).endswith("model.bochner"):
        raise refusal(path, OSError(errno.ENOSPC, "No space left on device"))
    return write(path, *given, **named)
saving.files.write = full
{MAIN}
"""


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(300, 2))
    X = np.sin(Z @ rng.normal(size=(2, 6))) + 0.3 * rng.normal(size=(300, 6))
    X[::13, 2] = np.nan
    path = tmp_path_factory.mktemp("rows") / "x.npy"
    np.save(path, X)
    return path


@pytest.fixture(scope="module")
def of_one(rows, tmp_path_factory):
    """What one process writes."""
    path = tmp_path_factory.mktemp("one") / "one"
    done = run("fit", rows, *COMMAND, "--set", "max_iter=8", "--out", path)
    assert done.exit_code == 0, done.stderr
    return path


def job(*words):
    """Start two processes."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command = [*torchrun, "--nproc-per-node", "2", "-m", "bochner", "--", *map(str, words)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, env=environment, text=True, **pipes)


def workers(parent):
    """Return the processes that torchrun started."""
    result = []
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            lines = dict(line.split(":\t", 1) for line in status.read_text().splitlines())
        except (OSError, ValueError):
            continue
        if int(lines["PPid"]) == parent:
            result.append(int(lines["Pid"]))
    return sorted(result)


def same(model, expected):
    assert model.elbo_ == pytest.approx(expected.elbo_, rel=1e-6)
    spread = expected.embedding_.std(axis=0)
    assert (np.abs(model.embedding_ - expected.embedding_) / spread).max() < 1e-3


def test_two_processes_write_the_model_of_one(rows, of_one, tmp_path, forks):
    words = ["fit", rows, *COMMAND, "--set", "max_iter=8", "--out"]
    ended = forks.group(MAIN, *words, tmp_path / "two", "--json", count=2)
    errors = "".join(process.stderr for process in ended)
    assert [process.returncode for process in ended] == [0, 0], errors
    assert "".join(process.stdout for process in ended).count('"elbo"') == 1
    assert len(errors.split("before the bound had converged")) == 2
    same(
        bo.load(tmp_path / "two" / "model.bochner"),
        bo.load(of_one / "model.bochner"),
    )
    files = {path.name for path in of_one.iterdir()}
    assert {path.name for path in (tmp_path / "two").iterdir()} == files
    # what one refuses all refuse, with one message
    ended = forks.group(MAIN, *words, tmp_path / "two", count=2)
    assert 0 not in [process.returncode for process in ended]
    errors = "".join(process.stderr for process in ended)
    assert errors.count("Error: Expected no results in --out") == 1


def test_each_process_takes_the_size_factors_of_its_rows(tmp_path, forks):
    rng = np.random.default_rng(0)
    size = rng.uniform(0.3, 3.0, 300)
    rate = size[:, None] * np.exp(np.sin(rng.normal(size=(300, 2)) @ np.ones((2, 4))))
    table = np.column_stack([size, rng.poisson(rate)])
    np.savetxt(tmp_path / "x.csv", table, delimiter=",", header="size,a,b,c,d", comments="")
    words = ["fit", tmp_path / "x.csv", *COMMAND, "--set", "max_iter=8"]
    words += ["--likelihood", "poisson", "--size-factors", "size", "--out"]
    assert run(*words, tmp_path / "one").exit_code == 0
    ended = forks.group(MAIN, *words, tmp_path / "two", count=2)
    assert [process.returncode for process in ended] == [0, 0], ended[0].stderr
    same(bo.load(tmp_path / "two"), bo.load(tmp_path / "one"))


def test_a_row_that_one_process_refuses_is_found_in_the_data(rows, tmp_path, forks):
    X = np.load(rows)
    X[203, 4] = np.inf
    np.save(tmp_path / "x.npy", X)
    words = ["fit", tmp_path / "x.npy", *COMMAND, "--out", tmp_path / "two"]
    ended = forks.group(MAIN, *words, count=2)
    assert 0 not in [process.returncode for process in ended]
    errors = "".join(process.stderr for process in ended)
    assert errors.count("Error: ") == 1
    assert "got inf in view 'x', row 53, column 4." in errors
    assert "(process 1, whose row 0 is row 150 of the data)" in errors


def test_other_commands_are_the_work_of_the_first_process(rows, of_one, tmp_path, forks):
    words = ["transform", of_one, rows, "--out", tmp_path / "z.npy"]
    ended = forks.group(MAIN, *words, count=2)
    assert [process.returncode for process in ended] == [0, 0]
    said = "Only bochner fit shares its rows: the first process of this job works alone."
    # a second one would refuse the file of the first, or write it again
    assert sorted(process.stderr.count(said) for process in ended) == [0, 1]
    assert [bool(process.stderr or process.stdout) for process in ended].count(True) == 1
    assert np.load(tmp_path / "z.npy").shape == (300, 4)


def test_a_job_that_could_not_be_written_says_that_its_checkpoint_is_kept(
    rows, tmp_path, forks
):
    words = ["fit", rows, *COMMAND, "--set", "max_iter=8", "--out", tmp_path / "run"]
    ended = forks.group(FULL, *words, count=2)
    assert 0 not in [process.returncode for process in ended]
    errors = "".join(process.stderr for process in ended)
    assert errors.count("model.bochner to be written, got No space left on device") == 1
    hint = "The checkpoint is kept: free some space and run the command again with --resume."
    assert errors.count(hint) == 1
    assert run(*words, "--resume").exit_code == 0


def test_phases_are_said_in_their_order_and_of_whose_rows(rows, tmp_path, forks, monkeypatch):
    words = ["fit", rows, *COMMAND, "--set", "max_iter=8", "--log"]
    monkeypatch.setattr("bochner.io.on_disk.MANY", 0)
    assert run(*words, tmp_path / "a", "--out", tmp_path / "one").exit_code == 0
    phases = re.findall(r"INFO (placing rows|writing)", (tmp_path / "a").read_text())
    assert phases[0] == "placing rows"
    assert phases[-1] == "writing"
    assert phases.count("writing") == 1
    assert "this process's" not in (tmp_path / "a").read_text()
    said = []
    monkeypatch.setattr(placed_rows, "say", said.append)
    placed_rows.say_placed(0, 150)
    monkeypatch.setattr(placed_rows, "current", lambda: types.SimpleNamespace(size=2))
    placed_rows.say_placed(0, 150)
    assert said == ["placing rows, 0 of 150", "placing rows, 0 of this process's 150"]


def test_one_process_continues_what_two_began_when_one_of_them_is_killed(rows, tmp_path):
    words = ["fit", str(rows), *COMMAND, "--set", "max_iter=300", "--set", "tol=0", "--out"]
    checkpoint = tmp_path / "run" / "checkpoint.ckpt"
    started = job(*words, tmp_path / "run")
    while started.poll() is None and not (
        checkpoint.is_file() and checkpoint.stat().st_size > 1500
    ):
        time.sleep(0.01)
    os.kill(workers(started.pid)[-1], signal.SIGKILL)
    _, errors = started.communicate()
    assert started.returncode != 0
    # torchrun ends the other one, unless it has noticed before
    assert "To continue: " in errors or "all processes to the end of the fit" in errors, errors
    done = run(*words, tmp_path / "run", "--resume")
    assert done.exit_code == 0, done.stderr
    assert run(*words, tmp_path / "whole").exit_code == 0
    same(
        bo.load(tmp_path / "run" / "model.bochner"),
        bo.load(tmp_path / "whole" / "model.bochner"),
    )
    assert not checkpoint.exists()
