"""Sites laid in passes over rows, used and dropped: what kept sites lead to."""

from __future__ import annotations

from dataclasses import replace

import pytest
import scipy.sparse as sp
import torch

from bochner.data.sparse import SparseMatrix
from bochner.objectives.subset_sites import features_of
from bochner.regression import conjugate_gradients, site_passes
from bochner.regression.conjugate_gradients import weights_from
from bochner.regression.site_entries import Entries, entry_pass
from bochner.regression.site_passes import SitePasses
from helpers.nonconjugate import MAKERS, small_view

TIGHT = 1e-22


def with_sites(x, f, likelihood, block, sites, weights):
    """Lay the sites of all rows at a q(A) and hold them."""
    entries, features = Entries.of(sites, block, None), features_of(x, f, block)
    solution = entry_pass(features, likelihood, entries, TIGHT, weights)
    precision, shift = solution.sites(entries, likelihood.site)
    return features, solution, replace(entries, precision=precision, shift=shift)


def start(x, f, block, sites):
    entries = Entries.of(sites, block, None)
    given = entries.precision, entries.shift, entries.sizes
    return weights_from(features_of(x, f, block), *given, TIGHT)


@torch.no_grad()
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("name", sorted(MAKERS))
def test_a_step_and_the_bound_are_those_of_sites_that_are_held(name, missing):
    x, f, likelihood, block, sites = small_view(name, missing=missing, groups=2)
    weights = start(x, f, block, sites)
    features, solution, entries = with_sites(x, f, likelihood, block, sites, weights)
    given = (entries.precision, entries.shift, entries.sizes)
    expected = weights_from(features, *given, torch.full((len(entries.columns),), TIGHT), 50)
    passes = SitePasses(block, [x], f, likelihood, sites)
    torch.testing.assert_close(passes.columns, entries.columns)
    laid = passes.laid(weights, likelihood.site)
    got = passes.solved(laid, TIGHT)
    torch.testing.assert_close(got.mean, expected.mean, rtol=1e-7, atol=1e-8)
    torch.testing.assert_close(got.covariance, expected.covariance)
    torch.testing.assert_close(got.logdet, expected.logdet)
    bound = entries.mask.apply(solution.slopes.value).sum() - solution.weights.kl().sum()
    mean = entries.total + solution.latent
    gap = likelihood.gap(entries.y, mean, solution.variance, entries.columns)
    gap = torch.zeros_like(bound) if gap is None else entries.mask.apply(gap).sum()
    bound = bound + sites.log_prior(entries.columns).sum()
    torch.testing.assert_close(laid.bound.sum(), bound)
    torch.testing.assert_close(passes.gap(weights), gap)


@torch.no_grad()
def test_rows_count_once_whatever_the_draws_and_sparse_rows_are_dense_ones():
    x, f, likelihood, block, sites = small_view("poisson", groups=2)
    weights = start(x, f, block, sites)
    once = SitePasses(block, [x], f, likelihood, sites)
    sparse = SparseMatrix.of(sp.csr_array(block.Y.numpy()), None, torch.float64)
    for passes in (
        SitePasses(block, [x, x, x], f, likelihood, sites),
        SitePasses(replace(block, Y=sparse), [x], f, likelihood, sites),
    ):
        laid, wanted = (some.laid(weights, likelihood.site) for some in (passes, once))
        torch.testing.assert_close(laid.bound, wanted.bound)
        expected = once.solved(wanted, TIGHT).mean
        torch.testing.assert_close(passes.solved(laid, TIGHT).mean, expected)


@torch.no_grad()
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("name", sorted(MAKERS))
def test_precisions_that_are_not_held_and_columns_laid_aside_change_nothing(
    name, missing, monkeypatch
):
    x, f, likelihood, block, sites = small_view(name, missing=missing, groups=2)
    weights = start(x, f, block, sites)
    passes = SitePasses(block, [x, x + 0.1], f, likelihood, sites)
    laid = passes.laid(weights, likelihood.site)
    expected = passes.solved(laid, TIGHT)
    monkeypatch.setattr(conjugate_gradients, "_WORTH", 0)
    monkeypatch.setattr(site_passes, "_HELD", 0)
    lean = passes.laid(weights, likelihood.site)
    assert lean.precisions is None
    for given in (laid, lean):
        got = passes.solved(given, TIGHT)
        torch.testing.assert_close(got.mean, expected.mean, rtol=1e-8, atol=1e-9)
