"""How fast is one training step, and what memory does it need: ``python benchmarks/step.py``.

One view, Q = 2, H = 50 (K = 200), D = 2: draws, bound, gradient. The least work is 4 N K (K + M)
operations: both products, forward and backward. "bare" is the time of those four products,
feature-major, into memory that is already there, the faster of all rows at once and of chunks;
"sincos" that of the four arrays (P, N) of sines and cosines that a value and its gradient need.
Memory is what the peak of a fresh process grows by during a step, which takes the rows in chunks
and computes their features again in the second pass.
"""

from __future__ import annotations

import math
import resource
import statistics
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import torch
from harness import Job, Protocol, Store, Value, arguments, clocked, machine, table
from torch import Tensor

from bochner import random
from bochner.kernels.spectral_mixture import NextGenSpectralMixture
from bochner.likelihoods.likelihood import Gaussian
from bochner.models.lvm import GaussianLatents, LatentVariableModel, View
from bochner.objectives.elbo import draw, elbo
from bochner.regression import evidence
from bochner.regression.observations import AllRows, CompleteBlock

Q, H, D = 2, 50, 2
P = Q * H
K = 2 * P
TIMES = {
    "ms": ".2f",
    "gflops": ".0f",
    "of_peak": ".2f",
    "bare_ms": ".2f",
    "sincos_ms": ".2f",
    "ratio": ".2f",
}
MEMORY = {"data_mb": ".0f", "features_mb": ".0f", "beyond_mb": ".1f"}


def model_of(n_rows: int) -> LatentVariableModel:
    """Build a one-view NG-MVLVM on random latents."""
    source = random.generator(0, "benchmark")
    mean = torch.randn(n_rows, D, generator=source)
    kernel = NextGenSpectralMixture().initial(Q, D, source)
    latents = GaussianLatents(mean, torch.full_like(mean, -2.0))
    return LatentVariableModel(latents, [View("view", kernel, Gaussian(0.3))])


def block_of(n_rows: int, n_columns: int) -> CompleteBlock:
    """Draw data in place: temporary copies would hide in the peak memory what a step needs."""
    Y = torch.empty(n_rows, n_columns).normal_(generator=random.generator(0, "data"))
    return CompleteBlock(Y, AllRows(), torch.arange(n_columns), float(Y.numel()))


def step_of(
    model: LatentVariableModel, block: CompleteBlock, n_frequencies: int = H
) -> Callable[[], None]:
    """Return a function that takes the value and the gradient at fresh draws."""
    count = iter(range(10**9))

    def step() -> None:
        model.zero_grad()
        draws = draw(model, n_frequencies, "iid", 0, "benchmark", next(count))
        (-elbo(model, ((block,),), draws).total).backward()

    return step


def median_ms(function: Callable[[], object], seconds: float, least: int = 7) -> float:
    """Return the median time of a call, over at least so many seconds and calls."""
    function()
    times: list[float] = []
    while sum(times) < seconds or len(times) < least:
        times.append(clocked(function)[1])
    return 1e3 * statistics.median(times)


def bare_products(n_rows: int, Y: Tensor, chunk: int) -> Callable[[], None]:
    """Return the four products of a step in chunks, into memory that is already there."""
    rows = min(chunk, n_rows)
    phi, up = torch.randn(K, rows), torch.empty(K, rows)
    gram, cross = torch.empty(K, K), torch.empty(K, Y.shape[1])
    d_gram, d_cross = torch.randn(K, K), torch.randn(K, Y.shape[1])

    def products() -> None:
        for start in range(0, n_rows, rows):
            part = Y[start : start + rows]
            features, out = phi[:, : part.shape[0]], up[:, : part.shape[0]]
            torch.mm(features, features.T, out=gram)
            torch.mm(features, part, out=cross)
            torch.mm(d_gram, features, out=out)
            out.addmm_(d_cross, part.T)

    return products


def sines(n_rows: int, chunk: int) -> Callable[[], None]:
    """Return the sine and the cosine of two arrays (P, N) of phases, in chunks."""
    phases, out = torch.randn(P, min(chunk, n_rows)), torch.empty(P, min(chunk, n_rows))

    def evaluate() -> None:
        for start in range(0, n_rows, phases.shape[1]):
            n = min(phases.shape[1], n_rows - start)
            for wave in (torch.sin, torch.cos, torch.sin, torch.cos):
                wave(phases[:, :n], out=out[:, :n])

    return evaluate


