"""The report page in headless Chromium: it loads, answers pointer and keys, exports, and stays
quiet.

`make browser` installs playwright and runs them. Skipped where playwright or a browser is absent;
``BOCHNER_CHROMIUM`` names a browser that is not on the path.
"""

import copy
import csv
import re
import warnings

import numpy as np
import pytest

import bochner as bo
from helpers.open_page import Page

pandas = pytest.importorskip("pandas")

N = 60


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
        fitted = bo.NGMVLVM(
            3, views=views, n_frequencies=8, init="pca", max_iter=8, random_state=0
        ).fit(X)
    return fitted, X, bunch.target[:N]


@pytest.fixture(scope="module")
def path(model, tmp_path_factory):
    fitted, X, labels = model
    shapes = {"upper": (4, 8), "lower": (4, 8)}
    names = [f"digit {i}" for i in range(N)]
    return bo.report(
        fitted,
        X,
        {"digit": labels},
        path=tmp_path_factory.mktemp("page") / "r.html",
        shapes=shapes,
        row_names=names,
    )


@pytest.fixture
def page(browser, path):
    opened = Page(
        browser, path, viewport={"width": 1300, "height": 1000}, accept_downloads=True
    )
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


def test_axes_of_narrow_pages_have_two_numbers_at_least(browser, model, tmp_path):
    # of 80 steps, one multiple of 50
    long = copy.copy(model[0])
    long.elbo_history_ = np.linspace(-7500.0, -6600.0, 80)
    page = bo.report(long, path=tmp_path / "r.html")
    opened = Page(browser, page, viewport={"width": 390, "height": 800})
    opened.tab.locator("#bound").scroll_into_view_if_needed()
    opened.tab.wait_for_selector("#bound svg")
    for of_axis in ("text.tick.middle", "text.tick.end"):  # steps, nats
        labels = opened.tab.locator(f"#bound {of_axis}").all_text_contents()
        assert len(set(labels)) == len(labels) >= 2
    opened.tab.close()
    assert opened.errors == []


