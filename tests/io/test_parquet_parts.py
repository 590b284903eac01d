"""Parquet files that are parts of one table: their columns, their index, and what is refused."""

from __future__ import annotations

import re
import sys

import numpy as np
import pytest

import bochner as bo
from bochner.cli.mixed_tables import whole as whole_tables
from bochner.errors import InputError
from bochner.io import on_disk
from bochner.io.parquet import columns as parquet_columns
from bochner.io.parquet.parts import parquet_parts
from bochner.io.readers import read
from bochner.io.request import Request, selection_of

arrow = pytest.importorskip("pyarrow")
pandas = pytest.importorskip("pandas")
parquet = pytest.importorskip("pyarrow.parquet")

COLUMNS = list("abcdef")


@pytest.fixture
def X():
    return np.random.default_rng(0).normal(size=(30, 6))


def write(path, X, names=COLUMNS):
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(arrow.table(dict(zip(names, X.T, strict=True))), path)


def opened(path, monkeypatch):
    """Return a table that the commands read block by block."""
    with monkeypatch.context() as patch:
        patch.setattr(on_disk, "MANY", 0)
        return on_disk.open_table(path, Request())


def same(table, X, columns):
    assert table.column_names == columns
    np.testing.assert_array_equal(table.X, X)


def test_parts_with_columns_in_another_order_are_one_table(X, tmp_path, monkeypatch):
    order = [5, 3, 0, 1, 2, 4]
    write(tmp_path / "part-0.parquet", X[:10])
    write(tmp_path / "part-1.parquet", X[10:][:, order], [COLUMNS[j] for j in order])
    same(read(tmp_path), X, COLUMNS)
    source = opened(tmp_path, monkeypatch).rows
    assert source.columns == COLUMNS
    np.testing.assert_array_equal(source.whole(), X)
    np.testing.assert_array_equal(bo.open_rows(tmp_path).whole(), X)


@pytest.mark.filterwarnings("error")
def test_a_column_that_is_null_throughout_a_part_is_missing_there(X, tmp_path, monkeypatch):
    """pandas writes it without a type; and parts without rows, without any."""
    pandas = pytest.importorskip("pandas")
    write(tmp_path / "part-0.parquet", X[:10])
    part = pandas.DataFrame(X[10:], columns=COLUMNS).assign(c=None)
    part.to_parquet(tmp_path / "part-1.parquet", index=False)
    none = pandas.DataFrame({name: pandas.Series([], dtype=object) for name in COLUMNS})
    none.to_parquet(tmp_path / "part-2.parquet", index=False)
    X[10:, 2] = np.nan
    same(read(tmp_path), X, COLUMNS)
    for source in (opened(tmp_path, monkeypatch).rows, bo.open_rows(tmp_path)):
        np.testing.assert_array_equal(source.whole(), X)


def test_decimals_are_numbers_however_many_they_are(tmp_path, monkeypatch):
    prices = arrow.array([1, None, 3], type=arrow.decimal128(5, 2))
    parquet.write_table(
        arrow.table({"a": [0.5, 1.5, 2.5], "b": prices}), tmp_path / "x.parquet"
    )
    X = np.array([[0.5, 1.0], [1.5, np.nan], [2.5, 3.0]])
    same(read(tmp_path / "x.parquet"), X, ["a", "b"])
    for rows in (opened(tmp_path / "x.parquet", monkeypatch).rows, bo.open_rows(tmp_path)):
        np.testing.assert_array_equal(rows.whole(), X)


@pytest.mark.parametrize("folder", ["rows", "rows.parquet"])
@pytest.mark.parametrize(("more", "less"), [(0, 1), (1, 0)])
def test_a_column_that_only_some_parts_have_is_refused_by_name(
    folder, more, less, X, tmp_path
):
    wide, narrow = (tmp_path / folder / f"part-{number}.parquet" for number in (more, less))
    write(wide, np.hstack([X, X[:, :1]]), [*COLUMNS, "g"])
    write(narrow, X)
    got = re.escape(f"the same columns in every file, got 'g' in {wide} and not in {narrow}")
    for reader in (read, parquet_parts):
        with pytest.raises(InputError, match=f"{got}. Write all files with the same columns"):
            reader(tmp_path / folder)
    said = f"a column 'g', got none in {re.escape(str(narrow))}" if not more else got
    with pytest.raises(InputError, match=said):
        bo.open_rows(tmp_path / folder)
    some = bo.open_rows(tmp_path / folder, columns=["b", "a"])
    np.testing.assert_array_equal(some.whole(), np.vstack([X, X])[:, [1, 0]])


