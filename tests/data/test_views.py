import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from bochner.data import columns as columns_module
from bochner.data.accepted import check_kind
from bochner.data.missing import blocks
from bochner.data.views import (
    Scaling,
    Views,
    check_finite,
    check_fit,
    resolve_views,
)
from bochner.errors import DataWarning, InputError

NAMES = ["cd3", "cd4", "cd8", "il2"]
TWO = {"a": slice(0, 2), "b": slice(2, 4)}


def columns_of(views, names=None):
    return {
        view: positions.tolist() for view, positions in resolve_views(views, 4, names).items()
    }


def table(n=6, m=4, seed=0):
    return np.random.default_rng(seed).normal(size=(n, m)) * 3 + 5


@pytest.mark.parametrize(
    "views",
    [
        {"a": slice(0, 2), "b": slice(2, None)},
        {"a": slice(None, -2), "b": slice(-2, 4)},
        {"a": [0, 1], "b": (2, 3)},
        {"a": range(2), "b": np.array([2, 3])},
        {"a": ["cd3", "cd4"], "b": np.array(["cd8", "il2"])},
        {"a": pd.Index(["cd3", "cd4"]), "b": np.array([2, 3], dtype=np.uint8)},
        {"a": np.array([True, True, False, False]), "b": [False, False, True, True]},
    ],
)
def test_every_way_to_select_columns(views):
    assert columns_of(views, NAMES) == {"a": [0, 1], "b": [2, 3]}


def test_no_views_is_one_view_and_order_is_kept():
    assert columns_of(None) == {"x": [0, 1, 2, 3]}
    assert columns_of({"b": [3, 0], "a": [2, 1]}) == {"b": [3, 0], "a": [2, 1]}
    assert resolve_views(None, 4)["x"].dtype == np.intp


@pytest.mark.parametrize(
    ("views", "text"),
    [
        ([slice(0, 4)], r"views to be None or a dict .*, got views of type list"),
        ({}, "at least one view, got an empty dict"),
        ({3: slice(0, 4)}, "view names to be non-empty strings, got the name 3"),
        ({"": slice(0, 4)}, "non-empty strings, got the name ''"),
        (
            {"a": slice(0, 4), "b": []},
            r"view 'b' to have at least one column, got none from the selection \[\]",
        ),
        ({"a": slice(2, 2)}, "view 'a' to have at least one column"),
        (
            {"a": slice(0, 5)},
            "view 'a' to stay within the 4 columns of X, got slice.0, 5., which reaches column 5",
        ),
        ({"a": [0, 4]}, "view 'a' to stay within X, got column 4. X has columns 0 to 3"),
        ({"a": [-1]}, "view 'a' to stay within X, got column -1"),
        (
            {"a": [0, 0, 1, 2, 3]},
            r"every column once in view 'a', got column 0 \('cd3'\) more than once",
        ),
        (
            {"a": [0, 1], "b": [1, 2, 3]},
            r"do not overlap, got column 1 \('cd4'\) in both 'a' and 'b'",
        ),
        (
            {"a": [0, 3]},
            r"got column 1 \('cd4'\), column 2 \('cd8'\) in no view. Add them to a view or drop "
            r"them",
        ),
        (
            {"a": ["cd3", "cd5"]},
            "view 'a' to name columns of X, got unknown 'cd5'. .*did you mean 'cd[348]'",
        ),
        ({"a": ["zzz"]}, "unknown 'zzz'. Check the spelling: X has cd3, cd4, cd8, il2"),
        ({"a": [True, False]}, "the mask of view 'a' to have 4 entries, got 2 entries"),
        (
            {"a": "cd3"},
            r"the columns of view 'a' as a slice, .*, got 'cd3' of type str. Write \['cd3'\]",
        ),
        ({"a": 2}, "got 2 of type int"),
        ({"a": [0, "cd4"]}, "got 'cd4' of type str in it. Use one kind throughout"),
        ({"a": [0.5]}, "got 0.5 of type float in it"),
    ],
)
def test_views_that_cannot_be_used(views, text):
    with pytest.raises(InputError, match=text):
        resolve_views(views, 4, NAMES)


def test_names_need_column_names():
    with pytest.raises(
        InputError,
        match="column numbers for view 'a', got the name 'cd3' for an X without column",
    ):
        resolve_views({"a": ["cd3"]}, 4)


