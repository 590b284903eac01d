"""Covariates of the caller: what they become, what is refused, and that latents do not carry
them.
"""

import pickle
import warnings

import numpy as np
import pytest
import torch
from sklearn.base import clone

import bochner as bo
from bochner.data.covariates import Categorical, Continuous, CovariateCoding, of_rows
from bochner.errors import DataWarning, InputError
from bochner.fitting import landmarks, plan
from bochner.page.report import _place

pandas = pytest.importorskip("pandas")

# what the module's own fixtures fit is known as well as ever
pytestmark = pytest.mark.usefixtures("few_draws")

SMALL = {"max_iter": 60, "tol": 1.0, "init": "pca", "n_frequencies": 8, "random_state": 0}


def _data(n=120, m=8, seed=0):
    """Rows of two dimensions, with a batch effect of twice the signal, their batches and truth."""
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal((n, 2))
    signal = np.tanh(truth @ rng.standard_normal((2, m))) + truth @ rng.standard_normal((2, m))
    signal /= signal.std()
    batch = rng.integers(0, 3, n)
    effect = rng.standard_normal((3, m))[batch]
    effect = effect - effect.mean(0)
    X = signal + 2.0 * effect / effect.std() + 0.1 * rng.standard_normal((n, m))
    return X, np.array(["a", "b", "c"])[batch], truth, signal


def _explained(Z, truth):
    """R^2 of the truth by linear regression on latents."""
    inputs = np.c_[Z, np.ones(len(Z))]
    rest = truth - inputs @ np.linalg.lstsq(inputs, truth, rcond=None)[0]
    return 1.0 - (rest**2).sum() / ((truth - truth.mean(0)) ** 2).sum()


def _share(Z, labels):
    """Share of the latents' variance between the groups of a label."""
    means = np.stack([Z[labels == label].mean(0) for label in labels])
    return ((means - Z.mean(0)) ** 2).sum() / ((Z - Z.mean(0)) ** 2).sum()


@pytest.fixture(scope="module")
def fitted():
    X, batch, truth, signal = _data()
    model = bo.NGMVLVM(**(SMALL | {"max_iter": 200, "init": ["pca", "fold"]}))
    return model.fit(X, covariates={"batch": batch}), X, batch, truth, signal


def test_latents_do_not_carry_the_batch(fitted):
    model, X, batch, truth, _ = fitted
    without = bo.NGMVLVM(**SMALL).fit(X)
    assert _share(without.embedding_, batch) > 0.5
    assert _share(model.embedding_, batch) < 0.05
    assert _explained(model.embedding_, truth) > 0.9
    assert 0.5 < model.covariate_std_["x"]["batch"] < 10.0


def test_training_rows_are_placed_where_the_fit_has_them(fitted):
    model, X, batch, _, _ = fitted
    np.testing.assert_array_equal(model.transform(X, covariates=[*batch]), model.embedding_)
    alone = model.transform(X[:1], covariates=batch[:1])
    np.testing.assert_allclose(alone, model.embedding_[:1], atol=1e-8)


def test_predictions_are_those_of_the_batch_that_is_asked_for(fitted):
    model, _, batch, _, signal = fitted
    Z = model.embedding_
    of_b = model.inverse_transform(Z, covariates={"batch": ["b"] * len(Z)})
    of_a = model.inverse_transform(Z, covariates={"batch": ["a"] * len(Z)})
    shift = (of_b - of_a).std(0)
    np.testing.assert_allclose(shift, 0.0, atol=1e-8)  # the same for every row
    average = model.inverse_transform(Z)
    assert (
        np.corrcoef(average.ravel(), (signal + (average - signal).mean(0)).ravel())[0, 1]
        > 0.95
    )
    np.testing.assert_allclose(model.inverse_transform(Z, covariates="average"), average)
    drawn = model.sample(
        500, random_state=0, covariates=pandas.DataFrame({"batch": ["b"] * 500})
    )
    others = model.sample(
        500, random_state=0, covariates=pandas.DataFrame({"batch": ["a"] * 500})
    )
    far = (drawn.mean(0) - others.mean(0)) - (of_b - of_a)[0]
    assert np.abs(far).max() < 0.3 * np.abs((of_b - of_a)[0]).max()
    del batch


