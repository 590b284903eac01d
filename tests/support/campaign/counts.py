"""Counts of a campaign: kept in docs/campaign.json, shown in docs/campaign.md."""

import json
import os
import re
from collections import Counter
from dataclasses import asdict, dataclass, field

import bochner
from campaign import PARTS


@dataclass
class Trial:
    """What one trial came to.

    Attributes
    ----------
    kind : str
        Of its outcome, as counted.
    faults : list of str
        What was wrong; empty when nothing was.
    seconds : float
        Processor time.
    """

    kind: str
    faults: list = field(default_factory=list)
    seconds: float = 0.0


@dataclass
class Run:
    """Trials of one part at one commit.

    Attributes
    ----------
    commit : str
    first, last : int
        Seeds.
    trials, faults : int
        All, and those in which something was wrong.
    seconds : float
        Processor time.
    """

    commit: str
    first: int
    last: int
    trials: int = 0
    faults: int = 0
    seconds: float = 0.0


@dataclass
class Part:
    """Counts of one part of the campaign.

    Attributes
    ----------
    runs : list of Run
    kinds : Counter
        Trials by outcome.
    found : list of str
        What was wrong first in each trial with a fault, with seed and commit.
    """

    runs: list = field(default_factory=list)
    kinds: Counter = field(default_factory=Counter)
    found: list = field(default_factory=list)

    def add(self, seed, commit, trial):
        """Count a trial."""
        last = self.runs[-1] if self.runs else None
        if last is None or last.commit != commit or last.last != seed - 1:
            self.runs.append(Run(commit, seed, seed))
        run = self.runs[-1]
        run.last, run.trials = seed, run.trials + 1
        run.faults += bool(trial.faults)
        run.seconds += trial.seconds
        self.kinds[trial.kind] += 1
        self.found += [
            f"seed {seed} at {commit}: {_shown(fault)}" for fault in trial.faults[:1]
        ]

    def total(self, name):
        """Return the sum of a number over the runs."""
        return sum(getattr(run, name) for run in self.runs)

    def next_seed(self):
        """Return the seed after the last one."""
        return max((run.last + 1 for run in self.runs), default=0)

    def merge(self, other):
        """Count another run of the same part."""
        for run in other.runs:
            last = self.runs[-1] if self.runs else None
            if last is None or (last.commit, last.last) != (run.commit, run.first - 1):
                self.runs.append(run)
                continue
            last.last = run.last
            last.trials, last.faults = last.trials + run.trials, last.faults + run.faults
            last.seconds += run.seconds
        self.kinds += other.kinds
        self.found += other.found


def _shown(fault):
    """A line of what was wrong, without paths of the machine."""
    text = re.sub(r"(/[\w.@+-]+){2,}", lambda path: path[0].rpartition("/")[2], fault)
    text = " ".join(text.replace("`", "'").replace("|", "/").split())
    return text if len(text) <= 160 else f"{text[:160]}..."


def read(path):
    """Return the parts of a file of counts; none where it is missing."""
    if not path.exists():
        return {}
    parts = json.loads(path.read_text())["parts"]
    return {
        name: Part(
            [Run(**run) for run in stored["runs"]], Counter(stored["kinds"]), stored["found"]
        )
        for name, stored in parts.items()
    }


def write(path, parts):
    """Write the counts."""
    plain = {
        "version": bochner.__version__,
        "parts": {
            name: {**asdict(part), "kinds": dict(sorted(part.kinds.items()))}
            for name, part in sorted(parts.items())
        },
    }
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(json.dumps(plain, indent=1) + "\n")
    part.replace(path)


def record(docs, name, part):
    """Add a run of a part to the counts in a folder."""
    path = docs / "campaign.json"
    parts = read(path)
    parts.setdefault(name, Part()).merge(part)
    write(path, parts)


def write_page(docs):
    """Write the page of the counts in a folder."""
    (docs / "campaign.md").write_text(page(read(docs / "campaign.json"), meanings()))


def meanings():
    """Return what each part of the campaign does."""
    return {name: kind.meaning for name, kind in PARTS.items()}


