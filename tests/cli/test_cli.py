"""The command line as a user meets it: commands, files, exit codes, messages."""

import csv
import json
import os
import re
import subprocess
import sys
import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import bochner as bo
from bochner.cli.align import read_rows, rows_on_disk
from bochner.cli.parse import parse_by_view, parse_settings, parse_views
from bochner.errors import InputError
from bochner.training.trainer import Trainer
from helpers.cli import CHAINS, refused, replied, run, write

SMALL = [
    "--set",
    "n_components=1",
    "--set",
    "n_frequencies=8",
    "--set",
    "init=pca",
    "--set",
    "max_iter=12",
]
GENES, PROTEINS = ["g0", "g1", "g2", "g3"], ["cd3", "cd4"]


def cells(path):
    return list(csv.reader(path.open()))


@pytest.fixture(scope="module")
def matrix():
    source = np.random.default_rng(0)
    z = source.normal(size=(24, 1))
    return np.sin(z + np.arange(6)) + 0.05 * source.normal(size=(24, 6))


@pytest.fixture(scope="module")
def rows():
    return [f"r{i}" for i in range(24)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, matrix, rows):
    """Two files; the rows of the second are fewer and in another order, and one cell is empty."""
    path = tmp_path_factory.mktemp("data")
    incomplete = matrix.copy()
    incomplete[3, 1] = np.nan
    write(path / "genes.csv", GENES, rows, incomplete[:, :4])
    write(path / "proteins.csv", PROTEINS, rows[:3:-1], matrix[:3:-1, 4:])
    return path


@pytest.fixture(scope="module")
def fitted(tmp_path_factory, folder):
    out = tmp_path_factory.mktemp("fitted") / "run"
    return out, replied("fit", folder, "--out", out, "--index", "cell", "--seed", 1, *SMALL)


# -- what works
# ------------------------------------------------------------------------------------------------


def test_fit_writes_model_embedding_and_pictures(fitted, rows):
    out, reply = fitted
    assert {"model", "elbo", "elbo_se", "n_iter", "converged", "seconds", "files"} <= set(
        reply
    )
    assert (reply["model"], reply["n_iter"], reply["converged"], reply["seed"]) == (
        "ng-mvlvm",
        12,
        False,
        1,
    )
    assert {path.name for path in out.iterdir()} == {
        "model.bochner",
        "embedding.csv",
        "bound.png",
        "latent.png",
    }
    table = cells(out / "embedding.csv")
    assert table[0] == ["cell", "z0", "z0_std"]
    assert [row[0] for row in table[1:]] == rows
    model = bo.load(out / "model.bochner")
    np.testing.assert_array_equal([float(row[1]) for row in table[1:]], model.embedding_[:, 0])
    assert list(model.feature_names_in_) == [*GENES, *PROTEINS]
    assert {view: positions.tolist() for view, positions in model.views_.items()} == {
        "genes": [0, 1, 2, 3],
        "proteins": [4, 5],
    }
    assert model.get_params()["checkpoint"] is None


def test_transform_gives_what_the_estimator_gives(fitted, folder, tmp_path, matrix):
    out, _ = fitted
    reply = replied("transform", out, folder, "--out", tmp_path / "z.npz", "--index", "cell")
    assert (reply["rows"], reply["file"]) == (24, str(tmp_path / "z.npz"))
    arrays = np.load(tmp_path / "z.npz")
    np.testing.assert_array_equal(arrays["mean"], bo.load(out / "model.bochner").embedding_)
    assert arrays["row_names"].tolist() == [f"r{i}" for i in range(24)]
    replied(
        "transform",
        out / "model.bochner",
        folder,
        "--out",
        tmp_path / "z.npy",
        "--index",
        "cell",
    )
    np.testing.assert_array_equal(np.load(tmp_path / "z.npy")[:, :1], arrays["mean"])


def test_transform_writes_the_limits_of_intervals(fitted, tmp_path, matrix):
    data, to = tmp_path / "x.npy", tmp_path / "z.csv"
    np.save(data, matrix)
    replied("transform", fitted[0], data, "--out", to, "--interval", "0.8")
    table = cells(to)
    assert table[0][-4:] == ["z0", "z0_std", "z0_low", "z0_high"]
    model = bo.load(fitted[0] / "model.bochner")
    expected = np.hstack(model.transform(matrix, return_std=True, interval=0.8))
    shown = np.array([[float(value) for value in row[-4:]] for row in table[1:]])
    np.testing.assert_allclose(shown, expected, rtol=1e-6)
    result = refused(
        "transform", fitted[0], data, "--out", tmp_path / "n.csv", "--interval", "2"
    )
    assert "interval" in result
    assert not (tmp_path / "n.csv").exists()


def test_impute_fills_a_view_whose_file_is_not_there(fitted, folder, tmp_path, rows, matrix):
    out, _ = fitted
    genes = tmp_path / "new"
    genes.mkdir()
    (genes / "genes.csv").write_text((folder / "genes.csv").read_text())
    full, std = tmp_path / "full.csv", tmp_path / "std.csv"
    reply = replied("impute", out, genes, "--out", full, "--std", std, "--index", "cell")
    assert (reply["rows"], reply["std_file"]) == (24, str(std))
    table = cells(full)
    assert table[0] == ["cell", *GENES, *PROTEINS]
    assert [row[0] for row in table[1:]] == rows
    X, S = (
        np.array([row[1:] for row in cells(path)[1:]], dtype=float) for path in (full, std)
    )
    observed = np.ones((24, 6), dtype=bool)
    observed[:, 4:] = observed[3, 1] = False
    np.testing.assert_array_equal(X[observed], matrix[observed])
    np.testing.assert_array_equal(S > 0, ~observed)


def test_sample_draws_rows_in_the_columns_of_the_data(fitted, tmp_path):
    out, _ = fitted
    drawn = tmp_path / "drawn.csv"
    assert replied("sample", out, "--n", 7, "--seed", 3, "--out", drawn)["rows"] == 7
    table = cells(drawn)
    assert table[0] == [*GENES, *PROTEINS]
    expected = bo.load(out / "model.bochner").sample(7, random_state=3)
    np.testing.assert_array_equal(np.array(table[1:], dtype=expected.dtype), expected)
    assert "a new output file" in refused("sample", out, "--out", drawn)
    assert run("sample", out, "--n", 0, "--out", tmp_path / "none.csv").exit_code == 2


