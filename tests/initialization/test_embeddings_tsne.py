"""t-SNE by exact gradients: equal to the formula, and as good as scikit-learn's."""

import numpy as np
import pytest
import torch
from scipy.special import entr
from sklearn.datasets import load_digits
from sklearn.manifold import TSNE

from bochner.initialization.embeddings import Forces, affinities, conditionals, embed


def _values(n: int, seed: int = 0):
    return np.random.default_rng(seed).normal(size=(n, 5))


def _divergence(y, joint):
    """KL(P || Q) of points (D, N), in float64."""
    kernel = 1.0 / (1.0 + (y[:, :, None] - y[:, None, :]).square().sum(0))
    kernel = kernel - torch.eye(y.shape[1], dtype=y.dtype)
    p = torch.from_numpy(joint.toarray())
    some = p > 0.0
    return (p[some] * (p[some] / (kernel / kernel.sum())[some]).log()).sum(), kernel.sum()


@pytest.mark.parametrize("perplexity", [2.0, 10.0, 30.0])
@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_conditional_probabilities_have_the_perplexity(perplexity, scale):
    squares = np.sort(np.random.default_rng(0).gamma(2.0, size=(50, 91)), axis=1)
    result = conditionals(scale * squares, perplexity)
    np.testing.assert_allclose(result.sum(1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(np.exp(entr(result).sum(1)), perplexity, rtol=1e-6)
    # a Gaussian of the distance
    slopes = np.log(result[:, 10] / result[:, 0]) / (squares[:, 10] - squares[:, 0])
    expected = np.exp(slopes[:, None] * (squares - squares[:, :1]))
    np.testing.assert_allclose(result / result[:, :1], expected, rtol=1e-6, atol=1e-12)


def test_neighbours_at_one_distance_are_equal():
    np.testing.assert_allclose(conditionals(np.zeros((2, 8)), 3.0), 1 / 8)
    # more twins than the perplexity
    two = conditionals(np.array([[0.0] * 6 + [1.0, 2.0]]), 3.0)
    np.testing.assert_allclose(two[0], [1 / 6] * 6 + [0.0, 0.0], atol=1e-9)


def test_affinities_are_symmetric_and_sum_to_one():
    joint = affinities(_values(120), 10.0)
    assert abs(joint - joint.T).max() < 1e-15
    np.testing.assert_allclose(joint.sum(), 1.0, rtol=1e-12)
    assert not joint.diagonal().any()


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("n", [20, 300])  # one block and two, of which the second is smaller
@pytest.mark.parametrize("exaggeration", [1.0, 12.0])
def test_the_gradient_is_that_of_the_divergence(dim, n, exaggeration):
    joint = affinities(_values(n), 5.0)
    y = 3.0 * torch.randn(
        dim, n, generator=torch.Generator().manual_seed(1), dtype=torch.float64
    )
    y.requires_grad_()
    value, kernels = _divergence(y, joint)
    (expected,) = torch.autograd.grad(value, y)
    total = float(kernels.detach())
    # exaggeration multiplies what pulls rows together: cross entropy, not log of the sum
    if exaggeration > 1.0:
        kernel = 1.0 / (1.0 + (y[:, :, None] - y[:, None, :]).square().sum(0))
        pull = -(torch.from_numpy(joint.toarray()) * kernel.log()).sum()
        (more,) = torch.autograd.grad(pull, y)
        expected = expected + (exaggeration - 1.0) * more
    result, again = Forces(joint)(y.detach().float(), exaggeration, total)
    np.testing.assert_allclose(again, total, rtol=1e-5)
    scale = float(expected.abs().max())
    np.testing.assert_allclose(4.0 * result, expected, atol=2e-5 * scale)


def test_it_is_as_good_as_scikit_learn_after_as_many_steps_as_a_start_used_to_take():
    values = load_digits().data[::3] / 16.0
    first = 1e-4 * np.random.default_rng(0).normal(size=(len(values), 2))
    joint = affinities(values, 30.0)
    ours, theirs = (
        float(_divergence(torch.tensor(y.T, dtype=torch.float64), joint)[0])
        for y in (
            embed(values, first, 30.0),
            TSNE(init=first, max_iter=400, random_state=0).fit_transform(values),
        )
    )
    assert ours < 1.01 * theirs


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_duplicates_and_far_rows_stay_finite(scale):
    values = np.repeat(_values(3), 60, axis=0)
    values[0] = 1e3
    result = embed(scale * values, 1e-4 * _values(180, 1)[:, :2], 30.0)
    assert np.isfinite(result).all()
    assert result.std() > 1.0
