"""Tables with text in files, for ``--likelihood auto``."""

import numpy as np
import pytest

import bochner as bo
from helpers.cli import refused, replied, run

pytestmark = pytest.mark.usefixtures("no_pictures", "two_folds")


def test_a_mixed_table_is_fitted_and_completed(tmp_path):
    """Text and whole numbers go in and come back; rows may be named."""
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    rows = [f"p{i},{i % 5},{('low', 'high')[i % 2]},{rng.normal():.3f}" for i in range(24)]
    rows[3], rows[4] = "p3,,high,0.5", "p4,4,,0.25"
    data = tmp_path / "people.csv"
    data.write_text("\n".join(["id,visits,risk,weight", *rows]))
    small = ("n_components=1", "n_init=1", "max_iter=3", "n_frequencies=8", "init=pca")
    settings = [part for name in small for part in ("--set", name)]
    folder, full, std = tmp_path / "run", tmp_path / "full.csv", tmp_path / "std.csv"
    replied(
        "fit",
        data,
        "--likelihood",
        "auto",
        "--out",
        folder,
        "--seed",
        0,
        *settings,
        "--report",
    )
    assert (folder / "report.html").exists()
    replied("impute", folder, data, "--out", full, "--std", std)
    before, after = (pandas.read_csv(path, index_col="id") for path in (data, full))
    assert after["visits"].dtype.kind == "i"
    assert after.loc["p4", "risk"] in ("low", "high")
    assert after.drop(index=["p3", "p4"]).equals(
        before.drop(index=["p3", "p4"]).astype(after.dtypes)
    )
    assert (pandas.read_csv(std, index_col="id").loc[["p3", "p4"]] > 0).sum().sum() == 2
    # views of which each has other figures stand in one table for people
    shown = run("info", folder)
    assert shown.exit_code == 0, shown.stderr
    assert "numbers" in shown.stdout
    replied("transform", folder, data, "--out", tmp_path / "z.csv")
    replied("calibrate", folder, data, "--seed", 0, "--n-draws", 20)
    text = refused("impute", folder, data, "--out", tmp_path / "full.npy")
    assert "an output file .csv for a mixed table" in text
    data.write_text(data.read_text().replace("low", "medium"))
    text = refused("transform", folder, data, "--out", tmp_path / "z2.csv")
    assert "values of training in column 'risk' ('high', 'low'), got 'medium'" in text


def test_numbers_in_different_units_are_a_mixed_table(tmp_path):
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(100)
    years = pandas.DataFrame({"year": rng.integers(1970, 2018, 40), "income": 0, "rank": 0})
    years["income"] = 1000 * (years["year"] - 1900) + rng.integers(0, 99, 40)
    years["rank"] = rng.integers(1, 5, 40)
    years.loc[3, "income"] = np.nan
    data = tmp_path / "years.csv"
    years.convert_dtypes().to_csv(data, index=False)
    small = ("n_components=1", "n_init=1", "max_iter=3", "n_frequencies=8", "init=pca")
    settings = [part for name in small for part in ("--set", name)]
    folder, full = tmp_path / "run", tmp_path / "full.csv"
    replied("fit", data, "--likelihood", "auto", "--out", folder, *settings)
    assert bo.load(folder / "model.bochner").likelihood_ == {"numbers": "gaussian"}
    replied("impute", folder, data, "--out", full)
    completed = pandas.read_csv(full)
    assert (completed.dtypes == "int64").all()
    assert completed.drop(index=3).equals(years.drop(index=3).astype("int64"))
    counts = tmp_path / "counts.csv"
    pandas.DataFrame(rng.poisson(2.0, (40, 3)), columns=list("abc")).to_csv(
        counts, index=False
    )
    replied("fit", counts, "--likelihood", "auto", "--out", tmp_path / "run2", *settings)
    assert list(bo.load(tmp_path / "run2" / "model.bochner").likelihood_) == ["x"]


def test_text_that_is_no_category_is_refused_with_the_option_that_helps(tmp_path):
    pytest.importorskip("pandas")
    lines = "\n".join(
        f"{i % 7},2024-01-{i + 1:02d},{('low', 'high')[i % 2]}" for i in range(30)
    )
    data = tmp_path / "dates.csv"
    data.write_text(f"size,date,risk\n{lines}\n")
    text = refused("fit", data, "--likelihood", "auto", "--out", tmp_path / "run")
    assert "30 different texts in 30 rows of column 'date'" in text
    assert "--drop date leaves it out, --index date takes it for the names of rows" in text


