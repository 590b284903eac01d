"""The estimators' contract: attributes, units, names, missing data, scores, seeds,
messages.
"""

import copy
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bochner import NGMVLVM, AdvisedRFLVM, RandomFeatureLVM, kernels
from bochner.errors import CollapseWarning, DataWarning, InputError
from bochner.estimators.settings import plans
from bochner.fitting import plan
from bochner.kernels.dirichlet_process import DirichletProcessMixture
from bochner.prediction.diagnostics import CollapseReport

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::bochner.errors.CollapseWarning"),
]

CLASSES = [NGMVLVM, AdvisedRFLVM, RandomFeatureLVM]
SMALL = {
    "n_frequencies": 10,
    "n_mixtures": 1,
    "max_iter": 60,
    "init": "pca",
    "random_state": 0,
}
QUICK = {**SMALL, "n_frequencies": 5, "max_iter": 8}
VIEWS = {"a": slice(0, 5), "b": slice(5, 9)}
NAMES = [f"c{j}" for j in range(9)]


def _data(n: int = 60, m: int = 9, dim: int = 2, seed: int = 0):
    # the weights are those of every sample: seeds give other rows of one model
    rng = np.random.default_rng(7)
    weights, shift = rng.normal(size=(dim, m)), rng.normal(size=m)
    rng = np.random.default_rng(seed)
    return 2.0 + 3.0 * (
        np.sin(rng.normal(size=(n, dim)) @ weights + shift) + 0.1 * rng.normal(size=(n, m))
    )


def _frame(X):
    pd = pytest.importorskip("pandas")
    return pd.DataFrame(X, columns=NAMES, index=[f"row{i}" for i in range(len(X))])


@pytest.fixture(autouse=True)
def _few_draws(monkeypatch):
    monkeypatch.setattr(plan, "EVALUATION_DRAWS", 6)


@pytest.fixture(scope="module")
def fitted():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return NGMVLVM(**SMALL, views=VIEWS).fit(_data())


# -- attributes and outputs
# ---------------------------------------------------------------------------


@pytest.mark.parametrize("views", [None, VIEWS])
@pytest.mark.parametrize("cls", CLASSES)
def test_attributes_have_their_shapes_and_the_embedding_is_the_transform(cls, views):
    X = _data()
    X[3, :5], X[7, 6] = np.nan, np.nan
    model = cls(**QUICK, views=views).fit(X)
    Z, std = model.transform(X, return_std=True)
    np.testing.assert_array_equal(model.embedding_, Z)
    np.testing.assert_array_equal(model.embedding_std_, std)
    assert Z.shape == std.shape == (60, 2)
    assert (std > 0).all()
    assert len(model.elbo_history_) == model.n_iter_ == 8
    assert np.isfinite(model.elbo_)
    assert model.elbo_se_ > 0
    names = list(views or {"x": None})
    assert list(model.noise_variance_) == list(model.kernels_) == names
    assert all(value > 0 for value in model.noise_variance_.values())
    assert model.relevance_.shape == (len(names), 2)
    np.testing.assert_allclose(model.relevance_.sum(axis=1), 1.0)
    assert (model.n_mixtures_, model.n_frequencies_, model.n_features_in_) == (1, 5, 9)
    assert [start["init"] for start in model.starts_] == ["pca"]
    assert isinstance(model.collapse_, CollapseReport)
    assert "participation ratio" in str(model.collapse_)
    assert not hasattr(model, "feature_names_in_")


