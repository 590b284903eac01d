"""Scattered holes: the bound is the sum of the columns' dense densities, its gradient autograd, in
D = 1, 2, 3.
"""

import pytest
import torch
from torch.distributions import MultivariateNormal

from bochner.features.fourier import fourier_features
from bochner.kernels.spectral_mixture import NextGenSpectralMixture, SpectralMixture
from bochner.objectives.elbo import gaussian_evidence
from bochner.random import generator
from bochner.regression.evidence import view_evidence
from bochner.regression.incomplete import Sample, masked_evidence
from bochner.regression.incomplete_dense import fits, masked_dense_evidence
from bochner.regression.observations import CompleteBlock, IncompleteBlock

TIGHT = 1e-18


def _problem(dim, paired=True, n=29, m=9, n_frequencies=3):
    source = generator(0, "masked", dim)
    kernel = (NextGenSpectralMixture if paired else SpectralMixture)().initial(2, dim, source)
    f = kernel.frequencies(kernel.noise(n_frequencies, dim, source, "iid")).detach()
    x = torch.randn(n + 4, dim, generator=source, dtype=torch.float64)
    # four rows observe nothing of this view
    rows = torch.randperm(n + 4, generator=source)[:n].sort().values
    Y = torch.randn(n, m, generator=source, dtype=torch.float64)
    Y[torch.rand(n, m, generator=source) < torch.linspace(0.1, 0.7, m)] = torch.nan
    Y[:, 2] = torch.nan
    Y[3, 2] = 0.5  # a single entry
    return x, f, Y, rows, torch.tensor(0.3, dtype=torch.float64)


def _leaves(x, f, s2):
    tensors = [x, f.first, f.amplitude, s2] + ([] if f.second is None else [f.second])
    return [t.requires_grad_() for t in tensors]


def _naive(x, f, Y, rows, s2):
    total = torch.zeros((), dtype=torch.float64)
    for y in Y.T:
        observed = ~y.isnan()
        phi = fourier_features(x[rows[observed]], f)
        covariance = phi.T @ phi + s2 * torch.eye(int(observed.sum()), dtype=x.dtype)
        total = total + MultivariateNormal(
            torch.zeros(int(observed.sum()), dtype=x.dtype), covariance
        ).log_prob(y[observed])
    return total


def _block(Y, rows, sizes=(4, 5)):
    return IncompleteBlock.of(Y, rows, torch.arange(Y.shape[1]), sizes)


@pytest.mark.parametrize("sizes", [(9,), (4, 5), (1,) * 9, (1, 8)])
@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_the_value_and_its_gradient_are_those_of_dense_densities(dim, paired, sizes):
    x, f, Y, rows, s2 = _problem(dim, paired)
    leaves = _leaves(x, f, s2)
    slow = _naive(x, f, Y, rows, s2)
    fast = masked_evidence(x, f, s2, _block(Y, rows, sizes), tol=TIGHT)
    torch.testing.assert_close(fast, slow, rtol=1e-11, atol=1e-9)
    for a, b in zip(
        torch.autograd.grad(fast, leaves), torch.autograd.grad(slow, leaves), strict=True
    ):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("noise", [1e-6, 0.3, 1e3])
@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_fewer_rows_than_features_are_dense_and_exact(dim, paired, noise):
    x, f, Y, rows, s2 = _problem(dim, paired, n_frequencies=20)
    Y[4] = torch.nan  # a row of which nothing is seen
    Y[:, 5] = torch.where(Y[:, 5].isnan(), 0.1, Y[:, 5])  # a column without holes
    s2 = s2 / 0.3 * noise
    block = _block(Y, rows)
    assert fits(block, f.n_features)
    leaves = _leaves(x, f, s2)
    slow = _naive(x, f, Y, rows, s2)
    fast = masked_evidence(x, f, s2, block, sample=Sample(1, 0.5))
    torch.testing.assert_close(fast, slow, rtol=1e-8, atol=1e-8)
    for a, b in zip(
        torch.autograd.grad(fast, leaves), torch.autograd.grad(slow, leaves), strict=True
    ):
        largest = float(b.abs().max())
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6 * largest)


