"""Non-conjugate views through the estimators: every method, units, messages, files, size
factors.
"""

from __future__ import annotations

import functools
import logging
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from sklearn.base import clone

import bochner as bo
from bochner.data.support import guess
from bochner.errors import DataWarning, InputError, NumericalError
from bochner.fitting import completion_choice
from bochner.likelihoods import Bernoulli, Binomial, Categorical, NegativeBinomial, Poisson

N, M = 60, 6
COMMON = {
    "n_mixtures": 1,
    "n_frequencies": 8,
    "max_iter": 30,
    "init": "pca",
    "random_state": 0,
}
KINDS = ("bernoulli", "binomial", "negative_binomial", "poisson", "categorical")


def _latent() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(N, 2))


def _data(kind: str, seed: int = 1) -> np.ndarray:
    source = np.random.default_rng(seed)
    frequencies = source.normal(size=(10, 2))
    waves = _latent() @ frequencies.T
    f = np.hstack([np.cos(waves), np.sin(waves)]) @ source.normal(size=(20, M)) / 2.5
    drawn = {
        "gaussian": lambda: f + 0.2 * source.normal(size=f.shape),
        "bernoulli": lambda: source.random(f.shape) < 1 / (1 + np.exp(-2 * f)),
        "binomial": lambda: source.binomial(5, 1 / (1 + np.exp(-f))),
        "negative_binomial": lambda: source.negative_binomial(3, 3 / (3 + np.exp(1 + f))),
        "poisson": lambda: source.poisson(np.exp(1 + f)),
        "categorical": lambda: np.digitize(f, [-0.5, 0.5]) * 10 - 10,
    }
    return np.asarray(drawn[kind](), dtype=float)


