"""The divergence against Monte Carlo and torch."""

from __future__ import annotations

import pytest
import torch
from torch import distributions

from bochner.models.lvm import GaussianLatents, kl_standard_normal


def draw(n: int, d: int) -> tuple[torch.Tensor, torch.Tensor]:
    source = torch.Generator().manual_seed(0)
    mean = torch.randn(n, d, generator=source, dtype=torch.float64)
    return mean, 0.5 * torch.randn(n, d, generator=source, dtype=torch.float64)


def test_kl_is_the_mean_log_ratio():
    mean, log_std = draw(3, 2)
    eps = torch.randn(
        40_000, 3, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64
    )
    x = mean + log_std.exp() * eps
    ratio = (-log_std - 0.5 * eps.square() + 0.5 * x.square()).sum((1, 2))
    z = (ratio.mean() - kl_standard_normal(mean, log_std)) / (ratio.std() / len(ratio) ** 0.5)
    assert abs(float(z)) < 4


def test_kl_is_torchs_and_zero_at_the_prior():
    mean, log_std = draw(5, 3)
    prior = distributions.Normal(torch.zeros_like(mean), torch.ones_like(mean))
    expected = distributions.kl_divergence(
        distributions.Normal(mean, log_std.exp()), prior
    ).sum()
    torch.testing.assert_close(kl_standard_normal(mean, log_std), expected)
    assert float(kl_standard_normal(torch.zeros(4, 2), torch.zeros(4, 2))) == 0.0


def test_kl_is_summed_in_float64():
    # 10^6 rows of 1/2 + 1e-4: a float32 sum loses the small part
    mean = torch.full((1_000_000, 1), 1.0001)
    value = kl_standard_normal(mean, torch.zeros_like(mean))
    assert value.dtype == torch.float64
    torch.testing.assert_close(
        value, 0.5 * 1e6 * mean[0, 0].double().square(), rtol=1e-12, atol=0
    )


@pytest.mark.parametrize("shape", [(5, 1), (5, 3), (2, 4, 2)])
def test_latents_and_their_divergence_in_one_operation(shape):
    source = torch.Generator().manual_seed(0)
    mean, log_std, noise = torch.randn(3, *shape, generator=source, dtype=torch.float64)
    latents = GaussianLatents(mean, log_std)
    x, kl = latents.sample_with_kl(noise)
    written_out = latents.mean + latents.log_std.exp() * noise
    torch.testing.assert_close(x, written_out)
    torch.testing.assert_close(latents.sample(noise), written_out)
    torch.testing.assert_close(kl, latents.kl())

    factors = torch.randn(shape, generator=source, dtype=torch.float64)
    parts = [(factors * x).sum() + 3.0 * kl.sum(), (factors * written_out).sum()]
    parts[1] = parts[1] + 3.0 * latents.kl().sum()
    one, other = (torch.autograd.grad(part, list(latents.parameters())) for part in parts)
    torch.testing.assert_close(one, other)
