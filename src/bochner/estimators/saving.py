"""Estimators in files: JSON and tensors, with a schema version; see `load` for the way back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bochner.data.views import Scaling
from bochner.errors import InputError
from bochner.estimators.likelihoods import SizeFactors
from bochner.estimators.tables import coding_from_json
from bochner.io import files
from bochner.kernels.base import SpectralKernel
from bochner.likelihoods.negative_binomial import NegativeBinomial
from bochner.likelihoods.nonconjugate import Likelihood
from bochner.prediction.diagnostics import CollapseReport
from bochner.serialization.fitted import (
    fit_from_file,
    fit_to_file,
    kernel_from_json,
    kernel_to_json,
    likelihood_from_json,
    likelihood_to_json,
    refusal,
)

SCHEMA = 1

_ARRAYS = ("embedding_", "embedding_std_", "elbo_history_", "relevance_", "variance_explained_")
_PLAIN = (
    "elbo_",
    "elbo_se_",
    "starts_",
    "n_iter_",
    "converged_",
    "interrupted_",
    "n_mixtures_",
    "n_frequencies_",
    "seed_",
    "noise_variance_",
    "completion_",
    "landmarks_",
    "dropped_",
    "n_features_in_",
    "dispersion_moment_",
)


def save(estimator: Any, path: str | Path) -> None:
    """Write a fitted estimator; see the estimators' `save`."""
    if not type(estimator).__module__.startswith("bochner."):
        raise InputError(refusal("model of bochner", type(estimator)))
    tensors, fit = fit_to_file(estimator._fit)
    tensors["candidates"] = estimator._candidates
    for name in _ARRAYS:
        tensors[f"attribute.{name}"] = torch.from_numpy(
            np.ascontiguousarray(getattr(estimator, name))
        )
    for name, array in estimator._scaling.to_arrays().items():
        tensors[f"scaling.{name}"] = torch.from_numpy(array)
    collapse = estimator.collapse_
    parts, extra = estimator._extra_state()
    tensors |= {f"extra.{name}": part for name, part in parts.items()}
    header = {
        "kind": "model",
        "schema": SCHEMA,
        "class": type(estimator).__name__,
        "params": {
            name: _encode(name, value) for name, value in estimator.get_params(deep=False).items()
        },
        "attributes": {name: getattr(estimator, name) for name in _PLAIN}
        | {
            "noise_variance_": {
                view: np.asarray(v).tolist() for view, v in estimator.noise_variance_.items()
            }
        },
        "columns": {view: own.tolist() for view, own in estimator._columns.items()},
        "feature_names": [str(n) for n in estimator.feature_names_in_]
        if hasattr(estimator, "feature_names_in_")
        else None,
        "kernels": {
            view: {k: v.tolist() for k, v in own.items()}
            for view, own in estimator.kernels_.items()
        },
        "collapse": {**vars(collapse), "variance_ratio": collapse.variance_ratio.tolist()},
        "size_factors": estimator._size_factors.to_json(),
        "coding": estimator._coding.to_json(),
        "fit": fit,
        "extra": extra,
    }
    files.write(path, tensors, header)


def restore(estimator: Any, tensors: dict[str, Tensor], header: dict[str, Any]) -> None:
    """Give an unfitted estimator the fitted state of a file."""
    estimator._fit = fit_from_file(tensors, header["fit"])
    estimator._candidates = tensors["candidates"]
    estimator._size_factors = SizeFactors.from_json(
        header.get("size_factors", {"typical": {}, "shares": {}})
    )
    estimator._coding = coding_from_json(header.get("coding"))
    estimator.likelihood_ = {view.name: view.likelihood.name for view in estimator._fit.posterior}
    estimator.dispersion_ = {
        view.name: view.likelihood.dispersion.numpy()
        for view in estimator._fit.posterior
        if isinstance(view.likelihood, NegativeBinomial)
    }
    estimator._scaling = Scaling.from_arrays(
        {n: tensors[f"scaling.{n}"].numpy() for n in ("centre", "scale")}
    )
    estimator._columns = {
        view: np.array(own, dtype=np.intp) for view, own in header["columns"].items()
    }
    for name, value in header["attributes"].items():
        setattr(estimator, name, value)
    found = estimator.noise_variance_
    estimator.noise_variance_ = {
        view: np.array(v) if isinstance(v, list) else v for view, v in found.items()
    }
    for name in _ARRAYS:
        if name != "variance_explained_" or f"attribute.{name}" in tensors:  # files of 0.1 lack it
            setattr(estimator, name, tensors[f"attribute.{name}"].numpy())
    _restore_reports(estimator, header)
    own = {n[len("extra.") :]: part for n, part in tensors.items() if n.startswith("extra.")}
    estimator._restore_extra(own, header.get("extra", {}))


def _restore_reports(estimator: Any, header: dict[str, Any]) -> None:
    estimator.kernels_ = {
        view: {k: np.array(v) for k, v in own.items()} for view, own in header["kernels"].items()
    }
    report = dict(header["collapse"])
    report |= {"dead": tuple(report["dead"]), "variance_ratio": np.array(report["variance_ratio"])}
    estimator.collapse_ = CollapseReport(**report)
    if header["feature_names"] is not None:
        estimator.feature_names_in_ = np.array(header["feature_names"], dtype=object)


def _encode(name: str, value: Any) -> Any:
    """A parameter as JSON: plain values as they are, others as {"type": ..., ...}."""
    if name == "checkpoint":
        return None  # a path of this machine has no place in a file that travels
    if isinstance(value, np.random.RandomState):
        return None  # its state has moved on; what the fit drew from it is kept as seed_
    if isinstance(value, Path | np.generic):
        value = str(value) if isinstance(value, Path) else value.item()
    encoded: Any = value
    if isinstance(value, Likelihood):
        params = likelihood_to_json(value)
        encoded = {"type": "likelihood", "name": type(value).__name__, "params": params}
    elif isinstance(value, SpectralKernel):
        encoded = {"type": "kernel", "name": type(value).__name__, "params": kernel_to_json(value)}
    elif isinstance(value, slice):
        encoded = {
            "type": "slice",
            "parts": [_encode(name, part) for part in (value.start, value.stop, value.step)],
        }
    elif isinstance(value, dict):
        encoded = {"type": "dict", "items": [[str(k), _encode(name, v)] for k, v in value.items()]}
    elif isinstance(value, list | tuple):
        encoded = {"type": "list", "items": [_encode(name, v) for v in value]}
    elif isinstance(value, np.ndarray):
        encoded = {"type": "array", "dtype": str(value.dtype), "values": value.tolist()}
    elif not (value is None or isinstance(value, bool | int | float | str)):
        raise InputError(
            f"{name}={value!r} cannot be saved: a model file holds data, never code. Pickle it."
        )
    return encoded


def decode(value: Any) -> Any:
    """Return the parameter that `save` encoded."""
    if not isinstance(value, dict):
        return value
    if value["type"] == "kernel":
        return kernel_from_json(value["name"], value["params"])
    if value["type"] == "likelihood":
        return likelihood_from_json(value["name"], value["params"])
    if value["type"] == "slice":
        return slice(*value["parts"])
    if value["type"] == "array":
        return np.array(value["values"], dtype=value["dtype"])
    items = value["items"]
    return (
        {k: decode(v) for k, v in items} if value["type"] == "dict" else [decode(v) for v in items]
    )