def test_holes_are_filled_with_the_rows_own_batch(fitted):
    model, X, batch, _, _ = fitted
    incomplete = X.copy()
    hidden = np.random.default_rng(1).random(X.shape) < 0.2
    incomplete[hidden] = np.nan
    known = model.impute(incomplete, covariates={"batch": batch})
    blind = model.impute(incomplete, covariates="average")
    errors = [np.sqrt(((full - X)[hidden] ** 2).mean()) for full in (known, blind)]
    assert errors[0] < 0.5 * errors[1]
    draws = model.impute(incomplete, n_draws=30, covariates={"batch": batch})
    inside = np.abs(draws.mean(0) - X)[hidden] < 3.0 * draws.std(0)[hidden]
    assert inside.mean() > 0.9


def test_densities_know_the_batch(fitted):
    model, X, batch, _, _ = fitted
    right = model.score(X[:10], covariates={"batch": batch[:10]})
    turned = np.array(["b", "c", "a"])[np.searchsorted(["a", "b", "c"], batch)]
    assert right > model.score(X[:10], covariates={"batch": turned[:10]}) + 10.0


def test_files_hold_covariates(fitted, tmp_path):
    model, X, batch, _, _ = fitted
    model.save(tmp_path / "model.bochner")
    loaded = bo.load(tmp_path / "model.bochner")
    given = {"batch": batch[:5]}
    np.testing.assert_array_equal(
        loaded.transform(X[:5], covariates=given), model.transform(X[:5], covariates=given)
    )
    assert loaded.covariate_std_ == model.covariate_std_
    with pytest.raises(InputError, match="'d' in row 1"):
        loaded.transform(X[:2], covariates={"batch": ["a", "d"]})


def test_a_checkpoint_belongs_to_its_covariates(tmp_path):
    X, batch, _, _ = _data(40)
    path = tmp_path / "run"
    whole = bo.NGMVLVM(**SMALL).fit(X, covariates={"batch": batch})

    class Stopped(bo.NGMVLVM):
        def _set_attributes(self, values, plan):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Stopped(**SMALL, checkpoint=bo.training.checkpoint.LastingPath(path)).fit(
            X, covariates={"batch": batch}
        )
    with pytest.raises(InputError, match="checkpoint"):
        Stopped(**SMALL, checkpoint=path).fit(X, covariates={"batch": batch[::-1]})
    assert whole.elbo_ == bo.NGMVLVM(**SMALL).fit(X, covariates={"batch": [*batch]}).elbo_


@pytest.mark.parametrize("likelihood", ["poisson", "bernoulli"])
def test_counts_and_labels_too(likelihood):
    X, batch, _, _ = _data(60)
    Y = (np.median(X) < X).astype(float)
    if likelihood == "poisson":
        Y = np.random.default_rng(0).poisson(np.exp(0.5 * X)).astype(float)
    model = bo.NGMVLVM(**SMALL, likelihood=likelihood).fit(Y, covariates={"batch": batch})
    assert _share(model.embedding_, batch) < 0.1
    right = model.score(Y[:3], covariates={"batch": batch[:3]})
    assert np.isfinite(right)
    placed = model.transform(Y[:3], covariates={"batch": batch[:3]})
    np.testing.assert_allclose(placed, model.embedding_[:3], atol=1e-6)


