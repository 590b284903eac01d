"""Log predictive densities of single entries, log E p(y | psi) under psi ~ N(mean, variance), with
first and second derivatives in mean and variance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from bochner.likelihoods.gaussian import Gaussian
from bochner.likelihoods.nonconjugate import Curvatures, Likelihood, Slopes
from bochner.quadrature import laplace


class EntryTerms(Protocol):
    """What single entries add to a row's objective, as a function of the moments of psi."""

    def slopes(self, y: Tensor, mean: Tensor, variance: Tensor) -> Slopes:
        """Return the value and its slopes, elementwise."""

    def curvatures(self, y: Tensor, mean: Tensor, variance: Tensor) -> Curvatures:
        """Return its second derivatives, elementwise."""


@dataclass(frozen=True)
class GaussianEntries:
    """log N(y; mean, variance + noise).

    Attributes
    ----------
    noise : Tensor, scalar or of shape (M,)
    """

    noise: Tensor

    def slopes(self, y: Tensor, mean: Tensor, variance: Tensor) -> Slopes:
        """Return the log density and its slopes."""
        v, away = variance + self.noise.to(y.dtype), y - mean
        on_mean = away / v
        value = -0.5 * ((2.0 * math.pi * v).log() + away * on_mean)
        return Slopes(value, on_mean, 0.5 * (on_mean.square() - 1.0 / v))

    def curvatures(self, y: Tensor, mean: Tensor, variance: Tensor) -> Curvatures:
        """Return its second derivatives."""
        precision = 1.0 / (variance + self.noise.to(y.dtype))
        scaled = (y - mean) * precision
        on_variance = precision * (0.5 * precision - scaled.square())
        return Curvatures(-precision, -scaled * precision, on_variance)


@dataclass(frozen=True)
class LaplaceEntries:
    """Laplace's approximation of log E p(y | psi).

    Its second derivatives are those of log p(y | psi*) + log N(psi*; mean, variance) at its mode:
    the slopes of the log determinant are left out, and Newton's method converges as fast without.

    Attributes
    ----------
    likelihood : Likelihood
    """

    likelihood: Likelihood

    def slopes(self, y: Tensor, mean: Tensor, variance: Tensor) -> Slopes:
        """Return the approximation and its slopes."""
        found = laplace(self.likelihood.density(y), mean, variance)
        shrink = 1.0 / (1.0 - variance * found.second)
        bend = 0.5 * variance * found.third * shrink.square()
        on_variance = 0.5 * found.first.square() + 0.5 * found.second * shrink
        return Slopes(found.value, found.first + bend, on_variance + bend * found.first)

    def curvatures(self, y: Tensor, mean: Tensor, variance: Tensor) -> Curvatures:
        """Return the second derivatives."""
        found = laplace(self.likelihood.density(y), mean, variance)
        on_mean = found.second / (1.0 - variance * found.second)
        mixed = on_mean * found.first
        return Curvatures(on_mean, mixed, mixed * found.first)


@dataclass(frozen=True)
class QuadraticEntries:
    """log E p(y | psi), log p taken for its expansion to second order about the mean of psi.

    Where a row may lie asks for no more digits, and this is one evaluation of the derivatives.

    Attributes
    ----------
    likelihood : Likelihood
    """

    likelihood: Likelihood

    def slopes(self, y: Tensor, mean: Tensor, variance: Tensor) -> Slopes:
        """Return the value and its slopes, third derivatives of log p left out."""
        density = self.likelihood.density(y)
        first, second, _ = density.derivatives(mean)
        second = second.clamp(max=0.0)
        shrink = 1.0 / (1.0 - variance * second)
        on_mean = first * shrink
        value = density.value(mean) + 0.5 * (variance * first * on_mean + shrink.log())
        return Slopes(value, on_mean, 0.5 * (on_mean.square() + second * shrink))

    def curvatures(self, y: Tensor, mean: Tensor, variance: Tensor) -> Curvatures:
        """Return the second derivatives."""
        first, second, _ = self.likelihood.density(y).derivatives(mean)
        second = second.clamp(max=0.0)
        shrink = 1.0 / (1.0 - variance * second)
        on_mean = second * shrink
        mixed = on_mean * first * shrink
        return Curvatures(on_mean, mixed, mixed * first * shrink)


def entries_of(likelihood: Likelihood) -> EntryTerms:
    """Return the log predictive densities of a view's entries."""
    if isinstance(likelihood, Gaussian):
        return GaussianEntries(likelihood.noise_variance.detach())
    return LaplaceEntries(likelihood)
