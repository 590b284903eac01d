"""What is no table of numbers is refused by name, whatever container it comes in, before another
library converts it or fails to.
"""

import datetime
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch

import bochner as bo
from bochner.data.accepted import as_rows, check_kind, in_order_of
from bochner.errors import InputError

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

QUICK = {"n_frequencies": 3, "n_mixtures": 1, "max_iter": 2, "init": "pca", "random_state": 0}
X = np.random.default_rng(0).normal(size=(12, 3))


def beside(column):
    return pd.DataFrame({"a": list(column), "b": [1.0, 2.0, 3.0]})


CONTAINERS = {
    "a text": ("abc", "an object of type str"),
    "a dict": ({"a": X}, r"an object of type dict. Stack views by name with bochner.stack"),
    "a set": ({1, 2}, "an object of type set"),
    "a generator": ((row for row in X), "an object of type generator"),
    "records": (np.rec.fromarrays(X.T), r"records with the fields \('f0', 'f1', 'f2'\)"),
    "a sparse tensor": (
        torch.from_numpy(X).to_sparse(),
        r"torch.sparse_coo. Pass X.to_dense\(\)",
    ),
    "a tensor of nothing": (torch.empty(12, 3, device="meta"), "on the device 'meta'"),
}
ENTRIES = {
    "text": (beside(["1", "2", "3"]), "the text '1' in row 0, column 0 ('a')"),
    "dates": (beside(pd.to_datetime(["2020", "2021", "2022"])), "dates or time differences"),
    "dates with zones": (
        beside(pd.to_datetime(["2020", "2021", "2022"], utc=True)),
        "dates or time differences",
    ),
    "dates as objects": (
        beside([1, datetime.date(2020, 1, 2), 3]),
        "the date or time difference 2020-01-02 in row 1, column 0 ('a')",
    ),
    "periods": (
        beside(pd.period_range("2020", periods=3)),
        "an object of type Period in row 0",
    ),
    "intervals": (beside(pd.interval_range(0, 3)), "an object of type Interval in row 0"),
    "lists": (beside([[1], [2], [3]]), "an object of type list in row 0, column 0 ('a')"),
    "complex": (beside([1 + 2j, 2, 3]), "Complex data not supported"),
    "complex as objects": (
        np.array([[1, 2], [3, 1j]], dtype=object),
        "the number 1j, which no float holds, in row 1, column 1",
    ),
    "a whole number of 400 digits": (
        np.array([[10**400, 1], [1, 2]], dtype=object),
        "the number 100000000000... of 401 digits, which no float holds, in row 0",
    ),
    "a whole number of 5,000 digits": (
        np.array([[10**5000, 1], [1, 2]], dtype=object),
        "the number of 16610 bits, which no float holds, in row 0",
    ),
}


@pytest.mark.parametrize("what", CONTAINERS)
def test_containers_without_rows_of_numbers(what):
    given, text = CONTAINERS[what]
    with pytest.raises(InputError, match=text):
        bo.NGMVLVM(**QUICK).fit(given)


@pytest.mark.parametrize("estimator", [bo.NGMVLVM(**QUICK), bo.FourierFeatures()])
@pytest.mark.parametrize("what", ENTRIES)
def test_entries_that_are_no_numbers(estimator, what):
    given, text = ENTRIES[what]
    with pytest.raises(InputError) as refused:
        estimator.fit(given)
    assert text in str(refused.value)


@pytest.mark.parametrize(
    "given",
    [
        np.array([[1, None], [np.nan, True]], dtype=object),
        np.array(
            [[Decimal("1.5"), Fraction(1, 3)], [np.float32(2), np.int8(1)]], dtype=object
        ),
        np.array([[pd.NA, 1.0], [2.0, pd.NA]], dtype=object),
        X.astype(np.float16),
        X.astype(np.longdouble),
        X > 0,
        X[::-1, ::-1],
        pd.DataFrame(X, columns=pd.MultiIndex.from_tuples([("a", 0), ("a", 1), ("b", 0)])),
        pd.DataFrame(X, index=[0] * 12),
        [list(row) for row in X],
        memoryview(X),
        sp.bsr_array(X),
    ],
)
def test_numbers_of_any_kind_are_taken(given):
    check_kind(as_rows(given))


