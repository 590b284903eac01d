"""Estimators in files: JSON and tensors, with a schema version; see `load` for the way back."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bochner.data.covariates import CovariateCoding
from bochner.data.views import Scaling
from bochner.errors import InputError
from bochner.estimators.methods.training_latents import of_arrays
from bochner.estimators.settings.likelihoods import SizeFactors
from bochner.estimators.tables import coding_from_json
from bochner.io import files
from bochner.io.schema import MismatchError, Tensors, same_keys
from bochner.kernels.base import SpectralKernel
from bochner.likelihoods.negative_binomial import NegativeBinomial
from bochner.likelihoods.nonconjugate import Likelihood
from bochner.prediction.diagnostics import CollapseReport
from bochner.serialization.fitted import (
    FitHeader,
    fit_from_file,
    fit_to_file,
    kernel_from_json,
    kernel_to_json,
    likelihood_from_json,
    likelihood_to_json,
    refusal,
)

# Grows when what files hold changes.
SCHEMA = 1

_LATENTS = ("embedding_", "embedding_std_")
_ARRAYS = ("elbo_history_", "relevance_", "variance_explained_")
# Numbers of which a parameter's array may consist: no dates, no objects.
_NUMBERS = frozenset("fiub")


@dataclass(frozen=True)
class Attributes:
    """Fitted attributes that are plain values; see `NGMVLVM`."""

    elbo_: float
    elbo_se_: float
    starts_: list[dict[str, object]]
    n_iter_: int
    converged_: bool
    interrupted_: bool
    n_mixtures_: int
    n_frequencies_: int
    seed_: int
    noise_variance_: dict[str, float | list[float]]
    completion_: dict[str, float | None]
    landmarks_: dict[str, int | float] | None
    dropped_: dict[str, float]
    withheld_: dict[str, int]
    n_features_in_: int
    dispersion_moment_: dict[str, float | list[float]]


@dataclass(frozen=True)
class Collapse:
    """A `CollapseReport`."""

    dead: tuple[int, ...]
    variance_ratio: list[float]
    effective_dimensions: float
    noise_share: dict[str, float]


@dataclass(frozen=True)
class Sizes:
    """What a fit knows of size factors."""

    typical: dict[str, float]
    shares: dict[str, list[float]]


@dataclass(frozen=True)
class MixedTable:
    """The columns of a mixed table."""

    columns: list[dict[str, object]]
    names: list[str | int]


@dataclass(frozen=True)
class ContinuousCovariate:
    """A covariate that is a number."""

    name: str
    mean: float
    std: float


@dataclass(frozen=True)
class LabelledCovariate:
    """A covariate that is a label."""

    name: str
    labels: list[str]
    shares: list[float]


@dataclass(frozen=True)
class Header:
    """What a model file says, beside its tensors."""

    kind: str
    schema: int
    estimator: str
    params: dict[str, object]
    attributes: Attributes
    columns: dict[str, list[int]]
    feature_names: list[str] | None
    kernels: dict[str, dict[str, object]]
    collapse: Collapse
    size_factors: Sizes
    coding: MixedTable | None
    covariates: list[ContinuousCovariate | LabelledCovariate]
    fit: FitHeader
    extra: dict[str, object]


_PLAIN = tuple(field.name for field in fields(Attributes))


def save(estimator: Any, path: str | Path) -> None:
    """Write a fitted estimator; see the estimators' `save`."""
    if not type(estimator).__module__.startswith("bochner."):
        raise InputError(refusal("model of bochner", type(estimator)))
    # what is measured when it is asked for goes into the file
    known = estimator._in_files()
    estimator._check()
    tensors, fit = fit_to_file(estimator._fit)
    tensors["candidates"] = estimator._candidates
    arrays = [known.mean, known.std, *(getattr(estimator, name) for name in _ARRAYS)]
    for name, array in zip((*_LATENTS, *_ARRAYS), arrays, strict=True):
        tensors[f"attribute.{name}"] = torch.from_numpy(np.ascontiguousarray(array))
    for name, array in estimator._scaling.to_arrays().items():
        tensors[f"scaling.{name}"] = torch.from_numpy(array)
    collapse = estimator.collapse_
    parts, extra = estimator._extra_state()
    tensors |= {f"extra.{name}": part for name, part in parts.items()}
    header = {
        "kind": "model",
        "schema": SCHEMA,
        "estimator": type(estimator).__name__,
        "params": {
            name: _encode(name, value)
            for name, value in estimator.get_params(deep=False).items()
        },
        "attributes": {name: getattr(estimator, name) for name in _PLAIN}
        | {
            "noise_variance_": {
                view: np.asarray(v).tolist() for view, v in estimator.noise_variance_.items()
            }
        },
        "columns": {view: positions.tolist() for view, positions in estimator.views_.items()},
        "feature_names": [str(n) for n in estimator.feature_names_in_]
        if hasattr(estimator, "feature_names_in_")
        else None,
        "kernels": {
            view: {k: v.tolist() for k, v in values.items()}
            for view, values in estimator.kernels_.items()
        },
        "collapse": {**vars(collapse), "variance_ratio": collapse.variance_ratio.tolist()},
        "size_factors": estimator._size_factors.to_json(),
        "coding": estimator._coding.to_json(),
        "covariates": estimator._covariate_coding.to_json(),
        "fit": fit,
        "extra": extra,
    }
    files.write(path, tensors, header)