def measure_time(n_rows: int, n_columns: int, seconds: float) -> dict[str, Value]:
    """Time a step and what it cannot do without."""
    block = block_of(n_rows, n_columns)
    assert isinstance(block.Y, Tensor)
    Y = block.Y
    chunks = (n_rows, evidence.CHUNK_ROWS)
    ms = median_ms(step_of(model_of(n_rows), block), seconds)
    bare = min(median_ms(bare_products(n_rows, Y, chunk), seconds / 3) for chunk in chunks)
    waves = min(median_ms(sines(n_rows, chunk), seconds / 3) for chunk in chunks)
    rate = 4 * n_rows * K * (K + n_columns) / ms / 1e6
    of_peak = rate / float(machine()["peak_gflops"])
    values = {
        "ms": ms,
        "gflops": rate,
        "of_peak": of_peak,
        "bare_ms": bare,
        "sincos_ms": waves,
    }
    return {"rows": n_rows, "columns": n_columns, **values, "ratio": ms / (bare + waves)}


def peak_bytes(reset: bool = False) -> int:
    """Return the peak resident memory of this process, on Linux since the last reset."""
    status, switch = Path("/proc/self/status"), Path("/proc/self/clear_refs")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if reset:
        switch.write_text("5")
    return 1024 * next(
        int(line.split()[1])
        for line in status.read_text().splitlines()
        if line.startswith("VmHWM")
    )


def memory_of_step(n_rows: int, n_columns: int, n_frequencies: int, threads: int) -> int:
    """Return by how many bytes two steps raise the peak; run it in a process of its own."""
    torch.set_num_threads(threads)
    step_of(model_of(3 * 2048), block_of(3 * 2048, n_columns), n_frequencies)()
    step = step_of(model_of(n_rows), block_of(n_rows, n_columns), n_frequencies)
    before = peak_bytes(reset=True)
    step()
    step()
    return peak_bytes() - before


def measure_memory(n_rows: int, n_columns: int, n_frequencies: int) -> dict[str, Value]:
    """Measure the memory of a step beside that of data and features."""
    task = (n_rows, n_columns, n_frequencies, torch.get_num_threads())
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        beyond = pool.submit(memory_of_step, *task).result()
    features = n_rows * 2 * Q * n_frequencies * 4
    sizes = {
        "data_mb": n_rows * n_columns * 4 / 1e6,
        "features_mb": features / 1e6,
        "beyond_mb": beyond / 1e6,
    }
    return {"rows": n_rows, "columns": n_columns, **sizes}


def time_jobs(seeds: range, quick: bool) -> Iterator[Job]:
    """Yield sizes to time."""
    for n_rows in (500, 1_000) if quick else (500, 1_000, 10_000, 60_000):
        for n_columns in (50,) if quick else (50, 784):
            measure = partial(measure_time, n_rows, n_columns, 0.1 if quick else 3.0)
            yield from (Job(f"N={n_rows} M={n_columns}", "step", s, measure) for s in seeds)


def memory_jobs(seeds: range, quick: bool) -> Iterator[Job]:
    """Yield sizes to weigh."""
    for n_frequencies in (H, 4 * H):
        method = f"K={2 * Q * n_frequencies}"
        for n_rows in (10_000,) if quick else (10_000, 60_000, 240_000):
            measure = partial(measure_memory, n_rows, 50, n_frequencies)
            yield from (Job(f"N={n_rows} M=50", method, s, measure) for s in seeds)


def growth(rows: list[dict[str, str]], value: str, log: bool) -> float:
    """Return the least-squares slope of a value against N from N = 10,000, of logarithms or as they
    are.
    """
    scale: Callable[[float], float] = math.log if log else float
    points = [
        (scale(float(r["rows"])), scale(float(r[value])))
        for r in rows
        if int(r["rows"]) >= 10_000
    ]
    if len({x for x, _ in points}) < 2:
        return math.nan
    xs, ys = zip(*points, strict=True)
    return statistics.linear_regression(xs, ys).slope


PROTOCOL = Protocol("step", ("rows", "columns", *TIMES), time_jobs)


def main() -> None:
    options = arguments(__doc__, seeds=1)
    times = PROTOCOL.store(options.quick)
    times.collect(time_jobs(options.seeds, options.quick))
    print(table(times.rows(), TIMES, heads=("rows", "columns")))
    for columns in ("50", "784"):
        slope = growth([r for r in times.rows() if r["columns"] == columns], "ms", log=True)
        print(f"M={columns}: time grows as N^{slope:.2f} from N=10,000")
    weights = Store("step_memory", ("rows", "columns", *MEMORY), options.quick)
    weights.collect(memory_jobs(options.seeds, options.quick))
    print(table(weights.rows(), MEMORY, heads=("method", "rows")))
    for method in dict.fromkeys(r["method"] for r in weights.rows()):
        of_method = [r for r in weights.rows() if r["method"] == method]
        ours, features = (
            1e6 * growth(of_method, value, log=False) for value in ("beyond_mb", "features_mb")
        )
        print(
            f"{method}: {ours:.0f} bytes a row beyond the data, where a row of features takes "
            f"{features:.0f}"
        )


if __name__ == "__main__":
    main()
