"""What ``bochner fit iris.csv`` costs a processor, ``python benchmarks/startup.py --threads 1``.

Each row is a process of its own: PyTorch imported and nothing else, PyTorch and scikit-learn (which
imports scipy.stats, and pandas where it is installed), the models of ``bochner``, the command. The
floor of the command is the second of them and the fit alone, measured inside a process that has
imported everything. Bytecode is compiled before, as pip does.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from harness import Job, Protocol, Value, timed
from sklearn.datasets import load_iris

import bochner as bo

COLUMNS = {"cpu": ".2f", "over_floor": ".2f"}
_LIBRARIES = "import torch, sklearn.base"
IMPORTS = {
    "import torch": "import torch",
    "import torch, sklearn.base": _LIBRARIES,
    "import of the models": "import bochner as bo; bo.NGMVLVM",
}


def process(*words: str) -> float:
    """Return the processor seconds of a Python that is given these words."""
    environment = dict(os.environ)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, *words]
    subprocess.run(command, check=True, capture_output=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def alone(seed: int) -> float:
    """Return the processor seconds of the fit that the command runs."""
    X = load_iris().data
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return timed(lambda: bo.NGMVLVM(random_state=seed).fit(X))[1]


def command(seed: int) -> dict[str, Value]:
    """Run the command, and what is its floor."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "iris.csv"
        load_iris(as_frame=True).data.to_csv(path, index=False)
        words = ("-m", "bochner", "fit", str(path), "--seed", str(seed), "--out")
        process(*words, f"{folder}/compiles")
        cpu = process(*words, f"{folder}/run")
    return {"cpu": cpu, "over_floor": cpu / (process("-c", _LIBRARIES) + alone(seed))}


def jobs(seeds: range, quick: bool) -> Iterable[Job]:
    """Yield every row to measure."""
    del quick
    for seed in seeds:
        for name, code in IMPORTS.items():
            yield Job("iris", name, seed, partial(imported, code))
        yield Job("iris", "the fit alone", seed, partial(fitted, seed))
        yield Job("iris", "bochner fit", seed, partial(command, seed))


def imported(code: str) -> dict[str, Value]:
    process("-c", code)
    return {"cpu": process("-c", code)}


def fitted(seed: int) -> dict[str, Value]:
    return {"cpu": alone(seed)}


STARTUP = Protocol("startup", tuple(COLUMNS), jobs)


if __name__ == "__main__":
    STARTUP.main(__doc__, COLUMNS)
