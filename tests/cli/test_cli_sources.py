"""Downloads with checksums, and benchmarks from a checkout."""

import functools
import gzip
import hashlib
import http.server
import json
import logging
import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from scipy.io import savemat

from bochner.cli import bench
from bochner.datasets import fetch as logic
from bochner.datasets.originals import ORIGINALS
from bochner.errors import InputError
from bochner.model_selection.cost import BASE_BYTES, BYTES_PER_ENTRY, BYTES_PER_SITE
from helpers.cli import refused, replied, run

CONTENT = b"rows and columns\n" * 200


class Server(http.server.SimpleHTTPRequestHandler):
    """Files of a folder; ``cut-`` in front of a name stops in the middle of it."""

    asked: ClassVar[list[str]] = []

    def log_message(self, *arguments):
        pass

    def do_GET(self):
        Server.asked.append(self.path)
        if not self.path.startswith("/cut-"):
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(CONTENT[:100])


@pytest.fixture
def server(tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "table.csv").write_bytes(CONTENT)
    Server.asked = []
    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Server, directory=str(shared))
    ) as site:
        thread = threading.Thread(target=site.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{site.server_port}"
        site.shutdown()
        thread.join()


@pytest.fixture
def manifest(tmp_path):
    right = hashlib.sha256(CONTENT).hexdigest()
    entries = {
        "good": {"url": "table.csv", "sha256": right.upper()},
        "renamed": {"url": "table.csv", "sha256": right, "file": "own.csv"},
        "wrong": {"url": "table.csv", "sha256": "0" * 64, "file": "wrong.csv"},
        "cut": {"url": "cut-table.csv", "sha256": right},
        "absent": {"url": "absent.csv", "sha256": right},
        "ftp": {"url": "ftp://example.org/x", "sha256": right},
    }
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps(entries))
    return path


@pytest.fixture
def out(tmp_path):
    path = tmp_path / "out"
    path.mkdir()
    return path


def test_a_file_is_downloaded_once_and_checked(server, manifest, out, monkeypatch):
    arguments = ("fetch", "good", "--manifest", manifest, "--out", out)
    monkeypatch.setenv("BOCHNER_DATA_URL", server + "/")
    reply = replied(*arguments)
    assert (reply["downloaded"], reply["bytes"], reply["file"]) == (
        True,
        len(CONTENT),
        str(out / "table.csv"),
    )
    assert (out / "table.csv").read_bytes() == CONTENT
    assert replied(*arguments, "--from", "http://127.0.0.1:1")["downloaded"] is False
    assert Server.asked == ["/table.csv"]
    monkeypatch.setenv("BOCHNER_DATA", str(out))
    assert replied("fetch", "renamed", "--manifest", manifest)["file"] == str(out / "own.csv")


def test_a_download_that_went_wrong_leaves_nothing(server, manifest, out):
    options = ("--manifest", manifest, "--out", out, "--from", server)
    assert "a file with SHA-256 0000" in refused("fetch", "wrong", *options)
    assert "3,400 bytes from" in (cut := refused("fetch", "cut", *options))
    assert "got 100, then the end. The download was cut: run it again" in cut
    assert "got 404 File not found" in refused("fetch", "absent", *options)
    assert "an answer from http://127.0.0.1:1/table.csv" in refused(
        "fetch", "good", "--manifest", manifest, "--out", out, "--from", "http://127.0.0.1:1"
    )
    assert list(out.iterdir()) == []


def test_what_was_there_before_is_kept(server, manifest, out):
    (out / "table.csv").write_text("my own")
    options = ("--manifest", manifest, "--out", out, "--from", server)
    assert "with another content. Add --force to replace it" in refused(
        "fetch", "good", *options
    )
    assert (out / "table.csv").read_text() == "my own"
    (out / "cut-table.csv").write_text("my own")
    assert "was cut" in refused("fetch", "cut", *options, "--force")
    assert (out / "cut-table.csv").read_text() == "my own"
    assert replied("fetch", "good", *options, "--force")["downloaded"] is True
    assert (out / "table.csv").read_bytes() == CONTENT


