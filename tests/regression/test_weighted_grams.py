"""Weighted Grams per column: equal to the dense sums, additive in rows, unbiased over columns."""

import pytest
import torch

from bochner.random import generator
from bochner.regression import conjugate_gradients
from bochner.regression.conjugate_gradients import (
    factored,
    precondition,
    refined,
    weights_from,
)
from bochner.regression.weighted_grams import (
    QuadraticForms,
    quadratic_forms,
    weighted_grams,
    weighted_products,
)


def _case(k: int = 7, n: int = 23, m: int = 5, dtype: torch.dtype = torch.float64):
    source = generator(0, "weighted")
    features = torch.randn(k, n, generator=source, dtype=torch.float64).to(dtype)
    weights = torch.rand(n, m, generator=source, dtype=torch.float64).to(dtype)
    return features, weights, source


# one piece; three of rows, and one of every two matrices
@pytest.mark.parametrize(("k", "n"), [(7, 23), (60, 2100)])
def test_grams_are_the_dense_sums_whatever_the_pieces(k, n):
    features, weights, _ = _case(k, n)
    grams = weighted_grams(features, weights)
    torch.testing.assert_close(
        grams, torch.einsum("kn,nm,ln->mkl", features, weights, features)
    )
    halves = weighted_grams(features[:, :9], weights[:9]) + weighted_grams(
        features[:, 9:], weights[9:]
    )
    torch.testing.assert_close(grams, halves)
    single = weighted_grams(features.float(), weights.float())
    assert single.dtype == torch.float64
    rounding = torch.finfo(torch.float32).eps * float(grams.abs().max())
    torch.testing.assert_close(single, grams, rtol=1e-5, atol=rounding)


@pytest.mark.parametrize(("k", "n"), [(7, 23), (60, 2100)])
def test_forms_and_products_are_the_dense_ones(k, n):
    features, weights, source = _case(k, n)
    root = torch.randn(5, k, k, generator=source, dtype=torch.float64)
    matrices = (root @ root.transpose(1, 2)).requires_grad_(False)
    forms = quadratic_forms(features, matrices)
    torch.testing.assert_close(
        forms, torch.einsum("kn,mkl,ln->nm", features, matrices, features)
    )
    leaf = features.clone().requires_grad_()
    value = 0.5 * (weights * torch.einsum("kn,mkl,ln->nm", leaf, matrices, leaf)).sum()
    (expected,) = torch.autograd.grad(value, leaf)
    torch.testing.assert_close(weighted_products(features, matrices, weights), expected)
    held = QuadraticForms.of(features, matrices)
    assert held.products is not None
    torch.testing.assert_close(held.values, forms)
    torch.testing.assert_close(held.gradient(weights), expected)


def test_products_that_are_too_many_are_formed_again_for_the_gradient():
    features, weights, _ = _case()
    matrices = weighted_grams(features, weights)
    held = QuadraticForms.of(features, matrices)
    again = QuadraticForms.of(features, matrices, most=1)
    assert again.products is None
    torch.testing.assert_close(again.values, held.values)
    torch.testing.assert_close(again.gradient(weights), held.gradient(weights))


def test_factors_are_in_single_precision_only_where_its_rounding_is_far_below_the_identity():
    features, weights, _ = _case(k=40, n=300)
    grams = weighted_grams(features, weights)
    exact, logdet = factored(grams)
    single, near = factored(grams, torch.float32)
    assert (exact.dtype, single.dtype) == (torch.float64, torch.float32)
    torch.testing.assert_close(single.double(), exact, rtol=0.0, atol=1e-5)
    torch.testing.assert_close(near, logdet, rtol=1e-5, atol=1e-4)
    heavy, _ = factored(1e3 * grams, torch.float32)
    assert heavy.dtype == torch.float64


@pytest.mark.parametrize("k", [7, 200])  # one pass over few numbers; products
def test_columns_with_covariances_of_their_own_are_multiplied_by_them(k):
    source = generator(0, "precondition")
    covariance = torch.randn(4, k, k, generator=source, dtype=torch.float64)
    right = torch.randn(k, 4, generator=source, dtype=torch.float64)
    expected = torch.stack([covariance[m] @ right[:, m] for m in range(4)], dim=1)
    torch.testing.assert_close(precondition(covariance, right, (1,) * 4), expected)