def _fit(X: np.ndarray, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return bo.NGMVLVM(**{**COMMON, **settings}).fit(X)


@pytest.fixture(scope="module", params=KINDS)
def fitted(request):
    X = _data(request.param)
    return request.param, X, _fit(X, likelihood=request.param)


def _possible(kind: str, values: np.ndarray) -> bool:
    allowed = {
        "bernoulli": {0.0, 1.0},
        "categorical": {-10.0, 0.0, 10.0},
        "binomial": set(range(6)),
    }
    if kind in allowed:
        return set(np.unique(values)) <= allowed[kind]
    return bool((values >= 0).all() and (values == np.floor(values)).all())


def test_every_method_works_on_the_datas_scale(fitted):
    kind, X, model = fitted
    assert model.likelihood_ == {"x": kind}
    assert model.noise_variance_ == {}
    np.testing.assert_allclose(model.transform(X), model.embedding_, atol=1e-7)
    assert np.isfinite(model.elbo_history_).all()
    assert model.elbo_ > model.elbo_history_[0]
    mean, std = model.inverse_transform(model.embedding_, return_std=True)
    assert mean.shape == std.shape == X.shape
    assert (std >= 0).all()
    if kind == "categorical":
        assert _possible(kind, mean)
        assert (mean == X).mean() > 1.2 * max((value == X).mean() for value in np.unique(X))
    else:
        assert (mean >= 0).all()
        assert ((mean - X) ** 2).mean() < 0.9 * X.var(axis=0).mean()
    sampled = model.sample(20, random_state=1)
    assert _possible(kind, sampled)
    assert sampled.shape == (20, M)
    assert model.kernel_matrix(model.embedding_[:5]).shape == (5, 5)
    assert model.score(X) < 0.0


def test_intervals_hold_as_many_new_observations_as_they_say(fitted):
    kind, X, model = fitted
    mean, std, low, high = model.inverse_transform(
        model.embedding_, return_std=True, interval=0.8
    )
    assert mean.shape == std.shape == low.shape == high.shape
    assert _possible(kind, low)
    assert _possible(kind, high)
    assert 0.7 < ((low <= X) & (high >= X)).mean() <= 1.0
    with pytest.raises(InputError, match="Expected interval between 0 and 1, got 90"):
        model.inverse_transform(model.embedding_, interval=90)


def test_missing_entries_are_completed_by_values_that_can_be(fitted):
    kind, X, model = fitted
    holes = X.copy()
    holes[:10, 0] = np.nan
    filled, std = model.impute(holes, return_std=True)
    np.testing.assert_array_equal(filled[10:], X[10:])
    np.testing.assert_array_equal(std[10:], 0.0)
    assert (std[:10, 0] > 0).all()
    draws = model.impute(holes, n_draws=3)
    assert draws.shape == (3, N, M)
    assert _possible(kind, draws)


def test_rows_are_placed_alone_as_in_company(fitted):
    _, X, model = fitted
    np.testing.assert_allclose(model.transform(X[7:8]), model.embedding_[7:8], atol=1e-6)


def test_files_hold_the_likelihood(fitted, tmp_path):
    _, X, model = fitted
    model.save(tmp_path / "m.bochner")
    loaded = bo.load(tmp_path / "m.bochner")
    assert loaded.likelihood_ == model.likelihood_
    np.testing.assert_allclose(loaded.transform(X), model.embedding_, atol=1e-8)
    np.testing.assert_allclose(
        loaded.score_samples(X[:5]), model.score_samples(X[:5]), atol=1e-8
    )
    np.testing.assert_array_equal(
        loaded.sample(3, random_state=0), model.sample(3, random_state=0)
    )


def test_same_seed_same_result(fitted):
    kind, X, model = fitted
    again = _fit(X, likelihood=kind)
    assert again.elbo_ == model.elbo_
    np.testing.assert_array_equal(again.embedding_, model.embedding_)


def test_several_kinds_of_views_share_their_latents_and_predict_each_other(
    two_folds, monkeypatch
):
    # nor how a short fit would complete the rows
    monkeypatch.setattr(completion_choice, "_LEAST_ROWS", N + 1)
    kinds = ("gaussian", "bernoulli", "negative_binomial")
    X = np.hstack([_data(kind, seed) for seed, kind in enumerate(kinds)])
    views = {kind: slice(M * i, M * (i + 1)) for i, kind in enumerate(kinds)}
    model = _fit(
        X,
        views=views,
        likelihood={"bernoulli": "bernoulli", "negative_binomial": NegativeBinomial()},
        max_iter=100,
    )
    assert model.likelihood_ == dict(zip(kinds, kinds, strict=True))
    assert set(model.noise_variance_) == {"gaussian"}
    assert float(model.dispersion_["negative_binomial"]) > 0
    absent = X.copy()
    absent[:15, M : 2 * M] = np.nan
    filled = model.impute(absent)
    base = X[15:, M : 2 * M].mean(axis=0)
    error = ((filled[:15, M : 2 * M] - X[:15, M : 2 * M]) ** 2).mean()
    assert error < ((base - X[:15, M : 2 * M]) ** 2).mean()
    _, wide = model.transform(absent[:15], return_std=True)
    assert wide.mean() > model.embedding_std_[:15].mean()


def test_counts_in_the_thousands_are_told_apart_by_their_own_curvature():
    source = np.random.default_rng(5)
    rate = np.exp(8.0 + 0.5 * _latent() @ source.normal(size=(2, 8)))
    counts = source.negative_binomial(200, 200 / (200 + rate)).astype(float)
    tilted = _fit(counts, likelihood="negative_binomial", max_iter=150)
    # what "auto" is for counts so large
    assert tilted._fit.posterior[0].likelihood.bound == "tilted"
    loose = _fit(counts, likelihood=NegativeBinomial(bound="polya-gamma"), max_iter=150)
    assert tilted.elbo_ > loose.elbo_ + 0.3 * counts.size
    assert bo.metrics.mean_aligned_r2(_latent(), tilted.embedding_) > 0.9


def test_counts_of_eight_orders_of_magnitude_stay_finite():
    source = np.random.default_rng(0)
    log_mean = np.log(400) + source.normal(size=(80, 2)) @ source.normal(size=(2, 12)) * 1.5
    counts = source.poisson(np.exp(log_mean)).astype(float)
    assert counts.max() > 1e5
    assert counts.min() < 10
    # single precision cannot tell apart what entries of such different weight say
    model = _fit(counts, likelihood="poisson", max_iter=60)
    assert np.isfinite(model.elbo_)
    assert bool(np.isfinite(model.inverse_transform(model.embedding_)).all())


def test_counts_of_ten_orders_of_magnitude_beside_zeros_do_not_end_a_fit(tmp_path):
    nan = np.nan
    counts = [nan, 1e9, nan, 8.4e10, 2e9, 0, 0, 0, nan, nan, nan, 1e9, nan, 1e9, 2e9, nan, 1e9,
              nan, 0]  # fmt: skip
    others = np.random.default_rng(0).uniform(0.0, 0.02, len(counts))
    model = bo.SRFLVM(
        1,
        views={"a": slice(0, 1), "b": slice(1, 2)},
        likelihood={"a": "gaussian", "b": "poisson"},
        n_frequencies=7,
        n_mixtures=3,
        init="pca",
        max_iter=101,
        random_state=0,
    )
    X = np.column_stack([others, counts])
    model.fit(X)
    assert len(model.elbo_history_) == 101
    assert np.isfinite(model.elbo_history_).all()
    assert np.isfinite(model.elbo_)
    # where log means overflow, those of missing counts do not matter
    density = model.score_samples(X[:5])
    assert np.isfinite(density).all()
    model.save(tmp_path / "m.bochner")
    np.testing.assert_array_equal(
        bo.load(tmp_path / "m.bochner").score_samples(X[:5]), density
    )


def test_a_model_whose_bound_is_not_finite_is_an_error(monkeypatch):
    monkeypatch.setattr("bochner.fitting.data.final_bound", lambda *_: (-np.inf, np.nan))
    said = r"Expected a finite bound of the trained model, got -inf after 3 steps\. Look for"
    model = bo.NGMVLVM(2, max_iter=3, init="pca", random_state=0)
    with pytest.raises(NumericalError, match=said):
        model.fit(_data("gaussian"))
    assert not hasattr(model, "elbo_")


def test_the_learned_dispersion_is_checked_by_moments():
    source = np.random.default_rng(3)
    rate = np.exp(2.5 + _latent() @ source.normal(size=(2, 12)) * 0.5)
    over = source.negative_binomial(2, 2 / (2 + rate)).astype(float)
    model = _fit(over, likelihood="negative_binomial", max_iter=100)
    learned = float(model.dispersion_["x"])
    assert 1.3 < learned < 3.0
    assert 0.5 < float(model.dispersion_moment_["x"]) / learned < 2.0
    settings = {**COMMON, "max_iter": 80, "learning_rate": 0.1}
    even = bo.NGMVLVM(likelihood=NegativeBinomial(60.0), **settings)
    with pytest.warns(DataWarning, match=r"dispersion of view 'x' reached 100, its cap"):
        even.fit(source.binomial(40, 0.5, size=(N, 12)) * 1.0)


def _counts(r: float) -> np.ndarray:
    """Negative binomial counts of dispersion r, (150, 12); Poisson counts of infinite r."""
    source = np.random.default_rng(3)
    rate = np.exp(1.5 + source.normal(size=(150, 2)) @ source.normal(size=(2, 12)) * 0.3)
    if r == np.inf:
        return source.poisson(rate).astype(float)
    return source.negative_binomial(r, r / (r + rate)).astype(float)


def test_counts_that_are_no_poisson_counts_are_warned_of_with_what_to_fit_instead():
    settings = {**COMMON, "max_iter": 180, "tol": 1.0, "likelihood": {"reads": "poisson"}}
    said = (
        r"The counts of view 'reads' vary [2-9][.0-9]* times as much about their fitted means as "
        r"Poisson counts do: .* Fit with likelihood=\{'reads': 'negative_binomial'\}, or with "
        "more dimensions"
    )
    over = bo.NGMVLVM(views={"reads": slice(0, 12)}, **settings)
    with pytest.warns(DataWarning, match=said):
        over.fit(_counts(1.0))
    for counts, likelihood in ((np.inf, "poisson"), (2.0, "negative_binomial")):
        settings["likelihood"] = {"reads": likelihood}
        even = bo.NGMVLVM(views={"reads": slice(0, 12)}, **settings)
        with warnings.catch_warnings():
            warnings.simplefilter("error", DataWarning)
            even.fit(_counts(counts))


def test_a_poisson_fit_that_was_stopped_early_says_nothing_of_its_counts():
    model = bo.NGMVLVM(likelihood="poisson", **COMMON)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataWarning)
        model.fit(_counts(2.0))
    assert not model.converged_


