"""Rows that lack whole views, in data of two and of three views: wider posteriors, several places,
what is needed.
"""

import itertools
import warnings

import numpy as np
import pytest

import bochner as bo

N = 120
NAMES = ("even", "odd", "more")


@pytest.fixture(scope="module", params=[2, 3])
def fitted(request):
    """Latents on a line; the first view is an even function of them, so that it does not know their
    sign.
    """
    source = np.random.default_rng(0)
    z = source.uniform(-2, 2, size=(N, 1))
    parts = [
        np.cos(z * np.linspace(0.5, 1.0, 6)),
        np.sin(z * np.linspace(0.4, 0.7, 5)),
        np.sin(z * np.linspace(0.3, 0.6, 4)) + 0.5,
    ]
    X = np.hstack(parts[: request.param])
    X = X + 0.05 * source.normal(size=X.shape)
    stops = np.cumsum([part.shape[1] for part in parts])
    views = {
        name: slice(stop - part.shape[1], stop)
        for name, part, stop in zip(NAMES, parts, stops, strict=True)
    }
    views = {name: views[name] for name in NAMES[: request.param]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = bo.NGMVLVM(
            1,
            views=views,
            init=z,
            n_mixtures=1,
            n_frequencies=16,
            max_iter=150,
            random_state=0,
        )
        return model.fit(X), X, views


def without(X, views, absent):
    shown = X.copy()
    for name in absent:
        shown[:, views[name]] = np.nan
    return shown


def test_every_absent_view_widens_the_posterior(fitted):
    model, X, views = fitted
    widths = {}
    for count in range(len(views)):
        for absent in itertools.combinations(views, count):
            widths[absent] = model.transform(without(X, views, absent), return_std=True)[
                1
            ].mean()
    for absent, width in widths.items():
        for name in views:
            if name not in absent and len(absent) + 1 < len(views):
                more = tuple(view for view in views if view in (*absent, name))
                assert widths[more] > width, (absent, name)
    none = np.full((1, X.shape[1]), np.nan)
    with pytest.warns(UserWarning, match="nothing observed"):
        assert model.transform(none, return_std=True)[1] == pytest.approx(1.0)


def test_several_plausible_places_are_in_the_deviation_and_in_the_draws(fitted):
    model, X, views = fitted
    signed = [name for name in views if name != "even"]
    shown = without(X, views, signed)
    odd = views["odd"]
    # far from where the two branches meet
    rows = np.flatnonzero(np.abs(X[:, odd][:, -1]) > 0.6)
    truth, column = X[rows][:, odd][:, -1], odd.stop - 1
    mean, std = (array[rows, column] for array in model.impute(shown, return_std=True))
    # half the weight on either side: the mean is nowhere, the standard deviation is the distance
    assert np.abs(mean).mean() < 0.35 * np.abs(truth).mean()
    assert np.median(std / np.abs(truth)) == pytest.approx(1.0, abs=0.1)
    draws = model.impute(shown, n_draws=200)[:, rows, column]
    assert np.median(np.minimum((draws > 0).mean(axis=0), (draws < 0).mean(axis=0))) > 0.2
    # and every draw lies on a branch
    assert np.median(np.abs(np.abs(draws) - np.abs(truth))) < 0.15
    if len(signed) > 1:  # the third view tells which
        told = model.impute(without(X, views, ["odd"]), return_std=True)
        assert np.abs(told[0][rows, column] - truth).mean() < 0.2
        assert np.median(told[1][rows, column]) < 0.5 * np.median(std)


def test_one_observed_entry_is_enough_to_be_fitted():
    source = np.random.default_rng(1)
    z = source.normal(size=(40, 1))
    X = np.hstack([np.sin(z + np.arange(3)), np.cos(z + np.arange(3))]) + 0.1 * source.normal(
        size=(40, 6)
    )
    X[0, 1:] = np.nan
    X[1:5, :3] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        views = {"a": slice(0, 3), "b": slice(3, 6)}
        model = bo.NGMVLVM(
            1,
            views=views,
            init="pca",
            n_mixtures=1,
            n_frequencies=8,
            max_iter=60,
            random_state=0,
        ).fit(X)
    assert np.isfinite(model.embedding_).all()
    assert model.embedding_std_[0] > model.embedding_std_[5:].mean()
    full, std = model.impute(X, return_std=True)
    assert np.isfinite(full).all()
    assert (std[np.isnan(X)] > 0).all()


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_views_of_many_columns_with_scattered_holes_fit_and_complete(share):
    source = np.random.default_rng(3)
    X = np.sin(
        source.normal(size=(90, 2)) @ source.normal(size=(2, 40))
    ) + 0.05 * source.normal(size=(90, 40))
    Y = np.where(source.random(X.shape) < share, np.nan, X)
    views = {"a": slice(0, 20), "b": slice(20, 40)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = bo.NGMVLVM(
            2, views=views, init="pca", n_frequencies=32, max_iter=60, random_state=0
        ).fit(Y[:70])
    # covariances are averaged over columns
    assert all(len(view.draws[0].covariance) < 20 for view in model._fit.posterior)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        half = X[70:].copy()
        half[:, 20:] = np.nan
        mean, std = model.impute(half, return_std=True)
    assert np.isfinite(mean).all()
    assert (std[:, 20:] > 0).all()
    assert np.mean((mean - X[70:])[:, 20:] ** 2) < np.var(X[70:, 20:])
