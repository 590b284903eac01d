"""Every table and figure of the four papers, beside ours: ``python benchmarks/papers.py --list``.

``papers.csv`` has one line per item: what the paper prints, and which stored rows answer it, or why
there are none. ``papers.py NAME`` measures the rows of one table or figure that are missing, its
peers' too, by the program that ``PROTOCOLS`` names, and prints published and measured figures side
by side; ``--all`` goes through all of them and goes on where it was stopped; ``--quick`` takes one
seed and few steps, into files of their own; ``--page`` writes docs/coverage.md. ``--again``
measures what is stored once more, into ``results/again``, and says whether it comes out as it did:
means over the same seeds agree where they differ by no more than the stored standard deviation (of
all seeds), or by less than is printed. A figure counts as
reached when our mean is at least the published one less one published deviation (of errors and
seconds: at most, and more).
"""

from __future__ import annotations

import argparse
import csv
import importlib
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "coverage.md"
RESULTS = HERE / "results"
# What is measured once more lies apart.
AGAIN = RESULTS / "again"
# Half of the last digit that tables print.
_PRINTED = 0.0005
# File of rows: module and name of its Protocol
PROTOCOLS = {
    "autoencoders": ("autoencoders", "PROTOCOL"),
    "bridges": ("bridges", "PROTOCOL"),
    "capacity": ("capacity", "PROTOCOL"),
    "digits": ("digits", "PROTOCOL"),
    "dirichlet_scurve": ("dirichlet", "PROTOCOL"),
    "growth": ("growth", "PROTOCOL"),
    "imputation": ("imputation", "PROTOCOL"),
    "krein": ("krein", "PROTOCOL"),
    "krein_settings": ("krein_settings", "PROTOCOL"),
    "large": ("large", "PROTOCOL"),
    "latents": ("latents", "PROTOCOL"),
    "likelihoods": ("likelihoods", "PROTOCOL"),
    "many_views": ("many_views", "PROTOCOL"),
    "maps": ("maps", "PROTOCOL"),
    "multiview": ("multiview", "PROTOCOL"),
    "scurve": ("scurve", "PROTOCOL"),
    "step": ("step", "PROTOCOL"),
    "tables_counts": ("tables_srflvm", "PROTOCOL_OF_COUNTS"),
    "tables_rflvm": ("tables_rflvm", "PROTOCOL"),
    "tables_srflvm": ("tables_srflvm", "PROTOCOL"),
}
PAPERS = {
    "000": "Yang et al. (2025)",
    "001": "Li et al. (2024a)",
    "002": "Liu et al. (2020)",
    "003": "Yang et al. (2025), an earlier version",
    "004": "Li et al. (2024b)",
}
OURS = (
    "NG-MVLVM",
    "MV-advised",
    "advised",
    "SRFLVM",
    "KreinFeatures",
    "gaussian",
    "noise",
    "Q=",
    "T = ",
    "sketch of",
)
STATES = (
    "reached",
    "missed",
    "measured",
    "a peer",
    "in the library",
    "not measured",
    "absent",
)
_PEERS_SHOWN = 6
_RUNS = 5  # of the papers' standard deviations
Row = Mapping[str, str]


