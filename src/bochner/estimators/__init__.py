"""The scikit-learn face."""

from bochner.estimators.annotate import fit_anndata, fit_mudata
from bochner.estimators.calibrate import calibration
from bochner.estimators.comparators import RandomMaclaurin, SphericalFeatures
from bochner.estimators.kernel_approximation import FourierFeatures
from bochner.estimators.krein import KreinFeatures
from bochner.estimators.loading import load
from bochner.estimators.lvm import NGMVLVM, AdvisedRFLVM, RandomFeatureLVM
from bochner.estimators.selection import select_n_components
from bochner.estimators.srflvm import SRFLVM

__all__ = [
    "NGMVLVM",
    "SRFLVM",
    "AdvisedRFLVM",
    "FourierFeatures",
    "KreinFeatures",
    "RandomFeatureLVM",
    "RandomMaclaurin",
    "SphericalFeatures",
    "calibration",
    "fit_anndata",
    "fit_mudata",
    "load",
    "select_n_components",
]
