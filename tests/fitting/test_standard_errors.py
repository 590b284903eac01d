"""The error of the bound is no smaller than what bounds over other draws differ by."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from bochner import AdvisedRFLVM
from bochner.fitting import data as fitting_data
from bochner.fitting.plan import evaluate, mean_of_draws


def _rms(means, errors):
    return float(((means / errors) ** 2).mean().sqrt())


@pytest.mark.parametrize(
    ("n", "shape", "most"),
    [(4, 0, 1.05), (8, 0, 1.05), (32, 0, 1.05), (8, 3, 1.15), (32, 1, 1.1)],
)
def test_errors_of_few_and_of_skewed_draws_cover_their_means(n, shape, most):
    """Shape 0: normal; else gamma, with skewness 2 over its root."""
    source = np.random.default_rng(0)
    size = (n, 20_000)
    drawn = source.normal(size=size) if not shape else shape - source.gamma(shape, size=size)
    rms = _rms(*mean_of_draws(torch.from_numpy(drawn)))
    plain = drawn.std(axis=0, ddof=1) / np.sqrt(n)
    without = np.sqrt(np.square(drawn.mean(axis=0) / plain).mean())
    assert 0.9 < rms < most
    assert without > rms


def test_equal_draws_have_no_error():
    mean, error = mean_of_draws(torch.full((8, 2), 3.0))
    assert mean.tolist() == [3.0, 3.0]
    assert error.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("n_frequencies", "share"), [(1, 0.0), (2, 0.2), (16, 0.2)], ids=["1", "2, holes", "holes"]
)
def test_bounds_over_other_draws_lie_within_their_errors(monkeypatch, n_frequencies, share):
    """Eight draws where there are holes, but for few frequencies."""
    seen = []
    true = fitting_data.evaluate

    def remembered(model, data, plan, *args, **kwargs):
        seen[:] = [(model, data, plan)]
        return true(model, data, plan, *args, **kwargs)

    monkeypatch.setattr(fitting_data, "evaluate", remembered)
    source = np.random.default_rng(0)
    X = np.sin(source.normal(size=(30, 1)) * np.arange(1, 6)) + source.normal(
        0.0, 0.1, size=(30, 5)
    )
    X[source.random(X.shape) < share] = np.nan
    settings = {"max_iter": 20, "n_init": 1, "init": "pca", "random_state": 0}
    with pytest.warns(UserWarning, match="max_iter"):
        AdvisedRFLVM(1, n_frequencies=n_frequencies, **settings).fit(X)
    model, data, plan = seen[0]
    found = np.array(
        [
            evaluate(model, data, replace(plan, seed=seed), "final", weighted=False)
            for seed in range(100, 160)
        ]
    )
    away = (found[:, 0] - found[:, 0].mean()) / found[:, 1]
    # the root mean square of 60 scatters by a tenth
    assert np.sqrt(np.square(away).mean()) < 1.25
