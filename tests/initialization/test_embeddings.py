"""Starts: a function of data and seed, on the scale of the prior, whatever the data are."""

import warnings

import numpy as np
import pytest
import torch

from bochner.errors import InputError
from bochner.initialization.embeddings import NARROW_STARTS, STARTS, components, start
from bochner.kernels.spectral_mixture import NextGenSpectralMixture
from bochner.metrics import aligned_r2, knn_accuracy
from helpers.models import build


def _data(n: int = 80, m: int = 12, seed: int = 0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    return np.sin(x @ rng.normal(size=(3, m))) + 0.1 * rng.normal(size=(n, m))


@pytest.mark.parametrize("n", [20, 80])
@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("name", STARTS)
def test_a_start_is_standardised_and_a_function_of_data_and_seed(name, dim, n):
    Y = _data(n)
    kept, state = Y.copy(), np.random.get_state()[1].copy()
    first, again = start(name, Y, dim, 3), start(name, Y, dim, 3)
    assert first.shape == (n, dim)
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(Y, kept)
    np.testing.assert_array_equal(np.random.get_state()[1], state)
    np.testing.assert_allclose(first.mean(axis=0), 0.0, atol=1e-9)
    np.testing.assert_allclose(first.std(axis=0), 1.0, atol=1e-9)


@pytest.mark.parametrize("value", [0.0, 0.1, 1e6])
@pytest.mark.parametrize("name", [*STARTS, *NARROW_STARTS])
def test_wide_tables_of_one_value_have_a_start(name, value):
    """ARPACK refused a matrix of zeros, and one of rounding is noise."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        latents = start(name, np.full((90, 60), value), 2, 0)
    assert np.isfinite(latents).all()
    assert 0.01 < latents.std() < 1.5


def test_a_wide_table_of_one_row_beside_constants_has_a_start():
    Y = np.zeros((90, 60))
    Y[3, 7] = 1.0
    latents = start("pca", Y, 2, 0)
    assert int(np.abs(latents[:, 0]).argmax()) == 3


@pytest.mark.parametrize("name", NARROW_STARTS)
def test_narrow_starts_have_two_dimensions_of_an_embedding_and_leave_the_rest_near_zero(name):
    Y = _data()
    result = start(name, Y, 4, 3)
    np.testing.assert_allclose(result[:, :2], start(NARROW_STARTS[name], Y, 2, 3), rtol=1e-9)
    assert 0.05 < result[:, 2:].std() < 0.15
    single = start(NARROW_STARTS[name], Y, 1, 3)
    np.testing.assert_allclose(start(name, Y, 1, 3), single, rtol=1e-9)


def test_random_starts_differ_by_seed():
    Y = _data()
    assert not np.allclose(start("random", Y, 2, 0), start("random", Y, 2, 1))


@pytest.mark.parametrize(
    "shape", [(80, 12), (12, 80), (70, 60)]
)  # dense and sparse decompositions
def test_the_pca_start_is_the_principal_components(shape):
    Y = _data(*shape)
    left, values, _ = np.linalg.svd(Y - Y.mean(axis=0), full_matrices=False)
    expected = left[:, :2] * values[:2]
    expected /= expected.std(axis=0)
    result = start("pca", Y, 2, 0)
    np.testing.assert_allclose(
        np.abs(np.sum(result * expected, axis=0)) / shape[0], 1.0, atol=1e-8
    )
    assert (result[np.abs(result).argmax(axis=0), [0, 1]] > 0).all()  # the sign is fixed


@pytest.mark.parametrize("name", ["laplacian", "isomap"])
def test_graph_starts_unroll_a_curve_where_pca_does_not(name):
    t = np.linspace(0, 1, 200)[:, None]
    Y = np.hstack([np.cos(1.6 * np.pi * t), np.sin(1.6 * np.pi * t)])
    assert aligned_r2(start(name, Y, 1, 0), t) > 0.9 > aligned_r2(start("pca", Y, 1, 0), t)


DEGENERATE = {
    "constant": np.zeros((15, 4)),
    "one column": np.linspace(-1, 1, 15)[:, None],
    "rank one": np.outer(np.linspace(-1, 1, 15), [1.0, 2.0, -1.0]),
    "two rows": np.array([[-1.0, 0.5], [1.0, -0.5]]),
    "three rows": np.array([[-1.0, 0.5], [1.0, -0.5], [0.0, 0.0]]),
    "duplicates": np.repeat(_data(3, 4), 10, axis=0),
    "one value apart": np.vstack([np.zeros((19, 3)), np.ones((1, 3))]),
    "huge": 1e150 * _data(20, 4),
    "tiny": 1e-150 * _data(20, 4),
}


@pytest.mark.parametrize(
    ("name", "dim"),
    [(name, dim) for name in STARTS for dim in (1, 2, 3, 5) if (name, dim) != ("tsne", 5)],
)
@pytest.mark.parametrize("what", DEGENERATE)
def test_degenerate_data_give_a_finite_start_that_separates_latents(what, name, dim):
    Y = DEGENERATE[what]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        latents = start(name, Y, dim, 0)
    assert latents.shape == (len(Y), dim)
    assert np.isfinite(latents).all()
    assert (
        latents.std(axis=0) > 1e-3
    ).all()  # at a single point every gradient would be the same
    assert np.abs(latents).max() < 10.0


def test_dimensions_the_data_cannot_fill_are_small():
    latents = start("pca", DEGENERATE["rank one"], 3, 0)
    np.testing.assert_allclose(latents[:, 0].std(), 1.0)
    assert (latents[:, 1:].std(axis=0) < 0.3).all()


def test_t_sne_keeps_the_neighbours_that_two_principal_components_lose():
    rng = np.random.default_rng(0)
    centres = 2.0 * rng.normal(size=(30, 10))
    labels = np.repeat(np.arange(30), 8)
    Y = centres[labels] + 0.5 * rng.normal(size=(240, 10))
    by_tsne, by_pca = (
        knn_accuracy(start(name, Y, 2, 0), labels, 1) for name in ("tsne", "pca")
    )
    assert by_tsne > by_pca + 0.2


def test_t_sne_in_many_dimensions_is_refused():
    text = (
        r"Expected n_components of at most 3 for init='tsne', got n_components=4\. Choose "
        r"another init"
    )
    with pytest.raises(InputError, match=text):
        start("tsne", _data(), 4, 0)


def test_an_unknown_start_is_named():
    with pytest.raises(
        InputError,
        match=r"Unknown start 'umap'\. Use one of \['pca', 'laplacian', 'isomap', 'tsne', "
        r"'random'\] or an",
    ):
        start("umap", _data(), 2, 0)


def test_a_model_is_built_at_its_start():
    latents = start("pca", _data(), 2, 0)
    kernels = [NextGenSpectralMixture(), NextGenSpectralMixture()]
    models = [
        build(latents, kernels, n_mixtures=3, seed=seed, dtype=torch.float32)
        for seed in (0, 0, 1)
    ]
    assert models[0].latents.mean.dtype == torch.float32
    np.testing.assert_allclose(models[0].latents.mean.detach(), latents, rtol=1e-6, atol=1e-6)
    assert [view.name for view in models[0].views] == ["a", "b"]
    assert all(view.kernel.n_mixtures == 3 for view in models[0].views)
    means = [[view.kernel.means for view in model.views] for model in models]
    assert torch.equal(means[0][0], means[1][0])
    assert not torch.equal(means[0][0], means[2][0])  # restarts differ
    assert not torch.equal(means[0][0], means[0][1])  # and so do views


def test_components_that_are_rounding_are_zero():
    line = np.outer(np.linspace(-1.0, 1.0, 60), [1.0, 2.0, 3.0]) / 3.0
    assert (components(line, 3, 0)[:, 1:] == 0.0).all()
    constant = np.full((60, 4), 0.1) + 1e-17 * _data(60, 4)
    assert (components(constant, 2, 0) == 0.0).all()
