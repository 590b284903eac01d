"""Standard deviations of many rows in memory are found when somebody asks for them."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse as sp

import bochner as bo
from bochner.errors import DataWarning
from bochner.estimators import base
from bochner.estimators.methods import placing, training_latents

N, CANDIDATES, MEASURED = 240, 60, 30
SETTINGS = {"landmarks": 80, "n_frequencies": 8, "max_iter": 5, "init": "pca"}
pytestmark = pytest.mark.filterwarnings("ignore:Training stopped")


@pytest.fixture(autouse=True)
def measured(monkeypatch):
    """How many rows' standard deviations were found, part by part."""
    plain, counts = placing.latent_std, []

    def counted(views, candidates, placement, *rest):
        counts.append(len(placement.mean))
        return plain(views, candidates, placement, *rest)

    monkeypatch.setattr(placing, "latent_std", counted)
    monkeypatch.setattr(base, "CANDIDATES", CANDIDATES)
    monkeypatch.setattr(training_latents, "_MEASURED", MEASURED)
    return counts


def _fit(kind):
    """Return a model and how its rows are given."""
    rng = np.random.default_rng(0)
    X = np.sin(rng.normal(size=(N, 2)) @ rng.normal(size=(2, 6)))
    X += 0.1 * rng.normal(size=X.shape)
    beside, likelihood = {}, "gaussian"
    if kind == "holes":
        X[rng.random(X.shape) < 0.1] = np.nan
    if kind == "sparse":
        X = sp.csr_array(np.where(X > 0.5, X, 0.0))
    if kind == "covariates":
        beside = {"covariates": {"batch": np.arange(N) % 2}}
    if kind == "counts":
        sizes = np.linspace(0.5, 2.0, N)
        X = rng.poisson(sizes[:, None] * np.exp(X)).astype(float)
        beside, likelihood = {"size_factors": sizes}, "poisson"
    model = bo.NGMVLVM(likelihood=likelihood, random_state=0, **SETTINGS)
    return model.fit(X, **beside), X, beside


@pytest.mark.parametrize("kind", ["plain", "holes", "sparse", "covariates", "counts"])
def test_they_are_those_of_transform_and_found_once(kind, measured):
    model, X, beside = _fit(kind)
    assert sum(measured) == MEASURED
    places = model.embedding_
    assert sum(measured) == MEASURED
    std = model.embedding_std_
    assert model.embedding_std_ is std
    assert sum(measured) == N
    again, wanted = model.transform(X, return_std=True, **beside)
    np.testing.assert_array_equal(places, again)
    np.testing.assert_allclose(std, wanted, rtol=1e-5)


def test_copies_and_files_have_them(tmp_path):
    copied, saved, model = (_fit("plain")[0] for _ in range(3))
    copied = pickle.loads(pickle.dumps(copied))
    saved.save(tmp_path / "m.bochner")
    loaded = bo.load(tmp_path / "m.bochner")
    for other in (copied, saved, loaded):
        np.testing.assert_allclose(other.embedding_std_, model.embedding_std_, rtol=1e-6)


def test_no_model_holds_rows_whose_standard_deviations_are_known(monkeypatch, measured):
    model, _, _ = _fit("plain")
    assert isinstance(model._embedded, training_latents.Unmeasured)
    assert model.embedding_std_.shape == (N, 2)
    assert isinstance(model._embedded, training_latents.Placed)
    # too large to be held
    measured.clear()
    monkeypatch.setattr(training_latents, "_HELD", 100)
    model, _, _ = _fit("plain")
    assert sum(measured) == N
    assert isinstance(model._embedded, training_latents.Unchecked)


@pytest.mark.parametrize("kind", ["plain", "sparse"])
def test_an_array_that_was_changed_after_the_fit_costs_no_model(kind, tmp_path):
    expected = _fit(kind)[0].embedding_std_
    model, X, _ = _fit(kind)
    values = X.data if kind == "sparse" else X
    values[0] = 100.0
    with pytest.warns(DataWarning, match="has been changed since.*call transform"):
        std = model.embedding_std_
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model.embedding_std_ is std  # said once
        model.save(tmp_path / "m.bochner")
    assert np.isfinite(std).all()
    assert (std > 0).all()
    # known ones stay, those of the bound are close
    assert np.isclose(std, expected, rtol=1e-6).all(1).sum() >= MEASURED
    assert 0.3 < np.median(std / expected) < 1.5