@dataclass(frozen=True)
class Item:
    """One line of papers.csv: a figure, a claim or a piece of mathematics of a paper.

    Attributes
    ----------
    entry : str
        Table or figure, such as ``000-table-8``.
    item, metric : str
    published, deviation : str
        As the paper prints them, accuracies between 0 and 1; empty where there is no number.
    better : str
        ``"higher"`` or ``"lower"``.
    file, data, method, column : str
        Which stored rows answer it; empty where none does.
    note : str
        A reason after ``absent:``, or the file with the test of what is no measurement.
    """

    entry: str
    item: str
    metric: str
    published: str
    deviation: str
    better: str
    file: str
    data: str
    method: str
    column: str
    note: str

    def rows(self, stored: Mapping[str, Sequence[Row]]) -> list[Row]:
        """Return the rows that answer it."""
        return [
            row
            for row in stored.get(self.file, ())
            if (row["data"], row["method"]) == (self.data, self.method)
            and row.get(self.column)
        ]

    def state(self, stored: Mapping[str, Sequence[Row]]) -> str:
        """Return one of STATES."""
        if not self.file:
            return "absent" if self.note.startswith("absent:") else "in the library"
        values = [float(row[self.column]) for row in self.rows(stored)]
        if not values:
            return "not measured"
        if self.note.startswith("a peer's figure"):
            return "a peer"
        if not self.published:
            return "measured"
        room = float(self.deviation or 0)
        gap = statistics.fmean(values) - float(self.published)
        return "reached" if (gap if self.better == "higher" else -gap) >= -room else "missed"

    def ours(self, stored: Mapping[str, Sequence[Row]]) -> str:
        """Return our mean ± deviation, and the number of seeds."""
        values = [float(row[self.column]) for row in self.rows(stored)]
        if not values:
            return "-"
        # what is missed must not read as what is published
        missed = self.state(stored) == "missed"
        alike = missed and figure(statistics.fmean(values)) == figure(float(self.published))
        return f"{shown(values, '.5f' if alike else '')} ({len(values)})"

    def short_by(self, stored: Mapping[str, Sequence[Row]]) -> tuple[str, str]:
        """Return how far our mean is on the worse side, and that in standard errors of the
        difference: of theirs as of five runs; nothing where a deviation is missing.
        """
        values = [float(row[self.column]) for row in self.rows(stored)]
        gap = abs(statistics.fmean(values) - float(self.published))
        if not self.deviation or len(values) < 2:
            return figure(gap), "-"
        of_theirs = float(self.deviation) ** 2 / _RUNS
        error = (of_theirs + statistics.variance(values) / len(values)) ** 0.5
        return figure(gap), f"{gap / error:.1f}" if error else "-"

    def theirs(self) -> str:
        """Return what the paper prints."""
        parts = [figure(float(text)) for text in (self.published, self.deviation) if text]
        return " ± ".join(parts) or "-"

    def peers(self, stored: Mapping[str, Sequence[Row]]) -> str:
        """Return the means of other methods on the same data, the best first."""
        means: dict[str, list[float]] = {}
        for row in stored.get(self.file, ()):
            if (
                row["data"] == self.data
                and row.get(self.column)
                and not is_ours(row["method"])
            ):
                means.setdefault(row["method"], []).append(float(row[self.column]))
        means.pop(self.method, None)
        order = sorted(means, key=lambda name: statistics.fmean(means[name]))
        best = order[::-1] if self.better == "higher" else order
        return ", ".join(f"{name} {shown(means[name])}" for name in best[:_PEERS_SHOWN]) or "-"


def is_ours(method: str) -> bool:
    """Say whether a method is of this library; "D = 2" and "from" name ours in imputation.py."""
    return (
        method.startswith((*OURS, "D = ", "D held out"))
        or "-SRFLVM" in method
        or "-RFLVM" in method
    )


def figure(value: float) -> str:
    """Format a number as tables print them."""
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"


def shown(values: Sequence[float], form: str = "") -> str:
    """Return mean ± deviation; four digits after the point where the first two are zeros, unless
    it is said how many.
    """
    mean = statistics.fmean(values)
    small = 0 < abs(mean) < 0.01
    form = form or (".4f" if small else ".3f" if abs(mean) < 10 else ".1f")
    text = format(mean, form)
    return text if len(values) == 1 else f"{text} ± {format(statistics.stdev(values), form)}"


def items() -> list[Item]:
    """Return all lines of papers.csv."""
    with (HERE / "papers.csv").open(newline="") as file:
        return [Item(**row) for row in csv.DictReader(file)]