def test_all_columns_of_text_that_are_no_categories_are_said_at_once(tmp_path):
    pytest.importorskip("pandas")
    lines = "\n".join(f"{i % 7},2024-01-{i + 1:02d},note {i},u{i}" for i in range(30))
    data = tmp_path / "texts.csv"
    data.write_text(f"size,date,note,user\n{lines}\n")
    text = refused("fit", data, "--likelihood", "auto", "--out", tmp_path / "run")
    assert "of column 'date'" in text
    assert "and the like in 'note', 'user'. --drop date,note,user leaves them out" in text


@pytest.mark.parametrize("how", [[], ["--likelihood", "auto"], ["--index", "id"]])
def test_a_parquet_file_without_columns_is_refused(tmp_path, how):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    path = tmp_path / "none.parquet"
    pandas.DataFrame(index=range(5)).to_parquet(path)
    assert refused("fit", path, "--out", tmp_path / "o", *how) == (
        f"Expected columns of data, got none in {path}. Add columns, or save the table again."
    )


@pytest.mark.parametrize("others", [["u", "v"], ["1", "2"]])
def test_numbers_with_zeros_in_front_are_labels_that_keep_them(tmp_path, others):
    """Beside texts, and beside numbers alone."""
    source = np.random.default_rng(3)
    codes = ["01234", "09876", "10005"]
    rows = [
        [codes[i % 3], others[i % 2], f"{value:.3f}"]
        for i, value in enumerate(source.normal(size=30))
    ]
    text = "\n".join(map(",".join, [["zip", "kind", "x"], *rows]))
    (tmp_path / "m.csv").write_text(text)
    run = tmp_path / "run"
    few = ["max_iter=3", "n_frequencies=8", "init=pca"]
    auto = ["--likelihood", "auto", "--seed", 0, *(w for word in few for w in ("--set", word))]
    replied("fit", tmp_path / "m.csv", "--out", run, *auto)
    holes = [["" if i == 4 else row[0], *row[1:]] for i, row in enumerate(rows)]
    (tmp_path / "h.csv").write_text("\n".join(map(",".join, [["zip", "kind", "x"], *holes])))
    replied("impute", run, tmp_path / "h.csv", "--out", tmp_path / "full.csv")
    full = [line.split(",") for line in (tmp_path / "full.csv").read_text().splitlines()]
    assert full[0] == ["zip", "kind", "x"]
    assert [row[0] for i, row in enumerate(full[1:]) if i != 4] == [
        row[0] for i, row in enumerate(rows) if i != 4
    ]
    assert full[5][0] in codes
    assert [float(row[2]) for row in full[1:]] == [float(row[2]) for row in rows]


def test_codes_that_are_no_categories_are_refused(tmp_path):
    lines = [f"0{i}3,{i % 2},{i / 7:.3f}" for i in range(40)]
    (tmp_path / "m.csv").write_text("\n".join(["code,kind,x", *lines]))
    said = refused("fit", tmp_path / "m.csv", "--likelihood", "auto", "--out", tmp_path / "o")
    assert said.endswith("names of rows; cells without zeros in front are numbers.")


def test_decimal_commas_are_named(tmp_path):
    pytest.importorskip("pandas")
    lines = "\n".join(f"{i};{i},5;{('low', 'high')[i % 2]}" for i in range(30))
    (tmp_path / "comma.csv").write_text(f"age;weight;risk\n{lines}\n")
    text = refused(
        "fit", tmp_path / "comma.csv", "--likelihood", "auto", "--out", tmp_path / "run"
    )
    assert "Expected numbers with decimal points, got '0,5' in the column 'weight'" in text
    assert "Add --decimal ," in text
    small = ("n_components=1", "n_init=1", "max_iter=2", "n_frequencies=8", "init=pca")
    settings = [part for name in small for part in ("--set", name)]
    table, comma = tmp_path / "comma.csv", ("--decimal", ",")
    auto = ("--likelihood", "auto", "--out", tmp_path / "run")
    replied("fit", table, *comma, *auto, *settings)
    table.write_text(table.read_text().replace("3;3,5", "3;"))
    replied("impute", tmp_path / "run", table, *comma, "--out", tmp_path / "full.csv")
    assert (tmp_path / "full.csv").read_text().splitlines()[2] == "1,1.5,high"


@pytest.mark.parametrize(
    ("words", "do"),
    [
        (["--n-components", "3", "--out", "run"], "Write: --set n_components=3"),
        (["--max-iter=20", "--out", "run"], "Write: --set max_iter=20"),
        (["--seed", "1"], "Write: bochner fit data.csv --seed 1 --out run"),
    ],
)
def test_options_that_people_try_first_say_what_to_type(words, do):
    done = run("fit", "data.csv", *words)
    assert done.exit_code == 2
    assert do in " ".join(done.stderr.replace("│", " ").split())


