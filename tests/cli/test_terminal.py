"""What reaches a terminal: no control characters, and no end of a run when it is closed."""

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner

from bochner.cli import app, session
from bochner.cli.parse import check_words, parameters
from bochner.cli.show import text
from bochner.data.likelihood_names import LIKELIHOODS
from bochner.errors import InputError, message, printable
from bochner.estimators.annotated import MODELS
from bochner.estimators.settings.likelihoods import NAMES
from bochner.progress import overall
from helpers.cli import SETTINGS, refused, run
from helpers.forks import MAIN

RED = "\x1b[31m"


@given(st.text())
def test_no_control_character_is_printed(name):
    for shown in (printable(name), text(name), text({name: 1}), text([name])):
        assert all(c.isprintable() for c in shown)


class Terminal(io.StringIO):
    """A terminal whose bytes are written past its text, as typer does."""

    encoding = "utf-8"

    def __init__(self):
        super().__init__()
        self.buffer = self

    def isatty(self):
        return True

    def write(self, text):
        return super().write(text if isinstance(text, str) else text.decode())


def test_a_line_stands_above_the_bar(monkeypatch):
    drawn = Terminal()
    monkeypatch.setattr(sys, "stderr", drawn)
    monkeypatch.setenv("TERM", "xterm")
    with overall("placing rows", True, Console(stderr=True, force_terminal=True)):
        session.report_progress("Warning: one")
        session.report_progress("Warning: two")
    # an erased line is begun again
    lines = re.split(r"\n|\x1b\[2K", drawn.getvalue())
    lines = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", line) for line in lines]
    assert "Warning: one" in lines
    assert "Warning: two" in lines


def test_without_standard_error_nothing_goes_to_standard_output(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stderr", None)
    session.report_progress("training")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("words", [("--help",), ("info", "d.csv", "--set", "n_frequencies=4")])
def test_a_terminal_of_no_columns_is_one_of_unknown_width(tmp_path, words):
    (tmp_path / "d.csv").write_text("a,b\n1,2\n3,4\n5,7\n")
    command = [sys.executable, "-m", "bochner", *words]
    done = []
    for width in ("0", "80"):
        env = {**os.environ, "COLUMNS": width}
        out = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, check=True)
        # the estimate of seconds depends on what else the machine does
        done.append([x for x in out.stdout.splitlines() if b"estimate" not in x])
    assert done[0] == done[1] != []


def test_words_of_every_language_are_printed_as_they_are():
    assert printable("größe 日本 é – ✓") == "größe 日本 é – ✓"
    assert message("a", f"{RED}b\n", "c") == "Expected a, got \\x1b[31mb\\n. C."


@pytest.mark.parametrize(
    "arguments",
    [
        ("fit", f"{RED}none.csv", "--out", "o"),
        ("fit", "DATA", "--out", "o", "--set", f"{RED}x=1"),
        ("fit", "DATA", "--out", "o", "--view", f"{RED}x"),
        ("fit", "DATA", "--out", "o", "--view", f"{RED}=0:9"),
        ("info", "DATA", "--view", f"{RED}=0:2"),
    ],
)
def test_commands_escape_what_they_were_given(tmp_path, arguments):
    data = tmp_path / "d.csv"
    data.write_text("a,b\n1,2\n3,4\n5,7\n")
    done = CliRunner().invoke(app, [a.replace("DATA", str(data)) for a in arguments])
    assert "\x1b[31m" not in done.output
    assert "x1b" in done.output or done.exit_code == 0


def test_a_closed_standard_error_does_not_end_a_fit(tmp_path, forks):
    data = tmp_path / "d.csv"
    data.write_text("a,b,c\n" + "\n".join(f"{i},{i * i % 7},5" for i in range(20)))
    small = [f"--set={name}" for name in ("n_components=1", "init=pca", "max_iter=3")]
    words = ["fit", data, "--out", tmp_path / "run", *small, "--set=n_frequencies=8"]
    assert forks.run(MAIN, *words, stderr="closed").returncode == 0
    assert (tmp_path / "run" / "model.bochner").is_file()


@pytest.mark.parametrize("more", [(), ("--json",)])
@pytest.mark.parametrize(("source", "code"), [("d.csv", 0), ("none.csv", 2)])
def test_a_reader_that_leaves_changes_no_exit_code(tmp_path, more, source, code, forks):
    (tmp_path / "d.csv").write_text(
        "a,b,c\n" + "\n".join(f"{i},{i * i % 7},5" for i in range(20))
    )
    done = forks.run(MAIN, "info", tmp_path / source, *more, stdout="closed")
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


@pytest.mark.parametrize("line", ["--help", "fit --help", "--version"])
def test_help_and_version_may_lose_their_reader(line, forks):
    done = forks.run(MAIN, *line.split(), stdout="closed")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("line", ["--help", "--version", "info d.csv", "info d.csv --json"])
def test_a_full_disk_behind_standard_output_is_one_line(tmp_path, line, forks):
    (tmp_path / "d.csv").write_text("a,b\n1,2\n3,5\n4,4\n")
    done = forks.run(MAIN, *line.split(), stdout="/dev/full", folder=tmp_path)
    assert done.returncode == 3
    assert done.stderr == "Error: standard output: No space left on device\n"