def test_long_lists_are_cut():
    with pytest.raises(InputError, match="column 5 and 4 more in no view"):
        resolve_views({"a": [0]}, 10)


def broken(row, column, value):
    X = table()
    X[row, column] = value
    return X


@pytest.mark.parametrize(
    ("X", "text"),
    [
        (table(1), "at least 2 samples to fit, got 1 sample "),
        (
            broken(3, 2, np.inf),
            r"finite numbers or NaN \(missing\), got inf in view 'b', row 3, column 2 \('cd8'\)",
        ),
        (broken(0, 1, -np.inf), r"got -inf in view 'a', row 0, column 1 \('cd4'\)"),
        (broken(slice(None), [2, 3], np.nan), "data in view 'b', got NaN in every entry"),
        (
            broken(slice(None), 1, np.nan),
            r"in every column, got only NaN in column 1 \('cd4'\) of view 'a'",
        ),
    ],
)
def test_data_that_cannot_be_fitted(X, text):
    with pytest.raises(InputError, match=text):
        check_fit(X, resolve_views(TWO, 4), NAMES)


def test_constant_columns_are_said_once():
    X = table()
    X[:, 0], X[:2, 3], X[2:, 3] = 7.0, 4.0, np.nan
    with pytest.warns(
        DataWarning, match=r"kept.*: column 0 of view 'a', column 3 of view 'b'\."
    ) as observed:
        check_fit(X, resolve_views(TWO, 4))
    assert len(observed) == 1


def test_good_data_pass_without_a_word():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_fit(broken(2, 1, np.nan), resolve_views(TWO, 4))
        check_finite(broken(2, slice(None), np.nan), resolve_views(TWO, 4))


@pytest.mark.parametrize(
    ("X", "text"),
    [
        (table() + 1j, "^Complex data not supported. Pass real and imaginary parts"),
        ([[1j, 2], [3, 4]], "^Complex data not supported"),
        ([["a", "b"], ["c", "d"]], "numbers, got the text 'a' in row 0, column 0. Convert"),
        (
            np.array([[1.0, "x"], [2.0, 3.0]], dtype=object),
            "got the text 'x' in row 0, column 1",
        ),
        (
            pd.DataFrame({"u": [1.0, 2.0], "v": [3.0, "?"]}),
            r"got the text '\?' in row 1, column 1 \('v'\)",
        ),
        (
            pd.DataFrame({"u": [1.0, 2.0], "v": ["s", "t"]}),
            r"got the text 's' in row 0, column 1 \('v'\)",
        ),
        (
            np.array([["2020-01-01"]], dtype="datetime64[D]"),
            "numbers, got dates or time differences",
        ),
    ],
)
def test_kinds_that_are_no_numbers(X, text):
    with pytest.raises(InputError, match=text):
        check_kind(X)


@pytest.mark.parametrize(
    "X",
    [
        table(),
        table().astype(object),
        [[1, 2], [3, 4]],
        [[1], [2, 3]],
        None,
        [],
        pd.DataFrame(table()),
    ],
)
def test_other_kinds_are_left_alone(X):
    check_kind(X)


def test_scaling_by_hand():
    X = np.array([[1.0, 10.0, 4.0], [3.0, np.nan, 4.0], [5.0, 30.0, 4.0]])
    scaling = Views.fit(X[:, :2], {"v": [0, 1]}).scaling
    assert scaling.centre.tolist() == [3.0, 20.0]
    assert scaling.scale == pytest.approx([np.sqrt((4 + 0 + 4 + 100 + 100) / 5)] * 2)
    assert Scaling.fit(X, {"c": np.array([2]), "v": np.array([0, 1])}).scale[2] == 1.0
    assert Scaling.fit(np.full((7, 1), 0.1), {"c": np.array([0])}).scale[0] == 1.0


def test_scaled_views_have_unit_root_mean_square_and_keep_ratios():
    X = table(50) * [1, 100, 1e-3, 2e-3]
    views = Views.fit(X, TWO)
    for view in views.names:
        assert np.mean(views.scaled(view) ** 2) == pytest.approx(1)
    assert views.scaled("b").std(0)[1] / views.scaled("b").std(0)[0] == pytest.approx(
        X.std(0)[3] / X.std(0)[2]
    )


