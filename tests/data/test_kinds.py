"""Kinds of columns: what they are, numbers from values and values from numbers."""

import json
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from bochner.data.kinds import Binary, Categories, Number, Ordered, Whole, column_of, from_json
from bochner.errors import InputError

CASES = [
    (pd.Series([0.5, np.nan, 2.0]), Number, [0.5, np.nan, 2.0]),
    (pd.Series([0.5, None, 2.0], dtype="Float64"), Number, [0.5, np.nan, 2.0]),
    (pd.Series([3, None, 5], dtype="Int64"), Whole, [3, np.nan, 5]),
    (pd.Series([-3, 4, 5]), Whole, [-3, 4, 5]),
    (pd.Series([1, None, 0], dtype="Int8"), Binary, [1, np.nan, 0]),
    (pd.Series([1, None, 0], dtype="float64"), Binary, [1, np.nan, 0]),
    (pd.Series([1, None, 0], dtype="Float32"), Binary, [1, np.nan, 0]),
    (pd.Series([1, None, 0], dtype=object), Binary, [1, np.nan, 0]),
    (pd.Series([1, None, 1], dtype="float64"), Number, [1, np.nan, 1]),
    (pd.Series([1, None, 0, 0.5], dtype="float64"), Number, [1, np.nan, 0, 0.5]),
    (pd.Series([True, False]), Binary, [1, 0]),
    (pd.Series([True, None], dtype="boolean"), Binary, [1, np.nan]),
    (pd.Series([True, None, False], dtype=object), Binary, [1, np.nan, 0]),
    (pd.Series(["b", None, "a"]), Binary, [1, np.nan, 0]),
    (pd.Series(["b", None, "a", "c"], dtype=object), Categories, [1, np.nan, 0, 2]),
    (pd.Series(["z", "y", None, "z"], dtype="category"), Binary, [1, 0, np.nan, 1]),
    (
        pd.Series(pd.Categorical(["lo", "hi", None], ["lo", "mid", "hi"], ordered=True)),
        Ordered,
        [0, 2, np.nan],
    ),
    (pd.Series(pd.Categorical([30, 10, 20, 10])), Categories, [2, 0, 1, 0]),
    (pd.Series([1.5, 2, None], dtype=object), Number, [1.5, 2, np.nan]),
    (pd.Series([Decimal("1.5"), None, Decimal(2)], dtype=object), Number, [1.5, np.nan, 2]),
]


@pytest.mark.parametrize(("values", "kind", "numbers"), CASES)
def test_values_become_numbers_and_numbers_values(values, kind, numbers):
    column = column_of(values, "c")
    assert type(column) is kind
    np.testing.assert_array_equal(column.encode(values), numbers)
    observed = values.notna().to_numpy()
    back = column.decode(column.encode(values)[observed])
    assert list(back) == list(values[observed])
    again = from_json(json.loads(json.dumps(column.to_json())))
    assert vars(again) == vars(column)


def test_predictions_are_rounded_to_whole_numbers_and_to_labels():
    whole = column_of(pd.Series([3, 40]), "c")
    assert whole.decode(np.array([3.4, -7.6])).tolist() == [3, -8]
    labels = column_of(pd.Series(["a", "b", "c"]), "c")
    assert labels.decode(np.array([-0.2, 1.4, 9.0])).tolist() == ["a", "b", "c"]


def test_categories_that_no_row_has_are_no_labels():
    values = pd.Series(pd.Categorical(["a", "c", "d"], ["a", "b", "c", "d"]))
    assert column_of(values, "c").labels == ["a", "c", "d"]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (
            pd.Series([f"n{i}" for i in range(30)]),
            "30 different texts in 30 rows of column 'c'",
        ),
        (pd.Series(pd.date_range("2020", periods=3)), "numbers, categories, booleans or text"),
        (pd.Series([(1, 2), "a"], dtype=object), "values of type tuple, str"),
        (pd.Series([None, None], dtype=object), "no value"),
        (
            pd.Series(pd.Categorical([pd.Timestamp(2020, 1, 1)])),
            "Convert the categories to text",
        ),
    ],
)
def test_columns_that_have_no_kind(values, text):
    with pytest.raises(InputError, match=text):
        column_of(values, "c")


def test_values_that_a_column_cannot_hold():
    labels = column_of(pd.Series(["a", "b"]), "sex")
    with pytest.raises(InputError, match=r"column 'sex' \('a', 'b'\), got 'x' in row 1"):
        labels.encode(pd.Series(["a", "x"]))
    with pytest.raises(InputError, match="numbers in column 'age', got 'old' in row 1"):
        Number("age", "float64").encode(pd.Series([1.0, "old"], dtype=object))


@pytest.mark.parametrize(
    "values",
    [
        pd.Series([None, "2"], dtype="string"),
        pd.Series([1.0, "2"], dtype=object),
        pd.Series([None, "2020-01-01"], dtype="datetime64[ns]"),
        pd.Series([1, 2j]),
    ],
)
def test_what_numpy_would_read_as_a_number_is_none(values):
    with pytest.raises(
        InputError, match=r"numbers in column 'age', got .* in row [01]\. Corr"
    ):
        Number("age", "float64").encode(values)


def test_decimals_are_numbers_of_a_column_of_fractions_too():
    column = column_of(pd.Series([0.5, 1.5, 2.0]), "c")
    new = pd.Series([Decimal("0.25"), None, Decimal(3)], dtype=object)
    np.testing.assert_array_equal(column.encode(new), [0.25, np.nan, 3.0])
    with pytest.raises(InputError, match="numbers in column 'c'"):
        column.encode(pd.Series([1j, 2.0], dtype=object))
