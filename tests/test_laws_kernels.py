"""Laws 1, 2 and 8 for every kernel: a concrete kernel that is not among the examples fails the
suite.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import math
import pickle
import pkgutil
from collections.abc import Callable, Iterator

import pytest
import torch
from sklearn.base import clone
from torch import Tensor

import bochner.kernels
from bochner import random
from bochner.errors import InputError
from bochner.features.bounds import published_bound, sharper_bound
from bochner.features.fourier import fourier_features
from bochner.kernels.base import Kernel, SpectralKernel
from bochner.kernels.bivariate import BivariateSpectralMixture
from bochner.kernels.dirichlet_process import DirichletProcessMixture
from bochner.kernels.nonstationary import Gibbs, SpectralSum, Sum
from bochner.kernels.periodic import Periodic
from bochner.kernels.spectral_mixture import NextGenSpectralMixture, SpectralMixture
from bochner.kernels.stationary import RBF, Matern
from cauchy_kernel import Cauchy

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
    return DirichletProcessMixture([0.7, 0.3, 0.0], [*means, means[0]], [*scales, scales[1]], 1.4)


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
    Cauchy: lambda d: [Cauchy(), Cauchy(0.6)],  # the documentation's kernel of one's own
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


def concrete(cls: type) -> Iterator[type]:
    for child in cls.__subclasses__():
        if child.__module__.startswith("bochner.") and not inspect.isabstract(child):
            yield child
        yield from concrete(child)


def points(n: int, d: int, seed: int = 0) -> Tensor:
    return (
        0.8 * torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        + 0.3
    )


@torch.no_grad()
def grams(
    kernel: SpectralKernel, x: Tensor, n_frequencies: int, n_draws: int, sampling: str = "iid"
) -> Tensor:
    """Return (n_draws, N, N) inner products of independently drawn features."""
    source = random.generator(0, "law", n_frequencies)
    features = [
        fourier_features(
            x, kernel.frequencies(kernel.noise(n_frequencies, x.shape[1], source, sampling))
        )
        for _ in range(n_draws)
    ]
    return torch.stack([f.T @ f for f in features])


@torch.no_grad()
def exact(kernel: Kernel, x: Tensor, y: Tensor | None = None) -> Tensor:
    return kernel(x, y)


def test_every_kernel_is_covered():
    for module in pkgutil.iter_modules(bochner.kernels.__path__, "bochner.kernels."):
        importlib.import_module(module.name)
    missing = {c.__name__ for c in concrete(Kernel)} - {c.__name__ for c in EXAMPLES}
    assert not missing, f"add examples of {missing} to EXAMPLES and rejected values to REJECTED"


# Law 1: the features against their specification, the closed form


@pytest.mark.parametrize("sampling", ["iid", "orthogonal", "sobol"])
@over_spectral
def test_features_are_unbiased(kernel, d, sampling):
    x = points(5, d)
    draws = grams(kernel, x, 16, 120, sampling)
    error, standard_error = draws.mean(0) - exact(kernel, x), draws.std(0) / len(draws) ** 0.5
    # the diagonal of a stationary kernel has no variance at all: only rounding remains there
    assert (error.abs() <= 5 * standard_error + 1e-12).all(), (error / standard_error).abs().max()
    assert standard_error.max() < 0.06, "too few draws to tell"


@over_spectral
def test_iid_error_falls_with_the_root_of_the_features(kernel, d):
    x = points(5, d)
    target = exact(kernel, x)
    few, many = ((grams(kernel, x, h, 150) - target).square().mean().sqrt() for h in (16, 256))
    assert 3.3 < few / many < 4.8, "16 times the features: a quarter of the error"


@over_spectral
def test_noise_has_the_promised_shape(kernel, d):
    noise = kernel.noise(6, d, random.generator(0, "n"), "iid")
    frequencies = kernel.frequencies(noise)
    assert noise.shape[:2] == (kernel.n_mixtures, 6)
    assert frequencies.first.shape == (6 * kernel.n_mixtures, d)
    assert frequencies.amplitude.shape == (6 * kernel.n_mixtures,)
    assert (frequencies.second is None) is kernel.stationary
    again = kernel.frequencies(kernel.noise(6, d, random.generator(0, "n"), "iid"))
    assert torch.equal(frequencies.first, again.first)


@over_spectral
def test_features_are_differentiable_in_every_parameter(kernel, d):
    kernel, x = copy.deepcopy(kernel), points(4, d)
    noise = kernel.noise(3, d, random.generator(0, "n"), "iid")
    names, values = zip(*kernel.named_parameters(), strict=True)

    def features(*parameters: Tensor) -> Tensor:
        f = torch.func.functional_call(
            _Points(kernel), dict(zip(names, parameters, strict=True)), (noise,)
        )
        return fourier_features(x, f)

    assert torch.autograd.gradcheck(features, values)
    for gradient in torch.autograd.grad(
        features(*values).square()[:, :2].sum(0).diff(), values, allow_unused=True
    ):
        assert gradient is not None


class _Points(torch.nn.Module):
    """Spectral points as a forward pass, so that functional_call can replace the kernel's
    parameters.
    """

    def __init__(self, kernel: SpectralKernel) -> None:
        super().__init__()
        self._modules, self._parameters, self._kernel = (
            kernel._modules,
            kernel._parameters,
            [kernel],
        )

    def forward(self, noise: Tensor):
        return self._kernel[0].frequencies(noise)


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
    target = exact(kernel, x)
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


# Law 2: what a kernel matrix is


@over_kernels
def test_symmetric_and_positive_semi_definite(kernel, d):
    x, y = points(40, d), points(7, d, seed=1)
    x[1] = x[0]
    matrix = exact(kernel, x)
    torch.testing.assert_close(matrix, matrix.T, rtol=0, atol=1e-12)
    torch.testing.assert_close(matrix, exact(kernel, x, x))
    torch.testing.assert_close(exact(kernel, x, y), exact(kernel, y, x).T)
    torch.testing.assert_close(exact(kernel, torch.cat([x, y]))[:40, 40:], exact(kernel, x, y))
    assert torch.linalg.eigvalsh(matrix).min() > -1e-10 * len(x)
    assert (matrix[0] == matrix[1]).all()


@over_kernels
def test_stationary_means_that_shifts_change_nothing(kernel, d):
    x = points(6, d)
    unchanged = torch.allclose(exact(kernel, x), exact(kernel, x + 0.37), atol=1e-10)
    assert unchanged is kernel.stationary


@over_kernels
def test_closed_form_is_differentiable(kernel, d):
    kernel, x = copy.deepcopy(kernel), points(3, d).requires_grad_()
    names, values = zip(*kernel.named_parameters(), strict=True)

    def matrix(x: Tensor, *parameters: Tensor) -> Tensor:
        return torch.func.functional_call(
            kernel, dict(zip(names, parameters, strict=True)), (x, points(2, d, 1))
        )

    assert torch.autograd.gradcheck(matrix, (x, *values))
    same = torch.zeros(3, d, dtype=torch.float64, requires_grad=True)
    kernel(same).sum().backward()
    assert torch.isfinite(same.grad).all(), "coinciding points at the origin"
    assert all(torch.isfinite(p.grad).all() for p in kernel.parameters())


@over_kernels
def test_rows_precision_decides(kernel, d):
    x = points(5, d)
    single = exact(kernel, x.float())
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), exact(kernel, x), atol=1e-5, rtol=1e-5)


# Law 8 and the contract with scikit-learn


@over_kernels
def test_copies_are_equal_and_independent(kernel, d):
    x = points(4, d)
    before = exact(kernel, x)
    assert all(
        value is kernel.get_params()[name] for name, value in kernel.get_params(deep=False).items()
    )
    for copied in (clone(kernel), copy.deepcopy(kernel), pickle.loads(pickle.dumps(kernel))):
        assert type(copied) is type(kernel)
        assert copied.stationary == kernel.stationary
        torch.testing.assert_close(exact(copied, x), before, rtol=0, atol=0)
        with torch.no_grad():
            for parameter in copied.parameters():
                parameter.add_(0.5)
        assert not torch.allclose(exact(copied, x), before)
        torch.testing.assert_close(exact(kernel, x), before, rtol=0, atol=0)


@over_spectral
def test_start_keeps_what_was_given(kernel, d):
    changed = copy.deepcopy(kernel)
    with torch.no_grad():
        for parameter in changed.parameters():
            parameter.add_(0.5)
    start = changed.initial(3, d, random.generator(0, "start"))
    assert start is not changed
    torch.testing.assert_close(exact(start, points(4, d)), exact(kernel, points(4, d)))


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
        ({**MIXTURE, "scales": [[1.0], [-1.0]]}, "scales must be positive and finite, got -1.0"),
        (
            {**MIXTURE, "scales": [[1.0]]},
            r"scales must have shape \(2, 1\) \(mixtures first\), got \(1, 1\)",
        ),
        ({"weights": [1.0]}, "Give all of weights, means, scales or none of them: means is None"),
        ({"means": [[1.0]]}, "Give all of weights, means, scales or none of them: weights is None"),
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
    refused = {n for params, _ in REJECTED[cls] for n, v in params.items() if v is not usual.get(n)}
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
        with pytest.raises(InputError, match=f"is for {d} dimensions, got points of 7"):
            kernel(points(3, 7))
    if isinstance(kernel, SpectralKernel) and per_dimension_scales:
        with pytest.raises(InputError, match=f"is for {d} dimensions, got points of 7"):
            kernel.noise(3, 7, random.generator(0, "n"), "iid")
