"""Columns drawn of many with holes: over all starts of a sample, value and gradients are those of
all columns, in D = 1, 2, 3, whatever stands in the holes.
"""

import pytest
import torch

from bochner.kernels.spectral_mixture import NextGenSpectralMixture
from bochner.random import generator
from bochner.regression.drawn_columns import DrawnColumns
from bochner.regression.incomplete import Sample, masked_evidence
from bochner.regression.observations import CompleteBlock, IncompleteBlock, Rows
from bochner.regression.streamed import evidence_with_holes

N, M, DRAWN = 21, 48, 12


def _problem(dim, n_frequencies=3):
    source = generator(0, "drawn columns", dim)
    kernel = NextGenSpectralMixture().initial(2, dim, source)
    f = kernel.frequencies(kernel.noise(n_frequencies, dim, source, "iid")).detach()
    x = torch.randn(N + 2, dim, generator=source, dtype=torch.float64)
    # two rows observe nothing of this view
    rows = torch.randperm(N + 2, generator=source)[:N].sort().values
    Y = torch.randn(N, M, generator=source, dtype=torch.float64)
    Y[torch.rand(N, M, generator=source) < torch.linspace(0.05, 0.6, M)] = torch.nan
    return x, f, Y, rows, torch.tensor(0.3, dtype=torch.float64)


def _block(Y, rows, fill, sizes=(20, 28)):
    whole = IncompleteBlock.of(Y, rows, torch.arange(M), sizes)
    fill = fill.expand(N, M)
    filled = whole.filled(fill)
    basis = torch.linalg.svd(filled.Y, full_matrices=False).Vh.T
    rotated = CompleteBlock(filled.Y @ basis, Rows.of(rows), filled.columns, filled.square)
    return DrawnColumns(**vars(whole), fill=fill, rotated=rotated, n_drawn=DRAWN)


@pytest.mark.parametrize("fill", [0.0, 3.0])
@pytest.mark.parametrize(("n_frequencies", "sizes"), [(3, (1,) * M), (20, (20, 28))])
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_over_all_starts_they_are_those_of_all_columns(dim, n_frequencies, sizes, fill):
    x, f, Y, rows, s2 = _problem(dim, n_frequencies)
    fill = torch.tensor(fill, dtype=torch.float64)
    block = _block(Y, rows, fill, sizes)
    leaves = [t.requires_grad_() for t in (x, f.first, f.amplitude, s2)]
    share = M // DRAWN
    starts = [(i + 0.5) / share for i in range(share)]
    drawn = [evidence_with_holes(block, x, f, s2, sample=Sample(M, start)) for start in starts]
    mean = torch.stack(drawn).mean()
    whole = masked_evidence(x, f, s2, block, sample=Sample(M, 0.0))
    assert min(abs(float((value - whole).detach())) for value in drawn) > 1e-3
    torch.testing.assert_close(mean, whole, rtol=1e-10, atol=1e-8)
    for a, b in zip(
        torch.autograd.grad(mean, leaves), torch.autograd.grad(whole, leaves), strict=True
    ):
        torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-8)


def test_columns_whose_determinants_are_exact_may_be_any_of_them():
    x, f, Y, rows, s2 = _problem(2)
    block = _block(Y, rows, torch.tensor(0.0, dtype=torch.float64))
    source = generator(0, "starts")
    starts = torch.rand(4000, generator=source).tolist()
    values = torch.stack(
        [evidence_with_holes(block, x, f, s2, sample=Sample(2, start)) for start in starts]
    )
    whole = masked_evidence(x, f, s2, block)
    z = (values.mean() - whole) / (values.std() / len(values) ** 0.5)
    assert abs(float(z)) < 4.0


def test_the_nearer_the_fill_the_less_they_vary():
    x, f, Y, rows, s2 = _problem(2, 20)
    spread = []
    for fill in (0.0, 10.0):
        block = _block(Y, rows, torch.tensor(fill, dtype=torch.float64))
        values = [
            evidence_with_holes(block, x, f, s2, sample=Sample(M, (i + 0.5) / 4))
            for i in range(4)
        ]
        spread.append(float(torch.stack(values).std()))
    assert 10.0 * spread[0] < spread[1]


def test_without_a_sample_and_where_the_noise_is_small_all_columns_count():
    x, f, Y, rows, s2 = _problem(2)
    block = _block(Y, rows, torch.tensor(0.0, dtype=torch.float64))
    for noise, sample in ((s2, None), (s2 / 1000.0, Sample(2, 0.3))):
        all_columns = masked_evidence(x, f, noise, block, sample=sample)
        drawn = evidence_with_holes(block, x, f, noise, sample=sample)
        assert float(drawn) == float(all_columns)
