"""Choosing n_components: the table, its rule, and that it finds the dimension of data that have
one.
"""

import dataclasses
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.stats import norm
from sklearn.exceptions import ConvergenceWarning

import bochner as bo
from bochner import plots
from bochner.errors import InputError
from bochner.model_selection.hiding import hide_some
from bochner.model_selection.n_components import _coarse, _hidden, _Known, _summary
from bochner.prediction.entry_statistics import mean_of_fits, mean_of_rows

pytest.importorskip("matplotlib")


def data(dim, n=100, m=14):
    source = np.random.default_rng(1)
    z = source.normal(size=(n, dim))
    return (
        np.tanh(z @ source.normal(size=(dim, m)))
        + z @ source.normal(size=(dim, m))
        + 0.3 * source.normal(size=(n, m))
    )


def model(**settings):
    common = {
        "n_mixtures": 1,
        "n_frequencies": 16,
        "n_init": 1,
        "init": "pca",
        "max_iter": 120,
    }
    return bo.NGMVLVM(**{**common, **settings})


@pytest.fixture(scope="module")
def result():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        short = model(max_iter=60)
        return bo.select_n_components(short, data(2), [1, 3, 2], n_repeats=2, random_state=0)


def test_the_dimension_of_the_data_is_found(result):
    assert result.candidates == (1, 2, 3)
    assert result.best in (2, 3)
    assert result.behind[0] > 2 * result.behind_se[0] > 0  # one is not enough
    assert (result.behind >= 0).all()
    top = int(result.log_likelihood.argmax())
    assert result.behind[top] == result.behind_se[top] == 0.0
    assert (result.behind_se >= result.behind_rows_se).all()
    near = result.behind <= result.behind_rows_se
    assert result.best == result.candidates[int(near.argmax())]
    assert ((result.agreement > 0) & (result.agreement <= 1)).all()
    assert result.agreement[1] > 0.9  # two dimensions come out alike from other rows and seeds


def test_it_prints_itself_and_can_be_drawn(result, tmp_path):
    lines = str(result).splitlines()
    assert lines[0].split()[:5] == [
        "n_components",
        "log-likelihood",
        "per",
        "held-out",
        "entry",
    ]
    assert [line.split()[0] for line in lines[1:4]] == ["1", "2", "3"]
    assert lines[-1] == f"Use n_components={result.best}."
    ax = plots.n_components(result)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), result.log_likelihood)
    assert plots.save(ax, tmp_path / "n.png").read_bytes()[:4] == b"\x89PNG"


def test_the_rule_of_one_standard_error_takes_the_smallest_that_is_near():
    source = np.random.default_rng(0)
    rows, noise = np.arange(200), source.normal(size=200)
    near = source.normal(size=200)
    scores = {1: noise - 1.0, 2: noise + near - near.mean() - 0.01, 3: noise, 4: noise - 0.5}
    embeddings = {d: [source.normal(size=(5, d))] for d in scores}
    best = [
        _summary((1, 2, 3, 4), scores, rows, np.zeros(200, int), embeddings, rule)
        for rule in ("best", "one_se")
    ]
    assert [b.best for b in best] == [3, 2]
    # the errors of single means are all alike here: only the comparison row by row tells the
    # numbers apart
    assert best[0].behind_se[3] < 1e-9 < best[0].behind_se[1] < 0.1
    assert best[0].log_likelihood_se[3] > 0.05
    assert np.isnan(best[0].agreement).all()
    assert dataclasses.replace(best[0], best=1).best == 1


def _away(of_error, same_rows, of_fits, n_fits=20, n_tables=300):
    """Return the root mean square of a mean over its standard error: one where the error is
    right.
    """
    away = []
    for seed in range(n_tables):
        source = np.random.default_rng(seed)
        fits = np.repeat(np.arange(n_fits), 40)
        rows = np.tile(np.arange(20), 2 * n_fits) if same_rows else np.arange(fits.size) // 2
        values = source.normal(size=rows.max() + 1)[rows] + source.normal(size=rows.size)
        values += of_fits * source.normal(size=n_fits)[fits]
        mean, error = of_error(values, rows, fits)
        away.append(mean / error)
    return float(np.sqrt(np.mean(np.square(away))))


