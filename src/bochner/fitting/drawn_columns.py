"""Of which blocks of many columns with scattered holes the steps of training draw columns."""

from __future__ import annotations

import functools

import torch

from bochner.data.arrays import Float64Array
from bochner.fitting.plan import Plan
from bochner.fitting.svd_compression import rotate
from bochner.regression.drawn_columns import DrawnColumns
from bochner.regression.observations import Block, Data, IncompleteBlock, complete_blocks

# Columns that a step draws, of tables of so many entries at the least. Bounds of 30 x 20,000, 80 x
# 4,000, 200 x 5,000 and 400 x 1,500 are those of steps on all columns within the error, in a third
# to two thirds of the time; of 28 tables of 20,000 to 200,000 entries six ended 200 to 5,300 nats
# lower and one 1,000 higher, and there is less to gain.
_DRAWN = 500
_ENTRIES = 250_000


def draw_columns(data: Data, filled: Float64Array, plan: Plan) -> Data:
    """Return data of which steps of training draw columns, where a view has many with holes and
    fewer rows.

    Parameters
    ----------
    data : tuple over views of tuples of Block
        Of training.
    filled : ndarray of shape (N, sum of M_v)
        All views side by side, with values in the holes.
    plan : Plan
    """
    out = []
    end = 0
    for blocks in data:
        begin = end
        end += sum(block.n_columns for block in blocks)
        out.append(tuple(_drawn(block, filled[:, begin:end], plan) for block in blocks))
    return tuple(out)


@functools.singledispatch
def _drawn(block: Block, filled: Float64Array, plan: Plan) -> Block:  # noqa: ARG001
    """Return the block."""
    return block


@_drawn.register
def _(block: IncompleteBlock, filled: Float64Array, plan: Plan) -> Block:
    """Return a block of which steps draw columns, where these are a half or less."""
    m = block.n_columns
    few = m < 2 * _DRAWN or m < block.n_rows or m * block.n_rows < _ENTRIES
    if few or plan.processes.size > 1:
        return block
    fill = block.rows.take(torch.from_numpy(filled[:, block.columns.numpy()])).to(block.Y)
    rotated, _ = rotate(((block.filled(fill),),), 0.0, plan.seed)
    (beside,) = complete_blocks(rotated[0])
    return DrawnColumns(**vars(block), fill=fill, rotated=beside, n_drawn=_DRAWN)
