"""Variances of kernels on log odds do not run away."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch

import bochner as bo
from bochner.data.masks import FullMask
from bochner.errors import InputError
from bochner.kernels import RBF, SpectralMixture
from bochner.likelihoods import Bernoulli, Gaussian
from bochner.models import limits
from bochner.models.limits import finest
from bochner.models.lvm import GaussianLatents, LatentVariableModel, View
from bochner.models.sites import Sites

KERNELS = {
    "one": lambda: RBF(variance=1e6),
    "mixture": lambda: SpectralMixture(
        weights=[1e6, 2.0], means=[[0.0], [1.0]], scales=[[1.0], [1.0]]
    ),
}


def variance(kernel) -> float:
    x = torch.zeros(1, 1, dtype=torch.float64)
    return float(kernel(x, x))


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_log_odds_have_a_largest_variance(kernel):
    x = torch.zeros(4, 1, dtype=torch.float64)
    likelihood = Bernoulli()
    sites = Sites(likelihood, torch.zeros(4, 2), FullMask(), torch.zeros(4))
    views = [View("odds", kernel(), likelihood, sites), View("real", kernel(), Gaussian())]
    before = [variance(view.kernel) for view in views]
    model = LatentVariableModel(GaussianLatents(x, x), views)
    model.project()
    assert variance(model.views[0].kernel) == pytest.approx(1e3 + before[0] - 1e6, rel=1e-9)
    assert variance(model.views[1].kernel) == before[1]
    again = [variance(view.kernel) for view in model.views]
    model.project()
    assert [variance(view.kernel) for view in model.views] == again


@pytest.mark.parametrize("trained", [True, False])
def test_a_component_does_not_turn_whiter_and_whiter(trained):
    """Noise in the gradients of a scale of 1e5 took a fit 140,000 nats down."""
    kernel = SpectralMixture([1.0], [[0.5, 0.0]], [[1e5, 2.0]]).requires_grad_(trained)
    x = torch.zeros(2, 2)
    LatentVariableModel(GaussianLatents(x, x), [View("real", kernel, Gaussian())]).project()
    wanted = torch.tensor([[math.exp(4.0) if trained else 1e5, 2.0]], dtype=torch.float64)
    torch.testing.assert_close(kernel.log_scales.detach().exp(), wanted)


def test_spectra_are_no_finer_than_the_latents_are_known():
    """Of counts whose logarithms spread widely components went on, and the bound fell by 600
    nats.
    """
    log_std = torch.tensor([[0.1, 0.5, 1.0], [0.4, 0.5, 1.0]]).log()
    most = finest(log_std)
    torch.testing.assert_close(most.exp(), torch.tensor([10.0, 4.0, 2.0]))
    wide = [[50.0, 1.0, 50.0]]
    all_dims = SpectralMixture([1.0], [[0.0] * 3], wide).requires_grad_()
    last = SpectralMixture([1.0], [[0.0]], [[50.0]]).requires_grad_()
    fixed = SpectralMixture([1.0], [[0.0] * 3], wide).requires_grad_(False)
    kernels = {"all": (all_dims, None), "last": (last, (2,)), "fixed": (fixed, None)}
    views = [View(name, k, Gaussian(), dims=dims) for name, (k, dims) in kernels.items()]
    LatentVariableModel(GaussianLatents(log_std, log_std), views).project(most)
    found = [view.kernel.log_scales.detach().exp().float() for view in views]
    for scales, wanted in zip(found, ([[10.0, 1.0, 2.0]], [[2.0]], wide), strict=True):
        torch.testing.assert_close(scales, torch.tensor(wanted))


def test_a_scale_without_dimensions_keeps_to_the_limit_of_all():
    kernel = RBF().requires_grad_()
    kernel.register_parameter("log_scales", torch.nn.Parameter(torch.tensor(9.0)))
    limits.limit_scales(kernel, torch.zeros(3))
    assert float(kernel.log_scales.detach()) == 4.0


def test_counts_whose_logarithms_spread_widely_end_where_training_has_been():
    """Noise in the latents' gradients took this fit from -2,000 nats to -2,360."""
    source = np.random.default_rng(102)
    z = source.normal(size=(80, 2))
    waves = np.cos(
        z @ (0.8 * source.normal(size=(60, 2))).T + source.uniform(0, 2 * np.pi, 60)
    )
    log_mean = 1.0 + 2.0 * np.sqrt(2 / 60) * waves @ source.normal(size=(60, 8))
    X = source.poisson(np.exp(log_mean)).astype(float)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = bo.NGMVLVM(likelihood="poisson", init=z, random_state=102).fit(X)
    history = np.array(model.elbo_history_)
    best = max(history[i : i + 10].mean() for i in range(0, len(history) - 10, 10))
    assert model.elbo_ > best - 0.1 * X.size


def test_a_row_is_not_much_less_sure_than_the_prior():
    """Noise in gradients once made a row's standard deviation 150 and its divergence 11,000
    nats.
    """
    log_std = torch.tensor([[-4.0, 0.3], [5.0, 0.0]])
    latents = GaussianLatents(torch.zeros(2, 2), log_std)
    LatentVariableModel(latents, [View("real", RBF(), Gaussian())]).project()
    wanted = torch.tensor([[-4.0, 0.3], [math.log(2.0), 0.0]])
    torch.testing.assert_close(latents.log_std.detach(), wanted)


def test_a_fixed_variance_stays():
    kernel = RBF(variance=1e5).requires_grad_(False)
    sites = Sites(Bernoulli(), torch.zeros(4, 2), FullMask(), torch.zeros(4))
    x = torch.zeros(4, 1, dtype=torch.float64)
    views = [View("odds", kernel, Bernoulli(), sites)]
    LatentVariableModel(GaussianLatents(x, x), views).project()
    assert variance(kernel) == pytest.approx(1e5)


@pytest.mark.parametrize("least", [float("nan"), -1.0, [0.1, float("inf")]])
def test_a_least_noise_that_is_none_is_refused(least):
    with pytest.raises(InputError, match="least finite and at least 0"):
        Gaussian([0.3, 0.3], least)


def test_columns_that_say_the_same_are_fitted():
    # the bound of the same ones and zeros twice rises with the kernel's variance
    source = torch.Generator().manual_seed(100)
    ones = (torch.rand(120, 1, generator=source) < 0.4).double()
    X = torch.cat([ones, 1.0 - ones, ones], dim=1).numpy()
    model = bo.NGMVLVM(1, likelihood="bernoulli", max_iter=300, random_state=0).fit(X)
    assert sum(model.kernels_["x"]["weights"]) <= 2.002e3
    sure = model.inverse_transform(model.embedding_)
    assert abs(sure - X).max() < 0.1
