"""What a step costs: the features of the model that would be fitted."""

import numpy as np
import pytest

import bochner as bo
from bochner.model_selection import cost
from bochner.model_selection.cost import operations

COLUMNS = {"a": np.arange(3), "b": np.arange(3, 8)}
N, H, Q = 20, 8, 4


def _products(*counts: int) -> int:
    return sum(
        4 * N * K * (K + view.size) for K, view in zip(counts, COLUMNS.values(), strict=True)
    )


@pytest.mark.parametrize(
    ("estimator", "counts"),
    [
        (bo.NGMVLVM, (2 * Q * H, 2 * Q * H)),
        # all components share one set of points
        (bo.SRFLVM, (2 * H, 2 * H)),
        (bo.RFLVM, (2 * H, 2 * H)),
    ],
)
def test_features_of_a_step_are_those_of_the_kernel(estimator, counts):
    asked = estimator(2, n_frequencies=H, n_mixtures=Q)
    assert operations(asked, N, COLUMNS) == _products(*counts)


def test_every_view_has_the_features_of_its_own_kernel():
    kernel = {"a": "rbf", "b": bo.kernels.SpectralMixture()}
    asked = bo.RandomFeatureLVM(2, kernel=kernel, n_frequencies=H, n_mixtures=Q)
    assert operations(asked, N, COLUMNS) == _products(2 * H, 2 * Q * H)


def test_gaussian_views_cost_the_same_however_they_are_asked_for():
    by_view = dict.fromkeys(COLUMNS, "gaussian")
    asked = operations(bo.NGMVLVM(2, likelihood=by_view), N, COLUMNS)
    assert asked == operations(bo.NGMVLVM(2), N, COLUMNS)


WRONG = {
    "NGMVLVM": [
        {"n_components": value} for value in ("abc", None, [2], 0, 99_999)
    ] + [{"tol": "abc"}, {"max_iter": 0}, {"max_iter": -5}, {"landmarks": 0}, {"n_init": 0}],
    "RFLVM": [
        {"n_chains": 0}, {"n_chains": "abc"}, {"n_draws": "abc"}, {"n_draws": 0},
        {"n_draws": 10**12}, {"n_warmup": "x"}, {"thin": "x"}, {"thin": 0}, {"n_jobs": "x"},
        {"n_jobs": 0},
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("estimator", "settings"),
    [(name, settings) for name, every in WRONG.items() for settings in every],
    ids=str,
)
def test_an_estimate_refuses_the_settings_that_a_fit_refuses(estimator, settings):
    X = np.random.default_rng(0).normal(size=(N, 8))
    asked = getattr(bo, estimator)(**settings)
    with pytest.raises(ValueError, match=next(iter(settings)).split("_")[-1]) as of_fit:
        asked.fit(X)
    with pytest.raises(ValueError) as of_estimate:  # noqa: PT011 - compared below
        cost.estimate(asked, X, COLUMNS)
    assert str(of_estimate.value) == str(of_fit.value)


def test_the_rate_is_that_of_the_operations_of_the_trial(monkeypatch):
    """A trial has at most as many dimensions as columns: operations of more are not its own."""
    monkeypatch.setattr(cost, "_seconds", lambda asked, X, steps: (steps * 1e-3, 0.0))
    X = np.random.default_rng(0).normal(size=(N, 8))
    rates = [
        cost.estimate(bo.NGMVLVM(count, max_iter=9), X, COLUMNS)["gflops"]
        for count in (8, 500)
    ]
    assert rates[0] == pytest.approx(operations(bo.NGMVLVM(8), N, COLUMNS) / 1e6, abs=1e-3)
    assert rates[1] == rates[0]
