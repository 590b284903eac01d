"""The peers of benchmarks/multiview.py place and complete rows as their models say."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

PATH = Path(__file__).parents[2] / "benchmarks" / "view_peers.py"
VIEWS = {"a": slice(0, 20), "b": slice(20, 45), "c": slice(45, 60)}


def load():
    spec = importlib.util.spec_from_file_location("view_peers", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


peers = load()


def made(n=120):
    """Rows of three factors that all views share, with noise."""
    source = np.random.default_rng(0)
    Z, W = source.normal(size=(n, 3)), source.normal(size=(3, 60))
    return Z @ W + 0.3 * source.normal(size=(n, 60))


MAKERS = {
    "mofapy2": lambda: peers.Mofa(3, 0),
    "cca_zoo": lambda: peers.Canonical(3),
}


@pytest.mark.parametrize("package", list(MAKERS))
def test_a_missing_view_is_completed_from_the_others(package):
    pytest.importorskip(package)
    X = made()
    model = MAKERS[package]().fit(X[:100], VIEWS)
    hidden = X[100:].copy()
    hidden[:, VIEWS["b"]] = np.nan
    guess = model.complete(hidden)[:, VIEWS["b"]]
    truth = X[100:, VIEWS["b"]]
    assert np.mean((guess - truth) ** 2) < 0.1 * np.mean(truth**2)
    assert model.transform(hidden).shape == (20, 3)


@pytest.mark.parametrize("package", list(MAKERS))
def test_rows_of_the_fit_are_placed_where_the_fit_has_them(package):
    pytest.importorskip(package)
    X = made()
    model = MAKERS[package]().fit(X, VIEWS)
    np.testing.assert_allclose(model.transform(X), model.embedding_, atol=0.01)


def test_rows_are_told_by_what_they_lack():
    X = np.ones((4, 3))
    X[1, 0] = X[3, 0] = np.nan
    found = {tuple(rows.tolist()): tuple(seen.tolist()) for rows, seen in peers.patterns(X)}
    assert found == {(0, 2): (True, True, True), (1, 3): (False, True, True)}


def test_settings_are_those_that_complete_rows_left_out_best():
    pytest.importorskip("cca_zoo")
    makers = [lambda d=d: peers.Canonical(d, 0.1) for d in (1, 3)]
    assert peers.best_completion(makers, made(), VIEWS, "c") is makers[1]
