"""Labels of a page stay what they are: dates, booleans, ordered categories, large numbers."""

import datetime

import numpy as np
import pytest

from bochner.errors import InputError
from bochner.page.encode import pack_numbers
from bochner.page.labels import as_labels, read_labels
from helpers.packed import restore

pandas = pytest.importorskip("pandas")


@pytest.mark.parametrize("odd", ["", "platinum", "NA", "silver"])
def test_a_header_above_one_label_too_few_is_refused(tmp_path, odd):
    """Neither a missing label nor a class of one row lets the header be the first row's label."""
    labels = np.random.default_rng(0).choice(["gold", "silver", "bronze"], 39).tolist()
    labels[3] = odd
    path = tmp_path / "labels.csv"
    path.write_text("\n".join(["tier", *(label or '""' for label in labels)]) + "\n")
    with pytest.raises(
        InputError, match="one label for each of the 40 rows, got 39 below 'tier'"
    ):
        read_labels(path, None, 40)
    assert read_labels(path, None, 39)["tier"].tolist() == labels


def test_labels_without_a_header_are_read(tmp_path):
    path = tmp_path / "labels.csv"
    for labels in (
        ["gold", "silver", "gold", "bronze", "silver", "silver"],
        [f"patient {i}" for i in range(6)],
        ["a", "b", "c", "c", "d", "e"],
    ):
        path.write_text("\n".join(labels))
        assert read_labels(path, None, 6)["label"].tolist() == labels


def one(values):
    (label,) = as_labels({"label": values}, len(values), read_dates=True)
    return label


def test_booleans_are_classes_with_their_names():
    for flags in ([True, False, True], np.array([True, False, True])):
        assert (one(flags).classes, one(flags).values.tolist()) == (
            ["False", "True"],
            [1, 0, 1],
        )


def test_ordered_categories_keep_their_order():
    sizes = pandas.Series(
        ["S", None, "XL", "M"],
        dtype=pandas.CategoricalDtype(["S", "M", "L", "XL"], ordered=True),
    )
    for values in (sizes, sizes.array):
        assert one(values).classes == ["S", "M", "XL"]
        assert one(values).values.tolist() == [0, -1, 2, 1]


@pytest.mark.parametrize("form", ["series", "zone", "objects", "text"])
def test_many_dates_are_an_order_and_few_are_classes(form):
    days = pandas.Series(pandas.date_range("2020-01-01", periods=60))
    days[7] = pandas.NaT
    forms = {
        "series": days,
        "zone": days.dt.tz_localize("Europe/Berlin"),
        "objects": [None if day is pandas.NaT else day.date() for day in days],
        "text": ["" if day is pandas.NaT else day.date().isoformat() for day in days],
    }
    many = one(forms[form])
    assert (many.classes, many.dates) == (None, "date")
    assert np.isnan(many.values[7])
    np.testing.assert_allclose(
        np.delete(many.values, 7) / 86_400_000, np.delete(18262 + np.arange(60), 7)
    )
    few = one(forms[form][:3])
    assert few.classes == ["2020-01-01", "2020-01-02", "2020-01-03"]


def test_times_and_durations_are_readable():
    times = np.array(["2020-01-01T12:30", "2020-01-02T00:00"], dtype="datetime64[ns]")
    assert one(times).classes == ["2020-01-01 12:30", "2020-01-02 00:00"]
    lengths = as_labels({"age": np.array([36, 12], dtype="timedelta64[h]")}, 2)[0]
    assert (lengths.name, lengths.values.tolist()) == ("age (days)", [1.5, 0.5])
    assert one(["2020-01-01", "2020-13-01"]).classes == ["2020-01-01", "2020-13-01"]
    assert one([datetime.date(2020, 1, 1), "soon"]).classes == ["2020-01-01", "soon"]


def test_integers_that_may_be_missing_are_numbers():
    many = one(pandas.Series([*range(60), None], dtype="Int64"))
    assert many.classes is None
    assert np.isnan(many.values[-1])


