"""Fewer columns for training: exact at full rank, a lower value with fewer, never a higher one; D =
1, 2, 3.
"""

from dataclasses import replace

import pytest
import torch

from bochner.fitting.svd_compression import Limits, rotate
from bochner.kernels.spectral_mixture import NextGenSpectralMixture
from bochner.random import generator
from bochner.regression.evidence import view_evidence
from bochner.regression.observations import CompleteBlock


def _problem(dim: int, n: int, m: int, rank: int, noise: float = 0.0):
    source = generator(0, "rotation", dim)
    kernel = NextGenSpectralMixture().initial(2, dim, source)
    f = kernel.frequencies(kernel.noise(6, dim, source, "iid")).detach()
    x = torch.randn(n, dim, generator=source, dtype=torch.float64).requires_grad_()
    left, right = (
        torch.randn(size, rank, generator=source, dtype=torch.float64) for size in (n, m)
    )
    Y = left @ right.T + noise * torch.randn(n, m, generator=source, dtype=torch.float64)
    return (
        x,
        f,
        torch.tensor(0.3, dtype=torch.float64, requires_grad=True),
        CompleteBlock.of(Y),
    )


def _value(x, f, s2, block):
    value = view_evidence(x, f, s2, (block,), chunk_rows=16)
    return [value.detach(), *torch.autograd.grad(value, (x, s2))]


@pytest.mark.parametrize("n", [40, 12])  # K = 24 features: the Woodbury and the dense form
@pytest.mark.parametrize("m", [30, 300])
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_at_full_rank_value_and_gradient_are_the_same(dim, m, n):
    x, f, s2, block = _problem(dim, n, m, rank=5)
    ((rotated,),), report = rotate(((block,),), 0.0, seed=0)
    assert rotated.Y.shape == (n, 5)
    assert (rotated.n_columns, rotated.square) == (m, block.square)
    assert report.ranks == (5,)
    assert report.dropped[0] < 1e-12
    for full, less in zip(_value(x, f, s2, block), _value(x, f, s2, rotated), strict=True):
        torch.testing.assert_close(full, less, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("n", [60, 12])
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_with_fewer_columns_the_value_falls_by_no_more_than_the_squares_dropped(dim, n):
    x, f, s2, block = _problem(dim, n, 300, rank=8, noise=0.2)
    full, last = _value(x, f, s2, block)[0], None
    for share in (0.3, 0.1, 0.03):
        ((less,),), report = rotate(((block,),), share, seed=0)
        assert 0.0 < report.dropped[0] <= share
        value = _value(x, f, s2, less)[0]
        assert full - report.dropped[0] * block.square / (2 * s2.detach()) <= value <= full
        assert last is None or value >= last
        last = value


@pytest.mark.parametrize("n", [60, 12])
def test_gradients_of_a_truncated_view_are_those_of_its_value(n):
    x, f, s2, block = _problem(2, n, 300, rank=8, noise=0.2)
    ((less,),), _ = rotate(((block,),), 0.1, seed=0)
    assert torch.autograd.gradcheck(lambda z, s: view_evidence(z, f, s, (less,)), (x, s2))


def test_views_with_holes_of_few_columns_or_of_full_rank_stay_as_they_are():
    holes = (
        CompleteBlock.of(torch.randn(20, 300), torch.arange(20)),
        CompleteBlock.of(torch.randn(30, 20), torch.arange(30), torch.arange(300, 320)),
    )
    narrow, full = CompleteBlock.of(torch.randn(50, 40)), CompleteBlock.of(torch.eye(300))
    data, report = rotate((holes, (narrow,), (full,)), 0.01, seed=0)
    assert data[0] == holes
    assert data[1][0] is narrow
    assert data[2][0] is full
    assert report.dropped == (0.0, 0.0, 0.0)


def test_both_sides_of_the_singular_value_decomposition_agree():
    x, f, s2, block = _problem(2, 280, 300, rank=20, noise=0.05)
    wide, tall = (
        CompleteBlock.of(block.Y),
        CompleteBlock.of(torch.cat([block.Y, block.Y.flip(0)])),
    )
    for b in (wide, tall):
        ((less,),), report = rotate(((b,),), 0.05, seed=0)
        singular = torch.linalg.svdvals(b.Y).square()
        left = 1 - singular.cumsum(0) / singular.sum()
        assert less.Y.shape[1] == int((left <= 0.05).nonzero()[0, 0]) + 1
        assert report.dropped[0] == pytest.approx(float(left[less.Y.shape[1] - 1]), abs=1e-9)
    assert _value(x, f, s2, wide)[0].isfinite()


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_the_basis_of_some_rows_gives_a_bound_for_others(dim):
    x, f, s2, block = _problem(dim, 60, 300, rank=8, noise=0.2)
    some = CompleteBlock.of(block.Y[:20], None, block.columns)
    _, rotation = rotate(((some,),), 0.1, seed=0)
    ((less,),) = rotation.apply(((block,),))
    assert less.Y.shape == (60, rotation.ranks[0])
    assert (less.n_columns, less.square) == (300, block.square)
    full, value = _value(x, f, s2, block)[0], _value(x, f, s2, less)[0]
    lost = block.square - float(less.Y.square().sum())
    assert full - lost / (2 * s2.detach()) <= value < full


def test_no_rows_of_a_view_are_rotated_to_none():
    """As in a process of several whose rows lack the view."""
    block = _problem(2, 40, 30, rank=5)[3]
    _, rotation = rotate(((block,),), 0.0, seed=0)
    ((rotated,),) = rotation.apply(((replace(block, Y=block.Y[:0]),),))
    assert rotated.Y.shape == (0, 5)


@pytest.mark.parametrize(("n", "m"), [(3, 8), (8, 3)])
def test_a_constant_view_stays_as_it_is(n, m):
    block = CompleteBlock.of(torch.zeros(n, m, dtype=torch.float64))
    assert rotate(((block,),), 0.05, 0)[0][0][0] is block


# Both sides exceed what is decomposed exactly, as adjacency matrices of many nodes do by default.
SMALL = Limits(narrow=10, exact=20, directions=15)


@pytest.mark.parametrize("share", [0.0, 0.05])
def test_a_flat_spectrum_beyond_the_exact_size_stays_as_it_is(share):
    Y = torch.eye(60, 100, dtype=torch.float64)
    block = CompleteBlock.of(Y)
    ((same,),), report = rotate(((block,),), share, seed=0, limits=SMALL)
    assert same is block
    assert report.ranks == (100,)
    assert report.dropped == (0.0,)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(20, 300), (300, 20), (60, 300), (300, 60)])
