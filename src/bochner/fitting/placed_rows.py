"""Places of rows, kept in files beside the checkpoint of a fit: each process writes those of its
rows, and any number of processes goes on from them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from bochner.data.views import fingerprint
from bochner.errors import StorageError, StorageWarning, warn_user
from bochner.processes import current
from bochner.progress import say
from bochner.training.checkpoint import LastingPath
from bochner.training.row_shards import RowShards


class Places(Protocol):
    """What becomes of rows as they are placed."""

    def restore(self, mean: Tensor, spread: Tensor) -> Tensor:
        """Put known places where they belong, (n, D); return which rows have one, (n,), bool."""

    def add(self, rows: Tensor, mean: Tensor, spread: Tensor) -> None:
        """Keep the places of some rows, (l,) and (l, D)."""

    def finish(self) -> None:
        """Write what was not written yet."""


class NotKept:
    """Places that are in memory alone."""

    def restore(self, mean: Tensor, spread: Tensor) -> Tensor:  # noqa: ARG002
        """Return that none is known."""
        return torch.zeros(len(mean), dtype=torch.bool)

    def add(self, rows: Tensor, mean: Tensor, spread: Tensor) -> None:
        """Do nothing."""

    def finish(self) -> None:
        """Do nothing."""


class PlacedRows:
    """Files of places, with their spread: standard deviations, or logarithms of them.

    Parameters
    ----------
    shards : RowShards
        Of the model under which rows are placed, and of the data.
    seconds : float
        Between two files at the least: what a run that is cut loses.
    """

    def __init__(self, shards: RowShards, seconds: float = 20.0) -> None:
        self._seconds = seconds
        self._shards = shards
        self._waiting: list[tuple[Tensor, Tensor, Tensor]] = []
        self._last = time.monotonic()
        self._warned = False

    def restore(self, mean: Tensor, spread: Tensor) -> Tensor:
        """Read the files of an earlier run.

        Raises
        ------
        ModelFileError
            One cannot be read.
        """
        known = torch.zeros(len(mean), dtype=torch.bool)
        for rows, values in self._shards.read(len(mean)):
            mean[rows] = values["mean"].to(mean)
            spread[rows] = values["spread"].to(spread)
            known[rows] = True
        return known

    def add(self, rows: Tensor, mean: Tensor, spread: Tensor) -> None:
        """Keep places, and write them when enough time has passed."""
        self._waiting.append((rows, mean, spread))
        if time.monotonic() - self._last >= self._seconds:
            self.finish()

    def finish(self) -> None:
        """Write what was not written yet."""
        if not self._waiting:
            return
        rows, mean, spread = (torch.cat(part) for part in zip(*self._waiting, strict=True))
        try:
            self._shards.write(rows, {"mean": mean, "spread": spread})
        except StorageError as error:  # no reason to lose the run
            if not self._warned:
                warn_user(
                    f"Places of rows are not kept: {error} The fit goes on.", StorageWarning
                )
            self._warned = True
        self._waiting = []
        self._last = time.monotonic()


def say_placed(n_placed: int, n_rows: int) -> None:
    """Say how many rows are placed: each of several processes counts its own."""
    whose = "this process's " if current().size > 1 else ""
    say(f"placing rows, {n_placed:,} of {whose}{n_rows:,}")


def kept_places(
    checkpoint: LastingPath,
    candidates: Tensor,
    start: int,
    settings: Mapping[str, object],
) -> Places:
    """Return the places of training rows under the final model, which stay beside a checkpoint that
    lasts longer than the fit.

    Parameters
    ----------
    checkpoint : LastingPath
    candidates : Tensor of shape (C, D)
        Of the model.
    start : int
        Number of this process's first row.
    settings : mapping
        What else tells models and data apart.
    """
    digest = fingerprint([candidates], dict(settings))
    return PlacedRows(RowShards(Path(checkpoint), "latents", digest, start))
