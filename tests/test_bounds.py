"""The approximation bounds as formulas; the laws hold the features to them."""

from __future__ import annotations

import math

import pytest

from bochner.errors import InputError
from bochner.features.bounds import published_bound, sharper_bound

SETTING = {"n_rows": 10, "n_frequencies": 40_000, "weights": [0.3, 0.4], "spectral_norm": 5.0}
BOUNDS = [published_bound, sharper_bound]


def test_published_formula_in_the_papers_letters():
    n, length, c, q, norm, eps = 10, 80_000, 0.5, 2, 5.0, 0.1
    exponent = -3 * eps**2 * length / (2 * n * c * (6 * norm + 3 * n * c * math.sqrt(q) + 8 * eps))
    assert 0.01 < n * math.exp(exponent) < 1
    assert published_bound(eps, **SETTING) == pytest.approx(n * math.exp(exponent), rel=1e-12, abs=0)


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
