"""Calibration: the report on constructed ranks, then models of every likelihood on rows drawn from
themselves.
"""

import json
import re
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import norm

import bochner as bo
from bochner import plots
from bochner.data.columns import evenly_spread
from bochner.errors import InputError
from bochner.model_selection.hiding import hide_some
from bochner.prediction import completion
from bochner.prediction.calibration import N_BINS, CalibrationReport, assess
from bochner.prediction.density import entry_log_density
from bochner.prediction.entry_statistics import beyond_draws, mean_of_rows, sums_of_rows

KINDS = ("gaussian", "bernoulli", "binomial", "negative_binomial", "poisson", "categorical")
N, M = 120, 8
VIEWS = {"a": slice(0, 4), "b": slice(4, M)}


# -- the report
# ---------------------------------------------------------------------------


def report(pit, n_columns=4):
    rows, columns = np.divmod(np.arange(len(pit)), n_columns)
    return assess("rna", np.asarray(pit), np.zeros(len(pit)), rows, columns)


def uniform(n=4000, seed=0):
    return np.random.default_rng(seed).random(n)


def _joint(correlated, drawn_so, n=400, m=5, n_draws=60):
    """Errors of m entries of n rows that share a part, and draws that do or do not."""
    source = np.random.default_rng(4)
    rows = np.repeat(np.arange(n), m)

    def errors(shared):
        z = source.normal(size=n * m)
        return np.sqrt(0.7) * z + np.sqrt(0.3) * source.normal(size=n)[rows] if shared else z

    drawn = np.stack([errors(drawn_so) for _ in range(n_draws)])
    ranks = (drawn < errors(correlated)).sum(axis=0)
    pit = (ranks + source.random(n * m)) / (n_draws + 1)
    return pit, rows, sums_of_rows(pit, drawn, rows, n, 0)


def test_errors_that_rows_share_are_said_where_draws_do_not_share_them():
    for correlated, drawn_so in ((True, False), (False, False), (True, True)):
        pit, rows, sums = _joint(correlated, drawn_so)
        more, error = beyond_draws(sums, len(pit))
        result = assess(
            "a", pit, np.zeros(len(pit)), rows, np.arange(len(pit)) % 5, (more, error)
        )
        if correlated and not drawn_so:
            assert more == pytest.approx(0.3, abs=0.03)
            assert "entries correlate by 0." in result.problems()[-1]
        else:
            assert abs(more) < 3.0 * error
            assert result.problems() == []
    assert beyond_draws(np.ones((4, 20)), 40) == (0.0, float("inf"))


def test_sums_of_pairs_are_those_of_a_loop():
    pit, _, sums = _joint(True, False, n=6, m=3)
    z = norm.ppf(pit.clip(0.5 / 60, 1.0 - 0.5 / 60)).reshape(6, 3)
    pairs = [row[0] * row[1] + row[0] * row[2] + row[1] * row[2] for row in z]
    np.testing.assert_allclose(sums[2], pairs)
    np.testing.assert_allclose(sums[1], np.square(z).sum(axis=1))
    np.testing.assert_array_equal(sums[0], 3.0)


def test_skewed_errors_and_counts_that_vary_more_are_said():
    source = np.random.default_rng(5)
    rows, columns = np.divmod(np.arange(4000), 4)
    skewed = norm.cdf(0.8 * (source.gamma(2.0, size=4000) - 2.0))
    result = assess("a", skewed, np.zeros(4000), rows, columns).problems()
    assert any("Errors are skewed (" in text for text in result)
    narrow = norm.cdf(1.6 * source.normal(size=4000))
    said = [
        assess("a", narrow, np.zeros(4000), rows, columns, likelihood=name).problems()
        for name in ("poisson", "negative_binomial")
    ]
    assert "Counts vary more than poisson ones do" in said[0][1]
    assert [len(texts) for texts in said] == [2, 1]


