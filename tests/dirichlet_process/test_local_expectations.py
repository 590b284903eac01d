"""Local expectations of q(z): exact replacement gains against evidence computed anew."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from bochner.data.masks import FullMask
from bochner.dirichlet_process.local_expectations import replacement_gains, site_gains
from bochner.features.fourier import fourier_features
from bochner.kernels.base import Frequencies
from bochner.likelihoods import Bernoulli
from bochner.models.sites import Sites
from bochner.regression.evidence import view_evidence
from bochner.regression.observations import CompleteBlock, EncodedBlock

NOISE = torch.tensor(0.3, dtype=torch.float64)


def points(n: int, d: int, seed: int) -> Frequencies:
    w = torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return Frequencies(w, None, torch.linspace(0.4, 0.6, n, dtype=torch.float64))


def rows(d: int):
    source = torch.Generator().manual_seed(9)
    x = torch.randn(30, d, generator=source, dtype=torch.float64)
    return x, torch.randn(30, 5, generator=source, dtype=torch.float64)


def taken(f: Frequencies, index: list[int]) -> Frequencies:
    return Frequencies(f.first[index], None, f.amplitude[index], f.linear)


def joined(f: Frequencies, g: Frequencies) -> Frequencies:
    amplitude = torch.cat([f.amplitude, g.amplitude])
    return Frequencies(torch.cat([f.first, g.first]), None, amplitude, f.linear)


def with_covariates(
    x: Tensor, f: Frequencies, n_covariates: int
) -> tuple[Tensor, Frequencies]:
    if not n_covariates:
        return x, f
    source = torch.Generator().manual_seed(4)
    beside = torch.randn(len(x), n_covariates, generator=source, dtype=x.dtype)
    factors = torch.linspace(0.5, 2.0, n_covariates, dtype=x.dtype)
    return torch.cat([x, beside], dim=1), replace(f, linear=factors)


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("n_points", [4, 20])  # fewer and more features than rows
@pytest.mark.parametrize("n_covariates", [0, 3])
def test_gains_are_differences_of_the_evidence(d, n_points, n_covariates):
    x, Y = rows(d)
    some = torch.arange(20)
    blocks = (
        CompleteBlock.of(Y[:, :3]),
        CompleteBlock.of(Y[:20, 3:], some, torch.tensor([3, 4])),
    )
    x, current = with_covariates(x, points(n_points, d, 0), n_covariates)
    candidates = points(3, d, 1)
    gains = replacement_gains(x, current, candidates, NOISE, blocks, chunk_rows=7)
    for left_out in (0, n_points - 1):
        others = taken(current, [i for i in range(n_points) if i != left_out])
        without = view_evidence(x, others, NOISE, blocks)
        for c in range(3):
            value = (
                view_evidence(x, joined(others, taken(candidates, [c])), NOISE, blocks)
                - without
            )
            torch.testing.assert_close(gains[c, left_out], value, rtol=1e-9, atol=1e-8)


def test_a_view_that_a_rotation_left_without_columns_prefers_no_point():
    """Rows that are all the same have no direction in which they differ."""
    x, Y = rows(2)
    gains = replacement_gains(
        x, points(6, 2, 0), points(3, 2, 1), NOISE, (CompleteBlock.of(Y[:, :0]),)
    )
    torch.testing.assert_close(gains, torch.zeros(3, 6, dtype=torch.float64))


def test_a_point_put_back_in_its_own_place_changes_nothing():
    x, Y = rows(2)
    current, blocks = points(6, 2, 0), (CompleteBlock.of(Y),)
    gains = replacement_gains(x, current, current, NOISE, blocks)
    value = view_evidence(x, current, NOISE, blocks)
    for i in range(6):
        without = view_evidence(
            x, taken(current, [j for j in range(6) if j != i]), NOISE, blocks
        )
        torch.testing.assert_close(gains[i, i], value - without)


def test_they_are_the_gradient_of_the_expected_evidence_in_q():
    """Two points, three components with one frequency each: the expectation is a sum over nine
    assignments.
    """
    x, Y = rows(2)
    blocks, book = (CompleteBlock.of(Y),), points(3, 2, 5)
    book = Frequencies(book.first, None, torch.full((3,), math.sqrt(0.5), dtype=torch.float64))
    phi = torch.tensor(
        [[0.5, 0.3, 0.2], [0.1, 0.6, 0.3]], dtype=torch.float64, requires_grad=True
    )
    every = list(itertools.product(range(3), repeat=2))
    values = torch.stack(
        [view_evidence(x, taken(book, list(z)), NOISE, blocks) for z in every]
    )
    expected = sum(phi[0, a] * phi[1, b] * v for (a, b), v in zip(every, values, strict=True))
    gradient = torch.autograd.grad(expected, phi)[0]
    local = torch.zeros(2, 3, dtype=torch.float64)
    for (a, b), _ in zip(every, values, strict=True):
        gains = replacement_gains(x, taken(book, [a, b]), book, NOISE, blocks)
        local += float((phi[0, a] * phi[1, b]).detach()) * gains.T
    # up to a number for each point, which the simplex does not see
    for i in range(2):
        torch.testing.assert_close(
            local[i] - local[i].mean(), gradient[i] - gradient[i].mean(), rtol=1e-9, atol=1e-8
        )


@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("n_covariates", [0, 3])
def test_gains_given_sites_are_differences_of_the_bound_they_imply(d, n_covariates):
    """With one precision for all columns of a group, q(A)'s bound given the sites is a Gaussian
    evidence.
    """
    x, Y = rows(d)
    likelihood = Bernoulli()
    y = (Y > 0).double()
    sites = Sites(likelihood, y, FullMask(), torch.zeros(30, dtype=torch.float64), n_groups=2)
    source = torch.Generator().manual_seed(2)
    weight = 0.1 + torch.rand(30, 2, generator=source, dtype=torch.float64)
    sites.precision.copy_(weight[:, sites.group_of])
    sites.shift.copy_(torch.randn(30, 5, generator=source, dtype=torch.float64))
    x, current = with_covariates(x, points(4, d, 0), n_covariates)
    candidates = points(3, d, 1)

    def bound(f: Frequencies) -> Tensor:
        phi, total = fourier_features(x, f), 0.0
        for m in range(5):
            B = (
                torch.eye(len(phi), dtype=torch.float64)
                + (phi * sites.precision[:, m]) @ phi.T
            )
            c = phi @ sites.shift[:, m]
            total = total + 0.5 * c @ torch.linalg.solve(B, c) - 0.5 * torch.logdet(B)
        return total

    gains = site_gains(x, current, candidates, sites, EncodedBlock.of(y), chunk_rows=11)
    for left_out in range(4):
        others = taken(current, [i for i in range(4) if i != left_out])
        for c in range(3):
            value = bound(joined(others, taken(candidates, [c]))) - bound(others)
            torch.testing.assert_close(gains[c, left_out], value, rtol=1e-9, atol=1e-8)
