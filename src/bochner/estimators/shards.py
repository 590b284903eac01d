"""Fits of several processes: what they must have in common, and what tells their rows from
others.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import scipy.sparse as sp

from bochner.data.arrays import FloatArray
from bochner.data.row_sources import RowSource, additive_checksum
from bochner.data.validation import as_array
from bochner.errors import InputError, message
from bochner.estimators.settings import likelihoods
from bochner.estimators.tables import Plain
from bochner.fitting.plan import Plan
from bochner.memory import passes
from bochner.models.lvm import Covariates
from bochner.processes import Processes, current


def validated(estimator: Any, X: object) -> Any:
    """Return the checked rows of this process, held or read block by block as those of all others.

    Raises
    ------
    InputError
        In every process: of the first one that refuses its rows.
    """
    processes = current()
    shape: Any = None
    # what is no table, or a file that was closed, is refused below
    with suppress(Exception):
        shape = getattr(X, "shape", None)
    counted = isinstance(shape, tuple) and shape and isinstance(shape[0], int | np.integer)
    n_rows = processes.total(int(shape[0]) if counted else 0)
    return processes.together(lambda: estimator._validate(X, reset=True, n_rows=n_rows))


def joined(
    estimator: object, values: Any, covariates: object = None, size_factors: object = None
) -> Processes:
    """Return the processes that fit an estimator to their rows.

    Parameters
    ----------
    estimator : LatentVariableEstimator
    values : ndarray, sparse matrix or RowSource
        Checked rows of this process.
    covariates, size_factors : Any
        As given to the fit.

    Raises
    ------
    InputError
        In every process: rows or parameters differ between processes, or are of a kind that one
        process has to see as a whole.
    """
    processes = current()
    if reason := processes.agreed(_held_back(estimator, values)):
        want = "Gaussian, Bernoulli or count rows in several processes"
        raise InputError(message(want, reason, "fit them in one process"))
    same(processes, _facts(estimator, values, covariates, size_factors))
    return processes.sharing(values.shape[0])


def same(processes: Processes, facts: dict[str, str]) -> None:
    """Refuse, in every process, facts that differ between processes."""
    every = processes.gathered(facts)
    for rank, of_process in enumerate(every):
        for what, value in of_process.items():
            if value != every[0][what]:
                got = f"{value} in process {rank}"
                want = f"{what} {every[0][what]}, as in process 0"
                raise InputError(message(want, got, "give all processes the same"))


def factors(size_factors: object) -> str:
    """Return what processes must have in common of size factors: the views that have some."""
    if size_factors is None:
        return "none"
    return (
        f"{sorted(map(str, size_factors))}" if isinstance(size_factors, Mapping) else "given"
    )


def check_plan(plan: Plan) -> None:
    """Refuse plans that several processes cannot follow."""
    if plan.landmarks is None:
        do = "set landmarks below the number of all rows"
        raise InputError(message("landmarks in several processes", "none", do))
    if any(not isinstance(start, str) for start in plan.starts):
        do = "name a start, such as init='pca'"
        raise InputError(message("starts by name in several processes", "an array", do))


def _held_back(estimator: Any, values: Any) -> str | None:
    """Return why the rows of this process cannot be fitted with those of others."""
    if sp.issparse(values):
        return "a sparse X"
    if not isinstance(estimator._coding, Plain):
        return "a mixed table"
    if not estimator._trains_on_blocks:
        return f"the sampler of {type(estimator).__name__}"
    if not likelihoods.known_by_rows(estimator.likelihood):
        return f"likelihood={estimator.likelihood!r}"
    return _held_back_by_holes(estimator, values)


def _held_back_by_holes(estimator: Any, values: Any) -> str | None:
    reasons = likelihoods.not_with_holes(estimator.likelihood, estimator.noise)
    if reasons is None:
        return None
    has_holes = any(bool(np.isnan(values[rows]).any()) for rows in passes(values.shape))
    return f"missing entries and {reasons}" if has_holes else None


def _facts(
    estimator: Any, values: Any, covariates: object, size_factors: object
) -> dict[str, str]:
    names = getattr(estimator, "feature_names_in_", None)
    # the first process's seed is that of all
    parameters = estimator.get_params(deep=False) | {"random_state": None}
    return {
        "columns": f"{values.shape[1]}",
        "names": "none" if names is None else ", ".join(map(str, names)),
        "numbers of type": str(values.dtype),
        "rows": "that are read block by block"
        if isinstance(values, RowSource)
        else "in memory",
        "covariates": "none" if covariates is None else "given",
        "size factors": factors(size_factors),
        "model": type(estimator).__name__,
        **{name: repr(value) for name, value in parameters.items()},
    }


def checksum(
    X: Any, covariates: Covariates, size_factors: object, processes: Processes
) -> int:
    """Return a number, below 2^64, that other rows of all processes have not, but by chance, nor
    the same ones beside other covariates or size factors; however they are divided.
    """
    known = np.column_stack([covariates.values.double(), *_columns(size_factors)])
    here = sum(additive_checksum(part, processes.start) for part in (X, known))
    return sum(processes.gathered(here)) % 2**64


def _columns(given: object) -> list[FloatArray]:
    """Return what was given of every row as columns of numbers."""
    if given is None:
        return []
    if isinstance(given, Mapping):
        return [column for name in sorted(given) for column in _columns(given[name])]
    return [as_array("size_factors", given).astype(np.float64)]


def whole(processes: Processes, arrays: tuple[FloatArray, ...]) -> tuple[FloatArray, ...]:
    """Return arrays of all processes' rows, (N, ...), from those of the rows here."""
    parts = processes.gathered(arrays)
    return tuple(np.concatenate(of_processes) for of_processes in zip(*parts, strict=True))
