"""A warm start of models whose bound is dear: a short training on complete Gaussian stand-ins of
the data.

A step on the stand-ins (centred zeros and ones, log(1 + count / size), scattered holes filled from
leading components) costs a tenth of one on the data themselves, and the latents and kernels it ends
with are close to those of the model proper: only the last part needs its bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from bochner._typing import Sampling
from bochner.dirichlet_process.sweeps import sweeps
from bochner.fitting.plan import Plan
from bochner.fitting.svd_compression import rotate
from bochner.initialization.build import FloatArray
from bochner.likelihoods.gaussian import Gaussian
from bochner.models.lvm import LatentVariableModel, View
from bochner.objectives.elbo import Data, draw, elbo
from bochner.regression.statistics import Block
from bochner.training.trainer import RATES, Trainer

STEPS = 100


def without_holes(data: Data, filled: Callable[[], FloatArray], plan: Plan) -> Data | None:
    """Return Gaussian data with their scattered holes filled, rotated as complete views are; None
    if there are none.

    Parameters
    ----------
    data : tuple over views of tuples of Block
        Scaled.
    filled : callable
        Returns them side by side with missing entries filled, (N, sum of M).
    plan : Plan
    """
    if not any(block.sizes for blocks in data for block in blocks):
        return None
    out, end = [], 0
    for blocks in data:
        begin, end = end, end + sum(block.n_columns for block in blocks)
        if not any(block.sizes for block in blocks):
            out.append(blocks)
            continue
        Y = torch.tensor(filled()[:, begin:end], dtype=plan.dtype, device=plan.device)
        present = torch.zeros(Y.shape[0], dtype=torch.bool, device=plan.device)
        for block in blocks:
            present[slice(None) if block.rows is None else block.rows] = True
        rows = None if bool(present.all()) else present.nonzero()[:, 0]
        out.append((Block.of(Y if rows is None else Y[rows], rows),))
    return rotate(tuple(out), plan.truncation, plan.seed, plan.likelihoods)[0]


def warm(
    model: LatentVariableModel,
    stand_in: Data,
    *,
    n_frequencies: int,
    sampling: Sampling,
    seed: int,
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
    n_steps : int
    """
    device = model.latents.mean.device
    own = [v.likelihood if v.sites is None else Gaussian(0.3).to(device) for v in model.views]
    views = [
        View(v.name, v.kernel, noise, None, v.dims, v.weight)
        for v, noise in zip(model.views, own, strict=True)
    ]
    gaussian = LatentVariableModel(model.latents, views)
    n_entries = sum(block.Y.numel() for blocks in stand_in for block in blocks)

    def objective(step: int) -> Tensor:
        return elbo(
            gaussian, stand_in, draw(gaussian, n_frequencies, sampling, seed, "warm", step)
        ).total

    between = sweeps(gaussian, stand_in, n_frequencies, sampling, seed)
    # slower than Gaussian data are trained: what fits the stand-ins too well has far to go back
    options = replace(RATES, max_iter=n_steps, tol=-math.inf, decay=1.0, learning_rate=0.05)
    Trainer(gaussian, objective, n_entries, options, between=between).run()
    with torch.no_grad():
        # the next bound weighs entries differently: latents may move again
        model.latents.log_std.clamp_(min=math.log(0.02))