def test_standard_deviations_are_checked_when_they_are_first_asked_for():
    model = NGMVLVM(**QUICK, views=VIEWS).fit(_data())
    model.transform(_data()[:5])
    copied = pickle.loads(pickle.dumps(model))
    assert model._fit.latent_excess is copied._fit.latent_excess is None
    std = model.transform(_data()[:5], return_std=True)[1]
    assert model._fit.latent_excess is not None
    np.testing.assert_array_equal(copied.embedding_std_, model.embedding_std_)
    np.testing.assert_allclose(std, model.embedding_std_[:5], rtol=1e-3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("computed", ["float32", "float64"])
def test_outputs_follow_the_precision_of_X_not_of_the_computation(dtype, computed):
    X = _data().astype(dtype)
    X[0, :5] = np.nan
    model = NGMVLVM(**QUICK, views=VIEWS, dtype=computed).fit(X)
    Z = model.transform(X)
    outputs = [
        *model.transform(X, return_std=True),
        *model.impute(X, return_std=True),
        model.impute(X, n_draws=2),
    ]
    outputs += [
        *model.inverse_transform(Z, return_std=True),
        model.kernel_matrix(Z, "a"),
        model.sample(2),
    ]
    outputs += [model.embedding_, model.embedding_std_, model.fit_transform(X)]
    assert {out.dtype for out in outputs} == {np.dtype(dtype)}
    assert model.transform(np.ones((2, 9), dtype=int)).dtype == np.float64


def test_every_start_of_a_small_table_races_and_of_a_larger_one_those_that_are_close():
    every = {"n_mixtures": 1, "n_frequencies": 10, "max_iter": 60, "random_state": 0}
    small = NGMVLVM(**every).fit(_data()).starts_
    settled = [start["init"] for start in small if start["settled"]]
    assert sorted(settled) == ["fold", "laplacian", "pca", "tsne"]
    assert sum(not start["settled"] for start in small) == 1
    larger = NGMVLVM(**every).fit(_data(n=501)).starts_
    assert len(larger) < len(small)


def test_starts_of_counts_race_only_as_they_settled_under_the_simplest_kernels():
    counts = np.random.default_rng(0).poisson(3.0, (30, 4)).astype(float)
    every = {"n_mixtures": 1, "n_frequencies": 5, "max_iter": 20, "random_state": 0}
    starts = NGMVLVM(likelihood="poisson", **every).fit(counts).starts_
    assert all(start["settled"] for start in starts)


def test_several_starts_are_raced_and_the_best_goes_on():
    rng = np.random.default_rng(0)
    model = NGMVLVM(
        **{**SMALL, "init": ["pca", "random", rng.normal(size=(60, 2))], "n_init": 4}
    ).fit(_data())
    assert [start["init"] for start in model.starts_] == ["pca", "random", "array", "pca"]
    assert [start["steps"] for start in model.starts_] == [15] * 4
    assert all(
        np.isfinite(start["elbo"]) and start["elbo"] > start["elbo_start"]
        for start in model.starts_
    )
    best = max(model.starts_, key=lambda start: start["elbo"])
    pca = NGMVLVM(**SMALL).fit(_data())
    assert pca.starts_[0]["elbo_start"] == pytest.approx(
        model.starts_[0]["elbo_start"], rel=1e-6
    )
    assert best["init"] != "random"


def test_rows_placed_in_parts_are_where_they_are_together(fitted):
    X = _data()[:20].copy()
    X[3, 2], X[7, :5], X[11] = np.nan, np.nan, np.nan
    with pytest.warns(DataWarning, match="nothing observed"):
        whole, whole_std = fitted.transform(X, return_std=True)
    first, first_std = fitted.transform(X[:7], return_std=True)
    with pytest.warns(DataWarning, match="nothing observed"):
        others, others_std = fitted.transform(X[7:], return_std=True)
    np.testing.assert_allclose(np.concatenate([first, others]), whole, rtol=0, atol=1e-7)
    stds = np.concatenate([first_std, others_std])
    np.testing.assert_allclose(stds, whole_std, rtol=2e-3)


@pytest.mark.parametrize(("n_frequencies", "early"), [(16, 16), (60, 16), (200, 16)])
def test_training_has_few_features_until_the_decay(monkeypatch, n_frequencies, early):
    observed, original = {}, plan.draw

    def draw(model, count, sampling, seed, purpose, step, *rest):
        if purpose == "train":
            observed[step] = count
        return original(model, count, sampling, seed, purpose, step, *rest)

    monkeypatch.setattr(plan, "draw", draw)
    model = NGMVLVM(**{**SMALL, "n_frequencies": n_frequencies, "max_iter": 30}).fit(_data())
    assert model.n_frequencies_ == n_frequencies
    counts = [observed[step] for step in range(30)]
    # the decay takes as many steps
    assert set(counts[:15]) == {early}
    assert set(counts[15:]) == {n_frequencies}


@pytest.mark.parametrize(
    ("n_frequencies", "n_rows", "n_components", "early"),
    [
        (100, 1000, 2, 50),
        (100, 300, 2, 16),
        (100, 700, 2, 35),
        (50, 5000, 2, 25),
        (12, 99, 2, 12),
    ],
)
def test_few_rows_begin_with_few_frequencies(n_frequencies, n_rows, n_components, early):
    assert plans._early(n_frequencies, n_rows, n_components) == early
    # never fewer than span the linear functions of all dimensions
    assert plans._early(n_frequencies, n_rows, 40) == min(n_frequencies, max(early, 50))


@pytest.mark.parametrize(
    "others", [{"likelihood": "poisson"}, {"kernel": DirichletProcessMixture()}]
)
def test_sites_and_kernels_of_a_fixed_number_of_points_have_all_features_throughout(
    monkeypatch, others
):
    counts, observed, original = (
        np.random.default_rng(0).poisson(3.0, size=(30, 4)).astype(float),
        set(),
        plan.draw,
    )

    def draw(model, count, sampling, seed, purpose, step, *rest):
        observed.add(count)
        return original(model, count, sampling, seed, purpose, step, *rest)

    monkeypatch.setattr(plan, "draw", draw)
    RandomFeatureLVM(**{**SMALL, "n_frequencies": 32, "max_iter": 4, **others}).fit(counts)
    assert observed == {32}


def test_the_bound_is_in_original_units():
    X = _data()
    # a power of two: no rounding
    plain, scaled = (NGMVLVM(**SMALL).fit(data) for data in (X, 8.0 * X))
    jacobian = -X.size * np.log(8.0)
    assert scaled.elbo_ == pytest.approx(plain.elbo_ + jacobian, rel=1e-9)
    np.testing.assert_allclose(scaled.elbo_history_, plain.elbo_history_ + jacobian, rtol=1e-9)
    assert scaled.starts_[0]["elbo"] == pytest.approx(
        plain.starts_[0]["elbo"] + jacobian, rel=1e-9
    )
    assert scaled.noise_variance_["x"] == pytest.approx(
        64.0 * plain.noise_variance_["x"], rel=1e-9
    )
    weights = [model.kernels_["x"]["weights"] for model in (plain, scaled)]
    np.testing.assert_allclose(weights[1], 64.0 * weights[0])
    Z = plain.embedding_
    np.testing.assert_array_equal(scaled.embedding_, Z)
    np.testing.assert_allclose(scaled.kernel_matrix(Z), 64.0 * plain.kernel_matrix(Z))
    np.testing.assert_allclose(scaled.inverse_transform(Z), 8.0 * plain.inverse_transform(Z))
    np.testing.assert_allclose(
        scaled.inverse_transform(Z, True)[1], 8.0 * plain.inverse_transform(Z, True)[1]
    )
    np.testing.assert_allclose(
        scaled.sample(3, random_state=0), 8.0 * plain.sample(3, random_state=0)
    )


def test_the_bound_lies_below_what_the_fitted_model_says_of_its_own_rows(fitted):
    # score conditions on the weights learned from these rows, so that its sum exceeds any bound on
    # log p(X)
    assert fitted.elbo_ + 3 * fitted.elbo_se_ < fitted.score(_data()) * 60


def test_the_bound_rises():
    model = NGMVLVM(**SMALL).fit(_data())
    assert model.elbo_ > model.starts_[0]["elbo_start"] + 20
    assert np.mean(model.elbo_history_[-10:]) > np.mean(model.elbo_history_[:10]) + 20
    assert model.elbo_ == pytest.approx(np.mean(model.elbo_history_[-10:]), abs=20)


# -- names and containers
# ---------------------------------------------------------------------------


def test_frames_in_names_kept_views_by_name():
    X = _frame(_data())
    by_name = NGMVLVM(**QUICK, views={"a": NAMES[:5], "b": NAMES[5:]}).fit(X)
    np.testing.assert_array_equal(by_name.feature_names_in_, NAMES)
    by_slice = NGMVLVM(**QUICK, views=VIEWS).fit(X.to_numpy())
    np.testing.assert_array_equal(by_name.embedding_, by_slice.embedding_)
    with pytest.raises(
        ValueError, match="feature names should match those that were passed during fit"
    ):
        by_name.transform(X[NAMES[::-1]])


def test_set_output_wraps_latents_and_leaves_deviations_alone():
    pd, X = pytest.importorskip("pandas"), _frame(_data())
    model = NGMVLVM(**QUICK).set_output(transform="pandas").fit(X)
    Z = model.transform(X)
    assert isinstance(Z, pd.DataFrame)
    assert list(Z.columns) == list(model.get_feature_names_out()) == ["ngmvlvm0", "ngmvlvm1"]
    assert list(Z.index) == list(X.index)
    np.testing.assert_array_equal(Z.to_numpy(), model.embedding_)
    assert isinstance(
        NGMVLVM(**QUICK).set_output(transform="pandas").fit_transform(X), pd.DataFrame
    )
    wrapped, std = model.transform(X, return_std=True)
    assert isinstance(wrapped, pd.DataFrame)
    assert isinstance(std, np.ndarray)


def test_it_works_in_a_pipeline():
    X = _data()
    pipeline = make_pipeline(StandardScaler(), NGMVLVM(**QUICK)).fit(X)
    np.testing.assert_array_equal(pipeline.transform(X), pipeline[-1].embedding_)
    assert np.isfinite(pipeline.score(X))


# -- missing data
# ---------------------------------------------------------------------------


def _holes(X, seed: int = 3):
    X, rng = X.copy(), np.random.default_rng(seed)
    for column in (0, 3, 6):  # three patterns of holes and the complete columns
        X[rng.random(len(X)) < 0.3, column] = np.nan
    X[1, :5], X[2, 5:] = np.nan, np.nan  # whole views
    X[1, 5:], X[2, :5] = 2.0, 2.0
    return X


def test_scattered_holes_and_absent_views_at_fit_and_transform(fitted):
    X = _holes(_data())
    model = NGMVLVM(**{**QUICK, "max_iter": 20}, views=VIEWS).fit(X)
    np.testing.assert_array_equal(model.embedding_, model.transform(X))
    assert np.isfinite(model.embedding_).all()
    new = _holes(_data(20, seed=1), seed=4)
    assert np.isfinite(model.transform(new)).all()
    assert np.isfinite(model.score_samples(new)).all()
    truth, missing = _data(20, seed=1), np.isnan(new)
    error = (fitted.impute(new) - truth)[missing]
    assert np.mean(error**2) < np.mean((truth - _data().mean(axis=0))[missing] ** 2)


def test_rows_of_which_less_is_seen_are_less_sure(fitted):
    whole, part = _data(40, seed=1), _data(40, seed=1)
    part[:, 2:] = np.nan
    stds = [np.median(fitted.transform(rows, return_std=True)[1]) for rows in (whole, part)]
    assert stds[1] > 1.5 * stds[0]


def test_impute_fills_what_is_missing_and_nothing_else(fitted):
    X = _holes(_data(20, seed=1))
    missing, kept = np.isnan(X), X.copy()
    filled, std = fitted.impute(X, return_std=True)
    np.testing.assert_array_equal(X, kept)
    np.testing.assert_array_equal(filled[~missing], X[~missing])
    assert np.isfinite(filled).all()
    assert (std[~missing] == 0).all()
    assert (std[missing] > 0).all()
    np.testing.assert_array_equal(fitted.impute(_data()), _data())  # nothing to do


def test_impute_keeps_the_frame():
    pd, X = pytest.importorskip("pandas"), _frame(_holes(_data()))
    model = NGMVLVM(**QUICK).fit(X)
    filled = model.impute(X)
    assert isinstance(filled, pd.DataFrame)
    assert list(filled.columns) == NAMES
    assert list(filled.index) == list(X.index)
    assert not filled.isna().to_numpy().any()
    np.testing.assert_array_equal(filled.to_numpy()[X.notna()], X.to_numpy()[X.notna()])


def test_draws_of_completions_have_the_mean_and_the_deviation_that_impute_states(fitted):
    X = _data(6, seed=1)
    X[:3, :5], X[3:, 5:] = np.nan, np.nan
    missing, n = np.isnan(X), 1500
    draws = fitted.impute(X, n_draws=n)
    assert draws.shape == (n, 6, 9)
    assert np.isfinite(draws).all()
    assert (draws[:, ~missing] == X[~missing]).all()
    np.testing.assert_array_equal(fitted.impute(X, n_draws=2), fitted.impute(X, n_draws=2))
    mean, std = fitted.impute(X, return_std=True)
    z = (draws.mean(axis=0) - mean)[missing] / (std[missing] / np.sqrt(n))
    # the mean is that of the expected features, the draws' of the features: equal up to the Monte
    # Carlo error
    assert np.sqrt(np.mean(z**2)) < 2.0
    np.testing.assert_allclose(draws.std(axis=0)[missing], std[missing], rtol=0.2)


@pytest.mark.parametrize(
    "call", [{"n_draws": 0}, {"n_draws": -1}, {"n_draws": 2, "return_std": True}]
)
def test_draws_and_deviations_exclude_each_other(fitted, call):
    with pytest.raises(
        InputError, match="n_draws must be a positive number and goes without return_std"
    ):
        fitted.impute(_data(3), **call)


def test_a_row_with_nothing_observed_is_the_prior_and_said_once(fitted):
    X = _data(5, seed=1)
    X[[1, 3]] = np.nan
    text = (
        r"2 row\(s\) with nothing observed \(first: row 1\).*mean 0 and standard deviation 1"
    )
    with pytest.warns(DataWarning, match=text) as w:
        Z, std = fitted.transform(X, return_std=True)
    assert len(w) == 1
    assert (Z[[1, 3]] == 0).all()
    assert (std[[1, 3]] == 1).all()
    np.testing.assert_allclose(
        Z[[0, 2, 4]], fitted.transform(X[[0, 2, 4]]), rtol=1e-7, atol=1e-9
    )
    with pytest.warns(DataWarning, match="nothing observed"):
        assert np.isfinite(fitted.impute(X)).all()
    with pytest.warns(DataWarning, match="nothing observed"):
        density, error = fitted.score_samples(X, return_std=True)
    assert (density[[1, 3]] == 0).all()  # log of one
    assert (error[[1, 3]] == 0).all()


def test_placement_does_not_depend_on_the_other_rows(fitted):
    X = _holes(_data(12, seed=5))
    together = fitted.transform(X)
    for i in (0, 1, 2, 11):
        np.testing.assert_allclose(
            fitted.transform(X[i : i + 1])[0], together[i], rtol=1e-6, atol=1e-8
        )


# -- densities and samples
# ---------------------------------------------------------------------------


def test_score_is_the_mean_of_the_rows_scores(fitted):
    X = _data(15, seed=1)
    rows = fitted.score_samples(X)
    assert rows.shape == (15,)
    assert fitted.score(X) == pytest.approx(rows.mean())
    assert fitted.score(X) == fitted.score(X)
    density, error = fitted.score_samples(X, return_std=True)
    np.testing.assert_array_equal(density, rows)
    assert error.shape == (15,)
    assert (error > 0).all()
    assert (error < 0.3).all()
    mean, of_mean = fitted.score(X, return_std=True)
    assert mean == fitted.score(X)
    assert of_mean == pytest.approx(np.sqrt(np.square(error).sum()) / 15)


def test_densities_do_not_depend_on_the_other_rows(fitted):
    X = _holes(_data(12, seed=5))
    together = fitted.score_samples(X)
    np.testing.assert_allclose(fitted.score_samples(X[::-1])[::-1], together, atol=1e-8)
    for i in (0, 5, 11):
        np.testing.assert_allclose(fitted.score_samples(X[[i]])[0], together[i], atol=1e-8)


def test_data_of_the_model_score_above_shuffled_data(fitted):
    X = _data(40, seed=1)
    shuffled = np.column_stack(
        [np.random.default_rng(j).permutation(X[:, j]) for j in range(9)]
    )
    assert fitted.score(X) > fitted.score(shuffled) + 2
    assert fitted.score(fitted.sample(40, random_state=0)) > fitted.score(shuffled) + 2


@pytest.mark.parametrize("views", [None, VIEWS])
@pytest.mark.parametrize("factor", [3.7, 1e-4])
def test_score_of_rescaled_data_falls_by_the_jacobian(factor, views):
    X, new = _data(), _data(10, seed=1)
    settings = {**QUICK, "dtype": "float64", "views": views}
    plain, scaled = NGMVLVM(**settings).fit(X), NGMVLVM(**settings).fit(factor * X)
    new[0, 0], new[1, 5:] = np.nan, np.nan
    observed = (~np.isnan(new)).sum(axis=1)
    expected = plain.score_samples(new) - observed * np.log(factor)
    np.testing.assert_allclose(
        scaled.score_samples(factor * new), expected, rtol=1e-6, atol=1e-5
    )
    assert plain.elbo_ - X.size * np.log(factor) == pytest.approx(scaled.elbo_, rel=1e-8)


def test_shifting_the_data_shifts_what_is_predicted():
    X, shift = _data(), np.arange(9.0) * 100
    settings = {**QUICK, "dtype": "float64"}
    plain, moved = NGMVLVM(**settings).fit(X), NGMVLVM(**settings).fit(X + shift)
    np.testing.assert_allclose(moved.embedding_, plain.embedding_, atol=1e-5)
    Z = plain.embedding_[:5]
    np.testing.assert_allclose(
        moved.inverse_transform(Z), plain.inverse_transform(Z) + shift, atol=1e-4
    )


def test_inverse_transform_reconstructs_and_its_deviation_covers(fitted):
    X = _data(50, seed=1)
    back, std = fitted.inverse_transform(fitted.transform(X), return_std=True)
    assert back.shape == std.shape == X.shape
    assert np.mean((back - X) ** 2) < 0.3 * X.var(axis=0).mean()
    assert (std**2 > 0.99 * min(fitted.noise_variance_.values())).all()


def test_samples_have_the_shape_the_seed_and_the_moments_of_the_model(fitted):
    first = fitted.sample(3000, random_state=1)
    assert first.shape == (3000, 9)
    np.testing.assert_array_equal(first, fitted.sample(3000, random_state=1))
    assert not np.array_equal(first, fitted.sample(3000, random_state=2))
    assert not np.array_equal(fitted.sample(2), fitted.sample(2))
    assert fitted.sample().shape == (1, 9)
    # law of total variance over the prior, from decoded latents
    Z = np.random.default_rng(0).normal(size=(3000, 2))
    mean, std = fitted.inverse_transform(Z, return_std=True)
    total = np.sqrt((std**2).mean(axis=0) + mean.var(axis=0))
    assert (
        np.abs(first.mean(axis=0) - mean.mean(axis=0)) < 5 * total * np.sqrt(2 / 3000)
    ).all()
    np.testing.assert_allclose(first.std(axis=0), total, rtol=0.1)


def test_kernel_matrix_is_the_kernel_and_the_features_approach_it(fitted):
    Z = fitted.embedding_[:20]
    for view in VIEWS:
        exact, features = (
            fitted.kernel_matrix(Z, view=view),
            fitted.kernel_matrix(Z, view=view, exact=False),
        )
        assert exact.shape == features.shape == (20, 20)
        np.testing.assert_allclose(exact, exact.T)
        assert np.linalg.eigvalsh(exact).min() > -1e-8 * np.trace(exact)
        assert not np.array_equal(exact, features)
        assert np.linalg.norm(features - exact) < 0.4 * np.linalg.norm(exact)
    with pytest.raises(
        InputError, match=r"Expected view= one of \['a', 'b'\], got None\. Name a view"
    ):
        fitted.kernel_matrix(Z)
    with pytest.raises(InputError, match=r"got 'c'\. Name a view"):
        fitted.kernel_matrix(Z, view="c")


def test_relevance_finds_the_dimension_that_a_view_does_not_use():
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(120, 2))
    both = np.sin(Z @ rng.normal(size=(2, 8))) + 0.05 * rng.normal(size=(120, 8))
    first = np.sin(Z[:, :1] @ rng.normal(size=(1, 8))) + 0.05 * rng.normal(size=(120, 8))
    views = {"both": slice(0, 8), "first": slice(8, 16)}
    model = NGMVLVM(**{**SMALL, "max_iter": 150, "init": Z}, views=views).fit(
        np.hstack([both, first])
    )
    np.testing.assert_allclose(model.relevance_.sum(axis=1), 1.0)
    assert model.relevance_[1, 1] < 0.1  # the second view does not see the second dimension
    assert model.relevance_[0].min() > 0.2


