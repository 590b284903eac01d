"""The collapsed bound equals the dense density, its gradient plain autograd, chunked or not, in D =
1, 2, 3.
"""

import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal

from bochner.features.fourier import fourier_features
from bochner.kernels.base import Frequencies
from bochner.kernels.spectral_mixture import NextGenSpectralMixture, SpectralMixture
from bochner.processes import Alone
from bochner.random import generator
from bochner.regression.evidence import view_evidence
from bochner.regression.noise import SharedNoise, statistics
from bochner.regression.observations import AllRows, CompleteBlock


def _problem(
    dim: int, paired: bool, n: int = 23, m: int = 5, n_frequencies: int = 3, seed: int = 0
):
    source = generator(seed, "test", dim)
    kernel = (NextGenSpectralMixture if paired else SpectralMixture)().initial(2, dim, source)
    f = kernel.frequencies(kernel.noise(n_frequencies, dim, source, "iid")).detach()
    x = torch.randn(n, dim, generator=source, dtype=torch.float64)
    Y = torch.randn(n, m, generator=source, dtype=torch.float64)
    return x, f, Y, torch.tensor(0.3, dtype=torch.float64)


def _naive(x: Tensor, f: Frequencies, Y: Tensor, s2: Tensor) -> Tensor:
    phi = fourier_features(x, f)
    normal = MultivariateNormal(
        torch.zeros(len(x), dtype=x.dtype), phi.T @ phi + s2 * torch.eye(len(x), dtype=x.dtype)
    )
    return normal.log_prob(Y.T).sum()


def _leaves(x: Tensor, f: Frequencies, s2: Tensor) -> list[Tensor]:
    tensors = [x, f.first, f.amplitude, s2] + ([] if f.second is None else [f.second])
    return [t.requires_grad_() for t in tensors]


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_woodbury_and_dense_forms_are_the_normal_density(dim, paired):
    x, f, Y, s2 = _problem(dim, paired)
    phi, expected = fourier_features(x, f), _naive(x, f, Y, s2)
    noise = SharedNoise(s2)
    torch.testing.assert_close(
        noise.evidence(statistics(phi, Y)).value, expected, rtol=1e-12, atol=1e-10
    )
    torch.testing.assert_close(
        noise.dense_evidence(phi, CompleteBlock.of(Y)).value, expected, rtol=1e-12, atol=1e-10
    )


@pytest.mark.parametrize("n_frequencies", [3, 20])  # both forms
@pytest.mark.parametrize("per_column", [False, True])
@pytest.mark.parametrize("rotated", [False, True])
def test_values_alone_are_those_that_come_with_gradients(n_frequencies, per_column, rotated):
    x, f, Y, s2 = _problem(2, True, n_frequencies=n_frequencies)
    block = CompleteBlock.of(Y)
    if rotated and not per_column:
        columns = torch.arange(Y.shape[1] + 2)
        block = CompleteBlock(Y, AllRows(), columns, block.square + 3.0)
    if per_column:
        s2 = s2 * torch.linspace(0.5, 2.0, Y.shape[1], dtype=torch.float64)
    with_gradient = view_evidence(x.clone().requires_grad_(), f, s2, (block,))
    alone = view_evidence(x, f, s2, (block,))
    torch.testing.assert_close(alone, with_gradient.detach(), rtol=1e-12, atol=1e-10)


