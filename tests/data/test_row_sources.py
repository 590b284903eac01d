"""Rows that are read block by block from memory maps."""

import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import bochner as bo
from bochner.data.columns import ends_and_sample, extremes
from bochner.data.missing import split_rows
from bochner.data.row_sources import ArraySource
from bochner.data.views import Views
from bochner.errors import InputError
from bochner.processes import ALONE


def mapped_bytes():
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("RssFile"))


@pytest.mark.skipif(
    sys.platform != "linux", reason="the memory of a process is read from /proc"
)
def test_pages_of_a_memory_map_are_given_back_when_they_were_read(tmp_path):
    X = np.arange(2**23, dtype=np.float32).reshape(-1, 64)  # 32 MB, eight blocks
    np.save(tmp_path / "x.npy", X)
    source = ArraySource(np.load(tmp_path / "x.npy", mmap_mode="r"))
    before = mapped_bytes()
    sums = [block.sum(axis=0) for block in source.blocks()]
    assert len(sums) == 8
    assert mapped_bytes() - before < X.nbytes / 4
    np.testing.assert_array_equal(sums, X.reshape(8, -1, 64).sum(axis=1))
    np.testing.assert_array_equal(source.array[100:5000:7][::2], X[100:5000:7][::2])


@pytest.mark.parametrize("mode", ["r+", "c"])
def test_entries_written_to_a_memory_map_stay(mode, tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((3000, 4)))
    array = np.load(tmp_path / "x.npy", mmap_mode=mode)
    array[7, 1] = 5.0
    source = ArraySource(array[5:])
    assert source.read(0, 100)[2, 1] == 5.0
    assert source.read(0, 100)[2, 1] == 5.0
    assert array[7, 1] == 5.0


@pytest.mark.parametrize("mode", ["r", "c"])
@pytest.mark.parametrize("offset", [0, 5000])
def test_a_memory_map_of_a_file_that_was_cut_short_is_refused(mode, offset, tmp_path):
    """Reading it would kill the process (SIGBUS)."""
    path = tmp_path / "x.bin"
    path.write_bytes(bytes(offset) + np.arange(20000.0).tobytes())
    array = np.memmap(path, np.float64, mode, offset, (5000, 4))
    source = ArraySource(array[10:])
    np.testing.assert_array_equal(source.read(0, 1), [[40.0, 41.0, 42.0, 43.0]])
    with path.open("r+b") as file:
        file.truncate(offset + 159_999)
    with pytest.raises(
        InputError, match=r"bytes in .*x\.bin, which had .*\. Start again when"
    ):
        source.read(0, 1)


@pytest.mark.parametrize(
    "rows",
    [
        np.arange(30) % 3 == 0,
        np.array([-1, -30, 4]),
        [3, 1, 3],
        np.zeros(0, dtype=np.int64),
        [],
        slice(-4, None),
        slice(None, None, 7),
    ],
)
def test_rows_are_chosen_as_those_of_an_array(rows):
    X = np.random.default_rng(0).normal(size=(30, 3))
    np.testing.assert_array_equal(ArraySource(X)[rows], X[rows])


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        (np.ones(7, dtype=bool), "a mask of 30 rows, got 7"),
        ([4, 30], "rows of 30, got row 30"),
        ([-31], "rows of 30, got row -31"),
        (3, r"got int64 of shape \(\)\. Write rows\[\[3\]\]"),
    ],
)
def test_rows_that_are_not_there_are_refused(rows, text):
    with pytest.raises(InputError, match=text):
        ArraySource(np.zeros((30, 3)))[rows]


def test_a_file_of_hdf5_that_was_closed_is_refused(tmp_path):
    h5py = pytest.importorskip("h5py")
    X = np.random.default_rng(0).normal(size=(60, 3))
    quick = {"landmarks": 20, "n_frequencies": 4, "init": "pca", "max_iter": 2}
    model = bo.NGMVLVM(1, **quick, random_state=0)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = X
        rows = file["x"]
        with pytest.warns(ConvergenceWarning):
            model.fit(rows)
    for work in (lambda: model.embedding_, lambda: model.fit(rows)):
        with pytest.raises(InputError, match="got a file that was closed"):
            work()


class Counted(ArraySource):
    """Rows that count how often they are read."""

    def __init__(self, array):
        super().__init__(array)
        self.n_read = 0

    def read(self, start, stop):
        self.n_read += min(stop, self.n_rows) - start
        return super().read(start, stop)


def test_rows_are_looked_at_few_times_before_training(monkeypatch):
    """Every pass over gigabytes takes a minute: the checksum; least and largest values, with a
    sample; means; scales; and the sum of squares that the bound has.
    """
    X = np.random.default_rng(0).normal(size=(3000, 4)).astype(np.float32)
    rows = Counted(X)
    seen = []

    def stop(*_):
        seen.append(rows.n_read / len(X))
        raise KeyboardInterrupt

    monkeypatch.setattr(bo.NGMVLVM, "_infer", stop)
    with pytest.raises(KeyboardInterrupt):
        bo.NGMVLVM(landmarks=100, n_frequencies=4, random_state=0).fit(rows)
    assert seen == [pytest.approx(5.0, abs=0.01)]


@pytest.mark.parametrize("n_rows", [1, 7, 1000, 2500, 40_000])
def test_a_sample_is_taken_in_the_pass_that_finds_least_and_largest_values(n_rows):
    X = np.random.default_rng(0).normal(size=(n_rows, 3))
    X[n_rows // 2, 0] = np.nan
    low, high, some = ends_and_sample(X, 1000)
    np.testing.assert_array_equal(some, X[:: max(1, n_rows // 1000)])
    np.testing.assert_array_equal([low, high], extremes(X))


def test_views_that_lack_nothing_are_divided_without_a_look_at_them():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 6))
    X[rng.random(200) < 0.3, 3:] = np.nan
    data = Views.fit(X, {"a": [0, 1, 2], "b": [3, 4, 5]})
    np.testing.assert_array_equal(data.counts, (~np.isnan(X)).sum(axis=0))
    for view in data.names:
        result, expected = (
            data.divided(view, ALONE),
            split_rows(X, data.columns[view], ALONE),
        )
        for (rows, columns), (rows_, columns_) in zip(result[0], expected[0], strict=True):
            np.testing.assert_array_equal(rows, rows_)
            np.testing.assert_array_equal(columns, columns_)
        assert result[1] == expected[1] == []
