"""The Gaussian mixture over frequencies: its closed-form blocks never lower its bound and match
hand-made cases.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.distributions import MultivariateNormal, Wishart

from bochner import random
from bochner.krein.frequency_mixture import FrequencyMixture, Moments
from helpers.tensor_sizes import LargestTensor

pytestmark = pytest.mark.filterwarnings("ignore:Singular sample detected")


def moments(d: int, n: int = 30, full: bool = False) -> Moments:
    source = random.generator(0, "moments", d)
    mean = torch.randn(n, d, generator=source, dtype=torch.float64)
    mean[: n // 3] += 4.0
    variance = 0.1 * torch.rand(n, d, generator=source, dtype=torch.float64) + 0.01
    return Moments(mean, torch.diag_embed(variance) if full else variance)


def start(d: int, full: bool = False) -> tuple[FrequencyMixture, Moments]:
    known = moments(d, full=full)
    return FrequencyMixture.start(known, 4, 1.5, random.generator(0, "mixture")), known


@pytest.mark.parametrize("d", [1, 2, 3])
def test_every_block_raises_the_bound(d):
    mixture, known = start(d)
    values = [mixture.bound(known)]
    for _ in range(15):
        for block in (
            mixture.update_assignments(known),
            mixture.update_assignments(known).update_sticks(),
            mixture.update_assignments(known).update_sticks().update_centres(known),
            mixture.update(known),
        ):
            values.append(block.bound(known))
        mixture = block
    steps = torch.stack(values).diff()
    assert (steps > -1e-9).all()
    assert values[-1] > values[0] + 1.0
    counts = mixture.responsibilities.sum(0).sort(descending=True).values
    assert counts[:2].sum() > 0.75 * counts.sum(), (
        "two clusters: the other components nearly die out"
    )


@pytest.mark.parametrize("name", ["centre", "centre_cov", "scale", "dof"])
def test_updates_are_stationary_points(name):
    mixture, known = start(2)
    mixture = mixture.update(known)
    mixture = (
        mixture.update_centres(known)
        if name.startswith("centre")
        else mixture.update_scales(known)
    )
    free = getattr(mixture, name).clone().requires_grad_()
    (gradient,) = torch.autograd.grad(replace(mixture, **{name: free}).bound(known), free)
    torch.testing.assert_close(gradient, torch.zeros_like(gradient), atol=1e-7, rtol=0)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_diagonal_and_full_covariances_agree(d):
    (one, diagonal), (two, full) = start(d), start(d, full=True)
    torch.testing.assert_close(
        one.update(diagonal).bound(diagonal), two.update(full).bound(full)
    )


@pytest.mark.parametrize("d", [1, 2, 3])
def test_expected_log_density_is_that_of_draws(d):
    mixture, known = start(d)
    torch.manual_seed(0)
    n, k, h = 40_000, 1, 2
    precision = Wishart(mixture.dof[k], mixture.scale[k]).sample((n,))
    centre = MultivariateNormal(mixture.centre[k], mixture.centre_cov[k]).sample((n,))
    w = known.mean[h] + known.variance[h].sqrt() * torch.randn(n, d, dtype=torch.float64)
    draws = MultivariateNormal(centre, precision_matrix=precision).log_prob(w)
    error = (draws.mean() - mixture.expected_log_density(known)[h, k]).abs()
    assert error < 5 * draws.std() / n**0.5


@pytest.mark.parametrize("d", [1, 2, 3])
def test_divergence_of_scales_is_that_of_draws(d):
    mixture, _ = start(d)
    torch.manual_seed(0)
    total, variance, n = 0.0, 0.0, 20_000
    prior = Wishart(
        torch.tensor(d + 2.0).double(), torch.eye(d).double() / ((d + 2.0) * 1.5**2)
    )
    for k in range(4):
        q = Wishart(mixture.dof[k], mixture.scale[k])
        draws = q.sample((n,))
        ratio = q.log_prob(draws) - prior.log_prob(draws)
        total, variance = total + float(ratio.mean()), variance + float(ratio.var()) / n
    assert abs(total - float(mixture._kl_scales())) < 5 * variance**0.5
    assert float(mixture._kl_scales()) > 0


def test_prior_pulls_as_the_mixture_says():
    mixture, _ = start(2)
    precision, natural = mixture.natural_parameters()
    phi = mixture.responsibilities[3]
    torch.testing.assert_close(
        precision[3], sum(phi[k] * mixture.precision[k] for k in range(4))
    )
    torch.testing.assert_close(
        natural[3], sum(phi[k] * mixture.precision[k] @ mixture.centre[k] for k in range(4))
    )


def test_no_tensor_has_frequencies_beside_covariances():
    """With 784 frequencies of 784 columns one took 38 GB, and the process was killed."""
    n, d, n_mixtures = 40, 20, 4
    source = random.generator(0, "sizes")
    mean = torch.randn(n, d, generator=source, dtype=torch.float64)
    known = Moments(mean, torch.ones_like(mean))
    with LargestTensor() as largest:
        mixture = FrequencyMixture.start(known, n_mixtures, 1.5, source).update(known)
        mixture.bound(known)
    assert largest.numel <= max(n * n_mixtures * d, n_mixtures * d * d)
    with LargestTensor() as largest:
        mixture.natural_parameters()
    assert largest.numel <= n * d * d
