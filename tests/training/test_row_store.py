"""Rows in memory and in a file: the same numbers; a full disk is said and costs nothing."""

import os

import pytest
import torch

from bochner.errors import StorageError, StorageWarning
from bochner.training.row_store import RowStore


@pytest.mark.parametrize("held", [0, 10**6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_begin_as_zero_and_are_what_was_written(held, dtype):
    store = RowStore(50, 3, dtype, held)
    assert (store._file is None) == (held > 0)
    assert torch.equal(store.read(slice(0, 50)), torch.zeros(50, 3, dtype=dtype))
    values = torch.randn(7, 3, dtype=dtype)
    store.write(slice(11, 18), values)
    store.write(slice(49, 50), torch.ones(1, 3))
    expected = torch.zeros(50, 3, dtype=dtype)
    expected[11:18], expected[49] = values, 1.0
    assert torch.equal(store.read(slice(0, 50)), expected)
    assert torch.equal(store.read(slice(10, 19)), expected[10:19])


def test_without_room_rows_are_held_in_memory_and_it_is_said(monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.warns(
        StorageWarning, match=r"room in .* for 1\.2 KiB.*TMPDIR.*held in memory"
    ):
        store = RowStore(100, 3, torch.float32, 0)
    store.write(slice(0, 100), torch.ones(100, 3))
    assert float(store.read(slice(0, 100)).sum()) == 300.0


def test_a_disk_that_fails_is_named(monkeypatch):
    store = RowStore(100, 3, torch.float32, 0)

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(StorageError, match=r"No space left on device.*TMPDIR"):
        store.write(slice(0, 10), torch.ones(10, 3))
