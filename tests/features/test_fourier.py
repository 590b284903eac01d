"""The feature map against its naive formula, and its hand-written gradient against autograd."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from bochner.features.fourier import evaluate, fourier_features, pull_back
from bochner.kernels.base import Frequencies

SHAPES = [(4, 1, 3), (5, 2, 6), (1, 3, 1)]  # N, D, P


def naive(x: Tensor, first: Tensor, second: Tensor | None, amplitude: Tensor) -> Tensor:
    one, two = first @ x.T, None if second is None else second @ x.T
    cosines = one.cos() if two is None else one.cos() + two.cos()
    sines = one.sin() if two is None else one.sin() + two.sin()
    return torch.cat([amplitude[:, None] * cosines, amplitude[:, None] * sines])


def arguments(shape, paired: bool) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    n, d, p = shape
    source = torch.Generator().manual_seed(n)

    def leaf(*size):
        return torch.randn(*size, generator=source, dtype=torch.float64).requires_grad_()

    x, first, second = leaf(n, d), leaf(p, d), leaf(p, d)
    return (
        x,
        first,
        second if paired else None,
        (0.2 + leaf(p).detach().abs()).requires_grad_(),
    )


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_values_are_the_naive_ones(shape, paired):
    x, *points = arguments(shape, paired)
    features = fourier_features(x, Frequencies(*points))
    assert features.shape == (2 * shape[2], shape[0])
    assert Frequencies(*points).n_features == 2 * shape[2]
    torch.testing.assert_close(features, naive(x, *points))


@pytest.mark.parametrize("paired", [False, True])
def test_gradcheck(paired):
    x, first, second, amplitude = arguments((4, 2, 3), paired)
    if second is None:
        assert torch.autograd.gradcheck(
            lambda x, w, a: fourier_features(x, Frequencies(w, None, a)), (x, first, amplitude)
        )
    else:
        assert torch.autograd.gradcheck(
            lambda x, *f: fourier_features(x, Frequencies(*f)), (x, first, second, amplitude)
        )


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_pull_back_is_the_gradient_of_the_naive_formula(shape, paired):
    x, first, second, amplitude = arguments(shape, paired)
    upstream = torch.randn(
        2 * shape[2], shape[0], generator=torch.Generator().manual_seed(9), dtype=torch.float64
    )
    leaves = [t for t in (x, first, second, amplitude) if t is not None]
    expected = torch.autograd.grad(naive(x, first, second, amplitude), leaves, upstream)
    with torch.no_grad():
        frequencies = Frequencies(first, second, amplitude)
        got = pull_back(evaluate(x, frequencies), frequencies, upstream)
    assert (got[2] is None) is (not paired)
    assert got[4].shape == (0,)  # no covariates
    for one, other in zip([g for g in got[:4] if g is not None], expected, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_stationary_map_is_the_paired_one_with_equal_partners(shape):
    x, first, _, amplitude = arguments(shape, False)
    upstream = torch.randn(
        2 * shape[2], shape[0], generator=torch.Generator().manual_seed(3), dtype=torch.float64
    )
    stationary = fourier_features(x, Frequencies(first, None, amplitude))
    paired = fourier_features(x, Frequencies(first, first, 0.5 * amplitude))
    torch.testing.assert_close(stationary, paired)
    for leaf in (x, first, amplitude):
        one, other = (
            torch.autograd.grad(f, leaf, upstream, retain_graph=True)[0]
            for f in (stationary, paired)
        )
        torch.testing.assert_close(one, other)


def test_amplitudes_of_zero_give_no_nan():
    x, first, second, amplitude = arguments((3, 2, 4), True)
    features = fourier_features(
        x, Frequencies(first, second, torch.zeros_like(amplitude).requires_grad_())
    )
    features.sum().backward()
    assert torch.isfinite(x.grad).all()
    assert (x.grad == 0).all()


def test_rows_precision_decides():
    x, first, second, amplitude = arguments((3, 2, 4), True)
    features = fourier_features(x.float(), Frequencies(first, second, amplitude))
    assert features.dtype == torch.float32
    torch.testing.assert_close(
        features.double(), naive(x, first, second, amplitude), atol=1e-5, rtol=0
    )
    features.sum().backward()
    assert first.grad.dtype == torch.float64


def test_detached_points_have_no_history():
    _, first, second, amplitude = arguments((3, 2, 4), True)
    points = Frequencies(first, second, amplitude).detach()
    assert not any(t.requires_grad for t in (points.first, points.second, points.amplitude))
    assert Frequencies(first, None, amplitude).detach().second is None
