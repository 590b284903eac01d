"""Numbers of rows in files beside the checkpoint of a fit: each process writes those of its rows,
and any number of processes reads them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor

from bochner.errors import ModelFileError, message
from bochner.io import files
from bochner.io.extensions import shards
from bochner.io.outputs import leave

# Grows when what files hold changes.
SCHEMA = 1
_KIND = "rows of a fit"
_NAME = re.compile(r"\.rows-(.+)-(\d{12})-(\d{12})$")


class RowShards:
    """Files of one stage of a fit, each with some rows, ascending.

    Parameters
    ----------
    checkpoint : Path
        Files have its name; stage, first and last row are added.
    stage : str
    fingerprint : str
        Of what the numbers follow from: files with another one are left alone.
    start : int
        Number of this process's first row among those of all.
    """

    def __init__(self, checkpoint: Path, stage: str, fingerprint: str, start: int) -> None:
        self._checkpoint = checkpoint
        self._stage = stage
        self._fingerprint = fingerprint
        self._start = start

    def write(self, rows: Tensor | slice, values: Mapping[str, Tensor]) -> None:
        """Write numbers of some rows here, (l, ...) each: a slice of consecutive ones, or their
        positions, (l,), int64, ascending.

        Raises
        ------
        StorageError
            There is no room.
        """
        if isinstance(rows, slice):
            first = rows.start
            last = rows.stop - 1
            numbers = {}
        else:
            first = int(rows[0])
            last = int(rows[-1])
            numbers = {"rows": rows.cpu() + self._start}
        span = f"{first + self._start:012d}-{last + self._start:012d}"
        path = f"{self._checkpoint.name}.rows-{self._stage}-{span}"
        header: dict[str, object] = {"kind": _KIND, "schema": SCHEMA}
        header["fingerprint"] = self._fingerprint
        files.write(self._checkpoint.with_name(path), {**numbers, **values}, header)

    def read(self, n_rows: int) -> Iterator[tuple[Tensor, dict[str, Tensor]]]:
        """Yield positions among the n rows here, (l,), and the numbers of those rows, file by file.

        Raises
        ------
        ModelFileError
            A file cannot be read.
        """
        for path in shards(self._checkpoint):
            stage, first, last = _parts(path)
            near = first < self._start + n_rows and last >= self._start
            if stage != self._stage or not near:
                continue
            tensors, header = files.read(path, _KIND, SCHEMA)
            if header.get("fingerprint") != self._fingerprint:
                continue
            numbers = tensors.pop("rows", None)
            numbers = torch.arange(first, last + 1) if numbers is None else numbers
            if any(len(values) != len(numbers) for values in tensors.values()):
                got = f"{path.name}, which has other rows than its name says"
                do = "delete it: its rows are computed again"
                raise ModelFileError(message("a whole file of rows", got, do))
            here = (numbers >= self._start) & (numbers < self._start + n_rows)
            yield (
                numbers[here] - self._start,
                {name: values[here] for name, values in tensors.items()},
            )

    def cover(self, n_rows: int) -> bool:
        """Return whether the names of files say that all n rows here are in them: files of
        consecutive rows.
        """
        spans = [
            (first, last)
            for stage, first, last in map(_parts, shards(self._checkpoint))
            if stage == self._stage
        ]
        next_row = self._start
        for first, last in sorted(spans):
            if first <= next_row:
                next_row = max(next_row, last + 1)
        return next_row >= self._start + n_rows


def remove_stages(checkpoint: Path, kept: Callable[[str], bool]) -> None:
    """Remove the files of all stages but those to keep."""
    for path in shards(checkpoint):
        if not kept(_parts(path)[0]):
            leave(path)


def _parts(path: Path) -> tuple[str, int, int]:
    """Return stage, first and last row of a file."""
    match = _NAME.search(path.name)
    return ("", -1, -1) if match is None else (match[1], int(match[2]), int(match[3]))
