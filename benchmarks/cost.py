"""Where do the seconds of a default fit go: ``python benchmarks/cost.py --threads 1``.

Every data set is fitted twice: once for processor seconds by phase, once with every operation of
torch counted. What the operations would take at the rates that this run measured (products in
float32 and float64, sines, bytes of what is in cache) is the arithmetic; what is left of the
seconds is the time that operations take to begin, Python, and the libraries that make starts. The
second number is the floor that a plan can reach by larger operations; only fewer operations on
numbers lower the first.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import torch
from harness import Job, Protocol, Store, Value, arguments, clocked, table
from times import NAMES, data_of
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

import bochner as bo
from bochner.estimators.base import AttributesMixin
from bochner.fitting import fit, multistart

PHASES = ("starts", "race", "training", "weights", "placement", "rest")
COLUMNS = {
    "cpu": ".2f",
    "arithmetic": ".2f",
    "share": ".2f",
    "operations": ".0f",
    "gflop": ".2f",
    "sines": ".3g",
    "gbytes": ".2f",
}
WAVES = {"sin", "cos", "sin_", "cos_", "exp", "exp_"}
aten = torch.ops.aten


class Phases:
    """Processor seconds, and what ``count`` counts, of the phase that a fit is in."""

    def __init__(self) -> None:
        self.now = "rest"
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self.begun = time.process_time()

    def enter(self, phase: str) -> str:
        """Charge the seconds so far to the phase before, and return that."""
        now, before = time.process_time(), self.now
        self.seconds[before] += now - self.begun
        self.begun, self.now = now, phase
        return before

    @contextmanager
    def of_fit(self) -> Iterator[None]:
        """Follow the phases of a fit by the functions that begin them."""
        points = (
            (multistart, "candidates", "starts"),
            (multistart.Race, "run", "race"),
            (fit, "_train", "training"),
            (fit, "condition", "weights"),
            (AttributesMixin, "_set_embedding", "placement"),
        )
        before = [getattr(owner, name) for owner, name, _ in points]
        for (owner, name, phase), function in zip(points, before, strict=True):
            setattr(owner, name, self._within(phase, function))
        try:
            yield
        finally:
            self.enter("rest")
            for (owner, name, _), function in zip(points, before, strict=True):
                setattr(owner, name, function)

    def _within(self, phase: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def inner(*args: Any, **kwargs: Any) -> Any:
            before = self.enter(phase)
            try:
                return function(*args, **kwargs)
            finally:
                self.enter(before)

        return inner


class Counter(TorchDispatchMode):
    """Counts operations of torch by phase: products, sines, bytes of the others."""

    def __init__(self, phases: Phases) -> None:
        super().__init__()
        self.phases = phases
        zero = {"operations": 0.0, "flop32": 0.0, "flop64": 0.0, "sines": 0.0, "bytes": 0.0}
        self.counts = {phase: dict(zero) for phase in PHASES}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        counts = self.counts[self.phases.now]
        counts["operations"] += 1
        results = [
            t for t in (out if isinstance(out, tuple | list) else [out]) if is_tensor(t)
        ]
        given = [t for t in args if is_tensor(t)]
        if not results or func.is_view:
            return out
        flop = products(func, given, args, kwargs or {}, out)
        if flop:
            counts["flop64" if results[0].dtype == torch.float64 else "flop32"] += flop
        elif func.overloadpacket.__name__ in WAVES:
            counts["sines"] += results[0].numel()
        else:
            counts["bytes"] += sum(t.numel() * t.element_size() for t in (*given, *results))
        return out


def is_tensor(value: object) -> bool:
    return isinstance(value, Tensor)


def products(func: Any, given: list[Tensor], args: Any, kwargs: Any, out: Any) -> float:
    """Return the floating point operations of a product or a factorisation, 0 of others."""
    packet = func.overloadpacket
    if packet in flop_registry:
        return float(flop_registry[packet](*args, **kwargs, out_val=out))
    size = given[0].numel() * given[0].shape[-1] if given and given[0].ndim > 1 else 0
    factors = {aten.linalg_cholesky_ex: 1 / 3, aten.cholesky_inverse: 2 / 3}
    if packet in factors:
        return factors[packet] * size
    if packet is aten.cholesky_solve:
        return 2.0 * given[0].numel() * given[1].shape[-1]
    return 0.0


@cache
def rates() -> dict[str, float]:
    """Measure what this machine does in a second: products of 400 x 400, sines, bytes in cache."""
    out = {}
    for name, dtype in (("flop32", torch.float32), ("flop64", torch.float64)):
        a = torch.rand(400, 400, dtype=dtype)
        out[name] = 2 * 400**3 / best(partial(torch.mm, a, a, out=torch.empty_like(a)))
    x = torch.rand(100, 1000)
    out["sines"] = x.numel() / best(partial(torch.sin, x, out=torch.empty_like(x)))
    out["bytes"] = 3 * 4 * x.numel() / best(partial(torch.add, x, x, out=torch.empty_like(x)))
    return out


def best(function: Callable[[], object]) -> float:
    return min(clocked(function)[1] for _ in range(200))


def measure(
    name: str, seed: int, phase: str, fits: dict[tuple[str, int], Any]
) -> dict[str, Value]:
    """Return one phase of a fit; the fits of all phases are the same two."""
    if (name, seed) not in fits:
        fits[name, seed] = fitted(name, seed)
    seconds, counts = fits[name, seed]
    operations = counts[phase]
    arithmetic = sum(operations[kind] / rate for kind, rate in rates().items())
    return {
        "cpu": seconds[phase],
        "arithmetic": arithmetic,
        "share": arithmetic / max(seconds[phase], 1e-9),
        "operations": operations["operations"],
        "gflop": 1e-9 * (operations["flop32"] + operations["flop64"]),
        "sines": operations["sines"],
        "gbytes": 1e-9 * operations["bytes"],
    }


def fitted(name: str, seed: int) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    bunch = data_of(name, seed)
    views = bunch.get("views")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bo.NGMVLVM(views=views, random_state=seed, max_iter=8).fit(bunch.data[:150])
        timed = Phases()
        with timed.of_fit():
            bo.NGMVLVM(views=views, random_state=seed).fit(bunch.data)
        phases = Phases()
        with phases.of_fit(), Counter(phases) as counter:
            bo.NGMVLVM(views=views, random_state=seed).fit(bunch.data)
    return timed.seconds, counter.counts


def jobs(seeds: range, quick: bool) -> Iterator[Job]:
    """Yield all data, phase by phase."""
    fits: dict[tuple[str, int], Any] = {}
    for seed in seeds:
        for name in NAMES[:1] if quick else NAMES:
            for phase in PHASES:
                yield Job(name, phase, seed, partial(measure, name, seed, phase, fits))


PROTOCOL = Protocol("cost", tuple(COLUMNS), jobs)


def main() -> None:
    options = arguments(__doc__, seeds=1)
    store: Store = PROTOCOL.store(options.quick)
    store.collect(jobs(options.seeds, options.quick))
    print({name: f"{rate:.3g} a second" for name, rate in rates().items()})
    print(table(store.rows(), COLUMNS))


if __name__ == "__main__":
    main()