def test_views_and_landmarks_and_private_latents():
    X, batch, _, _ = _data(90)
    views = {"u": slice(0, 5), "v": slice(5, 8)}
    X[:10, 5:] = np.nan
    latent = {"shared": 1, "private": {"u": 1}}
    model = bo.AdvisedRFLVM(views=views, latent=latent, landmarks=60, **SMALL)
    model.fit(X, covariates={"batch": batch, "age": np.arange(90.0)})
    assert set(model.covariate_std_["v"]) == {"batch", "age"}
    full = model.impute(X, covariates={"age": np.arange(90.0), "batch": batch})
    assert np.isfinite(full).all()


def test_scattered_holes_and_noise_per_column():
    X, batch, _, _ = _data(80)
    X[np.random.default_rng(0).random(X.shape) < 0.1] = np.nan
    for noise in ("view", "column"):
        model = bo.NGMVLVM(**SMALL, noise=noise).fit(X, covariates={"batch": batch})
        assert _share(model.embedding_, batch) < 0.1


@pytest.mark.parametrize("likelihood", ["gaussian", "bernoulli"])
def test_dirichlet_process_kernels_take_covariates(likelihood):
    X, batch, truth, _ = _data(60)
    X = X if likelihood == "gaussian" else (np.median(X) < X).astype(float)
    model = bo.SRFLVM(**SMALL, likelihood=likelihood).fit(X, covariates={"batch": batch})
    assert _share(model.embedding_, batch) < 0.1
    assert model.block_history_["z"].size
    if likelihood == "gaussian":
        assert _explained(model.embedding_, truth) > 0.8
    placed = model.transform(X[:3], covariates={"batch": batch[:3]})
    np.testing.assert_allclose(placed, model.embedding_[:3], atol=1e-6)


def test_dirichlet_process_kernels_of_private_latents_race_their_spectrum():
    X, batch, _, _ = _data(60)
    settings = SMALL | {"max_iter": 120, "init": ["pca", "fold"]}
    latent = {"shared": 1, "private": {"v": 1}}
    model = bo.SRFLVM(views={"u": slice(0, 5), "v": slice(5, 8)}, latent=latent, **settings)
    model.fit(X, covariates={"batch": batch})
    assert set(model.covariate_std_) == {"u", "v"}


def test_chains_refuse_covariates():
    X, batch, _, _ = _data(30)
    with pytest.raises(InputError, match="Fit SRFLVM, or leave covariates out"):
        bo.RFLVM(**SMALL).fit(X, covariates={"batch": batch})


@pytest.mark.parametrize("likelihood", ["gaussian", "poisson"])
@pytest.mark.parametrize("step", [3, 25])  # in the race, in the decay
def test_a_fit_stopped_and_continued_is_the_fit_that_never_stopped(
    tmp_path, monkeypatch, step, likelihood
):
    X, batch, _, _ = _data(40)
    if likelihood == "poisson":
        X = np.random.default_rng(0).poisson(np.exp(0.5 * X)).astype(float)
    settings = SMALL | {"max_iter": 40, "init": ["pca", "fold"], "likelihood": likelihood}
    given = {"covariates": {"batch": batch}}
    whole = bo.NGMVLVM(**settings).fit(X, **given)
    draw = plan.draw

    def interrupted(model, n_frequencies, sampling, seed, purpose, at, *rest):
        if purpose == "train" and at == step:
            raise KeyboardInterrupt
        return draw(model, n_frequencies, sampling, seed, purpose, at, *rest)

    settings["checkpoint"] = tmp_path / "fit.ckpt"
    monkeypatch.setattr(plan, "draw", interrupted)
    try:
        with pytest.warns(UserWarning, match="Interrupted: the best state"):
            assert bo.NGMVLVM(**settings).fit(X, **given).interrupted_
    except KeyboardInterrupt:
        assert step == 3  # no start was through its race yet
    monkeypatch.setattr(plan, "draw", draw)
    with pytest.raises(InputError, match="checkpoint"):
        bo.NGMVLVM(**settings).fit(X)
    continued = bo.NGMVLVM(**settings).fit(X, **given)
    np.testing.assert_array_equal(continued.embedding_, whole.embedding_)
    assert continued.elbo_ == whole.elbo_
    assert continued.covariate_std_ == whole.covariate_std_


