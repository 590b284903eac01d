"""Views as users keep them: stacked, joined by name, written back."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.utils._param_validation import InvalidParameterError

import bochner as bo
from bochner import extras
from bochner.cli.data import Reading
from bochner.cli.mixed_tables.whole import read_frame
from bochner.errors import DataWarning, InputError
from bochner.io.readers import read
from bochner.io.table import dense

pytestmark = pytest.mark.filterwarnings(
    "ignore:Training stopped", "ignore::bochner.errors.CollapseWarning"
)
SMALL = {"n_components": 1, "n_frequencies": 8, "n_init": 1, "max_iter": 8, "random_state": 0}
NAN = np.nan


def frame(matrix, rows, columns):
    return pd.DataFrame(np.asarray(matrix), index=list(rows), columns=list(columns))


# -- stack
# ---------------------------------------------------------------------------


def test_frames_are_joined_by_their_index():
    rna = frame([[1.0, 2.0], [3.0, 4.0]], "ab", ["g1", "g2"])
    protein = frame([[10.0], [30.0]], "cb", ["cd3"])
    X, views = bo.stack({"rna": rna, "protein": protein})
    assert views == {"rna": slice(0, 2), "protein": slice(2, 3)}
    expected = frame([[1, 2, NAN], [3, 4, 30], [NAN, NAN, 10.0]], "abc", ["g1", "g2", "cd3"])
    pd.testing.assert_frame_equal(X, expected)
    back = bo.unstack(X, views)
    pd.testing.assert_frame_equal(
        back["protein"].dropna().sort_index(ascending=False), protein, check_like=False
    )


@pytest.mark.filterwarnings("ignore:Expected rows that views share")
def test_labels_stay_what_they_are_and_equal_names_are_told_apart():
    X, _ = bo.stack({"a": frame([[1.0]], [7], ["v"]), "b": frame([[2.0]], [3], ["v"])})
    assert X.index.tolist() == [7, 3]
    assert X.columns.tolist() == ["a:v", "b:v"]
    series = pd.Series([5.0], index=[7], name="s")
    assert bo.stack({"a": series})[0].columns.tolist() == ["s"]


def test_arrays_lists_and_sparse_matrices_share_their_rows():
    X, views = bo.stack(
        {"a": np.ones((2, 2), np.float32), "b": [[1], [2]], "c": sp.eye_array(2, format="csc")}
    )
    assert views == {"a": slice(0, 2), "b": slice(2, 3), "c": slice(3, 5)}
    np.testing.assert_array_equal(X, [[1, 1, 1, 1, 0], [1, 1, 2, 0, 1]])
    assert X.dtype == np.float64
    assert bo.stack({"a": np.ones((2, 2), np.float32)})[0].dtype == np.float32
    nullable = pd.DataFrame(
        {"n": pd.array([1, None], dtype="Int64"), "b": pd.array([True, False])}
    )
    np.testing.assert_array_equal(bo.stack({"a": nullable})[0], [[1, 1], [NAN, 0]])


def test_complex_views_become_two_and_one_again():
    h = np.array([[1 + 2j, 3 - 1j], [0.5j, 2]])
    X, views = bo.stack({"h": h, "power": np.ones((2, 1))})
    assert list(views) == ["h.real", "h.imag", "power"]
    np.testing.assert_array_equal(X, np.hstack([h.real, h.imag, np.ones((2, 1))]))
    np.testing.assert_array_equal(bo.unstack(X, views)["h"], h)
    named = frame(h, "pq", ["a0", "a1"])
    X, views = bo.stack({"h": named})
    assert X.columns.tolist() == ["a0.real", "a1.real", "a0.imag", "a1.imag"]
    pd.testing.assert_frame_equal(bo.unstack(X, views)["h"], named)
    assert bo.stack({"h": h.astype(np.complex64)})[0].dtype == np.float32


@pytest.mark.parametrize(
    ("views", "text"),
    [
        (
            {"a": frame(np.ones((3, 1)), "ppq", "v")},
            "row names that differ in view 'a', got 'p' more than once",
        ),
        (
            {"a": frame(np.ones((1, 2)), "p", "vv")},
            "column names that differ in view 'a', got 'v' more than once",
        ),
        (
            {"a": np.ones((2, 1)), "b": np.ones((3, 1))},
            "the same number of rows in every view, got 'a': 2, 'b': 3",
        ),
        (
            {"a": frame([[1.0]], "p", "v"), "b": np.ones((1, 1))},
            "row names in every view, as in some, got none for 'b'",
        ),
        (
            {"a": frame([["x"]], "p", "v")},
            r"numbers, got the text 'x' in row 0, column 0 \('v'\) of view 'a'",
        ),
        (
            {"a": np.array([[1, "x"]], dtype=object)},
            "numbers, got the text 'x' in row 0, column 1 of view 'a'",
        ),
        ({"a": np.array([["x"]])}, "real numbers, got the type <U1 in view 'a'"),
        (
            {"a": pd.DataFrame({"t": pd.to_datetime(["2020-01-01"])})},
            r"got the type datetime64.*column 0 \('t'\)",
        ),
        ({"a": pd.DataFrame({"t": pd.Categorical([1, 2])})}, "got the type category"),
        (
            {"h": np.ones((1, 1)) * 1j, "h.imag": np.ones((1, 1))},
            "view names that differ in the views, got 'h.imag'",
        ),
        ({"a": np.ones(3)}, "a two-dimensional array"),
        ({}, "got an empty dict"),
        ([np.ones((2, 2))], "got list. Name the views"),
    ],
)
def test_views_that_cannot_be_stacked(views, text):
    with pytest.raises(InputError, match=text):
        bo.stack(views)


@pytest.mark.parametrize("dtype", [np.float16, ">f8", ">i4"])
def test_sparse_matrices_of_types_that_scipy_does_not_cut(dtype, tmp_path):
    anndata = pytest.importorskip("anndata")
    values = np.random.default_rng(100).poisson(1.0, size=(30, 4))
    matrix = sp.csr_matrix(values.astype(np.float64))
    matrix.data = matrix.data.astype(dtype)
    stacked, _ = bo.stack({"a": matrix, "b": matrix})
    np.testing.assert_array_equal(stacked, np.hstack([values, values]))
    path = tmp_path / "counts.h5ad"
    anndata.AnnData(matrix).write_h5ad(path)
    np.testing.assert_array_equal(bo.open_rows(path).read(3, 9), values[3:9])
    adata = anndata.AnnData(matrix)
    bo.fit_anndata(adata, **SMALL)
    model = bo.NGMVLVM(**SMALL).fit(matrix)
    np.testing.assert_array_equal(model.transform(matrix), model.embedding_)
    assert bo.report(model, matrix, path=tmp_path / "page.html").exists()


def test_entries_of_one_place_are_added_without_overflow():
    given = np.array([200, 100], np.uint8), np.array([1, 1]), np.array([0, 2])
    X = sp.csr_array(given, shape=(1, 2))
    assert dense(X, "f.h5ad").tolist() == [[0.0, 300.0]]


def test_a_sparse_matrix_is_written_out_up_to_a_limit(monkeypatch):
    X = sp.random_array((5000, 7), density=0.2, rng=np.random.default_rng(0), format="coo")
    np.testing.assert_array_equal(dense(X, "X"), X.toarray())
    assert dense(X, "X", np.float32).dtype == np.float32
    monkeypatch.setattr("bochner.io.table.DENSE_LIMIT", 1000)
    with pytest.raises(
        InputError,
        match=r"got 5,000 × 7 entries \(0.0 GiB\) in view 'X'. Choose fewer columns",
    ):
        bo.stack({"X": X})


def test_a_missing_package_is_named_with_the_command(monkeypatch):
    def absent(name):
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(extras.importlib, "import_module", absent)
    with pytest.raises(
        InputError,
        match=r"package mudata \(reads h5mu files\).*Run: pip install 'bochner\[anndata\]'",
    ):
        extras.require("mudata", "reads h5mu files")


# -- names through an estimator
# ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def table():
    source = np.random.default_rng(0)
    z = source.normal(size=(30, 1))
    X = np.sin(z + np.arange(6)) + 0.05 * source.normal(size=(30, 6))
    return frame(X, [f"r{i}" for i in range(30)], [f"c{j}" for j in range(6)])


def test_names_are_kept_and_reordered_columns_are_refused(table):
    X, views = bo.stack({"a": table.iloc[:, :4], "b": table.iloc[5:, 4:]})
    model = bo.NGMVLVM(views=views, **SMALL).fit(X)
    assert model.feature_names_in_.tolist() == table.columns.tolist()
    full = model.impute(X)
    assert (full.index.tolist(), full.columns.tolist()) == (
        X.index.tolist(),
        X.columns.tolist(),
    )
    assert not full.isna().any().any()
    out = model.set_output(transform="pandas").transform(X)
    assert (out.index.tolist(), out.columns.tolist()) == (X.index.tolist(), ["ngmvlvm0"])
    with pytest.raises(
        ValueError, match="Feature names must be in the same order as they were in fit"
    ):
        model.transform(X[X.columns[::-1]])
    with pytest.raises(ValueError, match="Feature names unseen at fit time"):
        model.transform(X.rename(columns={"c0": "other"}))
    with pytest.raises(InputError, match=r"the text 'x' in row 1, column 0 \('c0'\)"):
        bo.NGMVLVM(**SMALL).fit(pd.DataFrame({"c0": [1.0, "x", 2.0], "c1": [1.0, 2.0, 3.0]}))


def test_a_sparse_X_is_what_it_stands_for(table):
    X = np.ascontiguousarray(np.where(np.abs(table.to_numpy()) < 0.5, 0.0, table.to_numpy()))
    plain, model = bo.NGMVLVM(**SMALL).fit(X), bo.NGMVLVM(**SMALL).fit(sp.csr_array(X))
    # sums over stored entries round differently
    np.testing.assert_allclose(model.embedding_, plain.embedding_, rtol=0, atol=1e-4)
    np.testing.assert_allclose(
        model.transform(sp.coo_array(X)), model.embedding_, rtol=0, atol=1e-6
    )
    counts = sp.csr_matrix(np.random.default_rng(0).poisson(2.0, (30, 5)))
    model = bo.NGMVLVM(likelihood="poisson", **SMALL).fit(counts)
    assert np.isfinite(model.embedding_).all()
    bad = sp.csr_array(np.array([[np.inf, 0.0, 0, 0, 0]]))
    with pytest.raises(InputError, match="inf in view 'x', row 0, column 0"):
        model.transform(bad)


def test_new_categories_are_refused_at_transform(table):
    X = table.copy()
    X["k"] = np.arange(30) % 3
    views = {"x": list(table.columns), "k": ["k"]}
    model = bo.NGMVLVM(views=views, likelihood={"k": "categorical"}, **SMALL).fit(X)
    X.loc["r2", "k"] = 7
    with pytest.raises(
        InputError,
        match=r"categories seen in training in view 'k'.*got 7 in row 2, column 6 \('k'\)",
    ):
        model.transform(X)


# -- parquet
# ---------------------------------------------------------------------------


def test_parquet_files_whose_metadata_are_damaged(tmp_path):
    pa = pytest.importorskip(
        "pyarrow", reason="pyarrow is not installed: pip install 'bochner[parquet]'"
    )
    import pyarrow.parquet as pq

    path = tmp_path / "damaged.parquet"
    table = pa.table({"a": [1.0, 2.0], "b": ["x", "y"]})
    pq.write_table(table.replace_schema_metadata({b"pandas": b"[1]"}), path)
    with pytest.raises(InputError, match=r"damaged\.parquet"):
        read(path)
    # what they say of types is not needed for numbers
    part = b'{"columns": [{"name": "a"}], "index_columns": []}'
    pq.write_table(table.replace_schema_metadata({b"pandas": part}), path)
    np.testing.assert_array_equal(read(path, columns=["a"]).X, [[1.0], [2.0]])
    with pytest.raises(InputError, match=r"damaged\.parquet"):
        read_frame(path, None, Reading())


def test_parquet_files(tmp_path):
    pytest.importorskip(
        "pyarrow", reason="pyarrow is not installed: pip install 'bochner[parquet]'"
    )
    X = frame([[1.0, NAN], [3.0, 4.0]], ["p", "q"], ["a", "b"])
    X.to_parquet(tmp_path / "named.parquet")
    X.reset_index(drop=True).to_parquet(tmp_path / "plain.parquet")
    X.rename_axis("id").reset_index().to_parquet(tmp_path / "column.parquet")
    for name, rows in {"named": ["p", "q"], "plain": None, "column": ["p", "q"]}.items():
        result = read(tmp_path / f"{name}.parquet")
        assert (result.row_names, result.column_names) == (rows, ["a", "b"])
        np.testing.assert_array_equal(result.X, X.to_numpy())
    assert read(tmp_path / "column.parquet", index="id").row_names == ["p", "q"]
    with pytest.raises(
        InputError,
        match=r"an index column 'name' in .*column.parquet, got columns 'id', 'a', 'b'",
    ):
        read(tmp_path / "column.parquet", index="name")
    pd.DataFrame({"a": [1.0], "t": ["u"]}).to_parquet(tmp_path / "text.parquet")
    with pytest.raises(
        InputError,
        match=r"numbers, got the text 'u' in row 0, column 1 \('t'\) of .*text.parquet",
    ):
        read(tmp_path / "text.parquet")
    (tmp_path / "bad.parquet").write_bytes(b"no parquet at all")
    with pytest.raises(InputError, match=r"a readable parquet file, got .*bad.parquet"):
        read(tmp_path / "bad.parquet")


# -- AnnData and MuData
# ---------------------------------------------------------------------------

anndata = None
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    try:
        import anndata
        import mudata
    except ImportError:
        pass
needs_anndata = pytest.mark.skipif(
    anndata is None,
    reason="anndata and mudata are not installed: pip install 'bochner[anndata]'",
)


@pytest.fixture(autouse=True, scope="module")
def plain_strings():
    """Texts as objects: this anndata writes no Arrow strings, which pandas 3 makes of them."""
    with pd.option_context("future.infer_string", False):
        yield


def names(values):
    return pd.DataFrame(index=pd.Index(list(values), dtype=object))


def annotated(table, as_sparse=False):
    X = table.to_numpy()
    adata = anndata.AnnData(
        sp.csr_matrix(X) if as_sparse else X, obs=names(table.index), var=names(table.columns)
    )
    adata.var["chosen"] = np.arange(table.shape[1]) < 4
    adata.obs["size"] = np.linspace(1, 2, len(table))
    return adata


@pytest.fixture
def unpaired(table):
    """Two modalities that share 20 of 30 rows, which the second has in another order."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rna, protein = (
            annotated(table.iloc[:25, :4]),
            annotated(table.iloc[:4:-1, 4:], as_sparse=True),
        )
        return mudata.MuData({"rna": rna, "protein": protein})


