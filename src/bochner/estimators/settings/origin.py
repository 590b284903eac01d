"""What a run and the one that continues it must share beyond their scaled data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from bochner.data.views import Views, fingerprint
from bochner.estimators.settings.parameters import Parameters

# What may differ between the two.
_TRANSIENT = ("checkpoint", "verbose", "device", "random_state")


def digest(estimator: Parameters, data: Views) -> str:
    """Return a digest of the data's units, the names of their columns, and all parameters.

    Parameters
    ----------
    estimator : LatentVariableEstimator
    data : Views

    Returns
    -------
    str
    """
    params = estimator.get_params(deep=False)
    names = getattr(estimator, "feature_names_in_", None)
    settings = {
        "class": _described(type(estimator)),
        "params": {name: _described(params[name]) for name in params if name not in _TRANSIENT},
        "names": None if names is None else [str(name) for name in names],
        "views": list(data.columns),
    }
    return fingerprint([data.scaling.centre, data.scaling.scale, *data.columns.values()], settings)


def _described(value: object) -> object:
    """Return what tells a parameter from another, the same in every process."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray | torch.Tensor):
        return fingerprint([np.asarray(value)], {})
    if isinstance(value, dict):
        return [[str(key), _described(own)] for key, own in value.items()]
    if isinstance(value, list | tuple):
        return [_described(own) for own in value]
    if isinstance(value, slice | Path | np.generic):
        return str(value)
    return _of_object(value)


def _of_object(value: object) -> object:
    cls = value if isinstance(value, type) else type(value)
    name = f"{cls.__module__}.{cls.__qualname__}"
    if cls is value or not hasattr(value, "get_params"):
        return name
    return [name, _described(value.get_params())]
