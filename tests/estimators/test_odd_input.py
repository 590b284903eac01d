"""Containers, types and labels that people pass, and what they hear."""

import decimal

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError

import bochner as bo
from bochner.data.kinds import are_counts
from bochner.errors import InputError
from bochner.random import generator, normal

QUICK = {
    "n_components": 1,
    "n_init": 1,
    "init": "pca",
    "max_iter": 3,
    "n_frequencies": 8,
    "random_state": 0,
}


@pytest.fixture(scope="module")
def X():
    return np.random.default_rng(100).normal(size=(40, 4))


@pytest.mark.parametrize(
    "days",
    [
        np.datetime64("2020-01-01") + np.arange(40),
        np.arange(40) * np.timedelta64(1, "D"),
        [decimal.Decimal(i) for i in range(40)],
        np.arange(40) * 1j,
    ],
)
def test_covariates_that_are_neither_numbers_nor_labels_are_refused(X, days):
    """As labels every one of them would be a batch of its own, and explain its row."""
    text = "numbers, categories, texts or booleans for 'day', got .* in row 0. Convert it to"
    with pytest.raises(InputError, match=text):
        bo.NGMVLVM(**QUICK).fit(X, covariates={"day": days})


def test_dates_of_frames_are_refused_as_covariates(X):
    pandas = pytest.importorskip("pandas")
    days = pandas.Series(pandas.date_range("2020", periods=40), name="day")
    with pytest.raises(
        InputError, match="for 'day', got 2020-01-01 00:00:00 of type Timestamp"
    ):
        bo.NGMVLVM(**QUICK).fit(X, covariates=days)


def test_labels_of_rows_are_no_covariate(X):
    with pytest.raises(
        InputError, match="labels of 'who' that rows share, got 40 labels in 40"
    ):
        bo.NGMVLVM(**QUICK).fit(X, covariates={"who": [f"p{i}" for i in range(40)]})
    model = bo.NGMVLVM(**QUICK).fit(X, covariates={"age": np.arange(40.0)})
    with pytest.raises(InputError, match="numbers for 'age', got 'old' in row 1"):
        model.transform(X[:2], covariates={"age": np.array([1, "old"], dtype=object)})


def test_years_beside_zeros_and_ones_are_no_counts():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(101)
    year = np.arange(1800, 2000)
    table = {"year": year}
    for i in range(8):
        share = 1.0 / (1.0 + np.exp(-(year - 1900 - 10 * i) / 20))
        table[f"b{i}"] = (rng.random(200) < share).astype(int)
    frame = pandas.DataFrame(table)
    model = bo.NGMVLVM(likelihood="auto", **QUICK).fit(frame)
    assert model.likelihood_ == {"numbers": "gaussian", "binary": "bernoulli"}
    # rare kinds beside others with zeros are counts
    counts = pandas.DataFrame(rng.poisson([0.1] * 5 + [3.0] * 3, size=(60, 8)))
    counts = counts.clip(upper=[1] * 5 + [99] * 3, axis=1)
    model = bo.NGMVLVM(likelihood="auto", **QUICK).fit(counts)
    assert set(model.likelihood_.values()) <= {"poisson", "negative_binomial"}


@pytest.mark.parametrize("scale", [1e200, 1e-200, 1e-310])
@pytest.mark.parametrize("kind", [bo.KreinFeatures, bo.RandomMaclaurin, bo.SphericalFeatures])
def test_features_on_the_sphere_do_not_depend_on_the_scale_of_rows(kind, scale):
    rows = np.random.default_rng(102).integers(1, 9, size=(50, 4)).astype(float)
    settings = {"n_components": 10, "random_state": 0}
    plain = kind(**settings).fit_transform(rows)
    # numbers below 1e-308 have fewer digits: rounding moves such rows two hundred times as far
    rounding = max(1.0, np.spacing(scale) / scale / np.finfo(float).eps)
    np.testing.assert_allclose(
        kind(**settings).fit_transform(rows * scale),
        plain,
        rtol=1e-5 * rounding,
        # waves are as exact as their amplitude is, also where they cross zero
        atol=1e-7 * rounding * np.abs(plain).max(),
    )


def test_what_is_no_key_or_has_no_value_is_named_in_mixed_tables(X):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("abcd"))
    frame["k"] = [[i] for i in range(40)]
    with pytest.raises(InputError, match="booleans or text in 'k', got values of type list"):
        bo.NGMVLVM(likelihood="auto", **QUICK).fit(frame)
    frame["k"] = pandas.Categorical([None] * 40, categories=["p", "q"])
    with pytest.raises(InputError, match="a value in column 'k', got a category that no row"):
        bo.NGMVLVM(likelihood="auto", **QUICK).fit(frame)


def test_trials_that_do_not_fit_the_columns_are_named():
    counts = np.random.default_rng(103).integers(0, 3, (30, 3)).astype(float)
    model = bo.NGMVLVM(likelihood=bo.likelihoods.Binomial([3, 4]), **QUICK)
    with pytest.raises(InputError, match=r"n_trials for each of the 3 columns .*, got 2"):
        model.fit(counts)


