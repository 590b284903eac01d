"""``views_``: which columns of X every view has."""

import numpy as np
import pandas as pd
import pytest

import bochner as bo

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def _fitted(X, views=None):
    model = bo.NGMVLVM(1, views=views, n_frequencies=4, init="pca", max_iter=2, random_state=0)
    return model.fit(X)


def test_views_are_numbers_of_columns_however_they_were_named(rng, tmp_path):
    X = pd.DataFrame(rng.normal(size=(20, 5)), columns=list("abcde"))
    model = _fitted(X, {"left": ["d", "a"], "right": ["b", "c", "e"]})
    assert {name: positions.tolist() for name, positions in model.views_.items()} == {
        "left": [3, 0],
        "right": [1, 2, 4],
    }
    model.save(tmp_path / "model.safetensors")
    loaded = bo.load(tmp_path / "model.safetensors")
    for name, positions in model.views_.items():
        np.testing.assert_array_equal(loaded.views_[name], positions)


def test_one_view_has_all_columns(rng):
    (columns,) = _fitted(rng.normal(size=(20, 3))).views_.values()
    assert columns.tolist() == [0, 1, 2]