def test_outputs_read_as_their_data_do(tmp_path, matrix):
    """Rows named by numbers under a name stay rows of that name from file to file."""
    source, out, full = tmp_path / "data.csv", tmp_path / "run", tmp_path / "full.csv"
    ids = [str(7_000_100 + i) for i in range(24)]
    write(source, [f"g{j}" for j in range(6)], ids, matrix, key="id")
    key = ("--index", "id")
    replied("fit", source, "--out", out, *key, "--seed", 1, *SMALL)
    assert cells(out / "embedding.csv")[0][0] == "id"
    replied("impute", out, source, "--out", full, *key)
    replied("transform", out, full, "--out", tmp_path / "z.csv", *key)
    assert [row[0] for row in cells(tmp_path / "z.csv")] == ["id", *ids]
    page = tmp_path / "page.html"
    replied("report", out, "--out", page)
    assert ids[7] in page.read_text()


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize("kind", ["csv of the view", "npz of the view", "npz of both"])
def test_rows_reach_the_model_from_any_kind_of_file(fitted, tmp_path, matrix, rows, kind):
    path = tmp_path / ("new.csv" if kind.startswith("csv") else "new.npz")
    if kind == "csv of the view":
        write(path, PROTEINS, rows, matrix[:, 4:])
    elif kind == "npz of the view":
        np.savez(path, proteins=matrix[:, 4:])
    else:
        np.savez(path, proteins=matrix[:, 4:], genes=np.full((24, 4), np.nan))
    replied("transform", fitted[0], path, "--out", tmp_path / "z.npy")
    expected = np.hstack([np.full((24, 4), np.nan), matrix[:, 4:]])
    result = np.load(tmp_path / "z.npy")
    np.testing.assert_array_equal(
        result[:, 0], bo.load(fitted[0] / "model.bochner").transform(expected)[:, 0]
    )


def test_calibrate_says_whether_intervals_hold(fitted, folder, tmp_path, matrix):
    out, _ = fitted
    picture = tmp_path / "c.png"
    reply = replied(
        "calibrate",
        out,
        folder,
        "--index",
        "cell",
        "--hide",
        "view",
        "--seed",
        3,
        "--out",
        picture,
    )
    model = bo.load(out / "model.bochner")
    X = read_rows(model, folder, "cell").X
    expected = bo.calibration(model, X, hide="view", random_state=3).to_json()
    assert reply == json.loads(
        json.dumps({**expected, "file": str(picture)}).replace("NaN", "null")
    )
    assert picture.read_bytes()[:4] == b"\x89PNG"
    shown = run("calibrate", out, folder, "--index", "cell", "--fraction", "0.3")
    assert shown.exit_code == 0
    assert "share of the truth in central intervals" in shown.stdout
    assert "Example: bochner calibrate" in run("calibrate", "--help").stdout


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            ("--hide", "rna"),
            "Expected hide= 'entries', 'view' or one of ['genes', 'proteins'], got 'rna'",
        ),
        (("--fraction", "2"), "Expected fraction between 0 and 1, got 2.0"),
        (
            ("--out", "c.pdf"),
            "Expected an output file .png, got c.pdf with extension '.pdf'. Rename it.",
        ),
    ],
)
def test_what_calibrate_cannot_do_is_bad_input(fitted, folder, options, text):
    assert text in refused("calibrate", fitted[0], folder, "--index", "cell", *options)


@pytest.mark.usefixtures("rough_estimates")
def test_info_of_a_model_and_of_data(fitted, folder):
    model = replied("info", fitted[0])
    assert (model["model"], model["rows"], model["columns"], model["n_components"]) == (
        "NGMVLVM",
        24,
        6,
        1,
    )
    assert model["views"]["proteins"]["columns"] == 2
    assert model["collapse"]["advice"]
    assert model["parameters"]["max_iter"] == 12
    data = replied("info", folder, "--index", "cell", "--set", "n_frequencies=8")
    assert (data["rows"], data["columns"], data["row_names"]) == (24, 6, True)
    assert data["views"]["proteins"] == {
        "columns": 2,
        "missing_share": 4 / 24,
        "rows_without": 4,
    }
    assert data["missing_share"] == pytest.approx((8 + 1) / 144)
    assert "genes" in run("info", fitted[0]).stdout


@pytest.mark.usefixtures("rough_estimates")
def test_info_times_a_few_sweeps_of_chains(tmp_path, matrix, monkeypatch):
    np.save(tmp_path / "X.npy", matrix)
    asked = []
    fit = bo.RFLVM._infer

    def watched(self, data, plan):
        asked.append(self.n_chains * (self.n_warmup + self.thin * self.n_draws))
        return fit(self, data, plan)

    monkeypatch.setattr(bo.RFLVM, "_infer", watched)
    told = replied("info", tmp_path / "X.npy", "--model", "rflvm", "--set", "n_frequencies=4")
    assert max(asked) < 50
    longer = ["--set", "n_draws=100000", "--set", "n_frequencies=4"]
    more = replied("info", tmp_path / "X.npy", "--model", "rflvm", *longer)
    assert more["estimate"]["seconds_at_most"] > 10 * told["estimate"]["seconds_at_most"]


def test_a_warning_that_python_was_asked_to_raise_is_no_fault(tmp_path, matrix):
    np.save(tmp_path / "X.npy", matrix)
    words = ["fit", tmp_path / "X.npy", *SMALL, "--set", "max_iter=1", "--out"]
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        said = refused(*words, tmp_path / "run")
    assert said.startswith("ConvergenceWarning: Training stopped after 1 steps")
    assert "leave out -W error" in said


