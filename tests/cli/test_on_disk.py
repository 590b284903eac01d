"""Commands with tables that are read block by block: the answers of tables in memory."""

from __future__ import annotations

import functools
import gzip
import json
import re
from itertools import pairwise

import numpy as np
import pytest

import bochner as bo
from bochner.cli import apply
from bochner.data import row_sources
from bochner.errors import InputError
from bochner.estimators.methods import rows
from bochner.estimators.methods.placing import PlacingMixin
from bochner.fitting import placed_rows, row_selection
from bochner.io import on_disk
from bochner.memory import chunks
from helpers.cli import SETTINGS, no_stds_in, refused, replied, run

COLUMNS = list("abcdef")
pytestmark = [
    pytest.mark.usefixtures("read_by_blocks", "rough_estimates", "no_pictures", "two_folds"),
    pytest.mark.filterwarnings("ignore:Training stopped"),
]


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(300, 2))
    return np.sin(Z @ rng.normal(size=(2, 6))) + 0.1 * rng.normal(size=(300, 6))


@pytest.fixture(scope="module")
def expected(X):
    settings = {"landmarks": 80, "n_frequencies": 8, "max_iter": 5, "init": "pca"}
    return bo.NGMVLVM(**settings, random_state=0).fit(X)


@pytest.fixture(scope="module")
def expected_of_names(X, expected):
    """The same fit, whose columns have names."""
    pandas = pytest.importorskip("pandas")
    model = bo.NGMVLVM(**expected.get_params())
    return model.fit(pandas.DataFrame(X, columns=COLUMNS))


def write_parts(folder, X, names=None, words="part-{}.parquet", count=11):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    folder.mkdir()
    starts = np.linspace(0, len(X), count + 1).astype(int)
    for i, (start, stop) in enumerate(pairwise(starts)):
        columns = {} if names is None else {"cell": names[start:stop]}
        columns |= {name: X[start:stop, j] for j, name in enumerate(COLUMNS)}
        parquet.write_table(arrow.table(columns), folder / words.format(i))
    (folder / "_SUCCESS").touch()
    return folder


def npy(X, folder):
    np.save(folder / "x.npy", X)
    return folder / "x.npy"


def zarr_array(X, folder):
    pytest.importorskip("zarr").save_array(str(folder / "x.zarr"), X)
    return folder / "x.zarr"


def parquet_parts(X, folder):
    return write_parts(folder / "rows", X)


def annotated(X, folder):
    anndata = pytest.importorskip("anndata")
    adata = anndata.AnnData(X)
    adata.var_names = COLUMNS
    adata.write_h5ad(folder / "x.h5ad")
    return folder / "x.h5ad"


def plain_text(X, folder):
    (folder / "x.csv").write_text(text_of(X))
    return folder / "x.csv"


def packed_text(X, folder):
    (folder / "x.csv.gz").write_bytes(gzip.compress(text_of(X).encode()))
    return folder / "x.csv.gz"


STORES = [npy, zarr_array, parquet_parts, annotated, plain_text, packed_text]


@pytest.mark.usefixtures("no_estimates")
@pytest.mark.parametrize("store", STORES)
def test_a_fit_of_a_file_is_that_of_rows_in_memory(store, X, expected, tmp_path, monkeypatch):
    def whole(*_):
        raise AssertionError("the rows were read as a whole")

    path = store(X, tmp_path)
    monkeypatch.setattr("bochner.data.row_sources.RowSource.whole", whole)
    monkeypatch.setattr("bochner.cli.fit.table_to_fit", whole)
    assert replied("info", path, *SETTINGS[:-2])["read"] == "block by block"
    done = run(
        "fit", str(path), "--out", str(tmp_path / "run"), *SETTINGS, "--report", "--json"
    )
    assert json.loads(done.stdout)["elbo"] == expected.elbo_
    model = bo.load(tmp_path / "run" / "model.bochner")
    np.testing.assert_array_equal(model.embedding_, expected.embedding_)
    header, *lines = (tmp_path / "run" / "embedding.csv").read_text().splitlines()
    assert header.endswith("z0,z1,z0_std,z1_std")
    assert len(lines) == 300
    assert (tmp_path / "run" / "report.html").stat().st_size > 10_000
    run("transform", str(tmp_path / "run"), str(path), "--out", str(tmp_path / "z.npy"))
    result = np.load(tmp_path / "z.npy")
    np.testing.assert_array_equal(result[:, :2], expected.embedding_)
    np.testing.assert_array_equal(result[:, 2:], expected.embedding_std_)


