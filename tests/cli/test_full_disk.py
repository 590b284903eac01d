"""Full disks: one message, exit code 3, nothing half written, and a fit continues from its
checkpoint.
"""

import json

import numpy as np
import pytest

import bochner as bo
from bochner.errors import StorageError, StorageWarning
from helpers.cli import CHAINS, replied, run
from helpers.faults import fill, room_for, small_disk

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

SETTINGS = {"n_frequencies": 6, "n_mixtures": 1, "max_iter": 20, "init": ["pca", "random"]}
SMALL = [word for name, v in SETTINGS.items() for word in ("--set", f"{name}={json.dumps(v)}")]


@pytest.fixture(scope="module")
def matrix():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 2))
    return np.sin(x @ rng.normal(size=(2, 6))) + 0.1 * rng.normal(size=(30, 6))


@pytest.fixture(scope="module")
def fitted(tmp_path_factory, matrix):
    folder = tmp_path_factory.mktemp("fitted")
    np.save(folder / "X.npy", matrix)
    replied("fit", folder / "X.npy", *SMALL, "--seed", 1, "--out", folder / "run")
    return folder


def _not_written(done):
    assert done.exit_code == 3, (done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
    assert len(lines) == 1
    return lines[0]


@pytest.mark.parametrize(
    "command",
    [
        ["transform", "X.npy", "--out", "Z.csv"],
        ["impute", "X.npy", "--out", "full.npy"],
        ["sample", "--out", "drawn.npz"],
        ["report", "X.npy", "--out", "page.html"],
        ["calibrate", "X.npy", "--out", "picture.png"],
    ],
)
def test_commands_end_in_one_message(fitted, tmp_path, command):
    name, *rest = command
    rest = [fitted / word if word == "X.npy" else word for word in rest]
    rest[-1] = tmp_path / rest[-1]
    with room_for(256):
        line = _not_written(run(name, fitted / "run", *rest))
    assert "to be written, got File too large" in line
    assert list(tmp_path.iterdir()) == []


def test_a_full_log_is_said_once_and_the_results_are_written(fitted, tmp_path):
    with small_disk(tmp_path, 2**16) as disk:
        (disk / "log").touch()
        fill(disk)
        out = fitted / "logged.csv"
        done = run(
            "transform", fitted / "run", fitted / "X.npy", "--out", out, "--log", disk / "log"
        )
        assert done.exit_code == 3
        assert done.stderr.count("log is not written on: [Errno 28] No space left") == 1
        assert "Traceback" not in done.stderr
        assert out.exists()


def test_a_fit_that_could_not_be_written_continues_from_its_checkpoint(fitted, tmp_path):
    """The disk holds the checkpoint and is full when the model is to be written."""
    arguments = ["fit", fitted / "X.npy", *SMALL, "--seed", 1, "--out"]
    with small_disk(tmp_path, 2**20) as disk:
        folder = disk / "run"
        original = bo.NGMVLVM.fit

        def fit(self, X, y=None, **options):
            original(self, X, y, **options)
            fill(disk)
            return self

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(bo.NGMVLVM, "fit", fit)
            line = _not_written(run(*arguments, folder))
        assert "The checkpoint is kept: free some space and run the command again" in line
        assert {path.name for path in folder.iterdir()} == {"checkpoint.ckpt", "seed.json"}
        (disk / "filling").unlink()
        replied(*arguments, folder, "--resume")
        assert not (folder / "checkpoint.ckpt").exists()
        assert (folder / "embedding.csv").read_text() == (
            fitted / "run" / "embedding.csv"
        ).read_text()


def test_chains_that_could_not_be_written_are_continued_and_not_drawn_again(
    fitted, tmp_path, monkeypatch
):
    """Draws of hours are on the disk until the results are."""
    fit = ["fit", fitted / "X.npy", *CHAINS]
    whole = tmp_path / "whole"
    replied(*fit, "--out", whole)
    folder = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:

        def full(*_):
            raise StorageError("No space left.")

        patch.setattr(bo.RFLVM, "save", full)
        assert "The checkpoint is kept" in _not_written(run(*fit, "--out", folder))
    assert (folder / "checkpoint.ckpt.chain1").exists()
    (folder / "checkpoint.ckpt.mine").touch()

    def drawn(*_):
        raise AssertionError("drawn again")

    monkeypatch.setattr("bochner.mcmc.model.Model.sweep", drawn)
    replied(*fit, "--out", folder, "--resume")
    first, second = (place / "embedding.csv" for place in (folder, whole))
    assert first.read_bytes() == second.read_bytes()
    # of someone else
    assert [path.name for path in folder.glob("checkpoint*")] == ["checkpoint.ckpt.mine"]


def test_a_checkpoint_that_cannot_be_written_does_not_end_training(matrix, tmp_path):
    path = tmp_path / "fit.ckpt"
    whole = bo.NGMVLVM(**SETTINGS, random_state=1).fit(matrix)
    with room_for(256), pytest.warns(StorageWarning, match="Training goes on") as warned:
        model = bo.NGMVLVM(**SETTINGS, random_state=1, checkpoint=path).fit(matrix)
    assert len([w for w in warned if w.category is StorageWarning]) == 1
    np.testing.assert_array_equal(model.embedding_, whole.embedding_)
    assert list(tmp_path.iterdir()) == []
