"""Checkpoints: a fit that was stopped and continued is the fit that never stopped, bit for bit."""

import errno
import functools
import os
import pathlib

import numpy as np
import pytest
import torch

from bochner import NGMVLVM, SRFLVM, RandomFeatureLVM
from bochner.errors import (
    InputError,
    ModelFileError,
    NumericalWarning,
    StorageError,
    StorageWarning,
)
from bochner.fitting import landmarks, plan
from bochner.fitting import multistart as race
from bochner.io import extensions, files
from bochner.training import checkpoint as checkpoint_module

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    # what goes on to the same bits with few draws does so with many
    pytest.mark.usefixtures("few_draws_in_module"),
]

SETTINGS = {
    "n_frequencies": 6,
    "n_mixtures": 1,
    "max_iter": 24,
    "init": ["pca", "random"],
    "random_state": 3,
}


def _data(n: int = 30, m: int = 6, seed: int = 0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    return np.sin(x @ rng.normal(size=(2, m))) + 0.1 * rng.normal(size=(n, m))


@functools.cache
def _whole(holes: bool = False, **settings):
    """Return a fit that never stopped, for all tests that continue one of the same settings; lists
    are given as tuples.
    """
    given = {name: list(v) if isinstance(v, tuple) else v for name, v in settings.items()}
    X = _with_holes() if holes else _data()
    return NGMVLVM(**{**SETTINGS, **given}).fit(X)


@pytest.fixture(scope="module")
def begun(few_draws_in_module, tmp_path_factory):
    """The file of a fit that was interrupted."""
    path = tmp_path_factory.mktemp("begun") / "fit.ckpt"
    with pytest.MonkeyPatch.context() as patch:
        _interrupted(path, patch)
    return path.read_bytes()


def _interrupt_at(monkeypatch, step: int, after: int = 0):
    """Make the objective of step ``step`` raise KeyboardInterrupt, as Ctrl-C would, when it was
    taken so often before; returns how to undo it.
    """
    original, taken = plan.draw, []

    def draw(model, n_frequencies, sampling, seed, purpose, at, *rest):
        if purpose == "train" and at == step:
            taken.append(step)
            if len(taken) > after:
                raise KeyboardInterrupt
        return original(model, n_frequencies, sampling, seed, purpose, at, *rest)

    monkeypatch.setattr(plan, "draw", draw)
    return lambda: monkeypatch.setattr(plan, "draw", original)


def _with_holes():
    X = _data()
    X[np.random.default_rng(1).random(X.shape) < 0.1] = np.nan
    return X


def _interrupted(path, monkeypatch, step: int = 15, X=None, after: int = 0, **settings):
    undo = _interrupt_at(monkeypatch, step, after)
    model = NGMVLVM(**{**SETTINGS, "checkpoint": path, **settings})
    with pytest.warns(UserWarning, match="Interrupted: the best state, of step"):
        model.fit(_data() if X is None else X)
    undo()
    return model


@pytest.mark.parametrize(
    "step", [7, 15, 21]
)  # soon after the race, in the middle, in the decay
def test_a_fit_stopped_and_continued_is_the_fit_that_never_stopped(
    tmp_path, monkeypatch, step
):
    path, X = tmp_path / "fit.ckpt", _data()
    whole = _whole()
    stopped = _interrupted(path, monkeypatch, step)
    assert stopped.interrupted_
    assert not stopped.converged_
    assert path.exists()
    continued = NGMVLVM(**SETTINGS, checkpoint=path).fit(X)
    assert not continued.interrupted_
    np.testing.assert_array_equal(continued.embedding_, whole.embedding_)
    np.testing.assert_array_equal(continued.elbo_history_, whole.elbo_history_)
    assert continued.elbo_ == whole.elbo_
    assert continued.starts_ == whole.starts_
    assert not path.exists()  # the run is complete


def test_blocks_are_continued_too(tmp_path, monkeypatch):
    path, X, settings = (
        tmp_path / "fit.ckpt",
        _data(),
        {**SETTINGS, "n_mixtures": 3, "max_iter": 34},
    )
    whole = SRFLVM(**settings).fit(X)
    undo = _interrupt_at(monkeypatch, 25)
    with pytest.warns(UserWarning, match="Interrupted"):
        SRFLVM(**settings, checkpoint=path).fit(X)
    undo()
    continued = SRFLVM(**settings, checkpoint=path).fit(X)
    np.testing.assert_array_equal(continued.embedding_, whole.embedding_)
    np.testing.assert_array_equal(
        continued.kernels_["x"]["proportions"], whole.kernels_["x"]["proportions"]
    )
    assert len(whole.block_history_["step"]) == 3
    np.testing.assert_array_equal(
        continued.block_history_["alpha"], whole.block_history_["alpha"]
    )


def test_a_fit_that_finishes_leaves_no_checkpoint_and_a_checkpoint_changes_nothing(
    tmp_path, monkeypatch
):
    path, X, written = tmp_path / "fit.ckpt", _data(), []
    plain = _whole()
    original = checkpoint_module.Checkpoint.maybe

    def every_step(self, trainer, extra):
        self.seconds = 0.0
        original(self, trainer, extra)
        written.append(path.exists())

    monkeypatch.setattr(checkpoint_module.Checkpoint, "maybe", every_step)
    kept = NGMVLVM(**SETTINGS, checkpoint=str(path)).fit(X)
    np.testing.assert_array_equal(kept.embedding_, plain.embedding_)
    assert written
    assert all(written)
    assert list(tmp_path.iterdir()) == []


def test_a_run_killed_without_warning_continues_from_its_last_file(tmp_path, monkeypatch):
    path, X = tmp_path / "fit.ckpt", _data()
    whole = _whole()
    original = checkpoint_module.Checkpoint.maybe

    def die(self, trainer, extra):
        self.seconds = 0.0
        original(self, trainer, extra)
        if trainer.state.step == 13:
            raise SystemExit("killed")

    monkeypatch.setattr(checkpoint_module.Checkpoint, "maybe", die)
    with pytest.raises(SystemExit):
        NGMVLVM(**SETTINGS, checkpoint=path).fit(X)
    monkeypatch.setattr(checkpoint_module.Checkpoint, "maybe", original)
    continued = NGMVLVM(**SETTINGS, checkpoint=path).fit(X)
    np.testing.assert_array_equal(continued.embedding_, whole.embedding_)


@pytest.mark.parametrize("start", [0, 1, 2])
def test_an_interrupt_in_the_race_is_continued_to_the_same_bits(tmp_path, monkeypatch, start):
    path, X = tmp_path / "fit.ckpt", _data()
    settings = {**SETTINGS, "init": ["pca", "random", "laplacian"]}
    whole = _whole(init=("pca", "random", "laplacian"))
    model = _interrupted(path, monkeypatch, step=2, after=start, **settings)
    assert path.exists()
    assert np.isfinite(model.embedding_).all()
    assert len(model.elbo_history_) == model.n_iter_
    continued = NGMVLVM(**settings, checkpoint=path).fit(X)
    np.testing.assert_array_equal(continued.embedding_, whole.embedding_)
    np.testing.assert_array_equal(continued.elbo_history_, whole.elbo_history_)
    assert continued.starts_ == whole.starts_
    assert not path.exists()


@pytest.mark.parametrize("start", [0, 1, 2])
def test_starts_warmed_side_by_side_are_continued_to_the_same_bits(
    tmp_path, monkeypatch, start
):
    path, X = tmp_path / "fit.ckpt", _with_holes()
    settings = {**SETTINGS, "init": ["pca", "random", "laplacian"], "max_iter": 40}
    whole = _whole(holes=True, init=("pca", "random", "laplacian"), max_iter=40)
    _interrupted(path, monkeypatch, 2, X, start, **settings)
    continued = NGMVLVM(**settings, checkpoint=path).fit(X)
    np.testing.assert_array_equal(continued.embedding_, whole.embedding_)
    assert continued.starts_ == whole.starts_


def test_starts_that_were_raced_are_not_raced_again(tmp_path, monkeypatch):
    path, begun = tmp_path / "fit.ckpt", []
    _interrupted(path, monkeypatch, step=2, after=1)
    original = race.Race.trainer

    def trainer(self, index, latents):
        begun.append(index)
        return original(self, index, latents)

    monkeypatch.setattr(race.Race, "trainer", trainer)
    NGMVLVM(**SETTINGS, checkpoint=path).fit(_data())
    assert begun == [0, 1]  # the first is rebuilt from the file


def test_counts_are_continued_from_the_race_too(tmp_path, monkeypatch):
    path, X = tmp_path / "fit.ckpt", np.floor(np.exp(1.0 + _data()))
    settings = {**SETTINGS, "likelihood": "poisson", "max_iter": 30}
    whole = NGMVLVM(**settings).fit(X)
    for step in (2, 20):  # in the race of the second start, and in training
        after = 1 if step == 2 else 0
        _interrupted(path, monkeypatch, step, X, after, **settings)
        continued = NGMVLVM(**settings, checkpoint=path).fit(X)
        np.testing.assert_array_equal(continued.embedding_, whole.embedding_)
        assert continued.elbo_ == whole.elbo_


def test_an_interrupt_before_any_start_leaves_a_checkpoint_of_nothing(tmp_path, monkeypatch):
    path, X = tmp_path / "fit.ckpt", _data()
    whole = _whole()

    def interrupt(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(race.Race, "trainer", interrupt)
        with pytest.raises(KeyboardInterrupt):
            NGMVLVM(**SETTINGS, checkpoint=path).fit(X)
    assert path.exists()
    continued = NGMVLVM(**SETTINGS, checkpoint=path).fit(X)
    np.testing.assert_array_equal(continued.embedding_, whole.embedding_)


def test_a_fit_that_fails_at_once_leaves_no_checkpoint(tmp_path, monkeypatch):
    def fail(*arguments):
        raise InputError("of no use")

    monkeypatch.setattr(race.Race, "trainer", fail)
    with pytest.raises(InputError, match="of no use"):
        NGMVLVM(**SETTINGS, checkpoint=tmp_path / "fit.ckpt").fit(_data())
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_of_the_steps_over_all_rows_is_continued(tmp_path, monkeypatch):
    path, X = tmp_path / "fit.ckpt", _data(60)
    settings = {**SETTINGS, "landmarks": 30}
    whole = NGMVLVM(**settings).fit(X)

    def interrupt(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(landmarks, "train_jointly", interrupt)
        with pytest.warns(UserWarning, match="steps over all rows were cut short"):
            stopped = NGMVLVM(**settings, checkpoint=path).fit(X)
    assert stopped.interrupted_
    assert path.exists()
    continued = NGMVLVM(**settings, checkpoint=path).fit(X)
    np.testing.assert_array_equal(continued.embedding_, whole.embedding_)


OTHERS = {
    "data": (lambda X: X + 1e-3 * np.arange(len(X))[:, None] ** 2, {}),
    "another order of rows": (lambda X: X[::-1].copy(), {}),
    "seed": (lambda X: X, {"random_state": 4}),
    "frequencies": (lambda X: X, {"n_frequencies": 7}),
    "steps": (lambda X: X, {"max_iter": 25}),
    "rate": (lambda X: X, {"learning_rate": 0.031}),
    "starts": (lambda X: X, {"init": ["pca", "laplacian"]}),
    "views": (lambda X: X, {"views": {"a": slice(0, 3), "b": slice(3, 6)}}),
    "precision": (lambda X: X, {"dtype": "float64"}),
    "units": (lambda X: 2.0 * X, {}),
    "origin": (lambda X: X + 1.0, {}),
    "likelihood": (lambda X: X, {"likelihood": {"x": "gaussian"}}),
}


@pytest.mark.parametrize("what", OTHERS)
def test_a_checkpoint_of_other_data_or_settings_is_refused(tmp_path, begun, what):
    path = tmp_path / "fit.ckpt"
    path.write_bytes(begun)
    change, settings = OTHERS[what]
    model = NGMVLVM(**{**SETTINGS, "checkpoint": path, **settings})
    with pytest.raises(
        InputError,
        match=r"fit.ckpt, which belongs to other data or settings\. Delete it or name",
    ):
        model.fit(change(_data()))
    assert path.exists()  # refusing is not deleting


def test_a_checkpoint_of_another_kernel_is_refused(tmp_path, begun):
    path = tmp_path / "fit.ckpt"
    path.write_bytes(begun)
    with pytest.raises(InputError, match="other data or settings"):
        RandomFeatureLVM(**SETTINGS, kernel="sm", checkpoint=path).fit(_data())


def test_the_same_numbers_with_holes_elsewhere_are_other_data(tmp_path, monkeypatch):
    path, X = tmp_path / "fit.ckpt", _data()
    # the second view is the same in every row: only the mask tells the two apart
    X[:, 3:] = X[0, 3:]
    first, second = X.copy(), X.copy()
    first[4, 3:], second[9, 3:] = np.nan, np.nan
    views = {"a": slice(0, 3), "b": slice(3, 6)}
    with pytest.warns(UserWarning, match="Constant columns"):
        _interrupted(path, monkeypatch, X=first, views=views)
    with (
        pytest.warns(UserWarning, match="Constant columns"),
        pytest.raises(InputError, match="other data or settings"),
    ):
        NGMVLVM(**SETTINGS, views=views, checkpoint=path).fit(second)


def test_a_truncated_checkpoint_is_refused(tmp_path, begun):
    path = tmp_path / "fit.ckpt"
    path.write_bytes(begun)
    whole = path.read_bytes()
    for length in (0, 5, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(
            ModelFileError,
            match=r"Expected a bochner checkpoint file, got fit\.ckpt.*cut short.*Delete it and "
            r"fit anew; bochner fit starts anew with --force\.$",
        ):
            NGMVLVM(**SETTINGS, checkpoint=path).fit(_data())


def test_a_model_is_no_checkpoint(tmp_path):
    path = tmp_path / "model"
    NGMVLVM(**SETTINGS).fit(_data()).save(path)
    with pytest.raises(
        ModelFileError, match="Expected a bochner checkpoint file, got a model file"
    ):
        NGMVLVM(**SETTINGS, checkpoint=path).fit(_data())


def test_a_checkpoint_of_a_newer_schema_is_refused(tmp_path, begun):
    path = tmp_path / "fit.ckpt"
    path.write_bytes(begun)
    tensors, header = files.read(path, "checkpoint", 1)
    files.write(path, tensors, {**header, "schema": 2})
    with pytest.raises(
        ModelFileError, match=r"Expected schema 1, got schema 2 in fit\.ckpt\. Upgrade"
    ):
        NGMVLVM(**SETTINGS, checkpoint=path).fit(_data())


def test_a_checkpoint_of_numbers_that_no_fit_has_is_refused(tmp_path, begun):
    path = tmp_path / "fit.ckpt"
    path.write_bytes(begun)
    tensors, header = files.read(path, "checkpoint", 1)
    changed = {
        name: torch.full_like(value, 1e38) if name.startswith("module.") else value
        for name, value in tensors.items()
    }
    files.write(path, changed, header)
    match = (
        r"Expected a checkpoint that can be continued, got fit\.ckpt, from which the fit fails"
    )
    with (
        pytest.raises(ModelFileError, match=match + r".*Delete it and fit anew"),
        pytest.warns(NumericalWarning),
    ):
        NGMVLVM(**SETTINGS, checkpoint=path).fit(_data())
    assert path.exists()


def test_a_folder_that_is_not_there_is_said_before_training(tmp_path, monkeypatch):
    path = tmp_path / "nowhere" / "fit.ckpt"
    undo = _interrupt_at(monkeypatch, 0)
    with pytest.raises(
        InputError, match=r"Expected a place to write to, got .*nowhere.*Choose another path"
    ):
        NGMVLVM(**SETTINGS, checkpoint=path).fit(_data())
    undo()


def test_a_folder_in_place_of_a_checkpoint_is_called_one(tmp_path):
    want = "Expected a checkpoint file, got the folder .*. Name the checkpoint file in it"
    with pytest.raises(ModelFileError, match=want):
        NGMVLVM(**SETTINGS, checkpoint=tmp_path).fit(_data())


def test_a_checkpoint_behind_a_link_is_removed_and_the_link_stays(tmp_path):
    """Another disk is where long runs are kept."""
    (tmp_path / "scratch").mkdir()
    target, link = tmp_path / "scratch" / "run.ckpt", tmp_path / "run.ckpt"
    link.symlink_to(target)
    NGMVLVM(**{**SETTINGS, "checkpoint": link}).fit(_data())
    assert link.is_symlink()
    assert list(target.parent.iterdir()) == []


def _unlink_fails(monkeypatch, name):
    """Let the disk fail where a file is removed."""
    real = pathlib.Path.unlink

    def unlink(path, missing_ok=False):
        if path.name == name:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        real(path, missing_ok=missing_ok)

    monkeypatch.setattr(pathlib.Path, "unlink", unlink)


def test_a_checkpoint_that_cannot_be_removed_costs_no_fit(tmp_path, monkeypatch):
    path = tmp_path / "run.ckpt"
    _unlink_fails(monkeypatch, path.name)
    model = NGMVLVM(**{**SETTINGS, "checkpoint": path})
    with pytest.warns(StorageWarning, match=r"run.ckpt to be removed, got Input/output error"):
        model.fit(_data())
    assert len(model.elbo_history_) == 24


def test_what_an_earlier_run_left_and_the_disk_keeps_is_a_storage_error(tmp_path, monkeypatch):
    _unlink_fails(monkeypatch, "run.ckpt.passes")
    with pytest.raises(StorageError, match=r"run.ckpt.passes to be removed, got Input/output"):
        NGMVLVM(**{**SETTINGS, "checkpoint": tmp_path / "run.ckpt"}).fit(_data())


def test_files_of_others_beside_a_checkpoint_are_none_of_its_rows(tmp_path):
    path = tmp_path / "run.ckpt"
    ours = tmp_path / "run.ckpt.rows-placed-000000000000-000000000070"
    for file in (ours, tmp_path / "run.ckpt.rows-notes.txt"):
        file.touch()
    assert extensions.shards(path) == [ours]
