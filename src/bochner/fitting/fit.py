"""The orchestrator: starts are raced by their bound, the best is trained, its weights are
conditioned on the data.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from bochner.errors import NumericalError, message, warn_user
from bochner.fitting import row_selection
from bochner.fitting.data import EveryRow, FitData, RowSelection, TrainingData
from bochner.fitting.multistart import Race
from bochner.fitting.plan import (
    Fit,
    Plan,
    StartResult,
    Stopped,
    condition,
    n_latent_draws,
)
from bochner.models.lvm import LatentVariableModel
from bochner.progress import expect, overall, progress_bar, say
from bochner.training.checkpoint import AnyCheckpoint, Checkpoint, Earlier, SharedCheckpoint
from bochner.training.trainer import NoCheckpoint, State, Trainer


def fit(data: FitData, plan: Plan) -> Fit:
    """Fit a latent variable model.

    Parameters
    ----------
    data : FitData
    plan : Plan

    Returns
    -------
    Fit

    Raises
    ------
    NumericalError
        The bound of what was trained is not finite.

    Notes
    -----
    KeyboardInterrupt during training keeps the state with the best smoothed bound; ``stopped`` says
    so, and the checkpoint, if there is one, holds where training was. It is the caller's to remove
    when all is done.
    """
    checkpoint = _checkpoint(data, plan)
    with overall("starts", plan.shown), checkpoint.begun() as earlier:
        expect(plan.training.max_iter)
        return _fit(data, plan, checkpoint, earlier)


def _checkpoint(data: FitData, plan: Plan) -> AnyCheckpoint:
    if plan.checkpoint is None:
        return NoCheckpoint()
    # without columns they say how many rows this process has, and no more; a checksum knows them
    beside = [data.covariates.values] if data.covariates.groups else []
    if data.checksum is not None:
        beside = []
    checkpoint = Checkpoint(
        plan.checkpoint, plan.digest(data.blocks, *beside, checksum=data.checksum)
    )
    if plan.processes.size == 1:
        return checkpoint
    return SharedCheckpoint(
        checkpoint if plan.processes.rank == 0 else NoCheckpoint(), plan.processes
    )


def _rows(data: FitData, plan: Plan) -> RowSelection:
    """Return the rows to train on: all of them, or landmarks."""
    if plan.landmarks is None:
        return EveryRow(data, plan)
    return row_selection.select(data, plan, plan.landmarks)


def _fit(data: FitData, plan: Plan, checkpoint: AnyCheckpoint, earlier: Earlier | None) -> Fit:
    selection = _rows(data, plan)
    training = TrainingData(selection.rows, plan)
    race = Race(training, selection.plan)
    model, trained = _trained(race, plan, lambda: _train(race, checkpoint, earlier, plan))
    state = trained.state
    say("placing rows")
    recalibrated = training.withheld.recalibration(
        functools.partial(condition, model, training.complete, plan, n_draws=1),
        _means(model),
        training.covariates.values.double().cpu(),
    )
    interrupted = trained.stopped == "interrupted"
    done = selection.finish(model, training, interrupted=interrupted)
    if not math.isfinite(done.elbo):
        # such a model gives values that are not finite, and no file takes it
        raise NumericalError(_without_bound(done.elbo, state.step))
    say("posterior of the weights")
    posterior = condition(done.model, data.blocks, plan, done.anchors)
    # moved where they stand: nothing after it needs the model's kernels where it was trained
    kernels = tuple(view.kernel.cpu() for view in done.model.views)
    latents = _means(done.model)
    return Fit(
        posterior=recalibrated(posterior),
        latents=latents,
        kernels=kernels,
        elbo=done.elbo,
        elbo_se=done.elbo_se,
        history=list(state.history),
        stopped="interrupted" if done.interrupted else trained.stopped,
        starts=list(trained.starts),
        blocks=list(state.blocks),
        landmarks=done.landmarks,
        dropped=list(training.rotation.dropped),
        withheld=training.withheld.counts(),
        latent_draws=_latent_draws(done.model, plan),
    )


@dataclass(frozen=True)
class _Trained:
    """What training found.

    Attributes
    ----------
    parameters : dict of str to Tensor
        Of the model.
    state : State
    starts : list of StartResult
    stopped : Stopped
    """

    parameters: dict[str, Tensor]
    state: State
    starts: list[StartResult]
    stopped: Stopped


def _trained(
    race: Race,
    plan: Plan,
    train: Callable[[], tuple[Trainer[LatentVariableModel], Stopped]],
) -> tuple[LatentVariableModel, _Trained]:
    """Train, the first process alone, and return its model in all of them: what they round in
    different ways they would decide in different ways.
    """
    models: list[LatentVariableModel] = []

    def of_first() -> _Trained:
        trainer, stopped = train()
        models.append(trainer.module)
        parameters = trainer.module.state_dict()
        return _Trained(parameters, trainer.state, race.results, stopped)

    trained = plan.processes.of_first(of_first)
    return models[0] if models else race.model_of(trained.parameters), trained


def _train(
    race: Race, checkpoint: AnyCheckpoint, earlier: Earlier | None, plan: Plan
) -> tuple[Trainer[LatentVariableModel], Stopped]:
    """Race and train until the end or an interrupt."""
    try:
        trainer = _run(race, checkpoint, earlier, plan)
        return trainer, _reason(trainer, plan)
    except KeyboardInterrupt:
        trainer = race.best()
        # before, the checkpoint is that of the last start
        if race.decided:
            trainer.rewind()
            checkpoint.write(trainer, race.progress())
        if plan.processes.size > 1:
            # the others go on: all end, and continue from the checkpoint
            raise
        trainer.restore_best()
        step = trainer.state.step
        warn_user(f"Interrupted: the best state, of step {step}, is kept.", UserWarning)
        return trainer, "interrupted"


def _run(
    race: Race, checkpoint: AnyCheckpoint, earlier: Earlier | None, plan: Plan
) -> Trainer[LatentVariableModel]:
    """Race, or continue from a checkpoint, and train until the end."""
    trainer = race.run(checkpoint) if earlier is None else race.resume(*earlier, checkpoint)
    with progress_bar("training", plan.training.max_iter, plan.shown) as bar:

        def on_step(state: State) -> None:
            bar(state, trainer.last_step)
            checkpoint.maybe(trainer, race.progress())

        trainer.run(on_step=on_step)
    if plan.landmarks is not None:
        # other rows are placed under this very model, by whoever goes on
        checkpoint.write(trainer, race.progress())
    return trainer


def _reason(trainer: Trainer[LatentVariableModel], plan: Plan) -> Stopped:
    if trainer.finished and trainer.state.plateau:
        return "plateau"
    if trainer.finished or trainer.state.step >= plan.training.max_iter:
        return "max_iter"
    return "failed"


def _without_bound(elbo: float, step: int) -> str:
    return message(
        "a finite bound of the trained model",
        f"{elbo} after {step} steps",
        "look for entries far larger than the others, or try another init or a smaller "
        "learning_rate",
    )


def _means(model: LatentVariableModel) -> Tensor:
    return model.latents.mean.detach().double().cpu()


def _latent_draws(model: LatentVariableModel, plan: Plan) -> Tensor | None:
    """Return the draws of X behind the posterior, where a view may have to be completed by a
    mixture.
    """
    if len(model.views) == 1 or model.latents.covariates.shape[1]:
        return None
    count = n_latent_draws(model, plan)
    draws = model.latents.draws(count, plan.seed, plan.processes.start)
    return torch.stack(draws).double().cpu()
