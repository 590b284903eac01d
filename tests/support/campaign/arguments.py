"""Every public function, method and parameter with one argument that makes no sense."""

import functools
import inspect
import math
import warnings
from pathlib import Path

import numpy as np

import bochner as bo
from campaign.cases import MAPS, MODELS
from campaign.oracle import changes, is_named, not_finite, place_of, process_state

SMALL = {"n_frequencies": 2, "n_mixtures": 1, "max_iter": 2, "init": "pca", "random_state": 0}
# Of matplotlib, which checks its own; and what says how long to work, where much is no fault.
THEIRS = {"ax", "axs", "cmap", "title", "s", "y", "self", "params", "fit_params"}
WORK = {"max_iter", "n_repeats", "n_warmup", "n_draws", "thin", "n_chains", "n_init", "n_jobs"}
LARGE = (10**9, 10**20, 1e300)


class Odd:
    """An object that is nothing at all."""

    def __repr__(self):
        return "Odd()"


VALUES = (
    *(None, True, -1, 0, 1, 7, 1.5, -0.5, math.nan, math.inf, *LARGE),
    *("", "x", "auto", "a\0b", "\x1b[31m", "x" * 5000, b"x", 1j, Odd(), object, len),
    *(
        [],
        [1],
        [None],
        ["x"],
        [[1.0, 2.0], [3.0]],
        {},
        {"x": 1},
        {1: "x"},
        {"a": None},
        (),
        (0, 0),
    ),
    *(
        np.zeros(0),
        np.zeros((0, 4)),
        np.zeros((3, 0)),
        np.ones((2, 3, 4)),
        np.full((3, 4), np.nan),
    ),
    *(np.ones((3, 4), complex), np.array(["x", "y"]), np.array([None, 1]), np.float32(3.0)),
    *(
        range(3),
        iter([1, 2]),
        {1, 2},
        Path("nowhere"),
        Path("nowhere/at/all"),
        slice(0, 2),
        ...,
    ),
    *(np.random.default_rng(0), np.datetime64("2020-01-01"), np.ones((3, 4), bool)),
)


