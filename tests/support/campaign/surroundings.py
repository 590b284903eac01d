"""Odd surroundings: hundreds of fits in one process, threads, processes, loops, limits, folders,
pipes and locales. Each must end as in a plain process: the same bits, or one message.
"""

import asyncio
import codecs
import functools
import multiprocessing
import os
import resource
import shutil
import sys
import tempfile
import threading
import warnings
from pathlib import Path

import numpy as np

import bochner as bo
from campaign import children
from campaign.counts import Trial
from campaign.damage import FIT, MODEL, judge, whole

SMALL = {"n_frequencies": 4, "n_mixtures": 1, "max_iter": 4, "init": "pca", "random_state": 0}
# Of the soak: fits and transforms, the first of which fill caches; what may be left over after.
FITS, FIRST, PAGES, HANDLES = 200, 60, 2**22, 0


def data():
    """Rows to fit and place."""
    return np.sin(
        np.random.default_rng(0).normal(size=(20, 2)) @ np.ones((2, 4)) + np.arange(4)
    )


def placed(number=0):
    """Fit a model, save and load it, and return the places of the rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = bo.NGMVLVM(**{**SMALL, "random_state": number}).fit(data())
        return np.asarray(model.transform(data())).tolist()


@functools.cache
def expected():
    """What a plain process says."""
    ended = children.run(placed)
    assert ended.code == 0, ended.err
    return ended.value


# -- within a process
# -------------------------------------------------------------------------------------------


def soak(fits=FITS, first=FIRST):
    """Return faults of many fits and transforms in one process."""
    faults, sizes = [], []
    for number in range(fits):
        if placed(0) != expected():
            faults.append(f"fit {number} gave other bits")
        if number + 1 in (first, fits):
            sizes.append(
                (_memory(), len(os.listdir("/proc/self/fd")), threading.active_count())
            )
    grown, handles, threads = (after - before for before, after in zip(*sizes, strict=True))
    if grown > PAGES:
        faults.append(f"memory grew by {grown} bytes")
    if handles > HANDLES:
        faults.append(f"{handles} descriptors were left open")
    return [*faults, *(["threads were left"] if threads > 0 else [])]


def _memory():
    import ctypes
    import gc

    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def in_threads():
    """Return faults of fits in four threads at once."""
    result = [None] * 4

    def work(i):
        result[i] = np.asarray(bo.NGMVLVM(**SMALL).fit(data()).transform(data())).tolist()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    return _others(result)


def in_joblib(backend):
    """Return faults of fits by joblib."""
    from joblib import Parallel, delayed

    return _others(Parallel(n_jobs=2, backend=backend)(delayed(placed)() for _ in range(3)))


def in_processes(method):
    """Return faults of fits in processes that are forked, or started anew."""
    placed()  # what a parent has done already must not hinder its children
    with multiprocessing.get_context(method).Pool(2) as pool:
        return _others(pool.map(placed, [0, 0, 0]))


def in_a_loop():
    """Return faults of fits awaited together."""

    async def work():
        return await asyncio.gather(*(asyncio.to_thread(placed) for _ in range(3)))

    return _others(asyncio.run(work()))


def _others(result):
    bad = [i for i, answer in enumerate(result) if answer != expected()]
    return [f"worker {i} gave other bits" for i in bad]


def with_little_memory(room):
    """Return faults of a fit that may ask for so many bytes more: it is done, or says so."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + room, used + room))
    try:
        return _others([placed()])
    except MemoryError:
        return []
    except RuntimeError as error:
        return [] if "alloc" in str(error) else [f"{type(error).__name__}: {error}"]


# -- of a command
# -----------------------------------------------------------------------------------------------


def command(folder, arguments, environment=(), before=None):
    """Run a command with variables of its own, after a function; its folder is the place."""
    os.chdir(folder)
    for name, value in environment:
        os.environ.pop(name, None) if value is None else os.environ.update({name: value})
    if before is not None:
        before()
    children.command(arguments)


def _closed(*numbers):
    def close():  # as a shell's 2>&- does it: Python then has no such stream
        for number in numbers:
            os.close(number)
            setattr(sys, ("stdin", "stdout", "stderr")[number], None)

    return close


def _broken_pipe():
    """Have standard output lead to a pipe that nobody reads."""
    read, write = os.pipe()
    os.close(read)
    os.dup2(write, 1)


def _nobody():
    """Become a user that may not write here; the superuser may write anywhere."""
    os.chmod(".", 0o555)
    codecs.lookup("utf-8-sig")  # what lies in the superuser's folders is not read later
    if os.geteuid() == 0:
        os.setgid(65534)
        os.setuid(65534)


