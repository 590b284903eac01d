"""Zarr stores that AnnData wrote, and paths inside a store."""

from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

import bochner as bo
from bochner.errors import InputError
from bochner.io.on_disk import open_zarr
from bochner.io.readers import read
from bochner.io.request import Request
from bochner.io.sparse import turned

anndata = pytest.importorskip("anndata")
zarr = pytest.importorskip("zarr")
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")
GENES = list("abcd")
CELLS = [f"c{i}" for i in range(30)]


@pytest.fixture
def X():
    return np.random.default_rng(0).poisson(2.0, size=(30, 4)).astype(np.float32)


@pytest.fixture(params=["dense", "csr"])
def store(request, X, tmp_path):
    values = X if request.param == "dense" else sp.csr_matrix(X)
    adata = anndata.AnnData(values)
    adata.obs_names, adata.var_names = CELLS, GENES
    adata.layers["counts"] = 2 * values
    adata.obsm["Z"] = X[:, :2]
    adata.var["high"] = [True, False, True, True]
    adata.write_zarr(tmp_path / "A.zarr")
    return tmp_path / "A.zarr"


@pytest.mark.parametrize(("inside", "factor"), [("", 1), ("X", 1), ("layers/counts", 2)])
def test_matrices_that_anndata_wrote_have_names(inside, factor, store, X):
    source = bo.open_rows(store / inside)
    assert source.columns == GENES
    np.testing.assert_array_equal(source.read(3, 25), factor * X[3:25])
    table = read(store / inside)
    assert (table.row_names, table.column_names) == (CELLS, GENES)
    np.testing.assert_array_equal(table.X, factor * X)


def test_layers_masks_and_columns_are_chosen(store, X):
    np.testing.assert_array_equal(read(store, layer="counts").X, 2 * X)
    table = read(store, columns=["d", "b"])
    assert table.column_names == ["b", "d"]
    np.testing.assert_array_equal(table.X, X[:, [1, 3]])
    masked = open_zarr(store, Request(layer="counts", mask_var="high"))
    assert masked.column_names == ["a", "c", "d"]
    np.testing.assert_array_equal(masked.rows.read(0, 30), 2 * X[:, [0, 2, 3]])


def test_other_arrays_of_a_store_have_no_names(store, X):
    source = bo.open_rows(store / "obsm" / "Z")
    assert source.columns is None
    np.testing.assert_array_equal(source.read(0, 30), X[:, :2])


def test_what_a_store_does_not_hold_is_refused(store, X):
    for call, said in (
        (
            lambda: bo.open_rows(store / "obsm"),
            f"holds Z. Name one of its arrays: {store}/obsm/Z",
        ),
        (lambda: bo.open_rows(store / "Y"), "Y, which does not exist"),
        (
            lambda: read(store, layer="raw"),
            f"layers/raw in {store}, got layers/counts. Choose",
        ),
        (lambda: read(store / "X", layer="raw"), "layer only for stores that AnnData wrote"),
        (lambda: read(store, index="a"), "index only for csv and parquet files"),
        (lambda: read(store, drop=["e"]), "got no 'e'"),
        (lambda: read(store / "obsm" / "Z", drop=["e"]), "column names to choose from"),
        (lambda: read(store, layer={"rna": "raw"}), f"one layer of {store}, got"),
        (
            lambda: open_zarr(store / "obsm" / "Z", Request(mask_var="high")),
            "mask_var only for stores",
        ),
    ):
        with pytest.raises(InputError, match=re.escape(said)):
            call()


@pytest.mark.parametrize("written", [False, True])
def test_a_store_without_x_names_its_layers(X, written, tmp_path):
    adata = anndata.AnnData(shape=X.shape)
    adata.layers["counts"] = X
    adata.write_zarr(tmp_path / "A.zarr")
    if written:
        # as anndata 0.12.0 does
        store = zarr.open_group(tmp_path / "A.zarr", mode="a", use_consolidated=False)
        store.create_array("X", shape=(), dtype="float32", overwrite=True)
        store["X"].attrs["encoding-type"] = "null"
        zarr.consolidate_metadata(store.store)
    with pytest.raises(
        InputError, match=r"X in .*A\.zarr, got layers/counts\. Choose one of them"
    ):
        bo.open_rows(tmp_path / "A.zarr")


@pytest.mark.parametrize("entries", [3, 2**22])
@pytest.mark.parametrize("kind", ["zarr", "h5ad"])
def test_a_matrix_by_columns_is_turned_over(kind, entries, tmp_path, monkeypatch):
    monkeypatch.setattr(turned, "_ENTRIES", entries)
    counts = np.random.default_rng(0).poisson(0.4, (50, 7)).astype(np.float32)
    for number, matrix in enumerate((counts, 0 * counts)):
        path = tmp_path / f"A{number}.{kind}"
        adata = anndata.AnnData(sp.csc_matrix(matrix))
        adata.write_zarr(path) if kind == "zarr" else adata.write_h5ad(path)
        rows = bo.open_rows(path)
        np.testing.assert_array_equal(np.concatenate(list(rows.blocks())), matrix)
        np.testing.assert_array_equal(rows.take(np.array([49, 3])), matrix[[49, 3]])
        whole = rows.whole()
        assert whole.has_canonical_format
        np.testing.assert_array_equal(whole.toarray(), matrix)
    monkeypatch.setattr(turned.shutil, "disk_usage", lambda _: SimpleNamespace(free=9))
    anndata.AnnData(sp.csc_matrix(counts)).write_h5ad(tmp_path / "B.h5ad")
    match = r"free in .* \(TMPDIR\), to turn over .*B\.h5ad, got 9 bytes\. Write the .*tocsr"
    with pytest.raises(InputError, match=match):
        bo.open_rows(tmp_path / "B.h5ad")


def test_a_group_is_refused_by_the_paths_of_its_arrays(X, tmp_path):
    group = zarr.open_group(str(tmp_path / "g.zarr"), mode="w")
    group.create_array("X", data=X)
    for reader in (bo.open_rows, read):
        with pytest.raises(InputError, match=r"the group .* holds X\. Name one .*g\.zarr/X"):
            reader(tmp_path / "g.zarr")
    for name in ("A", "B", "Y"):
        group.create_group(name)
    for reader in (bo.open_rows, read):
        match = r"the group .* holds X, A, B, Y\. Name one .*g\.zarr/X"
        with pytest.raises(InputError, match=match):
            reader(tmp_path / "g.zarr")
    np.testing.assert_array_equal(bo.open_rows(tmp_path / "g.zarr/X").whole(), X)
    np.testing.assert_array_equal(read(tmp_path / "g.zarr" / "X").X, X)
