"""Our Adam takes the steps of torch's, and continues from its moments."""

import pytest
import torch
from torch import nn

from bochner.training.trainer import Adam


class _Module(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        source = torch.Generator().manual_seed(dim)
        self.a = nn.Parameter(torch.randn(5, dim, generator=source))
        self.b = nn.Parameter(torch.randn((), generator=source, dtype=torch.float64))
        self.unused = nn.Parameter(torch.ones(2))

    def loss(self):
        return (self.a.cos().sum() * self.b + self.a.square().sum() * 1e-3) * 1e-4


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_steps_are_those_of_torch(dim):
    ours, theirs = _Module(dim), _Module(dim)
    optimiser_of_ours = Adam(ours, 0.03)
    other = torch.optim.Adam(theirs.parameters(), lr=0.03, betas=(0.9, 0.99), eps=1e-12)
    for step in range(60):
        rate = 0.03 * (1.0 - step / 60)
        optimiser_of_ours.learning_rate = other.param_groups[0]["lr"] = rate
        for module, optimiser in ((ours, optimiser_of_ours), (theirs, other)):
            module.zero_grad()
            module.loss().backward()
            optimiser.step()
    torch.testing.assert_close(ours.a, theirs.a, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(ours.b, theirs.b, rtol=1e-6, atol=1e-8)
    assert torch.equal(ours.unused, torch.ones(2))
    assert not torch.equal(ours.a, _Module(dim).a)


def test_moments_continue_in_the_precision_of_the_parameters():
    module, again = _Module(2), _Module(2)
    whole, first = Adam(module, 0.1), Adam(again, 0.1)
    for step in range(6):
        if step == 3:
            moments = {
                i: {k: torch.as_tensor(v).clone() for k, v in s.items()}
                for i, s in first.state_dict()["state"].items()
            }
            first = Adam(again, 0.1)
            first.load_state_dict({"state": moments})
        for model, optimiser in ((module, whole), (again, first)):
            model.zero_grad()
            model.loss().backward()
            optimiser.step()
    assert torch.equal(module.a, again.a)
    assert torch.equal(module.b, again.b)