@pytest.mark.parametrize("same_rows", [False, True])
def test_the_error_of_a_score_counts_rows_and_fits(same_rows):
    """Fits that differ by as much as their rows made a score look up to twice as sure as it is."""
    for of_fits in (0.0, 0.5):
        assert 0.85 < _away(mean_of_fits, same_rows, of_fits) < 1.15
    assert _away(lambda values, rows, _: mean_of_rows(values, rows), False, 1.0) > 1.5
    one = np.zeros(40, int)
    values, rows = np.random.default_rng(0).normal(size=40), np.arange(40)
    assert mean_of_fits(values, rows, one) == mean_of_rows(values, rows)


def _state_that_holds_out(row, n_rows):
    """Return the first random state with which the first part of the rows has one of them."""
    for state in range(100):
        seed = int(np.random.RandomState(state).randint(2**31 - 1))
        order = np.random.default_rng(seed).permutation(n_rows)
        if row in np.array_split(order, 5)[0]:
            return state
    raise AssertionError


@pytest.fixture
def brief(few_draws, monkeypatch):
    """Scores that are known less well: for tests that compare two of the same draws, or ask
    whether there is one.
    """
    monkeypatch.setattr("bochner.model_selection.n_components._DRAWS", 10)


@pytest.mark.usefixtures("brief")
def test_frames_views_and_size_factors_go_along():
    source = np.random.default_rng(2)
    X = pd.DataFrame(source.poisson(3.0, size=(30, 5)).astype(float), columns=list("abcde"))
    estimator = model(
        views={"one": ["a", "b"], "two": ["c", "d", "e"]},
        likelihood="poisson",
        max_iter=5,
        n_frequencies=4,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        arguments = {
            "hide": "view",
            "n_repeats": 1,
            "size_factors": source.random(30) + 0.5,
            "random_state": 0,
        }
        one, other = (bo.select_n_components(estimator, X, [1], **arguments) for _ in range(2))
    np.testing.assert_array_equal(one.log_likelihood, other.log_likelihood)
    assert np.isfinite(one.log_likelihood).all()
    assert not hasattr(estimator, "embedding_")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            {"candidates": [0, 2]},
            r"Expected candidates that are positive whole numbers, got \[0, 2\]. Correct them.",
        ),
        (
            {"candidates": [1.5]},
            r"Expected candidates that are positive whole numbers, got \[1.5\]",
        ),
        ({"rule": "first"}, r"Expected rule= 'one_se' or 'best', got 'first'. Correct it."),
        ({"candidates": []}, r"Expected candidates that are positive whole numbers, got \[\]"),
        ({"n_repeats": 0}, r"Expected n_repeats of at least 1, got 0. Ask for 3."),
        (
            {"n_repeats": 60},
            r"Expected at least 120 rows, got 100. Pass more rows, or choose n_components "
            r"yourself.",
        ),
    ],
)
def test_what_cannot_be_is_said(arguments, text):
    with pytest.raises(InputError, match=text):
        bo.select_n_components(model(), data(1), **arguments)


