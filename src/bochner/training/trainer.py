"""Adam on any stochastic bound: warm-up, plateau, decay; a non-finite step rolls back."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast

import torch
from torch import Tensor, nn

from bochner.errors import NumericalError, NumericalWarning, warn_user

Objective = Callable[[int], Tensor]
OnStep = Callable[["State"], None]
Module = TypeVar("Module", bound=nn.Module)
# parameters, optimiser, state
Snapshot = tuple[dict[str, Tensor], dict[str, Any], dict[str, Any]]

# By number of the parameter: the moments, and the count of steps.
Moments = dict[int, dict[str, Tensor]]
# Of the gradient's moments; eps is tiny because gradients per entry are: more would act as a hidden
# learning rate.
FIRST, SECOND, EPS = 0.9, 0.99, 1e-12

# Steps until the learning rate is whole: Adam's second moments know little before.
_WARM_UP = 20
# Steps between two states to come back to: an undone step loses so many, and others copy a state.
_SNAPSHOT_EVERY = 10
# After so many the learning rate is a 256th of itself: what fails then is not its length.
_MAX_ROLL_BACKS = 8
# A fall of the bound between two snapshots that is undone: so many nats an entry, and standard
# deviations of the window before. One row far above the others brings it about.
_FALL, _FALL_DEVIATIONS = 0.5, 10.0


class Adam:
    """Takes steps down the gradients of a module's parameters.

    Parameters
    ----------
    module : nn.Module
        Parameters without a gradient at a step are left alone.
    learning_rate : float
        May be changed between steps.
    factors : mapping of str to float, optional
        Endings of parameters' names and what their learning rate is multiplied by; others: 1.
    """

    def __init__(
        self,
        module: nn.Module,
        learning_rate: float,
        factors: Mapping[str, float] | None = None,
    ) -> None:
        self.names = [name for name, _ in module.named_parameters()]
        self.parameters, self.learning_rate = list(module.parameters()), learning_rate
        of_endings = list((factors or {}).items())
        self._factors = [
            next((f for end, f in of_endings if name.endswith(end)), 1.0)
            for name in self.names
        ]
        self._counts = [0] * len(self.parameters)
        self._first: list[Tensor | None] = [None] * len(self.parameters)
        self._second: list[Tensor | None] = [None] * len(self.parameters)

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    def not_finite(self) -> str | None:
        """Return the name of the first parameter whose gradient is not finite, if there is one."""
        named = [(n, p.grad) for n, p in zip(self.names, self.parameters, strict=True)]
        given = [(name, grad) for name, grad in named if grad is not None]
        # a norm is finite only where all entries are
        norms = torch._foreach_norm([grad for _, grad in given])
        if math.isfinite(sum(float(norm) for norm in norms)):
            return None
        faulty = (name for name, grad in given if not bool(torch.isfinite(grad).all()))
        return next(faulty, None)

    def step(self) -> None:
        """Move every parameter that has a gradient: all of them by each of a few operations."""
        moving = [i for i, p in enumerate(self.parameters) if p.grad is not None]
        if not moving:
            return
        with torch.no_grad():
            gradients = [cast(Tensor, self.parameters[i].grad) for i in moving]
            pairs = list(zip(moving, gradients, strict=True))
            first = [_there(self._first, i, gradient) for i, gradient in pairs]
            second = [_there(self._second, i, gradient) for i, gradient in pairs]
            for i in moving:
                self._counts[i] += 1
            counts = [self._counts[i] for i in moving]
            torch._foreach_lerp_(first, gradients, 1.0 - FIRST)
            torch._foreach_mul_(second, SECOND)
            torch._foreach_addcmul_(second, gradients, gradients, 1.0 - SECOND)
            scales = torch._foreach_div(second, [1.0 - SECOND**count for count in counts])
            torch._foreach_sqrt_(scales)
            torch._foreach_add_(scales, EPS)
            rates = [
                -self.learning_rate * self._factors[i] / (1.0 - FIRST**count)
                for i, count in zip(moving, counts, strict=True)
            ]
            torch._foreach_addcdiv_([self.parameters[i] for i in moving], first, scales, rates)

    def stop(self, name: str, rows: Tensor) -> None:
        """Take the momentum from some rows of a parameter: others moved them."""
        momentum = self._first[self.names.index(name)]
        if momentum is not None:
            momentum[rows] = 0.0

    def state_dict(self) -> dict[str, Moments]:
        """Return the moments by number of the parameter, as torch's optimisers do."""
        state = {
            i: {"step": torch.tensor(self._counts[i]), "exp_avg": first, "exp_avg_sq": second}
            for i, (first, second) in enumerate(zip(self._first, self._second, strict=True))
            if first is not None and second is not None
        }
        return {"state": state}

    def load_state_dict(self, state: dict[str, Moments]) -> None:
        """Continue from moments, brought to where the parameters are; tensors already there will
        change.
        """
        moments = state["state"]
        for i, parameter in enumerate(self.parameters):
            moment = moments.get(i)
            self._counts[i] = 0 if moment is None else int(moment["step"])
            self._first[i] = None if moment is None else moment["exp_avg"].to(parameter)
            self._second[i] = None if moment is None else moment["exp_avg_sq"].to(parameter)