def test_a_fit_on_landmarks_goes_on_beside_its_own_rows_alone(tmp_path, monkeypatch):
    r = np.random.default_rng(0)
    X = r.poisson(2.0, size=(90, 4)).astype(float)
    beside = {
        "size_factors": r.uniform(0.5, 2.0, 90),
        "covariates": {"age": r.normal(size=90)},
    }
    path = tmp_path / "fit.ckpt"
    model = bo.NGMVLVM(
        1, **SMALL, likelihood="poisson", landmarks=40, checkpoint=path
    )  # fmt: skip
    with monkeypatch.context() as cut:
        cut.setattr(landmarks, "evaluate_anchored", None)
        with pytest.raises(TypeError):
            model.fit(X, **beside)
    for what, known in beside.items():
        given = beside | {what: of_rows(known, r.permutation(90))}
        with pytest.raises(InputError, match="belongs to other data"):
            model.fit(X, **given)
    assert np.isfinite(model.fit(X, **beside).elbo_)


def test_what_covariates_become():
    frame = pandas.DataFrame(
        {
            "batch": pandas.Categorical(["x", "y", None, "x"]),
            "age": [1.0, 2.0, 3.0, np.nan],
            "sick": [True, False, True, True],
            "n": pandas.array([1, None, 3, 5], dtype="Int64"),
        }
    )
    coding = CovariateCoding.fit(frame, 4)
    assert coding.groups == (0, 0, 1, 2, 2, 3)
    numbers = coding.encode(frame, 4)
    np.testing.assert_allclose(numbers.mean(0), np.zeros(6), atol=1e-12)
    np.testing.assert_allclose(numbers[2, :2], 0.0)  # missing: the average
    np.testing.assert_allclose(numbers[0, :2], [1 - 2 / 3, -1 / 3])
    np.testing.assert_allclose(numbers[:3, 2], (np.array([1.0, 2, 3]) - 2) / np.std([1, 2, 3]))
    again = CovariateCoding.from_json(coding.to_json()).encode(
        frame[["n", "age", "sick", "batch"]], 4
    )
    torch.testing.assert_close(again, numbers)
    assert [type(covariate) for covariate in coding.covariates] == [
        Categorical,
        Continuous,
        Categorical,
        Continuous,
    ]
    some = of_rows({"a": np.arange(4), "b": list("wxyz")}, np.array([1, 3]))
    assert some["b"].tolist() == ["x", "z"]


def test_bytes_are_the_texts_that_they_hold():
    coding = CovariateCoding.fit({"batch": np.array([b"a", b"b", b"a"])}, 3)
    numbers = coding.encode({"batch": ["a", "b", "a"]}, 3)
    torch.testing.assert_close(coding.encode({"batch": [b"a", b"b", b"a"]}, 3), numbers)
    assert coding.covariates[0].labels == ["a", "b"]


@pytest.mark.parametrize("kind", ["Categorical", "Enum"])
def test_categories_of_polars_are_labels(kind):
    polars = pytest.importorskip("polars")
    dtype = polars.Categorical if kind == "Categorical" else polars.Enum(["y", "x"])
    frame = polars.DataFrame({"batch": polars.Series(["x", "y", None, "x"]).cast(dtype)})
    coding = CovariateCoding.fit(frame, 4)
    assert coding.covariates[0].labels == ["x", "y"]
    torch.testing.assert_close(
        coding.encode(frame, 4), coding.encode({"batch": ["x", "y", None, "x"]}, 4)
    )


