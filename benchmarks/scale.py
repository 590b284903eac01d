"""Many rows, ``python benchmarks/scale.py --threads 1``: memory and processor seconds of fits of
rows on disk and in memory, and rows placed per processor second.

Fifty columns of sines of two latents with noise; NG-MVLVM from PCA, 60 steps on 2,000 landmarks,
then passes over all rows, and their embedding. Every fit runs in a process of its own; ``peak_mb``
is what it takes beyond what was there before, which are the rows where they are in memory. Of
several processes, which share rows on disk, seconds are added and the largest peak is given.
``row_bound`` is the median of the rows' bounds at their places, scaled units; ``elbo`` the bound.
``counts`` are negative binomial, 500 columns, a tenth of them not 0, in an h5ad file and in memory.
Peers get the same rows in processes of their own: incremental principal components and mini-batch
NMF (rows less their smallest entries) from disk, two components, block by block, one pass and
another for the latents; UMAP, which holds all rows, to 100,000 of them.
Last come ``100,000 x 2,000`` counts, ten million rows, and ``1,000,000 x 5,000``: 20 GB. After the
table come slopes: how fast seconds grow with rows, 1 where in proportion.

``--part placement`` places new rows alone, complete and with a tenth of the entries missing.
``--part wire`` measures what one, two and four processes send in a step over all rows, into a table
of its own, beside what docs/scale.md computes: ``sent_mb`` by a process, counted where tensors and
objects are given to gloo, and ``model_mb``, 8 (K^2 + K M + 2) bytes and 8 K D of the spectra;
``step_ms`` of a clock, ``sums_ms`` of these in sums and messages, waiting for others included, and
``least_ms``, the median of 50 bare sums of so many numbers between processes that do nothing else.
``cpu_s`` and ``wall_s`` are of the whole fit, places included.
"""

from __future__ import annotations

import json
import os
import pickle
import socket
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

import anndata
import numpy as np
import pyarrow as pa
import scipy.sparse as sp
import torch
from harness import Job, Store, Value, arguments, clocked, table, timed
from numpy.typing import NDArray
from pyarrow import parquet
from sklearn.decomposition import IncrementalPCA, MiniBatchNMF

import bochner as bo
from bochner.data.columns import dense_rows
from bochner.fitting import landmarks
from bochner.latent_inference.infer import Placer, place
from bochner.latent_inference.row_bound import target_for
from bochner.memory import chunks
from bochner.processes import ALONE, Joined, Processes

T = TypeVar("T")
Array = NDArray[np.floating[Any]]

SCORES = {
    "cpu_s": ".0f",
    "rows_per_s": ".0f",
    "peak_mb": ".0f",
    "row_bound": ".3f",
    "elbo": ".0f",
}
WIRE = {
    "sent_mb": ".3f",
    "model_mb": ".3f",
    "step_ms": ".0f",
    "sums_ms": ".1f",
    "least_ms": ".1f",
    "cpu_s": ".1f",
    "wall_s": ".1f",
    "elbo": ".1f",
}
_COLUMNS, _COUNTED, _STEPS = 50, 500, 60
_BLOCK = 5_000  # rows made at a time


def surface(
    n_rows: int, n_columns: int, seed: int
) -> Iterator[tuple[slice, NDArray[np.float32]]]:
    """Yield rows about a surface, block by block the same whatever their number."""
    rng = np.random.default_rng(100 + seed)
    W, V = rng.normal(size=(2, n_columns)), rng.normal(size=(2, n_columns))
    b = rng.uniform(0, 6, size=n_columns)
    for start in range(0, n_rows, _BLOCK):
        rng = np.random.default_rng([100 + seed, start])
        Z = rng.normal(size=(_BLOCK, 2))
        noise = 0.2 * rng.normal(size=(_BLOCK, n_columns))
        block = np.sin(1.2 * Z @ W + b) + 0.5 * np.cos(Z @ V + b) + noise
        stop = min(start + _BLOCK, n_rows)
        yield slice(start, stop), block[: stop - start].astype(np.float32)


def write_rows(path: Path, n_rows: int, n_columns: int, seed: int) -> None:
    """Write rows about a surface to an npy file, which may be larger than memory."""
    shape = (n_rows, n_columns)
    file = np.lib.format.open_memmap(path, "w+", np.dtype(np.float32), shape)
    for rows, block in surface(n_rows, n_columns, seed):
        file[rows] = block
    file.flush()


