"""Views with scattered holes in passes over rows: what is found in memory, whatever the parts."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bochner.data.row_sources import ArraySource
from bochner.data.stored import StoredMatrix
from bochner.data.views import Scaling
from bochner.kernels.spectral_mixture import NextGenSpectralMixture
from bochner.random import generator
from bochner.regression import conjugate_gradients
from bochner.regression.incomplete import Sample, masked_evidence
from bochner.regression.observations import IncompleteBlock, Rows
from bochner.regression.streamed import StreamedBlock, streamed_evidence
from bochner.weight_posterior.incomplete_conditioning import (
    condition_incomplete,
    condition_with_holes,
)

N, M, D = 90, 9, 2
TIGHT = 1e-18


class SmallBlocks(ArraySource):
    block_rows = 32


def problem(seed=0):
    source = generator(seed, "streamed")
    kernel = NextGenSpectralMixture().initial(2, D, source)
    f = kernel.frequencies(kernel.noise(4, D, source, "iid")).detach()
    x = torch.randn(N, D, generator=source, dtype=torch.float64)
    Y = torch.randn(N, M, generator=source, dtype=torch.float64)
    Y[torch.rand(N, M, generator=source) < torch.linspace(0.1, 0.7, M)] = torch.nan
    Y[::11] = torch.nan
    return x, f, Y, torch.tensor(0.3, dtype=torch.float64)


def blocks(Y, sizes):
    index = (~Y.isnan().all(dim=1)).nonzero()[:, 0]
    columns = torch.arange(M)
    held = IncompleteBlock.of(Y[index], index, columns, sizes)
    plain = Scaling(np.zeros(M), np.ones(M))
    where = (torch.float64, torch.device("cpu"))
    matrix = StoredMatrix(SmallBlocks(Y.numpy()), np.arange(M), plain, *where, rows=index)
    return held, StreamedBlock(matrix, Rows.of(index), columns, sizes, held.n_entries)


@pytest.mark.parametrize("sample", [None, Sample(2, 0.4), Sample(0.5, 0.2), Sample(0.5, 0.8)])
@pytest.mark.parametrize("sizes", [(9,), (4, 5), (1,) * 9])
def test_value_and_gradient_are_those_of_rows_in_memory(sizes, sample, monkeypatch):
    # columns that are solved are laid aside, however few
    monkeypatch.setattr(conjugate_gradients, "_WORTH", 0)
    x, f, Y, s2 = problem()
    leaves = [t.requires_grad_() for t in (x, f.first, f.second, f.amplitude, s2)]
    held, streamed = blocks(Y, sizes)
    slow = masked_evidence(x, f, s2, held, sample=sample, tol=TIGHT)
    expected = torch.autograd.grad(slow, leaves)
    for block, chunk_rows in [(streamed, 7), (streamed, 1000), (held, 20)]:
        fast = streamed_evidence(
            x, f, s2, block, sample=sample, chunk_rows=chunk_rows, tol=TIGHT
        )
        torch.testing.assert_close(fast, slow, rtol=1e-11, atol=1e-9)
        for a, b in zip(torch.autograd.grad(fast, leaves), expected, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("sizes", [(9,), (4, 5)])
def test_the_posterior_is_that_of_rows_in_memory(sizes):
    x, f, Y, s2 = problem(1)
    held, streamed = blocks(Y, sizes)
    latents = [x, x + 0.1, x - 0.1]
    mean, covariance = condition_incomplete(f, held, latents, float(s2))
    again = condition_with_holes(streamed, f, latents, float(s2))
    torch.testing.assert_close(again[0], mean, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(again[1], covariance, rtol=1e-8, atol=1e-9)


def test_rows_for_columns_that_nobody_has_are_those_of_rows_in_memory():
    _, _, Y, _ = problem(2)
    held, streamed = blocks(Y, (9,))
    columns = torch.arange(M)
    first = [int((~Y[:, j].isnan()).nonzero()[0]) for j in range(M)]
    chosen = torch.zeros(N, dtype=torch.bool)
    chosen[[3, 5]] = True
    for block in (held, streamed):
        assert block.first_rows(columns, N).tolist() == first
        assert block.observes(chosen).tolist() == (~Y[[3, 5]].isnan()).any(0).tolist()
    some = torch.arange(2, 40, 3)
    torch.testing.assert_close(
        streamed.subset(some).values(), held.subset(some).values(), equal_nan=True
    )
