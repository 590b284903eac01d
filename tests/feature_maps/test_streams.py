"""Feature maps of rows that are not in memory: same features, flat memory, messages."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import numpy as np
import pytest
from numpy.lib.format import open_memmap

from bochner.errors import InputError
from bochner.feature_maps.comparators import RandomMaclaurin, SphericalFeatures
from bochner.feature_maps.fourier import FourierFeatures
from bochner.feature_maps.krein import KreinFeatures

MAPS = [
    FourierFeatures(n_components=6, random_state=0),
    KreinFeatures("tl1", n_components=6, max_iter=3, sketch_size=40, random_state=0),
    KreinFeatures("polynomial", n_components=6, max_iter=3, sketch_size=40, random_state=0),
    RandomMaclaurin(n_components=6, random_state=0),
    SphericalFeatures(n_components=6, random_state=0),
]
NAMES = ["fourier", "tl1", "polynomial", "maclaurin", "spherical"]


@pytest.fixture
def X():
    rng = np.random.default_rng(0)
    # more rows than one block of 10 columns has
    values = rng.uniform(size=(120_000, 10)).astype(np.float32)
    values[rng.integers(len(values), size=300)] = 0.0  # no place on a sphere
    return values


@pytest.fixture
def stored(X, tmp_path):
    np.save(tmp_path / "x.npy", X)
    return np.load(tmp_path / "x.npy", mmap_mode="r")


@pytest.mark.filterwarnings("ignore:.*norm zero")
@pytest.mark.parametrize("model", MAPS, ids=NAMES)
def test_a_memory_map_gives_the_features_of_the_array(model, X, stored):
    expected = model.fit(X).transform(X[-1000:])
    assert expected.dtype == np.float32
    np.testing.assert_array_equal(model.fit(stored).transform(stored[-1000:]), expected)
    parts = list(model.iter_transform(stored[-1000:], chunk=300))
    assert [len(part) for part in parts] == [300, 300, 300, 100]
    np.testing.assert_allclose(np.concatenate(parts), expected, atol=1e-6)


@pytest.mark.filterwarnings("ignore:.*norm zero")
@pytest.mark.parametrize("model", MAPS[:3], ids=NAMES[:3])
def test_zarr_arrays_are_read_block_by_block(model, X, tmp_path):
    zarr = pytest.importorskip("zarr")
    array = zarr.open(str(tmp_path / "x.zarr"), mode="w", shape=X.shape, dtype="f4")
    array[:] = X
    expected = model.fit(X).transform(X[:500])
    model.fit(array)
    np.testing.assert_array_equal(model.transform(X[:500]), expected)
    parts = list(model.iter_transform(array, chunk=50_000))
    np.testing.assert_allclose(parts[0][:500], expected, atol=1e-6)
    assert sum(map(len, parts)) == len(X)


def test_an_iterator_of_blocks_is_transformed_block_by_block(X):
    model = FourierFeatures(n_components=6, random_state=0).fit(X[:10])
    parts = model.iter_transform(X[first : first + 7] for first in (0, 7))
    np.testing.assert_allclose(np.concatenate(list(parts)), model.transform(X[:14]), atol=1e-6)


@pytest.mark.parametrize(
    "model", [MAPS[0], *MAPS[3:]], ids=["fourier", "maclaurin", "spherical"]
)
def test_partial_fit_of_blocks_is_the_fit_of_all_rows(model, X):
    expected = model.fit(X).transform(X[1:9])
    del model._n_features_out
    for first in (0, 50, 100):
        model.partial_fit(X[first : first + 50])
    np.testing.assert_array_equal(model.transform(X[1:9]), expected)
    with pytest.raises(ValueError, match=r"X has 3 features, but .* is expecting 10 features"):
        model.partial_fit(X[:, :3])


def test_partial_fit_refuses_what_is_not_finite(X):
    model = FourierFeatures().partial_fit(X[:10])
    with pytest.raises(ValueError, match="NaN"):
        model.partial_fit(np.full((3, 10), np.nan))


def test_a_late_block_that_is_not_finite_is_refused(X):
    X[-1, 0] = np.nan
    with pytest.raises(ValueError, match="Input X contains NaN"):
        FourierFeatures().fit(X)


def test_a_zarr_group_is_refused_with_its_arrays(tmp_path):
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(str(tmp_path / "g.zarr"), mode="w")
    group.create_array("counts", shape=(4, 2), dtype="f4")
    text = (
        r"Expected an array of rows, got a zarr group that holds 'counts'. Choose one of its "
    )
    with pytest.raises(InputError, match=text + r"arrays: group\['counts'\]."):
        FourierFeatures().fit(group)


def test_dask_arrays_are_transformed_when_asked_for(X):
    da = pytest.importorskip("dask.array")
    model = FourierFeatures(n_components=6, random_state=0).fit(X)
    lazy = model.transform(da.from_array(X[:1000], chunks=(300, 4)))
    assert lazy.shape == (1000, 6)
    assert lazy.dtype == np.float32
    np.testing.assert_allclose(lazy.compute(), model.transform(X[:1000]), atol=1e-6)
    again = FourierFeatures(n_components=6, random_state=0).fit(
        da.from_array(X, chunks=10_000)
    )
    np.testing.assert_array_equal(again.transform(X[:9]), model.transform(X[:9]))


def test_dask_arrays_of_unknown_size_are_refused(X):
    da = pytest.importorskip("dask.array")
    some = da.from_array(X[:1000], chunks=300)
    unknown = some[some[:, 0] > 0.5]
    text = r"got a Dask array of shape \(nan, 10\). Count its rows first: X.compute_chunk_sizes\(\)"
    with pytest.raises(InputError, match=text):
        FourierFeatures().fit(unknown)


class Growing:
    """Gives fewer rows than it said."""

    shape, dtype = (10, 2), np.dtype("f4")

    def __getitem__(self, rows):
        return np.ones((3, 2), np.float32)


Growing.__module__ = "zarr"


def test_rows_that_change_during_a_fit_are_refused():
    text = (
        r"Expected the same rows from start to end, got shape \(3, 2\) for rows 0 to 9, which had "
        r"\(10, 2\). Start again when nothing writes to the data any more."
    )
    with pytest.raises(InputError, match=text):
        FourierFeatures().fit(Growing())


PEAK = """
import sys, tracemalloc, warnings
import numpy as np
from bochner.feature_maps.fourier import FourierFeatures
from bochner.feature_maps.krein import KreinFeatures
{model}
X = np.load({path!r}, mmap_mode="r")
model.fit(X[:5000])
next(model.iter_transform(X[:5000]))  # what is imported or cached at first use
import threading, time
def anonymous():
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))
before, peak, done = anonymous(), [0], threading.Event()
def watch():
    while not done.wait(0.001):
        peak[0] = max(peak[0], anonymous())
watcher = threading.Thread(target=watch)
watcher.start()
model.fit(X)
for part in model.iter_transform(X):
    pass
done.set()
watcher.join()
print((peak[0] - before) / 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    "model", ["FourierFeatures('rbf', 10)", "KreinFeatures('tl1', 10, max_iter=2)"]
)
def test_memory_does_not_grow_with_the_rows_of_a_memory_map(model, tmp_path):
    path = tmp_path / "x.npy"
    rows = open_memmap(path, mode="w+", dtype=np.float32, shape=(2_000_000, 20))
    rows[:] = np.random.default_rng(0).uniform(size=20).astype(np.float32)
    rows[::3] *= 0.5
    del rows
    code = textwrap.dedent(PEAK).format(model=f"model = {model}", path=str(path))
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    # the file has 153 MB, a copy of it would show; a block of it has 4
    assert float(done.stdout) < 80.0
