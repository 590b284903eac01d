"""Truth is recovered from data drawn from the model (law 7)."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from bochner import NGMVLVM, SRFLVM, AdvisedRFLVM, datasets
from bochner.errors import CollapseWarning, InputError
from bochner.metrics import aligned_r2, mean_aligned_r2

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(scope="module")
def curve():
    return datasets.make_s_curve(150, 40, ("rbf", "rbf"), noise=0.5, random_state=0)


@pytest.fixture(scope="module")
def fitted(curve):
    model = NGMVLVM(
        views=curve.views,
        n_frequencies=20,
        n_mixtures=1,
        max_iter=400,
        init="pca",
        random_state=0,
    )
    return model.fit(curve.data)


def _mean_r2(result, truth) -> float:
    return float(np.mean(aligned_r2(result, truth)))


def test_latents_of_an_s_curve_are_found(curve, fitted):
    assert _mean_r2(fitted.embedding_, curve.latent) > 0.9


def test_training_is_what_finds_them(curve, fitted):
    centred = curve.data - curve.data.mean(axis=0)
    left, values, _ = np.linalg.svd(centred, full_matrices=False)
    pca = _mean_r2(left[:, :2] * values[:2], curve.latent)
    assert _mean_r2(fitted.embedding_, curve.latent) > pca
    assert fitted.elbo_ > fitted.starts_[0]["elbo_start"] + 100


def test_the_noise_and_the_kernel_are_those_of_the_data(curve, fitted):
    for view, columns in curve.views.items():
        assert fitted.noise_variance_[view] == pytest.approx(0.25, rel=0.1)
        scale = np.trace(fitted.kernel_matrix(fitted.embedding_, view)) / len(curve.latent)
        assert scale == pytest.approx(1.0, rel=0.5)
        rows = curve.data[:, columns]
        assert fitted.noise_variance_[view] < 0.5 * rows.var()


def test_rows_never_seen_are_placed_where_they_belong(curve):
    model = AdvisedRFLVM(
        views=curve.views,
        n_frequencies=20,
        n_mixtures=1,
        max_iter=300,
        init="pca",
        random_state=0,
    )
    model.fit(curve.data[:120])
    placed = model.transform(curve.data[120:])
    # one linear map for training rows aligns the new ones as well
    A = np.column_stack([model.embedding_, np.ones(120)])
    weights, *_ = np.linalg.lstsq(A, curve.latent[:120], rcond=None)
    error = np.column_stack([placed, np.ones(30)]) @ weights - curve.latent[120:]
    assert 1 - error.var() / curve.latent[120:].var() > 0.85


def test_a_hidden_view_is_completed_better_than_its_columns_mean(curve, fitted):
    hidden = curve.data[:40].copy()
    columns = curve.views["view_1"]
    hidden[:, columns] = np.nan
    mean, std = fitted.impute(hidden, return_std=True)
    truth = curve.data[:40, columns]
    error, base = mean[:, columns] - truth, curve.data[:, columns].mean(axis=0) - truth
    assert np.mean(error**2) < 0.5 * np.mean(base**2)
    inside = np.mean(np.abs(error) < 1.645 * std[:, columns])
    assert 0.8 < inside < 0.98


@pytest.mark.parametrize("kind", [NGMVLVM, AdvisedRFLVM, SRFLVM])
def test_many_dimensions_do_not_make_training_give_the_latents_up(kind):
    digits = load_digits().data[:150]
    few, many = (
        kind(dim, init="pca", n_frequencies=30, max_iter=80, random_state=0).fit(digits)
        for dim in (2, 20)
    )
    # 20 dimensions hold what two do; with frequencies as in the plane the bound fell by a third
    assert many.elbo_ > few.elbo_ - 0.03 * abs(few.elbo_)
    restored = many.inverse_transform(many.embedding_)
    assert np.mean((restored - digits) ** 2) < 0.5 * np.mean(
        (few.inverse_transform(few.embedding_) - digits) ** 2
    )


@pytest.mark.parametrize("kind", [NGMVLVM, AdvisedRFLVM])
def test_data_with_hardly_any_noise_are_fitted_whichever_form_is_cheaper(kind):
    source = np.random.default_rng(0)
    latent, slopes = source.normal(size=(200, 2)), source.normal(size=(2, 30))
    X = latent @ slopes + 0.01 * source.normal(size=(200, 30))
    for n_frequencies in (20, 100):  # fewer features than rows, and more
        fitted = kind(
            init="pca", n_frequencies=n_frequencies, max_iter=400, random_state=0
        ).fit(X)
        assert mean_aligned_r2(latent, fitted.embedding_) > 0.99
        restored = fitted.inverse_transform(fitted.embedding_)
        assert np.mean((restored - X) ** 2) < 0.05**2


def test_dimensions_that_the_data_do_not_need_are_left_at_the_prior():
    """Five embeddings' dimensions all carried something: four or five of five were found."""
    source = np.random.default_rng(108)
    x, w = source.normal(size=(150, 2)), 0.7 * source.normal(size=(60, 2))
    waves = np.cos(x @ w.T + source.uniform(0.0, 2.0 * np.pi, 60))
    Y = waves @ source.normal(size=(60, 15)) * np.sqrt(2 / 60)
    Y += 0.3 * source.normal(size=Y.shape)
    settings = {"n_frequencies": 25, "max_iter": 150, "random_state": 0}
    with pytest.warns(CollapseWarning, match="fit with n_components=2"):
        model = AdvisedRFLVM(5, **settings).fit(Y)
    assert len(model.collapse_.dead) == 3
    assert mean_aligned_r2(x, model.embedding_) > 0.8
    wide = AdvisedRFLVM(5, init=["pca", "fold", "laplacian"], **settings).fit(Y)
    assert model.elbo_ > wide.elbo_ + 50


def test_starts_of_two_dimensions_are_for_latents_that_all_views_share():
    model = NGMVLVM(latent={"shared": 2, "private": {"a": 1}}, views={"a": slice(0, 2)})
    model.set_params(views={"a": slice(0, 2), "b": slice(2, 4)}, init="tsne-2")
    with pytest.raises(
        InputError, match=r"Expected latents that all views share, got \['tsne-2'\]"
    ):
        model.fit(np.random.default_rng(0).normal(size=(20, 4)))
