"""The signed radial spectrum of a kernel."""

from __future__ import annotations

import pytest
import torch

from bochner import random
from bochner.features.spherical import _rule, direction_mean
from bochner.kernels.function import FunctionKernel
from bochner.kernels.indefinite import Hellinger, Polynomial, Tanh
from bochner.krein.radial import evenly, radial_frequencies
from bochner.krein.sketch import Sketch


def sketched(kernel, dim, n_rows=150):
    rows = torch.rand(n_rows, dim, generator=random.generator(0, "rows"), dtype=torch.float64)
    x = kernel.normalise(rows)
    return Sketch.of(kernel, x[30:], x[:30])


def error(frequencies, known):
    """Root mean squared error over pairs held out, relative to the kernel."""
    n = len(known.held_out)
    off = ~torch.eye(n, dtype=torch.bool)
    gap = frequencies.kernel(known.held_out, known.held_out) - known.held_target
    return float((gap[off].square().mean() / known.held_target[off].square().mean()).sqrt())


@pytest.mark.parametrize("n_frequencies", [1, 2, 16])
def test_a_constant_is_a_wave_without_radius_and_costs_nothing(n_frequencies):
    known = sketched(FunctionKernel(lambda A, B: torch.full((len(A), len(B)), 0.3)), 3)
    found = radial_frequencies(known, n_frequencies)
    assert error(found, known) < 1e-10


@pytest.mark.parametrize("kernel", [Tanh(), Hellinger(), Polynomial(3)])
def test_few_frequencies_do_not_shrink_a_smooth_kernel(kernel):
    """The penalty of the draws' variance took a share 1 / (1 + 2 H) from every kernel."""
    known = sketched(kernel, 20)
    shares = [
        float(
            radial_frequencies(known, h).kernel(known.x, known.x).mean() / known.target.mean()
        )
        for h in (2, 8, 32)
    ]
    assert all(0.95 < share < 1.05 for share in shares), shares


def test_radii_share_the_frequencies_so_that_draws_differ_least():
    """The error of a draw is no larger than with as many frequencies for every radius."""
    known = sketched(Polynomial(6), 5)
    found = radial_frequencies(known, 40)
    radii, counts = found.radius.unique(return_counts=True)
    assert len(found.weight) == 40
    assert int(counts[radii == 0.0]) == 1
    variance = []
    for share in (counts, torch.full_like(counts, 40).div(len(radii))):
        total = 0.0
        for radius, count in zip(radii, share.double(), strict=True):
            weight = found.weight[found.radius == radius].sum()
            waves = radial_wave_variance(known, float(radius))
            total += float(weight**2 * waves / count)
        variance.append(total)
    assert variance[0] < variance[1]


def radial_wave_variance(known, radius):
    distances = radius * torch.pdist(known.x)
    square = 0.5 * (1.0 + direction_mean(2.0 * distances, known.x.shape[1]))
    mean = direction_mean(distances, known.x.shape[1])
    return (square - mean.square()).mean()


@pytest.mark.parametrize("n", [1, 2, 2999, 3000, 3001, 16_817_100, 17_997_000, 2**40])
def test_pairs_are_chosen_from_the_first_to_the_last(n):
    chosen = evenly(n, 3000)
    assert len(chosen.unique()) == len(chosen) == min(n, 3000)
    assert int(chosen.min()) == 0
    assert int(chosen.max()) == (n - 1 if n > 1 else 0)
    steps = chosen.diff()
    assert not len(steps) or int(steps.max() - steps.min()) <= 1
    assert chosen.dtype == torch.int64


def test_waves_of_many_dimensions_take_no_more_nodes_than_their_mean():
    _rule.cache_clear()
    known = sketched(Polynomial(10), 5000, 60)
    assert error(radial_frequencies(known, 20), known) < 0.1
    assert _rule.cache_info().currsize == 1
