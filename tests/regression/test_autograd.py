"""A value that brings its own gradients is differentiable like any other."""

import pytest
import torch

from bochner.linalg import closed_form


@pytest.mark.parametrize("batch", [(), (3,)])
def test_gradients_are_scaled_and_arrive(batch):
    source = torch.Generator().manual_seed(0)
    a = torch.randn((*batch, 4, 2), generator=source, dtype=torch.float64, requires_grad=True)
    b = torch.randn(batch, generator=source, dtype=torch.float64, requires_grad=True)
    asked = []

    def compute(wanted):
        asked.append(wanted)
        value = a.square().sum((-2, -1)) * b
        return value, (2.0 * a * b[..., None, None], None, a.square().sum((-2, -1)))

    weight = torch.randn(batch, generator=source, dtype=torch.float64)
    fast = (closed_form(compute, a, None, b) * weight).sum()
    slow = (a.square().sum((-2, -1)) * b * weight).sum()
    for ours, theirs in zip(
        torch.autograd.grad(fast, (a, b)), torch.autograd.grad(slow, (a, b)), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-14, atol=0.0)
    closed_form(compute, a.detach(), None, b.detach())
    assert asked == [True, False]
