"""Several views that are read block by block: what they are in memory."""

from __future__ import annotations

import zipfile

import numpy as np
import pytest
import scipy.sparse as sp

import bochner as bo
from bochner.data.row_sources import ArraySource, JoinedSource, RowSource
from bochner.errors import InputError
from bochner.io import on_disk
from bochner.io.array_files import map_arrays
from bochner.io.readers import open_source, read_source
from bochner.io.request import Request
from bochner.memory import Memory
from helpers.cli import SETTINGS, no_stds_in, refused, replied

pytestmark = [
    pytest.mark.usefixtures("read_by_blocks", "rough_estimates", "two_folds"),
    pytest.mark.filterwarnings("ignore:Training stopped"),
]
NAMES = np.array([f"cell{i}" for i in range(300)])


@pytest.fixture(scope="module")
def views():
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(300, 2))
    return {
        name: np.sin(Z @ rng.normal(size=(2, m))) + 0.1 * rng.normal(size=(300, m))
        for name, m in (("rna", 6), ("protein", 4))
    }


def archive(views, folder):
    np.savez(folder / "x.npz", **views, y=np.arange(300) % 3)
    return folder / "x.npz"


def compressed(views, folder):
    turned = {name: np.asfortranarray(X) for name, X in views.items()}
    np.savez_compressed(folder / "x.npz", row_names=NAMES, **turned)
    return folder / "x.npz"


def arrays(views, folder):
    for name, X in views.items():
        np.save(folder / f"{name}.npy", X)
    return folder


def tables(views, folder):
    """Rows in different orders, some in one table only."""
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frames = {
        name: pandas.DataFrame(X, NAMES, [f"{name}{j}" for j in range(X.shape[1])])
        for name, X in views.items()
    }
    frames["rna"].iloc[20:].to_parquet(folder / "rna.parquet")
    frames["protein"][::-1].iloc[30:].rename_axis("cell").to_csv(folder / "protein.csv")
    return folder


def modalities(views, folder):
    anndata, mudata = pytest.importorskip("anndata"), pytest.importorskip("mudata")
    parts = {}
    for name, X in views.items():
        part = anndata.AnnData(X if name == "rna" else sp.csr_matrix(X))
        part.obs_names = NAMES
        part.var_names = [f"{name}{j}" for j in range(X.shape[1])]
        parts[name] = part[10:] if name == "rna" else part
    mudata.MuData(parts).write(folder / "x.h5mu")
    return folder / "x.h5mu"


SOURCES = [archive, compressed, arrays, tables, modalities]


@pytest.fixture(params=SOURCES, ids=lambda write: write.__name__)
def path(request, views, tmp_path):
    return request.param(views, tmp_path)


def test_views_on_disk_are_those_in_memory(path):
    whole = read_source(path, Request())
    table = open_source(path, Request())
    assert table is not None
    assert table.shape == whole.X.shape
    assert table.X.shape[0] == 0
    np.testing.assert_array_equal(table.rows.whole(), whole.X)
    for start, stop in [(0, 1), (15, 40), (250, 300), (7, 7)]:
        np.testing.assert_array_equal(table.rows.read(start, stop), whole.X[start:stop])
    assert table.views == whole.views
    assert table.row_names == whole.row_names
    assert table.column_names == whole.column_names == table.rows.columns
    if whole.labels is None:
        assert table.labels is None
    else:
        np.testing.assert_array_equal(table.labels, whole.labels)
    some = table.sampled(50)
    np.testing.assert_array_equal(some.X, whole.X[on_disk.evenly(300, 50)])


@pytest.mark.usefixtures("no_estimates")
def test_commands_give_the_answers_of_views_in_memory(path, tmp_path, monkeypatch, request):
    assert replied("info", path, *SETTINGS[:-2])["read"] == "block by block"
    latents = {}
    for most in (0, 2**22):
        monkeypatch.setattr(on_disk, "MANY", most)
        if most:
            request.getfixturevalue("no_pictures")
        out = tmp_path.parent / f"{tmp_path.name}-{most}"
        with monkeypatch.context() as patch:
            no_stds_in(patch)
            replied("fit", path, "--out", out, *SETTINGS)
        placed = out / "placed.npy"
        replied("transform", out, path, "--out", placed)
        model = bo.load(out)
        assert list(model.views_) == ["protein", "rna"] or list(model.views_) == [
            "rna",
            "protein",
        ]
        latents[most] = np.load(placed)
        np.testing.assert_allclose(latents[most][:, :2], model.embedding_, atol=1e-4)
    np.testing.assert_allclose(latents[0], latents[2**22], atol=2e-3)


@pytest.mark.usefixtures("no_stds")
def test_an_array_of_one_view_is_placed(views, tmp_path):
    out = tmp_path / "run"
    replied("fit", archive(views, tmp_path), "--out", out, *SETTINGS)
    np.savez(tmp_path / "one.npz", protein=views["protein"])
    replied("transform", out, tmp_path / "one.npz", "--out", tmp_path / "z.npy")
    X = np.hstack([np.full_like(views["rna"], np.nan), views["protein"]])
    expected = bo.load(out).transform(X)
    np.testing.assert_allclose(np.load(tmp_path / "z.npy")[:, :2], expected, atol=1e-4)


