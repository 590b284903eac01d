"""Laws 1, 2 and 8 for every kernel: a concrete kernel that is not among the examples fails the
suite.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import math
import pkgutil
from collections.abc import Callable

import pytest
import torch

import bochner.kernels
from bochner import random
from bochner.errors import InputError
from bochner.features.bounds import published_bound, sharper_bound
from bochner.kernels.base import Kernel, SpectralKernel
from bochner.kernels.bivariate import BivariateSpectralMixture
from bochner.kernels.dirichlet_process import DirichletProcessMixture
from bochner.kernels.nonstationary import Gibbs, SpectralSum, Sum
from bochner.kernels.periodic import Periodic
from bochner.kernels.spectral_mixture import NextGenSpectralMixture, SpectralMixture
from bochner.kernels.stationary import RBF, Matern
from bochner.testing.kernels import KERNEL_LAWS, SPECTRAL_LAWS, grams, matrix, points
from cauchy_kernel import Cauchy
from helpers.subclasses import concrete
from rational_quadratic_kernel import RationalQuadratic

DIMENSIONS = (1, 2, 3)


def per_dimension(d: int, *values: float) -> list[float]:
    return [values[i % len(values)] for i in range(d)]


def spectral_mixture(d: int) -> SpectralMixture:
    return SpectralMixture(
        [0.7, 0.4],
        [per_dimension(d, 0.5, -0.3), per_dimension(d, 2.0, 1.0)],
        [per_dimension(d, 1.0, 0.6), per_dimension(d, 0.3, 0.8)],
    )


def next_gen(d: int) -> NextGenSpectralMixture:
    return NextGenSpectralMixture(
        [0.8, 0.5],
        [per_dimension(d, 0.5, -0.3), per_dimension(d, 1.5, 1.0)],
        [per_dimension(d, -0.2, 0.4), per_dimension(d, 1.0, 1.3)],
        [per_dimension(d, 1.0, 0.6), per_dimension(d, 0.3, 0.8)],
        [per_dimension(d, 0.5, 0.9), per_dimension(d, 0.7, 0.4)],
        [0.8, -0.4],
    )


def dirichlet(d: int) -> DirichletProcessMixture:
    means, scales = (
        spectral_mixture(d).get_params()["means"],
        spectral_mixture(d).get_params()["scales"],
    )
    return DirichletProcessMixture(
        [0.7, 0.3, 0.0], [*means, means[0]], [*scales, scales[1]], 1.4
    )


def bivariate(d: int) -> BivariateSpectralMixture:
    return BivariateSpectralMixture(
        [0.8, 0.5],
        [per_dimension(d, 0.5, -0.3), per_dimension(d, 1.5, 1.0)],
        [per_dimension(d, -0.2, 0.4), per_dimension(d, 1.0, 1.3)],
        [per_dimension(d, 1.0, 0.6), per_dimension(d, 0.3, 0.8)],
        [0.8, 0.1],
    )


EXAMPLES: dict[type[Kernel], Callable[[int], list[Kernel]]] = {
    RBF: lambda d: [RBF(), RBF(per_dimension(d, 0.7, 1.4), 2.0)],
    Matern: lambda d: [
        Matern(nu=0.5),
        Matern(0.8, 1.5, 1.7),
        Matern(per_dimension(d, 0.7, 1.4), 2.5),
    ],
    Periodic: lambda d: [
        Periodic(1.3, 0.8, 1.5),
        Periodic(per_dimension(d, 1.0, 2.0), per_dimension(d, 1.0, 0.7)),
    ],
    Gibbs: lambda d: [Gibbs(), Gibbs(0.7, 0.8, 1.6)],
    SpectralMixture: lambda d: [spectral_mixture(d)],
    NextGenSpectralMixture: lambda d: [next_gen(d)],
    BivariateSpectralMixture: lambda d: [bivariate(d)],
    DirichletProcessMixture: lambda d: [dirichlet(d)],
    Sum: lambda d: [Sum([RBF(0.5), Periodic(2.0, 1.0)]), Sum([Gibbs(), next_gen(d)])],
    # the documentation's kernels of one's own
    Cauchy: lambda d: [Cauchy(), Cauchy(0.6)],
    RationalQuadratic: lambda d: [
        RationalQuadratic(),
        RationalQuadratic(per_dimension(d, 0.7, 1.4), 3),
    ],
    SpectralSum: lambda d: [
        SpectralSum([spectral_mixture(d), Matern(0.8, 1.5)]),
        SpectralSum([RBF(0.5), next_gen(d)]),
        SpectralSum([RBF(0.5), Periodic(2.0, 1.0)]),
    ],
}
CASES = [(kernel, d) for d in DIMENSIONS for build in EXAMPLES.values() for kernel in build(d)]
SPECTRAL = [(kernel, d) for kernel, d in CASES if isinstance(kernel, SpectralKernel)]

over_kernels = pytest.mark.parametrize(
    ("kernel", "d"), CASES, ids=lambda v: getattr(v, "_get_name", lambda: None)()
)
over_spectral = pytest.mark.parametrize(
    ("kernel", "d"), SPECTRAL, ids=lambda v: getattr(v, "_get_name", lambda: None)()
)


def test_every_kernel_is_covered():
    for module in pkgutil.iter_modules(bochner.kernels.__path__, "bochner.kernels."):
        importlib.import_module(module.name)
    missing = {c.__name__ for c in concrete(Kernel)} - {c.__name__ for c in EXAMPLES}
    assert not missing, (
        f"add examples of {missing} to EXAMPLES and rejected values to REJECTED"
    )


# Laws 1 and 2: the functions that users call on kernels of their own


@pytest.mark.parametrize("law", KERNEL_LAWS, ids=lambda law: law.__name__)
@over_kernels
def test_laws_of_kernels(law, kernel, d):
    law(kernel, d)


@pytest.mark.parametrize("law", SPECTRAL_LAWS, ids=lambda law: law.__name__)
@over_spectral
def test_laws_of_spectra(law, kernel, d):
    law(kernel, d)


def epsilon_at(bound: Callable[..., float], probability: float, **setting: object) -> float:
    low, high = 1e-6, 1e3
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if bound(middle, **setting) > probability else (low, middle)
    return high


@pytest.mark.parametrize("bound", [published_bound, sharper_bound])
@pytest.mark.parametrize(
    ("kernel", "weights"),
    [
        (RBF(0.8), [1.0]),
        (Matern(nu=0.5), [1.0]),
        (spectral_mixture(2), [0.7, 0.4]),
        (next_gen(2), [0.8, 0.5]),
    ],
    ids=["rbf", "matern", "sm", "ng-sm"],
)
def test_approximation_bound_holds_where_it_says_something(bound, kernel, weights):
    x, n_frequencies = points(6, 2), 1024
    target = matrix(kernel, x)
    setting = {"n_rows": 6, "n_frequencies": n_frequencies, "weights": weights}
    setting["spectral_norm"] = float(torch.linalg.matrix_norm(target, 2))
    deviations = torch.linalg.matrix_norm(grams(kernel, x, n_frequencies, 100) - target, 2)
    for probability in (0.45, 0.05):
        epsilon = epsilon_at(bound, probability, **setting)
        assert bound(epsilon, **setting) < 0.5
        assert epsilon < setting["spectral_norm"]
        gap = 4 * math.sqrt(probability * (1 - probability) / len(deviations))
        assert (deviations >= epsilon).double().mean() <= probability + gap
    # Not vacuous the other way: a quarter of the standard deviation is exceeded.
    assert (deviations >= 0.25 * epsilon_at(sharper_bound, 0.45, **setting)).any()


# Law 8 and the contract with scikit-learn


MIXTURE = {"weights": [1.0, 0.5], "means": [[0.0], [1.0]], "scales": [[1.0], [2.0]]}
PAIRS = {
    "weights": [1.0],
    "means1": [[0.0]],
    "means2": [[1.0]],
    "scales1": [[1.0]],
    "scales2": [[2.0]],
}
PAIRS["correlations"] = [0.5]
BIVARIATE = {**PAIRS, "scales": [[1.0]]}
del BIVARIATE["scales1"], BIVARIATE["scales2"]
PROCESS = {"proportions": [0.4, 0.6], "means": [[0.0], [1.0]], "scales": [[1.0], [2.0]]}
REJECTED: dict[type[Kernel], list[tuple[dict[str, object], str]]] = {
    RBF: [
        ({"lengthscale": 0.0}, "lengthscale must be positive and finite, got 0.0"),
        ({"lengthscale": [1.0, -2.0]}, "lengthscale must be positive and finite, got -2.0"),
        (
            {"lengthscale": [[1.0]]},
            r"lengthscale must be a number or one number per dimension, got shape \(1, 1\)",
        ),
        ({"variance": math.inf}, "variance must be positive and finite, got inf"),
        ({"variance": [1.0, 2.0]}, r"variance must be a number, got shape \(2,\)"),
    ],
    Matern: [
        ({"lengthscale": math.nan}, "lengthscale must be positive and finite, got nan"),
        ({"variance": -1.0}, "variance must be positive and finite, got -1.0"),
        ({"nu": 1.0}, "nu must be 0.5, 1.5 or 2.5, got 1.0. For nu = infinity use RBF"),
    ],
    Periodic: [
        ({"period": 0.0}, "period must be positive and finite, got 0.0"),
        ({"lengthscale": -1.0}, "lengthscale must be positive and finite, got -1.0"),
        ({"variance": 0.0}, "variance must be positive and finite, got 0.0"),
    ],
    Gibbs: [
        ({"lengthscale": [1.0, 2.0]}, r"lengthscale must be a number, got shape \(2,\)"),
        ({"decay": math.nan}, "decay must be a finite number, got nan"),
        ({"decay": [0.5]}, r"decay must be a finite number, got \[0.5\]"),
        ({"variance": 0.0}, "variance must be positive and finite, got 0.0"),
    ],
    SpectralMixture: [
        ({**MIXTURE, "weights": [1.0, 0.0]}, "weights must be positive and finite, got 0.0"),
        (
            {**MIXTURE, "weights": [1.0]},
            r"weights must have shape \(2,\) \(mixtures first\), got \(1,\)",
        ),
        ({**MIXTURE, "means": [[0.0], [math.nan]]}, "means must be finite"),
        (
            {**MIXTURE, "scales": [[1.0], [-1.0]]},
            "scales must be positive and finite, got -1.0",
        ),
        (
            {**MIXTURE, "scales": [[1.0]]},
            r"scales must have shape \(2, 1\) \(mixtures first\), got \(1, 1\)",
        ),
        (
            {"weights": [1.0]},
            "Give all of weights, means, scales or none of them: means is None",
        ),
        (
            {"means": [[1.0]]},
            "Give all of weights, means, scales or none of them: weights is None",
        ),
    ],
    NextGenSpectralMixture: [
        ({**PAIRS, "weights": [-1.0]}, "weights must be positive and finite, got -1.0"),
        ({**PAIRS, "means1": [[math.inf]]}, "means1 must be finite"),
        ({**PAIRS, "means2": [[0.0, 1.0]]}, r"means2 must have shape \(1, 1\)"),
        ({**PAIRS, "scales1": [[0.0]]}, "scales1 must be positive and finite, got 0.0"),
        ({**PAIRS, "scales2": [[math.nan]]}, "scales2 must be positive and finite, got nan"),
        ({**PAIRS, "correlations": [1.0]}, r"correlations must lie inside \(-1, 1\), got 1.0"),
        ({**PAIRS, "correlations": [0.1, 0.2]}, r"correlations must have shape \(1,\)"),
        ({**PAIRS, "correlations": None}, "or none of them: correlations is None"),
    ],
    BivariateSpectralMixture: [
        ({**BIVARIATE, "weights": [-1.0]}, "weights must be positive and finite, got -1.0"),
        (
            {**BIVARIATE, "weights": [1.0, 1.0]},
            r"weights must have shape \(1,\) \(mixtures first\), got \(2,\)",
        ),
        ({**BIVARIATE, "means1": [[math.inf]]}, "means1 must be finite"),
        ({**BIVARIATE, "means2": [[0.0, 1.0]]}, r"means2 must have shape \(1, 1\)"),
        ({**BIVARIATE, "scales": [[0.0]]}, "scales must be positive and finite, got 0.0"),
        (
            {**BIVARIATE, "correlations": [-0.2]},
            r"correlations must lie inside \(0, 1\), got -0.2: the kernel is not pos",
        ),
        ({**BIVARIATE, "correlations": [1.0]}, "NextGenSpectralMixture takes any correlation"),
    ],
    DirichletProcessMixture: [
        (
            {**PROCESS, "proportions": [0.5, 0.6]},
            r"proportions must not be negative and sum to 1, got row 0: \[0.5, 0.6\]",
        ),
        ({**PROCESS, "proportions": [1.5, -0.5]}, "proportions must not be negative"),
        (
            {**PROCESS, "proportions": [1.0]},
            r"one column for each of the mixtures in means, shape \(2, 1\), got \(1, 1\)",
        ),
        ({**PROCESS, "means": [[0.0], [math.inf]]}, "means must be finite"),
        ({**PROCESS, "scales": [[0.0], [1.0]]}, "scales must be positive and finite, got 0.0"),
        (
            {**PROCESS, "scales": [[1.0]]},
            r"scales must have shape \(2, 1\) \(mixtures first\), got \(1, 1\)",
        ),
        (
            {"means": [[1.0]]},
            r"Give all of proportions, means, scales or none of them: only \['means'\] are given",
        ),
        ({**PROCESS, "variance": 0.0}, "variance must be positive and finite, got 0.0"),
        (
            {**PROCESS, "prior": (1.0, 0.0)},
            "prior must be two positive numbers, shape and rate of a Gamma",
        ),
        ({"n_points": 0}, "n_points must be at least 1, got 0"),
    ],
    Cauchy: [
        ({"lengthscale": -1.0}, "lengthscale must be positive and finite, got -1.0"),
        ({"lengthscale": [1.0, 2.0]}, r"lengthscale must be a number, got shape \(2,\)"),
    ],
    RationalQuadratic: [
        ({"lengthscale": 0.0}, "lengthscale must be positive and finite, got 0.0"),
        ({"alpha": 0.5}, "alpha must be a whole number of at least 1, got 0.5"),
    ],
    Sum: [
        ({"kernels": []}, "kernels must be a list of at least one Kernel"),
        ({"kernels": RBF()}, "kernels must be a list of at least one Kernel"),
        ({"kernels": [RBF(), "rbf"]}, "kernels must hold Kernel objects, got str"),
    ],
    SpectralSum: [
        ({"kernels": []}, "kernels must be a list of at least one SpectralKernel"),
        (
            {"kernels": [RBF(), Gibbs()]},
            "kernels must hold SpectralKernel objects, got Gibbs. Use Sum",
        ),
    ],
}


@pytest.mark.parametrize(
    ("cls", "params", "match"),
    [(cls, params, match) for cls, rows in REJECTED.items() for params, match in rows],
)
def test_wrong_parameters_are_refused(cls, params, match):
    with pytest.raises(InputError, match=match):
        cls(**params)


@pytest.mark.parametrize("cls", EXAMPLES)
def test_every_parameter_has_a_rejected_value(cls):
    usual = {
        SpectralMixture: MIXTURE,
        NextGenSpectralMixture: PAIRS,
        BivariateSpectralMixture: BIVARIATE,
    }
    usual = {**usual, DirichletProcessMixture: PROCESS}.get(cls, {})
    refused = {
        n for params, _ in REJECTED[cls] for n, v in params.items() if v is not usual.get(n)
    }
    assert refused == set(inspect.signature(cls).parameters)


@over_kernels
def test_unknown_parameters_and_wrong_dimensions_are_refused(kernel, d):
    with pytest.raises(
        InputError, match=f"{type(kernel).__name__} has no parameter 'colour'. It has:"
    ):
        copy.deepcopy(kernel).set_params(colour=1)
    per_dimension_scales = any(p.ndim for p in kernel.parameters())
    if (
        isinstance(kernel, RBF | Matern | Periodic | BivariateSpectralMixture)
        and per_dimension_scales
    ):
        with pytest.raises(InputError, match=f"is for {d} dimensions?, got points of 7"):
            kernel(points(3, 7))
    if isinstance(kernel, SpectralKernel) and per_dimension_scales:
        with pytest.raises(InputError, match=f"is for {d} dimensions?, got points of 7"):
            kernel.noise(3, 7, random.generator(0, "n"), "iid")
