"""What every benchmark shares: a resumable store of rows, the table printer, the machine line and
the clock.
"""

from __future__ import annotations

import argparse
import csv
import functools
import multiprocessing
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import torch

from bochner.errors import InputError

RESULTS = Path(__file__).parent / "results"
KEY = ("data", "method", "seed")
MACHINE = ("cores", "threads", "torch", "peak_gflops", "load", "commit")

Value = str | int | float | bool
T = TypeVar("T")


@dataclass(frozen=True)
class Job:
    """One row to measure: its key, and what measures it."""

    data: str
    method: str
    seed: int
    measure: Callable[[], Mapping[str, Value]]


@dataclass(frozen=True)
class Protocol:
    """How the rows of one CSV file are measured.

    Attributes
    ----------
    name : str
        File name without ending.
    columns : tuple of str
        Measured columns.
    jobs : callable
        (seeds, quick) to all jobs of the file on the papers' data; quick ones take few steps.
    """

    name: str
    columns: tuple[str, ...]
    jobs: Callable[[range, bool], Iterable[Job]]

    def store(self, quick: bool = False, folder: Path | None = None) -> Store:
        """Open the file, of the folder of results if no other is given."""
        return Store(self.name, self.columns, quick, folder)

    def main(self, doc: str | None, formats: Mapping[str, str]) -> None:
        """Measure what the command line asks for, and print the table.

        Parameters
        ----------
        doc : str
            Of the script, for its help.
        formats : mapping of str to str
            As in ``table``.
        """
        options = arguments(doc)
        store = self.store(options.quick)
        store.collect(self.jobs(options.seeds, options.quick))
        print(table(store.rows(), formats))


class Store:
    """A CSV file with one row per (data, method, seed); finished rows are never measured again.

    Parameters
    ----------
    name : str
        File name without ending.
    columns : iterable of str
        Measured columns, beside the key and the machine.
    quick : bool
        Write to a file of its own that starts empty.
    folder : Path, optional
        Where the file lies; by default where those lie that tables are printed from.
    """

    def __init__(
        self,
        name: str,
        columns: Iterable[str],
        quick: bool = False,
        folder: Path | None = None,
    ) -> None:
        self.path = (folder or RESULTS) / f"{name}{'-quick' if quick else ''}.csv"
        self.columns = (*KEY, *columns, *MACHINE)
        if quick:
            self.path.unlink(missing_ok=True)
        if self.path.exists():
            self._check_header()

    def _check_header(self) -> None:
        with self.path.open(newline="") as file:
            header = tuple(next(csv.reader(file), ()))
        if header != self.columns:
            raise SystemExit(
                f"{self.path.name} has other columns than this script writes: move it away and run "
                "again."
            )

    def rows(self) -> list[dict[str, str]]:
        """Return all rows, as text."""
        if not self.path.exists():
            return []
        with self.path.open(newline="") as file:
            return list(csv.DictReader(file))

    def append(self, row: Mapping[str, Value]) -> None:
        """Write one row at once, so that an interrupted run loses nothing."""
        self.path.parent.mkdir(exist_ok=True)
        new = not self.path.exists()
        with self.path.open("a", newline="") as file:
            writer = csv.DictWriter(file, self.columns, restval="", lineterminator="\n")
            if new:
                writer.writeheader()
            writer.writerow(
                {name: f"{v:.6g}" if isinstance(v, float) else v for name, v in row.items()}
            )

    def collect(self, jobs: Iterable[Job]) -> None:
        """Measure the jobs whose rows are missing."""
        done = {tuple(row[name] for name in KEY) for row in self.rows()}
        for job in jobs:
            if (job.data, job.method, str(job.seed)) in done:
                continue
            load = os.getloadavg()[0]
            print(
                f"  {job.data} | {job.method} | seed {job.seed} (load {load:.1f})",
                file=sys.stderr,
                flush=True,
            )
            key: dict[str, Value] = {"data": job.data, "method": job.method, "seed": job.seed}
            about: dict[str, Value] = {"load": round(load, 1), "commit": commit()}
            self.append({**key, **job.measure(), **machine(), **about})


@functools.cache
def machine() -> dict[str, Value]:
    """Return cores, threads, torch version and the float32 peak measured in this run."""
    cores = os.cpu_count() or 1
    return {
        "cores": cores,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "peak_gflops": peak(),
    }


@functools.cache
def commit() -> str:
    """Name the commit of the checkout, with a plus sign where its programs were changed since."""
    root = Path(__file__).parents[1]
    try:
        name = _git(root, "rev-parse", "--short=7", "HEAD")
    except (OSError, subprocess.CalledProcessError):
        return ""
    changed = _git(root, "status", "--porcelain", "--", "src", "benchmarks/*.py")
    return f"{name}+" if changed else name


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", *words], cwd=root, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def peak(size: int = 2048, seconds: float = 3.0) -> float:
    """Return the best float32 matrix product rate within some seconds of this run, GFLOP/s."""
    a, b, out = (torch.rand(size, size) for _ in range(3))
    times: list[float] = []
    while sum(times) < seconds:
        times.append(clocked(lambda: torch.mm(a, b, out=out))[1])
    return round(2 * size**3 / min(times) / 1e9, 1)