def _no_folder():
    """Stand in a folder that is gone."""
    gone = tempfile.mkdtemp()
    os.chdir(gone)
    os.rmdir(gone)


PLACE = ["transform", MODEL, "X.csv", "--out", "Z.csv"]
RUN = ["fit", "X.csv", *FIT, "--out", "run"]
# Name: (command, environment, what is done first, exit codes, whether it must write the same).
COMMANDS = {
    "no HOME": (RUN, [("HOME", None)], None, (0,), True),
    "HOME that is no folder": (RUN, [("HOME", "/proc/nosuch")], None, (0,), True),
    "an unwritable cache": (RUN, [("MPLCONFIGDIR", "/proc/x"), ("XDG_CACHE_HOME", "/proc/x")],
                            None, (0,), True),
    "a read-only folder": (PLACE, [], _nobody, (2,), False),
    "a read-only folder for a run": (RUN, [], _nobody, (2,), False),
    "a folder that is gone": (PLACE, [], _no_folder, (2,), False),
    "a closed standard output": (PLACE, [], _closed(1), (0,), True),
    "a closed standard error": (RUN, [], _closed(2), (0,), True),
    "no standard streams": (PLACE, [], _closed(0, 1, 2), (0,), True),
    "a pipe that nobody reads": (PLACE, [], _broken_pipe, (0, 1), True),
    "the locale C": (RUN, [("LC_ALL", "C"), ("LANG", "C")], None, (0,), True),
    "a locale that is not there": (RUN, [("LC_ALL", "xx_XX.utf8")], None, (0,), True),
    "a locale with decimal commas": (RUN, [("LC_ALL", "de_DE.UTF-8")], None, (0,), True),
    "text in latin-1": (PLACE, [("PYTHONIOENCODING", "latin-1")], None, (0,), True),
    "text in ASCII": (PLACE, [("PYTHONIOENCODING", "ascii")], None, (0,), True),
    "a terminal of 20 columns": (RUN, [("COLUMNS", "20")], None, (0,), True),
    "no terminal": (RUN, [("TERM", "dumb"), ("NO_COLOR", "1")], None, (0,), True),
    "a clock elsewhere": (RUN, [("TZ", "Pacific/Apia")], None, (0,), True),
    "no temporary folder": (RUN, [("TMPDIR", "/proc/nosuch")], None, (0,), True),
}  # fmt: skip
WITHIN = {
    "a soak of 200 fits": (soak,),
    "threads": (in_threads,),
    "joblib, processes": (in_joblib, "loky"),
    "joblib, threads": (in_joblib, "threading"),
    "spawned processes": (in_processes, "spawn"),
    "forked processes": (in_processes, "fork"),
    "asyncio": (in_a_loop,),
    "ulimit -v, 30 MiB": (with_little_memory, 30 * 2**20),
    "ulimit -v, 300 MiB": (with_little_memory, 300 * 2**20),
}
NAMES = (*WITHIN, *COMMANDS)


def n_trials():
    """How many surroundings there are."""
    return len(NAMES)


def trial(number):
    """Run what is said of the surroundings of a number."""
    name = NAMES[number]
    if name in WITHIN:
        expected()
        ended = children.run(*WITHIN[name], seconds=900.0)
        faults = ended.value if ended.value is not None else [_last(ended)]
        return Trial(name, [f"{fault} ({name})" for fault in faults], ended.seconds)
    return _of_command(name)


def _of_command(name):
    line, environment, before, codes, same = COMMANDS[name]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "own"
        shutil.copytree(whole(), folder)
        for written in ("embedding.csv", "Z.csv"):
            (folder / written).unlink()
        os.chmod(place, 0o755)
        ended = children.run(command, folder, line, environment, before)
        faults = judge(ended, codes)
        folder.chmod(0o755)
        outcome = folder / ("Z.csv" if line is PLACE else "run/embedding.csv")
        other = whole() / ("Z.csv" if line is PLACE else "embedding.csv")
        if same and not (outcome.exists() and outcome.read_bytes() == other.read_bytes()):
            faults.append(f"{outcome.name} is missing or another one: {_last(ended)}")
    return Trial(name, [f"{fault} ({name})" for fault in faults], ended.seconds)


def _last(ended):
    said = ended.err.strip().splitlines()
    return (
        f"exit code {ended.code}, {'hung, ' if ended.hung else ''}{said[-1] if said else ''}"
    )