def test_many_holes_and_many_rows_are_not_dense():
    _, f, Y, rows, _ = _problem(2, n_frequencies=20)
    assert fits(_block(Y, rows), f.n_features)
    assert not fits(_block(Y, rows), 28)
    drawn = torch.rand(100, 100, generator=generator(1, "wide"))
    for share, cheap in ((0.01, True), (0.5, False)):
        Y = torch.where(drawn < share, torch.nan, 1.0)
        assert fits(_block(Y, torch.arange(100), (100,)), 100) is cheap


def test_chunks_of_columns_change_nothing():
    x, f, Y, rows, s2 = _problem(2, n_frequencies=20)
    block = _block(Y, rows)
    features = fourier_features(block.rows.take(x), f)
    whole = masked_dense_evidence(features, block, s2)
    one_by_one = masked_dense_evidence(features, block, s2, most=1)
    for together, apart in zip(whole, one_by_one, strict=True):
        torch.testing.assert_close(together, apart, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_it_is_the_sum_over_blocks_of_equal_patterns(dim):
    x, f, Y, rows, s2 = _problem(dim)
    blocks = tuple(
        CompleteBlock.of(Y[observed, m][:, None], rows[observed], torch.tensor([m]))
        for m, observed in enumerate((~Y.isnan()).T)
    )
    old = view_evidence(x, f, s2, blocks)
    torch.testing.assert_close(
        gaussian_evidence(x, f, s2, (_block(Y, rows),)), old, rtol=1e-4, atol=0.0
    )
    mixed = gaussian_evidence(
        x,
        f,
        s2,
        (*blocks[:3], IncompleteBlock.of(Y[:, 3:], rows, torch.arange(3, 9), (1,) * 6)),
    )
    torch.testing.assert_close(mixed, old, rtol=1e-10, atol=1e-9)


@pytest.mark.parametrize("chunk_rows", [1, 7, 28, 1000])
def test_chunks_of_rows_change_nothing(chunk_rows):
    x, f, Y, rows, s2 = _problem(2)
    leaves, sample = _leaves(x, f, s2), Sample(3, 0.4)
    whole = masked_evidence(x, f, s2, _block(Y, rows), sample=sample)
    cut = masked_evidence(x, f, s2, _block(Y, rows), sample=sample, chunk_rows=chunk_rows)
    torch.testing.assert_close(cut, whole)
    for a, b in zip(
        torch.autograd.grad(cut, leaves), torch.autograd.grad(whole, leaves), strict=True
    ):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("n_columns", [2, 0.5])
@pytest.mark.parametrize("sizes", [(9,), (4, 5)])
def test_a_sample_of_columns_is_unbiased_and_so_is_its_gradient(sizes, n_columns):
    x, f, Y, rows, s2 = _problem(2)
    leaves, block = _leaves(x, f, s2), _block(Y, rows, sizes)
    exact = masked_evidence(x, f, s2, block)
    # with 2 of 9 columns the start decides by its tenths of 2/9, with half a column by twentieths
    starts = [(i + 0.5) / 90 for i in range(90)]
    sampled = torch.stack(
        [masked_evidence(x, f, s2, block, sample=Sample(n_columns, start)) for start in starts]
    )
    torch.testing.assert_close(sampled.mean(), exact, rtol=1e-10, atol=1e-9)
    assert float(sampled.detach().std()) > 0
    means = torch.autograd.grad(sampled.mean(), leaves)
    for a, b in zip(means, torch.autograd.grad(exact, leaves), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-9)


def test_every_column_is_as_likely_to_be_sampled():
    counts = torch.zeros(7)
    for i in range(700):
        chosen, share = Sample(3, (i + 0.5) / 700).of(7, torch.device("cpu"))
        assert len(chosen.unique()) == 3
        assert share == pytest.approx(7 / 3)
        counts[chosen] += 1
    torch.testing.assert_close(counts, torch.full((7,), 300.0))
    seldom = [Sample(0.5, (i + 0.5) / 700).of(7, torch.device("cpu")) for i in range(700)]
    assert {share for _, share in seldom} == {14.0}
    assert max(len(chosen) for chosen, _ in seldom) == 1
    counts = torch.bincount(torch.cat([chosen for chosen, _ in seldom]), minlength=7)
    assert counts.tolist() == [50] * 7
    some = [Sample(1.4, (i + 0.5) / 700).of(7, torch.device("cpu"))[0] for i in range(700)]
    assert {len(chosen) for chosen in some} == {1, 2}
    assert torch.bincount(torch.cat(some), minlength=7).tolist() == [140] * 7


@pytest.mark.parametrize(
    ("m", "least", "expected"),
    [(9, 0.5, 0.5), (192, 0.5, 1.5), (784, 0.5, 2.0), (9, 2.0, 2.0)],
)
def test_wide_blocks_have_more_columns_in_a_step(m, least, expected):
    assert Sample.among(m, least, 0.3) == Sample(expected, 0.3)


def test_means_that_are_not_solved_to_the_end_only_lower_the_value():
    x, f, Y, rows, s2 = _problem(2)
    exact, rough = (
        masked_evidence(x, f, s2, _block(Y, rows, (9,)), tol=tol) for tol in (TIGHT, 10.0)
    )
    assert float(rough) < float(exact)


def test_single_precision_products_agree_with_double():
    x, f, Y, rows, s2 = _problem(2)
    exact = masked_evidence(x, f, s2, _block(Y, rows))
    single = masked_evidence(x.float(), f, s2, _block(Y.float(), rows))
    assert single.dtype == torch.float64
    assert abs(float(single - exact)) < 1e-4 * abs(float(exact))


def test_an_incomplete_block_counts_observed_entries():
    _, _, Y, rows, _ = _problem(1)
    block = _block(Y, rows)
    assert block.n_entries == int((~Y.isnan()).sum())


@pytest.mark.parametrize("n_frequencies", [6, 40], ids=["rows", "features"])
@pytest.mark.parametrize("s2", [1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_single_precision_keeps_the_bound_of_data_almost_without_noise(dim, s2, n_frequencies):
    x, f, _, rows, _ = _problem(dim, n=90, n_frequencies=n_frequencies)
    source = generator(1, "clean")
    x32, f32 = x.float(), f.to(torch.float32)
    phi = fourier_features(x32[rows], f32).double()
    weights = torch.randn(phi.shape[0], 12, generator=source, dtype=torch.float64)
    Y = phi.T @ weights + s2**0.5 * torch.randn(90, 12, generator=source, dtype=torch.float64)
    Y = Y.float()
    Y[torch.rand(Y.shape, generator=source) < 0.2] = torch.nan
    noise = torch.tensor(s2, dtype=torch.float64)
    slow = _naive_of(phi, Y.double(), noise)
    block = IncompleteBlock.of(Y, rows, torch.arange(12), (12,))
    fast = masked_evidence(x32, f32, noise, block)
    n_entries = block.n_entries
    # the means' tolerance of 2e-4 nats an entry, and rounding by the condition number 1 / s2
    assert float((fast - slow).abs()) < max(2e-3, 2e-8 / s2) * n_entries


def _naive_of(phi, Y, s2):
    total = torch.zeros((), dtype=torch.float64)
    for y in Y.T:
        observed = ~y.isnan()
        features = phi[:, observed]
        covariance = features.T @ features + s2 * torch.eye(
            int(observed.sum()), dtype=torch.float64
        )
        total = total + MultivariateNormal(
            y.new_zeros(int(observed.sum())), covariance
        ).log_prob(y[observed])
    return total
