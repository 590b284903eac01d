"""Entries that training does not see, and the noise of predictions that they show."""

import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_digits

import bochner as bo
from bochner.data.views import Views
from bochner.estimators import tensors
from bochner.estimators.settings import plans
from bochner.fitting import noise_recalibration
from bochner.fitting.noise_recalibration import withhold
from bochner.models.lvm import Covariates


def table(n=300, m=90, rank=10, share=0.2, seed=0):
    source = np.random.default_rng(seed)
    truth = source.normal(size=(n, rank)) @ source.normal(size=(rank, m)) / rank**0.5
    truth += 0.3 * source.normal(size=(n, m))
    hidden = source.random((n, m)) < share
    return truth, hidden, np.where(hidden, np.nan, truth)


def blocks(Y):
    model = bo.NGMVLVM(2, random_state=0)
    data = Views.fit(Y, None, None)
    plan = plans.make(
        model, data, 0, {"x": model._kernel_for("x")}, {"x": bo.likelihoods.Gaussian()}
    )
    return tensors.fit_data(data, plan, {}, Covariates.none(len(Y))).blocks


@pytest.fixture(scope="module")
def deep():
    truth = load_digits().data[:400] / 16.0
    hidden = np.random.default_rng(0).random(truth.shape) < 0.2
    Y = np.where(hidden, np.nan, truth)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = bo.NGMVLVM(25, init="pca", max_iter=60, n_mixtures=1, random_state=0).fit(Y)
    return model, truth, hidden, Y


def test_observed_entries_of_some_rows_leave_and_nothing_else():
    _, _, Y = table()
    data = blocks(Y)
    held = withhold(data, [False], len(Y), 3)
    before, after = data[0][0], held.data[0][0]
    taken = before.observed - after.observed
    assert after.sizes == before.sizes
    assert bool(((taken == 0) | (taken == 1)).all())
    assert bool((before.Y * after.observed == after.Y).all())
    result = ~held.truth[0].isnan()
    assert int(taken.sum()) == int(result.sum()) >= 100
    assert bool((taken.sum(1).nonzero()[:, 0][:, None] == held.rows).any(1).all())
    shown = before.values()[held.rows][:, before.columns.argsort()].double()
    assert torch.equal(held.truth[0][result], shown[result])
    again = withhold(data, [False], len(Y), 3)
    assert torch.equal(again.truth[0].isnan(), held.truth[0].isnan())


def test_small_and_complete_tables_keep_all_entries():
    _, _, small = table(n=60, m=8)
    truth, _, _ = table()
    for Y in (small, truth):
        held = withhold(blocks(Y), [False], len(Y), 0)
        assert held.rows.numel() == 0
        beside = torch.zeros(1, 0)
        assert held.excess(
            lambda: pytest.fail("nothing is to be predicted"), torch.zeros(1, 1), beside
        ) == [0.0]


def test_starts_do_not_see_what_is_withheld():
    _, _, Y = table()
    held = withhold(blocks(Y), [False], len(Y), 0)
    left, gone = held.hide(Y, [Y.shape[1]]), np.zeros(Y.shape, dtype=bool)
    gone[held.rows.numpy()] = ~held.truth[0].isnan().numpy()
    assert np.isnan(left[gone]).all()
    np.testing.assert_array_equal(left[~gone], Y[~gone])
    assert not np.isnan(Y[gone]).any()


def test_intervals_of_many_dimensions_hold_what_they_say(deep):
    model, truth, hidden, Y = deep
    restored, std = model.impute(Y, return_std=True)
    away = np.abs(restored - truth)[hidden] / std[hidden]
    learned, shown = model.noise_variance_["x"], model.predictive_noise_variance_["x"]
    assert shown > 1.1 * learned
    narrow = away * std[hidden] / np.sqrt(std[hidden] ** 2 - shown + learned)
    assert np.mean(narrow < 1.645) < 0.87
    assert 0.87 < np.mean(away < 1.645) < 0.93


def test_draws_and_densities_have_that_noise(deep):
    model, _, hidden, Y = deep
    _, std = model.impute(Y, return_std=True)
    draws = model.impute(Y, n_draws=60)
    assert np.mean(draws.std(axis=0)[hidden] / std[hidden]) == pytest.approx(1.0, abs=0.03)
    _, of_latents = model.inverse_transform(model.embedding_[:3], return_std=True)
    assert (of_latents**2 > model.predictive_noise_variance_["x"]).all()