@pytest.mark.usefixtures("brief")
def test_rows_in_files_are_compared_as_those_in_memory(tmp_path):
    X = data(1, n=40, m=6)
    np.save(tmp_path / "X.npy", X)
    source = bo.open_rows(tmp_path / "X.npy")
    rows = [source, np.load(tmp_path / "X.npy", mmap_mode="r")]
    zarr = pytest.importorskip("zarr")
    rows.append(zarr.array(X, chunks=(7, 6)))
    estimator = model(max_iter=5)
    arguments = {"candidates": [1, 2], "n_repeats": 1, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = bo.select_n_components(estimator, X, **arguments)
        for given in rows:
            found = bo.select_n_components(estimator, given, **arguments)
            np.testing.assert_array_equal(found.log_likelihood, expected.log_likelihood)
    assert _coarse(estimator, source, "auto", "entries", 0)[1] == (1, 2, 3, 5, 8)
    with pytest.raises(InputError, match=r"dense X, got an X that is not in memory\. Leave"):
        bo.select_n_components(estimator, source, rows="same")


def with_holes(X, share=0.2, seed=0):
    return np.where(np.random.default_rng(seed).random(X.shape) < share, np.nan, X)


def test_entries_of_the_same_rows_choose_what_completes_a_table(monkeypatch):
    densities, short = [], {"max_iter": 60}

    def noted(*arguments):
        found = _hidden(*arguments)
        densities.append(found)
        return found

    monkeypatch.setattr("bochner.model_selection.n_components._hidden", noted)
    X = pd.DataFrame(with_holes(data(2)), columns=[f"c{i}" for i in range(14)])
    arguments = {"rows": "same", "n_repeats": 2, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        result = bo.select_n_components(model(**short), X, [1, 2], **arguments)
    assert result.best == 2
    assert result.behind[0] > 2 * result.behind_se[0] > 0
    # by hand: the densities of the first repeat's entries are those of its completion
    seed = int(np.random.RandomState(0).randint(2**31 - 1))
    hidden = hide_some(
        X.to_numpy(), {"x": np.arange(14)}, "entries", 0.1, np.random.default_rng(seed)
    )
    fitted = model(n_components=2, random_state=seed, **short).fit(X.mask(hidden))
    mean, std = fitted.impute(X.mask(hidden), return_std=True)
    density, rows, _ = densities[1]  # of two dimensions
    expected = norm.logpdf(X.to_numpy()[hidden], mean.to_numpy()[hidden], std[hidden])
    # frames of another layout round another way
    np.testing.assert_allclose(density, expected, atol=1e-3)
    assert (rows == np.nonzero(hidden)[0]).all()


def test_counts_are_judged_by_draws_and_no_column_is_hidden_whole():
    X = np.random.default_rng(3).poisson(3.0, size=(20, 4)).astype(float)
    X[2:, 3] = np.nan
    density, rows, latents = _hidden(
        model(likelihood="poisson", max_iter=5, n_frequencies=4),
        X,
        np.arange(0),
        ("entries", 0.5, 0),
        _Known(None, None),
    )
    assert np.isfinite(density).all()
    assert (density < 0).all()
    assert len(rows) == len(density) > 10
    assert latents.shape == (20, 2)


def test_auto_goes_from_a_linear_path_to_numbers_about_its_best_rank():
    estimator = bo.NGMVLVM(n_frequencies=16, random_state=0)
    source = np.random.default_rng(0)
    X = source.normal(size=(120, 8)) @ source.normal(size=(8, 60)) + 0.3 * source.normal(
        size=(120, 60)
    )
    brief, numbers = _coarse(estimator, X, "auto", "entries", 0)
    assert numbers == [2, 4, 8, 16]
    assert (brief.init, brief.max_iter, brief.n_frequencies) == ("pca", 100, 16)
    assert (estimator.init, estimator.max_iter) == ("auto", "auto")
    asked = bo.NGMVLVM(init="random", max_iter=7)
    assert [
        getattr(_coarse(asked, X, "auto", "entries", 0)[0], name)
        for name in ("init", "max_iter")
    ] == ["random", 7]
    for other, hide in ((bo.NGMVLVM(likelihood="poisson"), "entries"), (estimator, "view")):
        assert _coarse(other, X, "auto", hide, 0)[1] == (1, 2, 3, 5, 8)
    assert _coarse(estimator, sp.csr_array(X), "auto", "entries", 0)[1] == (1, 2, 3, 5, 8)
    # never more than half of what the table could hold
    assert max(_coarse(estimator, X[:, :9], "auto", "entries", 0)[1]) <= 4


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"rows": "old"}, "Expected rows= 'new' or 'same', got 'old'. Correct it."),
        (
            {"rows": "same", "hide": "view"},
            r"Expected rows='same' with hide='entries' and a dense X, got hide='view'.",
        ),
        (
            {"candidates": "all"},
            "Expected candidates='auto' or a list of numbers, got 'all'. Correct it.",
        ),
    ],
)
def test_what_can_be_asked_is_said(arguments, text):
    with pytest.raises(InputError, match=text):
        bo.select_n_components(model(), data(1), **arguments)


@pytest.mark.usefixtures("brief")
def test_a_label_that_one_row_has_ends_no_comparison():
    """Held out, its row has a hole there."""
    rng = np.random.default_rng(100)
    frame = pd.DataFrame(rng.normal(size=(30, 2)), columns=["a", "b"])
    frame["s"] = ["rare", *["x", "y"] * 14, "x"]
    quick = {"n_init": 1, "init": "pca", "max_iter": 3, "n_frequencies": 8}
    held_out = _state_that_holds_out(0, 30)
    settings = {"candidates": [1], "n_repeats": 1, "random_state": held_out}
    model = bo.NGMVLVM(likelihood="auto", **quick)
    assert bo.select_n_components(model, frame, **settings).best == 1
    batches = {"batch": frame["s"].to_numpy(), "age": np.arange(30.0)}
    X = frame[["a", "b"]].to_numpy()
    chosen = bo.select_n_components(bo.NGMVLVM(**quick), X, covariates=batches, **settings)
    assert chosen.best == 1


