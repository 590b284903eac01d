"""Places of rows, kept in files beside the checkpoint of a fit: each process writes those of its
rows, and any number of processes goes on from them.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from bochner.errors import StorageError, StorageWarning, warn_user
from bochner.io import files
from bochner.training.checkpoint import shards

SCHEMA = 1


class Places(Protocol):
    """What becomes of rows as they are placed."""

    def restore(self, mean: Tensor, log_std: Tensor) -> Tensor:
        """Put known places where they belong, (n, D); return which rows have one, (n,), bool."""

    def add(self, rows: Tensor, mean: Tensor, log_std: Tensor) -> None:
        """Keep the places of some rows, (l,) and (l, D)."""

    def finish(self) -> None:
        """Write what was not written yet."""


class NotKept:
    """Places that are in memory alone."""

    def restore(self, mean: Tensor, log_std: Tensor) -> Tensor:  # noqa: ARG002
        """Return that none is known."""
        return torch.zeros(len(mean), dtype=torch.bool)

    def add(self, rows: Tensor, mean: Tensor, log_std: Tensor) -> None:
        """Do nothing."""

    def finish(self) -> None:
        """Do nothing."""


class PlacedRows:
    """Files of places, each with the numbers of its rows among those of all processes.

    Parameters
    ----------
    checkpoint : Path
        Files have its name, the number of their first row added.
    fingerprint : str
        Of the model under which rows are placed, and of the data: files with another one are left
        alone.
    start : int
        Global number of this process's first row.
    seconds : float
        Least time between two files.
    """

    def __init__(
        self, checkpoint: Path, fingerprint: str, start: int, seconds: float = 20.0
    ) -> None:
        self._checkpoint = checkpoint
        self._fingerprint = fingerprint
        self._start = start
        self._seconds = seconds
        self._waiting: list[tuple[Tensor, Tensor, Tensor]] = []
        self._last = time.monotonic()
        self._warned = False

    def restore(self, mean: Tensor, log_std: Tensor) -> Tensor:
        """Read the files of an earlier run.

        Raises
        ------
        ModelFileError
            One cannot be read.
        """
        known = torch.zeros(len(mean), dtype=torch.bool)
        for path in shards(self._checkpoint):
            tensors, header = files.read(path, "places of rows", SCHEMA)
            if header.get("fingerprint") != self._fingerprint:
                continue
            rows = tensors["rows"] - self._start
            here = (rows >= 0) & (rows < len(mean))
            mean[rows[here]] = tensors["mean"][here].to(mean)
            log_std[rows[here]] = tensors["log_std"][here].to(log_std)
            known[rows[here]] = True
        return known

    def add(self, rows: Tensor, mean: Tensor, log_std: Tensor) -> None:
        """Keep places, and write them when enough time has passed."""
        self._waiting.append((rows + self._start, mean, log_std))
        if time.monotonic() - self._last >= self._seconds:
            self.finish()

    def finish(self) -> None:
        """Write what was not written yet."""
        if not self._waiting:
            return
        parts = (torch.cat(part).cpu() for part in zip(*self._waiting, strict=True))
        tensors = dict(zip(("rows", "mean", "log_std"), parts, strict=True))
        first = int(tensors["rows"][0])
        path = self._checkpoint.with_name(f"{self._checkpoint.name}.rows-{first:012d}")
        kind = {"kind": "places of rows", "schema": SCHEMA, "fingerprint": self._fingerprint}
        try:
            files.write(path, tensors, kind)
        except StorageError as error:  # no reason to lose the run
            if not self._warned:
                warn_user(
                    f"Places of rows are not kept: {error} The fit goes on.", StorageWarning
                )
            self._warned = True
        self._waiting = []
        self._last = time.monotonic()
