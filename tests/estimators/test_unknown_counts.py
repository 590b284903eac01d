"""Counts of which nothing is known: finite means, near what was measured."""

import numpy as np
import pytest
import torch

import bochner as bo
from bochner.likelihoods import NegativeBinomial, Poisson

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::bochner.errors.CollapseWarning"),
    pytest.mark.filterwarnings("ignore::bochner.errors.DataWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


def _counts(seed, largest):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(50, 2))
    log_rates = x @ rng.normal(size=(2, 8))
    log_rates *= np.log(largest) / np.abs(log_rates).max()
    return rng.poisson(np.exp(log_rates)).astype(float)


@pytest.mark.parametrize(
    ("likelihood", "largest", "seed"),
    [
        ("poisson", 30.0, 100),
        ("poisson", 1e9, 101),
        ("negative_binomial", 30.0, 101),
        ("negative_binomial", 1e9, 100),
    ],
)
def test_rows_without_entries_and_without_a_view(likelihood, largest, seed):
    X = _counts(seed, largest)
    views = {"a": slice(0, 4), "b": slice(4, 8)}
    settings = {"n_frequencies": 8, "max_iter": 60, "init": "pca", "random_state": seed}
    model = bo.NGMVLVM(views=views, likelihood=likelihood, **settings).fit(X)
    shown = X[:6].copy()
    shown[0] = np.nan
    shown[1:4, 4:] = np.nan
    shown[4:, :4] = np.nan
    full, std = model.impute(shown, return_std=True)
    assert np.isfinite(full).all()
    assert np.isfinite(std).all()
    assert full.max() < 100.0 * X.max()
    draws = model.impute(shown, n_draws=20)
    assert np.isfinite(draws).all()
    assert (draws >= 0).all()


@pytest.mark.parametrize("make", [Poisson, lambda: NegativeBinomial(dispersion=2.0)])
def test_the_mean_is_exact_up_to_a_variance_of_one_and_never_overflows(make):
    likelihood = make()
    mean = torch.tensor([[0.5, 2.0, 5.0]], dtype=torch.float64)
    for v in (0.0, 0.3, 1.0):
        first, _ = likelihood.predict(mean, torch.full_like(mean, v))
        torch.testing.assert_close(first, (mean + 0.5 * v).exp())
    for v in (2.0, 500.0, 1e6):
        first, second = likelihood.predict(mean, torch.full_like(mean, v))
        torch.testing.assert_close(first, (mean + 0.5).exp())
        assert second.isfinite().all()
    source = torch.Generator().manual_seed(0)
    assert (
        likelihood.draw(torch.full((3, 3), 800.0, dtype=torch.float64), source)
        .isfinite()
        .all()
    )
