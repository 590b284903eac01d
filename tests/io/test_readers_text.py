"""Text as people have it: headers that are numbers, names in a column, separators, large files."""

import gzip
import os
import stat
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bochner.errors import DataWarning, InputError
from bochner.io.csv.files import read_csv
from bochner.io.csv.text import Lines, PlainLines
from bochner.io.csv.write import guarded, unguarded
from bochner.io.outputs import replacing
from bochner.io.readers import read, write_csv
from bochner.io.request import NamedColumns, Request
from bochner.page.labels import read_labels

NAN = np.nan


@pytest.fixture
def csv(tmp_path):
    def write(text, name="t.csv"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


@pytest.mark.parametrize(
    ("text", "rows", "columns"),
    [
        ("id,2001,2002\np,1,2\nq,3,4\n", ["p", "q"], ["2001", "2002"]),
        ("sample_id,7,3\np,1,2\nq,3,4\n", ["p", "q"], ["7", "3"]),
        ("id,2001,2002\n7,1,2\n8,3,4\n", ["7", "8"], ["2001", "2002"]),
        ("year,2001,2002\n7,1,2\n7,3,4\n", None, ["year", "2001", "2002"]),
        ("site,2001,2002\np,0.5,1\nq,3,4\n", ["p", "q"], ["2001", "2002"]),
        ("a,2001,b\n1,2,3\n", None, ["a", "2001", "b"]),
        ("p,1,2\nq,3,4\n", ["p", "q"], None),
        ("p,5,2\nq,3.5,4\n", ["p", "q"], None),
        ("p,5,5\nq,3,4\n", ["p", "q"], None),
        ("a,%\n1,2\n", None, ["a", "%"]),
    ],
)
def test_headers_that_are_numbers(csv, text, rows, columns):
    table = read(csv(text))
    assert (table.row_names, table.column_names) == (rows, columns)


@pytest.mark.parametrize("mark", ["?", "-", "missing", "n.d."])
def test_a_line_with_a_mark_for_missing_is_no_header(csv, mark):
    match = (
        rf"a number, got '{mark}' in .*, line 1, cell 3\. .*names the columns, add --header"
    )
    with pytest.raises(InputError, match=match.replace("?", r"\?")):
        read(csv(f"1,2,{mark}\n3,4,5\n"))
    assert read(csv(f"1,2,{mark}\n3,4,5\n"), header=True).column_names == ["1", "2", mark]


def test_whether_there_is_a_header_can_be_said(csv):
    path = csv("2001,2002\n1,2\n")
    assert read(path).X.shape == (2, 2)
    assert read(path, header=True).column_names == ["2001", "2002"]
    assert read(csv("id,1,2\np,3,4\n"), header=False).row_names == ["id", "p"]
    with pytest.raises(
        InputError, match=r"a header with 'id', got none .*Leave out --no-header"
    ):
        read(csv("id,1,2\np,3,4\n"), index="id", header=False)


def test_a_first_column_called_id_names_the_rows(csv):
    table = read(csv("id,a\n7,1\n5,2\n"))
    assert (table.row_names, table.column_names, table.index_name) == (["7", "5"], ["a"], "id")
    # numbers that repeat or have fractions are data
    assert read(csv("id,a\n7,1\n7,2\n")).column_names == ["id", "a"]
    assert read(csv("id,a\n7.5,1\n5,2\n")).column_names == ["id", "a"]
    assert read(csv("grid,a\n7,1\n5,2\n")).column_names == ["grid", "a"]


def test_files_with_ids_in_another_order_are_joined_by_them(csv, tmp_path):
    csv("id,g\n1,10\n2,20\n3,30\n", "rna.csv")
    csv("id,p\n3,300\n1,100\n2,200\n", "protein.csv")
    table = read(tmp_path)
    assert table.row_names == ["3", "1", "2"]
    np.testing.assert_array_equal(table.X, [[300, 30], [100, 10], [200, 20]])


def test_ids_under_another_name_are_asked_for(csv, tmp_path):
    csv("nr,g\n1,10\n2,20\n", "rna.csv")
    csv("nr,p\n2,200\n1,100\n", "protein.csv")
    with pytest.raises(InputError, match=r"got the column 'nr' first in each.*Add --index nr"):
        read(tmp_path)
    assert read(tmp_path, index="nr").row_names == ["2", "1"]
    csv("1,10\n2,20\n", "rna.csv")
    csv("2,200\n1,100\n", "protein.csv")
    with pytest.raises(
        InputError, match=r"the same whole numbers in another order.*--index NAME"
    ):
        read(tmp_path)


def test_only_the_columns_asked_for_are_read(csv, tmp_path):
    path = csv("id,a,kind,b\np,1,x,2\nq,3,y,4\n")
    with pytest.raises(InputError, match=r"'x' .*line 2, cell 3 \('kind'\).*--drop kind"):
        read(path)
    for chosen in ({"drop": ["kind"]}, {"columns": ["b", "a"]}):
        table = read(path, **chosen)
        assert table.column_names == ["a", "b"]
        np.testing.assert_array_equal(table.X, [[1, 2], [3, 4]])
    for chosen in ({"drop": ["kin"]}, {"columns": ["a", "kin"]}):
        match = r"columns of .*t.csv, got no 'kin': did you mean 'kind'\?"
        with pytest.raises(InputError, match=match):
            read(path, **chosen)
    with pytest.raises(InputError, match=r"column names to choose from, got none in .*n.csv"):
        read(csv("1,2\n3,4\n", "n.csv"), drop=["a"])
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pandas.DataFrame({"a": [1.0, 2.0], "kind": ["x", "y"]})
    frame.to_parquet(tmp_path / "f.parquet")
    with pytest.raises(InputError, match=r"'x' in row 0, column 1 \('kind'\).*--drop kind"):
        read(tmp_path / "f.parquet")
    assert read(tmp_path / "f.parquet", drop=["kind"]).column_names == ["a"]


def test_separators(csv):
    assert read(csv("a, b\tc\n1\t2\n", "t.tsv")).column_names == ["a, b", "c"]
    assert read(csv('"x, y, z";b\n1;2\n')).column_names == ["x, y, z", "b"]
    with pytest.raises(InputError, match=r"tabs between cells, got commas in .*t.tsv. Rename"):
        read(csv("a,b\n1,2\n", "t.tsv"))
    with pytest.raises(InputError, match=r"got '1,5' in .*for decimal commas add --decimal ,"):
        read(csv("a;b\n1,5;2,5\n3,5;4,5\n"))


def test_decimal_commas(csv):
    """Numbers are those of the same file with points, the header, row names and holes, too."""
    request = Request(decimal=",")
    table = read_csv(csv("id;a;b, c\np;1,5;-2,5e3\nq;;4\n"), request)
    assert (table.column_names, table.row_names) == (["a", "b, c"], ["p", "q"])
    assert np.array_equal(table.X, [[1.5, -2500.0], [NAN, 4.0]], equal_nan=True)
    table = read_csv(csv("1,5;2,5\n3,5;4,5\n"), request)
    assert table.column_names is None
    assert table.X.tolist() == [[1.5, 2.5], [3.5, 4.5]]
    quoted = read_csv(csv('a,b\n"1,5","2"\n'), request)
    assert quoted.X.tolist() == [[1.5, 2.0]]
    with pytest.raises(InputError, match=r"decimal commas, got '1.5' in .*line 3.*thousands"):
        read_csv(csv("a;b\n1,5;2\n1.5;3\n"), request)


def test_decimal_commas_of_large_files(csv):
    values = np.random.default_rng(0).normal(size=(40000, 2))
    lines = [f"{a!r};{b!r}" for a, b in values.tolist()]
    points = read_csv(csv("\n".join(["a;b", *lines])))
    text = "\n".join(lines).replace(".", ",")
    assert len(text) > 2**19
    commas = read_csv(csv(f"a;b\n{text}\n"), Request(decimal=","))
    assert np.array_equal(points.X, commas.X)
    with pytest.raises(InputError, match=r"got '1.5'"):
        read_csv(csv(f"a;b\n{text}\n1.5;2\n"), Request(decimal=","))


def test_names_without_nul(csv):
    with pytest.raises(
        InputError, match=r"row names without the character NUL, got 'p\\x00q'"
    ):
        read(csv(",a\np\0q,1\n"))


WORDS = """1 -2.5 1e3 0.1 NA NaN null x True inf -inf 1_0 +.5 5. 1e400 4.9e-324 0x1 1d2 nan n/a None
    ٣ # ' -nan +inf Infinity 1e . ,5"""
cell = (
    st.sampled_from([*WORDS.split(), "", " ", " 7 ", "1 2", "- 1", "1\u00a0"])
    | st.floats(allow_nan=False).map(repr)
    | st.from_regex(r"[0-9]{1,25}\.[0-9]{0,25}", fullmatch=True)
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(cell, cell), min_size=1, max_size=5), st.sampled_from(",;\t"))
def test_pandas_reads_what_cells_one_by_one_say(tmp_path_factory, rows, delimiter):
    pytest.importorskip("pandas")
    text = "\n".join(delimiter.join(row) for row in rows)
    plain = PlainLines.of(text, delimiter)
    try:
        slow = Lines(tmp_path_factory.mktemp("t") / "t.csv", text, delimiter)
        expected = slow.numbers([0, 1], 0, None)
    except InputError:
        expected = None
    try:
        result = None if plain is None else plain.numbers([0, 1], 0, None)
    except ValueError:
        result = None
    if result is None:
        return  # cells are read one by one
    assert expected is not None
    np.testing.assert_array_equal(result, expected)
    np.testing.assert_array_equal(np.signbit(result), np.signbit(expected))