def test_fit_reads_views_models_and_settings(tmp_path, matrix):
    np.save(tmp_path / "X.npy", matrix)
    arguments = [
        "--view",
        "a=0:4",
        "--view",
        "b=4,5",
        "--likelihood",
        "a=gaussian",
        *SMALL,
        "--set",
        "kernel=rbf",
    ]
    done = run(
        "fit",
        tmp_path / "X.npy",
        "--out",
        tmp_path / "o",
        "--model",
        "random-feature-lvm",
        *arguments,
    )
    assert done.exit_code == 0, done.stderr
    assert "Warning: Training stopped after 12 steps" in done.stderr
    assert "random-feature-lvm" in done.stdout
    model = bo.load(tmp_path / "o" / "model.bochner")
    assert (type(model).__name__, model.kernel, list(model.views_)) == (
        "RandomFeatureLVM",
        "rbf",
        ["a", "b"],
    )


def test_the_demo_takes_its_options(tmp_path, monkeypatch):
    from bochner import demo

    def pretend(options):
        assert (options.n_components, options.seed, options.out) == (3, 2, tmp_path)
        keys = "completion_rmse ridge_rmse kernel_ridge_rmse knn_rmse mean_rmse knn1 knn10"
        more = "pca_knn1 pca_knn10 elbo seconds"
        return {
            **dict.fromkeys(f"{keys} {more}".split(), 0.5),
            "elbo": float("nan"),
            "files": ["a.png"],
        }

    monkeypatch.setattr(demo, "run", pretend)
    arguments = ("demo", "--out", tmp_path, "--n-components", 3, "--seed", 2)
    shown = " ".join(run(*arguments).stdout.split())
    assert "error of completed halves" in shown
    assert "0.5 kernel ridge" in shown
    assert replied(*arguments)["elbo"] is None


def test_parsing():
    assert parse_views(["rna=0:500", "p=cd3,cd4", "q=3, 4", "all=:"], None) == {
        "rna": slice(0, 500),
        "p": ["cd3", "cd4"],
        "q": [3, 4],
        "all": slice(None, None),
    }
    assert parse_views(["a=0,1"], ["1", "0"]) == {"a": ["0", "1"]}
    assert parse_views([], None) is None
    assert parse_settings(
        ["a=3", "b=pca", 'c=["pca"]', "d=null"], ["a", "b", "c", "d"], {}
    ) == {
        "a": 3,
        "b": "pca",
        "c": ["pca"],
        "d": None,
    }
    nothing = ["a=None", "b=none", "c=null"]
    assert parse_settings(nothing, ["a", "b", "c"], {}) == dict.fromkeys("abc")
    assert parse_by_view(["gaussian"], "--likelihood") == "gaussian"
    assert parse_by_view(["a=gaussian"], "--likelihood") == {"a": "gaussian"}
    with pytest.raises(InputError, match="one name for all views"):
        parse_by_view(["gaussian", "a=gaussian"], "--likelihood")


# -- what is refused
# -------------------------------------------------------------------------------------------

BAD_TEXT = {
    "a,b\n1,2\n3,inf\n4,5\n": r"inf in view 'x', row 1, column 1 \('b'\)",
    "a,b\n1,\n3,\n4,\n": r"only NaN in column 1 \('b'\) of view 'x'",
    "a,b\n1,2\n": r"at least 2 samples to fit, got 1 sample .*Pass more rows",
    "a,b\n1,2\n3,1+2j\n": r"got '1\+2j' in .*line 3, cell 2 \('b'\)",
    "a,b\n1,2\nx,3\n": r"got 'x' in .*line 3, cell 1 \('a'\)",
    "a,b\n1,2\n3\n": "got 1 in line 3",
    "a,b\n": "a header alone",
    "": "the empty file",
}


@pytest.mark.parametrize("text", BAD_TEXT)
def test_bad_data_are_refused_and_leave_nothing_behind(tmp_path, text):
    (tmp_path / "bad.csv").write_text(text)
    result = refused("fit", tmp_path / "bad.csv", "--out", tmp_path / "o", *SMALL)
    assert re.search(BAD_TEXT[text], result), result
    assert not (tmp_path / "o").exists()


BAD_OPTIONS = {
    "overlap": (["--view", "a=0:4", "--view", "b=3:6"], "column 3 in both 'a' and 'b'"),
    "left out": (["--view", "a=0:4"], "column 4, column 5 in no view"),
    "outside": (["--view", "a=0:9"], "stay within the 6 columns"),
    "no names": (["--view", "a=cd3"], "column numbers for view 'a'"),
    "no columns": (["--view", "a"], "Write --view rna=0:500"),
    "twice": (["--view", "a=0:4", "--view", "a=4:6"], "every view once"),
    "unknown": (["--set", "n_componentz=2"], "did you mean 'n_components'"),
    "nonsense": (["--set", "xyz=2"], "choose from device, dtype"),
    "no value": (["--set", "xyz"], "Write --set n_components=3"),
    "own option": (["--set", "random_state=2"], "Use --seed"),
    "range": (
        ["--set", "n_components=0"],
        r"'n_components' parameter of NGMVLVM must be an int in the range \[1, inf\)",
    ),
    "type": (["--set", "max_iter=soon"], "'max_iter' parameter of NGMVLVM"),
    "likelihood": (
        ["--likelihood", "counts"],
        "the name of a likelihood, got 'counts'. Choose from auto, bernoulli",
    ),
    "likelihood of a view": (["--likelihood", "rna=gaussian"], "likelihood for views"),
    "index of arrays": (["--index", "cell"], "index only for csv and parquet files"),
}


@pytest.mark.parametrize("name", BAD_OPTIONS)
def test_bad_options_are_refused(tmp_path, matrix, name):
    np.save(tmp_path / "X.npy", matrix)
    arguments, text = BAD_OPTIONS[name]
    result = refused("fit", tmp_path / "X.npy", "--out", tmp_path / "o", *arguments)
    assert re.search(text, result), result
    assert not (tmp_path / "o").exists()


def test_the_folder_where_one_stands_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("x,y\n")
    assert "reading . (0 s)" in run("fit", ".", "--out", tmp_path.parent / "o").stderr


