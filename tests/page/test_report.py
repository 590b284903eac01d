"""The report page without a browser: what it holds, what it refuses, that it needs nothing but
itself.
"""

import base64
import hashlib
import html.parser
import json
import os
import re
import shutil
import warnings
from importlib import resources

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from typer.testing import CliRunner

import bochner as bo
from bochner.cli import app
from bochner.data.row_sources import RowSource
from bochner.errors import DataWarning, InputError
from bochner.page import charts
from bochner.page.content import BUDGET, VIEWS, Rows, gather
from bochner.page.encode import Packed, pack, quantise, script_json
from bochner.page.labels import as_labels, read_labels
from bochner.page.layouts import Layout, as_layouts, read_layout
from bochner.page.planes import ROW, choose_planes, decode
from bochner.page.shapes import check_shapes, guess_shape, parse_shapes
from bochner.page.views import choose_views
from bochner.plots.kernels import kernel_slice
from helpers.packed import restore

EVIL = "</script><script>alert(1)</script>"
COLUMNS = ["a", EVIL, "c", "d", "e", "f"]
N = 24


def fitted(X, d=2, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        settings = {
            "n_frequencies": 8,
            "init": "pca",
            "max_iter": 8,
            "random_state": 0,
            **options,
        }
        return bo.NGMVLVM(d, **settings).fit(X)


@pytest.fixture(scope="module")
def X():
    source = np.random.default_rng(0)
    X = np.sin(source.normal(size=(N, 2)) @ source.normal(size=(2, 6))) + 0.1 * source.normal(
        size=(N, 6)
    )
    X[3, 1] = X[5, 4] = np.nan
    return X


@pytest.fixture(scope="module")
def frame(X):
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame(X, columns=COLUMNS, index=[f"cell {i}" for i in range(N)])


@pytest.fixture(scope="module")
def model(frame):
    return fitted(frame, views={"left": COLUMNS[:2], "right": COLUMNS[2:]})


class Elements(html.parser.HTMLParser):
    """Every element with its attributes, and the text of the scripts."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.scripts, self.open = [], {}, None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.open = dict(attrs).get("id", "code") if tag == "script" else None

    def handle_data(self, data):
        if self.open:
            self.scripts[self.open] = self.scripts.get(self.open, "") + data

    def handle_endtag(self, tag):
        self.open = None


def written(model, path, *arguments, **options):
    page = Elements(
        bo.report(model, *arguments, path=path, **options).read_text(encoding="utf-8")
    )
    return page, json.loads(page.scripts["content"]), json.loads(page.scripts["about"])


def unpacked(item):
    scale = {key: np.array(item[key]) for key in ("low", "step") if key in item}
    return restore(
        Packed(item["dtype"], tuple(item["shape"]), base64.b64decode(item["body"]), **scale)
    )


@pytest.fixture(scope="module")
def page(model, frame, tmp_path_factory):
    labels = {"kind": ["x", EVIL, "z"] * 8, "age": np.linspace(0, 1, N)}
    return written(model, tmp_path_factory.mktemp("page") / "r.html", frame, labels)


# -- what the page holds
# ---------------------------------------------------------------------------


def test_the_page_needs_nothing_but_itself(page):
    elements, _, _ = page
    for tag, attributes in elements.tags:
        for name in ("src", "href", "data", "srcset", "action"):
            assert not attributes.get(name) or attributes[name].startswith("data:"), (
                tag,
                attributes,
            )
        assert (
            tag not in ("link", "iframe", "object", "embed")
            or attributes.get("href") == "data:,"
        )
    (policy,) = [
        a["content"]
        for tag, a in elements.tags
        if a.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert "http" not in policy
    digest = hashlib.sha256(elements.scripts["code"].encode()).digest()
    assert f"script-src 'sha256-{base64.b64encode(digest).decode()}';" in policy


def test_the_page_is_one_whole_document(page):
    elements, content, _ = page
    tags = [tag for tag, _ in elements.tags]
    assert [tags.count(tag) for tag in ("html", "head", "body", "main", "h1", "title")] == [
        1
    ] * 6
    ids = [a["id"] for _, a in elements.tags if "id" in a]
    assert len(ids) == len(set(ids))
    script = elements.scripts["code"]
    for markup in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "srcdoc",
    ):
        assert markup not in script
    asked = set(re.findall(r'\$\("([a-z-]+)"\)', script)) | set(
        re.findall(r'read\("(\w+)"\)', script)
    )
    assert asked <= set(ids), asked - set(ids)
    described = next(a for _, a in elements.tags if a.get("id") == "map")
    assert described["tabindex"] == "0"
    assert described["aria-describedby"] in ids
    assert content["rows"] == N


def test_text_of_the_data_cannot_leave_its_place(page):
    elements, content, about = page
    assert not any("alert(1)" in str(attributes) for _, attributes in elements.tags)
    # three of data and the page's own
    assert sum(tag == "script" for tag, _ in elements.tags) == 4
    assert content["labels"][0]["classes"] == sorted(["x", EVIL, "z"])
    assert EVIL in content["views"][0]["columns"]
    assert set(about["views"]) == {"left", "right"}
    assert script_json({"a": EVIL + "<!--"}).count("<") == 0
    assert json.loads(script_json({"a": EVIL + "&"})) == {"a": EVIL + "&"}


def test_the_page_carries_latents_labels_and_names(page, model):
    _, content, _ = page
    np.testing.assert_allclose(unpacked(content["z"]), model.embedding_, rtol=1e-6)
    np.testing.assert_allclose(unpacked(content["std"]), model.embedding_std_, rtol=1e-6)
    assert content["names"][:2] == ["cell 0", "cell 1"]
    assert [label["name"] for label in content["labels"]] == ["kind", "age"]
    np.testing.assert_allclose(
        unpacked(content["labels"][1]["values"]), np.linspace(0, 1, N), atol=1e-7
    )


def test_the_rows_data_and_their_decoded_values_are_those_of_the_model(page, model, X, frame):
    _, content, _ = page
    mean, std = model.inverse_transform(model.embedding_, return_std=True)
    for view in content["views"]:
        columns = [COLUMNS.index(name) for name in view["columns"]]
        assert view["width"] == len(columns)
        np.testing.assert_allclose(
            unpacked(view["data"]), X[:, columns], atol=2e-4 * np.ptp(view["high"]) + 1e-3
        )
        assert (np.isnan(unpacked(view["data"])) == np.isnan(X[:, columns])).all()
        np.testing.assert_allclose(unpacked(view["decoded"][0]), mean[:, columns], atol=1e-3)
        away = np.abs(unpacked(view["decoded"][1]) - std[:, columns])
        assert (away <= 0.005 * std[:, columns].max(axis=0)).all()
        assert mean[:, columns].var(axis=0).tolist() == sorted(
            mean[:, columns].var(axis=0), reverse=True
        )


def test_columns_of_different_units_keep_their_standard_deviations(tmp_path):
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(60, 1))
    X = (np.sin(Z + np.arange(4)) + 0.3 * rng.normal(size=(60, 4))) * [1e-3, 1.0, 10.0, 1e4]
    small = {"init": "pca", "n_frequencies": 16, "max_iter": 30, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = bo.NGMVLVM(1, noise="column", **small).fit(X)
        path = bo.report(model, X, path=tmp_path / "units.html")
    content = json.loads(Elements(path.read_text(encoding="utf-8")).scripts["content"])
    (view,) = content["views"]
    std = model.inverse_transform(model.embedding_, return_std=True)[1]
    columns = [int(name.removeprefix("column ")) for name in map(str, view["columns"])]
    shown = unpacked(view["decoded"][1])
    assert (shown > 0).all()
    assert (np.abs(shown - std[:, columns]) <= 0.005 * std[:, columns].max(axis=0)).all()


def test_a_plane_is_what_the_model_decodes_there(page, model):
    _, content, _ = page
    (plane,) = content["planes"]
    side, view = plane["sides"][0], content["views"][1]
    columns = [COLUMNS.index(name) for name in view["columns"]]
    first, second = (np.linspace(plane["low"][k], plane["high"][k], side) for k in (0, 1))
    cell = 3 * side + 7
    expected = model.inverse_transform([[first[7], second[3]]])[0, columns]
    np.testing.assert_allclose(unpacked(view["planes"][0][0])[cell], expected, atol=1e-3)
    assert (model.embedding_.min(axis=0) > plane["low"]).all()
    assert (model.embedding_.max(axis=0) < plane["high"]).all()


def test_settings_and_versions(page, model):
    from importlib.metadata import version

    _, _, about = page
    assert about["versions"]["bochner"] == bo.__version__
    assert about["versions"]["numpy"] == version("numpy")
    assert about["parameters"]["max_iter"] == 8
    np.testing.assert_allclose(about["relevance"], model.relevance_)
    tops = [[name for name, _ in loadings] for loadings in about["loadings"]]
    shares = model.loadings(as_frame=True)
    kept = [shares[d][shares[d] >= 0.005].sort_values(ascending=False) for d in shares]
    assert tops == [some.index.tolist() for some in kept]
    assert about["starts"][0]["init"] == "pca"


def test_packages_without_metadata_say_their_versions(model, tmp_path, monkeypatch):
    from importlib import metadata

    from bochner import extras

    def absent(name):
        raise metadata.PackageNotFoundError(name)

    # as a source tree on the path, or a frozen program, has it
    monkeypatch.setattr(metadata, "distribution", absent)
    _, _, about = written(model, tmp_path / "r.html")
    assert about["versions"]["bochner"] == bo.__version__
    assert about["versions"]["scikit-learn"].startswith("1.")
    shown = CliRunner().invoke(app, ["--version"])
    assert (shown.exit_code, shown.stdout) == (0, f"bochner {bo.__version__}\n")
    monkeypatch.delattr(bo, "__version__")
    assert extras.versions()["bochner"] == "unknown"


def test_what_intervals_hold_is_said_where_it_was_measured(page, model, frame, tmp_path):
    assert page[2]["calibration"] is None
    result = bo.calibration(model, frame.iloc[:12], n_draws=20, random_state=0)
    elements, _, about = written(model, tmp_path / "r.html", calibration=result)
    assert about["calibration"]["hidden"] == result.hidden
    assert about["calibration"]["views"].keys() == result.views.keys()
    assert len(json.loads(elements.scripts["figures"])["calibration"]) == 2


def test_without_data_the_rows_of_the_fit_are_decoded(model, tmp_path):
    _, content, _ = written(model, tmp_path / "r.html")
    assert content["rows"] == N
    assert content["names"] is None
    assert all(view["data"] is None and view["decoded"] for view in content["views"])


def test_other_rows_are_placed_first(model, frame, tmp_path):
    some = frame.iloc[4:9]
    _, content, _ = written(model, tmp_path / "r.html", some)
    assert content["names"] == [f"cell {i}" for i in range(4, 9)]
    np.testing.assert_allclose(unpacked(content["z"]), model.transform(some), atol=1e-5)
    shuffled = frame.iloc[::-1]
    _, content, _ = written(model, tmp_path / "s.html", shuffled)
    np.testing.assert_allclose(unpacked(content["z"]), model.transform(shuffled), atol=1e-5)


def test_rows_in_files_are_shown_as_those_in_memory(model, X, tmp_path):
    unnamed = fitted(X)
    _, expected, _ = written(unnamed, tmp_path / "r.html", X)
    np.save(tmp_path / "X.npy", X)
    rows = [bo.open_rows(tmp_path / "X.npy"), np.load(tmp_path / "X.npy", mmap_mode="r")]
    zarr = pytest.importorskip("zarr")
    rows.append(zarr.array(X, chunks=(7, 6)))
    for given in rows:
        _, content, _ = written(unnamed, tmp_path / "s.html", given, overwrite=True)
        assert content == expected
    with pytest.raises(InputError, match="Pass labels with a value per row"):
        bo.report(unnamed, rows[0], "kind")
    # other rows of a file with names
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = dict(zip(COLUMNS, X[:9].T, strict=True))
    parquet.write_table(pyarrow.table(columns), tmp_path / "X.parquet")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        source = bo.open_rows(tmp_path / "X.parquet")
        _, content, _ = written(model, tmp_path / "t.html", source)
    np.testing.assert_allclose(unpacked(content["z"]), model.transform(source), atol=1e-5)


def test_rows_of_files_are_not_held(X, tmp_path, monkeypatch):
    unnamed = fitted(X)
    np.save(tmp_path / "X.npy", X)
    _, expected, _ = written(unnamed, tmp_path / "r.html", X)
    monkeypatch.setattr(RowSource, "block_rows", 7)
    monkeypatch.setattr(RowSource, "whole", None)
    rows = Rows(
        unnamed.embedding_, unnamed.embedding_, bo.open_rows(tmp_path / "X.npy"), None, [], []
    )
    # the data of every fifth row are all that a page has room for
    assert rows.spread(4 * VIEWS // len(X) + 1) == 5
    np.testing.assert_array_equal(rows.data(np.array([2, 0]), 5), X[::5, [2, 0]])
    monkeypatch.setattr(Rows, "spread", lambda *_: 3)
    _, content, _ = written(unnamed, tmp_path / "s.html", bo.open_rows(tmp_path / "X.npy"))
    assert content["every"] == 3
    assert content["z"] == expected["z"]
    (view,), (whole,) = content["views"], expected["views"]
    step = np.max(view["data"]["step"])
    np.testing.assert_allclose(
        unpacked(view["data"]), unpacked(whole["data"])[::3], atol=2 * step
    )


def test_a_path_is_no_labels(model, frame, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"got 'page.html'\. Write path='page.html'"):
        bo.report(model, frame, "page.html")
    # other texts are no files
    with pytest.raises(InputError, match=rf"Pass labels=X\['{COLUMNS[0]}'\]\."):
        bo.report(model, frame, COLUMNS[0])
    with pytest.raises(InputError, match=r"got 'type'\. Pass labels with a value per row"):
        bo.report(model, frame, "type")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["labels", "embedding"])
def test_what_is_given_in_another_order_than_the_rows_is_refused(model, frame, tmp_path, name):
    given = {"labels": frame.iloc[::-1, 0], "embedding": frame.iloc[::-1, :2].fillna(0.0)}
    for X in (frame, None):
        with pytest.raises(InputError, match=rf"{name}.*got 'cell {N - 1}' in row 0"):
            bo.report(model, X, path=tmp_path / "r.html", **{name: given[name]})
    # names of which the rows know nothing
    rows = frame.to_numpy()
    bo.report(model, rows, path=tmp_path / "r.html", **{name: given[name]})


@pytest.mark.parametrize("d", [1, 2, 3, 4])
def test_any_number_of_dimensions(X, tmp_path, d):
    other = fitted(X, d)
    _, content, _ = written(other, tmp_path / "r.html", X)
    pairs = [tuple(plane["dims"]) for plane in content["planes"]]
    assert len(set(pairs)) == len(pairs) == max(d * (d - 1) // 2, 1)
    assert all(a < b for a, b in pairs)
    if d == 1:
        assert pairs == [(ROW, 0)]
    view = content["views"][0]
    assert len(view["planes"]) == len(pairs)
    assert unpacked(view["planes"][0][0]).shape == (np.prod(content["planes"][0]["sides"]), 6)


def test_counts_and_classes_are_drawn_too(tmp_path):
    source = np.random.default_rng(1)
    X = np.hstack([source.poisson(3.0, (20, 3)), source.integers(0, 2, (20, 2))]).astype(float)
    views = {"counts": slice(0, 3), "flags": slice(3, 5)}
    other = fitted(
        X, views=views, likelihood={"counts": "poisson", "flags": "bernoulli"}, max_iter=3
    )
    _, content, about = written(other, tmp_path / "r.html", X)
    assert [view["likelihood"] for view in content["views"]] == ["poisson", "bernoulli"]
    assert about["views"]["counts"]["likelihood"] == "poisson"


def test_size_factors_are_those_of_all_rows_of_the_page(tmp_path):
    X = np.random.default_rng(1).poisson(3.0, (30, 4)).astype(float)
    sizes = X.sum(axis=1) + 1.0
    options = {"n_frequencies": 8, "init": "pca", "max_iter": 3, "random_state": 0}
    counted = bo.NGMVLVM(1, likelihood="poisson", **options).fit(X, size_factors=sizes)
    path = tmp_path / "r.html"
    for wrong in (sizes[:5], list(sizes[:29]), sizes[:, None], np.append(sizes, 1.0)):
        got = re.escape(str(np.shape(wrong)))
        with pytest.raises(InputError, match=rf"30 size factors for view 'x'.*{got}"):
            bo.report(counted, X, path=path, size_factors=wrong)
    assert bo.report(counted, X, path=path, size_factors=list(sizes)).exists()


# -- what fits in
# ---------------------------------------------------------------------------


def test_rounding_keeps_half_a_step_and_what_is_missing():
    source = np.random.default_rng(2)
    values = source.normal(size=(50, 4)) * [1, 10, 0, 1e-6]
    values[::7, 0] = np.nan
    low, high = np.nanmin(values, axis=0), np.nanmax(values, axis=0)
    for bits in (8, 16):
        back = restore(quantise(values, low, high, bits))
        np.testing.assert_array_equal(np.isnan(back), np.isnan(values))
        error = np.nan_to_num(np.abs(back - values))
        assert (error <= 0.5001 * (high - low) / (2**bits - 2) + 1e-6 * np.abs(high)).all()
    exact = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(restore(pack(exact)), exact)


def characters(view, key):
    return sum(len(part["body"]) for part in view[key] or ())


def test_columns_of_a_mixed_table_carry_their_labels():
    pandas = pytest.importorskip("pandas")
    z = np.random.default_rng(3).normal(size=30)
    kinds = pandas.Categorical(np.array(["a", "b", "c"])[np.digitize(z, (-0.5, 0.5))])
    table = pandas.DataFrame({"number": z, "kind": kinds, "flag": z > 0})
    settings = {"n_frequencies": 4, "init": "pca", "max_iter": 5, "random_state": 0}
    model = bo.NGMVLVM(1, likelihood="auto", **settings).fit(table)
    views = choose_views(model, None, model.embedding_, {})
    labels = {
        name: of for view in views for name, of in zip(view.names, view.labels, strict=True)
    }
    assert labels == {"number": None, "kind": ["a", "b", "c"], "flag": ["False", "True"]}


def test_a_page_that_is_too_large_leaves_out_first_decoded_rows_then_data(model, X):
    rows = Rows(model.embedding_, model.embedding_std_, X, None, [], [])
    views = choose_views(model, X, rows.Z, {})
    fixed = len(script_json(rows.to_json()))
    full = gather(model, rows, views)
    result = []
    for room in np.geomspace(20_000, 1500, 40).astype(int):
        content = gather(model, rows, views, budget=fixed + int(room))
        whole = all(view["decoded"] for view in content["views"])
        assert whole or not any(view["decoded"] for view in content["views"])
        result.append((not whole, content["every"]))
        for view, first in zip(content["views"], full["views"], strict=True):
            kept = unpacked(first["data"])[:: content["every"]]
            step = np.max(view["data"]["step"])
            np.testing.assert_allclose(unpacked(view["data"]), kept, atol=2 * step)
        planes = [pair for view in content["views"] for pair in view["planes"]]
        used = sum(len(part["body"]) for pair in planes for part in pair)
        for view in content["views"]:
            used += len(view["data"]["body"]) + characters(view, "decoded")
        assert used <= room or content["every"] > 100
    assert {(False, 1), (True, 1)} < set(result)
    assert result[-1][1] > 1
    assert all(without for without, every in result if every > 1)


def test_many_rows_stay_below_8_megabytes(model, tmp_path):
    """Latents of 100,000 rows in eight dimensions, names and labels leave less to the views."""
    source = np.random.default_rng(5)
    Z = source.normal(size=(100_000, 8))
    names = [f"cell {i}" for i in range(len(Z))]
    labels = as_labels({"kind": source.integers(0, 30, len(Z)), "age": Z[:, 0]}, len(Z))
    rows = Rows(Z, np.exp(Z), None, names, labels, [Layout("umap", Z[:, :2])])
    content = rows.to_json()
    assert len(script_json(content)) < BUDGET
    for name, values in (("z", Z), ("std", np.exp(Z))):
        half = 0.5 * np.ptp(values, axis=0) / 65534
        # ends and steps are written with seven digits
        error = np.abs(unpacked(content[name]) - values)
        assert (error <= 1.1 * half).all()


def test_planes_of_many_dimensions_stay_small():
    Z = np.random.default_rng(3).normal(size=(30, 12))
    relevance = np.linspace(1, 2, 12)[None]
    planes = choose_planes(Z, relevance, 784)
    assert sum(np.prod(plane.sides) for plane in planes) * 784 <= 1_500_000
    # those that matter most
    assert {d for plane in planes for d in plane.dims} <= set(range(4, 12))
    (plane,) = choose_planes(Z[:, :2], relevance[:, :2], 784)
    assert plane.sides == (21, 21)


def test_places_of_a_single_dimension_all_differ():
    Z = np.random.default_rng(3).normal(size=(30, 1))
    (plane,) = choose_planes(Z, np.ones((1, 1)), 784)
    places = plane.places(Z.mean(axis=0))
    assert plane.sides == (1, 441)
    assert len(np.unique(places)) == 441


def test_decoding_in_pieces_changes_nothing(model):
    mean, std = decode(model, model.embedding_, np.array([4, 0]), most=7 * 6)
    expected = model.inverse_transform(model.embedding_, return_std=True)
    np.testing.assert_allclose(mean, expected[0][:, [4, 0]], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(std, expected[1][:, [4, 0]], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("unit", [1e-60, 1e60, 1e99])
def test_decoded_numbers_that_single_precision_does_not_hold(tmp_path, X, unit):
    X = unit * np.nan_to_num(X)
    model = fitted(X)
    page, content, _ = written(model, tmp_path / "r.html", X)
    (kernel,) = json.loads(page.scripts["figures"])["kernels"]
    _, _, K = kernel_slice(model, "x", len(unpacked(kernel["values"])))
    np.testing.assert_allclose(unpacked(kernel["values"]) / K.max(), K / K.max(), atol=1e-4)
    view = content["views"][0]
    order = [int(name) for name in view["columns"]]
    mean, std = (unpacked(part) for part in view["decoded"])
    expected = model.inverse_transform(model.embedding_, return_std=True)
    np.testing.assert_allclose(mean / unit, expected[0][:, order] / unit, atol=1e-3)
    np.testing.assert_allclose(std / unit, expected[1][:, order] / unit, atol=1e-2)


# -- images
# ---------------------------------------------------------------------------


def test_square_images_are_recognised_and_tables_are_not():
    from sklearn.datasets import load_digits

    digits = load_digits().data
    source = np.random.default_rng(4)
    assert guess_shape(digits[:300]) == (8, 8)
    assert guess_shape(digits[:300, source.permutation(64)]) is None
    assert guess_shape(source.normal(size=(300, 64))) is None
    # a series in time
    assert guess_shape(np.cumsum(source.normal(size=(300, 64)), axis=1)) is None
    assert guess_shape(digits[:300, :49]) is None
    assert guess_shape(digits[:300, :32]) is None


def test_an_image_is_kept_pixel_by_pixel(tmp_path):
    from bochner.datasets import load_digits_halves

    bunch = load_digits_halves()
    X = bunch.data[:60]
    other = fitted(X, views=bunch.views)
    _, content, _ = written(
        other, tmp_path / "r.html", X, bunch.target[:60], shapes={"lower": (4, 8)}
    )
    upper, lower = content["views"]
    assert (upper["shape"], lower["shape"], lower["columns"]) == (None, [4, 8], [])
    assert len(upper["columns"]) == 32
    np.testing.assert_allclose(unpacked(lower["data"]), X[:, 32:], atol=16 / 254)


def test_shapes_are_checked():
    assert parse_shapes(["a=2x3", "b=4×5"]) == {"a": (2, 3), "b": (4, 5)}
    with pytest.raises(
        InputError,
        match=r"Expected --shape VIEW=HEIGHTxWIDTH, got 'a=28'. Write --shape left=28x28.",
    ):
        parse_shapes(["a=28"])
    with pytest.raises(InputError, match=r"got 'a=9{56}… Write") as caught:
        parse_shapes([f"a={'9' * 5000}x2"])
    assert len(str(caught.value)) < 200
    with pytest.raises(InputError, match="every view once"):
        parse_shapes(["a=2x3", "a=2x3"])
    with pytest.raises(InputError, match="a shape of 6 pixels for view 'a', got 2 x 2 = 4"):
        check_shapes({"a": (2, 2)}, {"a": 6})
    with pytest.raises(InputError, match=r"shapes for views from \['a'\], got one for 'b'"):
        check_shapes({"b": (2, 3)}, {"a": 6})


# -- labels
# ---------------------------------------------------------------------------


def test_labels_of_every_kind():
    (digits,) = as_labels([3, 10, 3], 3)
    assert (digits.name, digits.classes, digits.values.tolist()) == (
        "label",
        ["3", "10"],
        [0, 1, 0],
    )
    (words,) = as_labels(["b", None, "a"], 3)
    assert (words.classes, words.values.tolist()) == (["a", "b"], [1, -1, 0])
    (whole,) = as_labels(np.array([1.0, np.nan, 2.0]), 3)
    assert (whole.classes, whole.values.tolist()) == (["1", "2"], [0, -1, 1])
    (numbers,) = as_labels([0.5, 1.5, 2.0], 3)
    assert numbers.classes is None
    (many,) = as_labels(np.arange(60), 60)
    assert many.classes is None
    assert as_labels(None, 3) == []
    with pytest.raises(
        InputError, match=r"one label for each of the 3 rows, got 2 in 'label'"
    ):
        as_labels([1, 2], 3)
    with pytest.raises(
        InputError,
        match=r"one label for each of the 3 rows, got an array of shape \(1, 3\) in 'x'",
    ):
        as_labels({"x": [[1, 2, 3]]}, 3)


def test_label_files(tmp_path):
    def read(text, names=None, n=2, name="l.csv"):
        (tmp_path / name).write_text(text)
        return {
            key: values.tolist()
            for key, values in read_labels(tmp_path / name, names, n).items()
        }

    assert read("a\nb\n") == {"label": ["a", "b"]}
    assert read("kind\na\nb\n") == {"kind": ["a", "b"]}
    assert read("1\n2\n", name="l.txt") == {"label": [1, 2]}
    assert read("cell,kind,age\nr2,b,\nr1,a,3\nr0,c,1\n", ["r1", "r2"])["kind"] == ["a", "b"]
    assert read(",kind\n0,a\n1,b\n") == {"kind": ["a", "b"]}
    np.save(tmp_path / "l.npy", [1, 2])
    assert read_labels(tmp_path / "l.npy", None, 2)["label"].tolist() == [1, 2]
    np.savez(tmp_path / "l.npz", y=["a", "b"])
    assert read_labels(tmp_path / "l.npz", None, 2)["y"].tolist() == ["a", "b"]
    with pytest.raises(
        InputError, match=r"one label for each of the 5 rows, got 2 in .*l.csv"
    ):
        read("kind\na\nb\n", n=5)
    with pytest.raises(
        InputError, match=r"a file of labels, got .*none.csv, which does not exist"
    ):
        read_labels(tmp_path / "none.csv", None, 2)
    with pytest.raises(InputError, match="2 cells in every line"):
        read("a,b\nc\n")
    np.savez(tmp_path / "l.npz", z=[1, 2])
    with pytest.raises(InputError, match=r"an array y or labels, got z in"):
        read_labels(tmp_path / "l.npz", None, 2)
    (tmp_path / "l.npy").write_bytes(b"nonsense")
    with pytest.raises(InputError, match="a readable npy file, got"):
        read_labels(tmp_path / "l.npy", None, 2)
    (tmp_path / "l.xlsx").touch()
    with pytest.raises(InputError, match=r"labels in a .csv, .npy or .npz file"):
        read_labels(tmp_path / "l.xlsx", None, 2)


# -- supplied layouts
# ---------------------------------------------------------------------------


def test_a_supplied_layout_is_carried_with_its_name(model, tmp_path):
    places = np.random.default_rng(6).normal(size=(N, 2))
    _, content, _ = written(model, tmp_path / "r.html", embedding={EVIL: places})
    assert [one["name"] for one in content["layouts"]] == [EVIL]
    np.testing.assert_allclose(unpacked(content["layouts"][0]["values"]), places, rtol=1e-6)
    _, content, _ = written(model, tmp_path / "s.html", embedding=places.tolist())
    assert [one["name"] for one in content["layouts"]] == ["embedding"]


def test_layouts_are_checked():
    assert as_layouts(None, 3) == []
    with pytest.raises(InputError, match=r"shape \(3, 2\), got shape \(2, 2\) in 'embedding'"):
        as_layouts(np.zeros((2, 2)), 3)
    with pytest.raises(InputError, match=r"got 'u', which is not numeric"):
        as_layouts({"u": [["a", "b"]]}, 1)
    incomplete = np.zeros((3, 2))
    incomplete[2, 1] = np.nan
    with pytest.raises(
        InputError, match="finite coordinates, got nan in row 2, column 1 of 'u'"
    ):
        as_layouts({"u": incomplete}, 3)


def test_layout_files(tmp_path):
    np.save(tmp_path / "u.npy", [[1.0, 2.0], [3.0, 4.0]])
    assert read_layout(tmp_path / "u.npy", None, 2)["u"].tolist() == [[1, 2], [3, 4]]
    (tmp_path / "v.csv").write_text("cell,x,y\nb,3,4\na,1,2\n")
    assert read_layout(tmp_path / "v.csv", ["a", "b"], 2)["v"].tolist() == [[1, 2], [3, 4]]
    with pytest.raises(
        InputError, match="a line for every row, got none for 'c', or any other"
    ):
        read_layout(tmp_path / "v.csv", ["c", "d"], 2)
    (tmp_path / "v.csv").write_text("x,y,z\n3,4,5\n1,2,6\n")
    with pytest.raises(InputError, match=r"two columns of coordinates, got 3 \(x, y, z\)"):
        read_layout(tmp_path / "v.csv", ["a", "b"], 2)
    (tmp_path / "w.csv").write_text("x,y\n1,b\n2,c\n")
    with pytest.raises(InputError, match="numbers, got the text 'b' in column 'y'"):
        read_layout(tmp_path / "w.csv", None, 2)
    with pytest.raises(InputError, match="which does not exist"):
        read_layout(tmp_path / "none.npy", None, 2)
    (tmp_path / "u.npy").write_bytes(b"nonsense")
    with pytest.raises(InputError, match="a readable file of coordinates"):
        read_layout(tmp_path / "u.npy", None, 2)


# -- colours
# ---------------------------------------------------------------------------


def luminance(colour):
    """Relative luminance as in WCAG 2.2."""
    share = np.array([int(colour[k : k + 2], 16) for k in (1, 3, 5)]) / 255
    linear = np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(a, b):
    low, high = sorted([luminance(a), luminance(b)])
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_colours_have_contrast(scheme):
    css = (resources.files("bochner.page") / "assets" / "page.css").read_text()
    block = re.findall(r":root[^{]*\{([^}]*--paper[^}]*)\}", css)[scheme]
    tones = dict(re.findall(r"--([\w-]+): ([^;]+);", block))
    graphical = [tones[f"class-{k}"] for k in range(10)] + tones["ramp"].split()
    graphical += [tones[name] for name in ("missing", "edge", "data", "made", "accent")]
    assert len({tones[f"class-{k}"] for k in range(10)}) == 10
    for ground in (tones["paper"], tones["card"]):
        assert min(contrast(tone, ground) for tone in graphical) >= 3
        assert min(contrast(tones[name], ground) for name in ("ink", "quiet")) >= 4.5


# -- refused
# ---------------------------------------------------------------------------


def test_places_that_cannot_be_written(model, tmp_path):
    (tmp_path / "there.html").write_text("mine")
    with pytest.raises(
        InputError,
        match=r"there.html, which exists. Add --force \(overwrite=True\) to replace it",
    ):
        bo.report(model, path=tmp_path / "there.html")
    assert (tmp_path / "there.html").read_text() == "mine"
    with pytest.raises(InputError, match=r"an output file .html, got .*page.pdf"):
        bo.report(model, path=tmp_path / "page.pdf")
    with pytest.raises(InputError, match="an existing folder to write to"):
        bo.report(model, path=tmp_path / "none" / "r.html")
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(InputError, match="got the folder"):
        bo.report(model, path=tmp_path / "folder.html")


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the superuser may write anywhere"
)
def test_a_folder_without_the_right_to_write(model, tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(InputError, match="not writable"):
        bo.report(model, path=tmp_path / "r.html")


def test_names_and_labels_of_another_length(model, tmp_path):
    with pytest.raises(InputError, match="a name for each of the 24 rows, got 2"):
        bo.report(model, path=tmp_path / "r.html", row_names=["a", "b"])
    with pytest.raises(
        InputError, match="one label for each of the 24 rows, got 2 in 'label'"
    ):
        bo.report(model, labels=["a", "b"], path=tmp_path / "r.html")
    assert not list(tmp_path.iterdir())


def test_a_model_that_was_not_fitted(tmp_path):
    with pytest.raises(NotFittedError, match="This NGMVLVM instance is not fitted yet"):
        bo.report(bo.NGMVLVM(), path=tmp_path / "r.html")
    assert not list(tmp_path.iterdir())


def test_na_of_nullable_columns_is_missing(model, X, frame, tmp_path):
    nullable = frame.convert_dtypes()
    assert nullable.isna().to_numpy().any()
    assert {str(kind) for kind in nullable.dtypes} == {"Float64"}
    _, content, _ = written(model, tmp_path / "r.html", nullable)
    _, plain, _ = written(model, tmp_path / "s.html", frame)
    assert content == plain


def test_no_path_of_the_machine_in_model_files_and_pages(X, tmp_path):
    place = tmp_path / "secret-folder" / "run.ckpt"
    place.parent.mkdir()
    other = fitted(X, checkpoint=str(place))
    page = bo.report(other, X, path=tmp_path / "r.html")
    other.save(tmp_path / "m.bochner")
    for file in (page, tmp_path / "m.bochner"):
        assert b"secret-folder" not in file.read_bytes()
    assert bo.load(tmp_path / "m.bochner").checkpoint is None


# -- the command
# ---------------------------------------------------------------------------


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def folder(tmp_path_factory, X):
    """What ``bochner fit`` writes, page included."""
    path = tmp_path_factory.mktemp("fit")
    text = "\n".join(
        [
            ",a,b,c,d,e,f",
            *(
                f"r{i}," + ",".join("" if np.isnan(v) else str(v) for v in X[i])
                for i in range(N)
            ),
        ]
    )
    (path / "data.csv").write_text(text + "\n")
    settings = ["n_components=1", "n_frequencies=8", "n_init=1", "max_iter=5", "init=pca"]
    done = run(
        "fit",
        path / "data.csv",
        "--out",
        path / "o",
        "--report",
        *(a for s in settings for a in ("--set", s)),
    )
    assert done.exit_code == 0, done.stderr
    return path


def test_fit_writes_the_page_where_it_is_asked_to(folder):
    page = Elements((folder / "o" / "report.html").read_text())
    content = json.loads(page.scripts["content"])
    assert content["names"] == [f"r{i}" for i in range(N)]
    assert content["views"][0]["data"]


def test_report_takes_the_folder_the_data_and_labels(folder, tmp_path):
    (tmp_path / "l.csv").write_text(
        "row,kind\n" + "".join(f"r{i},{'ab'[i % 2]}\n" for i in reversed(range(N)))
    )
    arguments = ["--labels", tmp_path / "l.csv", "--out", tmp_path / "r.html", "--json"]
    done = run("report", folder / "o", folder / "data.csv", *arguments)
    assert done.exit_code == 0, done.stderr
    reply = json.loads(done.stdout)
    assert (reply["rows"], reply["file"]) == (N, str(tmp_path / "r.html"))
    assert reply["bytes"] == (tmp_path / "r.html").stat().st_size
    content = json.loads(Elements((tmp_path / "r.html").read_text()).scripts["content"])
    assert unpacked(content["labels"][0]["values"]).ravel().tolist() == [
        i % 2 for i in range(N)
    ]
    done = run(
        "report", folder / "o", "--labels", tmp_path / "l.csv", "--out", tmp_path / "s.html"
    )
    assert done.exit_code == 0, done.stderr  # joined by the names in embedding.csv
    done = run(
        "report", folder / "o", "--held-out", folder / "data.csv", "--out", tmp_path / "t.html"
    )
    assert done.exit_code == 0, done.stderr
    assert (
        json.loads(Elements((tmp_path / "t.html").read_text()).scripts["about"])[
            "calibration"
        ]["n_draws"]
        == 200
    )
    content = json.loads(Elements((tmp_path / "s.html").read_text()).scripts["content"])
    assert unpacked(content["labels"][0]["values"]).ravel().tolist() == [
        i % 2 for i in range(N)
    ]


BAD = {
    "exists": (["o"], "which exists. Add --force"),
    "no model": (["."], "no file at"),
    "no such folder": (
        ["o", "--out", "none/r.html"],
        "Expected an existing folder to write to",
    ),
    "extension": (["o", "--out", "r.pdf"], "Expected an output file .html"),
    "labels": (
        ["o", "--labels", "two.csv", "--out", "r.html"],
        "one label for each of the 24 rows, got 2 in",
    ),
    "no labels": (["o", "--labels", "none.csv", "--out", "r.html"], "which does not exist"),
    "other data": (["o", "narrow.csv", "--out", "r.html"], "unknown 'x'"),
    "no data": (["o", "none.csv", "--out", "r.html"], "which does not exist"),
    "shape": (
        ["o", "--shape", "x=3x3", "--out", "r.html"],
        "a shape of 6 pixels for view 'x', got 3 x 3 = 9",
    ),
    "size factors of no rows": (
        ["o", "--size-factors", "zz", "--out", "r.html"],
        "got --size-factors without DATA or --held-out. Write DATA after MODEL",
    ),
    "form of a shape": (
        ["o", "--shape", "x=3", "--out", "r.html"],
        "--shape VIEW=HEIGHTxWIDTH",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_exit_code_2_and_one_message(folder, tmp_path, monkeypatch, name):
    arguments, text = BAD[name]
    monkeypatch.chdir(folder)
    (folder / "two.csv").write_text("kind\na\nb\n")
    (folder / "narrow.csv").write_text("x,y\n1,2\n3,4\n")
    before = (folder / "o" / "report.html").read_bytes()
    done = run("report", *arguments)
    assert done.exit_code == 2, (done.stdout, done.stderr)
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
    assert text in line
    assert "Traceback" not in done.stderr
    assert not (folder / "r.html").exists()
    assert (folder / "o" / "report.html").read_bytes() == before


def test_the_command_takes_a_layout(folder, tmp_path):
    places = np.random.default_rng(7).normal(size=(N, 2))
    lines = [f"r{i},{places[i, 0]},{places[i, 1]}" for i in reversed(range(N))]
    (tmp_path / "umap.csv").write_text("\n".join(["row,x,y", *lines]) + "\n")
    out = tmp_path / "r.html"
    done = run("report", folder / "o", "--embedding", tmp_path / "umap.csv", "--out", out)
    assert done.exit_code == 0, done.stderr
    (layout,) = json.loads(Elements(out.read_text()).scripts["content"])["layouts"]
    assert layout["name"] == "umap"
    np.testing.assert_allclose(unpacked(layout["values"]), places, rtol=1e-6)


@pytest.mark.parametrize("above", ["", "0,1\n", "x,y\n"])
def test_a_layout_needs_no_header(folder, tmp_path, above):
    places = np.random.default_rng(7).normal(size=(N, 2))
    lines = "".join(f"{x},{y}\n" for x, y in places)
    (tmp_path / "umap.csv").write_text(above + lines)
    layout = read_layout(tmp_path / "umap.csv", [f"r{i}" for i in range(N)], N)
    np.testing.assert_array_equal(layout["umap"], places)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        (
            "u.csv",
            "x,y\n1,2\n3,4\n",
            "Expected two coordinates for each of the 5 rows, got 2 in ",
        ),
        ("u.csv", "1,2\n3,4\n", "Expected two coordinates for each of the 5 rows, got 2 in "),
        ("none.csv", None, "Expected a file of coordinates, got "),
        ("u.npz", "", "Expected coordinates in a .csv or .npy file, got "),
    ],
)
def test_a_layout_is_refused_in_its_own_words(tmp_path, name, text, says):
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(InputError) as refused:
        read_layout(tmp_path / name, None, 5)
    assert str(refused.value).startswith(says)
    assert "label" not in str(refused.value)


def test_force_replaces_the_page(folder, tmp_path):
    (tmp_path / "r.html").write_text("old")
    done = run(
        "report", folder / "o" / "model.bochner", "--out", tmp_path / "r.html", "--force"
    )
    assert done.exit_code == 0, done.stderr
    assert "<!doctype html>" in (tmp_path / "r.html").read_text()


def test_traces_and_ranks_of_chains():
    log_joint = np.random.default_rng(0).normal(size=(3, 60)) + np.array([[0.0], [0.0], [9.0]])
    trace, ranks = charts.chains(log_joint)
    assert [line["label"] for line in trace["lines"]] == ["chain 0", "chain 1", "chain 2"]
    np.testing.assert_allclose(trace["lines"][1]["y"], log_joint[1], rtol=1e-6)
    shares = np.array([line["y"][::2] for line in ranks["lines"][:3]])
    # bars have the same width: a chain's frequencies are 1 on average
    np.testing.assert_allclose(shares.mean(1), 1.0)
    np.testing.assert_allclose(shares.mean(0), 1.0)
    # the chain that lies above the others has the last third of the ranks
    assert shares[2, :4].sum() == 0.0
    assert [chart["title"] for chart in charts.chains(log_joint[:1])] == [trace["title"]]


def test_labels_are_not_taken_by_position_where_most_names_join(tmp_path):
    """One name that is spelled otherwise would move all labels to other rows."""
    names = [f"s{i}" for i in range(6)]
    lines = [f"{name},{name in names[:3]}" for name in reversed(names)]
    path = tmp_path / "labels.csv"
    path.write_text("\n".join(["sample,grp", *lines]))
    assert list(read_labels(path, names, 6)["grp"]) == ["True"] * 3 + ["False"] * 3
    path.write_text("\n".join(["sample,grp", *lines]).replace("s4,", "S4,"))
    text = (
        r"a line for every row, got none for 's4' in .*labels.csv. Add it, or correct its name"
    )
    with pytest.raises(InputError, match=text):
        read_labels(path, names, 6)
    path.write_text("\n".join(["id,grp", *(f"{i:02d},{i % 2}" for i in range(6, 0, -1))]))
    rows = [str(i) for i in range(1, 7)]
    assert list(read_labels(path, rows, 6)["grp"]) == [1, 0, 1, 0, 1, 0]
    for header in ("sample", "", "cell_id"):
        path.write_text("\n".join([f"{header},grp", *lines]).replace("\ns", "\nt"))
        with pytest.raises(InputError, match=r"none for 's0', or any other, in .*, but 't5'"):
            read_labels(path, names, 6)
    # an index that counts rows names none of them
    for start in (0, 1):
        path.write_text("\n".join([",grp", *(f"{start + i},{i % 2}" for i in range(6))]))
        assert list(read_labels(path, names, 6)["grp"]) == [0, 1, 0, 1, 0, 1]
    # numbers under another name are a labelling
    path.write_text("\n".join(["rank,grp", *(f"{i},{i % 2}" for i in range(3, 9))]))
    assert list(read_labels(path, rows, 6)) == ["rank", "grp"]


def test_a_bound_of_fewer_entries_than_the_final_one_says_so(tmp_path):
    rng = np.random.default_rng(0)
    z = rng.normal(size=(60, 1))
    X = np.sin(z + np.arange(20)) + 0.1 * rng.normal(size=(60, 20))
    X[rng.random(X.shape) < 0.05] = np.nan
    small = {"init": "pca", "n_frequencies": 8, "max_iter": 4, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = bo.NGMVLVM(1, noise="column", **small).fit(X)
        whole = bo.NGMVLVM(1, noise="column", **small).fit(X[~np.isnan(X).any(axis=1)])
        weighted = bo.NGMVLVM(1, view_weight={"x": 2.0}, **small).fit(np.nan_to_num(X))
    assert model.withheld_["x"] > 40
    assert whole.withheld_ == {"x": 0}
    about = written(model, tmp_path / "r.html")[2]
    said = f"is that of fewer entries ({model.withheld_['x']:,} are kept out of training"
    assert said in about["partial"]
    texts = [text.get_text() for text in bo.plots.bound_trace(model).get_legend().get_texts()]
    assert texts[-1].startswith("final, of all data: ")
    assert written(whole, tmp_path / "w.html")[2]["partial"] == ""
    assert "weighted views" in written(weighted, tmp_path / "v.html")[2]["partial"]
    model.save(tmp_path / "m.bochner")
    assert bo.load(tmp_path / "m.bochner").withheld_ == model.withheld_


def test_labels_find_the_rows_of_a_model_file(folder, tmp_path):
    """Beside its folder's embedding a file has names of rows, too; alone labels go by their
    order, which is said.
    """
    labels = tmp_path / "labels.csv"
    labels.write_text("\n".join(["id,row", *(f"r{i},x{i}" for i in reversed(range(N)))]))
    out = tmp_path / "r.html"

    def made(path):
        done = run("report", path, "--labels", labels, "--out", out, "--force")
        assert done.exit_code == 0, done.stderr
        content = json.loads(Elements(out.read_text()).scripts["content"])
        label = content["labels"][0]
        rows = [label["classes"][k] for k in unpacked(label["values"]).astype(int)]
        return rows, done.stderr

    in_order = [f"x{i}" for i in range(N)]
    for path in (folder / "o", folder / "o" / "model.bochner"):
        assert made(path) == (in_order, "")
    alone = tmp_path / "model.bochner"
    shutil.copy(folder / "o" / "model.bochner", alone)
    text = "Warning: The rows have no names to join by: the lines of "
    # beside another's embedding a file is alone, too
    for other in (None, "x,y\na,b\n", (folder / "o" / "embedding.csv").read_text()[:-30]):
        if other is not None:
            (tmp_path / "embedding.csv").write_text(other)
        rows, said = made(alone)
        assert rows == in_order[::-1]
        assert said.startswith(text)


def test_names_of_a_layout_are_no_coordinates_where_rows_have_none(tmp_path):
    path = tmp_path / "umap.csv"
    path.write_text("name,x,y\na,1,2\nb,3,4\n")
    with pytest.warns(DataWarning, match="are taken in their order, from 'a' on"):
        layout = read_layout(path, None, 2)
    np.testing.assert_array_equal(layout["umap"], [[1.0, 2.0], [3.0, 4.0]])


def test_labels_that_count_rows_are_taken_in_their_order_without_a_word(tmp_path, recwarn):
    path = tmp_path / "l.csv"
    for start in (0, 1):
        path.write_text("\n".join(["id,kind", *(f"{start + i},k{i}" for i in range(4))]))
        assert list(read_labels(path, None, 4)) == ["kind"]
    assert not recwarn.list
