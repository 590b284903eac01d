"""Simple models: what their frequencies are drawn from."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import bochner as bo
from bochner.initialization.simple_models import SimpleModels
from bochner.regression.observations import CompleteBlock

N_FREQUENCIES = 16


def _points(dim: int, n: int) -> torch.Tensor:
    """Return n draws of the base noise of frequencies, (n, H, E)."""
    source = torch.Generator().manual_seed(0)
    latents = torch.randn(1, 5, dim, generator=source)
    data = ((CompleteBlock.of(torch.randn(5, 2, generator=source)),),)
    models = SimpleModels(latents, data)
    draws = [models._points(0, seed, "law", 0, N_FREQUENCIES, False)[0] for seed in range(n)]
    return torch.stack(draws)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_half_of_the_frequencies_give_the_kernel_of_all(dim: int) -> None:
    points = _points(dim, 2000)
    assert bool((points[..., 0] >= 0).all())
    for lag in (0.5, 2.0):
        difference = torch.full((dim,), lag, dtype=torch.float64)
        kernel = (points @ difference).cos().mean(1)
        error = kernel.std() / len(kernel) ** 0.5
        expected = torch.exp(-0.5 * difference.square().sum())
        assert abs(kernel.mean() - expected) < 4 * error


@pytest.mark.parametrize("dim", [2, 3, 4, 6])
def test_no_frequency_is_near_the_negative_of_another_in_the_dimensions_that_stay(
    dim: int,
) -> None:
    seen = _points(dim, 200)[..., :2]
    own = torch.full((N_FREQUENCIES,), 9.0, dtype=seen.dtype).diag()
    negative = (torch.cdist(seen, -seen) + own).amin(2).median()
    same = (torch.cdist(seen, seen) + own).amin(2).median()
    assert negative > same


def test_the_order_of_views_changes_nothing() -> None:
    """Their noise was keyed by their places: default fits ended tens of nats apart."""
    source = np.random.default_rng(100)
    Z = source.normal(size=(40, 2))
    X = np.c_[np.sin(Z @ source.normal(size=(2, 6))), np.cos(Z @ source.normal(size=(2, 4)))]
    X += 0.1 * source.normal(size=X.shape)
    views = {"a": slice(0, 6), "b": slice(6, 10)}
    orders = (views, dict(reversed(views.items())))
    settings = {"max_iter": 60, "n_frequencies": 16, "random_state": 0, "dtype": "float64"}
    first, second = (bo.NGMVLVM(views=order, **settings).fit(X) for order in orders)
    assert second.elbo_ == pytest.approx(first.elbo_, abs=1e-4)
    np.testing.assert_allclose(second.embedding_, first.embedding_, atol=1e-5)


@pytest.mark.parametrize(("n", "likelihood"), [(260, "gaussian"), (40, "bernoulli")])
def test_the_order_of_views_with_holes_changes_nothing(n: int, likelihood: str) -> None:
    """Entries from which ranks and noise are found were drawn from left to right."""
    source = np.random.default_rng(101)
    Z = source.normal(size=(n, 2))
    X = np.c_[np.sin(Z @ source.normal(size=(2, 45))), np.cos(Z @ source.normal(size=(2, 40)))]
    X += 0.1 * source.normal(size=X.shape)
    if likelihood == "bernoulli":
        X[:, 45:] = X[:, 45:] > 0.0
    X[source.random(X.shape) < 0.1] = np.nan
    views = {"a": slice(0, 45), "b": slice(45, 85)}
    settings = {"max_iter": 20, "n_frequencies": 8, "random_state": 0, "dtype": "float64"}
    settings |= {"init": "pca", "likelihood": {"a": "gaussian", "b": likelihood}}
    orders = (views, dict(reversed(views.items())))
    first, second = (bo.NGMVLVM(views=order, **settings).fit(X) for order in orders)
    assert (sum(first.withheld_.values()) > 0) == (n == 260)
    assert second.withheld_ == first.withheld_
    # what starts are filled with is in single precision
    assert second.elbo_ == pytest.approx(first.elbo_, rel=1e-6)
    np.testing.assert_allclose(second.embedding_, first.embedding_, atol=1e-4)
