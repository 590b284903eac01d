"""q(A) goes towards what sites ask for as far as the bound does not fall, and until it is there."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch

import bochner as bo
from bochner.kernels.base import Frequencies
from bochner.likelihoods import Poisson
from bochner.models.sites import Sites
from bochner.objectives.subset_sites import features_of
from bochner.random import generator
from bochner.regression.conjugate_gradients import weights_from
from bochner.regression.observations import AllRows, EncodedBlock
from bochner.regression.site_entries import Entries, entry_pass, swept, swept_until_settled
from bochner.regression.site_passes import SitePasses
from bochner.regression.site_steps import SHARES, furthest

N = 60
TOLERANCE = 1e-3


def long_tailed(seed):
    """Counts with a long tail under a kernel that puts log means anywhere."""
    source = generator(seed, "long tail")

    def normal(*shape):
        return torch.randn(*shape, generator=source, dtype=torch.float64)

    f = Frequencies(3 * normal(15, 2), 3 * normal(15, 2), torch.full((15,), 3.0).double())
    Y = torch.poisson((2.0 * normal(N, 4)).exp(), generator=source)
    return normal(N, 2), f, Poisson(), EncodedBlock.of(Y)


def constant(block):
    """The bound of log means that are the same in every row: nothing to learn is better."""
    rates = block.Y.mean(0)
    return float((block.Y * rates.log() - rates - (block.Y + 1.0).lgamma()).sum())


def of_some(likelihood, block, sites, features):
    entries = Entries.of(sites, block, None)
    return weights_from(features, entries.precision, entries.shift, entries.sizes, TOLERANCE)


def test_of_the_way_as_much_is_taken_as_does_not_lower_a_bound():
    best = torch.tensor([2.0, 0.3, 1e-9, torch.nan]).double()

    def at(share):
        return share, -(share - best).square()

    start = at(torch.zeros(4).double())[1].nan_to_num(-1.0)
    step = furthest(at, start, torch.full((4,), 1e-12).double(), SHARES)
    assert step.end.tolist() == [1.0, 0.5, 0.0, 0.0]
    assert bool((step.gain[:3] >= -1e-12).all())
    # half of the way gained 0.05: all of it would have twice as much, had that gone on
    assert not step.settles(0)


@torch.no_grad()
@pytest.mark.parametrize("seed", range(5))
def test_sites_of_counts_with_a_long_tail_settle(seed):
    x, f, likelihood, block = long_tailed(seed)
    sites = Sites(likelihood, block.Y, block.mask, block.offset, 2)
    entries, features = Entries.of(sites, block, None), features_of(x, f, block)
    # sites of other latents and spectra
    entries = replace(
        entries, shift=entries.shift.roll(7, 0), precision=entries.precision.roll(7, 0)
    )
    given = (features, likelihood, entries, TOLERANCE)
    plain = entries
    for _ in range(6):
        solution = entry_pass(features, likelihood, plain, TOLERANCE)
        precision, shift = solution.sites(plain, likelihood.site)
        plain = replace(plain, precision=precision, shift=shift)
    whole_steps = float(solution.bounds(plain).sum())
    solution, used = swept_until_settled(*given, 2)
    settled = float(solution.bounds(used).sum())
    assert settled > whole_steps - 1.0
    assert settled > constant(block)
    # a few sweeps of training do not fall, either
    before = float(swept(*given, 1)[0].bounds(entries).sum())
    for n_sweeps in (2, 3, 4):
        solution, used = swept(*given, n_sweeps)
        after = float(solution.bounds(used).sum())
        assert after >= before - TOLERANCE * block.Y.numel()
        before = after


@torch.no_grad()
@pytest.mark.parametrize("seed", range(5))
def test_weights_of_some_rows_settle_among_all(seed):
    x, f, likelihood, block = long_tailed(seed)
    index = torch.arange(0, N, 2)
    few = block.take(index, AllRows())
    sites = Sites(likelihood, few.Y, few.mask, few.offset, 2)
    some = of_some(likelihood, few, sites, features_of(x[index], f, few))
    passes = SitePasses(block, [x], f, likelihood, sites)
    weights, value = passes.settled(some, TOLERANCE)
    torch.testing.assert_close(value, passes.laid(weights, likelihood.site).bound.sum())
    stepped = passes.solved(passes.laid(some, likelihood.site), TOLERANCE)
    once = float(passes.laid(stepped, likelihood.site).bound.sum())
    assert float(value) > once
    assert float(value) > constant(block)
    _, further = passes.settled(weights, TOLERANCE)
    assert float(further - value) < 0.02 * block.Y.numel()


@torch.no_grad()
def test_zeros_where_large_counts_are_are_fitted_as_well_as_by_one_mean():
    """Sites of zeros that no place tells from large counts are not those that touch."""
    x, f, likelihood, _ = long_tailed(0)
    x = x[: N // 2].repeat(2, 1)
    Y = torch.cat([torch.zeros(N // 2, 2), torch.full((N // 2, 2), 1e5)]).double()
    block = EncodedBlock.of(Y)
    sites = Sites(likelihood, block.Y, block.mask, block.offset, 2)
    features = features_of(x, f, block)
    weights = of_some(likelihood, block, sites, features)
    _, of_passes = SitePasses(block, [x], f, likelihood, sites).settled(weights, TOLERANCE)
    entries = Entries.of(sites, block, None)
    solution, used = swept_until_settled(features, likelihood, entries, TOLERANCE, 2)
    for bound in (float(of_passes), float(solution.bounds(used).sum())):
        assert bound > constant(block) - 10.0 * block.Y.numel()


@torch.no_grad()
@pytest.mark.parametrize("seed", range(3))
def test_sites_that_lead_astray_give_way_to_log_means_without_latents(seed):
    """Whole numbers in other units are far more dispersed than Poisson counts: the sites of zeros
    hold log means from above only where other rows let them.
    """
    x, f, likelihood, block = long_tailed(seed)
    # as few as the features tell apart
    x, block = x[:20], EncodedBlock.of(1e5 * block.Y[:20].clamp(max=5.0))
    sites = Sites(likelihood, block.Y, block.mask, block.offset, 2)
    features = features_of(x, f, block)
    entries = Entries.of(sites, block, None)
    # psi has gone up by 50 at zeros, as it may where they hold it from one side
    zeros = entries.y == 0.0
    astray = replace(
        entries,
        precision=torch.where(zeros, 1.0, entries.precision),
        shift=torch.where(zeros, 50.0, entries.shift),
    )
    given = (features, likelihood, astray, TOLERANCE)
    followed = float(entry_pass(*given).bounds(astray).sum())
    least = constant(block) - 10.0 * block.Y.numel()
    assert followed < 1e8 * least
    solution, used = swept(*given, 1)
    assert float(solution.bounds(used).sum()) > 1e6 * least
    solution, used = swept_until_settled(*given, 2)
    assert float(solution.bounds(used).sum()) > least
    weights = weights_from(features, astray.precision, astray.shift, astray.sizes, TOLERANCE)
    passes = SitePasses(block, [x], f, likelihood, sites)
    # psi of thousands, too, which steps alone do not bring back
    for begin in (weights, replace(weights, mean=1e4 * weights.mean)):
        assert float(passes.settled(begin, TOLERANCE)[1]) > least


@pytest.mark.parametrize("seed", [0, 100])
def test_counts_in_other_units_are_fitted_better_than_by_a_mean(seed):
    """Latents and kernels followed the gradients of log means that were 1,000 nats too high, to
    bounds of -1e85.
    """
    source = np.random.default_rng(seed)
    counts = source.poisson(np.exp(source.normal(size=(60, 8)))) * 1e5
    model = bo.NGMVLVM(2, likelihood="poisson", max_iter=150, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(counts)
    block = EncodedBlock.of(torch.as_tensor(counts))
    assert model.elbo_ > 0.1 * constant(block)
