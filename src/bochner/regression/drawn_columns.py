"""log p(Y | X, W) of a Gaussian view of many columns with scattered holes, from some of them.

A complete view of many columns costs what its rows do, whatever the columns are: it is rotated. One
with holes costs every column a solution of its own. So a step of training draws columns, and takes
the rest from the same data with the holes filled, which is rotated (a control variate):

sum_m log p(y_m) = sum_m log p(completed_m) + sum_m (log p(y_m) - log p(completed_m)),

the second sum over the drawn columns, each of which stands for as many as there are to one. A
systematic sample draws every column with the same probability: the value and its gradients are
unbiased over its start whatever stands in the holes, and vary the less the better that is. Where
the noise is far smaller than what the fill is wrong by, they vary too much, and all columns count.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from bochner.kernels.base import Frequencies
from bochner.processes import ALONE, Processes
from bochner.regression.conjugate_gradients import groups_left
from bochner.regression.evidence import CHUNK_ROWS, view_evidence
from bochner.regression.incomplete import Sample, masked_evidence
from bochner.regression.observations import CompleteBlock, IncompleteBlock
from bochner.regression.streamed import evidence_with_holes

# Columns whose determinants are exact begin elsewhere among the drawn ones than these among all:
# the digits of the start beyond these are another number in [0, 1).
_APART = 4096.0
# Noise variance, in variances of the view's data, below which all columns count: with 1e-4 bounds
# were 3 % lower, with 0.007 to 0.026 three of four were lower by 0.1 to 0.2 %.
_QUIET = 0.03


@dataclass(frozen=True)
class DrawnColumns(IncompleteBlock):
    """Columns with scattered holes of which a step of training draws some.

    Attributes
    ----------
    fill : Tensor of shape (n, m)
        Values for the holes.
    rotated : CompleteBlock
        The filled columns, on fewer.
    n_drawn : int
        Columns that a step draws.
    """

    fill: Tensor
    rotated: CompleteBlock
    n_drawn: int


@evidence_with_holes.register
def _(
    block: DrawnColumns,
    x: Tensor,
    frequencies: Frequencies,
    noise_variance: Tensor,
    *,
    sample: Sample | None = None,
    chunk_rows: int = CHUNK_ROWS,
    processes: Processes = ALONE,  # noqa: ARG001 - of several none draws
) -> Tensor:
    given = (x, frequencies, noise_variance)
    if sample is None or float(noise_variance.detach()) < _QUIET:
        return masked_evidence(*given, block, sample=sample, chunk_rows=chunk_rows)
    some, share = replace(sample, n_columns=block.n_drawn).of(block.n_columns, x.device)
    drawn = _columns(block, some)
    completed = drawn.filled(block.fill.index_select(1, some))
    within = replace(sample, start=sample.start * _APART % 1.0)
    exact = masked_evidence(*given, drawn, sample=within, chunk_rows=chunk_rows)
    beside = view_evidence(*given, (completed,), chunk_rows=chunk_rows)
    rest = view_evidence(*given, (block.rotated,), chunk_rows=chunk_rows)
    return rest + share * (exact - beside)


def _columns(block: IncompleteBlock, some: Tensor) -> IncompleteBlock:
    """Return some columns of a block, in ascending order."""
    _, sizes = groups_left(block.sizes, some)
    Y, observed = (part.index_select(1, some) for part in (block.Y, block.observed))
    return IncompleteBlock(Y, block.rows, block.columns[some.cpu()], sizes, observed)
