"""One chain: kept draws, and the states from which predictions are made."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Self

import numpy as np
import torch
from torch import Tensor

from bochner.data.arrays import Float64Array
from bochner.data.columns import evenly_spread
from bochner.io.schema import MismatchError, Tensors
from bochner.mcmc.conditionals.mixture import Components
from bochner.mcmc.conditionals.views import ViewState
from bochner.mcmc.model import Model, State
from bochner.mcmc.moments import Moments

# Missing entries of a view of which every draw is kept; of all of them, mean and deviation are.
KEPT_MISSING = 500


@dataclass(frozen=True)
class Schedule:
    """How long a chain runs and what it keeps.

    Attributes
    ----------
    n_warmup : int
        Sweeps that are dropped; step sizes are adapted during these only.
    n_draws : int
        Draws that are kept.
    thin : int
        Every ``thin``-th sweep is kept.
    n_snapshots : int
        Draws, evenly spaced, whose whole state is kept for predictions.
    """

    n_warmup: int
    n_draws: int
    thin: int = 1
    n_snapshots: int = 4

    @property
    def n_sweeps(self) -> int:
        """All sweeps of the chain."""
        return self.n_warmup + self.n_draws * self.thin

    def kept(self, index: int) -> int | None:
        """Return the number of the draw that a sweep ends with, or None."""
        number, rest = divmod(index - self.n_warmup + 1, self.thin)
        return number - 1 if number > 0 and rest == 0 else None

    def is_snapshot(self, number: int) -> bool:
        """Return whether the whole state of a draw is kept; the last one's always is."""
        count = min(self.n_snapshots, self.n_draws)
        return ((number + 1) * count) // self.n_draws > (number * count) // self.n_draws


@dataclass(frozen=True)
class Chain:
    """A chain as far as it got.

    Attributes
    ----------
    number : int
    index : int
        Sweeps done.
    state : State
    traces : dict of str to ndarray
        By quantity, first axis draws: "latents", "log_joint", "accept.latents", and for each view
        "NAME.points", "NAME.n_components", "NAME.concentration", "NAME.variance",
        "NAME.noise_variance" (Gaussian) or "NAME.dispersion" (negative binomial),
        "NAME.missing" (psi of at most 500 missing entries, evenly spread, row by row).
    snapshots : tuple of (int, State)
        Numbers of draws and their states.
    missing : tuple of Moments
        Of each view's psi of all missing entries, row by row; empty before the first draw.
    """

    number: int
    index: int
    state: State
    traces: dict[str, Float64Array]
    snapshots: tuple[tuple[int, State], ...]
    missing: tuple[Moments, ...] = ()

    @classmethod
    def start(cls, number: int, state: State) -> Self:
        """Return a chain that has not moved yet."""
        return cls(number, 0, state, {}, ())

    @property
    def n_draws(self) -> int:
        """Draws that are kept so far."""
        return len(self.traces["log_joint"]) if self.traces else 0

    def joined(self, later: Chain) -> Chain:
        """Return this chain with what a later part of it drew."""
        traces = _joined(self.traces, later.traces)
        return replace(later, traces=traces, snapshots=self.snapshots + later.snapshots)

    def advance(self, model: Model, schedule: Schedule, seed: int, n_sweeps: int) -> Chain:
        """Return the chain after more sweeps, at most those of the schedule.

        Parameters
        ----------
        model : Model
        schedule : Schedule
        seed : int
        n_sweeps : int

        Returns
        -------
        Chain
        """
        state = self.state
        snapshots = list(self.snapshots)
        missing = self.missing
        records: list[dict[str, Float64Array]] = []
        stop = min(self.index + n_sweeps, schedule.n_sweeps)
        for index in range(self.index, stop):
            state = model.sweep(state, seed, self.number, index)
            if index < schedule.n_warmup:
                state = model.adapt(state, index)
            number = schedule.kept(index)
            if number is None:
                continue
            psi = psi_of_missing(model, state)
            missing = _with_draw(missing, psi)
            records.append(record(model, state, psi))
            if schedule.is_snapshot(number):
                snapshots.append((number, state))
        traces = _joined(self.traces, _stacked(records))
        return replace(
            self,
            index=stop,
            state=state,
            traces=traces,
            snapshots=tuple(snapshots),
            missing=missing,
        )


