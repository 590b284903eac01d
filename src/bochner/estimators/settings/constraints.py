"""What parameters the estimators accept, as data: messages write themselves."""

from __future__ import annotations

from numbers import Integral, Real
from os import PathLike

import numpy as np
from sklearn.utils._param_validation import (
    Interval,
    StrOptions,
)

from bochner.data.accepted import COUNT, check
from bochner.estimators.settings.likelihoods import NAMES
from bochner.initialization.embeddings import ALL_STARTS
from bochner.likelihoods.nonconjugate import Likelihood

AUTO = StrOptions({"auto"})
COMMON: dict[str, list[object]] = {
    "n_components": [COUNT],
    "views": [None, dict],
    "likelihood": [StrOptions({*NAMES, "auto"}), dict, Likelihood],
    "n_mixtures": [COUNT, AUTO],
    "n_frequencies": [COUNT, AUTO],
    "sampling": [StrOptions({"auto", "iid", "orthogonal", "sobol"})],
    "init": [StrOptions({"auto", *ALL_STARTS}), np.ndarray, list],
    "n_init": [COUNT, AUTO],
    "max_iter": [COUNT, AUTO],
    "tol": [Interval(Real, 0, None, closed="left"), AUTO],
    # of logarithms: at 1 a step multiplies a noise by e, beyond it nothing is learned
    "learning_rate": [Interval(Real, 0, 1, closed="right"), AUTO],
    "landmarks": [Interval(Integral, 2, None, closed="left"), AUTO, None],
    "latent": [StrOptions({"shared"}), dict],
    "noise": [StrOptions({"view", "column"})],
    "noise_variance": [None, Interval(Real, 0, None, closed="neither"), dict],
    "view_weight": [None, StrOptions({"balanced"}), dict],
    "truncation": [Interval(Real, 0, 1, closed="left"), AUTO],
    "device": [str],
    "dtype": [StrOptions({"float32", "float64"})],
    "checkpoint": [None, str, PathLike],
    "random_state": ["random_state"],
    "verbose": ["verbose"],
}

# Of methods and functions: the types of arguments that are no data.
METHODS: dict[str, dict[str, list[object]]] = {
    "impute": {"return_std": ["boolean"], "n_draws": [Integral, None]},
    "inverse_transform": {"return_std": ["boolean"], "interval": [Real, None]},
    "kernel_matrix": {"view": [str, None]},
    "load": {"path": [str, PathLike]},
    "loadings": {"as_frame": ["boolean"]},
    "sample": {"n_samples": [Integral], "random_state": ["random_state"]},
    "save": {"path": [str, PathLike]},
    "score": {"return_std": ["boolean"]},
    "score_samples": {"return_std": ["boolean"]},
    "transform": {"return_std": ["boolean"], "interval": [Real, None]},
}


def check_types(method: str, **given: object) -> None:
    """Refuse arguments of another type than a method takes.

    Parameters
    ----------
    method : str
        One of `METHODS`.
    **given : object
        Its arguments, by name.

    Raises
    ------
    InvalidParameterError
        A ValueError and a TypeError, that names the argument, what it may be, and what came.
    """
    check(METHODS[method], given, method)
