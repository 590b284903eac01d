"""Training on objectives whose answer is known: convergence, plateau, roll back, interrupt,
resume.
"""

import math
import warnings

import pytest
import torch
from torch import Tensor, nn

from bochner.errors import NumericalError, NumericalWarning
from bochner.io.schema import Tensors
from bochner.random import generator
from bochner.training.checkpoint import restore
from bochner.training.trainer import Options, State, Trainer

TARGET = torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64)
SCALES = torch.tensor([1.0, 5.0, 0.2], dtype=torch.float64)


class Point(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.place = nn.Parameter(torch.zeros(3, dtype=torch.float64))


def _bound(point: Point, step: int, noise: float = 0.0) -> Tensor:
    """A concave quadratic whose maximum is 7 at TARGET, with noise keyed by the step."""
    source = generator(0, "noise", step)
    shaken = point.place + noise * torch.randn(3, generator=source, dtype=torch.float64)
    return 7.0 - 0.5 * (SCALES * (shaken - TARGET).square()).sum()


def _trainer(
    max_iter: int = 600,
    tol: float = 1e-4,
    noise: float = 0.0,
    objective=None,
    rate: float = 0.05,
    **options,
):
    point = Point()
    chosen = Options(max_iter=max_iter, learning_rate=rate, tol=tol, **options)
    return Trainer(point, objective or (lambda step: _bound(point, step, noise)), 1, chosen)


def _failing(point: Point, steps, fault):
    """The quadratic, except that the calls numbered in ``steps`` return ``fault(bound)``."""
    calls = iter(range(10**6))

    def objective(step: int) -> Tensor:
        bound = _bound(point, step)
        return fault(bound) if next(calls) in steps else bound

    return objective


def _state(trainer: Trainer[Point]):
    moments = trainer.optimiser.state_dict()["state"][0]
    return [
        trainer.module.place.detach().clone(),
        *(moments[k].clone() for k in ("step", "exp_avg", "exp_avg_sq")),
    ]


def _same(a, b) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


# -- schedule and convergence
# ---------------------------------------------------------------------------


def test_a_quadratic_is_maximised():
    trainer = _trainer(max_iter=1500, window=50, rate=0.1)
    state = trainer.run()
    torch.testing.assert_close(trainer.module.place.detach(), TARGET, rtol=0, atol=1e-2)
    assert state.history[-1] == pytest.approx(7.0, abs=1e-3)
    assert state.plateau
    assert trainer.finished
    assert state.step == len(state.history) < 1500


def test_the_decay_takes_the_noise_out_of_the_answer():
    trainer = _trainer(max_iter=3000, noise=0.5, tol=1e-3, rate=0.1)
    before = []
    trainer.run(on_step=lambda state: before.append(trainer.module.place.detach().clone()))
    start = trainer.state.decay_from
    wandering = torch.stack(before[start - 100 : start]).std(0).mean()
    still = torch.stack(before[-10:]).std(0).mean()
    assert float(still) < 0.1 * float(wandering)
    torch.testing.assert_close(trainer.module.place.detach(), TARGET, rtol=0, atol=0.2)


@pytest.mark.parametrize("max_iter", [5, 12, 13, 100, 260])
def test_training_takes_max_iter_steps_when_there_is_no_plateau(max_iter):
    trainer = _trainer(max_iter=max_iter, tol=-math.inf)
    state = trainer.run()
    assert state.step == len(state.history) == max_iter
    assert trainer.finished
    assert not state.plateau


def test_the_schedule_warms_up_stays_and_falls_linearly_to_zero():
    trainer, rates = _trainer(max_iter=130, tol=-math.inf, rate=0.5), []
    trainer.run(on_step=lambda state: rates.append(trainer.optimiser.learning_rate))
    warm = [0.5 * (i + 1) / 20 for i in range(20)]
    level = [0.5] * 80
    fall = [0.5 * (1 - i / 30) for i in range(30)]
    assert rates == pytest.approx(warm + level + fall)


def test_the_plateau_is_seen_as_soon_as_a_window_stops_rising_and_not_before():
    # rises by 1 per step up to step 300, then level: tol 0.5 nats over a window of 50 steps.
    anchor = Point()

    def objective(step: int) -> Tensor:
        return min(step, 300) + 0.0 * anchor.place.sum()

    trainer = Trainer(
        anchor, objective, 1, Options(max_iter=2000, learning_rate=0.01, tol=0.5, window=50)
    )
    state = trainer.run()
    assert state.plateau
    # the mean of the last window exceeds the one before by less than 0.5 only when nearly all of
    # both is level
    assert 390 <= state.decay_from <= 402
    assert state.step == state.decay_from + math.ceil(0.3 * state.decay_from)


@pytest.mark.parametrize(("max_iter", "begin", "steps"), [(2000, 120, 150), (200, 100, 100)])
def test_the_decay_has_a_least_length_as_far_as_max_iter_allows(max_iter, begin, steps):
    anchor = Point()
    options = Options(
        max_iter=max_iter, tol=0.5, window=50, decay=1.0, learning_rate=0.01, least_decay=150
    )
    state = Trainer(anchor, lambda step: 0.0 * anchor.place.sum(), 1, options).run()
    # two windows and the warm-up, then the decay, or half of what max_iter allows
    assert (state.decay_from, state.step) == (begin, begin + steps)


def test_tol_is_per_observed_entry():
    def decay_from(n_entries: int) -> int | None:
        anchor = Point()
        options = Options(max_iter=1000, learning_rate=0.01, tol=0.1, window=50)
        trainer = Trainer(
            anchor, lambda step: step + 0.0 * anchor.place.sum(), n_entries, options
        )
        trainer.run()
        return trainer.state.decay_from if trainer.state.plateau else None

    assert decay_from(1) is None  # 50 nats a window are more than 0.1
    assert decay_from(1000) == 120  # and less than 100: two windows and the warm-up


def test_the_steps_do_not_depend_on_how_many_entries_there_are():
    few, many = _trainer(max_iter=50), _trainer(max_iter=50)
    many.n_entries = 10**6
    few.run()
    many.run()
    torch.testing.assert_close(few.module.place, many.module.place, rtol=1e-5, atol=1e-8)


# -- what is not finite
# ---------------------------------------------------------------------------


def _raise(bound: Tensor) -> Tensor:
    raise NumericalError("The matrix stayed indefinite.")


FAULTS = {
    "the bound was nan": lambda bound: bound * math.nan,
    "the bound was inf": lambda bound: bound + math.inf,
    "the gradient of place was not finite": lambda bound: bound + _Spoilt.apply(bound),
    "The matrix stayed indefinite": _raise,
}


class _Spoilt(torch.autograd.Function):
    """Zero with a gradient that is not a number."""

    @staticmethod
    def forward(ctx, x):
        return torch.zeros_like(x)

    @staticmethod
    def backward(ctx, upstream):
        return upstream * math.nan


@pytest.mark.parametrize("cause", FAULTS)
def test_a_step_that_is_not_finite_is_undone_and_named(cause):
    trainer = _trainer(max_iter=100)
    trainer.objective = _failing(trainer.module, {37}, FAULTS[cause])
    trainer.run(until=30)
    with pytest.warns(
        NumericalWarning, match=f"Step 37 was undone because {cause}.*step 30 with half"
    ) as record:
        trainer.run(until=40)
    assert len(record) == 1
    assert trainer.state.rate == 0.5
    assert trainer.state.roll_backs == 1
    assert trainer.state.step == len(trainer.state.history) == 40
    assert all(math.isfinite(value) for value in trainer.state.history)
    assert bool(torch.isfinite(trainer.module.place).all())


def test_roll_back_returns_parameters_optimiser_and_history_to_the_last_good_state():
    trainer = _trainer(max_iter=100)
    trainer.run(until=30)
    good, history, result = _state(trainer), list(trainer.state.history), []
    failing = _failing(trainer.module, {4, 9}, lambda bound: bound * math.nan)

    def objective(step: int) -> Tensor:
        result.append((step, trainer.state.rate, list(trainer.state.history), _state(trainer)))
        return failing(step)

    trainer.objective = objective
    with pytest.warns(NumericalWarning):
        trainer.run(until=39)
    # both faults lie before the next good state: calls 5 and 10 are the first after a roll back to
    # step 30
    assert [step for step, *_ in result] == [30, 31, 32, 33, 34] * 2 + list(range(30, 39))
    for call, rate in ((5, 0.5), (10, 0.25)):
        assert result[call][:3] == (30, rate, history)
        assert _same(result[call][3], good)


def test_a_fall_far_below_the_window_before_is_undone_with_half_the_rate():
    point = Point()
    objective = _failing(point, range(100, 110), lambda bound: bound - 5000.0)
    trainer = Trainer(point, objective, 1, Options(max_iter=400, learning_rate=0.05, tol=0.0))
    with pytest.warns(
        NumericalWarning, match="Step 110 was undone because the bound had fallen"
    ):
        state = trainer.run()
    assert (state.roll_backs, state.rate, state.step) == (1, 0.5, 400)
    assert min(state.history[50:]) > 0.0
    torch.testing.assert_close(point.place.detach(), TARGET, atol=1e-2, rtol=0.0)


@pytest.mark.parametrize(("depth", "n_entries"), [(0.4, 1), (3.0, 10)])
def test_small_falls_are_not_undone(depth, n_entries):
    point = Point()
    trainer = Trainer(
        point, _failing(point, range(300, 310), lambda bound: bound - depth), n_entries,
        Options(max_iter=400, learning_rate=0.05, tol=0.0),
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        state = trainer.run()
    assert state.roll_backs == 0


def test_training_that_falls_again_and_again_goes_on():
    point = Point()
    falling = Trainer(
        point,
        lambda step: _bound(point, step) - 5000.0 * (step >= 100),
        1,
        Options(max_iter=200, learning_rate=0.05, tol=0.0),
    )
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        state = falling.run()
    assert len(record) == state.roll_backs == 4
    assert falling.finished


def test_training_gives_up_after_many_faults_with_a_finite_model():
    trainer = _trainer(max_iter=200)
    trainer.objective = _failing(
        trainer.module, range(25, 10**6), lambda bound: bound * math.nan
    )
    with pytest.warns(NumericalWarning) as record:
        state = trainer.run()
    assert len(record) == state.roll_backs == 9
    assert "training stops here" in str(record[-1].message)
    with pytest.warns(NumericalWarning, match=r"noise variance; training stops here\.$"):
        trainer._roll_back("it failed: raise the noise variance.")
    assert all(
        "continuing from step 20 with half the learning rate" in str(w.message)
        for w in record[:-1]
    )
    assert not trainer.finished
    assert state.step == 20
    assert bool(torch.isfinite(trainer.module.place).all())


def test_a_fault_at_the_first_step_leaves_the_start():
    trainer = _trainer(max_iter=50)
    trainer.objective = _failing(trainer.module, range(10**6), lambda bound: bound * math.nan)
    with pytest.warns(NumericalWarning, match="Step 0"):
        trainer.run()
    assert torch.equal(trainer.module.place.detach(), torch.zeros(3, dtype=torch.float64))


def test_finite_training_warns_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _trainer(max_iter=60, noise=0.1).run()


# -- interrupt and resume
# ---------------------------------------------------------------------------


def test_an_interrupt_leaves_the_best_state_to_return_to():
    # the objective rises until step 60 and falls from there: the best snapshot is not the last
    trainer = _trainer(max_iter=500, rate=0.01, window=10, tol=-math.inf)
    places = {}

    def objective(step: int) -> Tensor:
        if step == 95:
            raise KeyboardInterrupt
        sign = 1.0 if step < 60 else -1.0
        return sign * trainer.module.place.sum() + (step if step < 60 else -step)

    trainer.objective = objective
    with pytest.raises(KeyboardInterrupt):
        trainer.run(
            on_step=lambda state: places.update(
                {state.step: trainer.module.place.detach().clone()}
            )
        )
    trainer.restore_best()
    assert trainer.state.step == len(trainer.state.history) == 60
    assert torch.equal(trainer.module.place.detach(), places[60])


@pytest.mark.parametrize("stop", [1, 7, 30, 75, 85])
def test_resumed_training_is_training_that_never_stopped(stop):
    whole, first, second = (_trainer(max_iter=100, noise=0.3) for _ in range(3))
    whole.run()
    first.run(until=stop)
    moments = first.optimiser.state_dict()["state"][0]
    tensors = {"module.place": first.module.place.detach().clone()}
    tensors |= {f"optimiser.0.{name}": value.clone() for name, value in moments.items()}
    restore(second, Tensors(tensors), State(**first.state.to_dict()))
    second.run()
    assert _same(_state(whole), _state(second))
    assert whole.state == second.state


def test_running_in_pieces_is_running_at_once():
    whole, pieces = _trainer(max_iter=90, noise=0.3), _trainer(max_iter=90, noise=0.3)
    whole.run()
    for until in (1, 20, 21, 64, 90):
        pieces.run(until=until)
    assert _same(_state(whole), _state(pieces))
    assert whole.state == pieces.state


def test_what_a_step_asks_for_is_applied_only_where_it_was_finite():
    point, evaluated, accepted = Point(), [], []

    def objective(step: int) -> Tensor:
        evaluated.append(step)
        broken = len(evaluated) == 4
        return _bound(point, step, 0.0) * (math.nan if broken else 1.0)

    trainer = Trainer(point, objective, 1, Options(max_iter=6), accept=accepted.append)
    with pytest.warns(NumericalWarning, match="Step 3 was undone"):
        trainer.run()
    assert evaluated == [0, 1, 2, 3, 0, 1, 2, 3, 4, 5]
    assert accepted == [0, 1, 2, 0, 1, 2, 3, 4, 5]