@settings(max_examples=30, deadline=None)
@example(np.where(np.arange(20) == 0, 0.0, 5e-324).reshape(5, 4), 1)
@given(hnp.arrays(np.float64, (5, 4), elements=st.floats(-1e150, 1e150)), st.integers(0, 19))
def test_undo_inverts_apply(X, hole):
    X.flat[hole] = np.nan
    scaling = Scaling.fit(X, resolve_views(TWO, 4))
    back = scaling.undo(scaling.apply(X))
    np.testing.assert_allclose(back, X, rtol=1e-9, atol=1e-9 * np.nanmax(np.abs(X)))


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_what_differs_by_less_than_numbers_with_all_digits_is_constant(container):
    X = np.zeros((30, 4))
    X[::3] = 1e-310
    scaling = Scaling.fit(container(X), resolve_views(TWO, 4))
    np.testing.assert_array_equal(scaling.scale, 1.0)
    X[0] = 1e-290
    assert (Scaling.fit(container(X), resolve_views(TWO, 4)).scale < 1e-290).all()


def test_scaling_keeps_the_type_and_survives_a_file():
    X = table().astype(np.float32)
    scaling = Scaling.fit(X, resolve_views(TWO, 4))
    assert (
        scaling.apply(X).dtype
        == scaling.undo(X).dtype
        == scaling.undo_std(X).dtype
        == np.float32
    )
    again = Scaling.from_arrays(
        {key: value.tolist() for key, value in scaling.to_arrays().items()}
    )
    np.testing.assert_array_equal(again.apply(X), scaling.apply(X))
    np.testing.assert_allclose(scaling.undo_std(np.ones((1, 4)))[0], scaling.scale)


@pytest.mark.parametrize(
    ("centre", "scale", "text"),
    [
        ([0.0], [1.0, 1.0], r"one shape \(M,\), got shapes"),
        ([0.0], [0.0], "a positive scale"),
        ([np.nan], [1.0], "finite"),
    ],
)
def test_scaling_from_wrong_arrays(centre, scale, text):
    with pytest.raises(InputError, match=text):
        Scaling.from_arrays({"centre": centre, "scale": scale})


def test_log_jacobian_is_the_change_of_density():
    X = broken(0, 1, np.nan)
    views = Views.fit(X, TWO)
    jacobian = views.scaling.log_jacobian(~np.isnan(views.X))
    scale = views.scaling.scale
    assert jacobian[1] == pytest.approx(-np.log(scale).sum())
    assert jacobian[0] == pytest.approx(-np.log(scale[[0, 2, 3]]).sum())
    # normal density of an entry: in units of x, and in units of z times dz/dx
    x, m, s = 7.0, 5.0, 2.0
    in_z = -0.5 * ((x - m) / s) ** 2 - 0.5 * np.log(2 * np.pi)
    in_x = in_z - np.log(s)
    one = Scaling(np.array([m]), np.array([s])).log_jacobian(np.ones((1, 1), bool))
    assert in_z + one[0] == pytest.approx(in_x)


def test_blocks_of_the_common_cases():
    whole = blocks(np.ones((5, 3), bool))
    assert [(r.tolist(), c.tolist()) for r, c in whole] == [([0, 1, 2, 3, 4], [0, 1, 2])]
    rows_absent = np.ones((5, 3), bool)
    rows_absent[[1, 4]] = False
    assert [(r.tolist(), c.tolist()) for r, c in blocks(rows_absent)] == [
        ([0, 2, 3], [0, 1, 2])
    ]
    assert blocks(np.zeros((5, 3), bool)) == []


@settings(max_examples=50, deadline=None)
@given(hnp.arrays(bool, hnp.array_shapes(min_dims=2, max_dims=2, max_side=12)))
def test_blocks_cover_every_observed_entry_once(observed):
    count = np.zeros(observed.shape, int)
    result = blocks(observed)
    for rows, columns in result:
        count[np.ix_(rows, columns)] += 1
    np.testing.assert_array_equal(count, observed)
    patterns = {
        observed[:, j].tobytes() for j in range(observed.shape[1]) if observed[:, j].any()
    }
    assert len(result) == len(patterns)


