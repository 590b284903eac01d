"""Masks, containers and sizes that an estimator meets before it computes anything."""

import anndata
import mudata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import bochner as bo
from bochner.errors import InputError
from bochner.io.containers import stack

SMALL = {"n_frequencies": 8, "n_init": 1, "max_iter": 3, "tol": 1.0, "random_state": 0}


@pytest.fixture(scope="module")
def X():
    z = np.random.default_rng(0).normal(size=(24, 1))
    return np.sin(z + np.arange(4))


@pytest.fixture(scope="module")
def model(X):
    return bo.NGMVLVM(1, **SMALL).fit(X)


def test_what_is_masked_is_missing(X, model):
    mask = np.zeros(X.shape, bool)
    mask[[2, 5], [1, 3]] = True
    spoiled = np.where(mask, -999.0, X)
    incomplete = np.where(mask, np.nan, X)
    masked = np.ma.array(spoiled, mask=mask)
    a, b = (bo.NGMVLVM(1, **SMALL).fit(data) for data in (masked, incomplete))
    np.testing.assert_array_equal(a.embedding_, b.embedding_)
    np.testing.assert_array_equal(model.transform(masked), model.transform(incomplete))
    np.testing.assert_array_equal(stack({"a": masked})[0], incomplete)
    counts = np.ma.array(np.arange(6).reshape(3, 2), mask=[[1, 0], [0, 0], [0, 0]])
    np.testing.assert_array_equal(stack({"a": counts})[0], [[np.nan, 1], [2, 3], [4, 5]])
    with pytest.raises(ValueError, match="NaN"):
        bo.FourierFeatures().fit(masked)
    with pytest.raises(InputError, match="finite values in Z, got nan"):
        bo.metrics.aligned_r2(X[:, :1], masked)


def test_missing_entries_of_pandas_among_objects_are_missing(X, model):
    objects = X.astype(object)
    objects[2, 1] = objects[5, 3] = pd.NA
    incomplete = X.copy()
    incomplete[2, 1] = incomplete[5, 3] = np.nan
    for given in (objects, objects.tolist(), tuple(map(tuple, objects))):
        again = bo.NGMVLVM(1, **SMALL).fit(given)
        np.testing.assert_array_equal(again.embedding_, again.transform(incomplete))
        np.testing.assert_array_equal(model.transform(given), model.transform(incomplete))
    assert objects[2, 1] is pd.NA


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (None, "got None"),
        (pd.DataFrame(), "a table of columns, got one without any"),
        (pd.DataFrame(index=range(4)), "a table of columns, got one without any"),
        ([[1, 2], [3]], "rows of one length, got 2 entries in row 0 and 1 in row 1"),
    ],
)
def test_what_has_no_rows_or_columns_is_named(given, text, model):
    for call in (bo.NGMVLVM(**SMALL).fit, model.transform, bo.FourierFeatures().fit):
        with pytest.raises(InputError, match=text):
            call(given)


@pytest.mark.parametrize("method", ["fit", "transform", "impute", "score", "fit_transform"])
def test_annotated_data_are_refused_at_once(X, model, method):
    adata = anndata.AnnData(X)
    with pytest.raises(
        InputError, match=r"type AnnData. To fit it write bochner.fit_anndata\("
    ):
        getattr(model, method)(adata)
    with pytest.raises(InputError, match=r"are adata\.to_df\(\), .*to_df\(layer='counts'\)"):
        getattr(model, method)(adata)
    mdata = mudata.MuData({"a": adata})
    with pytest.raises(InputError, match=r"type MuData. To fit it write bochner.fit_mudata\("):
        getattr(model, method)(mdata)


def test_what_the_refusal_of_annotated_data_says_works(X):
    adata = anndata.AnnData(X, layers={"counts": X})
    small = {"n_components": 1, "n_init": 1, "max_iter": 4, "random_state": 0}
    one = bo.fit_anndata(adata, layer="counts", **small)
    np.testing.assert_array_equal(
        one.transform(adata.to_df(layer="counts")), adata.obsm["X_bochner"]
    )
    mdata = mudata.MuData({"a": adata, "b": adata.copy()})
    two = bo.fit_mudata(mdata, layer="counts", **small)
    rows = bo.stack({name: mdata[name].to_df(layer="counts") for name in "ab"})[0]
    np.testing.assert_array_equal(two.transform(rows), mdata.obsm["X_bochner"])