def write_parquet(folder: Path, n_rows: int, n_columns: int) -> None:
    """Write rows about a surface as a folder of parquet files, 100,000 rows each."""
    folder.mkdir()
    names = [f"x{j}" for j in range(n_columns)]
    writer: Any = None
    for rows, block in surface(n_rows, n_columns, 0):
        if rows.start % 100_000 == 0:
            if writer is not None:
                writer.close()
            schema = pa.schema([(name, pa.float32()) for name in names])
            writer = parquet.ParquetWriter(folder / f"part{rows.start:09d}.parquet", schema)
        writer.write_table(pa.table(list(np.ascontiguousarray(block.T)), names=names))
    writer.close()


def counts_of(n_rows: int, n_columns: int, seed: int) -> sp.csr_array:
    """Return sparse counts about a surface."""
    rng = np.random.default_rng(100 + seed)
    W, b = rng.normal(size=(2, n_columns)), rng.normal(size=n_columns) - 2.5
    blocks = []
    for start in range(0, n_rows, _BLOCK):
        rng = np.random.default_rng([100 + seed, start])
        rates = np.exp(np.sin(rng.normal(size=(_BLOCK, 2)) @ W) + b)
        counts = rng.poisson(rng.gamma(2.0, rates / 2.0)).astype(np.float32)
        blocks.append(sp.csr_array(counts[: n_rows - start]))
    return sp.csr_array(sp.vstack(blocks))


def opened(path: Path, how: str) -> Any:
    """Open rows of a file, or read them."""
    if path.suffix == ".npy":
        return np.load(path, mmap_mode=None if how == "in memory" else "r")
    source = bo.open_rows(path)
    return source.whole() if how == "in memory" else source


