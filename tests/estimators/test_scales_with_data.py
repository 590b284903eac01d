"""Likelihoods that scale with the data: the units of a view change nothing but the units of what
is returned.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import Tensor, nn

import bochner as bo
from bochner.likelihoods import Curvatures, NonConjugateLikelihood, Slopes
from bochner.likelihoods.likelihood import Likelihood

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::bochner.errors.CollapseWarning"),
]
DF = 4


class StudentT(NonConjugateLikelihood):
    """y = psi + scale * t of four degrees of freedom, as docs/extend.md says how to write one.

    -log(1 + u) is convex, so that E log p is at least its value at the expected square of y - psi.
    """

    name, support, scales_with_data = "student_t", "real", True

    def __init__(self, scale: float = 0.3) -> None:
        super().__init__(scale=scale)
        self.log_scale = nn.Parameter(torch.tensor(scale, dtype=torch.float64).log())

    def _square(self, like: Tensor) -> Tensor:
        return (2.0 * self.log_scale).exp().to(like.dtype) * DF

    def log_prob(self, y: Tensor, psi: Tensor) -> Tensor:
        return self.slopes(y, psi, torch.zeros_like(psi)).value

    def mean(self, psi: Tensor) -> Tensor:
        return psi

    def variance(self, psi: Tensor) -> Tensor:
        return (self._square(psi).detach() / (DF - 2)).expand(psi.shape)

    def draw(self, psi: Tensor, source: torch.Generator) -> Tensor:
        normal = torch.randn((DF + 1, *psi.shape), generator=source, dtype=psi.dtype)
        t = normal[0] / normal[1:].square().mean(0).sqrt()
        return psi + self.log_scale.detach().exp() * t

    def intercept(self, y: Tensor, offset: Tensor | None, columns: Tensor | None = None) -> Tensor:
        return y.nanmedian(0).values

    def surrogate(self, Y: Tensor, offset: Tensor | None) -> Tensor:
        return Y

    def slopes(
        self, y: Tensor, mean: Tensor, variance: Tensor, columns: Tensor | None = None
    ) -> Slopes:
        square, away = self._square(y), y - mean
        total = square + away.square() + variance
        # Gamma(5/2) / (Gamma(2) sqrt(4 pi)) = 3/8
        constant = 0.5 * np.log(DF) + np.log(3.0 / 8.0) - 0.5 * square.log()
        value = constant - 0.5 * (DF + 1) * (total / square).log()
        return Slopes(value, (DF + 1) * away / total, -0.5 * (DF + 1) / total)

    def curvatures(self, y: Tensor, mean: Tensor, variance: Tensor) -> Curvatures:
        away = y - mean
        total = self._square(y) + away.square() + variance
        bend = (DF + 1) / total.square()
        return Curvatures(bend * (2.0 * away.square() - total), -bend * away, 0.5 * bend)

    def products(
        self, y: Tensor, mean: Tensor, variance: Tensor
    ) -> tuple[tuple[Tensor, Tensor], ...]:
        weight = (DF + 1) / self._square(y)
        return (torch.ones_like(y), -0.5 * weight * (mean.square() + variance)), (y, weight * mean)


def _data():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    X = 3.0 + np.sin(x @ rng.normal(size=(2, 9))) + 0.1 * rng.standard_t(3, size=(60, 9))
    X[rng.random(X.shape) < 0.05] = np.nan
    return x, X


def _model(likelihood, **more):
    # the first five columns are a view of their own, whose units change
    settings = {
        "n_frequencies": 16,
        "init": "pca",
        "max_iter": 60,
        "random_state": 0,
        "views": {"a": slice(0, 5), "b": slice(5, 9)},
    }
    return bo.RandomFeatureLVM(2, kernel="rbf", likelihood=likelihood, **{**settings, **more})


@functools.cache
def _fits(scale: float):
    _, X = _data()
    units = np.array([scale] * 5 + [1.0] * 4)
    return _model(StudentT()).fit(X), _model(StudentT()).fit(X * units), X, units


def test_slopes_and_curvatures_are_derivatives_and_the_bound_is_below_the_expectation():
    source = torch.Generator().manual_seed(0)
    y, mean = torch.randn(2, 5, 3, generator=source, dtype=torch.float64)
    variance = torch.rand(5, 3, generator=source, dtype=torch.float64)
    likelihood = StudentT()
    inputs = tuple(part.requires_grad_() for part in (mean, variance))
    found = likelihood.slopes(y, *inputs)
    slopes = torch.autograd.grad(found.value.sum(), inputs, create_graph=True)
    torch.testing.assert_close((found.d_mean, found.d_variance), slopes)
    bend = likelihood.curvatures(y, *inputs)
    seconds = torch.autograd.grad(slopes[0].sum(), inputs, retain_graph=True)
    torch.testing.assert_close((bend.mean, bend.mixed), seconds)
    torch.testing.assert_close(bend.variance, torch.autograd.grad(slopes[1].sum(), variance)[0])
    noise = torch.randn(20_000, 1, 1, generator=source, dtype=torch.float64)
    psi = mean + variance.sqrt() * noise
    draws = likelihood.log_prob(y.expand_as(psi), psi)
    error = draws.std(0) / 20_000**0.5
    assert bool((found.value <= draws.mean(0) + 4.0 * error).all())
    density = torch.linspace(-3000.0, 3000.0, 3_000_001, dtype=torch.float64)
    mass = likelihood.log_prob(density, torch.zeros_like(density)).exp().sum() * 0.002
    assert float(mass.detach()) == pytest.approx(1.0, abs=1e-9)


def test_units_of_a_power_of_two_change_no_bit_of_the_embedding():
    plain, other, X, _ = _fits(1024.0)
    np.testing.assert_array_equal(plain.embedding_, other.embedding_)
    np.testing.assert_array_equal(plain.embedding_std_, other.embedding_std_)
    n_entries = np.count_nonzero(~np.isnan(X[:, :5]))
    expected = plain.elbo_ - n_entries * np.log(1024.0)
    assert other.elbo_ == pytest.approx(expected, rel=1e-12)
    assert other.elbo_history_[-1] == pytest.approx(
        plain.elbo_history_[-1] - n_entries * np.log(1024.0), rel=1e-12
    )


def test_what_is_returned_is_in_the_units_of_the_data():
    plain, other, X, units = _fits(1024.0)
    one = plain.impute(X, return_std=True)
    two = other.impute(X * units, return_std=True)
    for a, b in zip(one, two, strict=True):
        np.testing.assert_allclose(b, a * units, rtol=1e-12)
    np.testing.assert_allclose(
        other.sample(5, random_state=0), plain.sample(5, random_state=0) * units, rtol=1e-12
    )
    Z = plain.embedding_[:4]
    for a, b in zip(
        plain.inverse_transform(Z, return_std=True, interval=0.9),
        other.inverse_transform(Z, return_std=True, interval=0.9),
        strict=True,
    ):
        np.testing.assert_allclose(b, a * units, rtol=1e-12)
    np.testing.assert_allclose(
        other.kernel_matrix(Z, "a"), plain.kernel_matrix(Z, "a") * 1024.0**2, rtol=1e-12
    )
    jacobian = np.count_nonzero(~np.isnan(X[:, :5]), axis=1) * np.log(1024.0)
    np.testing.assert_allclose(
        other.score_samples(X * units), plain.score_samples(X) - jacobian, rtol=1e-10
    )


def test_units_of_a_thousand_leave_the_latents_as_good():
    x, X = _data()
    plain, other = (_model(StudentT()).fit(X * by) for by in (1.0, 1000.0))
    one, two = (bo.metrics.mean_aligned_r2(x, model.embedding_) for model in (plain, other))
    assert two == pytest.approx(one, abs=0.01)
    filled = other.impute(X * 1000.0)
    np.testing.assert_allclose(filled.mean(), 3000.0, rtol=0.1)


def test_a_sparse_view_is_centred_as_a_dense_one():
    rng = np.random.default_rng(0)
    X = np.where(rng.random((50, 8)) < 0.5, rng.normal(5.0, 1.0, (50, 8)), 0.0)
    settings = {"views": None, "max_iter": 5, "dtype": "float64"}
    start = rng.normal(size=(50, 2))
    dense, sparse = (
        _model(StudentT(), **settings, init=start).fit(part) for part in (X, sp.csr_array(X))
    )
    assert sparse.elbo_ == pytest.approx(dense.elbo_, rel=1e-6)


def _subclasses(cls):
    return {cls} | {deep for one in cls.__subclasses__() for deep in _subclasses(one)}


def test_of_the_packages_likelihoods_the_gaussian_alone_scales():
    ours = [cls for cls in _subclasses(Likelihood) if cls.__module__.startswith("bochner.")]
    assert {cls.__name__ for cls in ours if cls.scales_with_data} == {"Gaussian"}
