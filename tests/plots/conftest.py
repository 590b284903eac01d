"""One small model for the tests of pictures."""

import warnings

import numpy as np
import pytest

import bochner as bo


@pytest.fixture(scope="package")
def model():
    source = np.random.default_rng(0)
    z = source.normal(size=(30, 2))
    X = np.sin(z @ source.normal(size=(2, 7))) + 0.1 * source.normal(size=(30, 7))
    views = {"left": slice(0, 3), "right": slice(3, 7)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return bo.NGMVLVM(
            2, views=views, n_frequencies=10, n_init=1, max_iter=15, random_state=0
        ).fit(X)
