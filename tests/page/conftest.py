"""The browser that pages are opened in."""

import os
import shutil
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
CHROMIUM = os.environ.get("BOCHNER_CHROMIUM") or next(
    (found for name in NAMES if (found := shutil.which(name))), None
)


@pytest.fixture(scope="session")
def browser():
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="needs playwright: make browser"
    )
    with playwright.sync_playwright() as driver:
        executable = CHROMIUM or driver.chromium.executable_path
        if not Path(executable).is_file():
            pytest.skip(
                "no Chromium on this machine: install one, or name it in BOCHNER_CHROMIUM"
            )
        started = driver.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        yield started
        started.close()
