"""Rows and masks: whatever the kind, taking, adding up and hiding mean the same."""

import pytest
import torch

from bochner.data.masks import FullMask, Mask, PartialMask
from bochner.regression.observations import AllRows, Rows, SomeRows

VALUES = torch.arange(24, dtype=torch.float64).reshape(6, 4)
KINDS = {
    "all": (AllRows(), list(range(6))),
    "some": (SomeRows(torch.tensor([1, 2, 5])), [1, 2, 5]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_rows_take_scatter_and_add(kind):
    rows, numbers = KINDS[kind]
    part = rows.take(VALUES)
    assert torch.equal(part, VALUES[numbers])
    assert torch.equal(rows.take(VALUES.T, dim=1), VALUES.T[:, numbers])
    assert rows.numbers(6).tolist() == numbers
    expected = torch.zeros_like(VALUES)
    expected[numbers] = part
    assert torch.equal(rows.scatter(part, VALUES), expected)
    rows.part(slice(1, 3)).add_to(expected, part[1:3])
    assert torch.equal(expected[numbers[1:3]], 2.0 * VALUES[numbers[1:3]])
    present = torch.zeros(6, dtype=torch.bool)
    rows.mark(present)
    assert present.nonzero()[:, 0].tolist() == numbers
    assert Rows.where(present).numbers(6).tolist() == numbers


@pytest.mark.parametrize("kind", KINDS)
def test_rows_among_others_are_renumbered(kind):
    rows, numbers = KINDS[kind]
    index = torch.tensor([0, 1, 5])
    position, new = rows.among(index)
    stay = [n for n in numbers if n in index.tolist()]
    assert torch.equal(rows.take(VALUES)[position], VALUES[stay])
    assert index[new.numbers(3)].tolist() == stay


def test_masks_hide_and_weigh():
    Y = VALUES.clone()
    assert Mask.of(Y) == FullMask()
    Y[0, 1] = Y[3, 2] = torch.nan
    mask = Mask.of(Y)
    assert isinstance(mask, PartialMask)
    filled = torch.nan_to_num(Y)
    observed = ~Y.isnan()
    for masking in (mask, FullMask()):
        weights = masking.weights(VALUES)
        assert torch.equal(masking.apply(VALUES), weights * VALUES)
        assert torch.equal(~masking.hide(VALUES).isnan(), weights > 0)
        index = torch.tensor([0, 3])
        assert torch.equal(masking.rows(index).weights(VALUES[index]), weights[index])
        assert torch.equal(masking.columns(index).weights(VALUES[:, index]), weights[:, index])
        assert torch.equal(
            masking.columns(slice(1, 3)).weights(VALUES[:, 1:3]), weights[:, 1:3]
        )
    assert torch.equal(mask.weights(VALUES) > 0, observed)
    assert torch.equal(mask.hide(filled).isnan(), Y.isnan())
