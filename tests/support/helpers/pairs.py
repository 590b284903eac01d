"""Processes that are threads of one: what they divide and put together, without a group."""

import threading

from bochner.processes import Alone


class Threads(Alone):
    """One of some threads, which sum what they have."""

    def __init__(self, rank, size, meeting, values):
        self.rank = rank
        self.size = size
        self._meeting = meeting
        self._values = values

    def sum(self, values):
        """Add those of all threads."""
        self._values[self.rank] = values
        self._meeting.wait()
        total = sum(self._values)
        self._meeting.wait()
        return total


def together(work, size=2):
    """Let threads work, each given its `Threads`; return what they found."""
    values, found, meeting = [None] * size, [None] * size, threading.Barrier(size)

    def of(rank):
        try:
            found[rank] = work(Threads(rank, size, meeting, values))
        except BaseException:
            meeting.abort()
            raise

    threads = [threading.Thread(target=of, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found
