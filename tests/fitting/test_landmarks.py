"""Landmarks: which rows, whose data, where the others go, and what the joint steps are worth."""

import numpy as np
import pytest
import torch

from bochner import NGMVLVM, datasets
from bochner.errors import InputError
from bochner.fitting.landmarks import (
    as_if_whole,
    choose,
    narrow,
    others,
    rows_of,
    spread,
    take,
)
from bochner.fitting.svd_compression import rotate
from bochner.kernels.stationary import RBF
from bochner.likelihoods.likelihood import Gaussian
from bochner.models.lvm import Covariates, GaussianLatents, LatentVariableModel, View
from bochner.regression.observations import AllRows, CompleteBlock
from bochner.weight_posterior.posterior import weights_posterior


def _data(n: int = 30):
    """One view: two complete columns, one seen in few rows, two seen in the second half."""
    Y = torch.arange(5.0 * n).reshape(n, 5)
    few, half = torch.tensor([3, 4]), torch.arange(n // 2, n)
    columns = [torch.tensor([0, 1]), torch.tensor([2]), torch.tensor([3, 4])]
    return Y, (
        (
            CompleteBlock.of(Y[:, :2], None, columns[0]),
            CompleteBlock.of(Y[few, 2:3], few, columns[1]),
            CompleteBlock.of(Y[half][:, 3:], half, columns[2]),
        ),
    )


@pytest.mark.parametrize("n_landmarks", [2, 10, 29])
def test_every_column_is_observed_in_some_landmark(n_landmarks):
    _, data = _data()
    for seed in range(20):
        index = choose(data, 30, n_landmarks, seed)
        assert index.shape[0] >= n_landmarks
        assert bool((index[1:] > index[:-1]).all())
        assert all(block.Y.shape[0] for block in take(data, index)[0])
    assert torch.equal(choose(data, 30, n_landmarks, 3), choose(data, 30, n_landmarks, 3))


def test_the_rows_that_are_no_landmarks_are_counted_without_a_list_of_them():
    index = torch.tensor([0, 1, 4, 9, 10, 19])
    expected = [row for row in range(20) if row not in index.tolist()]
    assert others(index, slice(0, 14)).tolist() == expected
    assert others(index, slice(3, 9)).tolist() == expected[3:9]


def test_rows_keep_their_entries_and_their_holes():
    Y, data = _data()
    index = torch.tensor([2, 3, 15, 29])
    (y,) = rows_of(data, index)
    expected = Y[index].double()
    expected[[0, 2, 3], 2] = torch.nan
    expected[:2, 3:] = torch.nan
    torch.testing.assert_close(y, expected, equal_nan=True)
    complete, few, half = take(data, index)[0]
    assert complete.rows == AllRows()
    assert few.rows.index.tolist() == [1]
    assert half.rows.index.tolist() == [2, 3]
    assert complete.square == pytest.approx(float(Y[index, :2].square().sum()))


pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
QUICK = {
    "n_components": 1,
    "n_mixtures": 1,
    "n_frequencies": 8,
    "init": "pca",
    "max_iter": 60,
    "random_state": 0,
}


@pytest.fixture(scope="module")
def curve():
    return datasets.make_s_curve(400, 12, random_state=0)


def test_a_fit_on_landmarks_places_every_row_and_says_what_the_joint_steps_gained(curve):
    model = NGMVLVM(
        **{**QUICK, "n_components": 2, "max_iter": 150}, views=curve.views, landmarks=150
    ).fit(curve.data)
    whole = NGMVLVM(
        **{**QUICK, "n_components": 2, "max_iter": 150}, views=curve.views, landmarks=None
    ).fit(curve.data)
    assert model.embedding_.shape == (400, 2)
    np.testing.assert_array_equal(model.embedding_, model.transform(curve.data))
    report = model.landmarks_
    assert report["n"] == 150
    assert report["elbo_joint"] >= report["elbo_placed"]
    # 2 x 12 columns: a nat per entry would be 9,600 nats
    assert model.elbo_ > whole.elbo_ - 500
    assert model.elbo_ == pytest.approx(report["elbo_joint"], abs=50)
    assert whole.landmarks_ is None
    # more than there are rows
    assert NGMVLVM(**QUICK, landmarks=400).fit(curve.data[:50]).landmarks_ is None


@pytest.mark.usefixtures("few_draws", "two_folds")
def test_landmarks_take_missing_views_holes_and_arrays_as_starts(curve):
    X = curve.data[:120].copy()
    X[:60, :12] = np.nan
    X[5, 20] = np.nan
    Z = np.random.default_rng(0).normal(size=(120, 1))
    settings = {**QUICK, "init": Z, "max_iter": 20, "views": curve.views, "landmarks": 40}
    model = NGMVLVM(**settings).fit(X)
    assert np.isfinite(model.embedding_).all()
    assert np.isfinite(model.impute(X)).all()
    again = NGMVLVM(**settings).fit(X)
    np.testing.assert_array_equal(model.embedding_, again.embedding_)


def test_wide_views_are_truncated_in_training_only():
    rng = np.random.default_rng(0)
    X = np.sin(rng.normal(size=(80, 2)) @ rng.normal(size=(2, 300))) + 0.1 * rng.normal(
        size=(80, 300)
    )
    # as many dimensions as the data have, and steps enough: where fits end is not left to chance
    options = {**QUICK, "n_components": 2, "max_iter": 150}
    exact, less = (NGMVLVM(**options, truncation=share).fit(X) for share in (0.0, "auto"))
    (nothing,), (something,) = exact.dropped_.values(), less.dropped_.values()
    assert nothing < 1e-5
    assert 1e-3 < something <= 0.05
    # the bound that is stated is that of all columns
    assert less.elbo_ == pytest.approx(exact.elbo_, abs=0.005 * X.size)
    assert less.inverse_transform(less.embedding_[:3]).shape == (3, 300)


@pytest.mark.parametrize("kind", ["poisson", "bernoulli", "categorical"])
def test_views_that_are_not_gaussian_have_landmarks_too(kind):
    source = np.random.default_rng(0)
    f = source.normal(size=(60, 2)) @ source.normal(size=(2, 6))
    X = {
        "poisson": source.poisson(np.exp(f)),
        "bernoulli": f > 0,
        "categorical": np.digitize(f, [-1, 1]),
    }[kind]
    X = X.astype(float)
    X[:5, :3] = np.nan  # a view that some rows lack
    views = {"seen in part": slice(0, 3), "whole": slice(3, 6)}
    settings = {**QUICK, "n_components": 2, "max_iter": 40, "learning_rate": 0.06}
    settings |= {"likelihood": kind, "views": views}
    model = NGMVLVM(**settings, landmarks=30).fit(X)
    assert model.landmarks_["n"] >= 30
    assert model.landmarks_["elbo_placed"] == model.elbo_
    assert np.isfinite(model.elbo_)
    assert model.embedding_.shape == (60, 2)
    whole = NGMVLVM(**settings).fit(X)
    assert model.elbo_ > whole.elbo_ - 0.2 * abs(whole.elbo_)


@pytest.mark.parametrize("seed", [100, 101, 102])
def test_counts_with_a_long_tail_are_placed_with_a_bound_near_that_of_a_whole_fit(seed):
    source = np.random.RandomState(seed)
    X = source.poisson(np.exp(2 * source.randn(60, 6))).astype(float)
    settings = {**QUICK, "n_components": 2, "n_mixtures": 2}
    settings |= {"likelihood": "poisson", "random_state": seed}
    few = NGMVLVM(**settings, landmarks=30).fit(X)
    whole = NGMVLVM(**settings).fit(X)
    # it was -1e9 to -1e20
    assert few.elbo_ > 1.5 * whole.elbo_
    assert few.elbo_se_ < 0.1 * abs(few.elbo_)


@pytest.mark.parametrize(
    "bad", [{"landmarks": 1}, {"landmarks": "all"}, {"truncation": 1.0}, {"truncation": -0.1}]
)
def test_values_that_make_no_sense_are_refused(bad, curve):
    name = next(iter(bad))
    with pytest.raises(
        (InputError, ValueError), match=f"The '{name}' parameter of NGMVLVM must be"
    ):
        NGMVLVM(**QUICK, **bad).fit(curve.data)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_rows_are_placed_on_rotated_columns_as_on_all(dim):
    source = torch.Generator().manual_seed(dim)
    x = torch.randn(60, dim, generator=source)
    Y = (x @ torch.randn(dim, 4, generator=source)).sin() @ torch.randn(
        4, 40, generator=source
    )
    Y += 0.05 * torch.randn(60, 4, generator=source) @ torch.randn(4, 40, generator=source)
    index, whole, none = torch.arange(0, 60, 2), ((CompleteBlock.of(Y),),), Covariates.none(60)
    some = take(whole, index)
    turned, rotation = rotate(some, 0.0, seed=0)
    assert rotation.ranks[0] <= 8
    latents = GaussianLatents(x[index], torch.full((30, dim), -3.0))
    model = LatentVariableModel(latents, [View("view", RBF(1.0), Gaussian(0.05))])
    options = {
        "n_frequencies": 16,
        "n_draws": 2,
        "n_latent_draws": 1,
        "sampling": "iid",
        "seed": 0,
    }
    plain = spread(model, weights_posterior(model, some, **options), whole, index, 60, none)
    posterior = as_if_whole(weights_posterior(model, narrow(turned), **options), turned)
    less = spread(model, posterior, narrow(rotation.apply(whole)), index, 60, none)
    torch.testing.assert_close(plain.latents.mean, less.latents.mean, rtol=0, atol=1e-4)
    torch.testing.assert_close(plain.latents.log_std, less.latents.log_std, rtol=0, atol=1e-3)