@pytest.mark.parametrize(
    "values",
    [
        1.7e9 + 7 * np.arange(60.0),
        2.0**31 + np.arange(60),
        np.random.default_rng(0).normal(size=60),
        np.array([np.nan, np.inf, 1e300]),
    ],
)
def test_numbers_of_labels_are_kept_to_all_their_digits(values):
    packed = pack_numbers(values)
    assert packed.dtype == "float64"
    np.testing.assert_array_equal(restore(packed), values)


def test_very_many_numbers_take_four_bytes_unless_they_would_be_other_numbers():
    numbers = np.random.default_rng(0).normal(size=60_000)
    assert pack_numbers(numbers).dtype == "float32"
    for others in (2.0**31 + np.arange(60_000), 1.7e9 + numbers):
        assert pack_numbers(others).dtype == "float64"


def test_numbers_of_seven_digits_take_four_bytes():
    values = np.array([0.1234567, -12.5, 1234567, np.nan])
    packed = pack_numbers(values)
    assert packed.dtype == "float32"
    assert [float(f"{v:.7g}") for v in restore(packed)[:3]] == values[:3].tolist()


def test_categories_of_any_type_keep_their_rows_and_their_order():
    numbers = as_labels(pandas.Series(pandas.Categorical([1, 2, None, 1])), 4)[0]
    assert (numbers.classes, numbers.values.tolist()) == (["1", "2"], [0, 1, -1, 0])
    dates = pandas.Categorical(pandas.to_datetime(["2020-01-02", "2020-01-01"]))
    assert as_labels(pandas.Series(dates), 2)[0].values.tolist() == [1, 0]
    texts = pandas.Series(["type 10", "type 2"], dtype="category")
    assert as_labels(texts, 2)[0].classes == ["type 2", "type 10"]


def test_large_identifiers_stay_apart(tmp_path):
    ids = [9007199254740993, 9007199254740992, 9007199254740994]
    assert len(as_labels(np.array(ids), 3)[0].classes) == 3
    path = tmp_path / "ids.csv"
    path.write_text("id\n" + "\n".join(map(str, ids)) + "\n")
    assert read_labels(path, None, 3)["id"].tolist() == [str(one) for one in ids]


def test_written_dates_may_say_their_zone_and_nothing_else():
    assert one(["2024-01-01T10:00:00Z", "2024-01-02T10:00:00+0200"]).classes == [
        "2024-01-01 10:00",
        "2024-01-02 10:00",
    ]
    assert one(["2024-01-01-02:30 meeting", "2024-01-02"]).dates is None


def test_zeros_of_either_sign_are_one_class():
    signed = as_labels(np.array([0.0, -0.0, 1.0]), 3)[0]
    assert (signed.classes, signed.values.tolist()) == (["0", "1"], [0, 0, 1])


def test_masked_labels_are_missing():
    masked = as_labels(np.ma.masked_equal([0, 1, -9], -9), 3)[0]
    assert (masked.classes, masked.values.tolist()) == (["0", "1"], [0, 1, -1])


def test_a_row_with_two_labels_is_refused(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text("row,label\nr1,a\nr2,b\nr1,c\n")
    with pytest.raises(
        InputError, match=r"row names that differ in .*got 'r1' more than once"
    ):
        read_labels(path, ["r1", "r2"], 2)


@pytest.mark.parametrize(
    ("values", "dtype", "classes"),
    [
        ([True, None, False], "boolean", ["False", "True"]),
        ([1, None, 2], "Int64", ["1", "2"]),
        ([1.0, None, 2.0], "Float64", ["1", "2"]),
        (["b", None, "c"], "string", ["b", "c"]),
    ],
)
def test_nullable_arrays_with_holes_are_what_their_series_are(values, dtype, classes):
    array = pandas.array(values, dtype=dtype)
    for given in (array, pandas.Series(array)):
        label = one(given)
        assert label.classes == classes
        assert label.known.tolist() == [True, False, True]


def test_digits_of_any_script_and_number_are_a_name():
    names = ["\u0663" * 5000, "a", "type 10", "type 2"]
    assert one(names).classes == ["a", "type 2", "type 10", "\u0663" * 5000]