@needs_anndata
def test_fit_anndata_writes_what_survives_a_file(table, tmp_path):
    adata = annotated(table)
    model = bo.fit_anndata(adata, **SMALL)
    plain = bo.NGMVLVM(**SMALL).fit(table)
    np.testing.assert_array_equal(adata.obsm["X_bochner"], plain.embedding_)
    np.testing.assert_array_equal(adata.obsm["X_bochner_std"], plain.embedding_std_)
    assert model.feature_names_in_.tolist() == table.columns.tolist()
    result = adata.uns["bochner"]
    json.dumps(result)
    assert (result["model"], result["elbo"], result["views"]) == (
        "NGMVLVM",
        model.elbo_,
        ["x"],
    )
    assert json.loads(result["settings"])["max_iter"] == 8
    adata.write_h5ad(tmp_path / "a.h5ad")
    back = anndata.read_h5ad(tmp_path / "a.h5ad")
    np.testing.assert_array_equal(back.obsm["X_bochner"], plain.embedding_)
    assert back.uns["bochner"]["settings"] == result["settings"]
    np.testing.assert_array_equal(back.uns["bochner"]["relevance"], model.relevance_)
    X, _ = bo.stack({"x": back})
    np.testing.assert_array_equal(model.transform(X), plain.embedding_)


