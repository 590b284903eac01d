"""The sampler's face: what the family promises, of chains that are too short for anything else."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import bochner as bo
from bochner.errors import InputError
from bochner.mcmc.chain import Chain
from bochner.prediction.completion import Mixture

SMALL = {
    "n_chains": 2,
    "n_warmup": 3,
    "n_draws": 4,
    "thin": 1,
    "n_frequencies": 4,
    "n_mixtures": 2,
    "max_iter": 5,
    "init": "pca",
    "random_state": 0,
}

pytestmark = [
    pytest.mark.filterwarnings("ignore:Training stopped"),
    pytest.mark.filterwarnings("ignore:Chains"),
    pytest.mark.filterwarnings("ignore:.* has .* effective draws"),
    pytest.mark.filterwarnings("ignore::bochner.errors.CollapseWarning"),
]


def data(n=14, seed=0):
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((n, 1))
    X = np.sin(z @ rng.standard_normal((1, 6)) + rng.standard_normal(6))
    X = X + 0.1 * rng.standard_normal(X.shape)
    X[0, 1] = X[3, 2] = np.nan
    return X


def counts(n=14, seed=0):
    rng = np.random.default_rng(seed)
    return rng.poisson(np.exp(1.0 + data(n, seed)[:, 3:])).astype(float)


@pytest.fixture(scope="module")
def fitted():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return bo.RFLVM(**SMALL).fit(data())


def test_shapes_and_the_promises_of_the_family(fitted):
    X = data()
    assert fitted.latent_mean_.shape == fitted.latent_std_.shape == (14, 2)
    assert fitted.log_joint_.shape == (2, 4)
    assert fitted.n_iter_ == 7
    np.testing.assert_array_equal(fitted.transform(X), fitted.embedding_)
    completed, deviation = fitted.impute(X, return_std=True)
    missing = np.isnan(X)
    np.testing.assert_array_equal(completed[~missing], X[~missing])
    assert (deviation[missing] > 0).all()
    assert np.isfinite(fitted.score(X))
    assert fitted.sample(3).shape == (3, 6)
    assert len(fitted._fit.posterior[0].draws) == 8
    kernel = fitted.kernels_["x"]
    assert kernel["means"].shape == kernel["scales"].shape
    assert (np.diff(kernel["proportions"]) <= 0).all()


def test_the_same_seed_gives_the_same_draws_and_another_does_not(fitted):
    again = bo.RFLVM(**SMALL).fit(data())
    np.testing.assert_array_equal(again.log_joint_, fitted.log_joint_)
    np.testing.assert_array_equal(again.embedding_, fitted.embedding_)
    other = bo.RFLVM(**{**SMALL, "random_state": 1}).fit(data())
    assert np.abs(other.log_joint_ - fitted.log_joint_).max() > 1e-3


def test_a_file_holds_all_of_it(fitted, tmp_path):
    fitted.save(tmp_path / "model.bochner")
    loaded = bo.load(tmp_path / "model.bochner")
    assert type(loaded) is bo.RFLVM
    np.testing.assert_array_equal(loaded.transform(data()), fitted.embedding_)
    np.testing.assert_array_equal(loaded.latent_mean_, fitted.latent_mean_)
    assert loaded.advice_ == fitted.advice_
    assert loaded.missing_mean_["x"].shape == (2,)
    np.testing.assert_array_equal(loaded.missing_mean_["x"], fitted.missing_mean_["x"])
    np.testing.assert_array_equal(loaded.missing_std_["x"], fitted.missing_std_["x"])
    np.testing.assert_equal(loaded.diagnostics_, fitted.diagnostics_)
    pytest.importorskip("arviz")
    assert loaded.to_arviz().posterior["latents"].shape == (2, 4, 14, 2)


def test_a_file_holds_latents_that_were_not_sampled(tmp_path, caplog):
    """Their acceptance is NaN, of which the log says nothing, and files hold finite numbers."""
    with caplog.at_level("INFO", "bochner"):
        model = bo.RFLVM(**SMALL, latents="map").fit(data())
    assert "2 chains" in caplog.text
    assert "nan" not in caplog.text
    model.save(tmp_path / "model.bochner")
    loaded = bo.load(tmp_path / "model.bochner")
    assert np.isnan(model.acceptance_["latents"])
    np.testing.assert_equal(loaded.acceptance_, model.acceptance_)
    np.testing.assert_equal(loaded._draws, model._draws)
    np.testing.assert_array_equal(loaded.transform(data()), model.embedding_)


def test_moments_of_missing_entries_are_those_of_the_draws(fitted):
    psi = fitted._draws["x.missing"].reshape(8, 2)
    np.testing.assert_allclose(fitted.missing_mean_["x"], psi.mean(0), rtol=1e-12)
    np.testing.assert_allclose(fitted.missing_std_["x"], psi.std(0), rtol=1e-12)


def test_predictions_at_training_latents_are_those_of_the_chains(fitted):
    """psi of the missing entries: the chain's own record against the library's posterior."""
    view = fitted._fit.posterior[0]
    draws = fitted._draws["x.points"].reshape(8, 4, 2)
    for s, draw in enumerate(view.draws):
        np.testing.assert_allclose(draw.frequencies.first.numpy(), draws[s], atol=1e-10)
    noise = fitted._draws["x.noise_variance"].mean()
    assert view.noise_variance == pytest.approx(noise, rel=1e-10)


@pytest.mark.parametrize("latents", ["sample", "map"])
def test_views_of_several_kinds(latents):
    X = np.column_stack([data(), counts(), data()[:, 3:] > 0, np.arange(14) % 3])
    X[5, 6:9] = np.nan
    views = {"real": slice(0, 6), "counts": slice(6, 9), "yes": slice(9, 12), "kind": [12]}
    likelihood = {"counts": "negative_binomial", "yes": "bernoulli", "kind": "categorical"}
    model = bo.RFLVM(**SMALL, views=views, likelihood=likelihood, latents=latents).fit(X)
    completed = model.impute(X)
    assert np.isfinite(completed).all()
    assert (completed[5, 6:9] > 0).all()
    assert model.transform(X[:3]).shape == (3, 2)
    assert model.dispersion_["counts"] > 0
    assert np.isfinite(model.score(X))


def test_counts_are_predicted_at_their_mean():
    """Log odds of the sampler and log means of the library differ by log r."""
    rng = np.random.default_rng(0)
    X = rng.poisson(40.0, (30, 5)).astype(float)
    settings = {**SMALL, "n_warmup": 20, "n_draws": 20, "max_iter": 50}
    model = bo.RFLVM(**settings, likelihood="negative_binomial").fit(X)
    predicted = model.inverse_transform(np.zeros((1, 2)))
    np.testing.assert_allclose(predicted[0], X.mean(0), rtol=0.04)


def test_private_latents_of_views():
    latent = {"shared": 1, "private": {"a": 1}}
    views = {"a": slice(0, 3), "b": slice(3, 6)}
    settings = {**SMALL, "views": views, "latent": latent}
    model = bo.RFLVM(**settings).fit(data())
    assert model.embedding_.shape == (14, 2)
    assert model.latent_dims_ == {"a": (0, 1), "b": (0,)}
    first = model._fit.posterior[1].draws[0].frequencies.first
    assert not first[:, 1].any()


def test_short_chains_are_reported():
    with pytest.warns(
        UserWarning, match="Chains: 2, draws of each: 4. That is too few for R-hat"
    ):
        model = bo.RFLVM(**SMALL).fit(data())
    assert not model.converged_


def test_the_report_speaks_of_chains_and_not_of_training_steps(fitted, tmp_path):
    page = bo.report(fitted, data(), path=tmp_path / "chains.html").read_text(encoding="utf-8")
    assert (
        "2 chains of 4 draws, 7 sweeps each. Chains: 2, draws of each: 4. That is too" in page
    )
    assert "about.chains || `Training" in page
    title = bo.plots.bound_trace(fitted).get_title(loc="left")
    assert title == "Evidence lower bound: 5 steps of the variational fit where chains start"


def test_likelihoods_without_a_sampler_are_refused_before_anything_is_fitted(monkeypatch):
    monkeypatch.setattr("bochner.estimators.base.LatentVariableEstimator._infer", None)
    text = "got 'poisson' in view 'x'. Use 'negative_binomial', or fit SRFLVM"
    with pytest.raises(InputError, match=text):
        bo.RFLVM(**SMALL, likelihood="poisson").fit(counts())


@pytest.mark.parametrize("weights", ["balanced", {"a": 5.0}, {"a": 1.0}])
@pytest.mark.parametrize("width", [2, 3])
def test_weights_of_views_are_refused(weights, width):
    views = {"a": slice(0, width), "b": slice(width, 6)}
    with pytest.raises(InputError, match="a posterior has no weights of views"):
        bo.RFLVM(**SMALL, views=views, view_weight=weights).fit(data())


def test_parameters_of_likelihoods_are_called_what_they_are(fitted):
    names = {name for name in fitted._draws if name.startswith("x.")}
    assert "x.noise_variance" in names
    assert "x.parameter" not in names
    pytest.importorskip("arviz")
    assert "x.noise_variance" in fitted.diagnostics_
    assert "x.noise_variance" in fitted.to_arviz().posterior


def interrupt_at(monkeypatch, call):
    advance, calls = Chain.advance, []

    def interrupted(*args):
        calls.append(args)
        if len(calls) == call:
            raise KeyboardInterrupt
        return advance(*args)

    monkeypatch.setattr(Chain, "advance", interrupted)


def test_an_interruption_keeps_the_draws_and_resuming_loses_none(
    fitted, tmp_path, monkeypatch
):
    monkeypatch.setattr("bochner.mcmc.run.SWEEPS_A_ROUND", 5)
    settings = {**SMALL, "checkpoint": tmp_path / "run"}
    interrupt_at(monkeypatch, 3)
    with pytest.warns(
        UserWarning, match="Interrupted: the 2 draws of each chain so far are kept"
    ):
        model = bo.RFLVM(**settings).fit(data())
    assert model.interrupted_
    assert model.transform(data()).shape == (14, 2)
    resumed = bo.RFLVM(**settings).fit(data())
    assert not resumed.interrupted_
    np.testing.assert_array_equal(resumed.log_joint_, fitted.log_joint_)
    assert not list(tmp_path.iterdir())


def test_chains_of_a_checkpoint_that_was_deleted_are_none_of_another_fit(
    fitted, tmp_path, monkeypatch
):
    """Brackets of a name are no pattern: files of another fit beside it stay."""
    path, other = tmp_path / "run[1]", tmp_path / "run1.chain0"
    other.touch()
    settings = {**SMALL, "checkpoint": path}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bochner.mcmc.run.SWEEPS_A_ROUND", 5)
        interrupt_at(patch, 3)
        with pytest.warns(UserWarning, match="Interrupted"):
            bo.RFLVM(**settings).fit(counts())
    with pytest.raises(InputError, match=r"other data or settings. Delete it"):
        bo.RFLVM(**settings).fit(data())
    path.unlink()
    model = bo.RFLVM(**settings).fit(data())
    np.testing.assert_array_equal(model.log_joint_, fitted.log_joint_)
    assert list(tmp_path.iterdir()) == [other]


def test_an_interruption_before_any_draw_is_one(monkeypatch):
    interrupt_at(monkeypatch, 1)
    with pytest.warns(UserWarning, match="0 draws"), pytest.raises(KeyboardInterrupt):
        bo.RFLVM(**SMALL).fit(data())


@pytest.mark.filterwarnings("ignore:1 entry of")
def test_large_counts_are_fitted_and_larger_ones_refused():
    X = counts()
    X[2, 1] = 1e12
    model = bo.RFLVM(**SMALL, likelihood="negative_binomial").fit(X)
    assert np.isfinite(model.log_joint_).all()
    X[2, 1] = 1e13
    text = (
        r"Expected counts of at most 1e\+12.*got 1e\+13 in view 'x', row 2, column 1. Change"
    )
    with pytest.raises(InputError, match=text):
        bo.RFLVM(**SMALL, likelihood="negative_binomial").fit(X)


def test_entries_of_rows_with_holes_are_as_uncertain_as_they_are_wrong():
    """Places found under one draw of a chain are not decoded under the others."""
    curve = bo.datasets.make_s_curve(60, 12, ["rbf"], 0.3, random_state=100)
    hidden = np.random.default_rng(100).random(curve.data.shape) < 0.1
    shown = np.where(hidden, np.nan, curve.data)
    model = bo.RFLVM(n_chains=2, n_warmup=100, n_draws=50, n_frequencies=32, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mean, std = model.fit(shown).impute(shown, return_std=True)
        model._mixture_of = Mixture
        wide = model.impute(shown, return_std=True)[1]
    error = np.mean(np.square(mean - curve.data)[hidden])
    assert np.mean(std[hidden] ** 2) < 1.3 * error
    assert np.mean(wide[hidden] ** 2) > 1.3 * np.mean(std[hidden] ** 2)