# -- what is said of a fit
# ---------------------------------------------------------------------------


def test_too_few_steps_are_said_and_enough_are_not():
    with pytest.warns(
        ConvergenceWarning,
        match=r"Training stopped after 8 steps before the bound had converged\. Raise",
    ):
        model = NGMVLVM(**QUICK).fit(_data())
    assert model.converged_ is False
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        model = NGMVLVM(**{**QUICK, "max_iter": 1000, "tol": 10.0}).fit(_data())
    assert model.converged_ is True
    assert model.n_iter_ < 1000


@pytest.mark.parametrize("shape", [(4, 9), (60, 2)])
def test_more_dimensions_than_the_rank_are_said(shape):
    limit = min(shape[0] - 1, shape[1])
    with pytest.warns(
        DataWarning,
        match=rf"n_components={limit + 1} is above the rank the data can have \({limit}\)",
    ):
        NGMVLVM(limit + 1, **QUICK).fit(_data(*shape))


def test_collapse_is_said():
    noise = np.random.default_rng(0).normal(size=(200, 4))
    with pytest.warns(CollapseWarning, match="No latent dimension carries anything"):
        model = NGMVLVM(1, **{**QUICK, "max_iter": 40}).fit(noise)
    assert model.collapse_.collapsed


def test_constant_columns_are_kept_and_said():
    X = _data()
    X[:, 4] = 3.5
    with pytest.warns(DataWarning, match=r"Constant columns are kept.*column 4 of view 'a'"):
        model = NGMVLVM(**QUICK, views=VIEWS).fit(X)
    np.testing.assert_allclose(model.inverse_transform(model.embedding_)[:, 4], 3.5, atol=1e-6)


