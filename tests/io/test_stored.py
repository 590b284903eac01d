"""Rows of npy, zarr and parquet files, and what else is refused."""

from __future__ import annotations

import re
import time

import numpy as np
import pytest
import scipy.sparse as sp
from typer.testing import CliRunner

import bochner as bo
from bochner.cli.main import app
from bochner.errors import InputError
from bochner.io.readers import read


@pytest.fixture
def X():
    return np.random.default_rng(0).normal(size=(230, 4)).astype(np.float32)


def write_parquet(path, X, names="abcd", **options):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(arrow.table(dict(zip(names, X.T, strict=True))), path, **options)


def test_rows_of_several_parquet_files_follow_each_other(X, tmp_path):
    write_parquet(tmp_path / "1.parquet", X[:100], row_group_size=30)
    write_parquet(tmp_path / "2.parquet", X[100:], row_group_size=40)
    source = bo.open_rows(tmp_path)
    assert source.shape == (230, 4)
    assert source.columns == list("abcd")
    assert source.dtype == np.float32
    np.testing.assert_array_equal(source.whole(), X)
    for start, stop in [(0, 1), (29, 31), (95, 230), (7, 7)]:
        np.testing.assert_array_equal(source.read(start, stop), X[start:stop])
    index = np.array([200, 3, 99, 100])
    np.testing.assert_array_equal(source.take(index), X[index])
    some = bo.open_rows([tmp_path / "2.parquet", tmp_path / "1.parquet"], columns=["c", "a"])
    np.testing.assert_array_equal(
        some.read(129, 132), np.vstack([X[100:], X[:100]])[129:132, [2, 0]]
    )


def test_null_is_missing_and_whole_numbers_are_double(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = arrow.table(
        {"n": arrow.array([1, None, 3]), "flag": arrow.array([True, False, None])}
    )
    parquet.write_table(table, tmp_path / "x.parquet")
    source = bo.open_rows(tmp_path / "x.parquet")
    assert source.dtype == np.float64
    np.testing.assert_array_equal(source.whole(), [[1, 1], [np.nan, 0], [3, np.nan]])


def test_what_is_refused_says_what_to_type(X, tmp_path):
    pytest.importorskip("pyarrow")
    with pytest.raises(InputError, match="which does not exist"):
        bo.open_rows(tmp_path / "no.parquet")
    (tmp_path / "x.csv").write_text("a\n1\n")
    with pytest.raises(InputError, match=re.escape("rows in .npy, .zarr, .parquet")):
        bo.open_rows(tmp_path / "x.csv")
    np.savez(tmp_path / "x.npz", a=X, b=X)
    with pytest.raises(
        InputError, match=r"got .*x\.npz\. Open a file per view .*bochner\.stack"
    ):
        bo.open_rows(tmp_path / "x.npz")
    (tmp_path / "broken.parquet").write_text("no")
    with pytest.raises(InputError, match=re.escape("broken.parquet")):
        bo.open_rows(tmp_path / "broken.parquet")
    write_parquet(tmp_path / "1.parquet", X)
    write_parquet(tmp_path / "2.parquet", X, names="abce")
    with pytest.raises(InputError, match=r"a column 'd', got none in .*2.parquet"):
        bo.open_rows([tmp_path / "1.parquet", tmp_path / "2.parquet"])
    write_parquet(tmp_path / "t.parquet", np.array([["x"] * 3] * 4).T)
    with pytest.raises(InputError, match=r"numbers, got the type string, column 0 \('a'\)"):
        bo.open_rows(tmp_path / "t.parquet")
    np.save(tmp_path / "x.npy", X)
    with pytest.raises(InputError, match="columns only for parquet files"):
        bo.open_rows(tmp_path / "x.npy", columns=["a"])


def test_an_array_of_objects_is_refused_as_by_those_who_read_it_whole(X, tmp_path):
    np.save(tmp_path / "x.npy", X.astype(object))
    for opening in (bo.open_rows, read):
        with pytest.raises(InputError, match=r"numbers, got Python objects in .*x\.npy"):
            opening(tmp_path / "x.npy")
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY")
    with pytest.raises(InputError, match=r"a readable npy file, got .*x\.npy"):
        bo.open_rows(tmp_path / "x.npy")


@pytest.mark.filterwarnings("ignore:Training stopped")
def test_commands_transform_from_disk_to_disk(X, tmp_path):
    pandas = pytest.importorskip("pandas")
    zarr = pytest.importorskip("zarr")
    model = bo.NGMVLVM(init="pca", max_iter=5, n_frequencies=8, random_state=0)
    model.fit(pandas.DataFrame(X[:60], columns=list("abcd")))
    model.save(tmp_path / "m.bochner")
    expected = np.hstack(
        model.transform(pandas.DataFrame(X, columns=list("abcd")), return_std=True)
    )
    (tmp_path / "rows").mkdir()
    write_parquet(tmp_path / "rows" / "1.parquet", X[:100])
    write_parquet(tmp_path / "rows" / "2.parquet", X[100:])
    np.save(tmp_path / "x.npy", X)
    zarr.save_array(str(tmp_path / "x.zarr"), X)

    def run(data, out):
        where = [
            str(tmp_path / "m.bochner"),
            str(tmp_path / data),
            "--out",
            str(tmp_path / out),
        ]
        done = CliRunner().invoke(app, ["transform", *where])
        assert done.exit_code == 0, done.output
        return tmp_path / out

    result = pandas.read_parquet(run("rows", "z.parquet"))
    assert list(result.columns) == ["z0", "z1", "z0_std", "z1_std"]
    np.testing.assert_array_equal(result.to_numpy(), expected)
    result = np.load(run("x.npy", "z.npy"))
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result, expected)
    np.testing.assert_array_equal(
        zarr.open(str(run("x.zarr", "z.zarr")), mode="r")[:], expected
    )


