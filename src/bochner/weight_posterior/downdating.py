"""The posterior of the weights as it would be without some of the training rows: for honest choices
about rows.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from bochner.linalg import cholesky
from bochner.regression.noise import spectrum
from bochner.weight_posterior.conditioning import Draw, SharedDraw, SpectralDraw
from bochner.weight_posterior.posterior import GaussianPosterior, ViewPosterior

# A row whose share of its own fit is larger counts as if it were this: 1 - share is what rounding
# has left then.
_MOST_LEVERAGE = 1.0 - 1e-9


def leave_out(
    views: Sequence[ViewPosterior], draws: Tensor, rows: Sequence[Tensor]
) -> list[ViewPosterior]:
    """Take rows out of the weights of Gaussian views; latents and hyperparameters stay, and so do
    other views.

    With B = Phi^T Phi + sigma^2 I, H = Phi_F B^-1 Phi_F^T over the rows F that leave, once for
    every draw of X over which the statistics are a mean, features and data divided by the root of
    the number of draws,

    B_-F^-1 = B^-1 + B^-1 Phi_F^T (I - H)^-1 Phi_F B^-1,   m_-F = m - B_-F^-1 Phi_F^T (Y_F - Phi_F
    m).

    Where rows are more than features, the same with the smaller L^T Phi_F^T Phi_F L in the place of
    H, B^-1 = L L^T:

    B_-F^-1 - B^-1 = L S (I - S)^-1 L^T,   S = L^T Phi_F^T Phi_F L.

    Columns that share an averaged B^-1 but not their holes: a share w of them observe a row that
    leaves, and the average of their new matrices is the P that solves B^-1 = P - w P phi phi^T P /
    (1 + phi^T P phi), for every direction that leaves as if it were alone. With noise per column
    B_m = Phi^T Phi + sigma_m^2 I differ: the spectrum of Phi^T Phi is found anew.

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
    n_draws = draws.shape[0]
    root = draws.shape[0] ** 0.5
    every = [y.repeat(n_draws, 1) / root for y in rows]
    return [
        _without(view, draws.flatten(0, 1), y, 1.0 / root)
        for view, y in zip(views, every, strict=True)
    ]


@functools.singledispatch
def _without(view: ViewPosterior, x: Tensor, y: Tensor, scale: float) -> ViewPosterior:  # noqa: ARG001 - see Gaussian views
    return view


@_without.register
def _(view: GaussianPosterior, x: Tensor, y: Tensor, scale: float) -> ViewPosterior:
    draws = []
    for draw in view.draws:
        kept = copy.deepcopy(draw)
        phi = scale * draw.features(x)
        for group in range(draw.covariance.shape[0]):
            columns = (view.group_of == group).nonzero()[:, 0]
            values = y[:, columns]
            present = (~values.isnan().all(dim=1)).nonzero()[:, 0]
            if present.numel():
                _group_without(
                    kept, view.noise_variance, group, columns, phi[present], values[present]
                )
        draws.append(kept)
    return replace(view, draws=tuple(draws))


@functools.singledispatch
def _group_without(
    draw: Draw,
    noise_variance: float | Tensor,
    group: int,
    columns: Tensor,
    phi: Tensor,
    y: Tensor,
) -> None:
    """Take rows out of a group of columns of a draw, in place."""
    raise NotImplementedError(type(draw))


@_group_without.register
def _(
    draw: SharedDraw,
    noise_variance: float | Tensor,  # noqa: ARG001 - B^-1 knows it
    group: int,
    columns: Tensor,
    phi: Tensor,
    y: Tensor,
) -> None:
    inverse = draw.covariance[group]
    mean = draw.mean[:, columns]
    inverse += _gain(inverse, phi, float((~y.isnan()).double().mean()))
    draw.mean[:, columns] = mean - inverse @ (phi.T @ torch.nan_to_num(y - phi @ mean))


@_group_without.register
def _(
    draw: SpectralDraw,
    noise_variance: float | Tensor,
    group: int,
    columns: Tensor,
    phi: Tensor,
    y: Tensor,
) -> None:
    vectors = draw.covariance[group]
    mean = draw.mean[:, columns]
    scales = draw.scales[columns]
    noise = torch.as_tensor(noise_variance)[columns, None]
    cross = vectors @ ((vectors.T @ mean) / scales.T) - phi.T @ y
    values, vectors = spectrum(
        (vectors * (1.0 / scales[0] - noise[0])) @ vectors.T - phi.T @ phi
    )
    draw.scales[columns] = scales = 1.0 / (values + noise)
    draw.mean[:, columns] = vectors @ ((vectors.T @ cross) * scales.T)
    draw.covariance[group] = vectors


def _gain(inverse: Tensor, phi: Tensor, share: float) -> Tensor:
    """Return what B^-1 gains without rows phi (f, K) that this share of the columns observes, (K,
    K).
    """
    few = phi.shape[0] < phi.shape[1]
    half = inverse @ phi.T if few else cholesky(inverse).factor
    small = phi @ half if few else half.T @ (phi.T @ phi) @ half
    leverage, vectors = torch.linalg.eigh(small)
    weight = _weight(leverage.clamp(min=0.0), share)
    turned = half @ vectors
    gain: Tensor = (turned * (weight if few else leverage * weight)) @ turned.T
    return gain


def _weight(leverage: Tensor, share: float) -> Tensor:
    """Return what a direction phi of that leverage h = phi^T B^-1 phi adds: that times B^-1 phi
    phi^T B^-1.
    """
    if share == 1.0:
        return torch.reciprocal(1.0 - leverage.clamp(max=_MOST_LEVERAGE))
    rest = 1.0 - share
    odds = 1.0 - leverage
    root = torch.hypot(odds, (4.0 * rest * leverage).sqrt())
    # phi^T P phi
    new = torch.where(odds > 0.0, 2.0 * leverage / (root + odds), (root - odds) / (2.0 * rest))
    return share * (1.0 + new) / (1.0 + rest * new).square()
