"""The orchestrator: starts are raced by their bound, the best is trained, its weights are
conditioned on the data.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bochner.errors import warn_user
from bochner.fitting import landmarks
from bochner.fitting.multistart import Race
from bochner.fitting.noise_recalibration import noisier, withhold
from bochner.fitting.plan import Fit, Plan, Stopped, evaluate
from bochner.fitting.svd_compression import rotate
from bochner.fitting.warm_start import without_holes
from bochner.initialization import iterative_pca
from bochner.initialization.build import FloatArray
from bochner.likelihoods.gaussian import Gaussian
from bochner.likelihoods.nonconjugate import Likelihood
from bochner.models.lvm import LatentVariableModel
from bochner.objectives.elbo import Data
from bochner.objectives.subset_sites import Anchors
from bochner.training.checkpoint import Checkpoint
from bochner.training.progress import progress_bar
from bochner.training.trainer import State, Trainer
from bochner.weight_posterior.posterior import ViewPosterior, weights_posterior

Shown = Callable[[NDArray[np.intp] | None], FloatArray]

_POSTERIOR_DRAWS = 2
_LATENT_DRAWS = 4
# Beyond so many rows the noise of one draw of the latents averages out over rows.
_MANY_ROWS = 10_000
_JOINT_DRAWS = 4
# Draws of the final bound then: its standard error falls with the rows, too.
_FEW_DRAWS = 8


def fit(data: Data, shown: Shown, plan: Plan, stand_in: Data | None = None) -> Fit:
    """Fit a latent variable model.

    Parameters
    ----------
    data : tuple over views of tuples of Block
        Scaled, on the plan's device.
    shown : callable
        Rows -> their scaled data, all views side by side, NaN where missing: for starts. None: all
        rows.
    plan : Plan
    stand_in : tuple over views of tuples of Block, optional
        Gaussian data in place of those of views that are not Gaussian: where such a model starts.
        Gaussian views with scattered holes get theirs here.

    Returns
    -------
    Fit

    Notes
    -----
    KeyboardInterrupt during training keeps the state with the best smoothed bound; ``stopped`` says
    so, and the checkpoint, if there is one, holds where training was. It is the caller's to remove
    when all is done.
    """
    checkpoint = None if plan.checkpoint is None else Checkpoint(plan.checkpoint, plan.digest(data))
    index = (
        None
        if plan.landmarks is None
        else landmarks.choose(data, plan.n_rows, plan.landmarks, plan.seed)
    )
    chosen = data if index is None else landmarks.take(data, index, plan.n_rows)
    held = withhold(
        chosen,
        plan.n_rows if index is None else index.shape[0],
        plan.seed,
        none=stand_in is not None,
    )
    rotated, rotation = rotate(held.data, plan.truncation, plan.seed, plan.likelihoods)
    gaussian = (
        stand_in
        if index is None or stand_in is None
        else landmarks.take(stand_in, index, plan.n_rows)
    )
    # stand-ins of a hundred rotated columns say as much as those of all
    gaussian = (
        None
        if gaussian is None
        else rotate(gaussian, plan.truncation, plan.seed, _as_gaussian(plan))[0]
    )
    visible, here = _on_landmarks(shown, plan, index)
    whole = functools.cache(lambda: iterative_pca.fill(held.hide(visible()), plan.seed))
    race = Race(rotated, whole, here, gaussian or without_holes(held.data, whole, plan))
    try:
        trainer = _train(race, checkpoint, plan)
        stopped = _reason(trainer, plan)
    except KeyboardInterrupt:
        trainer, stopped = race.best(), "interrupted"
        if checkpoint is not None and race.decided:
            trainer.rewind()
            checkpoint.write(trainer, {"starts": race.results})
        trainer.restore_best()
        warn_user(
            f"Interrupted: the best state, of step {trainer.state.step}, is kept.", UserWarning
        )
    model, report = trainer.module, None
    excess = held.excess(
        functools.partial(_posterior, model, held.data, plan, n_draws=1), _means(model)
    )
    anchors: Anchors | None = None
    if index is not None and stand_in is not None:
        anchors = Anchors(index.to(plan.device), chosen)
        model = landmarks.spread(model, _posterior(model, chosen, plan), data, index, plan.n_rows)
        value, error = landmarks.evaluate_anchored(model, data, anchors, plan)
        report = {"n": index.shape[0], "elbo_placed": value, "elbo_joint": value}
    else:
        if index is not None:
            every = rotation.apply(data)
            model, report = _on_all_rows(
                model, every, rotated, index, plan, joint=stopped != "interrupted"
            )
        n_draws = _FEW_DRAWS if plan.n_rows > _MANY_ROWS else None
        value, error = evaluate(model, data, plan, "final", n_draws=n_draws, weighted=False)
    latents, kernels = _means(model), tuple(view.kernel.cpu() for view in model.views)
    posterior, history = (
        noisier(_posterior(model, data, plan, anchors), excess),
        list(trainer.state.history),
    )
    found = (posterior, latents, kernels, value, error, history, stopped, list(race.results))
    # one view: no view to complete, and no row to leave out for that
    draws = _latent_draws(model, plan) if len(posterior) > 1 else None
    return Fit(*found, list(trainer.state.blocks), report, list(rotation.dropped), draws)


def _as_gaussian(plan: Plan) -> list[Likelihood]:
    """Return the likelihoods of the views' stand-ins: their own where they are Gaussian already."""
    given = plan.likelihoods or (Gaussian(),) * len(plan.kernels)
    return [own if isinstance(own, Gaussian) else Gaussian() for own in given]


