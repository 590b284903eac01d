"""How far the passes over all rows are, kept in files beside the checkpoint of a fit: what they
found, and where the joint steps stand. Any number of processes goes on from them.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor, nn

from bochner.errors import StorageError, StorageWarning, warn_user
from bochner.io import files
from bochner.io.extensions import passes_file
from bochner.io.outputs import exists
from bochner.io.schema import Tensors, parse, whole
from bochner.memory import chunks
from bochner.processes import Processes
from bochner.training.checkpoint import restored, tensors_of
from bochner.training.row_adam import KeptRows, RowAdam
from bochner.training.row_shards import RowShards, remove_stages
from bochner.training.trainer import State, Trainer

# Grows when what files hold changes.
SCHEMA = 1
_KIND = "passes over all rows"
# A mean over draws and its standard error.
Numbers = tuple[float, float]


class Passes(Protocol):
    """What becomes of passes over all rows."""

    def numbers(self, name: str, compute: Callable[[], Numbers]) -> Numbers:
        """Return what passes found: what an earlier run kept, or what they find now."""

    def knows(self, name: str) -> bool:
        """Return whether an earlier run kept it."""

    def restore(self, trainer: Trainer[nn.Module], optimiser: RowAdam) -> None:
        """Put the joint steps where an earlier run kept them."""

    def after_step(self, trainer: Trainer[nn.Module], optimiser: RowAdam) -> None:
        """Keep where they stand, now and then and at their end."""


class NoPasses:
    """Passes of which nothing is kept."""

    def numbers(self, name: str, compute: Callable[[], Numbers]) -> Numbers:  # noqa: ARG002
        """Return what they find."""
        return compute()

    def knows(self, name: str) -> bool:  # noqa: ARG002
        """Return that it is not known."""
        return False

    def restore(self, trainer: Trainer[nn.Module], optimiser: RowAdam) -> None:
        """Do nothing."""

    def after_step(self, trainer: Trainer[nn.Module], optimiser: RowAdam) -> None:
        """Do nothing."""


@dataclass(frozen=True)
class _Header:
    """What the file says beside its tensors.

    Attributes
    ----------
    kind : str
    schema : int
    fingerprint : str
    found : dict of str to list of float
        By name of what was looked for.
    state : State or None
        Of the joint steps; None before the first that was kept.
    good : State or None
        To which they roll back; None: where they began.
    """

    kind: str
    schema: int
    fingerprint: str
    found: dict[str, list[float]]
    state: State | None
    good: State | None


@dataclass(frozen=True)
class Pace:
    """How often the joint steps are written: files are to cost little beside the steps, and a run
    that is cut loses half a minute.

    Attributes
    ----------
    seconds : float
        Between two writes at the least.
    writes : float
        The same in the time of a write.
    rows : int
        Of a file: some ten megabytes.
    """

    seconds: float = 20.0
    writes: float = 10.0
    rows: int = 2**18

    def is_due(self, waited: float, took: float) -> bool:
        """Return whether to write, so long after a write that took so long."""
        return waited >= max(self.seconds, self.writes * took)


PACE = Pace()


class KeptPasses:
    """Passes of which files beside a checkpoint say how far they are.

    The first process writes one file, all of them rows in files of their own, which that one names
    once they are whole. Rows are those of the last step, and of the one to which steps roll back.

    Parameters
    ----------
    checkpoint : Path
    fingerprint : str
        Of the model with which they begin, and of the data.
    n_rows : int
        Of this process.
    processes : Processes
    pace : Pace
    """

    def __init__(
        self,
        checkpoint: Path,
        fingerprint: str,
        n_rows: int,
        processes: Processes,
        pace: Pace = PACE,
    ) -> None:
        self._checkpoint = checkpoint
        self._fingerprint = fingerprint
        self._n_rows = n_rows
        self._processes = processes
        self._pace = pace
        self._tensors: dict[str, Tensor] = {}
        self._found: dict[str, list[float]] = {}
        self._state: State | None = None
        self._good: State | None = None
        self._whole = True
        self._last = time.monotonic()
        self._took = 0.0
        self._warned = False
        self._read()

    def knows(self, name: str) -> bool:
        """Return whether an earlier run kept it."""
        return name in self._found

    def numbers(self, name: str, compute: Callable[[], Numbers]) -> Numbers:
        """Return what passes found; what they find now is kept where the rows that it is about
        are.
        """
        if name in self._found:
            mean, error = self._found[name]
            return mean, error
        value = compute()
        if self._whole and all(map(math.isfinite, value)):
            self._found[name] = list(value)
            self._write()
        return value

    def restore(self, trainer: Trainer[nn.Module], optimiser: RowAdam) -> None:
        """Put the joint steps where an earlier run kept them: to the last bit of as many
        processes.
        """
        if self._state is None:
            return
        tensors = Tensors(self._tensors)
        with whole(passes_file(self._checkpoint).name, "checkpoint"):
            if self._good is not None:
                self._put(trainer, optimiser, tensors, self._good, "good.")
                trainer.resume(self._good)
            self._put(trainer, optimiser, tensors, self._state, "last.")
            tensors.finish()
        trainer.resume(self._state, good=False)
        self._whole = trainer.state.step >= trainer.options.max_iter

    def after_step(self, trainer: Trainer[nn.Module], optimiser: RowAdam) -> None:
        """Keep where they stand, now and then and at their end."""
        ended = trainer.state.step >= trainer.options.max_iter
        self._whole = False
        due = self._pace.is_due(time.monotonic() - self._last, self._took)
        if not self._processes.first(ended or due):
            return
        began = time.monotonic()
        if self._write_steps(trainer, optimiser):
            self._whole = ended
        self._last = time.monotonic()
        self._took = self._last - began

    def _write_steps(self, trainer: Trainer[nn.Module], optimiser: RowAdam) -> bool:
        """Write rows, then the file that names them, then remove those of before; return whether
        all could.
        """
        parameters, moments, of_good = trainer.good
        good = State(**of_good) if of_good["step"] else None
        last = State(**copy.deepcopy(trainer.state.to_dict()))  # type: ignore[arg-type]
        fault = None
        try:
            if good is not None and good.step not in self._steps():
                self._write_rows(good.step, moments["rows"])
            if good is None or good.step != last.step:
                self._write_rows(last.step, optimiser)
        except StorageError as error:
            fault = str(error)
        if (fault := self._processes.agreed(fault)) is not None:
            self._warn(fault)
            return False
        self._state = last
        self._good = good
        now = trainer.module.state_dict(), optimiser.moments()
        self._tensors = tensors_of(*now, prefix="last.")
        if good is not None:
            self._tensors |= tensors_of(parameters, moments["state"], prefix="good.")
        self._tensors = {name: value.clone() for name, value in self._tensors.items()}
        if self._write():
            self._clean()
        return True

    def _steps(self) -> set[int]:
        """Return of which steps there are rows."""
        return {state.step for state in (self._state, self._good) if state is not None}

    def _write_rows(self, step: int, rows: RowAdam | KeptRows) -> None:
        shards = self._shards(step)
        for part in chunks(rows.n_rows, self._pace.rows):
            shards.write(part, {"values": rows.read(part)})

    def _put(
        self,
        trainer: Trainer[nn.Module],
        optimiser: RowAdam,
        tensors: Tensors,
        state: State,
        prefix: str,
    ) -> None:
        """Put everything where it was after a step whose rows are known to be there."""
        optimiser.load_moments(restored(trainer, tensors, prefix), state.step)
        for rows, values in self._shards(state.step).read(optimiser.n_rows):
            place = slice(int(rows[0]), int(rows[-1]) + 1)
            optimiser.write(place, values["values"])

    def _shards(self, step: int) -> RowShards:
        given = (self._checkpoint, _stage(step), self._fingerprint)
        return RowShards(*given, self._processes.start)

    def _read(self) -> None:
        """Take up what an earlier run kept of this very model; forget it where rows are missing,
        and remove those that no file names.
        """
        path = passes_file(self._checkpoint)
        first = self._processes.rank == 0

        def read() -> tuple[dict[str, Tensor], dict[str, Any]] | None:
            return files.read(path, _KIND, SCHEMA) if first and exists(path) else None

        kept = self._processes.first(self._processes.together(read))
        if kept is not None:
            with whole(path.name, "checkpoint"):
                header = parse(_Header, kept[1], "the file")
            if header.fingerprint == self._fingerprint:
                self._tensors = kept[0]
                self._found = header.found
                self._state = header.state
                self._good = header.good
        self._clean()
        lacking = [
            step for step in self._steps() if not self._shards(step).cover(self._n_rows)
        ]
        if self._processes.agreed("rows are missing" if lacking else None) is not None:
            self._tensors = {}
            self._found = {}
            self._state = None
            self._good = None

    def _write(self) -> bool:
        """Let the first process write what it knows; return whether it could."""
        header: dict[str, object] = {
            "kind": _KIND,
            "schema": SCHEMA,
            "fingerprint": self._fingerprint,
            "found": self._found,
            "state": self._state and self._state.to_dict(),
            "good": self._good and self._good.to_dict(),
        }
        fault = None
        if self._processes.rank == 0:
            try:
                files.write(passes_file(self._checkpoint), self._tensors, header)
            except StorageError as error:
                fault = str(error)
        fault = self._processes.first(fault)
        if fault is not None:
            self._warn(fault)
        return fault is None

    def _clean(self) -> None:
        """Remove rows of other steps."""
        known = {_stage(step) for step in self._steps()}
        remove_stages(
            self._checkpoint, lambda name: name in known or not name.startswith(_STEP)
        )

    def _warn(self, fault: str) -> None:
        if not self._warned:
            warn_user(
                f"Steps over all rows are not kept: {fault} The fit goes on.", StorageWarning
            )
        self._warned = True


_STEP = "step"


def _stage(step: int) -> str:
    """Return the name of the files of a step's rows."""
    return f"{_STEP}{step:04d}"