def restore(estimator: Any, tensors: Tensors, header: Header) -> None:
    """Give an unfitted estimator the fitted state of a file.

    Raises
    ------
    MismatchError
        Parts of the file do not fit together.
    """
    fit = estimator._fit = fit_from_file(tensors, header.fit)
    names = [view.name for view in fit.posterior]
    dim = fit.latents.shape[1]
    _restore_columns(estimator, tensors, header, names)
    estimator._candidates = tensors.take("candidates", None, dim)
    estimator._size_factors = SizeFactors.from_json(asdict(header.size_factors))
    estimator._coding = coding_from_json(
        None if header.coding is None else asdict(header.coding)
    )
    plain = [asdict(covariate) for covariate in header.covariates]
    estimator._covariate_coding = CovariateCoding.from_json(plain)
    n_covariates = sum(covariate.width for covariate in estimator._covariate_coding.covariates)
    if {draw.frequencies.n_linear for view in fit.posterior for draw in view.draws} != {
        n_covariates
    }:
        raise MismatchError(f"views have weights for other covariates than the {n_covariates}")
    estimator.likelihood_ = {view.name: view.likelihood.name for view in fit.posterior}
    estimator.dispersion_ = {
        view.name: view.likelihood.dispersion.numpy()
        for view in fit.posterior
        if isinstance(view.likelihood, NegativeBinomial)
    }
    for name in _PLAIN:
        setattr(estimator, name, getattr(header.attributes, name))
    estimator.noise_variance_ = {
        view: np.array(variance) if isinstance(variance, list) else variance
        for view, variance in header.attributes.noise_variance_.items()
    }
    n_rows = fit.latents.shape[0]
    n_views = len(names)
    shapes = ((None, dim), (None, dim), (None,), (n_views, dim), (n_views, dim))
    mean, std, *others = (
        tensors.take(f"attribute.{name}", *shape, kind="f").numpy()
        for name, shape in zip((*_LATENTS, *_ARRAYS), shapes, strict=True)
    )
    # none of a model whose rows were gone when it was saved
    if len(mean) not in (0, n_rows) or len(std) not in (0, len(mean)):
        raise MismatchError(f"embedding_ and embedding_std_ are not those of {n_rows} rows")
    estimator._embedded = of_arrays(mean, std, n_rows)
    for name, array in zip(_ARRAYS, others, strict=True):
        setattr(estimator, name, array)
    _restore_reports(estimator, header, names)
    estimator._restore_extra(tensors.take_all("extra."), header.extra)


