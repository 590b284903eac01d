"""The scikit-learn face."""

from bochner.estimators.annotated import fit_anndata, fit_mudata
from bochner.estimators.loading import load
from bochner.estimators.lvm import NGMVLVM, AdvisedRFLVM, RandomFeatureLVM
from bochner.estimators.srflvm import SRFLVM

__all__ = [
    "NGMVLVM",
    "SRFLVM",
    "AdvisedRFLVM",
    "RandomFeatureLVM",
    "fit_anndata",
    "fit_mudata",
    "load",
]
