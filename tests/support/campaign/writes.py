"""Every moment in which a command writes, struck once by every fault; and signals at any time.

The system's calls are watched by an audit hook: each opening of a file to write, each rename and
each removal is a write point. After the fault every file must be whole, the old one or the new one;
the command given again must end with the bits of a run that nothing struck.
"""

import atexit
import errno
import functools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from bochner.errors import ModelFileError
from bochner.io import files
from campaign import children
from campaign.counts import Trial
from campaign.damage import judge

FAULTS = ("kill", "SIGTERM", "SIGINT", "ENOSPC", "EIO", "EACCES")
# Exit codes that each may end in: 0 where the command could do without, or was done.
CODES = {
    "kill": (-9,),
    "SIGTERM": (0, 130),
    "SIGINT": (0, 130),
    "ENOSPC": (0, 3),
    "EIO": (0, 3),
    "EACCES": (0, 2),
}
SETTINGS = ("n_frequencies=4", "n_mixtures=1", 'init=["pca","random"]', "max_iter=12")
DISK = 2**22


def fit(folder, *more):
    """The command line of a fit into a folder."""
    words = [word for setting in SETTINGS for word in ("--set", setting)]
    return [
        "fit",
        folder.parent / "X.npy",
        *words,
        "--seed",
        "1",
        "--out",
        folder / "run",
        *more,
    ]


def apply(name, out, *more):
    """Return the maker of a command line that applies the model to the data."""

    def line(folder):
        rows = [] if name == "sample" else [folder.parent / "X.npy"]
        model = folder.parent / "whole" / "run"
        return [name, model, *rows, *more, "--out", folder / out, "--force"]

    return line


COMMANDS = {
    "fit": lambda folder: fit(folder, "--report"),
    "transform": apply("transform", "Z.csv"),
    "impute": lambda folder: [
        *apply("impute", "full.npy")(folder),
        "--std",
        folder / "std.csv",
    ],
    "sample": apply("sample", "drawn.npz", "--seed", "1"),
    "report": apply("report", "page.html"),
    "calibrate": apply("calibrate", "picture.png", "--seed", "1", "--n-draws", "5"),
}
ENDS = {".png": b"IEND\xaeB`\x82", ".html": b"</html>"}
# Whose bytes are those of the first run, whenever they are written.
SAME = {"embedding.csv", "model.bochner", "Z.csv", "full.npy", "std.csv", "drawn.npz"}


def n_trials():
    """How many trials there are: all write points of all commands times all faults."""
    return sum(_points(name) for name in COMMANDS) * len(FAULTS)


def trial(number):
    """Strike the write point of a number, counted over commands, points and faults."""
    rest = number
    for command in COMMANDS:
        _whole(command)
        if rest < _points(command) * len(FAULTS):
            point, kind = divmod(rest, len(FAULTS))
            return _strike(command, point, FAULTS[kind])
        rest -= _points(command) * len(FAULTS)
    raise ValueError(f"there are {n_trials()} write points and faults, and {number} is beyond")


def _strike(command, point, fault):
    with _folder() as folder, _disk(folder, fault):
        ended = children.run(_struck, COMMANDS[command](folder), folder, point, fault)
        if fault == "ENOSPC":
            (folder / "filling").unlink(missing_ok=True)
        faults = judge(ended, CODES[fault]) + _whole_or_interrupted(folder, ended)
        faults += _again(command, folder)
    words = f"{fault} at write {point} of {command}, exit code {ended.code}"
    return Trial(
        f"{fault} in {command}", [f"{text} ({words})" for text in faults], ended.seconds
    )


@functools.cache
def reference():
    """Return a folder with data and the model of a fit that nothing struck."""
    place = Path(tempfile.mkdtemp(prefix="campaign"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    X = np.sin(np.random.default_rng(0).normal(size=(24, 2)) @ np.ones((2, 5)) + np.arange(5))
    X[3, 1] = np.nan
    np.save(place / "X.npy", X)
    (place / "whole").mkdir()
    ended = children.run(children.command, COMMANDS["fit"](place / "whole"))
    assert ended.code == 0, ended.err
    return place


@functools.cache
def _whole(name):
    """Have the results of a command that nothing struck beside that model."""
    line = COMMANDS[name](reference() / "whole")
    if name != "fit":
        ended = children.run(children.command, line)
        assert ended.code == 0, ended.err


@functools.cache
def _points(name):
    with _folder() as folder:
        ended = children.run(_struck, COMMANDS[name](folder), folder, None, "count")
        assert ended.code == 0, ended.err
        return int((folder / "points").read_text())


@contextmanager
def _folder():
    """Yield an empty folder beside the data and the model."""
    folder = Path(tempfile.mkdtemp(dir=reference()))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _disk(folder, fault):
    """Mount a small disk on the folder where it is to be filled; a limit on files will do too."""
    if fault != "ENOSPC" or not _may_mount():
        yield
        return
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "campaign", str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True, capture_output=True)


@functools.cache
def _may_mount():
    with tempfile.TemporaryDirectory() as folder:
        command = ["mount", "-t", "tmpfs", "-o", "size=65536", "campaign", folder]
        with suppress(OSError, subprocess.CalledProcessError):
            subprocess.run(command, check=True, capture_output=True)
            subprocess.run(["umount", folder], check=True, capture_output=True)
            return True
    return False


class _Strike:
    """An audit hook that strikes at the n-th write point below a folder."""

    def __init__(self, folder, point, fault):
        self.folder, self.point, self.fault = str(folder), point, fault
        self.count, self.busy = 0, False

    def __call__(self, event, arguments):
        if self.busy or not self._writes(event, arguments):
            return
        self.count += 1
        if self.count - 1 != self.point:
            return
        self.busy = True
        try:
            self._strike(arguments[0])
        finally:
            self.busy = False

    def _writes(self, event, arguments):
        if event not in ("open", "os.rename", "os.remove"):
            return False
        if not isinstance(arguments[0], str | bytes | os.PathLike):
            return False
        if event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR):
            return False
        return os.fsdecode(arguments[0]).startswith(self.folder)

    def _strike(self, path):
        if self.fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.fault in ("SIGTERM", "SIGINT"):
            os.kill(os.getpid(), getattr(signal, self.fault))
        elif self.fault == "ENOSPC":
            _fill(Path(self.folder))
        else:
            number = getattr(errno, self.fault)
            raise OSError(number, os.strerror(number), os.fsdecode(path))


