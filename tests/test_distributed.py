"""Two and three processes of gloo give the fit of one."""

from __future__ import annotations

import functools
import json
import logging
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from torch.distributed import HashStore

import bochner as bo
from bochner.errors import InputError
from bochner.fitting import landmarks
from bochner.io.extensions import shards
from bochner.latent_inference.infer import Placer
from bochner.model_selection import calibrate
from bochner.processes import Watch
from bochner.processes.meeting import common_mark

SUPPORT = Path(__file__).parent / "support"
sys.path.insert(0, str(SUPPORT))

import fit_in_processes  # noqa: E402 - in the folder of what tests share
from fit_in_processes import CALIBRATED  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:Training stopped")


CODE = f"""
import sys
sys.path.insert(0, {str(SUPPORT)!r})
from fit_in_processes import main
main()
"""


@pytest.fixture(scope="module")
def launch(forks):
    """Return a function that runs processes until all have ended: their exit codes, and what they
    wrote.
    """

    def run(case, count, folder):
        ended = forks.group(CODE, case, folder, count=count)
        return [one.returncode for one in ended], [one.stderr for one in ended]

    return run


@functools.cache
def one():
    """Return the fit of one process to which those of several are compared."""
    return fit_in_processes.fitted("one", fit_in_processes.data())


CASES = {
    2: (
        "one",
        "columns",
        "holes",
        "device",
        "poisson",
        "beside",
        "bernoulli",
        "dirichlet",
        "covariates",
        "shards",
    ),
    3: ("two", "stored", "absent", "negative_binomial", "covariates_counts"),
}


@pytest.fixture(scope="module")
def fitted(tmp_path_factory, launch):
    """Return what a number of processes wrote: they fit their cases one after the other."""

    @functools.cache
    def by(count):
        folder = tmp_path_factory.mktemp("processes")
        for case in CASES[count]:
            X = fit_in_processes.with_holes(fit_in_processes.data(), case)
            np.save(folder / f"{case}.npy", X)
        refused = ["refused"] if count == 2 else []
        codes, texts = launch(",".join([*refused, *CASES[count]]), count, folder)
        assert codes == [0] * count, "\n".join(texts)
        return folder

    return by


@pytest.mark.parametrize(
    ("count", "case"), [(count, case) for count, cases in CASES.items() for case in cases]
)
def test_processes_give_the_fit_of_one(count, case, fitted):
    folder = fitted(count)
    X = np.load(folder / f"{case}.npy")
    expected = (
        one() if case in ("one", "stored", "shards") else fit_in_processes.fitted(case, X)
    )
    parts = [np.load(folder / f"{case}{rank}.npz") for rank in range(count)]
    assert {float(part["elbo"]) for part in parts} == {float(parts[0]["elbo"])}
    # single precision's products of other rows: noise per column weighs them more
    # and steps beside covariates enlarge it
    rel = 1e-6 if case in ("columns", "covariates") else 1e-7
    assert float(parts[0]["elbo"]) == pytest.approx(expected.elbo_, rel=rel)
    embedding = np.concatenate([part["embedding"] for part in parts])
    spread = expected.embedding_.std(axis=0)
    assert (np.abs(embedding - expected.embedding_) / spread).max() < 1e-4
    saved = bo.load(folder / f"{case}.bochner")
    np.testing.assert_array_equal(saved.embedding_, embedding)
    given = {name: values[:5] for name, values in fit_in_processes.beside()[0].items()}
    known = {"covariates": given} if case.startswith("covariates") else {}
    if case == "covariates_counts":
        known["size_factors"] = {"left": fit_in_processes.beside()[1][:5]}
    np.testing.assert_allclose(saved.transform(X[:5], **known), embedding[:5], atol=1e-6)


@pytest.mark.parametrize(
    ("count", "case"),
    [(n, case) for n, cases in CASES.items() for case in cases if case in CALIBRATED],
)
def test_processes_calibrate_as_one_does(count, case, fitted, monkeypatch):
    folder = fitted(count)
    X = np.load(folder / f"{case}.npy")
    found = [json.loads((folder / f"{case}{rank}.json").read_text()) for rank in range(count)]
    assert all(one == found[0] for one in found)
    monkeypatch.setattr(calibrate, "_PLACED", calibrate._PLACED)
    what, views = fit_in_processes.calibrated(bo.load(folder / f"{case}.bochner"), X, case)
    assert found[0][0] == what
    assert ("in a sample of 100 of 300 rows" in what) == case.startswith("covariates")
    assert list(found[0][1]) == list(views)
    for view, values in views.items():
        np.testing.assert_allclose(found[0][1][view], values, rtol=1e-7)


