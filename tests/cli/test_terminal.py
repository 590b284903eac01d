"""What reaches a terminal: no control characters, and no end of a run when it is closed."""

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from bochner.cli import app
from bochner.cli.show import text
from bochner.errors import message, printable

RED = "\x1b[31m"


@given(st.text())
def test_no_control_character_is_printed(name):
    for shown in (printable(name), text(name), text({name: 1}), text([name])):
        assert all(c.isprintable() for c in shown)


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


def test_a_closed_standard_error_does_not_end_a_fit(tmp_path):
    data = tmp_path / "d.csv"
    data.write_text("a,b,c\n" + "\n".join(f"{i},{i * i % 7},5" for i in range(20)))
    small = [f"--set={name}" for name in ("n_components=1", "n_init=1", "max_iter=3")]
    command = [sys.executable, "-m", "bochner", "fit", str(data), "--out", str(tmp_path / "run")]
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*command, *small, "--set=n_frequencies=8"],
        stderr=write,
        stdout=subprocess.PIPE,
        check=False,
    )
    os.close(write)
    assert done.returncode == 0
    assert (tmp_path / "run" / "model.bochner").is_file()
