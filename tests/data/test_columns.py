"""Columns in different units, whole numbers that are no counts, and values in steps."""

import numpy as np
import pytest

from bochner.data.columns import resolve_views
from bochner.data.kinds import are_counts, differ_in_units, least_noise, warn_of_units
from bochner.errors import DataWarning, InputError, message, shown


def _normal(*shape):
    return np.random.default_rng(100).normal(size=shape)


@pytest.mark.parametrize("step", [1.0, 0.1, 1e-9, 1e12])
def test_noise_of_many_levels_is_that_of_rounding(step):
    values = step * (np.arange(4000) % 200)
    assert least_noise(values) / step**2 == pytest.approx(1.0 / 12.0, rel=1e-3)
    values[::3] = np.nan
    assert least_noise(values) / step**2 == pytest.approx(1.0 / 12.0, rel=1e-3)
    rounded = np.rint(7.0 * _normal(100_000))
    lost = np.var(rounded - 7.0 * _normal(100_000))
    # of normal values whose entropy is that of the density: 6 / (pi e) of it
    assert least_noise(rounded) == pytest.approx(lost * 6.0 / (np.pi * np.e), rel=0.02)


@pytest.mark.parametrize("share", [0.5, 0.1, 0.01])
def test_a_column_tells_no_more_than_its_entropy(share):
    values = (np.arange(1000) < 1000 * share).astype(float)
    entropy = -share * np.log(share) - (1.0 - share) * np.log1p(-share)
    told = 0.5 * np.log(values.var() / least_noise(values))
    assert told == pytest.approx(entropy)


def test_values_written_in_two_ways_are_one():
    values = np.array([0.1 + 0.2, 0.3, 0.1, 0.2, 0.4, 0.4] * 10)
    assert len(np.unique(values)) == 5
    assert least_noise(values) == pytest.approx(least_noise(np.round(values, 1)))


@pytest.mark.parametrize(
    "values", [_normal(50), np.ones(9), np.array([np.nan, 3.0, np.nan]), np.full(3, np.nan)]
)
def test_values_that_do_not_come_again_ask_for_none(values):
    assert least_noise(values) == 0.0


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_units_differ_where_half_of_the_columns_hardly_count(scale):
    X = scale * _normal(300, 6)
    assert not differ_in_units(X)
    # constant columns say nothing of units
    assert not differ_in_units(np.hstack([X, np.ones((300, 9))]))
    units = np.array([1.0, 1.0, 1e3, 1.0, 2e3, 1.0])
    X = np.where(np.arange(X.size).reshape(X.shape) % 7, X, np.nan)
    assert differ_in_units(X * units)
    assert differ_in_units(X * units + scale * 1e3)
    # however far apart
    assert differ_in_units(X * np.array([1.0, 1.0, 1e20, 1.0, 1.0, 1.0]))


@pytest.mark.parametrize("mean", [0.05, 3.0, 50.0])
def test_counts_are_counts(mean):
    source = np.random.default_rng(100)
    counts = source.negative_binomial(2.0, 2.0 / (2.0 + mean), (300, 12)) * 1.0
    counts[0, 0] = np.nan
    assert are_counts(counts)


@pytest.mark.parametrize("n_rows", [50, 300, 2000])
@pytest.mark.parametrize("mean", [3.0, 10.0, 50.0, 500.0])
def test_poisson_counts_are_counts(mean, n_rows):
    # their variance is below their mean in half of all columns
    for seed in range(100, 110):
        source = np.random.default_rng(seed)
        counts = source.poisson(mean, (n_rows, 8)) * 1.0
        assert are_counts(counts)
        # zeros and ones and empty columns say nothing
        ones = source.random((n_rows, 2)) < 0.4
        assert are_counts(np.column_stack([counts, ones, np.full(n_rows, np.nan)]))


def test_years_codes_and_numbers_of_rows_are_not():
    source = np.random.default_rng(100)
    n = 200
    years = source.integers(1970, 2018, n)
    codes = source.integers(1, 5, n)
    X = np.column_stack([np.arange(n), years, codes, source.poisson(0.3, n)]).astype(float)
    assert not are_counts(X)
    # a table of counts that also has the year
    counts = source.poisson(0.3, (n, 19))
    assert are_counts(np.column_stack([counts, years]).astype(float))


def test_one_column_that_has_nearly_all_variance_is_named():
    X = _normal(200, 4) * [1.0, 1.0, 50.0, 1.0]
    names = ["hue", "ash", "proline", "phenols"]
    every = np.arange(4)
    with pytest.warns(
        DataWarning, match=r"Column 2 \('proline'\) has 99\.9 % of the variance"
    ):
        warn_of_units(X, every, "x", names)
    with pytest.warns(DataWarning, match="StandardScaler"):
        warn_of_units(X, np.array([1, 2]), "x", None)


def test_a_few_columns_that_have_nearly_all_variance_are_named():
    # as of areas among ratios: neither has 99 % of the variance alone
    scales = np.ones(30)
    scales[[3, 23]] = 300.0, 500.0
    with pytest.warns(
        DataWarning, match=r"Columns 3, 23 have 99\.9 % of .* the other 28 hardly"
    ):
        warn_of_units(_normal(200, 30) * scales, np.arange(30), "x", None)


@pytest.mark.parametrize(
    "X",
    [
        _normal(200, 4) * [1.0, 2.0, 5.0, 1.0],
        np.eye(200, 3)[:, :1] * [1.0, 0.0, 0.0],
        np.zeros((200, 3)),
        _normal(200, 40) * np.r_[np.full(8, 500.0), np.ones(32)],
    ],
    ids=["alike", "others constant", "all constant", "a fifth is large"],
)
def test_other_views_pass(X, recwarn):
    warn_of_units(X, np.arange(X.shape[1]), "x", None)
    assert not recwarn


def test_a_question_ends_an_error_by_itself():
    with pytest.raises(InputError, match=r"did you mean 'alcohol'\?$"):
        resolve_views({"a": ["alcool"]}, 2, ["alcohol", "ash"])
    assert message("a", "b.", "c") == "Expected a, got b. C."
    # nor do quotations and what ends in a colon have two
    assert message("a", "'b.'", "c") == "Expected a, got 'b.' C."
    assert message("a", "b:", "c?") == "Expected a, got b. C?"
    assert message("a", shown(list(range(40))), "c").endswith(" 15, 16… C.")
    assert shown(np.zeros((2, 2))) == "array([[0., 0.], [0., 0.]])"
    assert shown("a  b") == "'a  b'"
