"""A noise variance that is given stays as it is, and latents collapse as it grows."""

import numpy as np
import pytest

import bochner as bo
from bochner.errors import InputError

QUICK = {"n_frequencies": 16, "max_iter": 60, "init": "pca", "random_state": 0}
VIEWS = {"a": slice(0, 6), "b": slice(6, 10)}


def data(seed=0, n=60):
    """Two latents, noise of standard deviation 0.3, in units of 10."""
    rng = np.random.default_rng(seed)
    signal = np.tanh(rng.normal(size=(n, 2)) @ rng.normal(size=(2, 10)))
    return 10.0 * (signal + 0.3 * rng.normal(size=(n, 10)))


@pytest.mark.parametrize(
    "model", [bo.NGMVLVM, bo.AdvisedRFLVM, bo.SRFLVM, bo.RandomFeatureLVM]
)
@pytest.mark.parametrize("init", ["pca", ["pca", "fold"]])
def test_it_is_kept_in_original_units(model, init):
    fitted = model(2, **{**QUICK, "init": init}, views=VIEWS, noise_variance={"a": 9.0}).fit(
        data()
    )
    assert fitted.noise_variance_["a"] == pytest.approx(9.0, rel=1e-6)
    assert fitted.noise_variance_["b"] != pytest.approx(9.0, rel=0.05)
    both = model(2, **QUICK, views=VIEWS, noise_variance=9.0).fit(data())
    assert list(both.noise_variance_.values()) == pytest.approx([9.0, 9.0], rel=1e-6)


def test_the_bound_is_highest_near_the_noise_that_is_learned():
    X, options = data(), {**QUICK, "max_iter": 300}
    learned = bo.AdvisedRFLVM(2, **options).fit(X)
    known = learned.noise_variance_["x"]
    bounds = {
        factor: bo.AdvisedRFLVM(2, **options, noise_variance=factor * known).fit(X).elbo_
        for factor in (0.2, 1.0, 5.0)
    }
    assert bounds[1.0] > max(bounds[0.2], bounds[5.0]) + 20
    assert bounds[1.0] == pytest.approx(learned.elbo_, abs=2)


def test_latents_collapse_where_it_is_larger_than_everything_in_the_data():
    X = data()
    options = {**QUICK, "max_iter": 300}
    learned = bo.AdvisedRFLVM(2, **options).fit(X)
    blurred = bo.AdvisedRFLVM(2, **options, noise_variance=100 * float(X.var())).fit(X)
    assert learned.embedding_std_.mean() < 0.5
    assert blurred.embedding_std_.mean() > 0.9  # that of the prior is 1
    assert np.abs(blurred.embedding_).mean() < 0.2


def test_holes_counts_beside_it_and_a_file_keep_it(tmp_path):
    X = data()
    X[::7, 2] = np.nan
    X[:, VIEWS["b"]] = np.random.default_rng(1).poisson(3.0, (60, 4))
    likelihood = {"b": "poisson"}
    options = {**QUICK, "views": VIEWS, "likelihood": likelihood, "noise_variance": 9.0}
    model = bo.NGMVLVM(2, **options).fit(X)
    assert model.noise_variance_ == {"a": pytest.approx(9.0, rel=1e-6)}
    model.save(tmp_path / "model.bochner")
    again = bo.load(tmp_path / "model.bochner")
    assert again.noise_variance_ == model.noise_variance_
    assert again.get_params()["noise_variance"] == 9.0


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"noise_variance": {"c": 1.0}}, r"noise_variance for views \['a', 'b'\], got 'c'"),
        ({"noise_variance": {"a": -1.0}}, "a positive noise_variance for view 'a', got -1.0"),
        ({"noise_variance": {"a": True}}, "a positive noise_variance for view 'a', got True"),
        (
            {"noise_variance": {"b": 1.0}, "likelihood": {"b": "bernoulli"}},
            "noise_variance for Gaussian views, and 'b' is bernoulli, got 1.0. Leave 'b' out",
        ),
        (
            {"noise_variance": 1.0, "noise": "column"},
            "one noise variance for view 'a', got noise_variance=1.0 with a noise variance per col",
        ),
    ],
)
def test_what_cannot_be_fixed_is_refused(options, text):
    X = data()
    X[:, VIEWS["b"]] = X[:, VIEWS["b"]] > 0
    with pytest.raises(InputError, match=text):
        bo.NGMVLVM(2, **QUICK, views=VIEWS, **options).fit(X)
    with pytest.raises(ValueError, match="'noise_variance' parameter of NGMVLVM must be"):
        bo.NGMVLVM(2, **QUICK, noise_variance=0.0).fit(X)