def test_what_several_processes_cannot_calibrate_all_refuse(fitted):
    said = [(fitted(2) / f"later{rank}.txt").read_text() for rank in range(2)]
    assert said[0] == said[1]
    draws, columns, covariates, view, selection = said[0].splitlines()
    assert draws == (
        "Expected n_draws 20, as in process 0, got 21 in process 1. Give all processes the same."
    )
    assert columns.endswith("(process 1)")
    assert "5 features" in columns
    assert "covariate" in covariates
    assert covariates.endswith("(process 1)")
    assert view.startswith("Expected hide= 'entries', 'view' or one of ['x'], got 'left'.")
    assert selection == (
        "Expected one process to select n_components, got 2. Call it outside of distributed(), "
        "with some of the rows."
    )


def test_a_group_of_one_process_fits_as_without(tmp_path, launch):
    X = fit_in_processes.data()
    np.save(tmp_path / "one.npy", X)
    codes, texts = launch("one", 1, tmp_path)
    assert codes == [0], "\n".join(texts)
    assert float(np.load(tmp_path / "one0.npz")["elbo"]) == one().elbo_


def test_one_process_trains_and_each_places_a_part_of_what_all_know(tmp_path, launch):
    codes, texts = launch("work", 2, tmp_path)
    assert codes == [0, 0], "\n".join(texts)
    parts = [np.load(tmp_path / f"work{rank}.npz") for rank in range(2)]
    assert [int(part["trained"]) for part in parts] == [1, 0]
    # 150 rows of its own, and 150 of the 300 that reports look at
    assert [int(part["placed"]) for part in parts] == [300, 300]


def test_what_one_process_refuses_all_refuse(fitted):
    said = [(fitted(2) / f"{rank}.txt").read_text() for rank in range(2)]
    assert said[0] == said[1]
    infinite, columns, landmarks, rows, *others = said[0].splitlines()
    assert "got inf in view 'x', row 3, column 2" in infinite
    assert infinite.endswith("(process 1)")
    assert columns.startswith("Expected columns 6, as in process 0, got 5 in process 1.")
    assert landmarks.startswith("Expected landmarks in several processes, got none.")
    assert rows == (
        "Expected rows in every process, got none in one. Start fewer processes, or give every "
        "one some rows. (process 1)"
    )
    differ = (
        ("numbers of type float64", "float32"),
        ("names a, b, c, d, e, f", "a, b, c, d, e, g"),
        ("likelihood 'gaussian'", "'poisson'"),
    )
    kinds = (
        "likelihood='binomial'",
        "a sparse X",
        "a mixed table",
        "missing entries and a noise variance per column",
        "the sampler of RFLVM",
    )
    assert others == [
        *(
            f"Expected {first}, as in process 0, got {second} in process 1. Give all processes "
            "the same."
            for first, second in differ
        ),
        *(
            "Expected Gaussian, Bernoulli or count rows in several processes, got "
            f"{kind}. Fit them in one process."
            for kind in kinds
        ),
        "Expected starts by name in several processes, got an array. Name a start, such as "
        "init='pca'.",
        "Expected size factors given, as in process 0, got none in process 1. Give all "
        "processes the same.",
        "Expected positive size factors for view 'x', got -1 in row 0. Drop the row, or correct "
        "its factor. (process 1)",
    ]


def test_the_end_of_one_process_ends_all_with_its_message(tmp_path, launch):
    codes, texts = launch("killed", 2, tmp_path)
    assert 0 not in codes
    assert texts[1].strip().splitlines()[-1].endswith("RuntimeError: no luck")
    assert "process 1: RuntimeError: no luck" in texts[0].strip().splitlines()[-1]


def test_an_interrupt_of_one_process_interrupts_all(tmp_path, launch):
    codes, texts = launch("interrupted", 2, tmp_path)
    assert 0 not in codes
    # the first one, too, which says how to go on
    said = texts[0].strip().splitlines()[-1]
    assert said == "KeyboardInterrupt: process 1: KeyboardInterrupt: no luck"


def test_one_process_goes_on_from_the_rows_that_three_have_placed(
    tmp_path, monkeypatch, launch
):
    X, expected = fit_in_processes.data(), one()
    codes, _ = launch("cut", 3, tmp_path)
    assert 0 not in codes
    checkpoint = tmp_path / "run.ckpt"
    assert len(shards(checkpoint)) == 3
    placed = []
    place = Placer.place

    def watched(self, rows, *given, **more):
        if not more.get("polish", True):
            placed.append(len(rows[0]))
        return place(self, rows, *given, **more)

    monkeypatch.setattr(Placer, "place", watched)
    settings = {**fit_in_processes.SETTINGS, "checkpoint": checkpoint}
    model = bo.NGMVLVM(**settings).fit(X)
    assert not placed
    assert model.elbo_ == pytest.approx(expected.elbo_, rel=1e-7)
    assert not list(tmp_path.glob("run.ckpt*"))