def page(parts, meanings):
    """Return the page of the documentation that shows the counts.

    Parameters
    ----------
    parts : dict of str to Part
    meanings : dict of str to str
        What each part does.
    """
    lines = [INTRODUCTION]
    lines += [
        "| part | commit | seeds | trials | with a fault | processor minutes |",
        "|---|---|---|---|---|---|",
    ]
    for name in meanings:
        lines += _rows(name, parts.get(name, Part()))
    for name, meaning in meanings.items():
        part = parts.get(name, Part())
        lines += ["", f"## {name}", "", meaning, ""]
        if part.kinds:
            lines += ["| outcome | trials |", "|---|---|"]
            lines += [f"| {kind} | {count:,} |" for kind, count in sorted(part.kinds.items())]
            lines += ["", f"`PYTHONPATH=tests/support python -m campaign {name}`"]
        if part.found:
            lines += ["", "Found:", ""]
            lines += [f"* `{fault}`" for fault in part.found]
    return "\n".join(lines) + "\n"


def _rows(name, part):
    """The rows of a part: its runs, commit by commit, and their sum."""
    of = {}
    for run in part.runs:
        of.setdefault(run.commit, Part()).runs.append(run)
    rows = []
    for commit, of_commit in of.items():
        seeds = ", ".join(f"{run.first} to {run.last}" for run in of_commit.runs)
        rows.append(f"| {name} | {commit} | {seeds} | {_sums(of_commit)} |")
    if len(of) == 1:
        return rows
    return [*rows, f"| **{name}** | {'all' if of else 'not run'} | | {_sums(part)} |"]


def _sums(part):
    trials, minutes = f"{part.total('trials'):,}", f"{part.total('seconds') / 60:.1f}"
    return f"{trials} | {part.total('faults')} | {minutes}"


INTRODUCTION = """# The fault campaign

This page is written by a program that tries to break the library: `make campaign`. Every trial
is judged by one rule: the answer is right, or a named error says what to change, and nothing else
is changed. `make test` runs some trials of every part, and examples that hypothesis chooses. `make
browser` opens the report page in headless Chromium, hostile text in every field: all of its 30
tests passed in Chromium 156. What is promised of files from strangers is in `SECURITY.md`.

Faults are mended as they are found, in the library with a test of their own or in what judges it;
the table counts them all the same, beside the commit that had them. Fits, seed 1065
(`score_samples` of a loaded model differed by 2e-10) was the order of a tensor in memory; seeds
3001 to 3017 are the judge's own fault, which passed `map` a word that it does not know. Fits,
seeds 20375 and 30738, are rows between modes that are nearly equal: which of them single precision
climbed to depended on the rounding of the batch; of waves as fast as those of seed 30553 double
precision does not know either, and counts of 1e11 (seeds 30393 and 30911) left ridges whose values
rounding hid. Few rows, and those whose climbs wind, now climb in double precision, and those whose
climbs part when they begin 1e-12 beside are placed by themselves; large counts have values to all
their digits. What is left to chance: such a row whose climbs happen not to part. Fits, seed
40185: log means that overflowed double precision ended training; they are bounded now as in single
precision, and a bound that is not finite is an error. Interrupts, seed 40091: a SIGTERM that Python
dropped at the very end of a command.
Fits, seed 50241: a row that climbs along the ridge of a count of 3e9 took most of two minutes.
Inputs, seeds 50139 and 50205, are the judge's own fault: its standard error refused a name that is
no text. Writes, seed 28: a file that the disk would not remove was called bad input.
Fits, seeds 51864, 51949 and 51951: values of counts of 1e12 were good to 0.01 nats only, and climbs
took back every step that promised less, or went to and fro between two places. Seed 51644: climbs
of nine to twelve steps under a wavy kernel ended where rounding sent them. Seed 52220: rows that
are all the same under a Dirichlet process kernel ended in a reshape error.
Seed 52204, 6,762 rows of counts of 1e8 in five dimensions, took eight minutes and more: rows that
rounding decides were placed one by one. They are placed together now, in one and a half. Seed
67265 found that the tilted bound of negative binomial counts was not at its best, and its slopes
wrong, where the variance of psi is above 10: climbs crept for two minutes. Seed 60115: a
probability of a sure category was below 0 by rounding, and torch refused to draw from it.
Interrupts, seed 63022: Ctrl-C while Python made a class of a library, which hides it behind another
error, was called a fault.
A trial follows from its seed and the commit:
`python -m campaign fits --seed 7 --trials 1` repeats trial 7.
"""