@functools.cache
def world():
    """What arguments that make sense are made of."""
    source = np.random.default_rng(0)
    X = np.sin(source.normal(size=(12, 2)) @ source.normal(size=(2, 4)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = bo.NGMVLVM(views={"a": slice(0, 2), "b": slice(2, 4)}, **SMALL).fit(X)
        kernel = bo.FourierFeatures(n_components=4, random_state=0).fit(X)
    return {"X": X, "Z": model.embedding_, "model": model, "map": kernel}


def _methods():
    """Calls of methods: (name, function, arguments that make sense, its signature)."""
    given_world = world()
    of = {
        "model": ("transform", "impute", "score", "score_samples", "inverse_transform", "sample",
                  "kernel_matrix", "slopes", "loadings", "save"),
        "map": ("transform", "approximation_error"),
    }  # fmt: skip
    for owner, names in of.items():
        for name in names:
            method = getattr(given_world[owner], name)
            known = inspect.signature(method).parameters
            given = {key: given_world[key] for key in ("X", "Z") if key in known}
            given |= {"random_state": 0} if name == "sample" else {}
            given |= {"path": "m.bochner"} if name == "save" else {}
            yield f"{owner}.{name}", method, given
    for name in ("fit", "fit_transform"):
        yield f"model.{name}", getattr(bo.NGMVLVM(**SMALL), name), {"X": given_world["X"]}


def _functions():
    given_world = world()
    X, Z, model = given_world["X"], given_world["Z"], given_world["model"]
    true, small = np.eye(len(X)), bo.NGMVLVM(**SMALL)
    quick = {"candidates": [1], "n_repeats": 1, "random_state": 0}
    mean, std = np.zeros(5), np.ones(5)
    calls = {
        bo.calibration: {"model": model, "X": X, "n_draws": 3, "random_state": 0},
        bo.load: {"path": "m.bochner"},
        bo.open_rows: {"path": "X.parquet"},
        bo.report: {"model": model, "X": X, "path": "r.html", "overwrite": True},
        bo.select_n_components: {"estimator": small, "X": X, **quick},
        bo.stack: {"views": {"a": X[:, :2], "b": X[:, 2:]}},
        bo.unstack: {"X": X, "views": model.views_},
        bo.datasets.make_s_curve: {"n_samples": 5, "n_columns": 3, "random_state": 0},
        bo.features.fourier_features: None,
        bo.plots.bound_trace: {"model": model},
        bo.plots.decoded_grid: {"model": model, "n": 2, "view": "a"},
        bo.plots.kernel_recovery: {"model": model, "true": true, "view": "a"},
        bo.plots.latent_map: {"model": model},
        bo.plots.learned_kernel: {"model": model, "n_points": 5},
        bo.plots.loadings: {"model": model},
        bo.plots.reconstructions: {"model": model, "X": X, "view": "a"},
        bo.plots.relevance: {"model": model},
        bo.plots.spectrum: {"model": model, "view": "a"},
        bo.plots.starts: {"model": model},
        bo.metrics.aligned_r2: {"X_true": X[:, :2], "Z": Z},
        bo.metrics.knn_accuracy: {"Z": Z, "labels": np.arange(12) % 2},
        bo.metrics.trustworthiness: {"X": X, "Z": Z, "k": 2},
        bo.metrics.rmse: {"true": mean, "predicted": mean},
        bo.metrics.coverage: {"true": mean, "mean": mean, "std": std},
        bo.metrics.pit: {"true": mean, "mean": mean, "std": std},
        bo.metrics.procrustes_agreement: {"Z": Z, "other": Z},
        bo.metrics.relative_error: {"A": true, "B": true},
        bo.kernels.RBF: {},
        bo.kernels.Matern: {},
        bo.kernels.Periodic: {},
        bo.likelihoods.NegativeBinomial: {},
        bo.likelihoods.Binomial: {},
        bo.likelihoods.Poisson: {},
    }
    for function, given in calls.items():
        if given is not None:
            yield function.__qualname__, function, given


def _estimators():
    X = world()["X"]
    for name in (*MODELS, *MAPS):
        kind = getattr(bo, name)
        known = inspect.signature(kind).parameters
        base = {key: value for key, value in SMALL.items() if key in known}
        base |= {"n_components": 6} if name in MAPS else {}
        base |= (
            {"n_chains": 1, "n_warmup": 1, "n_draws": 4, "thin": 1} if name == "RFLVM" else {}
        )
        yield name, _fitted(kind, X), base, known


def _fitted(kind, X):
    def call(**options):
        model = kind(**options).fit(X)
        return {
            "embedding_": getattr(model, "embedding_", None),
            "features": model.transform(X),
        }

    return call


@functools.cache
def calls():
    """Return every (name, function, arguments, the argument to replace)."""
    result = []
    for name, function, given in (*_methods(), *_functions()):
        parameters = inspect.signature(function).parameters
        result += [
            (name, function, given, parameter)
            for parameter in parameters
            if parameter not in THEIRS
        ]
    for name, function, given, parameters in _estimators():
        result += [
            (name, function, given, parameter)
            for parameter in parameters
            if parameter not in THEIRS
        ]
    return result


def judge(number, which):
    """Make one call with one argument replaced."""
    name, function, given, parameter = calls()[number]
    value = VALUES[which]
    before, faults, kind = process_state(), [], "refused"
    model = _public(world()["model"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        inside = process_state()
        try:
            result = function(**{**given, parameter: value})
            faults += [] if name in ("stack", "unstack") else not_finite("result", result)
            kind = "taken"
        except Exception as error:
            if not is_named(error):
                kind = "fault"
                faults.append(place_of(error))
        faults += changes(inside, process_state())
    faults += changes(before, process_state())
    # draws from numpy's generator, as everywhere
    if parameter == "random_state" and value is None:
        faults = [fault for fault in faults if fault != "changed numpy.random"]
    if any(_public(world()["model"]).get(key) is not kept for key, kept in model.items()):
        faults.append("the model is changed")
    return {
        "kind": f"argument {kind}",
        "faults": faults,
        "name": f"{name}({parameter}={value!r:.40})",
    }


def _public(model):
    return {name: value for name, value in vars(model).items() if not name.startswith("_")}


def drawn(source):
    """Draw a call and a value: (number, which)."""
    every = calls()
    while True:
        number, which = int(source.integers(len(every))), int(source.integers(len(VALUES)))
        if makes_a_trial(every[number][3], VALUES[which]):
            return number, which


def makes_a_trial(name, value):
    """Whether a value is the library's to judge: not work without end, not a caller's function."""
    endless = name in WORK and any(value is large for large in LARGE)
    return not (endless or (name == "kernel" and callable(value)))