def test_large_files_are_read_as_small_ones(tmp_path):
    pytest.importorskip("pandas")
    X = np.random.default_rng(0).normal(size=(500, 60))
    X[3, 4] = NAN
    rows = [f"r{i}" for i in range(500)]
    columns = [f"c{j}" for j in range(60)]
    path = tmp_path / "large.csv"
    write_csv(path, X, rows, columns, "id")
    text = path.read_text()
    plain = PlainLines.of(text, ",")
    assert plain is not None
    assert plain.column(0, 1) == rows
    table = read(path)
    np.testing.assert_array_equal(table.X, X)
    assert (table.row_names, table.column_names) == (rows, columns)
    # a fault is placed
    path.write_text(text.replace("\nr400,", "\nr400,oops", 1))
    with pytest.raises(
        InputError, match=r"got 'oops-?[\d.]+' in .*, line 402, cell 2 \('c0'\)"
    ):
        read(path)
    path.write_text(text.replace("\nr400,", "\n", 1))
    with pytest.raises(
        InputError, match="61 cells in every line, as in the first, got 60 in line"
    ):
        read(path)


def test_a_small_file_that_becomes_a_large_one_is_refused(tmp_path, csv):
    path = tmp_path / "bomb.csv.gz"
    path.write_bytes(gzip.compress(b"1,2\n" * 2**26 + b"1,2\n", 9))
    with pytest.raises(
        InputError, match=r"at most 256.0 MiB when decompressed, got more.*bomb"
    ):
        read(path)