# -- seeds, order, copies
# ---------------------------------------------------------------------------


@pytest.mark.parametrize("cls", CLASSES)
def test_the_same_seed_gives_the_same_result_and_another_another(cls):
    X = _data()
    one, same, other = (cls(**{**QUICK, "random_state": seed}).fit(X) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one.embedding_, same.embedding_)
    assert one.elbo_ == same.elbo_
    assert not np.array_equal(one.embedding_, other.embedding_)
    state = cls(**{**QUICK, "random_state": np.random.RandomState(0)}).fit(X)
    np.testing.assert_array_equal(one.embedding_, state.embedding_)


@pytest.mark.parametrize("init", ["auto", "random"])
def test_no_global_state_is_touched(init):
    X = _holes(_data())
    np.random.seed(5)
    torch.manual_seed(5)
    before = (
        np.random.get_state()[1].copy(),
        torch.get_rng_state(),
        torch.get_default_dtype(),
        torch.get_num_threads(),
    )
    model = NGMVLVM(**{**QUICK, "init": init, "random_state": 0}).fit(X)
    model.transform(X)
    model.impute(X, n_draws=2)
    model.score(X)
    model.sample(2, random_state=0)
    np.testing.assert_array_equal(np.random.get_state()[1], before[0])
    assert torch.equal(torch.get_rng_state(), before[1])
    assert (torch.get_default_dtype(), torch.get_num_threads()) == before[2:]