@pytest.mark.parametrize(("store", "kind"), [(npy, "npy"), (parquet_parts, "csv")])
def test_rows_are_completed_part_by_part(
    store, kind, X, expected, expected_of_names, tmp_path, monkeypatch
):
    model = expected_of_names if store is parquet_parts else expected
    model.save(tmp_path / "m.bochner")
    holes = X.copy()
    holes[::3, 2] = holes[5:9, :3] = np.nan
    path = store(holes, tmp_path)
    wanted = model.impute(bo.open_rows(path), return_std=True)
    monkeypatch.setattr(apply, "PLACED_ROWS", 100)
    monkeypatch.setattr(row_sources, "_NUMBERS", 250)
    monkeypatch.setattr("bochner.data.row_sources.RowSource.whole", None)
    files = [tmp_path / f"{name}.{kind}" for name in ("full", "std")]
    out, std = map(str, files)
    words = ("impute", tmp_path / "m.bochner", path, "--out", out, "--std", std)
    done = run(*words, "--log", tmp_path / "log")
    assert done.exit_code == 0, done.stderr
    assert (tmp_path / "log").read_text().count("completing rows") == 4
    for file, values in zip(files, wanted, strict=True):
        stored = (
            np.load(file) if kind == "npy" else np.loadtxt(file, delimiter=",", skiprows=1)
        )
        # searches for places end within a millionth of a standard deviation, which is about 0.1
        np.testing.assert_allclose(stored, values, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("many", [0, 2**22], ids=["large", "small"])
def test_completed_rows_keep_names_that_the_model_lacks(
    many, X, expected, tmp_path, monkeypatch
):
    monkeypatch.setattr(on_disk, "MANY", many)
    expected.save(tmp_path / "m.bochner")
    path = plain_text(X, tmp_path)
    out, std = tmp_path / "full.csv", tmp_path / "std.csv"
    replied("impute", tmp_path / "m.bochner", path, "--out", out, "--std", std)
    for file in (out, std):
        assert file.read_text().startswith(",".join(COLUMNS))
    page = tmp_path / "page.html"
    done = run("report", tmp_path / "m.bochner", path, "--out", page)
    assert done.exit_code == 0
    assert "feature names" not in done.stderr


@pytest.mark.parametrize("store", [npy, parquet_parts])
def test_calibration_takes_a_sample_of_rows_and_says_how_far_it_is(
    store, X, expected, expected_of_names, tmp_path, monkeypatch
):
    model = expected if store is npy else expected_of_names
    model.save(tmp_path / "m.bochner")
    monkeypatch.setattr("bochner.data.row_sources.RowSource.whole", None)
    words = ["calibrate", tmp_path / "m.bochner", store(X, tmp_path), "--max-rows", 50]
    done = run(*words, "--seed", 0, "--n-draws", 20, "--log", tmp_path / "log")
    assert done.exit_code == 0, done.stderr
    assert ", in a sample of 50 of 300 rows: share of the truth" in done.stdout
    assert (
        done.stdout == f"{bo.calibration(model, X, max_rows=50, n_draws=20, random_state=0)}\n"
    )
    said = (tmp_path / "log").read_text()
    assert "reading rows (0 s)" in said
    assert re.search(r"predicting hidden entries, row \d+ of 50 \(", said)


COUNT_SETTINGS = [
    "--likelihood", "poisson", "--set", "n_frequencies=8", "--set", "max_iter=5",
    "--set", "init=pca", "--seed", "0",
]  # fmt: skip


def counted_cells(folder):
    """Write sparse counts of named cells, and the same with columns in another order."""
    anndata = pytest.importorskip("anndata")
    import pandas as pd
    import scipy.sparse as sp

    rng = np.random.default_rng(0)
    size = rng.uniform(0.5, 2.0, 300)
    rate = np.exp(np.sin(rng.normal(size=(300, 2)) @ rng.normal(size=(2, 6))))
    counts = rng.poisson(size[:, None] * rate).astype(np.float32)
    beside = {"size": size, "batch": rng.choice(["a", "b"], 300), "age": rng.normal(size=300)}
    obs = pd.DataFrame(beside, index=[f"=c{i}" for i in range(300)])
    for name, order in (("a", slice(None)), ("b", slice(None, None, -1))):
        adata = anndata.AnnData(sp.csr_matrix(counts[:, order]), obs)
        adata.var_names = COLUMNS[order]
        adata.layers["raw"] = adata.X
        adata.write_h5ad(folder / f"{name}.h5ad")
    columns = {name: counts[:, j].astype(float) for j, name in enumerate(COLUMNS)}
    table = pd.DataFrame({"cell": obs.index, **columns, **beside})
    table.to_parquet(folder / "a.parquet", index=False)


OUTS = ["z.npy", "x.csv", "z.parquet", "z.csv"]
SIZES = ("--size-factors", "size")
EFFECTS = ("--batch", "batch", "--covariate", "age")


@pytest.mark.parametrize(
    ("data", "beside", "drop"),
    [
        ("a.h5ad", (), ()),
        ("b.h5ad", SIZES, ()),
        ("a.h5ad", EFFECTS, ()),
        ("a.parquet", SIZES, ("--drop", "batch,age")),
        ("a.parquet", EFFECTS, ("--drop", "size")),
    ],
)
def test_named_rows_are_placed_and_completed_part_by_part(
    data, beside, drop, tmp_path, monkeypatch
):
    counted_cells(tmp_path)
    monkeypatch.setattr(on_disk, "MANY", 2**22)
    fit_of = tmp_path / data.replace("b.", "a.")
    words = ("fit", fit_of, *COUNT_SETTINGS, *beside, *drop, "--out", tmp_path / "run")
    with monkeypatch.context() as patch:
        no_stds_in(patch)
        done = run(*words)
    assert done.exit_code == 0, done.stderr
    factors = beside if beside is SIZES else ()
    small, large = tmp_path / "small", tmp_path / "large"
    for folder, most in ((small, 2**22), (large, 0)):
        folder.mkdir()
        with monkeypatch.context() as limits:
            limits.setattr(on_disk, "MANY", most)
            limits.setattr(apply, "PLACED_ROWS", 100)
            limits.setattr(row_sources, "_NUMBERS", 250)
            if not most:
                limits.setattr(apply, "read_rows", None)
                limits.setattr("bochner.data.row_sources.RowSource.whole", None)
            for out in ["z.npy", "x.csv", "z.parquet"] if most else OUTS:
                if out != "z.npy":
                    # whose names alone are looked at, and what is completed
                    no_stds_in(limits)
                command = "impute" if out == "x.csv" else "transform"
                words = (command, tmp_path / "run", tmp_path / data, "--out", folder / out)
                done = run(*words, *factors)
                assert done.exit_code == 0, done.stderr
    lines = (large / "z.csv").read_text().splitlines()
    assert lines[0].endswith("z0,z1,z0_std,z1_std")
    assert lines[1].startswith("'=c0,")
    assert (large / "x.csv").read_bytes() == (small / "x.csv").read_bytes()
    # numbers of a file of float32 are written as such, and standard deviations sought so
    one, other = (np.load(folder / "z.npy") for folder in (large, small))
    np.testing.assert_allclose(one[:, :2], other[:, :2], rtol=1e-6, atol=1e-6)
    off = np.abs(one[:, 2:] / other[:, 2:] - 1.0)
    assert off.max() < 0.01
    assert np.quantile(off, 0.99) < 1e-4
    import pandas as pd

    rows = [pd.read_parquet(folder / "z.parquet") for folder in (small, large)]
    assert list(rows[1]["row"]) == list(rows[0]["row"])
    assert list(rows[1].columns) == list(rows[0].columns)


@pytest.mark.usefixtures("no_stds")
def test_calibration_of_a_file_with_named_rows_reads_some_of_them(X, tmp_path, monkeypatch):
    path = annotated(X, tmp_path)
    run_folder = tmp_path / "run"
    assert run("fit", path, *SETTINGS, "--out", run_folder).exit_code == 0
    words = ["calibrate", run_folder, "--max-rows", 50, "--n-draws", 20, "--seed", 0]
    monkeypatch.setattr(on_disk, "MANY", 2**22)
    whole = replied(*words, path)
    monkeypatch.setattr(on_disk, "MANY", 0)
    monkeypatch.setattr(apply, "read_rows", None)
    assert replied(*words, path) == whole
    names = [f"r{i}" for i in range(300)]
    parts = write_parts(tmp_path / "parts", X, names)
    pandas = pytest.importorskip("pandas")
    for part in parts.glob("*.parquet"):
        # columns in another order than those of the model
        pandas.read_parquet(part)[["cell", *COLUMNS[::-1]]].to_parquet(part, index=False)
    assert replied(*words, parts) == whole


def text_of(X, names=None, delimiter=",", decimal=".", header=True, end="\n"):
    """Return a csv file's text."""
    lines = [["cell", *COLUMNS] if names else COLUMNS] if header else []
    cells = [
        [f"{x!r}".replace(".", decimal) if np.isfinite(x) else "" for x in row]
        for row in X.tolist()
    ]
    lines += [[name, *row] for name, row in zip(names, cells, strict=True)] if names else cells
    return "".join(delimiter.join(line) + end for line in lines)


TEXTS = {
    "names": {"names": [f"c{i}" for i in range(300)]},
    "decimal": {"delimiter": ";", "decimal": ","},
    "windows": {"end": "\r\n"},
    "numbers": {"header": False},
    "packed": {},
}


@pytest.mark.parametrize("kind", TEXTS)
def test_plain_text_is_read_part_by_part(
    kind, X, expected, expected_of_names, tmp_path, monkeypatch
):
    model = expected if kind == "numbers" else expected_of_names
    model.save(tmp_path / "m.bochner")
    holes = X.copy()
    holes[7, 2:4] = np.nan
    text = text_of(holes, **TEXTS[kind])
    path = tmp_path / ("x.csv.gz" if kind == "packed" else "x.csv")

    def write(text):
        content = text.encode("utf-8-sig" if kind == "windows" else "utf-8")
        path.write_bytes(gzip.compress(content) if kind == "packed" else content)

    write(text)
    beside = ("--decimal", ",") if kind == "decimal" else ()
    monkeypatch.setattr(row_sources, "_NUMBERS", 250)
    monkeypatch.setattr(apply, "PLACED_ROWS", 100)
    replies, files = [], []
    for most in (2**22, 0):
        monkeypatch.setattr(on_disk, "MANY", most)
        if not most:
            monkeypatch.setattr(apply, "read_rows", None)
        words = (tmp_path / "m.bochner", path, *beside)
        how = ("--max-rows", 50, "--n-draws", 20, "--seed", 0)
        replies.append(replied("calibrate", *words, *how))
        for command in ("transform", "impute"):
            if kind == "numbers" and command == "impute":
                continue
            out = tmp_path / f"{command}{most}.csv"
            assert run(command, *words, "--out", out).exit_code == 0
            files.append(out.read_text().splitlines())
    assert replies[0] == replies[1]
    half = len(files) // 2
    for whole, parts in zip(files[:half], files[half:], strict=True):
        assert parts[0] == whole[0]
        cells = [[line.split(",") for line in lines[1:]] for lines in (whole, parts)]
        if kind == "names":
            assert [line.pop(0) for line in cells[1]] == [line.pop(0) for line in cells[0]]
        one, other = (np.array(lines, dtype=float) for lines in cells)
        # standard deviations are sought in single precision
        np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-8)
    # a faulty cell is placed in the file
    bad = text.splitlines()
    bad[290] = bad[290].rpartition(";" if kind == "decimal" else ",")[0] + (
        ";x" if kind == "decimal" else ",x"
    )
    write("\n".join(bad) + "\n")
    said = refused("transform", *words, "--out", tmp_path / "bad.csv")
    assert "line 291, cell" in said
    assert not (tmp_path / "bad.csv").exists()


