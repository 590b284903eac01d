"""What stands beside the code: the citation, the bibliography, the versions that are promised."""

from __future__ import annotations

import configparser
import re
import tomllib
from pathlib import Path

import bochner

ROOT = Path(__file__).parents[1]
CODE = {".py", ".md", ".toml"}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NAME = r"[A-ZÅÖØ][\w'-]+"
# Names, then a year: "Li et al. (2024a)", "Saul and Jordan 1999", "Polson, Scott and Windle (2013)"
CITATION = re.compile(
    rf"({NAME})(?: et al\.|(?:, {NAME})*(?: and {NAME})?),? "
    r"\(?((?:19|20)\d\d[a-z]?)\b"
)
ENTRY = re.compile(r"^(?:van der )?(\w+), .*?\((\d{4}[a-z]?)\)\. \*", re.MULTILINE | re.DOTALL)


def listed() -> set[tuple[str, str]]:
    """First author and year of every entry of the bibliography."""
    paragraphs = (ROOT / "docs" / "bibliography.md").read_text().split("\n\n")
    return {match.groups() for text in paragraphs if (match := ENTRY.match(text))}


def cited() -> set[tuple[str, str]]:
    """First author and year of every citation in code and pages."""
    files = [*(ROOT / "src").rglob("*.py"), *(ROOT / "docs").glob("*.md")]
    pages = [f.read_text() for f in files if f.stem != "bibliography"]
    text = re.sub(r"\s+", " ", "\n".join(pages))
    text = re.sub(r"\b(van der|de) (?=[A-Z])", "", text)
    return {match.groups() for match in CITATION.finditer(text)}


def test_every_citation_is_in_the_bibliography():
    assert ("Rahimi", "2007") in cited()
    missing = cited() - listed()
    assert not missing


def test_every_entry_of_the_bibliography_is_cited():
    unused = listed() - cited()
    assert not unused


def test_the_version_is_one():
    citation = (ROOT / "CITATION.cff").read_text()
    assert re.search(r"^version: (.*)$", citation, re.MULTILINE)[1] == PROJECT["version"]
    assert bochner.__version__ == PROJECT["version"]
    assert f"version = {{{PROJECT['version']}}}" in (ROOT / "docs" / "cite.md").read_text()


def test_nothing_cites_a_paper_by_number_or_a_page_that_is_not_here():
    folders = ("src", "docs", "tests", "benchmarks", "examples")
    files = [f for folder in folders for f in (ROOT / folder).rglob("*.*") if f.suffix in CODE]
    bad = re.compile(r"\bpapers? 00\d\b|(?<!docs/)\bMATH\.md\b", re.IGNORECASE)
    link = re.compile(r"\(math\.md\)")
    texts = {f: link.sub("", f.read_text()) for f in files if f != Path(__file__)}
    faults = [f"{f}: {m[0]}" for f, text in texts.items() for m in bad.finditer(text)]
    assert not faults


def test_classifiers_and_the_workflow_name_the_same_versions_of_python():
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    workflow = (ROOT / ".github" / "workflows" / "tests.yml").read_text()
    assert re.findall(r'"(3\.\d+)"', re.search(r"python: \[(.*)\]", workflow)[1]) == named
    assert PROJECT["requires-python"] == f">={named[0]}"


def test_the_type_checker_looks_for_wrong_calls_in_the_benchmarks():
    # no test runs these scripts: a renamed argument would stop one unseen
    assert "mypy --config-file benchmarks/mypy.ini" in (ROOT / "Makefile").read_text()
    settings = configparser.ConfigParser()
    settings.read(ROOT / "benchmarks" / "mypy.ini")
    assert settings["mypy"]["files"] == "benchmarks"
    assert settings["mypy"]["check_untyped_defs"] == "True"
    wanted = {"call-arg", "call-overload", "attr-defined", "name-defined", "union-attr"}
    for section in settings.values():
        assert "ignore_errors" not in section
        assert "exclude" not in section
        assert not wanted & set(re.split(r",\s*", section.get("disable_error_code", "")))
