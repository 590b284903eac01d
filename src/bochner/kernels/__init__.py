"""Kernels: closed forms with, where they have one, their spectral density."""

from bochner.kernels.base import Frequencies, Kernel, SpectralKernel
from bochner.kernels.bivariate import BivariateSpectralMixture
from bochner.kernels.dirichlet_process import DirichletProcessMixture
from bochner.kernels.domains import IndefiniteKernel
from bochner.kernels.function import FunctionKernel
from bochner.kernels.indefinite import (
    TL1,
    DotProductSeries,
    GeodesicGaussian,
    Hellinger,
    Polynomial,
    Tanh,
)
from bochner.kernels.nonstationary import Gibbs, SpectralSum, Sum
from bochner.kernels.periodic import Periodic
from bochner.kernels.spectral_mixture import NextGenSpectralMixture, SpectralMixture
from bochner.kernels.stationary import RBF, Matern

__all__ = [
    "RBF",
    "TL1",
    "BivariateSpectralMixture",
    "DirichletProcessMixture",
    "DotProductSeries",
    "Frequencies",
    "FunctionKernel",
    "GeodesicGaussian",
    "Gibbs",
    "Hellinger",
    "IndefiniteKernel",
    "Kernel",
    "Matern",
    "NextGenSpectralMixture",
    "Periodic",
    "Polynomial",
    "SpectralKernel",
    "SpectralMixture",
    "SpectralSum",
    "Sum",
    "Tanh",
]