@pytest.mark.parametrize(("before", "after"), [(1, 3), (2, 2), (3, 1)])
def test_joint_steps_go_on_in_any_number_of_processes(before, after, tmp_path, launch):
    codes, texts = launch("steps", before, tmp_path)
    assert 0 not in codes
    assert "no luck" in texts[0]
    assert [file for file in shards(tmp_path / "run.ckpt") if "-step" in file.name]
    if before == after:
        codes, texts = launch("other", after, tmp_path)
        assert codes == [0] * after, "\n".join(texts)
        text = "run.ckpt, which belongs to other data or settings. Delete it or name another"
        for rank in range(after):
            assert text in (tmp_path / f"{rank}.txt").read_text()
    codes, texts = launch("resumed", after, tmp_path)
    assert codes == [0] * after, "\n".join(texts)
    parts = [np.load(tmp_path / f"resumed{rank}.npz") for rank in range(after)]
    assert {int(part["steps"]) for part in parts} == {landmarks.JOINT_STEPS - 12}
    assert not list(tmp_path.glob("run.ckpt*"))
    if before == after:
        # to the last bit
        (tmp_path / "whole").mkdir()
        codes, texts = launch("resumed", after, tmp_path / "whole")
        assert codes == [0] * after, "\n".join(texts)
        for rank, part in enumerate(parts):
            whole = np.load(tmp_path / "whole" / f"resumed{rank}.npz")
            assert float(whole["elbo"]) == float(part["elbo"])
            np.testing.assert_array_equal(whole["embedding"], part["embedding"])
    expected = one()
    assert float(parts[0]["elbo"]) == pytest.approx(expected.elbo_, rel=1e-7)
    embedding = np.concatenate([part["embedding"] for part in parts])
    spread = expected.embedding_.std(axis=0)
    assert (np.abs(embedding - expected.embedding_) / spread).max() < 1e-4


def test_a_process_that_fails_and_lives_ends_the_others_and_blocks_follow(tmp_path, launch):
    codes, texts = launch("blocks", 2, tmp_path)
    assert codes == [0, 0], "\n".join(texts)
    assert (tmp_path / "1.txt").read_text() == "no luck"
    assert "process 1: RuntimeError: no luck" in (tmp_path / "0.txt").read_text()
    for number in range(2):
        bounds = [float(np.load(tmp_path / f"block{number}{r}.npz")["elbo"]) for r in range(2)]
        assert bounds[0] == bounds[1]


def test_a_process_for_which_others_wait_is_named():
    store, said, texts = HashStore(), threading.Event(), []

    class Heard(logging.Handler):
        def emit(self, record):
            texts.append(record.getMessage())
            said.set()

    handler = Heard()
    logging.getLogger("bochner").addHandler(handler)
    first, *_ = [Watch(store, rank, 3, seconds=0.01) for rank in range(3)]
    second = Watch(store, 1, 3, seconds=1e6)
    try:
        with second.waiting(), first.waiting():
            assert said.wait()
    finally:
        logging.getLogger("bochner").removeHandler(handler)
    assert texts == ["The other processes have waited 0.01 s for process 2."]


def test_without_a_group_the_message_says_how_to_start_one():
    with pytest.raises(InputError, match="Start it with torchrun"), bo.distributed():
        pass


def test_processes_find_each_other_where_others_ended_before():
    store, marks = HashStore(), {}
    # a process that ended before the others came, and all of a group that met
    store.set("bochner/here/2", "ended")

    def meet(ranks, size=3):
        def of(rank):
            marks[rank] = common_mark(store, rank, size)

        threads = [threading.Thread(target=of, args=(rank,)) for rank in ranks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return {marks[rank] for rank in ranks}

    (first,) = meet(range(3))
    (second,) = meet([2, 1, 0])
    # fewer than before
    (third,) = meet([1, 0], size=2)
    assert len({first, second, third}) == 3


def test_torchrun_starts_killed_processes_again_and_they_go_on(tmp_path):
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    words += ["--nproc-per-node", "2", "--max-restarts", "1"]
    words += [str(SUPPORT / "fit_in_processes.py"), "killed_once", str(tmp_path)]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "killed").exists()
    parts = [np.load(tmp_path / f"again{rank}.npz") for rank in range(2)]
    assert [bool(part["again"]) for part in parts] == [True, True]
    # rows stay where they were placed
    assert [int(part["spread"]) for part in parts] == [0, 0]
    expected = one()
    assert {float(part["elbo"]) for part in parts} == {float(parts[0]["elbo"])}
    assert float(parts[0]["elbo"]) == pytest.approx(expected.elbo_, rel=1e-7)
    assert not list(tmp_path.glob("run.ckpt*"))
