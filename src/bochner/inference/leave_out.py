"""The posterior of the weights as it would be without some of the training rows: for honest choices about rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from bochner.inference.posterior import Draw, ViewPosterior

# A row whose share of its own fit is larger counts as if it were this: 1 - share is what rounding has left then.
_MOST_LEVERAGE = 1.0 - 1e-9


def leave_out(views: Sequence[ViewPosterior], draws: Tensor, rows: Sequence[Tensor]) -> list[ViewPosterior]:
    """Take rows out of the weights of Gaussian views; latents and hyperparameters stay, and so do other views.

    With B = Phi^T Phi + sigma^2 I, H = Phi_F B^-1 Phi_F^T over the rows F that leave, once for every draw of X over
    which the statistics are a mean, features and data divided by the root of the number of draws,

    B_-F^-1 = B^-1 + B^-1 Phi_F^T (I - H)^-1 Phi_F B^-1,   m_-F = m - B^-1 Phi_F^T (I - H)^-1 (Y_F - Phi_F m).

    Parameters
    ----------
    views : sequence of ViewPosterior
    draws : Tensor of shape (S, f, D), float64
        Of the latents of the rows that leave: those the weights were conditioned on.
    rows : sequence over views of Tensor of shape (f, M_v), float64
        Their scaled data, NaN where missing.

    Returns
    -------
    list of ViewPosterior
    """
    n_draws, root = draws.shape[0], draws.shape[0] ** 0.5
    every = [y.repeat(n_draws, 1) / root for y in rows]
    return [
        view if view.local is not None else _without(view, draws.flatten(0, 1), y, 1.0 / root)
        for view, y in zip(views, every, strict=True)
    ]


def _without(view: ViewPosterior, x: Tensor, y: Tensor, scale: float) -> ViewPosterior:
    return replace(view, draws=tuple(_draw_without(draw, view.group_of, x, y, scale) for draw in view.draws))


def _draw_without(draw: Draw, group_of: Tensor, x: Tensor, y: Tensor, scale: float) -> Draw:
    phi, mean, covariance = scale * draw.features(x), draw.mean.clone(), draw.covariance.clone()
    for group in range(draw.covariance.shape[0]):
        columns = (group_of == group).nonzero()[:, 0]
        seen = (~y[:, columns[0]].isnan()).nonzero()[:, 0]
        if not seen.numel():
            continue
        own = phi[seen]
        pull = own @ draw.covariance[group]
        values, vectors = torch.linalg.eigh(pull @ own.T)
        solved = (vectors / (1.0 - values.clamp(max=_MOST_LEVERAGE))) @ (vectors.T @ pull)
        covariance[group] += pull.T @ solved
        mean[:, columns] -= solved.T @ (y[seen][:, columns] - own @ draw.mean[:, columns])
    return replace(draw, mean=mean, covariance=covariance)
