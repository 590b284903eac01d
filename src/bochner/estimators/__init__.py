"""The scikit-learn face."""

from bochner.estimators.annotated import fit_anndata, fit_mudata
from bochner.estimators.loading import load
from bochner.estimators.lvm import NGMVLVM, AdvisedRFLVM, RandomFeatureLVM
from bochner.estimators.rflvm import RFLVM
from bochner.estimators.srflvm import SRFLVM

__all__ = [
    "NGMVLVM",
    "RFLVM",
    "SRFLVM",
    "AdvisedRFLVM",
    "RandomFeatureLVM",
    "fit_anndata",
    "fit_mudata",
    "load",
]