def test_an_arrow_table_whose_columns_share_a_name_is_refused():
    arrow = pytest.importorskip("pyarrow")
    table = arrow.Table.from_arrays([arrow.array(X[:, j]) for j in range(3)], ["a", "b", "a"])
    with pytest.raises(InputError, match="names of their own, got 'a' more than once"):
        bo.NGMVLVM(**QUICK).fit(table)


def test_dates_of_an_arrow_table_are_no_numbers():
    arrow = pytest.importorskip("pyarrow")
    days = [datetime.date(2020, 1, 1)] * 12
    table = arrow.table({"a": X[:, 0], "day": days})
    with pytest.raises(InputError, match="got dates or time differences"):
        bo.NGMVLVM(**QUICK).fit(table)


def test_what_is_not_numbers_in_a_table_says_its_column_and_what_to_write():
    arrow = pytest.importorskip("pyarrow")
    mixed = arrow.table({"a": [1.0, 2.0, 3.0], "kind": ["x", "y", "x"]})
    model = bo.NGMVLVM(1, likelihood="auto", **QUICK)
    do = r"or fit the mixed table with likelihood='auto'"
    with pytest.raises(InputError, match=rf"column 1 \('kind'\).*{do}\.$"):
        bo.NGMVLVM(1, **QUICK).fit(mixed)
    assert list(model.fit(mixed.to_pandas()).likelihood_) == ["numbers", "binary"]
    objects = mixed.to_pandas().to_numpy()
    with pytest.raises(InputError, match=rf"column 1\..*{do}: pandas\.DataFrame\(X\)"):
        model.fit(objects)
    assert list(model.fit(pd.DataFrame(objects)).likelihood_) == ["numbers", "binary"]
    # rows of a table that was fitted
    write = r"DataFrame\(X, columns=model\.feature_names_in_\)"
    with pytest.raises(InputError, match=rf"'x' in row 0.*\. Write .*{write}, as at the fit"):
        model.fit(mixed.to_pandas()).transform(objects)
    # features have no likelihood
    with pytest.raises(InputError, match=r"or drop it\.$"):
        bo.FourierFeatures(n_components=4).fit(mixed)
    days = pd.DataFrame({"a": [1.0, 2.0], "day": pd.to_datetime(["2020", "2021"])})
    for given in (days, arrow.Table.from_pandas(days)):
        with pytest.raises(InputError, match=r"differences in column 1 \('day'\)"):
            bo.NGMVLVM(1, **QUICK).fit(given)


@pytest.mark.parametrize("name", [None, "sample"])
def test_the_index_in_an_arrow_table_is_no_column(name):
    arrow = pytest.importorskip("pyarrow")
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    frame.index = pd.Index(np.arange(12)[::-1], name=name)
    held = name or "__index_level_0__"
    table = arrow.Table.from_pandas(frame)
    with pytest.raises(InputError, match=f"index of a pandas.DataFrame in column '{held}'"):
        bo.NGMVLVM(1, **QUICK).fit(table)
    bo.NGMVLVM(1, **QUICK).fit(table.drop_columns([held]))


@pytest.mark.parametrize("likelihood", ["auto", "gaussian"])
def test_names_of_several_types_and_tables_without_rows_are_refused(likelihood):
    model = bo.NGMVLVM(1, likelihood=likelihood, **QUICK)
    with pytest.raises(InputError, match=r"^Expected column names .* got 'a' and 0\. Type X"):
        model.fit(pd.DataFrame(X, columns=[0, "a", 2]))
    for empty in (pd.DataFrame(X)[:0], pd.DataFrame({"t": ["x"]})[:0]):
        with pytest.raises(ValueError, match=r"^Found array with 0 sample\(s\)"):
            model.fit(empty)


