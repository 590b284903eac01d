"""The approximation bounds as formulas; the laws hold the features to them."""

from __future__ import annotations

import math

import pytest
import torch

from bochner import random
from bochner.errors import InputError
from bochner.features.bounds import (
    error_allowed,
    frequencies_needed,
    published_bound,
    sharper_bound,
)
from bochner.features.fourier import fourier_features
from bochner.kernels.stationary import RBF

SETTING = {"n_rows": 10, "n_frequencies": 40_000, "weights": [0.3, 0.4], "spectral_norm": 5.0}
BOUNDS = [published_bound, sharper_bound]


def test_published_formula_in_the_papers_letters():
    n, length, c, q, norm, eps = 10, 80_000, 0.5, 2, 5.0, 0.1
    exponent = (
        -3 * eps**2 * length / (2 * n * c * (6 * norm + 3 * n * c * math.sqrt(q) + 8 * eps))
    )
    assert 0.01 < n * math.exp(exponent) < 1
    assert published_bound(eps, **SETTING) == pytest.approx(
        n * math.exp(exponent), rel=1e-12, abs=0
    )


def test_sharper_formula_is_matrix_bernstein():
    term = 0.4 * 10 / 40_000  # norm of one centred term
    eps = 0.08
    bernstein = 2 * 10 * math.exp(-0.5 * eps**2 / (term * 5.0 + term * eps / 3))
    assert 0.01 < bernstein < 1
    assert sharper_bound(eps, **SETTING) == pytest.approx(bernstein, rel=1e-12, abs=0)


@pytest.mark.parametrize("bound", BOUNDS)
def test_a_probability_that_falls_with_deviation_and_features(bound):
    values = [bound(eps, **SETTING) for eps in (1e-6, 0.2, 0.3, 0.5)]
    assert values[0] == 1.0
    assert values == sorted(values, reverse=True)
    assert values[-1] < 1e-3
    assert bound(0.3, **{**SETTING, "n_frequencies": 80_000}) < bound(0.3, **SETTING)


@pytest.mark.parametrize("eps", [0.3, 0.5, 1.0])
def test_the_sharper_bound_is_sharper(eps):
    assert sharper_bound(eps, **SETTING) < published_bound(eps, **SETTING) < 1


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epsilon", 0.0),
        ("n_rows", 0),
        ("n_frequencies", -1),
        ("weights", [0.5, 0.0]),
        ("weights", []),
        ("spectral_norm", math.inf),
    ],
)
def test_arguments_must_be_positive(bound, name, value):
    with pytest.raises(InputError, match=f"{name} must be positive and finite, got"):
        bound(**{"epsilon": 1.0, **SETTING, name: value})


@pytest.mark.parametrize("probability", [0.3, 0.01])
@pytest.mark.parametrize("epsilon", [0.2, 3.0])
def test_the_least_number_of_frequencies(epsilon, probability):
    rest = {"n_rows": 10, "weights": [0.3, 0.4], "spectral_norm": 5.0}
    needed = frequencies_needed(epsilon, probability=probability, **rest)
    assert sharper_bound(epsilon, n_frequencies=needed, **rest) <= probability
    assert sharper_bound(epsilon, n_frequencies=needed - 1, **rest) > probability
    assert error_allowed(needed, probability=probability, **rest) <= epsilon * (1 + 1e-12)
    assert error_allowed(needed - 1, probability=probability, **rest) > epsilon


def test_the_frequencies_needed_keep_their_promise():
    x = torch.randn(8, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    kernel, errors = RBF(), []
    with torch.no_grad():
        K = kernel(x)
        norm = float(torch.linalg.matrix_norm(K, 2))
        needed = frequencies_needed(
            0.3 * norm, probability=0.1, n_rows=8, weights=[1.0], spectral_norm=norm
        )
        for s in range(100):
            f = fourier_features(
                x, kernel.frequencies(kernel.noise(needed, 2, random.generator(s, "w"), "iid"))
            )
            errors.append(float(torch.linalg.matrix_norm(f.T @ f - K, 2)))
    assert sum(e >= 0.3 * norm for e in errors) <= 20
    assert max(errors) > 0.03 * norm, "not vacuous by orders of magnitude"


def test_a_probability_is_inside_zero_and_one():
    for probability in (0.0, 1.0, math.nan):
        with pytest.raises(InputError, match=r"probability must lie inside \(0, 1\), got"):
            frequencies_needed(
                0.1, probability=probability, n_rows=8, weights=[1.0], spectral_norm=1.0
            )


def test_the_bounds_are_public():
    import bochner as bo

    assert bo.features.frequencies_needed is frequencies_needed
    assert "frequencies_needed" in bo.FourierFeatures.__doc__