def _there(moments: list[Tensor | None], i: int, like: Tensor) -> Tensor:
    """Return a parameter's moment, 0 to begin with."""
    moment = moments[i]
    if moment is None:
        moment = moments[i] = torch.zeros_like(like)
    return moment


@dataclass(frozen=True)
class Options:
    """How to train.

    Attributes
    ----------
    max_iter : int
        Steps at the most, the decay included.
    learning_rate : float
        Of Adam, before the decay.
    tol : float
        The plateau: when the mean bound of a window rises by less than ``tol`` nats per observed
        entry over the window before, the learning rate decays to zero.
    window : int
        Steps of a window.
    decay : float
        Length of the decay as a share of the steps before it, since the last run that settled.
    least_decay : int
        Its length at the least, as far as ``max_iter`` allows.
    factors : mapping of str to float
        Endings of parameters' names and what their learning rate is multiplied by; others: 1.
    """

    max_iter: int = 3000
    learning_rate: float = 0.2
    tol: float = 1e-4
    window: int = 50
    decay: float = 0.3
    least_decay: int = 0
    factors: Mapping[str, float] = field(default_factory=dict)


# Kernels, noise and standard deviations may move fast; were rows as fast, they would jump past each
# other.
RATES = Options(window=30, tol=3e-4, factors={"latents.mean": 0.25})


@dataclass
class State:
    """Where a run stands; with the parameters and the optimiser it is all that resuming needs.

    Attributes
    ----------
    step : int
        Steps done.
    history : list of float
        The stochastic bound of every step, in nats.
    decay_from : int or None
        First step of the decay once the plateau was seen.
    plateau : bool
        Whether the decay began because of the plateau (and not of max_iter).
    rate : float
        Factor of the learning rate, halved at every roll back.
    roll_backs : int
    since : int
        First step after the last run that settled: windows and the decay are counted from here.
    blocks : list of (step, name, bound)
        The bound after every block of the sweeps between steps; empty where a model has none.
    """

    step: int = 0
    history: list[float] = field(default_factory=list)
    decay_from: int | None = None
    plateau: bool = False
    rate: float = 1.0
    roll_backs: int = 0
    since: int = 0
    blocks: list[Any] = field(default_factory=list)

    def to_dict(self) -> dict[str, object]:
        """Return what JSON can hold."""
        return dict(vars(self))


