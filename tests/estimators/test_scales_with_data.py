"""Likelihoods that scale with the data: the units of a view change nothing but the units of what
is returned.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest
import scipy.sparse as sp

import bochner as bo
from bochner.likelihoods.likelihood import Likelihood
from helpers.subclasses import concrete
from student_t_likelihood import StudentT

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::bochner.errors.CollapseWarning"),
]


def _data():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    X = 3.0 + np.sin(x @ rng.normal(size=(2, 9))) + 0.1 * rng.standard_t(3, size=(60, 9))
    X[rng.random(X.shape) < 0.05] = np.nan
    return x, X


def _model(likelihood, **more):
    # the first five columns are a view of their own, whose units change
    settings = {
        "n_frequencies": 16,
        "init": "pca",
        "max_iter": 60,
        "random_state": 0,
        "views": {"a": slice(0, 5), "b": slice(5, 9)},
    }
    return bo.RandomFeatureLVM(2, kernel="rbf", likelihood=likelihood, **{**settings, **more})


@functools.cache
def _fits(scale: float):
    _, X = _data()
    units = np.array([scale] * 5 + [1.0] * 4)
    plain, other = (_model(StudentT(), max_iter=20).fit(X * by) for by in (1.0, units))
    return plain, other, X, units


@pytest.mark.usefixtures("few_draws")
def test_units_of_a_power_of_two_change_no_bit_of_the_embedding():
    plain, other, X, _ = _fits(1024.0)
    np.testing.assert_array_equal(plain.embedding_, other.embedding_)
    np.testing.assert_array_equal(plain.embedding_std_, other.embedding_std_)
    n_entries = np.count_nonzero(~np.isnan(X[:, :5]))
    expected = plain.elbo_ - n_entries * np.log(1024.0)
    assert other.elbo_ == pytest.approx(expected, rel=1e-12)
    assert other.elbo_history_[-1] == pytest.approx(
        plain.elbo_history_[-1] - n_entries * np.log(1024.0), rel=1e-12
    )


@pytest.mark.usefixtures("few_draws")
def test_what_is_returned_is_in_the_units_of_the_data():
    plain, other, X, units = _fits(1024.0)
    few = X[:12]
    one = plain.impute(few, return_std=True)
    two = other.impute(few * units, return_std=True)
    for a, b in zip(one, two, strict=True):
        np.testing.assert_allclose(b, a * units, rtol=1e-12)
    np.testing.assert_allclose(
        other.sample(5, random_state=0), plain.sample(5, random_state=0) * units, rtol=1e-12
    )
    Z = plain.embedding_[:4]
    for a, b in zip(
        plain.inverse_transform(Z, return_std=True, interval=0.9),
        other.inverse_transform(Z, return_std=True, interval=0.9),
        strict=True,
    ):
        np.testing.assert_allclose(b, a * units, rtol=1e-12)
    np.testing.assert_allclose(
        other.kernel_matrix(Z, "a"), plain.kernel_matrix(Z, "a") * 1024.0**2, rtol=1e-12
    )
    few = few[:4]
    jacobian = np.count_nonzero(~np.isnan(few[:, :5]), axis=1) * np.log(1024.0)
    np.testing.assert_allclose(
        other.score_samples(few * units), plain.score_samples(few) - jacobian, rtol=1e-10
    )


def test_units_of_a_thousand_leave_the_latents_as_good():
    x, X = _data()
    plain, other = (_model(StudentT()).fit(X * by) for by in (1.0, 1000.0))
    one, two = (bo.metrics.mean_aligned_r2(x, model.embedding_) for model in (plain, other))
    assert two == pytest.approx(one, abs=0.01)
    filled = other.impute(X * 1000.0)
    np.testing.assert_allclose(filled.mean(), 3000.0, rtol=0.03)


def test_a_sparse_view_is_centred_as_a_dense_one():
    rng = np.random.default_rng(0)
    X = np.where(rng.random((50, 8)) < 0.5, rng.normal(5.0, 1.0, (50, 8)), 0.0)
    settings = {"views": None, "max_iter": 5, "dtype": "float64"}
    start = rng.normal(size=(50, 2))
    dense, sparse = (
        _model(StudentT(), **settings, init=start).fit(part) for part in (X, sp.csr_array(X))
    )
    assert sparse.elbo_ == pytest.approx(dense.elbo_, rel=1e-6)


def test_of_the_packages_likelihoods_the_gaussian_alone_scales():
    ours = concrete(Likelihood)
    assert {cls.__name__ for cls in ours if cls.scales_with_data} == {"Gaussian"}
