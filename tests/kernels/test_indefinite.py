"""Indefinite kernels: their formulas, their domains, what they refuse; every class is covered."""

from __future__ import annotations

import importlib
import math
import pkgutil
from collections.abc import Callable

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch import Tensor

import bochner.kernels
from bochner.errors import InputError
from bochner.kernels.domains import IndefiniteKernel
from bochner.kernels.function import FunctionKernel
from bochner.kernels.indefinite import (
    NAMED,
    TL1,
    DotProductSeries,
    GeodesicGaussian,
    Hellinger,
    Polynomial,
    Tanh,
)
from helpers.subclasses import concrete


def product(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    return A @ B.T


# kernel, and the same thing written for two rows on the domain
EXAMPLES: dict[
    type[IndefiniteKernel], list[tuple[IndefiniteKernel, Callable[[Tensor, Tensor], float]]]
] = {
    Polynomial: [
        (Polynomial(), lambda x, y: (1 + x @ y) ** 10),
        (Polynomial(3), lambda x, y: (1 + x @ y) ** 3),
    ],
    DotProductSeries: [
        (DotProductSeries([0.5, -1.0, 2.0]), lambda x, y: 0.5 - x @ y + 2 * (x @ y) ** 2)
    ],
    Hellinger: [(Hellinger(), lambda x, y: math.sqrt(x @ y))],
    Tanh: [
        (Tanh(), lambda x, y: math.tanh(1 + x @ y / len(x))),
        (Tanh(2.0, -0.5), lambda x, y: math.tanh(-0.5 + 2 * x @ y)),
    ],
    GeodesicGaussian: [
        (GeodesicGaussian(0.7), lambda x, y: math.exp(-0.7 * math.acos(min(1.0, x @ y)) ** 2))
    ],
    TL1: [
        (TL1(), lambda x, y: max(0.7 * len(x) - float((x - y).abs().sum()), 0.0)),
        (TL1(0.4), lambda x, y: max(0.4 - float((x - y).abs().sum()), 0.0)),
    ],
    FunctionKernel: [
        (FunctionKernel(product), lambda x, y: float(x @ y)),
        (
            FunctionKernel(lambda a, b: min(a[0], b[0]), pairwise=True),
            lambda x, y: float(min(x[0], y[0])),
        ),
        (FunctionKernel(product, domain="sphere"), lambda x, y: float(x @ y)),
    ],
}
CASES = [
    (kernel, formula, d)
    for d in (1, 2, 3)
    for rows in EXAMPLES.values()
    for kernel, formula in rows
]
over_cases = pytest.mark.parametrize(
    ("kernel", "formula", "d"), CASES, ids=lambda v: getattr(v, "__name__", None)
)


def rows(n: int, d: int, seed: int = 0) -> Tensor:
    return torch.rand(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_every_kernel_is_covered():
    for module in pkgutil.iter_modules(bochner.kernels.__path__, "bochner.kernels."):
        importlib.import_module(module.name)
    assert set(concrete(IndefiniteKernel)) == set(EXAMPLES)
    assert set(EXAMPLES) == set(REJECTED)
    assert set(NAMED.values()) == set(EXAMPLES) - {FunctionKernel, DotProductSeries}


@over_cases
def test_kernel_matrix_is_its_formula(kernel, formula, d):
    x, y = kernel.normalise(rows(6, d)), kernel.normalise(rows(4, d, 1))
    matrix = kernel(x, y)
    expected = torch.tensor(
        [[float(formula(a, b)) for b in y] for a in x], dtype=torch.float64
    )
    torch.testing.assert_close(matrix, expected, atol=1e-7, rtol=1e-7)
    torch.testing.assert_close(kernel(y, x), matrix.T)
    assert kernel(x.float(), y.float()).dtype == torch.float32


@pytest.mark.parametrize(
    ("kernel", "d"), [(kernel, d) for kernel, _, d in CASES if kernel.radial], ids=repr
)
def test_radial_kernels_depend_on_the_distance_alone(kernel, d):
    # the same distance in other places: rotate all rows
    rotation = torch.linalg.qr(
        torch.randn(d, d, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    )[0]
    x = kernel.normalise(rows(6, d))
    torch.testing.assert_close(
        kernel(x @ rotation, x @ rotation), kernel(x, x), atol=1e-6, rtol=1e-6
    )


def test_special_cases():
    x = rows(20, 4)
    sphere = Polynomial(1).normalise(x)
    torch.testing.assert_close(Polynomial(1)(sphere, sphere), 1 + sphere @ sphere.T)
    series = DotProductSeries(Polynomial(5).maclaurin())
    torch.testing.assert_close(series(sphere, sphere), Polynomial(5)(sphere, sphere))
    torch.testing.assert_close(Hellinger()(sphere, sphere).square(), sphere @ sphere.T)
    far = TL1(100.0)
    torch.testing.assert_close(far(x, x), 100.0 - torch.cdist(x, x, p=1.0))
    flat = Tanh(scale=1e-6, offset=0.3)(sphere, sphere)
    torch.testing.assert_close(flat, torch.full_like(flat, math.tanh(0.3)), atol=1e-5, rtol=0)


def test_what_is_definite_and_what_is_not():
    x = rows(150, 3, 4)
    for kernel, definite in (
        (Polynomial(), True),
        (Hellinger(), False),
        (Tanh(2.0), False),
        (TL1(1.0), False),
    ):
        points = kernel.normalise(x)
        values = torch.linalg.eigvalsh(kernel(points, points))
        assert (float(values[0]) > -1e-8 * float(values[-1])) is definite, kernel


def test_normalisation():
    x = torch.tensor([[3.0, 4.0], [0.0, 0.0]])
    assert torch.equal(Polynomial().normalise(x), torch.tensor([[0.6, 0.8], [0.0, 0.0]]))
    inside = torch.tensor([[0.0, 1.0 + 1e-9]], dtype=torch.float64)
    assert TL1().normalise(inside) is inside
    assert FunctionKernel(product).normalise(x) is x


REJECTED: dict[type[IndefiniteKernel], list[tuple[dict[str, object], str]]] = {
    Polynomial: [
        ({"degree": 0}, "Expected degree as a positive integer up to 1023, got 0"),
        ({"degree": 2.5}, "got 2.5"),
    ],
    DotProductSeries: [
        ({"coefficients": []}, r"Expected at least one finite coefficient, got \[\]"),
        ({"coefficients": [1.0, math.nan]}, "got .1.0, nan."),
    ],
    Hellinger: [],
    Tanh: [
        ({"scale": 0.0}, "Expected scale as a positive number or None, got 0.0"),
        ({"offset": math.inf}, "Expected offset as a finite number, got inf"),
    ],
    GeodesicGaussian: [({"gamma": -1.0}, "Expected gamma as a positive number, got -1.0")],
    TL1: [
        (
            {"tau": 0.0},
            "Expected tau as a positive number or None, got 0.0. Choose tau=None for 0.7 d",
        )
    ],
    FunctionKernel: [
        ({"function": 3}, "Expected function as a callable, got int"),
        (
            {"function": product, "domain": "torus"},
            "Expected domain as 'any', 'sphere' or 'cube', got 'torus'",
        ),
    ],
}


@pytest.mark.parametrize(
    ("cls", "params", "match"),
    [(c, p, m) for c, result in REJECTED.items() for p, m in result],
)
def test_wrong_parameters_are_refused(cls, params, match):
    with pytest.raises(InputError, match=match):
        cls(**params)


def test_rows_outside_the_domain_are_named():
    x = torch.full((3, 2), 0.5)
    x[1, 0] = 1.25
    with pytest.raises(
        InputError,
        match=r"between 0 and 1 for TL1, got 1.25 in row 1, column 0. Put MinMaxScaler",
    ):
        TL1().normalise(x)
    y = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    with pytest.raises(
        InputError,
        match=r"non-negative products .* got -1 \(entry 0, 1 of the products\). Scale the",
    ):
        Hellinger()(y, y)


@pytest.mark.parametrize(
    ("function", "pairwise", "match"),
    [
        (
            lambda A, B: A.sum(),
            False,
            r"shape \(3, 2\), got \(\). Return one value per pair .* pairwise=True",
        ),
        (lambda A, B: (A @ B.T).T, False, r"matrix of shape \(3, 2\), got \(2, 3\)"),
        (
            lambda A, B: A @ B.T + np.nan,
            False,
            "Expected finite kernel values, got NaN or infinity",
        ),
        (
            lambda A, B: np.exp(1j * (A[:, :1] - B[:, :1].T)),
            False,
            r"Expected real kernel values, got complex ones. Return real numbers, .* np\.real",
        ),
        (lambda A, B: torch.ones(3, 2, dtype=torch.complex64), False, "got complex ones"),
        (lambda a, b: np.complex128(1.0), True, "got complex ones"),
        (lambda a, b: math.inf, True, "Expected finite kernel values, got NaN or infinity"),
    ],
)
def test_wrong_functions_are_named(function, pairwise, match):
    with pytest.raises(InputError, match=match):
        FunctionKernel(function, pairwise)(rows(3, 2), rows(2, 2))


@over_cases
def test_parameters_can_be_cloned_and_changed(kernel, formula, d):
    copy = clone(kernel, safe=False)
    assert type(copy) is type(kernel)
    assert copy is not kernel
    assert copy.get_params() == kernel.get_params()
    assert repr(copy).startswith(type(kernel).__name__)
    with pytest.raises(
        InputError, match=f"{type(kernel).__name__} has no parameter 'colour'. It has:"
    ):
        copy.set_params(colour=1)


def test_parameters_are_set():
    assert Polynomial().set_params(degree=3).degree == 3
    with pytest.raises(
        InputError, match="Expected degree as a positive integer up to 1023, got -1"
    ):
        Polynomial().set_params(degree=-1)