def test_tables_of_polars():
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({f"c{j}": X[:, j] for j in range(3)})
    model = bo.NGMVLVM(**QUICK).fit(frame)
    assert list(model.feature_names_in_) == ["c0", "c1", "c2"]
    np.testing.assert_array_equal(model.transform(X), model.transform(frame))
    with pytest.raises(InputError, match=r"got an object of type LazyFrame.*X.collect\(\)"):
        bo.NGMVLVM(**QUICK).fit(frame.lazy())
    day = polars.lit("2020-01-01").str.to_date()
    with pytest.raises(InputError, match="got dates or time differences"):
        bo.NGMVLVM(**QUICK).fit(frame.with_columns(day.alias("day")))
    with pytest.raises(InputError, match=r"the text 'x' in row 0, column 3 \('t'\)"):
        bo.NGMVLVM(**QUICK).fit(frame.with_columns(polars.lit("x").alias("t")))


@pytest.mark.parametrize("library", ["pyarrow", "polars"])
def test_mixed_tables_of_arrow_and_polars_are_those_of_pandas(library):
    other = pytest.importorskip(library)
    kind = np.array(["x", "y", None], dtype=object)[np.arange(12) % 3]
    frame = pd.DataFrame({"a": X[:, 0], "b": 1e4 * X[:, 1], "kind": kind})
    build = other.from_pandas if library == "polars" else other.Table.from_pandas
    table = build(frame)
    model, expected = (
        bo.NGMVLVM(1, likelihood="auto", **QUICK).fit(rows) for rows in (table, frame)
    )
    assert model.likelihood_ == expected.likelihood_
    assert model.elbo_ == expected.elbo_
    np.testing.assert_array_equal(expected.transform(table), expected.transform(frame))
    pd.testing.assert_frame_equal(model.impute(table), expected.impute(frame))
    # in units of their own, with no text
    numbers = model.fit(table.select(["a", "b"])).views_
    assert list(numbers) == ["numbers"]


def test_frames_of_sparse_columns():
    zeros = pd.DataFrame(np.where(X > 0, X, 0.0)).astype(pd.SparseDtype("float", 0.0))
    model = bo.NGMVLVM(**QUICK).fit(zeros)
    with pytest.raises(InputError, match="a dense X to complete, got a sparse one"):
        model.impute(zeros)
    holes = pd.DataFrame(np.where(X > -1, X, np.nan)).astype(pd.SparseDtype("float", np.nan))
    full = bo.NGMVLVM(**QUICK).fit(holes).impute(holes)
    assert np.isfinite(full.to_numpy(dtype=float)).all()


NAMED = ["r0", "r1", "r2"]
ORDERS = {
    "the same rows": (NAMED, NAMED, True),
    "rows in another order": (NAMED, NAMED[::-1], False),
    "other rows": (NAMED, ["s0", "s1", "s2"], False),
    "positions for names": (NAMED, [0, 1, 2], True),
    "names for positions": ([0, 1, 2], NAMED, True),
    "positions in another order": ([0, 1, 2], [2, 0, 1], False),
    "rows that were shuffled": ([2, 0, 1], [0, 1, 2], False),
    "names as texts and as numbers": (["7", "3", "5"], [7, 3, 5], True),
}


@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("shape", ["series", "frame", "mapping"])
def test_what_is_given_of_every_row_has_the_order_of_the_rows(name, shape):
    pandas = pytest.importorskip("pandas")
    index, own, right = ORDERS[name]
    series = pandas.Series([1.0, 2.0, 3.0], index=own, name="a")
    given = {"series": series, "frame": series.to_frame(), "mapping": {"a": series}}[shape]
    if right:
        found = in_order_of(pandas.Index(index), "ages", given)
        found = found["a"] if shape != "series" else found
        assert list(found.index) == index
        assert list(found) == [1.0, 2.0, 3.0]
        return
    with pytest.raises(InputError, match=r"ages.*in their order, got .* in row 0.*\.loc\[X"):
        in_order_of(pandas.Index(index), "ages", given)


def test_what_has_no_index_is_left_as_it_is():
    pandas = pytest.importorskip("pandas")
    values = np.arange(3.0)
    assert in_order_of(pandas.Index(NAMED), "ages", values) is values
    series = pandas.Series(values, index=NAMED)
    assert in_order_of(None, "ages", series) is series