@pytest.mark.parametrize("n_frequencies", [3, 20])  # K = 12 < N = 23 < K = 80: both forms
@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_closed_form_gradient_is_that_of_plain_autograd(dim, paired, n_frequencies):
    x, f, Y, s2 = _problem(dim, paired, n_frequencies=n_frequencies)
    leaves = _leaves(x, f, s2)
    slow = torch.autograd.grad(_naive(x, f, Y, s2), leaves)
    fast = torch.autograd.grad(view_evidence(x, f, s2, (CompleteBlock.of(Y),)), leaves)
    for a, b in zip(fast, slow, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("chunk_rows", [1, 7, 22, 23, 1000])
def test_chunked_gradient_is_the_full_gradient_with_missing_rows(chunk_rows):
    x, f, Y, s2 = _problem(2, True, n=31)
    leaves = _leaves(x, f, s2)
    rows = torch.tensor([i for i in range(31) if i % 5])
    blocks = (CompleteBlock.of(Y[rows], rows),)
    slow_value = _naive(x[rows], f, Y[rows], s2)
    fast_value = view_evidence(x, f, s2, blocks, chunk_rows=chunk_rows)
    torch.testing.assert_close(fast_value, slow_value, rtol=1e-12, atol=1e-9)
    for a, b in zip(
        torch.autograd.grad(fast_value, leaves),
        torch.autograd.grad(slow_value, leaves),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-9)


def test_scattered_holes_are_integrated_out_exactly():
    x, f, Y, s2 = _problem(2, True)
    observed = torch.rand(Y.shape, generator=generator(1, "mask")) > 0.3
    blocks, expected = [], torch.zeros((), dtype=torch.float64)
    for m in range(Y.shape[1]):
        rows = observed[:, m].nonzero()[:, 0]
        blocks.append(CompleteBlock.of(Y[rows][:, [m]], rows, torch.tensor([m])))
        expected = expected + _naive(x[rows], f, Y[rows][:, [m]], s2)
    torch.testing.assert_close(
        view_evidence(x, f, s2, tuple(blocks)), expected, rtol=1e-12, atol=1e-9
    )


def test_statistics_add():
    x, f, Y, _ = _problem(3, True)
    phi = fourier_features(x, f)
    both, parts = (
        statistics(phi, Y),
        statistics(phi[:, :9], Y[:9]) + statistics(phi[:, 9:], Y[9:]),
    )
    assert (both.n_rows, both.n_columns) == (parts.n_rows, parts.n_columns) == Y.shape
    torch.testing.assert_close(parts.gram, both.gram)
    torch.testing.assert_close(parts.cross, both.cross)
    assert parts.square == pytest.approx(both.square)


class Beside(Alone):
    """One of two processes, which knows what the other adds."""

    size = 2

    def __init__(self, other):
        self.other = other

    def total(self, count):
        return count + self.other.n_rows

    def sum(self, values):
        other = self.other
        parts = [
            other.gram,
            other.cross,
            torch.tensor(other.square),
            torch.tensor(float(other.n_rows)),
        ]
        wire = torch.cat([part.reshape(-1).double() for part in parts])
        # gradients of the frequencies stay this process's share
        return values + wire if values.shape == wire.shape else values


def test_adding_statistics_over_processes_gives_the_same_value_and_gradient():
    x, f, Y, s2 = _problem(2, True)
    leaves = _leaves(x, f, s2)
    whole = view_evidence(x, f, s2, (CompleteBlock.of(Y),), chunk_rows=6)
    halves = [torch.arange(10), torch.arange(10, len(x))]
    parts = [statistics(fourier_features(x[r].detach(), f), Y[r]) for r in halves]
    gradients = []
    for mine, other in ((0, 1), (1, 0)):
        rows = halves[mine]
        block = CompleteBlock.of(Y[rows], rows)
        value = view_evidence(x, f, s2, (block,), processes=Beside(parts[other]))
        torch.testing.assert_close(value, whole)
        gradients.append(torch.autograd.grad(value, leaves))
    expected = torch.autograd.grad(whole, leaves)
    # every process sees the whole noise gradient, and its own rows' share of the others
    for i in (0, 1, 2, 4):
        torch.testing.assert_close(
            gradients[0][i] + gradients[1][i], expected[i], rtol=1e-8, atol=1e-9
        )
    torch.testing.assert_close(gradients[0][3], expected[3])


def test_float32_products_agree_with_float64():
    x, f, Y, s2 = _problem(2, True, n=400, n_frequencies=10)
    exact = view_evidence(x, f, s2, (CompleteBlock.of(Y),))
    single = view_evidence(x.float(), f, s2, (CompleteBlock.of(Y.float()),))
    assert single.dtype == torch.float64
    assert abs(float(single - exact)) < 1e-5 * abs(float(exact))


@pytest.mark.parametrize("s2", [1e-2, 1e-4, 1e-6, 1e-8])
@pytest.mark.parametrize("n_frequencies", [10, 60])  # K = 40 < N = 200 < K = 240
@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_single_precision_keeps_bound_and_gradient_of_data_almost_without_noise(
    dim, columns, n_frequencies, s2
):
    x, f, _, _ = _problem(dim, True, n=200, n_frequencies=n_frequencies, seed=dim)
    x, f = x.float(), f.to(torch.float32)
    source = generator(1, "test", dim)
    phi = fourier_features(x.double(), f.to(torch.float64))
    weights = torch.randn(len(phi), 4, generator=source, dtype=torch.float64)
    noise = torch.randn(200, 4, generator=source, dtype=torch.float64)
    Y = (phi.T @ weights + s2**0.5 * noise).float()
    variance = torch.full((4,) if columns else (), s2, dtype=torch.float64)

    def both(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        latents = x.to(dtype).requires_grad_()
        block = CompleteBlock.of(Y.to(dtype))
        value = view_evidence(latents, f.to(dtype), variance, (block,))
        return value.detach(), torch.autograd.grad(value, latents)[0].double()

    value, gradient = both(torch.float32)
    exact, exact_gradient = both(torch.float64)
    # features themselves are rounded: to 1e-7 of an amplitude of about one
    rounded = 1e-7 / s2**0.5
    assert abs(float(value - exact)) < 800 * (1e-4 + 3 * rounded)
    assert (
        float((gradient - exact_gradient).norm() / exact_gradient.norm()) < 1e-2 + 30 * rounded
    )
