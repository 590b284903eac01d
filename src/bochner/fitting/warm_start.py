"""A warm start of models whose bound is expensive: a short training on complete Gaussian surrogates
of the data.

A step on the surrogates (centred zeros and ones, log(1 + count / size), scattered holes filled from
leading components) costs a tenth of one on the data themselves, and the latents and kernels it ends
with are close to those of the model proper: only the last part needs its bound.
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace

import torch
from torch import Tensor

from bochner.dirichlet_process.sweeps import sweeps
from bochner.fitting.plan import Plan
from bochner.likelihoods.gaussian import Gaussian
from bochner.likelihoods.likelihood import Likelihood
from bochner.models.lvm import LatentVariableModel, View
from bochner.objectives.elbo import elbo
from bochner.regression.observations import Data
from bochner.training.trainer import RATES, Trainer

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
    device = model.latents.mean.device
    learned = [_gaussian(v.likelihood).to(device) for v in model.views]
    views = [
        View(v.name, v.kernel, noise, None, v.dims, v.weight, v.groups)
        for v, noise in zip(model.views, learned, strict=True)
    ]
    for view, of_model in zip(views, model.views, strict=True):
        view.log_factors = of_model.log_factors
    gaussian = LatentVariableModel(model.latents, views)
    n_entries = sum(block.Y.numel() for blocks in surrogates for block in blocks)
    n_steps = min(STEPS, plan.training.max_iter)

    def objective(step: int) -> Tensor:
        return elbo(gaussian, surrogates, plan.draws(gaussian, "warm", step)).total

    between = None
    if plan.spec.has_sweeps:
        settings = (plan.spec.n_frequencies, plan.spec.sampling, plan.seed)
        between = sweeps(gaussian, surrogates, *settings)
    # slower than Gaussian data are trained: what fits the surrogates too well has far to go back
    options = replace(RATES, max_iter=n_steps, tol=-math.inf, decay=1.0, learning_rate=0.05)
    Trainer(gaussian, objective, n_entries, options, between=between).run()
    with torch.no_grad():
        # the next bound weighs entries differently: latents may move again
        model.latents.log_std.clamp_(min=math.log(0.02))
