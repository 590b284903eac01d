"""How well standard deviations and intervals of latents are calibrated: what `row_posterior` still
lacks is measured on rows drawn from the fitted model itself, whose latents are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bochner import random
from bochner.features.fourier import columns_beside, with_covariates
from bochner.latent_inference.grid import OnGrid
from bochner.latent_inference.infer import place
from bochner.latent_inference.mixtures import reaching
from bochner.prediction.decoding import sample_at
from bochner.prediction.row_posterior import posteriors, seen_dimensions
from bochner.weight_posterior.posterior import ViewPosterior

# Latents of drawn rows, how many rows they are at least and at most, how many entries of half of
# them, for rows of ten thousands of columns take their time, and the share of the entries that half
# of the rows lack beside.
_N_LATENTS = 720
_LEAST = 32
_MOST = 240
_ENTRIES = 2**21
_HIDDEN = 0.3
# Squared errors count up to this many variances, so that a lost row does not widen all others.
_OUTLIER = 16.0
# Shares of the check that should lie within so many standard deviations, and what they may lack or
# have beyond that in one measure of how far off they are, with the root mean square of all.
_INSIDE = ((0.6744897501960817, 0.5, 0.03, 0.03), (1.959963984540054, 0.95, 0.015, 0.02))
_ROOT_OFF = 0.15
# At which shares of the mixture are kept.
LEVELS = tuple(level / 100 for level in range(1, 100))
# Of variances: what is tried.
_EXCESSES = torch.cat(
    [
        torch.linspace(-0.7, 1.0, 35, dtype=torch.float64),
        torch.logspace(0.0, 0.9, 25, dtype=torch.float64)[1:],
    ]
)


def widened(std: Tensor, excess: float) -> Tensor:
    """Add a share of the variance: all of it where the data decide, none where the prior does.

    Parameters
    ----------
    std : Tensor of shape (n, D)
    excess : float
        As `check` measures it.

    Returns
    -------
    Tensor of shape (n, D)
    """
    variance = std.square()
    return (variance * (1.0 + excess * (1.0 - variance).clamp(min=0.0))).sqrt()


@dataclass(frozen=True)
class Check:
    """How well standard deviations and intervals of latents cover rows drawn from the model.

    Attributes
    ----------
    excess : float
        e, more than -1, with which variances v become v (1 + e (1 - v)).
    shares : tuple of float
        Of mixtures of modes, in their centres, that hold 0.01, 0.02, ..., 0.99 of the latents;
        these levels themselves where hardly a row has one.
    """

    excess: float
    shares: tuple[float, ...]

    def share(self, level: float) -> float:
        """Return the share of the mixture whose interval holds so much.

        Notes
        -----
        Recalibration of Kuleshov, Fenner and Ermon (2018), by levels.
        """
        return float(np.interp(level, (0.0, *LEVELS, 1.0), (0.0, *self.shares, 1.0)))


def check(
    views: Sequence[ViewPosterior],
    candidates: Tensor,
    shown: Sequence[Tensor],
    seed: int,
    covariates: Tensor | None = None,
) -> Check:
    """Measure what standard deviations and intervals of latents lack, on rows of the model itself.

    Parameters
    ----------
    views : sequence of ViewPosterior
    candidates : Tensor of shape (C, D), float64
        Latents of training rows.
    shown : sequence over views of Tensor of shape (n, M_v), bool
        Patterns of observed entries that drawn rows have; half of the rows lack more entries.
    seed : int
    covariates : Tensor of shape (n, L), optional
        Of rows with these patterns.

    Returns
    -------
    Check
    """
    dim = candidates.shape[1]
    n_columns = sum(mask.shape[1] for mask in shown)
    half = max(_LEAST, min(_MOST, _N_LATENTS // dim, _ENTRIES // max(n_columns, 1)))
    source = random.generator(seed, "latent std")
    x = torch.randn(2 * half, dim, generator=source, dtype=torch.float64)
    pattern = torch.cat(list(shown), dim=1)
    hidden = torch.rand(pattern.shape, generator=source, dtype=torch.float64) < _HIDDEN
    patterns = torch.cat([pattern, pattern & ~hidden])
    which = torch.arange(2 * half) % len(patterns)
    beside = columns_beside(covariates, len(pattern))[which % len(pattern)]
    y = sample_at(views, with_covariates(x, beside), source)
    y = torch.where(patterns[which], y, torch.nan)
    rows = torch.split(y, [view.n_data_columns for view in views], dim=1)
    nowhere: list[Tensor | None] = [None] * len(views)
    placement = place(views, candidates, rows, polish=False, covariates=beside)
    std = torch.ones_like(x)
    central = (2.0 * torch.special.ndtr(x) - 1.0).abs()
    exact = torch.zeros(2 * half, dtype=torch.bool)
    for chosen, modes in posteriors(views, candidates, placement, rows, nowhere):
        std[chosen] = modes.normal_std_about(placement.mean[chosen])
        below = reaching(modes, placement.of(chosen)).distribution(x[chosen])
        central[chosen] = (2.0 * below - 1.0).abs()
        exact[chosen] = isinstance(modes, OnGrid)
    informed = seen_dimensions(views, rows, dim)
    std = torch.where(informed, std, 1.0)
    levels = torch.tensor(LEVELS, dtype=torch.float64)
    unsure = informed & ~exact[:, None]
    held = central[unsure] if int(unsure.sum()) >= _LEAST else levels
    return Check(_solved(x - placement.mean, std), tuple(held.quantile(levels).tolist()))


def _solved(errors: Tensor, std: Tensor) -> float:
    """Return the excess with which intervals hold what they should, and squared errors are as large
    as they should be on average.
    """
    best = 0.0
    least = torch.inf
    for tried in _EXCESSES.tolist():
        away = errors.abs() / widened(std, tried)
        root = away.square().clamp(max=_OUTLIER).mean().sqrt()
        off = float(((root - 1.0) / _ROOT_OFF).square())
        for reach, share, lacking, beyond in _INSIDE:
            more = float((away < reach).double().mean()) - share
            off += (more / (beyond if more > 0.0 else lacking)) ** 2
        if off < least:
            best = tried
            least = off
    return best