def _restore_columns(
    estimator: Any, tensors: Tensors, header: Header, names: list[str]
) -> None:
    """Give it the columns of the views, their names and their units."""
    n_columns = header.attributes.n_features_in_
    same_keys("columns", header.columns, names)
    estimator.views_ = {
        view: np.array(positions, dtype=np.intp) for view, positions in header.columns.items()
    }
    for view, positions in zip(
        estimator._fit.posterior, estimator.views_.values(), strict=True
    ):
        sizes = (
            positions.size,
            view.encode(torch.full((1, positions.size), torch.nan, dtype=torch.float64)).shape[
                1
            ],
        )
        if positions.size and not 0 <= positions.min() <= positions.max() < n_columns:
            raise MismatchError(f"columns of the view {view.name!r} are not there")
        if sizes[1] != view.group_of.shape[0]:
            raise MismatchError(f"the view {view.name!r} has weights for other columns")
    estimator._scaling = Scaling.from_arrays(
        {n: tensors.take(f"scaling.{n}", n_columns).numpy() for n in ("centre", "scale")}
    )
    if header.feature_names is not None:
        if len(header.feature_names) != n_columns:
            raise MismatchError(f"feature_names are not {n_columns}")
        estimator.feature_names_in_ = np.array(header.feature_names, dtype=object)
    if header.coding is not None and len(header.coding.columns) != n_columns:
        raise MismatchError(f"coding.columns are not {n_columns}")


def _restore_reports(estimator: Any, header: Header, names: list[str]) -> None:
    same_keys("kernels", header.kernels, names)
    estimator.kernels_ = {
        # single numbers are no arrays, as after a fit
        view: {name: np.array(values, dtype=np.float64)[()] for name, values in kernel.items()}
        for view, kernel in header.kernels.items()
    }
    ratio = np.array(header.collapse.variance_ratio)
    if len(ratio) != estimator._fit.latents.shape[1]:
        raise MismatchError("collapse.variance_ratio has another number of dimensions")
    estimator.collapse_ = CollapseReport(**{**vars(header.collapse), "variance_ratio": ratio})


def _encode(name: str, value: object) -> object:
    """A parameter as JSON: plain values as they are, others as {"type": ..., ...}."""
    if name == "checkpoint":
        # a path of this machine has no place in a file that travels
        return None
    if isinstance(value, np.random.RandomState):
        # its state has moved on; what the fit drew from it is kept as seed_
        return None
    if hasattr(value, "__array__") and not isinstance(value, np.generic):
        # columns of pandas and polars, tensors; names, of which a file holds no array
        array = np.asarray(value)
        value = array if array.dtype.kind in _NUMBERS else array.tolist()
    if isinstance(value, Sequence | Set) and not isinstance(value, str | bytes):
        value = list(value)
    if isinstance(value, Path | np.generic):
        value = str(value) if isinstance(value, Path) else value.item()
    encoded: object = value
    if isinstance(value, Likelihood):
        params = likelihood_to_json(value)
        encoded = {"type": "likelihood", "name": type(value).__name__, "params": params}
    elif isinstance(value, SpectralKernel):
        encoded = {
            "type": "kernel",
            "name": type(value).__name__,
            "params": kernel_to_json(value),
        }
    elif isinstance(value, slice):
        encoded = {
            "type": "slice",
            "parts": [_encode(name, part) for part in (value.start, value.stop, value.step)],
        }
    elif isinstance(value, dict):
        encoded = {
            "type": "dict",
            "items": [[str(k), _encode(name, v)] for k, v in value.items()],
        }
    elif isinstance(value, list):
        encoded = {"type": "list", "items": [_encode(name, v) for v in value]}
    elif isinstance(value, np.ndarray):
        encoded = {"type": "array", "dtype": str(value.dtype), "values": value.tolist()}
    elif not (value is None or isinstance(value, bool | int | float | str)):
        raise InputError(
            f"{name}={value!r} cannot be saved: a model file holds data, never code. Pickle it."
        )
    return encoded


def decode(value: object) -> Any:
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
        dtype = np.dtype(value["dtype"])
        if dtype.kind not in _NUMBERS:
            raise MismatchError(f"an array of {dtype} is no parameter")
        return np.array(value["values"], dtype=dtype)
    items = value["items"]
    return (
        {k: decode(v) for k, v in items}
        if value["type"] == "dict"
        else [decode(v) for v in items]
    )
