"""Random-feature latent variable models and random features.

The public names load what they need when they are first used: ``import bochner`` is instant.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bochner import dask, datasets, features, kernels, likelihoods, metrics, plots, testing
    from bochner.data.row_sources import share
    from bochner.estimators import (
        NGMVLVM,
        RFLVM,
        SRFLVM,
        AdvisedRFLVM,
        RandomFeatureLVM,
        fit_anndata,
        fit_mudata,
        load,
    )
    from bochner.feature_maps import (
        FourierFeatures,
        KreinFeatures,
        RandomMaclaurin,
        SphericalFeatures,
    )
    from bochner.io.containers import stack, unstack
    from bochner.io.stored import open_rows
    from bochner.model_selection import calibration, select_n_components
    from bochner.page.report import report
    from bochner.processes import distributed

__version__ = "0.1.0"

_PUBLIC = {
    "estimators": (
        "AdvisedRFLVM",
        "NGMVLVM",
        "RandomFeatureLVM",
        "RFLVM",
        "SRFLVM",
        "fit_anndata",
        "fit_mudata",
        "load",
    ),
    "feature_maps": (
        "FourierFeatures",
        "KreinFeatures",
        "RandomMaclaurin",
        "SphericalFeatures",
    ),
    "model_selection": ("calibration", "select_n_components"),
    "io.containers": ("stack", "unstack"),
    "io.stored": ("open_rows",),
    "data.row_sources": ("share",),
    "processes": ("distributed",),
    "page.report": ("report",),
}
_MODULE_OF = {name: module for module, names in _PUBLIC.items() for name in names}
_MODULES = (
    "dask",
    "datasets",
    "features",
    "kernels",
    "likelihoods",
    "metrics",
    "plots",
    "testing",
)

__all__ = [
    "NGMVLVM",
    "RFLVM",
    "SRFLVM",
    "AdvisedRFLVM",
    "FourierFeatures",
    "KreinFeatures",
    "RandomFeatureLVM",
    "RandomMaclaurin",
    "SphericalFeatures",
    "calibration",
    "dask",
    "datasets",
    "distributed",
    "features",
    "fit_anndata",
    "fit_mudata",
    "kernels",
    "likelihoods",
    "load",
    "metrics",
    "open_rows",
    "plots",
    "report",
    "select_n_components",
    "share",
    "stack",
    "testing",
    "unstack",
]


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        return getattr(_module(_MODULE_OF[name]), name)
    if name in _MODULES:
        return _module(name)
    raise AttributeError(f"module 'bochner' has no attribute {name!r}")


def _module(name: str) -> object:
    """Import a module and leave Python's global generator as it is: rich, which scikit-learn
    imports, draws from it.
    """
    from random import getstate, setstate

    state = getstate()
    try:
        return importlib.import_module(f"bochner.{name}")
    finally:
        setstate(state)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