def test_what_cannot_be_fetched(manifest, out, tmp_path, monkeypatch):
    monkeypatch.delenv("BOCHNER_DATA_URL", raising=False)
    monkeypatch.delenv("BOCHNER_DATA", raising=False)
    assert "the name of a data set, got 'nothing'. Choose from absent, cut" in refused(
        "fetch", "nothing", "--manifest", manifest, "--out", out
    )
    assert "give --from URL, or set BOCHNER_DATA_URL" in refused(
        "fetch", "pbmc3k", "--out", out
    ).replace("Give", "give")
    assert "Give --out DIR, or set BOCHNER_DATA" in refused(
        "fetch", "oil", "--from", "http://127.0.0.1:1"
    )
    assert "http, https or file, got ftp://" in refused(
        "fetch", "ftp", "--manifest", manifest, "--out", out
    )
    bad = tmp_path / "bad.json"
    for text, expected in {
        "{": "a manifest in JSON",
        "[]": "with a list",
        '{"a": {"url": "x"}}': "url and sha256 (64 hexadecimal digits) in",
    }.items():
        bad.write_text(text)
        assert expected in refused("fetch", "a", "--manifest", bad, "--out", out)


def test_every_data_set_has_a_checksum_and_real_files_have_it(monkeypatch):
    assert {logic.CHECKSUMS[file] for file in logic.known().values()} <= set(
        logic.CHECKSUMS.values()
    )
    folder = os.environ.get("BOCHNER_DATA")
    if not folder:
        pytest.skip("BOCHNER_DATA names no folder with the real files")
    source = logic.source_of("oil", f"file://{folder}")
    assert logic.fetch(source, Path(folder)) == (Path(folder) / "oil.npz", False)


def public_file(name, X, y, names):
    """The text of a public file, its peculiarities included."""
    if name == "spambase":
        rows = [range(1, 59), *np.column_stack([X, y]).tolist()]
        return "\n".join(",".join(format(v, ".9g") for v in row) for row in rows)
    if name == "skin":
        rows = np.column_stack([X, np.where(y == 1, 1, 2)]).tolist()
        return "\n".join("\t".join(map(str, row)) for row in [*rows, [9, 9, 9, 3]])
    head = [f"@ATTRIBUTE {column} NUMERIC" for column in names]
    rows = [
        ",".join(format(v, ".9g") for v in row) for row in np.column_stack([X, y]).tolist()
    ]
    return "\n".join(
        ["@RELATION EEG_DATA", *head, "@ATTRIBUTE eyeDetection {0,1}", "@DATA", *rows]
    )


def made(name):
    rng = np.random.default_rng(0)
    width = {"spambase": 57, "eeg": 14, "skin": 3}[name]
    y = rng.integers(0, 2, 20).astype(np.uint8)
    if name == "skin":
        return rng.integers(0, 256, (20, width)).astype(np.uint8), y, []
    X = (4000.0 + 10.0 * rng.standard_normal((20, width))).astype(np.float32)
    X[3, 0] += 5000.0
    return X, y, [f"C{i}" for i in range(width)]


@pytest.mark.parametrize("name", ["eeg", "skin", "spambase"])
def test_a_data_set_is_built_from_its_public_original(
    name, server, out, tmp_path, monkeypatch
):
    monkeypatch.delenv("BOCHNER_DATA_URL", raising=False)
    X, y, names = made(name)
    file = tmp_path / "shared" / "original"
    file.write_text(public_file(name, X, y, names))
    known = ORIGINALS[name]
    sha256 = known.digest({"X": X, "y": y})
    original = replace(known, urls=(f"{server}/original",), sha256=sha256)
    monkeypatch.setitem(ORIGINALS, name, original)
    assert replied("fetch", name, "--out", out)["downloaded"] is True
    with np.load(out / f"{name}.npz") as result:
        np.testing.assert_array_equal(result["X"], X)
        np.testing.assert_array_equal(result["y"], y)
        assert result["X"].dtype == X.dtype
        if name == "eeg":
            assert result["feature_names"].tolist() == names
            assert result["outlier_rows"].tolist() == [3]
    assert replied("fetch", name, "--out", out)["downloaded"] is False
    (out / f"{name}.npz").write_bytes(b"no data")
    assert "with another content" in refused("fetch", name, "--out", out)
    file.write_text(file.read_text().replace(format(X[0, 0], ".9g"), "77", 1))
    assert "a file with SHA-256" in refused("fetch", name, "--out", out, "--force")
    file.write_text("<html>gone</html>")
    assert (
        "the public copy was changed"
        in refused("fetch", name, "--out", out, "--force").lower()
    )
    assert (out / f"{name}.npz").read_bytes() == b"no data"


def idx(array):
    """The bytes of an array in the idx format, compressed."""
    sizes = np.array(array.shape, dtype=">i4").tobytes()
    return gzip.compress(bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes())