@pytest.mark.usefixtures("no_estimates")
def test_what_a_fit_holds_is_said_before_it(X, tmp_path, monkeypatch):
    path = plain_text(X, tmp_path)
    few = ("--set", "n_frequencies=8")
    said = replied("info", path, *few)["read"]
    assert said == "as a whole, because of a fit without landmarks"
    monkeypatch.setattr(on_disk, "MANY", 2**22)
    assert replied("info", packed_text(X, tmp_path), *few)["read"] == "as a whole"


@pytest.mark.usefixtures("no_stds")
@pytest.mark.parametrize("change", ["quoted", "uneven", "empty line", "words"])
def test_text_that_is_not_plain_is_read_whole(change, X, expected, tmp_path):
    expected.save(tmp_path / "m.bochner")
    lines = text_of(X, header=False).splitlines()
    if change == "quoted":
        lines[8] = ",".join(f'"{cell}"' for cell in lines[8].split(","))
    if change == "empty line":
        lines.insert(9, "")
    if change == "uneven":
        lines[200] += ",1.0"
    if change == "words":
        lines[200] = lines[200].replace(".", "!", 1)
    (tmp_path / "x.csv").write_text("\n".join(lines))
    words = (
        "transform",
        tmp_path / "m.bochner",
        tmp_path / "x.csv",
        "--out",
        tmp_path / "z.npy",
    )
    if change in ("uneven", "words"):
        assert "line 201" in refused(*words)
        return
    assert run(*words).exit_code == 0
    np.testing.assert_allclose(
        np.load(tmp_path / "z.npy")[:, :2], expected.embedding_, atol=1e-6
    )