def test_uniform_ranks_are_calibrated_and_shares_are_shares():
    view = report(uniform())
    assert view.problems() == []
    assert view.pit.sum() == pytest.approx(1.0)
    assert view.pit.shape == (N_BINS,)
    for level, share in view.coverage.items():
        # rows are independent here and so are entries: the binomial error
        assert view.coverage_se[level] == pytest.approx(
            np.sqrt(share * (1 - share) / 4000), rel=0.1
        )
        assert abs(share - level) < 4 * view.coverage_se[level]
    assert (view.n_entries, view.n_rows) == (4000, 1000)


@pytest.mark.parametrize(
    ("warp", "text"),
    [
        (
            lambda u: 0.5 + np.sign(u - 0.5) * 0.5 * np.abs(2 * u - 1) ** 0.5,
            "hold 25 ± 1 %: too narrow.",
        ),
        (
            lambda u: norm.cdf(0.64 * norm.ppf(u)),
            "hold 71 ± 1 %: too wide.",
        ),
        (
            lambda u: u**2,
            "at 33 ± 0 % of its predictive distribution on average: predictions too high.",
        ),
        (
            np.sqrt,
            "at 66 ± 0 % of its predictive distribution on average: predictions too low.",
        ),
        (
            lambda u: np.where(
                u < 0.1, u / 4, np.where(u > 0.9, 1 - (1 - u) / 4, 0.5 + (u - 0.5) * 0.6)
            ),
            "heavier tails",
        ),
    ],
)
def test_what_is_wrong_is_said(warp, text):
    problems = report(warp(uniform())).problems()
    assert all(problem.startswith("view 'rna': ") for problem in problems)
    assert any(text in problem for problem in problems), problems


@pytest.mark.parametrize(
    ("likelihood", "how"),
    [
        ("gaussian", "their noise."),
        ("negative_binomial", "how far they vary about their predictions."),
        ("categorical", "how far they vary about their predictions."),
    ],
)
def test_columns_that_differ_are_said_where_their_mean_is_right(likelihood, how):
    u = uniform(8000).reshape(-1, 4)
    u[:, :2] = 0.5 + (u[:, :2] - 0.5) * 0.85
    u[:, 2:] = 0.5 + np.sign(u[:, 2:] - 0.5) * 0.5 * np.abs(2 * u[:, 2:] - 1) ** 0.7
    found = replace(report(u.ravel()), likelihood=likelihood)
    (problem,) = [p for p in found.problems() if "columns" in p]
    assert f"(4 of 4 are off what the view holds): the columns differ in {how}" in problem


@pytest.mark.parametrize("power", [0.5, 2.0])
def test_columns_that_are_off_alike_do_not_differ(power):
    u = uniform(8000)
    problems = report(0.5 + np.sign(u - 0.5) * 0.5 * np.abs(2 * u - 1) ** power).problems()
    assert problems
    assert not any("columns" in problem for problem in problems)


def test_columns_are_tested_together():
    """With two hundred columns some are three standard errors off by chance."""
    silent = [not report(uniform(8000, seed), n_columns=200).problems() for seed in range(20)]
    assert sum(silent) >= 19


def test_outliers_are_said():
    u = uniform(8000)
    u[:160] = np.where(u[:160] < 0.5, 0.001, 0.999)
    (problem,) = report(np.random.default_rng(1).permutation(u)).problems()
    assert "lie outside 98 % intervals than the inner half lets expect: outliers." in problem


@pytest.mark.parametrize("likelihood", ["bernoulli", "categorical"])
def test_labels_have_no_tails_and_no_outliers(likelihood):
    """Rows drawn from a model of zeros and ones were said to have heavier tails."""
    source = np.random.default_rng(6)
    rows, columns = np.divmod(np.arange(8000), 4)
    heavy = norm.cdf(source.standard_t(1.5, size=8000))
    skewed = norm.cdf(0.8 * (source.gamma(2.0, size=8000) - 2.0))
    for pit in (heavy, skewed):
        said = assess(
            "a", pit, np.zeros(8000), rows, columns, likelihood=likelihood
        ).problems()
        text = " ".join(said)
        assert "intervals hold" in text or "predictive distribution on average" in text
        for word in ("tails", "outliers", "logarithm"):
            assert word not in text


