"""Passes over all rows go on from wherever they were cut, to the same last bit."""

from __future__ import annotations

import functools
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import bochner as bo
from bochner.errors import ModelFileError, NumericalWarning, StorageError, StorageWarning
from bochner.fitting import landmarks, row_selection
from bochner.fitting.row_passes import KeptPasses, Pace
from bochner.io import files
from bochner.io.extensions import passes_file, shards

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import fit_in_processes

pytestmark = [
    pytest.mark.filterwarnings("ignore:Training stopped"),
    pytest.mark.filterwarnings("ignore:Step 12 was undone"),
]
X = fit_in_processes.data()


class CutShortError(Exception):
    """What ends a fit in the tests."""


@pytest.fixture(autouse=True)
def at_every_step(monkeypatch):
    """Keep every step, in several files."""
    kept = functools.partial(KeptPasses, pace=Pace(0.0, 0.0, 130))
    monkeypatch.setattr(row_selection, "KeptPasses", kept)


def fitted(path=None, **settings):
    return bo.NGMVLVM(**{**fit_in_processes.SETTINGS, "checkpoint": path, **settings}).fit(X)


def same(model, expected):
    assert model.elbo_ == expected.elbo_
    assert model.landmarks_ == expected.landmarks_
    np.testing.assert_array_equal(model.embedding_, expected.embedding_)
    for ours, theirs in zip(model._fit.posterior, expected._fit.posterior, strict=True):
        for one, other in zip(ours.draws, theirs.draws, strict=True):
            assert one.mean.equal(other.mean)


def cut_at_step(monkeypatch, step):
    """End the fit in a joint step; return what its bounds are of."""
    plain, steps = landmarks.elbo_at, []

    def cut(*given, **options):
        steps.append(0)
        if len(steps) > step:
            raise CutShortError
        return plain(*given, **options)

    monkeypatch.setattr(landmarks, "elbo_at", cut)
    return plain


def cut_after_passes(monkeypatch):
    """End the next fit once its passes are over; those that follow go on."""
    condition = bo.fitting.fit.condition
    calls = []

    def cut(*given, **more):
        calls.append(0)
        if len(calls) == 1:
            raise CutShortError
        return condition(*given, **more)

    monkeypatch.setattr(bo.fitting.fit, "condition", cut)


@pytest.mark.parametrize("step", [0, 1, 9, 10, 11, 19])
def test_joint_steps_go_on_where_they_were_cut(step, tmp_path, monkeypatch):
    path = tmp_path / "run.ckpt"
    expected = fitted()
    plain = cut_at_step(monkeypatch, step)
    with pytest.raises(CutShortError):
        fitted(path)
    left = []
    monkeypatch.setattr(
        landmarks, "elbo_at", lambda *given, **more: left.append(0) or plain(*given, **more)
    )
    same(fitted(path), expected)
    assert len(left) == landmarks.JOINT_STEPS - step
    assert not list(tmp_path.iterdir())


def test_a_step_that_is_undone_after_a_cut_is_undone_to_the_same_state(tmp_path, monkeypatch):
    """The thirteenth step fails, and is undone to the tenth; cuts come before it and after."""
    path = tmp_path / "run.ckpt"
    plain = landmarks.elbo_at

    def failing(cut):
        seen = []

        def bound(model, x, kl, data, draws, how):
            value = plain(model, x, kl, data, draws, how)
            seen.append(0)
            if len(seen) == cut:
                raise CutShortError
            far = float(x.detach().sum()) in faults
            return replace(value, total=value.total * np.nan) if far else value

        return bound

    sums = []
    monkeypatch.setattr(
        landmarks,
        "elbo_at",
        lambda model, x, *rest: sums.append(float(x.detach().sum())) or plain(model, x, *rest),
    )
    fitted()
    # the thirteenth step, wherever it is taken
    faults = {sums[12]}
    monkeypatch.setattr(landmarks, "elbo_at", failing(0))
    with pytest.warns(NumericalWarning, match="Step 12 was undone"):
        expected = fitted()
    for cut in (12, 13, 16):
        monkeypatch.setattr(landmarks, "elbo_at", failing(cut))
        with pytest.raises(CutShortError):
            fitted(path)
        monkeypatch.setattr(landmarks, "elbo_at", failing(0))
        same(fitted(path), expected)


@pytest.mark.parametrize("call", [1, 2])
def test_bounds_that_were_found_are_not_found_again(call, tmp_path, monkeypatch):
    path = tmp_path / "run.ckpt"
    expected = fitted()
    plain, names = row_selection.evaluate, []

    def counted(*given, **more):
        names.append(given[3])
        if len(names) == call:
            raise CutShortError
        return plain(*given, **more)

    monkeypatch.setattr(row_selection, "evaluate", counted)
    with pytest.raises(CutShortError):
        fitted(path)
    names[:] = [""] * call
    same(fitted(path), expected)
    assert len(names) == call + (2 if call == 1 else 1)


def test_a_fit_that_is_cut_after_its_last_pass_makes_none_again(tmp_path, monkeypatch):
    path = tmp_path / "run.ckpt"
    expected = fitted()
    cut_after_passes(monkeypatch)
    with pytest.raises(CutShortError):
        fitted(path)

    def never(*_, **__):
        raise AssertionError("a pass")

    for name in ("evaluate", "final_bound", "_for_many_passes"):
        monkeypatch.setattr(row_selection, name, never)
    same(fitted(path), expected)


def test_the_bound_of_counts_is_not_found_again(tmp_path, monkeypatch):
    counts = fit_in_processes.with_holes(X, "poisson")
    settings = {**fit_in_processes.SETTINGS, **fit_in_processes.COUNTS["poisson"]}
    expected = bo.NGMVLVM(**settings).fit(counts)
    cut_after_passes(monkeypatch)
    settings["checkpoint"] = tmp_path / "run.ckpt"
    with pytest.raises(CutShortError):
        bo.NGMVLVM(**settings).fit(counts)
    monkeypatch.setattr(landmarks, "evaluate_anchored", None)
    same(bo.NGMVLVM(**settings).fit(counts), expected)


def test_rows_that_are_missing_let_the_steps_begin_again(tmp_path, monkeypatch):
    path = tmp_path / "run.ckpt"
    expected = fitted()
    plain = cut_at_step(monkeypatch, 5)
    with pytest.raises(CutShortError):
        fitted(path)
    steps = [file for file in shards(path) if "-step" in file.name]
    assert len(steps) == 3
    steps[1].unlink()
    monkeypatch.setattr(landmarks, "elbo_at", plain)
    same(fitted(path), expected)


def test_a_damaged_file_is_named(tmp_path, monkeypatch):
    path = tmp_path / "run.ckpt"
    plain = cut_at_step(monkeypatch, 5)
    with pytest.raises(CutShortError):
        fitted(path)
    monkeypatch.setattr(landmarks, "elbo_at", plain)
    for file in (shards(path)[-1], passes_file(path)):
        content = file.read_bytes()
        file.write_bytes(content[:-3])
        with pytest.raises(ModelFileError, match=file.name):
            fitted(path)
        file.write_bytes(content)
    fitted(path)


def test_a_full_disk_costs_what_is_kept_and_not_the_fit(tmp_path, monkeypatch):
    path = tmp_path / "run.ckpt"
    expected = fitted()
    plain = files.write

    def full(path, *given):
        if "-step" in str(path):
            raise StorageError("no room")
        plain(path, *given)

    monkeypatch.setattr(files, "write", full)
    with pytest.warns(StorageWarning, match="Steps over all rows are not kept: no room"):
        same(fitted(path), expected)