def test_the_order_of_views_does_not_matter_beyond_rounding():
    X, settings = _data(), {**SMALL, "max_iter": 30, "dtype": "float64"}
    ab = NGMVLVM(**settings, views=VIEWS).fit(X)
    ba = NGMVLVM(**settings, views={"b": VIEWS["b"], "a": VIEWS["a"]}).fit(X)
    assert list(ba.noise_variance_) == ["b", "a"]
    assert ab.elbo_ == pytest.approx(ba.elbo_, abs=1e-4)
    np.testing.assert_allclose(ab.embedding_, ba.embedding_, atol=1e-4)
    np.testing.assert_allclose(
        ab.inverse_transform(ab.embedding_), ba.inverse_transform(ab.embedding_), atol=1e-3
    )
    new = _holes(_data(6, seed=1))
    np.testing.assert_allclose(ab.score_samples(new), ba.score_samples(new), atol=1e-3)


def test_columns_of_a_view_may_lie_anywhere():
    X, order = _data(), np.array([7, 0, 5, 1, 8, 2, 6, 3, 4])
    where = np.argsort(order)
    views = {"a": where[:5].tolist(), "b": where[5:].tolist()}
    apart, together = (
        NGMVLVM(**QUICK, views=views).fit(X[:, order]),
        NGMVLVM(**QUICK, views=VIEWS).fit(X),
    )
    np.testing.assert_allclose(apart.embedding_, together.embedding_, atol=1e-6)
    holes = _holes(_data(6, seed=1))
    Z = together.embedding_
    np.testing.assert_allclose(
        apart.inverse_transform(Z), together.inverse_transform(Z)[:, order], atol=1e-5
    )
    np.testing.assert_allclose(
        apart.sample(5, random_state=0),
        together.sample(5, random_state=0)[:, order],
        atol=1e-5,
    )
    for one, other in zip(
        apart.impute(holes[:, order], True), together.impute(holes, True), strict=True
    ):
        np.testing.assert_allclose(one, other[:, order], atol=1e-5)


