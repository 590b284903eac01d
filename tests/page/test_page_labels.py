"""Labels of a page stay what they are: dates, booleans, ordered categories, large numbers."""

import datetime

import numpy as np
import pytest

from bochner.errors import InputError
from bochner.page.encode import pack_numbers
from bochner.page.labels import as_labels, read_labels
from bochner.page.layouts import as_layouts, read_layout
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


def test_nan_in_a_list_of_texts_is_missing_and_bytes_are_texts():
    label = one(["a", float("nan"), "b"])
    assert (label.classes, label.values.tolist()) == (["a", "b"], [0, -1, 1])
    assert one(np.array([b"a", b"b"])).classes == ["a", "b"]


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


def test_labels_are_not_taken_by_position_where_a_name_comes_twice(tmp_path):
    """Names that are not all there, one of them twice, were a labelling of rows in their order."""
    names = [f"s{i}" for i in range(6)]
    path = tmp_path / "labels.csv"
    path.write_text(",grp\ns5,1\ns4,0\ns3,1\ns2,0\ns1,1\ns1,0\n")
    with pytest.raises(InputError, match=r"a line for every row, got none for 's0' in .*"):
        read_labels(path, names, 6)
    # a column of classes that are called as rows are is a labelling
    path.write_text("donor,grp\ns1,1\ns1,0\ns1,1\ns2,0\ns2,1\ns2,0\n")
    assert list(read_labels(path, names, 6)) == ["donor", "grp"]


def test_decimal_commas_of_labels_and_layouts_are_numbers(tmp_path):
    path = tmp_path / "l.csv"
    path.write_text("id;age;kind\na;1,5;x,y\nb;;z\nc;2.5;z\n")
    labels = read_labels(path, ["a", "b", "c"], 3, ",")
    np.testing.assert_array_equal(labels["age"], [1.5, np.nan, 2.5])
    assert labels["kind"].tolist() == ["x,y", "z", "z"]
    for text in ("1,5;2,5\n3;-4,5\n", "u;v\n1,5;2,5\n3;-4,5\n", ",u,v\nb,3,-4.5\na,1.5,2.5\n"):
        path.write_text(text)
        places = read_layout(path, ["a", "b"], 2, ",")["l"]
        assert places.tolist() == [[1.5, 2.5], [3.0, -4.5]]


@pytest.mark.parametrize(
    ("places", "says"),
    [
        (np.full((2, 2), 1e39), r"coordinates up to 1e\+38, got 1e\+39 in 'u'"),
        (np.full((2, 2), 1j), "complex numbers in 'u'. Give real and imaginary parts"),
    ],
)
def test_layouts_that_a_page_cannot_hold_are_refused(places, says):
    with pytest.raises(InputError, match=says):
        as_layouts({"u": places}, 2)


def test_folders_are_no_files_of_labels(tmp_path):
    for read, what in ((read_labels, "labels"), (read_layout, "coordinates")):
        with pytest.raises(InputError, match=f"a file of {what}, got .*, which is a folder"):
            read(tmp_path, None, 2)


def test_texts_kept_as_objects_are_told_how_to_be_saved(tmp_path):
    path = tmp_path / "labels.npy"
    np.save(path, np.array(["a", "b"], dtype=object))
    with pytest.raises(InputError, match="with dtype=float, of text with dtype=str"):
        read_labels(path, None, 2)
