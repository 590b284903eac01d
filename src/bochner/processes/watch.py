"""Who is late where processes meet."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# Seconds of waiting after which the log says for whom.
_LONG = 60.0
_LOG = logging.getLogger("bochner")


class Watch:
    """Names processes that others wait for, in the log of the first one that waits.

    Parameters
    ----------
    store : Store
        Of torch.distributed, the same in all processes.
    rank, size : int
    seconds : float
        Of waiting after which the log reports it.
    """

    def __init__(self, store: Any, rank: int, size: int, seconds: float = _LONG) -> None:
        self._store = store
        self._rank = rank
        self._size = size
        self._seconds = seconds
        self._count = 0
        self._expected = False
        self._store.set(self._key(rank), "0")

    @staticmethod
    def _key(rank: int) -> str:
        return f"bochner/meeting/{rank}"

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Meet the others within."""
        self._count += 1
        self._store.set(self._key(self._rank), str(self._count))
        if self._expected:
            yield
            return
        timer = threading.Timer(self._seconds, self._name_late, [self._count])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    @contextmanager
    def expected(self) -> Iterator[None]:
        """Let others take long within: none is named."""
        self._expected = True
        try:
            yield
        finally:
            self._expected = False

    def _name_late(self, meeting: int) -> None:
        ranks = range(self._size)
        late = [r for r in ranks if int(self._store.get(self._key(r))) < meeting]
        if late and self._rank == min(set(ranks) - set(late)):
            who = f"process{'es' if len(late) > 1 else ''} {', '.join(map(str, late))}"
            _LOG.warning("The other processes have waited %g s for %s.", self._seconds, who)
