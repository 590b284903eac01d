"""The protocol of benchmarks/krein.py: nothing is scaled or chosen by test rows, and the linear SVM
is scikit-learn's.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from sklearn.svm import LinearSVC

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def module(monkeypatch):
    """Import a program of benchmarks/."""
    monkeypatch.syspath_prepend(str(FOLDER))
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if str(FOLDER) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def rows(n_classes=2, n=300, d=6):
    return make_blobs(n, d, centers=n_classes, cluster_std=6.0, random_state=0)


@pytest.mark.parametrize(("n", "d"), [(300, 6), (40, 60)])
@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("C", [0.01, 10.0])
def test_the_linear_svm_is_the_one_of_scikit_learn(module, n, d, n_classes, C):
    X, y = rows(n_classes, n, d)
    ours = module("linear_svm").SquaredHinge(C).fit(X, y)
    theirs = LinearSVC(C=C, dual=False, tol=1e-10, max_iter=100_000).fit(X, y)
    np.testing.assert_allclose(ours.coef_[:, :-1], theirs.coef_, rtol=1e-2, atol=1e-4)
    assert np.mean(ours.predict(X) == theirs.predict(X)) > 0.99


def test_from_one_penalty_to_the_next_minima_are_those_from_the_start(module):
    svm = module("linear_svm")
    X, y = rows()
    path = svm.minima(X, y, (0.01, 1.0, 100.0))
    for C, coef in zip((0.01, 1.0, 100.0), path, strict=True):
        np.testing.assert_allclose(coef, next(svm.minima(X, y, (C,))), rtol=1e-2, atol=1e-3)


def test_the_penalty_is_chosen_without_the_test_rows(module):
    svm = module("linear_svm")
    X, y = rows()
    half = len(X) // 2
    train, test = (X[:half], y[:half]), (X[half:], y[half:])
    first = svm.accuracy(train, test, seed=0)
    other = svm.accuracy(train, (test[0], 1 - test[1]), seed=0)
    assert first["C"] == other["C"]
    assert other["accuracy"] == pytest.approx(1 - first["accuracy"])


def test_every_penalty_is_tried(module):
    """Accuracy may fall with the first of them and rise again with larger ones, as on skin."""
    svm = module("linear_svm")
    assert tuple(svm.validated(*rows())) == svm.PENALTIES


def test_columns_are_scaled_by_the_training_rows(module, monkeypatch):
    krein = module("krein")
    source = np.random.default_rng(0)
    X, y = source.normal(size=(40, 3)), np.arange(40) % 2
    monkeypatch.setattr(krein, "data_of", lambda _name: (X, y))
    train, _, test, _ = krein.halves("made", 1)
    np.testing.assert_array_equal((train.min(0), train.max(0)), (np.zeros(3), np.ones(3)))
    order = np.random.default_rng(1).permutation(40)
    X[order[20:]] *= 10  # the test rows
    again, _, beyond, _ = krein.halves("made", 1)
    np.testing.assert_array_equal(again, train)
    assert beyond.min() == 0
    assert beyond.max() == 1
    assert not np.array_equal(beyond, test)


def test_spherical_features_of_tl1_follow_its_mean_at_a_distance(module):
    krein = module("krein")
    X = np.random.default_rng(0).uniform(size=(400, 8))
    features = krein.RadialFeatures(4096, 0).fit(X[:300])
    result = krein.errors(features, "SphericalFeatures", "tl1", X[300:])
    # what no function of the distance can have, and the draw of the frequencies
    assert 0.01 < result["error"] < 0.08
