"""Products and factors of a row that do not depend on the other rows."""

from __future__ import annotations

import pytest
import torch

from bochner.latent_inference.fixed_order import FixedOrder, holds
from bochner.random import generator

pytestmark = pytest.mark.skipif(
    not holds(),
    reason="this machine's libraries sum products in another order beside other rows",
)

SIZES = [(5, 3), (12, 5), (13, 7), (40, 6), (100, 33), (200, 300), (300, 2), (1000, 50)]


def _normal(*shape):
    return torch.randn(*shape, generator=generator(1, "order"), dtype=torch.float64)


def _check(compute, n=200):
    """Compare what a function of row numbers is inside and outside, and in other batches."""
    every = torch.arange(n)
    usual = compute(every)
    source = generator(2, "batches")
    with FixedOrder():
        together = compute(every)
        torch.testing.assert_close(together, usual, rtol=1e-9, atol=1e-9)
        for size in (1, 1, 2, 3, 7, 8, 9, 50, n):
            some = torch.randperm(n, generator=source)[:size]
            torch.testing.assert_close(compute(some), together[some], rtol=0, atol=0)


@pytest.mark.parametrize(("k", "m"), SIZES)
def test_products_of_rows_do_not_depend_on_the_other_rows(k, m):
    rows, matrix, slopes = _normal(200, k), _normal(k, m), _normal(200, 3, k)
    _check(lambda some: rows[some] @ matrix)
    _check(lambda some: rows[some] @ matrix.T.contiguous().T)
    _check(lambda some: rows[some] @ matrix[:, 0])
    _check(lambda some: slopes[some] @ matrix)
    _check(lambda some: slopes[some] @ slopes[some].mT)
    _check(lambda some: torch.addmm(rows[some, :1], rows[some], matrix))


@pytest.mark.parametrize("k", [5, 12, 13, 100])
def test_sums_over_groups_do_not_depend_on_the_other_rows(k):
    rows, slopes, groups = _normal(200, k), _normal(200, 3, k), _normal(4, k, k)
    share = _normal(200, 4)
    _check(lambda some: (rows[some] @ groups).transpose(0, 1))
    pushed = rows @ groups
    _check(lambda some: torch.einsum("ng,gnk->nk", share[some], pushed[:, some]))
    _check(lambda some: torch.einsum("ndk,gnk->ngd", slopes[some], pushed[:, some]))
    _check(
        lambda some: torch.einsum("nda,na,nea->nde", *(slopes[some], rows[some], slopes[some]))
    )
    _check(lambda some: torch.einsum("ng,gkl->nkl", share[some], groups))


@pytest.mark.parametrize("dim", [1, 3, 5, 7, 11, 12, 17])
def test_factors_of_a_matrix_do_not_depend_on_the_other_matrices(dim):
    part, right = _normal(200, dim, dim + 3), _normal(200, dim, 1)
    matrices = part @ part.mT + torch.eye(dim, dtype=torch.float64)
    bent = part[..., :dim] + part[..., :dim].mT
    factor = torch.linalg.cholesky(matrices)
    _check(lambda some: torch.linalg.cholesky_ex(matrices[some])[0])
    _check(lambda some: torch.cholesky_solve(right[some], factor[some]))
    _check(lambda some: torch.cholesky_inverse(factor[some]))
    _check(lambda some: torch.linalg.eigh(bent[some])[0])

    def put_together(some):
        values, vectors = torch.linalg.eigh(bent[some])
        return (vectors * values[:, None]) @ vectors.mT

    _check(put_together)


def test_functions_of_entries_do_not_depend_on_the_other_rows():
    psi = 5.0 * _normal(200, 7)
    weights = _normal(7)
    _check(lambda some: torch.sigmoid(psi[some]))
    _check(lambda some: psi[some].sigmoid())
    _check(lambda some: psi[some].sigmoid_())
    _check(lambda some: torch.nn.functional.softplus(psi[some]))
    _check(lambda some: torch.tensordot(weights, psi[some].T.exp(), 1))
    for function in (torch.exp, torch.log1p, torch.sin, torch.cos, torch.tanh, torch.lgamma):
        _check(lambda some, function=function: function(psi[some].abs()))


def test_a_factor_that_does_not_exist_is_said():
    matrices = torch.stack(
        [torch.eye(3, dtype=torch.float64), -torch.eye(3, dtype=torch.float64)]
    )
    with FixedOrder():
        _, info = torch.linalg.cholesky_ex(matrices)
    assert info.tolist() == [0, 1]


def test_sums_of_nothing_are_0():
    with FixedOrder():
        assert not (_normal(3, 0) @ _normal(0, 2)).any()
        assert not torch.einsum("ng,gk->nk", _normal(3, 0), _normal(0, 2)).any()
