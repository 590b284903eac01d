"""The page of the papers' tables and figures: what it says is what is stored, every line of
``papers.csv`` leads to rows, to a test or to a reason.
"""

from __future__ import annotations

import importlib.util
import sys
import types
from pathlib import Path

import pytest

from helpers.benchmarks import BENCHMARKS, run_there

ROOT = Path(__file__).parents[2]


def load():
    spec = importlib.util.spec_from_file_location("papers", BENCHMARKS / "papers.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["papers"] = module  # where its dataclass looks its annotations up
    spec.loader.exec_module(module)
    return module


papers = load()
ITEMS = papers.items()


def test_the_page_is_generated_from_the_stored_rows():
    assert papers.page() == (ROOT / "docs" / "coverage.md").read_text(), (
        "run bochner bench --page"
    )


def test_every_item_has_rows_a_test_or_a_reason():
    for item in ITEMS:
        if item.file:
            assert item.file in papers.PROTOCOLS, item
            assert item.column, item
            assert item.better in ("higher", "lower"), item
        elif not item.note.startswith("absent: "):
            assert (ROOT / item.note).is_file(), item
    assert len({(item.entry, item.item) for item in ITEMS}) == len(ITEMS)


def test_every_item_is_measured_by_a_job_of_its_protocol():
    code = """
import importlib, papers
known = {}
for item in papers.items():
    if item.file:
        if item.file not in known:
            module, name = papers.PROTOCOLS[item.file]
            protocol = getattr(importlib.import_module(module), name)
            jobs = protocol.jobs(range(1), False)
            known[item.file] = protocol, {(job.data, job.method) for job in jobs}
        protocol, keys = known[item.file]
        if (item.data, item.method) not in keys or item.column not in protocol.columns:
            print(item.entry, item.item, item.file, item.data, item.method, item.column)
"""
    done = run_there(code)
    assert (done.stdout, done.returncode) == ("", 0), done.stderr


def made(**changes):
    values = dict.fromkeys(papers.Item.__dataclass_fields__, "")
    first = {"published": "0.5", "deviation": "0.1", "better": "higher", "file": "maps"}
    return papers.Item(
        **{**values, **first, "data": "a", "method": "b", "column": "c", **changes}
    )


@pytest.mark.parametrize(
    ("changes", "values", "state"),
    [
        ({}, ["0.42", "0.40"], "reached"),
        ({}, ["0.39", "0.39"], "missed"),
        ({"deviation": ""}, ["0.49"], "missed"),
        ({"better": "lower"}, ["0.61"], "missed"),
        ({"better": "lower"}, ["0.59"], "reached"),
        ({"published": "", "deviation": ""}, ["0.1"], "measured"),
        ({"note": "a peer's figure"}, ["0.1"], "a peer"),
        ({}, [], "not measured"),
        ({"file": "", "note": "absent: no data"}, [], "absent"),
        ({"file": "", "note": "tests/test_random.py"}, [], "in the library"),
    ],
)
def test_the_state_of_an_item(changes, values, state):
    rows = [{"data": "a", "method": "b", "c": value} for value in values]
    assert made(**changes).state({"maps": rows}) == state


def test_peers_stand_beside_the_best_first():
    rows = [
        {"data": "a", "method": name, "c": value}
        for name, value in (
            ("PCA", "0.2"),
            ("UMAP", "0.4"),
            ("UMAP", "0.6"),
            ("SRFLVM", "0.9"),
        )
    ]
    other = [{"data": "z", "method": "PCA", "c": "1"}]
    assert made().peers({"maps": rows + other}) == "UMAP 0.500 ± 0.141, PCA 0.200"
    assert made(better="lower").peers({"maps": rows}) == "PCA 0.200, UMAP 0.500 ± 0.141"


def test_what_lacks_data_or_a_peer_is_left_out_and_named(monkeypatch, capsys):
    measured = []

    def collect(jobs):
        for job in jobs:
            if job.method != "b":
                raise ImportError("No module named 'peer'")
            measured.append(job.seed)

    jobs = [
        types.SimpleNamespace(data="a", method=method, seed=seed)
        for seed in range(2)
        for method in ("peer", "b")
    ]
    protocol = types.SimpleNamespace(
        jobs=lambda _seeds, _quick: jobs,
        store=lambda _quick, _folder: types.SimpleNamespace(collect=collect),
    )
    monkeypatch.setitem(papers.PROTOCOLS, "maps", ("made_protocol", "PROTOCOL"))
    monkeypatch.setitem(sys.modules, "made_protocol", types.SimpleNamespace(PROTOCOL=protocol))
    papers.measure([made()], range(2), False)
    assert measured == [0, 1]
    assert capsys.readouterr().err == "left out: a, peer: No module named 'peer'\n"


def test_once_more_stored_rows_of_the_items_alone_are_measured_into_files_of_their_own(
    monkeypatch, tmp_path
):
    measured = []
    opened = []
    jobs = [
        types.SimpleNamespace(data="a", method=method, seed=seed)
        for seed in range(5)
        for method in ("PCA", "b")
    ]

    def store(_quick, folder):
        opened.append(folder)
        return types.SimpleNamespace(collect=measured.extend)

    protocol = types.SimpleNamespace(jobs=lambda _seeds, _quick: jobs, store=store)
    monkeypatch.setitem(papers.PROTOCOLS, "maps", ("made_protocol", "PROTOCOL"))
    monkeypatch.setitem(sys.modules, "made_protocol", types.SimpleNamespace(PROTOCOL=protocol))
    monkeypatch.setattr(papers, "AGAIN", tmp_path)
    stored = [{"data": "a", "method": "b", "seed": str(s), "c": "1"} for s in (0, 2)]
    stored.append({"data": "a", "method": "PCA", "seed": "0", "c": "1"})
    papers.measure([made()], range(5), stored={"maps": stored})
    assert [(job.method, job.seed) for job in measured] == [("b", 0), ("b", 2)]
    assert opened == [tmp_path]


@pytest.mark.parametrize(
    ("again", "agrees"), [((0.5, 0.6), "yes"), ((0.6, 0.72), "no"), ((0.4, 0.48), "no")]
)
def test_means_over_the_same_seeds_agree_within_the_stored_deviation(again, agrees):
    def rows(values):
        return [
            {"data": "a", "method": "b", "seed": str(s), "c": str(v)}
            for s, v in enumerate(values)
        ]

    stored = {"maps": rows([0.5, 0.6, 0.7])}
    head, line = papers.repeated([made()], stored, {"maps": rows(again)})
    assert line[head.index("stored")] == "0.550"
    assert line[head.index("seeds")] == "2"
    assert line[head.index("deviation")] == "0.100"
    assert line[head.index("agrees")] == agrees


def test_one_seed_agrees_where_no_printed_digit_differs():
    stored = {"maps": [{"data": "a", "method": "b", "seed": "0", "c": "0.5"}]}
    for value, agrees in (("0.5004", "yes"), ("0.502", "no")):
        again = {"maps": [{"data": "a", "method": "b", "seed": "0", "c": value}]}
        assert papers.repeated([made()], stored, again)[1][-1] == agrees


def test_the_share_of_figures_that_are_reached_is_said_with_and_without_the_sampler():
    rows = [{"data": "a", "method": "b", "c": "0.5"}]
    below = {"published": "0.9", "deviation": ""}
    chosen = [made(item="x"), made(item="y", **below), made(item="z", note="a peer's figure")]
    sampled = made(item="s", file="tables_rflvm", **below)
    said = papers.share([*chosen, sampled], {"maps": rows, "tables_rflvm": rows})
    assert said.startswith("1 of 3 printed figures are reached (33.3%)")
    assert said.endswith("1 of 2 (50.0%).")


def test_what_is_missed_has_its_distance_in_standard_errors():
    rows = [{"data": "a", "method": "b", "c": value} for value in ("0.2", "0.3", "0.4")]
    # deviations 0.1 and 0.1: the root of 0.01 / 5 + 0.01 / 3
    assert made().short_by({"maps": rows}) == ("0.200", "2.7")
    assert made(deviation="").short_by({"maps": rows}) == ("0.200", "-")
    assert made().short_by({"maps": rows[:1]}) == ("0.300", "-")
    lines = papers.missed([made(item="x", note="why"), made(published="0.1")], {"maps": rows})
    assert lines.splitlines()[2:] == [
        "|  | x | 0.500 ± 0.100 | 0.300 ± 0.100 (3) | 0.200 | 2.7 | why |"
    ]
