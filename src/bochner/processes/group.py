"""Several processes of one fit, each with rows of its own: who has which, sums over all, and how
they end together.

The processes are those of torch.distributed. Numbers travel in float64, so that sums over rows lose
nothing, and every process gets the same bits: what they decide from sums, they decide alike.
"""

from __future__ import annotations

import contextvars
import functools
import itertools
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from bochner.errors import InputError, message
from bochner.processes.meeting import common_mark
from bochner.processes.watch import Watch

T = TypeVar("T")
# Seconds that a process waits for the others.
_PATIENCE = timedelta(hours=12)
_FAULT = "bochner/fault"


class Processes(ABC):
    """Who works on a fit, and which rows this process has.

    Attributes
    ----------
    rank, size : int
        Number of this process, and of all.
    start : int
        Global number of this process's first row.
    """

    rank: int
    size: int
    start: int

    @abstractmethod
    def sharing(self, n_rows: int) -> Processes:
        """Return the same processes, when this one has so many rows, which follow those of the
        processes before it.
        """

    @abstractmethod
    def sum(self, values: Tensor) -> Tensor:
        """Add values of all processes."""

    @abstractmethod
    def largest(self, values: Tensor) -> Tensor:
        """Return the elementwise maximum over all processes."""

    @abstractmethod
    def total(self, count: int) -> int:
        """Add a count of all processes."""

    def part(self, count: int, rank: int | None = None) -> slice:
        """Return a process's part of things that all have: consecutive ones, as many as others
        have but for one; this one's where no rank is given.
        """
        rank = self.rank if rank is None else rank
        return slice(count * rank // self.size, count * (rank + 1) // self.size)

    @abstractmethod
    def local_rows(self, n_rows: int) -> int:
        """Return how many of all rows are here."""

    @abstractmethod
    def local(self, index: Tensor, n_rows: int) -> Tensor:
        """Return positions among the n rows here of those of the given global rows that are here,
        both (l,), int64, ascending.
        """

    @abstractmethod
    def joined(self, values: Tensor, index: Tensor, n_rows: int) -> Tensor:
        """Return the values of global rows, (l, ...), of which each process has those of `own`."""

    @abstractmethod
    def gathered(self, value: T) -> list[T]:
        """Return a small object of every process, by rank."""

    @abstractmethod
    def here(self, index: Tensor, n_rows: int) -> Tensor:
        """Return which of the given global rows are among the n here, (l,), bool."""

    @abstractmethod
    def first(self, value: T) -> T:
        """Return what the first process has."""

    def of_first(self, work: Callable[[], T]) -> T:
        """Let the first process do what takes long and what all would do alike; return what it
        found. Where cores are shared, processes that wait leave theirs to it.
        """
        return work()

    def sums(self, values: Sequence[Tensor]) -> list[Tensor]:
        """Add several tensors of all processes in one message."""
        if self.size == 1:
            return list(values)
        wire = self.sum(torch.cat([part.detach().double().reshape(-1) for part in values]))
        parts = torch.split(wire, [part.numel() for part in values])
        return [
            part.reshape(one.shape).to(one) for part, one in zip(parts, values, strict=True)
        ]

    def agreed(self, cause: str | None) -> str | None:
        """Return the cause of the first process that has one."""
        return next((text for text in self.gathered(cause) if text is not None), None)

    def united(self, values: Tensor, count: int) -> Tensor:
        """Return values of things that all have, (count, ...), of those of this one's `part`."""
        if self.size == 1:
            return values
        out = values.new_zeros(count, *values.shape[1:])
        out[self.part(count)] = values
        return self.sum(out)

    def together(self, work: Callable[[], T]) -> T:
        """Do what may be refused; refuse it everywhere if one process does.

        Raises
        ------
        InputError
            Of the first process that refuses, which it names.
        """
        error: Exception | None = None
        result: Any = None
        try:
            result = work()
        except (ValueError, TypeError) as caught:
            error = caught
        refused = None if error is None else (str(error), getattr(error, "row", None))
        for rank, one in enumerate(self.gathered(refused)):
            if one is not None:
                text, row = one
                raise InputError(f"{text} (process {rank})", row=row, process=rank) from error
        return cast(T, result)


class Alone(Processes):
    """One process, which has all rows."""

    rank = 0
    size = 1
    start = 0

    def sharing(self, n_rows: int) -> Alone:  # noqa: ARG002 - all are here
        """Return the process."""
        return self

    def sum(self, values: Tensor) -> Tensor:
        """Return the values."""
        return values

    def largest(self, values: Tensor) -> Tensor:
        """Return the values."""
        return values

    def total(self, count: int) -> int:
        """Return the count."""
        return count

    def local_rows(self, n_rows: int) -> int:
        """Return all of them."""
        return n_rows

    def local(self, index: Tensor, n_rows: int) -> Tensor:  # noqa: ARG002 - all are here
        """Return the rows."""
        return index

    def here(self, index: Tensor, n_rows: int) -> Tensor:  # noqa: ARG002
        """Mark all of them."""
        return torch.ones_like(index, dtype=torch.bool)

    def joined(self, values: Tensor, index: Tensor, n_rows: int) -> Tensor:  # noqa: ARG002
        """Return the values."""
        return values

    def gathered(self, value: T) -> list[T]:
        """Return the object."""
        return [value]

    def first(self, value: T) -> T:
        """Return the object."""
        return value

    def together(self, work: Callable[[], T]) -> T:
        """Do it."""
        return work()


@dataclass
class Link:
    """A process group while it is joined: others wait for it until nobody holds it any more, and
    frames of an error that the caller keeps hold this object.
    """

    group: object


class Joined(Processes):
    """A group of torch.distributed.

    Parameters
    ----------
    link : Link
        To a group of gloo.
    watch : Watch
    start, n_rows : int
        Of the rows here.
    """

    def __init__(self, link: Link, watch: Watch, start: int = 0, n_rows: int = 0) -> None:
        self._link = link
        self._watch = watch
        self._n_rows = n_rows
        self._dist: Any = torch.distributed
        self.rank = self._dist.get_rank(link.group)
        self.size = self._dist.get_world_size(link.group)
        self.start = start

    def sharing(self, n_rows: int) -> Joined:
        """Return the same processes, which hold so many consecutive rows each, by rank."""
        counts = self.gathered(n_rows)
        return Joined(self._link, self._watch, sum(counts[: self.rank]), n_rows)

    def local_rows(self, n_rows: int) -> int:  # noqa: ARG002 - counted before
        """Return how many rows are here."""
        return self._n_rows

    def sum(self, values: Tensor) -> Tensor:
        """Add in float64."""
        return self._reduced(values, self._dist.ReduceOp.SUM)

    def largest(self, values: Tensor) -> Tensor:
        """Return the maximum."""
        return self._reduced(values, self._dist.ReduceOp.MAX)

    def _reduced(self, values: Tensor, operation: object) -> Tensor:
        wire = values.detach().double().cpu().contiguous().clone()
        with self._watch.waiting():
            self._dist.all_reduce(wire, operation, group=self._link.group)
        return wire.to(values)

    def of_first(self, work: Callable[[], T]) -> T:
        """Wait for the first process; refuse what it refuses."""
        with self._watch.expected():
            done = self.together(lambda: work() if self.rank == 0 else None)
            # that of the first one is what it returned
            return cast(T, self.first(done))

    def total(self, count: int) -> int:
        """Add the counts."""
        return int(self.sum(torch.tensor(float(count), dtype=torch.float64)))

    def here(self, index: Tensor, n_rows: int) -> Tensor:
        """Mark rows from the first one here on."""
        return (index >= self.start) & (index < self.start + n_rows)

    def local(self, index: Tensor, n_rows: int) -> Tensor:
        """Return positions of the rows that are here."""
        return index[self.here(index, n_rows)] - self.start

    def joined(self, values: Tensor, index: Tensor, n_rows: int) -> Tensor:
        """Add rows among zeros: exact."""
        out = values.new_zeros(len(index), *values.shape[1:])
        out[self.here(index, n_rows)] = values
        return self.sum(out)

    def gathered(self, value: T) -> list[T]:
        """Gather objects."""
        out: list[Any] = [None] * self.size
        with self._watch.waiting():
            self._dist.all_gather_object(out, value, group=self._link.group)
        return out

    def first(self, value: T) -> T:
        """Send it to all others."""
        sent: list[Any] = [value if self.rank == 0 else None]
        source = self._dist.get_global_rank(self._link.group, 0)
        with self._watch.waiting():
            self._dist.broadcast_object_list(sent, source, group=self._link.group)
        return cast(T, sent[0])


ALONE = Alone()
_CURRENT: contextvars.ContextVar[Processes] = contextvars.ContextVar(
    "processes", default=ALONE
)


def current() -> Processes:
    """Return the processes that work together here: this one alone outside `distributed`."""
    return _CURRENT.get()


@contextmanager
def distributed() -> Iterator[Processes]:
    """Let the processes of this job fit one model to the rows of all.

    Within the block, ``fit`` takes the rows of this process, which all processes call with rows of
    their own; every one gets the same model, and ``embedding_`` of its own rows. Row numbers go
    through the processes by rank. ``save`` is called by all and writes in the first one. The
    processes are those of `torch.distributed`, as torchrun, SLURM, Spark's TorchDistributor or
    Ray's TorchTrainer start them; where there is no group yet, one is made from the environment.

    Yields
    ------
    Processes
        ``rank`` and ``size``.

    Raises
    ------
    InputError
        There is no group and no environment to make one from; one process failed, which all
        others say.

    Examples
    --------
    >>> import bochner as bo
    >>> with bo.distributed() as processes:  # doctest: +SKIP
    ...     rows = bo.open_rows("rows.npy")
    ...     model = bo.NGMVLVM(random_state=0).fit(bo.share(rows))
    ...     model.save("model.bochner")
    """
    dist: Any = torch.distributed
    made = not dist.is_initialized()
    if made:
        _begin(dist)
    link = Link(dist.new_group(backend="gloo", timeout=_PATIENCE))
    store = _store_of(dist, link)
    rank, size = dist.get_rank(link.group), dist.get_world_size(link.group)
    # what only several need, such as landmarks, is not asked of one
    processes = Joined(link, Watch(store, rank, size)) if size > 1 else ALONE
    token = _CURRENT.set(processes)
    try:
        yield processes
    except BaseException as error:
        # the others wait for this process: they are told, and their waiting ends with the group
        if (fault := _parted(store, processes, error)) is error:
            raise
        raise fault from error
    finally:
        _CURRENT.reset(token)
        dist.destroy_process_group(link.group)
        link.group = None
        if made:
            dist.destroy_process_group()


_JOB = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT")


def _begin(dist: Any) -> None:
    """Make a group of the processes that the environment names."""
    try:
        store, rank, size, mark, blocks = _met(tuple(map(os.environ.get, _JOB)))
        # of a group that ended a store holds addresses where nobody is any more
        store = dist.PrefixStore(f"bochner/{mark}/{next(blocks)}", store)
        dist.init_process_group("gloo", None, _PATIENCE, size, rank, store)
    except (ValueError, RuntimeError) as error:
        do = "start it with torchrun, or call torch.distributed.init_process_group first"
        raise InputError(message("a process group to join", "none", do)) from error


@functools.cache
def _met(job: tuple[str | None, ...]) -> tuple[Any, int, int, str, Iterator[int]]:  # noqa: ARG001 - what it is kept for
    """Return the store of a job, opened once, this process's rank, their count, a mark of the
    processes that are there now, and numbers.
    """
    from torch.distributed.rendezvous import rendezvous

    store, rank, size = next(rendezvous("env://", timeout=_PATIENCE))
    return store, rank, size, common_mark(store, rank, size), itertools.count()


def _store_of(dist: Any, link: Link) -> Any:
    """Return a store that is empty when a block begins."""
    store = dist.distributed_c10d._get_default_store()
    first = dist.get_global_rank(link.group, 0)
    number = [store.add("bochner/blocks", 1) if dist.get_rank() == first else 0]
    dist.broadcast_object_list(number, first, group=link.group)
    return dist.PrefixStore(f"bochner/block/{number[0]}", store)


def _parted(store: Any, processes: Processes, error: BaseException) -> BaseException:
    """Return the error to raise: of a process that only lost the others theirs."""
    lost = isinstance(error, RuntimeError) and "gloo" in str(error).lower()
    if not lost:
        text = f"process {processes.rank}: {type(error).__name__}: {error}"
        store.compare_set(_FAULT, "", text)
        return error
    try:
        store.wait([_FAULT], timedelta(seconds=5))
        fault = store.get(_FAULT).decode()
    except RuntimeError:
        fault = "it ended without a word"
    if fault.split(": ")[1:2] == [KeyboardInterrupt.__name__]:
        return KeyboardInterrupt(fault)
    got, do = f"the end of one ({fault})", "see its own message"
    return InputError(message("all processes to the end of the fit", got, do))


def local_part(n_rows: int) -> slice:
    """Return this process's part of rows: consecutive ones, as many as others have but for one."""
    return current().part(n_rows)


@contextmanager
def in_all_rows(starts: Sequence[int]) -> Iterator[None]:
    """Say in errors about a row where the rows begin of the process, or block, that refuses it.

    Parameters
    ----------
    starts : sequence of int
        The first row of each among all: only who has divided them knows.

    Raises
    ------
    InputError
    """
    try:
        yield
    except InputError as error:
        start = starts[error.process or 0]
        if error.row is None or not start:
            raise
        where = f"row 0 is row {start:,} of the data)"
        alone = error.process is None
        said = f"{error} (its {where}" if alone else f"{str(error)[:-1]}, whose {where}"
        raise InputError(said) from error