def psi_of_missing(model: Model, state: State) -> list[Float64Array]:
    """Return each view's linear predictor of its missing entries, row by row."""
    return [
        view.psi(of_view, state.x)[~view.data.observed]
        for view, of_view in zip(model.views, state.views, strict=True)
    ]


def _with_draw(missing: tuple[Moments, ...], psi: list[Float64Array]) -> tuple[Moments, ...]:
    before = missing or tuple(Moments.none(values.size) for values in psi)
    return tuple(one.plus(values) for one, values in zip(before, psi, strict=True))


def record(model: Model, state: State, psi: list[Float64Array]) -> dict[str, Float64Array]:
    """Return what is kept of a draw; psi is that of missing entries."""
    out = {
        "latents": state.x,
        "log_joint": np.array(model.log_joint(state)),
        "accept.latents": np.array(state.acceptance.get("latents", np.nan)),
        "accept.frequencies": np.array(state.acceptance.get("frequencies", np.nan)),
    }
    for view, of_view, missing in zip(model.views, state.views, psi, strict=True):
        values: dict[str, object] = {
            "points": of_view.points,
            "n_components": float(of_view.labels.max() + 1),
            "concentration": of_view.concentration,
            "variance": of_view.variance,
            view.parameter_name: of_view.parameter,
            "missing": missing[evenly_spread(missing.size, KEPT_MISSING)],
        }
        out |= {f"{view.name}.{key}": np.asarray(value) for key, value in values.items()}
    return out


def _stacked(records: list[dict[str, Float64Array]]) -> dict[str, Float64Array]:
    names = records[0] if records else ()
    return {name: np.stack([recorded[name] for recorded in records]) for name in names}


def _joined(
    traces: dict[str, Float64Array], later: dict[str, Float64Array]
) -> dict[str, Float64Array]:
    if not traces or not later:
        return traces or later
    return {name: np.concatenate([traces[name], values]) for name, values in later.items()}


# -- files

_ARRAYS = ("points", "labels", "weights", "parameter")
_NUMBERS = ("concentration", "variance")
_RATES = ("accept.latents", "accept.frequencies")


def state_to_tensors(state: State, prefix: str) -> dict[str, Tensor]:
    """Return a state as tensors with names."""
    out = {f"{prefix}x": torch.from_numpy(state.x)}
    out[f"{prefix}step"] = torch.tensor(state.step, dtype=torch.float64)
    for v, of_view in enumerate(state.views):
        at = f"{prefix}{v}."
        out |= {f"{at}{name}": torch.from_numpy(getattr(of_view, name)) for name in _ARRAYS}
        numbers = [getattr(of_view, name) for name in _NUMBERS]
        out[f"{at}numbers"] = torch.tensor(numbers, dtype=torch.float64)
        out[f"{at}means"] = torch.from_numpy(of_view.components.means)
        out[f"{at}covariances"] = torch.from_numpy(of_view.components.covariances)
    return out


def state_from_tensors(tensors: Tensors, prefix: str, like: State) -> State:
    """Rebuild a state of the shapes of another one.

    Raises
    ------
    MismatchError
        A tensor is missing, of another shape, or holds what no state does.
    """
    views = tuple(
        _view_from_tensors(tensors, f"{prefix}{v}.", of_view)
        for v, of_view in enumerate(like.views)
    )
    x = tensors.take(f"{prefix}x", *like.x.shape).numpy()
    step = float(tensors.take(f"{prefix}step"))
    _require(step > 0.0, f"{prefix}step")
    return State(x, views, step)


def _view_from_tensors(tensors: Tensors, at: str, like: ViewState) -> ViewState:
    kinds = {name: "i" if name == "labels" else "d" for name in _ARRAYS}
    arrays = {
        name: tensors.take(f"{at}{name}", *getattr(like, name).shape, kind=kind).numpy()
        for name, kind in kinds.items()
    }
    dim = like.points.shape[1]
    means = tensors.take(f"{at}means", None, dim).numpy()
    components = Components(
        means, tensors.take(f"{at}covariances", len(means), dim, dim).numpy()
    )
    _require(np.array_equal(np.unique(arrays["labels"]), np.arange(len(means))), f"{at}labels")
    _require(bool(np.isfinite(components.roots).all()), f"{at}covariances")
    concentration, variance = tensors.take(f"{at}numbers", len(_NUMBERS)).tolist()
    _require(concentration > 0.0 and variance > 0.0, f"{at}numbers")
    return ViewState(
        components=components, concentration=concentration, variance=variance, **arrays
    )


