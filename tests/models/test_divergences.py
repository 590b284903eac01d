"""The divergence against Monte Carlo and torch."""

from __future__ import annotations

import torch
from torch import distributions

from bochner.models.lvm import kl_standard_normal


def draw(n: int, d: int) -> tuple[torch.Tensor, torch.Tensor]:
    source = torch.Generator().manual_seed(0)
    mean = torch.randn(n, d, generator=source, dtype=torch.float64)
    return mean, 0.5 * torch.randn(n, d, generator=source, dtype=torch.float64)


def test_kl_is_the_mean_log_ratio():
    mean, log_std = draw(3, 2)
    eps = torch.randn(40_000, 3, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    x = mean + log_std.exp() * eps
    ratio = (-log_std - 0.5 * eps.square() + 0.5 * x.square()).sum((1, 2))
    z = (ratio.mean() - kl_standard_normal(mean, log_std)) / (ratio.std() / len(ratio) ** 0.5)
    assert abs(float(z)) < 4


def test_kl_is_torchs_and_zero_at_the_prior():
    mean, log_std = draw(5, 3)
    prior = distributions.Normal(torch.zeros_like(mean), torch.ones_like(mean))
    expected = distributions.kl_divergence(distributions.Normal(mean, log_std.exp()), prior).sum()
    torch.testing.assert_close(kl_standard_normal(mean, log_std), expected)
    assert float(kl_standard_normal(torch.zeros(4, 2), torch.zeros(4, 2))) == 0.0


def test_kl_is_summed_in_float64():
    # 10^6 rows of 1/2 + 1e-4: a float32 sum loses the small part
    mean = torch.full((1_000_000, 1), 1.0001)
    value = kl_standard_normal(mean, torch.zeros_like(mean))
    assert value.dtype == torch.float64
    torch.testing.assert_close(value, 0.5 * 1e6 * mean[0, 0].double().square(), rtol=1e-12, atol=0)
