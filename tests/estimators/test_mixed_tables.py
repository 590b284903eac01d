"""Mixed tables: categories beside numbers are completed by what their rows say."""

import numpy as np
import pandas as pd
import pytest

import bochner as bo

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def test_three_categories_along_one_latent_are_completed():
    right = []
    for seed in (100, 101, 102):
        rng = np.random.default_rng(seed)
        x = rng.standard_normal(80)
        site = np.where(x < -0.5, "north", np.where(x < 0.5, "east", "west"))
        people = pd.DataFrame(
            {"height": 170 + 8 * x + rng.standard_normal(80), "site": pd.Categorical(site)}
        )
        hidden = rng.random(80) < 0.25
        holes = people.assign(site=people["site"].mask(hidden))
        model = bo.NGMVLVM(
            1, likelihood="auto", n_frequencies=8, init="pca", max_iter=50, random_state=0
        )
        completed = model.fit(holes).impute(holes)
        right.append((completed["site"][hidden] == people["site"][hidden]).mean())
    assert np.mean(right) > 0.8, right


@pytest.mark.parametrize("columns", [["x", "bought", "weight"], ["x", "bought"]])
def test_holes_do_not_make_zeros_and_ones_numbers(columns):
    rng = np.random.default_rng(0)
    z = rng.normal(size=120)
    table = pd.DataFrame(
        {
            "x": z + 0.3 * rng.normal(size=120),
            "bought": (z > 0).astype(int),
            "weight": 1000 * z + 200 * rng.normal(size=120),
        }
    )[columns]
    holes = table.mask(rng.random(table.shape) < 0.2).dropna(how="all")
    assert holes["bought"].dtype == float
    for rows in (table, holes):
        model = bo.NGMVLVM(1, likelihood="auto", init="pca", max_iter=20, random_state=0)
        completed = model.fit(rows).impute(rows)
        assert model.likelihood_ == {"numbers": "gaussian", "binary": "bernoulli"}
        assert completed["bought"].dtype == rows["bought"].dtype
        assert set(completed["bought"]) == {0, 1}


def test_an_image_with_pixels_of_two_values_stays_one_view():
    X = pd.DataFrame(np.random.default_rng(0).integers(0, 17, (60, 6)).astype(float))
    X[5] = X[5] > 8
    X[5] = X[5].astype(float)
    model = bo.NGMVLVM(1, likelihood="auto", init="pca", max_iter=5, random_state=0).fit(X)
    assert list(model.likelihood_) == ["x"]


def test_an_image_of_fractions_with_a_pixel_of_two_values_stays_one_view():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.integers(0, 256, (60, 12)) / 255)
    X[5] = (X[5] > 0.5).astype(float)
    model = bo.NGMVLVM(1, likelihood="auto", init="pca", max_iter=5, random_state=0)
    assert list(model.fit(X).likelihood_) == ["x"]
    # of few columns one of zeros and ones says what was bought
    assert set(model.fit(X[[1, 2, 5]]).likelihood_) == {"numbers", "binary"}
