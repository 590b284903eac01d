"""Counts of which nothing is known: finite means, near what was measured."""

import functools

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

VIEWS = {"a": slice(0, 4), "b": slice(4, 8)}


def _counts(seed, largest):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(50, 2))
    log_rates = x @ rng.normal(size=(2, 8))
    log_rates *= np.log(largest) / np.abs(log_rates).max()
    return rng.poisson(np.exp(log_rates)).astype(float)


def _model(likelihood, seed):
    settings = {"n_frequencies": 8, "max_iter": 60, "init": "pca", "random_state": seed}
    return bo.NGMVLVM(views=VIEWS, likelihood=likelihood, **settings)


@functools.cache
def _fitted(likelihood, largest, seed):
    return _model(likelihood, seed).fit(_counts(seed, largest))


@pytest.mark.parametrize(
    ("likelihood", "largest", "seed"),
    [
        ("poisson", 30.0, 100),
        ("poisson", 1e9, 103),
        ("negative_binomial", 30.0, 101),
        ("negative_binomial", 1e9, 100),
    ],
)
def test_rows_without_entries_and_without_a_view(likelihood, largest, seed, quick_choice):
    model = _fitted(likelihood, largest, seed)
    shown = _counts(seed, largest)[:6]
    shown[0] = np.nan
    shown[1:4, 4:] = np.nan
    shown[4:, :4] = np.nan
    full, std = model.impute(shown, return_std=True)
    assert np.isfinite(full).all()
    assert np.isfinite(std).all()
    draws = model.impute(shown, n_draws=20)
    assert np.isfinite(draws).all()
    assert (draws >= 0).all()


@pytest.mark.parametrize("sized", [False, True])
def test_means_and_draws_stay_near_the_largest_count_of_the_column(
    sized, tmp_path, quick_choice
):
    X = _counts(103, 1e9)
    rows = np.arange(0, len(X), 5)
    given = {}
    if sized:
        sizes = np.geomspace(0.5, 2.0, len(X))
        model = _model("poisson", 103).fit(X, size_factors=dict.fromkeys(VIEWS, sizes))
        given = {"size_factors": dict.fromkeys(VIEWS, sizes[rows])}
    else:
        model = _fitted("poisson", 1e9, 103)
    shown = X[rows]
    shown[: len(rows) // 2, 4:] = np.nan
    shown[len(rows) // 2 :, :4] = np.nan
    largest = np.exp(2.0) * (X.max(0) + 0.5) * (4.0 if sized else 1.0)
    full, std = model.impute(shown, return_std=True, **given)
    assert (full <= largest * (1.0 + 1e-12)).all()
    assert np.isfinite(std).all()
    draws = model.impute(shown, n_draws=20, **given)
    assert (draws <= 1.2 * largest + 10.0).all()
    model.save(tmp_path / "model.bochner")
    loaded = bo.load(tmp_path / "model.bochner")
    np.testing.assert_array_equal(loaded.impute(shown, **given), full)


@pytest.mark.parametrize("make", [Poisson, lambda: NegativeBinomial(dispersion=2.0)])
@pytest.mark.parametrize("variance", [1e-6, 0.3, 1.0])
def test_moments_below_a_largest_log_mean_are_integrals(make, variance):
    likelihood = make()
    mean = torch.linspace(-3.0, 9.0, 25, dtype=torch.float64)[None]
    spread, most = torch.full_like(mean, variance), torch.full_like(mean, 4.0)
    first, second = likelihood.predict_below(mean, spread, most)
    nodes = torch.linspace(-9.0, 9.0, 200_001, dtype=torch.float64)[:, None]
    weights = torch.exp(-0.5 * nodes.square()) / np.sqrt(2.0 * np.pi) * 9e-5
    psi = torch.minimum(mean + variance**0.5 * nodes, most)
    expected = (weights * likelihood.mean(psi)).sum(0)[None]
    square = (weights * (likelihood.variance(psi) + likelihood.mean(psi).square())).sum(0)
    torch.testing.assert_close(first, expected, rtol=1e-6, atol=0.0)
    torch.testing.assert_close(second, square[None] - expected.square(), rtol=1e-5, atol=0.0)


def test_the_largest_log_mean_is_that_of_the_data_per_size():
    y = torch.tensor([[3.0, float("nan")], [1.0, float("nan")]], dtype=torch.float64)
    offset = torch.tensor([0.0, -5.0], dtype=torch.float64)
    largest = Poisson().largest_psi(y, None)
    assert largest[0] == np.log(3.5) + 2.0
    assert largest[1] == -np.inf
    assert Poisson().largest_psi(y, offset)[0] == pytest.approx(np.log(1.5) + 7.0)


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
