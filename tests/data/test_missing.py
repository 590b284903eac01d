"""Data with holes: how columns are divided, how starts are filled, what the weights are given
them.
"""

import numpy as np
import pytest
import torch

from bochner import NGMVLVM, datasets, load
from bochner.data.missing import similar, split
from bochner.data.views import Views
from bochner.estimators.settings.plans import LEAST_FREQUENCIES, make
from bochner.features.fourier import fourier_features
from bochner.fitting.landmarks import choose, rows_of, take
from bochner.initialization import iterative_pca
from bochner.kernels.spectral_mixture import NextGenSpectralMixture
from bochner.latent_inference.infer import Placer
from bochner.random import generator
from bochner.regression.incomplete import completed
from bochner.regression.observations import IncompleteBlock
from bochner.weight_posterior.incomplete_conditioning import condition_incomplete, groups_of


def _random_mask(n, m, share=0.3, seed=0):
    return np.random.default_rng(seed).random((n, m)) >= share


# -- columns
# ---------------------------------------------------------------------------


def test_few_patterns_are_blocks_and_many_are_one_group():
    few = np.ones((20, 9), dtype=bool)
    few[:5, 3:6] = few[10:, 6:] = False
    whole, groups = split(few)
    assert [group[1].tolist() for group in whole] == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert groups == []
    whole, groups = split(_random_mask(50, 9))
    assert whole == []
    assert [group.tolist() for group in groups] == [list(range(9))]


def test_columns_that_share_a_pattern_stay_a_block_beside_scattered_holes():
    mask = np.hstack([np.ones((60, 40), dtype=bool), _random_mask(60, 7)])
    ((rows, columns),), groups = split(mask)
    assert rows.tolist() == list(range(60))
    assert columns.tolist() == list(range(40))
    assert np.concatenate(groups).tolist() == list(range(40, 47))


def test_clearly_different_patterns_are_different_groups():
    mask = _random_mask(200, 60, share=0.1)
    mask[:100, ::2] &= _random_mask(100, 30, share=0.9, seed=1)
    even, odd = sorted(similar(mask), key=lambda group: group[0])
    assert even.tolist() == list(range(0, 60, 2))
    assert odd.tolist() == list(range(1, 60, 2))
    assert len(similar(_random_mask(200, 60))) == 1


# -- starts
# ---------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [2, 5])
def test_a_low_rank_matrix_is_recovered_and_its_rank_is_found(rank):
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(120, rank)) @ rng.normal(size=(rank, 40)) / np.sqrt(rank)
    noisy = truth + 0.05 * rng.normal(size=truth.shape)
    missing = rng.random(truth.shape) < 0.4
    values = np.where(missing, np.nan, noisy)
    assert iterative_pca.chosen_rank(values, 0) == rank
    filled = iterative_pca.fill(values, 0)
    np.testing.assert_array_equal(filled[~missing], noisy[~missing])
    # twice the noise; the mean leaves 1
    assert np.mean((filled - truth)[missing] ** 2) < 0.005
    np.testing.assert_array_equal(iterative_pca.fill(values, 0), filled)


def test_noise_without_structure_is_filled_with_the_mean():
    rng = np.random.default_rng(1)
    values = rng.normal(size=(60, 30))
    values[rng.random(values.shape) < 0.3] = np.nan
    assert iterative_pca.chosen_rank(values, 0) == 0
    np.testing.assert_array_equal(iterative_pca.fill(values, 0), np.nan_to_num(values))


def test_complete_data_are_returned_as_they_are():
    values = np.ones((4, 3))
    assert iterative_pca.fill(values, 0) is values


# -- weights
# ---------------------------------------------------------------------------


