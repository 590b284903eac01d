"""What several tests of commands share."""

import pytest

from bochner.io import on_disk


@pytest.fixture
def read_by_blocks(monkeypatch):
    """Let small tables be read as large ones."""
    monkeypatch.setattr(on_disk, "MANY", 0)
