"""Signed spectra by quadrature: the kernel as a signed mixture of plane waves averaged over
directions.

A radial kernel in d dimensions is f(z) = sum_j a_j O_d(r_j z), z = ||x - y||, with O_d the mean
plane wave. The weights a_j of a grid of radii come from non-negative least squares on the pairs of
a sketch, positive and negative ones apart, with the variance that drawing H frequencies will add as
a penalty: (sum |a|)^2 / (2 H) a pair. The TL1 kernel's spectrum is known: |t| = 1/2 - (4 / pi^2)
sum over odd n of cos(n pi t) / n^2 on [-1, 1].
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor

from bochner.errors import InputError, message
from bochner.features.spherical import direction_mean, directions
from bochner.kernels.domains import IndefiniteKernel
from bochner.kernels.indefinite import TL1
from bochner.krein.signed_frequencies import (
    GaussianFrequencies,
    RadialFrequencies,
    SignedFrequencies,
)
from bochner.krein.sketch import Sketch

# Pairs of rows of which the kernel is fitted, and radii of which its spectrum is made.
_PAIRS = 3000
_RADII = 48
# Largest radius in multiples of the width of a direction, 1 / sqrt(d), at the widest distance.
_WIDTHS = 12.0


def spectral(
    kernel: IndefiniteKernel, sketch: Sketch, n_frequencies: int
) -> SignedFrequencies:
    """Return frequencies from the kernel's own signed spectrum, weights in units of the sketch.

    Raises
    ------
    InputError
        The kernel is neither radial on its domain nor TL1.
    """
    if isinstance(kernel, TL1):
        series = cosine_series(
            kernel.tau_for(sketch.x.shape[1]), sketch.x.shape[1], n_frequencies
        )
        return replace(series, weight=series.weight / sketch.magnitude)
    if not kernel.radial:
        got = type(kernel).__name__
        raise InputError(
            message(
                "a kernel with a known spectrum for inference='spectral'",
                got,
                "use 'gradient'",
            )
        )
    return radial_frequencies(sketch, n_frequencies)


def search_start(
    sketch: Sketch, n_frequencies: int, source: torch.Generator
) -> GaussianFrequencies:
    """Return frequencies for a search to start from: waves of one to three radians over a typical
    distance.

    Waves this long still see every row, so their gradients say where to go; shorter ones start
    lost. The negative part gets twice the share of the negative eigenvalues, no more than two
    fifths; no part where there are none.
    """
    dim = sketch.x.shape[1]
    n_negative = 0
    if sketch.negative_mass > 0 and n_frequencies > 1:
        n_negative = max(1, round(min(0.4, 2.0 * sketch.negative_mass) * n_frequencies))
    radius = (
        3.0 ** torch.rand(n_frequencies, generator=source, dtype=torch.float64) / sketch.unit
    )
    mean = radius[:, None] * directions(n_frequencies, dim, source)
    diagonal = float(torch.diagonal(sketch.target).mean().abs()) or sketch.scale
    weight = torch.full_like(radius, diagonal / (n_frequencies - n_negative))
    sign = torch.ones_like(radius)
    if n_negative:
        sign[-n_negative:] = -1.0
    weight, sign, mean = (values.to(sketch.x.device) for values in (weight, sign, mean))
    return GaussianFrequencies(weight, sign, mean, torch.zeros_like(mean))


def radial_frequencies(sketch: Sketch, n_frequencies: int) -> RadialFrequencies:
    """Return the best signed radial mixture for the sketch.

    Parameters
    ----------
    sketch : Sketch
    n_frequencies : int
        H; positive and negative part share them in proportion to their weight.
    """
    dim = sketch.x.shape[1]
    device = sketch.x.device
    radii = _grid(sketch, dim)
    positive, negative = _weights(sketch, radii, n_frequencies)
    total = float(positive.sum() + negative.sum())
    # the penalty outweighs the kernel
    if not total > 0:
        positive = positive + 1e-300
        total = 1.0
    share = float(negative.sum()) / total
    least = 1 if share > 0 and n_frequencies > 1 else 0
    n_negative = min(max(round(share * n_frequencies), least), n_frequencies - 1)
    radius = []
    weight = []
    sign = []
    for mass, count, s in (
        (positive, n_frequencies - n_negative, 1.0),
        (negative, n_negative, -1.0),
    ):
        radius.append(_quantiles(radii, mass, count))
        weight.append(
            torch.full(
                (count,), max(float(mass.sum()), 1e-300) / max(count, 1), dtype=torch.float64
            )
        )
        sign.append(torch.full((count,), s, dtype=torch.float64))
    points = (
        torch.cat(weight).to(device),
        torch.cat(sign).to(device),
        torch.cat(radius).to(device),
    )
    return RadialFrequencies(*points, dim)


def cosine_series(tau: float, dim: int, n_frequencies: int) -> GaussianFrequencies:
    """Return the largest terms of TL1's cosine series; they are no draws: every frequency is
    certain.

    tau - ||delta||_1 = (tau - d/2) + (4 / pi^2) sum_i sum_{n odd} cos(n pi delta_i) / n^2 for
    |delta_i| <= 1: a sum of positive terms where tau >= d/2. Terms left out count as constants,
    right for rows close to each other. Where the kernel is cut at 0 the series is not the kernel.
    """
    frequencies = torch.zeros(n_frequencies, dim, dtype=torch.float64)
    weight = torch.empty(n_frequencies, dtype=torch.float64)
    for h in range(1, n_frequencies):
        level, axis = divmod(h - 1, dim)
        order = 2 * level + 1
        frequencies[h, axis] = order * math.pi
        weight[h] = 4.0 / (math.pi * order) ** 2
    constant = tau - float(weight[1:].sum())
    weight[0] = max(abs(constant), 1e-300)
    sign = torch.ones_like(weight)
    if constant < 0:  # the positive part comes first
        sign[0] = -1.0
        frequencies, weight, sign = (
            torch.roll(values, -1, 0) for values in (frequencies, weight, sign)
        )
    return GaussianFrequencies(weight, sign, frequencies, torch.zeros_like(frequencies))


def _grid(sketch: Sketch, dim: int) -> Tensor:
    """Radii from waves longer than the data to waves that vary within the closest pairs."""
    distances = torch.pdist(sketch.x[: min(len(sketch.x), 500)]).cpu()
    distances = distances[distances > 0]
    if not len(distances):
        return torch.zeros(1, dtype=torch.float64)
    middle = float(distances.median())
    widest = float(distances.max())
    close = float(distances.quantile(0.02))
    low = 0.05 * math.sqrt(dim) / middle
    high = min(4.0 * math.sqrt(dim) / close, max(85.0, _WIDTHS * math.sqrt(dim)) / widest)
    grid = torch.logspace(
        math.log10(low), math.log10(max(high, 2 * low)), _RADII - 1, dtype=torch.float64
    )
    return torch.cat([torch.zeros(1, dtype=torch.float64), grid])


def _weights(sketch: Sketch, radii: Tensor, n_frequencies: int) -> tuple[Tensor, Tensor]:
    """Non-negative weights of the radii in the positive and in the negative part."""
    n = len(sketch.x)
    first, second = torch.triu_indices(n, n, 1)
    chosen = evenly(len(first), _PAIRS)
    i = first[chosen].to(sketch.x.device)
    j = second[chosen].to(sketch.x.device)
    z = (sketch.x[i] - sketch.x[j]).norm(dim=1).cpu()
    waves = direction_mean(z[:, None] * radii, sketch.x.shape[1])
    design = torch.cat([waves, -waves], 1)
    penalty = torch.full(
        (1, design.shape[1]), math.sqrt(len(z) / (2.0 * n_frequencies)), dtype=torch.float64
    )
    scale = sketch.scale
    goal = torch.cat([sketch.target[i, j].cpu() / scale, torch.zeros(1, dtype=torch.float64)])
    solution, _ = nnls(
        torch.cat([design, penalty]).numpy(), goal.numpy(), maxiter=50 * design.shape[1]
    )
    weights = torch.from_numpy(np.asarray(solution)) * scale
    return weights[: len(radii)], weights[len(radii) :]


def evenly(n: int, most: int) -> Tensor:
    """Return at most so many of the numbers below n, from the first to the last at even steps."""
    count = min(most, n)
    # whole numbers: single precision does not know the last of 2^24 or more
    return torch.arange(count) * (n - 1) // max(count - 1, 1)


def _quantiles(radii: Tensor, mass: Tensor, count: int) -> Tensor:
    """Radii at evenly spaced quantiles: every draw holds the spectrum's mass to within 1 /
    count.
    """
    if not float(mass.sum()) > 0:
        return radii[len(radii) // 2].expand(count).clone()
    cumulative = (mass / mass.sum()).cumsum(0)
    levels = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    return radii[torch.searchsorted(cumulative, levels).clamp(max=len(radii) - 1)]
