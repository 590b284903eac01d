"""Likelihoods: the distribution of one observed entry given its noise-free value."""

from bochner.likelihoods.binomial import Bernoulli, Binomial
from bochner.likelihoods.categorical import Categorical
from bochner.likelihoods.likelihood import Curvatures, Gaussian, Slopes
from bochner.likelihoods.negative_binomial import NegativeBinomial
from bochner.likelihoods.nonconjugate import (
    Likelihood,
    NonConjugateLikelihood,
    SeparableLikelihood,
)
from bochner.likelihoods.poisson import Poisson

__all__ = [
    "Bernoulli",
    "Binomial",
    "Categorical",
    "Curvatures",
    "Gaussian",
    "Likelihood",
    "NegativeBinomial",
    "NonConjugateLikelihood",
    "Poisson",
    "SeparableLikelihood",
    "Slopes",
]
