"""benchmarks/README.md: every line of every table is that of stored rows, and rows say which commit
they are of.
"""

from __future__ import annotations

import csv
import re
import statistics
import subprocess
import sys

import pytest
from scipy.stats import chisquare

from helpers.benchmarks import BENCHMARKS, run_there

README = (BENCHMARKS / "README.md").read_text()
# Fences without a language hold tables of stored rows; ```text what a command printed or a hand
# wrote down.
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# Tables of means with a column per method
PIVOTED = ("error", "centred", "accuracy")
# All 63 subsets of views are printed by the command.
UNPRINTED = ("multiview",)
Row = dict[str, str]


def stored() -> dict[str, list[Row]]:
    """Rows of every csv file."""
    files = sorted((BENCHMARKS / "results").glob("*.csv"))
    return {
        file.stem: list(csv.DictReader(file.open(newline="")))
        for file in files
        if not file.stem.endswith("-quick")
    }


STORED = stored()


def cells(line: str) -> list[str]:
    return re.split(r" {2,}", line.strip())


def printed(texts: list[str], shown: str, mean_only: bool = False) -> bool:
    """Whether a cell shows these values: their mean, and deviation where there are several."""
    try:
        values = [float(text) for text in texts if text]
    except ValueError:  # a word, such as the start that won
        return set(texts) == {shown}
    if not values:
        return shown == "-"
    numbers = shown.split(" ± ")
    expected = [statistics.fmean(values)]
    if len(values) > 1 and not mean_only:
        expected.append(statistics.stdev(values))
    return len(numbers) == len(expected) and all(
        any(format(v, form) == text for form in forms(text))
        for text, v in zip(numbers, expected, strict=True)
    )


def forms(text: str) -> tuple[str, ...]:
    """Formats that a number may have been printed in."""
    decimals = len(text.partition(".")[2].partition("e")[0])
    return (f".{decimals}f", ".2g", f".{decimals}e", ".6g")


def groups(rows: list[Row], heads: list[str]) -> dict[tuple[str, ...], list[Row]]:
    result: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        result.setdefault(tuple(row[name] for name in heads), []).append(row)
    return result


def printing(rows: list[Row], header: list[str], line: list[str]) -> list[Row]:
    """Rows of one file that print this line under this header, a column per measured value; none
    where it says something else.
    """
    at = header.index("n")
    heads, columns = header[:at], header[at + 1 :]
    if not rows or not set(header) - {"n"} <= set(rows[0]) or len(line) != len(header):
        return []
    group = groups(rows, heads).get(tuple(line[:at]), [])
    right = len(group) == int(line[at]) and all(
        printed([row[c] for row in group], text)
        for c, text in zip(columns, line[at + 1 :], strict=True)
    )
    return group if right else []


def pivoting(rows: list[Row], header: list[str], line: list[str], column: str) -> list[Row]:
    """Rows of one file that print this line with a column per method: means of one quantity."""
    if not rows or column not in rows[0] or header[:2] != ["data", "n"]:
        return []
    if len(line) != len(header):
        return []
    result = groups(rows, ["data", "method"])
    cells_of_line = [result.get((line[0], method), []) for method in header[2:]]
    right = any(cells_of_line) and all(
        printed([row[column] for row in group], text, mean_only=True)
        for group, text in zip(cells_of_line, line[2:], strict=True)
    )
    return [row for group in cells_of_line for row in group] if right else []


def behind(header: list[str], line: list[str], files: dict[str, list[Row]]) -> list[Row]:
    """Rows behind a line of a table; none where no file supports it."""
    for rows in files.values():
        if result := printing(rows, header, line):
            return result
        for column in PIVOTED:
            if result := pivoting(rows, header, line, column):
                return result
    return []


def tables(page: str) -> list[list[str]]:
    """Lines of the tables of a page: one table a fence without a language."""
    return [block.splitlines() for language, block in FENCE.findall(page) if not language]


def unsupported(page: str, files: dict[str, list[Row]]) -> list[str]:
    """Lines of tables that no stored rows print, and commits that are not those of the rows."""
    faults = []
    for first, *lines, last in tables(page):
        header, used = cells(first), []
        for text in lines:
            result = behind(header, cells(text), files) if "n" in header else []
            used += result
            faults += [] if result else [text]
        names = sorted({row["commit"] or "unknown" for row in used})
        if last != f"commit{'s' if len(names) > 1 else ''} {', '.join(names)}":
            faults.append(f"{last} below {first}, rows have {names}")
    return faults