# Commands in one process, each with its exit code and whether libraries came with it.
LIGHT = """
import sys
from bochner.cli import app
for line in sys.argv[1:]:
    try:
        app(line.split())
    except SystemExit as end:
        print(end.code, "torch" in sys.modules, "numpy" in sys.modules, flush=True)
    print("---", file=sys.stderr, flush=True)
"""


def answers(lines, folder):
    """Return what a process without torch prints of every command, and says."""
    done = subprocess.run(
        [sys.executable, "-c", LIGHT, *lines],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )
    said = done.stderr.split("---\n")[:-1]
    return list(zip(done.stdout.splitlines(), said, strict=True))


def test_what_is_refused_by_its_name_is_refused_without_torch(tmp_path):
    (tmp_path / "d.csv").write_text("a,b\n1,2\n")
    words = ["none.csv", "d.csv --set n_component=2", "d.csv --likelihood nb"]
    for printed, said in answers([f"fit {each} --out o" for each in words], tmp_path):
        assert printed.split() == ["2", "False", "False"], said


def test_what_is_there_already_is_refused_without_torch(tmp_path):
    for name in ("d.csv", "z.csv"):
        (tmp_path / name).write_text("a,b\n1,2\n")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "model.bochner").write_bytes(b"")
    expected = {
        "fit d.csv --out run": "of a run that is finished. Add --force",
        "transform run d.csv --out z.csv": "which exists. Add --force",
        "impute run d.csv --out z.csv": "which exists. Add --force",
        "impute run d.csv --out e.csv --std z.csv": "which exists. Add --force",
        "sample run --out d.csv": "which exists. Add --force",
        "transform run d.csv --out d.csv": "got d.csv, which is the data. Choose another name",
        "impute run d.csv --out e.csv --std d.csv": "which is the data. Choose another",
        "transform none d.csv --out e.csv": "a folder of bochner fit, got no file at none",
        "calibrate run none.csv": "none.csv, which does not exist",
        "report run none.csv": "none.csv, which does not exist",
        "fit d.csv --outt run": "--out",
    }
    given = answers(expected, tmp_path)
    for says, (printed, said) in zip(expected.values(), given, strict=True):
        assert printed.split() == ["2", "False", "False"], said
        assert says in said


def test_the_list_of_commands_has_no_stray_line_ends():
    listed = " ".join(CliRunner().invoke(app, ["--help"]).stdout.replace("│", " ").split())
    assert "complete halves that were not shown." in listed
    lines = CliRunner().invoke(app, ["--help"]).stdout.splitlines()
    assert not any(line.strip("│ ") == "shown." for line in lines)


def test_names_of_others_are_understood():
    with pytest.raises(
        InputError, match=r"view 'rna', got 'nb'\. Write 'negative_binomial'\."
    ):
        check_words(Path(__file__).parent, "ng-mvlvm", ["rna=nb"], [])
    with pytest.raises(InputError, match=r"got 'xyz'\. Choose from auto, bernoulli"):
        check_words(Path(__file__).parent, "ng-mvlvm", ["xyz"], [])


def test_the_words_are_those_of_the_models():
    assert set(LIKELIHOODS) == {"auto", *NAMES}
    for name, cls in MODELS.items():
        assert parameters(name) == sorted(cls().get_params(deep=False))


@pytest.mark.usefixtures("no_pictures", "rough_estimates")
def test_a_table_with_text_is_fitted_without_it(tmp_path):
    data = tmp_path / "d.csv"
    rows = [f"r{i},{i % 5},tissue{i % 2},{i * i % 7}" for i in range(20)]
    data.write_text("\n".join(["id,a,tissue,b", *rows]))
    small = [f"--set={name}" for name in ("n_components=1", "init=pca", "max_iter=3")]
    small.append("--set=n_frequencies=8")

    def run(*arguments):
        return CliRunner().invoke(app, [str(argument) for argument in arguments])

    assert "--drop tissue" in run("fit", data, "--out", tmp_path / "no", *small).stderr
    for name, chosen in {"drop": ["--drop", "tissue"], "view": ["--view", "v=b,a"]}.items():
        out = tmp_path / name
        assert run("fit", data, "--out", out, *chosen, *small).exit_code == 0
        # the model knows its columns
        done = run("transform", out, data, "--out", tmp_path / f"{name}.csv")
        assert done.exit_code == 0, done.stderr
    done = run("info", data, "--columns", "a, b", "--json")
    assert json.loads(done.stdout)["columns"] == 2
    assert "got no 'x'" in run("info", data, "--columns", "x").stderr
    done = run("info", data, "--columns", "a,b", "--memory", "0.0000001")
    assert "--memory 1" in done.stderr