@pytest.mark.usefixtures("no_stds")
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_calibration_of_a_mixed_table_reads_it_part_by_part(kind, X, tmp_path, monkeypatch):
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    table = pandas.DataFrame(X[:120, :3], columns=list("abc"))
    table["colour"] = rng.choice(["red", "blue"], 120)
    table["grade"] = rng.integers(0, 3, 120)
    table.loc[5:9, "colour"] = None
    data = tmp_path / f"x.{kind}"
    if kind == "csv":
        table.to_csv(data, index=False)
    else:
        table.to_parquet(data, index=False, row_group_size=35)
    monkeypatch.setattr(on_disk, "MANY", 2**22)
    words = ("fit", data, "--likelihood", "auto", *SETTINGS[2:], "--out", tmp_path / "run")
    assert run(*words).exit_code == 0
    words = (
        "calibrate",
        tmp_path / "run",
        data,
        "--max-rows",
        30,
        "--n-draws",
        20,
        "--seed",
        0,
    )
    whole = replied(*words)
    monkeypatch.setattr(on_disk, "MANY", 0)
    monkeypatch.setattr(row_sources, "_NUMBERS", 100)
    with monkeypatch.context() as parts:
        parts.setattr(apply, "read_rows", None)
        assert replied(*words) == whole
    table.loc[115, "colour"] = "green"
    if kind == "csv":
        table.to_csv(data, index=False)
    else:
        table.to_parquet(data, index=False, row_group_size=35)
    assert "'green' in row 115" in refused(*words)