def test_one_view_of_all_columns_is_no_view():
    X = _data()
    none, one = NGMVLVM(**QUICK).fit(X), NGMVLVM(**QUICK, views={"x": slice(None)}).fit(X)
    np.testing.assert_array_equal(none.embedding_, one.embedding_)
    assert none.elbo_ == one.elbo_


@pytest.mark.parametrize(("cls", "kernel"), [(NGMVLVM, "ng-sm"), (AdvisedRFLVM, "sm")])
def test_the_models_of_the_papers_are_configurations_of_the_general_one(cls, kernel):
    X = _data()
    np.testing.assert_array_equal(
        cls(**QUICK).fit(X).embedding_,
        RandomFeatureLVM(**QUICK, kernel=kernel).fit(X).embedding_,
    )


def test_copies_predict_the_same(fitted):
    X = _holes(_data(5, seed=1))
    for other in (pickle.loads(pickle.dumps(fitted)), copy.deepcopy(fitted)):
        np.testing.assert_array_equal(other.transform(X), fitted.transform(X))
        np.testing.assert_array_equal(other.impute(X), fitted.impute(X))
        assert other.score(X) == fitted.score(X)


def test_clones_are_unfitted_and_fit_the_same():
    kernel = {"a": kernels.RBF(lengthscale=0.7), "b": "matern"}
    model = RandomFeatureLVM(**QUICK, views=VIEWS, kernel=kernel).fit(_data())
    other = clone(model)
    with pytest.raises(NotFittedError):
        other.transform(_data())
    np.testing.assert_array_equal(other.fit(_data()).embedding_, model.embedding_)
    # training changes neither the parameter nor what it was given
    assert model.kernel["a"].get_params()["lengthscale"] == 0.7
    assert float(model.kernel["a"].log_lengthscale.detach().exp()) == pytest.approx(0.7)
    assert model.kernels_["a"]["lengthscale"] != pytest.approx(0.7, abs=1e-6)


def test_fit_leaves_X_alone_and_can_be_repeated():
    X = _holes(_data())
    kept, model = X.copy(), NGMVLVM(**QUICK, views=VIEWS)
    first = model.fit(X).embedding_
    np.testing.assert_array_equal(X, kept)
    np.testing.assert_array_equal(model.fit(X).embedding_, first)
    model.set_params(views=None).fit(_data(30, 7))
    assert model.embedding_.shape == (30, 2)
    assert model.n_features_in_ == 7


# -- bad input
# ---------------------------------------------------------------------------


def _with(value, row=2, column=6):
    X = _data()
    X[row, column] = value
    return X


def _only_nan(rows=slice(None), columns=slice(None)):
    X = _data()
    X[rows, columns] = np.nan
    return X


