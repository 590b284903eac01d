"""The orchestrator: starts are raced by their bound, the best is trained, its weights are
conditioned on the data.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from bochner.errors import warn_user
from bochner.fitting.data import FitData, TrainingData
from bochner.fitting.multistart import Race
from bochner.fitting.noise_recalibration import noisier
from bochner.fitting.plan import Fit, Plan, Stopped, condition, n_latent_draws
from bochner.fitting.row_selection import select
from bochner.models.lvm import LatentVariableModel
from bochner.training.checkpoint import Checkpoint
from bochner.training.progress import progress_bar
from bochner.training.trainer import State, Trainer


def fit(data: FitData, plan: Plan) -> Fit:
    """Fit a latent variable model.

    Parameters
    ----------
    data : FitData
    plan : Plan

    Returns
    -------
    Fit

    Notes
    -----
    KeyboardInterrupt during training keeps the state with the best smoothed bound; ``stopped`` says
    so, and the checkpoint, if there is one, holds where training was. It is the caller's to remove
    when all is done.
    """
    selection = select(data, plan)
    training = TrainingData(selection.rows, plan)
    race = Race(training, selection.plan)
    checkpoint = None
    if plan.checkpoint is not None:
        checkpoint = Checkpoint(plan.checkpoint, plan.digest(data.blocks))
    trainer, stopped = _train(race, checkpoint, plan)
    excess = training.withheld.excess(
        functools.partial(condition, trainer.module, training.complete, plan, n_draws=1),
        _means(trainer.module),
    )
    done = selection.finish(trainer.module, training, interrupted=stopped == "interrupted")
    # the last bound of a fit without landmarks comes before: kernels move to the processor here
    latents = _means(done.model)
    kernels = tuple(view.kernel.cpu() for view in done.model.views)
    posterior = condition(done.model, data.blocks, plan, done.anchors)
    return Fit(
        posterior=noisier(posterior, excess),
        latents=latents,
        kernels=kernels,
        elbo=done.elbo,
        elbo_se=done.elbo_se,
        history=list(trainer.state.history),
        stopped=stopped,
        starts=list(race.results),
        blocks=list(trainer.state.blocks),
        landmarks=done.landmarks,
        dropped=list(training.rotation.dropped),
        latent_draws=_latent_draws(done.model, plan),
    )


def _train(
    race: Race, checkpoint: Checkpoint | None, plan: Plan
) -> tuple[Trainer[LatentVariableModel], Stopped]:
    """Race and train until the end or an interrupt."""
    try:
        trainer = _run(race, checkpoint, plan)
        return trainer, _reason(trainer, plan)
    except KeyboardInterrupt:
        trainer = race.best()
        if checkpoint is not None and race.decided:
            trainer.rewind()
            checkpoint.write(trainer, {"starts": race.results})
        trainer.restore_best()
        step = trainer.state.step
        warn_user(f"Interrupted: the best state, of step {step}, is kept.", UserWarning)
        return trainer, "interrupted"


def _run(race: Race, checkpoint: Checkpoint | None, plan: Plan) -> Trainer[LatentVariableModel]:
    """Race, or continue from a checkpoint, and train until the end."""
    earlier = None if checkpoint is None else checkpoint.read()
    trainer = race.run() if earlier is None else race.resume(*earlier)
    with progress_bar("training", plan.training.max_iter, plan.shown) as bar:

        def on_step(state: State) -> None:
            bar(state)
            if checkpoint is not None:
                checkpoint.maybe(trainer, {"starts": race.results})

        trainer.run(on_step=on_step)
    return trainer


def _reason(trainer: Trainer[LatentVariableModel], plan: Plan) -> Stopped:
    if trainer.finished and trainer.state.plateau:
        return "plateau"
    if trainer.finished or trainer.state.step >= plan.training.max_iter:
        return "max_iter"
    return "failed"


def _means(model: LatentVariableModel) -> Tensor:
    return model.latents.mean.detach().double().cpu()


def _latent_draws(model: LatentVariableModel, plan: Plan) -> Tensor | None:
    """Return the draws of X behind the posterior, where a view may have to be completed."""
    if len(model.views) == 1:
        return None
    draws = model.latents.draws(n_latent_draws(model), plan.seed)
    return torch.stack(draws).double().cpu()