def test_views_that_no_row_ties_together_are_refused():
    X = table(9)
    for rows, columns in ((slice(0, 4), "ab"), (slice(4, None), "cd")):
        X[rows, ["abcd".index(other) for other in "abcd" if other not in columns]] = np.nan
    each = {name: [j] for j, name in enumerate("abcd")}
    says = r"got none between view 'a', 'b' \(first row 0\) and view 'c', 'd' \(first row 4\)"
    with pytest.raises(InputError, match=says):
        Views.fit(X, each)
    # two views that share no row, and a third one that has rows of both
    X[4, 1] = 1.0
    assert Views.fit(X, each).names == tuple("abcd")


def test_blocks_of_a_view_count_columns_within_it():
    X = broken(2, 3, np.nan)
    observed = ~np.isnan(Views.fit(X, TWO).scaled("b"))
    result = [(r.tolist(), c.tolist()) for r, c in blocks(observed)]
    assert result == [([0, 1, 2, 3, 4, 5], [0]), ([0, 1, 3, 4, 5], [1])]


def test_scaling_in_parts_is_scaling_at_once():
    rng = np.random.default_rng(0)
    X = (100.0 + rng.normal(size=(20_000, 5)) * [1, 2, 3, 40, 5]).astype(np.float32)
    X[rng.random(X.shape) < 0.2] = np.nan
    X[:9000, 1] = np.nan  # parts without any entry of a column, or of a view
    columns = {"a": np.arange(1), "b": np.array([1]), "c": np.array([4, 2, 3])}
    result = Scaling.fit(X, columns)
    np.testing.assert_allclose(
        result.centre, np.nanmean(X, axis=0, dtype=np.float64), rtol=1e-12
    )
    for positions in columns.values():
        expected = np.sqrt(
            np.nanmean((X[:, positions].astype(np.float64) - result.centre[positions]) ** 2)
        )
        np.testing.assert_allclose(result.scale[positions], expected, rtol=1e-12)


def test_neighbouring_columns_are_not_copied():
    X = np.arange(12.0).reshape(3, 4)
    assert np.shares_memory(columns_module.columns_of(X, np.array([1, 2])), X)
    for positions in ([1, 2], [2, 1], [0, 3], [], [3]):
        np.testing.assert_array_equal(
            columns_module.columns_of(X, np.array(positions, dtype=np.intp)),
            X[:, np.array(positions, dtype=np.intp)],
        )


@pytest.mark.parametrize("pack", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("value", [0.1, 7.0, 2.31851974e27, -1e-290, 1e99])
def test_constant_columns_leave_nothing_behind(pack, value):
    # their mean is rounded: at 1e27 what it left behind had been 1e11 deviations
    whole = np.column_stack([np.full(5, value), np.full(5, 0.3 * value)])
    with pytest.warns(DataWarning, match="Constant columns"):
        views = Views.fit(pack(whole), {"a": [0], "b": [1]})
    assert np.array_equal(views.scaling.apply(whole), np.zeros((5, 2)))


def test_columns_with_one_entry_are_not_called_constant():
    whole = np.column_stack([np.arange(4.0), np.full(4, 7.0), np.full(4, np.nan)])
    whole[1, 2] = 3.0
    with pytest.warns(DataWarning) as record:
        Views.fit(whole, {"a": [0, 1], "b": [2]})
    assert [str(warning.message) for warning in record] == [
        "Constant columns are kept, they tell nothing about the rows: column 1 of view 'a'.",
        "Columns with one observed entry are kept, but how far others lie from it nobody can know, "
        "and standard deviations of what is predicted there are too small: column 2 of view 'b'. "
        "Drop them, or pass more rows.",
    ]


def test_columns_that_differ_by_rounding_are_constant():
    whole = 2e27 * (1.0 + np.finfo(float).eps * np.arange(6.0).reshape(3, 2))
    assert np.abs(Scaling.fit(whole, {"a": np.arange(2)}).apply(whole)).max() < 1e-6


def test_a_constant_column_does_not_hide_the_others_of_its_view():
    whole = np.column_stack([np.full(9, 2.31851974e27), np.linspace(-1.0, 1.0, 9)])
    assert np.ptp(Scaling.fit(whole, {"a": np.arange(2)}).apply(whole)[:, 1]) > 1.0
