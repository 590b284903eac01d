"""Dask arrays: two workers give the model of one process, placement is lazy."""

from __future__ import annotations

import os
import re

import numpy as np
import pytest
from scipy.sparse import csr_array

import bochner as bo
from bochner.errors import InputError
from helpers.few_draws import know_less

array = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")
pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    # as in the workers: what is the same with few draws is the same with many
    pytest.mark.usefixtures("few_draws_in_module"),
]
SETTINGS = {
    "n_frequencies": 8,
    "init": "pca",
    "max_iter": 8,
    "landmarks": 70,
    "random_state": 0,
}


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(300, 2))
    X = np.sin(Z @ rng.normal(size=(2, 6))) + 0.3 * rng.normal(size=(300, 6))
    X[::17, 1] = np.nan
    return X


@pytest.fixture(scope="module")
def cluster():
    """Two processes that do what several tests ask; the last of them ends one."""
    size = {"n_workers": 2, "threads_per_worker": 1, "processes": True}
    with distributed.LocalCluster(**size, dashboard_address=None) as cluster:
        with distributed.Client(cluster) as client:
            client.run(know_less)
        yield cluster


@pytest.fixture
def client(cluster):
    with distributed.Client(cluster) as client:
        yield client


def test_two_workers_fit_the_model_of_one_process(X, client):
    estimator = bo.NGMVLVM(**SETTINGS)
    expected = bo.NGMVLVM(**SETTINGS).fit(X)
    rows = array.from_array(X, chunks=(70, 4))
    model = bo.dask.fit(estimator, rows, client)
    placed = bo.dask.transform(model, rows).compute()
    assert not hasattr(estimator, "elbo_")
    assert model.elbo_ == pytest.approx(expected.elbo_, rel=1e-6)
    spread = expected.embedding_.std(axis=0)
    assert (np.abs(model.embedding_ - expected.embedding_) / spread).max() < 1e-3
    np.testing.assert_allclose(placed, model.embedding_, atol=1e-6)