def test_mnist_is_built_from_its_four_files(server, out, tmp_path, monkeypatch):
    monkeypatch.delenv("BOCHNER_DATA_URL", raising=False)
    rng = np.random.default_rng(0)
    X = rng.integers(0, 256, (7, 28, 28)).astype(np.uint8)
    y = rng.integers(0, 10, 7).astype(np.uint8)
    parts = {"a": X[:5], "b": y[:5], "c": X[5:], "d": y[5:]}
    for name, array in parts.items():
        (tmp_path / "shared" / name).write_bytes(idx(array))
    known = ORIGINALS["mnist"]
    arrays = {"X": X.reshape(7, 784), "y": y}
    urls = tuple(f"{server}/{name}" for name in parts)
    original = replace(known, urls=urls, sha256=known.digest(arrays))
    monkeypatch.setitem(ORIGINALS, "mnist", original)
    assert replied("fetch", "mnist", "--out", out)["downloaded"] is True
    with np.load(out / "mnist.npz") as result:
        np.testing.assert_array_equal(result["X"], arrays["X"])
        np.testing.assert_array_equal(result["y"], y)
        assert int(result["n_train"]) == 5
    (tmp_path / "shared" / "c").write_bytes(gzip.compress(b"no images"))
    text = refused("fetch", "mnist", "--out", out / "..", "--force")
    assert "without bytes in the idx format" in text
    (tmp_path / "shared" / "d").unlink()
    assert "an answer from" in refused("fetch", "mnist", "--out", out / "..", "--force")


@pytest.mark.parametrize("name", ["brendan", "oil"])
def test_a_data_set_is_built_from_a_file_of_matlab(name, server, out, tmp_path, monkeypatch):
    monkeypatch.delenv("BOCHNER_DATA_URL", raising=False)
    rng = np.random.default_rng(0)
    if name == "brendan":
        arrays = {"X": rng.integers(0, 256, (6, 560)).astype(np.uint8)}
        held = {"ff": arrays["X"].T}
    else:
        arrays, held = {}, {}
        for part, end in (("Trn", ""), ("Vdn", "_val"), ("Tst", "_test")):
            kinds = np.eye(3)[rng.integers(0, 3, 6)]
            X, frac = rng.normal(size=(6, 12)), rng.uniform(size=(6, 2))
            held |= {
                f"Data{part}": X,
                f"Data{part}Lbls": kinds,
                f"Data{part}Frctns": frac,
            }
            arrays |= {
                f"X{end}": X.astype(np.float32),
                f"y{end}": kinds.argmax(axis=1).astype(np.uint8),
                f"frac{end}": frac.astype(np.float32),
            }
    savemat(tmp_path / "shared" / "original", held, appendmat=False)
    known = ORIGINALS[name]
    original = replace(known, urls=(f"{server}/original",), sha256=known.digest(arrays))
    monkeypatch.setitem(ORIGINALS, name, original)
    assert replied("fetch", name, "--out", out)["downloaded"] is True
    with np.load(out / f"{name}.npz") as result:
        assert sorted(result) == sorted(arrays)
        for key, values in arrays.items():
            np.testing.assert_array_equal(result[key], values)
            assert result[key].dtype == values.dtype


def test_checksums_of_originals_are_those_of_the_real_data():
    folder = os.environ.get("BOCHNER_DATA")
    if not folder:
        pytest.skip("BOCHNER_DATA names no folder with the real files")
    for name, original in ORIGINALS.items():
        source = logic.source_of(name, None)
        assert source.checksum_in(Path(folder) / source.file) == original.sha256


# -- bench
# ---------------------------------------------------------------------------


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    scripts = tmp_path / "benchmarks"
    scripts.mkdir()
    (scripts / "harness.py").write_text("def main(): pass\n")
    (scripts / "sums.py").write_text(
        "import sys\ndef main(): print('sum', 3, *sys.argv[1:])\nmain()\n"
    )
    (scripts / "broken.py").write_text("def main(): raise SystemExit(3)\nmain()\n")
    (scripts / "papers.py").write_text(
        (scripts / "sums.py").read_text().replace("sum", "table")
    )
    (scripts / "papers.csv").write_text("entry,item\n000-table-8,BRIDGES\n000-table-8,MNIST\n")
    (scripts / "README.md").write_text(
        "# Figures\n\n## other.py\n\nno\n\n## sums.py\n\nsum 4\n"
    )
    monkeypatch.setattr(bench, "folder", lambda: scripts)
    return scripts