def _require(holds: bool, name: str) -> None:
    if not holds:
        raise MismatchError(f"the tensor {name!r} holds what no chain does")


def chain_to_tensors(chain: Chain) -> tuple[dict[str, Tensor], dict[str, object]]:
    """Return tensors and a JSON-able header that hold a chain."""
    tensors = state_to_tensors(chain.state, "state.")
    for s, (_, state) in enumerate(chain.snapshots):
        tensors |= state_to_tensors(state, f"snapshot{s}.")
    traces = {
        f"trace.{name}": trace_to_tensor(name, values) for name, values in chain.traces.items()
    }
    for v, moments in enumerate(chain.missing):
        tensors[f"missing.{v}.mean"] = torch.from_numpy(moments.mean)
        tensors[f"missing.{v}.squares"] = torch.from_numpy(moments.squares)
    header = {
        "number": chain.number,
        "index": chain.index,
        "snapshots": [number for number, _ in chain.snapshots],
    }
    return tensors | traces, header


@dataclass(frozen=True)
class Header:
    """What a file says of a chain beside its tensors.

    Attributes
    ----------
    kind : str
    schema : int
    fingerprint : str
        Of data and settings.
    number : int
    index : int
    snapshots : tuple of int
        Numbers of draws.
    """

    kind: str
    schema: int
    fingerprint: str
    number: int
    index: int
    snapshots: tuple[int, ...]


def chain_from_tensors(
    given: dict[str, Tensor], header: Header, model: Model, start: State
) -> Chain:
    """Rebuild a chain.

    Parameters
    ----------
    given : dict of str to Tensor
    header : Header
    model : Model
    start : State
        Of the model: what has its shapes is taken.

    Returns
    -------
    Chain

    Raises
    ------
    MismatchError
        Something is missing, unknown, of another shape, or not what a chain holds.
    """
    tensors = Tensors(given)
    state = state_from_tensors(tensors, "state.", start)
    traces = {}
    missing: tuple[Moments, ...] = ()
    if "trace.log_joint" in tensors:
        n_draws = len(given["trace.log_joint"])
        psi = psi_of_missing(model, start)
        traces = {
            name: trace_from_tensor(
                name, tensors.take(f"trace.{name}", n_draws, *values.shape)
            )
            for name, values in record(model, start, psi).items()
        }
        missing = tuple(
            _moments_from_tensors(tensors, f"missing.{v}.", n_draws, values.size)
            for v, values in enumerate(psi)
        )
    _check_header(header, len(traces["log_joint"]) if traces else 0)
    snapshots = tuple(
        (number, state_from_tensors(tensors, f"snapshot{s}.", start))
        for s, number in enumerate(header.snapshots)
    )
    tensors.finish()
    return Chain(header.number, header.index, state, traces, snapshots, missing)


def _moments_from_tensors(tensors: Tensors, at: str, n_draws: int, size: int) -> Moments:
    mean, squares = (tensors.take(f"{at}{name}", size).numpy() for name in ("mean", "squares"))
    _require(bool((squares >= 0.0).all()), f"{at}squares")
    return Moments(n_draws, mean, squares)


def _check_header(header: Header, n_draws: int) -> None:
    numbers = (-1, *header.snapshots, n_draws)
    if any(one >= two for one, two in pairwise(numbers)):
        raise MismatchError(f"snapshots are {list(header.snapshots)} of {n_draws} draws")
    if header.index < n_draws:
        raise MismatchError(f"index is {header.index} with {n_draws} draws")


def trace_to_tensor(name: str, trace: Float64Array) -> Tensor:
    """Return a trace for a file, which holds finite numbers alone: rates not known become -1."""
    return torch.from_numpy(np.nan_to_num(trace, nan=-1.0) if name in _RATES else trace)


def trace_from_tensor(name: str, stored: Tensor) -> Float64Array:
    """Return a trace as it was before `trace_to_tensor`."""
    values: Float64Array = stored.numpy()
    return np.where(values < 0.0, np.nan, values) if name in _RATES else values