def same_files(small, large, named):
    """Compare what commands wrote of a mixed table, read as a whole and block by block."""
    pandas = pytest.importorskip("pandas")
    for name in ("z.csv", "full.csv", "std.csv"):
        one, other = (pandas.read_csv(folder / name, dtype=str) for folder in (small, large))
        assert list(one.columns) == list(other.columns)
        assert ("cell" in one.columns) == named
        texts = ("cell", "colour", "n", "yes") if name == "full.csv" else ("cell",)
        same = [c for c in one.columns if c in texts]
        pandas.testing.assert_frame_equal(one[same], other[same])
        numbers = [c for c in one.columns if c not in ("cell", "colour", "yes")]
        a, b = (frame[numbers].astype(float) for frame in (one, other))
        np.testing.assert_allclose(b, a, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "parquet", "parts"])
@pytest.mark.parametrize("named", [True, False], ids=["names", "no names"])
def test_mixed_tables_are_placed_completed_and_shown_block_by_block(
    kind, named, X, tmp_path, monkeypatch
):
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(1)
    table = pandas.DataFrame(X[:120].copy(), columns=COLUMNS)
    table["colour"] = rng.choice(["red", "blue, dark"], 120)
    table["n"] = rng.poisson(9, 120)
    table["yes"] = rng.random(120) < 0.5
    if named:
        table.insert(0, "cell", [f"=c{i}" for i in range(120)])
    data = tmp_path / f"x.{kind}"

    def write():
        # no quotes: such files are read whole
        plain = table.replace("blue, dark", "blue") if "csv" in kind else table
        if kind == "parts":
            data.mkdir(exist_ok=True)
            for i, rows in enumerate((slice(50), slice(50, 110), slice(110, 120))):
                plain[rows].to_parquet(data / f"part-{i}.parquet", index=False)
            return
        plain.to_parquet(data, index=False, row_group_size=35) if kind == "parquet" else (
            plain.to_csv(data, index=False)
        )

    write()
    monkeypatch.setattr(on_disk, "MANY", 2**22)
    words = ("fit", data, "--likelihood", "auto", *SETTINGS[2:], "--out", tmp_path / "run")
    with monkeypatch.context() as patch:
        no_stds_in(patch)
        assert run(*words).exit_code == 0
    table.loc[5:9, "colour"] = None
    table.loc[100:, "a"] = np.nan
    table["n"] = table["n"].astype("Int64")
    # in one block alone
    table.loc[110, "n"] = pandas.NA
    write()
    files = {}
    for most in (2**22, 0):
        folder = tmp_path / str(most)
        folder.mkdir()
        monkeypatch.setattr(on_disk, "MANY", most)
        if not most:
            monkeypatch.setattr(row_sources, "_NUMBERS", 250)
            monkeypatch.setattr(apply, "read_rows", None)
            monkeypatch.setattr("bochner.cli.report.read_rows", None)
        given = (tmp_path / "run", data, "--out")
        assert run("transform", *given, folder / "z.csv").exit_code == 0
        done = run("impute", *given, folder / "full.csv", "--std", folder / "std.csv")
        assert done.exit_code == 0, done.stderr
        with monkeypatch.context() as patch:
            no_stds_in(patch)
            assert replied("report", *given, folder / "r.html")["rows"] == 120
        files[most] = folder
    same_files(*files.values(), named)
    table.loc[115, "colour"] = "green"
    write()
    assert "'green' in row 115" in refused("impute", *given, tmp_path / "no.csv")
    assert not (tmp_path / "no.csv").exists()


