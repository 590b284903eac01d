"""Counts on disk as starts see them: real numbers that vary as psi does, block by block."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bochner.data.arrays import FloatArray, IntArray
from bochner.data.row_sources import RowSource
from bochner.likelihoods.likelihood import rows_of
from bochner.likelihoods.nonconjugate import NonConjugateLikelihood
from bochner.processes import Processes


@dataclass(frozen=True)
class Surrogate:
    """What a likelihood makes of the entries of a view, centred and scaled as Gaussian data are.

    Attributes
    ----------
    likelihood : NonConjugateLikelihood
    offset : Tensor of shape (N,) or None
        Logarithms of the rows' size factors.
    centre : ndarray of shape (m,)
    scale : float
    """

    likelihood: NonConjugateLikelihood
    offset: Tensor | None
    centre: NDArray[np.float64]
    scale: float

    @classmethod
    def fit(
        cls,
        likelihood: NonConjugateLikelihood,
        offset: Tensor | None,
        columns: IntArray,
        source: RowSource,
        processes: Processes,
    ) -> Surrogate:
        """Measure centre and scale in one pass over the rows of all processes."""
        plain = cls(likelihood, offset, np.zeros(len(columns)), 1.0)
        total, squares = torch.zeros(2, len(columns), dtype=torch.float64)
        start = 0
        for block in source.blocks():
            rows = slice(start, start + len(block))
            values = torch.from_numpy(plain(block[:, columns], rows))
            total += values.sum(0)
            squares += values.square().sum(0)
            start = rows.stop
        total, squares = processes.sums([total, squares])
        n_rows = processes.total(source.n_rows)
        centre = total / n_rows
        variance = float((squares / n_rows - centre.square()).mean())
        scale = variance**0.5 if variance > 0.0 else 1.0
        return cls(likelihood, offset, centre.numpy(), scale)

    def __call__(self, values: FloatArray, rows: slice | IntArray) -> FloatArray:
        """Return the surrogates of some rows, (n, m)."""
        index = rows if isinstance(rows, slice) else torch.from_numpy(rows)
        raw = torch.from_numpy(np.asarray(values, dtype=np.float64))
        made = self.likelihood.surrogate(raw, rows_of(self.offset, index)).numpy()
        out: FloatArray = (made - self.centre) / self.scale
        return out