def hidden(page: str, files: dict[str, list[Row]]) -> set[tuple[str, str, str]]:
    """File, data and method of rows that no table of the page shows."""
    shown = set()
    for first, *lines, _ in tables(page):
        for text in lines:
            shown |= {id(row) for row in behind(cells(first), cells(text), files)}
    return {
        (name, row["data"], row["method"])
        for name, rows in files.items()
        for row in rows
        if id(row) not in shown
    }


def test_every_line_of_a_table_is_that_of_stored_rows():
    assert not unsupported(README, STORED)


def test_every_stored_row_is_in_a_table():
    assert not {key for key in hidden(README, STORED) if key[0] not in UNPRINTED}


def test_every_stored_row_says_which_commit_it_is_of():
    missing = {name for name, rows in STORED.items() if not all(r.get("commit") for r in rows)}
    assert not missing


# What the short tables call the methods of digits.py
DIGITS = {
    "NG-MVLVM, defaults": "NG-MVLVM, defaults",
    "NGMVLVM, defaults": "NG-MVLVM, defaults",
    "NG-MVLVM, PCA start": "NG-MVLVM from PCA",
    'NGMVLVM, `init="pca"`': "NG-MVLVM from PCA",
    "advisedRFLVM, PCA start": "advisedRFLVM from PCA",
    'AdvisedRFLVM, `init="pca"`': "advisedRFLVM from PCA",
    **{name: name for name in ("PCA", "Isomap", "t-SNE", "UMAP")},
}


@pytest.mark.parametrize(("page", "lines"), [("README.md", 7), ("docs/models.md", 6)])
def test_short_tables_are_those_of_the_digits(page, lines):
    result = 0
    for line in (BENCHMARKS.parent / page).read_text().splitlines():
        name, *shown = [cell.strip() for cell in line.strip("|").split("|")]
        if name not in DIGITS or not shown or "±" not in shown[0]:
            continue
        rows = [
            r for r in STORED["digits"] if (r["data"], r["method"]) == ("MNIST", DIGITS[name])
        ]
        assert printed([row["knn1"] for row in rows], shown[0]), line
        assert printed([row["knn10"] for row in rows], shown[1]), line
        if page == "README.md":
            assert printed([row["seconds"] for row in rows], shown[2]), line
        if page.endswith("models.md") and shown[2] != "-":
            bound = statistics.fmean(float(row["elbo"]) for row in rows)
            assert format(bound, ",.0f") == shown[2], line
        result += 1
    assert result == lines


def values(file: str, column: str, **where: str) -> list[float]:
    """A column of the rows that have these cells."""
    rows = [r for r in STORED[file] if all(r[k] == v for k, v in where.items())]
    return [float(row[column]) for row in rows if row[column]]


def mean(file: str, column: str, **where: str) -> float:
    return statistics.fmean(values(file, column, **where))


NUMBERS = (
    "none",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
)


HELD_OUT = "D held out, 100 steps from PCA"


def _capacity(column: str, method: str) -> float:
    return mean("capacity", column, data="MNIST", method=method)


def _beside_the_default(column: str, method: str) -> float:
    return _capacity(column, method) - _capacity(column, "Q=2 H=100")


def _saved(method: str) -> float:
    return -100 * _beside_the_default("seconds", method) / _capacity("seconds", "Q=2 H=100")