BAD_DATA = {
    "inf": (
        lambda: _with(np.inf),
        r"finite numbers or NaN \(missing\), got inf in view 'b', row 2, column 6\. Correct",
    ),
    "minus inf": (lambda: _with(-np.inf), "got -inf in view 'b', row 2, column 6"),
    "no entry in a column": (
        lambda: _only_nan(columns=6),
        "only NaN in column 6 of view 'b'. Drop the column",
    ),
    "no entry in a view": (
        lambda: _only_nan(columns=slice(5, 9)),
        "data in view 'b', got NaN in every entry",
    ),
    "one sample": (lambda: _data()[:1], "1 sample"),
    "no sample": (lambda: _data()[:0], "0 sample"),
    "one dimension": (lambda: _data()[0], "Expected 2D array, got 1D array instead"),
    "three dimensions": (lambda: _data()[None], "Found array with dim 3"),
    "complex": (
        lambda: _data() + 1j,
        "Complex data not supported. Pass real and imaginary parts as columns of two",
    ),
    "text": (lambda: np.where(np.eye(60, 9) > 0, "n/a", "1").astype(object), "the text 'n/a'"),
    "dates": (
        lambda: np.zeros((60, 9), dtype="datetime64[s]"),
        "got dates or time differences",
    ),
    "too few columns": (lambda: _data()[:, :7], r"slice\(5, 9\), which reaches column 9"),
}


@pytest.mark.parametrize("what", BAD_DATA)
def test_bad_data_are_refused_before_training(what, monkeypatch):
    monkeypatch.setattr(
        "bochner.estimators.base.fit_model", lambda *_: pytest.fail("training began")
    )
    make, text = BAD_DATA[what]
    with pytest.raises(ValueError, match=text):
        NGMVLVM(**QUICK, views=VIEWS).fit(make())


def test_text_in_a_frame_is_named():
    X = _frame(_data()).astype(object)
    X.loc["row3", "c6"] = "n/a"
    with pytest.raises(
        InputError, match=r"Expected numbers, got the text 'n/a' in row 3, column 6 \('c6'\)"
    ):
        NGMVLVM(**QUICK).fit(X)


BAD_VIEWS = {
    "a list": ([slice(0, 9)], "The 'views' parameter of NGMVLVM must be"),
    "empty": ({}, "Expected at least one view, got an empty dict"),
    "overlap": (
        {"a": slice(0, 6), "b": slice(5, 9)},
        "views that do not overlap, got column 5 in both 'a' and 'b'",
    ),
    "gap": (
        {"a": slice(0, 4), "b": slice(5, 9)},
        "every column of X in a view, got column 4 in no view",
    ),
    "names without names": ({"a": ["c1"]}, "got the name 'c1' for an X without column names"),
    "beyond": (
        {"a": slice(0, 5), "b": [5, 6, 7, 9]},
        "view 'b' to stay within X, got column 9",
    ),
    "a number": ({"a": slice(0, 8), "b": 8}, r"write \[8\] for a single column|Write \[8\]"),
}


@pytest.mark.parametrize("what", BAD_VIEWS)
def test_bad_views_are_refused(what):
    views, text = BAD_VIEWS[what]
    with pytest.raises(ValueError, match=text):
        NGMVLVM(**QUICK, views=views).fit(_data())


def test_an_unknown_column_name_suggests_the_nearest():
    with pytest.raises(InputError, match=r"got unknown 'c33'.*did you mean 'c3'"):
        NGMVLVM(**QUICK, views={"a": ["c33"]}).fit(_frame(_data()))


BAD_PARAMETERS = {
    "n_components": (0, "'n_components' parameter of NGMVLVM must be an int in the range"),
    "likelihood": (
        "cauchy",
        "Expected the name of a likelihood, got 'cauchy'. Choose from auto",
    ),
    "n_mixtures": (0, "'n_mixtures' parameter of NGMVLVM must be"),
    "n_frequencies": (1.5, "'n_frequencies' parameter of NGMVLVM must be"),
    "landmarks": (1, "'landmarks' parameter of NGMVLVM must be"),
    "truncation": (1.0, "'truncation' parameter of NGMVLVM must be"),
    "latent": ("private", "'latent' parameter of NGMVLVM must be"),
    "view_weight": ("equal", "'view_weight' parameter of NGMVLVM must be"),
    "noise": ("row", "'noise' parameter of NGMVLVM must be"),
    "noise_variance": (0.0, "'noise_variance' parameter of NGMVLVM must be"),
    "sampling": ("halton", "'sampling' parameter of NGMVLVM must be a str among"),
    "init": ("umap", "'init' parameter of NGMVLVM must be"),
    "n_init": (0, "'n_init' parameter of NGMVLVM must be"),
    "max_iter": (0, "'max_iter' parameter of NGMVLVM must be"),
    "tol": (-1.0, "'tol' parameter of NGMVLVM must be a float in the range"),
    "learning_rate": (
        0.0,
        "'learning_rate' parameter of NGMVLVM must be a float in the range",
    ),
    "device": (3, "'device' parameter of NGMVLVM must be"),
    "dtype": ("float16", "'dtype' parameter of NGMVLVM must be a str among"),
    "checkpoint": (5, "'checkpoint' parameter of NGMVLVM must be"),
    "random_state": ("seed", "'random_state' parameter of NGMVLVM must be"),
    "verbose": (-1, "'verbose' parameter of NGMVLVM must be"),
}


def test_a_rate_that_teaches_nothing_is_refused():
    """At 5 all latents of a fit ended at 1e-77, without a word."""
    with pytest.raises(ValueError, match=r"must be a float in the range \(0\.0, 1\.0\]"):
        NGMVLVM(**{**QUICK, "learning_rate": 5.0}).fit(_data())


@pytest.mark.parametrize("name", BAD_PARAMETERS)
def test_every_parameter_has_a_value_that_is_refused(name):
    value, text = BAD_PARAMETERS[name]
    with pytest.raises(ValueError, match=text):
        NGMVLVM(**{**QUICK, name: value}).fit(_data())