def _normal(k):
    return lambda source, n: k * source.normal(size=n)


def _alarms(draw, n, text, n_tables=20):
    """Return in how many tables a sentence is said, scores drawn from a law."""
    tables = (norm.cdf(draw(np.random.default_rng((s, n)), n)) for s in range(n_tables))
    return sum(any(text in said for said in report(pit).problems()) for pit in tables)


@pytest.mark.parametrize("n", [40, 400])
@pytest.mark.parametrize("factor", [0.3, 0.6, 1.0, 1.2, 1.6])
def test_a_wrong_factor_is_neither_heavy_tails_nor_outliers(n, factor):
    """The scale of the inner half has an error of its own: of 20 tables no more than 3
    (at a level of 5 %, both sentences together, 4 come in one of sixty).
    """
    tails = _alarms(_normal(factor), n, "heavier tails")
    assert tails + _alarms(_normal(factor), n, "outliers") <= 3


@pytest.mark.parametrize(
    "draw",
    [
        lambda source, n: source.standard_t(3, size=n) / np.sqrt(3.0),
        lambda source, n: source.standard_t(3, size=n),
        lambda source, n: source.standard_cauchy(n) / 2.0,
        lambda source, n: source.standard_cauchy(n) / 20.0,
    ],
    ids=["variance 1", "inner half", "narrow", "far too wide"],
)
def test_heavy_tails_are_said_whatever_the_factor(draw):
    assert _alarms(draw, 2000, "heavier tails") >= 18


@pytest.mark.parametrize("n", [20, 40, 100])
def test_few_entries_that_are_right_are_met_with_silence(n):
    """Intervals that hold all of 40 entries had no error, and were too wide in one table of
    nine.
    """
    silent = [not report(uniform(n, (s, n)), 2).problems() for s in range(100)]
    assert sum(silent) >= 90


def test_a_handful_of_entries_is_said_to_be_too_few():
    view = report(uniform(3), n_columns=3)
    assert view.problems() == []
    text = "view 'rna': 3 hidden entries of 1 rows are too few to tell: pass more rows"
    result = CalibrationReport({"rna": view}, "3 entries", 100)
    assert text in str(result)
    assert text in result._repr_html_().replace("&#x27;", "'")
    # what a page, and scripts, read: nothing is wrong because nothing is known
    (said,) = result.to_json()["too_few"]
    assert said.startswith(text)
    assert result.to_json()["problems"] == []
    assert result.to_json()["calibrated"] is None
    left, _ = plots.calibration(result)
    assert left.get_title("left") == "Central intervals: too few entries to tell"
    assert "nan" not in str(result)
    assert "inf" not in str(result)
    assert "NaN" not in json.dumps(result.to_json())
    assert "Infinity" not in json.dumps(result.to_json())


def test_the_error_of_a_mean_counts_rows_not_entries():
    source = np.random.default_rng(0)
    means = [
        mean_of_rows(np.repeat(source.random(50), 20), np.repeat(np.arange(50), 20))
        for _ in range(400)
    ]
    z = [(mean - 0.5) / error for mean, error in means]
    # three standard errors of a standard deviation of 400 normal numbers
    assert np.std(z) == pytest.approx(1.0, abs=3 / np.sqrt(2 * 400))
    assert mean_of_rows(np.array([1.0, 0.0]), np.array([3, 3])) == (0.5, np.inf)


# -- hiding
# ---------------------------------------------------------------------------


