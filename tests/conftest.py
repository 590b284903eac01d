"""What every test runs under."""

import numpy as np
import pytest


@pytest.fixture
def rng():
    """A generator of the test's own: no test depends on the order of others."""
    return np.random.default_rng(0)