def test_a_mixed_table_as_a_spreadsheet_writes_it(tmp_path):
    """Whole numbers that name rows come back; empty lines and columns are left out."""
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    rows = [f"{100 + i};{rng.normal():.3f};{('low', 'high')[i % 2]};" for i in range(24)]
    data = tmp_path / "people.csv"
    data.write_text(
        "\n".join(["customer_id;weight;risk;", *rows[:9], ";;;", *rows[9:], ";;;"])
    )
    small = ("n_components=1", "n_init=1", "max_iter=3", "n_frequencies=8", "init=pca")
    settings = [part for name in small for part in ("--set", name)]
    folder, full = tmp_path / "run", tmp_path / "full.csv"
    replied("fit", data, "--likelihood", "auto", "--out", folder, "--seed", 0, *settings)
    replied("impute", folder, data, "--out", full)
    after = pandas.read_csv(full)
    assert after.columns.tolist() == ["customer_id", "weight", "risk"]
    assert after["customer_id"].tolist() == [100 + i for i in range(24)]
    placed = pandas.read_csv(folder / "embedding.csv", index_col="customer_id")
    assert placed.index.tolist() == [100 + i for i in range(24)]


SETTINGS = [
    part
    for name in ("n_components=1", "n_init=1", "max_iter=3", "n_frequencies=8", "init=pca")
    for part in ("--set", name)
]