def test_nan_beside_texts_is_missing_and_numbers_beside_them_are_numbers():
    batch = ["a", "b", float("nan")]
    coding = CovariateCoding.fit({"batch": batch}, 3)
    assert coding.covariates[0].labels == ["a", "b"]
    missing = coding.encode({"batch": [float("nan"), None]}, 2)
    torch.testing.assert_close(missing, torch.zeros_like(missing))
    rows = CovariateCoding.fit([[1.0, "a"], [2.0, "b"], [4.0, "a"]], 3).covariates
    assert [type(covariate) for covariate in rows] == [Continuous, Categorical]
    # as in an array of objects
    assert CovariateCoding.fit({"batch": [1, "a", 2.0]}, 3).covariates[0].labels == [
        "1",
        "2",
        "a",
    ]


TWICE = {
    "frame": pandas.DataFrame([[1.0, 2.0], [3.0, 1.0]], columns=["age", "age"]),
    "dict": {1: [1.0, 2.0], "1": ["a", "b"]},
}


@pytest.mark.parametrize("kind", TWICE)
def test_covariates_of_the_same_name_are_refused(kind):
    with pytest.raises(InputError, match=r"different names, got '(age|1)' twice. Rename one"):
        CovariateCoding.fit(TWICE[kind], 2)


@pytest.mark.parametrize("value", [1e300, -1e308])
def test_numbers_beyond_those_of_rows_are_refused(value):
    want = "at most 1e[+]100 in size for 'age', got .* in row 1"
    with pytest.raises(InputError, match=want):
        CovariateCoding.fit({"age": [1.0, value]}, 2)
    coding = CovariateCoding.fit({"age": [1.0, 2.0]}, 2)
    with pytest.raises(InputError, match=want):
        coding.encode({"age": [1.0, value]}, 2)


class _Labels(list):
    """Labels as other libraries hold them: with categories, and nothing that pandas has."""

    dtype = type("Categories", (), {"categories": ("x", "y")})()


def test_categories_need_no_method_of_pandas():
    coding = CovariateCoding.fit({"batch": _Labels(["x", "y", "x"])}, 3)
    assert coding.covariates[0].labels == ["x", "y"]


@pytest.mark.parametrize("values", [np.arange(2).astype("M8[D]"), np.array([1.0, 2.0j])])
def test_what_is_no_number_is_refused_of_new_rows_too(values):
    coding = CovariateCoding.fit({"age": [1.0, 2.0]}, 2)
    with pytest.raises(InputError, match="numbers, categories, texts or booleans for 'age'"):
        coding.encode({"age": values}, 2)
    # what the model does not know is not looked at
    coding.encode({"age": [1.0, 2.0], "other": values}, 2)


