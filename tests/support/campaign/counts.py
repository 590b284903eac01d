"""Counts of a campaign: kept in docs/campaign.json, shown in docs/campaign.md."""

import json
import os
from collections import Counter
from dataclasses import dataclass, field

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
class Part:
    """Counts of one part of the campaign.

    Attributes
    ----------
    seeds : list of [int, int]
        First and last seed of every run.
    kinds : Counter
        Trials by outcome.
    faults : int
        Trials in which something was wrong.
    seconds : float
        Processor time.
    """

    seeds: list = field(default_factory=list)
    kinds: Counter = field(default_factory=Counter)
    faults: int = 0
    seconds: float = 0.0

    def add(self, trial):
        """Count a trial."""
        self.kinds[trial.kind] += 1
        self.faults += bool(trial.faults)
        self.seconds += trial.seconds

    def merge(self, other):
        """Count another run of the same part."""
        self.seeds += other.seeds
        self.kinds += other.kinds
        self.faults += other.faults
        self.seconds += other.seconds


def read(path):
    """Return the parts of a file of counts; none where it is missing."""
    if not path.exists():
        return {}
    parts = json.loads(path.read_text())["parts"]
    return {name: Part(**{**own, "kinds": Counter(own["kinds"])}) for name, own in parts.items()}


def write(path, parts):
    """Write the counts."""
    own = {
        "version": bochner.__version__,
        "parts": {
            name: {**vars(part), "kinds": dict(sorted(part.kinds.items()))}
            for name, part in sorted(parts.items())
        },
    }
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(json.dumps(own, indent=1) + "\n")
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
        "| part | trials | with a fault | processor minutes | seeds |",
        "|---|---|---|---|---|",
    ]
    for name in meanings:
        part = parts.get(name, Part())
        seeds = ", ".join(f"{first} to {last}" for first, last in part.seeds) or "not run"
        lines.append(
            f"| {name} | {sum(part.kinds.values()):,} | {part.faults} | {part.seconds / 60:.1f} "
            f"| {seeds} |"
        )
    for name, meaning in meanings.items():
        part = parts.get(name, Part())
        lines += ["", f"## {name}", "", meaning, ""]
        if part.kinds:
            lines += ["| outcome | trials |", "|---|---|"]
            lines += [f"| {kind} | {count:,} |" for kind, count in sorted(part.kinds.items())]
            lines += ["", f"`PYTHONPATH=tests/support python -m campaign {name}`"]
    return "\n".join(lines) + "\n"


INTRODUCTION = """# The fault campaign

This page is written by a program that tries to break the library: `make campaign`. Every trial
is judged by one rule: the answer is right, or a named error says what to change, and nothing else
is changed. `make test` runs some trials of every part. What is promised of files from strangers is
in `SECURITY.md`.

Faults that were found are mended, each with a test of its own; the table counts them all the same.
A trial follows from its seed: `python -m campaign fits --seed 7 --trials 1` repeats trial 7.
"""