def results(quick: bool = False, folder: Path = RESULTS) -> dict[str, list[Row]]:
    """Return the stored rows, by file."""
    result: dict[str, list[Row]] = {}
    for name in PROTOCOLS:
        path = folder / f"{name}{'-quick' if quick else ''}.csv"
        if path.is_file():
            with path.open(newline="") as file:
                result[name] = list(csv.DictReader(file))
    return result


def measure(
    chosen: Iterable[Item],
    seeds: range,
    quick: bool = False,
    stored: Mapping[str, Sequence[Row]] | None = None,
) -> None:
    """Measure the missing rows of items and of their peers; what lacks its data or a peer's program
    is left out and named.

    Parameters
    ----------
    chosen : iterable of Item
    seeds : range
    quick : bool
        Few steps, into files of their own.
    stored : mapping of str to sequence of rows, optional
        Measure these rows of the items once more, into files of their own, and nothing else.
    """
    from bochner.errors import InputError

    wanted: dict[str, list[Item]] = {}
    for item in chosen:
        if item.file:
            wanted.setdefault(item.file, []).append(item)
    for name, those in wanted.items():
        module, attribute = PROTOCOLS[name]
        protocol = getattr(importlib.import_module(module), attribute)
        jobs = protocol.jobs(seeds, quick)
        data = {item.data for item in those}
        known = {_key(row) for item in those for row in item.rows(stored or {})}
        store = protocol.store(quick, None if stored is None else AGAIN)
        left_out: set[tuple[str, str]] = set()
        for job in jobs:
            if job.data not in data or (job.data, job.method) in left_out:
                continue
            if stored is not None and (job.data, job.method, str(job.seed)) not in known:
                continue
            try:
                store.collect([job])
            except (ImportError, OSError, InputError) as error:
                left_out.add((job.data, job.method))
                print(f"left out: {job.data}, {job.method}: {error}", file=sys.stderr)


def _key(row: Row) -> tuple[str, str, str]:
    return row["data"], row["method"], row["seed"]


def repeated(
    chosen: Sequence[Item],
    stored: Mapping[str, Sequence[Row]],
    again: Mapping[str, Sequence[Row]],
) -> list[list[str]]:
    """Return a line per item that was measured twice: both means over the seeds that both have,
    how far they differ, the stored deviation, and whether the difference is within it.
    """
    lines = [
        ["item", "metric", "stored", "again", "seeds", "difference", "deviation", "agrees"]
    ]
    for item in chosen:
        new = {row["seed"]: float(row[item.column]) for row in item.rows(again)}
        old = {row["seed"]: float(row[item.column]) for row in item.rows(stored)}
        both = sorted(new.keys() & old.keys())
        if not both:
            continue
        deviation = statistics.stdev(old.values()) if len(old) > 1 else 0.0
        before, now = (statistics.fmean(of[seed] for seed in both) for of in (old, new))
        away = abs(now - before)
        agrees = "yes" if away <= max(deviation, _PRINTED) else "no"
        numbers = [
            figure(before),
            figure(now),
            str(len(both)),
            figure(away),
            figure(deviation),
        ]
        lines.append([item.item, item.metric, *numbers, agrees])
    return lines


def listing(chosen: Sequence[Item]) -> str:
    """Name every table and figure, with what it has and why the rest is not there."""
    stored, lines = results(), []
    for entry in dict.fromkeys(item.entry for item in chosen):
        of_entry = [item for item in chosen if item.entry == entry]
        states = [item.state(stored) for item in of_entry]
        counts = ", ".join(f"{states.count(s)} {s}" for s in STATES if s in states)
        lines.append(f"{entry}  [{PAPERS[entry[:3]]}]  {counts}")
        for item, state in zip(of_entry, states, strict=True):
            why = f": {item.note.removeprefix('absent: ')}" if item.note else ""
            lines.append(f"    {item.item}  ({state}{why})")
    return "\n".join(lines)


