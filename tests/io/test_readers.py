import gzip
import os
import subprocess
import sys
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from bochner.errors import DataWarning, InputError
from bochner.io.readers import read, write_csv

NAN = np.nan
KNOWN = ".csv, .tsv, .csv.gz, .tsv.gz, .parquet, .npz, .npy, .h5ad, .h5mu"


@pytest.fixture
def csv(tmp_path):
    def write(text, name="t.csv"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


@pytest.mark.parametrize(
    ("text", "X", "rows", "columns"),
    [
        ("1,2\n3,4\n", [[1, 2], [3, 4]], None, None),
        ("a,b\n1,2\n3,4\n", [[1, 2], [3, 4]], None, ["a", "b"]),
        ("a,b\n1,\nNA,NaN\n", [[1, NAN], [NAN, NAN]], None, ["a", "b"]),
        ("p,1,2\nq,3,4\n", [[1, 2], [3, 4]], ["p", "q"], None),
        ("id,a\np,1\nq,3\n", [[1], [3]], ["p", "q"], ["a"]),
        (",a\n7,1\n8,3\n", [[1], [3]], ["7", "8"], ["a"]),
        (",0,1\n0,1,2\n1,3,4\n", [[1, 2], [3, 4]], ["0", "1"], ["0", "1"]),
        (",2\n1,3\n", [[NAN, 2], [1, 3]], None, None),
        ("x\n1\n2\n", [[1], [2]], None, ["x"]),
        ("a;b\n1;2.5\n", [[1, 2.5]], None, ["a", "b"]),
        ("a\tb\n1\t2\n\n3\t-1e3\n", [[1, 2], [3, -1000]], None, ["a", "b"]),
        ("a,b,\n1,2,\n", [[1, 2]], None, ["a", "b"]),
        ("a,b,\n1,2,\n3,4,5\n", [[1, 2, NAN], [3, 4, 5]], None, ["a", "b", "column_2"]),
        ('"a, b","c"\r\n"1", 2\r\n', [[1, 2]], None, ["a, b", "c"]),
        (b"\xef\xbb\xbfa,b\n1,2\n", [[1, 2]], None, ["a", "b"]),
        ("a,b\n1,inf\n", [[1, np.inf]], None, ["a", "b"]),
        ("id,a,b\np,True,false\n", [[1, 0]], ["p"], ["a", "b"]),
    ],
)
def test_csv_of_every_shape(csv, text, X, rows, columns):
    table = read(csv(text))
    np.testing.assert_array_equal(table.X, np.array(X, float))
    assert (table.row_names, table.column_names, table.views, table.labels) == (
        rows,
        columns,
        None,
        None,
    )
    assert table.X.dtype == np.float64


@pytest.mark.parametrize("name", ["t.tsv", "t.csv.gz", "T.TSV.GZ"])
def test_text_may_be_compressed_or_separated_by_tabs(csv, name):
    text = b"id\ta\tb\np\t1\t2\nq\t3\t\n"
    path = csv(gzip.compress(text) if name.lower().endswith("gz") else text, name)
    table = read(path, index="id")
    np.testing.assert_array_equal(table.X, [[1, 2], [3, NAN]])
    assert (table.row_names, table.column_names) == (["p", "q"], ["a", "b"])
    assert list(read(path.parent, index="id").views) == [path.name[:1]]


def test_text_that_is_cut_short_or_in_another_encoding_is_named(csv):
    whole = gzip.compress(b"a,b\n" + b"1,2\n" * 100)
    for cut in (whole[:-8], whole[:12], b"no gzip at all"):
        with pytest.raises(InputError, match=r"a readable csv file, got .*c\.csv\.gz"):
            read(csv(cut, "c.csv.gz"))
    with pytest.raises(
        InputError, match=r"Expected text in UTF-8, got .*l\.csv .*Save it as csv UTF-8"
    ):
        read(csv("größe,a\n1,2\n".encode("latin1"), "l.csv"))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_columns_of_whole_numbers_are_written_without_a_point(tmp_path, dtype):
    X = np.array([[3, 0.5, NAN, 1, -0.0, 2.0**60], [NAN, 2, NAN, -4, 1, 1]], dtype)
    write_csv(tmp_path / "w.csv", X, column_names=list("abcdef"))
    cells = [line.split(",") for line in (tmp_path / "w.csv").read_text().splitlines()[1:]]
    assert [cells[0][j] for j in (0, 1, 2, 3, 4)] == ["3", "0.5", "", "1", "-0.0"]
    assert [cells[1][j] for j in (0, 1, 2, 3, 4)] == ["", "2.0", "", "-4", "1.0"]
    back = read(tmp_path / "w.csv").X.astype(dtype)
    np.testing.assert_array_equal(back, X)
    np.testing.assert_array_equal(np.signbit(back), np.signbit(X))
    # without names a first line of counted numbers would be taken for them
    for first in ([NAN, 0.0], [0.0, 1.0]):
        bare = np.array([first, [2.0, 3.0]], dtype)
        write_csv(tmp_path / "bare.csv", bare)
        np.testing.assert_array_equal(read(tmp_path / "bare.csv").X, bare)


def test_whole_numbers_stay_so_beside_completed_ones(tmp_path):
    typed = np.array([[606.0, 1.5, 3], [NAN, 2, 4]])
    completed = np.array([[606.0, 1.5, 3], [605.25, 2, 4]])
    write_csv(tmp_path / "w.csv", completed, column_names=list("abc"), typed=typed)
    assert (tmp_path / "w.csv").read_text() == "a,b,c\n606,1.5,3\n605.25,2.0,4\n"
    write_csv(tmp_path / "bare.csv", completed, typed=typed)
    assert (tmp_path / "bare.csv").read_text() == "606,1.5,3\n605.25,2.0,4\n"


def test_files_are_read_without_torch():
    # a wrong file is to be refused at once
    code = "import sys, bochner.io.readers; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_header_may_begin_with_a_hash(csv):
    table = read(csv("#id,a,b\np,1,2\nq,3,4\n"))
    assert (table.row_names, table.column_names) == (["p", "q"], ["a", "b"])


def test_index_by_name(csv):
    path = csv("a,key,b\n1,10,2\n3,11,4\n")
    table = read(path, index="key")
    assert (table.row_names, table.column_names) == (["10", "11"], ["a", "b"])
    assert table.X.tolist() == [[1, 2], [3, 4]]
    assert read(csv("key,1999\np,1\n"), index="key").column_names == ["1999"]


@pytest.mark.parametrize(
    ("text", "index", "message"),
    [
        ("", None, "a file with data, got the empty file .*t.csv. Check that it was written"),
        ("\n\n", None, "a file with data, got the empty file"),
        ("a,b\n", None, "rows of data, got a header alone in .*t.csv"),
        (
            "a,b\n1,2\n3,x\n",
            None,
            r"a number, got 'x' in .*t.csv, line 3, cell 2 \('b'\). Write a number or .*--drop b",
        ),
        ("1,2\n3,1_000\n", None, "got '1_000' in .*, line 2, cell 2. "),
        ("a,b\n1,2\nq,3\n", None, r"got 'q' in .*, line 3, cell 1 \('a'\)"),
        (
            "# made by us\na,b\n1,2\n",
            None,
            "first line, got the comment '# made by us' in line 1 of .*t.csv. Delete .*grep -v",
        ),
        ("#a;b\n#c\n1;2;3\n", None, "got the comment '#a;b' in line 1"),
        (
            "a,b\n1,2,3\n",
            None,
            "2 cells in every line, as in the first, got 3 in line 2 of .*t.csv",
        ),
        ("a,a\n1,2\n", None, "column names that differ, got 'a' twice in .*t.csv"),
        (
            ",a\np,1\np,2\n",
            None,
            "row names that differ, got 'p' twice in .*t.csv. Rename or drop one of the rows",
        ),
        (",a\np,1\n,2\n", None, "a name for every row, got none in line 3 of .*t.csv"),
        (
            "key,b\n1,2\n",
            "kez",
            "an index column 'kez' in .*t.csv, got a header without it. Choose one of 'key'",
        ),
        ("name\np\nq\n", None, "columns of numbers, got row names alone"),
        (b"a,b\n1,\xff\xfe\n", None, "text in UTF-8, got .*t.csv .*utf-8"),
        ('a,b\n1,"2\n', None, "a readable csv file, got .*t.csv .*unexpected end of data"),
    ],
)
def test_csv_that_cannot_be_used(csv, text, index, message):
    with pytest.raises(InputError, match=message):
        read(csv(text), index=index)


numbers = hnp.arrays(
    st.sampled_from([np.float32, np.float64]),
    hnp.array_shapes(min_dims=2, max_dims=2, max_side=5),
    elements=st.floats(width=32) | st.just(NAN),
)
words = st.text("abc ,\"'é0", min_size=1, max_size=5).map(lambda s: "g" + s.strip())


@settings(max_examples=50, deadline=None)
@given(numbers, st.data())
def test_what_is_written_is_read(tmp_path_factory, X, data):
    def labels(count):
        return data.draw(
            st.none() | st.lists(words, min_size=count, max_size=count, unique=True)
        )

    rows, columns = labels(X.shape[0]), labels(X.shape[1])
    path = tmp_path_factory.mktemp("csv") / "out.csv"
    write_csv(path, X, rows, columns)
    table = read(path)
    np.testing.assert_array_equal(table.X.astype(X.dtype), X)
    assert table.row_names == rows
    assert columns is None or table.column_names == columns


def test_writing_leaves_no_half_file(tmp_path):
    path = tmp_path / "out.csv"
    path.write_text("before")
    with pytest.raises(ValueError, match="zip"):
        write_csv(path, np.ones((2, 2)), ["only one"])
    assert [p.name for p in tmp_path.iterdir()] == ["out.csv"]
    assert path.read_text() == "before"
    write_csv(path, np.array([[1.5, NAN]]))
    assert path.read_text() == "1.5,\n"
    with pytest.raises(
        InputError, match=r"an existing folder to write to, got .*nowhere. Create it"
    ):
        write_csv(tmp_path / "nowhere" / "out.csv", np.ones((1, 1)))


def test_numpy_files(tmp_path):
    A, B = np.arange(6).reshape(3, 2), np.ones((3, 4), np.float32)
    np.save(tmp_path / "a.npy", A)
    np.savez(
        tmp_path / "one.npz", X=A, y=np.array([0, 1, 1]), n_train=2, row_names=["p", "q", "r"]
    )
    np.savez(tmp_path / "two.npz", rna=A, protein=B)
    assert read(tmp_path / "a.npy").X.tolist() == A.tolist()
    one = read(str(tmp_path / "one.npz"))
    assert (one.views, one.row_names, one.labels.tolist()) == (
        None,
        ["p", "q", "r"],
        [0, 1, 1],
    )
    two = read(tmp_path / "two.npz")
    assert two.views == {"rna": slice(0, 2), "protein": slice(2, 6)}
    np.testing.assert_array_equal(two.X, np.hstack([A, B]))


@pytest.mark.parametrize(
    ("arrays", "text"),
    [
        (
            {"X": np.ones((2, 2), complex)},
            "real numbers, got the type complex128 in array 'X' of .*Split complex",
        ),
        ({"X": np.array([["a"]])}, "real numbers, got the type <U1 in array 'X'"),
        ({"X": np.array([[{}]], dtype=object)}, "numbers, got Python objects in .*f.npz"),
        (
            {"X": np.ones((2, 2, 2))},
            r"two-dimensional array .*, got 3 dimensions, shape \(2, 2, 2\), in array 'X'",
        ),
        ({"X": np.ones((0, 3))}, r"data, got an array of shape \(0, 3\)"),
        ({"v": np.ones(3)}, r"a two-dimensional array in .*f.npz, got 'v' \(3,\)"),
        ({}, "a two-dimensional array in .*f.npz, got no array"),
        (
            {"data": np.ones(3), "format": b"csr", "shape": np.array([2, 2])},
            r"got a sparse matrix of scipy\. Fit scipy\.sparse\.load_npz\(path\)",
        ),
        (
            {"a": np.ones((2, 1)), "b": np.ones((3, 1))},
            "views with the same rows in .*f.npz, got 'a': 2, 'b': 3",
        ),
    ],
)
def test_npz_that_cannot_be_used(tmp_path, arrays, text):
    np.savez(tmp_path / "f.npz", **arrays)
    with pytest.raises(InputError, match=text):
        read(tmp_path / "f.npz")


@pytest.mark.parametrize(
    ("name", "values", "count", "what"),
    [
        ("y", [0, 1], 3, "rows"),
        ("labels", [], 3, "rows"),
        ("row_names", ["a", "b", "c", "d"], 3, "rows"),
        ("column_names", ["a"], 2, "columns"),
        ("y", 7, 3, "rows"),
    ],
)
def test_an_array_of_another_length_beside_the_data_is_warned_of(
    tmp_path, name, values, count, what
):
    np.savez(tmp_path / "f.npz", X=np.ones((3, 2)), **{name: np.array(values)})
    with pytest.warns(DataWarning) as warned:
        table = read(tmp_path / "f.npz")
    assert (table.row_names, table.column_names, table.labels) == (None, None, None)
    assert str(warned[0].message) == (
        f"Expected {name} of shape ({count},), one for each of the {what}, in "
        f"{tmp_path / 'f.npz'}, got shape {np.shape(values)}. It is left out: save it again with "
        "one for each."
    )


@pytest.mark.parametrize(("what", "names"), [("row", "pqp"), ("column", "aa")])
def test_names_that_repeat_beside_arrays_are_refused(tmp_path, what, names):
    path = tmp_path / "f.npz"
    np.savez(path, X=np.ones((3, 2)), **{f"{what}_names": [*names]})
    with pytest.raises(InputError) as refused:
        read(path)
    assert str(refused.value) == (
        f"Expected {what} names that differ, got {names[0]!r} twice in {what}_names of {path}. "
        f"Rename or drop one of the {what}s."
    )


@pytest.mark.parametrize("extension", ["npz", "npy"])
def test_unreadable_numpy_files(tmp_path, extension):
    path = tmp_path / f"f.{extension}"
    path.write_bytes(b"not an array at all")
    with pytest.raises(
        InputError,
        match=rf"a readable {extension} file, got .*f.{extension} \(it is no NumPy file\). Check "
        r"that it is",
    ):
        read(path)
    save = np.savez_compressed if extension == "npz" else np.save
    save(path, np.random.default_rng(0).normal(size=(50, 50)))
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(InputError, match=f"a readable {extension} file"):
        read(path)
    path.write_bytes(b"")
    with pytest.raises(InputError, match="the empty file"):
        read(path)


def test_wrong_containers_and_dimensions(tmp_path):
    np.save(tmp_path / "v.npy", np.ones(3))
    with pytest.raises(
        InputError, match=r"got 1 dimensions, shape \(3,\), in .*v.npy. Reshape"
    ):
        read(tmp_path / "v.npy")
    (tmp_path / "v.npy").rename(tmp_path / "v.npz")
    with pytest.raises(InputError, match=r"holds a single array: rename it to .npy"):
        read(tmp_path / "v.npz")
    np.savez(tmp_path / "w.npz", a=np.ones((2, 2)))
    (tmp_path / "w.npz").rename(tmp_path / "w.npy")
    with pytest.raises(InputError, match=r"several arrays: rename it to .npz"):
        read(tmp_path / "w.npy")
    np.save(tmp_path / "i.npy", np.ones((2, 2)))
    with pytest.raises(
        InputError, match=r"index only for csv and parquet files, got index='id' for .*i.npy"
    ):
        read(tmp_path / "i.npy", index="id")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="a system without named pipes")
