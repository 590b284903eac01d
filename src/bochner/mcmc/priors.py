"""The prior distributions of everything that the sampler draws."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bochner.data.arrays import Float64Array


@dataclass(frozen=True)
class Priors:
    """Hyperparameters; data of Gaussian views are centred and have unit variance.

    Attributes
    ----------
    concentration : (float, float)
        Shape and rate of the gamma prior of the Dirichlet process's concentration.
    kappa, extra_degrees, scale : float
        Components: mean ~ N(0, covariance / kappa), covariance ~ IW(scale I, D + extra_degrees).
    ratio : (float, float)
        Mean and standard deviation of the normal prior of log(variance / noise variance), and of
        log variance in non-conjugate views.
    noise : (float, float)
        Shape and rate of the inverse gamma prior of the noise variance.
    intercept : float
        Standard deviation of the intercepts of non-conjugate views.
    dispersion : (float, float)
        Shape and rate of the gamma prior of the negative binomial's dispersion r.
    """

    concentration: tuple[float, float] = (1.0, 1.0)
    kappa: float = 1.0
    extra_degrees: float = 2.0
    scale: float = 1.0
    ratio: tuple[float, float] = (1.0, 2.0)
    noise: tuple[float, float] = (1.0, 0.1)
    intercept: float = 3.0
    dispersion: tuple[float, float] = (1.0, 0.1)

    def log_ratio(self, logs: float | Float64Array) -> Float64Array:
        """Return the log density of the logarithm of the ratio, up to a constant."""
        mean, std = self.ratio
        return np.asarray(-0.5 * ((logs - mean) / std) ** 2)