def _problem(dim, n=40, m=6, n_frequencies=3):
    source = generator(2, "holes", dim)
    kernel = NextGenSpectralMixture().initial(2, dim, source)
    f = kernel.frequencies(kernel.noise(n_frequencies, dim, source, "iid")).detach()
    x = [torch.randn(n, dim, generator=source, dtype=torch.float64) for _ in range(2)]
    Y = torch.randn(n, m, generator=source, dtype=torch.float64)
    Y[torch.rand(n, m, generator=source) < 0.4] = torch.nan
    return f, x, Y


def _by_hand(f, x, y, s2):
    """B^-1 and B^-1 C of one column with the statistics averaged over draws of X."""
    observed, k = ~y.isnan(), f.n_features
    gram, cross = torch.zeros(k, k, dtype=torch.float64), torch.zeros(k, dtype=torch.float64)
    for latents in x:
        phi = fourier_features(latents[observed], f)
        gram, cross = gram + phi @ phi.T / len(x), cross + phi @ y[observed] / len(x)
    inverse = torch.linalg.inv(gram + s2 * torch.eye(k, dtype=torch.float64))
    return inverse, inverse @ cross


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_weights_of_few_columns_are_exact(dim):
    f, x, Y = _problem(dim)
    block = IncompleteBlock.of(Y, None, torch.arange(6), (2, 4))
    assert groups_of(block, f.n_features).tolist() == list(range(6))
    mean, covariance = condition_incomplete(f, block, x, 0.2)
    for j in range(6):
        inverse, expected = _by_hand(f, x, Y[:, j], 0.2)
        torch.testing.assert_close(covariance[j], inverse, rtol=1e-8, atol=1e-9)
        torch.testing.assert_close(mean[:, j], expected, rtol=1e-4, atol=1e-4)


