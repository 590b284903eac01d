"""Fits of rows that are not in memory: same answers, block by block, and what bad rows get."""

from __future__ import annotations

import functools
import pickle
import re

import numpy as np
import pytest
import scipy.sparse

import bochner as bo
from bochner.data.row_sources import ArraySource
from bochner.errors import DataWarning, InputError
from bochner.summary import describe_model

SETTINGS = {
    "landmarks": 80,
    "n_frequencies": 20,
    "max_iter": 8,
    "init": "pca",
    "random_state": 0,
}
TWO = {"views": {"left": slice(0, 3), "right": slice(3, 7)}, **SETTINGS}
pytestmark = [
    pytest.mark.filterwarnings("ignore:Training stopped"),
    # what is the same with few draws is the same with many
    pytest.mark.usefixtures("few_draws_in_module"),
]


class Watched(ArraySource):
    """Small blocks, and a record of what is read."""

    block_rows = 128

    def __init__(self, array):
        super().__init__(array)
        self.most = 0

    def read(self, start, stop):
        self.most = max(self.most, stop - start)
        return super().read(start, stop)


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(700, 2))
    clean = np.sin(Z @ rng.normal(size=(2, 7)))
    return (3.0 * clean + 0.3 * rng.normal(size=clean.shape) + 5.0).astype(np.float32)


@pytest.fixture(scope="module")
def in_memory(X, few_draws_in_module):
    return bo.NGMVLVM(**TWO).fit(X)


def memory_map(X, folder):
    np.save(folder / "x.npy", X)
    return np.load(folder / "x.npy", mmap_mode="r")


def zarr_array(X, folder):
    zarr = pytest.importorskip("zarr")
    array = zarr.open(
        str(folder / "x.zarr"), mode="w", shape=X.shape, chunks=(150, 7), dtype=X.dtype
    )
    array[:] = X
    return array


def hdf5_array(X, folder):
    h5py = pytest.importorskip("h5py")
    return h5py.File(folder / "x.h5", "w").create_dataset("x", data=X, chunks=(100, 7))


def parquet_files(X, folder):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    for number, rows in enumerate(np.array_split(X, 3)):
        table = arrow.table({f"c{j}": rows[:, j] for j in range(X.shape[1])})
        parquet.write_table(table, folder / f"part{number}.parquet", row_group_size=90)
    return bo.open_rows(folder)


@pytest.mark.parametrize("store", [memory_map, zarr_array, hdf5_array, parquet_files])
def test_rows_on_disk_give_the_bits_of_rows_in_memory(store, X, in_memory, tmp_path):
    stored = store(X, tmp_path)
    model = bo.NGMVLVM(**TWO).fit(stored)
    assert model.elbo_ == in_memory.elbo_
    assert model.landmarks_ == in_memory.landmarks_
    assert model.embedding_.dtype == np.float32
    np.testing.assert_array_equal(model.embedding_, in_memory.embedding_)
    np.testing.assert_array_equal(model.embedding_std_, in_memory.embedding_std_)
    np.testing.assert_array_equal(model.transform(stored), in_memory.embedding_)


def test_latents_alone_are_those_with_deviations(X, in_memory, tmp_path):
    model = bo.NGMVLVM(**TWO).fit(memory_map(X, tmp_path))
    np.testing.assert_array_equal(model.embedding_, in_memory.embedding_)
    first = model.embedding_
    assert model.embedding_ is first  # placed once
    np.testing.assert_array_equal(model.embedding_std_, in_memory.embedding_std_)
    np.testing.assert_array_equal(model.embedding_, first)


def test_no_more_than_a_block_is_ever_read(X, in_memory):
    source = Watched(X)
    model = bo.NGMVLVM(**TWO).fit(source)
    model.transform(source)
    assert model.score(Watched(X[:20])) == pytest.approx(in_memory.score(X[:20]), abs=1e-4)
    assert source.most == 128
    # products of other chunks round in another way
    assert model.elbo_ == pytest.approx(in_memory.elbo_, rel=1e-6)
    np.testing.assert_allclose(model.embedding_, in_memory.embedding_, atol=1e-3)


def counts_of(X):
    rates = np.exp(0.25 * (X - 5.0))
    return np.random.default_rng(1).poisson(rates).astype(np.float32)