# File of the sentence, pattern with a group per figure, and what the stored rows say
SENTENCES = [
    (
        "docs/uncertainty.md",
        r"ask for \((\d+) on average\), 90 % intervals hold (\S+) %",
        lambda: (
            format(mean("imputation", "chosen", data="MNIST 10%", method=HELD_OUT), ".0f"),
            f"{100 * mean('imputation', 'coverage', data='MNIST 10%', method=HELD_OUT):.1f}",
        ),
    ),
    (
        "docs/models.md",
        r"a bound of (\S+) with Q = 1, H = 200 and of (\S+) with Q = 8, H = 25, "
        r"and costs (\d+) and (\d+) s",
        lambda: tuple(
            format(_capacity(column, method), ",.0f")
            for column in ("elbo", "seconds")
            for method in ("Q=1 H=200", "Q=8 H=25")
        ),
    ),
    (
        "docs/models.md",
        r"default gain (\S+) \(frequencies\) or (\S+) nats \(components\)",
        lambda: tuple(
            format(_beside_the_default("elbo", method), ",.0f")
            for method in ("Q=2 H=200", "Q=4 H=100")
        ),
    ),
    (
        "docs/models.md",
        r"half of them lose (\S+) or (\S+) nats and save (\d+) or (\d+) % of the time",
        lambda: (
            *(
                format(-_beside_the_default("elbo", method), ",.0f")
                for method in ("Q=2 H=50", "Q=1 H=100")
            ),
            *(format(_saved(method), ".0f") for method in ("Q=2 H=50", "Q=1 H=100")),
        ),
    ),
    (
        "README.md",
        r"took (\S+) times UMAP's time \((\w+) seeds",
        lambda: (
            f"{_large('wall', 'NG-MVLVM, defaults') / _large('wall', 'UMAP'):.2f}",
            NUMBERS[len(values("large", "wall", data="MNIST 70000", method="UMAP"))],
        ),
    ),
    (
        "README.md",
        r"classify (\S+) of the digits where UMAP has (\d\.\d+)",
        lambda: tuple(f"{_large('knn10', m):.3f}" for m in ("NG-MVLVM, defaults", "UMAP")),
    ),
    (
        "README.md",
        r"on (\w+) of these subsets its bound wins",
        lambda: (
            NUMBERS[
                sum(
                    (row["data"], row["method"], row["start"])
                    == ("MNIST", "NG-MVLVM, defaults", "tsne")
                    for row in STORED["digits"]
                )
            ],
        ),
    ),
    (
        "README.md",
        r"error of (\S+) ± (\S+) grey levels \((\w+) splits",
        lambda: (
            f"{mean('demo', 'rmse', method='NG-MVLVM'):.2f}",
            f"{statistics.stdev(values('demo', 'rmse', method='NG-MVLVM')):.2f}",
            NUMBERS[len(values("demo", "rmse", method="NG-MVLVM"))],
        ),
    ),
    (
        "README.md",
        r"ridge regression has (\S+), nearest neighbours (\S+) and kernel ridge[^:]*, (\d\.\d+):",
        lambda: tuple(
            f"{mean('demo', 'rmse', method=m):.2f}"
            for m in ("ridge", "k-NN regression", "kernel ridge")
        ),
    ),
    (
        "benchmarks/README.md",
        r"Seeds 0 to 4 have (\S+) ± (\S+) and kernel ridge regression (\S+) ± (\S+), ",
        lambda: tuple(
            format(of(values("demo", "rmse", method=m)[:5]), ".3f")
            for m in ("NG-MVLVM", "kernel ridge")
            for of in (statistics.fmean, statistics.stdev)
        ),
    ),
    (
        "benchmarks/README.md",
        r"fits take (\S+) of UMAP's time of digits, (\S+) of images and (\S+) times of half",
        lambda: tuple(
            f"{_paired(name):.2f}"
            for name in ("MNIST 70000", "CIFAR 60000", "CIFAR, five classes 30000")
        ),
    ),
    (
        "benchmarks/README.md",
        r"G N B bridges (\S+) (\S+) (\S+) newsgroups (\S+) (\S+) (\S+) "
        r"MNIST (\S+) (\S+) (\S+) CIFAR (\S+) (\S+) (\S+) ```",
        lambda: tuple(
            f"{_times_faster(name, kind):.1f}"
            for name in ("bridges", "newsgroups", "MNIST", "CIFAR")
            for kind in "GNB"
        ),
    ),
    (
        "benchmarks/README.md",
        r"geometric mean of the ratios is (\S+) for",
        lambda: (f"{statistics.geometric_mean(_ratios_to_tsne()):.2f}",),
    ),
    (
        "docs/krein.md",
        r"was closer than `\"spectral\"` in (\d+) of the (\d+) cells",
        lambda: tuple(map(str, _closer_than_spectral())),
    ),
]


def _large(column: str, method: str) -> float:
    return mean("large", column, data="MNIST 70000", method=method)


def _paired(data: str) -> float:
    """Our time over UMAP's, of the seeds that both have."""
    ours, theirs = (
        {
            row["seed"]: float(row["wall"])
            for row in STORED["large"]
            if (row["data"], row["method"]) == (data, method)
        }
        for method in ("NG-MVLVM, defaults", "UMAP")
    )
    both = ours.keys() & theirs.keys()
    return sum(ours[seed] for seed in both) / sum(theirs[seed] for seed in both)


def _times_faster(data: str, kind: str) -> float:
    where = {"data": data, "method": f"{kind}-SRFLVM"}
    pairs = zip(
        values("tables_srflvm", "paper_seconds", **where),
        values("tables_srflvm", "seconds", **where),
        strict=True,
    )
    return statistics.fmean(theirs / ours for theirs, ours in pairs)


def _ratios_to_tsne() -> list[float]:
    names = dict.fromkeys(row["data"] for row in STORED["times"])
    return [mean("times", "ratio", data=name) for name in names]


