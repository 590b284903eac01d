"""Quadratic forms of rows with holes: factors and formed matrices multiply alike, in D = 1, 2,
3.
"""

import pytest
import torch

from bochner.kernels.spectral_mixture import SpectralMixture
from bochner.latent_inference.row_bound import (
    Factored,
    PerRow,
    Shared,
    quadratic_of,
)
from bochner.likelihoods.gaussian import Gaussian
from bochner.random import generator
from bochner.weight_posterior.conditioning import SharedDraw
from bochner.weight_posterior.posterior import ViewPosterior


def _view(dim: int, n_points: int = 40, m: int = 60) -> ViewPosterior:
    """Random weights of two groups of columns."""
    source = generator(1, "quadratic", dim)
    kernel = SpectralMixture().initial(1, dim, source)
    f = kernel.frequencies(kernel.noise(n_points, dim, source, "iid")).detach()
    k = f.n_features
    halves = torch.randn(2, k, k, generator=source, dtype=torch.float64)
    draw = SharedDraw(
        f, torch.randn(k, m, generator=source, dtype=torch.float64), halves @ halves.mT
    )
    return ViewPosterior.of("a", (draw,), (torch.arange(m) % 3 == 0).long(), Gaussian(0.3))


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_factors_multiply_as_the_matrices_that_they_make(dim):
    view, s2 = _view(dim), torch.tensor(0.3, dtype=torch.float64)
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
    assert isinstance(formed, PerRow)
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