def fit_here(path: Path, how: str, seed: int) -> None:
    """Fit rows of a file in this process, and print what it took."""
    X = opened(path, how)
    settings: dict[str, Any] = {"init": "pca", "random_state": seed}
    if path.suffix == ".h5ad":
        settings["likelihood"] = "negative_binomial"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # libraries are loaded
        bo.NGMVLVM(max_iter=2, n_frequencies=8, **settings).fit(dense_rows(X, slice(0, 300)))
        before = _memory("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here
        with bo.distributed() if "RANK" in os.environ else nullcontext():
            model, seconds = timed(
                lambda: embedded(bo.NGMVLVM(max_iter=_STEPS, **settings), X)
            )
    peak = (_memory("VmHWM") - before) / 1024
    print(json.dumps({"cpu_s": seconds, "peak_mb": peak, "elbo": model.elbo_}))


def embedded(model: bo.NGMVLVM, X: Any) -> bo.NGMVLVM:
    """Fit this process's rows, and place them."""
    fitted = model.fit(bo.share(X))
    assert fitted.embedding_.shape[1] == 2
    return fitted


class Wire:
    """Counts what a process sends, and how long it takes, in the steps over all rows."""

    def __init__(self) -> None:
        self.sent = 0
        self.sums_s = 0.0
        self.steps_s = 0.0
        self.model = 0
        self._counts = False

    def watch(self, stack: ExitStack) -> None:
        """Count until the stack is left."""
        reduced, gathered = Joined._reduced, Joined.gathered
        jointly = landmarks.train_jointly

        def of_sum(among: Joined, values: torch.Tensor, operation: object) -> torch.Tensor:
            return self._timed(8 * values.numel(), lambda: reduced(among, values, operation))

        def of_object(among: Joined, value: Any) -> list[Any]:
            return self._timed(len(pickle.dumps(value)), lambda: gathered(among, value))

        def steps(model: Any, data: Any, *given: Any) -> None:
            # as they draw them: with half of the features
            with torch.no_grad():
                (noise,) = given[0].early.spectra(model, "joint", 0).spectra
                f = model.views[0].frequencies(noise)
            ((block,),) = data
            k, m = f.n_features, block.Y.shape[1]
            self.model = 8 * (k * k + k * m + 2) + 8 * k * model.n_components
            self._counts = True
            _, self.steps_s = clocked(lambda: jointly(model, data, *given))
            self._counts = False

        for what, name, new in (
            (Joined, "_reduced", of_sum),
            (Joined, "gathered", of_object),
            (landmarks, "train_jointly", steps),
        ):
            stack.enter_context(mock.patch.object(what, name, new))

    def _timed(self, size: int, work: Callable[[], T]) -> T:
        if not self._counts:
            return work()
        result, seconds = clocked(work)
        self.sent += size
        self.sums_s += seconds
        return result

    def scores(self, processes: Processes) -> dict[str, float]:
        """Return figures of one step, and of bare sums of as many numbers."""
        values = torch.zeros(self.model // 8, dtype=torch.float64)
        times = [clocked(lambda: processes.sum(values))[1] for _ in range(50)]
        alone = processes.size == 1
        return {
            "sent_mb": self.sent / landmarks.JOINT_STEPS / 1e6,
            "model_mb": 0.0 if alone else self.model / 1e6,
            "step_ms": self.steps_s / landmarks.JOINT_STEPS * 1e3,
            "sums_ms": self.sums_s / landmarks.JOINT_STEPS * 1e3,
            "least_ms": 0.0 if alone else float(np.median(times)) * 1e3,
        }


def wire_here(path: Path, seed: int) -> None:
    """Fit this process's rows, and print what it sent."""
    X = opened(path, "on disk")
    settings: dict[str, Any] = {"init": "pca", "random_state": seed}
    wire = Wire()
    with warnings.catch_warnings(), ExitStack() as stack:
        warnings.simplefilter("ignore")
        bo.NGMVLVM(max_iter=2, n_frequencies=8, **settings).fit(dense_rows(X, slice(0, 300)))
        wire.watch(stack)
        processes = stack.enter_context(bo.distributed()) if "RANK" in os.environ else ALONE
        given = bo.NGMVLVM(max_iter=_STEPS, **settings), X
        (model, seconds), wall = clocked(lambda: timed(lambda: embedded(*given)))
        scores = wire.scores(processes)
    print(json.dumps({"cpu_s": seconds, "wall_s": wall, **scores, "elbo": model.elbo_}))


def measure_wire(n_rows: int, how: str, seed: int) -> dict[str, Value]:
    """Fit in processes of their own: processor seconds are added, others those of the slowest."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.npy"
        write_rows(path, n_rows, _COLUMNS, seed)
        results = launched(path, "--wire", how, seed)
    slowest = max(results, key=lambda result: result["wall_s"])
    return {**slowest, "cpu_s": sum(result["cpu_s"] for result in results)}


def wires(seeds: range, n_rows: int) -> Iterator[Job]:
    """Yield fits by one, two and four processes, in turns."""
    for seed in seeds:
        for how in ("on disk", "2 processes", "4 processes"):
            yield Job(f"fit {n_rows:,}", how, seed, partial(measure_wire, n_rows, how, seed))


def _memory(name: str) -> int:
    """Return a figure of this process's memory, KiB (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def measure_fit(n_rows: int, n_columns: int, how: str, seed: int) -> dict[str, Value]:
    """Fit in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.npy"
        write_rows(path, n_rows, n_columns, seed)
        return measured(path, n_rows, how, seed)


def peer_here(path: Path, method: str, seed: int) -> None:
    """Fit and embed rows of a file by a peer in this process, and print what it took."""
    X = np.load(path, mmap_mode="r")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # libraries are loaded and compiled: UMAP searches neighbours of so many rows otherwise
        PEERS[method](X[:5000], seed)
        before = _memory("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")
        _, seconds = timed(lambda: PEERS[method](X, seed))
    peak = (_memory("VmHWM") - before) / 1024
    print(json.dumps({"cpu_s": seconds, "peak_mb": peak}))


def _cut(X: NDArray[np.float32]) -> list[NDArray[np.float32]]:
    return [X[start : start + _BLOCK] for start in range(0, len(X), _BLOCK)]


def incremental_pca(X: NDArray[np.float32], seed: int) -> Array:  # noqa: ARG001 - it draws nothing
    """Fit principal components block by block, and place the rows."""
    model = IncrementalPCA(2)
    for block in _cut(X):
        model.partial_fit(block)
    return np.concatenate([model.transform(block) for block in _cut(X)])


def minibatch_nmf(X: NDArray[np.float32], seed: int) -> Array:
    """Factorise rows less their columns' smallest entries block by block, and place them."""
    low = np.min([block.min(axis=0) for block in _cut(X)], axis=0)
    model = MiniBatchNMF(2, random_state=seed)
    for block in _cut(X):
        model.partial_fit(block - low)
    return np.concatenate([model.transform(block - low) for block in _cut(X)])


def umap(X: NDArray[np.float32], seed: int) -> Array:
    """Embed rows in memory."""
    from umap import UMAP

    return np.asarray(UMAP(random_state=seed, n_jobs=1).fit_transform(np.asarray(X)))


PEERS = {"incremental PCA": incremental_pca, "mini-batch NMF": minibatch_nmf, "UMAP": umap}


def measure_peer(n_rows: int, method: str, seed: int) -> dict[str, Value]:
    """Fit a peer in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.npy"
        write_rows(path, n_rows, _COLUMNS, seed)
        words = [sys.executable, __file__, "--peer", str(path), method, str(seed)]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
    result: dict[str, Value] = json.loads(done.stdout.splitlines()[-1])
    return {**result, "rows_per_s": n_rows / float(result["cpu_s"])}


def peers(seed: int, sizes: tuple[int, ...]) -> Iterator[Job]:
    """Yield the peers."""
    for n_rows in sizes:
        for method in PEERS:
            if method != "UMAP" or n_rows <= 100_000:
                work = partial(measure_peer, n_rows, method, seed)
                yield Job(f"fit {n_rows:,}", method, seed, work)


def measure_counts(n_rows: int, n_columns: int, how: str, seed: int) -> dict[str, Value]:
    """Fit counts in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.h5ad"
        anndata.AnnData(counts_of(n_rows, n_columns, seed)).write_h5ad(path)
        return measured(path, n_rows, how, seed)


def measured(path: Path, n_rows: int, how: str, seed: int) -> dict[str, Value]:
    """Fit rows of a file in processes of their own."""
    results = launched(path, "--fit", how, seed)
    seconds = sum(result["cpu_s"] for result in results)
    peak = max(result["peak_mb"] for result in results)
    rate = n_rows / seconds
    return {"cpu_s": seconds, "rows_per_s": rate, "peak_mb": peak, "elbo": results[0]["elbo"]}


def launched(path: Path, what: str, how: str, seed: int) -> list[dict[str, float]]:
    """Return what processes print that fit rows of a file, one or as many as ``how`` says."""
    words = [sys.executable, __file__, what, str(path), how, str(seed)]
    first, *rest = how.split()
    many = rest == ["processes"]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": first}
    running = [
        subprocess.Popen(
            words,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **(group if many else {}), **({"RANK": rank} if many else {})},
        )
        for rank in map(str, range(int(first) if many else 1))
    ]
    said = [process.communicate()[0] for process in running]
    if any(process.returncode for process in running):
        raise RuntimeError(f"{path.name}, {how}: a fit failed")
    return [json.loads(text.splitlines()[-1]) for text in said]


def measure_placement(n_rows: int, how: str, missing: float, seed: int) -> dict[str, Value]:
    """Place new rows by cells of the latent plane, and by climbs from candidates."""
    X = np.concatenate([block for _, block in surface(2000 + n_rows, _COLUMNS, seed)])
    X[2000:][np.random.default_rng([seed, 1]).random((n_rows, _COLUMNS)) < missing] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        settings: dict[str, Any] = {"init": "pca", "random_state": seed, "landmarks": None}
        model = bo.NGMVLVM(max_iter=_STEPS, **settings).fit(X[:2000])
    rows = model._split(X[2000:])
    views, candidates = model._fit.posterior, model._candidates
    if how == "cells":
        placed, seconds = timed(lambda: Placer(views, candidates).place(rows))
    else:
        placed, seconds = timed(lambda: place(views, candidates, rows))
    value = [
        target_for(views, [y[part] for y in rows], 2, missing == 0.0).evaluate(
            placed.mean[part], torch.arange(len(rows[0][part]))
        )[0]
        for part in chunks(n_rows, 1000)
    ]
    return {
        "cpu_s": seconds,
        "rows_per_s": n_rows / seconds,
        "row_bound": float(torch.cat(value).median()),
    }


def placements(seeds: range, n_new: int) -> Iterator[Job]:
    """Yield placements of new rows."""
    for seed in seeds:
        for how, times in (("cells", 1), ("climbs", 1), ("cells", 10)):
            placed = n_new * times
            work = partial(measure_placement, placed, how, 0.0, seed)
            yield Job(f"place {placed:,}", how, seed, work)
        for how in ("cells", "climbs"):
            work = partial(measure_placement, n_new, how, 0.1, seed)
            yield Job(f"place {n_new:,}, 10 % missing", how, seed, work)


def slopes(rows: list[dict[str, str]]) -> Iterator[str]:
    """Yield how fast the seconds of fits of rows on disk grow with rows."""
    seconds: dict[int, list[float]] = {}
    for row in rows:
        what, _, size = row["data"].partition(" ")
        if what == "fit" and row["method"] == "on disk" and "x" not in size:
            seconds.setdefault(int(size.replace(",", "")), []).append(float(row["cpu_s"]))
    for few, many in pairwise(sorted(seconds)):
        ratio = float(np.mean(seconds[many])) / float(np.mean(seconds[few]))
        yield f"{few:,} to {many:,} rows: {np.log(ratio) / np.log(many / few):.2f}"


def fits(what: str, how: str, seed: int, *shape: int) -> Job:
    """Return a fit to measure; ``shape`` is rows and columns."""
    measure = measure_counts if what == "counts" else measure_fit
    n_rows, n_columns = shape
    wide = "" if n_columns in (_COLUMNS, _COUNTED) else f" x {n_columns:,}"
    work = partial(measure, n_rows, n_columns, how, seed)
    return Job(f"{what} {n_rows:,}{wide}", how, seed, work)


def jobs(
    seeds: range, sizes: tuple[int, ...], n_new: int, shared: int, counted: int
) -> Iterator[Job]:
    """Yield every row to measure."""
    yield from placements(seeds, n_new)
    for seed in seeds:
        for how in ("on disk", "in memory"):
            yield fits("counts", how, seed, counted, _COUNTED)
        for n_rows in sizes:
            yield fits("fit", "on disk", seed, n_rows, _COLUMNS)
            if n_rows <= shared:
                yield fits("fit", "in memory", seed, n_rows, _COLUMNS)
            for how in (
                ("2 processes", "4 processes") if n_rows in (shared, 10 * shared) else ()
            ):
                yield fits("fit", how, seed, n_rows, _COLUMNS)


def large(seed: int) -> Iterator[Job]:
    """Yield fits of hours: many counts, rows of 20 GB, and ten million rows."""
    yield fits("counts", "on disk", seed, 100_000, 2_000)
    yield fits("counts", "on disk", seed, 1_000_000, 100)
    yield fits("fit", "on disk", seed, 10_000_000, _COLUMNS)
    yield fits("fit", "on disk", seed, 1_000_000, 5_000)


def main() -> None:
    if sys.argv[1:2] == ["--fit"]:
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
        fit_here(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
        return
    if sys.argv[1:2] == ["--wire"]:
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
        wire_here(Path(sys.argv[2]), int(sys.argv[4]))
        return
    if sys.argv[1:2] == ["--peer"]:
        peer_here(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
        return
    if sys.argv[1:2] == ["--parquet"]:
        write_parquet(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
        return
    if sys.argv[1:3] == ["--part", "wire"]:
        del sys.argv[1:3]
        options = arguments(__doc__, seeds=3)
        store = Store("scale_wire", [*WIRE], options.quick)
        store.collect(wires(options.seeds, 7000 if options.quick else 100_000))
        print(table(store.rows(), WIRE))
        return
    part = sys.argv[1:3] == ["--part", "placement"]
    if part:
        del sys.argv[1:3]
    options = arguments(__doc__, seeds=1)
    store = Store("scale", [*SCORES], options.quick)
    if part:
        store.collect(placements(options.seeds, 300 if options.quick else 10_000))
        print(table(store.rows(), SCORES))
        return
    sizes = (7000,) if options.quick else (10_000, 100_000, 300_000, 1_000_000)
    small = (300, 7000, 6500) if options.quick else (10_000, 100_000, 10_000)
    store.collect(jobs(options.seeds, sizes, *small))
    for seed in options.seeds:
        store.collect(peers(seed, tuple(n for n in sizes if n != 300_000)))
    if not options.quick:
        store.collect(large(options.seeds[0]))
    print(table(store.rows(), SCORES))
    print(*slopes(store.rows()), sep="\n")


if __name__ == "__main__":
    main()
