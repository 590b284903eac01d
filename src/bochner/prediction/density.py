"""What half-seen rows say about entries they do not show: draws of them, and their log density."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from bochner.likelihoods.likelihood import Offsets, of_each_row, rows_of
from bochner.memory import chunks
from bochner.weight_posterior.posterior import ViewPosterior

# Numbers held at once.
_NUMBERS = 2**20


def entry_log_density(
    views: Sequence[ViewPosterior],
    latents: Sequence[Tensor],
    truth: Sequence[Tensor],
    offsets: Offsets | None = None,
) -> Tensor:
    """Return log of the mean over latents of p(entry | x), every entry by itself.

    Parameters
    ----------
    views : sequence of ViewPosterior
    latents : sequence over views of Tensor of shape (n, S, D), float64
        Draws of where the rows lie, as `completion.draw_latents` returns them.
    truth : sequence over views of Tensor of shape (n, M_v), float64
        Scaled data; NaN where there is nothing to judge.
    offsets : sequence over views of Tensor of shape (n,), or None, optional

    Returns
    -------
    Tensor of shape (n, sum of M)
        Nats; NaN where the truth is.
    """
    offsets = offsets or [None] * len(views)
    by_view = [
        _of_view(v, x, y, o) for v, x, y, o in zip(views, latents, truth, offsets, strict=True)
    ]
    return torch.cat(by_view, dim=1)


def _of_view(view: ViewPosterior, latents: Tensor, y: Tensor, offset: Tensor | None) -> Tensor:
    n, n_draws, dim = latents.shape
    parts = []
    # of every draw there are features and columns
    width = max(view.n_columns, view.draws[0].mean.shape[0])
    for part in chunks(n, max(1, _NUMBERS // (n_draws * width))):
        x = latents[part].reshape(-1, dim)
        shift = of_each_row(
            rows_of(offset, part), len(latents[part]), latents
        ).repeat_interleave(n_draws)
        encoded = view.encode(y[part]).repeat_interleave(n_draws, dim=0)
        observed = ~encoded.isnan()
        entries = []
        for draw in view.draws:
            of_psi = view.predictive.log_predictive(
                encoded, *view.psi(draw, draw.features(x), shift)
            )
            of_data = view.likelihood.by_data_column(torch.where(observed, of_psi, 0.0))
            entries.append(of_data.reshape(-1, n_draws, y.shape[1]))
        log_mean = torch.cat(entries, dim=1).logsumexp(1) - math.log(n_draws * len(view.draws))
        parts.append(torch.where(y[part].isnan(), y[part], log_mean))
    return torch.cat(parts)
