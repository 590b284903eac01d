"""Several views in one batch are the views one after the other."""

import pytest
import torch
from torch import Tensor

from bochner.features.fourier import evaluate
from bochner.kernels.base import Frequencies
from bochner.regression.batched_evidence import evidence_of_views
from bochner.regression.evidence import view_evidence
from bochner.regression.observations import CompleteBlock

# standard deviations of the noises: the last asks for double precision
NOISES = {"large": (0.5, 0.7, 0.4), "small": (0.5, 1e-2, 0.4)}


def _views(dim, paired, n_pairs, dtype, noises, n_rows=23):
    source = torch.Generator().manual_seed(dim)

    def normal(*shape):
        return torch.randn(*shape, generator=source, dtype=torch.float64).to(dtype)

    x = normal(n_rows, dim).requires_grad_()
    several = []
    for _ in noises:
        second = normal(n_pairs, dim).requires_grad_() if paired else None
        amplitude = (normal(n_pairs).abs() / n_pairs**0.5).requires_grad_()
        several.append(
            Frequencies(
                normal(n_pairs, dim).requires_grad_(), second, amplitude, x.new_zeros(0)
            )
        )
    s2 = torch.tensor(noises, dtype=torch.float64).square().requires_grad_()
    blocks = [CompleteBlock.of(normal(n_rows, 3 + v)) for v in range(len(noises))]
    return x, several, s2, blocks


def _leaves(x, several, s2):
    parts = [part for f in several for part in (f.first, f.second, f.amplitude)]
    return [x, s2, *(part for part in parts if part is not None)]


@pytest.mark.parametrize("noises", NOISES.values(), ids=NOISES)
@pytest.mark.parametrize("n_pairs", [4, 30])  # K = 8 < N = 23 < K = 60: both forms
@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_values_and_gradients_are_those_of_each_view(dim, paired, n_pairs, noises):
    x, several, s2, blocks = _views(dim, paired, n_pairs, torch.float64, noises)
    leaves = _leaves(x, several, s2)
    weights = torch.arange(1.0, 1.0 + len(blocks), dtype=torch.float64)
    each = torch.stack(
        [
            view_evidence(x, f, one, (block,))
            for f, one, block in zip(several, s2, blocks, strict=True)
        ]
    )
    slow = torch.autograd.grad((weights * each).sum(), leaves)
    together = evidence_of_views(x, Frequencies.stacked(several), s2, blocks)
    fast = torch.autograd.grad((weights * together).sum(), leaves)
    torch.testing.assert_close(together, each, rtol=1e-10, atol=1e-8)
    for left, right in zip(fast, slow, strict=True):
        torch.testing.assert_close(
            left, right, rtol=1e-7, atol=1e-7 * float(right.abs().max())
        )


@pytest.mark.parametrize("noises", NOISES.values(), ids=NOISES)
@pytest.mark.parametrize("n_pairs", [4, 30])
def test_single_precision_is_within_its_rounding(n_pairs, noises):
    x, several, s2, blocks = _views(2, True, n_pairs, torch.float32, noises)
    single = evidence_of_views(x, Frequencies.stacked(several), s2, blocks)
    fast = torch.autograd.grad(single.sum(), _leaves(x, several, s2))
    wide = x.detach().double().requires_grad_()
    points = [f.detach().to(torch.float64).each(Tensor.requires_grad_) for f in several]
    exact = [
        view_evidence(wide, f, one, (CompleteBlock.of(block.Y.double()),))
        for f, one, block in zip(points, s2, blocks, strict=True)
    ]
    slow = torch.autograd.grad(torch.stack(exact).sum(), _leaves(wide, points, s2))
    torch.testing.assert_close(single, torch.stack(exact).detach(), rtol=1e-3, atol=1e-2)
    for left, right in zip(fast, slow, strict=True):
        size = float(right.abs().max())
        torch.testing.assert_close(left.double(), right, rtol=1e-2, atol=2e-3 * size)


@pytest.mark.parametrize("paired", [False, True])
def test_squares_of_a_pair_are_at_most_what_its_amplitude_says(paired):
    x, (f, *_), _, _ = _views(2, paired, 5, torch.float64, NOISES["large"])
    squares = evaluate(x.detach(), f.detach()).features.square()
    both = squares[:5] + squares[5:]
    assert bool((both <= f.pair_squares[:, None] * (1.0 + 1e-12)).all())
    assert float(both.max()) > 0.1 * float(f.pair_squares.max())