def h5ad(X, folder):
    anndata = pytest.importorskip("anndata")
    anndata.AnnData(X).write_h5ad(folder / "x.h5ad")
    return bo.open_rows(folder / "x.h5ad")


def sparse_h5ad(X, folder):
    return h5ad(scipy.sparse.csr_array(X), folder)


def sparse_zarr(X, folder):
    anndata, zarr = pytest.importorskip("anndata"), pytest.importorskip("zarr")
    group = zarr.open_group(str(folder), mode="w")
    anndata.io.write_elem(group, "x.zarr", scipy.sparse.csr_array(X))
    return bo.open_rows(folder / "x.zarr")


COUNTS = {
    "poisson": {"likelihood": bo.likelihoods.Poisson(size_factors="total"), **SETTINGS},
    "negative_binomial": {"likelihood": "negative_binomial", **SETTINGS},
    "beside": {"likelihood": {"left": "poisson"}, **TWO},
}


@pytest.fixture(scope="module")
def counts_in_memory(X, few_draws_in_module):
    """Counts of a case, and their fit; computed once."""

    @functools.cache
    def of(case):
        counts = counts_of(X)
        if case == "beside":
            counts[:, 3:] = X[:, 3:]
        return counts, bo.NGMVLVM(**COUNTS[case]).fit(counts)

    return of


@pytest.mark.parametrize(
    ("case", "store"),
    [
        ("poisson", Watched),
        ("negative_binomial", memory_map),
        ("beside", memory_map),
        ("poisson", h5ad),
        ("poisson", sparse_h5ad),
        ("poisson", sparse_zarr),
    ],
)
def test_counts_on_disk_are_those_in_memory(
    case, store, counts_in_memory, tmp_path, monkeypatch
):
    counts, expected = counts_in_memory(case)
    stored = Watched(counts) if store is Watched else store(counts, tmp_path)

    def whole(*_):
        raise AssertionError("the rows were read as a whole")

    monkeypatch.setattr("bochner.data.row_sources.RowSource.whole", whole)
    model = bo.NGMVLVM(**COUNTS[case]).fit(stored)
    assert model.elbo_ == pytest.approx(expected.elbo_, rel=1e-6)
    np.testing.assert_allclose(model.embedding_, expected.embedding_, atol=2e-3)
    np.testing.assert_allclose(model.transform(stored), model.embedding_, atol=1e-6)
    if store is Watched:
        assert stored.most == 128


def test_a_count_on_disk_that_is_none_is_placed(X, tmp_path):
    counts = counts_of(X)
    counts[450, 3] = 1.5
    with pytest.raises(InputError, match=re.escape("1.5 in row 450, column 3")):
        bo.NGMVLVM(**COUNTS["poisson"]).fit(Watched(counts))


def test_a_sparse_matrix_in_memory_is_shared_as_others_are(X):
    counts = scipy.sparse.csr_array(counts_of(X))
    assert (bo.share(counts) != counts).nnz == 0


def test_wide_rows_are_rotated_as_they_are_read(tmp_path):
    rng = np.random.default_rng(1)
    Z = rng.normal(size=(400, 2))
    X = np.sin(Z @ rng.normal(size=(2, 300))) + 0.1 * rng.normal(size=(400, 300))
    expected = bo.NGMVLVM(**SETTINGS).fit(X)
    model = bo.NGMVLVM(**SETTINGS).fit(Watched(X))
    assert model.dropped_["x"] > 0.0
    assert model.elbo_ == pytest.approx(expected.elbo_, rel=1e-6)
    np.testing.assert_allclose(model.embedding_, expected.embedding_, atol=1e-3)


def test_noise_per_column_is_learned_from_blocks(X):
    settings = {**SETTINGS, "noise": "column", "landmarks": 200}
    expected = bo.AdvisedRFLVM(**settings).fit(X)
    model = bo.AdvisedRFLVM(**settings).fit(Watched(X))
    np.testing.assert_allclose(
        model.noise_variance_["x"], expected.noise_variance_["x"], rtol=1e-4
    )


def test_checks_name_rows_of_later_blocks(X):
    bad = X.copy()
    bad[600, 3] = np.inf
    text = "inf in view 'x', row 600, column 3. Correct the value"
    with pytest.raises(InputError, match=re.escape(text)):
        bo.NGMVLVM(**SETTINGS).fit(Watched(bad))
    model = bo.NGMVLVM(**SETTINGS).fit(Watched(X))
    with pytest.raises(InputError, match=re.escape(text)):
        model.transform(Watched(bad))