def test_many_columns_share_the_average_covariance_of_their_group_and_keep_their_means():
    f, x, Y = _problem(2, n_frequencies=53)  # K = 212: 6 K^2 numbers are many
    block = IncompleteBlock.of(Y, None, torch.arange(6), (2, 4))
    assert groups_of(block, f.n_features).tolist() == [0, 0, 1, 1, 1, 1]
    mean, covariance = condition_incomplete(f, block, x, 0.2, most=100)  # one column at a time
    inverses, means = zip(*(_by_hand(f, x, y, 0.2) for y in Y.T), strict=True)
    torch.testing.assert_close(covariance[0], sum(inverses[:2]) / 2, rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(covariance[1], sum(inverses[2:]) / 4, rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(mean, torch.stack(means, dim=1), rtol=1e-4, atol=1e-4)


def test_holes_are_completed_by_their_posterior_means():
    f, (x, _), Y = _problem(2)
    full = completed(
        IncompleteBlock.of(Y, None, torch.arange(6), (6,)), x, f, torch.tensor(0.2)
    )
    _, weights = _by_hand(f, [x], Y[:, 1], 0.2)
    expected = torch.where(Y[:, 1].isnan(), fourier_features(x, f).T @ weights, Y[:, 1])
    torch.testing.assert_close(full.Y[:, 1], expected, rtol=0.0, atol=0.02)
    assert not full.values().isnan().any()


# -- landmarks
# ---------------------------------------------------------------------------


def test_landmarks_keep_holes_and_see_every_column():
    _, _, Y = _problem(1)
    Y[:, 4] = torch.nan
    Y[17, 4] = 2.0
    data = ((IncompleteBlock.of(Y, None, torch.arange(6), (3, 3)),),)
    index = choose(data, 40, 5, 0)
    assert 17 in index
    (y,) = rows_of(data, index)
    torch.testing.assert_close(y, Y[index], equal_nan=True)
    assert take(data, index)[0][0].sizes == (3, 3)


# -- a whole fit
# ---------------------------------------------------------------------------

QUICK = {"n_mixtures": 1, "n_frequencies": 8, "init": "pca", "max_iter": 60, "random_state": 0}


@pytest.fixture(scope="module")
def curve_with_holes():
    X = datasets.make_s_curve(90, 40, kernels=("rbf",), random_state=0).data
    return X, np.where(_random_mask(*X.shape), X, np.nan)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("options", [{}, {"landmarks": 50}, {"dtype": "float64"}])
def test_a_fit_restores_hidden_entries_and_places_each_row_by_itself(
    curve_with_holes, options
):
    X, shown = curve_with_holes
    model = NGMVLVM(**QUICK, **options)
    Z = model.fit_transform(shown)
    np.testing.assert_allclose(model.transform(shown), Z, atol=1e-6)
    np.testing.assert_allclose(model.transform(shown[7:8]), Z[7:8], atol=1e-6)
    hidden, restored = np.isnan(shown), model.impute(shown)
    np.testing.assert_array_equal(restored[~hidden], shown[~hidden])
    assert np.mean((restored - X)[hidden] ** 2) < 0.7 * np.mean(
        (X - X.mean(axis=0))[hidden] ** 2
    )
    again = NGMVLVM(**QUICK, **options).fit(shown)
    assert again.elbo_ == model.elbo_


# -- completing the training rows
# ---------------------------------------------------------------------------


def test_training_rows_are_completed_from_where_the_fit_placed_them(tmp_path, monkeypatch):
    source = np.random.default_rng(0)
    X = source.normal(size=(40, 2)) @ source.normal(size=(2, 9)) + 0.1 * source.normal(
        size=(40, 9)
    )
    X[source.random(X.shape) < 0.2] = np.nan
    model = NGMVLVM(n_frequencies=8, init="pca", max_iter=20, random_state=0).fit(X)
    model.save(tmp_path / "model")
    fresh = load(tmp_path / "model")  # a file does not hold the places
    changed = X.copy()
    changed[0, ~np.isnan(X[0])] += 1.0
    for rows in (X, X[:7], changed):
        for one, other in zip(
            model.impute(rows, return_std=True),
            fresh.impute(rows, return_std=True),
            strict=True,
        ):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)
    calls = []
    place = Placer.place
    monkeypatch.setattr(
        Placer,
        "place",
        lambda *arguments, **more: calls.append(arguments) or place(*arguments, **more),
    )
    model.impute(X)
    assert not calls
    model.impute(changed)
    assert len(calls) == 1


def test_many_dimensions_have_as_many_spectral_points_and_one_start():
    X = np.random.default_rng(0).normal(size=(60, 50)).astype(np.float64)
    data = Views.fit(X)
    few, many = (make(NGMVLVM(d), data, 0, {"x": NextGenSpectralMixture()}) for d in (2, 104))
    assert (few.spec.n_frequencies, few.spec.early.n_frequencies, few.starts) == (
        100,
        LEAST_FREQUENCIES,  # 60 rows tell no more apart at first
        ("pca", "fold", "laplacian", "tsne"),
    )
    assert many.spec.n_frequencies == many.spec.early.n_frequencies == 130
    assert many.starts == ("pca",)
    assert (few.spec.sampling, many.spec.sampling) == ("sobol", "orthogonal")
    # dimensions without data would collapse
    assert (few.truncation, many.truncation) == (
        0.05,
        0.0,
    )
    assert (
        make(
            NGMVLVM(104, sampling="iid"), data, 0, {"x": NextGenSpectralMixture()}
        ).spec.sampling
        == "iid"
    )


def test_a_table_with_few_holes_takes_no_more_room_than_a_complete_one():
    """Its columns share a covariance where features are many: a file was twenty times as large."""
    X = np.random.default_rng(0).normal(size=(40, 20))
    settings = {"max_iter": 3, "init": "pca", "n_frequencies": 100, "random_state": 0}
    whole = NGMVLVM(**settings).fit(X)
    X[np.random.default_rng(1).random(X.shape) < 0.05] = np.nan
    incomplete = NGMVLVM(**settings).fit(X)
    sizes = [
        model._fit.posterior[0].draws[0].covariance.numel() for model in (whole, incomplete)
    ]
    assert sizes[1] <= 2 * sizes[0]
