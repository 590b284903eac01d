"""The signed radial spectrum of a kernel."""

from __future__ import annotations

import pytest
import torch

from bochner.krein.radial import evenly


@pytest.mark.parametrize("n", [1, 2, 2999, 3000, 3001, 16_817_100, 17_997_000, 2**40])
def test_pairs_are_chosen_from_the_first_to_the_last(n):
    chosen = evenly(n, 3000)
    assert len(chosen.unique()) == len(chosen) == min(n, 3000)
    assert int(chosen.min()) == 0
    assert int(chosen.max()) == (n - 1 if n > 1 else 0)
    steps = chosen.diff()
    assert not len(steps) or int(steps.max() - steps.min()) <= 1
    assert chosen.dtype == torch.int64
