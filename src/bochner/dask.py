"""Dask arrays: fits by the workers of a cluster, and lazy placement; of the extra ``dask``.

Dask says which worker has which rows; then each worker runs one task, and the tasks are processes
of `torch.distributed`, as XGBoost and LightGBM train under Dask.
"""

from __future__ import annotations

import contextlib
import copy
import ctypes
import itertools
import os
import socket
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlparse

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from bochner.data.columns import listing
from bochner.data.covariates import of_rows
from bochner.data.row_sources import DASK_TABLE, is_dask_table
from bochner.errors import InputError, message
from bochner.extras import require

if TYPE_CHECKING:
    from bochner.estimators.base import LatentVariableEstimator

_Model = TypeVar("_Model", bound="LatentVariableEstimator")
# For workers that are there to find each other: one that waits for ever takes no other task.
_MEETING = timedelta(minutes=1)
# Seconds between two looks at whether the workers of a fit are there.
_PATIENCE = 5.0
# mallopt's M_TRIM_THRESHOLD and M_MMAP_THRESHOLD, and bytes.
_MALLOC = ((-1, 2**28), (-3, 2**25))


def fit(
    estimator: _Model,
    X: Any,
    client: Any = None,
    *,
    size_factors: object = None,
    covariates: object = None,
) -> _Model:
    """Fit a model to the rows of a Dask array, each worker its own part.

    Parameters
    ----------
    estimator : LatentVariableEstimator
        Left as it is.
    X : dask.array of shape (N, M)
        Rows of known chunks; they need not fit into this process.
    client : distributed.Client, optional
        Its workers have to be processes. None: the current one.
    size_factors : array-like of shape (N,), or dict of view to one, optional
        Of all rows, as in the estimator's ``fit``; in memory, or arrays or columns of Dask, of
        which each worker computes those of its rows.
    covariates : DataFrame, Series, dict of name to values, or array, optional
        The same.

    Returns
    -------
    LatentVariableEstimator
        The fitted model, with the embedding of all rows: the answer of one process.

    Raises
    ------
    InputError
        X is no Dask array or of unknown chunks, there is no client, workers are threads of one
        process, size factors or covariates are not those of its rows, a worker refuses its rows, or
        ends.

    Examples
    --------
    >>> import bochner as bo
    >>> import dask.array as da  # doctest: +SKIP
    >>> from distributed import Client  # doctest: +SKIP
    >>> with Client("scheduler:8786"):  # doctest: +SKIP
    ...     X = da.from_zarr("rows.zarr")
    ...     model = bo.dask.fit(bo.NGMVLVM(random_state=0), X)
    ...     bo.dask.transform(model, X).to_zarr("latents.zarr")
    """
    X = _checked(X)
    client = client or _current()
    beside = {
        what: _Beside.of(given, f"{what} of {X.shape[0]:,} rows", X.shape[0])
        for what, given in (("size_factors", size_factors), ("covariates", covariates))
    }
    # chunks without a row, as of rows that were filtered, belong to nobody
    sizes = np.array(X.chunks[0])
    blocks = X.to_delayed()[:, 0][sizes > 0]
    if not len(blocks):
        do = "pass some, or look at how X was filtered"
        raise InputError(message("rows", f"none: shape {X.shape}", do))
    workers = _processes(client)[: len(blocks)]
    count = len(workers)
    ends = [i * len(blocks) // count for i in range(count + 1)]
    starts = np.cumsum([0, *sizes[sizes > 0]])
    held: list[Any] = []
    firsts = [int(starts[first]) for first in ends[:-1]]
    for worker, (first, last) in zip(workers, itertools.pairwise(ends), strict=True):
        rows = slice(int(starts[first]), int(starts[last]))
        known = require("dask", "fits Dask arrays").delayed(
            {what: given.rows(rows) for what, given in beside.items()}
        )
        held.append(client.compute([known, *blocks[first:last]], workers=[worker]))
    try:
        return _fitted(client, estimator, held, workers, firsts)
    finally:
        # frames of an error hold them, and with them rows that belong to a worker: after its end
        # the next fit of these rows would wait for it
        for future in itertools.chain(*held):
            future.release()


class _Beside(ABC):
    """What is known of all rows, of which each worker gets its part."""

    @classmethod
    def of(cls, given: object, what: str, n_rows: int) -> _Beside:
        """Wrap what was given.

        Raises
        ------
        InputError
            It has another number of rows.
        """
        if given is None or isinstance(given, str):
            return _OfNoRow(given)
        if isinstance(given, Mapping):
            return _ByName({name: cls.of(one, what, n_rows) for name, one in given.items()})
        beside = _InParts(given) if _is_lazy(given) else _InMemory(given)
        if beside.n_rows != n_rows:
            do = "give one value per row, in their order"
            raise InputError(message(what, f"{beside.n_rows:,}", do))
        return beside

    @abstractmethod
    def rows(self, rows: slice) -> Any:
        """Return what is known of consecutive rows, as Dask computes it."""


@dataclass(frozen=True)
class _OfNoRow(_Beside):
    """Nothing, or a word that the estimator refuses."""

    given: object

    def rows(self, rows: slice) -> Any:  # noqa: ARG002
        """Return it."""
        return self.given


@dataclass(frozen=True)
class _ByName(_Beside):
    """By view, or by covariate."""

    parts: Mapping[str, _Beside]

    def rows(self, rows: slice) -> Any:
        """Return them by name."""
        return {name: part.rows(rows) for name, part in self.parts.items()}


class _InMemory(_Beside):
    """Values in this process."""

    def __init__(self, given: Any) -> None:
        self._given = given if hasattr(given, "iloc") else np.asarray(given)
        self.n_rows = len(self._given) if self._given.ndim else 0

    def rows(self, rows: slice) -> Any:
        """Return a part."""
        return of_rows(self._given, np.arange(rows.start, rows.stop))


class _InParts(_Beside):
    """An array, or a column or several, of Dask."""

    def __init__(self, given: Any) -> None:
        dask = require("dask", "fits Dask arrays")
        if getattr(given, "ndim", 1) == 2 and hasattr(given, "chunks"):
            given = given.rechunk({1: -1})
        self._parts = np.ravel(given.to_delayed())
        self._ends = np.cumsum(dask.compute(*map(dask.delayed(len), self._parts)))

    @property
    def n_rows(self) -> int:
        """Rows of all parts."""
        return int(self._ends[-1])

    def rows(self, rows: slice) -> Any:
        """Return those of the parts that hold them, which are joined where they are needed."""
        dask = require("dask", "fits Dask arrays")
        first = int(np.searchsorted(self._ends, rows.start, side="right"))
        last = int(np.searchsorted(self._ends, rows.stop, side="left")) + 1
        before = int(self._ends[first - 1]) if first else 0
        cut = slice(rows.start - before, rows.stop - before)
        return dask.delayed(_joined)(list(self._parts[first:last]), cut)


def _is_lazy(given: object) -> bool:
    """Return whether Dask has yet to compute it."""
    return type(given).__module__.startswith("dask") and hasattr(given, "to_delayed")


def _joined(parts: Sequence[Any], rows: slice) -> Any:
    """Return some of the rows of parts."""
    if hasattr(parts[0], "iloc"):
        return require("pandas", "joins columns of Dask").concat(parts).iloc[rows]
    return np.concatenate(parts)[rows]


def _fitted(
    client: Any,
    estimator: _Model,
    held: Sequence[Sequence[Any]],
    workers: Sequence[str],
    starts: Sequence[int],
) -> _Model:
    """Let each worker fit the rows that it has."""
    # all of them: one that is busy, or loads its libraries, keeps no other waiting in a group
    ports = [client.submit(_free_port, workers=[worker], pure=False) for worker in workers]
    port = _answers(client, ports, workers)[0]
    place = f"tcp://{urlparse(workers[0]).hostname}:{port}"
    tasks = [
        client.submit(
            _fit_part, estimator, rows, place, rank, starts,
            workers=[worker], pure=False, retries=0, allow_other_workers=False,
        )
        for rank, (rows, worker) in enumerate(zip(held, workers, strict=True))
    ]  # fmt: skip
    try:
        model: _Model = _answers(client, tasks, workers)[0]
    finally:
        for task in tasks:
            task.release()
    return model


def _answers(client: Any, tasks: Sequence[Any], workers: Sequence[str]) -> list[Any]:
    """Return what the tasks of workers return, or raise what the first one raises: that of a worker
    which is gone would never end.
    """
    distributed = require("distributed", "fits Dask arrays")
    left = list(tasks)
    while left and not any(task.status == "error" for task in tasks):
        with contextlib.suppress(TimeoutError):
            distributed.wait(left, timeout=_PATIENCE, return_when="FIRST_COMPLETED")
        left = [task for task in tasks if not task.done()]
        there = client.nthreads()
        busy = [worker for task, worker in zip(tasks, workers, strict=True) if task in left]
        if gone := [worker for worker in busy if worker not in there]:
            got = f"the end of {listing(gone)}"
            raise InputError(message("all workers to the end of the fit", got, "fit again"))
    answers: list[Any] = client.gather(list(tasks))
    return answers


def transform(
    model: LatentVariableEstimator,
    X: Any,
    return_std: bool = False,
    size_factors: object = None,
    covariates: object = None,
) -> Any:
    """Place the rows of a Dask array, lazily: nothing is computed yet.

    Parameters
    ----------
    model : LatentVariableEstimator
        Fitted.
    X : dask.array of shape (n, M)
    return_std : bool, default=False
        Standard deviations stand beside the latents, (n, 2 D).
    size_factors : array-like of shape (n,), or dict of view to one, optional
        Of all rows, as in the estimator's ``transform``; in memory, or Dask arrays, which are
        computed now.
    covariates : DataFrame, Series, dict of name to values, or array, optional
        The same.

    Returns
    -------
    dask.array of shape (n, D) or (n, 2 D)

    Raises
    ------
    InputError
        X is no Dask array, or of other columns than at the fit; size factors or covariates are not
        those of its rows.
    """
    from bochner.estimators.methods.training_latents import Placed

    X = _checked(X)
    if X.shape[1] != model.n_features_in_:
        do = "pass the columns of the fit"
        got = f"a Dask array of shape {X.shape}"
        raise InputError(message(f"{model.n_features_in_} columns, as at the fit", got, do))
    dask = require("dask", "places rows of Dask arrays")
    known: dict[str, Any] = {"size_factors": size_factors, "covariates": covariates}
    known = dask.compute(known)[0]
    # what is wrong with them is said now, not by a worker
    values = np.broadcast_to(np.float32(0.0), X.shape)
    model._beside_all(X, values, known["covariates"], known["size_factors"])
    small = copy.copy(model)
    nothing = np.empty((0, model._n_latents), dtype=model._dtype)
    # workers do not need the latents of training
    small._embedded = Placed(nothing, nothing)
    width = model._n_latents * (2 if return_std else 1)
    dtype = np.dtype(np.float32 if X.dtype == np.float32 else np.float64)
    delayed = dask.delayed(small)
    placed = dask.delayed(_placed)
    parts: list[Any] = []
    start = 0
    for rows in X.to_delayed()[:, 0]:
        size = X.chunks[0][len(parts)]
        index = np.arange(start, start + size)
        beside: dict[str, Any] = {what: of_rows(given, index) for what, given in known.items()}
        part = placed(rows, delayed, return_std, beside, start)
        parts.append(dask.array.from_delayed(part, (size, width), dtype=dtype))
        start += size
    return dask.array.concatenate(parts)


def _placed(
    rows: Any,
    model: LatentVariableEstimator,
    return_std: bool,
    beside: dict[str, Any],
    start: int,
) -> Any:
    from bochner.processes import in_all_rows

    # sparse blocks have no length
    if not rows.shape[0]:
        width = model._n_latents * (2 if return_std else 1)
        return np.empty((0, width), np.float32 if rows.dtype == np.float32 else np.float64)
    with in_all_rows([start]):
        placed = model.transform(rows, return_std=return_std, **beside)
    return np.hstack(placed) if return_std else placed


def _checked(X: Any) -> Any:
    array = require("dask.array", "fits Dask arrays")
    if not isinstance(X, array.Array) or X.ndim != 2:
        got = f"{type(X).__name__}" + (f" of shape {X.shape}" if hasattr(X, "shape") else "")
        do = "write dask.array.from_zarr(path), or call the estimator's own fit"
        if is_dask_table(X):
            got = f"a {DASK_TABLE}"
            do = "write X.to_dask_array(lengths=True)"
        elif hasattr(X, "obs_names"):
            do = "pass its X, as anndata.experimental.read_lazy opens it"
        raise InputError(message("a Dask array (rows × columns)", got, do))
    if any(np.isnan(size) for size in X.shape):
        do = "count its rows first: X.compute_chunk_sizes()"
        raise InputError(message("known chunks", f"a Dask array of shape {X.shape}", do))
    return X.rechunk({1: -1})


def _current() -> Any:
    distributed = require("distributed", "fits Dask arrays")
    try:
        return distributed.get_client()
    except ValueError as error:
        do = "start one: distributed.Client()"
        raise InputError(message("a client of a Dask cluster", "none", do)) from error


def _processes(client: Any) -> list[str]:
    """Return the addresses of workers, one of each process."""
    workers: dict[tuple[str, int], str] = {}
    for address, process in sorted(client.run(_process, on_error="ignore").items()):
        workers.setdefault(process, address)
    if not workers:
        do = "start some, and wait for them: client.wait_for_workers(1)"
        raise InputError(message("workers of the cluster", "none", do))
    here = _process()
    if here in workers:
        do = "start them as processes: Client(processes=True)"
        raise InputError(
            message("workers in processes of their own", "threads of this one", do)
        )
    return list(workers.values())


def _process() -> tuple[str, int]:
    return socket.gethostname(), os.getpid()


def _free_port() -> int:
    # loaded before the others wait for it
    import bochner.estimators.base  # noqa: F401

    with socket.socket() as free:
        free.bind(("", 0))
        return int(free.getsockname()[1])


def _fit_part(
    estimator: LatentVariableEstimator,
    held: list[Any],
    place: str,
    rank: int,
    starts: Sequence[int],
) -> LatentVariableEstimator | None:
    """Fit the rows of one worker, after what is known of them; the first one returns the model.
    Rows of each begin at a row of all.
    """
    import torch

    from bochner.processes import distributed, in_all_rows

    beside, *blocks = held
    _keep_memory()
    group: Any = torch.distributed
    how: dict[str, Any] = {"init_method": place, "rank": rank, "world_size": len(starts)}
    group.init_process_group("gloo", timeout=_MEETING, **how)
    try:
        with distributed() as among:
            # others wait for this process: within, they learn of what it refuses
            rows = among.together(lambda: _stacked(blocks))
            with in_all_rows(starts):
                model = copy.copy(estimator).fit(rows, **beside)._of_all(among)
        return model if rank == 0 else None
    finally:
        group.destroy_process_group()


def _stacked(blocks: list[Any]) -> NDArray[Any]:
    """Return the rows of blocks."""
    if any(map(issparse, blocks)):
        do = "write X.map_blocks(lambda block: block.toarray(), dtype=float)"
        raise InputError(message("dense blocks", "sparse ones", do))
    return np.concatenate([np.asarray(block) for block in blocks])


def _keep_memory() -> None:
    """Let malloc keep what it has: Dask's nanny has it give memory back at once, which doubles the
    time of a step.
    """
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        for option, value in _MALLOC:
            libc.mallopt(option, value)