def test_whole_numbers_of_parts_come_back_as_whole_numbers(X, tmp_path, monkeypatch):
    pandas = pytest.importorskip("pandas")
    counts = np.hstack([np.rint(10 * X[:, :1]) + 0.0, X[:, 1:]])
    settings = {"landmarks": 80, "n_frequencies": 8, "max_iter": 5, "init": "pca"}
    model = bo.NGMVLVM(**settings, random_state=0)
    model.fit(pandas.DataFrame(counts, columns=COLUMNS)).save(tmp_path / "m.bochner")
    counts[7, 0] = np.nan
    path = parquet_parts(counts, tmp_path)
    monkeypatch.setattr(apply, "PLACED_ROWS", 100)
    monkeypatch.setattr(row_sources, "_NUMBERS", 250)
    monkeypatch.setattr("bochner.data.row_sources.RowSource.whole", None)
    run("impute", str(tmp_path / "m.bochner"), str(path), "--out", str(tmp_path / "full.csv"))
    cells = [line.split(",")[0] for line in (tmp_path / "full.csv").read_text().split()]
    assert cells[1] == str(int(counts[0, 0]))
    assert "." in cells[8]  # what was missing is estimated
    assert sum("." in cell for cell in cells) == 1


@pytest.mark.usefixtures("no_estimates")
def test_a_folder_of_parts_is_one_table_whatever_its_size(X, tmp_path, monkeypatch):
    names = [f"c{i}" for i in range(300)]
    folder = write_parts(tmp_path / "rows", X, names)
    large = replied("info", str(folder), *SETTINGS[:-2])
    monkeypatch.setattr(on_disk, "MANY", 2**22)
    small = replied("info", str(folder), *SETTINGS[:-2])
    assert (large.pop("read"), small.pop("read")) == ("block by block", "as a whole")
    assert large == small
    assert large["rows"] == 300
    assert large["row_names"]
    # files that are not called as parts are views
    views = write_parts(tmp_path / "views", X, words="view{}.parquet", count=2)
    assert replied("info", str(views), *SETTINGS[:-2])["columns"] == 12


@pytest.mark.usefixtures("no_stds")
def test_rows_keep_the_names_of_a_column(X, tmp_path):
    names = [f"c{i}" for i in range(300)]
    folder = write_parts(tmp_path / "rows", X, names)
    run("fit", str(folder), "--out", str(tmp_path / "run"), *SETTINGS, "--drop", "f")
    header, first, *_ = (tmp_path / "run" / "embedding.csv").read_text().splitlines()
    assert header.split(",")[0] == "cell"
    assert first.split(",")[0] == "c0"
    assert list(bo.load(tmp_path / "run" / "model.bochner").feature_names_in_) == COLUMNS[:5]
    said = refused("fit", str(folder), "--out", str(tmp_path / "no"), "--drop", "g")
    assert "no 'g'" in said


@pytest.mark.usefixtures("no_stds")
def test_sparse_counts_of_a_file_stay_sparse(tmp_path, monkeypatch):
    anndata = pytest.importorskip("anndata")
    import scipy.sparse as sp

    counts = sp.csr_array(
        np.random.default_rng(0).poisson(0.5, size=(60, 8)).astype(np.float32)
    )
    adata = anndata.AnnData(counts)
    adata.var["high"] = [True] * 6 + [False] * 2
    adata.layers["raw"] = counts * 2
    adata.write_h5ad(tmp_path / "x.h5ad")
    observed = []
    fit = bo.NGMVLVM.fit

    def watched(self, X, **more):
        observed.append(type(self._validate(X, reset=True)))
        return fit(self, X, **more)

    monkeypatch.setattr(bo.NGMVLVM, "fit", watched)
    words = ["fit", str(tmp_path / "x.h5ad"), "--likelihood", "poisson", "--mask-var", "high"]
    reply = replied(*words, "--layer", "raw", "--out", str(tmp_path / "run"), *SETTINGS[2:])
    assert all(issubclass(kind, sp.csr_array | sp.csr_matrix) for kind in observed)
    settings = {"n_frequencies": 8, "max_iter": 5, "init": "pca", "likelihood": "poisson"}
    expected = bo.NGMVLVM(**settings, random_state=0).fit(counts[:, :6] * 2)
    assert reply["elbo"] == expected.elbo_


@pytest.mark.usefixtures("no_stds")
def test_a_bad_value_is_found_before_rows_are_placed(X, expected, tmp_path):
    expected.save(tmp_path / "m.bochner")
    bad = X.copy()
    bad[250, 3] = np.inf
    said = refused(
        "transform", str(tmp_path / "m.bochner"), str(npy(bad, tmp_path)), "--out",
        str(tmp_path / "z.npy"),
    )  # fmt: skip
    assert "row 250, column 3" in said
    assert not (tmp_path / "z.npy").exists()


