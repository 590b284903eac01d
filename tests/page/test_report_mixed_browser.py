"""Pages of mixed tables in headless Chromium: categories are shown as categories, numbers in their
units.
"""

import json
import re
import warnings

import numpy as np
import pytest

import bochner as bo
from helpers.open_page import Page

pandas = pytest.importorskip("pandas")
N = 60
CITIES = ["Łódź", "München", "Zürich"]


@pytest.fixture(scope="module")
def mixed():
    """Two numbers of different units, a category and a constant; some cities are missing."""
    source = np.random.default_rng(3)
    z = source.normal(size=N)
    city = np.array(CITIES, dtype=object)[np.digitize(z, (-0.6, 0.6))]
    city[::9] = None
    table = pandas.DataFrame(
        {
            "height": 170 + 10 * z + source.normal(size=N),
            "income": np.exp(8 + z + 0.3 * source.normal(size=N)),
            "city": pandas.Categorical(city, categories=CITIES),
            "member": z > 0,
            "const": 1.0,
        }
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = bo.NGMVLVM(
            2, n_frequencies=8, init="pca", max_iter=30, likelihood="auto", random_state=0
        ).fit(table)
    return model, table


@pytest.fixture(scope="module")
def paths(mixed, tmp_path_factory):
    """The page of the data, and the page of the model alone."""
    model, table = mixed
    folder = tmp_path_factory.mktemp("mixed")
    return bo.report(model, table, path=folder / "data.html"), bo.report(
        model, path=folder / "model.html"
    )


@pytest.fixture
def page(browser, paths):
    yield from opened(browser, paths[0])


@pytest.fixture
def page_without_data(browser, paths):
    yield from opened(browser, paths[1])


def opened(browser, path):
    page = Page(browser, path, viewport={"width": 1300, "height": 1000})
    yield page
    page.tab.close()
    assert page.errors == []


def lines(page, selector):
    found = page.tab.locator(f"{selector} tr").all_inner_texts()
    return [line.replace("−", "-").split("\t") for line in found]


def test_categories_of_a_selection_are_shares_of_rows(page, mixed):
    table = mixed[1]
    chosen = np.flatnonzero(table["city"] == "Zürich")
    page.tab.evaluate("(rows) => window.bochnerPage.choose(rows)", chosen.tolist())
    shown = page.tab.locator("#selection-labels table")
    tables = {
        (found := [line.split("\t") for line in text.splitlines()])[0][0]: found[1:]
        for text in shown.all_inner_texts()
    }
    assert tables["city"] == [["Zürich", str(len(chosen)), "100.0 %", "0.0 %"]]
    for name, n, of_selected, of_others in tables["member"]:
        same = table["member"].astype(str) == name
        inside = same.iloc[chosen]
        assert int(n) == inside.sum()
        assert of_selected == f"{100 * inside.mean():.1f} %"
        assert of_others == f"{100 * same.drop(chosen).mean():.1f} %"
    columns = {line[0] for line in lines(page, "#selection-columns")[1:]}
    assert columns == {"height", "income"}


def colour_options(page):
    return page.tab.locator("#colour-by option").all_inner_texts()


def test_columns_of_categories_colour_as_classes(page, mixed):
    table = mixed[1]
    page.tab.select_option("#colour-by", label="city")
    assert page.tab.locator("#legend button").all_inner_texts() == [*CITIES, "missing"]
    page.tab.click("#legend button >> nth=3")
    missing = np.flatnonzero(table["city"].isna()).tolist()
    assert page.tab.evaluate("window.bochnerPage.chosen()") == missing


def test_columns_of_other_units_are_not_averaged(page, browser, tmp_path):
    assert not [name for name in colour_options(page) if name.startswith("mean of")]
    shades = page.tab.locator("#shade-by option").all_inner_texts()
    assert "standard deviation of height" in shades
    assert "standard deviation of numbers" not in shades
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        X = np.random.default_rng(0).normal(size=(20, 3))
        model = bo.NGMVLVM(2, n_frequencies=4, init="pca", max_iter=2, random_state=0).fit(X)
    other = Page(browser, bo.report(model, X, path=tmp_path / "r.html"))
    view = next(iter(model.views_))
    assert f"mean of {view}" in colour_options(other)
    shades = other.tab.locator("#shade-by option").all_inner_texts()
    assert f"standard deviation of {view}" in shades
    other.tab.close()


def test_a_missing_category_is_completed_in_words(page, mixed):
    i = int(np.flatnonzero(mixed[1]["city"].isna())[0])
    page.tab.mouse.move(*page.row_on_screen(i))
    page.tab.wait_for_function(f"document.getElementById('row').innerText.includes('row {i}')")
    shown = page.tab.locator("#row .bars .numbers").all_inner_texts()
    completed = [text for text in shown if text.startswith("missing, decoded ")]
    assert len(completed) == 1
    assert any(city in completed[0] for city in CITIES)


def test_a_scale_of_colours_is_painted_and_one_infinite_value_does_not_flatten_it(
    browser, mixed, tmp_path
):
    model, table = mixed
    score = np.linspace(0.1, 1, N)
    score[5] = np.inf
    serial = 2.0**31 + np.arange(N)
    days = pandas.date_range("2020-01-01", periods=N)
    labels = {"score": score, "serial": serial, "day": days}
    page = Page(browser, bo.report(model, table, labels, path=tmp_path / "r.html"))
    bar = "getComputedStyle(document.querySelector('#legend .ramp')).backgroundImage"
    assert "linear-gradient" in page.tab.evaluate(bar)
    assert page.tab.locator("#legend .numbers").all_inner_texts() == ["0.1", "1"]
    page.tab.select_option("#colour-by", label="day")
    ends = page.tab.locator("#legend .numbers").all_inner_texts()
    assert ends == ["2020-01-01", "2020-02-29"]
    page.tab.mouse.move(*page.row_on_screen(3))
    page.tab.wait_for_function("document.getElementById('row').innerText.includes('row 3')")
    assert "serial: 2147483651" in page.text("#row")
    assert "day: 2020-01-04" in page.text("#row")
    page.tab.evaluate("window.bochnerPage.choose([3, 5])")
    with page.tab.expect_download() as waiting:
        page.tab.click("#export")
    waiting.value.save_as(tmp_path / "rows.csv")
    rows = pandas.read_csv(tmp_path / "rows.csv", float_precision="round_trip")
    assert rows["serial"].tolist() == serial[[3, 5]].tolist()
    assert rows["day"].tolist() == ["2020-01-04", "2020-01-06"]
    assert rows["score"][0] == score[3]
    page.tab.close()
    assert page.errors == []


def test_decoded_columns_of_a_selection_have_means_and_no_effect_sizes(
    page_without_data, mixed
):
    """They have no noise: differences in their standard deviations would be far too large."""
    model, page = mixed[0], page_without_data
    page.tab.evaluate("window.bochnerPage.choose([...Array(20).keys()])")
    assert page.tab.locator("#selection-columns tr").count() == 0
    decoded = pandas.DataFrame(model.inverse_transform(model.embedding_))
    for name, view, chosen, others in lines(page, "#selection-decoded")[1:]:
        assert view == "numbers"
        values = decoded.iloc[:, list(model.feature_names_in_).index(name)].astype(float)
        means = [float(text.replace(",", "")) for text in (chosen, others)]
        np.testing.assert_allclose(means, [values[:20].mean(), values[20:].mean()], rtol=0.01)
    text = page.text("#selection-text")
    assert "no data of the rows: columns are as the model decodes them" in text
    assert "Cohen" not in text
    assert "city, decoded" in page.text("#selection-labels")


def test_figures_are_whole_when_the_page_is_printed_at_once(browser, paths):
    page = Page(browser, paths[0])
    page.tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    # of every view the matrix and its scale
    views = page.tab.locator("#kernels svg").count()
    assert page.tab.locator("#kernels image").count() == 2 * views > 0
    assert "covariance of standardised columns" in page.text("#kernels")
    assert "covariance of log odds" in page.text("#kernels")
    page.tab.close()
    assert page.errors == []


def test_words_in_tables_are_not_broken(browser, mixed, tmp_path):
    model, table = mixed
    path = bo.report(model, table, {"kind": ["Größe"] * N}, path=tmp_path / "r.html")
    page = Page(browser, path, viewport={"width": 400, "height": 900})
    page.tab.evaluate("window.bochnerPage.choose([1, 2, 3, 4])")
    lines_of = """() => [...document.querySelectorAll("th, td")].filter((cell) => {
        const [first] = cell.childNodes;
        if (!cell.offsetParent || first?.nodeType !== 3) return false;
        return first.data.split(/[\\s-]+/).some((word) => {
            const range = document.createRange();
            const at = first.data.indexOf(word);
            range.setStart(first, at);
            range.setEnd(first, at + word.length);
            return range.getClientRects().length > 1;
        });
    }).map((cell) => cell.textContent)"""
    assert page.tab.evaluate(lines_of) == []
    assert page.tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.tab.close()


def test_constants_and_categories_have_bars_of_their_range(paths):

    content = re.search(r'id="content">(.*?)</script>', paths[0].read_text(encoding="utf-8"))
    for view in json.loads(content[1])["views"]:
        for c, name in enumerate(view["columns"]):
            if name == "const":
                assert view["high"][c] - view["low"][c] > 0.04
            if name == "city":
                assert (view["low"][c], view["high"][c]) == (0, 2)


def test_ellipses_of_few_rows_lie_inside_and_a_rows_place_is_its_own(browser, tmp_path):
    X = np.random.default_rng(0).normal(size=(3, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = bo.NGMVLVM(1, n_frequencies=4, init="pca", max_iter=2, random_state=0).fit(X)
    page = Page(browser, bo.report(model, X, path=tmp_path / "r.html"))
    assert "3 rows, 1 latent dimension." in page.text("header")
    page.tab.focus("#map")
    page.tab.keyboard.press("n")
    page.tab.wait_for_timeout(100)
    assert "The place of row 0" in page.text("#place")
    mean = model.inverse_transform(model.embedding_[:1])[0]
    shown = page.tab.locator("#place .bars .numbers").all_inner_texts()
    values = sorted(float(text.split(" ± ")[0].replace("−", "-")) for text in shown)
    np.testing.assert_allclose(values, sorted(mean), rtol=6e-3, atol=1e-3)
    # the ellipses end inside the map, whose ends are those of its axis
    top, bottom = page.tab.evaluate("""() => {
        const [a, b] = window.bochnerPage.range().slice(2);
        return [b, a];
    }""")
    z, std = model.embedding_[:, 0], model.embedding_std_[:, 0]
    assert top > (z + std).max()
    assert bottom < (z - std).min()
    page.tab.close()
    assert page.errors == []


def test_a_notebook_saves_rows_and_pictures(browser, paths, tmp_path):
    frame = paths[0]._repr_html_()
    host = tmp_path / "notebook.html"
    host.write_text(f"<!doctype html><meta charset=utf-8>{frame}", encoding="utf-8")
    tab = browser.new_page()
    tab.goto(host.as_uri())
    inside = tab.frame_locator("iframe")
    inside.locator("html[data-ready]").wait_for(state="attached", timeout=60_000)
    with tab.expect_download() as waiting:
        inside.locator("#picture").click()
    assert waiting.value.suggested_filename == "map.png"
    tab.close()


def test_one_is_written_in_the_singular_and_averages_of_covariates_are_said(browser, tmp_path):
    X = np.random.default_rng(0).normal(size=(20, 70))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = bo.NGMVLVM(
            1,
            views={"a": [0], "b": slice(1, 3)},
            n_frequencies=4,
            init="pca",
            max_iter=2,
            random_state=0,
        ).fit(X[:, :3], covariates={"batch": ["x", "y"] * 10})
    path = bo.report(
        model, X[:, :3], path=tmp_path / "r.html", covariates={"batch": ["x", "y"] * 10}
    )
    page = Page(browser, path)
    assert "1 latent dimension. Views: a (1 column), b (2 columns)." in page.text("header")
    assert "What is decoded is for the average of covariate batch." in page.text("header")
    assert "Decoded for the average of the covariates." in page.text("#place")
    assert "noise" in page.text("#views")
    page.tab.close()
    assert page.errors == []


def test_the_shading_has_a_scale_and_the_picture_the_marks_of_the_map(
    browser, mixed, tmp_path
):
    model, table = mixed
    kinds = [f"type {i % 11}" for i in range(N)]
    page = Page(browser, bo.report(model, table, kinds, path=tmp_path / "r.html"))
    assert page.text("#shade-legend") == ""
    page.tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    # below the map: a circle of radius 5 and a square of side 10, both twice as large, of one tone
    blue = page.tab.evaluate("""() => {
        const canvas = document.querySelector(".paper");
        const top = 2 * document.getElementById("map").clientHeight;
        const {width, height} = canvas;
        const {data} = canvas.getContext("2d").getImageData(0, top, width, height - top);
        return new Uint32Array(data.buffer).filter((tone) => (tone & 0xffffff) === 0xa26200).length;
    }""")
    assert 0.85 * (100 * np.pi + 400) < blue < 1.01 * (100 * np.pi + 400)
    page.tab.evaluate("dispatchEvent(new Event('afterprint'))")
    page.tab.select_option("#shade-by", label="standard deviation of income")
    text = page.text("#shade-legend")
    assert text.startswith("standard deviation of income:")
    assert text.endswith("hatched: not decoded")
    assert "gradient" in page.tab.evaluate(
        "getComputedStyle(document.querySelector('#shade-legend .ramp')).backgroundImage"
    )
    page.tab.close()
    assert page.errors == []
