"""What several tests of commands share."""

import pytest

from bochner.io import on_disk
from bochner.model_selection import cost
from helpers.cli import no_stds_in


@pytest.fixture
def read_by_blocks(monkeypatch):
    """Let small tables be read as large ones."""
    monkeypatch.setattr(on_disk, "MANY", 0)


@pytest.fixture
def rough_estimates(monkeypatch):
    """Estimates by shorter fits of fewer rows: for tests that do not look at their figures."""
    monkeypatch.setattr(cost, "TRIAL_ROWS", 30)
    monkeypatch.setattr(cost, "FEW_STEPS", 1)
    monkeypatch.setattr(cost, "MORE_STEPS", 2)


@pytest.fixture
def no_pictures(monkeypatch):
    """Fits that draw nothing: for tests that do not look at what is drawn."""
    monkeypatch.setattr("bochner.cli.fit._pictures", lambda *_: [])


@pytest.fixture
def no_estimates(monkeypatch):
    """Descriptions of data without trial fits: for tests that do not look at estimates."""
    monkeypatch.setattr("bochner.cli.info._estimate", lambda *_: {})


@pytest.fixture
def no_stds(monkeypatch):
    """Rows whose standard deviations are not sought: for tests that do not look at them."""
    no_stds_in(monkeypatch)