def compared(chosen: Sequence[Item], stored: Mapping[str, Sequence[Row]]) -> list[list[str]]:
    """Return a line per item: published, ours, peers, reached or not."""
    head = ["item", "metric", "published", "ours (seeds)", "peers", "state"]
    return [
        head,
        *(
            [i.item, i.metric, i.theirs(), i.ours(stored), i.peers(stored), i.state(stored)]
            for i in chosen
        ),
    ]


def origin(chosen: Sequence[Item], stored: Mapping[str, Sequence[Row]]) -> str:
    """Say by which programs, commits and machines the rows were measured."""
    rows = [row for item in chosen for row in item.rows(stored)]
    if not rows:
        return "no rows"
    files = ", ".join(sorted({PROTOCOLS[i.file][0] + ".py" for i in chosen if i.file}))
    commits = ", ".join(sorted({row["commit"] for row in rows}))
    machines = sorted(
        {f"{r['cores']} cores, {r['threads']} threads, {r['torch']}" for r in rows}
    )
    return f"by {files}; commits {commits}; {'; '.join(machines)}"


def report_again(entry: str, chosen: Sequence[Item]) -> str:
    """Print one table or figure as stored and as measured once more."""
    from harness import aligned

    stored, again = results(), results(folder=AGAIN)
    return "\n".join(
        [
            f"{entry}, {PAPERS[entry[:3]]}",
            aligned(repeated(chosen, stored, again)),
            f"stored: {origin(chosen, stored)}",
            f"again: {origin(chosen, again)}",
        ]
    )


def report(entry: str, chosen: Sequence[Item], quick: bool) -> str:
    """Print one table or figure."""
    from harness import aligned

    stored = results(quick)
    notes = [f"{i.item}: {i.note}" for i in chosen if i.note]
    return "\n".join(
        [
            f"{entry}, {PAPERS[entry[:3]]}",
            aligned(compared(chosen, stored)),
            origin(chosen, stored),
            *notes,
        ]
    )


def page() -> str:
    """Return docs/coverage.md."""
    stored, everything = results(), items()
    text = [
        "# The papers' tables and figures",
        "Written by `bochner bench --page` from `benchmarks/papers.csv` and the stored rows of "
        "`benchmarks/results`; do not edit. `bochner bench NAME` measures a table again. "
        "*Reached*: our mean is at least the published figure less one published deviation (of "
        "errors and seconds: at most, and more). *Measured*: there is no published number. "
        "*A peer*: a figure of another method, run again here. "
        "Figures are means ± standard deviations over seeds, in brackets how many. Accuracies lie "
        "between 0 and 1.",
        pipe(summary(everything, stored)),
        share(everything, stored),
        "## What is missed",
        "*Short by*: the distance to the published figure; *standard errors*: the same in standard "
        "errors of the difference of two means (the papers' standard deviations are of five "
        "runs), where both are known.",
        missed(everything, stored),
    ]
    for paper, name in PAPERS.items():
        of_paper = [item for item in everything if item.entry.startswith(paper)]
        text.append(f"## {paper}: {name}")
        for entry in dict.fromkeys(item.entry for item in of_paper):
            of_entry = [item for item in of_paper if item.entry == entry]
            text.append(f"### {entry}")
            measured = [item for item in of_entry if item.state(stored) != "in the library"]
            there = [item for item in of_entry if item.state(stored) == "in the library"]
            if there:
                text.append("\n".join(f"- {i.item}: `{i.note}`" for i in there))
            lines = [
                [*line, item.note.removeprefix("absent: ")]
                for line, item in zip(compared(measured, stored)[1:], measured, strict=True)
            ]
            if lines:
                head = [*compared((), stored)[0], "note"]
                text.append(pipe([head, *lines]))
                if any(item.rows(stored) for item in measured):
                    text.append(f"*{origin(measured, stored).capitalize()}.*")
    return "\n\n".join(text) + "\n"