def test_stack_lays_rows_on_disk_side_by_side(views, tmp_path):
    arrays(views, tmp_path)
    X, columns = bo.stack(
        {
            "rna": bo.open_rows(tmp_path / "rna.npy"),
            "protein": np.load(tmp_path / "protein.npy", mmap_mode="r"),
            "more": views["rna"],
        }
    )
    assert isinstance(X, RowSource)
    assert columns == {"rna": slice(0, 6), "protein": slice(6, 10), "more": slice(10, 16)}
    expected = np.hstack([views["rna"], views["protein"], views["rna"]])
    np.testing.assert_array_equal(X.whole(), expected)
    settings = {"landmarks": 80, "n_frequencies": 8, "max_iter": 5, "init": "pca"}
    models = [
        bo.NGMVLVM(**settings, views=columns, random_state=0).fit(rows)
        for rows in (X, expected)
    ]
    np.testing.assert_allclose(models[0].elbo_, models[1].elbo_, rtol=1e-6)


def test_stack_refuses_what_does_not_stand_beside_rows_on_disk(views, tmp_path):
    arrays(views, tmp_path)
    rows = bo.open_rows(tmp_path / "rna.npy")
    with pytest.raises(InputError, match=r"'a': 300, 'b': 20\. Give each view all rows, NaN"):
        bo.stack({"a": rows, "b": views["protein"][:20]})
    pandas = pytest.importorskip("pandas")
    with pytest.raises(
        InputError, match=r"got DataFrame for view 'b'\. Pass its values, rows in"
    ):
        bo.stack({"a": rows, "b": pandas.DataFrame(views["protein"])})


def test_rows_that_a_source_lacks_are_missing():
    a, b = np.arange(6.0).reshape(3, 2), np.arange(4, dtype=np.float32).reshape(4, 1)
    joined = JoinedSource(
        [ArraySource(a), ArraySource(b)], None, [np.array([2, -1, 0]), np.array([1, 2, 3])]
    )
    nan = np.nan
    expected = [[4.0, 5.0, 1.0], [nan, nan, 2.0], [0.0, 1.0, 3.0]]
    np.testing.assert_array_equal(joined.whole(), expected)
    np.testing.assert_array_equal(joined.take(np.array([2, 0])), np.array(expected)[[2, 0]])
    assert joined.dtype == np.float64
    with pytest.raises(InputError, match=r"views of the same rows, got 3, 4 rows"):
        JoinedSource([ArraySource(a), ArraySource(b)])


def test_files_of_unequal_rows_are_refused(views, tmp_path):
    arrays({"rna": views["rna"], "protein": views["protein"][:200]}, tmp_path)
    text = refused("info", tmp_path)
    assert "'protein': 200, 'rna': 300" in " ".join(text.split())


def test_a_file_of_several_arrays_in_a_folder_is_refused(views, tmp_path):
    archive(views, tmp_path)
    np.save(tmp_path / "other.npy", views["rna"])
    text = " ".join(refused("info", tmp_path).split())
    assert "one array per file of a folder" in text


def test_the_columns_that_name_rows_are_asked_for(views, tmp_path):
    pandas = pytest.importorskip("pandas")
    for name, X in views.items():
        frame = pandas.DataFrame(X, columns=[f"{name}{j}" for j in range(X.shape[1])])
        frame.insert(0, "height", np.arange(300)[::-1])
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    text = " ".join(refused("info", tmp_path).split())
    assert "without a column of row names" in text
    assert "--index height" in text


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_archives_map_what_numpy_reads(save, views, tmp_path):
    path = tmp_path / "x.npz"
    save(path, **views, row_names=NAMES)
    mapped = map_arrays(path, Memory(), 0)
    assert mapped is not None
    with np.load(path) as loaded:
        assert list(mapped) == list(loaded)
        for name in mapped:
            np.testing.assert_array_equal(mapped[name], loaded[name])
    assert all(isinstance(mapped[name], np.memmap) for name in views)
    # few numbers, whole numbers and more dimensions are for who reads them whole
    assert map_arrays(path, Memory(), 3000) is None
    for other in (np.arange(6).reshape(2, 3), np.zeros((2, 3, 4))):
        save(path, other)
        assert map_arrays(path, Memory(), 0) is None


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_damaged_archives_are_named(save, views, tmp_path):
    path = tmp_path / "x.npz"
    save(path, **views)
    whole = path.read_bytes()
    for stop in (30, len(whole) // 2, len(whole) - 10):
        path.write_bytes(whole[:stop])
        assert "a readable npz file" in " ".join(refused("info", path).split())
    # an array that is shorter than it says
    path.write_bytes(whole)
    with zipfile.ZipFile(path) as archive:
        start = archive.read("rna.npy")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("rna.npy", start[:2000])
    assert "cut short" in refused("info", path)