def test_files_with_other_columns_are_views_whatever_they_are_called(X, tmp_path):
    write(tmp_path / "data1.parquet", X[:, :2], ["a", "b"])
    write(tmp_path / "data2.parquet", X[:, 2:], ["c", "d", "e", "f"])
    assert read(tmp_path).views == {"data1": slice(0, 2), "data2": slice(2, 6)}
    # a third one with the columns of the first tells that they are parts
    write(tmp_path / "data3.parquet", X[:, :2], ["a", "b"])
    with pytest.raises(InputError, match=r"'a', 'b' in .*data1.* and not in .*data2"):
        read(tmp_path)


def test_views_may_share_a_column_that_names_their_rows(X, tmp_path):
    names = [f"r{i}" for i in range(30)]
    for view, columns in enumerate((["a", "b"], ["c", "d"])):
        frame = pandas.DataFrame(X[:, :2], columns=columns)
        frame.insert(0, "cell", names)
        frame.to_parquet(tmp_path / f"data{view}.parquet")
    table = read(tmp_path)
    assert table.row_names == names
    assert list(table.views) == ["data0", "data1"]


@pytest.mark.parametrize("kind", ["string", "category"])
@pytest.mark.parametrize("texts", [[0, 1], [1]])
def test_texts_are_no_numbers_however_many_rows_there_are(
    kind, texts, X, tmp_path, monkeypatch
):
    for part in range(2):
        frame = pandas.DataFrame(X[15 * part :][:15], columns=COLUMNS)
        if part in texts:
            frame["d"] = frame["d"].map(str).astype(kind)
        frame.to_parquet(tmp_path / f"part-{part}.parquet", index=False)
    match = (
        r"numbers, got the t(ext '|ype (category|string|dictionary<)).*, column 3 \('d'\) of"
    )
    for opening in (read, bo.open_rows, lambda path: opened(path, monkeypatch)):
        with pytest.raises(InputError, match=match):
            opening(tmp_path)


def test_the_index_of_pandas_is_no_column(X, tmp_path, monkeypatch):
    frame = pandas.DataFrame(X, columns=COLUMNS, index=range(1000, 1030))
    frame.to_parquet(tmp_path / "x.parquet", index=True)
    names = [str(i) for i in range(1000, 1030)]
    source = bo.open_rows(tmp_path / "x.parquet")
    assert source.columns == COLUMNS
    np.testing.assert_array_equal(source.whole(), X)
    table = opened(tmp_path / "x.parquet", monkeypatch)
    assert (table.row_names, table.column_names) == (names, COLUMNS)
    whole = read(tmp_path / "x.parquet")
    assert (whole.row_names, whole.index_name) == (names, "")


