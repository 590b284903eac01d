"""A fit is a transaction: one that fails, or is interrupted, changes nothing of its estimator."""

import sys

import numpy as np
import pytest
import torch

import bochner as bo
from bochner.errors import InputError

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::bochner.errors.CollapseWarning"),
    pytest.mark.filterwarnings("ignore:Interrupted"),
]

SMALL = {"n_frequencies": 5, "n_mixtures": 1, "max_iter": 4, "init": "pca", "random_state": 0}


def _data(scale=1.0, shift=0.0):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(24, 2))
    return shift + scale * (
        np.sin(x @ rng.normal(size=(2, 5))) + 0.1 * rng.normal(size=(24, 5))
    )


BAD = {
    "init": ({"init": [np.zeros((3, 2))]}, lambda X: X),
    "likelihood": ({"likelihood": "poisson"}, lambda X: X),
    "device": ({"device": "cuda:77"}, lambda X: X),
    "views": ({"views": {"a": [0, 99]}}, lambda X: X),
    "parameter": ({"max_iter": 0}, lambda X: X),
    "infinite": ({}, lambda X: np.where(X[3, 2] == X, np.inf, X)),
    "a column without entries": ({}, lambda X: np.where(np.arange(5) == 2, np.nan, X)),
    "other columns and size factors": ({}, lambda X: X[:, :3]),
}


@pytest.mark.parametrize("what", BAD)
def test_a_failed_refit_changes_nothing(what):
    X, other = _data(), _data(7.0, 3.0)
    model = bo.NGMVLVM(**SMALL).fit(X)
    before, placed = dict(vars(model)), model.transform(X)
    params, change = BAD[what]
    model.set_params(**params)
    factors = np.ones(3) if what.startswith("other") else None
    with pytest.raises((ValueError, RuntimeError, AssertionError)):
        model.fit(change(other), size_factors=factors)
    model.set_params(**{name: before[name] for name in params})
    assert vars(model).keys() == before.keys()
    assert all(vars(model)[name] is before[name] for name in before)
    np.testing.assert_array_equal(model.transform(X), placed)


MAPS = {
    "NGMVLVM": lambda: bo.NGMVLVM(**SMALL),
    "FourierFeatures": lambda: bo.FourierFeatures(n_components=8, random_state=0),
    "KreinFeatures": lambda: bo.KreinFeatures(n_components=8, random_state=0),
    "RandomMaclaurin": lambda: bo.RandomMaclaurin(random_state=0),
    "SphericalFeatures": lambda: bo.SphericalFeatures(random_state=0),
}


class _Interrupt:
    """Ctrl-C at the n-th call of a function of the package."""

    def __init__(self, at=None):
        self.at, self.calls = at, 0

    def __call__(self, frame, event, argument):
        if event != "call" or "bochner" not in str(frame.f_globals.get("__name__")):
            return
        self.calls += 1
        if self.calls == self.at:
            raise KeyboardInterrupt


def _fit(model, X, watch):
    sys.setprofile(watch)
    try:
        model.fit(X)
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize("name", MAPS)
def test_an_interrupted_refit_changes_nothing_or_is_whole(name):
    X, other = _data(0.5), _data(0.2)
    watch = _Interrupt()
    MAPS[name]().fit(other)  # imports what it needs
    _fit(MAPS[name](), other, watch)
    for at in np.unique(np.linspace(1, watch.calls, 12).astype(int)):
        model = MAPS[name]().fit(X)
        before = dict(vars(model))
        try:
            _fit(model, other, _Interrupt(at))
        except KeyboardInterrupt:
            assert vars(model).keys() == before.keys()
            assert all(vars(model)[key] is before[key] for key in before)
        else:  # training keeps its best state, and all else is of the new data
            assert model.interrupted_
            assert np.abs(model.transform(other) - model.embedding_).max() == 0.0
            assert not any(vars(model)[key] is before[key] for key in ("_fit", "_scaling"))


def test_the_first_fit_that_fails_leaves_an_unfitted_estimator():
    model = bo.NGMVLVM(**SMALL)
    before = dict(vars(model))
    with pytest.raises(InputError):
        model.fit(np.full((5, 3), np.nan))
    assert vars(model) == before


def test_a_refit_on_an_array_forgets_the_names_of_columns():
    pd = pytest.importorskip("pandas")
    model = bo.NGMVLVM(**SMALL).fit(pd.DataFrame(_data(), columns=list("abcde")))
    assert hasattr(model, "feature_names_in_")
    model.fit(_data())
    assert not hasattr(model, "feature_names_in_")
    assert torch.is_grad_enabled()


LAYOUTS = {
    "columns one after the other": np.asfortranarray,
    "parts of a larger table": lambda X: np.repeat(np.repeat(X, 3, 0), 2, 1)[::3, ::2],
    "backwards": lambda X: X[::-1, ::-1].copy()[::-1, ::-1],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("likelihood", ["gaussian", "poisson"])
def test_fits_do_not_depend_on_how_a_table_lies_in_memory(likelihood, layout):
    X = _data() if likelihood == "gaussian" else np.rint(3.0 * np.exp(_data()))
    X[np.random.default_rng(1).random(X.shape) < 0.1] = np.nan
    params = SMALL | {"max_iter": 12, "views": {"a": [0, 1, 2], "b": [4, 3]}}
    one, other = (
        bo.NGMVLVM(likelihood=likelihood, **params).fit(rows)
        for rows in (X, LAYOUTS[layout](X))
    )
    np.testing.assert_array_equal(other.embedding_, one.embedding_)
    assert other.elbo_ == one.elbo_
    np.testing.assert_array_equal(other.impute(X), one.impute(X))
