"""A warm start of models whose likelihoods are not Gaussian: a short training on Gaussian stand-ins of the data.

A step on the stand-ins (centred zeros and ones, log(1 + count / size)) costs a tenth of one on the data themselves, and
the latents and kernels it ends with are close to those of the model proper: only the last part needs its bound.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bochner._typing import Sampling
from bochner.inference.mixture import sweeps
from bochner.inference.train import Options, Trainer
from bochner.likelihoods.gaussian import Gaussian
from bochner.models.lvm import LatentVariableModel, View
from bochner.objectives.elbo import Data, draw, elbo

STEPS = 200


def warm(
    model: LatentVariableModel,
    stand_in: Data,
    *,
    n_frequencies: int,
    sampling: Sampling,
    seed: int,
    learning_rate: float,
    n_steps: int = STEPS,
) -> None:
    """Move latents, kernels and Gaussian noise of a model to where the stand-ins put them.

    Parameters
    ----------
    model : LatentVariableModel
        Changed in place; its sites are left alone.
    stand_in : tuple over views of tuples of Block
        Gaussian data for every view.
    n_frequencies : int
        H.
    sampling : {"iid", "orthogonal", "sobol"}
    seed : int
    learning_rate : float
    n_steps : int
    """
    device = model.latents.mean.device
    own = [v.likelihood if v.sites is None else Gaussian(0.3).to(device) for v in model.views]
    views = [View(v.name, v.kernel, noise, None, v.dims, v.weight) for v, noise in zip(model.views, own, strict=True)]
    gaussian = LatentVariableModel(model.latents, views)
    n_entries = sum(block.Y.numel() for blocks in stand_in for block in blocks)

    def objective(step: int) -> Tensor:
        return elbo(gaussian, stand_in, draw(gaussian, n_frequencies, sampling, seed, "warm", step)).total

    between = sweeps(gaussian, stand_in, n_frequencies, sampling, seed)
    Trainer(gaussian, objective, n_entries, Options(n_steps, learning_rate, tol=-math.inf), between=between).run()
    with torch.no_grad():
        # the next bound weighs entries differently: latents may move again
        model.latents.log_std.clamp_(min=math.log(0.02))
