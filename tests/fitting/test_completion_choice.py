"""Modes complete a view only where they do so for rows that no latent was trained beside."""

import pickle

import numpy as np
import pytest
import torch

import bochner as bo
from bochner.fitting import completion_choice as trial
from bochner.prediction import tempering

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def _noisy(n: int) -> tuple[np.ndarray, dict[str, slice]]:
    """Two views that share two weak factors; the noise of either has ten factors of its own."""
    source = np.random.default_rng(0)
    shared = source.normal(size=(n, 2))
    views = []
    for _ in range(2):
        private = source.normal(size=(n, 10)) @ source.normal(size=(10, 100)) / np.sqrt(10)
        views.append(
            0.5 * shared @ source.normal(size=(2, 100))
            + private
            + 0.5 * source.normal(size=(n, 100))
        )
    return np.hstack(views), {"a": slice(0, 100), "b": slice(100, 200)}


def test_modes_that_only_remembered_the_rows_are_found_out(monkeypatch):
    X, views = _noisy(260)
    train, test = X[:60], X[60:]
    # as it happens where latents that were trained beside a row's own seem to know its place
    result = {view: tempering.Choice(2.0**-7.5, modes=True) for view in views}
    monkeypatch.setattr(tempering, "learn", lambda *arguments: result)
    model = bo.NGMVLVM(
        16, views=views, init="pca", n_frequencies=30, max_iter=200, random_state=0
    ).fit(train)
    assert model.completion_ == dict.fromkeys(views, 2.0 ** (-7.5))
    hidden = test.copy()
    hidden[:, views["b"]] = np.nan
    truth = test[:, views["b"]]

    def error() -> float:
        return float(np.mean((model.impute(hidden)[:, views["b"]] - truth) ** 2))

    chosen = error()
    model.completion_ = {**model.completion_, "b": None}
    assert chosen < 0.97 * error()


def test_rows_of_counts_are_tried_from_a_start_that_has_no_rival(monkeypatch):
    source = np.random.default_rng(0)
    latent = source.normal(size=(120, 1))
    X = source.poisson(np.exp(latent @ source.normal(size=(1, 10)))).astype(float)
    X[:20, 5:] = np.nan
    result = {view: tempering.Choice(2.0**-7.5, modes=True) for view in "ab"}
    monkeypatch.setattr(tempering, "learn", lambda *arguments: result)
    views = {"a": slice(0, 5), "b": slice(5, 10)}
    model = bo.NGMVLVM(
        1, views=views, likelihood="poisson", n_frequencies=5, max_iter=20, random_state=0
    ).fit(X)
    assert np.isfinite(model.impute(X)).all()


def test_exact_data_keep_the_modes_and_few_rows_what_was_found():
    curve = bo.datasets.make_s_curve(150, 30, ("rbf", "rbf"), noise=0.05, random_state=0)
    model = bo.NGMVLVM(
        views=curve.views, init="pca", n_frequencies=30, max_iter=300, random_state=0
    ).fit(curve.data)
    assert set(model.completion_.values()) == {None}
    few = bo.NGMVLVM(
        views=curve.views, init="pca", n_frequencies=10, max_iter=20, random_state=0
    ).fit(curve.data[:20])
    assert set(few.completion_) == set(curve.views)
    assert few._fit.latent_draws is None


def test_modes_of_rows_with_other_holes_are_tried_as_well():
    X, views = _noisy(120)
    X[::3, :100] = np.nan  # a third lacks view a, and some entries of b are holes
    X[5::7, 160] = np.nan
    model = bo.NGMVLVM(
        8, views=views, init="pca", n_frequencies=20, max_iter=100, random_state=0
    ).fit(X)
    assert all(value is None or 0.0 < value <= 1.0 for value in model.completion_.values())
    assert bool(torch.isfinite(torch.from_numpy(model.impute(X))).all())


def test_where_every_row_is_needed_for_training_the_mixture_stays(monkeypatch):
    X, views = _noisy(40)
    result = {view: tempering.Choice(0.5, modes=True) for view in views}
    monkeypatch.setattr(tempering, "learn", lambda *arguments: result)
    # as when every row alone holds some column
    monkeypatch.setattr(trial, "choose", lambda data, n_rows, *rest: torch.arange(n_rows))
    model = bo.NGMVLVM(
        2, views=views, init="pca", n_frequencies=10, max_iter=10, random_state=0
    ).fit(X)
    assert model.completion_ == dict.fromkeys(views, 0.5)


def test_the_choice_is_made_when_it_is_first_asked_for_and_leaves_no_rows_behind():
    X, views = _noisy(40)
    model = bo.NGMVLVM(
        2, views=views, init="pca", n_frequencies=10, max_iter=10, random_state=0
    ).fit(X)
    assert isinstance(model._completion, trial.Question)
    hidden = X[:3].copy()
    hidden[:, views["b"]] = np.nan
    copied = pickle.loads(pickle.dumps(model))
    assert set(copied._completion) == set(views)
    np.testing.assert_array_equal(copied.impute(hidden), model.impute(hidden))
    assert model._completion == copied.completion_
    model.set_params(views=None).fit(X)
    assert model.completion_ == {}


def test_modes_are_tried_after_a_race_of_views_that_are_not_conjugate(monkeypatch):
    """The short fit has one start, which is settled under no simpler kernels."""
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(60, 1))
    X = np.hstack([np.sin(Z @ rng.normal(size=(1, 4))), (Z > 0.0).astype(float)])
    views = {"a": slice(0, 4), "b": slice(4, 5)}
    result = {view: tempering.Choice(0.5, modes=True) for view in views}
    monkeypatch.setattr(tempering, "learn", lambda *arguments: result)
    likelihood = {"b": "bernoulli"}
    model = bo.NGMVLVM(1, views=views, likelihood=likelihood, n_frequencies=5, max_iter=10)
    model.set_params(random_state=0).fit(X)
    assert set(model.completion_) == set(views)
