"""Stop and continue: a checkpoint holds parameters, optimiser and where the run stands.

Noise is keyed by the step, so a continued run takes the very steps of one that was never stopped.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from bochner.errors import (
    InputError,
    StorageError,
    StorageWarning,
    message,
    warn_user,
)
from bochner.io import files
from bochner.io.extensions import beside
from bochner.io.outputs import exists, leave, remove
from bochner.io.schema import Tensors, parse, whole
from bochner.processes import Processes
from bochner.training.trainer import Module, Moments, NoCheckpoint, State, Trainer

# Grows when what files hold changes.
SCHEMA = 1


@dataclass(frozen=True)
class Header:
    """What a checkpoint says, beside its tensors.

    Attributes
    ----------
    kind : str
    schema : int
    fingerprint : str
    state : State or None
        None of a run that has done nothing yet.
    extra : dict
        Of the race of the starts.
    """

    kind: str
    schema: int
    fingerprint: str
    state: State | None
    extra: dict[str, object]


Earlier = tuple[Tensors, Header]


class LastingPath(os.PathLike[str]):
    """The path of a checkpoint that stays when the fit is done: its caller has yet to write what
    the fit found, and removes it then.

    Parameters
    ----------
    path : str or Path
    """

    def __init__(self, path: str | Path) -> None:
        self._path = str(path)

    def __fspath__(self) -> str:
        return self._path

    def __repr__(self) -> str:
        return repr(self._path)


def discard(path: str | os.PathLike[str]) -> None:
    """Remove the checkpoint of a fit that is done, and what is beside it, if it is not to last."""
    if isinstance(path, LastingPath):
        return
    for file in [Path(path), *beside(Path(path))]:
        leave(file)


@dataclass
class Checkpoint:
    """A file that a run writes now and then, and starts from when it is there.

    Attributes
    ----------
    path : Path
    fingerprint : str
        Of data and settings.
    seconds : float
        Least time between two writes; 0 writes at every step.
    """

    path: Path
    fingerprint: str
    seconds: float = 20.0
    _last: float = field(default_factory=time.monotonic)
    _warned: bool = False
    _empty: bool = False

    @contextmanager
    def begun(self) -> Iterator[Earlier | None]:
        """Read an earlier run, or write the checkpoint of a run that has done nothing yet: it can
        be continued from the first moment.

        A run that fails before it has done anything leaves no checkpoint.

        Yields
        ------
        (Tensors, Header), or None
            As `read` returns them.
        """
        earlier = self.read()
        if earlier is None:
            for stale in beside(self.path):
                remove(stale)
            self._write({}, None, {})
            self._empty = True
        try:
            yield earlier
        except Exception:
            if self._empty:
                leave(self.path)
            raise

    def maybe(self, trainer: Trainer[Module], extra: dict[str, object]) -> None:
        """Write when enough time has passed, at steps to which a trainer rolls back: a continued
        run rolls back to the same ones.
        """
        if trainer.is_at_snapshot and time.monotonic() - self._last >= self.seconds:
            self.write(trainer, extra)

    def write(self, trainer: Trainer[Module], extra: dict[str, object]) -> None:
        """Write now."""
        moments = trainer.optimiser.state_dict()["state"]
        tensors = tensors_of(trainer.module.state_dict(), moments)
        self._write(tensors, trainer.state.to_dict(), extra)
        self._empty = False

    def _write(
        self,
        tensors: dict[str, Tensor],
        state: dict[str, object] | None,
        extra: dict[str, object],
    ) -> None:
        kind = {"kind": "checkpoint", "schema": SCHEMA, "fingerprint": self.fingerprint}
        try:
            files.write(self.path, tensors, {**kind, "state": state, "extra": extra})
        except (
            StorageError
            # no reason to lose the run: the last checkpoint is whole
        ) as error:
            self._warn(error)
        self._last = time.monotonic()

    def _warn(self, error: StorageError) -> None:
        if not self._warned:
            warn_user(f"No checkpoint: {error} Training goes on.", StorageWarning)
        self._warned = True

    def read(self) -> Earlier | None:
        """Return the tensors and the header of an earlier run, None when there is no file.

        Raises
        ------
        ModelFileError
            The file is not a checkpoint or cannot be read.
        InputError
            It belongs to other data or settings, or there is none and none could be written.
        """
        if not exists(self.path):
            files.check_place(self.path)
            return None
        tensors, plain = files.read(self.path, "checkpoint", SCHEMA)
        with whole(self.path.name, "checkpoint"):
            header = parse(Header, plain, "the file")
        if header.fingerprint != self.fingerprint:
            got = f"{self.path.name}, which belongs to other data or settings"
            raise InputError(
                message(
                    "the checkpoint of this very fit",
                    got,
                    "delete it or name another checkpoint; bochner fit starts anew with --force",
                )
            )
        return Tensors(tensors), header


class SharedCheckpoint:
    """The checkpoint of several processes of which the first one trains: it reads and writes it.

    Parameters
    ----------
    local : Checkpoint or NoCheckpoint
        NoCheckpoint in all processes but the first.
    processes : Processes
    """

    def __init__(self, local: Checkpoint | NoCheckpoint, processes: Processes) -> None:
        self._local = local
        self._processes = processes

    @contextmanager
    def begun(self) -> Iterator[Earlier | None]:
        """Yield what the first process reads, to it alone; what it refuses all refuse."""
        with ExitStack() as kept:
            yield self._processes.together(lambda: kept.enter_context(self._local.begun()))

    def maybe(self, trainer: Trainer[Module], extra: dict[str, object]) -> None:
        """Write now and then."""
        self._local.maybe(trainer, extra)

    def write(self, trainer: Trainer[Module], extra: dict[str, object]) -> None:
        """Write now."""
        self._local.write(trainer, extra)


AnyCheckpoint = Checkpoint | NoCheckpoint | SharedCheckpoint


def tensors_of(
    parameters: Mapping[str, Tensor], moments: Moments, prefix: str = ""
) -> dict[str, Tensor]:
    """Return parameters of a module and moments of their optimiser as a file names them."""
    named = {f"{prefix}module.{name}": tensor for name, tensor in parameters.items()}
    for i, slots in moments.items():
        for name, value in slots.items():
            named[f"{prefix}optimiser.{i}.{name}"] = torch.as_tensor(value)
    return named


def restore(trainer: Trainer[Module], tensors: Tensors, state: State) -> None:
    """Put a trainer where a checkpoint was written.

    Raises
    ------
    MismatchError
        A tensor is missing, unknown, or of another shape than its parameter.
    """
    slots = restored(trainer, tensors)
    tensors.finish()
    trainer.optimiser.load_state_dict({"state": slots})
    trainer.resume(state)


def restored(trainer: Trainer[Module], tensors: Tensors, prefix: str = "") -> Moments:
    """Put a module where `tensors_of` wrote it, and return the moments of its optimiser.

    Raises
    ------
    MismatchError
        A tensor is missing, or of another shape than its parameter.
    """
    trainer.module.load_state_dict(tensors.take_all(f"{prefix}module."))
    slots: Moments = {}
    for i, parameter in enumerate(trainer.optimiser.parameters):
        name = f"{prefix}optimiser.{i}."
        shape = tuple(parameter.shape)
        if name + "step" in tensors:
            slots[i] = {
                "step": tensors.take(name + "step", kind="i"),
                "exp_avg": tensors.take(name + "exp_avg", *shape, kind="f"),
                "exp_avg_sq": tensors.take(name + "exp_avg_sq", *shape, kind="f"),
            }
    return slots