def machine_line() -> str:
    """Describe the machine of this run in one line."""
    m = machine()
    return (
        f"machine: {m['cores']} cores, {m['threads']} threads, torch {m['torch']}, "
        f"float32 matrix product peak {m['peak_gflops']} GFLOP/s"
    )


def timed(function: Callable[[], T]) -> tuple[T, float]:
    """Return a result and the processor seconds it took, of all threads: other work on the machine
    does not count.
    """
    begin = time.process_time()
    result = function()
    return result, time.process_time() - begin


def clocked(function: Callable[[], T]) -> tuple[T, float]:
    """Return a result and the wall-clock seconds it took: for rates, on a machine that is idle."""
    begin = time.perf_counter()
    result = function()
    return result, time.perf_counter() - begin


def apart(function: Callable[..., T], *arguments: object) -> T:
    """Return what a function of a module returns in a new process with as many threads: programs
    that start thread pools of their own slow what comes after them in the same process.
    """
    context = multiprocessing.get_context("spawn")
    given = (torch.get_num_threads(), os.getpid())
    with ProcessPoolExecutor(1, context, initializer=_begin_apart, initargs=given) as pool:
        return pool.submit(function, *arguments).result()


def _begin_apart(threads: int, parent: int) -> None:
    """Limit the threads of a process, and end it with the one that started it: a signal ends that
    one alone, and what goes on slows whatever is measured next.
    """
    limit_threads(threads)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


_warm: set[str] = set()


def timed_warm(
    name: str, function: Callable[[], T], warm_up: Callable[[], object]
) -> tuple[T, float]:
    """Return a result and its seconds, after one untimed call of ``warm_up`` per name and
    process.
    """
    if name not in _warm:
        warm_up()
        _warm.add(name)
    return timed(function)


def table(
    rows: Sequence[Mapping[str, str]],
    columns: Mapping[str, str],
    heads: Sequence[str] = KEY[:2],
) -> str:
    """Print mean ± standard deviation over seeds.

    Parameters
    ----------
    rows : sequence of rows of a store
    columns : mapping
        Column to number format, e.g. ``{"seconds": ".1f"}``.
    heads : sequence of str
        Columns that name a line; rows that agree in them are one line.
    """
    groups: dict[tuple[str, ...], list[Mapping[str, str]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in heads), []).append(row)
    lines = [[*heads, "n", *columns]]
    for key, group in groups.items():
        lines.append(
            [
                *key,
                str(len(group)),
                *(_cell([r[c] for r in group], f) for c, f in columns.items()),
            ]
        )
    return f"{aligned(lines)}\n{commits(rows)}"


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """Print cells below each other."""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join(
        "  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def commits(rows: Sequence[Mapping[str, str]]) -> str:
    """Say which commits the rows of a table are of: the last line of every table."""
    result = sorted({row.get("commit", "") or "unknown" for row in rows})
    return f"commit{'s' if len(result) > 1 else ''} {', '.join(result)}"


def _cell(texts: Sequence[str], form: str) -> str:
    values = [float(text) for text in texts if text]
    if not values:
        return "-"
    mean = format(statistics.fmean(values), form)
    return mean if len(values) == 1 else f"{mean} ± {format(statistics.stdev(values), form)}"


def arguments(description: str | None, seeds: int = 5) -> argparse.Namespace:
    """Parse the options all benchmarks have, and set the number of threads."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--quick", action="store_true", help="one small seed, into a file of its own"
    )
    parser.add_argument(
        "--seeds", type=int, default=seeds, help=f"how many seeds (default {seeds})"
    )
    parser.add_argument("--first", type=int, default=0, help="the first of them (default 0)")
    parser.add_argument(
        "--threads", type=int, default=2, help="threads of torch and numpy (default 2)"
    )
    options = parser.parse_args()
    sys.excepthook = say
    options.seeds = range(
        options.first, options.first + (1 if options.quick else options.seeds)
    )
    limit_threads(options.threads)
    busy = os.getloadavg()[0]
    print(machine_line())
    if busy > 0.5:
        print(
            f"the machine is busy (load {busy:.1f}): figures hold, times and ratios may not",
            file=sys.stderr,
        )
    return options


def say(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print what ended a script: of what is missing, such as data, or wrong, the message alone, and
    nothing of Ctrl-C.
    """
    if isinstance(error, InputError):
        print(f"Error: {error}", file=sys.stderr)
    elif not isinstance(error, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)


def limit_threads(threads: int) -> None:
    """Limit the threads of torch and of numpy's libraries."""
    from threadpoolctl import threadpool_limits

    torch.set_num_threads(threads)
    threadpool_limits(threads)