@needs_anndata
def test_keys_that_exist_are_kept(table):
    adata = annotated(table)
    adata.obsm["X_bochner"] = np.zeros((30, 1))
    wrong = {**SMALL, "max_iter": -1}  # a fit would refuse it: the key is looked at first
    with pytest.raises(
        InputError,
        match=r"free keys in adata, got obsm\['X_bochner'\] from before. Write overwrite=True",
    ):
        bo.fit_anndata(adata, **wrong)
    assert not adata.obsm["X_bochner"].any()
    bo.fit_anndata(adata, key_added="other", **SMALL)
    assert not adata.obsm["X_bochner"].any()
    bo.fit_anndata(adata, overwrite=True, **SMALL)
    np.testing.assert_array_equal(adata.obsm["X_bochner"], adata.obsm["X_other"])


@needs_anndata
def test_layers_masks_representations_and_subsets(table, tmp_path):
    adata = annotated(table, as_sparse=True)
    adata.layers["twice"] = 2 * table.to_numpy()
    adata.obsm["X_pca"] = table.to_numpy()[:, :3]
    assert (
        bo.fit_anndata(
            adata, "advised-rflvm", layer="twice", mask_var="chosen", **SMALL
        ).n_features_in_
        == 4
    )
    expected = bo.AdvisedRFLVM(**SMALL).fit(2 * table.iloc[:, :4]).embedding_
    # the order of a table's memory, and with it the rounding, differs between versions of pandas
    np.testing.assert_allclose(adata.obsm["X_bochner"], expected, atol=1e-6)
    assert json.loads(adata.uns["bochner"]["source"]) == {
        "layer": "twice",
        "mask_var": "chosen",
    }
    estimator = bo.NGMVLVM(**SMALL)
    assert bo.fit_anndata(adata, estimator, use_rep="X_pca", overwrite=True) is estimator
    np.testing.assert_array_equal(
        adata.obsm["X_bochner"], bo.NGMVLVM(**SMALL).fit(table.iloc[:, :3]).embedding_
    )
    del adata.obsm["X_bochner"], adata.obsm["X_bochner_std"], adata.uns["bochner"]
    adata.layers["dense"] = table.to_numpy()
    adata.write_h5ad(tmp_path / "a.h5ad")
    backed = anndata.read_h5ad(tmp_path / "a.h5ad", backed="r")
    bo.fit_anndata(backed, **SMALL)
    np.testing.assert_array_equal(
        backed.obsm["X_bochner"], bo.NGMVLVM(**SMALL).fit(table).embedding_
    )
    part = adata[:20]
    with pytest.warns(Warning, match="initializing view as actual"):
        bo.fit_anndata(part, **SMALL)
    assert part.obsm["X_bochner"].shape == (20, 1)
    assert "X_bochner" not in adata.obsm