class Trainer(Generic[Module]):
    """Maximises an objective over a module's parameters.

    Parameters
    ----------
    module : nn.Module
    objective : callable
        Step -> stochastic bound (scalar tensor, nats), drawn with noise keyed by the step.
    n_entries : int
        Observed entries: the bound per entry is what Adam sees.
    options : Options
    state : State, optional
        Of a run to continue.
    accept : callable, optional
        Called with the step when its bound and gradient are finite, before the parameters move: it
        applies what else the evaluation asks for, so that the objective itself changes nothing.
    agree : callable, optional
        Called with the cause why this process cannot take a step, or None; returns that of any
        process.
    between : callable, optional
        Called after every step with the state: updates of blocks that gradients do not reach.
    optimiser : Adam, optional
        Of the module's parameters; left out, one with the rates of the options.
    """

    def __init__(
        self,
        module: Module,
        objective: Objective,
        n_entries: int,
        options: Options,
        state: State | None = None,
        between: OnStep | None = None,
        accept: Callable[[int], None] | None = None,
        agree: Callable[[str | None], str | None] | None = None,
        optimiser: Adam | None = None,
    ) -> None:
        self.module = module
        self.objective = objective
        self.n_entries = n_entries
        self.options = options
        self.between = between
        self.accept = accept
        self.agree = agree
        self.state = state or State()
        given = (module, options.learning_rate, options.factors)
        self.optimiser = Adam(*given) if optimiser is None else optimiser
        self._good = self._best = self._snapshot()
        self._best_value = -math.inf
        self._settles: tuple[float, int] | None = None

    def run(
        self, until: int | None = None, on_step: OnStep | None = None, settle: bool = False
    ) -> State:
        """Train until converged, ``max_iter`` or ``until`` steps.

        Parameters
        ----------
        until : int, optional
        on_step : callable, optional
        settle : bool
            Let the learning rate fall to zero in the second half of this run: bounds of different
            runs can then be compared, which those of parameters that still jump cannot.

        Warns
        -----
        NumericalWarning
            A step was not finite: the last good state came back and the learning rate was halved.
        """
        until = self.options.max_iter if until is None else min(until, self.options.max_iter)
        self._settles = (0.5 * (self.state.step + until), until) if settle else None
        while self.state.step < until and not self.finished:
            cause = self._step() or self._fall()
            if cause is None:
                self._after_step(on_step)
            elif not self._roll_back(cause):
                break
        if settle:
            self._settles = None
            self.state.since = self.state.step
            # what comes back must not be in the middle of a run that settled
            self._good = self._snapshot()
        return self.state

    @property
    def finished(self) -> bool:
        """Whether the decay has ended."""
        start = self.state.decay_from
        return start is not None and self.state.step >= start + self._decay_length(start)

    @property
    def last_step(self) -> int | None:
        """The step at which the decay ends; None before it has begun."""
        start = self.state.decay_from
        return None if start is None else start + self._decay_length(start)

    @property
    def is_at_snapshot(self) -> bool:
        """Whether a step that is not finite would roll back to this very state."""
        return self.state.step % _SNAPSHOT_EVERY == 0

    def restart(self) -> None:
        """Forget the optimiser's moments: the parameters were changed by others."""
        self.optimiser = Adam(self.module, self.options.learning_rate, self.options.factors)
        self._good = self._best = self._snapshot()

    @property
    def good(self) -> Snapshot:
        """What a step that is not finite rolls back to."""
        return self._good

    def resume(self, state: State, good: bool = True) -> None:
        """Continue from parameters and optimiser that were just restored; unless they are ``good``
        a step that is not finite rolls back to what was there before.
        """
        self.state = state
        if good:
            self._good = self._best = self._snapshot()

    def rewind(self) -> None:
        """Return to the last whole snapshot: an interrupt may have struck in the middle of a
        step.
        """
        self._restore(self._good)

    def restore_best(self) -> None:
        """Return to the snapshot with the best smoothed bound (after an interrupt)."""
        self._restore(self._best)

    def _restore(self, snapshot: Snapshot) -> None:
        parameters, optimiser, state = snapshot
        self.module.load_state_dict(parameters)
        # torch keeps the tensors it is given and updates them in place: without a copy the snapshot
        # would change
        self.optimiser.load_state_dict(_copy(optimiser))
        self.state.__dict__.update(
            {**state, "rate": self.state.rate, "roll_backs": self.state.roll_backs}
        )
        self.state.history, self.state.blocks = list(state["history"]), list(state["blocks"])

    def _decay_length(self, start: int) -> int:
        share = math.ceil(self.options.decay * (start - self.state.since))
        left = self.options.max_iter - start
        return max(1, min(left, max(share, self.options.least_decay)))

    def _factor(self) -> float:
        """Of the learning rate: a linear warm-up, then constant, then linear to zero."""
        step = self.state.step
        start = self.state.decay_from
        factor = min(1.0, (step + 1) / _WARM_UP) * self.state.rate
        if self._settles is not None:
            begin, end = self._settles
            factor *= min(1.0, (end - step) / (end - begin))
        if start is not None:
            factor *= 1.0 - (step - start) / self._decay_length(start)
        return factor

    def _step(self) -> str | None:
        """Take one step; return the cause when it was not finite (the parameters are then left
        alone).
        """
        self.optimiser.zero_grad()
        try:
            bound = self.objective(self.state.step)
            self._differentiate(bound)
        except NumericalError as error:
            return str(error)
        value = float(bound.detach())
        if not math.isfinite(value):
            return f"the bound was {value}"
        name = self.optimiser.not_finite()
        cause = None if name is None else f"the gradient of {name} was not finite"
        if self.agree is not None:
            cause = self.agree(cause)
        if cause is not None:
            return cause
        if self.accept is not None:
            self.accept(self.state.step)
        self.optimiser.learning_rate = self.options.learning_rate * self._factor()
        self.optimiser.step()
        self.state.history.append(value)
        self.state.step += 1
        return None

    def _fall(self) -> str | None:
        """Return how far the bound fell since the last snapshot, where no step should lead."""
        step, window = self.state.step, self.options.window
        history = self.state.history[self.state.since :]
        # the others are left for steps that are not finite
        spent = self.state.roll_backs >= _MAX_ROLL_BACKS // 2
        if spent or step % _SNAPSHOT_EVERY or len(history) < window + _SNAPSHOT_EVERY:
            return None
        before = history[-window - _SNAPSHOT_EVERY : -_SNAPSHOT_EVERY]
        height = statistics.fmean(before)
        now = statistics.fmean(history[-_SNAPSHOT_EVERY:])
        beyond = height - now - _FALL * self.n_entries
        # deviations are asked for where the bound fell at all
        if beyond <= 0.0 or beyond <= _FALL_DEVIATIONS * statistics.pstdev(before):
            return None
        return f"the bound had fallen from {height:.6g} to {now:.6g}"

    def _differentiate(self, bound: Tensor) -> None:
        """Find the gradients of what the optimiser brings down."""
        (-bound / self.n_entries).backward()  # type: ignore[no-untyped-call]

    def _after_step(self, on_step: OnStep | None) -> None:
        state, options = self.state, self.options
        if self.between is not None:
            self.between(state)
        if state.decay_from is None:
            left = options.max_iter - state.since
            last = state.since + math.ceil(left / (1.0 + options.decay))
            state.plateau = self._on_plateau()
            if state.plateau or state.step >= last:
                state.decay_from = state.step
        if state.step % _SNAPSHOT_EVERY == 0:
            self._good = self._snapshot()
            recent = state.history[-options.window :]
            value = sum(recent) / len(recent)
            if value >= self._best_value:
                self._best = self._good
                self._best_value = value
        if on_step is not None:
            on_step(state)

    def _on_plateau(self) -> bool:
        window = self.options.window
        history = self.state.history[self.state.since :]
        if len(history) < 2 * window + _WARM_UP:
            return False
        last, before = history[-window:], history[-2 * window : -window]
        rise = statistics.fmean(last) - statistics.fmean(before)
        # of few rows the noise is larger than the tolerance: no window would have converged but by
        # chance
        error = math.sqrt((statistics.variance(last) + statistics.variance(before)) / window)
        return rise < self.options.tol * self.n_entries + error

    def _snapshot(self) -> Snapshot:
        history, blocks = list(self.state.history), list(self.state.blocks)
        state = {**vars(self.state), "history": history, "blocks": blocks}
        return _copy(self.module.state_dict()), _copy(self.optimiser.state_dict()), state

    def _roll_back(self, cause: str) -> bool:
        """Return to the last good state with half the learning rate; False when that has been tried
        enough.
        """
        failed = self.state.step
        self._restore(self._good)
        self.state.rate *= 0.5
        self.state.roll_backs += 1
        again = self.state.roll_backs <= _MAX_ROLL_BACKS
        then = "training stops here"
        if again:
            then = f"continuing from step {self.state.step} with half the learning rate"
        text = f"Step {failed} was undone because {cause.rstrip('.')}; {then}."
        warn_user(text, NumericalWarning)
        return again


def _copy(tree: object) -> Any:
    """Copy every tensor of nested dicts and lists."""
    if isinstance(tree, Tensor):
        return tree.detach().clone()
    if isinstance(tree, dict):
        return {k: _copy(v) for k, v in tree.items()}
    return [_copy(v) for v in tree] if isinstance(tree, list) else tree


class NoCheckpoint:
    """Of a run that keeps nothing."""

    @contextmanager
    def begun(self) -> Iterator[None]:
        """Yield None: there is no earlier run."""
        yield None

    def maybe(self, trainer: Trainer[Module], extra: dict[str, object]) -> None:
        """Write nothing."""

    def write(self, trainer: Trainer[Module], extra: dict[str, object]) -> None:
        """Write nothing."""