@pytest.mark.parametrize("store", [npy, zarr_array, parquet_parts, annotated])
@pytest.mark.parametrize("command", ["transform", "impute", "calibrate"])
def test_files_without_rows_are_refused(
    store, command, X, expected, expected_of_names, tmp_path
):
    model = expected if store in (npy, zarr_array) else expected_of_names
    model.save(tmp_path / "m.bochner")
    out = () if command == "calibrate" else ("--out", tmp_path / "out.npy")
    said = refused(command, tmp_path / "m.bochner", store(X[:0], tmp_path), *out)
    assert "Expected data, got an array of shape (0, 6)" in said


@pytest.mark.parametrize("shape", [(0, 6), (300, 0)])
@pytest.mark.parametrize("command", ["info", "fit"])
def test_a_zarr_array_without_rows_or_columns_is_refused(command, shape, tmp_path):
    zarr = pytest.importorskip("zarr")
    path = tmp_path / "x.zarr"
    array = zarr.open(str(path), mode="w", shape=shape, chunks=(10, 6), dtype="f8")
    out = () if command == "info" else ("--out", tmp_path / "run")
    said = refused(command, path, *out)
    assert f"Expected data, got an array of shape {shape} in {path}. Save at least" in said
    if not shape[1]:
        with pytest.raises(InputError, match="Expected data, got an array of shape"):
            bo.NGMVLVM().fit(array)


def test_new_rows_are_read_once_to_be_checked_and_once_to_be_placed(X, tmp_path, monkeypatch):
    table = npy(X, tmp_path)
    words = ("fit", table, *SETTINGS, "--out", tmp_path / "run")
    with monkeypatch.context() as patch:
        no_stds_in(patch)
        assert run(*words).exit_code == 0
    plain, read = row_sources.ArraySource.read, []

    def counted(self, start, stop):
        read.append(stop - start)
        return plain(self, start, stop)

    monkeypatch.setattr(row_sources.ArraySource, "read", counted)
    monkeypatch.setattr(apply, "PLACED_ROWS", 100)
    monkeypatch.setattr(row_sources.RowSource, "block_rows", 50)
    out = tmp_path / "z.npy"
    words = ("transform", tmp_path / "run" / "model.bochner", table, "--out", out)
    done = run(*words)
    assert done.exit_code == 0, done.stderr
    assert sum(read) == 2 * len(X)


@pytest.mark.usefixtures("no_stds")
def test_a_fit_without_a_terminal_says_its_phases(X, tmp_path):
    done = run("fit", npy(X, tmp_path), *SETTINGS, "--out", tmp_path / "run")
    said = [line.partition(" (")[0].partition(",")[0] for line in done.stderr.splitlines()]
    said = [words for words in said if not words.startswith("Warning")]
    assert said == [
        "reading x.npy",
        "looking at the data",
        "starts",
        "training",
        "placing rows",
        "bound of all rows",
        "all rows",
        "bound of all rows",
        "final bound",
        "posterior of the weights",
        "placing rows",
        "writing",
    ]


@pytest.fixture(scope="module")
def in_parts(X, tmp_path_factory):
    """A table, and the folder of a run that places thirty rows at a time."""
    folder = tmp_path_factory.mktemp("in_parts")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(on_disk, "MANY", 0)
        patch.setattr(rows, "passes", lambda shape: chunks(shape[0], 30))
        done = run("fit", npy(X[:150], folder), *SETTINGS, "--out", folder / "whole")
    assert done.exit_code == 0, done.stderr
    return folder / "x.npy", folder / "whole"


@pytest.mark.parametrize("count", [1, 3])
def test_a_run_that_is_cut_while_rows_are_placed_at_last_places_the_others(
    count, in_parts, tmp_path, monkeypatch
):
    """Rows are written as they are placed, and what was found before is not found again."""
    table, whole = in_parts
    monkeypatch.setattr(rows, "passes", lambda shape: chunks(shape[0], 30))
    words = ("fit", table, *SETTINGS, "--out", tmp_path / "run")
    at_once = functools.partial(placed_rows.PlacedRows, seconds=0.0)
    monkeypatch.setattr(placed_rows, "PlacedRows", at_once)
    plain, parts = PlacingMixin._std, []

    def cut(self, *given):
        parts.append(len(given[1][0]))
        if len(parts) > count:
            raise MemoryError
        return plain(self, *given)

    monkeypatch.setattr(PlacingMixin, "_std", cut)
    assert run(*words).exit_code != 0
    parts.clear()
    monkeypatch.setattr(
        PlacingMixin, "_std", lambda self, *given: parts.append(0) or plain(self, *given)
    )
    for name in ("evaluate", "final_bound"):
        monkeypatch.setattr(row_selection, name, None)
    done = run(*words, "--resume")
    assert done.exit_code == 0, done.stderr
    assert len(parts) == 5 - count
    for name in ("model.bochner", "embedding.csv"):
        assert (tmp_path / "run" / name).read_bytes() == (whole / name).read_bytes()
    assert not list((tmp_path / "run").glob("*.ckpt*"))


