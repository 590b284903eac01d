"""Feature maps of sparse rows, and rows by their numbers in messages about parts of them."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from bochner.errors import InputError
from bochner.feature_maps import sections
from bochner.feature_maps.comparators import RandomMaclaurin, SphericalFeatures
from bochner.feature_maps.fourier import FourierFeatures
from bochner.feature_maps.krein import KreinFeatures

MODELS = [
    FourierFeatures(n_components=6, random_state=0),
    KreinFeatures("tl1", n_components=6, inference="spectral", random_state=0),
    KreinFeatures("polynomial", n_components=6, max_iter=3, random_state=0),
    RandomMaclaurin(n_components=6, random_state=0),
    SphericalFeatures(n_components=6, random_state=0),
]


@pytest.fixture
def X():
    return np.random.default_rng(0).uniform(size=(60, 3))


@pytest.mark.parametrize("kind", [sp.csr_matrix, sp.csc_array, sp.coo_array, sp.lil_matrix])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_sparse_rows_give_the_features_of_the_array(model, X, kind, dtype):
    rows = np.where(X > 0.6, X, 0.0).astype(dtype)
    rows[:, 0] = 0.5
    dense = clone(model).fit(rows)
    sparse = clone(model).fit(kind(rows))
    expected = dense.transform(rows)
    assert sparse.transform(kind(rows)).dtype == dtype
    np.testing.assert_allclose(sparse.transform(kind(rows)), expected, atol=1e-6)
    parts = list(sparse.iter_transform(kind(rows), 7))
    assert max(map(len, parts)) == 7
    np.testing.assert_allclose(np.concatenate(parts), expected, atol=1e-6)
    np.testing.assert_allclose(
        sparse.approximation_error(kind(rows)), dense.approximation_error(rows)
    )


@pytest.mark.parametrize("kind", [sp.csr_matrix, sp.csc_array, sp.coo_array])
@pytest.mark.parametrize("dtype", [np.float16, ">f8", ">i4"])
def test_sparse_rows_of_types_that_scipy_does_not_cut(X, kind, dtype):
    rows = np.where(X > 0.6, np.round(8 * X), 0.0)
    given = kind(rows)
    given.data = given.data.astype(dtype)
    model = FourierFeatures(n_components=6, random_state=0).fit(given)
    np.testing.assert_allclose(model.transform(given), model.transform(rows), atol=1e-12)
    assert model.transform(given).dtype == model.transform(rows.astype(dtype)).dtype
    parts = np.concatenate(list(model.iter_transform(given, 7)))
    np.testing.assert_allclose(parts, model.transform(rows), atol=1e-12)
    assert given.dtype == dtype


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_tables_of_sparse_columns_are_tables(model, X):
    table = pd.DataFrame(np.where(X > 0.3, X, 0.0), columns=["a", "b", "c"])
    sparse = pd.DataFrame.sparse.from_spmatrix(sp.csr_array(table), columns=table.columns)
    fitted = clone(model).fit(sparse)
    assert list(fitted.feature_names_in_) == ["a", "b", "c"]
    np.testing.assert_array_equal(fitted.transform(sparse), fitted.transform(table))
    assert len(next(fitted.iter_transform(sparse, 13))) == 13


def test_wide_sparse_rows_are_never_dense_at_once():
    rows = sp.random_array(
        (20_000, 2_000), density=1e-3, rng=np.random.default_rng(0), format="csr"
    )
    model = FourierFeatures(n_components=2, random_state=0).fit(rows)
    tracemalloc.start()
    model.transform(rows)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # all of them would take 320 MB
    assert peak < 40e6


def test_sparse_rows_that_are_not_finite_or_of_another_width_are_refused(X):
    model = FourierFeatures(random_state=0).fit(X)
    broken = sp.csr_array(np.where(X > 0.9, np.nan, X))
    with pytest.raises(ValueError, match="NaN"):
        model.transform(broken)
    with pytest.raises(ValueError, match="2 features, but FourierFeatures is expecting"):
        model.transform(sp.csr_array(X[:, :2]))


def test_no_rows_are_refused_as_such_however_they_are_read(X):
    zarr = pytest.importorskip("zarr")
    model = FourierFeatures(random_state=0).fit(X)
    for rows in (X[:0], sp.csr_array(X[:0]), torch.tensor(X[:0]), zarr.array(X[:0])):
        for call in (model.transform, lambda rows: list(model.iter_transform(rows))):
            with pytest.raises(ValueError, match="minimum of 1 is required"):
                call(rows)


@pytest.mark.parametrize(
    "make", [torch.Tensor.to_sparse, torch.Tensor.to_sparse_csr, lambda x: x.to("meta")]
)
def test_tensors_without_rows_to_cut_are_refused(X, make):
    model = FourierFeatures(random_state=0).fit(X)
    with pytest.raises(InputError, match=r"Expected a dense tensor of numbers, .*to_dense"):
        model.transform(make(torch.tensor(X)))


def test_rows_outside_the_cube_are_refused_by_their_numbers_wherever_they_are(X, monkeypatch):
    monkeypatch.setattr(sections, "_NUMBERS", 5 * X.shape[1])
    rows = np.clip(X, 0.0, 1.0)
    rows[37, 1] = 1.7
    model = KreinFeatures("tl1", n_components=4, inference="spectral", sketch_size=5)
    for seed in range(3):
        with pytest.raises(InputError, match=r"got 1\.7 in row 37, column 1"):
            clone(model).set_params(random_state=seed).fit(rows)
    with pytest.raises(InputError, match=r"row 2, column 1.* Rows are counted from row 35 on"):
        model.fit(sp.csr_array(rows))
    model.fit(rows[:30])
    with pytest.raises(InputError, match=r"row 7, column 1.* Rows are counted from row 30 on"):
        list(model.iter_transform(rows, 10))


@pytest.mark.parametrize("chunk", [0, -1, 1.5, True, "a", None])
def test_chunks_are_whole_numbers_of_rows(X, chunk):
    model = FourierFeatures(random_state=0).fit(X)
    with pytest.raises(ValueError, match=r"'chunk' parameter .* int in the range \[1, inf\)"):
        model.iter_transform(X, chunk)


def test_sparse_rows_of_one_dimension_are_refused(X):
    with pytest.raises(ValueError, match="Expected 2D array"):
        FourierFeatures().fit(sp.coo_array(X[0]))


def test_the_closed_form_of_nothing_is_refused(X):
    with pytest.raises(NotFittedError):
        KreinFeatures().fitted_kernel(X)