@needs_anndata
def test_a_representation_that_is_a_frame_keeps_the_names_of_its_columns(table):
    adata = annotated(table)
    adata.obsm["frame"] = table.iloc[:, :3]
    model = bo.fit_anndata(adata, use_rep="frame", **SMALL)
    np.testing.assert_allclose(
        model.transform(adata.obsm["frame"]), adata.obsm["X_bochner"], atol=1e-5
    )


@needs_anndata
def test_columns_of_obs_are_found_where_its_names_are_numbers(table):
    adata = annotated(table)
    adata.layers["counts"] = np.random.default_rng(0).poisson(np.exp(1 + table))
    options = {"layer": "counts", "likelihood": "poisson", "covariate_keys": "size", **SMALL}
    expected = bo.fit_anndata(adata, size_factors="size", **options).embedding_
    adata.obs.index = range(100, 100 + adata.n_obs)
    model = bo.fit_anndata(adata, size_factors="size", overwrite=True, **options)
    np.testing.assert_array_equal(model.embedding_, expected)
    given = adata.obs["size"]
    model = bo.fit_anndata(adata, size_factors=given, overwrite=True, **options)
    np.testing.assert_array_equal(model.embedding_, expected)
    np.testing.assert_array_equal(adata.obsm["X_bochner"], expected)


