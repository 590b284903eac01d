"""``transform(X, interval=...)``: limits of latents, alone and beside standard deviations, in files
and in messages.
"""

import itertools

import numpy as np
import pytest
from sklearn.datasets import load_digits

import bochner as bo
from bochner.errors import InputError
from bochner.latent_inference.infer import Placer

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::bochner.errors.CollapseWarning"),
]


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(3)
    X = np.sin(rng.normal(size=(60, 2)) @ rng.normal(size=(2, 9)))
    X += 0.2 * rng.normal(size=X.shape)
    X[:20, :3] = np.nan
    model = bo.NGMVLVM(n_frequencies=5, n_mixtures=1, max_iter=8, init="pca", random_state=0)
    return model.fit(X), X[15:25]


def test_limits_go_alone_and_beside_standard_deviations(fitted):
    model, X = fitted
    Z, low, high = model.transform(X, interval=0.9)
    np.testing.assert_array_equal(Z, model.transform(X))
    assert low.shape == high.shape == Z.shape
    assert low.dtype == high.dtype == Z.dtype
    assert (low < high).all()
    same, std, *limits = model.transform(X, return_std=True, interval=0.9)
    np.testing.assert_array_equal(same, Z)
    np.testing.assert_array_equal(std, model.transform(X, return_std=True)[1])
    np.testing.assert_array_equal(limits, [low, high])


def test_limits_cost_one_placement(fitted, monkeypatch):
    """Rows were placed once for the places, and again for the limits."""
    model, X = fitted
    # by what standard deviations are wider is found with the first of them
    model.transform(X[:1], return_std=True)
    n_placed = []
    place = Placer.place

    def counted(self, rows, *args, **kwargs):
        n_placed.append(len(rows[0]))
        return place(self, rows, *args, **kwargs)

    monkeypatch.setattr(Placer, "place", counted)
    model.transform(X, return_std=True, interval=0.9)
    assert n_placed == [len(X)]


@pytest.mark.parametrize("kind", ["gaussian", "poisson"])
@pytest.mark.parametrize("dim", [1, 2])
def test_rows_of_real_data_lie_within_their_limits(kind, dim):
    """The predictive density prefers places where weights are uncertain for rows that fit nowhere:
    ten of 60 complete Gaussian rows in two dimensions lay outside of their 90 % limits.
    """
    X = load_digits().data[:460]
    settings = {"init": "pca", "n_frequencies": 20, "max_iter": 40, "random_state": 100}
    model = bo.NGMVLVM(dim, likelihood=kind, **settings).fit(X[:400])
    rows = X[400:]
    half = np.where(np.arange(64) < 32, rows, np.nan)
    for some in (rows, half):
        Z, low, high = model.transform(some, interval=0.9)
        outside = ((low > Z) | (high < Z)).any(axis=1)
        assert outside.mean() < 0.02


def test_intervals_that_hold_more_are_wider(fitted):
    model, X = fitted
    limits = [model.transform(X, interval=level)[1:] for level in (0.5, 0.9, 0.99)]
    for (low, high), (lower, higher) in itertools.pairwise(limits):
        assert (lower <= low).all()
        assert (high <= higher).all()


def test_limits_survive_a_file(fitted, tmp_path):
    model, X = fitted
    low = model.transform(X, interval=0.9)[1]
    model.save(tmp_path / "model")
    again = bo.load(tmp_path / "model").transform(X, interval=0.9)[1]
    np.testing.assert_allclose(again, low, rtol=1e-3, atol=1e-3)


def test_a_row_without_entries_has_the_limits_of_the_prior(fitted):
    model, X = fitted
    nothing = np.full_like(X[:1], np.nan)
    with pytest.warns(bo.errors.DataWarning):
        _, low, high = model.transform(nothing, interval=0.95)
    np.testing.assert_allclose([-low, high], 1.959964, rtol=1e-5)


@pytest.mark.parametrize("interval", [0.0, 1.0, 95, -0.1])
def test_what_is_no_probability_is_refused(fitted, interval):
    model, X = fitted
    with pytest.raises(InputError, match=f"Expected interval between 0 and 1, got {interval}"):
        model.transform(X, interval=interval)
