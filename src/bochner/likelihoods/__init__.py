"""Likelihoods: the distribution of one observed entry given its noise-free value."""

from bochner.likelihoods.base import Likelihood
from bochner.likelihoods.gaussian import Gaussian

__all__ = ["Gaussian", "Likelihood"]
