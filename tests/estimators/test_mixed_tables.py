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
