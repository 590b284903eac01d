"""What every test runs under."""

import numpy as np
import pytest

from helpers.forks import Forks


@pytest.fixture
def rng():
    """A generator of the test's own: no test depends on the order of others."""
    return np.random.default_rng(0)


@pytest.fixture
def few_draws(monkeypatch):
    """Fits whose bound and posterior are known less well: for tests that do not look at them."""
    from helpers.few_draws import know_less

    know_less(monkeypatch.setattr)


@pytest.fixture(scope="module")
def few_draws_in_module():
    """The same for all tests of a module, and for what they share."""
    from helpers.few_draws import know_less

    with pytest.MonkeyPatch.context() as patch:
        know_less(patch.setattr)
        yield


@pytest.fixture
def two_folds(monkeypatch):
    """How rows that lack a view are completed is chosen by fewer folds: for tests that do not look
    at which way was found the better one.
    """
    monkeypatch.setattr("bochner.prediction.tempering._FOLDS", 2)


@pytest.fixture
def quick_choice(two_folds, monkeypatch):
    """The same by few rows besides, and by no fit of its own."""
    monkeypatch.setattr("bochner.prediction.tempering._PLACED_ROWS", 10)
    monkeypatch.setattr("bochner.fitting.completion_choice._LEAST_ROWS", 1000)


@pytest.fixture(scope="session")
def forks():
    """What starts processes that begin with everything imported."""
    with Forks() as started:
        yield started