# -- writing
# ------------------------------------------------------------------------------------------------


@given(st.text(max_size=6))
def test_names_that_a_spreadsheet_would_run_come_back(name):
    written = guarded(name)
    assert unguarded(written) == name
    assert not written.startswith(("=", "@"))


@pytest.mark.parametrize("name", ["=1+1", "@SUM(A1)", "+cmd|' /C calc'!A0", "-2+HYPERLINK(1)"])
def test_formulas_are_written_as_text(tmp_path, name):
    path = tmp_path / "t.csv"
    write_csv(path, np.ones((2, 1)), [name, "q"], [f"{name}1"], name)
    assert [line.split(",")[0].strip('"')[0] for line in path.read_text().splitlines()] == [
        "'",
        "'",
        "q",
    ]
    table = read(path)
    assert (table.row_names, table.column_names) == ([name, "q"], [f"{name}1"])
    write_csv(path, np.ones((1, 1)), ["-AS1"], ["+5"])
    assert path.read_text() == ",+5\n-AS1,1\n"


def test_files_have_the_permissions_of_others(tmp_path):
    other, path = tmp_path / "other", tmp_path / "out"
    other.write_text("")
    with replacing(path) as part:
        part.write_text("new")
    assert path.stat().st_mode == other.stat().st_mode
    path.chmod(0o640)
    with replacing(path) as part:
        part.write_text("newer")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    with pytest.raises(FileNotFoundError), replacing(path) as part:
        part.write_bytes((tmp_path / "nowhere").read_bytes())
    assert path.read_text() == "newer"
    assert {p.name for p in tmp_path.iterdir()} == {"other", "out"}