@needs_anndata
def test_counts_with_size_factors(table):
    counts = np.random.default_rng(0).poisson(np.exp(1 + table)).astype(np.float32)
    adata = annotated(table)
    adata.layers["counts"] = sp.csr_matrix(counts)
    model = bo.fit_anndata(
        adata, layer="counts", likelihood="poisson", size_factors="size", **SMALL
    )
    assert model.likelihood_ == {"x": "poisson"}
    direct = bo.NGMVLVM(likelihood="poisson", **SMALL).fit(
        counts.astype(float), size_factors=adata.obs["size"]
    )
    np.testing.assert_array_equal(model.embedding_, direct.embedding_)
    assert adata.uns["bochner"]["likelihoods"] == ["poisson"]


@needs_anndata
@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"layer": "counts"}, "'counts' in adata.layers, got an empty one. Leave out layer"),
        (
            {"mask_var": "highly"},
            "'highly' in adata.var, got 'chosen'. Choose mask_var from 'chosen'",
        ),
        ({"mask_var": [True]}, "mask_var of 6 booleans"),
        (
            {"mask_var": [True, None, True] * 2},
            r"object of shape \(6,\), some of them missing",
        ),
        (
            {"batch_key": "size", "covariate_keys": ["size"]},
            "every column of obs once, got 'size' twice",
        ),
        ({"key_added": "a/b"}, "key_added without a slash, not empty, got 'a/b'"),
        ({"key_added": ""}, "key_added without a slash, not empty, got ''"),
        ({"use_rep": "X_pca"}, "'X_pca' in adata.obsm"),
        ({"use_rep": "X_pca", "layer": "counts"}, "use_rep alone"),
        ({"size_factors": "depth"}, "'depth' in adata.obs, got 'size'"),
        ({"n_componentz": 2}, "parameters of NGMVLVM, got unknown 'n_componentz'"),
        (
            {"estimator": "pca"},
            "one of ng-mvlvm, advised-rflvm, random-feature-lvm, srflvm, .*got 'pca'",
        ),
        ({"estimator": 3}, "got an object of type int"),
        ({"batch_key": ["size"]}, r"\['size'\] in adata.obs, got 'size'"),
        ({"layer": ["counts"]}, r"\['counts'\] in adata.layers"),
        ({"use_rep": ["X_pca"]}, r"\['X_pca'\] in adata.obsm"),
    ],
)
def test_what_fit_anndata_refuses(table, options, text):
    with pytest.raises(InputError, match=text):
        bo.fit_anndata(annotated(table), **options)


