"""Containers, types and labels that people pass, and what they hear."""

import decimal

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.exceptions import NotFittedError

import bochner as bo
from bochner.data.covariates import Categorical, Continuous
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
    with pytest.raises(InputError, match="numbers for 'age', got 'old' in row 1"):
        model.transform(X[:2], covariates={"age": ["12", "old"]})


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


AGES = np.arange(30.0, 70.0)


@pytest.mark.parametrize(
    ("given", "mean"),
    [
        ([None, *AGES[1:]], AGES[1:].mean()),
        (AGES.astype(object), AGES.mean()),
        (np.ma.masked_less(AGES.astype(int), 40), AGES[10:].mean()),
        (np.ma.masked_less(np.where(AGES < 40, -9999.0, AGES), 0), AGES[10:].mean()),
    ],
)
def test_numbers_stay_numbers_where_some_are_missing(X, given, mean):
    """As labels each age was a batch; of masked arrays what is below the mask was taken."""
    model = bo.NGMVLVM(**QUICK).fit(X, covariates={"age": given})
    (age,) = model._covariate_coding.covariates
    assert isinstance(age, Continuous)
    assert age.mean == pytest.approx(mean)


def test_labels_stay_labels_where_some_are_missing(X):
    pandas = pytest.importorskip("pandas")
    batch = np.array(["a", "b", "c", "d"] * 10)
    masked = np.ma.masked_equal(batch, "b")
    given = {
        "batch": masked,
        "plate": pandas.Categorical([1, 2, None, 2] * 10),
        "sick": [True, False, None, True] * 10,
    }
    covariates = bo.NGMVLVM(**QUICK).fit(X, covariates=given)._covariate_coding.covariates
    assert all(isinstance(one, Categorical) for one in covariates)
    assert [one.labels for one in covariates] == [
        ["a", "c", "d"],
        ["1", "2"],
        ["False", "True"],
    ]


def test_a_table_of_arrow_holds_covariates(X):
    arrow = pytest.importorskip("pyarrow")
    table = arrow.table({"age": AGES, "batch": ["a", "b"] * 20})
    covariates = bo.NGMVLVM(**QUICK).fit(X, covariates=table)._covariate_coding.covariates
    assert [type(one) for one in covariates] == [Continuous, Categorical]


@pytest.mark.parametrize("kind", ["M8[D]", "m8[D]", "c16"])
def test_size_factors_that_are_no_real_numbers_are_refused(kind):
    counts = np.random.default_rng(100).poisson(3.0, (40, 4))
    factors = np.ones(40, dtype=np.int64).astype(kind)
    with pytest.raises(
        InputError, match=r"numbers as size factors of view 'x', got .* in row 0"
    ):
        bo.NGMVLVM(**QUICK, likelihood="poisson").fit(counts, size_factors=factors)
    masked = np.ma.masked_array([9999.0] + [1.0] * 39, mask=[True] + [False] * 39)
    with pytest.raises(InputError, match="got NaN in row 0"):
        bo.NGMVLVM(**QUICK, likelihood="poisson").fit(counts, size_factors=masked)


def test_the_row_of_a_size_factor_that_is_text_is_named():
    counts = np.random.default_rng(100).poisson(3.0, (40, 4))
    factors = ["1.5"] * 40
    factors[7] = "a lot"
    with pytest.raises(
        InputError, match=r"of view 'x', got 'a lot' in row 7\. Give one number"
    ):
        bo.NGMVLVM(**QUICK, likelihood="poisson").fit(counts, size_factors=factors)


def test_missing_size_factors_may_be_those_of_pandas_among_objects():
    pandas = pytest.importorskip("pandas")
    counts = np.random.default_rng(100).poisson(3.0, (40, 4))
    factors = [*(counts.sum(1) + 1.0)]
    factors[4] = pandas.NA
    with pytest.raises(InputError, match="training row of view 'x', got NaN in row 4"):
        bo.NGMVLVM(**QUICK, likelihood="poisson").fit(counts, size_factors=factors)


def test_tables_of_objects_may_hold_na(X):
    pandas = pytest.importorskip("pandas")
    with_na = pandas.DataFrame(X, columns=list("abcd")).astype(object).mask(X > 1, pandas.NA)
    before = with_na.copy()
    model = bo.NGMVLVM(**QUICK).fit(with_na)
    as_nan = bo.NGMVLVM(**QUICK).fit(np.where(X > 1, np.nan, X))
    np.testing.assert_allclose(model.embedding_, as_nan.embedding_, atol=1e-5)
    assert np.isfinite(model.impute(with_na).to_numpy(dtype=float)).all()
    pandas.testing.assert_frame_equal(with_na, before)


@pytest.mark.parametrize("columns", [slice("a", "b"), slice(0, 4, 0), slice(0.0, 4)])
def test_slices_of_anything_but_whole_numbers_are_refused(X, columns):
    with pytest.raises(
        InputError, match=r"whole numbers for view 'u', got slice\(.*or a list"
    ):
        bo.NGMVLVM(**QUICK, views={"u": columns}).fit(X)


@pytest.mark.parametrize("far", [1e7, 1e200])
def test_a_start_far_from_the_prior_is_refused(X, far):
    init = np.full((40, 1), -far)
    with pytest.raises(InputError, match=r"init of at most 1e\+06, got 1e\+.*Divide it by"):
        bo.NGMVLVM(**(QUICK | {"init": init})).fit(X)


def test_pages_and_tables_take_tensors_with_a_gradient(X, tmp_path):
    model = bo.NGMVLVM(**QUICK).fit(X)
    rows = torch.tensor(X, requires_grad=True)
    bo.report(model, rows, path=tmp_path / "page.html")
    stacked, _ = bo.stack({"u": rows})
    np.testing.assert_array_equal(stacked, X)


@pytest.mark.parametrize("odd", [[[1, 2], [3]], torch.eye(3).to_sparse()])
def test_views_that_are_no_arrays_are_named(odd):
    with pytest.raises(InputError, match="view 'u' as an array"):
        bo.stack({"u": odd})


def test_an_infinite_category_is_refused_before_the_fit():
    pandas = pytest.importorskip("pandas")
    kinds = pandas.Categorical([np.inf, 1.0, 2.0, 1.0] * 10)
    table = pandas.DataFrame({"h": AGES, "k": kinds})
    with pytest.raises(InputError, match="'k' that are texts or finite numbers, got inf"):
        bo.NGMVLVM(**QUICK, likelihood="auto").fit(table)