def _closer_than_spectral() -> tuple[int, int]:
    cells_of = {
        row["data"] for row in STORED["krein"] if row["method"] == "KreinFeatures spectral"
    }
    closer = [
        mean("krein", "error", data=name, method="KreinFeatures")
        < mean("krein", "error", data=name, method="KreinFeatures spectral")
        for name in cells_of
    ]
    return sum(closer), len(closer)


@pytest.mark.parametrize(("page", "pattern", "said"), SENTENCES)
def test_figures_in_sentences_are_those_of_stored_rows(page, pattern, said):
    text = " ".join((BENCHMARKS.parent / page).read_text().split())
    found = re.search(pattern, text)
    assert found is not None, pattern
    assert found.groups() == said()


RANKS = 13


def rank_lines(rows: list[Row]) -> list[list[str]]:
    """What the histograms of ranks of sbc.csv must say: data, method, quantity, n, counts, p."""
    quantities = [name for name in rows[0] if list(rows[0]).index(name) in range(3, 10)]
    result = []
    for (data, method), group in groups(rows, ["data", "method"]).items():
        for name in quantities:
            ranks = [int(row[name]) for row in group if row[name]]
            if ranks:
                counts = [ranks.count(rank) for rank in range(RANKS)]
                cells_of = [data, method, name, str(len(ranks)), " ".join(map(str, counts))]
                result.append([*cells_of, format(float(chisquare(counts).pvalue), ".2g")])
    return result


def test_histograms_of_ranks_and_their_p_values_are_those_of_stored_rows():
    shown = [cells(line) for line in README.splitlines()]
    assert all(line in shown for line in rank_lines(STORED["sbc"]))


PAGE = """```
data  method  n  knn1           seconds
a     PCA     2  0.500 ± 0.141  1.0 ± 0.0
b     PCA     1  0.250          -
commits 1111111, 2222222
```
"""
ROWS = [
    {"data": "a", "method": "PCA", "knn1": "0.4", "seconds": "1", "commit": "1111111"},
    {"data": "a", "method": "PCA", "knn1": "0.6", "seconds": "1", "commit": "1111111"},
    {"data": "b", "method": "PCA", "knn1": "0.25", "seconds": "", "commit": "2222222"},
]


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("0.500", "0.501"), ("0.141", "0.140"), ("2  0.5", "3  0.5"), ("0.250 ", "0.251 ")],
)
def test_a_line_that_no_row_supports_is_found(right, wrong):
    assert unsupported(PAGE, {"made": ROWS}) == []
    assert hidden(PAGE, {"made": ROWS}) == set()
    faults = unsupported(PAGE.replace(right, wrong), {"made": ROWS})
    assert any(wrong in fault for fault in faults)


def test_mixed_commits_must_be_said_and_rows_that_are_left_out_are_found():
    (fault,) = unsupported(
        PAGE.replace("commits 1111111, 2222222", "commit 1111111"), {"": ROWS}
    )
    assert "rows have ['1111111', '2222222']" in fault
    more = {"made": [*ROWS, {**ROWS[0], "method": "UMAP"}]}
    assert hidden(PAGE, more) == {("made", "a", "UMAP")}


def test_what_runs_apart_has_a_process_of_its_own_and_as_many_threads():
    code = """
import os, torch, harness
if __name__ == "__main__":
    torch.set_num_threads(1)
    print(harness.apart(os.getpid) != os.getpid(), harness.apart(torch.get_num_threads))
"""
    done = run_there(code)
    assert done.stdout.split() == ["True", "1"], done.stderr


def test_what_runs_apart_ends_with_the_benchmark():
    """A peer that went on after SIGTERM slowed the next measurement twofold."""
    code = """
import harness
if __name__ == "__main__":
    harness.apart(exec, "import time; print('begun', flush=True); time.sleep(900)")
"""
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, cwd=BENCHMARKS, stdout=subprocess.PIPE, text=True) as begun:
        assert begun.stdout.readline() == "begun\n"
        begun.terminate()
        # open until every process that writes there has ended
        rest, _ = begun.communicate(timeout=300)
    assert rest == ""


@pytest.mark.parametrize(
    ("error", "said"),
    [('InputError("Expected data.")', "Error: Expected data.\n"), ("KeyboardInterrupt", "")],
)
def test_what_ends_a_script_is_said_without_a_traceback(error, said):
    code = f"""
import sys
sys.argv[1:] = ["--threads", "1"]
import harness
harness.arguments(None)
from bochner.errors import InputError
print("begun", file=sys.stderr)
raise {error}
"""
    done = run_there(code)
    assert done.returncode != 0
    assert done.stderr.endswith(f"begun\n{said}")