def test_a_row_without_a_view_trains_on_the_others():
    X = np.hstack([_data("gaussian"), _data("poisson", 2)])
    X[:8, M:] = np.nan
    X[8, M + 1] = np.nan
    model = _fit(
        X, views={"a": slice(0, M), "b": slice(M, 2 * M)}, likelihood={"b": "poisson"}
    )
    assert np.isfinite(model.embedding_).all()
    assert np.isfinite(model.score(X))


@pytest.mark.parametrize("estimator", [bo.AdvisedRFLVM, bo.RandomFeatureLVM])
def test_other_estimators_take_a_likelihood_too(estimator):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = estimator(likelihood=Bernoulli(bound="bohning"), **COMMON).fit(
            _data("bernoulli")
        )
    assert model.likelihood_ == {"x": "bernoulli"}
    assert clone(model).get_params()["likelihood"].bound == "bohning"


def test_a_stopped_fit_continues_to_the_same_result(tmp_path, monkeypatch):

    from bochner.fitting import plan

    X, path = _data("negative_binomial"), tmp_path / "run"
    whole = _fit(X, likelihood="negative_binomial", checkpoint=path)
    original = plan.draw

    def draw(model, n_frequencies, sampling, seed, purpose, at, *rest):
        if purpose == "train" and at == 17:
            raise KeyboardInterrupt
        return original(model, n_frequencies, sampling, seed, purpose, at, *rest)

    monkeypatch.setattr(plan, "draw", draw)
    stopped = _fit(X, likelihood="negative_binomial", checkpoint=path)
    assert stopped.interrupted_
    monkeypatch.setattr(plan, "draw", original)
    continued = _fit(X, likelihood="negative_binomial", checkpoint=path)
    assert continued.elbo_ == whole.elbo_


