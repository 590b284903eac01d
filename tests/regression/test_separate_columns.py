"""Columns that each lack rows of their own are, at once, what they are one after the other."""

import pytest
import torch

from bochner.errors import NumericalError
from bochner.kernels.base import Frequencies
from bochner.processes import ALONE
from bochner.regression import separate_columns
from bochner.regression.evidence import apart, view_evidence
from bochner.regression.observations import CompleteBlock

N = 23
# Rows that columns lack: none, a few, one, the same few, half; most: that one stays by itself.
LACKING = ([], [0, 3, 5, 22], [7], [0, 3, 5, 22], list(range(12)), list(range(18)))


def _view(dim, n_pairs, dtype, lacking=LACKING, n_linear=0):
    source = torch.Generator().manual_seed(dim)

    def normal(*shape):
        return torch.randn(*shape, generator=source, dtype=torch.float64).to(dtype)

    x = normal(N, dim + n_linear).requires_grad_()
    amplitude = (normal(n_pairs).abs() / n_pairs**0.5).requires_grad_()
    waves = [normal(n_pairs, dim).requires_grad_() for _ in range(2)]
    linear = normal(n_linear).requires_grad_()
    f = Frequencies(*waves, amplitude, linear)
    blocks = []
    for j, missing in enumerate(lacking):
        rows = torch.tensor([i for i in range(N) if i not in missing])
        index = rows if missing else None
        blocks.append(CompleteBlock.of(normal(len(rows), 1), index, torch.tensor([j])))
    # two columns that are complete stand in one block
    both = torch.arange(2) + len(lacking)
    blocks.append(CompleteBlock.of(normal(N, 2), None, both))
    return x, f, tuple(blocks), [x, *waves, amplitude, *([linear] if n_linear else [])]


def _noise(per_column, n_columns, deviation):
    shape = (n_columns,) if per_column else ()
    steps = 1.0 + 0.1 * torch.arange(n_columns) if per_column else torch.ones(())
    return (deviation * steps).double().square().reshape(shape).requires_grad_()


def _both_ways(view, s2):
    """Values and gradients at once, and column after column."""
    x, f, blocks, leaves = view
    each = torch.stack([view_evidence(x, f, s2, (block,)) for block in blocks]).sum()
    slow = torch.autograd.grad(each, [*leaves, s2])
    at_once = view_evidence(x, f, s2, blocks)
    fast = torch.autograd.grad(at_once, [*leaves, s2])
    return at_once, each, list(zip(fast, slow, strict=True))


@pytest.mark.parametrize("deviation", [0.5, 1e-3], ids=["large noise", "small noise"])
@pytest.mark.parametrize("per_column", [False, True])
@pytest.mark.parametrize("n_pairs", [4, 30])  # K = 8 < N = 23 < K = 60: both forms
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_values_and_gradients_are_those_of_each_column(dim, n_pairs, per_column, deviation):
    view = _view(dim, n_pairs, torch.float64)
    _, f, blocks, _ = view
    s2 = _noise(per_column, len(LACKING) + 2, deviation)
    together, others = apart(blocks, N, f.n_features, ALONE)
    assert (len(together), len(others)) == (5, 2)
    at_once, each, gradients = _both_ways(view, s2)
    torch.testing.assert_close(at_once, each, rtol=1e-9, atol=1e-8)
    for left, right in gradients:
        scale = 1e-6 * float(right.abs().max())
        torch.testing.assert_close(left, right, rtol=1e-6, atol=scale)


@pytest.mark.parametrize("n_pairs", [4, 30])
def test_columns_in_parts_are_the_same(n_pairs, monkeypatch):
    x, f, blocks, leaves = _view(2, n_pairs, torch.float64)
    s2 = _noise(True, len(LACKING) + 2, 0.3)
    whole = view_evidence(x, f, s2, blocks)
    expected = torch.autograd.grad(whole, [*leaves, s2])
    monkeypatch.setattr(separate_columns, "_AT_ONCE", 1)
    parts = view_evidence(x, f, s2, blocks)
    torch.testing.assert_close(parts, whole, rtol=1e-12, atol=1e-10)
    for left, right in zip(torch.autograd.grad(parts, [*leaves, s2]), expected, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n_pairs", [4, 30])
def test_covariates_beside_the_latents_count(n_pairs):
    s2 = _noise(True, len(LACKING) + 2, 0.3)
    at_once, each, gradients = _both_ways(_view(2, n_pairs, torch.float64, n_linear=2), s2)
    torch.testing.assert_close(at_once, each, rtol=1e-9, atol=1e-8)
    for left, right in gradients:
        torch.testing.assert_close(left, right, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("n_pairs", [4, 30])
@pytest.mark.parametrize("deviation", [0.5, 1e-2])
def test_single_precision_is_within_its_rounding(n_pairs, deviation):
    s2 = _noise(True, len(LACKING) + 2, deviation)
    single, each, gradients = _both_ways(_view(2, n_pairs, torch.float32), s2)
    torch.testing.assert_close(single, each, rtol=1e-3, atol=1e-2)
    for left, right in gradients:
        scale = 1e-3 * float(right.abs().max())
        torch.testing.assert_close(left, right, rtol=1e-2, atol=scale)


@pytest.mark.parametrize("n_pairs", [4, 30])
def test_values_without_gradients_are_factored_in_double_precision(n_pairs):
    x, f, blocks, _ = _view(2, n_pairs, torch.float32)
    s2 = _noise(True, len(LACKING) + 2, 0.03)
    with torch.no_grad():
        value = view_evidence(x, f, s2, blocks)
        each = torch.stack([view_evidence(x, f, s2, (block,)) for block in blocks]).sum()
    torch.testing.assert_close(value, each, rtol=1e-6, atol=1e-4)


def test_columns_that_lack_nothing_but_stand_apart():
    x, f, blocks, _ = _view(2, 4, torch.float64, lacking=([], [], []))
    s2 = _noise(True, 5, 0.3)
    at_once = view_evidence(x, f, s2, blocks)
    each = torch.stack([view_evidence(x, f, s2, (block,)) for block in blocks]).sum()
    torch.testing.assert_close(at_once, each, rtol=1e-10, atol=1e-9)


def test_noise_that_is_no_number_is_named():
    x, f, blocks, _ = _view(2, 4, torch.float64)
    s2 = torch.full((len(LACKING) + 2,), torch.nan, dtype=torch.float64)
    with pytest.raises(NumericalError, match="noise variances were"):
        view_evidence(x, f, s2, blocks[:2])
