"""Statistics of a block averaged over draws of the latents, and the precision of the weights that
they give.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bochner.features.fourier import evaluate
from bochner.kernels.base import Frequencies
from bochner.linalg import Cholesky, cholesky, plus_diagonal
from bochner.memory import chunks
from bochner.processes import ALONE, Processes
from bochner.regression.evidence import CHUNK_ROWS
from bochner.regression.observations import CompleteBlock
from bochner.regression.statistics import Statistics, statistics


def expected_statistics(
    f: Frequencies,
    block: CompleteBlock,
    latents: list[Tensor],
    products: torch.dtype | None = None,
    processes: Processes = ALONE,
) -> Statistics:
    """Sum the statistics of a complete block over draws of X, chunk by chunk.

    Parameters
    ----------
    f : Frequencies
    block : CompleteBlock
    latents : list of Tensor of shape (N, D)
        At least one.
    products : torch.dtype, optional
        Precision of the products; None: the latents'.
    processes : Processes
        Among which the rows are divided: sums are those of all rows.
    """
    sums: Statistics | None = None
    working = f.to(latents[0].dtype)
    for x in latents:
        seen = block.rows.take(x)
        for rows in chunks(seen.shape[0], CHUNK_ROWS):
            part = statistics(
                evaluate(seen[rows], working).features, block.Y[rows], 0.0, products=products
            )
            sums = part if sums is None else sums + part
    if sums is None:
        raise ValueError("no draws of the latents")
    return sums.over(processes)


def precision(
    f: Frequencies,
    block: CompleteBlock,
    latents: list[Tensor],
    stats: Statistics,
    noise_variance: Tensor,
    processes: Processes = ALONE,
) -> Cholesky:
    """Factor B = E[G] + sigma^2 I, (K, K), from products in float64 where those of the statistics
    are too rough.

    Parameters
    ----------
    f, block, latents
        As in ``expected_statistics``, which made ``stats``.
    stats : Statistics
    noise_variance : Tensor, scalar
    processes : Processes
    """

    def matrix(own: Statistics) -> Tensor:
        return plus_diagonal(own.gram / len(latents), noise_variance)

    def exact() -> Tensor:
        return matrix(expected_statistics(f, block, latents, torch.float64, processes))

    return cholesky(matrix(stats), exact)