def missed(chosen: Sequence[Item], stored: Mapping[str, Sequence[Row]]) -> str:
    """Return a table of what is missed, one line a figure, by reason."""
    lines = [
        ["table", "item", "published", "ours (seeds)", "short by", "standard errors", "why"]
    ]
    short = [item for item in chosen if item.state(stored) == "missed"]
    reasons = list(dict.fromkeys(item.note for item in short))
    for item in sorted(short, key=lambda item: reasons.index(item.note)):
        about = [item.theirs(), item.ours(stored), *item.short_by(stored), item.note]
        lines.append([item.entry, item.item, *about])
    return pipe(lines)


def share(chosen: Sequence[Item], stored: Mapping[str, Sequence[Row]]) -> str:
    """Say how many of the printed figures are reached, with and without the sampler's."""
    states = {item: item.state(stored) for item in chosen}
    compared = [item for item in chosen if states[item] in ("reached", "missed")]
    of_ours = [item for item in compared if item.file != "tables_rflvm"]
    counts = [
        (sum(states[item] == "reached" for item in those), len(those))
        for those in (compared, of_ours)
    ]
    (all_reached, n_all), (reached, n) = counts
    return (
        f"{all_reached} of {n_all} printed figures are reached ({all_reached / n_all:.1%}); "
        f"without `RFLVM`, with which Li et al. (2024b) compare, {reached} of {n} "
        f"({reached / n:.1%})."
    )


def summary(chosen: Sequence[Item], stored: Mapping[str, Sequence[Row]]) -> list[list[str]]:
    """Count the states of every paper's items."""
    lines = [["", *STATES]]
    for paper, name in PAPERS.items():
        states = [item.state(stored) for item in chosen if item.entry.startswith(paper)]
        lines.append([name, *(str(states.count(state)) for state in STATES)])
    return lines


def pipe(lines: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; bars in cells are written out."""
    cells = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    rule = ["---"] * len(cells[0])
    return "\n".join(f"| {' | '.join(line)} |" for line in [cells[0], rule, *cells[1:]])


def chosen_seeds(options: argparse.Namespace) -> range:
    """Return the seeds asked for."""
    return range(options.first, options.first + (1 if options.quick else options.seeds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", nargs="?", help="a table or figure, such as 000-table-8")
    parser.add_argument("--list", action="store_true", help="name all of them")
    parser.add_argument("--all", action="store_true", help="one after the other")
    parser.add_argument("--page", action="store_true", help=f"write {PAGE.name}")
    parser.add_argument("--stored", action="store_true", help="measure nothing")
    parser.add_argument("--again", action="store_true", help="measure once more, and compare")
    parser.add_argument("--quick", action="store_true", help="one seed, few steps")
    parser.add_argument("--seeds", type=int, default=5, help="how many seeds (default 5)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (default 0)")
    parser.add_argument("--threads", type=int, default=2, help="threads (default 2)")
    options = parser.parse_args()
    if options.again and options.quick:
        sys.exit("expected --again or --quick; got both: few steps do not come out as many do")
    everything = items()
    entries = list(dict.fromkeys(item.entry for item in everything))
    if options.list:
        print(listing(everything))
    elif options.page:
        PAGE.write_text(page())
        print(f"wrote {PAGE}")
    elif options.all or options.name in entries:
        for entry in entries if options.all else [options.name]:
            of_entry = [item for item in everything if item.entry == entry]
            if not options.stored:
                from harness import limit_threads, say

                sys.excepthook = say
                limit_threads(options.threads)
                old = results() if options.again else None
                measure(of_entry, chosen_seeds(options), options.quick, old)
            if options.again:
                print(report_again(entry, of_entry), end="\n\n")
            else:
                print(report(entry, of_entry, options.quick), end="\n\n")
    else:
        sys.exit(f"expected one of {', '.join(entries)}; got {options.name!r}")


if __name__ == "__main__":
    main()