def test_columns_are_named_by_arrays_too(X, tmp_path):
    write_parquet(tmp_path / "x.parquet", X)
    for names in (np.array(["c", "a"]), np.array(["c", "a"], dtype=object)):
        source = bo.open_rows(tmp_path / "x.parquet", columns=names)
        assert source.columns == ["c", "a"]
        np.testing.assert_array_equal(source.whole(), X[:, [2, 0]])


def test_as_many_columns_as_there_are_genes_are_checked_at_once(tmp_path):
    """Each name was looked for among all before it: 30,000 of them took 5 seconds."""
    (tmp_path / "x.parquet").touch()
    begun = time.process_time()
    with pytest.raises(InputError, match="'gene 0' more than once"):
        bo.open_rows(
            tmp_path / "x.parquet", [f"gene {j}" for j in range(100_000)] + ["gene 0"]
        )
    assert time.process_time() - begun < 5.0


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ("ab", "Expected names of columns, got 'ab'"),
        ([], "Expected names of columns, got "),
        ([1], "Expected names of columns, got "),
        (np.array([[1, 2]]), "Expected names of columns, got "),
        (["a", "b", "a"], "Expected columns that differ, got 'a' more than once"),
    ],
)
def test_columns_are_names_that_differ(columns, text, X, tmp_path):
    write_parquet(tmp_path / "x.parquet", X)
    with pytest.raises(InputError, match=text):
        bo.open_rows(tmp_path / "x.parquet", columns=columns)


def test_sparse_matrices_of_files_damaged_and_backed(tmp_path):
    anndata = pytest.importorskip("anndata")
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "x.h5ad"
    X = sp.csr_matrix(np.random.default_rng(0).poisson(1.0, (20, 4)).astype(float))
    anndata.AnnData(X).write_h5ad(path)
    backed = anndata.read_h5ad(path, backed="r")
    with pytest.raises(InputError, match=r"backed by its file\. Pass bochner\.open_rows"):
        bo.NGMVLVM().fit(backed.X)
    backed.file.close()
    with h5py.File(path, "r+") as file:
        file["X/indices"][3] = 99
    # written out it would be beyond the block
    with pytest.raises(InputError, match=r"of 20 × 4, got entries outside it in .*x\.h5ad"):
        bo.open_rows(path).read(0, 20)


@pytest.mark.parametrize("by", [sp.csr_matrix, sp.csc_matrix])
@pytest.mark.parametrize(
    ("part", "value"), [("indices", 2**30), ("indptr", 2**30), ("indptr", -5)]
)
def test_places_of_damaged_sparse_matrices_are_looked_at(by, part, value, tmp_path):
    anndata = pytest.importorskip("anndata")
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "x.h5ad"
    X = by(np.random.default_rng(0).poisson(1.0, (20, 4)).astype(float))
    anndata.AnnData(X).write_h5ad(path)
    with h5py.File(path, "r+") as file:
        file[f"X/{part}"][3] = value
    # the library wrote such entries beyond its result: the process ended
    for columns in (None, ["0", "2"]):
        with pytest.raises(
            InputError, match=r"of 20 × 4, got entries outside it in .*x\.h5ad"
        ):
            read(path, columns=columns)
