"""Places of rows in files: whoever has the rows goes on from them."""

from __future__ import annotations

import pytest
import torch

from bochner.errors import ModelFileError
from bochner.fitting.placed_rows import PlacedRows
from bochner.io.extensions import shards
from bochner.training.checkpoint import discard
from bochner.training.row_shards import RowShards


def written(path, digest="a"):
    """Let two processes of six and four rows place all but their first one."""
    places = torch.arange(20.0).reshape(10, 2)
    for start, stop in ((0, 6), (6, 10)):
        local = torch.arange(1, stop - start)
        kept = PlacedRows(RowShards(path, "placed", digest, start), seconds=0.0)
        for rows in torch.split(local, 2):
            kept.add(rows, places[rows + start], -places[rows + start])
        kept.finish()
    return places


@pytest.mark.parametrize("cuts", [[10], [6, 4], [1, 8, 1]])
def test_any_number_of_processes_reads_what_two_have_written(cuts, tmp_path):
    path = tmp_path / "run.ckpt"
    places = written(path)
    start = 0
    for count in cuts:
        mean, log_std = torch.full((count, 2), -1.0), torch.full((count, 2), -1.0)
        known = PlacedRows(RowShards(path, "placed", "a", start)).restore(mean, log_std)
        every = torch.arange(start, start + count)
        assert known.tolist() == [row not in (0, 6) for row in every.tolist()]
        torch.testing.assert_close(mean[known], places[every][known])
        torch.testing.assert_close(log_std[known], -places[every][known])
        assert bool((mean[~known] == -1.0).all())
        start += count
    assert len(shards(path)) == 5
    discard(path)
    assert not list(tmp_path.iterdir())


def test_rows_placed_under_another_model_are_left_alone(tmp_path):
    written(tmp_path / "run.ckpt", "b")
    mean = torch.zeros(10, 2)
    assert (
        not PlacedRows(RowShards(tmp_path / "run.ckpt", "placed", "a", 0))
        .restore(mean, mean.clone())
        .any()
    )
    assert not mean.any()


def test_a_damaged_file_is_named(tmp_path):
    written(tmp_path / "run.ckpt")
    damaged = shards(tmp_path / "run.ckpt")[0]
    damaged.write_bytes(damaged.read_bytes()[:-3])
    mean = torch.zeros(10, 2)
    with pytest.raises(ModelFileError, match=damaged.name):
        PlacedRows(RowShards(tmp_path / "run.ckpt", "placed", "a", 0)).restore(
            mean, mean.clone()
        )
