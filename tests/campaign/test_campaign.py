"""Some trials of every part of the fault campaign; `make campaign` runs them by the thousand."""

import subprocess
import sys
from pathlib import Path

import pytest

from campaign import PARTS, arguments, counts
from campaign.cases import MAPS, MODELS

ROOT = Path(__file__).parents[2]
# Trials of each part, and the seed of the first: those that showed faults once are tests elsewhere.
QUICK = {"fits": (3, 900_000), "inputs": (8, 900_000), "files": (6, 900_000), "guided": (1, 5),
         "writes": (1, 5), "interrupts": (1, 900_000), "surroundings": (2, 5)}  # fmt: skip


@pytest.mark.parametrize("part", QUICK)
def test_some_trials_find_no_fault(part):
    trials, first = QUICK[part]
    result = {seed: PARTS[part].trial(seed) for seed in range(first, first + trials)}
    assert not [
        f"seed {seed}: {fault}" for seed, outcome in result.items() for fault in outcome.faults
    ]
    if part != "guided":  # which needs atheris
        assert any(outcome.seconds > 0 for outcome in result.values())


def test_no_argument_of_another_type_ends_in_an_error_of_another_library(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    texts = [
        i for i, value in enumerate(arguments.VALUES) if isinstance(value, str | bytes | dict)
    ]
    wrong = texts[1::4]
    faults = []
    for number, (name, _, _, parameter) in enumerate(arguments.calls()):
        for which in wrong if name not in (*MODELS, *MAPS) else ():
            result = arguments.judge(number, which)["faults"]
            faults += [
                f"{name}({parameter}={arguments.VALUES[which]!r}): {fault}" for fault in result
            ]
    assert not faults


def test_no_part_is_left_out():
    assert set(QUICK) == set(PARTS)


def test_counts_add_and_the_page_shows_them(tmp_path):
    for first, commit in ((0, "abc"), (2, "abc"), (7, "abc"), (9, "def")):
        part = counts.Part()
        part.add(first, commit, counts.Trial("refused", [], 1.5))
        part.add(first + 1, commit, counts.Trial("fitted", ["at /tmp/x/y.py", "more"], 2.0))
        counts.record(tmp_path, "fits", part)
    (again,) = counts.read(tmp_path / "campaign.json").values()
    assert (again.total("faults"), again.total("seconds"), again.kinds["fitted"]) == (
        4,
        14.0,
        4,
    )
    assert again.next_seed() == 11
    page = counts.page({"fits": again}, {"fits": "Random fits.", "files": "Damaged files."})
    assert "| fits | abc | 0 to 3, 7 to 8 | 6 | 3 | 0.2 |" in page
    assert "| fits | def | 9 to 10 | 2 | 1 | 0.1 |" in page
    assert "| **fits** | all | | 8 | 4 | 0.2 |" in page
    assert "* `seed 10 at def: at y.py`" in page
    assert "| **files** | not run | | 0 | 0 | 0.0 |" in page


def test_the_page_is_the_one_that_the_counts_make():
    parts = counts.read(ROOT / "docs" / "campaign.json")
    assert (ROOT / "docs" / "campaign.md").read_text() == counts.page(parts, counts.meanings())


def test_the_program_ends_with_1_where_something_was_wrong():
    code = (
        "import campaign, campaign.counts as c, sys; from campaign.__main__ import main;"
        "campaign.Kind.trial = lambda self, seed: c.Trial('x', ['wrong'] * (seed == 3));"
        "sys.exit(main())"
    )
    for first, expected in ((0, 0), (2, 1)):
        done = subprocess.run(
            [sys.executable, "-c", code, "fits", "--trials", "2", "--seed", str(first)],
            capture_output=True, text=True, check=False, cwd=ROOT / "tests" / "support",
        )  # fmt: skip
        assert done.returncode == expected, done.stderr
    assert "FAULT fits --seed 3: wrong" in done.stdout
