"""Weights without some rows: the same as conditioning on the others from scratch."""

import math

import pytest
import torch

from bochner.kernels.spectral_mixture import SpectralMixture
from bochner.likelihoods.likelihood import Gaussian
from bochner.likelihoods.poisson import Poisson
from bochner.random import generator
from bochner.weight_posterior.conditioning import SharedDraw, SpectralDraw
from bochner.weight_posterior.downdating import leave_out
from bochner.weight_posterior.posterior import ViewPosterior

NOISE = 0.2


def _posterior(f, draws, Y, groups):
    """Weights given draws of the latents (S, n, D), every group of columns by the rows in which it
    was seen.
    """
    empty = SharedDraw(
        f, torch.zeros(f.n_features, Y.shape[1], dtype=torch.float64), torch.zeros(1)
    )
    phis, mean, covariance = [empty.features(x) for x in draws], empty.mean.clone(), []
    for group in range(int(groups.max()) + 1):
        columns = (groups == group).nonzero()[:, 0]
        observed = ~Y[:, columns[0]].isnan()
        gram = torch.stack([phi[observed].T @ phi[observed] for phi in phis]).mean(0)
        cross = torch.stack([phi[observed].T @ Y[observed][:, columns] for phi in phis]).mean(
            0
        )
        inverse = torch.linalg.inv(gram + NOISE * torch.eye(f.n_features, dtype=torch.float64))
        mean[:, columns] = inverse @ cross
        covariance.append(inverse)
    return ViewPosterior.of(
        "a", (SharedDraw(f, mean, torch.stack(covariance)),), groups, Gaussian(NOISE)
    )


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("n", [20, 60])
@pytest.mark.parametrize("n_draws", [1, 4])
def test_weights_without_rows_are_those_of_the_other_rows(dim, n, n_draws):
    source = generator(4, "leave out", dim)
    x = torch.randn(n_draws, n, dim, generator=source, dtype=torch.float64)
    kernel = SpectralMixture().initial(2, dim, source)
    f = kernel.frequencies(kernel.noise(8, dim, source, "iid")).detach()
    Y = torch.randn(n, 5, generator=source, dtype=torch.float64)
    groups = torch.tensor([0, 0, 1, 1, 1])
    Y[3:9, 2:] = math.nan  # a second pattern; of the rows that leave, some have it
    leaving = torch.arange(5, 15)
    stay = torch.ones(n, dtype=torch.bool).index_fill_(0, leaving, False)
    whole = _posterior(f, x, Y, groups)
    (left,) = leave_out([whole], x[:, leaving], [Y[leaving]])
    expected = _posterior(f, x[:, stay], Y[stay], groups)
    torch.testing.assert_close(left.draws[0].mean, expected.draws[0].mean)
    torch.testing.assert_close(left.draws[0].covariance, expected.draws[0].covariance)
    assert not torch.allclose(whole.draws[0].mean, left.draws[0].mean)


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("n", [20, 60])
def test_columns_of_their_own_noise_lose_rows_as_if_they_had_never_been(dim, n):
    source = generator(5, "leave out", dim)
    x = torch.randn(2, n, dim, generator=source, dtype=torch.float64)
    kernel = SpectralMixture().initial(2, dim, source)
    f = kernel.frequencies(kernel.noise(8, dim, source, "iid")).detach()
    Y = torch.randn(n, 5, generator=source, dtype=torch.float64)
    groups, noise = (
        torch.tensor([0, 0, 1, 1, 1]),
        torch.tensor([0.1, 0.4, 0.02, 0.3, 1.0], dtype=torch.float64),
    )
    Y[3:9, 2:] = math.nan
    leaving = torch.arange(5, 15)
    stay = torch.ones(n, dtype=torch.bool).index_fill_(0, leaving, False)
    whole = _by_column(f, x, Y, groups, noise)
    (left,) = leave_out([whole], x[:, leaving], [Y[leaving]])
    expected = _by_column(f, x[:, stay], Y[stay], groups, noise)
    torch.testing.assert_close(left.draws[0].mean, expected.draws[0].mean)
    phi = left.draws[0].features(torch.randn(7, dim, generator=source, dtype=torch.float64))
    torch.testing.assert_close(
        left.draws[0].spread(phi, groups), expected.draws[0].spread(phi, groups)
    )
    assert not torch.allclose(whole.draws[0].mean, left.draws[0].mean)


