"""The positive radial spectrum nearest to a function of the distance: what the spherical features
of Pennington et al. 2015 are drawn from.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from bochner.features.spherical import direction_mean

# The grid has so many steps up to so many radians per unit in 32 dimensions, and reaches further in
# more: a Gaussian of scale s has its spectrum about s times the root of d, as wide in any d.
_STEPS = 280
_FARTHEST = 42.0
_FEW = 32


def n_radii(dim: int) -> int:
    """Return R, the number of radii of the grid in d dimensions."""
    return 1 + round(_STEPS * math.sqrt(max(1.0, dim / _FEW)))


def positive_spectrum(
    values: Tensor, distances: Tensor, dim: int, n_gaussians: int = 10
) -> tuple[Tensor, Tensor]:
    """Return the radial spectrum of the positive definite kernel nearest to a function of the
    distance.

    A sum of Gaussians of free sign and width is fitted to the function; its radial spectrum is cut
    at zero, and what is fitted is the kernel of the cut spectrum (Pennington, Yu and Kumar 2015,
    Algorithm 1).

    Parameters
    ----------
    values : Tensor of shape (P,)
        The kernel at the distances.
    distances : Tensor of shape (P,)
        An even grid from 0 to 2, the diameter of the sphere.
    dim : int
        d.
    n_gaussians : int

    Returns
    -------
    radii : Tensor of shape (R,)
        An even grid, radians per unit.
    mass : Tensor of shape (R,)
        Non-negative, sums to k(0) of the fitted kernel.
    """
    count = n_radii(dim)
    farthest = _FARTHEST * (count - 1) / _STEPS
    radii = torch.linspace(0.0, farthest, count, dtype=torch.float64)
    waves = direction_mean(distances[:, None] * radii, dim)
    scale = values.abs().max().clamp(min=1e-300)
    goal = values.double() / scale
    # widths from the whole sphere to a tenth of it; a Gaussian of standard deviation 1/s has a chi
    # spectrum of scale s
    widths = np.linspace(-1.5, 2.0, n_gaussians)
    start = np.concatenate([np.full(n_gaussians, 1.0 / n_gaussians), widths])

    def loss(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        both = torch.from_numpy(flat.copy()).requires_grad_()
        mass = _cut(both[:n_gaussians], both[n_gaussians:], radii, dim)
        error = (waves @ mass - goal).square().mean()
        (slope,) = torch.autograd.grad(error, both)
        return float(error.detach()), slope.numpy()

    # to the end: the error is the square of a small number
    exact = {"maxiter": 200, "ftol": 1e-15, "gtol": 1e-10}
    ended = minimize(loss, start, method="L-BFGS-B", jac=True, options=exact)  # type: ignore[call-overload]
    optimum = torch.from_numpy(ended.x)
    return radii, _cut(optimum[:n_gaussians], optimum[n_gaussians:], radii, dim) * scale


def _cut(coefficient: Tensor, log_scale: Tensor, radii: Tensor, dim: int) -> Tensor:
    """The radial mass of a signed sum of Gaussian spectra, cut at zero, on the grid."""
    safe = radii.clamp(min=1e-6)
    log_chi = (dim - 1) * (safe.log() - log_scale[:, None]) - 0.5 * (
        safe / log_scale[:, None].exp()
    ).square()
    return (coefficient @ torch.softmax(log_chi, 1)).clamp(min=0.0)
