"""Random-feature latent variable models and random features.

The public names load what they need when they are first used: ``import bochner`` is instant.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bochner import datasets, features, kernels, likelihoods, metrics, plots
    from bochner.estimators import (
        NGMVLVM,
        SRFLVM,
        AdvisedRFLVM,
        FourierFeatures,
        KreinFeatures,
        RandomFeatureLVM,
        RandomMaclaurin,
        SphericalFeatures,
        calibration,
        fit_anndata,
        fit_mudata,
        load,
        select_n_components,
    )
    from bochner.io.containers import stack, unstack
    from bochner.page.report import report

__version__ = "0.1.0"

_ESTIMATORS = (
    "AdvisedRFLVM",
    "FourierFeatures",
    "KreinFeatures",
    "NGMVLVM",
    "RandomFeatureLVM",
    "RandomMaclaurin",
    "SRFLVM",
    "SphericalFeatures",
    "fit_anndata",
    "fit_mudata",
    "calibration",
    "load",
    "select_n_components",
)
_CONTAINERS = ("stack", "unstack")
_MODULES = ("datasets", "features", "kernels", "likelihoods", "metrics", "plots")

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
    "datasets",
    "features",
    "fit_anndata",
    "fit_mudata",
    "kernels",
    "likelihoods",
    "load",
    "metrics",
    "plots",
    "report",
    "select_n_components",
    "stack",
    "unstack",
]


def __getattr__(name: str) -> Any:
    if name in _ESTIMATORS:
        return getattr(importlib.import_module("bochner.estimators"), name)
    if name in _CONTAINERS:
        return getattr(importlib.import_module("bochner.io.containers"), name)
    if name == "report":
        return importlib.import_module("bochner.page.report").report
    if name in _MODULES:
        return importlib.import_module(f"bochner.{name}")
    raise AttributeError(f"module 'bochner' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