def test_every_format_of_sparse_matrices_is_rows(X):
    expected = bo.NGMVLVM(**QUICK).fit(sp.csr_array(X)).embedding_
    for kind in (sp.dok_array, sp.lil_array, sp.coo_array, sp.csc_array):
        np.testing.assert_array_equal(bo.NGMVLVM(**QUICK).fit(kind(X)).embedding_, expected)


def test_a_wrong_container_is_told_its_own_function(X):
    anndata, mudata = pytest.importorskip("anndata"), pytest.importorskip("mudata")
    pandas = pytest.importorskip("pandas")
    adata = anndata.AnnData(X)
    mdata = mudata.MuData({"rna": adata})
    with pytest.raises(
        InputError, match=r"an AnnData for adata, got an object of type MuData. Call"
    ):
        bo.fit_anndata(mdata)
    with pytest.raises(
        InputError,
        match=r"an AnnData for adata, got an object of type DataFrame. Call the est",
    ):
        bo.fit_anndata(pandas.DataFrame(X))
    with pytest.raises(
        InputError, match=r"a MuData for mdata, got an object of type AnnData. Call"
    ):
        bo.fit_mudata(adata)
    adata.obs["age"] = np.arange(40.0)
    model = bo.fit_anndata(adata, covariate_keys="age", **QUICK)
    assert set(model.covariate_std_["x"]) == {"age"}
    assert list(bo.fit_mudata(mdata, modalities="rna", **QUICK).views_) == ["rna"]


def test_views_by_ranges_are_saved(X, tmp_path):
    views = {"a": range(3), "b": range(3, 4)}
    model = bo.NGMVLVM(views=views, **QUICK).fit(X)
    model.save(tmp_path / "m.bochner")
    again = bo.load(tmp_path / "m.bochner")
    np.testing.assert_array_equal(again.transform(X), model.transform(X))


def test_a_matrix_without_the_columns_of_a_view_is_not_cut(X):
    with pytest.raises(InputError, match="got 4 columns, where view 'b' ends at 6"):
        bo.unstack(X, {"a": slice(0, 3), "b": slice(3, 6)})


def test_what_only_a_fit_has_says_so():
    model = bo.NGMVLVM()
    for name in ("embedding_", "embedding_std_", "completion_", "covariate_std_"):
        with pytest.raises(NotFittedError, match="NGMVLVM instance is not fitted yet"):
            getattr(model, name)
        assert not hasattr(model, name)


def test_more_dimensions_than_a_sobol_net_has_are_refused():
    text = "at most 21201 dimensions for a Sobol net, got 25000. Choose sampling='orthogonal'"
    with pytest.raises(InputError, match=text):
        normal(4, 25_000, generator(0, "x"), "sobol")


def test_declared_categories_are_labels_whatever_they_are(X):
    pandas = pytest.importorskip("pandas")
    age = np.arange(40.0)
    days = pandas.Series(pandas.to_datetime(["2020-01-01", "2020-01-02"] * 20))
    for given in (pandas.cut(age, 4), days.astype("category"), np.array([b"a", b"b"] * 20)):
        frame = pandas.DataFrame({"batch": given})
        model = bo.NGMVLVM(**QUICK).fit(X, covariates=frame)
        model.transform(X, covariates=frame)
    donors = [f"d{i // 2}" for i in range(40)]
    donors[-1] = "alone"
    bo.NGMVLVM(**QUICK).fit(X, covariates={"donor": donors})


def test_counts_beside_zeros_and_ones_are_counts():
    rng = np.random.default_rng(104)
    ones = rng.integers(0, 2, size=(200, 10))
    assert are_counts(np.hstack([ones, rng.poisson(50, size=(200, 5))]).astype(float))
    assert not are_counts(np.hstack([ones, np.arange(1800, 2000)[:, None]]).astype(float))


def test_trials_may_be_an_array():
    counts = np.random.default_rng(103).integers(0, 3, (30, 3)).astype(float)
    trials = bo.likelihoods.Binomial(np.array([5, 6, 7]))
    bo.NGMVLVM(likelihood=trials, **QUICK).fit(counts)


def test_categories_of_arrow_are_drawn(tmp_path):
    pandas, arrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    frame = pandas.DataFrame(
        np.random.default_rng(105).normal(size=(40, 2)), columns=["a", "b"]
    )
    kind = pandas.ArrowDtype(arrow.dictionary(arrow.int32(), arrow.string()))
    frame["k"] = pandas.Series(["y", "n"] * 20).astype(kind)
    model = bo.NGMVLVM(likelihood="auto", **QUICK).fit(frame)
    assert set(model.sample(5, random_state=0)["k"]) <= {"y", "n"}
    model.save(tmp_path / "m.bochner")
    assert bo.load(tmp_path / "m.bochner").sample(5, random_state=0)["k"].dtype == "category"
