"""The posterior of the weights as it would be without some of the training rows: for honest choices about rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from bochner.inference.posterior import Draw, ViewPosterior

# A row whose share of its own fit is larger counts as if it were this: the features at the mean of a latent may weigh
# more than what the posterior, which averages over latents, holds of them.
_MOST_LEVERAGE = 0.999


def leave_out(views: Sequence[ViewPosterior], x: Tensor, rows: Sequence[Tensor]) -> list[ViewPosterior]:
    """Take rows out of the weights of Gaussian views; latents and hyperparameters stay, and so do other views.

    With B = Phi^T Phi + sigma^2 I, H = Phi_F B^-1 Phi_F^T over the rows F that leave,

    B_-F^-1 = B^-1 + B^-1 Phi_F^T (I - H)^-1 Phi_F B^-1,   m_-F = m - B^-1 Phi_F^T (I - H)^-1 (Y_F - Phi_F m).

    Parameters
    ----------
    views : sequence of ViewPosterior
    x : Tensor of shape (f, D), float64
        Latents of the rows that leave, where they were trained.
    rows : sequence over views of Tensor of shape (f, M_v), float64
        Their scaled data, NaN where missing.

    Returns
    -------
    list of ViewPosterior
    """
    return [view if view.local is not None else _without(view, x, y) for view, y in zip(views, rows, strict=True)]


def _without(view: ViewPosterior, x: Tensor, y: Tensor) -> ViewPosterior:
    return replace(view, draws=tuple(_draw_without(draw, view.group_of, x, y) for draw in view.draws))


def _draw_without(draw: Draw, group_of: Tensor, x: Tensor, y: Tensor) -> Draw:
    phi, mean, covariance = draw.features(x), draw.mean.clone(), draw.covariance.clone()
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