def test_views_that_share_no_row_are_refused(tmp_path):
    folder = tmp_path / "views"
    folder.mkdir()
    for view, start in {"a": 0, "b": 10}.items():
        lines = [f"{start + i},{i}" for i in range(5)]
        (folder / f"{view}.csv").write_text("\n".join([f"id,{view}", *lines]))
    done = CliRunner().invoke(app, ["fit", str(folder), "--out", str(tmp_path / "o")])
    assert done.exit_code == 2
    assert (
        "rows that views share, got none between view 'a' (first '0') and view 'b' (first '10')"
        in done.stderr
    )


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("fit x.csv --out=", "after --out"),
        ("fit x.csv --out *", "after --out"),
        ("fit * --out run", "among the arguments"),
        ("demo --out *", "after --out"),
        ("impute run x.csv --out a.csv --std *", "after --std"),
    ],
)
def test_empty_words_are_refused(tmp_path, monkeypatch, line, place):
    # "$OUT" of a variable that is not set would be the current folder
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    words = [word.replace("*", "") for word in line.split()]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2
    said = " ".join(done.stderr.replace("│", " ").split())
    assert f"got an empty word {place}." in said
    assert [path.name for path in tmp_path.iterdir()] == ["x.csv"]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("info none.csv --nope", "No such option: --nope"),
        ("info -x.csv", "No such option: -x. Write ./-x.csv for the file -x.csv."),
        ("fit none.csv", "Expected --out with the folder"),
        ("calibrate run x.csv --n-draws 1", "Invalid value for '--n-draws': "),
        ("transform run x.csv --out *", "Expected a value, got an empty word after --out. "),
    ],
)
def test_words_that_are_refused_are_told_in_json(line, says):
    words = [word.replace("*", "") for word in line.split()]
    done = CliRunner().invoke(app, [*words, "--json"])
    assert done.exit_code == 2
    assert json.loads(done.stdout)["error"].startswith(says)
    assert CliRunner().invoke(app, [*words, "--", "--json"]).stdout == ""


def test_a_working_folder_that_is_gone_is_named(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert refused("info", tmp_path).startswith(
        "Expected a working folder, got one that is gone"
    )


def test_a_link_to_nothing_is_no_folder_of_results(tmp_path):
    (tmp_path / "x.csv").write_text("a,b\n1,2\n3,4\n")
    (tmp_path / "run").symlink_to(tmp_path / "gone")
    said = refused("fit", tmp_path / "x.csv", "--out", tmp_path / "run")
    assert said.endswith("gone, which does not exist. Make it, or the link anew.")


def test_the_folder_of_a_fit_is_no_data(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "embedding.csv").write_text("z0,z1\n1,2\n3,4\n")
    (run / "model.bochner").write_bytes(b"model")
    for words in (
        ["fit", run, "--out", tmp_path / "o"],
        ["transform", "m", run, "--out", "z"],
    ):
        done = CliRunner().invoke(app, [str(word) for word in words])
        assert done.exit_code == 2
    done = CliRunner().invoke(app, ["fit", str(run), "--out", str(tmp_path / "o")])
    assert f"got {run}, the folder of a finished fit. Name the data" in done.stderr
    for do in (f"report {run}", f"transform {run} NEW", f"fit DATA --out {run} --force"):
        assert f"bochner {do}" in done.stderr
    (run / "model.bochner").rename(run / "checkpoint.ckpt")
    done = CliRunner().invoke(app, ["fit", str(run), "--out", str(tmp_path / "o")])
    assert (
        "an interrupted fit. Name the data that were fitted; to continue: bochner fit DATA"
        in (done.stderr)
    )
    assert not (tmp_path / "o").exists()


def test_results_beside_the_data_are_refused(tmp_path):
    (tmp_path / "a.csv").write_text("z0,z1\n1,2\n3,4\n")
    done = CliRunner().invoke(app, ["fit", str(tmp_path), "--out", f"{tmp_path}/."])
    assert done.exit_code == 2
    assert f"Write --out {tmp_path / 'run'}" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]


@pytest.mark.parametrize("command", ["info", "fit"])
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("t.txt", "Rename it to .csv, or to .tsv if tabs separate its cells"),
        ("t.xlsx", "Save it as .csv in the program that wrote it"),
        ("t.csv.zip", "Unpack it"),
        ("t.feather", "Read it with pandas, and save it by to_csv or to_parquet"),
        ("t.jsonl", "Read it with pandas, and save it by to_csv or to_parquet"),
    ],
)
def test_files_that_are_not_read_are_refused_with_what_helps(tmp_path, command, name, says):
    (tmp_path / name).write_text("a b\n1 2\n")
    more = ["--out", tmp_path / "run"] if command == "fit" else []
    text = refused(command, tmp_path / name, *more)
    assert says in text
    assert "a folder of them" in text


def test_without_pandas_a_report_warns_of_no_names(tmp_path, monkeypatch):
    monkeypatch.setattr("bochner.cli.fit.frame", lambda table: table.X)
    data = tmp_path / "d.csv"
    X = np.random.default_rng(0).normal(size=(30, 3))
    np.savetxt(data, X, delimiter=",", header="a,b,c", comments="")
    done = run("fit", data, "--out", tmp_path / "run", "--report", *SETTINGS)
    assert done.exit_code == 0, done.stderr
    assert "feature names" not in done.stderr
