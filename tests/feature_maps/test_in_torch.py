"""Feature maps within models of torch: compiled, differentiated, exported."""

import numpy as np
import pytest
import torch
from torch import nn

from bochner import FourierFeatures, KreinFeatures, RandomMaclaurin, SphericalFeatures
from bochner.errors import InputError
from bochner.features.fourier import fourier_features
from bochner.kernels import Frequencies

MAPS = [
    FourierFeatures(n_components=6, random_state=0),
    KreinFeatures("tl1", n_components=6, inference="spectral", random_state=0),
    KreinFeatures("hellinger", n_components=6, inference="spectral", random_state=0),
    RandomMaclaurin(n_components=6, random_state=0),
    SphericalFeatures(n_components=6, random_state=0),
]
over_maps = pytest.mark.parametrize("model", MAPS, ids=lambda m: type(m).__name__)


@pytest.fixture
def X():
    return np.random.default_rng(100).uniform(0.05, 0.95, size=(12, 4))


class Net(nn.Module):
    """A linear classifier of the features of a layer."""

    def __init__(self, features):
        super().__init__()
        self.features = features
        self.inside = nn.Linear(4, 4).double()
        self.outside = nn.Linear(6, 1).double()

    def forward(self, x):
        return self.outside(self.features.transform(torch.sigmoid(self.inside(x))))


@over_maps
def test_models_with_a_map_inside_are_compiled(X, model):
    torch.manual_seed(0)
    net = Net(model.fit(X))
    x = torch.from_numpy(X)
    expected = net(x)
    expected.sum().backward()
    slope = net.inside.weight.grad.clone()
    net.zero_grad()
    compiled = torch.compile(net, backend="eager")(x)
    compiled.sum().backward()
    torch.testing.assert_close(compiled, expected)
    torch.testing.assert_close(net.inside.weight.grad, slope)


@over_maps
def test_tensors_that_hold_no_numbers_are_told_what_to_call(X, model):
    model.fit(X)
    x = torch.from_numpy(X)
    text = "Expected a tensor of numbers, got one that holds none .*functional.jacobian"
    for transform in (torch.func.vmap, torch.func.jacrev):
        with pytest.raises(InputError, match=text):
            transform(model.transform)(x[:, None] if transform is torch.func.vmap else x)
    with pytest.raises(InputError, match=text):
        torch.export.export(Net(model), (x,))
    # what it says works
    jacobian = torch.autograd.functional.jacobian(model.transform, x[:2])
    assert jacobian.shape == (2, 6, 2, 4)


@over_maps
def test_derivatives_of_derivatives(X, model):
    x = torch.from_numpy(X[:3]).requires_grad_()
    transform = model.fit(X).transform
    assert torch.autograd.gradcheck(transform, x)
    assert torch.autograd.gradgradcheck(transform, x)


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("n_linear", [0, 2])
def test_waves_are_twice_differentiable_in_all_that_they_have(paired, n_linear):
    draws = torch.Generator().manual_seed(100)

    def draw(*shape):
        return torch.randn(*shape, dtype=torch.float64, generator=draws).requires_grad_()

    given = [draw(4, 2), draw(3, 2), draw(3, 2), draw(3), draw(n_linear)]
    beside = draw(4, n_linear).detach()

    def features(x, first, second, amplitude, linear):
        frequencies = Frequencies(first, second if paired else None, amplitude, linear)
        return fourier_features(torch.cat([x, beside], dim=1), frequencies)

    kept = [tensor for i, tensor in enumerate(given) if paired or i != 2]

    def of_kept(*tensors):
        tensors = list(tensors)
        if not paired:
            tensors.insert(2, None)
        return features(*tensors)

    assert torch.autograd.gradcheck(of_kept, kept)
    assert torch.autograd.gradgradcheck(of_kept, kept)
