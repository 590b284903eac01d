"""Signed spectra by quadrature: the kernel as a signed mixture of plane waves averaged over
directions.

A radial kernel in d dimensions is f(z) = sum_j a_j O_d(r_j z), z = ||x - y||, with O_d the mean
plane wave. The weights a_j of a grid of radii come from non-negative least squares on the pairs of
a sketch, positive and negative ones apart, with the variance that drawing H frequencies will add as
a penalty: (sum_j |a_j| s_j)^2 / H a pair, s_j the standard deviation of a wave of radius r_j over
directions, where radii share the frequencies in proportion to |a_j| s_j. The TL1 kernel's spectrum
is known: |t| = 1/2 - (4 / pi^2) sum over odd n of cos(n pi t) / n^2 on [-1, 1].
"""

from __future__ import annotations

import math
from dataclasses import dataclass

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
from bochner.memory import chunks

# Pairs of rows of which the kernel is fitted, numbers of their differences at a time, and radii of
# which its spectrum is made.
_PAIRS = 3000
_NUMBERS = 2**20
_RADII = 48
# Largest radius in multiples of the width of a direction, 1 / sqrt(d), at the widest distance; in
# radians where there are few dimensions.
_WIDTHS = 12.0
_LONGEST = 85.0
# Orders of TL1's series beyond those that all columns may have: some columns vary more.
_MORE_ORDERS = 4


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
        return cosine_series(sketch, n_frequencies)
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
        H; radii share them so that draws differ least from their mean.
    """
    dim = sketch.x.shape[1]
    radii = _grid(sketch, dim)
    pairs = _Pairs.of(sketch, radii)
    weights = pairs.weights(n_frequencies)
    if not bool((weights > 0).any()):  # the draws would differ more than the kernel
        weights[0] = 1e-300
    counts = _counts(weights, weights * pairs.deviation.repeat(2), n_frequencies)
    # the positive part comes first
    sign = torch.ones_like(weights)
    sign[len(radii) :] = -1.0
    each = (weights / counts.clamp(min=1)).repeat_interleave(counts)
    points = (each, sign.repeat_interleave(counts), radii.repeat(2).repeat_interleave(counts))
    weight, signs, radius = (values.to(sketch.x.device) for values in points)
    return RadialFrequencies(weight, signs, radius, dim)


def cosine_series(sketch: Sketch, n_frequencies: int) -> GaussianFrequencies:
    """Return the terms of TL1's cosine series that vary most over pairs of the sketch; they are no
    draws: every frequency is certain.

    tau - ||delta||_1 = (tau - d/2) + (4 / pi^2) sum_i sum_{n odd} cos(n pi delta_i) / n^2 for
    |delta_i| <= 1. The constant is what the kernel is on average without the terms that are kept:
    tau - d/2 and the means of those left out, where the kernel is not cut at 0.
    """
    dim = sketch.x.shape[1]
    n_terms = n_frequencies - 1
    n_orders = -(-n_terms // dim) + _MORE_ORDERS
    orders = 2.0 * torch.arange(n_orders, dtype=torch.float64) + 1.0
    amplitude = (4.0 / (math.pi * orders).square() / sketch.magnitude)[:, None].expand(-1, dim)
    means = torch.stack([_mean_waves(math.pi * n, sketch.x) for n in orders.tolist()]).cpu()
    doubled = torch.stack([_mean_waves(math.tau * n, sketch.x) for n in orders.tolist()]).cpu()
    variance = (0.5 * (1.0 + doubled) - means.square()).clamp(min=0.0)
    varying = orders[:, None] ** -4.0 * variance
    # small orders first where neither varies
    kept = varying.flatten().argsort(descending=True, stable=True)[:n_terms]
    frequencies = torch.zeros(n_frequencies, dim, dtype=torch.float64)
    frequencies[torch.arange(1, n_frequencies), kept % dim] = math.pi * orders[kept // dim]
    weight = torch.empty(n_frequencies, dtype=torch.float64)
    weight[1:] = amplitude.flatten()[kept]
    n = len(sketch.x)
    off = sketch.target.sum() - torch.diagonal(sketch.target).sum()
    constant = float(off) / (n * (n - 1)) - float((weight[1:] * means.flatten()[kept]).sum())
    weight[0] = max(abs(constant), 1e-300)
    sign = torch.ones_like(weight)
    if constant < 0:  # the positive part comes first
        sign[0] = -1.0
        frequencies, weight, sign = (
            torch.roll(values, -1, 0) for values in (frequencies, weight, sign)
        )
    weight, sign, frequencies = (v.to(sketch.x.device) for v in (weight, sign, frequencies))
    return GaussianFrequencies(weight, sign, frequencies, torch.zeros_like(frequencies))


def _mean_waves(frequency: float, x: Tensor) -> Tensor:
    """Return the mean of cos(frequency (x_i - x_j)) over pairs of different rows, column by column,
    (n, d) -> (d,).
    """
    phase = frequency * x
    n = len(x)
    square = phase.cos().sum(0).square() + phase.sin().sum(0).square()
    return (square - n) / (n * (n - 1))


def _grid(sketch: Sketch, dim: int) -> Tensor:
    """Radii from waves longer than the data to waves that vary within the closest pairs."""
    distances = sketch.distances(500).cpu()
    if not len(distances):
        return torch.zeros(1, dtype=torch.float64)
    middle = float(distances.median())
    widest = float(distances.max())
    close = float(distances.quantile(0.02))
    low = 0.05 * math.sqrt(dim) / middle
    high = min(4.0 * math.sqrt(dim) / close, max(_LONGEST, _WIDTHS * math.sqrt(dim)) / widest)
    grid = torch.logspace(
        math.log10(low), math.log10(max(high, 2 * low)), _RADII - 1, dtype=torch.float64
    )
    return torch.cat([torch.zeros(1, dtype=torch.float64), grid])


@dataclass(frozen=True)
class _Pairs:
    """Pairs of a sketch's rows, and the mean waves of every radius between them.

    Attributes
    ----------
    waves : Tensor of shape (P, R)
    deviation : Tensor of shape (R,)
        Standard deviation of a wave over directions, root mean square over the pairs.
    target : Tensor of shape (P,)
        Kernel values in units of ``scale``.
    scale : float
    """

    waves: Tensor
    deviation: Tensor
    target: Tensor
    scale: float

    @classmethod
    def of(cls, sketch: Sketch, radii: Tensor) -> _Pairs:
        n = len(sketch.x)
        dim = sketch.x.shape[1]
        first, second = torch.triu_indices(n, n, 1)
        chosen = evenly(len(first), _PAIRS)
        i = first[chosen].to(sketch.x.device)
        j = second[chosen].to(sketch.x.device)
        # of wide tables some pairs at a time
        some = chunks(len(chosen), max(1, _NUMBERS // dim))
        apart = [(sketch.x[i[part]] - sketch.x[j[part]]).norm(dim=1) for part in some]
        phases = torch.cat(apart).cpu()[:, None] * radii
        waves = direction_mean(phases, dim)
        # cos^2 = (1 + cos of twice) / 2; beyond the widths the mean is zero, and costs nodes
        twice = (2.0 * phases).clamp(max=max(2.0 * _LONGEST, _WIDTHS * math.sqrt(dim)))
        square = 0.5 * (1.0 + direction_mean(twice, dim))
        variance = (square - waves.square()).clamp(min=0.0).mean(0)
        target = sketch.target[i, j].cpu() / sketch.scale
        return cls(waves, variance.sqrt(), target, sketch.scale)

    def weights(self, n_frequencies: int) -> Tensor:
        """Return non-negative weights of the radii in the positive part and in the negative one,
        (2 R,): least squares, with what drawing the frequencies will add to the error.
        """
        design = torch.cat([self.waves, -self.waves], 1)
        penalty = math.sqrt(len(self.target) / n_frequencies) * self.deviation.repeat(2)
        solution, _ = nnls(
            torch.cat([design, penalty[None]]).numpy(),
            torch.cat([self.target, self.target.new_zeros(1)]).numpy(),
            maxiter=50 * design.shape[1],
        )
        return torch.from_numpy(np.asarray(solution)) * self.scale


def _counts(weights: Tensor, deviations: Tensor, n_frequencies: int) -> Tensor:
    """Return how many of the frequencies every radius has, (2 R,), int64: one where there is any
    weight, each further one where it lowers the sum of deviation^2 / count most.

    Of fewer frequencies than radii the heaviest remain.
    """
    counts = torch.zeros_like(weights, dtype=torch.int64)
    kept = weights.argsort(descending=True, stable=True)[:n_frequencies]
    kept = kept[weights[kept] > 0]
    counts[kept] = 1
    square = torch.where(counts > 0, deviations.square(), -1.0)
    for _ in range(n_frequencies - len(kept)):
        counts[(square / (counts * (counts + 1)).clamp(min=1)).argmax()] += 1
    return counts


def evenly(n: int, most: int) -> Tensor:
    """Return at most so many of the numbers below n, from the first to the last at even steps."""
    count = min(most, n)
    # whole numbers: single precision does not know the last of 2^24 or more
    return torch.arange(count) * (n - 1) // max(count - 1, 1)
