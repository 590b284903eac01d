"""How processes that are there now find each other in a store that outlives them: torchrun starts
processes again with the store of those that ended, and machines do not count restarts alike.
"""

from __future__ import annotations

import json
import time
import uuid
from typing import Any

# Seconds between two looks at the store.
_PAUSE = 0.02


def common_mark(store: Any, rank: int, size: int) -> str:
    """Return a text that all processes which are there now have in common, and no others had.

    Every process says that it is there by a mark of its own. The first one writes down whose marks
    it has read, until each of the others has found its own among them.

    Parameters
    ----------
    store : Store
        Of torch.distributed, the same in all processes.
    rank, size : int
    """
    own = uuid.uuid4().hex
    store.set(_here(rank), own)
    if rank == 0:
        _gather(store, own, size)
        return own
    while True:
        marks = json.loads(store.get("bochner/marks"))
        # else they are of processes that ended
        if marks[rank : rank + 1] == [own]:
            break
        time.sleep(_PAUSE)
    store.set(_seen(marks[0], rank), own)
    store.wait([f"bochner/met/{marks[0]}"])
    return str(marks[0])


def _gather(store: Any, own: str, size: int) -> None:
    """Write down who is there, until all have seen it."""
    while True:
        marks = [own, *(store.get(_here(rank)).decode() for rank in range(1, size))]
        store.set("bochner/marks", json.dumps(marks))
        if all(_has_seen(store, own, rank, marks[rank]) for rank in range(1, size)):
            break
        time.sleep(_PAUSE)
    store.set(f"bochner/met/{own}", "")


def _has_seen(store: Any, first: str, rank: int, mark: str) -> bool:
    key = _seen(first, rank)
    return bool(store.check([key])) and store.get(key).decode() == mark


def _here(rank: int) -> str:
    return f"bochner/here/{rank}"


def _seen(first: str, rank: int) -> str:
    return f"bochner/seen/{first}/{rank}"