def test_streams_are_refused_before_they_are_waited_for(tmp_path):
    pipe = tmp_path / "rows.csv"
    os.mkfifo(pipe)
    for path, got in {"-": "-, standard input", pipe: "rows.csv, a pipe or a device"}.items():
        text = (
            f"which is read more than once, got .*{got}. Write it to a file first: ... > data"
        )
        with pytest.raises(InputError, match=text):
            read(path)


def test_missing_and_unknown_files(tmp_path):
    with pytest.raises(
        InputError,
        match=r"a file or folder, got .*none.csv, which does not exist. Check the path",
    ):
        read(tmp_path / "none.csv")
    for name, text in {
        "t.xls": "t.xls with extension '.xls'",
        "plain": "plain without extension",
        "t.zarr": "t.zarr with extension '.zarr'. Name the store, which is a folder",
    }.items():
        (tmp_path / name).write_text("x")
        with pytest.raises(
            InputError,
            match=f"a .zarr store, one of {KNOWN} or a folder of them, got .*{text}",
        ):
            read(tmp_path / name)


def test_folder_joined_by_row_names(csv, tmp_path):
    csv("id,g1,g2\ns1,1,2\ns2,3,4\n", "rna.csv")
    csv("id,g1\ns3,30\ns1,10\n", "protein.csv")
    csv("a note\n", "README.txt")
    table = read(tmp_path)
    assert table.views == {"protein": slice(0, 1), "rna": slice(1, 3)}
    assert table.row_names == ["s3", "s1", "s2"]
    assert table.column_names == ["protein:g1", "rna:g1", "rna:g2"]
    np.testing.assert_array_equal(table.X, [[30, NAN, NAN], [10, 1, 2], [NAN, 3, 4]])