def test_a_row_keeps_an_entry_and_nothing_is_hidden_twice():
    X = np.random.default_rng(0).normal(size=(200, 4))
    X[:50, 1:] = np.nan  # these have one entry
    columns = {"a": np.array([0, 1]), "b": np.array([2, 3])}
    hidden = hide_some(X, columns, "entries", 0.9, np.random.default_rng(1))
    assert not hidden[:50].any()
    assert (~hidden & ~np.isnan(X)).any(axis=1).all()
    assert not hidden[np.isnan(X)].any()
    wide, all_of_it = np.zeros((50, 17)), {"x": np.arange(17)}
    assert (
        len(
            np.unique(
                hide_some(wide, all_of_it, "entries", 0.5, np.random.default_rng(1), 3), axis=0
            )
        )
        == 3
    )
    views = hide_some(X, columns, "view", 0.1, np.random.default_rng(1))
    assert not views[:50].any()
    assert (views[50:].sum(axis=1) == 2).all()
    assert 50 < views[50:, 0].sum() < 100
    assert (
        hide_some(X, columns, "b", 0.1, np.random.default_rng(1))[50:]
        == [False, False, True, True]
    ).all()


@pytest.mark.parametrize("seed", range(5))
def test_a_few_columns_or_rows_have_entries_to_hide_as_well(seed):
    columns = {"x": np.arange(4)}
    many = hide_some(
        np.zeros((2000, 4)), columns, "entries", 0.1, np.random.default_rng(seed), n_patterns=4
    )
    error = np.sqrt(0.1 * 0.9 / 2000)
    np.testing.assert_allclose(many.mean(axis=0), 0.1, atol=4 * error)
    few = hide_some(np.zeros((2, 4)), columns, "entries", 1e-9, np.random.default_rng(seed))
    assert (few.sum(axis=1) == 1).all()


@pytest.mark.parametrize(
    ("hide", "fraction", "text"),
    [
        (
            "everything",
            0.1,
            r"Expected hide= 'entries', 'view' or one of \['a'\], got 'everything'. Correct it.",
        ),
        (
            "entries",
            1.5,
            r"Expected fraction between 0 and 1, got 1.5. Give a share such as 0.1.",
        ),
        (
            "view",
            0.1,
            r"Expected a model of several views \(hide='view'\), got one of one view. Use hide=",
        ),
    ],
)
def test_what_cannot_be_hidden_is_said(hide, fraction, text):
    with pytest.raises(InputError, match=text):
        hide_some(
            np.zeros((3, 2)), {"a": np.array([0, 1])}, hide, fraction, np.random.default_rng(0)
        )


# -- models
# ---------------------------------------------------------------------------


def smooth(source, n=N, m=M, dim=2):
    """Latents and smooth functions of them, one column each."""
    z = source.normal(size=(n, dim))
    waves = z @ source.normal(size=(dim, 12))
    return np.hstack([np.cos(waves), np.sin(waves)]) @ source.normal(size=(24, m)) / 3.0


def data(kind, n=N, m=M):
    source = np.random.default_rng(3)
    f = smooth(source, n, m)
    drawn = {
        "gaussian": lambda: f + 0.3 * source.normal(size=f.shape),
        "bernoulli": lambda: source.random(f.shape) < 1 / (1 + np.exp(-2 * f)),
        "binomial": lambda: source.binomial(5, 1 / (1 + np.exp(-f))),
        "negative_binomial": lambda: source.negative_binomial(3, 3 / (3 + np.exp(1 + f))),
        "poisson": lambda: source.poisson(np.exp(1 + 0.7 * f)),
        "categorical": lambda: np.digitize(f + 0.3 * source.normal(size=f.shape), [-0.5, 0.5]),
    }
    return np.asarray(drawn[kind](), dtype=float)