class Named(ArraySource):
    """Rows whose columns have names."""

    def __init__(self, array, columns):
        super().__init__(array)
        self.columns = list(columns)


def test_columns_in_another_order_are_named_before_what_their_values_are(X):
    counts = np.hstack([np.floor(np.exp(0.2 * X[:, :2])), X[:, 2:4]])
    kinds = {"views": {"n": [0, 1], "x": [2, 3]}, "likelihood": {"n": "poisson"}}
    model = bo.NGMVLVM(**kinds, **SETTINGS).fit(Named(counts, "abcd"))
    with pytest.raises(InputError, match="columns of training, 'a' as column 0, got 'd'"):
        model.transform(Named(counts[:, ::-1], "dcba"))


def hide(X, how):
    incomplete, source = X.copy(), np.random.default_rng(2)
    if how == "entries":
        incomplete[source.random(X.shape) < 0.15] = np.nan
        incomplete[np.isnan(incomplete).all(axis=1), 0] = 5.0
    if how == "views":
        absent = source.random(len(X)) < 0.3
        incomplete[absent, 3:] = np.nan
        incomplete[::9, :3] = np.where(absent[::9, None], incomplete[::9, :3], np.nan)
    if how == "columns":
        incomplete[50:, 2] = np.nan
    return incomplete


@pytest.mark.parametrize("how", ["entries", "views", "columns"])
def test_rows_with_holes_are_read_block_by_block(how, X):
    incomplete = hide(X[:500], how)
    expected = bo.NGMVLVM(**TWO).fit(incomplete)
    source = Watched(incomplete)
    model = bo.NGMVLVM(**TWO).fit(source)
    spread = expected.embedding_.std(axis=0)
    assert source.most == 128
    assert model.landmarks_["n"] == expected.landmarks_["n"]
    assert model.elbo_ == pytest.approx(expected.elbo_, rel=1e-6)
    assert np.abs((model.embedding_ - expected.embedding_) / spread).max() < 1e-3


def test_holes_with_noise_per_column_are_held_in_memory(X, tmp_path):
    incomplete = hide(X[:300], "entries")
    settings = {**SETTINGS, "noise": "column"}
    model = bo.AdvisedRFLVM(**settings).fit(memory_map(incomplete, tmp_path))
    assert model.elbo_ == bo.AdvisedRFLVM(**settings).fit(incomplete).elbo_


def test_what_must_be_in_memory_and_is_too_large_is_refused(tmp_path):
    zarr = pytest.importorskip("zarr")
    shape = (20_000_000, 100)
    array = zarr.open(
        str(tmp_path / "x.zarr"), mode="w", shape=shape, chunks=(1000, 100), dtype="f8",
        fill_value=np.nan,
    )  # fmt: skip
    text = (
        "got 14.9 GiB for 20,000,000 × 100 numbers, held in memory because of missing entries"
    )
    with pytest.raises(InputError, match=re.escape(text)):
        bo.NGMVLVM(**SETTINGS, noise="column").fit(array)
    with pytest.raises(
        InputError, match="because of missing entries and likelihood='poisson'"
    ):
        bo.NGMVLVM(likelihood="poisson").fit(array)
    with pytest.raises(InputError, match="because of a fit without landmarks"):
        bo.NGMVLVM(landmarks=None).fit(array)


def test_groups_and_dask_arrays_are_refused_with_what_to_type(tmp_path):
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(str(tmp_path / "g.zarr"), mode="w")
    group.create_array("counts", shape=(10, 2), dtype="f4")
    with pytest.raises(InputError, match=re.escape("got a zarr group that holds 'counts'")):
        bo.NGMVLVM().fit(group)
    # what it names is an array
    group.create_group("a")
    with pytest.raises(InputError, match=re.escape("arrays: group['counts'].")):
        bo.NGMVLVM().fit(group)
    for name in ("data", "indices", "indptr"):
        group.create_array(f"a/{name}", shape=(10,), dtype="f4")
    with pytest.raises(InputError, match=re.escape("by its file: bochner.open_rows(path)")):
        bo.NGMVLVM().fit(group["a"])