def test_links_stay_links(tmp_path):
    (tmp_path / "store").mkdir()
    real, link = tmp_path / "store" / "real.csv", tmp_path / "link.csv"
    real.write_text("old")
    link.symlink_to(real)
    write_csv(link, np.array([[1.5]]))
    assert link.is_symlink()
    assert real.read_text() == "1.5\n"
    assert os.listdir(tmp_path / "store") == ["real.csv"]


# -- labels
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "n_rows"),
    [("label\na\nb\n", 3), ("colour\nred\nred\nblue\nblue\n", 5), ("y2\n0\n1\n", 3)],
)
def test_a_header_above_one_label_too_few_is_no_label(csv, text, n_rows):
    with pytest.raises(InputError, match=rf"the {n_rows} rows, got {n_rows - 1} below"):
        read_labels(csv(text), None, n_rows)
    assert len(next(iter(read_labels(csv(text), None, n_rows - 1).values()))) == n_rows - 1
    assert len(next(iter(read_labels(csv("kind\n" + text), None, n_rows).values()))) == n_rows


def test_labels_without_a_header(csv):
    assert read_labels(csv("a\nb\na\n"), None, 3)["label"].tolist() == ["a", "b", "a"]
    assert read_labels(csv("1\n0\n"), None, 2)["label"].tolist() == [1, 0]


def test_labels_that_are_no_archive(tmp_path):
    path = tmp_path / "labels.npz"
    for content in (b"PK\x03\x04 broken", b"no archive", b"\x80\x04pickle"):
        path.write_bytes(content)
        with pytest.raises(
            InputError, match=r"a readable npz file, got .*Check that"
        ) as result:
            read_labels(path, None, 3)
        assert "pickle" not in str(result.value)


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ('a,b\n"1,234",2\n"5,678.5",3\n', "1,234"),
        ("a;b\n1,5;2\n-3,5;4\n", "1,5"),
        ("a;b\n1.234,5;2\n3.234,5;4\n", "1.234,5"),
        ("a,b\n10%,2\n20 %,3\n", "10%"),
        ("a,b\n$10,2\n$20,3\n", "$10"),
    ],
)
def test_numbers_that_are_not_written_plainly_do_not_become_row_names(tmp_path, text, cell):
    path = tmp_path / "x.csv"
    path.write_text(text)
    with pytest.raises(InputError, match="add --index a, to leave it out --drop a") as caught:
        read(path)
    assert repr(cell) in str(caught.value)
    path.write_text(text.replace("a", "id", 1))
    assert read(path).row_names[0] == cell


def test_addresses_versions_and_dates_name_rows(tmp_path):
    path = tmp_path / "x.csv"
    for names in (["10.0.0.1", "10.0.0.2"], ["1.2.3", "1.2.4"], ["2020-01-01", "2020-01-02"]):
        path.write_text("a,b\n" + "".join(f"{name},{j}\n" for j, name in enumerate(names)))
        assert read(path).row_names == names