def fit(X, kind="gaussian", **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        common = {
            "views": VIEWS,
            "n_mixtures": 1,
            "n_frequencies": 8,
            "max_iter": 40,
            "init": "pca",
            "random_state": 0,
        }
        return bo.NGMVLVM(likelihood=kind, **{**common, **settings}).fit(X)


@pytest.fixture(scope="module", params=KINDS)
def fitted(request):
    return request.param, fit(data(request.param), request.param)


@pytest.mark.parametrize("hide", ["entries", "view"])
def test_on_rows_of_the_model_itself_intervals_hold_what_they_say(fitted, hide):
    _, model = fitted
    n = 400 if hide == "entries" else 250
    result = bo.calibration(
        model,
        model.sample(n, random_state=1),
        hide=hide,
        fraction=0.2,
        n_draws=99,
        random_state=0,
    )
    assert set(result.views) == {"a", "b"}
    for view in result.views.values():
        for level, share in view.coverage.items():
            # placement is a Laplace approximation, completion of views an empirical one: each may
            # cost a little
            assert abs(share - level) < 4 * view.coverage_se[level] + (
                0.01 if hide == "entries" else 0.03
            )
        assert abs(view.pit_mean - 0.5) < 4 * view.pit_mean_se + 0.01
        assert np.isfinite(view.log_likelihood)


def test_deviations_agree_with_the_draws(fitted):
    kind, model = fitted
    X = model.sample(60, random_state=2)
    X[:30, 1::2] = np.nan  # holes
    X[30:, :4] = np.nan  # an absent view
    missing, n = np.isnan(X), 400
    draws = model.impute(X, n_draws=n)[:, missing]
    if kind == "categorical":
        assert np.isin(draws, np.unique(data(kind))).all()
        return
    mean, std = (array[missing] for array in model.impute(X, return_std=True))
    z = (draws.mean(axis=0) - mean) / (std / np.sqrt(n))
    # 1 of the draws' own noise, and a twentieth of a standard deviation because means average over
    # few places
    assert np.sqrt(np.mean(z**2)) < np.sqrt(1.2**2 + n * 0.05**2)
    # of single entries, because counts have tails that 400 draws do not fill
    assert np.median(draws.var(axis=0) / std**2) == pytest.approx(1.0, abs=0.1)


def test_densities_of_all_values_sum_to_one(fitted):
    kind, model = fitted
    X = data(kind)[:3]
    shown = X.copy()
    shown[:, 2:] = np.nan
    values = (
        np.unique(X)
        if kind == "categorical"
        else np.arange({"bernoulli": 2, "binomial": 6}.get(kind, 400))
    )
    step = 1.0
    if kind == "gaussian":
        values, step = np.linspace(-12, 12, 2001), 24 / 2000
    rows, mixture = (
        model._split(shown),
        completion.Mixture(model._candidates, model.completion_),
    )
    latents = completion.draw_latents(model._fit.posterior, mixture, rows, 20, 0)
    # all rows at one value after the other
    at = torch.as_tensor(values, dtype=torch.float64).repeat_interleave(3)[:, None]
    every = [x.repeat(len(values), 1, 1) for x in latents]
    truth = [at.expand(-1, y.shape[1]) for y in rows]
    density = step * entry_log_density(model._fit.posterior, every, truth).exp()
    total = density.view(len(values), 3, -1).sum(0)
    known = [
        0 if kind == "categorical" and len(np.unique(data(kind)[:, j])) < len(values) else 1
        for j in range(M)
    ]
    torch.testing.assert_close(
        total[:, np.array(known) == 1], torch.ones(3, sum(known)).double(), rtol=2e-3, atol=0.0
    )


def test_the_density_is_in_the_units_of_the_data():
    X = data("gaussian", n=60)
    few = {"n_draws": 20, "random_state": 0}
    one, other = (bo.calibration(fit(c * X), c * X, **few).views["a"] for c in (1.0, 10.0))
    assert other.log_likelihood == pytest.approx(one.log_likelihood - np.log(10.0), abs=0.02)
    np.testing.assert_allclose(
        list(other.coverage.values()), list(one.coverage.values()), atol=0.02
    )


@pytest.mark.parametrize(
    ("noise", "text"),
    [
        # in training, too: the noise is too large for most entries; smaller noise hides behind what
        # is not known of places, which are predicted by all their modes
        (lambda source, shape: 0.5 * source.standard_t(1.7, size=shape), "heavier tails"),
        (
            lambda source, shape: source.normal(size=shape) * np.tile([0.05, 1.5], M // 2),
            "columns differ in their noise",
        ),
    ],
)
def test_noise_that_the_model_does_not_know_is_said(noise, text):
    source = np.random.default_rng(5)
    f = 1.5 * smooth(source, n=1100)
    X = f + noise(source, f.shape)
    result = bo.calibration(fit(X[:200]), X[200:], fraction=0.3, n_draws=99, random_state=0)
    assert not result.calibrated
    assert re.search(text, str(result))


def test_absent_views_are_predicted_with_intervals_that_hold():
    source = np.random.default_rng(6)
    f = smooth(source, n=500, m=12)
    X = f + 0.3 * source.normal(size=f.shape)
    X[:60, :4] = np.nan  # absent at fit as well
    model = fit(
        X[:300], views={"a": slice(0, 4), "b": slice(4, 8), "c": slice(8, 12)}, max_iter=150
    )
    result = bo.calibration(model, X[300:], hide="view", n_draws=99, random_state=0)
    assert "whole views: a of " in str(result)
    for view in result.views.values():
        assert all(
            abs(s - level) < 4 * view.coverage_se[level] + 0.04
            for level, s in view.coverage.items()
        )


@pytest.mark.usefixtures("few_draws", "quick_choice")
def test_of_many_rows_a_sample_is_compared_and_said(tmp_path):
    X = data("negative_binomial", n=90)
    sizes = np.linspace(0.5, 2.0, 90)
    model = fit(X, "negative_binomial", max_iter=10)
    few = {"n_draws": 20, "random_state": 0}
    some = evenly_spread(90, 40)
    result = bo.calibration(model, X, max_rows=40, **few)
    assert ", in a sample of 40 of 90 rows: share of the truth" in str(result)
    alone = bo.calibration(model, X[some], **few)
    assert result.to_json()["views"] == alone.to_json()["views"]
    assert "sample" not in str(bo.calibration(model, X, max_rows=90, **few))
    # rows on disk, of which no more than a block is held
    np.save(tmp_path / "x.npy", X)
    source = bo.open_rows(tmp_path / "x.npy")
    stored = bo.calibration(model, source, max_rows=40, **few)
    assert str(stored) == str(result)
    # what is known of each row is that of the rows of the sample
    sized = model.fit(X, size_factors={"a": sizes})
    given, of_some = ({"a": sizes}, {"a": sizes[some]})
    assert (
        bo.calibration(sized, X, max_rows=40, size_factors=given, **few).to_json()["views"]
        == bo.calibration(sized, X[some], size_factors=of_some, **few).to_json()["views"]
    )
    with pytest.raises(InputError, match="size"):
        bo.calibration(sized, X, max_rows=40, size_factors={"a": np.append(sizes, 1.0)}, **few)
    with pytest.raises(
        InputError, match=r"Expected max_rows of at least 1, got 0. Ask for 2000."
    ):
        bo.calibration(model, X, max_rows=0)


@pytest.mark.usefixtures("few_draws", "quick_choice")
def test_the_report_is_repeatable_and_travels_as_json():
    X = data("gaussian", n=60)
    model = fit(X)
    result = bo.calibration(model, X, n_draws=20, random_state=0)
    again = bo.calibration(model, X, n_draws=20, random_state=0)
    plain = result.to_json()
    assert json.loads(json.dumps(plain)) == json.loads(json.dumps(again.to_json()))
    json.dumps(plain, allow_nan=False)
    assert set(plain["views"]["a"]["coverage"]) == {"0.5", "0.8", "0.95"}
    assert plain["calibrated"] is result.calibrated
    assert f"Calibration on {plain['hidden']}: share of the truth in central intervals" in str(
        result
    )
    with pytest.raises(
        InputError, match=r"Expected n_draws of at least 2, got 1. Ask for 200."
    ):
        bo.calibration(model, X, n_draws=1)
    with pytest.raises(
        InputError, match=r"Expected n_draws of at most 100,000, got 1,000,000"
    ):
        bo.calibration(model, X, n_draws=10**9)