def known_of(n_rows):
    rng = np.random.default_rng(1)
    batch = np.array(["a", "b", "c"])[np.arange(n_rows) * 3 // n_rows]
    return rng.uniform(0.3, 3.0, n_rows), batch, rng.normal(size=n_rows)


def test_a_fit_takes_what_is_known_of_rows_part_by_part(client):
    size, batch, age = known_of(120)
    rng = np.random.default_rng(0)
    rate = np.exp(0.7 * np.sin(rng.normal(size=(120, 2)) @ rng.normal(size=(2, 6))))
    X = rng.poisson(size[:, None] * rate).astype(float)
    pandas = pytest.importorskip("pandas")
    tables = pytest.importorskip("dask.dataframe")
    frame = pandas.DataFrame({"batch": batch, "age": age})
    settings = SETTINGS | {"likelihood": "poisson", "landmarks": 40, "max_iter": 4}
    expected = bo.NGMVLVM(**settings).fit(X, size_factors=size, covariates=frame)
    rows = array.from_array(X, chunks=(50, 4))
    table = tables.from_pandas(frame, npartitions=4)
    given = (
        {"size_factors": size, "covariates": frame},
        {"size_factors": array.from_array(size, chunks=13), "covariates": table},
        {"size_factors": {"x": size}, "covariates": {n: table[n] for n in frame}},
    )
    for known in given:
        model = bo.dask.fit(bo.NGMVLVM(**settings), rows, client, **known)
        assert model.elbo_ == pytest.approx(expected.elbo_, rel=1e-6)
        spread = expected.embedding_.std(axis=0)
        assert (np.abs(model.embedding_ - expected.embedding_) / spread).max() < 1e-3
    with pytest.raises(InputError, match=r"size_factors of 120 rows, got 119\. Give one"):
        bo.dask.fit(bo.NGMVLVM(**settings), rows, client, size_factors=size[1:])
    with pytest.raises(InputError, match=r"covariates of 120 rows, got 119\. Give one"):
        bo.dask.fit(bo.NGMVLVM(**settings), rows, client, covariates=table.loc[1:])
    bad = np.where(np.arange(120) == 110, -1.0, size)
    with pytest.raises(InputError, match="size factor"):
        bo.dask.fit(bo.NGMVLVM(**settings), rows, client, size_factors=bad)
    placed = bo.dask.transform(model, rows, size_factors=size, covariates=table)
    result = placed.compute(scheduler="synchronous")
    np.testing.assert_allclose(result, model.embedding_, atol=1e-6)


def test_what_a_worker_refuses_is_said_and_the_cluster_goes_on(X, client):
    bad = X.copy()
    bad[290, 3] = np.inf
    with pytest.raises(InputError, match="got inf in view 'x', row"):
        bo.dask.fit(bo.NGMVLVM(**SETTINGS), array.from_array(bad, chunks=(70, 4)), client)
    counts = array.from_array(np.ones((300, 6)), chunks=(70, 6))
    with pytest.raises(InputError, match="dense blocks, got sparse ones"):
        bo.dask.fit(bo.NGMVLVM(**SETTINGS), counts.map_blocks(csr_array), client)
    # chunks of one row or none, and fewer than two a worker
    few = array.from_array(np.nan_to_num(X[:80]), chunks=((79, 0, 1), (6,)))
    settings = SETTINGS | {"landmarks": 30}
    model = bo.dask.fit(bo.NGMVLVM(**settings), few, client)
    with pytest.raises(InputError, match=r"rows, got none: shape \(0, 6\)"):
        bo.dask.fit(bo.NGMVLVM(**settings), few[:0], client)
    assert model.embedding_.shape == (80, 2)
    placed = bo.dask.transform(model, few, return_std=True)
    assert placed.compute(scheduler="synchronous").shape == (80, 4)


def test_blocks_may_be_sparse_and_rows_are_counted_among_all(X, client):
    model = bo.NGMVLVM(**SETTINGS).fit(np.nan_to_num(X))
    rows = array.from_array(np.nan_to_num(X), chunks=(70, 6))
    sparse = rows.map_blocks(csr_array, dtype=float)
    placed = bo.dask.transform(model, sparse).compute(scheduler="sync")
    np.testing.assert_allclose(placed, model.transform(np.nan_to_num(X)), atol=1e-6)
    X = X.copy()
    X[293, 2] = np.inf
    rows = array.from_array(X, chunks=(70, 6))
    said = r"got inf in view 'x', row 13, column 2\. .* \(its row 0 is row 280 of the data\)$"
    with pytest.raises(InputError, match=said):
        bo.dask.transform(model, rows).compute(scheduler="sync")
    said = r"row 153, column 2\. .* \(process 1, whose row 0 is row 140 of the data\)$"
    with pytest.raises(InputError, match=said):
        bo.dask.fit(bo.NGMVLVM(**SETTINGS), rows, client)


def deadly(block):
    """End the process that makes these rows."""
    if len(block):
        os._exit(1)
    return block


def test_the_end_of_a_worker_ends_the_fit(X, client):
    rows = array.from_array(X, chunks=(150, 6))
    last = array.map_blocks(deadly, rows[150:], dtype=float, meta=np.empty((0, 0)))
    bo.dask.fit(bo.NGMVLVM(**SETTINGS), rows, client)
    broken = array.concatenate([rows[:150], last])
    with pytest.raises(InputError, match="all workers to the end of the fit, got the end"):
        bo.dask.fit(bo.NGMVLVM(**SETTINGS), broken, client)


def test_placement_is_lazy_and_that_of_rows_in_memory(X):
    model = bo.NGMVLVM(**SETTINGS).fit(X)
    rows = array.from_array(X, chunks=(70, 4))
    placed = bo.dask.transform(model, rows, return_std=True)
    assert placed.shape == (300, 4)
    assert placed.chunks[0] == rows.chunks[0]
    expected = np.hstack(model.transform(X, return_std=True))
    result = placed.compute(scheduler="synchronous")
    # products of other parts round; standard deviations are sought in single precision
    np.testing.assert_allclose(result[:, :2], expected[:, :2], atol=1e-10)
    np.testing.assert_allclose(result[:, 2:], expected[:, 2:], rtol=1e-5)


def test_what_cannot_be_fitted_says_what_to_type(X):
    rows = array.from_array(X, chunks=(70, 6))
    with pytest.raises(InputError, match=re.escape("bochner.dask.fit(estimator, X)")):
        bo.NGMVLVM().fit(rows)
    with pytest.raises(InputError, match="a client of a Dask cluster, got none"):
        bo.dask.fit(bo.NGMVLVM(), rows)
    with pytest.raises(InputError, match="a Dask array"):
        bo.dask.fit(bo.NGMVLVM(), X)
    with pytest.raises(InputError, match="compute_chunk_sizes"):
        bo.dask.fit(bo.NGMVLVM(), rows[rows[:, 0] > 0])


def test_rows_of_another_width_are_refused_at_once():
    X = np.random.default_rng(0).normal(size=(20, 4))
    model = bo.NGMVLVM(1, n_frequencies=4, init="pca", max_iter=3, random_state=0).fit(X)
    rows = array.from_array(X[:, :3])
    with pytest.raises(InputError, match=r"4 columns, as at the fit, got .* shape \(20, 3\)"):
        bo.dask.transform(model, rows)


def test_rows_of_files_that_anndata_opens_lazily_are_placed(X, tmp_path):
    anndata = pytest.importorskip("anndata")
    pytest.importorskip("xarray")
    model = bo.NGMVLVM(**SETTINGS).fit(X)
    anndata.AnnData(X).write_h5ad(tmp_path / "x.h5ad")
    opened = anndata.experimental.read_lazy(tmp_path / "x.h5ad")
    placed = bo.dask.transform(model, opened.X).compute(scheduler="synchronous")
    np.testing.assert_allclose(placed, model.embedding_, atol=1e-10)
    for work in (bo.dask.transform, bo.dask.fit):
        with pytest.raises(InputError, match=r"got AnnData .*\. Pass its X, as anndata"):
            work(model, opened)


def test_placement_takes_what_is_known_of_rows():
    rng = np.random.default_rng(0)
    size = rng.uniform(0.3, 3.0, 60)
    X = rng.poisson(size[:, None] * np.exp(rng.normal(size=(60, 4)))).astype(float)
    batch = {"batch": rng.choice(["a", "b"], 60)}
    quick = {"n_frequencies": 4, "init": "pca", "max_iter": 3, "random_state": 0}
    model = bo.NGMVLVM(2, **quick, likelihood="poisson")
    model.fit(X, size_factors=size, covariates=batch)
    expected = model.transform(X, size_factors=size, covariates=batch)
    rows = array.from_array(X, chunks=(25, 2))
    for factors in (size, array.from_array(size, chunks=13), {"x": size}):
        given = {"size_factors": factors, "covariates": batch}
        placed = bo.dask.transform(model, rows, **given).compute(scheduler="synchronous")
        np.testing.assert_allclose(placed, expected, atol=1e-8)
    # at once, not by a worker
    with pytest.raises(InputError, match=r"60 size factors for view 'x', .* shape \(59,\)"):
        bo.dask.transform(model, rows, size_factors=size[1:], covariates=batch)
    with pytest.raises(InputError, match=r"the covariates 'batch' of the rows, got none"):
        bo.dask.transform(model, rows, size_factors=size)