def test_annotated_data_are_refused_by_functions(X, model, tmp_path):
    adata = anndata.AnnData(X)
    for call in (
        lambda: bo.report(model, adata, path=tmp_path / "r.html"),
        lambda: bo.calibration(model, adata),
        lambda: bo.select_n_components(model, adata),
        lambda: bo.FourierFeatures().fit(adata),
    ):
        with pytest.raises(InputError, match="got an object of type AnnData"):
            call()


def test_sparse_formats_without_rows_are_selected_on(X):
    model = bo.NGMVLVM(1, **SMALL)
    counts = sp.bsr_matrix(np.round(np.abs(X) * 4) + 1.0)
    result = bo.select_n_components(model, counts, candidates=[1], n_repeats=1, random_state=0)
    assert result.candidates == (1,)


def test_sizes_are_refused_before_memory_is_asked_for(X, model):
    match = (
        r"at most 8.0 GiB, got 74.5 GiB for 100,000 latent dimensions of 24 rows. Lower n_comp"
    )
    with pytest.raises(InputError, match=match):
        bo.NGMVLVM(10**5, **SMALL).fit(X)
    match = "matrices of 400,000 features by as many. Lower n_frequencies or n_mixtures"
    with pytest.raises(InputError, match=match):
        bo.NGMVLVM(1, **{**SMALL, "n_frequencies": 10**5}).fit(X)
    # of all matrices that training holds, of every view
    for wrong in ({"n_frequencies": 10**4, "n_mixtures": 1}, {"n_frequencies": 4000}):
        with pytest.raises(InputError, match=r"at most 8\.0 GiB, got .* features by as many"):
            bo.NGMVLVM(1, **{**SMALL, **wrong}).fit(X)
    two = {"views": {"a": slice(0, 2), "b": slice(2, 4)}, "n_frequencies": 3000}
    with pytest.raises(InputError, match=r"got 21\.5 GiB for the matrices of 12,000 features"):
        bo.NGMVLVM(1, **{**SMALL, **two}).fit(X)
    # the matrices of 500 to 3,000 features were 6 to 10 a view, with sites 12 to 21
    with pytest.raises(InputError, match=r"got 14\.9 GiB for the matrices of 10,000 features"):
        bo.AdvisedRFLVM(
            1, likelihood="poisson", n_mixtures=1, n_frequencies=5000, max_iter=1
        ).fit(np.round(np.abs(X)))
    with pytest.raises(
        InputError, match=r"at most 8.0 GiB, got 37.3 GiB for 1,000,000,000 rows"
    ):
        model.sample(10**9)
    holes = X.copy()
    holes[0, 0] = np.nan
    with pytest.raises(
        InputError, match=r"got 894\.1 GiB for 1,000,000,000 draws of 24 rows\. Ask for fewer"
    ):
        model.impute(holes, n_draws=10**9)
    for wrong in ({"n_chains": 10**9}, {"n_draws": 10**9}):
        with pytest.raises(
            InputError, match=r"chains of .* draws\. Lower n_chains or n_draws"
        ):
            bo.RFLVM(1, n_warmup=1, **{**SMALL, **wrong}).fit(X)
    # every draw keeps the latents of all rows
    with pytest.raises(InputError, match=r"got 10\.1 GiB for 4 chains of 10,000,000 draws"):
        bo.RFLVM(1, n_draws=10**7)._check_size(X.shape)
    with pytest.raises(
        InputError, match=r"a torch device, got 'meta', which holds no numbers"
    ):
        bo.NGMVLVM(1, **{**SMALL, "device": "meta"}).fit(X)


def test_two_columns_of_one_name_are_refused():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(np.eye(12, 3), columns=["a", "b", "a"])
    for estimator in (bo.NGMVLVM(**SMALL), bo.FourierFeatures()):
        with pytest.raises(
            InputError, match=r"names of their own, got 'a' more than once\. Rename"
        ):
            estimator.fit(frame)