def test_bad_files_are_refused(tmp_path, matrix):
    fit = ["--out", tmp_path / "o"]
    assert "which does not exist" in refused("fit", tmp_path / "none.csv", *fit)
    (tmp_path / "empty").mkdir()
    assert "Put one file per view there" in refused("fit", tmp_path / "empty", *fit)
    (tmp_path / "x.xlsx").write_bytes(b"PK")
    assert "extension '.xlsx'" in refused("fit", tmp_path / "x.xlsx", *fit)
    (tmp_path / "x.npz").write_bytes(b"PK\x03\x04broken")
    assert "a readable npz file" in refused("fit", tmp_path / "x.npz", *fit)
    np.save(tmp_path / "c.npy", matrix + 1j)
    assert "Split complex numbers into two views" in refused("fit", tmp_path / "c.npy", *fit)
    np.save(tmp_path / "X.npy", matrix)
    said = refused("fit", tmp_path / "X.npy", "--out", tmp_path / "X.npy")
    assert "--out to be a folder" in said
    # before anything is read, which may take minutes
    assert "looking at the data" not in said
    write(tmp_path / "a.csv", ["a"], ["r", "s"], np.ones((2, 1)))
    assert "an index column 'gene'" in refused(
        "fit", tmp_path / "a.csv", "--index", "gene", *fit
    )


