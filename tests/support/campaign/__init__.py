"""The fault campaign: random fits, bad arguments, damaged files, failing disks, interrupts and odd
surroundings, each judged by one rule: a right answer, or a named error and nothing changed.

``python -m campaign --help`` says how it is run.
"""

import importlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Kind:
    """A part of the campaign.

    Attributes
    ----------
    module : str
        Whose ``trial(seed)`` runs one.
    trials : int
        How many a long campaign runs; 0: as many as the module says.
    meaning : str
        For the page.
    """

    module: str
    trials: int
    meaning: str

    def n_trials(self) -> int:
        """Return how many trials a long campaign runs."""
        return self.trials or int(self._module().n_trials())

    def within(self, seeds: Iterable[int]) -> list[int]:
        """Return the seeds that there are: parts that are finite end."""
        most = None if self.trials else self.n_trials()
        return [seed for seed in seeds if most is None or seed < most]

    def trial(self, seed: int) -> Any:
        """Run the trial of a seed."""
        return self._module().trial(seed)

    def _module(self) -> Any:
        return importlib.import_module(f"campaign.{self.module}")


PARTS = {
    "fits": Kind(
        "fits",
        1300,
        "Random estimators, options, shapes, containers and holes, scales from 1e-30 to 1e30, "
        "rows, columns and entries 1e4 to 1e12 times the others. What is returned must be finite; "
        "the same seed must give the same bits, and a saved file too (a quarter of the trials "
        "each); places must not depend on batch or order; a failed refit (a quarter) and the "
        "process itself must stay as they were; warnings must name the caller's line.",
    ),
    "inputs": Kind(
        "inputs",
        300,
        "Command lines with options, values and paths that make no sense, and every public "
        "function, method and parameter with an argument that makes none. Each is refused with one "
        "line or a named error, or its result is finite; 40 seconds and 3 GiB at the most; what is "
        "refused writes nothing and changes neither model nor process.",
    ),
    "files": Kind(
        "damage",
        1000,
        "Every reader and loader against a file with flipped bits, cut short, with zeros, with "
        "bytes put in, with a damaged head; model files and checkpoints also with other keys, "
        "values and tensors under a checksum that fits. A command must end with exit code 0 or 2, "
        "one line, 40 seconds and 3 GiB at the most; what carries a checksum must answer as the "
        "whole file does, or be refused.",
    ),
    "guided": Kind(
        "guided",
        18,
        "Every reader against files that atheris grows by what the reader's code does with them, "
        "500 a trial; of model files and checkpoints the header, under a checksum that fits. Each "
        "is read, or refused with a named error. Without atheris (`pip install atheris`) nothing "
        "is grown.",
    ),
    "writes": Kind(
        "writes",
        0,
        "Every moment in which a command opens a file to write, renames or removes one, struck "
        "once by each of: kill -9, SIGTERM, Ctrl-C, a disk that is full from then on (a small "
        "disk, where one may be mounted), an input or output error, and no permission. Every file "
        "must be whole, the old or the new one; the command given again must end with the bits of "
        "a run that nothing struck, and nothing may be left behind.",
    ),
    "interrupts": Kind(
        "interrupts",
        100,
        "kill -9, SIGTERM or Ctrl-C at a random time of `bochner fit`; then as above.",
    ),
    "surroundings": Kind(
        "surroundings",
        0,
        "200 fits and transforms in one process, after which memory and descriptors must be what "
        "they were; threads, joblib, spawned and forked processes, asyncio, `ulimit -v`; commands "
        "without HOME, in read-only folders and folders that are gone, with closed and broken "
        "streams, in odd locales and encodings. All must give the bits of a plain process, or end "
        "with one message.",
    ),
}
