"""Loadings: shares of variance and slopes, against quadrature, differences and a linear model."""

import numpy as np
import pandas as pd
import pytest
import torch

import bochner as bo
from bochner.prediction import diagnostics

SMALL = {
    "n_frequencies": 16,
    "n_init": 1,
    "init": "pca",
    "random_state": 0,
    "dtype": "float64",
}


@pytest.fixture(scope="module")
def model():
    """Two views whose columns are not in the order of X, one of them not Gaussian."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 2))
    numbers = np.sin(x @ rng.standard_normal((2, 4))) + 0.1 * rng.standard_normal((60, 4))
    flags = (x @ rng.standard_normal((2, 2)) > 0).astype(float)
    X = np.hstack([flags[:, :1], 10.0 * numbers, flags[:, 1:]])
    views = {"n": [1, 2, 3, 4], "b": [0, 5]}
    fitted = bo.NGMVLVM(2, views=views, likelihood={"b": "bernoulli"}, max_iter=40, **SMALL)
    with pytest.warns(UserWarning, match="stopped after"):
        return fitted.fit(X)


def test_slopes_are_those_of_differences(model):
    Z, step = model.embedding_[:5], 1e-5
    slopes = model.slopes(Z)
    assert slopes.shape == (5, 6, 2)
    for d in range(2):
        away = step * np.eye(2)[d]
        high, low = model.inverse_transform(Z + away), model.inverse_transform(Z - away)
        expected = ((high - low) / (2 * step))[:, 1:5]
        np.testing.assert_allclose(slopes[:, 1:5, d], expected, rtol=1e-6, atol=1e-7)


def test_slopes_of_other_likelihoods_are_those_of_the_linear_predictor(model):
    Z, step, view = model.embedding_[:5], 1e-5, model._fit.posterior[1]
    for d in range(2):
        away = step * torch.eye(2, dtype=torch.float64)[d]
        x = torch.tensor(Z)
        high, low = (
            diagnostics.predicted(view, x + away),
            diagnostics.predicted(view, x - away),
        )
        expected = ((high - low) / (2 * step)).numpy()
        np.testing.assert_allclose(
            model.slopes(Z)[:, [0, 5], d], expected, rtol=1e-6, atol=1e-7
        )


def test_shares_are_what_is_lost_without_a_dimension(model):
    """The dimension is integrated out by Gauss-Hermite quadrature of the decoded columns."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    Z = model.embedding_
    full = model.inverse_transform(Z)[:, 1:5]
    noise = model.noise_variance_["n"]
    for d in range(2):
        mean = np.zeros_like(full)
        for node, weight in zip(nodes, weights / weights.sum(), strict=True):
            moved = Z.copy()
            moved[:, d] = node
            mean += weight * model.inverse_transform(moved)[:, 1:5]
        expected = np.square(full - mean).mean(0) / (full.var(0) + noise)
        np.testing.assert_allclose(model.loadings()[1:5, d], expected, rtol=1e-6)


def test_a_linear_model_has_the_loadings_that_it_was_made_with():
    """One latent: the share is w^2 / (w^2 + noise), whatever the sign or scale of the latent."""
    rng = np.random.default_rng(1)
    w, noise = np.array([2.0, 1.0, 0.5, 0.0]), 0.5
    x = rng.standard_normal((400, 1))
    X = x * w + np.sqrt(noise) * rng.standard_normal((400, 4))
    fitted = bo.NGMVLVM(1, max_iter=150, **SMALL | {"dtype": "float32"}).fit(X)
    truth = w**2 / (w**2 + noise)
    np.testing.assert_allclose(fitted.loadings()[:, 0], truth, atol=0.1)


@pytest.mark.parametrize("likelihood", ["bernoulli", "poisson", "gaussian"])
def test_nothing_of_a_constant_column_is_explained(likelihood):
    rng = np.random.default_rng(3)
    x = rng.standard_normal((200, 1))
    X = (x * rng.standard_normal(8) + rng.standard_normal((200, 8)) > 0.0).astype(float)
    X[:, 3] = 0.0
    model = bo.NGMVLVM(1, likelihood=likelihood, max_iter=60, **SMALL).fit(X)
    shares = model.loadings()[:, 0]
    assert shares[3] < 0.2 * shares.max()


def test_names_label_the_frame(model):
    frame = model.loadings(as_frame=True)
    assert frame.columns.tolist() == ["dim 0", "dim 1"]
    np.testing.assert_array_equal(frame.to_numpy(), model.loadings())
    named = pd.DataFrame(
        np.random.default_rng(0).standard_normal((20, 3)), columns=["a", "b", "c"]
    )
    with pytest.warns(UserWarning, match="stopped after"):
        fitted = bo.NGMVLVM(1, max_iter=3, **SMALL).fit(named)
    assert fitted.loadings(as_frame=True).index.tolist() == ["a", "b", "c"]


def test_categories_have_shares_and_no_slopes():
    rng = np.random.default_rng(2)
    x = rng.standard_normal((50, 1))
    X = np.digitize(x + 0.1 * rng.standard_normal((50, 2)), [-0.5, 0.5]).astype(float)
    with pytest.warns(UserWarning, match="stopped after"):
        fitted = bo.NGMVLVM(1, likelihood="categorical", max_iter=20, **SMALL).fit(X)
    shares = fitted.loadings()
    assert shares.shape == (2, 1)
    assert (shares > 0.5).all()
    assert np.isnan(fitted.slopes(fitted.embedding_)).all()