# -- size factors
# ---------------------------------------------------------------------------


def _deep() -> tuple[np.ndarray, np.ndarray]:
    source = np.random.default_rng(5)
    depth = np.exp(source.normal(size=N))
    rate = np.exp(2 + np.outer(_latent()[:, 0], np.linspace(-1, 1, M)))
    return source.poisson(depth[:, None] * rate).astype(float), depth


@functools.cache
def _signal_without_sizes() -> float:
    X, _ = _deep()
    plain = _fit(X, n_components=1, likelihood="poisson", max_iter=80)
    return abs(np.corrcoef(plain.embedding_[:, 0], _latent()[:, 0])[0, 1])


@pytest.mark.parametrize("how", ["total", "given"])
def test_size_factors_take_depth_out_of_the_latents(how):
    X, depth = _deep()
    sizes = {} if how == "total" else {"size_factors": depth}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kind = Poisson("total" if how == "total" else None)
        model = bo.NGMVLVM(1, likelihood=kind, **{**COMMON, "max_iter": 80}).fit(X, **sizes)
    signal = abs(np.corrcoef(model.embedding_[:, 0], _latent()[:, 0])[0, 1])
    assert signal > 0.9
    assert signal > _signal_without_sizes()
    np.testing.assert_allclose(model.transform(X, **sizes), model.embedding_, atol=1e-7)
    holes = X.copy()
    holes[:, 2] = np.nan
    filled = model.impute(holes, **sizes)
    assert np.corrcoef(filled[:, 2], X[:, 2])[0, 1] > 0.9


def test_size_factors_that_cannot_be_are_named():
    X, depth = _deep()
    model = bo.NGMVLVM(likelihood="poisson", **COMMON)
    bad = depth.copy()
    bad[4] = 0.0
    for factors, text in (
        (
            depth[:-1],
            rf"Expected {N} size factors for view 'x', one per row, got shape \({N - 1},\)",
        ),
        (bad, "Expected positive size factors for view 'x', got 0 in row 4"),
        ({"y": depth}, r"Expected size_factors for views of counts \['x'\], got 'y'"),
    ):
        with pytest.raises(InputError, match=text):
            model.fit(X, size_factors=factors)
    with pytest.raises(InputError, match="Expected a view of counts for size_factors"):
        bo.NGMVLVM(**COMMON).fit(X, size_factors=depth)