def test_rows_that_change_are_noticed(X):
    values = X.copy()
    model = bo.NGMVLVM(**SETTINGS).fit(Watched(values))
    values[400] += 1.0
    with pytest.raises(InputError, match="the same rows from start to end"):
        _ = model.embedding_


class Changing(ArraySource):
    """Rows to which somebody writes after some passes over them."""

    n_read = 0

    def read(self, start, stop):
        self.n_read += 1
        if self.n_read == 5:
            self.array[400] += 1.0
        return super().read(start, stop)


def test_rows_that_change_during_a_fit_are_refused(X):
    rows = Changing(X.copy())
    model = bo.NGMVLVM(**SETTINGS)
    text = "to end, got others than when the fit began. Start again when nothing writes"
    with pytest.raises(InputError, match=re.escape(text)):
        model.fit(rows)
    assert rows.n_read > 5
    assert not hasattr(model, "elbo_")


def test_a_model_that_is_saved_or_pickled_has_placed_all_rows(X, tmp_path):
    model = bo.NGMVLVM(**SETTINGS).fit(Watched(X))
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copy.embedding_, model.transform(X))
    model.save(tmp_path / "m.bochner")
    np.testing.assert_array_equal(
        bo.load(tmp_path / "m.bochner").embedding_std_, model.embedding_std_
    )


class Packed(ArraySource):
    """Rows that are unpacked every time they are read, and how many were."""

    block_rows = 128
    decodes = True

    def __init__(self, array):
        super().__init__(array)
        self.n_read = 0

    def read(self, start, stop):
        self.n_read += stop - start
        return super().read(start, stop)


def test_rows_of_packed_files_are_not_unpacked_in_every_pass(X, in_memory):
    # 29 passes: bounds of all rows, and what comes before training; steps over all rows and their
    # bounds, which read copies, would be 84 more
    rows = Packed(X)
    model = bo.NGMVLVM(**TWO).fit(rows)
    assert rows.n_read < 40 * len(X)
    assert model.elbo_ == pytest.approx(in_memory.elbo_, rel=1e-6)
    np.testing.assert_allclose(model.embedding_, in_memory.embedding_, atol=1e-4)


@pytest.mark.parametrize("kind", ["npy", "parquet"])
def test_a_file_that_is_cut_short_after_a_fit_has_changed(kind, X, tmp_path):
    pandas = pytest.importorskip("pandas")
    path = tmp_path / f"x.{kind}"
    frame = pandas.DataFrame(X, columns=[f"c{j}" for j in range(X.shape[1])])
    np.save(path, X) if kind == "npy" else frame.to_parquet(path, row_group_size=90)
    model = bo.NGMVLVM(**TWO).fit(bo.open_rows(path))
    if kind == "npy":
        with path.open("r+b") as file:
            file.truncate(path.stat().st_size // 2)
    else:
        frame.iloc[:-50].to_parquet(path, row_group_size=90)
    with pytest.raises(InputError, match="Expected the same rows from start to end"):
        _ = model.embedding_


@pytest.mark.parametrize("asked", ["nothing", "means"])
def test_a_model_whose_rows_are_gone_is_saved_without_their_latents(asked, X, tmp_path):
    values = X.copy()
    model = bo.NGMVLVM(**SETTINGS).fit(Watched(values))
    means = None if asked == "nothing" else model.embedding_
    values[400] += 1.0
    what = "embedding_std_ is" if asked == "means" else "embedding_ and embedding_std_ are"
    said = f"{what} not kept: Expected the same rows"
    with pytest.warns(DataWarning, match=said):
        model.save(tmp_path / "m.bochner")
    with pytest.warns(DataWarning, match=said):
        copy = pickle.loads(pickle.dumps(model))
    again = bo.load(tmp_path / "m.bochner")
    again.save(tmp_path / "again.bochner")
    missing = "embedding_std_" if asked == "means" else "embedding_"
    for one in (copy, again, bo.load(tmp_path / "again.bochner")):
        with pytest.raises(InputError, match="got none: its rows were gone, or others, when"):
            getattr(one, missing)
        if means is not None:
            np.testing.assert_array_equal(one.embedding_, means)
        np.testing.assert_array_equal(one.transform(X[:9]), model.transform(X[:9]))
        assert describe_model(one)["rows"] == len(X)
    # the model itself finds rows that come back
    values[400] = X[400]
    assert model.embedding_.shape == (700, 2)
