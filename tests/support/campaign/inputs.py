"""Bad command lines and bad arguments: each is refused by name, or makes sense after all."""

import functools
import os
import shutil
import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np

from campaign import arguments, children
from campaign.counts import Trial
from campaign.damage import MODEL, ROOM, SECONDS, judge, whole

TEXTS = (
    *("", " ", "0", "-1", "1.5", "nan", "inf", "1e400", "9" * 5000, "1000000000", "x", "auto"),
    *(
        "a=b",
        "=",
        "a=",
        "a=b=c",
        ",",
        "\x1b[31mred",
        "ä",
        "–",
        "\udcff",
        "{}",
        "[",
        '{"a": 1}',
    ),
    *(
        "a=1-2",
        "a=2-1",
        "a=0-1000000000",
        "a=a,a",
        "_" * 300,
        "--",
        "-",
        "%s",
        "$(x)",
        "../x",
        ".",
    ),
    *(
        "X.csv",
        "nosuch.csv",
        "empty",
        "noise",
        "pipe/none",
        "gaussian",
        "a=poisson",
        "NGMVLVM",
    ),
    *(
        "/proc/nosuch/x",
        "x\n",
        "n_components=0",
        "n_components=100000000",
        "max_iter=x",
        "init=1",
    ),
    *(
        "device=meta",
        "device=cuda:9",
        "n_frequencies=1000000000",
        "learning_rate=5",
        "views=1",
    ),
    *("dtype=object", "random_state=-1", "checkpoint=/proc/x", "kernel=x", "tol=nan"),
)
COMMANDS = (
    "fit",
    "transform",
    "impute",
    "sample",
    "calibrate",
    "report",
    "info",
    "fetch",
    "bench",
)
FEW = (
    "--set",
    "n_frequencies=2",
    "--set",
    "n_mixtures=1",
    "--set",
    "init=pca",
    "--set",
    "max_iter=2",
)


def trial(seed):
    """Hand over what makes no sense: a command line, or an argument."""
    source = np.random.default_rng([43, seed])
    return _command_trial(source) if seed % 2 else _argument_trial(source)


def _argument_trial(source):
    number, which = arguments.drawn(source)
    ended = _in_a_folder(arguments.judge, number, which)
    name, _, _, parameter = arguments.calls()[number]
    words = f"{name}({parameter}={arguments.VALUES[which]!r:.40})"
    if ended.value is None:
        how = "hang" if ended.hung else f"crash {ended.code}"
        return Trial("argument: fault", [f"{how}: {words}: {ended.err[-300:]}"], ended.seconds)
    faults = [f"{fault} ({words})" for fault in ended.value["faults"]]
    return Trial(ended.value["kind"], faults, ended.seconds)


def _in_a_folder(function, *given):
    with tempfile.TemporaryDirectory() as place:
        return children.run(_from, place, function, given, seconds=SECONDS, room=ROOM)


def _from(place, function, given):
    os.chdir(place)
    return function(*given)


def _command_trial(source):
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "own"
        shutil.copytree(whole(), folder)
        (folder / "empty").touch()
        (folder / "noise").write_bytes(np.random.default_rng(0).bytes(500))
        before = _files(folder)
        line = _line(source)
        ended = children.run(
            _from, folder, children.command, (line,), seconds=SECONDS, room=ROOM
        )
        faults = judge(ended, (0, 2, 3))
        if ended.code == 2 and not faults:
            left = {name for name, was in _files(folder).items() if before.get(name) != was}
            logs = {log for option, log in pairwise(line) if option == "--log"}
            faults += [f"{name} is written" for name in sorted(left - logs)]
    outcome = {0: "taken", 2: "refused", 3: "not written"}.get(ended.code, "fault")
    words = " ".join(f"{word!r:.60}" for word in line)
    return Trial(
        f"command {outcome}", [f"{fault} ({words})" for fault in faults], ended.seconds
    )


def _files(folder):
    return {
        str(path.relative_to(folder)): path.stat().st_mtime_ns for path in folder.rglob("*")
    }


@functools.cache
def _options(command):
    """The options of a command and whether they take a value, as the command itself says."""
    import typer

    from bochner.cli.main import app

    command_of = typer.main.get_command(app).commands[command]
    return [
        (param.opts[0], not getattr(param, "is_flag", False))
        for param in command_of.params
        if param.opts[0].startswith("--")
    ]


def _good(source, command):
    """A line that makes sense."""
    data = str(source.choice(["X.csv", "X.npy", "X.parquet", "X.npz"]))
    return {
        "fit": ["fit", "X.csv", *FEW, "--seed", "1", "--out", "run"],
        "transform": ["transform", MODEL, "X.csv", "--out", "Z.csv"],
        "impute": ["impute", MODEL, "X.csv", "--out", "full.csv"],
        "sample": ["sample", MODEL, "--n", "3", "--out", "drawn.csv"],
        "calibrate": ["calibrate", MODEL, "X.csv", "--n-draws", "3", "--out", "p.png"],
        "report": ["report", MODEL, "X.csv", "--out", "r.html"],
        "info": ["info", data],
        "fetch": ["fetch", "nosuch", "--from", "nosuch", "--out", "got"],
        "bench": ["bench", "--list"],
    }[command]


def _line(source):
    """A command line with one or two things wrong."""
    command = str(
        source.choice(COMMANDS, p=[0.25, 0.13, 0.13, 0.1, 0.1, 0.13, 0.1, 0.04, 0.02])
    )
    line = _good(source, command)
    for _ in range(int(source.integers(1, 3))):
        how = source.choice(["value", "argument", "gone", "unknown", "twice", "many"],
                            p=[0.6, 0.2, 0.08, 0.06, 0.03, 0.03])  # fmt: skip
        text = TEXTS[source.integers(len(TEXTS))]
        at = int(source.integers(1, len(line))) if len(line) > 1 else 0
        if how == "value":
            option, takes = _options(command)[source.integers(len(_options(command)))]
            if command != "bench" or option == "--json":  # which would run for hours
                line += [option, text] if takes else [option]
        elif how == "argument":
            line[at] = text
        elif how == "gone":
            del line[at]
        elif how == "unknown":
            line += [f"--{text}"]
        elif how == "twice":
            line += line[at : at + 2]
        else:
            line += [text] * 50
    return line