# -- bad input
# ---------------------------------------------------------------------------


def test_unknown_size_factors_of_training_rows_are_named_unless_they_lack_the_view():
    X = np.hstack([_data("poisson"), _data("gaussian")])
    views = {"rna": slice(0, M), "other": slice(M, 2 * M)}
    factors = np.ones(N)
    factors[[4, 7]] = np.nan
    kinds = {"rna": "poisson"}
    want = (
        r"a size factor for every training row of view 'rna', got NaN in row 4. Give the row's "
        r"factor"
    )
    with pytest.raises(InputError, match=want):
        bo.NGMVLVM(views=views, likelihood=kinds, max_iter=2).fit(X, size_factors=factors)
    X[[4, 7], :M] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = bo.NGMVLVM(views=views, likelihood=kinds, **{**COMMON, "max_iter": 2}).fit(
            X, size_factors=factors
        )
    assert np.isfinite(model.embedding_).all()


@pytest.mark.parametrize(
    ("likelihood", "value", "text"),
    [
        (
            "bernoulli",
            2.0,
            "Expected zeros and ones in view 'x' (likelihood 'bernoulli'), got 2 in row 3, column 1",  # noqa: E501
        ),
        (
            "poisson",
            -1.0,
            "Expected counts (whole numbers of at least 0) in view 'x' (likelihood 'poisson'), got -1",  # noqa: E501
        ),
        (
            "negative_binomial",
            0.5,
            "(likelihood 'negative_binomial'), got 0.5 in row 3, column 1 ('b')",
        ),
        (
            Binomial(5),
            6.0,
            "Expected counts of at most n_trials in view 'x' (likelihood 'binomial'), got 6 in row 3",  # noqa: E501
        ),
        (
            Categorical([[-10.0, 0.0, 10.0]] * M),
            3.0,
            "Expected categories seen in training in view 'x'",
        ),
    ],
)
def test_impossible_values_are_named_by_view_row_column_and_value(likelihood, value, text):
    kind = likelihood if isinstance(likelihood, str) else likelihood.name
    X = pd.DataFrame(_data(kind), columns=list("abcdef"))
    X.iloc[3, 1] = value
    with pytest.raises(InputError) as caught:
        bo.NGMVLVM(likelihood=likelihood, **COMMON).fit(X)
    assert text in str(caught.value)


def test_impossible_values_are_named_at_transform_too(fitted):
    _, X, model = fitted
    bad = X[:5].copy()
    bad[2, 4] = -3.0
    with pytest.raises(InputError, match="got -3 in row 2, column 4"):
        model.transform(bad)


def test_degenerate_columns_stay_finite():
    source = np.random.default_rng(0)
    binary = (_latent()[:, :1] > 0).astype(float).repeat(M, axis=1)
    binary[:, 1] = 0.0
    binary[:, 2] = 1.0
    counts = source.poisson(2.0, size=(N, M)).astype(float)
    counts[:, 0] = 0.0
    counts[5, 1] = 1e6
    for X, kind in ((binary, "bernoulli"), (counts, "poisson"), (counts, "negative_binomial")):
        model = _fit(X, likelihood=kind, max_iter=60)
        for part in (
            model.elbo_,
            model.embedding_,
            model.inverse_transform(model.embedding_),
            model.score(X),
        ):
            assert np.isfinite(part).all()


# -- auto
# ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("X", "name", "reason"),
    [
        (_data("bernoulli"), "bernoulli", "every value is 0 or 1"),
        (_data("gaussian"), "gaussian", "negative values"),
        (np.abs(_data("gaussian")), "gaussian", "fractions"),
        (np.random.default_rng(0).poisson(3.0, (200, 5)) * 1.0, "poisson", "variance is"),
        (_data("negative_binomial"), "negative_binomial", "variance is"),
        (
            np.random.default_rng(0).integers(0, 6, (200, 5)).clip(0, 4) * 1.0,
            "gaussian",
            "pile up at the largest, 4",
        ),
    ],
)
def test_auto_chooses_by_the_values(X, name, reason):
    result, why = guess(np.where(np.arange(X.size).reshape(X.shape) == 3, np.nan, X))
    assert result == name
    assert reason in why


