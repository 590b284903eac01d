"""Random fits, and what must be true of each."""

import copy
import tempfile
import warnings
from pathlib import Path

import numpy as np
from sklearn.base import clone

import bochner as bo
from campaign import children
from campaign.cases import FRAMES, MAPS, SPARSE, case_of
from campaign.counts import Trial
from campaign.oracle import (
    bad_warnings,
    changes,
    is_named,
    not_finite,
    place_of,
    process_state,
)

# Of a place in latent space, whose prior has deviation 1: what rounding may change.
ROUNDING = 1e-3


def trial(seed):
    """Fit the case of a seed in a process of its own."""
    ended = children.run(_judge, seed, seconds=120.0)
    if ended.value is None:
        how = "hang" if ended.hung else f"crash {ended.code}"
        return Trial(how, [f"{how}: {case_of(seed)}: {ended.err[-300:]}"], ended.seconds)
    return Trial(ended.value["kind"], ended.value["faults"], ended.seconds)


def _judge(seed):
    case = case_of(seed)
    X = case.pack(case.values)
    before, data = process_state(), copy.deepcopy(X)
    model = case.estimator()
    steps, faults = 0, []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        inside = process_state()
        try:
            kind, steps = _fit(case, model, X, faults, seed)
        except Exception as error:
            kind = "refused"
            if not is_named(error):
                kind = "fault"
                faults.append(place_of(error))
        faults += changes(inside, process_state())
    faults += changes(before, process_state()) + bad_warnings(caught, __file__)
    if not _same(X, data):
        faults.append("the data that were given are changed")
    if kind == "fitted":
        kind = "fitted, 100 steps or more" if steps >= 100 else "fitted, fewer steps"
    name = f"{case.name} {case.words}"
    return {"kind": kind, "faults": [f"{fault} ({name})" for fault in faults]}


def _same(a, b):
    if hasattr(a, "toarray"):
        a, b = a.toarray(), b.toarray()
    if isinstance(a, np.ma.MaskedArray):
        a, b = np.where(a.mask, 1, a.data), np.where(b.mask, 1, b.data)
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype == object:
        return [repr(value) for value in a.flat] == [repr(value) for value in b.flat]
    return a.dtype == b.dtype and np.array_equal(a, b, equal_nan=True)


def _fit(case, model, X, faults, seed):
    model.fit(X)
    if case.name in MAPS:
        _check_map(case, model, X, faults)
        return "fitted", getattr(model, "max_iter", 0)
    public = {name: value for name, value in vars(model).items()
              if name.endswith("_") and not name.startswith("_")}  # fmt: skip
    public.pop("diagnostics_", None)  # of chains this short R-hat is not known, which is said
    for name, value in public.items():
        faults += not_finite(name, value)
    _check_rows(case, model, X, faults, with_holes=seed % 2 == 0)
    if seed % 4 == 0:
        again = clone(model).fit(X)
        if not np.array_equal(again.embedding_, model.embedding_):
            faults.append("the same seed gave other bits")
    if seed % 4 == 1:
        _check_file(case, model, X, faults)
    if seed % 4 == 2:
        _check_refused_refit(model, X, faults)
    return "fitted", len(model.elbo_history_)


def _check_map(case, model, X, faults):
    features = model.transform(X)
    faults += not_finite("features", np.asarray(features))
    if len(case.values) > 1:
        faults += not_finite("approximation_error", model.approximation_error(X))
        order = np.random.default_rng(0).permutation(len(case.values))
        moved = np.asarray(model.transform(case.pack(case.values[order])))
        scale = max(np.abs(np.asarray(features)).max(), 1e-300)
        if np.abs(moved - np.asarray(features)[order]).max() > 1e-5 * scale:
            faults.append("features depend on the order of the rows")
    again = clone(model).fit(X)
    if not np.array_equal(np.asarray(again.transform(X)), np.asarray(features)):
        faults.append("the same seed gave other bits")


def _check_rows(case, model, X, faults, with_holes):
    mean, std = model.transform(X, return_std=True)
    outputs = {"transform": (mean, std)}
    if np.abs(mean - model.embedding_).max() > ROUNDING:
        faults.append("transform(X) is not embedding_")
    some = model.embedding_[:5]
    outputs["inverse_transform"] = model.inverse_transform(some, return_std=True)
    if not with_holes:
        outputs["score_samples"] = model.score_samples(case.pack(case.values[:3]))
    drawn = model.sample(3, random_state=0)
    outputs["sample"] = drawn.to_numpy(float) if hasattr(drawn, "to_numpy") else drawn
    for view in model.views_:
        for exact in (True, False):
            outputs[f"kernel_matrix {exact}"] = model.kernel_matrix(some, view, exact)
    if with_holes and case.container not in SPARSE:
        full, std = model.impute(X, return_std=True)
        if isinstance(full, np.ndarray):
            outputs["impute"] = (full, std)
    for name, value in outputs.items():
        faults += not_finite(name, value)
    order = np.random.default_rng(1).permutation(len(case.values))
    moved = model.transform(case.pack(case.values[order]))
    if np.abs(moved - mean[order]).max() > ROUNDING:
        faults.append(f"places depend on the order: {np.abs(moved - mean[order]).max():.1e}")
    alone = model.transform(case.pack(case.values[:1]))
    if np.abs(alone - mean[:1]).max() > ROUNDING:
        faults.append(f"places depend on the batch: {np.abs(alone - mean[:1]).max():.1e}")


def _check_file(case, model, X, faults):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.bochner"
        try:
            model.save(path)
            loaded = bo.load(path)
        except Exception as error:
            faults.append(f"a fitted model does not go through a file: {error}")
            return
    rows, some = case.pack(case.values[:3]), model.embedding_[:5]
    asked = {
        "transform": lambda one: one.transform(X, return_std=True),
        "score_samples": lambda one: one.score_samples(rows),
        "inverse_transform": lambda one: one.inverse_transform(some, return_std=True),
        "kernel_matrix": lambda one: [one.kernel_matrix(some, view) for view in one.views_],
    }
    if case.container not in (*SPARSE, *FRAMES):
        asked["impute"] = lambda one: [one.impute(rows)]
    differ = [
        name
        for name, ask in asked.items()
        if not all(np.array_equal(a, b) for a, b in zip(ask(loaded), ask(model), strict=True))
    ]
    if differ:
        faults.append(f"a loaded model answers with other bits: {', '.join(differ)}")


def _check_refused_refit(model, X, faults):
    before = dict(vars(model))
    try:
        model.set_params(init=[np.zeros((1, 7))]).fit(X)
    except ValueError:
        pass
    else:
        faults.append("a start of another shape was taken")
    model.set_params(init=before["init"])
    if any(vars(model).get(name) is not value for name, value in before.items()):
        faults.append("a failed refit changed its estimator")