def test_folder_without_row_names(csv, tmp_path):
    csv("1,2\n3,4\n", "b.csv")
    np.save(tmp_path / "a.npy", np.array([[5.0], [6.0]]))
    table = read(tmp_path)
    assert (table.views, table.row_names) == ({"a": slice(0, 1), "b": slice(1, 3)}, None)
    assert table.X.tolist() == [[5, 1, 2], [6, 3, 4]]
    csv("u,v\n1,2\n3,4\n", "b.csv")
    assert read(tmp_path).column_names == ["a_0", "u", "v"]


@pytest.mark.parametrize(
    ("files", "text"),
    [
        ({}, f"files {KNOWN} in .*, got none. Put one file per view there"),
        (
            {"a.csv": "1\n2\n", "b.csv": "1\n2\n3\n"},
            "the same number of rows .*, got 'a': 2, 'b': 3. Name the rows",
        ),
        (
            {"a.csv": "p,1\nq,2\n", "b.csv": "1\n2\n"},
            "row names in every file of .*, as in some, got none for 'b'",
        ),
        (
            {"a.csv": "p,1\np,2\n", "b.csv": "p,1\n"},
            "row names that differ, got 'p' twice in .*a.csv",
        ),
        ({"a.csv": "1\n", "a.CSV": "1\n"}, "one file per view, got two files for view 'a'"),
        ({"a.csv": "1\n", "b.zarr": ""}, r"one file per view in .*, got the store .*b\.zarr"),
        (
            {"part-0.csv": "a\n1\n2\n", "part-1.csv": "a\n3\n"},
            "views of the same rows, got 2 rows in 'part-0', 1 rows in 'part-1'. Write rows that",
        ),
    ],
)
def test_folders_that_cannot_be_used(csv, tmp_path, files, text):
    for name, content in files.items():
        csv(content, name)
    with pytest.raises(InputError, match=text):
        read(tmp_path)