def _fill(folder):
    if os.path.ismount(folder):
        with suppress(OSError), (folder / "filling").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        return
    import resource

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, resource.RLIM_INFINITY))


def _struck(command, folder, point, fault):
    """Run a command that a fault strikes."""
    hook = _Strike(folder, point, fault)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.addaudithook(hook)
    try:
        children.command(command)
    finally:
        hook.busy = True
        if fault == "count":
            (folder / "points").write_text(str(hook.count))


def _broken(folder):
    """Files that are neither the old nor the new one, or not whole."""
    faults = []
    for path in folder.rglob("*"):
        if not path.is_file() or path.name.endswith(".part"):
            continue
        content = path.read_bytes()
        if path.name in SAME:
            others = list((reference() / "whole").rglob(path.name))
            if content != others[0].read_bytes():
                faults.append(f"{path.name} is another one")
        elif path.suffix == ".ckpt":
            try:
                files.read(path, "checkpoint", 1)
            except ModelFileError as error:
                faults.append(str(error))
        elif not content.rstrip().endswith(ENDS.get(path.suffix, b"")):
            faults.append(f"{path.name} is cut short")
    return faults


def _again(name, folder):
    """Give the command again, as its messages say, and compare what comes with the reference."""
    line = COMMANDS[name](folder)
    if name == "fit":
        run = folder / "run"
        line += ["--resume"] if (run / "checkpoint.ckpt").exists() else []
        line += (
            ["--force"] if (run / "model.bochner").exists() and "--resume" not in line else []
        )
    ended = children.run(children.command, line)
    faults = judge(ended, (0,))
    for path in (reference() / "whole").rglob("*"):
        copy = folder / path.relative_to(reference() / "whole")
        if copy.exists() and path.name in SAME and copy.read_bytes() != path.read_bytes():
            faults.append(f"run again, {path.name} differs")
    written = {path.name for path in folder.rglob("*")}
    expected = {
        str(Path(str(word)).name) for word in line if str(word).startswith(str(folder))
    }
    if not expected <= written:
        faults.append(f"run again, {sorted(expected - written)} are missing: a lost run")
    faults += [
        f"{left} is left behind" for left in written if left.endswith((".part", ".ckpt"))
    ]
    return faults


def interrupt(seed):
    """Send a fit a signal at a random time, and run it again."""
    source = np.random.default_rng([42, seed])
    number = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)[source.integers(3)]
    with _folder() as folder:
        line = COMMANDS["fit"](folder)
        when = float(source.uniform(0.02, 1.1 * _length()))
        ended = children.run(_interrupted, line, folder, after=(when, number))
        faults = judge(ended, (-9, 0) if number == signal.SIGKILL else (0, 130, -15, -2))
        faults += [] if ended.code in (0, -9) else _traceless(ended)
        faults += _whole_or_interrupted(folder, ended) + _again("fit", folder)
    words = f"{number.name} after {when:.2f} s, exit code {ended.code}"
    kind = f"{number.name}, exit code {ended.code}"
    return Trial(kind, [f"{fault} ({words})" for fault in faults], ended.seconds)


@functools.cache
def _length():
    with _folder() as folder:
        return children.run(children.command, COMMANDS["fit"](folder)).seconds


def _interrupted(line, folder):
    del folder
    signal.signal(signal.SIGINT, signal.default_int_handler)
    children.command(line)


def _traceless(ended):
    return ["traceback"] if "Traceback" in ended.err else []


def _whole_or_interrupted(folder, ended):
    """Files of an interrupted run hold its best state; those of others are the reference's."""
    if ended.code != 130:
        return _broken(folder)
    return [fault for fault in _broken(folder) if "is another one" not in fault]
