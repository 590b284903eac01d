"""Training rows that all processes know."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from bochner.data.columns import dense_rows
from bochner.fitting.data import FitData
from bochner.fitting.plan import Fit, Plan
from bochner.processes import ALONE


@dataclass(frozen=True)
class Candidates:
    """Training rows that all processes know: from where rows are placed, and what reports look at.

    Attributes
    ----------
    latents : Tensor of shape (C, D)
    values : ndarray, sparse matrix or RowSource
        Rows among which the candidates are: all rows of one process, or the candidates.
    index : Tensor of shape (C,), int64
        Which of these rows they are.
    offsets : list over views of Tensor of shape (n,), or None
        Logarithms of these rows' size factors.
    fit, data, plan
        Of these rows.
    """

    latents: Tensor
    values: Any
    index: Tensor
    offsets: list[Tensor | None]
    fit: Fit
    data: FitData
    plan: Plan

    @classmethod
    def of(
        cls,
        fit: Fit,
        values: Any,
        offsets: list[Tensor | None],
        data: FitData,
        kept: Tensor,
        plan: Plan,
    ) -> Candidates:
        """Take rows by their global numbers, (C,)."""
        processes = plan.processes
        n_rows = values.shape[0]
        if processes.size == 1:
            return cls(fit.latents[kept], values, kept, offsets, fit, data, plan)
        local = processes.local(kept, n_rows)
        latents = processes.joined(fit.latents[local], kept, n_rows)
        raw = torch.from_numpy(dense_rows(values, local.numpy()))
        rows = processes.joined(raw, kept, n_rows).numpy()

        def of_rows(offset: Tensor | None) -> Tensor | None:
            return None if offset is None else processes.joined(offset[local], kept, n_rows)

        draws = fit.latent_draws
        if draws is not None:
            here = draws[:, local].transpose(0, 1)
            draws = processes.joined(here, kept, n_rows).transpose(0, 1)
        every = torch.arange(len(kept))
        known = replace(fit, latents=latents, latent_draws=draws)
        alone = replace(plan, processes=ALONE)
        logs = [of_rows(offset) for offset in offsets]
        return cls(latents, rows, every, logs, known, data.take(kept, processes), alone)
