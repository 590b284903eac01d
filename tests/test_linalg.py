"""Cholesky factors against dense algebra; jitter that escalates, is small, and is reported."""

from __future__ import annotations

import warnings

import pytest
import torch

from bochner.errors import NumericalError, NumericalWarning
from bochner.linalg import (
    cholesky,
    covariance_root,
    newton_step,
    positive_inverse,
    symmetric_product,
)


def spectrum(*eigenvalues: float) -> torch.Tensor:
    source = torch.Generator().manual_seed(0)
    q, _ = torch.linalg.qr(
        torch.randn(len(eigenvalues), len(eigenvalues), generator=source, dtype=torch.float64)
    )
    return (q * torch.tensor(eigenvalues, dtype=torch.float64)) @ q.T


@pytest.fixture
def batch() -> torch.Tensor:
    return torch.stack([spectrum(1.0, 2.0, 5.0), spectrum(0.1, 3.0, 9.0)])


def test_factor_solve_and_determinant_are_the_dense_ones(batch):
    right = torch.randn(
        2, 3, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        factored = cholesky(batch)
    assert factored.jitter == 0.0
    torch.testing.assert_close(factored.factor @ factored.factor.mT, batch)
    assert torch.equal(factored.factor, factored.factor.tril())
    torch.testing.assert_close(factored.logdet(), torch.logdet(batch))
    torch.testing.assert_close(factored.solve(right), torch.linalg.solve(batch, right))
    torch.testing.assert_close(factored.inverse(), torch.linalg.inv(batch))


def test_float32_is_factored_in_float64(batch):
    factored = cholesky(batch.float())
    assert factored.factor.dtype == torch.float64
    assert factored.solve(torch.eye(3).expand(2, 3, 3)).dtype == torch.float64
    torch.testing.assert_close(
        factored.factor @ factored.factor.mT, batch.float().double(), rtol=1e-14, atol=1e-14
    )


@pytest.mark.parametrize(
    ("negative", "relative"), [(3e-13, 1e-12), (3e-11, 1e-10), (3e-9, 1e-8), (3e-7, 1e-6)]
)
def test_jitter_escalates_only_as_far_as_it_must(negative, relative):
    matrix = 100.0 * spectrum(1.5, 1.5, -negative)
    with pytest.warns(
        NumericalWarning,
        match=rf"Cholesky needed a jitter of {relative:.0e} of the mean diagonal\.",
    ):
        factored = cholesky(matrix)
    assert factored.jitter == pytest.approx(relative * 100.0, rel=1e-5)
    shifted = matrix + factored.jitter * torch.eye(3, dtype=torch.float64)
    torch.testing.assert_close(
        factored.factor @ factored.factor.mT, shifted, rtol=0, atol=1e-12
    )


def test_an_indefinite_matrix_is_refused():
    with pytest.raises(
        NumericalError,
        match=r"not positive definite\. Lower the learning rate or raise the noise",
    ):
        cholesky(spectrum(2.0, 1.0, -1e-3))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_non_finite_matrix_is_refused(value):
    matrix = torch.eye(3)
    matrix[1, 1] = value
    with pytest.raises(NumericalError, match="non-finite"):
        cholesky(matrix)


def test_gradients_flow_through_the_factor():
    root = torch.randn(
        3,
        3,
        generator=torch.Generator().manual_seed(2),
        dtype=torch.float64,
        requires_grad=True,
    )
    eye = torch.eye(3, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda r: cholesky(r @ r.T + eye).logdet(), (root,))


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_a_matrix_that_rounding_made_indefinite_is_formed_anew(dim):
    features = torch.randn(dim, 60, generator=torch.Generator().manual_seed(dim)).repeat(1, 3)
    rough = (features.T @ features).double()
    # as if rounding had gone all one way
    rough.diagonal().add_(1e-9 - 1e-5 * float(rough.diagonal().mean()))
    exact = features.double().T @ features.double() + 1e-9 * torch.eye(
        180, dtype=torch.float64
    )
    result = cholesky(rough, lambda: exact)
    assert result.jitter == 0.0
    torch.testing.assert_close(result.factor @ result.factor.T, exact)
    with pytest.raises(NumericalError):
        cholesky(rough)


def test_the_root_of_a_covariance_whose_factor_is_lost_to_rounding_is_of_eigenvectors(batch):
    flat = torch.tensor([[1.0, 1.0 + 1e-15], [1.0 + 1e-15, 1.0]], dtype=torch.float64)
    for covariance in (batch, flat, torch.stack([flat, torch.eye(2, dtype=torch.float64)])):
        root = covariance_root(covariance)
        torch.testing.assert_close(root @ root.mT, covariance, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(covariance_root(batch), cholesky(batch).factor)
    none = torch.zeros(3, 2, 2, dtype=torch.float64)
    torch.testing.assert_close(covariance_root(none), none)


# in one block; in four; in four of which the last is smaller
@pytest.mark.parametrize("k", [7, 160, 401])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_symmetric_product_is_the_dense_one_and_blocks_are_mirrored(k, weighted):
    source = torch.Generator().manual_seed(0)
    left = torch.randn(k, 23, generator=source, dtype=torch.float64)
    right = left * torch.rand(23, generator=source, dtype=torch.float64) if weighted else left
    product = symmetric_product(left, right)
    torch.testing.assert_close(product, left @ right.T, rtol=1e-12, atol=1e-12)
    if k >= 160:
        far = torch.ones(k, k, dtype=torch.bool).tril(-(k // 4 + 1))
        assert torch.equal(product[far], product.T[far])
    # of columns, as between rows
    turned = symmetric_product(left.T.contiguous().T, right)
    torch.testing.assert_close(turned, product, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_newtons_step_stays_where_there_is_no_gradient_or_curvature(dim):
    gradient = torch.ones(4, dim, dtype=torch.float64)
    hessian = -torch.eye(dim, dtype=torch.float64).repeat(4, 1, 1)
    gradient[1, 0], hessian[2, 0, 0], hessian[3] = torch.nan, torch.inf, torch.nan
    step, gain = newton_step(gradient, hessian, torch.ones(4, dtype=torch.float64))
    assert step.isfinite().all()
    torch.testing.assert_close(step[0], torch.ones(dim, dtype=torch.float64) / dim**0.5)
    assert (step[1:] == 0.0).all()
    assert float(gain[0]) == pytest.approx(0.5 * dim)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_precisions_that_are_not_finite_are_the_priors(dim):
    eye = torch.eye(dim, dtype=torch.float64)
    precision = 4.0 * eye.repeat(3, 1, 1)
    precision[1, 0, 0], precision[2] = torch.inf, torch.nan
    inverse, log_volume = positive_inverse(precision)
    torch.testing.assert_close(inverse, torch.stack([0.25 * eye, eye, eye]))
    torch.testing.assert_close(log_volume[1:], torch.zeros(2, dtype=torch.float64))
