"""What a program sets for all of torch changes nothing, and warnings are about the line of it that
called.
"""

from __future__ import annotations

import functools
import multiprocessing
import subprocess
import sys
import warnings
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import bochner as bo

pytestmark = pytest.mark.usefixtures("few_draws")

X = np.random.default_rng(0).poisson(3.0, size=(24, 5)).astype(float)
SMALL = {"n_frequencies": 8, "init": "pca", "max_iter": 4, "random_state": 0}
MODELS = {
    "gaussian": bo.NGMVLVM(**SMALL),
    "counts": bo.SRFLVM(likelihood="negative_binomial", **SMALL),
}
MAPS = {
    "krein": bo.KreinFeatures(n_components=16, max_iter=2, random_state=0),
    "krein, odd": bo.KreinFeatures(n_components=7, inference="spectral", random_state=0),
    "fourier": bo.FourierFeatures(random_state=0),
    "fourier, odd": bo.FourierFeatures(n_components=7, random_state=0),
    "maclaurin": bo.RandomMaclaurin(random_state=0),
    "spherical": bo.SphericalFeatures(random_state=0),
}


@contextmanager
def default_device():
    # no tensor of this device has values: whatever forgets to say where it lies fails
    torch.set_default_device("meta")
    try:
        yield
    finally:
        torch.set_default_device(None)


@contextmanager
def default_dtype():
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


SURROUNDINGS = {
    "no gradients": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu"),
    "device": default_device,
    "dtype": default_dtype,
}


def results(model, path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X)
        holes = X.copy()
        holes[0, 1] = np.nan
        model.save(path)
        loaded = bo.load(path)
        Z = loaded.transform(X[:6])
        return [
            model.embedding_,
            Z,
            *loaded.transform(holes[:3], return_std=True),
            loaded.impute(holes),
            *loaded.inverse_transform(Z, return_std=True),
            loaded.score_samples(X[:3]),
            np.array(loaded.score(X[:2])),
            loaded.sample(3, random_state=0),
            loaded.kernel_matrix(Z),
        ]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """What every model does where nothing is set; computed once."""

    @functools.cache
    def of(name):
        return results(MODELS[name], tmp_path_factory.mktemp("alone") / "alone.bochner")

    return of


@pytest.mark.parametrize("surroundings", SURROUNDINGS)
@pytest.mark.parametrize("name", MODELS)
def test_models_do_what_they_do_alone(name, surroundings, tmp_path, alone):
    expected = alone(name)
    with SURROUNDINGS[surroundings]():
        beside = results(MODELS[name], tmp_path / "beside.bochner")
    for ours, theirs in zip(expected, beside, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("surroundings", SURROUNDINGS)
@pytest.mark.parametrize("name", MAPS)
def test_feature_maps_learn_what_they_learn_alone(name, surroundings):
    alone = MAPS[name].fit(X).transform(X)
    with SURROUNDINGS[surroundings]():
        MAPS[name].fit(X)
    np.testing.assert_array_equal(MAPS[name].transform(X), alone)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", MAPS)
def test_feature_maps_are_computed_in_full_precision_under_autocast(name, dtype):
    model = MAPS[name].fit(X)
    rows = X.astype(dtype)
    tensor = torch.from_numpy(rows)
    alone = model.transform(rows)
    error = model.approximation_error(rows)
    with torch.autocast("cpu"):
        features = model.transform(tensor)
        assert features.dtype == tensor.dtype
        np.testing.assert_array_equal(features.numpy(), alone)
        np.testing.assert_array_equal(model.transform(rows), alone)
        assert model.approximation_error(rows) == error


def test_choices_and_checks_of_models_are_what_they_are_alone(monkeypatch):
    monkeypatch.setattr("bochner.model_selection.n_components._DRAWS", 10)

    def result():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            chosen = bo.select_n_components(
                MODELS["gaussian"], X, [1, 2], fraction=0.3, n_repeats=1, random_state=0
            )
            held = bo.calibration(
                MODELS["gaussian"].fit(X), X, fraction=0.3, n_draws=20, random_state=0
            )
        return chosen.log_likelihood, held.to_json()

    alone = result()
    with default_device(), torch.no_grad():
        beside = result()
    np.testing.assert_array_equal(beside[0], alone[0])
    assert str(beside[1]) == str(alone[1])


def test_the_programs_settings_stand_again_afterwards():
    with torch.no_grad(), torch.autocast("cpu"):
        results_of_fit = MAPS["fourier"].fit(X)
        assert not torch.is_grad_enabled()
        assert torch.is_autocast_enabled("cpu")
    assert results_of_fit is MAPS["fourier"]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_tensors_are_data_whatever_hangs_on_them(dtype):
    model = MODELS["gaussian"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = model.fit(X).transform(X)
        tensor = torch.tensor(X, dtype=dtype, requires_grad=True)
        np.testing.assert_allclose(model.fit(tensor).transform(tensor), plain, atol=1e-4)
        decoded = model.inverse_transform(torch.tensor(plain, requires_grad=True))
    np.testing.assert_allclose(decoded, model.inverse_transform(plain))


def _calls(model):
    rows = np.full((2, 5), np.nan)
    pipeline = make_pipeline(FunctionTransformer(), clone(model))
    return {
        "fit": lambda: clone(model).fit(X),
        "fit_transform": lambda: clone(model).fit_transform(X),
        "pipeline": lambda: pipeline.fit(X),
        "transform": lambda: model.transform(rows),
        "impute": lambda: model.impute(rows),
    }


@pytest.mark.parametrize("name", ["fit", "fit_transform", "pipeline", "transform", "impute"])
def test_warnings_are_about_the_line_that_called(name):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = MODELS["gaussian"].fit(X)
        caught.clear()
        _calls(model)[name]()
    assert caught
    assert {warning.filename for warning in caught} == {__file__}


def _fitted_in_a_fork(n_threads):
    torch.set_num_threads(n_threads)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        MAPS["fourier"].fit(X)  # nothing that waits for threads
        MAPS["fourier"].fit(X)
    return [str(warning.message) for warning in caught]


@pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="this system does not fork"
)
@pytest.mark.parametrize(("n_threads", "n_warnings"), [(1, 0), (2, 1)])
def test_a_forked_process_is_told_that_its_threads_are_gone(n_threads, n_warnings):
    MAPS["fourier"].fit(X)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        caught = pool.apply_async(_fitted_in_a_fork, (n_threads,)).get()
    assert len(caught) == n_warnings
    assert all("multiprocessing.get_context('spawn')" in text for text in caught)


ALONE = """
import os, random, sys, warnings
import numpy as np
import bochner as bo
before = random.getstate(), dict(os.environ), list(warnings.filters)
warnings.simplefilter("ignore")
X = np.random.default_rng(0).normal(size=(20, 3))
bo.NGMVLVM(max_iter=2, n_frequencies=3, init="pca", random_state=0, verbose=1).fit(X)
for name in ("FourierFeatures", "KreinFeatures", "RandomMaclaurin", "SphericalFeatures"):
    getattr(bo, name)(random_state=0).fit(X)
assert random.getstate() == before[0], "a number was drawn from Python's global generator"
assert dict(os.environ) == before[1], set(os.environ) - set(before[1])
compilers = [name for name in sys.modules if name.startswith(("torch._dynamo", "torch._inductor"))]
assert not compilers, f"{len(compilers)} modules of torch's compiler are imported"
"""


def test_a_first_fit_sets_nothing_and_imports_no_compiler():
    done = subprocess.run(
        [sys.executable, "-c", ALONE], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