def test_features_and_data_that_no_memory_holds_are_refused():
    for wrong in (
        {"n_frequencies": 10**10},
        {"n_frequencies": 10**20},
        {"n_mixtures": 10**10},
        {"n_init": 10**10},
    ):
        (name,) = wrong
        with pytest.raises(
            InputError, match=rf"at most 8\.0 GiB, got .* for {name}=1.*Lower {name}"
        ):
            bo.NGMVLVM(1, **{**SMALL, **wrong}).fit(np.eye(4))
    for estimator in (
        bo.FourierFeatures(n_components=10**9),
        bo.KreinFeatures(n_components=10**9),
        bo.KreinFeatures(n_mixtures=10**9),
        bo.SphericalFeatures(n_gaussians=10**9),
        bo.RandomMaclaurin(n_components=10**20),
    ):
        with pytest.raises(
            InputError, match=r"at most 8\.0 GiB, got .* and 4 columns\. Lower n_"
        ):
            estimator.fit(np.eye(4))
    with pytest.raises(
        InputError, match=r"for 1,000,000,000 rows and their kernel\. Draw fewer"
    ):
        bo.datasets.make_s_curve(10**9)


@pytest.mark.parametrize("kind", ["AnnData", "MuData"])
def test_an_annotated_object_in_place_of_an_array_is_refused_at_once(X, model, kind):
    cells = anndata.AnnData(X)
    given = cells if kind == "AnnData" else mudata.MuData({"x": cells})
    got = rf"as an array, got an object of type {kind}\. Pass an array, such as a column of its obs"
    with pytest.raises(InputError, match=f"Expected labels {got}"):
        bo.plots.latent_map(model, given)
    with pytest.raises(InputError, match=f"Expected size_factors {got}"):
        bo.NGMVLVM(**SMALL, likelihood="poisson").fit(np.rint(X + 2), size_factors=given)
    with pytest.raises(InputError, match=f"Expected covariates {got}"):
        bo.NGMVLVM(**SMALL).fit(X, covariates=given)


def test_single_rows_as_pandas_and_programs_hold_them_say_what_to_type(model, X):
    pandas = pytest.importorskip("pandas")
    record = {"a": 1.0, "b": 2.0}
    for given, do in (
        (record, r"pandas\.DataFrame\(\[record\]\)\[model\.feature_names_in_\]"),
        ([record, record], r"pandas\.DataFrame\(records\)\[model\.feature_names_in_\]"),
        (pandas.DataFrame(X).iloc[0], r"X\.iloc\[\[i\]\]"),
        ({"rna": X, "protein": X}, r"bochner\.stack\(views\)"),
    ):
        for call in (model.transform, model.impute, bo.NGMVLVM(1).fit):
            with pytest.raises(InputError, match=do):
                call(given)


@pytest.mark.parametrize(
    "dtype", ["float16", ">f2", "float32", "float64", ">f8", "longdouble"]
)
@pytest.mark.parametrize("container", [np.asarray, np.ndarray.tolist, pd.DataFrame])
def test_infinities_are_refused_without_a_warning_of_another_library(
    dtype, container, recwarn
):
    """Their sum is not a number, and larger ones than float64 has become infinite."""
    X = np.random.default_rng(0).normal(size=(40, 3)).astype(dtype)
    X[3, 1], X[4, 1] = np.inf, -np.inf
    if dtype == "longdouble":
        X[5, 1] = np.longdouble("1e4000")
    estimators = (
        bo.NGMVLVM(1, **SMALL),
        bo.FourierFeatures(),
        bo.KreinFeatures(),
        bo.SphericalFeatures(),
        bo.RandomMaclaurin(),
    )
    for estimator in estimators:
        with pytest.raises(ValueError, match=r"infinity|got inf"):
            estimator.fit(container(X))
    fitted = bo.NGMVLVM(1, **SMALL).fit(np.ones((8, 3)) * np.arange(8.0)[:, None])
    with pytest.raises(ValueError, match="got inf"):
        fitted.transform(container(X))
    assert not [w for w in recwarn if issubclass(w.category, RuntimeWarning)]


def test_sizes_that_are_usual_are_fitted(X):
    """Kernels whose features are no more with more components, too."""
    for cls, likelihood, frequencies in (
        (bo.NGMVLVM, "gaussian", 400),
        (bo.NGMVLVM, "poisson", 100),
        (bo.SRFLVM, "gaussian", 400),
    ):
        options = {**SMALL, "n_frequencies": frequencies, "init": "pca"}
        cls(1, likelihood=likelihood, **options).fit(np.round(np.exp(X)))
