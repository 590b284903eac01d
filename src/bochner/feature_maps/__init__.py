"""Random features of kernels as scikit-learn transformers."""

from bochner.feature_maps.comparators import RandomMaclaurin, SphericalFeatures
from bochner.feature_maps.fourier import FourierFeatures
from bochner.feature_maps.krein import KreinFeatures

__all__ = ["FourierFeatures", "KreinFeatures", "RandomMaclaurin", "SphericalFeatures"]
