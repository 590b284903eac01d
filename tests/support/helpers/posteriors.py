"""Views whose weights were conditioned on data, or drawn, without a fit."""

import math

import torch

from bochner.features.fourier import fourier_features
from bochner.kernels.spectral_mixture import NextGenSpectralMixture
from bochner.likelihoods.likelihood import Gaussian
from bochner.prediction.decoding import sample_at
from bochner.prediction.row_batch import by_draw, log_likelihood
from bochner.random import generator
from bochner.weight_posterior.conditioning import SharedDraw
from bochner.weight_posterior.posterior import ViewPosterior


def gaussian_view(dim, m=12, n=100, s2=0.05, seed=0, key="density"):
    """A view whose two draws of the spectrum were conditioned on the same data, and its latents."""
    source = generator(seed, key, dim)
    kernel = NextGenSpectralMixture().initial(2, dim, source)
    spectra = [
        kernel.frequencies(kernel.noise(12, dim, source, "iid")).detach() for _ in range(2)
    ]
    x = torch.randn(n, dim, generator=source, dtype=torch.float64)
    phi = fourier_features(x, spectra[0])
    Y = phi.T @ torch.randn(phi.shape[0], m, generator=source, dtype=torch.float64)
    Y += math.sqrt(s2) * torch.randn(n, m, generator=source, dtype=torch.float64)
    draws = []
    for f in spectra:
        phi = fourier_features(x, f)
        inverse = torch.linalg.inv(phi @ phi.T + s2 * torch.eye(phi.shape[0], dtype=phi.dtype))
        draws.append(SharedDraw(f, inverse @ phi @ Y, inverse[None]))
    groups = torch.zeros(m, dtype=torch.int64)
    return ViewPosterior.of("a", tuple(draws), groups, Gaussian(s2).requires_grad_(False)), x


def drawn_rows(view, dim, n, seed=3):
    """Latents from the prior and rows drawn from the model there."""
    source = generator(seed, "rows")
    x = torch.randn(n, dim, generator=source, dtype=torch.float64)
    return x, sample_at([view], x, source)


def nodes_that_count(log_joint, side, dim, every=5):
    """Nodes of a grid, (T, D), and log_joint there, (T,): those nearest to nodes of a coarse one,
    every so many-th of it, where a density is not less than e^-30 of the largest.
    """
    coarse = side[::every]
    value = log_joint(torch.cartesian_prod(*[coarse] * dim).reshape(-1, dim))
    counts = (value > value.max() - 30.0).reshape([len(coarse)] * dim)
    nearest = ((torch.arange(len(side)) + every // 2) // every).clamp(max=len(coarse) - 1)
    near = counts[torch.meshgrid(*[nearest] * dim, indexing="ij")].flatten()
    grid = torch.cartesian_prod(*[side] * dim).reshape(-1, dim)[near]
    return grid, log_joint(grid)


def log_joint_of(view, row):
    """log p(y, x) of an encoded row as a function of places (T, D), but for the prior's factor."""

    def at(x):
        data = by_draw([view], [row.expand(len(x), -1)])
        return log_likelihood(data, x, [None]) - 0.5 * x.square().sum(1)

    return at


def count_view(likelihood, m, intercept, size, seed=0, key="counts", dim=1):
    """A view of counts with two draws of random weights."""
    source = generator(seed, key)
    kernel = NextGenSpectralMixture().initial(2, dim, source)
    draws = []
    for _ in range(2):
        f = kernel.frequencies(kernel.noise(6, dim, source, "iid")).detach()
        k = 2 * f.first.shape[0]
        mean = size * torch.randn(k, m, generator=source, dtype=torch.float64)
        draws.append(SharedDraw(f, mean, 0.02 * torch.eye(k, dtype=torch.float64)[None]))
    total = torch.full((m,), intercept, dtype=torch.float64)
    groups = torch.zeros(m, dtype=torch.int64)
    view = ViewPosterior.of("a", tuple(draws), groups, likelihood.requires_grad_(False), total)
    return view, torch.randn(60, dim, generator=source, dtype=torch.float64)


def half_seen_view(likelihood, dim, m=12, seed=0):
    """A view of counts that was conditioned where the first latent is about 1, and its latents:
    elsewhere the weights are uncertain.
    """
    source = generator(seed, "half seen", dim)
    kernel = NextGenSpectralMixture().initial(2, dim, source)
    x = 0.5 * torch.randn(60, dim, generator=source, dtype=torch.float64)
    x[:, 0] += 1.0
    draws = []
    for _ in range(2):
        f = kernel.frequencies(kernel.noise(12, dim, source, "iid")).detach()
        phi = fourier_features(x, f)
        precision = 20.0 * phi @ phi.T
        covariance = torch.linalg.inv(torch.eye(len(phi), dtype=torch.float64) + precision)
        w = torch.randn(len(phi), m, generator=source, dtype=torch.float64)
        draws.append(SharedDraw(f, covariance @ precision @ w, covariance[None]))
    total = torch.full((m,), 1.5, dtype=torch.float64)
    groups = torch.zeros(m, dtype=torch.int64)
    view = ViewPosterior.of("a", tuple(draws), groups, likelihood.requires_grad_(False), total)
    return view, x


def conditioned_view(dim, m, n=2000, s2=0.05):
    """A view under two draws of its spectrum, conditioned on data, and those data."""
    source = generator(0, "table", dim)
    kernel = NextGenSpectralMixture().initial(2, dim, source)
    x = torch.randn(n, dim, generator=source, dtype=torch.float64)
    first, second = (
        kernel.frequencies(kernel.noise(8, dim, source, "iid")).detach() for _ in range(2)
    )
    phi = fourier_features(x, first)
    Y = phi.T @ torch.randn(phi.shape[0], m, generator=source, dtype=torch.float64)
    Y += math.sqrt(s2) * torch.randn(n, m, generator=source, dtype=torch.float64)
    draws = []
    for f in (first, second):
        phi = fourier_features(x, f)
        inverse = torch.linalg.inv(phi @ phi.T + s2 * torch.eye(phi.shape[0], dtype=phi.dtype))
        draws.append(SharedDraw(f, inverse @ phi @ Y, inverse[None]))
    groups = torch.zeros(m, dtype=torch.int64)
    return ViewPosterior.of("a", tuple(draws), groups, Gaussian(s2), weight=0.7), x, Y