def test_levels_of_an_index_name_rows_together(X, tmp_path, monkeypatch):
    levels = [np.arange(30) // 3, list("xyz") * 10]
    frame = pandas.DataFrame(X, columns=COLUMNS)
    frame.index = pandas.MultiIndex.from_arrays(levels, names=["donor", "site"])
    frame.to_parquet(tmp_path / "x.parquet")
    assert bo.open_rows(tmp_path / "x.parquet").columns == COLUMNS
    table, whole = opened(tmp_path / "x.parquet", monkeypatch), read(tmp_path / "x.parquet")
    assert table.row_names == whole.row_names
    assert whole.row_names[1] == "(0, 'y')"
    assert table.column_names == whole.column_names == COLUMNS


@pytest.mark.parametrize("text", [False, True])
def test_the_index_of_dask_is_no_column(text, X, tmp_path, monkeypatch):
    """Its whole numbers begin again in each partition."""
    names = [f"r{i}" if text else i % 15 for i in range(30)]
    frame = pandas.DataFrame(X, columns=COLUMNS)
    frame.index = pandas.Index(names, name="__null_dask_index__")
    for number, rows in enumerate((slice(0, 15), slice(15, 30))):
        frame.iloc[rows].to_parquet(tmp_path / f"part.{number}.parquet")
    assert bo.open_rows(tmp_path).columns == COLUMNS
    for table in (opened(tmp_path, monkeypatch), read(tmp_path)):
        assert table.column_names == COLUMNS
        assert table.row_names == (names if text else None)
        assert table.index_name == ""


def test_parts_with_and_without_an_index_are_refused(X, tmp_path):
    frame = pandas.DataFrame(X, columns=COLUMNS, index=[f"r{i}" for i in range(30)])
    frame.to_parquet(tmp_path / "part-0.parquet")
    frame.reset_index(drop=True).to_parquet(tmp_path / "part-1.parquet")
    with pytest.raises(InputError, match="the same index in every file, got an index in some"):
        read(tmp_path)


def test_two_columns_of_one_name_are_refused(X, tmp_path):
    table = arrow.Table.from_arrays(
        [arrow.array(X[:, j]) for j in range(3)], names=["a", "b", "a"]
    )
    parquet.write_table(table, tmp_path / "x.parquet")
    for reader in (bo.open_rows, read):
        with pytest.raises(InputError, match=r"column names that differ in .*, got 'a' more"):
            reader(tmp_path / "x.parquet")


@pytest.mark.parametrize("name", [".hidden.parquet", "._part-0.parquet", "_temporary.parquet"])
def test_hidden_files_are_no_parts(name, X, tmp_path):
    write(tmp_path / "part-0.parquet", X)
    (tmp_path / name).write_bytes(b"no parquet")
    same(read(tmp_path), X, COLUMNS)
    np.testing.assert_array_equal(bo.open_rows(tmp_path).whole(), X)


def test_partitioned_folders_are_refused(X, tmp_path):
    write(tmp_path / "k=1" / "part-0.parquet", X)
    write(tmp_path / "k=2" / "part-0.parquet", X)
    for reader in (bo.open_rows, read, parquet_parts):
        with pytest.raises(InputError) as caught:
            reader(tmp_path)
        assert str(caught.value) == (
            f"Expected parquet files in one folder, got {tmp_path} with a folder for each value of "
            f"a column: k=1. Name one of them ({tmp_path / 'k=1'}), or write the table without "
            "partitions."
        )
    np.testing.assert_array_equal(bo.open_rows(tmp_path / "k=1").whole(), X)


def test_parts_of_several_kinds_are_refused(X, tmp_path):
    write(tmp_path / "part-0.parquet", X)
    (tmp_path / "part-1.csv").write_text("a,b\n1,2\n")
    (tmp_path / "README.md").touch()
    for reader in (bo.open_rows, read):
        with pytest.raises(InputError, match=r"one kind, got part-0\.parquet and part-1\.csv"):
            reader(tmp_path)
    (tmp_path / "part-1.csv").rename(tmp_path / "labels.csv")
    write(tmp_path / "part-1.parquet", X)
    for reader in (bo.open_rows, read):
        with pytest.raises(InputError, match=r"one kind, got part-0\.parquet and labels\.csv"):
            reader(tmp_path)
    (tmp_path / "labels.csv").unlink()
    same(read(tmp_path), np.vstack([X, X]), COLUMNS)


def test_files_of_several_kinds_that_are_views_are_read(X, tmp_path):
    write(tmp_path / "1.parquet", X)
    rows = "\n".join(map(str, X[:, 0]))
    (tmp_path / "rna.csv").write_text(f"g\n{rows}\n")
    assert list(read(tmp_path).views) == ["1", "rna"]


def test_rows_without_a_name_are_refused(X, tmp_path, monkeypatch):
    names = [f"r{i}" for i in range(30)]
    names[7] = None
    frame = pandas.DataFrame(X, columns=COLUMNS, index=names)
    frame.to_parquet(tmp_path / "x.parquet")
    got = r"a name for every row, got null in row 7 of .*x\.parquet\. Name these rows"
    with pytest.raises(InputError, match=got):
        read(tmp_path / "x.parquet")
    with pytest.raises(InputError, match=got):
        opened(tmp_path / "x.parquet", monkeypatch)


SAME = "Expected the same rows from start to end, got "


@pytest.mark.parametrize("n_rows", [20, 40])
def test_a_file_that_is_written_again_with_other_rows_has_changed(n_rows, X, tmp_path):
    path = tmp_path / "x.parquet"
    write(path, X)
    source = bo.open_rows(path)
    source.whole()
    write(path, np.vstack([X, X])[:n_rows])
    source._held = (-1, source._held[1])  # of another row group
    with pytest.raises(InputError) as caught:
        source.whole()
    assert f"{SAME}{n_rows} rows in {path}, which had 30. Start again" in str(caught.value)


def test_files_that_are_gone_or_lack_a_column_have_changed(X, tmp_path):
    path = tmp_path / "x.parquet"
    write(path, X)
    source = bo.open_rows(path)
    write(path, X[:, :5], COLUMNS[:5])
    with pytest.raises(
        InputError, match=f"{SAME}.*x.parquet, which is another file than when"
    ):
        source.whole()
    path.write_bytes(b"half")
    with pytest.raises(
        InputError, match=f"{SAME}.*x.parquet, which is another file than when"
    ):
        source.whole()
    path.unlink()
    with pytest.raises(InputError, match=f"{SAME}.*x.parquet, which is gone"):
        source.whole()


def test_rows_of_a_file_that_is_written_again_are_read_from_it_anew(X, tmp_path):
    path = tmp_path / "x.parquet"
    write(path, X)
    source = bo.open_rows(path)
    write(path, X + 1)
    np.testing.assert_array_equal(source.whole(), X + 1)


@pytest.mark.parametrize("many", [0, 2**22], ids=["large", "small"])
@pytest.mark.parametrize("stored", [True, False], ids=["index", "first column"])
def test_names_of_rows_can_be_left_out(many, stored, tmp_path, monkeypatch):
    monkeypatch.setattr(on_disk, "MANY", many)
    frame = pandas.DataFrame({"cell": ["a", "b", "b"], "x": [1.0, 2.0, 3.0], "y": [4, 5, 6]})
    frame = frame.set_index("cell") if stored else frame
    path = tmp_path / "x.parquet"
    frame.to_parquet(path)

    def opened(**choice):
        request = Request(
            selection=selection_of(choice.get("columns"), choice.get("drop", ()))
        )
        return on_disk.open_table(path, request) or read(path, **choice)

    match = r"'b' more than once\. Rename .*; if 'cell' names none, add --drop cell"
    with pytest.raises(InputError, match=match):
        opened()
    for choice in ({"drop": ["cell"]}, {"columns": ["x", "y"]}):
        table = opened(**choice)
        assert table.row_names is None
        assert table.column_names == ["x", "y"]
    frame = frame.reset_index() if stored else frame
    frame["cell"] = ["a", None, "b"]
    frame.to_parquet(path, index=False)
    with pytest.raises(InputError, match=r"null in row 1 of .*add --drop cell"):
        opened()
    assert opened(drop=["cell"]).row_names is None


def test_parts_of_a_mixed_table_have_the_types_of_all(tmp_path):
    table = pandas.DataFrame(
        {"n": [1, 2, 3, 4], "yes": [True, False] * 2, "kind": list("abba"), "x": [0.5] * 4}
    )
    parts = [table[:2], table[2:].copy(), table[:0]]
    parts[1][["n", "yes", "kind", "x"]] = None
    for number, part in enumerate(parts):
        # Dask counts the rows of each of its parts
        index = pandas.RangeIndex(len(part), name="__null_dask_index__")
        part.set_index(index).to_parquet(tmp_path / f"part.{number}.parquet", index=True)
    frame = whole_tables._read_parquet(tmp_path)
    assert list(map(str, frame.dtypes[["n", "yes", "x"]])) == ["Int64", "boolean", "float64"]
    assert frame["kind"].tolist()[:2] == ["a", "b"]
    assert list(frame.index) == [0, 1, 2, 3]
    assert frame.index.name is None
    assert frame.isna().all(axis=1).tolist() == [False, False, True, True]


def test_without_pyarrow_the_message_says_what_to_install(X, tmp_path, monkeypatch):
    path = tmp_path / "rows.parquet"
    write(path, X)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    for opening in (read, bo.open_rows, parquet_columns.schema_of, whole_tables._read_parquet):
        with pytest.raises(InputError) as caught:
            opening(path)
        assert str(caught.value).startswith("Expected the package pyarrow")
        assert str(caught.value).endswith("Run: pip install 'bochner[parquet]'.")
