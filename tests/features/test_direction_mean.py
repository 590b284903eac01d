"""The mean plane wave over directions, and radial spectra drawn, in few and in many dimensions."""

from __future__ import annotations

import math

import mpmath
import pytest
import torch

from bochner import random
from bochner.features.spherical import direction_mean, directions
from bochner.krein.signed_frequencies import RadialFrequencies

DIMENSIONS = (3, 14, 100, 784, 5000)


def _exact(s: float, dim: int) -> float:
    """0F1(; d/2; -s^2/4) with 400 digits: its terms reach e^s."""
    with mpmath.workdps(400):
        half = mpmath.mpf(dim) / 2
        return float(mpmath.hyp0f1(half, -(mpmath.mpf(s) ** 2) / 4))


@pytest.mark.parametrize("dim", [2, *DIMENSIONS])
def test_it_is_the_bessel_function(dim):
    width = math.sqrt(dim)
    points = [0.0, 0.3 * width, width, 2.0 * width, 4.0 * width, 60.0, 110.0, 300.0]
    result = direction_mean(torch.tensor(points, dtype=torch.float64), dim)
    exact = torch.tensor([_exact(s, dim) for s in points], dtype=torch.float64)
    torch.testing.assert_close(result, exact, rtol=0, atol=1e-13)


@pytest.mark.parametrize("dim", DIMENSIONS)
def test_drawn_waves_have_the_kernel_as_their_mean(dim):
    """Standard scores of the mean of 400 draws of 32 frequencies, at distances that matter."""
    radius = torch.tensor([0.5, 1.0, 2.0, 3.0], dtype=torch.float64).repeat(8) * math.sqrt(dim)
    weight = torch.full((32,), 1.0 / 32.0, dtype=torch.float64)
    model = RadialFrequencies(weight, torch.ones_like(weight), radius, dim)
    source = random.generator(101, "directions")
    x = directions(4, dim, source)
    drawn = []
    for _ in range(400):
        waves = x @ model.draw(source).T
        cosines, sines = waves.cos(), waves.sin()
        drawn.append((cosines * weight) @ cosines.T + (sines * weight) @ sines.T)
    kernels = torch.stack(drawn)
    error = kernels.std(0) / len(drawn) ** 0.5
    score = (kernels.mean(0) - model.kernel(x, x))[error > 1e-12] / error[error > 1e-12]
    assert len(score) >= 6
    assert float(score.abs().max()) < 4.5


@pytest.mark.parametrize(("n", "dim"), [(3, 7), (7, 7), (20, 7)])
def test_directions_are_orthogonal_in_groups(n, dim):
    points = directions(n, dim, random.generator(0, "directions"))
    for first in range(0, n, dim):
        group = points[first : first + dim]
        eye = torch.eye(len(group), dtype=torch.float64)
        torch.testing.assert_close(group @ group.T, eye, rtol=0, atol=1e-13)
