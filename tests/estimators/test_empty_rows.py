"""Rows with nothing observed, among training rows and among new ones: the prior, and no more."""

import numpy as np
import pandas as pd
import pytest

import bochner as bo
from bochner.errors import DataWarning
from campaign.cases import CONTAINERS

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::bochner.errors.CollapseWarning"),
    pytest.mark.filterwarnings("ignore:Constant columns"),
    pytest.mark.filterwarnings("ignore:Columns with one observed entry"),
]

EMPTY = [3, 7]
QUICK = {"n_frequencies": 3, "n_mixtures": 1, "max_iter": 4, "init": "pca", "random_state": 0}
CHAINS = {"n_chains": 1, "n_warmup": 2, "n_draws": 4, "thin": 1}
VIEWS = {"a": slice(0, 3), "b": slice(3, 6)}


def table():
    source = np.random.default_rng(0)
    X = 3.0 + np.sin(source.normal(size=(14, 2)) @ source.normal(size=(2, 6)))
    X[EMPTY] = np.nan
    return X


def fitted(estimator, X):
    with pytest.warns(DataWarning, match=r"2 row\(s\) with nothing observed \(first: row 3\)"):
        return estimator.fit(X)


def check(model, X):
    assert not model.embedding_[EMPTY].any()
    with pytest.warns(DataWarning, match="placed at the prior"):
        mean, std = model.transform(X, return_std=True)
    with pytest.warns(DataWarning, match="placed at the prior"):
        scores = model.score_samples(X)
    with pytest.warns(DataWarning, match="placed at the prior"):
        full = np.asarray(model.impute(X), dtype=float)
    assert not mean[EMPTY].any()
    assert (std[EMPTY] == 1.0).all()
    assert not scores[EMPTY].any()
    assert np.isfinite(full).all()


@pytest.mark.filterwarnings("ignore:.*arviz")
@pytest.mark.parametrize(
    "estimator",
    [
        bo.NGMVLVM(**QUICK),
        bo.NGMVLVM(**QUICK, views=VIEWS, noise="column"),
        bo.NGMVLVM(**QUICK, landmarks=5),
        bo.AdvisedRFLVM(**QUICK),
        bo.RandomFeatureLVM(**QUICK, kernel="matern"),
        bo.SRFLVM(**QUICK),
        bo.RFLVM(**QUICK, **CHAINS),
    ],
)
def test_every_model_takes_them_and_places_them_at_the_prior(estimator):
    X = table()
    check(fitted(estimator, X), X)


@pytest.mark.parametrize("container", ["frame", "nullable frame", "masked", "list", "float32"])
def test_in_every_container(container):
    X = CONTAINERS[container](table())
    check(fitted(bo.NGMVLVM(**QUICK), X), X)


@pytest.mark.parametrize(
    "likelihood", ["poisson", "negative_binomial", "bernoulli", "binomial", "categorical"]
)
def test_with_every_likelihood(likelihood):
    X = np.round(table() - 2.5).clip(0)
    if likelihood == "bernoulli":
        X = np.where(np.isnan(X), X, X > 0)
    check(fitted(bo.NGMVLVM(**QUICK, likelihood=likelihood), X), X)


def test_from_a_file(tmp_path):
    np.save(tmp_path / "X.npy", table())
    model = fitted(bo.NGMVLVM(**QUICK), bo.open_rows(tmp_path / "X.npy"))
    assert not model.embedding_[EMPTY].any()


def test_a_frame_keeps_them():
    X = pd.DataFrame(table(), index=[f"r{i}" for i in range(14)])
    model = fitted(bo.NGMVLVM(**QUICK), X)
    with pytest.warns(DataWarning):
        assert list(model.impute(X).index) == list(X.index)


def test_two_rows_of_which_one_is_empty():
    X = table()[2:4]
    with pytest.warns(DataWarning, match="nothing observed"):
        model = bo.NGMVLVM(**QUICK).fit(X)
    assert np.isfinite(model.embedding_).all()
    assert not model.embedding_[1].any()
