"""What parameters the estimators accept, as data: messages write themselves."""

from __future__ import annotations

from numbers import Integral, Real
from os import PathLike
from typing import Any

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from bochner.estimators.likelihoods import NAMES
from bochner.initialization.build import ALL_STARTS
from bochner.likelihoods.nonconjugate import Likelihood

COMMON: dict[str, list[Any]] = {
    "n_components": [Interval(Integral, 1, None, closed="left")],
    "views": [None, dict],
    "likelihood": [StrOptions({*NAMES, "auto"}), dict, Likelihood],
    "n_mixtures": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
    "n_frequencies": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
    "sampling": [StrOptions({"auto", "iid", "orthogonal", "sobol"})],
    "init": [StrOptions({"auto", *ALL_STARTS}), np.ndarray, list],
    "n_init": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
    "max_iter": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
    "tol": [Interval(Real, 0, None, closed="left"), StrOptions({"auto"})],
    "learning_rate": [Interval(Real, 0, None, closed="neither"), StrOptions({"auto"})],
    "landmarks": [Interval(Integral, 2, None, closed="left"), StrOptions({"auto"}), None],
    "latent": [StrOptions({"shared"}), dict],
    "noise": [StrOptions({"view", "column"})],
    "view_weight": [None, StrOptions({"balanced"}), dict],
    "truncation": [Interval(Real, 0, 1, closed="left"), StrOptions({"auto"})],
    "device": [str],
    "dtype": [StrOptions({"float32", "float64"})],
    "checkpoint": [None, str, PathLike],
    "random_state": ["random_state"],
    "verbose": ["verbose"],
}