def test_what_spreadsheets_call_unicode_text_is_read(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes("Größe\tb\n1\t2\n3\t4\n".encode("utf-16"))
    assert read(path).column_names == ["Größe", "b"]
    path.write_bytes("Größe,b\n1,2\n".encode("latin-1"))
    with pytest.raises(InputError, match=r"iconv -f WINDOWS-1252 -t UTF-8 .*t.csv > new.csv"):
        read(path)


def test_empty_lines_and_columns_of_a_spreadsheet_are_left_out(csv):
    """Where rows have names; elsewhere a line without entries is a row."""
    table = read(csv("id;a;b;\n7;1;2;\n;;;\n8;;4;\n;;;\n"))
    assert (table.row_names, table.column_names) == (["7", "8"], ["a", "b"])
    np.testing.assert_array_equal(table.X, [[1, 2], [NAN, 4]])
    table = read(csv("a;b\n1;2\n;\n3;4\n"))
    assert (table.row_names, len(table.X)) == (None, 3)
    with pytest.raises(InputError, match=r"a name for every row, got none in line 3 of"):
        read(csv("name;a\np;1\n;2\n"))


def test_large_files_leave_out_empty_lines_too(csv):
    body = "".join(f"{i};{i}.5;2;\n" for i in range(2**16))
    table = read(csv(f"id;a;b;\n{body};;;\n"))
    assert table.X.shape == (2**16, 2)


def test_cells_between_bars_and_errors_of_spreadsheets_are_read(csv):
    table = read(csv("a|b\n1|#N/A\n<NA>|4\n"))
    np.testing.assert_array_equal(table.X, [[1, NAN], [NAN, 4]])


@pytest.mark.parametrize(
    ("cell", "says"),
    [
        ("1,5e+01", "for decimal commas add --decimal ,"),
        ("10,637.11", "write 1234.5, without separators, signs or units"),
        ("3.5 mm", "write 1234.5, without separators, signs or units"),
    ],
)
def test_numbers_written_otherwise_are_named(csv, cell, says):
    with pytest.raises(InputError, match=f"(?i){says}"):
        read(csv(f"a;b\n1;2\n3;{cell}\n"))
    with pytest.raises(InputError, match=f"(?i){says}"):
        read(csv(f"a;b\n{cell};2\n{cell[:2]}1{cell[3:]};4\n"))


def test_whole_numbers_with_a_unit_beside_others_name_no_rows(csv):
    """They were taken for names, and the measurements were lost without a word."""
    with pytest.raises(InputError, match=r"'1.5 mm' in the first column .*without separators"):
        read(csv("size,b\n1.5 mm,2\n2 mm,3\n3mm,4\n"))
    assert read(csv("plate,b\n1 A,2\n2 A,3\n")).row_names == ["1 A", "2 A"]
    assert read(csv("plate,b\n1.5 A,2\n2 B,3\n")).row_names == ["1.5 A", "2 B"]


def test_a_compressed_file_under_another_name_is_named(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(gzip.compress(b"a,b\n1,2\n"))
    with pytest.raises(InputError, match=r"gzip has compressed. Rename it to t\.csv\.gz"):
        read(path)


def test_a_column_of_ids_with_one_twice_is_named(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("id,a\n1,2\n2,3\n3,4\n3,5\n")
    with pytest.warns(
        DataWarning, match="'id' is read as data, because '3' is in it more than"
    ):
        assert read(path).X.shape == (4, 2)


def test_options_that_leave_no_column_are_named(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("x,y\n1,2\n3,4\n")
    request = Request(selection=NamedColumns(["x"], ["x"]))
    with pytest.raises(
        InputError, match=r"columns to read, got none that is asked for of the 2"
    ):
        read_csv(path, request)


@pytest.mark.parametrize(
    ("start", "got", "do"),
    [
        (
            b"PK\x03\x04\x14\x00",
            r"a workbook \(.xlsx, .ods\) or another zip",
            "save it as csv",
        ),
        (b"\xd0\xcf\x11\xe0\xa1\xb1", r"an Excel workbook \(.xls\)", "save it as csv"),
        (b"PAR1\x15\x04", "a parquet file", r"Rename it to \.parquet"),
        (b"\x89HDF\r\n", "an HDF5 file", r"Rename it to \.h5ad"),
        (b"\x93NUMPY\x01", "a NumPy array", r"Rename it to \.npy"),
        (b"%PDF-1.7\n", "a PDF document", "Export the table"),
        (b"\x89PNG\r\n\x1a\n", "binary data", "Name the file that holds"),
        (b"\x80\x04\x95", "binary data", "Name the file that holds"),
        (b"<!doctype html>\n<p>404", "a web page", "Download the file itself"),
    ],
)
def test_files_of_other_kinds_called_csv(tmp_path, start, got, do):
    path = tmp_path / "data.csv"
    path.write_bytes(start + bytes(range(256)))
    with pytest.raises(InputError, match=f"Expected a table as text, got {got}.*{do}"):
        read_csv(path)


def test_spaces_between_cells_are_named(csv):
    with pytest.raises(InputError, match=r"row names alone.*if spaces are between cells"):
        read(csv("a b c\n1.5 2 3\n4 5 6\n"))


def test_a_first_column_of_categories_is_no_names_of_rows(csv):
    with pytest.raises(
        InputError,
        match=r"got 'x' twice.*if 'kind' names none, add --drop kind, or --likelihood auto",
    ):
        read(csv("kind,b\nx,1\ny,2\nx,3\n"))


NUMBERS_ABOVE = [
    "2019,2020,2021\n3,5,2\n4,4,1\n",
    "site,2019,2020,2021\na,3,5,2\nb,4,4,1\n",
    ",450,500,550\n7,3,5,2\n8,4,4,1\n",
    "1,2\n0.5,0.25\n1.5,\n",
]


@pytest.mark.parametrize("text", NUMBERS_ABOVE)
def test_a_first_line_of_numbers_that_may_be_names_is_warned_of(tmp_path, text):
    path = tmp_path / "years.csv"
    path.write_text(text)
    with pytest.warns(DataWarning) as warned:
        read(path)
    assert [str(one.message) for one in warned] == [
        f"The first line of {path} is read as data, because it holds numbers: where it names the "
        "columns, add --header, and else --no-header."
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for header in (True, False):
            read(path, header=header)


@pytest.mark.parametrize(
    "text", ["3,1,5\n2,2,2\n", "1,2,3\n4,5,6\n", "1,2\n3,4\n", "1.5,2\n3,4\n", "1\n0.5\n"]
)
def test_a_first_line_of_data_is_not_warned_of(tmp_path, text):
    (tmp_path / "X.csv").write_text(text)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read(tmp_path / "X.csv")


@pytest.mark.parametrize("first", ["sep=,", "SEP=;", '"sep=,"', "sep=,,,"])
def test_the_separator_of_excel_is_refused_with_what_to_type(tmp_path, first):
    path = tmp_path / "t.csv"
    path.write_text(f"{first}\na,b\n1,2\n")
    with pytest.raises(InputError) as refused:
        read(path)
    assert str(refused.value) == (
        f"Expected names of columns, or numbers, in the first line, got {first!r} in line 1 of "
        f"{path}. Delete that line, which Excel reads alone: tail -n +2 {path} > new.csv."
    )


@pytest.mark.parametrize(
    ("encoding", "got"),
    [
        ("UTF-16LE", "UTF-16LE without a byte order mark"),
        ("UTF-16BE", "UTF-16BE without a byte order mark"),
        ("UTF-32LE", "UTF-32LE without a byte order mark"),
        ("UTF-32BE", "UTF-32BE without a byte order mark"),
        ("UTF-32", "UTF-32"),
    ],
)
def test_wide_text_is_refused_with_what_to_type(tmp_path, encoding, got):
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,2\n3,4\n", encoding=encoding)
    with pytest.raises(InputError) as refused:
        read(path)
    assert str(refused.value) == (
        f"Expected text in UTF-8, got {path} in {got}. Save it as csv UTF-8, or: iconv -f "
        f"{encoding} -t UTF-8 {path} > new.csv."
    )


def test_rows_that_pandas_counted_are_no_data(csv):
    """to_csv, read_csv and to_csv make of row names a column of this name: it was fitted."""
    table = read(csv("Unnamed: 0,a,b\n0,1.5,2\n1,3,4\n2,5,7\n"))
    assert (table.row_names, table.column_names) == (["0", "1", "2"], ["a", "b"])


def test_a_first_line_without_a_name_for_row_names_is_said(csv):
    """As R's write.table has it; where other lines differ, too, the line is to be repaired."""
    text = r"2 cells in every line, as in the first, got 3 in line 2 of .*\. Name the first column"
    with pytest.raises(InputError, match=text):
        read(csv("a,b\nx,1,2\ny,3,4\n"))
    with pytest.raises(InputError, match=r"got 3 in line 3 of .*\. Repair that line"):
        read(csv("a,b\n1,2\ny,3,4\n"))