def test_bad_models_are_refused(fitted, folder, tmp_path):
    good = (fitted[0] / "model.bochner").read_bytes()
    out = ["--out", tmp_path / "z.csv"]
    assert "no file at" in refused("transform", tmp_path / "none.bochner", folder, *out)
    for name, content in {
        "cut": good[: len(good) // 2],
        "text": b"not a model",
        "empty": b"",
    }.items():
        (tmp_path / name).write_bytes(content)
        assert f"got {name}, which is not one or is cut short" in refused(
            "impute", tmp_path / name, folder, *out
        )
        assert "is cut short" in refused("info", tmp_path / name)
    from bochner.io import files

    tensors, header = files.read(fitted[0] / "model.bochner", "model", 1)
    files.write(tmp_path / "new.bochner", tensors, {**header, "schema": 99})
    assert "schema 99 in new.bochner. Upgrade bochner" in refused(
        "info", tmp_path / "new.bochner"
    )
    files.write(tmp_path / "other.bochner", tensors, {**header, "kind": "checkpoint"})
    assert "a checkpoint file" in refused("info", tmp_path / "other.bochner")
    (tmp_path / "data.csv").write_text("a,b\n1,2\n")
    said = refused("report", tmp_path / "data.csv")
    assert "data.csv, a name of data. Write the model before the data" in said


BAD_ROWS = {
    "unknown": ([*GENES, "cd3", "cd5"], "unknown 'cd5'"),
    "part of a view": (
        [*GENES, "cd3"],
        "all columns of view 'proteins', got none named 'cd4'",
    ),
}


@pytest.mark.parametrize("name", BAD_ROWS)
def test_rows_with_other_columns_are_refused(fitted, tmp_path, matrix, rows, name):
    names, text = BAD_ROWS[name]
    path = write(tmp_path / "new.csv", names, rows, matrix[:, : len(names)])
    result = refused("transform", fitted[0], path, "--out", tmp_path / "z.csv")
    assert re.search(text, result), result


def test_the_folder_of_a_fit_is_loaded(fitted, tmp_path):
    model = bo.load(fitted[0])
    assert model.elbo_ == bo.load(fitted[0] / "model.bochner").elbo_
    with pytest.raises(InputError, match=r"model\.bochner"):
        bo.load(tmp_path)


def test_columns_are_found_by_their_names(fitted, tmp_path, matrix, rows):
    """In one file and in a file per view, with a view that lacks too, and block by block."""
    pandas = pytest.importorskip("pandas")
    order = [5, 2, 0, 4, 3, 1]
    names = [*GENES, *PROTEINS]
    turned = [names[j] for j in order]
    frame = pandas.DataFrame(matrix[:, order], columns=turned)
    frame.to_parquet(tmp_path / "new.parquet")
    folder = tmp_path / "views"
    folder.mkdir()
    write(folder / "proteins.csv", PROTEINS[::-1], rows, matrix[:, :3:-1])
    write(folder / "genes.csv", GENES[::-1], rows, matrix[:, 3::-1])
    write(tmp_path / "genes.csv", GENES[::-1], rows, matrix[:, 3::-1])
    model = bo.load(fitted[0] / "model.bochner")
    table = read_rows(model, write(tmp_path / "new.csv", turned, rows, matrix[:, order]), None)
    np.testing.assert_allclose(table.X, matrix)
    np.testing.assert_allclose(read_rows(model, folder, None).X, matrix)
    np.testing.assert_allclose(
        read_rows(model, tmp_path / "genes.csv", None).X[:, :4], matrix[:, :4]
    )
    source = rows_on_disk(model, tmp_path / "new.parquet")
    assert source.columns == names
    np.testing.assert_allclose(source.whole(), matrix)
    replied("impute", fitted[0], tmp_path / "new.csv", "--out", tmp_path / "full.csv")
    assert cells(tmp_path / "full.csv")[0] == ["cell", *names]


def test_a_column_that_lacks_is_named_before_the_text_of_others(tmp_path):
    """Columns that a model does not have are read only where one of its own lacks."""
    data, new = tmp_path / "n.csv", tmp_path / "new.csv"
    lines = ["id,a,b,c,note", "r1,1,2,3,hi", "r2,2,1,4,yo", "r3,4,2,3,hm", "r4,2,2,1,ho"]
    data.write_text("\n".join(lines) + "\n")
    out = tmp_path / "run"
    replied("fit", data, "--index", "id", "--drop", "note", "--out", out, *SMALL)
    new.write_text("id,a,b,note\nr1,1,2,hi\nr2,2,1,yo\n")
    place = ("--index", "id", "--out", tmp_path / "z.csv")
    text = refused("transform", out, new, *place)
    assert "all columns of view 'x', got none named 'c'" in text
    new.write_text("id,d,note\nr1,1,hi\nr2,2,yo\n")
    assert "got 'hi'" in refused("transform", out, new, *place)


def test_rows_of_other_shape_or_views_are_refused(fitted, tmp_path, matrix):
    out = ["--out", tmp_path / "z.csv"]
    np.save(tmp_path / "five.npy", matrix[:, :5])
    assert "6 columns, as at the fit, got 5" in refused(
        "transform", fitted[0], tmp_path / "five.npy", *out
    )
    np.savez(tmp_path / "views.npz", genes=matrix[:, :4], lipids=matrix[:, 4:])
    assert "got a view 'lipids'" in refused(
        "transform", fitted[0], tmp_path / "views.npz", *out
    )
    np.savez(tmp_path / "width.npz", genes=matrix[:, :3], proteins=matrix[:, 4:])
    assert "4 columns in view 'genes', got 3" in refused(
        "transform", fitted[0], tmp_path / "width.npz", *out
    )
    folder = tmp_path / "swapped"
    folder.mkdir()
    write(folder / "proteins.csv", ["cd4", "cd9"], ["r"], matrix[:1, 4:])
    text = "the columns of view 'proteins' as at the fit, got 'cd9' in place of 'cd3'"
    assert text in refused("impute", fitted[0], folder, *out)
    # a view's columns are found by name, whatever else its file has
    write(folder / "proteins.csv", ["cd4"], ["r"], matrix[:1, 5:])
    text = "the columns of view 'proteins' as at the fit, got none named 'cd3'. Add them"
    assert text in refused("impute", fitted[0], folder, *out)
    write(folder / "proteins.csv", ["cd4", "cd9", "cd3"], ["r"], matrix[:1, [5, 0, 4]])
    table = read_rows(bo.load(fitted[0] / "model.bochner"), folder, None)
    np.testing.assert_allclose(table.X[:, 4:], matrix[:1, 4:])
    matrix = matrix.copy()
    matrix[2, 5] = -np.inf
    np.save(tmp_path / "inf.npy", matrix)
    result = refused("impute", fitted[0], tmp_path / "inf.npy", *out)
    assert "-inf in view 'proteins', row 2, column 5 ('cd4')" in result


def test_outputs_that_cannot_be_written_are_refused_first(fitted, folder, tmp_path):
    for name, text in {
        "z.txt": "extension '.txt'",
        "z": "without extension",
        "no/z.csv": "an existing folder",
    }.items():
        assert text in refused("transform", fitted[0], folder, "--out", tmp_path / name)
    same = tmp_path / "z.csv"
    assert "two files" in refused("impute", fitted[0], folder, "--out", same, "--std", same)
    # with --force, too: what is there is no result
    place = tmp_path / "there.csv"
    place.mkdir()
    for command in ("transform", "impute"):
        said = refused(command, fitted[0], folder, "--out", place, "--force")
        assert "an output file, got the folder" in said
    store = tmp_path / "there.zarr"
    store.mkdir()
    (store / "notes.txt").write_text("mine")
    said = refused("transform", fitted[0], folder, "--out", store, "--force")
    assert "an output file, got the folder" in said
    assert (store / "notes.txt").read_text() == "mine"
    rows = tmp_path / "rows.csv"
    rows.write_text("a\n1\n")
    for command in ("transform", "impute"):
        said = refused(command, fitted[0], rows, "--out", rows, "--force")
        assert "results in a file of their own" in said
    said = refused("transform", fitted[0], folder, "--out", same, "--log", rows)
    assert "a file for the log" in said
    assert rows.read_text() == "a\n1\n"


def test_paths_that_the_system_refuses_say_what_to_do(fitted, tmp_path):
    long = tmp_path / ("a" * 300 + ".csv")
    assert "(File name too long). Choose a shorter name." in refused("info", long)
    loop = tmp_path / "views" / "loop.csv"
    loop.parent.mkdir()
    loop.symlink_to(loop.name)
    assert "links are meant for" in refused("info", loop.parent)
    said = refused("info", long.with_name("a.csv"), "--log", tmp_path)
    assert "(Is a directory). Name a file" in said


def test_warnings_are_lines(tmp_path, matrix):
    constant = matrix.copy()
    constant[:, 2] = 1.0
    np.save(tmp_path / "X.npy", constant)
    done = run("fit", tmp_path / "X.npy", "--out", tmp_path / "o", *SMALL)
    lines = [line for line in done.stderr.splitlines() if "Constant columns are kept" in line]
    assert lines == [
        "Warning: Constant columns are kept, they tell nothing about the rows: column 2 of view "
        "'x'.",
    ]


def test_json_says_what_went_wrong(tmp_path):
    done = run("fit", tmp_path / "none.csv", "--out", tmp_path, "--json")
    assert done.exit_code == 2
    assert "which does not exist" in json.loads(done.stdout)["error"]
    assert done.stderr.startswith("Error: ")


def test_a_fault_of_ours_is_called_one(monkeypatch, fitted):
    from bochner.cli import info

    def fail(*arguments):
        raise ValueError("boom")

    monkeypatch.setattr(info, "describe", fail)
    done = run("info", fitted[0])
    assert done.exit_code == 1
    assert "Traceback" in done.stderr
    assert "a fault of bochner" in done.stderr
    monkeypatch.setattr(
        info, "describe", lambda *arguments: (_ for _ in ()).throw(KeyboardInterrupt)
    )
    assert run("info", fitted[0]).exit_code == 130


# -- the process
# -----------------------------------------------------------------------------------------------

# SIGTERM at the end of a known step: where a real one lands is a matter of luck.
KILLED = """
import os, signal, sys
from bochner.training.trainer import Trainer
after = Trainer._after_step
def killed(self, on_step):
    after(self, on_step)
    if self.state.step == 17:
        os.kill(os.getpid(), signal.SIGTERM)
Trainer._after_step = killed
from bochner.__main__ import main
main()
"""


# Python drops what is raised there.
KILLED_IN_A_CALLBACK = """
import signal, weakref
from bochner.training.trainer import Trainer
after = Trainer._after_step
class Thing: pass
def killed(self, on_step):
    after(self, on_step)
    if self.state.step == 17:
        thing = Thing()
        kept = weakref.ref(thing, lambda _: signal.raise_signal(signal.SIGTERM))
        del thing
Trainer._after_step = killed
from bochner.__main__ import main
main()
"""


# As above, after all is written and while the handlers of the command are taken away.
KILLED_AT_THE_END = """
import signal, sys, weakref
class Thing: pass
real = signal.signal
def taken(number, handler):
    if number == signal.SIGTERM and handler == signal.SIG_DFL:
        thing = Thing()
        kept = weakref.ref(thing, lambda _: signal.raise_signal(signal.SIGTERM))
        del thing
    return real(number, handler)
signal.signal = taken
from bochner.__main__ import main
main()
"""


def test_an_interrupted_fit_is_continued_to_the_same_result(tmp_path, matrix, forks):
    np.save(tmp_path / "X.npy", matrix)
    # with a race of starts
    fit = ["fit", tmp_path / "X.npy", *SMALL[:4], "--set", "n_init=1", "--set", "max_iter=30"]
    fit += ["--out"]
    killed = forks.run(KILLED, *fit, tmp_path / "killed", "--json")
    assert killed.returncode == 130, killed.stderr
    reply = json.loads(killed.stdout)
    assert reply["interrupted"] is True
    assert "To continue: bochner fit" in killed.stderr
    assert killed.stderr.rstrip().endswith("--resume")
    assert {"checkpoint.ckpt", "seed.json", "model.bochner"} <= {
        path.name for path in (tmp_path / "killed").iterdir()
    }

    assert "add --resume to continue it, or --force to start anew" in refused(
        *fit, tmp_path / "killed"
    )
    assert "belongs to other data or settings" in refused(
        *fit, tmp_path / "killed", "--resume", "--set", "tol=0.5"
    )
    # The seed was not given: the run to continue knows it.
    replied(*fit, tmp_path / "killed", "--resume")
    replied(*fit, tmp_path / "whole", "--seed", reply["seed"])
    first, second = (tmp_path / name / "embedding.csv" for name in ("killed", "whole"))
    assert first.read_text() == second.read_text()
    assert not (tmp_path / "killed" / "checkpoint.ckpt").exists()
    assert not (tmp_path / "killed" / "seed.json").exists()


def test_another_seed_does_not_take_that_of_the_interrupted_run_away(
    tmp_path, matrix, monkeypatch
):
    """A fresh seed stands nowhere else: without it the checkpoint is of no use."""
    np.save(tmp_path / "X.npy", matrix)
    out = tmp_path / "run"
    fit = ["fit", tmp_path / "X.npy", *SMALL, "--out", out]
    after = Trainer._after_step

    def stopped(self, on_step):
        after(self, on_step)
        if self.state.step == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "_after_step", stopped)
    assert run(*fit).exit_code == 130
    monkeypatch.setattr(Trainer, "_after_step", after)
    written = (out / "seed.json").read_text()
    seed = json.loads(written)["seed"]
    text = f"Expected the seed of the interrupted run, {seed}, got --seed 5. Leave out --seed"
    assert text in refused(*fit, "--resume", "--seed", 5)
    assert (out / "seed.json").read_text() == written
    for damage, got in (("{", "a damaged"), (None, "no")):
        (out / "seed.json").unlink()
        if damage is not None:
            (out / "seed.json").write_text(damage)
        text = f"Expected the seed of the interrupted run, got {got} {out / 'seed.json'}. Give"
        assert text in refused(*fit, "--resume")
        assert "belongs to other data" in refused(*fit, "--resume", "--seed", 5)
    assert replied(*fit, "--resume", "--seed", seed)["seed"] == seed
    assert not (out / "seed.json").exists()


