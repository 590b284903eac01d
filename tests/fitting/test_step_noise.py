"""Steps of training draw the latents on both sides of their means."""

import math

import torch

from bochner.fitting.plan import Plan
from bochner.kernels import RBF
from bochner.likelihoods.likelihood import Gaussian
from bochner.models.lvm import (
    GaussianLatents,
    LatentVariableModel,
    Layout,
    ModelSpec,
    View,
    ViewSpec,
)
from bochner.objectives.elbo import elbo
from bochner.regression.observations import CompleteBlock
from bochner.training.trainer import Options

N, D, H = 30, 2, 6


def _plan(seed: int = 0) -> Plan:
    views = (ViewSpec("x", RBF(), Gaussian(0.3), 1.0),)
    spec = ModelSpec(views, Layout(D, (0,)), 1, H, "sobol", H)
    return Plan(spec, ("pca",), math.inf, Options(), seed)


def _model() -> LatentVariableModel:
    source = torch.Generator().manual_seed(0)
    mean = torch.randn(N, D, generator=source)
    kernel = RBF().initial(1, D, source)
    return LatentVariableModel(
        GaussianLatents(mean, torch.full_like(mean, -2.0)), [View("x", kernel, Gaussian(0.3))]
    )


def test_steps_go_in_pairs_whose_latents_mirror_each_other_and_whose_spectra_do_not():
    plan, model = _plan(), _model()
    draws = [plan.step_draws(model, step) for step in range(6)]
    for i in (0, 2, 4):
        torch.testing.assert_close(draws[i].latents, -draws[i + 1].latents, rtol=0, atol=0)
        assert not torch.equal(draws[i].spectra[0], draws[i + 1].spectra[0])
    assert not torch.equal(draws[1].latents.abs(), draws[2].latents.abs())
    # a fit that continues at an odd step has the noise of one that never stopped
    again = _plan().step_draws(_model(), 3)
    torch.testing.assert_close(again.latents, draws[3].latents, rtol=0, atol=0)


def test_the_mean_gradient_of_a_pair_is_less_noisy_than_that_of_two_draws():
    plan, model = _plan(), _model()
    data = (
        (CompleteBlock.of(torch.randn(N, 4, generator=torch.Generator().manual_seed(1))),),
    )

    def spread(draws_of) -> float:
        """Variance of means over two steps, of all gradients of the means."""
        means = []
        for i in range(100):
            model.zero_grad()
            for step in (2 * i, 2 * i + 1):
                (0.5 * elbo(model, data, draws_of(step)).total).backward()
            means.append(model.latents.mean.grad.clone())
        return float(torch.stack(means).var(0).sum())

    mirrored = spread(lambda step: plan.step_draws(model, step))
    independent = spread(lambda step: plan.draws(model, "train", step))
    assert mirrored < 0.9 * independent