@needs_anndata
def test_a_mask_of_variables_has_their_order(table):
    adata = annotated(table)
    names = list(adata.var_names)
    mask = pd.Series([True, True, *[False] * (len(names) - 2)], index=names)
    model = bo.fit_anndata(adata, mask_var=mask, **SMALL)
    assert list(model.feature_names_in_) == names[:2]
    with pytest.raises(InputError, match=r"mask_var\.loc\[adata\.var_names\]"):
        bo.fit_anndata(annotated(table), mask_var=mask[::-1], **SMALL)


@needs_anndata
@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"covariate_keys": 3}, "an instance of 'str', an array-like or None"),
        ({"key_added": 3}, "an instance of 'str'"),
        ({"overwrite": "yes"}, "an instance of 'bool'"),
    ],
)
def test_arguments_of_other_types_are_refused_before_a_fit(table, options, what):
    (name,) = options
    text = f"'{name}' parameter of fit_anndata must be {what}"
    with pytest.raises(InvalidParameterError, match=text):
        bo.fit_anndata(annotated(table), **options)


@needs_anndata
def test_an_anndata_without_columns_is_not_told_to_have_rows(table):
    text = r"shape \(\d+, 0\) in adata\. Save at least one row and one column"
    with pytest.raises(InputError, match=text):
        bo.fit_anndata(annotated(table)[:, :0].copy())


