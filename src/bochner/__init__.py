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
        load,
        select_n_components,
    )

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
    "calibration",
    "load",
    "select_n_components",
)
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
    "kernels",
    "likelihoods",
    "load",
    "metrics",
    "plots",
    "select_n_components",
]


def __getattr__(name: str) -> Any:
    if name in _ESTIMATORS:
        return getattr(importlib.import_module("bochner.estimators"), name)
    if name in _MODULES:
        return importlib.import_module(f"bochner.{name}")
    raise AttributeError(f"module 'bochner' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