def test_the_noise_of_predictions_is_saved(deep, tmp_path):
    model, _, _, Y = deep
    model.save(tmp_path / "m.bochner")
    loaded = bo.load(tmp_path / "m.bochner")
    assert loaded.predictive_noise_variance_ == model.predictive_noise_variance_
    _, again = loaded.impute(Y[:5], return_std=True)
    _, std = model.impute(Y[:5], return_std=True)
    np.testing.assert_allclose(again, std, rtol=1e-6)


def mixed_table(n=200, seed=0):
    """Numbers of which two have heavy tails, beside a category."""
    source = np.random.default_rng(seed)
    x = source.normal(size=(n, 2))
    numbers = x @ source.normal(size=(2, 7)) + 0.5 * source.normal(size=(n, 7))
    numbers[:, :2] = np.exp(1.5 * numbers[:, :2])
    frame = pd.DataFrame(numbers, columns=[f"x{j}" for j in range(7)])
    frame["kind"] = np.where(x[:, 0] > 0, "a", np.where(x[:, 1] > 0, "b", "c"))
    return frame, source.random(frame.shape) < 0.2


@pytest.fixture(scope="module")
def mixed():
    frame, hidden = mixed_table(110)
    hidden[hidden.all(axis=1), 0] = False
    shown = frame.mask(hidden)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = bo.NGMVLVM(
            6,
            likelihood="auto",
            init="pca",
            n_init=1,
            max_iter=60,
            n_mixtures=1,
            random_state=0,
        ).fit(shown)
    return model, frame, hidden, shown


def test_tables_with_noise_per_column_withhold_entries_of_numbers_alone(mixed):
    model, _, _, _ = mixed
    learned = model.noise_variance_["numbers"]
    shown = model.predictive_noise_variance_["numbers"]
    assert np.shape(shown) == (7,)
    ratio = shown / learned
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-6)  # one factor for all columns
    assert ratio[0] > 1.2


def test_draws_of_mixed_tables_hold_what_they_say(mixed):
    model, frame, hidden, shown = mixed
    draws = model.impute(shown, n_draws=60)
    inside = []
    for j, name in enumerate(frame.columns[:7]):
        rows = np.flatnonzero(hidden[:, j])
        drawn = np.stack([one[name].to_numpy()[rows] for one in draws])
        low, high = np.quantile(drawn, [0.05, 0.95], axis=0, method="weibull")
        truth = frame[name].to_numpy()[rows]
        inside.append((low <= truth) & (truth <= high))
    assert 0.87 < np.mean(np.concatenate(inside)) < 0.95


def test_the_noise_of_every_column_is_saved(mixed, tmp_path):
    model, _, _, shown = mixed
    model.save(tmp_path / "m.bochner")
    loaded = bo.load(tmp_path / "m.bochner")
    again = loaded.predictive_noise_variance_["numbers"]
    np.testing.assert_allclose(again, model.predictive_noise_variance_["numbers"])
    _, std = model.impute(shown[:5], return_std=True)
    _, of_loaded = loaded.impute(shown[:5], return_std=True)
    np.testing.assert_allclose(np.asarray(of_loaded), np.asarray(std), rtol=1e-6)


def lacking(n, scale, noise, seed=0):
    """Of n entries that scatter as a normal distribution of variance 1.5 times a scale squared,
    where 0.5 + noise is expected.
    """
    source = torch.Generator().manual_seed(seed)
    truth = scale * 1.5**0.5 * torch.randn(n, 4, generator=source, dtype=torch.float64)
    view = SimpleNamespace(noise_variance=noise)
    mean = torch.zeros_like(truth)
    return noise_recalibration._lacking(view, truth, mean, mean + 0.5 + torch.as_tensor(noise))


def test_noise_per_column_is_raised_less_where_entries_are_few():
    ones = np.ones(4)
    few, many = lacking(10, 1.5, ones), lacking(10_000, 1.5, ones)
    expected = 1.5**2 * 1.5 - 1.5
    torch.testing.assert_close(many, expected * torch.ones(4).double(), rtol=0.05, atol=0.0)
    drawn = np.mean([lacking(10, 1.5, ones, seed)[0].item() for seed in range(100)])
    assert 0.15 * expected < drawn < 0.4 * expected
    assert bool((few == few[0]).all())
    # where the noise is right, chance alone raises it by little
    chance = np.mean([lacking(12, 1.0, ones, seed)[0].item() for seed in range(200)])
    assert 0.0 <= chance < 0.09
    assert lacking(10_000, 0.9, ones).abs().max() == 0.0


def test_one_noise_for_all_columns_is_only_raised():
    assert lacking(10_000, 0.5, 1.0) == 0.0
    assert lacking(10_000, 1.5, 1.0).item() == pytest.approx(1.5**2 * 1.5 - 1.5, rel=0.05)
