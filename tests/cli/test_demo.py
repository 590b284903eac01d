"""The demo's logic at small size: its keys, its split, its files."""

import csv
import os
import warnings
from pathlib import Path

import numpy as np
import pytest

import bochner as bo
from bochner import demo
from bochner.errors import InputError
from helpers.cli import refused

KEYS = [
    "completion_rmse",
    "ridge_rmse",
    "kernel_ridge_rmse",
    "knn_rmse",
    "mean_rmse",
    "knn1",
    "knn10",
    "pca_knn1",
    "pca_knn10",
    "elbo",
    "seconds",
    "files",
]


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    out = tmp_path_factory.mktemp("demo")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return out, demo.run(demo.DemoOptions(out, n_components=2, n_rows=100, max_iter=5))


def test_the_keys_are_those_of_the_api(result):
    assert list(result[1]) == KEYS
    assert all(np.isfinite(value) for key, value in result[1].items() if key != "files")


def test_the_files_are_there_and_can_be_read(result):
    out, values = result
    assert {path.name for path in out.iterdir()} == {
        path.rsplit("/", 1)[-1] for path in values["files"]
    }
    assert {"latent.png", "completions.png", "bound.png", "kernels.png"} <= {
        path.name for path in out.iterdir()
    }
    model = bo.load(out / "model.bochner")
    rows = list(csv.reader((out / "embedding.csv").open()))
    assert rows[0] == ["z0", "z1", "z0_std", "z1_std"]
    np.testing.assert_array_equal(np.array(rows[1:], dtype=float)[:, :2], model.embedding_)


def test_four_fifths_are_fitted_and_no_row_is_on_both_sides(tmp_path):
    split = demo.split(demo.DemoOptions(tmp_path))
    assert len(split.train) == 1437
    assert len(split.test) == 360
    assert len(np.unique(np.vstack([split.train, split.test]), axis=0)) == 1797
    again = demo.split(demo.DemoOptions(tmp_path, seed=1))
    assert not np.array_equal(split.train, again.train)


def test_the_peers_are_what_they_are_called(result, tmp_path):
    values = demo.split(demo.DemoOptions(tmp_path, n_rows=100))
    lower = values.test[:, 32:]
    expected = float(np.sqrt(np.mean((lower - values.train[:, 32:].mean(axis=0)) ** 2)))
    assert result[1]["mean_rmse"] == pytest.approx(expected)
    names = ("ridge_rmse", "kernel_ridge_rmse", "knn_rmse")
    assert len({result[1][name] for name in names}) == len(names)
    assert all(result[1][name] < expected for name in names)


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="--out to be a folder"):
        demo.run(demo.DemoOptions(tmp_path / "file"))


@pytest.mark.parametrize("name", ["model.bochner", "relevance.png", "report.html"])
def test_files_that_are_there_are_replaced_only_by_force(tmp_path, name):
    (tmp_path / name).write_text("mine")
    got = f"{tmp_path / name}, which exists. Choose another folder for --out, or add --force"
    assert got in refused("demo", "--out", tmp_path)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]


def test_make_demo_runs_twice(result):
    out, values = result
    options = demo.DemoOptions(out, n_components=2, n_rows=40, max_iter=3, force=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert demo.run(options)["files"] == values["files"]
    makefile = (Path(__file__).parents[2] / "Makefile").read_text()
    assert "bochner demo --out demo --force\n" in makefile


def test_a_folder_that_cannot_be_written_is_refused_before_the_fit(tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda _, mode: not mode & os.W_OK)
    monkeypatch.setattr(demo, "split", None)
    said = refused("demo", "--out", tmp_path)
    assert said == f"Expected a folder to write to, got {tmp_path} without permission. " + (
        "Choose another place."
    )