def test_a_benchmark_is_run_and_shown_beside_what_was_published(checkout):
    reply = replied("bench", "sums", "--quick")
    assert (reply["output"], reply["published"]) == ("sum 3 --quick\n", "sum 4")
    assert reply["command"] == "python benchmarks/sums.py --quick"
    shown = run("bench", "sums").stdout
    assert run("bench", "sums").stderr == ""  # not everything twice
    assert run("bench", "sums", "--json").stderr == "sum 3\n"
    assert (
        shown.index("Measured now")
        < shown.index("sum 3")
        < shown.index("Published")
        < shown.index("sum 4")
    )
    assert (
        "the name of a benchmark, got 'nothing'. Choose from broken, papers, sums, or a"
        in refused("bench", "nothing")
    )
    assert "which ended with exit code 3. Read its message above" in refused("bench", "broken")


def test_a_table_of_a_paper_is_measured_by_the_script_of_the_papers(checkout):
    reply = replied("bench", "000-table-8", "--quick")
    assert reply["output"] == "table 3 000-table-8 --quick\n"
    assert reply["command"] == "python benchmarks/papers.py 000-table-8 --quick"
    assert reply["published"] is None
    assert run("bench", "000-table-8", "--stored").stdout == "table 3 000-table-8 --stored\n"
    assert run("bench", "000-table-8", "--again").stdout == "table 3 000-table-8 --again\n"
    few = run("bench", "000-table-8", "--seeds", "2", "--threads", "1").stdout
    assert few == "table 3 000-table-8 --seeds 2 --threads 1\n"
    for word in ("--list", "--all", "--page"):
        assert run("bench", word).stdout == f"table 3 {word}\n"


@pytest.mark.parametrize(
    ("words", "got"), [((), "none of them"), (("sums", "--list"), "sums, --list")]
)
def test_one_thing_is_asked_of_bench(checkout, words, got):
    assert f"NAME, --list, --all or --page, got {got}. Write bochner bench" in refused(
        "bench", *words
    )


