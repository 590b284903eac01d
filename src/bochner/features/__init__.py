"""The Fourier features of spectral kernels, and what is guaranteed of their error."""

from bochner.features.bounds import (
    error_allowed,
    frequencies_needed,
    published_bound,
    sharper_bound,
)
from bochner.features.fourier import fourier_features

__all__ = [
    "error_allowed",
    "fourier_features",
    "frequencies_needed",
    "published_bound",
    "sharper_bound",
]