def test_views_that_are_called_as_parts_of_a_table_are_warned_of(csv, tmp_path):
    csv("a,b\n1.5,2\n", "part-0.csv")
    csv("a,b\n3.5,4\n", "part-1.csv")
    with pytest.warns(
        DataWarning, match="'part-0', 'part-1' of .* are read as views, each with"
    ):
        table = read(tmp_path)
    assert table.X.tolist() == [[1.5, 2, 3.5, 4]]
    csv("c,d\n3.5,4\n", "part-1.csv")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read(tmp_path)


def test_folder_with_several_arrays_in_a_file(tmp_path):
    np.savez(tmp_path / "a.npz", u=np.ones((2, 1)), v=np.ones((2, 1)))
    with pytest.raises(
        InputError, match=r"one array per file of a folder, got 2 arrays in .*a.npz"
    ):
        read(tmp_path)


def test_a_file_without_permission_and_a_folder_called_as_one_are_named(tmp_path, monkeypatch):
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("x,y\n1,2\n3,4\n")
    monkeypatch.setattr("os.access", lambda path, _: path.name != "b.csv")
    with pytest.raises(InputError, match=r"a file to read, got .*b\.csv without.*chmod u\+r"):
        read(tmp_path)
    (tmp_path / "b.csv").unlink()
    (tmp_path / "b.csv").mkdir()
    with pytest.raises(InputError, match=r"a \.csv file, got the folder .*b\.csv"):
        read(tmp_path)