@needs_anndata
def test_an_anndata_without_data_or_with_repeated_names(table):
    empty = anndata.AnnData(obs=names("ab"))
    empty.layers["counts"] = np.ones((2, 0))
    with pytest.raises(InputError, match=r"adata.X, got none. Name a layer of 'counts'"):
        bo.fit_anndata(empty)
    twice = annotated(table)
    twice.obs_names = ["p", "p", *twice.obs_names[2:]]
    with pytest.raises(
        InputError, match=r"row names that differ in adata.obs_names, got 'p' more than once"
    ):
        bo.fit_anndata(twice)


@needs_anndata
def test_fit_mudata_takes_rows_that_a_modality_lacks(unpaired, table, tmp_path):
    model = bo.fit_mudata(unpaired, likelihood={"rna": "gaussian"}, **SMALL)
    X, views = bo.stack(unpaired)
    assert X.index.tolist() == unpaired.obs_names.tolist()
    assert views == {"rna": slice(0, 4), "protein": slice(4, 6)}
    np.testing.assert_array_equal(X.loc["r29"].isna(), [True] * 4 + [False] * 2)
    np.testing.assert_array_equal(X.loc["r7"], table.loc["r7"])
    np.testing.assert_array_equal(unpaired.obsm["X_bochner"], model.transform(X))
    assert unpaired.uns["bochner"]["views"] == ["rna", "protein"]
    unpaired.write(tmp_path / "m.h5mu")
    back = mudata.read_h5mu(tmp_path / "m.h5mu")
    np.testing.assert_array_equal(back.obsm["X_bochner_std"], model.embedding_std_)
    with pytest.raises(
        InputError, match=r"got obsm\['X_bochner'\], obsm\['X_bochner_std'\], uns\['bochner'\]"
    ):
        bo.fit_mudata(back, **SMALL)
    read_back = read(tmp_path / "m.h5mu")
    assert (read_back.views, read_back.row_names) == (views, X.index.tolist())
    np.testing.assert_array_equal(read_back.X, X.to_numpy())


@needs_anndata
def test_a_choice_of_modalities_leaves_other_rows_open(unpaired):
    bo.fit_mudata(unpaired, modalities=["protein"], **SMALL)
    missing = np.isnan(unpaired.obsm["X_bochner"][:, 0])
    assert unpaired.obs_names[missing].tolist() == [f"r{i}" for i in range(5)]


@needs_anndata
def test_size_factors_of_modalities_are_columns_of_obs(unpaired, table):
    counts = unpaired["rna"]
    counts.X = np.random.default_rng(0).poisson(np.exp(1 + np.asarray(counts.X)))
    sizes = np.linspace(1.0, 2.0, unpaired.n_obs)
    unpaired.obs["depth"] = sizes
    given = {"likelihood": {"rna": "poisson"}, **SMALL, "overwrite": True}
    for asked in ("depth", {"rna": "depth"}, {"rna": sizes}):
        model = bo.fit_mudata(unpaired, size_factors=asked, **given)
        assert set(model._size_factors.typical) == {"rna"}
    for asked in ("depht", {"rna": "depht"}):
        with pytest.raises(InputError, match=r"'depht' in mdata.obs, got .*'depth'"):
            bo.fit_mudata(unpaired, size_factors=asked, **given)
    turned = unpaired.obs["depth"].iloc[::-1]
    with pytest.raises(InputError, match=r"size_factors.*loc\[mdata.obs_names\]"):
        bo.fit_mudata(unpaired, size_factors=turned, **given)
    with pytest.raises(InputError, match="numbers as size factors of view 'rna'"):
        bo.fit_mudata(unpaired, size_factors=["deep"] * unpaired.n_obs, **given)