def test_a_benchmark_needs_a_checkout(tmp_path, monkeypatch):
    assert (bench.folder() / "step.py").is_file()
    monkeypatch.setattr(bench, "__file__", str(tmp_path / "a" / "b" / "c.py"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"a checkout with benchmarks/.*pip install -e"):
        bench.folder()
    assert bench.published(Path(__file__).parents[2] / "benchmarks" / "README.md", "step")


# -- logs, force, completion, help, estimates
# ---------------------------------------------------------------------------

SMALL = [
    "--set",
    "n_components=1",
    "--set",
    "n_frequencies=8",
    "--set",
    "n_init=1",
    "--set",
    "max_iter=3",
]


@pytest.fixture
def data(tmp_path):
    source = np.random.default_rng(0)
    np.save(tmp_path / "X.npy", np.sin(source.normal(size=(20, 1)) + np.arange(4)))
    return tmp_path / "X.npy"


def test_a_log_keeps_what_was_said_and_the_bound(data, tmp_path):
    log = tmp_path / "bochner.log"
    assert run("fit", data, "--out", tmp_path / "o", "--log", log, *SMALL).exit_code == 0
    text = log.read_text()
    assert "Training stopped after 3 steps" in text
    assert "step 1, elbo" in text
    assert "done: {'model': 'ng-mvlvm'" in text
    assert refused(
        "transform",
        tmp_path / "o",
        tmp_path / "no.npy",
        "--out",
        tmp_path / "z.csv",
        "--log",
        log,
    )
    assert "no.npy, which does not exist" in log.read_text()[len(text) :]
    folder = tmp_path / "no"
    assert refused("info", data, "--log", folder / "l.log") == (
        f"Expected an existing folder for the log, got {folder}. "
        f"Create it first: mkdir -p {folder}."
    )


def test_a_log_takes_names_that_are_no_text(data, tmp_path, monkeypatch):
    """They ended the log, and the command with the code of a full disk."""
    log = tmp_path / "l.log"
    named = data.with_name("bad\udcff.npy")
    named.write_bytes(data.read_bytes())
    monkeypatch.setattr("sys.argv", ["bochner", "sample", str(named)])
    monkeypatch.setattr("bochner.cli.info._estimate", lambda *_: {})
    # pytest hands its copy of records to its first process, which takes nothing but UTF-8
    monkeypatch.setattr(logging.getLogger("bochner"), "propagate", False)
    done = run("info", named, "--log", log)
    assert done.exit_code == 0, done.stderr
    assert "bad\\udcff.npy" in log.read_text("utf-8")


@pytest.mark.parametrize(
    ("name", "got"),
    [
        ("run/model.bochner", "a name of results"),
        ("checkpoint.ckpt", "a name of results"),
        ("new.png", "a name of results"),
        ("report.html", "a name of results"),
        ("X.npy", "a name of data"),
        ("notes.txt", "which is there and no log"),
        ("model", "which is there and no log"),
    ],
)
def test_a_log_is_written_into_no_other_file(data, tmp_path, name, got):
    (tmp_path / "run").mkdir()
    for other in ("run/model.bochner", "notes.txt", "model"):
        (tmp_path / other).write_bytes(b"of others \xff")
    said = refused("info", data, "--log", tmp_path / name)
    assert said == (
        f"Expected a file for the log, got {tmp_path / name}, {got}. Write --log fit.log."
    )
    for other in ("run/model.bochner", "notes.txt", "model"):
        assert (tmp_path / other).read_bytes() == b"of others \xff"
    assert not (tmp_path / "new.png").exists()


def test_a_log_goes_on_where_it_ended_and_begins_in_an_empty_file(data, tmp_path):
    (tmp_path / "log").touch()
    for _ in range(2):
        assert run("info", data, "--log", tmp_path / "log").exit_code == 0
    assert (tmp_path / "log").read_text().count("done:") == 2


def test_outputs_that_exist_are_replaced_only_by_force(data, tmp_path, monkeypatch):
    out = tmp_path / "o"
    assert run("fit", data, "--out", out, *SMALL).exit_code == 0
    z = tmp_path / "z.npy"
    z.write_text("mine")
    for command in ("transform", "impute"):
        assert "z.npy, which exists. Add --force to replace it, or rename" in refused(
            command, out, data, "--out", z
        )
    assert z.read_text() == "mine"
    std = ("--std", z, "--out", tmp_path / "full.npy")
    assert "which exists" in refused("impute", out, data, *std)
    assert not (tmp_path / "full.npy").exists()
    assert replied("transform", out, data, "--out", z, "--force")["rows"] == 20
    assert np.load(z).shape == (20, 2)
    monkeypatch.setattr("os.access", lambda path, mode: not mode & os.W_OK)
    result = refused("transform", out, data, "--out", tmp_path / "new.npy")
    assert "a folder to write to, got" in result
    assert "without permission" in result
    assert "a folder to write to" in refused("fit", data, "--out", tmp_path / "p", *SMALL)
    said = refused("fit", data, "--out", data / "below", *SMALL)
    assert said.endswith(
        "(Not a directory). Choose another: a part of it is a file, and no folder."
    )


def test_info_refuses_the_settings_that_a_fit_refuses(data, tmp_path):
    said = refused("fit", data, "--out", tmp_path / "o", "--set", "n_components=abc")
    wrong = replied("info", data, "--set", "n_components=abc")["estimate"]
    assert wrong == {"refused": said}


def test_an_estimate_before_the_fit(data, tmp_path):
    result = replied(
        "info", data, *SMALL, "--set", "n_mixtures=1", "--view", "a=0:1", "--view", "b=1:4"
    )["estimate"]
    K = 2 * 8
    assert result["operations_per_step"] == 4 * 20 * K * (K + 1) + 4 * 20 * K * (K + 3)
    assert result["gflops"] > 0
    assert 0 <= result["seconds_typical"] <= result["seconds_at_most"]
    assert result["trial_rows"] == 20
    base = BASE_BYTES + BYTES_PER_ENTRY * 20 * 4
    # rows on disk that all are trained on are held as those in memory are
    assert result["memory_bytes"] == base
    counts = tmp_path / "counts.npy"
    np.save(counts, np.abs(np.load(data)).round())
    given = ("--likelihood", "poisson")
    result = replied("info", counts, *SMALL, *given)["estimate"]
    assert result["memory_bytes"] == base + BYTES_PER_SITE * 20 * 4
    X = np.load(data)
    X[3, 1] = np.inf
    np.save(tmp_path / "inf.npy", X)
    assert (
        "inf in view 'x', row 3"
        in replied("info", tmp_path / "inf.npy")["estimate"]["refused"]
    )


def test_completion_of_the_shell(monkeypatch):
    from typer.testing import CliRunner

    from bochner.cli import app

    env = {
        "_BOCHNER_COMPLETE": "complete_bash",
        "COMP_WORDS": "bochner fit x.csv --model ng",
        "COMP_CWORD": "4",
    }
    done = CliRunner().invoke(app, [], prog_name="bochner", env=env)
    assert done.stdout.split() == ["ng-mvlvm"]
    assert "--show-completion" in run("--help").stdout


@pytest.mark.parametrize(
    "command", ["demo", "fit", "transform", "impute", "info", "fetch", "bench"]
)
def test_every_command_has_json_a_log_and_an_example(command):
    text = " ".join(run(command, "--help").stdout.split())
    assert "--json" in text
    assert "--log" in text
    assert f"Example: bochner {command} " in text