def _table(path, n=24, header="length,width,site", key=False, end=""):
    rng = np.random.default_rng(101)
    lines = [
        f"{rng.normal()},{rng.normal():.3f},{('north', 'south')[i % 2]}{end}" for i in range(n)
    ]
    if key:
        header = f"id,{header}"
        lines = [f"{i:03d},{line}" for i, line in enumerate(lines)]
    path.write_text("\n".join([header, *lines]) if header else "\n".join(lines))
    return lines


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A model of a table with row names, its folder and its file."""
    pytest.importorskip("pandas")
    folder = tmp_path_factory.mktemp("mixed")
    _table(folder / "t.csv", key=True)
    fit = ("fit", folder / "t.csv", "--likelihood", "auto", "--out", folder / "run")
    replied(*fit, "--seed", 0, *SETTINGS)
    return folder


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (
            ["0.1,0.2,north,", "0.3,0.4,south,"],
            "Expected 3 cells in every line, as in the first",
        ),
        (["0.1,0.2,north", "0.3,0.4"], "got 2 in line 3"),
        (["0.1,0.2,north", "0.3,0.4,east"], "values of training in column 'site'"),
    ],
)
def test_lines_that_are_longer_or_shorter_are_refused(fitted, tmp_path, lines, text):
    """Neither shifts columns nor becomes holes."""
    rows = tmp_path / "rows.csv"
    rows.write_text("\n".join(["length,width,site", *lines]))
    assert text in refused("transform", fitted / "run", rows, "--out", tmp_path / "z.csv")
    rows.write_text("\n".join(["length,width,site", *lines, *(lines * 9)]))
    if "cells" in text or "line" in text:
        fit = ("fit", rows, "--likelihood", "auto", "--out", tmp_path / "run")
        assert "cells in every line" in refused(*fit, *SETTINGS)


def test_what_was_observed_keeps_its_digits_and_names(fitted, tmp_path):
    rows = (fitted / "t.csv").read_text().splitlines()
    cells = rows[3].split(",")
    rows[3] = ",".join([cells[0], "", *cells[2:]])
    data, full = tmp_path / "t.csv", tmp_path / "full.csv"
    data.write_text("\n".join(rows))
    replied("impute", fitted / "run", data, "--out", full)
    written = full.read_text().splitlines()
    assert written[0] == rows[0]
    for number, (before, after) in enumerate(zip(rows[1:], written[1:], strict=True), 1):
        told = [cell for cell in before.split(",") if cell]
        kept = [
            cell for cell in after.split(",") if number != 3 or cell != after.split(",")[1]
        ]
        assert kept[0] == told[0]
        assert [float(cell) for cell in kept[1:-1]] == [float(cell) for cell in told[1:-1]]
        assert kept[1] == told[1]
    replied("transform", fitted / "run", data, "--out", tmp_path / "z.csv")
    assert (tmp_path / "z.csv").read_text().splitlines()[1].startswith("000,")


def test_holes_of_fractions_are_filled_with_fractions(fitted, tmp_path):
    """Whatever the other rows of the file hold; an empty column of labels is filled with labels."""
    rows, full = tmp_path / "rows.csv", tmp_path / "full.csv"
    rows.write_text("id,length,width,site\n1,,2,north\n2,1,,\n")
    replied("impute", fitted / "run", rows, "--index", "id", "--out", full)
    lines = [line.split(",") for line in full.read_text().splitlines()]
    assert not float(lines[1][1]).is_integer()
    assert not float(lines[2][2]).is_integer()
    rows.write_text("id,length,width,site\n1,0.5,2,\n")
    replied("impute", fitted / "run", rows, "--index", "id", "--out", full, "--force")
    assert full.read_text().splitlines()[1].split(",")[3] in ("north", "south")


def test_mixed_rows_are_drawn(fitted, tmp_path):
    out = tmp_path / "drawn.csv"
    replied("sample", fitted / "run", "--n", 3, "--out", out)
    lines = out.read_text().splitlines()
    assert lines[0] == "length,width,site"
    assert {line.split(",")[2] for line in lines[1:]} <= {"north", "south"}
    text = refused("sample", fitted / "run", "--n", 3, "--out", tmp_path / "drawn.npy")
    assert "an output file .csv for a mixed table" in text


def test_a_mixed_table_without_a_header_keeps_its_first_row(tmp_path):
    pytest.importorskip("pandas")
    data = tmp_path / "t.csv"
    _table(data, header=None)
    for number, words in enumerate([(), ("--no-header",)]):
        folder = tmp_path / f"run{number}"
        fit = ("fit", data, *words, "--likelihood", "auto", "--out", folder)
        replied(*fit, *SETTINGS)
        model = bo.load(folder / "model.bochner")
        assert len(model.embedding_) == 24
        assert list(model.feature_names_in_) == ["x0", "x1", "x2"]


def test_cells_of_mixed_tables_are_read_as_those_of_others(tmp_path):
    """Spaces do not count; a stray word among numbers is named; headers differ."""
    pytest.importorskip("pandas")
    data = tmp_path / "t.csv"
    lines = _table(data)
    spaced = [line.replace(",", ", ") for line in lines]
    spaced[2] = "1.5, NA, north"
    data.write_text("\n".join(["length, width, site", *spaced]))
    fit = ("fit", data, "--likelihood", "auto", "--out")
    replied(*fit, tmp_path / "run", *SETTINGS)
    assert len(bo.load(tmp_path / "run" / "model.bochner").views_["numbers"]) == 2
    stray = [f"{i % 10},{line}" for i, line in enumerate(lines)]
    stray[5] = "?" + stray[5][1:]
    data.write_text("\n".join(["score,length,width,site", *stray]))
    reply = run(*fit, tmp_path / "stray", *SETTINGS)
    assert reply.exit_code == 0
    said = " ".join(reply.stderr.split())
    assert "The column 'score' holds categories, because '?' in it are no numbers" in said
    data.write_text("\n".join(["site,site,length", *(f"a,b,{i}" for i in range(9))]))
    assert "column names that differ" in refused(*fit, tmp_path / "twice", *SETTINGS)
    data.write_text("\n".join(["a,b,c", *(f'"3,{i:03d}",{i}.5,x{i % 2}' for i in range(30))]))
    text = refused(*fit, tmp_path / "thousands", *SETTINGS)
    assert "Write 1234.5, without separators" in text


def test_a_first_column_that_an_option_names_is_no_key(tmp_path):
    pytest.importorskip("pandas")
    rng = np.random.default_rng(102)
    data = tmp_path / "t.csv"
    rows = [f"{'pq'[i % 2]},{rng.normal():.3f},{rng.normal():.3f}" for i in range(24)]
    data.write_text("\n".join(["batch,a,b", *rows]))
    for number, words in enumerate(
        [("--batch", "batch"), ("--drop", "batch"), ("--columns", "a,b")]
    ):
        folder = tmp_path / f"run{number}"
        replied("fit", data, *words, "--out", folder, *SETTINGS)
        model = bo.load(folder / "model.bochner")
        assert list(model.feature_names_in_) == ["a", "b"]


def test_country_codes_name_rows(tmp_path):
    """Namibia's is NA."""
    pytest.importorskip("pandas")
    data = tmp_path / "t.csv"
    lines = _table(data)
    codes = ["NA", *(f"C{i}" for i in range(23))]
    rows = [f"{code},{line}" for code, line in zip(codes, lines, strict=True)]
    data.write_text("\n".join(["country,length,width,site", *rows]))
    replied("fit", data, "--likelihood", "auto", "--out", tmp_path / "run", *SETTINGS)
    assert (tmp_path / "run" / "embedding.csv").read_text().splitlines()[1].startswith("NA,")


