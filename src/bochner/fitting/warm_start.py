"""A warm start of models whose bound is expensive: a short training on complete Gaussian surrogates
of the data.

A step on the surrogates (centred zeros and ones, log(1 + count / size), scattered holes filled from
leading components) costs a tenth of one on the data themselves, and the latents and kernels it ends
with are close to those of the model proper: only the last part needs its bound.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from bochner.dirichlet_process.sweeps import sweeps
from bochner.fitting.plan import Plan
from bochner.fitting.stacked import StackedRun, stackable
from bochner.likelihoods.likelihood import Gaussian, Likelihood
from bochner.models.lvm import LatentVariableModel, ModelSpec, View
from bochner.objectives.elbo import Draws, elbo
from bochner.regression.observations import Data
from bochner.training.trainer import RATES, Trainer

# At most: a warmed start is trained on afterwards.
STEPS = 100


@functools.singledispatch
def _gaussian(likelihood: Likelihood) -> Likelihood:  # noqa: ARG001 - surrogates replace its data
    """Return the likelihood of a view's surrogates, or of its data where they are Gaussian."""
    return Gaussian(0.3)


@_gaussian.register
def _(likelihood: Gaussian) -> Likelihood:
    return likelihood


def warm(model: LatentVariableModel, surrogates: Data, plan: Plan) -> None:
    """Move latents, kernels and Gaussian noise of a model to where the surrogates put them.

    Parameters
    ----------
    model : LatentVariableModel
        Changed in place; its sites are left alone.
    surrogates : tuple over views of tuples of Block
        Gaussian data for every view.
    plan : Plan
        Of the fit; at most ``STEPS`` of its steps are taken.
    """
    _trainer(model, surrogates, plan).run()
    _loosen(model)


def warm_together(
    models: Sequence[LatentVariableModel], surrogates: Data, plans: Sequence[Plan]
) -> bool:
    """Do what `warm` does to several models side by side; return whether every step could be taken.

    Parameters
    ----------
    models : sequence of LatentVariableModel
        `warms_together` says of which.
    surrogates : tuple over views of tuples of CompleteBlock
    plans : sequence of Plan
        Of each model.
    """
    trainers = [
        _trainer(model, surrogates, plan) for model, plan in zip(models, plans, strict=True)
    ]

    def draws(i: int, step: int) -> Draws:
        return plans[i].draws(trainers[i].module, "warm", step)

    length = trainers[0].options.max_iter
    done = StackedRun(trainers, draws, surrogates).run(length, settle=False)
    for model in models:
        _loosen(model)
    return done


def warms_together(spec: ModelSpec, surrogates: Data, n_rows: int, n_models: int) -> bool:
    """Return whether models of some kind can be warmed side by side."""
    views = [replace(view, likelihood=_gaussian(view.likelihood)) for view in spec]
    sizes = (n_rows, n_models, spec.n_features)
    return not spec.groups and stackable(views, surrogates, *sizes)


def _trainer(
    model: LatentVariableModel, surrogates: Data, plan: Plan
) -> Trainer[LatentVariableModel]:
    """Return what trains a model's latents, kernels and Gaussian noise on the surrogates."""
    gaussian = _on_surrogates(model)

    def objective(step: int) -> Tensor:
        return elbo(gaussian, surrogates, plan.draws(gaussian, "warm", step)).total

    between = None
    if plan.spec.has_sweeps:
        settings = (plan.spec.n_frequencies, plan.spec.sampling, plan.seed)
        between = sweeps(gaussian, surrogates, *settings)
    n_entries = sum(block.Y.numel() for blocks in surrogates for block in blocks)
    n_steps = min(STEPS, plan.training.max_iter)
    # slower than Gaussian data are trained: what fits the surrogates too well has far to go back
    options = replace(RATES, max_iter=n_steps, tol=-math.inf, decay=1.0, learning_rate=0.05)
    return Trainer(gaussian, objective, n_entries, options, between=between)


def _on_surrogates(model: LatentVariableModel) -> LatentVariableModel:
    """Return a model of the surrogates that shares latents, kernels and Gaussian noise."""
    device = model.latents.mean.device
    views = []
    for view in model.views:
        likelihood = _gaussian(view.likelihood).to(device)
        given = (None, view.dims, view.weight, view.groups)
        views.append(View(view.name, view.kernel, likelihood, *given))
        views[-1].log_factors = view.log_factors
    return LatentVariableModel(model.latents, views)


def _loosen(model: LatentVariableModel) -> None:
    with torch.no_grad():
        # the next bound weighs entries differently: latents may move again
        model.latents.log_std.clamp_(min=math.log(0.02))
