"""Packages that only some users need: imported where they are used, with one message when they are
not there.
"""

from __future__ import annotations

import importlib
from types import ModuleType

from bochner.errors import InputError, message

# Extra of this package that brings a module.
EXTRAS = {
    "anndata": "anndata",
    "arviz": "mcmc",
    "dask": "dask",
    "distributed": "dask",
    "h5py": "anndata",
    "mudata": "anndata",
    "pandas": "pandas",
    "polyagamma": "mcmc",
    "pyarrow": "parquet",
    "sionna": "channel",
    "zarr": "zarr",
}

# What the numbers of a fit depend on, and the modules that say their versions.
_COMPUTING = {
    "bochner": "bochner",
    "torch": "torch",
    "numpy": "numpy",
    "scikit-learn": "sklearn",
}


def versions() -> dict[str, str]:
    """Return the versions of bochner and of what it computes with.

    Modules say them: a source tree on the path, or a frozen program, has no metadata of packages.
    """
    return {
        name: str(getattr(importlib.import_module(module), "__version__", "unknown"))
        for name, module in _COMPUTING.items()
    }


def require(module: str, purpose: str) -> ModuleType:
    """Import a package of an extra.

    Parameters
    ----------
    module : str
        A key of `EXTRAS`, or a module within one.
    purpose : str
        What needs it, for the message.

    Returns
    -------
    module

    Raises
    ------
    InputError
        It is not installed; the message says which command installs it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        do = f"run: pip install 'bochner[{EXTRAS[module.partition('.')[0]]}]'"
        raise InputError(
            message(f"the package {module} ({purpose})", f"{error}", do)
        ) from error
