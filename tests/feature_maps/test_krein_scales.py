"""KreinFeatures of kernels whose values are huge, tiny, or zero between different rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bochner import memory
from bochner.errors import InputError
from bochner.feature_maps.comparators import RandomMaclaurin, SphericalFeatures
from bochner.feature_maps.krein import KreinFeatures
from bochner.kernels.function import FunctionKernel
from bochner.kernels.indefinite import TL1, DotProductSeries, Polynomial
from bochner.krein.sketch import Sketch

QUICK = {"n_components": 8, "max_iter": 10, "random_state": 0}


@pytest.fixture
def X() -> np.ndarray:
    return np.random.default_rng(0).uniform(size=(60, 3))


@pytest.mark.parametrize("factor", [1e-200, 1e-100, 1e100, 1e200])
@pytest.mark.parametrize("inference", ["best", "taylor", "spectral"])
def test_a_factor_of_the_kernel_changes_no_relative_error(X, inference, factor):
    one = KreinFeatures(DotProductSeries([1.0, 2.0, 1.0]), inference=inference, **QUICK)
    other = KreinFeatures(
        DotProductSeries([factor, 2.0 * factor, factor]), inference=inference, **QUICK
    )
    one.fit(X)
    other.fit(X)
    assert other.held_out_error_ == pytest.approx(one.held_out_error_, rel=1e-6)
    for relative, unit in ((True, 1.0), (False, factor)):
        assert other.approximation_error(X, relative) == pytest.approx(
            unit * one.approximation_error(X, relative), rel=1e-6, abs=0.0
        )
    np.testing.assert_allclose(
        other.fitted_kernel(X), factor * one.fitted_kernel(X), rtol=1e-5, atol=1e-9 * factor
    )


def test_the_series_of_tl1_is_that_of_any_tau(X):
    model = KreinFeatures(TL1(1e200), inference="spectral", **QUICK).fit(X)
    assert model.held_out_error_ < 1e-12


@pytest.mark.parametrize(
    "kernel",
    [TL1(1e-6), lambda A, B: np.zeros((len(A), len(B)))],
)
def test_kernels_that_are_zero_between_all_rows_are_refused(X, kernel):
    text = r"not zero between all rows, got .* all 48 rows of the sketch\. Widen the kernel"
    with pytest.raises(InputError, match=text):
        KreinFeatures(kernel, **QUICK).fit(X)


def test_rows_held_out_of_which_none_are_alike_are_no_measure():
    x = torch.tensor([[0.1], [0.1], [0.5], [0.9]], dtype=torch.float64)
    kept = Sketch.of(TL1(0.2), x[2:].clone().fill_(0.5), x[:2])
    left_out = Sketch.of(TL1(0.2), x[:2], x[2:])
    assert [len(kept.held_out), len(left_out.held_out)] == [2, 0]
    # rows in pairs: of the three held out, hardly any two are alike
    rows = np.repeat(np.linspace(0.0, 1.0, 30), 2)[:, None]
    for seed in range(5):
        model = KreinFeatures(TL1(1e-6), **{**QUICK, "random_state": seed}, sketch_size=57)
        assert 0.0 < model.fit(rows).held_out_error_ < 2.0


def test_values_that_overflow_are_refused(X):
    with pytest.raises(InputError, match="positive integer up to 1023, got 2000"):
        Polynomial(2000)
    kernel = DotProductSeries([1e308, 1e308])
    with pytest.raises(InputError, match="Expected finite kernel values, got NaN or infinity"):
        KreinFeatures(kernel, **QUICK).fit(X)


@pytest.mark.parametrize("inference", ["gradient", "taylor", "spectral"])
@pytest.mark.parametrize("name", ["polynomial", "tanh", "geodesic_gaussian"])
def test_rows_of_one_direction_are_one_place_on_the_sphere(X, name, inference):
    rows = X[:, :1] * np.ones(5)
    assert len(np.unique(rows / np.linalg.norm(rows, axis=1, keepdims=True))) > 1
    model = KreinFeatures(name, inference=inference, **QUICK).fit(rows)
    assert model.held_out_error_ < 0.1
    assert model.approximation_error(rows, relative=True) < 0.1


def test_rows_close_together_far_from_zero_are_told_apart(X):
    def of_distance(A, B):
        return np.exp(-1e6 * np.square(A[:, None] - B[None]).sum(-1))

    model = KreinFeatures(of_distance, **{**QUICK, "max_iter": 50}).fit(1e3 + 1e-3 * X)
    assert model.held_out_error_ < 0.2


def test_errors_of_kernels_far_above_their_features_are_finite(X):
    model = RandomMaclaurin(Polynomial(1023), 64, random_state=0).fit(X)
    assert model.approximation_error(X, relative=True) == pytest.approx(1.0, abs=0.2)
    assert 1e100 < model.approximation_error(X) < 1e308


@pytest.mark.parametrize("pairwise", [False, True])
def test_functions_that_return_no_numbers_are_refused(X, pairwise):
    for value in (None, "a", {}):
        kernel = FunctionKernel(lambda A, B, value=value: value, pairwise=pairwise)
        with pytest.raises(
            InputError, match=r"Expected (numbers|one number for two rows), got"
        ):
            KreinFeatures(kernel, **QUICK).fit(X)


@pytest.mark.parametrize(
    ("shape", "settings", "match"),
    [
        (
            (15_500, 2),
            {"sketch_size": 15_000},
            r"8.0 GiB, got 8.4 GiB for the kernel matrices of 15,000 rows. Lower sketch_size.",
        ),
        (
            (1200, 1000),
            {"n_mixtures": 300},
            r"8.0 GiB, got 11.2 GiB for 300 covariances of 1,000 columns. "
            r"Put PCA before it, or lower n_mixtures.",
        ),
        (
            (50, 3000),
            {"inference": "taylor", "n_components": 100},
            r"8.0 GiB, got 16.8 GiB for 50 covariances of 3,000 columns. "
            r"Put PCA before it, or lower n_components and n_mixtures.",
        ),
        ((50, 3), {"n_components": 10**9}, r"for n_components=1,000,000,000 and 3 columns."),
    ],
)
def test_fits_that_no_memory_holds_are_refused(shape, settings, match, monkeypatch):
    monkeypatch.setattr(memory.os, "sysconf", lambda _: 2**10)
    X = np.ones(shape) + np.arange(shape[0])[:, None] % 7
    with pytest.raises(InputError, match=match):
        KreinFeatures("tanh", max_iter=1, **settings).fit(X)


def test_a_machine_that_has_the_memory_may_use_it(monkeypatch):
    monkeypatch.setattr(memory.os, "sysconf", lambda _: 2**18)
    assert memory.Memory.of_machine().limit == 64 * memory.GIB
    monkeypatch.delattr(memory.os, "sysconf")
    assert memory.Memory.of_machine().limit == memory.Memory().limit


def test_gaussians_that_no_memory_holds_are_refused(X):
    with pytest.raises(InputError, match=r"for n_gaussians=4,000,000 and 3 columns. Lower"):
        SphericalFeatures(n_gaussians=4_000_000).fit(X)