REFUSED = {
    "none": (None, "Pass covariates= with 'batch'"),
    "unseen": (
        {"batch": ["a", "q"]},
        "'q' in row 1. Fit with rows of it, or leave it missing",
    ),
    "other": ({"donor": ["a", "b"]}, "without 'batch'"),
    "length": ({"batch": ["a"]}, r"of shape \(2,\)"),
    "word": ("mean", "or covariates='average'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_covariates_are_named(fitted, name):
    model, X, *_ = fitted
    given, match = REFUSED[name]
    with pytest.raises(InputError, match=match):
        model.transform(X[:2], covariates=given)


def test_a_fit_without_covariates_refuses_some():
    X, batch, _, _ = _data(30)
    model = bo.NGMVLVM(**SMALL).fit(X)
    with pytest.raises(InputError, match=r"Fit\(X, covariates=...\) first"):
        model.transform(X, covariates={"batch": batch})
    assert model.covariate_std_ == {}


def test_covariates_in_another_order_than_the_rows_are_refused():
    X, batch, _, _ = _data(30)
    frame = pandas.DataFrame(X, index=[f"row {i}" for i in range(30)])
    beside = pandas.DataFrame({"batch": batch}, index=frame.index)
    with pytest.raises(InputError, match=r"covariates.loc\[X.index\]"):
        bo.NGMVLVM(**SMALL).fit(frame, covariates=beside.iloc[::-1])


def test_numbers_that_are_none_are_refused():
    with pytest.raises(InputError, match="finite numbers for 'age'"):
        CovariateCoding.fit({"age": [1.0, np.inf]}, 2)


def test_constant_covariates_explain_nothing(tmp_path):
    r = np.random.default_rng(0)
    known = {"c": r.normal(size=60), "day": np.full(60, 0.1), "plate": ["a"] * 60}
    with pytest.warns(DataWarning, match="they explain nothing: 'day', 'plate'"):
        model = bo.NGMVLVM(1, **SMALL).fit(1000 * r.normal(size=(60, 5)), covariates=known)
    model.save(tmp_path / "m.bochner")
    for one in (model, bo.load(tmp_path / "m.bochner")):
        effects = one.covariate_std_["x"]
        assert effects["day"] == effects["plate"] == 0.0
        assert effects["c"] > 0.0


@pytest.mark.parametrize("nothing", [[np.nan] * 30, [None] * 30, np.array([pandas.NA] * 30)])
def test_covariates_without_a_value_are_refused(nothing):
    X, batch, _, _ = _data(30)
    with pytest.raises(InputError, match="value of 'age' in some row, got none in 30 rows"):
        bo.NGMVLVM(**SMALL).fit(X, covariates={"batch": batch, "age": nothing})


def test_effects_on_columns_in_units_of_their_own_are_multiples_of_their_deviations():
    X, batch, _, _ = _data()
    table = pandas.DataFrame(X[:, :4])
    effects = []
    for units in ([1.0, 1e3, 1.0, 1e3], [1.0, 1e5, 1e2, 1e3]):
        model = bo.NGMVLVM(likelihood="auto", **SMALL)
        model.fit(table * units, covariates={"batch": batch})
        effects.append(model.covariate_std_["numbers"]["batch"])
    assert effects[0] == pytest.approx(effects[1], rel=1e-3)
    assert 0.1 < effects[0] < 10.0


def test_columns_of_obs():
    anndata = pytest.importorskip("anndata")
    X, batch, _, _ = _data(40)
    obs = pandas.DataFrame(
        {"plate": np.searchsorted(["a", "b", "c"], batch), "age": np.arange(40)}
    )
    obs.index = [f"cell{i}" for i in range(40)]
    cells = anndata.AnnData(X, obs=obs)
    model = bo.fit_anndata(cells, batch_key="plate", covariate_keys=["age"], **SMALL)
    assert [type(covariate) for covariate in model._covariate_coding.covariates] == [
        Categorical,
        Continuous,
    ]
    assert _share(cells.obsm["X_bochner"], batch) < 0.1
    frame = pandas.DataFrame(X, index=obs.index, columns=cells.var_names)
    np.testing.assert_allclose(model.transform(frame, covariates=obs), model.embedding_)
    with pytest.raises(InputError, match=r"'batch' in adata.obs, got 'plate', 'age'"):
        bo.fit_anndata(cells, batch_key="batch", key_added="other", **SMALL)


def test_other_functions_take_covariates(fitted, tmp_path):
    model, X, batch, _, _ = fitted
    given = {"batch": batch}
    report = bo.calibration(model, X, covariates=given, random_state=0)
    assert report.views["x"].coverage[0.8] > 0.6
    page = bo.report(model, X, path=tmp_path / "page.html", covariates=given)
    assert page.stat().st_size > 10_000
    for rows in ("new", "same"):
        result = bo.select_n_components(
            bo.NGMVLVM(**(SMALL | {"max_iter": 10})),
            X[:40],
            [1, 2],
            rows=rows,
            n_repeats=1,
            covariates={"batch": batch[:40]},
            random_state=0,
        )
        assert result.candidates == (1, 2)


@pytest.fixture(scope="module")
def sized():
    """A model of counts with size factors, its rows with names, and what is known of them."""
    rng = np.random.default_rng(0)
    rows = [f"row {i}" for i in range(40)]
    z = rng.normal(size=(40, 1))
    depth = pandas.Series(np.exp(rng.normal(size=40)), index=rows, name="depth")
    means = depth.to_numpy()[:, None] * np.exp(1 + np.sin(z + np.arange(5)))
    frame = pandas.DataFrame(rng.poisson(means), index=rows, columns=list("abcde"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = bo.NGMVLVM(1, likelihood="poisson", **SMALL)
        model.fit(frame, size_factors=depth)
    return model, frame, depth


TAKE = {
    "fit": lambda model, X, sizes: clone(model).fit(X, size_factors=sizes),
    "transform": lambda model, X, sizes: model.transform(X, size_factors=sizes),
    "by view": lambda model, X, sizes: model.transform(X, size_factors={"x": sizes}),
    "impute": lambda model, X, sizes: model.impute(X, size_factors=sizes),
    "score": lambda model, X, sizes: model.score(X, size_factors=sizes),
    "calibration": lambda model, X, sizes: bo.calibration(model, X, size_factors=sizes),
    "report": lambda model, X, sizes: bo.report(model, X, size_factors=sizes),
    "selection": lambda model, X, sizes: bo.select_n_components(
        model, X, [1], size_factors=sizes
    ),
}


@pytest.mark.parametrize("name", TAKE)
def test_size_factors_in_another_order_than_the_rows_are_refused(
    sized, name, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    model, frame, depth = sized
    with pytest.raises(InputError, match=r"size_factors.*got 'row 39' in row 0"):
        TAKE[name](model, frame, depth[::-1])


def test_intervals_of_counts_are_calibrated_with_the_size_factors_and_not_without(sized):
    """Of the same hidden entries; rows differ in depth by a factor of ten and more."""
    model, frame, depth = sized
    covered = [0.0, 0.0]
    for seed in range(4):
        for i, sizes in enumerate((depth, None)):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result = bo.calibration(
                    model, frame, size_factors=sizes, n_draws=50, random_state=seed
                )
            covered[i] += result.views["x"].coverage[0.95] / 4
    assert covered[0] > 0.88
    assert covered[1] < 0.8


def test_labels_of_a_map_in_another_order_than_the_rows_of_the_fit_are_refused(sized):
    pytest.importorskip("matplotlib")
    model, _, depth = sized
    with pytest.raises(InputError, match=r"labels.*got 'row 39' in row 0"):
        bo.plots.latent_map(model, depth[::-1])
    # a copy holds nothing of the rows
    assert pickle.loads(pickle.dumps(model))._index is None


def test_rows_without_size_factors_are_warned_of_once(sized, tmp_path):
    model, frame, depth = sized
    new = frame.iloc[:5]
    calls = {
        "transform": lambda: model.transform(new, interval=0.5),
        "impute": lambda: model.impute(new),
        "score": lambda: model.score(new),
        "calibration": lambda: bo.calibration(model, new, n_draws=5, random_state=0),
        "report": lambda: bo.report(model, frame, path=tmp_path / "page.html"),
    }
    for name, call in calls.items():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call()
        said = [w for w in caught if "taken for typical ones" in str(w.message)]
        assert len(said) == 1, name
        assert said[0].filename == __file__, name
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.transform(new, size_factors=depth[:5])
        clone(model).set_params(max_iter=200).fit(frame, size_factors=depth)


def test_a_page_places_rows_by_their_size_factors(sized, tmp_path):
    model, frame, depth = sized
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bo.report(model, frame, path=tmp_path / "page.html", size_factors=depth)
    found = _place(model, frame, {"size_factors": depth})[0]
    assert found is model.embedding_
    some = frame.iloc[:9]
    found = _place(model, some, {"size_factors": depth[:9]})[0]
    np.testing.assert_allclose(found, model.embedding_[:9], atol=1e-4)