@pytest.mark.usefixtures("no_stds")
def test_a_zarr_store_of_anndata_is_fitted_and_its_columns_are_found_by_name(
    X, expected, tmp_path
):
    anndata = pytest.importorskip("anndata")
    pytest.importorskip("zarr")
    names = [f"c{i}" for i in range(300)]
    for name, order in (("A", [0, 1, 2, 3, 4, 5]), ("B", [5, 4, 3, 2, 1, 0])):
        adata = anndata.AnnData(X[:, order])
        adata.obs_names, adata.var_names = names, [COLUMNS[j] for j in order]
        adata.layers["log"] = X[:, order]
        adata.write_zarr(tmp_path / f"{name}.zarr")
    for data in ("A.zarr", "A.zarr/layers/log"):
        reply = replied(
            "fit", tmp_path / data, *SETTINGS, "--out", tmp_path / "run", "--force"
        )
        assert reply["elbo"] == expected.elbo_
    lines = (tmp_path / "run" / "embedding.csv").read_text().splitlines()
    assert lines[1].startswith("c0,")
    for data in ("A.zarr", "A.zarr/X"):
        out = tmp_path / "z.npy"
        done = run("transform", tmp_path / "run", tmp_path / data, "--out", out)
        assert done.exit_code == 0, done.stderr
        np.testing.assert_array_equal(np.load(out)[:, :2], expected.embedding_)
        out.unlink()
    # whose columns are in another order
    replied("transform", tmp_path / "run", tmp_path / "B.zarr", "--out", out)
    np.testing.assert_allclose(np.load(out)[:, :2], expected.embedding_, atol=1e-6)
    out.unlink()
    said = refused(
        "transform", tmp_path / "run", npy(X, tmp_path), "--out", out, "--layer", "a"
    )
    assert "layer only for h5ad and h5mu files" in said
    said = refused("fit", tmp_path / "A.zarr/obs", "--out", tmp_path / "no")
    assert "Name one of its arrays: " in said


@pytest.mark.parametrize("kind", ["dense", "csr", "csc", "names", "zarr"])
def test_a_part_of_a_large_file_that_cannot_be_read_names_the_file(kind, X, tmp_path):
    anndata = pytest.importorskip("anndata")
    h5py = pytest.importorskip("h5py")
    sparse = pytest.importorskip("scipy.sparse")
    if kind == "zarr":
        path = zarr_array(X, tmp_path)
        for chunk in path.rglob("*"):
            if chunk.is_file() and not chunk.name.startswith((".", "zarr")):
                chunk.write_bytes(b"no longer what was written")
    else:
        made = {"csr": sparse.csr_matrix, "csc": sparse.csc_matrix}.get(kind, np.asarray)
        adata = anndata.AnnData(made(X))
        adata.var_names = COLUMNS
        path = tmp_path / "x.h5ad"
        adata.write_h5ad(path, compression="gzip")
        part = {"dense": "X", "names": "obs/_index"}.get(kind, "X/indices")
        with h5py.File(path) as file:
            place = file[part].id.get_chunk_info(0).byte_offset
        content = bytearray(path.read_bytes())
        content[place + 2 : place + 40] = bytes(38)
        path.write_bytes(content)
    for command in (["info"], ["fit", "--out", tmp_path / "run"]):
        said = refused(command[0], path, *command[1:])
        assert f"x.{path.suffix[1:]}" in said
        assert "damaged" in said


@pytest.mark.usefixtures("no_stds", "few_draws")
@pytest.mark.parametrize("kind", ["csv", "parquet", "npy"])
@pytest.mark.parametrize("most", [0, 2**22])
def test_whole_numbers_that_lose_digits_are_said(
    kind, most, X, tmp_path, monkeypatch, request
):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    monkeypatch.setattr(on_disk, "MANY", most)
    path = tmp_path / f"x.{kind}"
    for beyond, said in ((1, True), (0, False)):
        table = pandas.DataFrame(X, columns=COLUMNS)
        # every second one is held
        table["b"] = 2**53 - 600 + 600 * beyond + np.arange(300)
        if kind == "npy":
            np.save(path, table[["b"]].to_numpy())
        elif kind == "csv":
            table.to_csv(path, index=False)
        else:
            table.to_parquet(path, index=False)
        if not beyond:
            request.getfixturevalue("no_estimates")
        done = run("info", path, "--set", "n_frequencies=4")
        assert done.exit_code == 0, done.stderr
        # arrays that stay in their file are read as numbers alone
        shown = said and not (kind == "npy" and most == 0)
        assert done.stderr.count("holds whole numbers beyond 2^53") == shown