def test_no_parameter_is_left_out():
    assert set(BAD_PARAMETERS) | {"views"} == set(NGMVLVM().get_params())
    assert set(RandomFeatureLVM().get_params()) - set(NGMVLVM().get_params()) == {
        "kernel",
        "inference",
    }


BAD_TOGETHER = {
    "likelihood of no view": (
        {"likelihood": {"c": "gaussian"}},
        r"likelihood for views \['a', 'b'\], got 'c'",
    ),
    "likelihood unknown": (
        {"likelihood": {"a": "cauchy"}},
        "for view 'a', got 'cauchy'. Choose from auto",
    ),
    "init of another shape": (
        {"init": np.zeros((60, 3))},
        r"init of shape \(60, 2\), got shape \(60, 3\)",
    ),
    "init not finite": (
        {"init": np.full((60, 2), np.nan)},
        "Expected a finite init, got NaN or inf",
    ),
    "init list": (
        {"init": ["pca", "umap"]},
        r"init from \['pca', 'laplacian', 'isomap', 'tsne', 'random', 'laplacian-2', 'tsne-2', "
        r"'fold'\], or arrays, got",
    ),
    "no init": (
        {"init": []},
        r"init from \['pca', 'laplacian', 'isomap', 'tsne', 'random', 'laplacian-2', 'tsne-2', "
        r"'fold'\], or arrays, got "
        r"\[\]",
    ),
    "device": (
        {"device": "abacus"},
        "Expected a torch device, got 'abacus'.*use 'auto', 'cpu' or 'cuda'|Use 'auto'",
    ),
    "kernel": ({"kernel": "wavelet"}, "'kernel' parameter of RandomFeatureLVM must be"),
    "inference": ({"inference": "mcmc"}, "'inference' parameter of RandomFeatureLVM must be"),
    "kernel of one view": (
        {"kernel": {"a": "rbf"}},
        r"Expected a kernel for view 'b', got kernels for \['a'\]",
    ),
    "kernel unknown": (
        {"kernel": {"a": "rbf", "b": "wavelet"}},
        "Expected kernel from .*, got 'wavelet'",
    ),
    "kernel of other dimensions": (
        {"kernel": kernels.RBF(lengthscale=[1.0, 1.0, 1.0])},
        r"In view 'a', lengthscale is for 3 dimensions, got points of 2\. "
        r"Give lengthscale for 2 dimensions\.",
    ),
    "kernel of the dimensions of another view": (
        {
            "kernel": kernels.RBF([1.0, 2.0]),
            "n_components": 1,
            "latent": {"shared": 1, "private": {"a": 1}},
        },
        r"In view 'b', lengthscale is for 2 dimensions, got points of 1\. "
        r"Give lengthscale for 1 dimension\.",
    ),
}


def test_a_start_on_the_scale_of_other_embeddings_is_named():
    with pytest.warns(
        DataWarning, match=r"init has a standard deviation of 30, .* Divide the array by 30\."
    ) as caught:
        NGMVLVM(**{**QUICK, "init": 30.0 * np.tile([[-1.0], [1.0]], (30, 2))}).fit(_data())
    assert next(w for w in caught if "deviation of 30" in str(w.message)).filename == __file__


@pytest.mark.parametrize("what", BAD_TOGETHER)
def test_parameters_that_do_not_fit_the_data_are_refused(what):
    parameters, text = BAD_TOGETHER[what]
    with pytest.raises(ValueError, match=text):
        RandomFeatureLVM(**{**QUICK, "views": VIEWS, **parameters}).fit(_data())


def test_bad_rows_after_the_fit_are_refused(fitted):
    for method in (fitted.transform, fitted.impute, fitted.score, fitted.score_samples):
        with pytest.raises(
            ValueError, match="X has 8 features, but NGMVLVM is expecting 9 features as input"
        ):
            method(_data()[:, :8])
        with pytest.raises(InputError, match="got inf in view 'b', row 2, column 6"):
            method(_with(np.inf))
        with pytest.raises(InputError, match="Complex data not supported"):
            method(_data() * 1j)
    for method in (fitted.inverse_transform, fitted.kernel_matrix):
        with pytest.raises(
            InputError, match=r"Expected Z with 2 columns \(latent dimensions\), got 3 columns"
        ):
            method(np.zeros((4, 3)))
        with pytest.raises(ValueError, match="Z contains NaN"):
            method(np.full((4, 2), np.nan))


def test_unfitted_estimators_say_so():
    X = _data()
    for call in (
        lambda m: m.transform(X),
        lambda m: m.impute(X),
        lambda m: m.score(X),
        lambda m: m.sample(),
        lambda m: m.inverse_transform(X[:, :2]),
        lambda m: m.kernel_matrix(X[:, :2]),
    ):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            call(NGMVLVM())


@pytest.mark.parametrize("n_samples", [0, -3])
def test_a_number_of_samples_that_is_none_is_refused(fitted, n_samples):
    with pytest.raises(ValueError, match="n_samples of at least 1, got"):
        fitted.sample(n_samples)


def test_arrays_that_may_not_be_written_are_read_without_a_word():
    source = np.random.default_rng(0)
    X = np.sin(source.normal(size=(30, 2)) @ source.normal(size=(2, 5)))
    sparse = sp.csr_array(np.where(X > 0, X, 0.0))
    for part in (X, sparse.data, sparse.indices, sparse.indptr):
        part.setflags(write=False)
    for data in (X, sparse, pd.DataFrame(X)):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            model = NGMVLVM(1, init=X[:, :1], max_iter=2, n_frequencies=5, random_state=0).fit(
                data
            )
            model.transform(data)
        assert not [str(w.message) for w in said if "writ" in str(w.message)]
