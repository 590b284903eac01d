"""Complete Gaussian rows along the directions of the means: the densities of all columns."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import bochner as bo
from bochner.latent_inference.predictive_modes import predictive_target
from bochner.prediction import row_density, row_posterior
from bochner.prediction.turned_rows import TurnedPosterior, turned

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
SETTINGS = {"n_frequencies": 8, "n_mixtures": 1, "init": "pca", "max_iter": 40}


def data(n_columns=60, n_rows=120):
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(n_rows, 2))
    return np.sin(Z @ rng.normal(size=(2, n_columns))) + 0.3 * rng.normal(
        size=(n_rows, n_columns)
    )


@pytest.fixture(scope="module")
def model():
    return bo.NGMVLVM(
        **SETTINGS, views={"a": slice(0, 50), "b": slice(50, 60)}, random_state=0
    ).fit(data())


def test_densities_are_those_of_all_columns(model):
    views = model._fit.posterior
    rows = model._split(data())
    x = torch.randn(120, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    every = torch.arange(120)
    for s in range(2):
        seen = turned(views[0], s)
        assert isinstance(seen, TurnedPosterior)
        assert seen.n_columns == 17
        assert float(seen.counts.sum()) == 50.0
        plain = row_posterior._single(views[0], s, rows[0], whole=False)
        short = row_posterior._single(views[0], s, rows[0], whole=True)
        found = [
            predictive_target([v], [y], 2, [None]).evaluate(x, every)
            for v, y in (plain, short)
        ]
        for ours, theirs in zip(*found, strict=True):
            torch.testing.assert_close(theirs, ours, rtol=1e-4, atol=1e-3)
        # up to the constant of the row that tables leave out
        tables = [
            row_posterior._scores([v], x[:20], [y], [None], torch.zeros(120, 0))
            for v, y in (plain, short)
        ]
        torch.testing.assert_close(tables[1], tables[0], rtol=1e-5, atol=1e-3)


def test_views_of_few_columns_or_other_noise_stay_as_they_are(model):
    assert turned(model._fit.posterior[1], 0) is None
    columns = bo.AdvisedRFLVM(noise="column", **SETTINGS, random_state=0).fit(data())
    assert turned(columns._fit.posterior[0], 0) is None
    counts = bo.NGMVLVM(likelihood="bernoulli", **SETTINGS, random_state=0)
    assert turned(counts.fit((data() > 0).astype(float))._fit.posterior[0], 0) is None


def test_standard_deviations_are_those_of_all_columns(model, monkeypatch):
    X = data(n_rows=200)[120:]
    X[::3, 4] = np.nan
    means, stds = model.transform(X, return_std=True)
    monkeypatch.setattr(row_posterior, "turned", lambda *_: None)
    others, expected = model.transform(X, return_std=True)
    np.testing.assert_array_equal(means, others)
    np.testing.assert_allclose(stds, expected, rtol=2e-3)


def test_scores_are_those_of_all_columns(model, monkeypatch):
    X = data()[:40]
    X[35:, 3] = np.nan
    found = model.score_samples(X, return_std=True)
    monkeypatch.setattr(row_density, "whole_rows", lambda views, rows, index: [(index, False)])
    for ours, theirs in zip(found, model.score_samples(X, return_std=True), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-8)


def test_scores_know_noise_that_is_small_beside_the_data(model):
    """What lies along no direction is no difference of two large sums of squares."""
    view = model._fit.posterior[0]
    seen = turned(view, 0)
    y = 1e9 * torch.randn(3, 16, generator=torch.Generator().manual_seed(1)).double()
    y = y @ seen.directions.T
    left = torch.randn(3, 50, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    left = left - left @ seen.directions @ seen.directions.T
    root = seen.exact_rows(y + left)[:, -1]
    expected = left.square().mean(1).sqrt() * (50 / (50 - 16)) ** 0.5
    torch.testing.assert_close(root, expected, rtol=1e-5, atol=0.0)