@pytest.mark.parametrize(
    "limits", [Limits(), SMALL, Limits(narrow=10, exact=20, directions=70)]
)
@pytest.mark.parametrize("share", [0.0, 0.05, 0.5])
def test_whatever_the_shape_the_bound_falls_by_at_most_the_squares_dropped(
    share, limits, shape, dtype
):
    n, m = shape
    x, f, s2, whole = _problem(2, n, m, rank=6, noise=1.0)
    block = CompleteBlock.of(whole.Y.to(dtype).clone())
    ((less,),), report = rotate(((block,),), share, seed=0, limits=limits)
    kept = float(less.Y.double().square().sum()) / block.square
    rounding = 10.0 * torch.finfo(dtype).eps
    assert report.dropped[0] == pytest.approx(1.0 - kept, abs=rounding)
    assert report.dropped[0] <= max(share, rounding)
    full, value = (_value(x, f, s2, replace(b, Y=b.Y.double()))[0] for b in (block, less))
    nats = block.square / (2.0 * s2.detach())
    assert full - (report.dropped[0] + rounding) * nats <= value <= full + rounding * nats


@pytest.mark.parametrize("seed", range(2))
def test_wide_float64_data_of_full_rank_rotate_to_as_many_columns_as_rows(seed):
    Y = torch.randn(50, 300, generator=generator(seed, "wide"), dtype=torch.float64)
    ((less,),), report = rotate(((CompleteBlock.of(Y),),), 0.0, seed=0)
    assert less.Y.shape == (50, 50)
    torch.testing.assert_close(less.Y @ less.Y.T, Y @ Y.T, rtol=1e-12, atol=1e-11)
    assert report.dropped[0] < 1e-13
