"""Tables with text in files, for ``--likelihood auto``."""

import numpy as np
import pytest

import bochner as bo
from helpers.cli import refused, replied, run


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
    replied("calibrate", folder, data, "--seed", 0)
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
