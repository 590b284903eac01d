"""The orchestrator: starts are raced by their bound, the best is trained, its weights are conditioned on the data."""

from __future__ import annotations

import warnings
from collections.abc import Callable

from bochner.inference.checkpoint import Checkpoint
from bochner.inference.initialise import FloatArray
from bochner.inference.plan import Fit, Plan, Stopped, evaluate
from bochner.inference.posterior import weights_posterior
from bochner.inference.progress import progress_bar
from bochner.inference.race import Race
from bochner.inference.train import State, Trainer
from bochner.models.lvm import LatentVariableModel
from bochner.objectives.elbo import Data

_POSTERIOR_DRAWS = 2
_LATENT_DRAWS = 4


def fit(data: Data, filled: Callable[[], FloatArray], plan: Plan, stand_in: Data | None = None) -> Fit:
    """Fit a latent variable model.

    Parameters
    ----------
    data : tuple over views of tuples of Block
        Scaled, on the plan's device.
    filled : callable
        Returns the scaled data with missing entries at 0, for the starts that need them.
    plan : Plan
    stand_in : tuple over views of tuples of Block, optional
        Gaussian data in place of those of views that are not Gaussian: where such a model starts.

    Returns
    -------
    Fit

    Notes
    -----
    KeyboardInterrupt during training keeps the state with the best smoothed bound; ``stopped`` says so, and the
    checkpoint, if there is one, holds where training was. It is the caller's to remove when all is done.
    """
    checkpoint = None if plan.checkpoint is None else Checkpoint(plan.checkpoint, plan.digest(data))
    race = Race(data, filled, plan, stand_in)
    try:
        trainer = _train(race, checkpoint, plan)
        stopped = _reason(trainer, plan)
    except KeyboardInterrupt:
        trainer, stopped = race.best(), "interrupted"
        if checkpoint is not None and race.decided:
            trainer.rewind()
            checkpoint.write(trainer, {"starts": race.results})
        trainer.restore_best()
        warnings.warn(f"Interrupted: the best state, of step {trainer.state.step}, is kept.", UserWarning, stacklevel=3)
    return _finish(trainer, data, plan, race, stopped)


def _reason(trainer: Trainer[LatentVariableModel], plan: Plan) -> Stopped:
    if trainer.finished and trainer.state.plateau:
        return "plateau"
    return "max_iter" if trainer.finished or trainer.state.step >= plan.training.max_iter else "failed"


def _train(race: Race, checkpoint: Checkpoint | None, plan: Plan) -> Trainer[LatentVariableModel]:
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


def _finish(trainer: Trainer[LatentVariableModel], data: Data, plan: Plan, race: Race, stopped: Stopped) -> Fit:
    model = trainer.module
    value, error = evaluate(model, data, plan, "final")
    posterior = weights_posterior(
        model,
        data,
        n_frequencies=plan.n_frequencies,
        n_draws=_POSTERIOR_DRAWS,
        n_latent_draws=_LATENT_DRAWS,
        sampling=plan.sampling,
        seed=plan.seed,
    )
    latents = model.latents.mean.detach().double().cpu()
    kernels = tuple(view.kernel.cpu() for view in model.views)
    history, blocks = list(trainer.state.history), list(trainer.state.blocks)
    return Fit(posterior, latents, kernels, value, error, history, stopped, list(race.results), blocks)