def _on_landmarks(
    shown: Shown, plan: Plan, index: Tensor | None
) -> tuple[Callable[[], FloatArray], Plan]:
    """Return what starts see of the rows that training sees, and the plan for them."""
    if index is None:
        return functools.partial(shown, None), plan
    rows = index.numpy()
    starts = tuple(s if isinstance(s, str) else s[rows] for s in plan.starts)
    return functools.partial(shown, rows), replace(plan, starts=starts)


def _on_all_rows(
    model: LatentVariableModel, data: Data, chosen: Data, index: Tensor, plan: Plan, joint: bool
) -> tuple[LatentVariableModel, dict[str, float]]:
    """Place the rows that are no landmarks and, if asked, train all together; the better of both by
    its bound.

    Data and chosen are the rotated columns of all rows and of the landmarks.
    """
    posterior = landmarks.as_if_whole(_posterior(model, landmarks.narrow(chosen), plan), chosen)
    placed = landmarks.spread(model, posterior, landmarks.narrow(data), index, plan.n_rows)
    before, _ = evaluate(placed, data, plan, "joint", n_draws=_JOINT_DRAWS)
    report = {"n": index.shape[0], "elbo_placed": before, "elbo_joint": before}
    if not joint:
        return placed, report
    trained = copy.deepcopy(placed)
    try:
        landmarks.train_jointly(trained, data, plan)
    except KeyboardInterrupt:
        warn_user("Interrupted: the steps over all rows were cut short.", UserWarning)
    after, _ = evaluate(trained, data, plan, "joint", n_draws=_JOINT_DRAWS)
    return (trained, {**report, "elbo_joint": after}) if after > before else (placed, report)


def _reason(trainer: Trainer[LatentVariableModel], plan: Plan) -> Stopped:
    if trainer.finished and trainer.state.plateau:
        return "plateau"
    return (
        "max_iter" if trainer.finished or trainer.state.step >= plan.training.max_iter else "failed"
    )


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


def _posterior(
    model: LatentVariableModel,
    data: Data,
    plan: Plan,
    anchors: Anchors | None = None,
    n_draws: int = _POSTERIOR_DRAWS,
) -> tuple[ViewPosterior, ...]:
    return weights_posterior(
        model,
        data,
        n_frequencies=plan.n_frequencies,
        n_draws=n_draws,
        n_latent_draws=_n_latent_draws(model),
        sampling=plan.sampling,
        seed=plan.seed,
        anchors=anchors,
    )


def _means(model: LatentVariableModel) -> Tensor:
    return model.latents.mean.detach().double().cpu()


def _latent_draws(model: LatentVariableModel, plan: Plan) -> Tensor:
    return torch.stack(model.latents.draws(_n_latent_draws(model), plan.seed)).double().cpu()


def _n_latent_draws(model: LatentVariableModel) -> int:
    return 1 if model.latents.mean.shape[0] > _MANY_ROWS else _LATENT_DRAWS
