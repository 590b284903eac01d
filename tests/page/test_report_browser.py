"""The report page in headless Chromium: it loads, answers pointer and keys, exports, and stays
quiet.

Skipped where playwright or a browser is absent; nothing is installed here. ``BOCHNER_CHROMIUM``
names a browser that is not on the path.
"""

import csv
import os
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest

import bochner as bo

playwright = pytest.importorskip(
    "playwright.sync_api", reason="needs playwright: pip install playwright"
)

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
CHROMIUM = os.environ.get("BOCHNER_CHROMIUM") or next(
    (found for name in NAMES if (found := shutil.which(name))), None
)
N = 60


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        own = CHROMIUM or driver.chromium.executable_path
        if not Path(own).is_file():
            pytest.skip("no Chromium on this machine: install one, or name it in BOCHNER_CHROMIUM")
        started = driver.chromium.launch(executable_path=own, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def model():
    from bochner.datasets import load_digits_halves

    bunch = load_digits_halves()
    X = np.hstack(
        [bunch.data[:N], np.random.default_rng(0).normal(size=(N, 3)) + bunch.target[:N, None]]
    )
    X[2, :32] = np.nan
    views = {"upper": slice(0, 32), "lower": slice(32, 64), "table": slice(64, 67)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        own = bo.NGMVLVM(
            3, views=views, n_frequencies=8, init="pca", max_iter=8, random_state=0
        ).fit(X)
    return own, X, bunch.target[:N]


class Page:
    """A page that is open, with what it said and asked for."""

    def __init__(self, browser, path, **options):
        self.errors, self.requests = [], []
        self.tab = browser.new_page(**options)
        self.tab.on(
            "console", lambda said: self.errors.append(said.text) if said.type == "error" else None
        )
        self.tab.on("pageerror", lambda error: self.errors.append(str(error)))
        self.tab.on("request", lambda asked: self.requests.append(asked.url))
        self.tab.goto(path.as_uri())
        self.tab.wait_for_selector("html[data-ready]", state="attached", timeout=60_000)

    def text(self, selector):
        return self.tab.inner_text(selector)

    def place(self, across, up):
        box = self.tab.locator("#map").bounding_box()
        return box["x"] + across * box["width"], box["y"] + (1 - up) * box["height"]

    def row_on_screen(self, i):
        """Where row i is drawn, from the ranges of the map itself."""
        return self.tab.evaluate(
            """(i) => {
                const box = document.getElementById("map").getBoundingClientRect();
                const [x, y] = window.bochnerPage.toScreen(i);
                return [box.x + x, box.y + y];
            }""",
            i,
        )


@pytest.fixture(scope="module")
def path(model, tmp_path_factory):
    own, X, labels = model
    shapes = {"upper": (4, 8), "lower": (4, 8)}
    names = [f"digit {i}" for i in range(N)]
    return bo.report(
        own,
        X,
        {"digit": labels},
        path=tmp_path_factory.mktemp("page") / "r.html",
        shapes=shapes,
        row_names=names,
    )


@pytest.fixture
def page(browser, path):
    opened = Page(browser, path, viewport={"width": 1300, "height": 1000}, accept_downloads=True)
    yield opened
    opened.tab.close()
    assert opened.errors == []
    assert all(url.startswith(("file:", "blob:", "data:")) for url in opened.requests)


def test_the_page_loads_and_every_figure_is_drawn(page):
    for target in ("#bound", "#kernels > div:first-child", "#versions"):
        page.tab.locator(target).scroll_into_view_if_needed()
    page.tab.wait_for_function(
        "document.querySelectorAll('#bound > *, #kernels > div > *').length === 4"
    )
    assert page.text("h1") == "bochner report"
    assert "60 rows, 3 latent dimensions" in page.text("header")
    assert page.tab.locator("#relevance tr").count() == 4
    assert page.tab.locator("#legend button").count() == 10
    assert not page.tab.locator("#failure").is_visible()


def test_pointing_at_a_row_shows_its_data(page, model):
    _, X, labels = model
    page.tab.mouse.move(*page.row_on_screen(7))
    page.tab.wait_for_function("document.getElementById('row').innerText.includes('digit 7')")
    assert f"digit: {labels[7]}" in page.text("#row")
    assert page.tab.locator("#row canvas").count() >= 4  # data and decoded of two halves
    shown = [
        float(text.replace("−", "-"))
        for text in page.tab.locator("#row .bars .numbers").all_inner_texts()
    ]
    np.testing.assert_allclose(sorted(shown), sorted(X[7, 64:]), rtol=0.01, atol=0.01)
    page.tab.mouse.move(*page.row_on_screen(2))
    page.tab.wait_for_function("document.getElementById('row').innerText.includes('digit 2')")
    assert "blue: missing" in page.text("#row")


def test_a_click_anywhere_decodes_that_place(page, model):
    own, _, _ = model
    page.tab.mouse.click(*page.place(0.35, 0.4))
    page.tab.wait_for_timeout(300)
    first, second = page.tab.evaluate("window.bochnerPage.cross()")
    values = page.tab.locator("#place .numbers").all_inner_texts()
    axes = [int(page.tab.input_value(f"#{name}")) for name in ("dim-x", "dim-y")]
    z = own.embedding_.mean(axis=0, keepdims=True)
    z[0, axes] = first, second
    mean, std = own.inverse_transform(z, return_std=True)
    shown = [value.replace("−", "-").split(" ± ") for value in values if " ± " in value]
    assert len(shown) == 3
    np.testing.assert_allclose(
        sorted(float(own[0]) for own in shown), sorted(mean[0, 64:]), atol=0.05
    )
    np.testing.assert_allclose(
        sorted(float(own[1]) for own in shown), sorted(std[0, 64:]), rtol=0.05
    )


def test_a_lasso_chooses_rows_and_exports_them(page, model, tmp_path):
    own, _, labels = model
    page.tab.click("#tool-lasso")
    assert page.tab.get_attribute("#tool-lasso", "aria-pressed") == "true"
    page.tab.mouse.move(*page.place(0.12, 0.15))
    page.tab.mouse.down()
    for corner in ((0.95, 0.15), (0.95, 0.95), (0.12, 0.95), (0.12, 0.2)):
        page.tab.mouse.move(*page.place(*corner), steps=8)
    page.tab.mouse.up()
    page.tab.wait_for_selector("#export:not([disabled])")
    with page.tab.expect_download() as waiting:
        page.tab.click("#export")
    waiting.value.save_as(tmp_path / "rows.csv")
    rows = list(csv.DictReader((tmp_path / "rows.csv").open(newline="")))
    assert len(rows) > N / 2
    assert list(rows[0]) == ["row", "name", "z0", "z1", "z2", "z0_std", "z1_std", "z2_std", "digit"]
    for row in rows:
        i = int(row["row"])
        assert (row["name"], row["digit"]) == (f"digit {i}", str(labels[i]))
        np.testing.assert_allclose(
            [float(row[f"z{d}"]) for d in range(3)], own.embedding_[i], rtol=1e-5
        )
    page.tab.click("#clear")
    assert page.tab.is_disabled("#export")


def test_classes_colours_dimensions_and_shade(page, model):
    _, _, labels = model
    page.tab.click("#legend button >> nth=3")
    assert page.text("#export") == f"Export {int((labels == 3).sum())} rows (csv)"
    options = page.tab.locator("#colour-by option").all_inner_texts()
    assert {"digit", "standard deviation of the latents", "mean of upper", "66"} <= set(options)
    page.tab.select_option("#colour-by", label="standard deviation of the latents")
    assert page.tab.locator("#legend .ramp").count() == 1
    page.tab.select_option("#shade-by", index=2)
    before = page.text("#place")
    page.tab.select_option("#dim-x", "2")
    axes = [page.tab.input_value(f"#{name}") for name in ("dim-x", "dim-y")]
    assert axes[0] == "2"
    assert axes[1] != "2"
    assert page.text("#place") != before


def test_the_map_works_from_the_keyboard(page):
    page.tab.focus("#map")
    page.tab.keyboard.press("n")
    page.tab.keyboard.press("n")
    assert "digit 1 (kept)" in page.text("#row")
    before = page.text("#place")
    page.tab.keyboard.press("Shift+ArrowRight")
    assert page.text("#place") != before
    assert "nearest: digit" in page.text("#live")
    page.tab.keyboard.press("Enter")
    assert page.text("#live").startswith("kept: digit")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_narrow_and_dark_pages_do_not_run_over(browser, path, scheme):
    own = Page(browser, path, viewport={"width": 390, "height": 800}, color_scheme=scheme)
    assert own.tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    paper, ink = own.tab.evaluate(
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
    )
    bright = [sum(int(c) for c in colour[4:-1].split(",")) for colour in (paper, ink)]
    assert (bright[0] > bright[1]) == (scheme == "light")
    own.tab.close()
    assert own.errors == []


@pytest.mark.parametrize("kind", ["one dimension, no data", "many rows"])
def test_other_pages_are_drawn_as_well(browser, tmp_path, kind):
    n, d = (40, 1) if kind.startswith("one") else (3200, 2)
    X = np.random.default_rng(1).normal(size=(n, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = bo.NGMVLVM(
            d, n_frequencies=4, init="pca", max_iter=2, landmarks=40, random_state=0
        ).fit(X)
    own = Page(browser, bo.report(model, X if d == 2 else None, path=tmp_path / "r.html"))
    own.tab.mouse.move(*own.row_on_screen(5))
    own.tab.wait_for_function("document.getElementById('row').innerText.includes('row ')")
    own.tab.mouse.click(*own.place(0.5, 0.5))
    assert "±" in own.text("#place")
    own.tab.close()
    assert own.errors == []
