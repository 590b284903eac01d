"""Entries too far from the rest: named before a fit or a placement, never a crash in the middle of
one.
"""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp

import bochner as bo
from bochner.data.columns import ends_and_sample, extremes
from bochner.data.validation import _away, check_magnitudes
from bochner.errors import DataWarning, InputError


def table(seed=0):
    source = np.random.default_rng(seed)
    return np.sin(source.normal(size=(60, 2)) @ source.normal(size=(2, 8)))


@pytest.fixture(scope="module", params=[2, 14])
def model(request):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return bo.NGMVLVM(
            request.param, init="pca", max_iter=5, n_frequencies=10, random_state=0
        ).fit(table())


@pytest.mark.parametrize("code", [-9999.0, 9.97e36])
def test_a_code_for_missing_values_is_named(code):
    X = table()
    X[[3, 9], 2] = code
    with pytest.warns(
        DataWarning,
        match=rf"2 entries of {code:g}".replace("+", r"\+")
        + r" \(view 'x', row 3, column 2\)",
    ):
        bo.NGMVLVM(init="pca", max_iter=2, n_frequencies=5, random_state=0).fit(X)


def test_a_code_is_found_among_many_rows():
    X = np.tile(table().astype(np.float32), (200, 1))
    X[11_111, 5] = -9999
    low, high, some = ends_and_sample(X, 1000)
    with pytest.warns(
        DataWarning,
        match=r"1 entry of -9999 \(view 'x', row 11111, column 5\): 1.5e\+04 standard deviations",
    ):
        check_magnitudes(X, some, (low, high), {"x": np.arange(8)})


def test_values_that_are_merely_large_are_not_named():
    source = np.random.default_rng(1)
    for X in (
        table() * [1, 1, 1, 1, 1, 1, 1e6, 1e9],
        source.lognormal(0, 2, size=(200, 5)),
        np.eye(40),
        np.ones((9, 3)),
    ):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            bo.NGMVLVM(1, init="pca", max_iter=2, n_frequencies=5, random_state=0).fit(X)
        assert not [w for w in said if "deviations from the rest" in str(w.message)]


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_values_whose_squares_overflow_are_refused(make):
    X = table()
    X[4, 1] = -1e200
    with pytest.raises(
        InputError, match=r"at most 1e\+100 in size, got -1e\+200 in view 'x', row 4, column 1"
    ):
        bo.NGMVLVM().fit(make(X))


@pytest.mark.parametrize("value", [1e12, -1e30, 1e300])
@pytest.mark.parametrize("make", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_new_rows_out_of_all_reach_are_refused(model, value, make):
    new = table(1)[:6]
    new[5, 7] = value
    with pytest.raises(
        InputError,
        match=r"within 1e\+08 standard deviations of the training data, got .* row 5, column 7",
    ):
        model.transform(make(new))


@pytest.mark.parametrize("value", [1e3, 1e7, -1e7])
def test_new_rows_within_reach_are_placed_however_far(model, value):
    new = table(1)[:6]
    new[5, 7], new[5, 0] = value, np.nan
    for result in (
        *model.transform(new, return_std=True),
        *model.impute(new, return_std=True),
        model.score_samples(new),
    ):
        assert np.isfinite(result).all()


def test_counts_may_be_large_in_new_rows():
    counts = np.random.default_rng(2).poisson(20, size=(50, 4)).astype(float)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = bo.NGMVLVM(
            1, likelihood="poisson", init="pca", max_iter=3, n_frequencies=5, random_state=0
        ).fit(counts)
    counts[0, 0] = 1e9
    assert np.isfinite(model.transform(counts[:2])).all()


def test_values_whose_squares_overflow_say_nothing_about_a_code():
    X = np.full((20, 3), 1e200)
    X[:, 1], X[0, 2] = -1e210, -999.0
    with pytest.raises(
        InputError, match=r"numbers of at most .* got -1e\+210 in view 'x', row 0"
    ):
        check_magnitudes(X, X, extremes(X), {"x": np.arange(3)})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isnan(_away(X, np.arange(3), -999.0)[2])