@pytest.mark.parametrize("names", ["450,500", "2001,2002"])
def test_numbers_may_name_columns_beside_labels(tmp_path, names):
    pytest.importorskip("pandas")
    data = tmp_path / "t.csv"
    lines = _table(data)
    rows = [",".join(reversed(line.split(","))) for line in lines]
    data.write_text("\n".join([f"species,{names}", *rows]))
    replied("fit", data, "--likelihood", "auto", "--out", tmp_path / "run", *SETTINGS)
    model = bo.load(tmp_path / "run" / "model.bochner")
    assert list(model.feature_names_in_) == ["species", *names.split(",")]
    assert len(model.embedding_) == 24
    # a model knows its columns, whatever is below them
    data.write_text("\n".join([f"species,{names}", "south,1,2", "north,3,4"]))
    assert (
        replied("transform", tmp_path / "run", data, "--out", tmp_path / "z.npy")["rows"] == 2
    )


def test_whole_numbers_as_pandas_writes_them_beside_holes(tmp_path):
    """3.0 is 3, and its column is completed with whole numbers."""
    pytest.importorskip("pandas")
    data, full = tmp_path / "t.csv", tmp_path / "full.csv"
    lines = [f"{i % 7}.0,{line}" for i, line in enumerate(_table(data))]
    lines[4] = lines[4][lines[4].index(",") :]
    data.write_text("\n".join(["visits,length,width,site", *lines]))
    replied("fit", data, "--likelihood", "auto", "--out", tmp_path / "run", *SETTINGS)
    replied("impute", tmp_path / "run", data, "--out", full)
    assert all(line.split(",")[0].isdecimal() for line in full.read_text().splitlines()[1:])


def test_files_of_a_folder_are_joined_by_their_first_column_whatever_is_left_out(tmp_path):
    folder = tmp_path / "views"
    folder.mkdir()
    names = [f"s{i}" for i in range(20)]
    rng = np.random.default_rng(103)
    for view, order in (("a", names), ("b", names[::-1])):
        rows = [f"{name},{rng.normal():.3f},{rng.normal():.3f}" for name in order]
        (folder / f"{view}.csv").write_text("\n".join([f"name,{view}1,{view}2", *rows]))
    text = refused("fit", folder, "--drop", "name", "--out", tmp_path / "run", *SETTINGS)
    assert "no 'name'" in text
    repeated = (folder / "b.csv").read_text().replace("s3,", "s4,")
    (folder / "b.csv").write_text(repeated)
    text = refused("fit", folder, "--columns", "a1,b1", "--out", tmp_path / "run", *SETTINGS)
    assert "row names that differ, got 's4' twice" in text


def test_values_are_quoted_as_people_write_them(tmp_path):
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    table = pandas.DataFrame({"a": rng.normal(size=20), "yes": rng.random(20) < 0.5})
    table["colour"] = rng.choice(["red", "blue"], 20)
    table.to_csv(tmp_path / "x.csv", index=False)
    small = ("n_components=1", "n_init=1", "max_iter=3", "n_frequencies=8", "init=pca")
    words = ["--likelihood", "auto", *(part for name in small for part in ("--set", name))]
    replied("fit", tmp_path / "x.csv", "--out", tmp_path / "run", *words)
    table.assign(yes=2).to_csv(tmp_path / "y.csv", index=False)
    said = refused(
        "transform", tmp_path / "run", tmp_path / "y.csv", "--out", tmp_path / "z.csv"
    )
    assert "got 2 in row 0" in said
    # what numbers cannot be, in a file of types as in one of text
    table.to_parquet(tmp_path / "x.parquet", index=False)
    assert "--likelihood auto fits categories" in refused("info", tmp_path / "x.parquet")
    # dates and lists are no categories: what would be refused is not offered
    for values in (pandas.date_range("2020", periods=20), [[1, 2]] * 20):
        table.assign(colour=values).to_parquet(tmp_path / "x.parquet", index=False)
        text = refused("info", tmp_path / "x.parquet")
        assert "--drop colour leaves it out, and --index colour takes it" in text
        assert "auto" not in text
    # infinite cells are refused without a warning of NumPy's
    table = pandas.DataFrame({"a": [np.inf, *range(19)], "b": rng.normal(size=20)})
    table.to_csv(tmp_path / "inf.csv", index=False)
    done = run("fit", tmp_path / "inf.csv", "--out", tmp_path / "no", *words)
    assert "got inf in view" in done.stderr
    assert "invalid value" not in done.stderr
