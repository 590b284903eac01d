"""Mixed tables: a DataFrame with holes in, the completed DataFrame of the same types out."""

import numpy as np
import pandas as pd
import pytest

import bochner as bo
from bochner.errors import InputError

SMALL = {"n_frequencies": 8, "n_init": 1, "max_iter": 30, "init": "pca", "random_state": 0}


def table(n=60, seed=0):
    """Columns of every kind, driven by one latent."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(n)
    frame = pd.DataFrame(
        {
            "height": 170 + 10 * x + rng.standard_normal(n),
            "visits": np.rint(5 + 2 * x).astype("int64"),
            "smoker": x > 0.3,
            "grade": pd.cut(x, [-9, -0.5, 0.5, 9], labels=["low", "mid", "high"]),
            "site": pd.Categorical(
                np.where(x > 0.8, "north", np.where(x < -0.5, "east", "west"))
            ),
            "weight": pd.array(70 + 8 * x, dtype="Float64"),
        },
        index=[f"p{i}" for i in range(n)],
    )
    return frame.astype({"visits": "Int64", "smoker": "boolean"})


def with_holes(frame, seed=1):
    return frame.mask(np.random.default_rng(seed).random(frame.shape) < 0.15)


@pytest.fixture(scope="module")
def fitted():
    X = with_holes(table())
    return X, bo.NGMVLVM(1, likelihood="auto", **SMALL).fit(X)


def test_the_completed_table_has_columns_index_and_types_of_the_table(fitted):
    X, model = fitted
    full, std = model.impute(X, return_std=True)
    assert full.dtypes.tolist() == X.dtypes.tolist()
    assert full.columns.equals(X.columns)
    assert full.index.equals(X.index)
    assert not full.isna().any().any()
    shown = X.notna()
    pd.testing.assert_frame_equal(full.where(shown), X.where(shown), check_dtype=False)
    np.testing.assert_array_equal(std == 0, shown)


def test_kinds_are_views_with_likelihoods(fitted):
    _, model = fitted
    assert model.likelihood_ == {
        "numbers": "gaussian",
        "binary": "bernoulli",
        "ordered": "binomial",
        "categories": "categorical",
    }
    assert model.views_["numbers"].tolist() == [0, 1, 5]
    assert model.noise_variance_["numbers"].shape == (3,)
    assert model.predictive_noise_variance_["numbers"].shape == (3,)


def test_completed_entries_are_near_the_truth(fitted):
    X, model = fitted
    truth, full = table(), model.impute(X)
    for name, most in {"height": 3.0, "weight": 3.0}.items():
        hidden = X[name].isna()
        away = (full[name] - truth[name])[hidden].astype(float)
        assert np.sqrt(np.mean(away**2)) < most
    for name in ("smoker", "grade", "site"):
        hidden = X[name].isna()
        assert (full[name][hidden] == truth[name][hidden]).mean() > 0.7


def test_draws_are_tables(fitted):
    X, model = fitted
    draws = model.impute(X, n_draws=3)
    assert len(draws) == 3
    for drawn in draws:
        assert drawn.dtypes.tolist() == X.dtypes.tolist()
        assert drawn.index.equals(X.index)
        assert not drawn.isna().any().any()
    hidden = X["height"].isna()
    assert (draws[0]["height"][hidden] != draws[1]["height"][hidden]).all()
    assert (draws[0]["height"][~hidden] == X["height"][~hidden]).all()


def test_files_keep_the_columns(fitted, tmp_path):
    X, model = fitted
    model.save(tmp_path / "table.bochner")
    again = bo.load(tmp_path / "table.bochner")
    pd.testing.assert_frame_equal(again.impute(X), model.impute(X))
    sample = again.sample(4, random_state=0)
    pd.testing.assert_frame_equal(sample, model.sample(4, random_state=0))
    assert sample.dtypes.astype(str).tolist() == X.dtypes.astype(str).tolist()
    assert list(sample["grade"].cat.categories) == ["low", "mid", "high"]


def test_arrays_of_labels_positions_are_rows_too(fitted):
    X, model = fitted
    coded = model._validate(X, reset=False)
    assert set(coded[:, 4][~np.isnan(coded[:, 4])]) == {0.0, 1.0, 2.0}
    with pytest.warns(UserWarning, match="valid feature names"):
        from_array = model.transform(coded)
    np.testing.assert_array_equal(from_array, model.transform(X))


def test_units_of_a_column_change_nothing_but_units(fitted):
    """Four is a power of two: the standardised table is the same to the last bit."""
    X, model = fitted
    scaled = X.assign(height=4.0 * X["height"])
    other = bo.NGMVLVM(1, likelihood="auto", **SMALL).fit(scaled)
    np.testing.assert_array_equal(other.embedding_, model.embedding_)
    noise = model.noise_variance_["numbers"] * [16.0, 1.0, 1.0]
    np.testing.assert_array_equal(other.noise_variance_["numbers"], noise)
    observed = X["height"].notna().to_numpy()
    away = model.score_samples(X) - other.score_samples(scaled)
    np.testing.assert_allclose(away, np.where(observed, np.log(4.0), 0.0), rtol=0, atol=1e-11)


def test_types_may_differ_between_fit_and_use(fitted):
    X, model = fitted
    other = X.astype({"site": object, "grade": object, "smoker": object, "visits": "float64"})
    full = model.impute(other)
    assert full.dtypes.astype(str).tolist() == other.dtypes.astype(str).tolist()
    for name in X:
        assert list(full[name]) == list(model.impute(X)[name])
    narrow = X.iloc[:5].assign(site=pd.Categorical([None] * 5, categories=["west"]))
    assert set(model.impute(narrow)["site"]) <= {"north", "east", "west"}


def test_calibration_and_choice_of_dimensions_take_tables(fitted):
    X, model = fitted
    report = bo.calibration(model, X, random_state=0, n_draws=20)
    assert set(report.views) == {"numbers", "binary", "ordered", "categories"}
    brief = bo.NGMVLVM(likelihood="auto", **SMALL | {"max_iter": 3, "tol": 9.0})
    some = X[["height", "smoker"]].dropna(how="all")[:30]
    chosen = bo.select_n_components(brief, some, [1], rows="same", n_repeats=1, random_state=0)
    assert chosen.best == 1


def test_what_cannot_be_used_is_said(fitted):
    X, model = fitted
    with pytest.raises(InputError, match=r"training in column 'site'.*got 'south' in row 0"):
        model.transform(X.assign(site="south"))
    got = (
        r"the 6 columns of training, got without 'site'. Add them, empty where .* X.reindex\("
    )
    with pytest.raises(InputError, match=got):
        model.transform(X.drop(columns="site"))
    # as the message says
    filled = X.drop(columns="site").reindex(columns=model.feature_names_in_)
    placed = model.transform(X.assign(site=pd.Series(pd.NA, index=X.index, dtype="string")))
    np.testing.assert_allclose(model.transform(filled), placed)
    with pytest.raises(InputError, match="in another order"):
        model.transform(X[X.columns[::-1]])
    with pytest.raises(InputError, match="no views for a mixed table"):
        bo.NGMVLVM(1, likelihood="auto", views={"a": [0, 1, 2], "b": [3, 4, 5]}).fit(X)
    with pytest.raises(InputError, match=r"'mid' in row .*mixed table with likelihood='auto'"):
        bo.NGMVLVM(1).fit(table().assign(grade="mid"))
    with pytest.raises(InputError, match="columns with names of their own"):
        bo.NGMVLVM(1, likelihood="auto").fit(X.rename(columns={"weight": "height"}))


def test_numbers_alone_stay_one_view():
    X = with_holes(table())[["height", "weight"]].dropna(how="all")
    model = bo.NGMVLVM(1, likelihood="auto", **SMALL).fit(X)
    assert list(model.likelihood_) == ["x"]
    full = model.impute(X)
    assert full.dtypes.tolist() == X.dtypes.tolist()
    counts = with_holes(pd.DataFrame({"a": range(30), "b": range(30)}).astype("Int64"))
    counts = counts.dropna(how="all")
    model = bo.NGMVLVM(1, **SMALL).fit(counts)
    assert model.impute(counts).dtypes.tolist() == counts.dtypes.tolist()
    draws = model.impute(counts, n_draws=2)
    assert [drawn.dtypes.tolist() for drawn in draws] == [counts.dtypes.tolist()] * 2
    assert draws[0].index.equals(counts.index)
    assert not any(drawn.isna().any().any() for drawn in draws)
    assert np.shape(model.impute(counts.to_numpy(float, na_value=np.nan), n_draws=2)) == (
        2,
        *counts.shape,
    )


def test_numbers_in_different_units_have_a_scale_each():
    X = with_holes(table())[["height", "weight"]].dropna(how="all")
    X["income"] = 1e5 * X["height"]
    model = bo.NGMVLVM(1, likelihood="auto", **SMALL).fit(X)
    assert list(model.likelihood_) == ["numbers"]
    assert model.noise_variance_["numbers"].shape == (3,)
    assert model.impute(X).dtypes.tolist() == X.dtypes.tolist()
    # what names the view, or asks for one noise variance, leaves one view
    for asked in ({"noise_variance": 0.1}, {"view_weight": {"x": 1.0}}):
        model = bo.NGMVLVM(1, likelihood="auto", **SMALL, **asked).fit(X)
        assert list(model.likelihood_) == ["x"]


@pytest.mark.parametrize("kind", ["int64", "Int64"])
def test_whole_numbers_that_are_no_counts_are_numbers(kind):
    source = np.random.default_rng(100)
    n = 60
    year = source.integers(1970, 2018, n)
    grade = source.integers(1, 5, n)
    X = pd.DataFrame({"year": year, "age": 2020 - year, "grade": grade}).astype(kind)
    model = bo.NGMVLVM(1, likelihood="auto", **SMALL).fit(X)
    assert model.likelihood_ == {"numbers": "gaussian"}
    counts = pd.DataFrame(source.poisson(2.0, (n, 3)), columns=["a", "b", "c"]).astype(kind)
    assert bo.NGMVLVM(1, likelihood="auto", **SMALL).fit(counts).likelihood_ == {
        "x": "poisson"
    }


def test_new_rows_do_not_say_what_a_column_of_numbers_holds():
    source = np.random.default_rng(100)
    X = pd.DataFrame(source.poisson(20.0, (60, 3)), columns=["a", "b", "c"]).astype("Int64")
    model = bo.NGMVLVM(1, likelihood="auto", **SMALL).fit(X)
    new = X.iloc[:3].copy()
    new["a"] = pd.array([pd.NA, pd.NA, 1], dtype="Int64")
    assert (model.impute(new)["a"].iloc[:2] > 5).all()
    assert (model.impute(new, n_draws=2)[1]["a"].iloc[:2] > 5).all()


@pytest.mark.parametrize("kind", ["float32", "Float64", "Int64"])
def test_how_counts_are_stored_does_not_matter(kind):
    source = np.random.default_rng(100)
    means = np.exp(source.normal(0.0, 2.5, 30))
    counts = source.negative_binomial(2.0, 2.0 / (2.0 + means), (100, 30))
    X = pd.DataFrame(counts, columns=[f"g{j}" for j in range(30)]).astype(kind)
    model = bo.NGMVLVM(1, likelihood="auto", **SMALL).fit(X)
    assert model.likelihood_ == {"x": "negative_binomial"}


def test_an_empty_column_is_refused_by_name():
    source = np.random.default_rng(100)
    X = pd.DataFrame(source.poisson(5.0, (40, 2)), columns=["b", "c"]).astype("Int64")
    X.insert(0, "a", pd.array([pd.NA] * 40, dtype="Int64"))
    with pytest.raises(InputError, match="an observed entry in every column"):
        bo.NGMVLVM(1, likelihood="auto", **SMALL).fit(X)


def test_names_that_are_no_texts_survive_a_file(tmp_path):
    source = np.random.default_rng(100)
    X = pd.DataFrame(source.normal(size=(30, 3)) * [1.0, 1e3, 1.0], columns=[1.5, 2.5, 3.5])
    X.columns = X.columns.astype(object)
    model = bo.NGMVLVM(1, likelihood="auto", **SMALL).fit(X)
    model.save(tmp_path / "m.bochner")
    again = bo.load(tmp_path / "m.bochner")
    np.testing.assert_array_equal(again.transform(X), model.transform(X))


def test_a_column_of_few_values_keeps_its_noise():
    source = np.random.default_rng(100)
    n = 300
    size = source.normal(size=n)
    X = pd.DataFrame(
        {
            "status": source.integers(0, 3, n),
            "height": size + 0.1 * source.normal(size=n),
            "weight": size + 0.1 * source.normal(size=n),
        }
    )
    model = bo.NGMVLVM(2, likelihood="auto", random_state=0).fit(X)
    noise = model.noise_variance_["numbers"]
    # log 3 nats at the most: before, 1e-4 of the variance, and the bound rose without end
    assert noise[0] > 0.1 * X["status"].var()
    assert (noise[1:] < 0.1).all()
    assert model.elbo_se_ < 20.0


def test_kernels_that_take_no_noise_per_column():
    X = with_holes(table(30))[["height", "visits", "smoker"]]
    model = bo.SRFLVM(1, likelihood="auto", **SMALL | {"max_iter": 3, "n_mixtures": 2}).fit(X)
    assert model.impute(X).dtypes.tolist() == X.dtypes.tolist()
    assert isinstance(model.noise_variance_["numbers"], np.ndarray)


def test_views_by_name_leave_other_columns_out(tmp_path):
    X = np.random.default_rng(0).normal(size=(30, 4))
    frame = pd.DataFrame(X, columns=list("abcd"))
    frame.insert(1, "site", ["north", "south"] * 15)
    settings = {"init": "pca", "max_iter": 5, "n_frequencies": 4, "random_state": 0}
    model = bo.NGMVLVM(1, views={"u": ["d"], "v": ["a", "b"]}, **settings).fit(frame)
    assert list(model.feature_names_in_) == ["a", "b", "d"]
    np.testing.assert_array_equal(model.transform(frame), model.embedding_)
    np.testing.assert_array_equal(model.transform(frame[["a", "b", "d"]]), model.embedding_)
    holes = frame.copy()
    holes.loc[3, "a"] = np.nan
    full = model.impute(holes)
    assert list(full.columns) == ["a", "b", "d"]
    assert full.index.equals(frame.index)
    assert not full.isna().any().any()
    np.testing.assert_array_equal(full["b"], frame["b"])
    bo.report(model, frame, frame["site"], path=tmp_path / "page.html")
    bo.calibration(model, frame, n_draws=5, random_state=0)
    how = {"rows": "same", "n_repeats": 1, "random_state": 0}
    assert bo.select_n_components(model, frame, [1], **how).candidates == (1,)
    with pytest.raises(InputError, match="'e'"):
        bo.NGMVLVM(1, views={"v": ["a", "e"]}, **settings).fit(frame)
    with pytest.raises(InputError, match="the text 'north' in row 0, column 1"):
        bo.NGMVLVM(1, views={"v": ["a", "site"]}, **settings).fit(frame)


def test_a_table_of_whole_numbers_is_completed_by_a_model_of_fractions():
    X = with_holes(table()).astype({"visits": "float64"})
    model = bo.NGMVLVM(1, likelihood="auto", **SMALL).fit(X)
    whole = model.impute(X.astype({"visits": "Int64"}))
    assert whole["visits"].dtype == "Int64"
    assert not whole["visits"].isna().any()
    shown = X["visits"].notna()
    assert (whole["visits"][shown] == X["visits"][shown]).all()