@pytest.mark.usefixtures("brief")
def test_constant_covariates_are_said_once():
    X = np.random.default_rng(100).normal(size=(30, 3))
    beside = {"site": ["a"] * 30, "rare": [1.0] + [0.0] * 29}
    quick = {"n_init": 1, "init": "pca", "max_iter": 3, "n_frequencies": 8}
    settings = {"candidates": [1, 2], "n_repeats": 2, "random_state": 0}
    for rows in ("new", "same"):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            bo.select_n_components(
                bo.NGMVLVM(**quick), X, covariates=beside, rows=rows, **settings
            )
        texts = [str(one.message) for one in said]
        (one,) = [text for text in texts if text.startswith("Constant covariates")]
        assert "'site'" in one
        assert "'rare'" not in one


@pytest.mark.parametrize("candidates", [[1, 2], "auto"])
def test_shared_latents_of_a_fixed_number_are_refused_before_any_fit(monkeypatch, candidates):
    monkeypatch.setattr("bochner.model_selection.n_components.Parallel", None)
    views = {"a": slice(0, 7), "b": slice(7, 14)}
    fixed = model(views=views, latent={"shared": 1, "private": {"a": 1}})
    text = r"candidates change n_components, got latent\['shared'\]=1, .* Leave 'shared' out"
    with pytest.raises(InputError, match=text):
        bo.select_n_components(fixed, data(1), candidates)


@pytest.mark.usefixtures("brief")
def test_private_latents_go_along():
    views = {"a": slice(0, 7), "b": slice(7, 14)}
    private = model(views=views, latent={"private": {"a": 1}}, max_iter=20)
    chosen = bo.select_n_components(private, data(1), [1, 3], n_repeats=1, random_state=0)
    assert chosen.log_likelihood[0] != chosen.log_likelihood[1]


QUICK = {"n_mixtures": 1, "n_frequencies": 4, "init": "pca", "max_iter": 10}