@pytest.mark.parametrize(
    "before",
    ["", "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"],
    ids=["", "SIGINT is ignored"],
)
def test_an_interrupt_that_python_drops_is_not_lost(tmp_path, matrix, before, forks):
    np.save(tmp_path / "X.npy", matrix)
    fit = ["fit", tmp_path / "X.npy", *SMALL[:-1], "max_iter=20000", "--set", "tol=0"]
    killed = forks.run(before + KILLED_IN_A_CALLBACK, *fit, "--out", tmp_path / "o")
    assert killed.returncode == 130, killed.stderr
    assert "Exception ignored" not in killed.stderr
    assert "To continue: bochner fit" in killed.stderr


def test_an_interrupt_dropped_at_the_end_of_a_command_prints_nothing(tmp_path, matrix, forks):
    np.save(tmp_path / "X.npy", matrix)
    fit = ["fit", tmp_path / "X.npy", *SMALL[:-1], "max_iter=3", "--out", tmp_path / "o"]
    killed = forks.run(KILLED_AT_THE_END, *fit)
    assert killed.returncode in (0, 130), killed.stderr
    assert "Exception ignored" not in killed.stderr
    assert (tmp_path / "o" / "model.bochner").exists()


def test_an_interrupt_while_a_class_is_made_is_one(tmp_path, matrix, monkeypatch):
    """Python 3.11 and before say RuntimeError: Error calling __set_name__."""
    np.save(tmp_path / "X.npy", matrix)

    class Named:
        def __set_name__(self, owner, name):
            raise KeyboardInterrupt

    def interrupt(*arguments, **options):
        type("Made", (), {"attribute": Named()})

    monkeypatch.setattr(bo.NGMVLVM, "fit", interrupt)
    done = run("fit", tmp_path / "X.npy", "--out", tmp_path / "o", *SMALL)
    assert done.exit_code == 130
    assert "no checkpoint to continue from" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_error_that_is_its_own_cause_ends_a_command(tmp_path, matrix, monkeypatch):
    """Those that processes tell each other of are."""
    np.save(tmp_path / "X.npy", matrix)

    def fail(*arguments, **options):
        error = InputError("Expected this, got that. Do so.")
        error.__cause__ = error
        raise error

    monkeypatch.setattr(bo.NGMVLVM, "fit", fail)
    done = run("fit", tmp_path / "X.npy", "--out", tmp_path / "o", *SMALL)
    assert done.exit_code == 2
    assert "Expected this" in done.stderr


def test_an_interrupt_before_a_command_begins_is_one_line(forks):
    code = """
import bochner.__main__ as main
def app(**words): raise KeyboardInterrupt
main.app = app
main.main()
"""
    ended = forks.run(code)
    assert (ended.returncode, ended.stderr.strip()) == (130, "Interrupted.")