def test_a_missing_entry_is_an_entry_of_weight_zero():
    features, weights, _ = _case()
    weights[4, 2] = 0.0
    kept = [n for n in range(23) if n != 4]
    torch.testing.assert_close(
        weighted_grams(features, weights)[2],
        weighted_grams(features[:, kept], weights[kept])[2],
    )


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1, 1), (5,), (2, 3)])
def test_means_are_exact_and_covariances_the_best_that_groups_can_share(sizes):
    features, precision, source = _case()
    precision = precision * torch.tensor([0.1, 0.2, 2.0, 3.0, 5.0]).double()
    shift = torch.randn(23, 5, generator=source, dtype=torch.float64)
    result = weights_from(features, precision, shift, sizes, tol=1e-12)
    eye = torch.eye(7, dtype=torch.float64)
    for m in range(5):
        exact = torch.linalg.solve(
            eye + (features * precision[:, m]) @ features.T, features @ shift[:, m]
        )
        torch.testing.assert_close(result.mean[:, m], exact)
    start = 0
    for g, size in enumerate(sizes):
        average = precision[:, start : start + size].mean(1)
        inverse = torch.linalg.inv(eye + (features * average) @ features.T)
        torch.testing.assert_close(result.covariance[g], inverse)
        start += size
    divergence = torch.distributions.kl_divergence(
        torch.distributions.MultivariateNormal(result.mean[:, 0], result.covariance[0]),
        torch.distributions.MultivariateNormal(torch.zeros(7).double(), eye),
    )
    torch.testing.assert_close(result.kl()[0], divergence)


def test_grams_of_large_weights_keep_what_the_identity_adds():
    source = torch.Generator().manual_seed(0)
    features = torch.randn(3, 200, generator=source)
    # nearly repeated
    features = torch.cat([features, features + 1e-4 * torch.randn(3, 200, generator=source)])
    weights = 1e5 * torch.rand(200, 2, generator=source)
    exact = torch.einsum(
        "kn,nm,ln->mkl", features.double(), weights.double(), features.double()
    )
    assert torch.allclose(weighted_grams(features, weights), exact, rtol=1e-12)
    assert (
        float(torch.linalg.eigvalsh(weighted_grams(features, weights) + torch.eye(6)).min())
        > 0.99
    )


def test_steps_without_curvature_are_not_taken():
    # single precision may turn the curvature along a direction negative: there was NaN after it
    mean = torch.randn(6, 3, generator=torch.Generator().manual_seed(100))
    residual = torch.ones(6, 3)
    covariance = torch.eye(6)[None]
    goal = torch.zeros(3)

    def found(factor: float) -> torch.Tensor:
        return refined(lambda _: lambda v: factor * v, mean, residual, covariance, (3,), goal)

    torch.testing.assert_close(found(-1.0), mean)
    torch.testing.assert_close(found(0.0), mean)
    torch.testing.assert_close(found(2.0), mean + 0.5 * residual)
    assert found(1e-45).isfinite().all()


@torch.no_grad()
@pytest.mark.parametrize("sizes", [(90,), (30, 1, 59)])
def test_columns_that_are_solved_are_laid_aside_and_no_mean_changes(sizes, monkeypatch):
    k, n, m = 50, 300, sum(sizes)
    features, _, source = _case(k, n)
    # a few columns are far from what their group shares
    weights = torch.rand(n, m, generator=source, dtype=torch.float64)
    weights[:, ::7] *= torch.linspace(0.0, 40.0, n, dtype=torch.float64)[:, None]
    shift = torch.randn(n, m, generator=source, dtype=torch.float64)
    goal = torch.full((m,), 1e-8, dtype=torch.float64)
    left = []
    plain = conjugate_gradients.groups_left
    monkeypatch.setattr(
        conjugate_gradients,
        "groups_left",
        lambda *given: left.append(len(given[1])) or plain(*given),
    )
    found = weights_from(features, weights, shift, sizes, goal, max_iter=200).mean
    assert left
    assert left == sorted(left, reverse=True)
    assert left[0] <= m // 2
    for column in range(m):
        precision = (
            torch.eye(k, dtype=torch.float64) + (features * weights[:, column]) @ features.T
        )
        away = found[:, column] - torch.linalg.solve(precision, features @ shift[:, column])
        # twice the nats that are lost, by the metric of q in place of the group's
        assert float(away @ precision @ away) < 100.0 * float(goal[column])
