"""Kernels: closed forms with, where they have one, their spectral density."""

from bochner.kernels.base import Frequencies, Kernel, SpectralKernel
from bochner.kernels.nonstationary import Gibbs, SpectralSum, Sum
from bochner.kernels.spectral_mixture import NextGenSpectralMixture, SpectralMixture
from bochner.kernels.stationary import RBF, Matern, Periodic

__all__ = [
    "RBF",
    "Frequencies",
    "Gibbs",
    "Kernel",
    "Matern",
    "NextGenSpectralMixture",
    "Periodic",
    "SpectralKernel",
    "SpectralMixture",
    "SpectralSum",
    "Sum",
]
