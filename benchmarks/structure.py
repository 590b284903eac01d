"""The package in figures: ``python benchmarks/structure.py [--modules] [FOLDER]``.

Modules and calls between them that a plain Gaussian fit enters, modules a package, places outside
the classes concerned that ask which kind of thing they hold, uses of Any, characters a code line.
``--modules`` also lists the modules that the fit enters: their lines, what they call, who calls
them.
"""

from __future__ import annotations

import ast
import re
import statistics
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import numpy as np

SOURCE = Path(__file__).parents[1] / "src" / "bochner"
# Questions about a kind: fields that are sometimes None, and classes asked for by name.
KINDS = (
    r"\.?offsets? is (not )?None",
    r"\.rows is (not )?None",
    r"\.seen is (not )?None",
    r"\.sites is (not )?None",
    r"\.local is (not )?None",
    r"\.scales is (not )?None",
    r"isinstance\([^)]*(NonConjugateLikelihood|LocalLikelihood|DirichletProcessMixture|SparseMatrix)",
    r"isinstance\([^)]*\b(Gaussian|CompleteBlock|IncompleteBlock|EncodedBlock|RowSource)\b",
    r"\b(covariates|beside) is (not )?None",
    r"\.(dims|second|linear|intercept|predictive_noise) is (not )?None",
    r"\.per_column",
    r"noise(_variance)?\.ndim",
    r"\.sizes\b(?= |\)|:|$)(?=.*\bif\b)|\bif .*\.sizes\b",
)


def trees(folder: Path) -> Iterator[tuple[Path, str, ast.Module]]:
    """Yield path, text and syntax tree of every module."""
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text()
        yield path, text, ast.parse(text)


def code_lines(text: str, tree: ast.Module) -> list[str]:
    """Return the lines that are neither blank nor comment nor docstring, without their indent."""
    texts = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ]
    skipped = {
        line for node in texts for line in range(node.lineno, (node.end_lineno or 0) + 1)
    }
    lines = enumerate(text.splitlines(), 1)
    stripped = [line.strip() for number, line in lines if number not in skipped]
    return [line for line in stripped if line and not line.startswith("#")]


def entered() -> tuple[set[str], set[tuple[str, str]]]:
    """Return the modules that a plain Gaussian fit enters, and the calls between them."""
    import bochner as bo

    rng = np.random.default_rng(0)
    # two dimensions that the data have: nothing to warn of
    X = rng.normal(size=(60, 2)) @ rng.normal(size=(2, 5)) + 0.1 * rng.normal(size=(60, 5))
    bo.NGMVLVM(random_state=0).fit(X)  # imports are not part of it
    modules: set[str] = set()
    calls: set[tuple[str, str]] = set()

    def watch(frame: FrameType, event: str, _: object) -> None:
        name = frame.f_globals.get("__name__", "")
        if event != "call" or not name.startswith("bochner"):
            return
        modules.add(name)
        caller = frame.f_back
        while caller and not caller.f_globals.get("__name__", "").startswith("bochner"):
            caller = caller.f_back
        if caller and caller.f_globals["__name__"] != name:
            calls.add((caller.f_globals["__name__"], name))

    model = bo.NGMVLVM(random_state=0)
    sys.setprofile(watch)
    model.fit(X)
    sys.setprofile(None)
    return modules, calls


def listing(modules: set[str], calls: set[tuple[str, str]]) -> Iterator[str]:
    """Yield a line a module: its lines, how many others it calls, who calls it."""
    for name in sorted(modules):
        path = SOURCE.parent / Path(*name.split("."))
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        n_lines = len(file.read_text().splitlines())
        callers = sorted(a.removeprefix("bochner.") for a, b in calls if b == name)
        n_called = sum(a == name for a, _ in calls)
        short = name.removeprefix("bochner.")
        yield f"{short:40s} {n_lines:4d} calls {n_called:2d}, by {', '.join(callers) or 'users'}"


def main() -> None:
    words = [word for word in sys.argv[1:] if word != "--modules"]
    folder = Path(words[0]) if words else SOURCE
    if not folder.is_dir():
        sys.exit(f"Expected a folder of Python modules, got {folder}.")
    lengths: list[int] = []
    questions = outside = 0
    unknown = 0
    packages: dict[str, int] = {}
    for path, text, tree in trees(folder):
        lines = code_lines(text, tree)
        lengths += map(len, lines)
        questions += sum(bool(re.search("|".join(KINDS), line)) for line in lines)
        # what an object asks of its own fields is asked inside the class concerned
        others = [
            re.sub(r"\bself\.\w+ is (not )?None|\bself\.per_column", "", line)
            for line in lines
        ]
        outside += sum(bool(re.search("|".join(KINDS), line)) for line in others)
        names = (node for node in ast.walk(tree) if isinstance(node, ast.Name))
        unknown += sum(node.id == "Any" for node in names)
        package = path.parent.relative_to(folder).as_posix()
        packages[package] = packages.get(package, 0) + 1
    largest = sorted(packages.items(), key=lambda item: -item[1])[:3]
    print(f"lines of code                 {len(lengths)}")
    print(f"characters a code line, mean  {statistics.fmean(lengths):.1f}")
    print(f"uses of Any                   {unknown}")
    print(
        f"questions about a kind        {questions}, {outside} not of an object's own fields"
    )
    print(f"largest packages              {', '.join(f'{name} {n}' for name, n in largest)}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        modules, calls = entered()
    print(f"modules a plain fit enters    {len(modules)}")
    print(f"calls between them            {len(calls)}")
    if "--modules" in sys.argv:
        print("\n".join(listing(modules, calls)))


if __name__ == "__main__":
    main()