def people(n=60, seed=100):
    """A mixed table with a label that a single row has."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(n)
    labels = np.where(x < 0, "a", "c")
    labels[5] = "b"
    return pd.DataFrame(
        {"h": 170 + 8 * x, "w": 3 * x + 0.3 * rng.standard_normal(n), "k": labels}
    )


@pytest.mark.usefixtures("brief")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("rows", ["same", "new"])
def test_tables_of_arrow_are_compared_as_those_of_pandas(rows):
    arrow = pytest.importorskip("pyarrow")
    frame = people()
    estimator = bo.NGMVLVM(likelihood="auto", **QUICK)
    # rows of Arrow have no names, those of what is known of them do not matter
    ages = pd.Series(np.arange(60.0), index=np.arange(60)[::-1])
    # of new rows, the one whose label no other has
    how = {"rows": rows, "n_repeats": 1, "random_state": _state_that_holds_out(5, 60)}
    one = bo.select_n_components(
        estimator, frame, [1], covariates={"age": ages.to_numpy()}, **how
    )
    table = arrow.Table.from_pandas(frame)
    other = bo.select_n_components(estimator, table, [1], covariates={"age": ages}, **how)
    np.testing.assert_array_equal(one.log_likelihood, other.log_likelihood)


@pytest.mark.usefixtures("brief")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("stored", ["numpy_nullable", "pyarrow"])
def test_how_numbers_are_stored_does_not_matter_for_the_same_rows(stored):
    if stored == "pyarrow":
        pytest.importorskip("pyarrow")
    rng = np.random.default_rng(100)
    x = rng.standard_normal(60)
    b = 1000 * x + 50 * rng.standard_normal(60)
    frame = pd.DataFrame({"a": x, "b": b, "c": np.rint(2 * x)})
    tables = [frame, frame.convert_dtypes(dtype_backend=stored)]
    if stored == "numpy_nullable":
        tables.append(frame.astype({"c": "int64"}))
    estimator = bo.NGMVLVM(likelihood="auto", **QUICK)
    how = {"rows": "same", "n_repeats": 1, "random_state": 0}
    found = [bo.select_n_components(estimator, X, [1], **how) for X in tables]
    for other in found[1:]:
        # whole numbers are compared with what is predicted, not with what that is rounded to
        np.testing.assert_allclose(other.log_likelihood, found[0].log_likelihood, rtol=1e-6)


def test_whole_numbers_with_hidden_entries_stay_whole():
    X = people().assign(n=np.arange(60, dtype="uint8"), yes=np.arange(60) % 2 == 0)
    estimator = bo.NGMVLVM(likelihood="auto")
    estimator._validate(X, reset=True)
    shown = estimator._coding.hide(X, np.arange(300).reshape(60, 5) % 7 == 0, None)
    assert shown.dtypes.astype(str).tolist() == [
        "float64",
        "float64",
        "object",
        "UInt8",
        "boolean",
    ]
    assert (shown.isna().to_numpy() == (np.arange(300).reshape(60, 5) % 7 == 0)).all()


def _hidden_in(X, seed):
    estimator = bo.NGMVLVM(1, likelihood="auto", random_state=seed, **QUICK)
    what = ("entries", 0.1, seed)
    density, rows, _ = _hidden(estimator, X, np.arange(0), what, _Known(None, None))
    assert np.isfinite(density).all()
    assert len(density) == len(rows)
    return estimator


def _seed_that_hides(row, column, shape):
    """Return the first seed by which an entry is hidden."""
    every = {"x": np.arange(shape[1])}
    for seed in range(100, 200):
        source = np.random.default_rng(seed)
        if hide_some(np.zeros(shape), every, "entries", 0.1, source)[row, column]:
            return seed
    raise AssertionError


@pytest.mark.usefixtures("brief")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_label_of_one_row_is_not_hidden():
    X = people()
    estimator = _hidden_in(X, _seed_that_hides(5, 2, X.shape))
    assert estimator._coding.labels() == {2: ["a", "b", "c"]}


@pytest.mark.usefixtures("brief")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_column_may_be_of_another_kind_with_entries_hidden():
    """Without its only 2 a column is one of two values, of which 2 is none."""
    X = people()[["h", "w"]].assign(n=(people()["h"] > 170).astype(float))
    X.loc[5, "n"] = 2.0
    estimator = _hidden_in(X, _seed_that_hides(5, 2, X.shape))
    assert estimator._coding.labels() == {2: ["0", "1"]}


@pytest.mark.usefixtures("brief")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("likelihood", ["categorical", "binomial"])
def test_a_code_of_one_row_ends_no_comparison(likelihood):
    """A category without any entry in training had density 1, a count beyond the trials NaN."""
    rng = np.random.default_rng(100)
    x = rng.standard_normal(60)
    X = np.column_stack([rng.integers(0, 3, 60), x > 0, (x > 0.5) + 1.0 * (x > -0.5)])
    X[7, 0] = 5
    for rows in (X, pd.DataFrame(X, columns=["a", "b", "c"])):
        estimator = bo.NGMVLVM(1, likelihood=likelihood, random_state=0, **QUICK)
        what = ("entries", 0.1, _seed_that_hides(7, 0, X.shape))
        density, of_rows, _ = _hidden(estimator, rows, np.arange(0), what, _Known(None, None))
        assert np.isfinite(density).all()
        assert (density < 0).all()
        assert len(density) == len(of_rows) > 10
        how = {"n_repeats": 1, "random_state": _state_that_holds_out(7, 60)}
        assert bo.select_n_components(estimator, rows, [1], **how).best == 1


@pytest.mark.usefixtures("brief")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("rows", ["same", "new"])
def test_texts_that_are_categories_in_all_rows_are_in_some(rows):
    """Of fewer rows they are more than half."""
    X = people().assign(k=[f"t{i % 29}" for i in range(60)])
    estimator = bo.NGMVLVM(likelihood="auto", **QUICK)
    how = {"rows": rows, "n_repeats": 1, "random_state": 0}
    assert bo.select_n_components(estimator, X, [1], **how).best == 1


def test_a_class_is_no_estimator():
    with pytest.raises(InputError, match=r"got the class NGMVLVM\. Write NGMVLVM\(\)"):
        bo.select_n_components(bo.NGMVLVM, np.zeros((20, 3)), [1])