@needs_anndata
def test_what_fit_mudata_refuses(unpaired, table):
    with pytest.raises(
        InputError, match=r"modalities of mdata, got no 'lipids'. Choose from rna, protein"
    ):
        bo.fit_mudata(unpaired, modalities=["lipids"])
    with pytest.raises(InputError, match=r"modalities of mdata, got no \['rna'\]"):
        bo.fit_mudata(unpaired, modalities=[["rna"]])
    with pytest.raises(
        InvalidParameterError, match="'modalities' parameter of fit_mudata must be"
    ):
        bo.fit_mudata(unpaired, modalities=3)
    with pytest.raises(InputError, match=r"'counts' in mdata\['protein'\].layers"):
        bo.fit_mudata(unpaired, layer={"protein": "counts"})
    with pytest.raises(InputError, match="layer for modalities rna, protein, got 'lipids'"):
        bo.fit_mudata(unpaired, layer={"lipids": "counts"})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        apart = mudata.MuData(
            {"a": annotated(table.iloc[:10]), "b": annotated(table.iloc[10:])}
        )
    with pytest.raises(
        InputError, match=r"none between view 'a' \(first 'r0'\) and view 'b' \(first 'r10'\)"
    ):
        bo.fit_mudata(apart)
    # rows to be placed may be so
    with pytest.warns(DataWarning, match=r"first 'r10'.*a fit refuses them"):
        assert bo.stack(apart)[0].shape == (len(table), 2 * table.shape[1])


def test_views_that_no_row_ties_are_named_when_they_are_stacked(table):
    """The same samples under other names: a warning, for rows to be placed may be so."""
    renamed = table.rename(index="{}-1".format)
    with pytest.warns(DataWarning, match=r"'a' \(first 'r0'\) and view 'b' \(first 'r0-1'\)"):
        X, _ = bo.stack({"a": table, "b": renamed})
    assert len(X) == 2 * len(table)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # tied by a third view, or with nothing in it
        bo.stack({"a": table, "b": renamed, "c": pd.concat([table, renamed])})
        bo.stack({"a": table, "b": renamed * np.nan})


@needs_anndata
def test_what_scanpy_leaves_beside_the_cells_does_not_stop_a_reader(table, tmp_path):
    adata = annotated(table)
    names = np.array([("g1", "g2")], dtype=[("a", "O"), ("b", "O")])
    adata.uns = {
        "log1p": {"base": None},
        "rank_genes_groups": {"params": {"groupby": "kind", "use_raw": True}, "names": names},
        "kind_colors": np.array(["#1f77b4"], dtype=object),
        "neighbors": {"params": {"method": "umap", "n_neighbors": 15}},
    }
    adata.obs["kind"] = pd.Categorical(["one", None] * 15)
    adata.obs["tested"] = pd.array([True, None] * 15, dtype="boolean")
    adata.obsp["distances"] = sp.csr_matrix((len(table), len(table)))
    adata.varm["PCs"] = np.zeros((adata.n_vars, 0))
    adata.write_h5ad(tmp_path / "a.h5ad")
    np.testing.assert_array_equal(read(tmp_path / "a.h5ad").X, table.to_numpy())


@needs_anndata
def test_files_that_are_not_what_they_are_called(unpaired, table, tmp_path):
    annotated(table).write_h5ad(tmp_path / "a.h5ad")
    result = read(tmp_path / "a.h5ad")
    assert (result.row_names, result.column_names) == (
        table.index.tolist(),
        table.columns.tolist(),
    )
    np.testing.assert_array_equal(result.X, table.to_numpy())
    with pytest.raises(InputError, match=r"'counts' in a.h5ad.layers, got an empty one"):
        read(tmp_path / "a.h5ad", layer="counts")
    for extension in ("h5ad", "h5mu"):
        (tmp_path / f"bad.{extension}").write_bytes(b"no HDF5")
        with pytest.raises(
            InputError, match=f"a readable {extension} file, got .*bad.{extension}"
        ):
            read(tmp_path / f"bad.{extension}")
    np.save(tmp_path / "x.npy", np.ones((2, 2)))
    with pytest.raises(InputError, match="layer only for h5ad and h5mu files"):
        read(tmp_path / "x.npy", layer="counts")