@pytest.mark.parametrize(("ends", "code"), [("raise KeyboardInterrupt", 130), ("pass", 0)])
def test_signals_after_the_end_of_a_command_change_nothing(forks, ends, code):
    """A second Ctrl-C comes while the first one ends the process."""
    program = f"""
import signal
import bochner.__main__ as main
def app(**words): {ends}
main.app = app
try:
    main.main()
finally:
    signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGTERM)
"""
    ended = forks.run(program)
    said = "Interrupted." if code else ""
    assert (ended.returncode, ended.stderr.strip()) == (code, said)


def test_the_script_of_an_interrupted_benchmark_ends_with_it(tmp_path, forks):
    (tmp_path / "README.md").touch()
    (tmp_path / "slow.py").write_text(
        "import os, time, pathlib\n"
        "def main(): pass\n"
        "pathlib.Path('began').write_text(str(os.getpid()))\n"
        "print(os.getpid(), flush=True)\n"
        "time.sleep(60)\n"
    )
    program = f"""
import os, pathlib, signal, sys
from bochner.cli import bench
bench.folder = lambda: pathlib.Path({str(tmp_path)!r})
bench.say = lambda _: os.kill(os.getpid(), signal.SIGTERM)
sys.argv = ["bochner", "bench", "slow", "--json"]
from bochner.__main__ import main
main()
"""
    ended = forks.run(program)
    assert ended.returncode == 130, ended.stderr
    script = int((tmp_path / "began").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(script, 0)


def test_the_end_of_a_command_does_not_search_for_cycles_among_all_that_was_imported(forks):
    code = """
import atexit, gc
from bochner.__main__ import main
# what is registered last is called first
atexit.register(lambda: print(gc.get_freeze_count() > 1000))
main()
"""
    ended = forks.run(code, "--version")
    assert ended.stdout.split()[-1] == "True", ended.stderr


def test_an_interruption_before_training_says_that_nothing_is_there_to_continue(
    tmp_path, matrix, monkeypatch
):
    np.save(tmp_path / "X.npy", matrix)

    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(bo.NGMVLVM, "fit", interrupt)
    done = run("fit", tmp_path / "X.npy", "--out", tmp_path / "o", *SMALL)
    assert done.exit_code == 130
    assert "no checkpoint to continue from" in done.stderr
    assert not (tmp_path / "o").exists()


def test_force_and_a_resume_without_an_earlier_run(tmp_path, matrix):
    np.save(tmp_path / "X.npy", matrix)
    out = tmp_path / "o"
    out.mkdir()
    (out / "checkpoint.ckpt").write_bytes(b"of another run")
    arguments = ["fit", tmp_path / "X.npy", "--out", out, *SMALL]
    assert run(*arguments, "--force").exit_code == 0
    assert not (out / "checkpoint.ckpt").exists()
    for again in ([], ["--resume"]):
        result = refused(*arguments, *again)
        assert "of a run that is finished. Add --force to replace them" in result
    for path in out.iterdir():
        path.unlink()
    done = run(*arguments, "--resume")
    assert done.exit_code == 0
    assert "No interrupted run in" in done.stderr


@pytest.mark.parametrize("how", [[], ["--resume"]])
@pytest.mark.parametrize(
    "name", ["embedding.csv", "bound.png", "latent.png", "report.html", "seed.json"]
)
def test_a_fit_replaces_no_file_of_others(tmp_path, matrix, name, how):
    np.save(tmp_path / "X.npy", matrix)
    (tmp_path / name).write_text("mine")
    said = refused("fit", tmp_path / "X.npy", "--out", tmp_path, *how, *SMALL)
    assert said == (
        f"Expected places of results that are free, got {tmp_path / name}, which exists. Choose "
        "another folder for --out, or add --force to replace it."
    )
    assert (tmp_path / name).read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 2


def test_a_fit_begins_again_after_one_that_was_killed_before_its_first_checkpoint(
    tmp_path, matrix
):
    np.save(tmp_path / "X.npy", matrix)
    out = tmp_path / "run"
    out.mkdir()
    (out / "seed.json").write_text('{"seed": 7}\n')
    replied("fit", tmp_path / "X.npy", "--out", out, *SMALL)
    assert replied("fit", tmp_path / "X.npy", "--out", out, "--force", *SMALL)["files"]


def test_a_folder_in_the_place_of_a_result_is_refused_before_the_fit(tmp_path, matrix):
    np.save(tmp_path / "X.npy", matrix)
    (tmp_path / "embedding.csv").mkdir()
    said = refused("fit", tmp_path / "X.npy", "--out", tmp_path, "--force", *SMALL)
    assert said.endswith("embedding.csv, which is a folder. Choose another folder for --out.")


@pytest.mark.parametrize("how", [[], ["--force"], ["--resume"]])
def test_a_fit_never_replaces_its_data(tmp_path, folder, how):
    data = tmp_path / "embedding.csv"
    data.write_text("a,b\n1,2\n2,4\n3,5\n")
    before = data.read_bytes()
    said = refused("fit", data, "--out", tmp_path, *how, *SMALL)
    assert said == (
        f"Expected results in files of their own, got {data}, which is the data. Choose another "
        "folder for --out."
    )
    assert data.read_bytes() == before
    assert [*tmp_path.iterdir()] == [data]
    # a view that a link leads to
    out = tmp_path / "run"
    out.mkdir()
    (out / "embedding.csv").symlink_to(folder / "genes.csv")
    assert "which is the data" in refused("fit", folder, "--out", out, *how, *SMALL)


@pytest.mark.parametrize("name", ["genes.csv", "more.csv"])
def test_no_result_is_written_among_the_views_that_are_read(fitted, folder, name):
    there = {path: path.read_bytes() for path in folder.iterdir()}
    out = folder / name
    got = "the data" if out.exists() else f"{out} in the folder of the data"
    for words in (
        ["transform", "--out", out],
        ["impute", "--out", out],
        ["impute", "--out", folder.parent / "e.csv", "--std", out],
    ):
        said = refused(words[0], fitted[0], folder, *words[1:], "--force")
        assert said.startswith("Expected results in a file of their own, got ")
        assert said.endswith(f"{got}. Choose another name.")
    assert {path: path.read_bytes() for path in folder.iterdir()} == there


def test_the_command_runs_as_a_process():
    command = [sys.executable, "-m", "bochner"]
    pipes = {"capture_output": True, "text": True}
    version = subprocess.run([*command, "--version"], check=False, **pipes)
    assert (version.returncode, version.stdout) == (0, f"bochner {bo.__version__}\n")
    wrong = subprocess.run(
        [*command, "fit", "no-such-file", "--out", "o"], check=False, **pipes
    )
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("Error: Expected a file or folder")
    assert "Traceback" not in wrong.stderr


def test_help_and_usage():
    assert all(
        name in run("--help").stdout
        for name in ("demo", "fit", "transform", "impute", "calibrate", "info")
    )
    assert run("fit").exit_code == 2
    assert run("fit", "x.csv", "--out", "o", "--model", "pca").exit_code == 2


def test_chains_of_a_model_without_any_are_refused(tmp_path, matrix):
    np.save(tmp_path / "X.npy", matrix)
    said = refused("fit", tmp_path / "X.npy", "--chains", 2, "--out", tmp_path / "o")
    assert "Expected --model rflvm with --chains, got --model ng-mvlvm. Leave --chains" in said


def test_the_sampler_is_fitted_and_continued(tmp_path, matrix, monkeypatch):
    """Ctrl-C between rounds of sweeps; --resume draws what would have been drawn."""
    from bochner.mcmc import run as runs
    from bochner.mcmc.chain import Chain

    np.save(tmp_path / "X.npy", matrix[:20, :4])
    fit = ["fit", tmp_path / "X.npy", *CHAINS]
    whole = replied(*fit, "--out", tmp_path / "whole")
    assert whole["n_iter"] == 6
    advance, calls = Chain.advance, []

    def interrupted(*arguments):
        calls.append(arguments)
        if len(calls) == 3:  # the second round of two chains
            raise KeyboardInterrupt
        return advance(*arguments)

    monkeypatch.setattr(runs, "SWEEPS_A_ROUND", 4)
    monkeypatch.setattr(Chain, "advance", interrupted)
    out = tmp_path / "killed"
    assert run(*fit, "--out", out).exit_code == 130
    assert (out / "checkpoint.ckpt.chain1").exists()
    assert "add --resume to continue it" in refused(*fit, "--out", out)
    replied(*fit, "--out", out, "--resume")
    first, second = (tmp_path / name / "embedding.csv" for name in ("killed", "whole"))
    assert first.read_bytes() == second.read_bytes()
    assert not list(out.glob("checkpoint*"))


def test_small_tables_are_fitted_on_one_thread(tmp_path, forks):
    """Where cores are busy two threads took three times as long; more rows have all of them, and
    what the environment says counts.
    """
    code = (
        "import os, sys, numpy as np, torch\n"
        "torch.set_num_threads(2)\n"
        "from bochner.cli.session import one_thread_if_small\n"
        "used = []\n"
        "for n_entries, said in ((600, ''), (600, '2'), (300_000, '')):\n"
        "    os.environ.pop('OMP_NUM_THREADS', None)\n"
        "    if said: os.environ['OMP_NUM_THREADS'] = said\n"
        "    with one_thread_if_small(n_entries):\n"
        "        used.append(torch.get_num_threads())\n"
        "    used.append(torch.get_num_threads())\n"
        "assert used == [1, 2, 2, 2, 2, 2], used\n"
    )
    result = forks.run(code)
    assert result.returncode == 0, result.stderr


def test_commands_use_one_thread_for_small_tables(tmp_path, forks, rng):
    data, run, full = (str(tmp_path / name) for name in ("data.csv", "run", "full.csv"))
    np.savetxt(data, rng.normal(size=(30, 4)), delimiter=",", header="a,b,c,d", comments="")
    model = str(tmp_path / "run" / "model.bochner")
    small = ["n_frequencies=8", "max_iter=3", "init=pca"]
    commands = [["fit", data, "--out", run, *(w for s in small for w in ("--set", s))]]
    for command, out in (("transform", "z.csv"), ("impute", full)):
        commands.append([command, model, data, "--out", str(tmp_path / out)])
    # rows that are placed and completed part by part
    array = str(tmp_path / "data.npy")
    np.save(array, np.loadtxt(data, delimiter=",", skiprows=1))
    commands += [
        [command, model, array, "--out", str(tmp_path / f"{command}.npy")]
        for command in ("transform", "impute")
    ]
    commands.append(["calibrate", model, data, "--n-draws", "20"])
    commands.append(["report", model, data, "--out", str(tmp_path / "page.html")])
    code = (
        "import os, sys, torch\n"
        "os.environ.pop('OMP_NUM_THREADS', None)\n"
        "torch.set_num_threads(2)\n"
        "from bochner.estimators.base import LatentVariableEstimator as Estimator\n"
        "from bochner.cli import apply\n"
        "from bochner.__main__ import main\n"
        "used = []\n"
        "def recorded(owner, name):\n"
        "    method = getattr(owner, name)\n"
        "    def inner(*args, **kwargs):\n"
        "        used.append((name, torch.get_num_threads()))\n"
        "        return method(*args, **kwargs)\n"
        "    setattr(owner, name, inner)\n"
        "for name in ('fit', 'transform', 'impute'): recorded(Estimator, name)\n"
        "recorded(apply, 'calibration')\n"
        f"for arguments in {commands!r}:\n"
        "    sys.argv = ['bochner', *arguments]\n"
        "    try: main()\n"
        "    except SystemExit as ended: assert not ended.code, arguments\n"
        "names = {name for name, _ in used}\n"
        "assert names == {'fit', 'transform', 'impute', 'calibration'}, names\n"
        "assert {threads for _, threads in used} == {1}, used\n"
        "assert torch.get_num_threads() == 2\n"
    )
    result = forks.run(code)
    assert result.returncode == 0, result.stderr