@pytest.mark.parametrize("n", [40, 200])
def test_columns_that_share_an_averaged_covariance_lose_rows_nearly_as_they_would_alone(n):
    source = generator(6, "leave out")
    x = torch.randn(1, n, 2, generator=source, dtype=torch.float64)
    kernel = SpectralMixture().initial(2, 2, source)
    f = kernel.frequencies(kernel.noise(8, 2, source, "iid")).detach()
    empty = SharedDraw(f, torch.zeros(f.n_features, 30, dtype=torch.float64), torch.zeros(1))
    phi = empty.features(x[0])
    truth = phi @ torch.randn(f.n_features, 30, generator=source, dtype=torch.float64)
    Y = truth + NOISE**0.5 * torch.randn(truth.shape, generator=source, dtype=torch.float64)
    Y[torch.rand(Y.shape, generator=source) < 0.3] = math.nan
    leaving = torch.arange(n // 5)
    stay = torch.ones(n, dtype=torch.bool).index_fill_(0, leaving, False)
    exact = _posterior(f, x, Y, torch.arange(30)).draws[0]
    averaged = SharedDraw(f, exact.mean, exact.covariance.mean(0, keepdim=True))
    whole = ViewPosterior.of(
        "a", (averaged,), torch.zeros(30, dtype=torch.int64), Gaussian(NOISE)
    )
    (left,) = leave_out([whole], x[:, leaving], [Y[leaving]])
    expected = _posterior(f, x[:, stay], Y[stay], torch.arange(30)).draws[0]
    new = left.draws[0].covariance[0]
    assert (new - expected.covariance.mean(0)).norm() < 0.5 * (
        averaged.covariance[0] - expected.covariance.mean(0)
    ).norm()
    unseen, mean = phi[leaving], left.draws[0].mean
    assert (unseen @ (mean - expected.mean)).norm() < 0.5 * (
        unseen @ (exact.mean - expected.mean)
    ).norm()


def _by_column(f, draws, Y, groups, noise):
    """The same with one noise variance per column."""
    empty = SharedDraw(
        f, torch.zeros(f.n_features, Y.shape[1], dtype=torch.float64), torch.zeros(1)
    )
    phis, mean = [empty.features(x) for x in draws], empty.mean.clone()
    scales, vectors = torch.zeros(Y.shape[1], f.n_features, dtype=torch.float64), []
    for group in range(int(groups.max()) + 1):
        columns = (groups == group).nonzero()[:, 0]
        observed = ~Y[:, columns[0]].isnan()
        gram = torch.stack([phi[observed].T @ phi[observed] for phi in phis]).mean(0)
        values, directions = torch.linalg.eigh(gram)
        vectors.append(directions)
        for m in columns.tolist():
            cross = torch.stack([phi[observed].T @ Y[observed, m] for phi in phis]).mean(0)
            mean[:, m] = torch.linalg.solve(
                gram + noise[m] * torch.eye(len(gram), dtype=torch.float64), cross
            )
            scales[m] = 1.0 / (values + noise[m])
    draws_of_view = (SpectralDraw(f, mean, torch.stack(vectors), scales),)
    return ViewPosterior.of("a", draws_of_view, groups, Gaussian(noise.tolist()))


def test_views_that_are_not_gaussian_and_rows_without_data_stay():
    f = SpectralMixture().initial(1, 1, generator(0, "f"))
    f = f.frequencies(f.noise(2, 1, generator(0, "noise"), "iid")).detach()
    mean, inverse = (
        torch.zeros(f.n_features, 2, dtype=torch.float64),
        torch.eye(f.n_features, dtype=torch.float64),
    )
    groups = torch.zeros(2, dtype=torch.int64)
    counts = ViewPosterior.of(
        "c",
        (SharedDraw(f, mean, inverse[None]),),
        groups,
        Poisson(),
        torch.zeros(2, dtype=torch.float64),
    )
    real = ViewPosterior.of(
        "g", (SharedDraw(f, mean, inverse[None]),), groups, Gaussian(NOISE)
    )
    x, nothing = (
        torch.zeros(1, 3, 1, dtype=torch.float64),
        torch.full((3, 2), math.nan, dtype=torch.float64),
    )
    left = leave_out([counts, real], x, [nothing, nothing])
    assert left[0] is counts
    torch.testing.assert_close(left[1].draws[0].covariance, real.draws[0].covariance)
