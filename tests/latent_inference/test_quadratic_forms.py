"""Quadratic forms of rows with holes: factors and formed matrices multiply alike, in D = 1, 2,
3.
"""

import pytest
import torch

from bochner.kernels.spectral_mixture import SpectralMixture
from bochner.latent_inference.quadratic_forms import (
    ByPattern,
    Factored,
    Shared,
    patterns_of,
    quadratic_of,
)
from bochner.likelihoods.likelihood import Gaussian
from bochner.random import generator
from bochner.weight_posterior.conditioning import SharedDraw, SpectralDraw
from bochner.weight_posterior.posterior import ViewPosterior


def _view(
    dim: int, n_points: int = 40, m: int = 60, noise: str = "view", n_groups: int = 2
) -> ViewPosterior:
    """Random weights of a few groups of columns, with one noise variance or one each."""
    source = generator(1, "quadratic", dim)
    kernel = SpectralMixture().initial(1, dim, source)
    f = kernel.frequencies(kernel.noise(n_points, dim, source, "iid")).detach()
    k = f.n_features
    halves = torch.randn(n_groups, k, k, generator=source, dtype=torch.float64)
    mean = torch.randn(k, m, generator=source, dtype=torch.float64)
    group_of = torch.arange(m) % n_groups
    if noise == "view":
        draw = SharedDraw(f, mean, halves @ halves.mT)
        return ViewPosterior.of("a", (draw,), group_of, Gaussian(0.3))
    scales = torch.rand(m, k, generator=source, dtype=torch.float64)
    draw = SpectralDraw(f, mean, torch.linalg.qr(halves).Q, scales)
    return ViewPosterior.of("a", (draw,), group_of, Gaussian(0.1 + scales[:, 0]))


@pytest.mark.parametrize("noise", ["view", "column"])
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_factors_multiply_as_the_matrices_that_they_make(dim, noise):
    view = _view(dim, noise=noise)
    s2 = torch.as_tensor(view.noise_variance, dtype=torch.float64)
    observed = (
        torch.rand(5, 60, generator=generator(2, "seen"))
        < torch.tensor([0.1, 0.4, 0.6, 0.9, 1.0])[:, None]
    )
    rows = torch.tensor([0, 1, 1, 2, 3, 4, 4, 4])
    j = torch.randn(len(rows), 1 + dim, 80, generator=generator(3, "j"), dtype=torch.float64)
    factored = quadratic_of(view, 0, s2, observed, dim, shared=False)
    # where every point has many slopes matrices are formed
    formed = quadratic_of(view, 0, s2, observed, 20, shared=False)
    assert isinstance(factored, Factored)
    assert isinstance(formed, ByPattern)
    torch.testing.assert_close(factored.push(j, rows), formed.push(j, rows))
    for row in range(5):
        alone = quadratic_of(view, 0, s2, observed[[row]], dim, shared=True)
        assert isinstance(alone, Shared)
        torch.testing.assert_close(
            factored.push(j[[0]], torch.tensor([row])), alone.push(j[[0]], torch.tensor([0]))
        )


def test_matrices_are_formed_where_points_have_many_slopes():
    view = _view(2)
    assert view.stays_factored(2)
    assert not view.stays_factored(20)


@pytest.mark.parametrize("n_rows", [3, 90])
@pytest.mark.parametrize("n_groups", [1, 2, 60])
def test_matrices_of_rows_are_the_sums_of_those_of_their_columns(n_rows, n_groups):
    view = _view(2, noise="column", n_groups=n_groups)
    draw = view.draws[0]
    seen = torch.rand(n_rows, 60, generator=generator(4, "seen"), dtype=torch.float64) < 0.8
    vectors = draw.covariance[view.group_of]
    of_columns = (vectors * draw.scales[:, None, :]) @ vectors.mT
    expected = torch.einsum("nm,mkl->nkl", seen.double(), of_columns)
    torch.testing.assert_close(draw.summed(seen.double(), view.group_of), expected)


def test_few_products_are_made_where_groups_are_few():
    assert _view(2, n_groups=4, m=8).stays_factored(2)
    assert not _view(2, n_groups=5, m=8).stays_factored(2)
    assert _view(2, noise="column", n_groups=2).stays_factored(2)
    assert not _view(2, noise="column", n_groups=3).stays_factored(2)


@pytest.mark.parametrize("n_rows", [9, 90])
@pytest.mark.parametrize("noise", ["view", "column"])
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_rows_of_few_patterns_share_the_matrices_of_these(dim, noise, n_rows):
    """Few points for each pattern are one product of all, many points a product of each."""
    view = _view(dim, noise=noise)
    s2 = torch.as_tensor(view.noise_variance, dtype=torch.float64)
    patterns = torch.zeros(2, 60, dtype=torch.bool)
    patterns[1, ::3] = True
    observed = patterns[torch.arange(n_rows) % 2]
    form = quadratic_of(view, 0, s2, observed, dim, shared=False)
    assert isinstance(form, ByPattern)
    assert len(form.matrices) == 2
    rows = torch.arange(n_rows).repeat_interleave(2)
    j = torch.randn(len(rows), 1 + dim, 80, generator=generator(3, "j"), dtype=torch.float64)
    pushed = form.push(j, rows)
    assert not pushed[observed[rows].sum(1) == 0].any()
    alone = quadratic_of(view, 0, s2, observed[[1]], dim, shared=True)
    some = rows % 2 == 1
    torch.testing.assert_close(pushed[some], alone.push(j[some], rows[some]))


@pytest.mark.parametrize("m", [1, 8, 61])
def test_patterns_are_those_of_the_rows(m):
    observed = torch.rand(50, m, generator=generator(5, "seen")) < 0.9
    patterns, of_row = patterns_of(observed)
    assert torch.equal(patterns[of_row], observed)
    assert len(patterns) == len(torch.unique(observed, dim=0))
