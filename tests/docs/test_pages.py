"""The documentation: every page is reached, every public name has its place and its words, every
code block runs.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
import warnings
from pathlib import Path

import pytest
from numpydoc.validate import validate

import bochner as bo

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS / "_ext"))

import offline  # noqa: E402 - in the folder of the documentation
import pictures  # noqa: E402
import reference  # noqa: E402

PAGES = {page.stem: page.read_text() for page in sorted(DOCS.glob("*.md"))}
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
TOCTREE = re.compile(r"^```\{toctree\}\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# Written by the build itself.
GENERATED = {"gallery/index", "api/index"}
# Drawn by it: pictures, and programs of the gallery with their first one.
GALLERY = [program.stem for program in (ROOT / "examples").glob("plot_*.py")]
DRAWN = {
    *(f"_generated/{name}.png" for name in pictures.PICTURES),
    *(f"gallery/images/sphx_glr_{name}_001.png" for name in GALLERY),
    *(f"gallery/{name}" for name in GALLERY),
}
# Undocumented, unknown or misplaced parameters, parameters without a type, returned values that
# nothing describes.
FAULTS = {
    "GL06",
    "GL08",
    "PR01",
    "PR02",
    "PR03",
    "PR04",
    "PR10",
    "RT01",
    "SS01",
    "SS03",
    "YD01",
}
# Of other libraries' base classes.
INHERITED = ("Module", "BaseEstimator", "TransformerMixin", "object")


# -- pages
# ---------------------------------------------------------------------------


def reached(page: str, observed: set[str]) -> set[str]:
    """Pages that toctrees lead to from a page, itself included."""
    observed.add(page)
    for block in TOCTREE.findall(PAGES.get(page, "")):
        for line in block.splitlines():
            if line and not line.startswith(":") and line not in observed:
                reached(line, observed)
    return observed


def test_every_page_is_in_a_toctree_and_every_entry_is_a_page():
    result = reached("index", set())
    assert result == set(PAGES) | GENERATED


def test_links_between_pages_and_to_pictures_lead_somewhere():
    broken = []
    for name, text in PAGES.items():
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
            made = re.sub(r"\.(md|rst)$", "", target)
            if not (DOCS / target).exists() and made not in GENERATED | DRAWN:
                broken.append(f"{name}.md: {target}")
    assert not broken


def test_every_page_of_the_guide_has_a_picture():
    guide = {page for page in reached("guide", set()) if page in PAGES} - {"guide"}
    assert {page for page in guide if "![" not in PAGES[page]} == set()


# -- code
# ---------------------------------------------------------------------------


def small(code: str) -> str:
    """The same code with few steps and few rows."""
    fewer = re.sub(r"\[:(1400|300|200)\]", "[:60]", code).replace("[1400:]", "[-12:]")
    fewer = fewer.replace('"rows.npy", digits.data)', '"rows.npy", digits.data[:200])')
    fewer = re.sub(r"max_iter=\d+", "max_iter=4", fewer)
    fewer = re.sub(r"n_warmup=\d+, n_draws=\d+", "n_warmup=4, n_draws=6", fewer)
    # fits that say nothing of their steps
    fewer = re.sub(r"(LVM\((?:(?!max_iter)[^()])*)\)\.fit", r"\1, max_iter=4).fit", fewer)
    # and of their starts
    return re.sub(r"(LVM\((?:(?!init)[^()])*)\)\.fit", r'\1, init="pca").fit', fewer)


CODE = {"README": (ROOT / "README.md").read_text()} | PAGES
# A page whose blocks make claims that need their full size has a test of its own.
TESTED_APART = {page for page in PAGES if Path(__file__).with_name(f"test_{page}.py").exists()}


@pytest.mark.usefixtures("few_draws", "quick_choice")
@pytest.mark.parametrize(
    "page",
    [name for name, text in CODE.items() if BLOCK.search(text) and name not in TESTED_APART],
)
def test_code_blocks_run_in_order(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": page}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for match in BLOCK.finditer(CODE[page]):
            line = CODE[page][: match.start(1)].count("\n")
            exec(compile("\n" * line + small(match.group(1)), f"{page}.md", "exec"), namespace)
    assert "bo" in namespace, "a page imports what it uses"


ANY_BLOCK = re.compile(r"^```py(?:thon)?\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(
    ("page", "packages"),
    [("from_scanpy", ("scanpy", "igraph")), ("from_miceforest", ("miceforest",))],
)
def test_walks_run_with_the_packages_they_are_about(page, packages, tmp_path, monkeypatch):
    """Blocks marked ``py`` are left out where a package is not installed."""
    for package in packages:
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": page}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for match in ANY_BLOCK.finditer(CODE[page]):
            exec(compile(small(match.group(1)), f"{page}.md", "exec"), namespace)


def test_code_fits_beside_the_navigation():
    # longer lines are cut off until one scrolls
    fenced = re.compile(r"^```(.*)\n((?:(?!```).*\n)*)```$", re.MULTILINE)
    lines = [
        (page, line)
        for page, text in PAGES.items()
        for kind, block in fenced.findall(text)
        if not kind.startswith("{")
        for line in block.splitlines()
    ]
    assert len(lines) > 300
    assert not [(page, line) for page, line in lines if len(line) > 95]


def test_parts_of_ones_own_are_shown_from_the_files_that_the_laws_test():
    files = ("cauchy_kernel", "rational_quadratic_kernel", "exponential_likelihood")
    for file in (*files, "student_t_likelihood"):
        assert f"../examples/{file}.py" in PAGES["extend"]
        source = (ROOT / "examples" / f"{file}.py").read_text()
        body = [line for line in source[source.index("class ") :].splitlines() if line.strip()]
        assert len(body) < 60


# -- the reference
# ---------------------------------------------------------------------------


def test_pages_of_names_that_are_gone_are_deleted(tmp_path):
    (tmp_path / "generated").mkdir()
    kept = tmp_path / "generated" / "bochner.load.rst"
    gone = tmp_path / "generated" / "bochner.unload.rst"
    kept.touch()
    gone.touch()
    reference.write_api(tmp_path)
    assert kept.exists()
    assert not gone.exists()


def test_every_public_name_is_in_the_reference(tmp_path):
    reference.write_api(tmp_path)
    listed = set()
    for page in tmp_path.glob("*.rst"):
        for module, table in re.findall(
            r"currentmodule:: (\S+)\n\n(.*?)(?=\n\S|\Z)", page.read_text(), re.DOTALL
        ):
            listed |= {
                f"{module}.{name}" for name in re.findall(r"^   (\w+)$", table, re.MULTILINE)
            }
        if page.stem == "index":
            listed |= {
                f"bochner.{name}"
                for name in re.findall(r"^   (\w+)$", page.read_text(), re.MULTILINE)
            }
    assert {f"bochner.{name}" for name in bo.__all__} <= listed
    assert set(reference.names()) <= listed


def test_the_command_line_page_has_every_option(tmp_path):
    from typer.main import get_command

    from bochner.cli import app

    reference.write_command_line(tmp_path / "new" / "cli.md")
    text = (tmp_path / "new" / "cli.md").read_text()
    sections = dict(re.findall(r"## bochner (\w+)\n(.*?)(?=\n## |\Z)", text, re.DOTALL))
    commands = get_command(app).commands
    assert set(sections) == set(commands)
    for name, command in commands.items():
        for parameter in command.params:
            if parameter.param_type_name == "option":
                assert f"`{parameter.opts[0]}" in sections[name], f"{name} {parameter.opts}"
            assert parameter.help, f"{name} {parameter.name} has no help"


def methods(cls: type) -> list[str]:
    """Public methods by the class that defines them first: overriding ones need not repeat what
    their base says.
    """
    result = []
    for name, thing in inspect.getmembers(cls, inspect.isfunction):
        owners = [c for c in cls.__mro__ if name in vars(c)]
        ours = (
            owners[-1].__module__.startswith("bochner.")
            and owners[-1].__name__ not in INHERITED
        )
        if not name.startswith("_") and ours and thing.__doc__:
            result.append(f"{owners[-1].__module__}.{owners[-1].__name__}.{name}")
    return result


def documented() -> list[str]:
    names = set(reference.names())
    for full in list(names):
        module, _, name = full.rpartition(".")
        thing = getattr(sys.modules.get(module) or bo, name)
        if inspect.isclass(thing):
            names |= set(methods(thing))
    return sorted(names)


def built_by_fields(name: str) -> bool:
    """Fields of dataclasses are documented as attributes; abstract bases pass on what their
    children document.
    """
    module, _, last = name.rpartition(".")
    thing = getattr(sys.modules.get(module), last, None)
    return dataclasses.is_dataclass(thing) or inspect.isabstract(thing)


def test_docstrings_name_parameters_and_returned_values():
    faults = []
    for name in documented():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = validate(name)["errors"]
        ignored = {"PR01"} if built_by_fields(name) else set()
        faults += [f"{name}: {text}" for code, text in result if code in FAULTS - ignored]
    assert len(documented()) > 130
    assert not faults, "\n".join(faults)


def test_a_page_that_fetches_something_is_found():
    local = (
        '<link rel="stylesheet" href="_static/a.css"><script src="../b.js"></script><a '
        'href="https://x.org">x</a>'
    )
    assert offline.remote_parts(local) == []
    assert offline.remote_parts('<script src="https://cdn.example/m.js"></script>')
    assert offline.remote_parts('<img alt="" src="//example.org/a.png">')