def test_numbers_beside_covariances_of_large_data_are_not_cut_off(browser, tmp_path):
    X = 3e7 * np.random.default_rng(0).normal(size=(30, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = bo.NGMVLVM(n_frequencies=8, init="pca", max_iter=3, random_state=0).fit(X)
    opened = Page(browser, bo.report(fitted, X, path=tmp_path / "large.html"))
    opened.tab.locator("#kernels").scroll_into_view_if_needed()
    opened.tab.wait_for_selector("#kernels svg.chart text")
    beyond = opened.tab.evaluate(
        """[...document.querySelectorAll('#kernels svg.chart')].map((chart) =>
        Math.max(...[...chart.querySelectorAll('text')].map((text) =>
        text.getBoundingClientRect().right)) - chart.getBoundingClientRect().right)"""
    )
    assert len(beyond) == 1
    assert max(beyond) <= 0.0
    assert opened.errors == []
    opened.tab.close()


def test_shares_of_many_dimensions_stand_on_one_line(browser, tmp_path):
    X = np.random.default_rng(0).normal(size=(40, 14))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = bo.NGMVLVM(12, n_frequencies=8, init="pca", max_iter=2, random_state=0).fit(X)
    page = bo.report(model, path=tmp_path / "r.html")
    opened = Page(browser, page, viewport={"width": 800, "height": 800})
    heights = opened.tab.evaluate(
        "[...document.querySelectorAll('#relevance td')].map((cell) => cell.offsetHeight)"
    )
    assert len(heights) == 12
    assert max(heights) < 32
    opened.tab.close()
    assert opened.errors == []


def test_columns_below_the_edge_of_their_box_cast_a_shadow(page):
    places = page.tab.locator("#place .bars")
    style = places.last.evaluate(
        "box => { const {backgroundAttachment, backgroundImage} = getComputedStyle(box);"
        " return [backgroundAttachment, backgroundImage.split('linear-gradient').length]; }"
    )
    assert style == ["local, scroll", 3]


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
    fitted, _, _ = model
    page.tab.mouse.click(*page.place(0.35, 0.4))
    page.tab.wait_for_timeout(300)
    first, second = page.tab.evaluate("window.bochnerPage.cross()")
    values = page.tab.locator("#place .numbers").all_inner_texts()
    axes = [int(page.tab.input_value(f"#{name}")) for name in ("dim-x", "dim-y")]
    z = fitted.embedding_.mean(axis=0, keepdims=True)
    z[0, axes] = first, second
    mean, std = fitted.inverse_transform(z, return_std=True)
    shown = [value.replace("−", "-").split(" ± ") for value in values if " ± " in value]
    assert len(shown) == 3
    np.testing.assert_allclose(
        sorted(float(pair[0]) for pair in shown), sorted(mean[0, 64:]), atol=0.05
    )
    np.testing.assert_allclose(
        sorted(float(pair[1]) for pair in shown), sorted(std[0, 64:]), rtol=0.05
    )


def test_a_lasso_chooses_rows_and_exports_them(page, model, tmp_path):
    fitted, _, labels = model
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
    assert list(rows[0]) == [
        "row",
        "name",
        "z0",
        "z1",
        "z2",
        "z0_std",
        "z1_std",
        "z2_std",
        "digit",
    ]
    for row in rows:
        i = int(row["row"])
        assert (row["name"], row["digit"]) == (f"digit {i}", str(labels[i]))
        np.testing.assert_allclose(
            [float(row[f"z{d}"]) for d in range(3)], fitted.embedding_[i], rtol=1e-5
        )
    page.tab.click("#clear")
    assert page.tab.is_disabled("#export")


def test_classes_colours_dimensions_and_shade(page, model):
    _, _, labels = model
    page.tab.click("#legend button >> nth=3")
    assert page.text("#export") == f"Export {int((labels == 3).sum())} rows (csv)"
    options = page.tab.locator("#colour-by option").all_inner_texts()
    assert {"digit", "standard deviation of the latents", "mean of upper", "66"} <= set(
        options
    )
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
    opened = Page(browser, path, viewport={"width": 390, "height": 800}, color_scheme=scheme)
    assert opened.tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    paper, ink = opened.tab.evaluate(
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
    )
    bright = [sum(int(c) for c in colour[4:-1].split(",")) for colour in (paper, ink)]
    assert (bright[0] > bright[1]) == (scheme == "light")
    opened.tab.close()
    assert opened.errors == []


@pytest.mark.parametrize("kind", ["one dimension, no data", "many rows"])
def test_other_pages_are_drawn_as_well(browser, tmp_path, kind):
    n, d = (40, 1) if kind.startswith("one") else (3200, 2)
    X = np.random.default_rng(1).normal(size=(n, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = bo.NGMVLVM(
            d, n_frequencies=4, init="pca", max_iter=2, landmarks=40, random_state=0
        ).fit(X)
    opened = Page(browser, bo.report(model, X if d == 2 else None, path=tmp_path / "r.html"))
    opened.tab.mouse.move(*opened.row_on_screen(5))
    opened.tab.wait_for_function("document.getElementById('row').innerText.includes('row ')")
    opened.tab.mouse.click(*opened.place(0.5, 0.5))
    assert "±" in opened.text("#place")
    opened.tab.close()
    assert opened.errors == []


def test_columns_of_labels_show_labels_and_probabilities(browser, tmp_path):
    source = np.random.default_rng(2)
    z = source.normal(size=60)
    table = pandas.DataFrame(
        {
            "height": z + 0.1 * source.normal(size=60),
            "kind": pandas.Categorical(
                np.array(["low", "middle", "high"])[np.digitize(z, (-1, 1))]
            ),
            "sick": z > 0,
        }
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = bo.NGMVLVM(
            1, n_frequencies=8, init="pca", max_iter=60, likelihood="auto", random_state=0
        ).fit(table)
    model.set_params(random_state=1234567)
    opened = Page(browser, bo.report(model, table, path=tmp_path / "r.html"))
    # a seed is copied from here, so that it stands as it is typed
    assert "1234567" in opened.text("#settings")
    opened.tab.mouse.move(*opened.row_on_screen(4))
    opened.tab.wait_for_function("document.getElementById('row').innerText.includes('row 4')")
    shown = opened.tab.locator("#row .bars .numbers").all_inner_texts()
    assert {table["kind"][4], str(table["sick"][4])} <= set(shown)
    opened.tab.mouse.click(*opened.place(0.5, 0.5))
    decoded = opened.tab.locator("#place .bars .numbers").all_inner_texts()
    assert (
        len([text for text in decoded if re.fullmatch(r"(low|middle|high) \(\d+ %\)", text)])
        == 1
    )
    assert (
        len([text for text in decoded if re.fullmatch(r"(True|False) \(\d+ %\)", text)]) == 1
    )
    opened.tab.close()
    assert opened.errors == []


# -- hostile text
# ---------------------------------------------------------------------------

HOSTILE = {
    "image": "<img src=x onerror=window.stolen=1>",
    "script": "</script><script>window.stolen=1</script>",
    "attribute": '"\' onfocus=window.stolen=1 autofocus x="',
    "svg": "<svg/onload=window.stolen=1>",
    "template": "${window.stolen=1}{{constructor.constructor('window.stolen=1')()}}",
    "comment": "<!--<script>",
    "prototype": "__proto__",
    "constructor": "constructor",
    "entity": "&lt;img src=x onerror=window.stolen=1&gt;",
    "direction": "a\u202eb\x00\x1b[31m",
    "formula": "=HYPERLINK(0)",
    "url": "javascript:window.stolen=1",
}


def hostile_model(text):
    """A model whose every name is hostile, as a file that was made to harm may hold it."""
    source = np.random.default_rng(2)
    columns = [f"{text}{j}" for j in range(5)]
    X = pandas.DataFrame(source.normal(size=(30, 5)), columns=columns)
    views = {text: columns[:3], f"{text} ": columns[3:]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = bo.NGMVLVM(
            3, views=views, n_frequencies=4, init="pca", max_iter=2, random_state=0
        ).fit(X)
    model.likelihood_ = dict.fromkeys(model.likelihood_, text)
    model.starts_ = [{text: text, "init": text, **model.starts_[0]}, {text: {text: [text]}}]
    model.n_mixtures_ = text
    model.checkpoint = f"/home/{text}"
    return model, X


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_text_stays_text_in_every_field(browser, tmp_path, kind):
    text = HOSTILE[kind]
    model, X = hostile_model(text)
    rows = [f"{text}{i}" for i in range(30)]
    labels = {text: [text, f"{text} b"] * 15, f"{text} age": np.linspace(0.1, 1, 30)}
    path = bo.report(
        model,
        X,
        labels,
        path=tmp_path / "r.html",
        row_names=rows,
        title=text,
        calibration=bo.calibration(model, X.iloc[:9], n_draws=10, random_state=0),
        embedding={text: model.embedding_[:, :2]},
    )
    opened = Page(browser, path, accept_downloads=True)
    tab = opened.tab
    known = "[...new Set([...document.querySelectorAll('*')].map((e) => e.tagName))].sort()"
    tags = set(tab.evaluate(known))
    for name in ("#dim-x", "#colour-by", "#shade-by", "#layout"):
        for value in tab.locator(f"{name} option").evaluate_all(
            "all => all.map((o) => o.value)"
        ):
            tab.select_option(name, value)
    tab.select_option("#layout", "")
    tab.select_option("#colour-by", index=0)
    tab.click("#legend button >> nth=0")
    tab.fill("#search", text[:1])
    tab.press("#search", "Enter")
    tab.focus("#map")
    tab.keyboard.press("n")
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    with tab.expect_download():
        tab.click("#picture")
    with tab.expect_download() as waiting:
        tab.click("#export")
    waiting.value.save_as(tmp_path / "rows.csv")
    assert tab.evaluate("window.stolen") is None
    assert tab.evaluate("Object.prototype.stolen") is None
    # markup drops this character
    assert tab.evaluate("document.querySelector('h1').textContent") == text.replace("\x00", "")
    assert text in tab.evaluate("document.getElementById('starts').textContent")
    assert text in tab.evaluate("document.getElementById('row').textContent")
    assert text in tab.evaluate("document.getElementById('selection-columns').textContent")
    assert text in tab.evaluate("document.getElementById('legend').textContent")
    made = {
        "B",
        "CANVAS",
        "path",
        "text",
        "circle",
        "rect",
        "ellipse",
        "image",
        "g",
        "svg",
        "FIGURE",
    }
    made |= {"clipPath", "FIGCAPTION", "OPTGROUP", "TD", "TH", "TR", "THEAD", "TBODY", "TABLE"}
    assert set(tab.evaluate(known)) - tags <= made
    styled = "[...document.querySelectorAll('[style]')].every((e) => e.matches('i, td'))"
    assert tab.evaluate(styled)
    assert tab.locator("script").count() == 4
    assert not tab.locator("#failure").is_visible()
    tab.close()
    assert opened.errors == []
    assert all(url.startswith(("file:", "blob:", "data:")) for url in opened.requests)


def test_the_policy_stops_what_is_put_into_the_page(browser, path):
    """Each of the ways by which text becomes code is closed, not only unused."""
    opened = Page(browser, path)
    # in a task of the page: what a debugger runs at once is free of the policy
    closed = opened.tab.evaluate("""() => new Promise((done) => setTimeout(() => {
        const closed = [];
        const attempt = (name, action) => {
            try { action(); } catch (error) { closed.push(name); }
        };
        attempt("eval", () => (0, eval)("1"));
        attempt("Function", () => new Function("1"));
        attempt("innerHTML", () => { document.body.innerHTML = "<b>x</b>"; });
        attempt("adjacent", () => document.body.insertAdjacentHTML("beforeend", "x"));
        const button = document.createElement("button");
        attempt("handler", () => button.setAttribute("onclick", "window.stolen = 1"));
        done(closed);
    }, 0))""")
    assert closed == ["eval", "Function", "innerHTML", "adjacent", "handler"]
    opened.tab.evaluate("""() => {
        const made = document.createElement("div");
        made.setAttribute("style", "position: fixed; top: 7px");
        document.body.append(made);
    }""")
    assert (
        opened.tab.evaluate("getComputedStyle(document.body.lastChild).position") == "static"
    )
    opened.tab.close()


# -- search, statistics, picture, layout, paper
# ---------------------------------------------------------------------------


def test_a_row_is_found_by_its_name(page):
    page.tab.fill("#search", "digit 1")
    assert page.tab.locator("#found button").first.inner_text() == "digit 1"
    assert page.tab.locator("#found button").last.inner_text() == "Select all 11 rows"
    page.tab.press("#search", "Enter")
    assert "digit 1 (kept)" in page.text("#row")
    page.tab.click("#found button >> nth=1")
    assert "digit 10 (kept)" in page.text("#row")
    page.tab.click("#found button:last-of-type")
    assert page.tab.evaluate("window.bochnerPage.chosen()") == [1, *range(10, 20)]
    page.tab.fill("#search", "nobody")
    assert page.text("#found") == "No row has such a name."
    page.tab.fill("#search", "")
    assert page.text("#found") == ""


def cohen(X, chosen):
    """Cohen's d and its standard error (Hedges and Olkin, 1985), missing entries left out."""
    mask = np.zeros(len(X), bool)
    mask[chosen] = True
    out = []
    for column in X.T:
        a, b = (part[~np.isnan(part)] for part in (column[mask], column[~mask]))
        n = len(a) + len(b)
        pooled = ((len(a) - 1) * a.var(ddof=1) + (len(b) - 1) * b.var(ddof=1)) / (n - 2)
        d = (a.mean() - b.mean()) / np.sqrt(pooled)
        se = np.sqrt(n / (len(a) * len(b)) + d**2 / (2 * n))
        out.append((d, se, a.mean(), b.mean()))
    return np.array(out)


def test_statistics_of_a_selection_are_those_of_the_data(page, model):
    _, X, labels = model
    chosen = np.flatnonzero(labels >= 6).tolist()
    page.tab.evaluate("(rows) => window.bochnerPage.choose(rows)", chosen)
    assert f"{len(chosen)} rows of {N}" in page.text("#selection-text")
    lines = page.tab.locator("#selection-columns tbody tr").all_inner_texts()
    shown = [line.replace("−", "-").split("\t") for line in lines]
    expected = cohen(X[:, 64:], chosen)
    order = np.argsort(-np.abs(expected[:, 0]), kind="stable")
    assert [line[:2] for line in shown] == [[str(64 + j), "table"] for j in order]
    for line, j in zip(shown, order, strict=True):
        d, se = (float(part) for part in line[4].split(" ± "))
        np.testing.assert_allclose([d, se], expected[j, :2], rtol=6e-3)
        means = [float(line[2]), float(line[3])]
        np.testing.assert_allclose(means, expected[j, 2:], rtol=6e-3, atol=1e-3)
    assert page.tab.locator("#selection-images canvas").count() == 6
    lines = page.tab.locator("#selection-label-0 tbody tr").all_inner_texts()
    counts = {line.split("\t")[0]: int(line.split("\t")[1]) for line in lines}
    assert counts == {str(k): int((labels == k).sum()) for k in range(6, 10)}
    page.tab.click("#clear")
    assert not page.tab.locator("#selection-section").is_visible()


def test_the_map_is_exported_as_a_picture(page, tmp_path):
    from struct import unpack

    with page.tab.expect_download() as waiting:
        page.tab.click("#picture")
    assert waiting.value.suggested_filename == "map.png"
    waiting.value.save_as(tmp_path / "map.png")
    body = (tmp_path / "map.png").read_bytes()
    assert body[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = unpack(">II", body[16:24])
    box = page.tab.locator("#map").bounding_box()
    assert width == 2 * round(box["width"])
    assert height > 2 * round(box["height"])  # the legend is in it


def test_a_supplied_layout_moves_the_rows_and_nothing_is_decoded_there(
    browser, model, tmp_path
):
    fitted, X, labels = model
    places = np.random.default_rng(3).normal(size=(N, 2)) * [30, 4] + 100
    path = bo.report(fitted, X, labels, path=tmp_path / "r.html", embedding={"umap": places})
    opened = Page(browser, path)
    tab = opened.tab
    before = np.array(
        [tab.evaluate("(i) => window.bochnerPage.toScreen(i)", i) for i in range(5)]
    )
    tab.select_option("#layout", label="umap")
    tab.wait_for_timeout(100)
    moved = np.array(
        [tab.evaluate("(i) => window.bochnerPage.toScreen(i)", i) for i in range(N)]
    )
    for k in (0, 1):
        assert abs(np.corrcoef(moved[:, k], places[:, k])[0, 1]) > 0.999999
    assert not tab.locator("#dim-x").is_visible()
    assert "not places of the latent space" in opened.text("#place")
    tab.mouse.move(*opened.row_on_screen(7))
    tab.wait_for_function("document.getElementById('row').innerText.includes('row 7')")
    tab.select_option("#layout", label="latent dimensions")
    after = np.array(
        [tab.evaluate("(i) => window.bochnerPage.toScreen(i)", i) for i in range(5)]
    )
    np.testing.assert_array_equal(after, before)
    assert "±" in opened.text("#place")
    tab.close()
    assert opened.errors == []


def test_text_that_a_spreadsheet_would_run_is_quoted_and_numbers_are_not(
    browser, model, tmp_path
):
    fitted, X, _ = model
    names = [f"{'=+-@'[i % 4]}cell {i}" for i in range(N)]
    labels = {"=kind": [f"@{i % 3}" for i in range(N)], "score": -np.linspace(0.1, 1, N)}
    opened = Page(
        browser, bo.report(fitted, X, labels, path=tmp_path / "r.html", row_names=names)
    )
    opened.tab.evaluate("window.bochnerPage.choose([0, 1, 2, 3])")
    with opened.tab.expect_download() as waiting:
        opened.tab.click("#export")
    waiting.value.save_as(tmp_path / "rows.csv")
    rows = list(csv.DictReader((tmp_path / "rows.csv").open(newline="")))
    assert [row["name"] for row in rows] == [f"'{name}" for name in names[:4]]
    assert [row["'=kind"] for row in rows] == ["'@0", "'@1", "'@2", "'@0"]
    assert [float(row["score"]) for row in rows] == pytest.approx(
        labels["score"][:4], rel=1e-6
    )
    opened.tab.close()
    assert opened.errors == []


def test_paper_shows_every_figure_in_light_colours(browser, path):
    opened = Page(browser, path, color_scheme="dark")
    assert opened.tab.locator("#kernels svg").count() == 0
    opened.tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert opened.tab.locator("#kernels svg").count() == 3
    paper = "getComputedStyle(document.body).backgroundColor"
    assert opened.tab.evaluate(paper) == "rgb(255, 255, 255)"
    corner = """() => {
        const context = document.querySelector("#map canvas").getContext("2d");
        return [...context.getImageData(2, 2, 1, 1).data];
    }"""
    assert opened.tab.evaluate(corner) == [255, 255, 255, 255]
    tones = """() => {
        const canvas = document.querySelector(".paper");
        const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        return [...new Set(new Uint32Array(data.buffer))].map((tone) => tone & 0xffffff);
    }"""
    on_paper = set(opened.tab.evaluate(tones))
    # points and legend of the first class in the light colour #0062a2, none in the dark one
    assert 0xA26200 in on_paper
    assert 0xAF8F45 not in on_paper
    opened.tab.evaluate("dispatchEvent(new Event('afterprint'))")
    assert opened.tab.locator(".paper").count() == 0
    assert opened.tab.evaluate(paper) == "rgb(21, 25, 28)"
    assert opened.tab.evaluate(corner) == [21, 25, 28, 255]
    opened.tab.close()
    assert opened.errors == []


def test_more_classes_than_the_legend_shows_are_seen_to_go_on(browser, model, tmp_path):
    fitted, X, _ = model
    names = [f"a long name of class {i % 30}" for i in range(N)]
    path = bo.report(fitted, X, names, path=tmp_path / "many.html")
    opened = Page(browser, path, viewport={"width": 400, "height": 900})
    # a class at the lower edge is cut in two
    edges = opened.tab.evaluate(
        """() => {
            const bottom = document.getElementById("legend").getBoundingClientRect().bottom;
            return [...document.querySelectorAll("#legend button")].map((button) => {
                const box = button.getBoundingClientRect();
                return (bottom - box.top) / box.height;
            });
        }"""
    )
    assert any(0.2 < share < 0.8 for share in edges)


def test_what_is_zero_in_the_data_is_written_as_zero(browser, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 3))
    X[: N // 2, 0] = 0.0
    X[N // 2 :, 0] = np.linspace(-0.37, 15.9, N - N // 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = bo.NGMVLVM(1, n_frequencies=4, init="pca", max_iter=2, random_state=0).fit(X)
    kind = ["zero" if i < N // 2 else "other" for i in range(N)]
    opened = Page(browser, bo.report(fitted, X, kind, path=tmp_path / "zero.html"))
    opened.tab.click("#legend button:has-text('zero')")
    line = opened.tab.locator(
        "#selection-columns tr", has=opened.tab.locator("th", has_text="0")
    )
    assert line.first.locator("td").nth(1).inner_text() == "0"


def test_a_page_in_a_folded_frame_is_drawn_when_it_is_opened(browser, path, tmp_path):
    frame = f'<iframe src="{path.as_uri()}" style="width: 0; height: 0"></iframe>'
    outside = tmp_path / "outside.html"
    outside.write_text(frame, encoding="utf-8")
    tab = browser.new_page(viewport={"width": 1000, "height": 800})
    errors = []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.goto(outside.as_uri())
    inside = tab.frames[1]
    inside.wait_for_selector("html[data-ready]", state="attached")
    # paper, of a page that has no room
    for name in ("beforeprint", "afterprint"):
        inside.evaluate(f"dispatchEvent(new Event('{name}'))")
    tab.evaluate("document.querySelector('iframe').style = 'width: 900px; height: 700px'")
    drawn = """async () => {
        const canvas = document.querySelector("#map canvas");
        let tones = 0;
        for (let frame = 0; frame < 200 && tones < 20; frame++) {
            await new Promise(requestAnimationFrame);
            if (canvas.width < 300) continue;
            const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
            tones = new Set(new Uint32Array(data.buffer)).size;
        }
        return tones;
    }"""
    assert inside.evaluate(drawn) >= 20
    assert not inside.locator("#failure").is_visible()
    tab.close()
    assert errors == []


def test_a_map_keeps_one_scale_when_its_window_changes_until_it_is_zoomed(browser, path):
    opened = Page(browser, path, viewport={"width": 1300, "height": 1000})
    scales = """() => {
        const {clientWidth: width, clientHeight: height} = document.getElementById("map");
        const [left, right, bottom, top] = bochnerPage.range();
        return (right - left) / (width - 70) / ((top - bottom) / (height - 56));
    }"""
    assert opened.tab.evaluate(scales) == pytest.approx(1)
    opened.tab.set_viewport_size({"width": 390, "height": 800})
    opened.tab.wait_for_function(f"Math.abs(({scales})() - 1) < 1e-6")
    opened.tab.click("#zoom-in")
    zoomed = opened.tab.evaluate("bochnerPage.range()")
    opened.tab.set_viewport_size({"width": 1300, "height": 800})
    opened.tab.wait_for_function("document.getElementById('map').clientWidth > 500")
    opened.tab.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
    assert opened.tab.evaluate("bochnerPage.range()") == zoomed
    opened.tab.close()
    assert opened.errors == []


# Where a text is on the screen, from left to right.
LEFT = """([within, text]) => {
    const walk = document.createTreeWalker(document.querySelector(within), NodeFilter.SHOW_TEXT);
    for (let node = walk.nextNode(); node; node = walk.nextNode()) {
        const at = node.textContent.indexOf(text);
        if (at < 0) continue;
        const range = document.createRange();
        range.setStart(node, at);
        range.setEnd(node, at + text.length);
        return range.getBoundingClientRect().left;
    }
}"""


def test_numbers_stand_behind_names_that_are_read_from_right_to_left(browser, tmp_path):
    z = np.random.default_rng(0).normal(size=N)
    table = pandas.DataFrame({"ארך": z, "רחב": z**2, "קבוצה": np.where(z > 0, "אחת", "שתיים")})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mixed, plain = (
            bo.NGMVLVM(
                1, n_frequencies=8, init="pca", max_iter=30, random_state=0, **options
            ).fit(X)
            for X, options in (
                (table, {"likelihood": "auto"}),
                (table.iloc[:, :2], {"views": {"מדידות": [0, 1]}}),
            )
        )

    def stands_before(within, name, number):
        left, right = (page.tab.evaluate(LEFT, [within, text]) for text in (name, number))
        return left < right

    page = Page(browser, bo.report(mixed, table, path=tmp_path / "mixed.html"))
    name, share = re.match(r"(\w+): (\d+) %", page.text("#loadings td")).groups()
    assert stands_before("#loadings td", name, share)
    words = page.tab.locator("#place .numbers", has_text="%").inner_text()
    name, share = re.match(r"(\w+) \((\d+) %\)", words).groups()
    assert stands_before("#place .bars:last-of-type", name, share)
    page.tab.select_option("#shade-by", label="standard deviation of ארך")
    low = page.tab.locator("#shade-legend .numbers").first.inner_text()
    assert stands_before("#shade-legend", "ארך", low)
    page.tab.close()
    assert page.errors == []
    page = Page(browser, bo.report(plain, path=tmp_path / "plain.html"))
    assert stands_before("header", "מדידות", "2 columns")
    page.tab.close()
    assert page.errors == []


def test_sentences_and_titles_go_on_behind_such_names(browser, tmp_path):
    X = np.random.default_rng(0).normal(size=(N, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = bo.AdvisedRFLVM(
            n_frequencies=8,
            init="pca",
            max_iter=5,
            random_state=0,
            views={"מדידות": [0, 1, 2]},
        ).fit(X)
        found = bo.calibration(model, X[:9], random_state=0)
    page = Page(browser, bo.report(model, path=tmp_path / "r.html", calibration=found))
    page.tab.locator("#spectra").scroll_into_view_if_needed()
    page.tab.wait_for_selector("#spectra .title")
    count = f"{found.views['מדידות'].n_entries} hidden"
    for within, then in (
        ("#calibration-problems", count),
        ("#spectra .title", "2 components"),
    ):
        name, rest = (page.tab.evaluate(LEFT, [within, text]) for text in ("מדידות", then))
        assert name < rest
    page.tab.close()
    assert page.errors == []


def test_labels_and_titles_of_narrow_pages_are_not_cut_off(browser, tmp_path):
    X = np.sin(np.random.default_rng(0).normal(size=(20, 3)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = bo.RFLVM(
            n_frequencies=8, init="pca", max_iter=5, random_state=0, n_warmup=5, n_draws=12
        ).fit(X)
        found = bo.calibration(model, X, random_state=0)
    path = bo.report(model, path=tmp_path / "r.html", calibration=found)
    page = Page(browser, path, viewport={"width": 360, "height": 800})
    for section in ("#chains", "#kernels", "#spectra", "#calibration"):
        page.tab.locator(section).scroll_into_view_if_needed()
        page.tab.wait_for_selector(f"{section} svg .label")
    cut = page.tab.evaluate(
        """[...document.querySelectorAll("svg.chart :is(.label, .title)")].filter((label) => {
            const inner = label.getBoundingClientRect();
            const outer = label.ownerSVGElement.getBoundingClientRect();
            return inner.left < outer.left || inner.right > outer.right
                || inner.top < outer.top || inner.bottom > outer.bottom;
        }).map((label) => label.textContent)"""
    )
    assert cut == []
    page.tab.close()
    assert page.errors == []


def test_long_words_of_names_do_not_run_over_the_edge_of_paper(browser, tmp_path):
    X = np.random.default_rng(0).normal(size=(N, 3))
    table = pandas.DataFrame(X, columns=["x" * 300, "b", "c"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = bo.NGMVLVM(n_frequencies=8, init="pca", max_iter=5).fit(table)
    opened = Page(browser, bo.report(model, table, path=tmp_path / "r.html"))
    opened.tab.emulate_media(media="print")
    assert opened.tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    opened.tab.close()
    assert opened.errors == []
