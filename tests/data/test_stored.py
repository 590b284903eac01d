"""Views of rows that are read block by block."""

import shutil
import tempfile

import numpy as np
import pytest
import torch

from bochner.data.row_sources import ArraySource, PartSource, RowSource
from bochner.data.stored import StoredMatrix, copied, unpacked
from bochner.data.views import Scaling

N, M, R = 5000, 60, 4


class Packed(RowSource):
    """Rows that count how often they are read, as those of a compressed file."""

    columns = None
    block_rows = 700

    def __init__(self, X):
        self.X, self.n_read = X, 0
        self.n_rows, self.n_columns = X.shape
        self.dtype = X.dtype

    def read(self, start, stop):
        self.n_read += stop - start
        return self.X[start:stop].copy()


def _entries():
    return np.random.default_rng(0).normal(size=(N, M)).astype(np.float32)


def _matrix(source, basis=None, rows=None):
    scaling = Scaling(np.linspace(-1.0, 1.0, M), np.linspace(0.5, 2.0, M))
    columns = np.arange(M)
    like = (torch.float32, torch.device("cpu"))
    return StoredMatrix(source, columns, scaling, *like, basis, rows)


def _basis():
    return torch.linalg.qr(torch.randn(M, R, generator=torch.Generator().manual_seed(1)))[0]


@pytest.mark.parametrize("rotated", [False, True])
@pytest.mark.parametrize("some_rows", [False, True])
def test_a_copy_has_the_same_entries_and_leaves_the_source_alone(tmp_path, rotated, some_rows):
    source = Packed(_entries())
    rows = torch.arange(3, N, 2) if some_rows else None
    matrix = _matrix(source, _basis() if rotated else None, rows)
    copy = matrix.copied(tmp_path)
    read = source.n_read
    assert copy is not matrix
    assert copy.shape == matrix.shape
    torch.testing.assert_close(copy[:], matrix[:], rtol=0.0, atol=0.0)
    assert source.n_read <= 2 * read
    index = torch.tensor([17, 1, 2000, 1999])
    assert torch.equal(copy[index], matrix[index])
    before = source.n_read
    assert torch.equal(copy[800:2100], copy[:][800:2100])
    assert source.n_read == before
    assert list(tmp_path.iterdir()) == []


def test_rows_that_cost_no_more_to_read_are_not_copied(tmp_path):
    np.save(tmp_path / "x.npy", _entries())
    source = ArraySource(np.load(tmp_path / "x.npy", mmap_mode="r"))
    plain = _matrix(source)
    assert plain.copied(tmp_path) is plain
    assert _matrix(PartSource(source, slice(0, 900))).copied(tmp_path).shape == (900, M)
    narrow = _matrix(source, _basis())
    assert narrow.copied(tmp_path) is not narrow
    dense = torch.ones(3, 2)
    assert copied(dense, tmp_path) is dense


@pytest.mark.parametrize("fault", ["full", "refused"])
def test_a_disk_without_room_is_no_fault(tmp_path, monkeypatch, fault):
    def refuse(**_):
        raise OSError(28, "No space left on device")

    if fault == "full":
        monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(9, 9, 0))
    else:
        monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    matrix = _matrix(Packed(_entries()))
    assert matrix.copied(tmp_path) is matrix


def test_rows_for_many_passes_stand_in_a_file_where_there_is_room(monkeypatch, tmp_path):
    X = np.random.default_rng(0).normal(size=(3000, 4))
    source = Packed(X)
    source.columns = list("abcd")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    rows = unpacked(source)
    assert rows.columns == source.columns
    for _ in range(3):
        np.testing.assert_array_equal(rows[:], X)
    assert source.n_read == len(X)
    # it has no name
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    assert unpacked(source) is source
