"""Data and options that hypothesis chooses: a finite answer or a named error.

The same examples every time; the fault campaign (`make campaign`) draws others by the thousand.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import bochner as bo
from campaign.cases import ANY, CONTAINERS
from campaign.oracle import changes, is_named, not_finite, process_state

QUICK = {"n_frequencies": 2, "n_mixtures": 1, "max_iter": 3, "init": "pca"}
EXAMPLES = settings(
    max_examples=15,
    phases=[Phase.explicit, Phase.generate],  # Phase.shrink looks for a smaller example
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
COUNTS = ("poisson", "negative_binomial", "binomial", "bernoulli", "categorical")


def numbers(likelihood):
    """Entries that a likelihood takes, and some that it does not."""
    if likelihood == "gaussian":
        return st.floats(-1.0, 1.0, width=32)
    most = {"bernoulli": 1, "binomial": 10, "categorical": 4}.get(likelihood, 10**6)
    return st.integers(0, most).map(float) | st.sampled_from([0.0, 1.0])


@st.composite
def tables(draw, likelihood="gaussian", least=2):
    """A table with holes at a scale of its own, and the container that it comes in."""
    shape = draw(st.tuples(st.integers(least, 9), st.integers(1, 5)))
    values = draw(hnp.arrays(np.float64, shape, elements=numbers(likelihood)))
    if likelihood == "gaussian":
        values = (
            values * 10.0 ** draw(st.integers(-30, 30)) * draw(st.sampled_from([1.0, -1.0]))
        )
        values = values + draw(st.sampled_from([0.0, 1.0, 1e3])) * np.abs(values).max()
    holes = draw(hnp.arrays(np.bool_, shape, elements=st.integers(0, 5).map(lambda i: i == 0)))
    if draw(st.booleans()):
        values[holes] = np.nan
    containers = ANY if np.isnan(values).any() else (*ANY, "csr", "coo", "torch")
    return values, CONTAINERS[draw(st.sampled_from(containers))]


def judged(estimator, values, pack):
    """Fit and ask; return what came, or None where a named error did."""
    before, given_ = process_state(), values.copy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        inside = process_state()
        try:
            model = estimator.fit(pack(values))
            mean, std = model.transform(pack(values), return_std=True)
            some = model.embedding_[:3]
            result = {
                **{
                    n: value
                    for n, value in vars(model).items()
                    if n.endswith("_") and n[0] != "_"
                },
                "embedding_": model.embedding_,
                "transform": (mean, std),
                "inverse_transform": model.inverse_transform(some, return_std=True),
                "score_samples": model.score_samples(pack(values[:1])),
                "backwards": model.transform(pack(values[::-1])),
            }
        except Exception as error:
            if not is_named(error):
                raise
            result = None
        assert changes(inside, process_state()) == []
    assert changes(before, process_state()) == []
    np.testing.assert_array_equal(values, given_)
    if result is None:
        return None
    for name, value in result.items():
        assert not_finite(name, value) == []
    np.testing.assert_allclose(result["backwards"][::-1], result["transform"][0], atol=1e-3)
    return result


@pytest.mark.parametrize("name", ["NGMVLVM", "AdvisedRFLVM", "RandomFeatureLVM", "SRFLVM"])
@settings(EXAMPLES, max_examples=4)
@given(st.data())
def test_any_table_is_fitted_or_refused(name, data):
    values, pack = data.draw(tables())
    options = {
        "n_components": data.draw(st.integers(1, 3)),
        "dtype": data.draw(st.sampled_from(["float32", "float64"])),
        "random_state": 0,
    }
    judged(getattr(bo, name)(**QUICK, **options), values, pack)


@pytest.mark.parametrize("likelihood", COUNTS)
@settings(EXAMPLES, max_examples=2)
@given(st.data())
def test_any_counts_are_fitted_or_refused(likelihood, data):
    values, pack = data.draw(tables(likelihood))
    model = bo.NGMVLVM(likelihood=likelihood, random_state=0, **QUICK)
    judged(model, values, pack)


@pytest.mark.parametrize(
    "name", ["FourierFeatures", "KreinFeatures", "RandomMaclaurin", "SphericalFeatures"]
)
@EXAMPLES
@given(st.data())
def test_any_rows_have_features_or_are_refused(name, data):
    values, pack = data.draw(tables(least=1))
    order = np.asarray(data.draw(st.permutations(range(len(values)))))
    model = getattr(bo, name)(n_components=4, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            features = np.asarray(model.fit(pack(values)).transform(pack(values)))
            moved = np.asarray(model.transform(pack(values[order])))
        except Exception as error:
            if not is_named(error):
                raise
            return
    assert not_finite("features", features) == []
    np.testing.assert_allclose(
        moved, features[order], atol=1e-5 * max(np.abs(features).max(), 1e-300)
    )