def test_auto_says_why(caplog, capsys):
    with caplog.at_level(logging.INFO, logger="bochner"):
        model = _fit(_data("bernoulli"), likelihood="auto", verbose=1)
    assert model.likelihood_ == {"x": "bernoulli"}
    assert "view 'x': likelihood 'bernoulli', because every value is 0 or 1" in caplog.text
    assert "because every value is 0 or 1" in capsys.readouterr().err


def test_plots_take_every_likelihood(fitted):
    pytest.importorskip("matplotlib")
    model = fitted[2]
    assert bo.plots.latent_map(model).get_title(loc="left")
    assert bo.plots.bound_trace(model).get_title(loc="left")
    assert bo.plots.learned_kernel(model).get_title(loc="left")
    assert bo.plots.relevance(model).get_title(loc="left")


def test_no_warning_for_rows_of_a_view_of_counts():
    X = _data("poisson")
    model = _fit(X, likelihood="poisson")
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataWarning)
        model.transform(X)


@pytest.mark.parametrize("cls", [bo.NGMVLVM, bo.SRFLVM])
def test_poisson_counts_far_more_scattered_than_poisson_keep_the_bound_finite(cls):
    source = np.random.default_rng(0)
    psi = 4.0 + 1.5 * np.sin(source.normal(size=(80, 2)) @ source.normal(size=(2, 12)))
    X = source.poisson(np.exp(psi) * source.gamma(0.3, 1 / 0.3, size=psi.shape)).astype(float)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = cls(
            2, likelihood="poisson", init="pca", n_frequencies=16, max_iter=120, random_state=0
        ).fit(X)
    columns_alone = scipy.stats.poisson.logpmf(X, X.mean(axis=0)).sum()
    assert np.isfinite(model.elbo_history_).all()
    assert model.elbo_ > columns_alone


def test_numbers_that_differ_from_row_to_row_are_no_categories():
    X = _data("categorical").astype(float)
    X[:, 2] = np.random.default_rng(0).normal(size=len(X))
    model = bo.NGMVLVM(1, likelihood="categorical", max_iter=2, init="pca", random_state=0)
    said = (
        rf"categories, got {len(X)} different values in {len(X)} rows of view 'x', column 2\."
    )
    with pytest.raises(InputError, match=said):
        model.fit(X)
    X[:, 2] = np.arange(len(X)) % 20
    assert len(model.fit(X).likelihood_) == 1


@pytest.mark.parametrize("kind", ["bernoulli", "categorical"])
def test_training_does_not_lower_the_bound_of_entries_that_latents_separate(kind):
    """The kernel's variance grew to its limit, and the bound fell by 7 % from its best."""
    source = np.random.default_rng(100)
    n_columns = 8 if kind == "bernoulli" else 6
    psi = source.normal(size=(80, 2)) @ source.normal(size=(2, n_columns))
    X = (psi > 0).astype(float) if kind == "bernoulli" else np.digitize(psi, [-0.5, 0.5])
    settings = {"likelihood": kind, "n_frequencies": 16, "init": "pca", "random_state": 100}
    early, middle, late = (bo.NGMVLVM(max_iter=n, **settings).fit(X) for n in (20, 40, 150))
    assert late.elbo_ > early.elbo_ + 2.0 * (late.elbo_se_ + early.elbo_se_)
    assert late.elbo_ > middle.elbo_ - 2.0 * (late.elbo_se_ + middle.elbo_se_)


@pytest.mark.parametrize(
    ("likelihood", "n_rows", "width", "covariances"),
    [
        ("poisson", 200, 12, 12),
        ("poisson", 200, 13, 4),
        ("poisson", 60, 20, 20),
        ("negative_binomial", 60, 12, 4),
    ],
)
def test_weights_of_few_poisson_columns_have_covariances_of_their_own(
    likelihood, n_rows, width, covariances
):
    """Means of columns in other units, which shared four, took most of the time of a fit."""
    rates = np.geomspace(0.5, 200.0, width)
    X = np.random.default_rng(0).poisson(rates, size=(n_rows, width)).astype(float)
    model = _fit(X, likelihood=likelihood, max_iter=2)
    (view,) = model._fit.posterior
    assert all(draw.covariance.shape[0] == covariances for draw in view.draws)
